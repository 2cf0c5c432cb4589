"""The report: everything that can be measured of a model, on one page that needs nothing else.

    report = zs.assay(autoencoder, data)
    print(report)                    # the findings
    report.save("report.html")       # the page, and report.json with all its numbers

The page is one loop over the catalogue. An assay that fails is reported in its place,
with the reason, and the others go on.
"""

import dataclasses
import inspect
import json
import math
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zscope import __version__, store
from zscope.assays import CATALOGUE, GROUPS, Entry
from zscope.assays.measuring import run, unmet
from zscope.assays.responses.matrix import ResponseMatrix
from zscope.autoencoder import Autoencoder, evaluation
from zscope.errors import ConfigError, ZscopeError, did_you_mean
from zscope.recording import Recording, record
from zscope.report import pictures
from zscope.report.findings import Facts, Finding, findings
from zscope.report.latents import SHOWN, latent_table, traversals
from zscope.report.rules import RULES
from zscope.results import Result, plain
from zscope.wrapping import Wrapped

Progress = Callable[[str, int, int], None]
MANY = 500_000
"""A block of more numbers is left out of the JSON."""
COMPARED = 1024
"""Observations that are decoded to say how good reconstructions are."""


@dataclass(frozen=True, eq=False)
class Report:
    """What was found about a model. `results` holds what each assay returned, by name."""

    title: str
    findings: list[Finding]
    results: dict[str, Result]
    missing: dict[str, str]  # assays without a result, and why
    latents: list[dict[str, Any]]  # one row each, most informative first
    explained: float | None  # share of the variance of the data that reconstructions hold
    reconstructions: dict[str, Any] | None  # some of them: a picture, of vectors the numbers too
    about: dict[str, Any]  # what it takes to make the report again
    failed: list[str] = field(default_factory=list)  # those of `missing` that should have worked

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))

    def __repr__(self) -> str:
        return (
            f"Report({self.title}: {len(self.findings)} findings, {len(self.results)} assays, "
            f"{len(self.failed)} failed)"
        )

    def __contains__(self, name: object) -> bool:
        return name in self.results or name in self.missing

    def to_dict(self) -> dict[str, Any]:
        """Everything on the page as plain values, ready for JSON; numbers to six digits."""
        assays = {}
        for name in [*self.results, *self.missing]:
            entry = CATALOGUE[name]
            result = self.results.get(name)
            assays[name] = {
                "question": entry.question,
                "definition": inspect.cleandoc(entry.cite),
                **(
                    {"missing": self.missing[name], "failed": name in self.failed}
                    if result is None
                    else {
                        "summary": [list(line) for line in result.summary()],
                        "scores": [each.to_dict() for each in result.measures()],
                        "result": trimmed(result.to_dict()),
                    }
                ),
            }
        return rounded(
            {
                "format": 1,
                "title": self.title,
                "findings": [finding.to_dict() for finding in self.findings],
                "rules": [
                    {"name": rule.name, "threshold": rule.threshold, "says": rule.sentence}
                    for rule in RULES
                ],
                "explained_variance": self.explained,
                "reconstructions": self.reconstructions,
                "latents": self.latents,
                "assays": assays,
                "about": self.about,
            }
        )

    def save(self, path: str | Path, *, progress: "Progress | None" = None) -> Path:
        """Write the page, and a .json file beside it that holds everything in the page."""
        from zscope.report.page import page

        path = Path(path)
        if path.suffix == ".json":
            raise ConfigError(
                f"report: {path} is where the numbers would go, beside the page. Give the name of "
                f"the page, for instance {path.with_suffix('.html')}"
            )
        store.write_whole(path, page(self, progress).encode())
        content = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
        store.write_whole(path.with_suffix(".json"), content.encode())
        return path


