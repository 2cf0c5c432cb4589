"""The model card: a report as README.md for the Hugging Face hub, with figures beside it.

    report.model_card("folder")       README.md and figures/

Its front matter has the scores as results of an evaluation (`model-index`), each with its
interval, its chance level and its number of samples, so that the hub and other programs read them.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zscope.assays import CATALOGUE
from zscope.errors import ConfigError, Undefined, ZscopeError
from zscope.files import write_whole
from zscope.report.findings import MEANING, percent
from zscope.site import SITE, assay_page

if TYPE_CHECKING:
    from zscope.report.build import Report

__all__ = ["write_model_card"]

FIGURES = ("response-matrix", "variable-types", "holes", "latent-spectrum")
"""Assays whose figures are on the card, as far as they were measured."""
MOST_SCORES = 3
"""Scores of one assay."""
MOST_LATENTS = 16
MARK = "<!-- A model card by zscope. -->"
TABLE = {"type": "type", "kl": "KL (nats)", "response": "response", "factor": "factor"}
"""Columns of the table of latents, as far as it has them."""


def write_model_card(
    report: "Report",
    folder: str | Path,
    *,
    name: str | None = None,
    repository: str | None = None,
    config: Mapping[str, Any] | None = None,
    is_run: bool = False,
    license: str | None = None,
) -> Path:
    """Write README.md and figures/ to a folder; see `Report.model_card`."""
    folder = Path(folder)
    file = folder / "README.md"
    if file.exists() and MARK not in file.read_text("utf-8", errors="replace"):
        raise ConfigError(
            f"model_card: {file} exists and is not a model card of zscope. So that nothing is "
            "lost, choose another folder, or move that file."
        )
    name = name or (repository or "").rpartition("/")[2] or Path(report.title).name
    figures = _figures(report)
    text = "\n\n".join(
        part
        for part in (
            _front_matter(report, name, is_run, license),
            f"# {_text(name)}",
            MARK,
            _introduction(report),
            _findings(report),
            _reconstructions(figures),
            _latents(report, figures),
            _channels(report),
            *_charts(figures),
            _scores(report),
            _use(repository, is_run, config),
            _training(config),
            _measurement(report),
        )
        if part
    )
    for place, content in figures.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / place, content)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, f"{text}\n".encode(errors="replace"))
    return file


def _front_matter(report: "Report", name: str, is_run: bool, license: str | None) -> str:
    about = report.about
    data = str(about["data"]["name"])
    metrics = [
        {
            "type": row["assay"],
            "name": _label(row),
            "value": row["value"],
            "args": {
                key: row[key]
                for key in ("low", "high", "chance", "n", "flavour")
                if row[key] is not None
            },
        }
        for row in _rows(report)
    ]
    task = {"type": "feature-extraction", "name": "Latent space"}
    result = {"task": task, "dataset": {"type": data, "name": data}, "metrics": metrics}
    tags = ["autoencoder", "representation-learning", "latent-space", "zscope"]
    content = {
        **({"license": license} if license else {}),
        **({"library_name": "zscope"} if is_run else {}),
        "tags": tags,
        **({"model-index": [{"name": name, "results": [result]}]} if metrics else {}),
    }
    return "\n".join(["---", *_yaml(content), "---"])


def _yaml(value: Any) -> list[str]:
    """Nested values as lines of YAML."""
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, Mapping | list) and item:
                lines += [f"{key}:", *(f"  {line}" for line in _yaml(item))]
            else:
                lines.append(f"{key}: {_scalar(item)}")
        return lines
    for item in value:
        first, *others = _yaml(item) if isinstance(item, Mapping) else [_scalar(item)]
        lines += [f"- {first}", *(f"  {line}" for line in others)]
    return lines


def _scalar(value: Any) -> str:
    """Text in quotes; of a number six digits, with the point that YAML asks for before an e."""
    if isinstance(value, float):
        text = f"{value:.6g}"
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    text = json.dumps(value, ensure_ascii=False)
    return "".join(mark if mark.isprintable() else f"\\U{ord(mark):08X}" for mark in text)


def _introduction(report: "Report") -> str:
    model, data = report.about["model"], report.about["data"]
    count = data["encoded"]
    if layout := model.get("layout"):
        size = f"latents of {' × '.join(map(str, layout))}"
    else:
        size = f"{model['latents']} latents"
    if not data["shape"]:  # no model was measured, only its codes
        return f"{count:,} codes with {size}, and what [zscope]({SITE}) measured of them."
    kind = "deterministic" if model["posterior"] == "point" else "variational"
    if model["parameters"]:
        size += f" and {model['parameters']:,} parameters"
    explained = ""
    if report.explained is not None and report.explained > 0:
        explained = f" Its reconstructions explain {percent(report.explained)} of the variance."
    return (
        f"A {kind} autoencoder with {size}. Below is what [zscope]({SITE}) measured of its latent "
        f"space on {count:,} observations of {_text(data['name'])}.{explained}"
    )


def _findings(report: "Report") -> str:
    parts = []
    if report.card is not None:
        parts.append(f"```\n{report.card}\n```")
    for finding in report.other_findings:
        text = f"**{_text(finding.text)}** ({MEANING[finding.level]}). {_text(finding.evidence)}"
        action = _text(finding.action)
        parts.append(f"{text} {action[:1].upper()}{action[1:]}." if action else text)
        if finding.table:
            parts.append(_table(*[[_text(cell) for cell in row] for row in finding.table]))
    return "\n\n".join(["## Findings", *parts]) if parts else ""


def _table(header: list[str], *rows: list[str]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _reconstructions(figures: Mapping[str, bytes]) -> str:
    if "figures/reconstructions.png" not in figures:
        return ""
    return (
        "## Reconstructions\n\n![Observations and their reconstructions]"
        "(figures/reconstructions.png)\n\nAbove observations, below their reconstructions."
    )


def _latents(report: "Report", figures: Mapping[str, bytes]) -> str:
    """The table of latents, each with the pictures that it decodes to."""
    rows = report.latents[:MOST_LATENTS]
    columns = [key for key in TABLE if rows and key in rows[0]]
    if not columns:
        return ""
    header = ["latent", *(TABLE[key] for key in columns)]
    drawn = any(f"figures/latent-{row['latent']}.png" in figures for row in rows)
    lines = [[*header, "decoded, from its low to its high values"] if drawn else header]
    for row in rows:
        cells = [str(row["latent"]), *(_cell(row.get(key)) for key in columns)]
        place = f"figures/latent-{row['latent']}.png"
        picture = f"![Latent {row['latent']}]({place})" if place in figures else ""
        lines.append([*cells, picture] if drawn else cells)
    text = "## Latents\n\nThe most informative first. A response of 1 means that a change of the "
    text += "latent survives decoding and encoding again, 0 that nothing of it does.\n\n"
    text += _table(*lines)
    if more := len(report.latents) - len(rows):
        text += f"\n\nand {more} more, which carry less information."
    return text


def _channels(report: "Report") -> str:
    """The table of channels of latents that are maps."""
    if not report.channels:
        return ""
    columns = [key for key in ("type", "kl", "response", "importance") if key in report.channels[0]]
    lines = [["channel", "mean", "std", *columns]]
    for row in report.channels[:MOST_LATENTS]:
        lines.append([_cell(row.get(key)) for key in ("channel", "mean", "std", *columns)])
    return f"## Channels\n\n{_table(*lines)}"


def _charts(figures: Mapping[str, bytes]) -> Iterable[str]:
    """The figures of assays, each with how it is read."""
    for name in FIGURES:
        if f"figures/{name}.png" in figures:
            entry = CATALOGUE[name]
            reading = f"\n\n{entry.figure}" if entry.figure else ""
            yield f"## {entry.question}\n\n![{entry.title}](figures/{name}.png){reading}"


def _scores(report: "Report") -> str:
    rows = _rows(report)
    if not rows:
        return ""
    lines = [["score", "value", "95 % interval", "chance", "n"]]
    for row in rows:
        interval = "" if row["low"] is None else f"{row['low']:.3g} to {row['high']:.3g}"
        chance = "" if row["chance"] is None else f"{row['chance']:.3g}"
        name = f"[{_text(_label(row))}]({assay_page(row['assay'])})"
        lines.append([name, f"{row['value']:.4g}", interval, chance, f"{row['n']:,}"])
    return (
        "## Scores\n\nChance is what codes without information would get. Each score links to its "
        f"definition.\n\n<details>\n<summary>{len(rows)} scores</summary>\n\n{_table(*lines)}\n\n"
        "</details>"
    )


def _use(repository: str | None, is_run: bool, config: Mapping[str, Any] | None) -> str:
    """How the model is loaded, where zscope can load it."""
    if not is_run:
        return ""
    target = f"hf:{repository}" if repository else "FOLDER"
    where = "" if repository else "\n\nFOLDER is where these files are."
    if not (config or {}).get("model"):
        return (
            "## How to use it\n\nThe networks are not of zscope: the weights fit the module that "
            "was trained.\n\n```python\nimport zscope as zs\n\nmodel = zs.load("
            '"package.module:name", weights="model.safetensors")\n```'
        )
    return (
        "## How to use it\n\n    pip install 'zscope[hub]'\n\n```python\nimport zscope as zs\n\n"
        f'model = zs.load("{target}")  # .encode(x).mean, .decode(z)\n```\n\n'
        f"    zscope report {target} -o report.html\n    zscope explore {target}{where}"
    )


def _training(config: Mapping[str, Any] | None) -> str:
    """How the model was trained."""
    if not config:
        return ""
    left_out = ("scaling", "snapshots", "device", "devices", "log_every", "checkpoint_every")
    lines = [
        f"  {json.dumps(key)}: {json.dumps(_known(value), ensure_ascii=False, default=str)}"
        for key, value in config.items()
        if key not in left_out and value
    ]
    return "## How it was trained\n\n```json\n{\n" + ",\n".join(lines) + "\n}\n```"


def _known(value: Any) -> Any:
    """Without the settings that are None."""
    if not isinstance(value, Mapping):
        return value
    return {key: _known(item) for key, item in value.items() if item is not None}


def _measurement(report: "Report") -> str:
    about, versions = report.about, report.about["versions"]
    text = f"Seed {about['seed']}"
    text += f", {about['resamples']} resamples for intervals. " if about["resamples"] else ". "
    text += ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"## How it was measured\n\n{text}."


def _figures(report: "Report") -> dict[str, bytes]:
    """The figures as PNG, by their place in the folder."""
    figures = {}
    reconstructions = (report.reconstructions or {}).get("picture")
    pictures = {"reconstructions": reconstructions}
    for row in report.latents[:MOST_LATENTS]:
        pictures[f"latent-{row['latent']}"] = (row.get("traversal") or {}).get("picture")
    for name, address in pictures.items():
        start, _, content = str(address).partition(",")
        if start == "data:image/png;base64":  # observations that are no pictures are drawn as SVG
            figures[f"figures/{name}.png"] = base64.b64decode(content)
    for name in FIGURES:
        if (result := report.results.get(name)) is not None:
            try:
                figures[f"figures/{name}.png"] = _png(result.plot())
            except (Undefined, ZscopeError):  # there is nothing to draw
                continue
    return figures


def _png(drawing: Any) -> bytes:
    import io

    import matplotlib.pyplot as plt

    from zscope.plots.theme import theme

    figure = drawing if hasattr(drawing, "savefig") else drawing.get_figure()
    memory = io.BytesIO()
    with theme():
        figure.savefig(memory, format="png", dpi=150, metadata={"Software": None})
    plt.close(figure)
    return memory.getvalue()


def _rows(report: "Report") -> list[dict[str, Any]]:
    """The first scores of each assay."""
    counts: dict[str, int] = {}
    rows = []
    for row in report.rows():
        counts[row["assay"]] = counts.get(row["assay"], 0) + 1
        if counts[row["assay"]] <= MOST_SCORES:
            rows.append(row)
    return rows


def _label(row: Mapping[str, Any]) -> str:
    return str(row["assay"] if row["measure"] == "score" else f"{row['assay']}, {row['measure']}")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else _text(value)


def _text(value: Any) -> str:
    """Text in Markdown: calls such as zs.prune(…) as code, and nothing else as markup."""
    parts = re.split(r"(zs\.[\w.]+(?:\([^()`|]*\))?)", " ".join(str(value).split()))
    return "".join(
        f"`{part}`" if k % 2 else re.sub(r"([\\`*_\[\]<>|])", r"\\\1", part)
        for k, part in enumerate(parts)
    )
