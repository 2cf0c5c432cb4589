"""What a study shows: its tables, figures, judged claims and page, from its measurements alone.

OUT/tables/NAME.csv|md|tex     OUT/figures/NAME.pdf|png|svg
OUT/claims.json                OUT/study.html
"""

import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zscope import __version__
from zscope.errors import ZscopeError
from zscope.experiments import studies
from zscope.experiments.studies.execution import prepare_study
from zscope.experiments.studies.grid import settings_of
from zscope.experiments.studies.judging import FAILS, HOLDS, UNDECIDED, Claim, Interval
from zscope.experiments.studies.study import DOCUMENTS, Figure, Results, Study, Table
from zscope.files import write_whole
from zscope.report.page import style, template
from zscope.results import counted, duration, listed
from zscope.store import read_json, write_json
from zscope.tables.formats import as_markdown, as_tex

__all__ = ["StudyPlan", "count_verdicts", "describe_plan", "judge", "write_reproduction",
           "write_study"]  # fmt: skip

TONES = {HOLDS: "holds", FAILS: "fails", UNDECIDED: "undecided"}
FORMATS = ("png", "svg", "pdf")
DPI = 150


def judge(study: Study, results: Results) -> list[Claim]:
    """The claims of a study, judged by its measurements."""
    return list(study.claims(results))


def count_verdicts(claims: Sequence[Claim]) -> str:
    """How many claims hold, do not hold and are undecided."""
    counts = Counter(claim.verdict for claim in claims)
    return f"Of {counted(len(claims), 'claim')} {_verdicts_text(counts)}."


def _verdicts_text(counts: Mapping[str, int]) -> str:
    words = {HOLDS: ("holds", "hold"), FAILS: ("does not hold", "do not hold"),
             UNDECIDED: ("is undecided", "are undecided")}  # fmt: skip
    return ", ".join(
        f"{counts.get(verdict, 0)} {one if counts.get(verdict) == 1 else many}"
        for verdict, (one, many) in words.items()
    )


def write_study(
    study: Study,
    results: Results,
    out: Path,
    *,
    formats: Sequence[str] = FORMATS,
    dpi: int = DPI,
) -> list[Claim]:
    """Write tables, figures, claims.json and study.html to OUT; returns the claims."""
    claims, tables = judge(study, results), list(study.tables(results))
    for table in tables:
        _write_table(table, out / "tables")
    drawings = _write_figures(study, results, out / "figures", formats, dpi)
    content = {
        "study": study.name,
        "document": study.document,
        "scale": results.scale,
        "claims": [claim.to_dict() for claim in claims],
        "figures": [{key: each[key] for key in ("name", "row", "caption")} for each in drawings],
        "tables": [{"name": each.name, "row": each.row, "title": each.title} for each in tables],
    }
    write_json(out / "claims.json", content)
    write_whole(out / "study.html", _page(study, results, claims, tables, drawings).encode())
    return claims


def _write_table(table: Table, folder: Path) -> None:
    import csv

    cells, notes = [list(map(str, row)) for row in table.cells], list(table.notes)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(cells)
    write_whole(folder / f"{table.name}.csv", text.getvalue().encode())
    marked = "\n\n".join([f"**{table.title}**", as_markdown(cells, table.left), *notes])
    write_whole(folder / f"{table.name}.md", f"{marked}\n".encode())
    write_whole(folder / f"{table.name}.tex", f"{as_tex(cells, table.left, notes)}\n".encode())


def _write_figures(
    study: Study, results: Results, folder: Path, formats: Sequence[str], dpi: int
) -> list[dict[str, Any]]:
    from zscope.plots.theme import theme

    with theme():
        return [_write_figure(figure, folder, formats, dpi) for figure in study.figures(results)]


