"""Does the change do what it is meant to do? Models trained on changed data and on controls.

    original    the data as they are
    changed     perturbed.npz
    noise       uniform noise whose variance is that of the change (OUT/noise.npz has its ε)
    untrained   the change of a modifier with its initial weights, with that variance too

A score that falls on the changed data alone speaks for the change; one that falls on the noise
too speaks for any disturbance, and one that falls on the untrained modifier for any function of
the factors. The variance is that of x' - x about its mean, measured after reflecting and
rounding; the amplitude of a control is whatever that takes and may exceed ε. The logits of the
untrained modifier are shifted to mean 0 in each pixel and scaled to a standard deviation of 1
before its tanh: with plain initial weights it is almost a constant.

Each model is trained with several seeds on each version, like the restarts: the same steps, rate,
batch, latents and networks, unless another value is given. The runs are those of a sweep
(`zscope.experiments.sweeps`): in parallel or on a cluster, small ones together, each in a folder
of its own, and none of them trained twice, also if models, scores or seeds are added.

    OUT/evaluate/original.npz       a copy of data that have no name
    OUT/evaluate/noise.npz          the controls
    OUT/evaluate/untrained.npz
    OUT/evaluate/sweep.json         the sweep; OUT/evaluate is its folder
    OUT/evaluate/runs/              one folder a run, named by what it is
    OUT/evaluate/failed/RUN.txt     why a run failed
    OUT/evaluate/table.csv          the scores; also table.json and table.md

Scores are those of the runner on the training data, as in the source, and in the units of the data:
tables are not standardised, since ε is not. A run that uses fewer latents than there are factors
that vary is counted as pruned: its scores are not comparable. If there are fewer latents than
factors, a flag says so, and runs are pruned that do not use all of them.

Zietlow, PhD thesis, Tübingen 2022, tables 4.2-4.5. The source has the first three versions, with
noise of equal ε.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zscope import data as datasets
from zscope import store
from zscope.assays.choosing import choose
from zscope.collection import Runs
from zscope.data.dataset import Dataset
from zscope.data.perturbed import Change, change_size, noise_of, write_perturbed, write_scaled
from zscope.errors import ConfigError, DataError, RunError, did_you_mean, listed_names
from zscope.experiments.perturbation import FILE, align
from zscope.experiments.perturbation.game import RESUME, encode_factors, modifier_for
from zscope.experiments.perturbation.restarts import (
    check_training,
    count_factors,
    few_latents,
    in_own_units,
    with_message,
)
from zscope.experiments.perturbation.table import Row, ScoreTable
from zscope.experiments.sweeps import Status, Sweep, step_of, sweep
from zscope.experiments.sweeps.names import data_text, parse_name
from zscope.experiments.trial_scores import columns_of_assay, trial_recordings
from zscope.experiments.whole import Tick, Whole
from zscope.files import as_path, lock
from zscope.models import build_for, entry, refuse_arguments
from zscope.recording import SAMPLES, Recording
from zscope.sampling import whole as check_whole
from zscope.training.loop import configure

__all__ = [
    "SCORES", "check_evaluation", "evaluate_perturbation", "evaluation_work", "parse_model",
]  # fmt: skip

FOLDER = "evaluate"
VERSIONS = ("original", "changed", "noise", "untrained")
SCORES = ("mig", "dci", "sap", "factor-vae-score")

Chosen = dict[str, tuple[str, dict[str, Any]]]
"""Models by the text that asks for them: name and options."""


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
    runs: str | Path | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    cluster_options: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    progress: bool | Whole | None = None,
) -> ScoreTable:
    """Train models on original, changed and control data, and compare their scores.

    `out` is the folder of a finished `perturb`. `models` are names with options, such as
    "beta-vae?beta=4&hidden=[64,64]"; options of the restarts apply to every model that has them.
    `scores` are assays, or one of their measures ("dci.completeness"), measured on `samples`
    observations. Each model is trained with `seeds` seeds. `data` is the original dataset, needed
    only if it was given to `perturb` as arrays or lies in another root. Runs lie in `runs` (by
    default OUT/evaluate/runs), which sweeps may share; those that are finished are not trained
    again. The work goes to the same places as that of `zs.sweep`: `jobs` processes of this machine
    (by default one a core), a `cluster`, or any `executor`. Writes table.csv, table.json and
    table.md into OUT/evaluate, which is the folder of a sweep.
    """
    out = as_path("evaluate_perturbation", out)
    settings, result = _read(out)
    original = _original(settings, data, out)
    latents = settings["latents"] if latents is None else latents
    chosen, columns = check_evaluation(
        original, models, scores, seeds, out=out, latents=latents, options=settings["options"]
    )
    check_whole("evaluate_perturbation", 1, samples=samples)
    given: dict[str, Any] = {"steps": steps, "rate": rate, "batch": batch}
    training = {k: settings[k] if v is None else v for k, v in given.items()}
    check_whole("evaluate_perturbation", steps=training["steps"])
    whole = progress if isinstance(progress, Whole) else Whole(progress)
    whole.expect("evaluation", evaluation_work(len(chosen), seeds, training["steps"]))
    folder = out / FOLDER
    where: dict[str, Any] = {"runs": runs, "jobs": jobs, "cluster": cluster, "executor": executor}
    where |= {"cluster_options": cluster_options, "root": original.provenance.get("root")}
    stopped = with_message(f"perturb: stopped in the evaluation; finished runs are kept. {RESUME}")
    with lock(out, "evaluate_perturbation"), stopped, whole.part("evaluation") as tick:
        versions = make_versions(out, original, settings, result)
        numbers = range(settings["seed"], settings["seed"] + seeds)
        members = _members(chosen, versions, numbers)
        plan = {
            "train": {**training, "latents": latents},
            "run": [fields for each in members.values() for fields in each],
            "assay": {"names": _assays(columns), "samples": samples},
        }
        try:
            found = sweep(plan, folder, retry_failed=True, progress=_report_to(tick), **where)
        except ConfigError as error:
            text = str(error).removeprefix("sweep: ")
            raise ConfigError(f"evaluate_perturbation: {text}") from None
        names = iter(each["name"] for each in store.read_json(folder / "sweep.json")["runs"])
        of = {key: [next(names) for _ in each] for key, each in members.items()}
        table = _table(found, of, columns, versions, count_factors(original), latents)
        table.save(folder)
    return table


def _members(
    chosen: Chosen, versions: Mapping[str, Dataset], seeds: Sequence[int]
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The runs of the plan, by model and version."""
    return {
        (label, version): [
            {
                "model": name,
                "data": data_text(data.recipe or {}),
                "seed": seed,
                **{f"options.{key}": value for key, value in options.items()},
            }
            for seed in seeds
        ]
        for label, (name, options) in chosen.items()
        for version, data in versions.items()
    }


