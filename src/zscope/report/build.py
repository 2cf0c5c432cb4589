"""The report: everything that can be measured of a model, with what it means.

    report = zs.assay(autoencoder, data)
    print(report)                    # the findings, then one table
    report.save("report.html")       # one page that loads nothing, and report.json beside it
    report.save("scores.csv")        # or .json, .parquet, .tex

An assay that cannot answer is listed with its reason, one that fails with its traceback.
"""

import inspect
import json
import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zscope.assays import CATALOGUE
from zscope.assays.choosing import choose
from zscope.assays.reconstructions import reconstruct
from zscope.assays.regime.types import VariableTypes
from zscope.assays.responses.features import FeatureEffects
from zscope.assays.responses.matrix import ResponseMatrix
from zscope.assays.run import Failure, Measurements, Options, isolate, measure
from zscope.documents import REPORT_FORMAT, schema_address
from zscope.errors import ConfigError, RunError, ZscopeError
from zscope.files import likely_cause, writing
from zscope.recording import SAMPLES, Recording, record
from zscope.report import pictures
from zscope.report.background import background
from zscope.report.card import Card, make_card
from zscope.report.channels import channel_table
from zscope.report.findings import Check, Facts, Finding, findings
from zscope.report.latents import SHOWN, latent_table, traversals
from zscope.report.maps import map_pictures
from zscope.report.progress import Watch, show_progress
from zscope.report.requirements import Requirement, Requirements, judge
from zscope.report.rules import RULES
from zscope.report.tables import as_csv, as_parquet, as_tex, first_names, flag_lines, long_rows
from zscope.report.traces import RowErrors, Traces, traces_of
from zscope.results import Result, frame_of, html_table, text_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Report", "assay", "build"]

MANY = 200_000
"""Arrays with more numbers are left out of the JSON."""
ROWS = 300
"""Rows of the history of a run, evenly spaced."""
MOST = 3
"""Scores of one assay in the printed table; its own result has all of them."""


