"""The pages of the documentation that are made from the code, each time it is built.

Assays, models, datasets and commands are looped over as the command line does, so that
the pages cannot fall behind: a new line in a catalogue is a new page.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs once it knows which files there are."""
    from mkdocs.structure.files import File

    pages = {**assay_pages(), **model_pages(), **data_pages(), **decision_pages()}
    pages["commands.md"] = commands_page()
    pages["flavours.md"] = flavours_page()
    pages["index.md"] = index_page()
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    for name, picture in figures().items():
        files.append(File.generated(config, f"assays/{name}.png", content=picture))
    return files


def index_page() -> str:
    """The README, with links that hold here."""
    return (
        (HERE.parent / "README.md")
        .read_text()
        .replace("](docs/", "](")
        .replace("](decisions)", "](decisions/index.md)")
        .replace("[benchmarks](benchmarks)", "`benchmarks/`")
        .replace("[CONTRIBUTING](CONTRIBUTING.md)", "`CONTRIBUTING.md`")
    )


def assay_pages() -> dict[str, str]:
    """A page for each assay: its question, its docstring, how it is called, its figure."""
    import inspect

    from zscope.assays import CATALOGUE

    pages, rows = {}, []
    drawn = figures()
    for name, entry in CATALOGUE.items():
        function = entry.load()
        signature = inspect.signature(function)
        first, _, rest = entry.cite.partition("\n\n")
        again = entry.question.lower() in " ".join(first.split()).lower()
        told = rest if again else entry.cite
        # Each flavour is a paragraph of its own here.
        told = told.replace("\n`flavour=", "\n\n`flavour=")
        text = [f"# {name}", entry.question, told]
        call = f"zs.assays.{entry.attribute}{plain_signature(signature)}"
        text += ["## How it is called", f"```python\n{call}\n```", inspect.getdoc(function) or ""]
        text.append(f"```\nzscope assay RUN {name}\n```")
        if name in drawn:
            text += ["## On the small β-VAE of these pages", f"![{name}]({name}.png)"]
        pages[f"assays/{name}.md"] = "\n\n".join(text)
        rows.append(f"| [{name}]({name}.md) | {entry.question} |")
    table = "\n".join(["| assay | the question it answers |", "| --- | --- |", *rows])
    pages["assays/index.md"] = f"# Assays\n\n{table}\n"
    return pages


def flavours() -> dict[str, dict[str, str]]:
    """assay -> flavour -> what it does, as its docstring says."""
    import inspect
    import re

    from zscope.assays import CATALOGUE

    found = {}
    for name, entry in CATALOGUE.items():
        if "flavour" not in inspect.signature(entry.load()).parameters:
            continue
        told = {}
        for block in entry.cite.split("\n\n"):
            parts = re.split(r'`flavour="([\w-]+)"`:?', block)
            for flavour, text in zip(parts[1::2], parts[2::2], strict=True):
                said = " ".join(text.split()).strip(" ;")
                told[flavour] = re.sub(r"^as above", "the formula of its page", said)
        found[name] = told
    return found


def flavours_page() -> str:
    """One table of all definitions that a score can follow."""
    import inspect

    from zscope.assays import CATALOGUE

    rows = []
    for name, told in flavours().items():
        default = inspect.signature(CATALOGUE[name].load()).parameters["flavour"].default
        for flavour, text in told.items():
            mark = " (default)" if flavour == default else ""
            said = (text[:1].upper() + text[1:]).replace("|", "&#124;")
            rows.append(f"| [{name}](assays/{name}.md) | `{flavour}`{mark} | {said} |")
    return "\n".join(
        [
            "# Flavours",
            "",
            "Papers, their authors' code and common practice differ in what they call by one name. "
            "The default is the definition that is right; the others reproduce old tables. `dlib` "
            "is the widely used library of Locatello et al. (2019).",
            "",
            "| score | flavour | what it does |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def plain_signature(signature: Any) -> str:
    """Names and defaults, without types."""
    parts, keyword = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword:
            parts.append("*")
            keyword = True
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
    """The summary of an entry, as a code block where it holds a formula."""
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

    def below(command: Any, words: tuple[str, ...]) -> list[tuple[str, ...]]:
        inner = getattr(command, "commands", {})
        return [words] + [w for name, sub in inner.items() for w in below(sub, (*words, name))]

    return below(typer.main.get_command(app), ())[1:]


def commands_page() -> str:
    """What `--help` says, of every command."""
    text = ["# Commands"]
    for words in commands():
        done = subprocess.run(
            [sys.executable, "-c", "from zscope.cli import main; main()", *words, "--help"],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"COLUMNS": "92", "NO_COLOR": "1"},
        )
        text += [f"## zscope {' '.join(words)}", f"```\n{done.stdout.strip()}\n```"]
    return "\n\n".join(text)


_FIGURES: dict[str, bytes] = {}


def figures() -> dict[str, bytes]:
    """The figure of every assay that has one, on a β-VAE trained for these pages."""
    if _FIGURES or os.environ.get("ZSCOPE_DOCS_FIGURES") == "no":
        return _FIGURES
    import io

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    import zscope as zs
    from zscope.results import Result

    sprites = zs.data.load(
        "sprites", resolution=32, scale=3, orientation=10, position_x=12, position_y=12,
        antialias=True,
    )  # fmt: skip
    model = zs.models.build("beta-vae", shape=sprites.shape, latents=6, beta=1.0)
    run = zs.train(
        model, sprites, steps=2000, rate=1e-3, out=HERE.parent / "runs" / "docs", resume=True
    )
    recording = zs.record(run.model, sprites, samples=2000)
    for name, result in zs.assays.measure(recording).items():
        if not isinstance(result, Result):
            continue
        try:
            drawing = result.plot()
        except zs.Undefined:
            continue
        figure = drawing if hasattr(drawing, "savefig") else drawing.get_figure()
        memory = io.BytesIO()
        figure.savefig(memory, format="png", dpi=110)
        plt.close(figure)
        _FIGURES[name] = memory.getvalue()
    return _FIGURES
