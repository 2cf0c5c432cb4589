"""What the studies of FONDUE share: gaps of models of every size, and searches on them.

All sizes are trained with each seed; `searches` replays a search on them. A length of training is
named by its share of the longest one, and the model is that of the nearest snapshot.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from zscope import data as datasets
from zscope.assays.dimension.fondue import Fondue, Use
from zscope.assays.dimension.gaps import dimension_gap, trace_gap
from zscope.assays.dimension.intrinsic import intrinsic_dimension
from zscope.assays.dimension.repeated_fondue import replay_fondue
from zscope.data.dataset import Dataset
from zscope.errors import Undefined, ZscopeError
from zscope.experiments.studies.judging import Control
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.study import Results
from zscope.experiments.studies.trained import Trained
from zscope.experiments.trials import THRESHOLDS, measure_gap
from zscope.recording import Recording, choose_rows

__all__ = [
    "CRITERIA",
    "HALF",
    "PUBLISHED_DATA",
    "TITLES",
    "all_data",
    "answers",
    "at",
    "ended_well",
    "gaps_at",
    "measure_data",
    "measure_gaps",
    "measure_trace",
    "models_trained",
    "search_step",
    "searches",
    "stand_in",
    "start_of",
    "status_text",
    "title_of",
]

CRITERIA = {"trace": "trace", "information": "information", "median": "information, median kernel",
            "dimension": "dimension"}  # fmt: skip
"""Gap -> its name; "median" is the information gap with the median bandwidth."""
TITLES = {"digits": "digits", "sprites": "sprites", "relu": "sprites, ReLU", "fashion": "fashion"}
"""Our data at scale small; see `title_of`."""
PUBLISHED_DATA = {"digits": "Symsol", "sprites": "dSprites", "fashion": "CelebA"}
"""Our data -> the published data whose place they take; they have nothing else in common."""
HALF = 0.5
NAMES = ("trace", "sampled", "codes_trace", "dimension", "information", "median", "saturated",
         "active", "mixed", "passive", "used", "kl")  # fmt: skip


def title_of(results: Results, group: str) -> str:
    """What the data of a group are called."""
    return PUBLISHED_DATA.get(group, group) if results.scale == "paper" else TITLES[group]


def stand_in(results: Results, group: str, joint: str = "") -> str:
    """The same, and at scale small for which data they stand: "digits (for Symsol)"."""
    title, words = title_of(results, group), f"for {PUBLISHED_DATA[group]}"
    if results.scale == "paper":
        return title
    return f"{title}{joint}{words}" if joint else f"{title} ({words})"


# Measurements


def all_data(run: Trained) -> Dataset:
    """All data, those for training and those held out."""
    recipe = {key: value for key, value in run.run.config["data"].items() if value is not None}
    recipe.pop("split", None)
    return datasets.from_recipe(recipe, root=run.among.root)


def gaps_at(
    run: Trained, step: int, data: Dataset, criteria: Sequence[str]
) -> dict[str, float | None]:
    """Gaps, types and KL of the model at a step."""
    model = run.at(step)
    recording = run.recording(model, samples=200 if run.tiny else 3_000, data=data)
    gap, use, _ = measure_gap(recording)
    answer: dict[str, float | None] = dict.fromkeys(NAMES)
    answer |= {"trace": gap, **use._asdict()}
    if "sampled" in criteria:
        traces = trace_gap(recording, sampled=True)
        answer |= {"sampled": traces.score, "codes_trace": traces.means}
    if "dimension" in criteria:
        answer["dimension"] = _dimension(recording)
    if "information" in criteria and step:
        few = run.recording(model, samples=200 if run.tiny else 1_000, data=data)
        answer["information"], _, flags = measure_gap(few, "information", "silverman")
        answer["median"] = measure_gap(few, "information", "median")[0]
        answer["saturated"] = float(bool(flags))
    return answer


def _dimension(recording: Recording) -> float | None:
    try:
        return dimension_gap(recording).score
    except Undefined:
        return None


def _over_steps(run: Trained, criteria: Sequence[str], steps: Collection[int]) -> dict[str, Any]:
    data = all_data(run)
    rows = [gaps_at(run, step, data, criteria) for step in steps]
    known = [name for name in NAMES if any(row[name] is not None for row in rows)]
    return {"at": list(steps), **{name: [row[name] for row in rows] for name in known}}


def search_step(group: str, scale: str, stages: Collection[int]) -> int:
    """The step at which searches take a model: half of its training.

    Of runs that are trained for searches alone, as those under pressure at scale small, the end.
    """
    last = max(stages)
    if group.endswith("-pressure") and scale != "paper":
        return last
    return min(stages, key=lambda step: abs(step - HALF * last))


def measure_gaps(run: Trained) -> dict[str, Any]:
    """Every gap at every snapshot, from step 0 on."""
    return _over_steps(run, ("sampled", "dimension", "information"), run.stages)


def measure_trace(run: Trained) -> dict[str, Any]:
    """The trace gap and the types at the step that searches take."""
    return _over_steps(run, (), [search_step(run.group, run.among.scale, run.stages)])


def measure_data(runs: Sequence[Trained]) -> dict[str, Any]:
    """The intrinsic dimension of the observations, where searches start."""
    run = runs[0]
    data = all_data(run)
    rows = choose_rows(len(data), 300 if run.tiny else 5_000, 0)
    result = intrinsic_dimension(data.batch(rows).flatten(1))
    return {"dimension": result.dimension, "samples": result.samples, "data": run["data"]}


# Searches


def at(row: Mapping[str, Any], name: str, share: float = HALF) -> float | None:
    """A measurement after this share of the training; None if it was not measured."""
    steps, values = row.get("at"), row.get(name)
    if not steps or not values:
        return None
    place = min(range(len(steps)), key=lambda k: abs(steps[k] - share * steps[-1]))
    value: float | None = values[place]
    return value


def start_of(results: Results, rows: Rows) -> float | None:
    """The intrinsic dimension of the data of these runs."""
    wanted = rows[0].get("data") if rows else None
    found = [v["dimension"] for v in results.units("measure_data").values() if v["data"] == wanted]
    return found[0] if found else None


def searches(
    rows: Rows,
    start: float | None,
    *,
    criterion: str = "trace",
    share: float = HALF,
    search: Literal["fondue", "binary"] = "fondue",
    bare: bool = False,
    most: int | None = None,
) -> dict[int, Fondue]:
    """By seed, the search on the models of that seed; seeds that lack a size are left out.

    Sizes are tried up to the largest one below which none is missing, or up to a larger start of
    which there are models. `search` "binary" has no
    start. `bare` looks at gaps alone, not at whether the models use their latents. With `most`,
    sizes up to it count as not acceptable, as the largest trained one must be.
    """
    if start is None and search == "fondue":
        return {}
    threshold = THRESHOLDS["information" if criterion == "median" else criterion]
    answer = {}
    for seed, own in rows.by("seed").items():
        trials = {row["latents"]: _trial(row, criterion, share) for row in own}
        sizes: dict[int, Any] = {n: trial for n, trial in trials.items() if trial is not None}
        limit = next(n for n in range(1, len(sizes) + 2) if n not in sizes) - 1
        if limit < 1:
            continue
        if start is not None and round(start) in sizes:
            limit = max(limit, round(start))
        if bare:
            sizes = {n: trial[0] for n, trial in sizes.items()}
        if most is not None:
            gap = sizes[limit] if bare else sizes[limit][0]
            if gap <= threshold:
                continue
            sizes |= {n: float(n) for n in range(limit + 1, most + 1)}
            limit = most
        try:
            answer[seed] = replay_fondue(
                sizes, start=None if search == "binary" else start, search=search,
                threshold=threshold, limit=limit, trace=criterion == "trace",
            )  # fmt: skip
        except ZscopeError:
            continue  # of an untrained model the gap can exceed the number of latents
    return answer


def _trial(row: Mapping[str, Any], criterion: str, share: float) -> tuple[float, Use] | None:
    gap = at(row, criterion, share)
    counts = [at(row, name, share) for name in ("active", "mixed", "passive", "used")]
    if gap is None or None in counts:
        return None
    active, mixed, passive, used = (int(count or 0) for count in counts)
    return gap, Use(active, mixed, passive, used, at(row, "kl", share))


def answers(found: Mapping[int, Fondue]) -> dict[int, float]:
    """The answers of the searches that have one: a collapsed model is none."""
    return {s: float(each.latents) for s, each in found.items() if each.status != "collapsed"}


def models_trained(found: Mapping[int, Fondue]) -> dict[int, float]:
    """How many models each search would have trained."""
    return {seed: float(each.samples) for seed, each in found.items()}


def status_text(found: Mapping[int, Fondue]) -> str:
    """How many searches ended in which way."""
    counts: dict[str, int] = {}
    for each in found.values():
        counts[each.status] = counts.get(each.status, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def ended_well(*found: Mapping[int, Fondue]) -> Control:
    """No search collapsed, and none reached the largest size, where the answer is a bound."""
    every = [each.status for own in found for each in own.values()]
    bad = [status for status in every if status in ("collapsed", "limit")]
    text = f"{len(bad)} of {len(every)} did: {', '.join(sorted(set(bad)))}" if bad else "none did"
    return Control(
        "no search collapsed or reached the largest size", not bad if every else None, text
    )