def assay(
    autoencoder: Any,
    data: Any,
    *,
    names: Iterable[str] | None = None,
    samples: int = 5_000,
    resamples: int = 20,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Report:
    """Measure everything that applies to a model, and say what it means.

    `autoencoder` is anything that `zs.load` takes, `data` a Dataset, an array or a tensor.
    `names` are assays or groups of the catalogue, by default all. `samples` observations
    are encoded; scores that can have an interval get one from `resamples` half-samples (0:
    none). `progress` is called with (assay, how many are done, of how many) before each;
    None shows it where a person watches, False never.
    """
    from zscope.loading import load

    chosen = catalogued(names)
    asked = "" if names is None else f", names={[entry.name for entry in chosen]}"
    command = (
        f"zs.assay(autoencoder, data{asked}, samples={samples}, resamples={resamples}, "
        f"seed={seed}).save('report.html')"
    )
    with watched(progress) as say:
        recording = record(load(autoencoder), data, samples=samples, seed=seed)
        return build(
            recording, chosen, resamples=resamples, seed=seed, progress=say, command=command
        )


def build(
    recording: Recording,
    chosen: list[Entry],
    *,
    resamples: int,
    seed: int,
    progress: Progress | None = None,
    title: str | None = None,
    command: str = "",
    config: dict[str, Any] | None = None,
) -> Report:
    """The report of a recording."""
    results, missing, failed = measured(recording, chosen, resamples, seed, progress)
    rows, explained, compared = looked_at(recording, results)
    facts = Facts(recording, results, rows, explained)
    name = title or named(recording.autoencoder)
    return Report(
        title=name,
        findings=findings(facts, RULES),
        results=results,
        missing=missing,
        latents=rows,
        explained=explained,
        reconstructions=compared,
        about=background(recording, name, resamples, seed, command, config),
        failed=failed,
    )


def catalogued(names: Iterable[str] | None) -> list[Entry]:
    """The entries that names of assays and groups stand for, in the order of the catalogue."""
    if names is None:
        return list(CATALOGUE.values())
    names = [names] if isinstance(names, str) else list(names)
    wanted = {member for name in names for member in GROUPS.get(name, (name,))}
    for name in wanted - set(CATALOGUE):
        raise ConfigError(
            f"report: no assay is called {name!r}. {did_you_mean(name, [*CATALOGUE, *GROUPS])} "
            "See: zscope assay --list"
        )
    return [entry for name, entry in CATALOGUE.items() if name in wanted]


def measured(
    recording: Recording,
    chosen: list[Entry],
    resamples: int,
    seed: int,
    progress: Progress | None,
) -> tuple[dict[str, Result], dict[str, str], list[str]]:
    """Results by name, reasons why others are missing, and which of these should have worked."""
    missing = {}
    for entry in chosen:
        if reason := unmet(entry, recording):
            missing[entry.name] = f"Does not apply: {reason}."
    applicable = [entry for entry in chosen if entry.name not in missing]
    results: dict[str, Result] = {}
    failed: list[str] = []
    for done, entry in enumerate(applicable):
        if progress is not None:
            progress(entry.name, done, len(applicable))
        try:
            results[entry.name] = run(with_intervals(entry, resamples), recording, seed=seed)
        except Exception as error:  # an assay, or the model in it, may fail in any way
            missing[entry.name] = said(error, entry.name)
            failed.append(entry.name)
    return results, missing, failed


def with_intervals(entry: Entry, resamples: int) -> Entry:
    """The entry asking for intervals, if its function can give them."""
    if not resamples or "resamples" not in inspect.signature(entry.load()).parameters:
        return entry
    return dataclasses.replace(entry, options={"resamples": resamples, **entry.options})


def said(error: Exception, name: str) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, ZscopeError):
        return text.removeprefix(f"{name}: ")
    return f"{type(error).__name__}: {text}"


def looked_at(
    recording: Recording, results: dict[str, Result]
) -> tuple[list[dict[str, Any]], float | None, dict[str, Any] | None]:
    """The table of latents with pictures of what each does, and how good reconstructions are."""
    matrix = next((each for each in results.values() if isinstance(each, ResponseMatrix)), None)
    rows = latent_table(recording, None if matrix is None else matrix.relative.diagonal().tolist())
    try:
        first = rows[:SHOWN]
        values, decoded = traversals(recording, [row["latent"] for row in first])
        for row, along, observations in zip(first, values, decoded, strict=True):
            row["traversal"] = {"values": along.tolist(), "picture": pictures.strip(observations)}
        explained, compared = reconstructed(recording)
    except Exception:  # the assays have said what is wrong with the decoder
        return rows, None, None
    return rows, explained, compared