@dataclass(frozen=True, eq=False)
class Report:
    """The findings about a model, and the result of every assay by name."""

    title: str
    findings: list[Finding]
    measurements: Measurements
    latents: list[dict[str, Any]]  # one row each, most informative first
    explained: float | None  # share of the data's variance that reconstructions explain
    reconstructions: dict[str, Any] | None  # a picture of some; for vectors also the numbers
    about: dict[str, Any]  # how to reproduce the report
    card: Card | None = None  # Ready for diffusion? None unless that was measured of latent maps
    channels: list[dict[str, Any]] = field(default_factory=list)  # of latent maps, a row each
    maps: dict[str, Any] | None = None  # pictures of them
    requirements: Requirements | None = None  # if there are any
    traces: Traces | None = None  # of single rows, to compare models
    history: list[dict[str, Any]] = field(default_factory=list)  # of a run: rows of its training

    @property
    def results(self) -> dict[str, Result]:
        return self.measurements.results

    @property
    def missing(self) -> dict[str, str]:
        """Assays without a result, and why."""
        return self.measurements.missing

    @property
    def failed(self) -> dict[str, Failure]:
        """Assays that raised an unexpected exception, with its traceback.

        Also other parts of the report: "traversals", "finding on holes", "figure of mig".
        """
        return self.measurements.failed

    @property
    def faults(self) -> dict[str, Failure]:
        """Those of `failed` that are not assays."""
        return {name: each for name, each in self.failed.items() if name not in CATALOGUE}

    @property
    def explained_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the explained variance, over observations."""
        return None if self.traces is None else self.traces.explained_interval

    def require(self, *requirements: str | Requirement) -> Requirements:
        """Whether the model meets requirements such as "mig > 0.3" and "passive <= 2".

        The outcome is true if all have passed, so that it can be asserted in a test.
        """
        return judge(self, requirements)

    def __contains__(self, name: object) -> bool:
        return name in self.results or name in self.missing or name in self.failed

    def __str__(self) -> str:
        parts = self.headlines
        if table := self._table():
            parts += ["", text_table(table)] if parts else [text_table(table)]
        return "\n".join([*parts, *self._remarks()]).lstrip("\n")

    @property
    def headlines(self) -> list[str]:
        """What comes first: the card, if there is one, then the findings that are not on it."""
        card = [] if self.card is None else [*str(self.card).splitlines(), ""]
        return [*card, *map(str, self.other_findings)]

    @property
    def other_findings(self) -> list[Finding]:
        """The findings that are not on the card."""
        return self.findings if self.card is None else _others(self.findings)

    def __repr__(self) -> str:
        return f"{self.title}\n{self}"

    def _repr_html_(self) -> str:
        from html import escape

        card = "" if self.card is None else f"<pre>{escape(str(self.card))}</pre>"
        items = "".join(f"<li>{escape(str(finding))}</li>" for finding in self.other_findings)
        remarks = "".join(f"<p>{escape(line)}</p>" for line in self._remarks())
        table = html_table(self._table())
        title = f"<strong>{escape(self.title)}</strong>"
        return f"<div>{title}{card}<ul>{items}</ul>{table}{remarks}</div>"

    def _table(self) -> list[list[str]]:
        """The scores, a few of each assay, with a header."""
        table = [["", "value", "95 % interval", "chance", "n"]]
        for name, result in self.results.items():
            measures = result.measures()
            for each in measures[:MOST]:
                label = f"{name}, {result.worded(each.name)}" if each.name else name
                table.append([label, *each.cells()])
            if len(measures) > MOST:
                table[-1][0] += f" (and {len(measures) - MOST} more)"
        return table if len(table) > 1 else []

    def _remarks(self) -> list[str]:
        """What the table does not show, one line each."""
        lines = flag_lines(self.results)
        if self.measurements.notes:
            names = first_names(self.measurements.notes)
            lines.append(f"Fewer samples than usual, to limit the passes of the model: {names}")
        if count := len(self.missing):
            what = "1 assay" if count == 1 else f"{count} assays"
            lines.append(
                f"{what} could not be measured (.missing or --all gives the reasons): "
                f"{first_names(self.missing)}"
            )
        lines += [f"{name}: {failure.message}" for name, failure in self.failed.items()]
        lines += self.measurements.warnings
        return ["", *lines] if lines else []

    def to_dict(self, *, pictures: bool = True) -> dict[str, Any]:
        """Everything on the page as plain values, ready for JSON; numbers to six digits.

        Without `pictures` the decoded observations, which are most of it, are left out.
        """
        assays = {}
        for name in [*self.results, *self.missing, *self.failed]:
            if name in self.faults:
                continue
            entry = CATALOGUE[name]
            assays[name] = {
                "question": (self.card is not None and entry.map_question) or entry.question,
                "definition": inspect.cleandoc(entry.cite),
                **self._outcome(name),
            }
        content: dict[str, Any] = round_numbers(
            {
                "format": REPORT_FORMAT,
                "schema": schema_address("report"),
                "title": self.title,
                **self._requirements(),
                **({} if self.card is None else {"card": self.card.to_dict()}),
                "findings": [finding.to_dict() for finding in self.findings],
                "rules": [
                    {"name": rule.name, "threshold": rule.threshold, "checks": rule.sentence}
                    for rule in RULES
                    if rule.applies(self.about["model"].get("layout"))
                ],
                "explained_variance": self.explained,
                **({"reconstructions": self.reconstructions} if pictures else {}),
                "latents": [
                    {key: row[key] for key in row if pictures or key != "traversal"}
                    for row in self.latents
                ],
                **({"channels": self.channels} if self.channels else {}),
                **({"maps": self.maps} if self.maps and pictures else {}),
                **({"history": self.history} if self.history else {}),
                "assays": assays,
                "faults": {
                    name: {"failed": fault.message, "traceback": fault.traceback}
                    for name, fault in self.faults.items()
                },
                "about": self.about,
            }
        )
        return content

    def _requirements(self) -> dict[str, Any]:
        return {} if self.requirements is None else {"requirements": self.requirements.to_dict()}

    def _outcome(self, name: str) -> dict[str, Any]:
        if name in self.missing:
            return {"missing": self.missing[name]}
        if name in self.failed:
            return {"failed": self.failed[name].message, "traceback": self.failed[name].traceback}
        result, note = self.results[name], self.measurements.notes.get(name)
        return {
            **({"note": note} if note else {}),
            "summary": [list(line) for line in result.lines()],
            "scores": [each.to_dict() for each in result.measures()],
            "result": without_large_blocks(result.to_dict(), self._codes),
        }

    @property
    def _codes(self) -> int:
        """The length of a row of codes that are maps, of which the JSON has none; 0 for vectors."""
        model = self.about["model"]
        return model["latents"] if "layout" in model else 0

    def rows(self) -> list[dict[str, Any]]:
        """Every score in long form: assay, measure, value, low, high, chance, n, flavour."""
        return long_rows(self.results)

    def to_frame(self) -> "pd.DataFrame":
        """Every score as a pandas DataFrame, one row each."""
        return frame_of(self.rows())

    def save(self, path: str | Path, *, progress: Watch | None = None) -> Path:
        """Write the report; the ending of the name decides how.

        .html is the page, with all its numbers in a .json file beside it; .json those numbers
        alone; .csv, .parquet and .tex the table of scores.
        """
        path = Path(path)
        contents = {file: self._content(file.suffix.lower(), progress) for file in files_of(path)}
        write_all(contents)
        return path

    def model_card(self, folder: str | Path, *, license: str | None = None) -> Path:
        """Write a model card for the Hugging Face hub: README.md with figures/ beside it.

        It has the findings, reconstructions, the table of latents, figures and scores. A README.md
        that is not a model card of zscope is never replaced. `license` is its name on the hub, such
        as "apache-2.0". A run writes its card with its weights: `run.push_to_hub`.
        """
        from zscope.report.model_card import write_model_card

        return write_model_card(self, folder, license=license)

    def _content(self, suffix: str, progress: Watch | None) -> bytes:
        """The report as the bytes of a file with this ending."""
        if suffix == ".html":
            from zscope.report.page import page

            return page(self, progress).encode(errors="replace")
        if suffix == ".json":
            content = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
            return content.encode(errors="backslashreplace")  # which JSON reads as the same
        write = {".csv": as_csv, ".parquet": as_parquet, ".tex": as_tex}[suffix]
        return write(self.rows())


SUFFIXES = (".html", ".json", ".csv", ".parquet", ".tex")


def files_of(path: Path) -> list[Path]:
    """The files of a report of this name; a name that no report can have is refused."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(
            f"report: {path} ends in {suffix or 'nothing'}; a report is written as "
            f"{', '.join(SUFFIXES)}. A page can be printed to PDF in the browser; figures as PDF "
            "come from: zscope assay TARGET --figures DIR --format pdf"
        )
    return [path, path.with_suffix(".json")] if suffix == ".html" else [path]


