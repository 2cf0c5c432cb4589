"""The pages of the documentation that are generated from the code, each time it is built.

There is a page for each assay, model and dataset of the catalogues, so that the documentation
is always up to date: a new line in a catalogue is a new page.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def generated_pages() -> dict[str, str]:
    """Path -> text of every page that is written from the code."""
    return {
        **assay_pages(),
        **model_pages(),
        **data_pages(),
        **decision_pages(),
        "commands.md": commands_page(),
        "flavours.md": flavours_page(),
        "index.md": index_page(),
    }


def index_page() -> str:
    """The README, with links that work on the site."""
    return (
        (HERE.parent / "README.md")
        .read_text()
        .replace("](docs/", "](")
        .replace("](decisions)", "](decisions/index.md)")
        .replace("[benchmarks](benchmarks)", "`benchmarks/`")
        .replace("[one page](benchmarks/RESULTS.md)", "one page (`benchmarks/RESULTS.md`)")
        .replace("[CONTRIBUTING](CONTRIBUTING.md)", "`CONTRIBUTING.md`")
    )


def assay_pages() -> dict[str, str]:
    """A page for each assay: question, definition, cost, how it is called, its figure."""
    from zscope.assays import CATALOGUE

    pages: dict[str, str] = {}
    rows: dict[str, list[str]] = {}
    images = figures()
    for name, entry in CATALOGUE.items():
        text = [f"# {name}", entry.question, definition(entry), *usage(entry)]
        if name in images:
            text += ["## On the small β-VAE of these pages", f"![{name}]({name}.png)"]
        pages[f"assays/{name}.md"] = "\n\n".join(text)
        row = f"| [{name}]({name}.md) | {entry.question} | {cost(entry)} |"
        rows.setdefault(entry.group, []).append(row)
    index = [
        "# Assays",
        "A pass decodes one code and encodes the result again. Where a limit is given, the default "
        "number of samples is lowered for models with many latents, to stay below it.",
    ]
    for group, lines in rows.items():
        header = "| assay | the question it answers | passes of the model |\n| --- | --- | --- |"
        index += [f"## {group}", "\n".join([header, *lines])]
    pages["assays/index.md"] = "\n\n".join(index) + "\n"
    return pages


def definition(entry: Any) -> str:
    """The docstring of an assay's file, without its first line if that is the question."""
    first, _, rest = entry.cite.partition("\n\n")
    repeated = entry.question.lower() in " ".join(first.split()).lower()
    text = rest if repeated else entry.cite
    return str(text).replace("\n`flavour=", "\n\n`flavour=")  # each flavour as a paragraph


def usage(entry: Any) -> list[str]:
    """How an assay is called from Python and from the shell, its group and its cost."""
    import inspect

    function = entry.load()
    arrays = f"zs.assays.{entry.attribute}{plain_signature(inspect.signature(function))}"
    if entry.compares:
        calls, command = arrays, "zscope compare RUN RUN"
    else:
        calls = f"zs.assays.{entry.attribute}(recording)\n{arrays}"
        command = f"zscope assay RUN {entry.name}"
    return [
        "## How it is called",
        f"```python\n{calls}\n```",
        inspect.getdoc(function) or "",
        f"```\n{command}\n```",
        f"Group: {entry.group}. Cost in passes of the model: {cost(entry)}.",
    ]


def cost(entry: Any) -> str:
    """How often the model is run, as the entry of an assay states."""
    if entry.compares:
        return "none, it compares recordings"
    if not entry.passes:
        return "none"
    limit = f", by default at most {entry.most:,}" if entry.most else ""
    used = "".join(f", and those of {name}" for name in entry.used_assays())
    return f"`{entry.passes}`{limit}{used}"


def flavours() -> dict[str, dict[str, str]]:
    """assay -> flavour -> what it does, from the docstring."""
    import inspect
    import re

    from zscope.assays import CATALOGUE

    texts = {}
    for name, entry in CATALOGUE.items():
        if "flavour" not in inspect.signature(entry.load()).parameters:
            continue
        texts[name] = {}
        for block in entry.cite.split("\n\n"):
            parts = re.split(r'`flavour="([\w-]+)"`:?', block)
            for flavour, part in zip(parts[1::2], parts[2::2], strict=True):
                text = " ".join(part.split()).strip(" ;")
                texts[name][flavour] = re.sub(r"^as above", "the formula of its page", text)
    return texts


