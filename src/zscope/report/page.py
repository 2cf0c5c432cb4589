"""The page: a report as one HTML file that loads nothing."""

import gc
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zscope.assays import CATALOGUE, Entry
from zscope.assays.run import Failure, Progress, isolate
from zscope.errors import ConfigError, Undefined, ZscopeError
from zscope.report import pictures
from zscope.report.build import Report
from zscope.report.findings import MEANING
from zscope.report.latents import SHOWN
from zscope.report.maps import GAINS, OFFSETS
from zscope.report.maps import SHOWN as SHOWN_CHANNELS
from zscope.report.pictures import COLOURS, FEW
from zscope.report.progress import Watch
from zscope.report.rules import RULES
from zscope.report.tables import names_by_text
from zscope.results import Measure, Result
from zscope.site import assay_page
from zscope.tables.formats import score_text

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["page", "style", "template"]

TEMPLATES = Path(__file__).parent / "templates"
MOST = 3
"""Scores of one assay in the table of all and beside its figure; the others are folded."""
OPEN = 6
"""Assays of a group that are not folded: those that findings rest on, then the first."""
WIDE = 560
"""Pixels: figures that are wider have no other beside them."""
TALL = 700
"""Pixels: figures that are higher are shown after others."""
SHARED = 3
"""Assays of a group whose flag is said once for all."""
LISTED = 512
"""Latents in the table, those that are folded included; the JSON has all."""
ROOM = 4_200_000
"""Characters that all pictures together may take, so that the page stays below 5 MB."""