def write_all(contents: dict[Path, bytes]) -> None:
    """Write several files: all of them or, if the disk is full, none."""
    try:
        with ExitStack() as stack:
            for path, content in contents.items():
                file = stack.enter_context(writing(path))
                file.write(content)
                file.flush()
    except OSError as error:
        raise RunError(
            f"report: {next(iter(contents))} could not be written ({error.strerror or error}). "
            f"{likely_cause(error)} No partial file was left behind."
        ) from error


def assay(
    autoencoder: Any,
    data: Any = None,
    *,
    names: Iterable[str] | str | None = None,
    options: Options | None = None,
    samples: int | None = None,
    resamples: int = 0,
    seed: int | None = None,
    fresh: bool = False,
    quick: bool = False,
    progress: Watch | bool | None = None,
) -> Report:
    """Measure everything that applies to a model, and explain what it means.

    `autoencoder` is anything that `zs.load` takes, with `data`: a Dataset, an array or a
    tensor, of which `samples` observations (by default 10,000) are encoded, with `seed` (by
    default 0); a run knows its own data. Or it is a Recording, with its own data, samples and
    seed. `names` are assays or groups of the catalogue, by default all. `options` are by assay:
    {"response-map": {"dims": (3, 5)}}. Scores that can have an interval get one from
    `resamples` resamples (0: none). Results that are stored with a run are reused unless
    `fresh`. `quick` is for a first look: a quarter of the usual passes, and nothing is stored.
    `progress` is called before each assay; None shows it on a terminal, False never.
    """
    from zscope.kept import results_of
    from zscope.loading import load, run_data, run_history

    chosen = [entry.name for entry in choose(names)]
    words = [] if names is None else [f"names={chosen}"]
    words += [f"options={options!r}"] if options else []
    with show_progress(progress) as watch:
        if isinstance(autoencoder, Recording):
            given = {"data": data, "samples": samples, "seed": seed, "quick": quick or None}
            if also := [option for option, value in given.items() if value is not None]:
                raise ConfigError(
                    f"assay: got a recording and {', '.join(also)}; a recording has its own data, "
                    f"{len(autoencoder):,} samples and seed {autoencoder.seed}. Leave them out, or "
                    "make another recording: zs.record(model, data, samples=..., seed=...)"
                )
            recording, own_data = autoencoder, False
            words = ["recording", *words]
        else:
            own_data = data is None
            data = run_data(autoencoder) if data is None else data
            samples, seed = SAMPLES if samples is None else samples, seed or 0
            recording = record(load(autoencoder), data, samples=samples, seed=seed, quick=quick)
            words = ["autoencoder", "data", *words, f"samples={samples}", f"seed={seed}"]
            words += ["quick=True"] if quick else []
        words += [f"resamples={resamples}"] if resamples else []
        return build(
            recording,
            names,
            options=options,
            resamples=resamples,
            progress=watch,
            kept=None
            if quick
            else results_of(autoencoder, recording.model, fresh=fresh, own_data=own_data),
            command=f"zs.assay({', '.join(words)})",
            history=run_history(autoencoder),
        )