def _write_figure(figure: Figure, folder: Path, formats: Sequence[str], dpi: int) -> dict[str, Any]:
    import matplotlib.pyplot as plt
    from matplotlib import rc_context

    from zscope.plots import save

    drawing = figure.drawing
    whole = drawing if hasattr(drawing, "savefig") else drawing.get_figure()
    try:
        for kind in formats:
            # Without a date and with a fixed salt, the same figure gives the same bytes.
            about = {
                "png": {"Software": None},
                "svg": {"Date": None},
                "pdf": {"CreationDate": None},
            }
            salt: Any = {"svg.hashsalt": figure.name}
            with rc_context(salt):
                save(whole, folder / f"{figure.name}.{kind}", dpi=dpi, metadata=about[kind])
        width = round(96 * whole.get_size_inches()[0])
    finally:
        plt.close(whole)
    return {"name": figure.name, "caption": figure.caption, "row": figure.row, "width": width}


def _page(
    study: Study,
    results: Results,
    claims: Sequence[Claim],
    tables: Sequence[Table],
    drawings: Sequence[dict[str, Any]],
) -> str:
    facts = [
        f"document {study.document}",
        f"scale {results.scale}",
        counted(len({row["run"] for row in results.runs}), "run"),
        f"measured by zscope {results.about.get('zscope', '')}",
    ]
    facts += [f"about {duration(study.minutes * 60)} on two cores"] if study.minutes else []
    cards = _cards(claims, {"claims", "tables", "figures", "runs", "rows"})
    return template("study.html").render(
        version=__version__,
        style=style(),
        study=study,
        document=DOCUMENTS.get(study.document, study.document),
        facts=facts,
        scale=SCALES[results.scale],
        summary=count_verdicts(claims),
        cards=cards,
        tones=TONES,
        tables=tables,
        figures=drawings,
        grids=[_describe_grid(study, results, name) for name in study.grids],
        failed=results.failed,
    )


def _cards(claims: Sequence[Claim], taken: set[str], above: str = "") -> list[dict[str, Any]]:
    """The claims with their parts, each with an HTML id that no other has."""
    cards = []
    for claim in claims:
        text = f"{above} {claim.name}" if above else f"{claim.row} {claim.name}"
        name = anchor = "-".join(re.findall(r"[\w.]+", text)) or "claim"
        count = 1
        while anchor in taken:
            count += 1
            anchor = f"{name}-{count}"
        taken.add(anchor)
        cards.append({"claim": claim, "id": anchor, "parts": _cards(claim.parts, taken, anchor)})
    return cards


def _describe_grid(study: Study, results: Results, name: str) -> dict[str, Any]:
    """A grid of measured runs with their settings."""
    runs = [run for run in results.runs if run["group"] == name]
    notes = study.grids[name].describe(results.scale)
    return {"name": name, "count": len(runs), "settings": _describe_runs(runs), "notes": notes}


def _describe_runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """The settings that runs have, those that vary as lists."""
    parts = []
    for key in dict.fromkeys(key for run in runs for key in run):
        if key not in ("run", "group"):
            texts = dict.fromkeys(
                json.dumps(run[key], ensure_ascii=False) for run in runs if key in run
            )
            parts.append(f"{key} {listed(text.strip(chr(34)) for text in texts)}")
    return "; ".join(parts)