def template(name: str, **filters: Callable[..., str]) -> "Template":
    """A template of a page, which escapes everything that comes from a user."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "value": score_cell, "code": mark_code, **filters}
    return environment.get_template(name)


def style() -> str:
    """The style sheet of all pages."""
    return (TEMPLATES / "report.css").read_text("utf-8")


def page(report: Report, progress: Watch | None = None) -> str:
    """The page as text. The template escapes everything that comes from a user."""
    layout = report.about["model"].get("layout")
    entries = [entry for name, entry in CATALOGUE.items() if name in report]
    if layout is not None:  # what readers of such a page ask first
        entries.sort(key=lambda entry: entry.group != "diffusion")
    groups: dict[str, dict[str, Any]] = {}
    strips = [row["traversal"]["picture"] for row in report.latents if "traversal" in row]
    room = ROOM - sum(map(len, strips)) - len(str(report.maps or ""))
    with few_to_collect():
        curves = training(report)
        for done, entry in enumerate(entries):
            if progress is not None:
                progress(Progress(f"drawing {entry.name}", done, len(entries), None))
            folder, about = group_of(entry)
            group = groups.setdefault(folder, {"name": folder, "about": about, "items": []})
            item = describe(entry, report, room)
            room -= sum(len(drawing.address) for drawing, _ in item["figures"])
            group["items"].append(item)
            item["basis"] = sum(drawing.width + 16 for drawing, _ in item["figures"]) + 16
            item["height"] = max((drawing.height for drawing, _ in item["figures"]), default=0)
    evidence = {name for finding in report.findings for name in finding.assays}
    for group in groups.values():
        arrange(group, evidence)
    scores = [row for group in groups.values() for item in group["items"] for row in item["scores"]]
    reasons = [row[key] for row in scores for key in ("no_interval", "no_chance") if key in row]
    return template("report.html", signed=signed).render(
        report=report,
        groups=list(groups.values()),
        meaning=MEANING,
        notes={reason: k for k, reason in enumerate(dict.fromkeys(reasons), 1)},
        most=MOST,
        curves=curves,
        anchors={item["name"] for group in groups.values() for item in group["items"]},
        missing=[each for group in groups.values() for each in group["items"] if each["missing"]],
        rules=[rule for rule in RULES if rule.applies(layout)],
        layout=layout,
        shown_channels=report.channels[:SHOWN_CHANNELS],
        more_channels=report.channels[SHOWN_CHANNELS:],
        channel_columns={key for row in report.channels for key in row},
        offsets=OFFSETS,
        gains=GAINS,
        columns={key for row in report.latents for key in row},
        rows=report.latents[:SHOWN],
        more_rows=report.latents[SHOWN:LISTED],
        vectors=len(report.about["data"]["shape"]) == 1,
        few=len(report.about["data"]["shape"]) == 1 and report.about["data"]["shape"][0] <= FEW,
        features=feature_labels(report.about["data"]),
        colours=COLOURS,
        flat=flatten(report.about),
        style=style(),
    )


def training(report: Report) -> pictures.Drawing | None:
    """Curves of types, rate and distortion over the training of a run, if it has a history."""
    from zscope.plots import training_curves

    with isolate("curves over training", report.failed), suppress(ConfigError):
        if len(report.history) > 1:
            return pictures.draw(training_curves(report.history), "training")
    return None


@contextmanager
def few_to_collect() -> Iterator[None]:
    """Within this block, the garbage collector leaves alone what is there already.

    Figures are made of thousands of objects that refer to each other. To find those that are no
    longer used, the collector visits all others too, which takes a sixth of the time of drawing.
    """
    first = gc.get_freeze_count() == 0
    if first:
        gc.freeze()
    try:
        yield
    finally:
        if first:
            gc.unfreeze()


def arrange(group: dict[str, Any], evidence: Collection[str]) -> None:
    """Which assays of a group are shown and which are folded, and the flags that several share.

    Shown are those that findings rest on or that failed, then the first of the catalogue; tall
    figures come last. Figures that need a row of their own stand before the others.
    """
    measured = [item for item in group["items"] if not item["missing"]]

    def order(item: dict[str, Any]) -> tuple[bool, bool]:
        return item["name"] not in evidence and not item["failed"], item["height"] > TALL

    shown = [item["name"] for item in sorted(measured, key=order)[:OPEN]]
    pairs = [(item["name"], flag) for item in measured for flag in item["flags"]]
    counts = Counter(flag for _, flag in pairs)
    group["flags"] = names_by_text(pair for pair in pairs if counts[pair[1]] >= SHARED)
    for item in measured:
        item["flags"] = [flag for flag in item["flags"] if flag not in group["flags"]]
    measured.sort(key=lambda item: item["basis"] < WIDE)
    group["shown"] = [item for item in measured if item["name"] in shown]
    group["folded"] = [item for item in measured if item["name"] not in shown]


def feature_labels(data: dict[str, Any]) -> list[str]:
    """The names of the features of vectors, or their numbers."""
    count = data["shape"][0] if len(data["shape"]) == 1 else 0
    return data.get("features") or [f"feature {k}" for k in range(count)]


def describe(entry: Entry, report: Report, room: int = ROOM) -> dict[str, Any]:
    """One assay for the template; its figures may take `room` characters."""
    result = report.results.get(entry.name)
    word = str if result is None else result.worded
    return {
        "name": entry.name,
        "question": (report.card is not None and entry.map_question) or word(entry.question),
        "meaning": word(entry.meaning),
        "page": assay_page(entry.name),
        "figure": word(entry.figure),
        "function": f"zs.assays.{entry.attribute}",
        "definition": paragraphs(entry.cite),
        "missing": report.missing.get(entry.name),
        "failed": report.failed.get(entry.name),
        "note": report.measurements.notes.get(entry.name, ""),
        "summary": [] if result is None else result.lines(),
        "scores": [] if result is None else [_score(result, each) for each in result.measures()],
        "flags": [word(flag) for flag in getattr(result, "flags", [])],
        **(
            {"figures": [], "undrawn": ""}
            if result is None
            else figures(result, entry.name, room, report.failed)
        ),
    }


def _score(result: Result, measure: Measure) -> dict[str, Any]:
    """A score for the template."""
    score = measure.to_dict()
    return {**score, "score": result.worded(score["score"])}


def figures(result: Result, name: str, room: int, failed: dict[str, Failure]) -> dict[str, Any]:
    """All figures of a result, with their titles: of `plot` and of methods called `plot_...`."""
    drawings: list[tuple[pictures.Drawing, str]] = []
    undrawn = ""
    if room <= 0:
        return {"figures": [], "undrawn": "The figure was left out to keep the page small."}
    for method in ["plot", *(m for m in dir(result) if m.startswith("plot_"))]:
        draw: Callable[[], Any] = getattr(result, method)
        kind = method.removeprefix("plot").strip("_")
        title = f"{name}{': ' + kind if kind else ''}"
        with isolate(f"figure of {title}", failed):
            try:
                drawings.append((pictures.draw(draw(), f"{name}-{method}"), title))
            except Undefined:  # it has no figure
                continue
            except ZscopeError as error:
                undrawn = f"A figure could not be drawn: {error}"
        if f"figure of {title}" in failed:
            undrawn = "A figure could not be drawn; the traceback follows the findings."
    return {"figures": drawings, "undrawn": undrawn}


def group_of(entry: Entry) -> tuple[str, str]:
    """The folder of an assay, and what the assays in it are about."""
    package = entry.module.rpartition(".")[0]
    about = inspect.cleandoc(import_module(package).__doc__ or "").split("\n\n")[0]
    about = " ".join(about.split()).removeprefix(f"{entry.group.capitalize()}: ")
    return entry.group, about[:1].upper() + about[1:]


def paragraphs(docstring: str) -> list[tuple[str, str]]:
    """A docstring as ("text" or "formula", content), without its first line, the question."""
    parts = []
    for block in inspect.cleandoc(docstring).split("\n\n")[1:]:
        formula = all(line.startswith("  ") for line in block.splitlines() if line.strip())
        kind = "formula" if formula else "text"
        parts.append((kind, textwrap.dedent(block) if formula else " ".join(block.split())))
    return parts


def flatten(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested values as lines, "data, shape" and so on."""
    lines: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{prefix}{str(key).replace('_', ' ')}"
        if isinstance(value, dict):
            lines += flatten(value, f"{name}, ")
        else:
            lines.append((name, value))
    return lines


def number(value: float | None, digits: int = 2) -> str:
    """Fixed digits and a typographic minus sign; "" for None."""
    if value is None:
        return ""
    text = f"{value:.{digits}f}"
    return (text.lstrip("-") if float(text) == 0 else text).replace("-", "−")


def signed(value: int) -> str:
    """A whole number with its sign."""
    return f"{value:+d}".replace("-", "−") if value else "0"


def score_cell(value: float | None) -> str:
    """A score with a typographic minus sign; "" for None."""
    return score_text(value).replace("-", "−")


def mark_code(text: str) -> Any:
    """Calls such as zs.prune(…) marked as code; everything is escaped."""
    from markupsafe import Markup, escape

    parts = re.split(r"(zs\.[\w.]+(?:\([^()]*\))?)", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if k % 2 else escape(part)
        for k, part in enumerate(parts)
    )
