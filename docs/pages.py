"""The pages of the documentation that are generated from the code, each time it is built.

There is a page for each assay, model and dataset of the catalogues, so that the documentation
is always up to date: a new line in a catalogue is a new page. `build.py` makes a site of them.
"""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from formulas import typeset
from gallery import (
    QUESTIONS,
    WORLDS,
    figure,
    figures,
    kept_scores,
    questions_with,
)

__all__ = ["assay_pages", "commands", "data_pages", "flavours", "generated_pages", "model_pages"]

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


ANSWERS = (
    ("Which latents are used, and which are noise?", "gallery/used.md"),
    ("Which latents depend on which?", "gallery/dependence.md"),
    ("Where are the holes?", "gallery/holes.md"),
    ("Does a change to one latent survive decoding and encoding?", "gallery/interventions.md"),
    ("How many latents are needed?", "gallery/how-many.md"),
    ("How disentangled are the codes?", "gallery/disentanglement.md"),
    ("How do two models compare?", "gallery/compare.md"),
    ("Are the latents ready for diffusion?", "gallery/diffusion.md"),
)


def index_page() -> str:
    """The first page: what zscope is, how to begin, and where everything is."""
    from zscope import models
    from zscope.assays import CATALOGUE

    guide = sorted(path.stem for path in (HERE / "guide").glob("*.md"))
    first = "start" if "start" in guide else "own-model"
    questions = "\n".join(f"- [{question}]({page})" for question, page in ANSWERS)
    places = {
        f"[Guide](guide/{first}.md)": "how to do things, step by step",
        "[Gallery](gallery/index.md)": f"{len(QUESTIONS)} questions, the figures that answer them, "
        "and their code",
        "[Assays](assays/index.md)": f"the {len(CATALOGUE)} measurements: formula, range, cost, "
        "how to read the figure",
        "[Flavours](flavours.md)": "which definition a published score follows",
        "[Models](models/index.md), [data](data/index.md)": f"the {len(models.names())} models and "
        "the datasets that come with zscope",
        "[API reference](api/index.md), [commands](commands.md)": "every public name, and the "
        "output of every `--help`",
        "[Correctness](correctness.md), [reproduction](reproduction.md)": "what the numbers were "
        "checked against, and the papers re-run",
        "[Reliability](reliability.md), [scale](scale.md)": "what was tried to lose a run, and how "
        "far zscope grows",
        "[Decisions](decisions/index.md)": "why things are as they are",
    }
    table = "\n".join(["| | |", "| --- | --- |", *(f"| {x} | {y} |" for x, y in places.items())])
    return f"""---
hide: [navigation, toc]
---

# zscope

<p class="lead">Train autoencoders and measure what their latent spaces have learned.</p>

<div class="halves" markdown>
<div markdown>

Give zscope any encoder and decoder and some data. It tells you which latents are used, which depend
on which, where the holes are, and what to do about it. Every score comes with its definition, and
with what codes without information would get wherever there is such a level.

[Start here](guide/{first}.md){{ .md-button .md-button--primary }}
[Gallery](gallery/index.md){{ .md-button }}
[Installation](guide/install.md){{ .md-button }}

```python
import zscope as zs

model = zs.wrap(my_encoder, my_decoder, example=x[:8])
report = zs.assay(model, x)
report.save("report.html")
```

```text
zscope demo                     # train, measure, report
zscope report mymodel.py:load --data images.npy
zscope explore mymodel.py:load --data images.npy
```

</div>
<div class="questions" markdown>

{questions}

</div>
</div>

<div class="halves" markdown>

<figure markdown>
![The report of the demo: findings in plain words, each with its evidence](assets/report.png)
<figcaption markdown>`zscope report`: findings first, each with its evidence and what to do.
</figcaption>
</figure>

<figure markdown>
![The explorer: codes as points on a map, the chosen ones as a table](assets/explorer.png)
<figcaption markdown>`zscope explore`: all codes, what each latent does, and where the holes are,
live in the browser.</figcaption>
</figure>

</div>

## Where to go on

{table}
"""


def assay_pages() -> dict[str, str]:
    """A page for each assay: what it means, its figure, definition, cost, how it is called."""
    from zscope.assays import CATALOGUE

    pages: dict[str, str] = {}
    rows: dict[str, list[str]] = {}
    scores = dict(kept_scores())
    for name, entry in CATALOGUE.items():
        text = [f"# {entry.title or name}", f'<p class="lead">{entry.question}</p>']
        text += [f'!!! abstract "In plain words"\n\n    {entry.meaning}'] if entry.meaning else []
        text += example(name, scores.get(name, []))
        text += ["## Definition", typeset(definition(entry)), *usage(entry)]
        pages[f"assays/{name}.md"] = "\n\n".join(text) + "\n"
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


def example(name: str, rows: list[list[str]]) -> list[str]:
    """The kept figure of an assay with how to read it, and the scores that belong to it."""
    picture = figures().get(name)
    if picture is None or picture.file is None:
        return []
    text = ["## An example", f"Of {WORLDS[picture.world][0]}.", figure(picture, "../kept")]
    if rows:
        header = "| score | value | by chance | samples |\n| --- | --- | --- | --- |"
        lines = [
            f"| {score or name} | {value} | {chance} | {n} |" for score, value, _, chance, n in rows
        ]
        text.append("\n".join([header, *lines]))
    if questions := questions_with(name):
        pages = ", ".join(f"[{each.title}](../gallery/{each.name}.md#{name})" for each in questions)
        text.append(f"In the gallery, with the code that drew it: {pages}")
    return text


def definition(entry: Any) -> str:
    """The docstring of an assay's file, without its first line if that is the question."""
    first, _, rest = entry.cite.partition("\n\n")
    repeated = entry.question.lower() in " ".join(first.split()).lower()
    text = rest if repeated else entry.cite
    return str(text).replace("\n`flavour=", "\n\n`flavour=")  # each flavour as a paragraph


def usage(entry: Any) -> list[str]:
    """How an assay is called from Python and from the shell, its group and its cost."""
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
        typeset(inspect.getdoc(function) or ""),
        f"```\n{command}\n```",
        f"Group: {entry.group}. Cost in passes of the model: {cost(entry)}. In the API reference: "
        f"[zs.assays.{entry.attribute}](../api/assays.md#zs.assays.{entry.attribute}).",
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
    """Definition and source of a model, without the first line if that is its title."""
    first, _, rest = str(getattr(entry, "summary", "")).partition("\n\n")
    text = rest if first.strip(" .\n") == entry.title else f"{first}\n\n{rest}"
    if not re.search(r"^    \S", text, re.MULTILINE) and getattr(entry, "formula", ""):
        text += f"\n\n    {entry.formula}"
    if not rest:  # the text of a file has its sources
        text += f"\n\n{getattr(entry, 'paper', '')}"
    return typeset(text)


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
    """The output of `--help` for every command, asked for by one process."""
    program = f"""
import contextlib, io, json, sys
sys.argv[0] = "zscope"
from zscope.cli import main
pages = []
for words in {commands()!r}:
    sys.argv[1:], output = [*words, "--help"], io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main()
    pages.append(output.getvalue().strip())
print(json.dumps(pages))
"""
    process = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "92", "NO_COLOR": "1"},
    )
    text = ["# Commands", COMPLETION]
    for words, output in zip(commands(), json.loads(process.stdout), strict=True):
        text += [f"## zscope {' '.join(words)}", f"```text\n{output}\n```"]
    return "\n\n".join(text) + "\n"