@dataclass(frozen=True)
class StudyPlan:
    """What a study would train, and for which rows of the document."""

    study: Study
    scale: str
    grids: list[dict[str, Any]]  # name, count of runs, settings, notes
    done: int
    seconds: float | None  # of one process, to train what is missing
    time: str  # the same with as many processes as there are, in words
    problem: str = ""  # why the runs could not be checked

    @property
    def runs(self) -> int:
        return len({json.dumps(run, sort_keys=True) for _, run in self.study.plan(self.scale)})

    def to_dict(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "document": self.study.document,
            "scale": self.scale,
            "rows": [row.id for row in self.study.rows],
            "paper_only": {row.id: row.paper_only for row in self.study.rows if row.paper_only},
            "grids": {grid["name"]: grid["count"] for grid in self.grids},
            "settings": {grid["name"]: grid["settings"] for grid in self.grids},
            "done": self.done,
            "seconds_of_work": self.seconds,
            "problem": self.problem,
        }

    def __str__(self) -> str:
        lines = [f"{self.study.name}: {self.study.title} (document {self.study.document})"]
        for grid in self.grids:
            notes = f". {grid['notes']}" if grid["notes"] else ""
            lines.append(f"  {grid['name']}: {counted(grid['count'], 'run')}{notes}")
            lines += [f"    {grid['settings']}"] if grid["settings"] else []
        total = sum(grid["count"] for grid in self.grids)
        rest = f", {self.time} to train the rest" if self.time else ""
        lines.append(f"  {self.done} of {counted(total, 'run')} done{rest}")
        for row in self.study.rows:
            only = f" (paper only: {row.paper_only})" if row.paper_only else ""
            lines.append(f"  {row.id}, {row.source}: {row.what}{only}")
        lines += [f"  not checked: {self.problem}"] if self.problem else []
        return "\n".join(lines)


def describe_plan(
    study: Study,
    out: Path,
    *,
    scale: str = "small",
    runs: Path | None = None,
    seeds: int | None = None,
    root: Path | None = None,
    timing: bool = True,
    jobs: int | None = None,
) -> StudyPlan:
    """The plan of a study; data that are not there are named, and nothing is written."""
    from zscope.experiments.sweeps import read_plan
    from zscope.experiments.sweeps.estimate import estimate

    grids = []
    for name, grid in study.grids.items():
        planned = [settings_of(run) for run in grid.expand(scale, seeds)]
        grids.append({"name": name, "count": len(planned), "settings": _describe_runs(planned),
                      "notes": grid.describe(scale)})  # fmt: skip
    done, seconds, time, problem = 0, None, "", ""
    try:
        prepared = prepare_study(study, out, scale=scale, runs=runs, seeds=seeds, root=root)
        done = len(prepared.done)
        if timing and study.grids and done < len(prepared.state.entries):
            answer = estimate(read_plan(prepared.plan, root=root), prepared.state, jobs=jobs)
            seconds, time = answer.seconds, answer.time
    except ZscopeError as error:
        problem = " ".join(str(error).split())
    return StudyPlan(study, scale, grids, done, seconds, time, problem)


def write_reproduction(folder: Path, file: Path) -> None:
    """One table of all claims of all studies in a folder with their verdicts, and the figures.

    From claims.json and the figures that are there: nothing is trained or measured.
    """
    lines, notes, gallery = [], [], []
    undecided: list[str] = []
    failed: list[str] = []
    total: Counter[str] = Counter()
    scales, failed_at = set(), set()
    for study in map(studies.load, studies.names()):
        name = study.name
        path = folder / name / "claims.json"
        if not path.is_file():
            lines.append(f"| {study.document} | {name} | | not run yet | | | |")
            continue
        content = read_json(path)
        scales.add(content["scale"])
        for claim in content["claims"]:
            total[claim["verdict"]] += 1
            lines.append(_claim_line(study, claim))
            if claim["verdict"] == UNDECIDED:
                undecided.append(_what_would_decide(name, claim))
            if claim["verdict"] == FAILS:
                failed.append(_what_would_decide(name, claim))
                failed_at.add(content["scale"])
        notes += [f"- {name}, chosen before looking: {study.chosen}"] if study.chosen else []
        notes += [f"- {name}, **changed after seeing results**: {study.changed}"] * bool(
            study.changed
        )
        gallery += _gallery(study, content, _relative(folder / name, file.parent))
    head = (
        "| document | study | row | claim | published | measured (95 % interval) | verdict |\n"
        "| --- | --- | --- | --- | --- | --- | --- |"
    )
    parts = [
        "# The five documents, re-run",
        INTRODUCTION.format(" ".join(SCALES[scale] for scale in SCALES if scale in scales)),
        "\n".join(f"- {letter}: {title}" for letter, title in DOCUMENTS.items()),
        f"{counted(sum(total.values()), 'claim')}: {_verdicts_text(total)}.",
        "\n".join([head, *lines]),
        "## What would decide the others",
    ]
    if undecided:
        parts += ["### Undecided", "\n".join(undecided)]
    if failed:
        where = " ".join(FAILED[scale] for scale in FAILED if scale in failed_at)
        parts += ["### Do not hold", f"{where} {NAMED}", "\n".join(failed)]
    parts += [
        "## What was chosen, and what was changed",
        "\n".join(notes),
        "## Figures and tables",
        *gallery,
    ]
    write_whole(file, ("\n\n".join(parts) + "\n").encode())