def _report_to(tick: Tick) -> Callable[[Sweep, Status], None]:
    """What tells a sweep's progress to a display: the share of what was not done at first."""
    first: float | None = None

    def report(state: Sweep, status: Status) -> None:
        nonlocal first
        steps = {name: step_of(state.folder / name) for name in status.running}
        begun = sum(step / max(1, state.entries[name].steps) for name, step in steps.items())
        over = len(status.done) + len(status.failed)
        share = (over + begun) / max(1, status.total)
        first = share if first is None else first
        tick((share - first) / max(1 - first, 1e-12))

    return report


def check_evaluation(
    data: Dataset,
    models: Sequence[str] | str,
    scores: Sequence[str] | str,
    seeds: int,
    *,
    out: Path,
    latents: int | None,
    options: Mapping[str, Any],
) -> tuple[Chosen, list[str]]:
    """The models, and the columns of the table; refuses what could not be trained or measured.

    `latents` and `options` are those of the restarts.
    """
    check_whole("evaluate_perturbation", 1, seeds=seeds)
    data_text({"name": str(out.absolute())})  # refuses places that a plan cannot name
    data, asked = in_own_units(data), _listed(scores, "scores")
    for name in asked:
        choose([_parts(name)[0]])  # refuses unknown names
    chosen: Chosen = {}
    recipes: dict[str, Any] = {}
    recordings = []
    for label in _listed(models, "models"):
        name, own = parse_model(label)
        if "seed" in own:
            raise ConfigError(
                f"evaluate_perturbation: {label!r} has a seed, but every model is trained with "
                f"{seeds} of them, which follow that of the perturbation. Leave it out."
            )
        refuse_arguments(own)
        known = {k: v for k, v in options.items() if k in entry(name).options and k != "seed"}
        own = {**known, **own}
        model = build_for(name, data, latents=latents or count_factors(data), **own)
        recipe = model.recipe
        for other, its in recipes.items():
            if its == recipe:
                raise ConfigError(
                    f"evaluate_perturbation: the models {other!r} and {label!r} have the same "
                    "options, so they would be the same runs. Leave one out."
                )
        chosen[label], recipes[label] = (name, own), recipe
        check_training(model, data, configure(model, data, 1, None, None, None, 0, {}))
        recordings += trial_recordings(model, data)
    return chosen, _columns(asked, recordings)