def flavours_page() -> str:
    """One table of all definitions that a score can follow."""
    import inspect

    from zscope.assays import CATALOGUE

    rows = []
    for name, texts in flavours().items():
        default = inspect.signature(CATALOGUE[name].load()).parameters["flavour"].default
        for flavour, text in texts.items():
            mark = " (default)" if flavour == default else ""
            cell = (text[:1].upper() + text[1:]).replace("|", "&#124;")
            rows.append(f"| [{name}](assays/{name}.md) | `{flavour}`{mark} | {cell} |")
    return "\n".join(
        [
            "# Flavours",
            "",
            "Papers, their authors' code and common practice use one name for different "
            "definitions. The default is the one that measures what its name says; the others "
            "reproduce published tables. `dlib` is the widely used library of Locatello et al. "
            "(2019).",
            "",
            "| score | flavour | what it does |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def plain_signature(signature: Any) -> str:
    """The names and defaults of a signature, without types."""
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parts.append(parameter.name + default)
    return f"({', '.join(parts)})"


def model_pages() -> dict[str, str]:
    from zscope import models

    pages, rows = {}, []
    for name in models.names():
        entry = models.entry(name)
        options = "\n".join(
            f"| `{key}` | `{option.default}` | {option.help} |"
            for key, option in entry.options.items()
        )
        text = [
            f"# {name}",
            entry.title,
            describe(entry),
            "| option | default | |\n| --- | --- | --- |",
        ]
        text[-1] += "\n" + options
        pages[f"models/{name}.md"] = "\n\n".join(text)
        rows.append(f"| [{name}]({name}.md) | {entry.title} |")
    table = "\n".join(["| model | |", "| --- | --- |", *rows])
    pages["models/index.md"] = f"# Models\n\n{table}\n"
    return pages


def describe(entry: Any) -> str:
    """Summary, formula and source of a model."""
    parts = [getattr(entry, key, "") for key in ("summary", "formula", "paper", "cite")]
    return "\n\n".join(str(part) for part in parts if part)


def data_pages() -> dict[str, str]:
    from zscope import data

    pages, rows = {}, []
    for name in data.names():
        source = data.source(name)
        where = "built in" if source.built_in else "the publisher's files"
        options = [f"| `{key}` | {text} |" for key, text in source.options.items()]
        text = [f"# {name}", source.title, source.summary, f"Source: {where}. {source.cite}"]
        text.append(f"Licence: {source.licence}")
        if options:
            text.append("\n".join(["| option | |", "| --- | --- |", *options]))
        pages[f"data/{name}.md"] = "\n\n".join(text)
        rows.append(f"| [{name}]({name}.md) | {source.title} | {where} |")
    table = "\n".join(["| dataset | | |", "| --- | --- | --- |", *rows])
    pages["data/index.md"] = f"# Datasets\n\n{table}\n"
    return pages


def decision_pages() -> dict[str, str]:
    rows = []
    for file in sorted((HERE / "decisions").glob("0*.md")):
        title = file.read_text().splitlines()[0].removeprefix("# ")
        rows.append(f"- [{title}]({file.name})")
    return {"decisions/index.md": "# Decisions\n\n" + "\n".join(rows) + "\n"}


def commands() -> list[tuple[str, ...]]:
    """Every command of the command line, sub-commands too."""
    import typer

    from zscope.cli import app

    def walk(command: Any, words: tuple[str, ...]) -> list[tuple[str, ...]]:
        children = getattr(command, "commands", {})
        return [words] + [
            w for name, child in children.items() for w in walk(child, (*words, name))
        ]

    return walk(typer.main.get_command(app), ())[1:]


COMPLETION = (
    "`zscope --install-completion` lets Tab complete commands, options and the names of datasets, "
    "models, assays, studies and presets, in bash, zsh, fish and PowerShell; open a new terminal "
    "afterwards. `zscope --show-completion` prints the script instead."
)


def commands_page() -> str:
    """The output of `--help` for every command."""
    text = ["# Commands", COMPLETION]
    program = "import sys; sys.argv[0] = 'zscope'; from zscope.cli import main; main()"
    for words in commands():
        process = subprocess.run(
            [sys.executable, "-c", program, *words, "--help"],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"COLUMNS": "92", "NO_COLOR": "1"},
        )
        text += [f"## zscope {' '.join(words)}", f"```\n{process.stdout.strip()}\n```"]
    return "\n\n".join(text)


_FIGURES: dict[str, bytes] = {}


def figures() -> dict[str, bytes]:
    """The figure of every assay that has one, for a β-VAE trained for these pages."""
    if _FIGURES or os.environ.get("ZSCOPE_DOCS_FIGURES") == "no":
        return _FIGURES
    import io

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    import zscope as zs
    from zscope.assays.run import measure

    sprites = zs.data.load(
        "sprites", resolution=32, scale=3, orientation=10, position_x=12, position_y=12,
        antialias=True,
    )  # fmt: skip
    model = zs.models.build("beta-vae", shape=sprites.shape, latents=6, beta=1.0)
    run = zs.train(
        model, sprites, steps=2000, rate=1e-3, out=HERE.parent / "runs" / "docs", resume=True
    )
    recording = zs.record(run.model, sprites, samples=2000)
    for name, result in measure(recording).results.items():
        try:
            plot = result.plot()
        except zs.Undefined:  # a result without a figure
            continue
        figure = plot if hasattr(plot, "savefig") else plot.get_figure()
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
        plt.close(figure)
        _FIGURES[name] = buffer.getvalue()
    return _FIGURES