def _gallery(study: Study, content: dict[str, Any], where: str) -> list[str]:
    """The figures of a study with their captions, and links to its tables."""
    lines = [f"### {study.title}", f"`zscope study run {study.name}` (document {study.document})"]
    for figure in content["figures"]:
        lines.append(f"![{study.name}: {figure['name']}]({where}/figures/{figure['name']}.png)")
        lines.append(
            f"{figure['row']}. {figure['caption']}" if figure["row"] else figure["caption"]
        )
    links = [
        f"[{table['title']}]({where}/tables/{table['name']}.md)" for table in content["tables"]
    ]
    return [*lines, "Tables: " + "; ".join(links) + "."] if links else lines


INTRODUCTION = (
    "Every claim of the five documents that can be tried. {} Set-up and thresholds were fixed "
    "before the first run that is judged; what was tuned, and the exceptions, are listed below. "
    '"Published" is what the document prints. A claim holds '
    "if its 95 % interval over seeds lies wholly on the claimed side; it does not hold if it lies "
    "wholly on the other side; otherwise it is undecided. `zscope study run NAME` makes each part, "
    "with its page."
)
SCALES = {
    "small": "At scale small: built-in data, networks and training that fit two cores, seeds from "
    "20 upwards. A claim that fails at this scale is not refuted at the published one.",
    "paper": "At scale paper: data, networks and training as published.",
    "tiny": "At scale tiny, a few steps of training: this shows that everything runs, and nothing "
    "can be concluded from its verdicts. Numbers of steps that the texts of a study name are those "
    "of scale small.",
}
"""What the scale of a study means for its verdicts."""
FAILED = {
    "small": "These fail with the data, networks and training of scale small. Whether they fail "
    "with the published ones too is decided at scale paper: `zscope study run NAME --scale paper`.",
    "paper": "These fail with data, networks and training as published. More seeds would show "
    "whether that was chance.",
    "tiny": "At scale tiny a failure decides nothing: scale small is the first that can.",
}
"""What would decide claims that do not hold, at each scale."""
NAMED = "What else would have to change is named where it is known."


def _claim_line(study: Study, claim: dict[str, Any]) -> str:
    parts = claim.get("parts") or []
    measured = _measured(claim)
    if parts:
        measured = "; ".join(f"{part['name']}: {_measured(part)}" for part in parts)
    verdict = f"**{claim['verdict']}**" + (f" ({claim['reason']})" if claim["reason"] else "")
    row = f"{claim['row']} {claim['name']}" + (" (ours)" if claim["ours"] else "")
    cells = [study.document, study.name, row, claim["claim"], claim["published"], measured, verdict]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _measured(claim: dict[str, Any]) -> str:
    if claim["interval"] is None:
        return "not measured"
    low, high = claim["interval"]
    return str(Interval(claim["measured"], low, high, claim["seeds"]))


def _what_would_decide(study: str, claim: dict[str, Any]) -> str:
    """A claim that is not known to hold, and what would decide it; the table has the reason."""
    expected = "" if claim["interval"] is None else f" (expected {claim['expected']})"
    needs = f": {claim['needs']}" if claim["needs"] else ""
    return f"- {study}, {claim['row']} {claim['name']}, {claim['claim']}{expected}{needs}."


def _relative(path: Path, start: Path) -> str:
    import os

    return Path(os.path.relpath(path, start)).as_posix()
