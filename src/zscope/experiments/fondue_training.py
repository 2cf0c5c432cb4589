"""FONDUE with training: how many latents do these data need?

Each size is tried with a fresh model, trained for a short while on nine tenths of the data;
the gap between its samples and its means is measured on the other tenth, with the types of its
latents and their KL. The search is repeated with several seeds, each in its own folder: trials
are saved in OUT/seed-S/trials.json and their runs in OUT/seed-S/latents-N-steps-N, so that a
search that was stopped continues where it was: finished trials are read, a partly trained model
resumes. The searches run one after the other, or in several processes at once.

See `zscope.assays.dimension.fondue` for the search alone and its theory.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from zscope import data as datasets
from zscope.assays.dimension.fondue import (
    BetaFondue,
    Fondue,
    StableFondue,
    Use,
    add_trials,
    binary_fondue,
    fondue_beta,
    fondue_types,
    stable_fondue,
)
from zscope.assays.dimension.fondue import fondue as search_latents
from zscope.assays.dimension.repeated_fondue import (
    RepeatedFondue,
    fondue_trials,
    repeat_fondue,
)
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError, DataError, RunError, ZscopeError, did_you_mean
from zscope.experiments.sweeps import step_of
from zscope.experiments.trials import (
    GAPS,
    THRESHOLDS,
    Progress,
    Trials,
    contents_of,
    read_trials,
    size_of,
)
from zscope.experiments.workers import Outcome, check_jobs, run_all, workers
from zscope.files import lock
from zscope.recording import SAMPLES
from zscope.sampling import whole
from zscope.training.config import RATE

__all__ = ["GAPS", "THRESHOLDS", "Pace", "Progress", "Trials", "fondue"]

SEARCHES = ("fondue", "binary", "beta")
USUAL = 5
"""Trials of a search, before one has ended."""

Answer = Fondue | StableFondue | BetaFondue
Report = Callable[[Progress], None]


def fondue(
    data: Any,
    *,
    search: str = "fondue",
    latents: int | None = None,
    model: str | None = None,
    options: dict[str, Any] | None = None,
    criterion: str = "trace",
    threshold: float | None = None,
    start: float | None = None,
    limit: int = 512,
    bandwidth: str | None = None,
    stable: bool = False,
    steps: int = 10_000,
    batch: int = 64,
    rate: float = RATE,
    samples: int = SAMPLES,
    seed: int = 0,
    seeds: int = 3,
    out: str | Path | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    cluster_options: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    progress: Report | None = None,
) -> RepeatedFondue:
    """Find how many latents a model can use on these data, by training models of many sizes.

    `search` is "fondue", "binary" (bisection up to `limit`, at most 199) or "beta": the largest
    β at which a model with a fixed number of `latents` still uses all of them. The search for
    a size begins at `start`, by default the intrinsic dimension of the data; `stable` trains
    twice as long until the answer repeats. `model` is a variational one, by default vae, or
    beta-vae in a search for β; `options` are passed to it.

    `criterion` is "trace", "sampled", "dimension", "information" or "types", and `threshold`
    the largest acceptable gap, by default the published one; it tolerates about that many
    passive latents. `bandwidth` is that of the kernel of the criterion information: "silverman"
    as published, or "median", which does not saturate on images.

    The search is run with `seeds` seeds, from `seed` on. The result has the mean and the
    standard deviation of the answers, and every trial with the types of its latents and its KL.
    `out` is a folder for the trials.

    The searches run one after the other, or at the same time: in `jobs` processes of this
    machine, on a Dask scheduler (`cluster="tcp://host:8786"`), as jobs of SLURM
    (`cluster="slurm"`, with `cluster_options`) or on any `executor` of concurrent.futures. Each
    process has one thread. `progress` is called with every trial; of searches that run
    elsewhere it needs `out` to see them.
    """
    if search not in SEARCHES:
        raise ConfigError(
            f"fondue: no search is called {search!r}. {did_you_mean(search, SEARCHES)}"
        )
    if (search == "beta") != (latents is not None) or (search == "beta" and stable):
        raise ConfigError(
            "fondue: --search beta (search='beta') looks for the largest β of a model of fixed "
            "size: give the size, for instance --latents 6 (latents=6). The other searches look "
            "for the size itself; --stable applies to them only."
        )
    whole("fondue", seed=seed)
    whole("fondue", 1, seeds=seeds, limit=limit, steps=steps, batch=batch)
    if latents is not None:
        whole("fondue", 1, latents=latents)
    _check_numbers(search, threshold, start, limit)
    if search == "beta" and (criterion == "types" or "beta" in (options or {})):
        raise ConfigError(
            "fondue: a search for β needs a gap that grows with β, which counts of types do not, "
            "and a β that is not fixed. Leave the criterion types and the option beta out."
        )
    if criterion == "types" and (search == "binary" or threshold is not None):
        raise ConfigError(
            "fondue: the criterion types counts the latents that are not passive, so there is "
            "nothing to bisect and no threshold. Leave search and threshold out, or use the "
            "criterion trace."
        )
    settings = {
        "model": model or ("beta-vae" if search == "beta" else "vae"),
        "options": options,
        "criterion": criterion,
        "threshold": threshold,
        "bandwidth": bandwidth,
        "batch": batch,
        "rate": rate,
        "samples": samples,
    }
    dataset = as_dataset(data)
    searches = [
        Search(
            data=dataset,
            settings={**settings, "seed": each},
            out=None if out is None else str(Path(out) / f"seed-{each}"),
            kind=search,
            latents=latents,
            start=start,
            limit=limit,
            steps=steps,
            stable=stable,
        )
        for each in range(seed, seed + seeds)
    ]
    for each in searches:  # refuse what is wrong before anything starts
        trials = each.trials()
        if each is searches[0]:
            begin = latents or min(limit, max(1, round(start or trials.intrinsic_dimension())))
            trials.try_training(begin, beta=1.0 if search == "beta" else None)
    pace = Pace(searches)
    if executor is None and cluster is None and (jobs is None or check_jobs(jobs) == 1):
        answers = _one_after_the_other(searches, pace, progress)
    else:
        count = None if jobs is None else min(check_jobs(jobs), seeds)
        where: dict[str, Any] = {"jobs": count, "cluster": cluster, "options": cluster_options}
        where["folders"] = [] if out is None else [Path(out)]
        where["files"] = list(datasets.files_of(dataset.recipe or {}).values())
        pool = nullcontext(executor) if executor else workers(**where)
        watch = _Watch(searches, pace, progress)
        with pool as active:
            answers = _at_once(searches, active, watch, out)
    return repeat_fondue(lambda seed: answers[seed], answers)


def _check_numbers(search: str, threshold: Any, start: Any, limit: int) -> None:
    """Refuse a threshold or a start that a search could not use."""
    for name, value in {"threshold": threshold, "start": start}.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and math.isfinite(value)):
            raise ConfigError(f"fondue: {name}={value!r:.60}; expected a finite number.")
    if start is None:
        return
    if search != "fondue":
        raise ConfigError(
            f"fondue: start={start:g} has no effect with the search {search}, which begins "
            "elsewhere. Leave it out."
        )
    if not 1 <= start <= limit:
        raise ConfigError(
            f"fondue: start={start:g}; expected 1 to {limit}, the largest number of latents to "
            "try. Leave it out to start at the intrinsic dimension of the data, or raise the limit."
        )


@dataclass(frozen=True)
class Search:
    """All that one search needs, in a form that can be sent to another process."""

    data: Dataset | dict[str, Any]  # or how to load it: recipe, root and contents
    settings: dict[str, Any]  # of Trials
    out: str | None
    kind: str
    latents: int | None
    start: float | None
    limit: int
    steps: int
    stable: bool

    @property
    def seed(self) -> int:
        return int(self.settings["seed"])

    def trials(self, progress: Report | None = None) -> Trials:
        """The trials of this search, with those that were finished before."""
        data = self.data if isinstance(self.data, Dataset) else _load(json.dumps(self.data))
        folder = None if self.out is None else Path(self.out)
        return Trials(data, out=folder, progress=progress, **self.settings)

    def run(self, progress: Report | None = None) -> Answer:
        with nullcontext() if self.out is None else lock(Path(self.out), "fondue"):
            trials = self.trials(progress)
            if self.latents is not None:
                return _search_beta(trials, self.latents, self.steps)
            return _search_latents(
                trials, self.kind, self.start, self.limit, self.steps, stable=self.stable
            )


def run_search(search: Search) -> Answer:
    """What a worker does."""
    return search.run()


def _sendable(search: Search) -> Search:
    """The search with absolute paths, and the recipe of its data, if there is one."""
    data = search.data
    assert isinstance(data, Dataset)
    if search.out is not None:
        search = replace(search, out=str(Path(search.out).absolute()))
    if data.recipe is None or data.scaling is not None:
        return search
    how = {
        "recipe": data.recipe,
        "root": data.provenance.get("root"),
        "samples": len(data),
        "contents": contents_of(data),
    }
    try:
        json.dumps(how)
    except TypeError:  # an option that is an object
        return search
    return replace(search, data=how)


@lru_cache(maxsize=1)
def _load(text: str) -> Dataset:
    """The data of a search, which must be what they were when the search was started."""
    how = json.loads(text)
    data = datasets.from_recipe(how["recipe"], root=how["root"])
    if len(data) != how["samples"] or contents_of(data) != how["contents"]:
        raise DataError(
            f"fondue: {how['recipe']['name']} as a worker loads it has {len(data):,} observations, "
            f"and not the same {how['samples']:,} as where the search was started. Did the file "
            "change, or is it another one on that machine? Give all machines the same files."
        )
    return data


def _search_latents(
    trials: Trials, search: str, start: float | None, limit: int, steps: int, *, stable: bool
) -> Fondue | StableFondue:
    begin = trials.intrinsic_dimension() if start is None else start
    trace = trials.criterion == "trace"

    def run_search(steps: int) -> Fondue:
        def evaluate(n: int) -> tuple[float, Use]:
            return trials.measure(n, steps=steps)

        if trials.criterion == "types":
            result = fondue_types(lambda n: evaluate(n)[1], start=begin, limit=limit)
        elif search == "binary":
            high = min(limit + 1, 200)  # which is never tried itself
            result = binary_fondue(evaluate, high=high, threshold=trials.threshold, trace=trace)
        else:
            result = search_latents(
                evaluate, start=begin, threshold=trials.threshold, limit=limit, trace=trace
            )
        result = add_trials(result, fondue_trials(trials.known(steps)))
        return replace(result, flags=list(trials.flags))

    return stable_fondue(run_search, steps=steps) if stable else run_search(steps)


def _search_beta(trials: Trials, latents: int, steps: int) -> BetaFondue:
    result = fondue_beta(
        lambda beta: trials.measure(latents, steps=steps, beta=beta), threshold=trials.threshold
    )
    return replace(result, flags=list(trials.flags))


def _one_after_the_other(
    searches: Sequence[Search], pace: "Pace", progress: Report | None
) -> dict[int, Answer]:
    def report(trial: Progress) -> None:
        if trial.value is not None:
            pace.note(trial)
        if progress is not None:
            progress(trial._replace(left=pace.left()))

    answers = {}
    for search in searches:
        answers[search.seed] = search.run(report)
        pace.finish(search.seed)
    return answers


def _at_once(
    searches: Sequence[Search], executor: Executor, watch: "_Watch", out: str | Path | None
) -> dict[int, Answer]:
    def done(index: int, outcome: Outcome) -> None:
        watch.pace.finish(searches[index].seed)
        watch.tick()

    tasks = [_sendable(search) for search in searches]
    try:
        outcomes = run_all(executor, run_search, tasks, done=done, tick=watch.tick)
    except KeyboardInterrupt as interrupt:
        saved = f" Everything is saved in {out}: run the same command again to continue."
        raise type(interrupt)(f"fondue: stopped.{saved if out else ''}") from None
    answers = {
        search.seed: outcome.result for search, outcome in zip(searches, outcomes, strict=True)
    }
    failed = [seed for seed, outcome in zip(answers, outcomes, strict=True) if outcome.error]
    if failed:
        reason = next(outcome.error for outcome in outcomes if outcome.error)
        rest = len(searches) - len(failed)
        saved = f" The {rest} that ended well are saved in {out}." if rest and out else ""
        raise RunError(
            f"fondue: {len(failed)} of {len(searches)} searches failed; the one with seed "
            f"{failed[0]}: {reason}{saved}"
        )
    return answers


class Pace:
    """Estimates how long all searches still take.

    From the time for each step so far, and the trials that are to come: as many as the searches
    that have ended had on average, or about five.
    """

    def __init__(
        self, searches: Sequence[Search], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._begun = clock, clock()
        self._unfinished = {search.seed for search in searches}
        self._trials: Counter[int] = Counter()  # by seed
        self._steps = searches[0].steps  # of a trial
        self.trained = 0  # steps

    def note(self, trial: Progress) -> None:
        """Count a trial that is done."""
        self._trials[trial.seed] += 1
        if not trial.remembered:
            self._steps = trial.steps
            self.trained += trial.steps

    def finish(self, seed: int) -> None:
        self._unfinished.discard(seed)

    def left(self, under_way: int = 0) -> float | None:
        """Seconds; `under_way` steps were trained for trials that are not done yet."""
        if not self.trained + under_way:
            return None
        ended = [count for seed, count in self._trials.items() if seed not in self._unfinished]
        expected = sum(ended) / len(ended) if ended else USUAL
        trials = sum(max(expected - self._trials[seed], 1) for seed in self._unfinished)
        seconds = (self._clock() - self._begun) / (self.trained + under_way)
        return max(seconds * (trials * self._steps - under_way), 0.0)


class _Watch:
    """Reports the trials of searches that run in other processes, from what they save."""

    def __init__(self, searches: Sequence[Search], pace: Pace, progress: Report | None) -> None:
        self.searches, self.pace, self.progress = searches, pace, progress
        self._seen: dict[int, set[str]] = {search.seed: set() for search in searches}
        self._stamps: dict[int, Any] = {}
        # The steps of runs that were begun earlier.
        self._trained = {run: step_of(run) for search in searches for run in self._runs(search)}
        for search in searches:
            trials = search.trials()
            self.threshold = trials.threshold
            self._report(search, trials.measured, remembered=True)

    def tick(self) -> None:
        for search in self.searches:
            if search.out is None:
                continue
            file = Path(search.out) / "trials.json"
            with suppress(OSError, ZscopeError):  # looked at again after half a second
                stamp = file.stat().st_mtime_ns, file.stat().st_size
                if self._stamps.get(search.seed) != stamp:
                    self._report(search, read_trials(file)[2], remembered=False)
                    self._stamps[search.seed] = stamp

    def _report(
        self, search: Search, measured: Mapping[str, tuple[float, Use]], *, remembered: bool
    ) -> None:
        for key, result in measured.items():
            latents, beta, steps = size_of(key)
            if key in self._seen[search.seed] or (steps != search.steps and not search.stable):
                continue
            self._seen[search.seed].add(key)
            trial = Progress(search.seed, latents, beta, steps, *result, self.threshold, remembered)
            self.pace.note(trial)
            if self.progress is not None:
                self.progress(trial._replace(left=self.pace.left(self._under_way())))

    def _under_way(self) -> int:
        """Steps that were trained for trials that are not done yet."""
        total = 0
        for search in self.searches:
            for run in self._runs(search):
                total += max(0, step_of(run) - self._trained.get(run, 0))
        return max(0, total - self.pace.trained)

    @staticmethod
    def _runs(search: Search) -> list[Path]:
        return [] if search.out is None else sorted(Path(search.out).glob("latents-*"))