def build(
    recording: Recording,
    names: Iterable[str] | str | None = None,
    *,
    options: Options | None = None,
    resamples: int = 0,
    progress: Watch | None = None,
    kept: Any = None,
    title: str | None = None,
    command: str = "",
    config: dict[str, Any] | None = None,
    history: Sequence[dict[str, Any]] = (),
    brief: bool = False,
) -> Report:
    """The report of a recording; `history` are the rows of `run.history`, for its curves.

    A `brief` one is to be printed: it is without the pictures of the page, and without the factor
    that each latent is about.
    """
    measurements = measure(
        recording, names, options=options, resamples=resamples, progress=progress, kept=kept
    )
    name = title or ("codes" if recording.model is None else recording.model.title)
    about = background(recording, name, resamples, command, config)
    steps = np.linspace(0, len(history) - 1, min(ROWS, len(history))).round().astype(int)
    rows = [history[k] for k in dict.fromkeys(steps.tolist())]
    if recording.layout is not None:
        report = _report_of_maps(recording, measurements, name, about, brief=brief)
        return replace(report, history=rows)
    table, explained, compared = describe_model(recording, measurements, brief=brief)
    facts = Facts(recording, measurements.results, table, explained)
    return Report(
        title=name,
        findings=findings(facts, RULES, measurements.failed),
        measurements=measurements,
        latents=table,
        explained=explained,
        reconstructions=compared,
        about=about,
        traces=traces_of(recording),
        history=rows,
    )


def _report_of_maps(
    recording: Recording,
    measurements: Measurements,
    name: str,
    about: dict[str, Any],
    *,
    brief: bool,
) -> Report:
    """The report of latents that are maps: about channels, never about single latents."""
    failed, results = measurements.failed, measurements.results
    channels: list[dict[str, Any]] = []
    explained, maps = None, None
    # Errors of zscope are left to the assays, which say what is wrong with the decoder.
    with isolate("table of channels", failed), suppress(ZscopeError):
        channels = channel_table(recording, results)
    model = recording.model
    if channels and model is not None and model.decodes and not model.needs_auxiliary:
        with isolate("reconstructions", failed), suppress(ZscopeError):
            made = reconstruct(recording)
            RowErrors.of(made.observations, made.decoded).keep(recording)
            explained = made.explained
        with isolate("pictures of channels", failed), suppress(ZscopeError):
            shown = [row["channel"] for row in channels]
            maps = None if brief else map_pictures(recording, results, shown)
    facts = Facts(recording, results, [], explained, channels)
    everything = findings(facts, RULES, failed)
    card = make_card(everything, measurements)
    return Report(
        title=name,
        findings=everything if card is None else _told(everything),
        measurements=measurements,
        latents=[],
        explained=explained,
        reconstructions=None,
        about=about,
        card=card,
        channels=channels,
        maps=maps,
        traces=traces_of(recording),
    )