def _columns(asked: Sequence[str], recordings: Sequence[Recording]) -> list[str]:
    """The columns of the scores; refuses assays and measures that no model could have.

    What an assay measures is found by trials. One that has no answer there may have one later, so
    its measures are not checked. Of a group, assays without a score are left out.
    """
    columns: dict[str, None] = {}
    for name in asked:
        assay, part = _parts(name)
        members = [each.name for each in choose([assay])]
        known = {each: columns_of_assay(each, recordings) for each in members}
        usable = [each for each, names in known.items() if not isinstance(names, str)]
        if not usable:
            reasons = dict.fromkeys(str(reason) for reason in known.values())
            raise ConfigError(
                f"evaluate_perturbation: {assay} is no score of these models and data: "
                f"{'; '.join(reasons)}. Choose another score, such as mig or dci."
            )
        there = [each for each in usable if not part or _has(known[each], f"{each}.{part}")]
        if not there:
            names = [n for each in usable for n in known[each] or () if n != each]
            hint = did_you_mean(f"{assay}.{part}", names) if names else "It has one score only."
            raise ConfigError(
                f"evaluate_perturbation: {assay} has no measure {part!r}. {hint} Or give "
                f"{assay} alone."
            )
        columns |= dict.fromkeys(f"{each}.{part}" if part else each for each in there)
    return list(columns)


def _parts(name: str) -> tuple[str, str]:
    """The assay and the measure of a score."""
    assay, _, measure = name.replace("_", "-").partition(".")
    return assay, measure


def _has(names: Any, column: str) -> bool:
    return names is None or column in names


def _assays(columns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(column.partition(".")[0] for column in columns))


def evaluation_work(models: int, seeds: int, steps: int) -> float:
    """The work of an evaluation, in training steps of one model."""
    return models * seeds * len(VERSIONS) * (steps + 100)  # as much as 100 steps to measure


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

    if not _has_name(original):
        original = _write_original(folder / "original.npz", original)
    untrained = _untrained(original, result["architecture"], seed)
    return {
        "original": original,
        "changed": changed,
        "noise": control("noise", "uniform noise of equal variance", noise_of(original, seed)),
        "untrained": control("untrained", "untrained modifier of equal variance", untrained),
    }


def _has_name(data: Dataset) -> bool:
    """Whether a plan can name the data: arrays and parts of a dataset have no name."""
    with suppress(ConfigError):
        return data.recipe is not None and bool(data_text(data.recipe))
    return False


def _write_original(file: Path, data: Dataset) -> Dataset:
    """A copy of data that a plan cannot name, so that other processes can load them."""
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
        return in_own_units(data)
    if isinstance(recipe, dict):
        return in_own_units(datasets.from_recipe(recipe))
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


def _table(
    found: Runs,
    members: Mapping[tuple[str, str], list[str]],
    columns: list[str],
    versions: dict[str, Dataset],
    factors: int,
    latents: int,
) -> ScoreTable:
    """The scores of the runs that belong to each model and version."""
    cells = {row["run"]: row for row in found.rows}
    asked = _assays(columns)
    entries = {run: [e for name, e in found.entries(run).items() if name in asked] for run in cells}
    places = {c: c if c in found.columns.scores else found.columns.first.get(c) for c in columns}
    rows = []
    for (label, version), names in members.items():
        own = [name for name in names if name in cells]
        values = {
            column: [float(cells[name][place]) for name in own if place in cells[name]]
            for column, place in places.items()
        }
        counts = [next((e.get("used") for e in entries[name]), None) for name in own]
        active = [float(count) for count in counts if isinstance(count, int)]
        pruned = sum(count < min(factors, latents) for count in active)
        rows.append(Row(label, version, len(names), values, active, pruned))
    missing = {
        f"{each['assay']}: {each['missing']}": None
        for own in entries.values()
        for each in own
        if isinstance(each.get("missing"), str)
    }
    for column, place in places.items():
        known = found.scores()
        if known and place is None and not any(text.startswith(column) for text in missing):
            missing[f"{column}: no run has this score. {did_you_mean(column, known)}"] = None
    original = versions["original"]
    alignment, reasons = align(dict(versions))
    sizes = {
        name: change_size(original, each).to_dict()
        for name, each in versions.items()
        if name != "original"
    }
    distances = {name: each.distance for name, each in alignment.items()}
    chance = next((each.chance for each in alignment.values()), None)
    flags = [*missing, *reasons]
    if latents < factors:
        flags.insert(0, few_latents(latents, factors))
    return ScoreTable(
        columns, rows, sizes, distances, factors, found.failed, flags, chance, latents
    )