def reconstructed(recording: Recording) -> tuple[float | None, dict[str, Any]]:
    """1 - |x - decoded|^2 / |x - mean|^2 over some observations, and a few to look at."""
    device, dtype = recording.autoencoder.place
    # Evenly spread over the data, which are often sorted; those shown as well.
    count = min(COMPARED, len(recording))
    rows = np.linspace(0, len(recording) - 1, count).round().astype(int)
    few_rows = np.linspace(0, count - 1, min(8, count)).round().astype(int)
    squares = moments = 0.0
    everything = recording.data.batch(rows)
    parts = []
    centre = everything.double().mean(0)
    with evaluation(recording.autoencoder):
        for start in range(0, count, 256):
            x = everything[start : start + 256]
            codes = recording.codes[rows[start : start + len(x)]].to(device, dtype)
            decoded = recording.autoencoder.decode(codes).float().cpu()
            squares += float((x.double() - decoded.double()).square().sum())
            moments += float((x.double() - centre).square().sum())
            parts.append(decoded)
    shown = everything[few_rows], torch.cat(parts)[few_rows]
    given, back = (part.numpy().astype(float) for part in shown)
    few: dict[str, Any] = {"shown": len(given)}
    if given.ndim == 4:
        few["picture"] = pictures.sheet(np.stack([given, back]))
    else:
        flat = [part.reshape(len(part), -1)[:5] for part in (given, back)]
        few |= {"given": flat[0].tolist(), "decoded": flat[1].tolist(), "shown": len(flat[0])}
        both = np.concatenate([part[:1] for part in flat])
        few["picture"] = pictures.lines(both, width=480, height=96)
    return (1 - squares / moments if moments > 0 else None), few


def background(
    recording: Recording,
    name: str,
    resamples: int,
    seed: int,
    command: str,
    config: dict[str, Any] | None,
) -> dict[str, Any]:
    """What it takes to make the report again."""
    model, data = recording.autoencoder, recording.data
    return {
        "command": command,
        "seed": seed,
        "resamples": resamples,
        "model": {
            "name": name,
            "latents": recording.posterior.latents,
            "prior": model.prior,
            "posterior": "a point" if recording.posterior.deterministic else "with a spread",
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
        },
        "data": {
            "name": data.name,
            "shape": list(data.shape),
            "encoded": len(recording),
            "factors": list(data.factor_names),
            **({"recipe": plain(data.recipe)} if data.recipe else {}),
        },
        **({"config": plain(config)} if config else {}),
        "versions": {
            "zscope": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "system": f"{platform.system()} {platform.machine()}",
        },
    }


def named(autoencoder: Autoencoder) -> str:
    """What to call a model: the name it has, or its class, or those of what was wrapped."""
    if autoencoder.name is not None:
        return autoencoder.name
    if not isinstance(autoencoder, Wrapped):
        return type(autoencoder).__name__
    parts = [autoencoder.encoder, autoencoder.decoder]
    names = [getattr(each, "__name__", type(each).__name__) for each in parts]
    known = [name for name in dict.fromkeys(names) if name.isidentifier()]
    return " and ".join(known) or "Autoencoder"


def trimmed(value: Any) -> Any:
    """Blocks of more numbers than anyone reads, by their shape alone."""
    if isinstance(value, dict):
        return {key: trimmed(item) for key, item in value.items()}
    shape, inner = [], value
    while isinstance(inner, list) and inner:
        shape.append(len(inner))
        inner = inner[0]
    if math.prod(shape) > MANY and isinstance(inner, int | float):
        return {"shape": shape, "left_out": "too many numbers; the result itself has them"}
    return value


def rounded(value: Any) -> Any:
    """Numbers to six digits: a third of the size, and more than any of them is good for."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


@contextmanager
def watched(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """A function that says which assay runs: the given one, or a line where a person watches."""
    if callable(progress) or progress is False or not sys.stderr.isatty():
        yield progress if callable(progress) else None
        return
    from rich.console import Console

    with Console(stderr=True).status("encoding the data") as status:
        yield lambda name, done, total: status.update(f"{name}  ({done + 1} of {total})")
