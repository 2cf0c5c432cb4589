"""Searches by a sweep: how many latents, and which β?

    elbow_curve("digits", [2, 4, 8, 16], out="runs/elbow")
    search_beta("digits", [0.5, 1, 2, 4, 8], latents=10, out="runs/beta")

Every size, or every β, is trained with several seeds by one sweep (`zscope.experiments.sweeps`):
in parallel or on a cluster, each run in a folder of its own, and finished runs are never trained
again, also if sizes, β or seeds are added. The rules are those of `elbow` and `choice_of_beta`.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Any, Literal

from zscope import data as datasets
from zscope import models
from zscope.assays import CATALOGUE
from zscope.assays.dimension.fondue import latents_text, mark_answer
from zscope.assays.run import lower_is_better
from zscope.collection.columns import COUNTED, columns_of
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, Undefined, did_you_mean
from zscope.experiments.beta_choice import (
    ChoiceOfBeta,
    Trial,
    check_threshold,
    choice_of_beta,
    mark_beta,
)
from zscope.experiments.elbows import Elbow, elbow
from zscope.experiments.planned import Shown, data_of, in_words_of, train_plan
from zscope.experiments.sweeps import read_plan
from zscope.experiments.sweeps.names import parse_name
from zscope.experiments.training import train_config
from zscope.experiments.trial_scores import columns_of_assay, trial_recordings
from zscope.loading import load
from zscope.recording import SAMPLES, record
from zscope.results import Result
from zscope.sampling import whole
from zscope.tables.statistics import ENOUGH, mean_of
from zscope.training.config import RATE

__all__ = ["BetaSearch", "ElbowCurve", "elbow_curve", "search_beta"]


@dataclass(frozen=True, eq=False)
class ElbowCurve(Result):
    """The elbow of the mean curve over seeds, and of the curve of each seed.

    `low` and `high` are the 95 % t-interval of each mean, or with fewer than three seeds the
    range.
    """

    knee: int
    within: int
    column: str  # of the table of runs
    label: str  # the same as it was asked for
    better: str
    sizes: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    seeds: dict[int, Elbow]
    flags: list[str]

    def summary(self) -> list[tuple[str, str]]:
        kind = "range" if len(self.seeds) < ENOUGH else "95 % interval"
        knees = _of_seeds(each.knee for each in self.seeds.values())
        within = _of_seeds(each.within for each in self.seeds.values())
        lines = [
            ("knee", f"{latents_text(self.knee)}{knees}"),
            ("within 2 % of the best", f"{latents_text(self.within)}{within}"),
        ]
        for size, mean, low, high in zip(self.sizes, self.mean, self.low, self.high, strict=True):
            spread = f" ({kind} {low:.4g} to {high:.4g})" if len(self.seeds) > 1 else ""
            lines.append((f"{self.label}, {latents_text(size)}", f"{mean:.4g}{spread}"))
        return lines

    def _title(self) -> str:
        return f"Elbow of {self.label} against the number of latents"

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import lines

        ax = lines({"": self.mean}, at=self.sizes, x="latents", y=self.label, markers=True, ax=ax)
        colour = ax.get_lines()[-1].get_color()
        ax.fill_between(self.sizes, self.low, self.high, alpha=0.2, linewidth=0, color=colour)
        mark_answer(ax, self.knee, "knee: ")
        return ax


def elbow_curve(
    data: str | Path | Dataset,
    sizes: Sequence[int],
    *,
    out: str | Path,
    model: str = "vae",
    options: Mapping[str, Any] | None = None,
    score: str = "loss",
    better: Literal["lower", "higher"] | None = None,
    seeds: int = 3,
    seed: int = 0,
    steps: int = 10_000,
    batch: int = 64,
    rate: float = RATE,
    samples: int = SAMPLES,
    root: str | Path | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    cluster_options: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    progress: Shown = None,
) -> ElbowCurve:
    """Train models of several sizes, and find the size beyond which they get no better.

    `data` is a name, with options as in "sprites?resolution=32", a path or a Dataset that was
    loaded. `score` is an assay (`dci`, `dci.completeness`), which is measured on `samples`
    observations, or any column of `zs.runs`: `loss`, `history.reconstruction` and so on are those
    of the last batch that was logged. Whether high or low values are `better` is known of assays
    that rank models; of other columns low ones are, if nothing else is said. The work goes to the
    same places as that of `zs.sweep`, and `out` is the folder of the sweep.
    """
    who = "elbow"
    whole(who, seed=seed)
    whole(who, 1, seeds=seeds, samples=samples)
    whole(who, 1, **{f"sizes[{k}]": size for k, size in enumerate(sizes)})
    chosen = sorted({int(size) for size in sizes})
    if len(chosen) < 3:
        raise ConfigError(
            f"{who}: sizes={list(sizes)}; an elbow lies between a smaller and a larger size, so "
            "give at least three different ones, for instance 2, 4, 8, 16."
        )
    if better is None:
        ranks = score.partition(".")[0] in CATALOGUE
        better = "higher" if ranks and not lower_is_better(who, score) else "lower"
    if better not in ("lower", "higher"):
        raise ConfigError(f"{who}: better={better!r}; expected 'lower' or 'higher'.")
    name, root = data_of(who, data, root)
    plan = _plan(name, model, options, score, steps, batch, rate, samples)
    plan["grid"] = {"latents": chosen, "seed": list(range(seed, seed + seeds))}
    where = {"jobs": jobs, "cluster": cluster, "cluster_options": cluster_options}
    _check_score(who, plan, score, root)
    runs = train_plan(who, plan, out, root=root, executor=executor, progress=progress, **where)
    column = runs.columns.resolve(score, who)
    size = runs.columns.resolve("latents", who)
    values = {(row[size], row["seed"]): _value(who, row, column) for row in runs.rows}
    means = [mean_of([values[n, s] for s in plan["grid"]["seed"]]) for n in chosen]
    stated = [mean for mean in means if mean is not None]
    whole_curve = elbow(
        {n: mean.value for n, mean in zip(chosen, stated, strict=True)}, better=better
    )
    return ElbowCurve(
        knee=whole_curve.knee,
        within=whole_curve.within,
        column=column,
        label=runs.columns.label(score, who),
        better=better,
        sizes=chosen,
        mean=[mean.value for mean in stated],
        low=[mean.low for mean in stated],
        high=[mean.high for mean in stated],
        seeds={
            s: elbow({n: values[n, s] for n in chosen}, better=better) for s in plan["grid"]["seed"]
        },
        flags=_flags_of_curve(whole_curve, chosen),
    )


def _flags_of_curve(curve: Elbow, sizes: Sequence[int]) -> list[str]:
    if curve.within == sizes[-1]:
        return [
            f"The largest size, {sizes[-1]}, is better than all others by more than 2 %, so the "
            "curve may go on. Try larger sizes."
        ]
    return []


@dataclass(frozen=True, eq=False)
class BetaSearch(Result):
    """The β chosen and the onset of the polarised regime: the (lower) median over seeds.

    `chosen_range` and `onset_range` are the smallest and the largest of them; seeds without an
    onset are left out of it, and `onset` is None if no seed has one.
    """

    chosen: float
    chosen_range: tuple[float, float]
    onset: float | None
    onset_range: tuple[float, float] | None
    betas: list[float]
    seeds: dict[int, ChoiceOfBeta]
    flags: list[str]

    def summary(self) -> list[tuple[str, str]]:
        every = list(self.seeds.values())
        lines = [("chosen β", f"{self.chosen:g}{_of_seeds(e.chosen for e in every)}")]
        onsets = _of_seeds("none" if e.onset is None else e.onset for e in every)
        onset = "none" if self.onset is None else f"{self.onset:g}"
        lines.append(("onset", f"{onset}{onsets}"))
        for k, beta in enumerate(self.betas):
            counts = _listed(each.counts[k] for each in every)
            lines.append((f"active latents at β = {beta:g}", f"{counts}"))
        return lines

    def _title(self) -> str:
        latents = next(iter(self.seeds.values())).variances.shape[1]
        return f"Choice of β with {latents_text(latents)}"

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import step_lines

        series = {
            f"seed {seed}": dict(zip(self.betas, each.counts, strict=True))
            for seed, each in self.seeds.items()
        }
        ax = step_lines(series, x="β", y="active latents", ax=ax)
        mark_beta(ax, self.betas, self.chosen)
        return ax


def search_beta(
    data: str | Path | Dataset,
    betas: Sequence[float],
    *,
    latents: int,
    out: str | Path,
    model: str = "beta-vae",
    options: Mapping[str, Any] | None = None,
    score: str | None = None,
    needed: int | None = None,
    threshold: float = 0.95,
    seeds: int = 3,
    seed: int = 0,
    steps: int = 10_000,
    batch: int = 64,
    rate: float = RATE,
    samples: int = SAMPLES,
    root: str | Path | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    cluster_options: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    progress: Shown = None,
) -> BetaSearch:
    """Train a model with several β, and find the largest at which it still uses its latents.

    All β are trained, and `choice_of_beta` (see there for the rule, `needed` and `threshold`) is
    applied to the posteriors of `samples` observations, for every seed. With a `score`, an assay
    by which models can be ranked ("mig", "dci.completeness"), the best one of the usable β is
    chosen instead of the largest: the highest mig, or the lowest distance-to-orthogonality. `data`
    and the workers are those of `elbow_curve`; `out` is the folder of the sweep.
    """
    who = "beta"
    whole(who, seed=seed)
    whole(who, 1, seeds=seeds, latents=latents, samples=samples)
    if needed is not None:
        whole(who, 1, needed=needed)
        if needed > latents:
            raise ConfigError(
                f"{who}: needed={needed}, but the model has {latents_text(latents)}, so no β could "
                "be chosen. Need fewer, or give the model more latents."
            )
    check_threshold(who, threshold)
    chosen = _betas(who, betas)
    if models.entry(model).posterior == "point":
        raise ConfigError(
            f"{who}: {model} is deterministic, so its latents have no variance to look at. Use a "
            "variational model with a β, for instance beta-vae."
        )
    if "beta" in (options or {}):
        raise ConfigError(
            f"{who}: the option beta is what is searched for. Leave it out of the options."
        )
    name, root = data_of(who, data, root)
    plan = _plan(name, model, options, score, steps, batch, rate, samples)
    plan["train"]["latents"] = latents
    plan["grid"] = {"options.beta": chosen, "seed": list(range(seed, seed + seeds))}
    where = {"jobs": jobs, "cluster": cluster, "cluster_options": cluster_options}
    if score is not None:
        _check_score(who, plan, score, root)
    low = score is not None and lower_is_better(who, score)
    runs = train_plan(who, plan, out, root=root, executor=executor, progress=progress, **where)
    column = None if score is None else runs.columns.resolve(score, who)
    text, given = parse_name(name)
    dataset = datasets.load(text, root=root, **given)
    beta_column = runs.columns.resolve("options.beta", who)
    rows = {(row[beta_column], row["seed"]): row for row in runs.rows}

    def trial(beta: float, seed: int) -> Trial:
        row = rows[beta, seed]
        posterior = record(load(runs.folder / row["run"]), dataset, samples=samples).posterior
        value = None if column is None else _value(who, row, column)
        return Trial(posterior, None if low else value, value if low else None)

    found: dict[int, ChoiceOfBeta] = {}
    flags: list[str] = []
    for each in plan["grid"]["seed"]:
        try:
            found[each] = choice_of_beta(
                lambda beta, seed=each: trial(beta, seed),  # type: ignore[misc]
                chosen,
                needed=needed,
                threshold=threshold,
                beyond=len(chosen),
            )
        except Undefined as error:
            flags.append(
                f"Seed {each} has no answer: {str(error).removeprefix('choice_of_beta: ')}"
            )
    if not found:
        raise Undefined(f"{who}: no seed of {seeds} has an answer. {flags[0]}")
    return _beta_search(chosen, found, flags)


def _betas(who: str, betas: Sequence[float]) -> list[float]:
    """The different β, ascending."""
    try:
        numbers = sorted({float(beta) for beta in betas})
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) < 2 or not (numbers[0] > 0 and numbers[-1] < float("inf")):
        raise ConfigError(
            f"{who}: betas={betas!r:.80}; expected at least two different positive numbers, for "
            "instance 0.5, 1, 2, 4, 8."
        )
    return numbers


def _beta_search(
    betas: list[float], found: dict[int, ChoiceOfBeta], flags: list[str]
) -> BetaSearch:
    answers = [each.chosen for each in found.values()]
    onsets = [each.onset for each in found.values() if each.onset is not None]
    without = len(found) - len(onsets)
    if without:
        flags.append(
            f"In {without} of {len(found)} seeds every latent is used up to β={betas[-1]:g}: there "
            "is no onset of the polarised regime. Try larger β; or the model needs all its latents."
        )
    if any(onset == betas[0] for onset in onsets):
        flags.append(
            f"A latent is unused at the smallest β already, {betas[0]:g}. Try smaller β, or fewer "
            "latents."
        )
    return BetaSearch(
        chosen=median_low(answers),
        chosen_range=(min(answers), max(answers)),
        onset=median_low(onsets) if onsets else None,
        onset_range=(min(onsets), max(onsets)) if onsets else None,
        betas=betas,
        seeds=found,
        flags=flags,
    )


def _plan(
    data: str,
    model: str,
    options: Mapping[str, Any] | None,
    score: str | None,
    steps: int,
    batch: int,
    rate: float,
    samples: int,
) -> dict[str, Any]:
    """What all runs share, and what is measured."""
    own = {f"options.{key}": value for key, value in (options or {}).items()}
    settings = {"steps": steps, "batch": batch, "rate": rate}
    plan: dict[str, Any] = {"train": {"model": model, "data": data, **settings, **own}}
    assay = (score or "").partition(".")[0]
    if assay in CATALOGUE:
        plan["assay"] = {"names": [assay], "samples": samples}
    return plan


def _check_score(who: str, plan: Mapping[str, Any], score: str, root: str | Path | None) -> None:
    """Refuse a score that the first run of the plan will not have, after one step of training."""
    first = {key: values[:1] for key, values in plan["grid"].items()}
    with in_words_of(who):
        config = read_plan({"train": plan["train"], "grid": first}, root=root).runs[0].config
    assert config.data is not None
    data = datasets.from_recipe(config.data.model_dump(exclude_none=True), root=root)
    run = train_config(config.model_copy(update={"steps": 1}), out=None, data=data, progress=False)
    logged = [key for key in run.history[-1] if key not in ("format", "step")]
    assay = score.partition(".")[0]
    if assay not in CATALOGUE:
        if score.removeprefix("history.") not in logged:
            near = did_you_mean(score, [*logged, *CATALOGUE])
            names = [f"history.{key}" if key in COUNTED else key for key in logged]
            known = f"Known: {', '.join(names)}, and the assays: zscope assay --list"
            raise ConfigError(
                f"{who}: no score is called {score!r}. {known if near[:5] == 'Known' else near}"
            )
        columns_of([{"last": dict.fromkeys(logged)}]).resolve(score, who)
        return
    assert run.model is not None
    columns = columns_of_assay(assay, trial_recordings(run.model, data))
    if isinstance(columns, str):
        raise ConfigError(
            f"{who}: {assay} is no score of these models and data: {columns}. Choose another "
            "score: zscope assay --list"
        )
    if columns is not None and score != assay and score not in columns:
        raise ConfigError(f"{who}: no score is called {score!r}. {did_you_mean(score, columns)}")


def _value(who: str, row: Mapping[str, Any], column: str) -> float:
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Undefined(
            f"{who}: the run {row['run']} has no number for {column} ({value!r}). Does the assay "
            f"apply to these models and data? See: zscope table, or choose another score."
        )
    return float(value)


def _of_seeds(values: Iterable[Any]) -> str:
    """The values of several seeds, in brackets; nothing for one seed."""
    every = list(values)
    return f" (seeds: {_listed(every)})" if len(every) > 1 else ""


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(value if isinstance(value, str) else f"{value:g}" for value in values)
