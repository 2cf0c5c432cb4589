"""Does the change do what it is meant to do? Models trained on changed data and on controls.

    original    the data as they are
    changed     perturbed.npz
    noise       uniform noise that adds as much variance as the change
    untrained   a modifier with its initial weights that adds as much variance as the change

A score that falls on the changed data alone speaks for the change; one that falls on the noise
too speaks for any disturbance, and one that falls on the untrained modifier for any function of
the factors. "As much variance" is that of x' - x about its mean, measured after reflecting and
rounding; the amplitude of a control is whatever that takes and may exceed ε. The logits of the
untrained modifier are shifted to mean 0 in each pixel and scaled to a standard deviation of 1
before its tanh: with plain initial weights it is almost a constant.

Each model is trained with several seeds on each version (OUT/evaluate/VERSION/MODEL-sSEED), like
the restarts: the same steps, rate, batch, latents and networks, unless another value is given. Its
scores are those of the runner on its training data, as in the source. A run that uses fewer
latents than there are factors that vary is counted as pruned: its scores are not comparable.

Zietlow, PhD thesis, Tübingen 2022, tables 4.2-4.5. The source has the first three versions, with
noise of equal ε.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zscope import data as datasets
from zscope import store
from zscope.assays.run import choose, measure
from zscope.data.dataset import Dataset, as_dataset
from zscope.data.perturbed import Change, change_size, noise_of, write_perturbed, write_scaled
from zscope.errors import ConfigError, DataError, RunError, did_you_mean, listed_names
from zscope.experiments.perturbation import FILE, align
from zscope.experiments.perturbation.game import RESUME, encode_factors, modifier_for
from zscope.experiments.perturbation.restarts import count_factors, with_message
from zscope.experiments.perturbation.table import Row, ScoreTable
from zscope.experiments.sweeps.names import parse_name
from zscope.experiments.training import train
from zscope.experiments.whole import Whole
from zscope.experiments.workers import ThisProcess, run_all
from zscope.files import as_path, lock
from zscope.kept import results_of
from zscope.models import build_for, entry
from zscope.recording import SAMPLES, record
from zscope.sampling import whole as check_whole

__all__ = [
    "SCORES", "Job", "Outcome", "check_evaluation", "evaluate_perturbation", "evaluation_work",
    "parse_model", "run_job", "train_all",
]  # fmt: skip

FOLDER = "evaluate"
VERSIONS = ("original", "changed", "noise", "untrained")
SCORES = ("mig", "dci", "sap", "factor-vae-score")


@dataclass(frozen=True)
class Job:
    """One run to train and measure; plain values, so that it can be sent to another process."""

    version: str
    label: str  # of the model, as it was asked for
    folder: str
    data: dict[str, Any]  # the recipe of the dataset
    root: str | None
    model: str
    latents: int
    options: dict[str, Any]
    training: dict[str, Any]  # steps, batch, rate
    seed: int
    assays: tuple[str, ...]
    samples: int


@dataclass(frozen=True)
class Outcome:
    """The scores of a job, or why there are none."""

    scores: dict[str, float] = field(default_factory=dict)  # by assay and by assay.measure
    missing: dict[str, str] = field(default_factory=dict)  # the reason, by assay
    active: int | None = None
    failed: str | None = None


def evaluate_perturbation(
    out: str | Path,
    models: Sequence[str] | str = ("beta-vae",),
    *,
    scores: Sequence[str] | str = SCORES,
    seeds: int = 3,
    data: Any = None,
    steps: int | None = None,
    rate: float | None = None,
    batch: int | None = None,
    latents: int | None = None,
    samples: int = SAMPLES,
    executor: Executor | None = None,
    progress: bool | Whole | None = None,
) -> ScoreTable:
    """Train models on original, changed and control data, and compare their scores.

    `out` is the folder of a finished `perturb`. `models` are names with options, such as
    "beta-vae?beta=4&hidden=[64,64]"; options of the restarts apply to every model that has them.
    `scores` are assays, or one of their measures ("dci.completeness"). Each model is trained with
    `seeds` seeds. `data` is the original dataset, needed only if it was given to `perturb` as
    arrays or lies in another root. Runs that are finished are not trained again. With an
    `executor` the runs go to its workers. Writes table.csv, table.json and table.md into
    OUT/evaluate.
    """
    out = as_path("evaluate_perturbation", out)
    settings, result = _read(out)
    original = _original(settings, data, out)
    latents = settings["latents"] if latents is None else latents
    chosen, columns = check_evaluation(
        original, models, scores, seeds, latents=latents, options=settings["options"]
    )
    check_whole("evaluate_perturbation", 1, samples=samples)
    given: dict[str, Any] = {"steps": steps, "rate": rate, "batch": batch}
    training = {k: settings[k] if v is None else v for k, v in given.items()}
    whole = progress if isinstance(progress, Whole) else Whole(progress)
    whole.expect("evaluation", evaluation_work(len(chosen), seeds, training["steps"]))
    shared: dict[str, Any] = {
        "latents": latents,
        "training": training,
        "assays": tuple(dict.fromkeys(column.partition(".")[0] for column in columns)),
        "samples": samples,
        "root": original.provenance.get("root"),
    }
    folder = out / FOLDER
    stopped = with_message(f"perturb: stopped in the evaluation; finished runs are kept. {RESUME}")
    with lock(folder, "evaluate_perturbation"), stopped, whole.part("evaluation") as tick:
        versions = make_versions(out, original, settings, result)
        jobs = [
            Job(
                version=version,
                label=label,
                folder=str(folder / version / f"{_slug(label)}-s{settings['seed'] + number}"),
                data=dict(each.recipe or {}),
                model=name,
                options=options,
                seed=settings["seed"] + number,
                **shared,
            )
            for label, (name, options) in chosen.items()
            for version, each in versions.items()
            for number in range(seeds)
        ]
        outcomes = train_all(jobs, executor=executor, tick=lambda done: tick(done / len(jobs)))
        table = _table(jobs, outcomes, columns, versions, count_factors(original))
        table.save(folder)
    return table


def check_evaluation(
    data: Dataset,
    models: Sequence[str] | str,
    scores: Sequence[str] | str,
    seeds: int,
    *,
    latents: int | None,
    options: Mapping[str, Any],
) -> tuple[dict[str, tuple[str, dict[str, Any]]], list[str]]:
    """The models by label, with name and options, and the columns of the table.

    Refuses what could not be trained or measured. `latents` and `options` are those of the
    restarts.
    """
    check_whole("evaluate_perturbation", 1, seeds=seeds)
    columns = [name.replace("_", "-") for name in _listed(scores, "scores")]
    for column in columns:
        choose([column.partition(".")[0]])
    chosen: dict[str, tuple[str, dict[str, Any]]] = {}
    folders: dict[str, str] = {}
    for label in _listed(models, "models"):
        name, own = parse_model(label)
        own = {**{k: v for k, v in options.items() if k in entry(name).options}, **own}
        build_for(name, data, latents=latents or count_factors(data), **own)
        chosen[label] = name, own
        if (other := folders.setdefault(_slug(label), label)) != label:
            raise ConfigError(
                f"evaluate_perturbation: the models {other!r} and {label!r} would share a folder. "
                "Their names differ in punctuation alone: leave one out."
            )
    return chosen, columns


def evaluation_work(models: int, seeds: int, steps: int) -> float:
    """The work of an evaluation, in training steps of one model."""
    return models * seeds * len(VERSIONS) * (steps + 100)  # as much as 100 steps to measure


def train_all(
    jobs: Sequence[Job],
    *,
    executor: Executor | None = None,
    tick: Callable[[int], None] = lambda done: None,
) -> list[Outcome]:
    """The outcome of each job, in order; a job that fails leaves the others alone."""
    counts = itertools.count(1)
    answers = run_all(
        executor or ThisProcess(), run_job, jobs, done=lambda number, answer: tick(next(counts))
    )
    return [Outcome(failed=each.error) if each.error else each.result for each in answers]


def run_job(job: Job) -> Outcome:
    """Train and measure one run; what is finished is read."""
    path = Path(job.folder)
    data = replace(datasets.from_recipe(job.data, root=job.root), standardise=False)
    untrained = build_for(job.model, data, latents=job.latents, **{**job.options, "seed": job.seed})
    run = train(
        untrained,
        data,
        seed=job.seed,
        out=path,
        resume=store.is_run(path),
        progress=False,
        **job.training,
    )
    assert run.model is not None
    recording = record(run.model, data, samples=job.samples)
    outcome = measure(recording, job.assays, kept=results_of(path, run.model))
    numbers: dict[str, float] = {}
    for name, result in outcome.results.items():
        for place, each in enumerate(result.measures()):
            word = each.name.replace(" ", "-")
            numbers |= {f"{name}.{word}": each.value} if word else {}
            numbers |= {} if place else {name: each.value}
    failures = {name: failure.message for name, failure in outcome.failed.items()}
    return Outcome(numbers, {**outcome.missing, **failures}, len(recording.used))


def make_versions(
    out: Path, original: Dataset, settings: dict[str, Any], result: dict[str, Any]
) -> dict[str, Dataset]:
    """The datasets to train on, as files; controls that are there already are kept."""
    folder, seed = out / FOLDER, settings["seed"]
    changed = datasets.load(out / "perturbed.npz")
    about = {"seed": seed, "epsilon_of_the_change": settings["epsilon"]}
    about["variance_of_the_change"] = change_size(original, changed).variance

    def control(name: str, change: str, shape: Change) -> Dataset:
        facts, file = {**about, "change": change}, folder / f"{name}.npz"
        if file.is_file():
            there = datasets.load(file)
            if all(there.provenance.get(key) == value for key, value in facts.items()):
                return there
        return write_scaled(file, original, shape, changed, about=facts)

    if original.recipe is None:
        original = _write_original(folder / "original.npz", original)
    untrained = _untrained(original, result["architecture"], seed)
    return {
        "original": original,
        "changed": changed,
        "noise": control("noise", "uniform noise of equal variance", noise_of(original, seed)),
        "untrained": control("untrained", "untrained modifier of equal variance", untrained),
    }


def _write_original(file: Path, data: Dataset) -> Dataset:
    """A copy of data that have no recipe, so that other processes can load them."""
    zeros = lambda rows: np.zeros((len(rows), *data.shape))  # noqa: E731
    return write_perturbed(file, data, zeros, epsilon=1.0, about={"change": "none"})


def _untrained(data: Dataset, architecture: dict[str, Any], seed: int) -> Change:
    """The outputs of a modifier with its initial weights, from -1 to 1."""
    w = encode_factors(data)
    modifier = modifier_for(data, w.shape[1], architecture, seed)

    def logits(rows: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            parts = [modifier.logits(p) for p in torch.split(w[torch.from_numpy(rows)], 256)]
        return torch.cat(parts).double().numpy()

    pieces = np.array_split(np.arange(len(data)), -(-len(data) // 1024))
    mean = sum(logits(rows).sum(0) for rows in pieces) / len(data)
    squares = sum(float(((logits(rows) - mean) ** 2).sum()) for rows in pieces)
    std = (squares / (len(data) * mean.size)) ** 0.5 or 1.0
    return lambda rows: np.tanh((logits(rows) - mean) / std)


def _read(out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the result of a finished perturbation."""
    file = out / FILE
    if not file.is_file():
        raise RunError(
            f"evaluate_perturbation: {out} has no {FILE}, so nothing was perturbed there. Give the "
            "folder that `zscope data perturb --out` wrote to."
        )
    content = store.read_json(file)
    settings, result = content.get("settings"), content.get("result")
    if not isinstance(settings, dict) or not isinstance(result, dict):
        raise RunError(
            f"evaluate_perturbation: the perturbation in {out} is not finished. Continue it with "
            "the same command and --resume (resume=True)."
        )
    if "architecture" not in result:
        raise RunError(
            f"evaluate_perturbation: {file} was written by an earlier version and does not "
            "describe the modifier. Run the same perturbation again with --resume (resume=True)."
        )
    return settings, result