def _told(everything: list[Finding]) -> list[Finding]:
    """The findings without what is healthy and on the card."""
    return [each for each in everything if each.level != "healthy" or not isinstance(each, Check)]


def _others(told: list[Finding]) -> list[Finding]:
    """The findings that are not lines of the card."""
    return [each for each in told if not isinstance(each, Check)]


def describe_model(
    recording: Recording, measurements: Measurements, *, brief: bool = False
) -> tuple[list[dict[str, Any]], float | None, dict[str, Any] | None]:
    """The table of latents with traversals, the explained variance, and some reconstructions."""
    matrix, failed = measurements.results.get("response-matrix"), measurements.failed
    responses = None
    if isinstance(matrix, ResponseMatrix) and len(matrix.groups) == recording.latents:
        responses = matrix.relative.diagonal().tolist()
    table: list[dict[str, Any]] = []
    explained, compared = None, None
    # Errors of zscope are left to the assays, which say what is wrong with the decoder.
    with isolate("table of latents", failed), suppress(ZscopeError):
        types = measurements.results.get("variable-types")
        types = types if isinstance(types, VariableTypes) else None
        table = latent_table(recording, responses, types, factors=not brief)
        effects = measurements.results.get("feature-effects")
        if isinstance(effects, FeatureEffects):
            for row in table:
                row["moves"] = effects.text(row["latent"])
    if recording.model is None or not table:
        return table, None, None
    if not brief:
        with isolate("traversals", failed), suppress(ZscopeError):
            first = table[:SHOWN]
            values, decoded = traversals(recording, [row["latent"] for row in first])
            for row, along, observations in zip(first, values, decoded, strict=True):
                picture = pictures.strip(observations)
                row["traversal"] = {"values": along.tolist(), "picture": picture}
    with isolate("reconstructions", failed), suppress(ZscopeError):
        explained, compared = compare_reconstructions(recording, brief=brief)
    return table, explained, compared


def compare_reconstructions(
    recording: Recording, *, brief: bool = False
) -> tuple[float | None, dict[str, Any] | None]:
    """The explained variance, and a few reconstructions."""
    made = reconstruct(recording)
    RowErrors.of(made.observations, made.decoded).keep(recording)
    if brief:
        return made.explained, None
    count = len(made.observations)
    few_rows = np.linspace(0, count - 1, min(8, count)).round().astype(int)
    examples = made.observations[few_rows], made.decoded[few_rows]
    original, decoded_few = (part.numpy().astype(float) for part in examples)
    few: dict[str, Any] = {"count": len(original)}
    if original.ndim == 4:
        few["picture"] = pictures.sheet(np.stack([original, decoded_few]))
    else:
        own = [recording.data.original(part.flatten(1)[:5].double()) for part in examples]
        few |= {"original": own[0].tolist(), "decoded": own[1].tolist(), "count": len(own[0])}
        both = np.concatenate([part.reshape(len(part), -1)[:1] for part in (original, decoded_few)])
        few["picture"] = pictures.lines(both, width=480, height=96)
    return made.explained, few


def without_large_blocks(value: Any, codes: int = 0) -> Any:
    """The same, with the shape of each large array in its place, or of rows of `codes` numbers."""
    if isinstance(value, dict):
        return {key: without_large_blocks(item, codes) for key, item in value.items()}
    shape, inner = [], value
    while isinstance(inner, list) and inner:
        shape.append(len(inner))
        inner = inner[0]
    large = math.prod(shape) > MANY or (len(shape) > 1 and shape[-1] == codes)
    if large and isinstance(inner, int | float):
        return {"shape": shape, "left_out": "too large for this file; see .results in Python"}
    return value


def round_numbers(value: Any) -> Any:
    """Numbers to six digits, which is more than their accuracy and a third of the size."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: round_numbers(item) for key, item in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if {*map(type, value)} == {float} and all(map(math.isfinite, value)):  # most of them, faster
        return [float(f"{item:.6g}") for item in value]
    return [round_numbers(item) for item in value]