def _original(settings: dict[str, Any], data: Any, out: Path) -> Dataset:
    recipe = settings["data"]
    copy = out / FOLDER / "original.npz"
    if data is not None:
        return replace(as_dataset(data), standardise=False)
    if isinstance(recipe, dict):
        return replace(datasets.from_recipe(recipe), standardise=False)
    if copy.is_file():
        return datasets.load(copy)
    raise DataError(
        f"evaluate_perturbation: {out} was made from {recipe!r}, which was given as arrays and "
        "cannot be loaded again. Give them as data=…"
    )


def parse_model(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of "beta-vae?beta=4&hidden=[64,64]"."""
    name, options = parse_name(text)
    entry(name)  # refuses unknown names
    return name, options


def _listed(values: Sequence[str] | str, name: str) -> list[str]:
    """Several words: a list, or text with commas outside of brackets."""
    if isinstance(values, str):
        values = re.split(r",(?![^\[]*\])", values)
    texts = listed_names("evaluate_perturbation", name, values)
    words = list(dict.fromkeys(word.strip() for word in texts if word.strip()))
    if not words:
        raise ConfigError(f"evaluate_perturbation: {name} is empty; name at least one.")
    return words


def _slug(label: str) -> str:
    """A model with its options as part of a file name."""
    return re.sub(r"[^\w.=-]+", "-", label).strip("-")


def _table(
    jobs: list[Job],
    outcomes: list[Outcome],
    columns: list[str],
    versions: dict[str, Dataset],
    factors: int,
) -> ScoreTable:
    rows = []
    for label in dict.fromkeys(job.label for job in jobs):
        for version in versions:
            pairs = zip(jobs, outcomes, strict=True)
            own = [o for j, o in pairs if (j.label, j.version) == (label, version)]
            done = [outcome for outcome in own if outcome.failed is None]
            values = {c: [o.scores[c] for o in done if c in o.scores] for c in columns}
            active = [float(o.active) for o in done if o.active is not None]
            pruned = sum(count < factors for count in active)
            rows.append(Row(label, version, len(own), values, active, pruned))
    failed = {
        str(Path(job.folder).relative_to(Path(job.folder).parents[1])): outcome.failed
        for job, outcome in zip(jobs, outcomes, strict=True)
        if outcome.failed is not None
    }
    missing = {f"{name}: {text}": None for o in outcomes for name, text in o.missing.items()}
    known = sorted({name for outcome in outcomes for name in outcome.scores})
    for column in columns:
        if known and column not in known and not any(m.startswith(column) for m in missing):
            missing[f"{column}: no run has this score. {did_you_mean(column, known)}"] = None
    original = versions["original"]
    alignment, reasons = align(dict(versions))
    sizes = {
        name: change_size(original, each).to_dict()
        for name, each in versions.items()
        if name != "original"
    }
    distances = {name: each.distance for name, each in alignment.items()}
    return ScoreTable(columns, rows, sizes, distances, factors, failed, [*missing, *reasons])
