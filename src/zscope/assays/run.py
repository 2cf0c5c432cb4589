"""The runner: everything that measures calls `measure`.

It decides for `zs.assay`, `zscope assay`, `report`, `score`, `demo`, the explorer, sweeps and
studies which assays apply, with which options, samples, seeds and intervals, and what happens
when one fails. For an assay that does not apply, or has no answer, the reason is recorded; for
one that raises any other exception, the traceback. The other assays continue.
"""

import functools
import hashlib
import inspect
import re
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from zscope import __version__
from zscope.assays import CATALOGUE
from zscope.assays.arguments import (
    check_option_names,
    check_option_value,
    defaults_for,
    option_names,
    options_of,
    options_text,
    sizes_of,
)
from zscope.assays.choosing import choose
from zscope.assays.entry import Entry
from zscope.assays.parts import is_default, shared_key, unmet
from zscope.assays.views import column_variances
from zscope.errors import ConfigError, Stopped, ZscopeError
from zscope.recording import SAMPLES, Recording
from zscope.results import Result, listed
from zscope.sampling import whole

__all__ = [
    "Failure", "Measurements", "Progress", "choose", "compare", "costs", "isolate", "measure",
    "passes", "requests", "source_hash", "stamp",
]  # fmt: skip

Options = Mapping[str, Mapping[str, Any]]


class Progress(NamedTuple):
    """What the progress callback gets before each assay."""

    name: str
    done: int
    total: int
    left: float | None  # seconds; None before the first assay is done


class Failure(NamedTuple):
    """An exception that no assay should raise."""

    message: str
    traceback: str
    error: Exception


@runtime_checkable
class Kept(Protocol):
    """Results of earlier measurements."""

    def get(self, name: str, key: dict[str, Any]) -> Result | None: ...
    def put(self, name: str, key: dict[str, Any], result: Result) -> None: ...
    def note(
        self,
        outcomes: Mapping[str, Result | str],
        requests: Mapping[str, dict[str, Any]],
        *,
        samples: int,
        used: int | None,
        stamp: Mapping[str, str],
    ) -> None: ...


@dataclass(frozen=True, eq=False)
class Measurements:
    """What was measured of a recording, what was not and why, and what failed."""

    results: dict[str, Result] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # the reason why there is no result
    failed: dict[str, Failure] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # where fewer samples were used, and why
    warnings: list[str] = field(default_factory=list)


def lower_is_better(who: str, score: str) -> bool:
    """Whether models with a low score (ASSAY or ASSAY.MEASURE) are the better ones.

    ConfigError for a score of which neither a high nor a low value is known to be better.
    """
    name = score.partition(".")[0]
    better = CATALOGUE[name].better if name in CATALOGUE else ""
    if not better:
        known = [each.name for each in CATALOGUE.values() if each.better and not each.compares]
        raise ConfigError(
            f"{who}: models cannot be ranked by {score}, of which neither high nor low values are "
            f"known to be better. Choose from {', '.join(known)}."
        )
    return better == "lower"


def check_options(options: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Options by assay; ConfigError for an assay or an option that does not exist.

    Options of a group go to all its assays that have them and can take the value.
    """
    checked: dict[str, dict[str, Any]] = {}
    if not isinstance(options, Mapping | None):
        raise ConfigError(
            f"options: got a {type(options).__name__}; expected options by assay, for instance "
            "options={'response-map': {'dims': (3, 5)}}."
        )
    for name, values in (options or {}).items():
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"options: {name}={values!r}; expected the options of an assay, for instance "
                "options={'response-map': {'dims': (3, 5)}}."
            )
        entries = choose([name])
        if "generator" in values:
            raise ConfigError(
                f"options: {name}.generator cannot be set: random numbers follow from the seed and "
                "the name of the assay. Choose the seed instead."
            )
        for option, value in values.items():
            matching = [each for each in entries if option in option_names(each)]
            if not matching:
                check_option_names(entries[0], [option])
            for entry, converted in _takers(matching, option, value):
                checked.setdefault(entry.name, {})[option] = converted
    return checked


def refuse_unused(options: Mapping[str, Any], names: Collection[str]) -> None:
    """ConfigError for the options of an assay or group of which nothing is measured."""
    for name in options:
        if not {entry.name for entry in choose([name])} & set(names):
            raise ConfigError(
                f"options: {name} has options, but is not measured; measured: {listed(names, 6)}. "
                f"Add {name} to the assays, or leave its options out."
            )


def _takers(entries: list[Entry], option: str, value: Any) -> list[tuple[Entry, Any]]:
    """The assays that can take the value, with the value as they take it; at least one."""
    accepted, refusals = [], []
    for entry in entries:
        try:
            accepted.append((entry, check_option_value(entry, option, value)))
        except ConfigError as error:
            refusals.append(error)
    if not accepted:
        raise refusals[0]
    return accepted


def passes(entry: Entry, recording: Recording, options: Mapping[str, Any]) -> int:
    """How many passes of the model an assay will take, as its entry states."""
    return costs([entry], recording, {entry.name: options})[0]


def costs(entries: Iterable[Entry], recording: Recording, options: Options) -> list[int]:
    """How many passes of the model each assay will take, run in this order.

    A result that several assays use is counted where it is computed.
    """
    known: set[str] = set()  # assays that have a result with default options by then
    counts = []
    for entry in entries:
        own = options.get(entry.name, {})
        count = 0
        for name in entry.used_assays(own):
            used = CATALOGUE[name]
            if name not in known and not shared_key(name, recording) and not unmet(used, recording):
                count += _passes(used, recording, {})
                known.add(name)
        text = options_text(own)
        if text != "[]" or entry.name not in known:  # otherwise the result is there already
            count += _passes(entry, recording, own)
        known |= {entry.name} if is_default(text) else set()
        counts.append(count)
    return counts


def _passes(entry: Entry, recording: Recording, options: Mapping[str, Any]) -> int:
    """The passes of an assay itself; 0 for invalid options, which the assay will refuse."""
    sizes = _sizes(entry, recording, options)
    try:
        if entry.is_limited(options):
            sizes[entry.scales] = entry.affordable(sizes)
            return entry.cost(sizes) if sizes[entry.scales] else 0
        return entry.cost(sizes)
    except (TypeError, ValueError, NameError):
        return 0


def measure(
    recording: Recording,
    names: Iterable[str] | str | None = None,
    *,
    options: Options | None = None,
    resamples: int = 0,
    progress: Callable[[Progress], None] | None = None,
    kept: Kept | None = None,
) -> Measurements:
    """The named assays of a recording, or all that apply.

    `options` are by assay: {"response-map": {"dims": (3, 5)}}. Scores that can have an interval
    get one from `resamples` resamples. `kept` holds results of earlier measurements, which are
    reused if nothing they depend on has changed.
    """
    whole("assay", resamples=resamples)
    if resamples < 0 or resamples == 1:
        raise ConfigError(
            f"assay: resamples={resamples} gives no interval; at least 2 are needed, 200 give "
            "stable intervals. Leave it at 0 for none."
        )
    chosen, checked = choose(names), check_options(options)
    refuse_unused(options or {}, [entry.name for entry in chosen])
    outcome = Measurements()
    for entry in chosen:
        if reason := unmet(entry, recording):
            outcome.missing[entry.name] = f"Not applicable: {reason}."
        elif names is None and recording.layout is not None and entry.maps_on_request:
            outcome.missing[entry.name] = (
                "For latents that are maps, it runs only if it is named: "
                f"zscope assay TARGET {entry.name}"
            )
    entries = [entry for entry in chosen if entry.name not in outcome.missing]
    options_by_assay = {entry.name: _options(entry, checked, resamples) for entry in entries}
    watch = _Clock(costs(entries, recording, options_by_assay))
    for done, entry in enumerate(entries):
        if progress is not None:
            progress(Progress(entry.name, done, len(entries), watch.left()))
        _run(entry, recording, options_by_assay[entry.name], kept, outcome)
        watch.tick()
    if kept is not None:
        asked = len(recording) if recording.asked is None else recording.asked
        asked_for = _requests(chosen, checked, resamples, asked, recording.seed)
        outcomes: dict[str, Result | str] = {**outcome.missing, **outcome.results}
        outcomes = {name: each for name, each in outcomes.items() if name in asked_for}
        used = None
        with isolate("latents in use", {}):
            used = len(recording.used)
        with _warn_not_kept(outcome):
            kept.note(outcomes, asked_for, samples=len(recording), used=used, stamp=stamp())
    return outcome


def requests(
    names: Iterable[str] | str | None,
    *,
    options: Options | None = None,
    resamples: int = 0,
    samples: int = SAMPLES,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """What `measure` is asked of each assay, for a recording of so many samples with this seed.

    Stored scores of the same requests need not be measured again.
    """
    return _requests(choose(names), check_options(options), resamples, samples, seed)


def _requests(
    entries: Iterable[Entry], checked: Options, resamples: int, asked: int, seed: int
) -> dict[str, dict[str, Any]]:
    texts = {e.name: options_text(_options(e, checked, resamples)) for e in entries}
    return {
        name: {"assay": name, "options": text, "asked": asked, "seed": seed}
        for name, text in texts.items()
        if text is not None
    }


def stamp() -> dict[str, str]:
    """The version and the source of zscope that results come from."""
    return {"zscope": __version__, "source": source_hash()}


def compare(
    recordings: Sequence[Recording],
    names: Iterable[str] | None = None,
    *,
    options: Options | None = None,
    **known: Any,
) -> Measurements:
    """The named assays that compare codes, or all, of recordings of the same observations.

    Of more than two recordings, name assays that take any number. `known` are options that go
    to every assay that has them.
    """
    outcome, checked = Measurements(), check_options(options)
    chosen = CATALOGUE.values() if names is None else choose(names)
    entries = [each for each in chosen if each.compares and "codes" in each.takes]
    refuse_unused(options or {}, [entry.name for entry in entries])
    spread = not any(each.posterior.deterministic for each in recordings)
    for entry in entries:
        # In the units of the codes, not in those of a prior that depends on the factors.
        variances = [column_variances(entry, each) for each in recordings] if spread else None
        values = {**known, "variances": variances}
        values = {name: value for name, value in values.items() if name in option_names(entry)}
        values |= checked.get(entry.name, {})
        # Of two representations, or of a list of any number of them.
        arrays = list(recordings) if len(entry.takes) > 1 else [list(recordings)]
        with _collect(entry, outcome, values):
            outcome.results[entry.name] = entry.load()(*arrays, **values)
    return outcome


def _run(
    entry: Entry,
    recording: Recording,
    options: dict[str, Any],
    kept: Kept | None,
    outcome: Measurements,
) -> None:
    """Run one assay and store its result, its reason for having none, or its failure."""
    with _collect(entry, outcome, options):
        text = options_text(options)
        key = None if kept is None or text is None else _key(recording, text)
        result = None if kept is None or key is None else kept.get(entry.name, key)
        if result is not None:  # other assays of this recording may need it
            result = recording.share((entry.name, text), lambda: result)
        else:
            result = entry.load()(recording, **options)
            if kept is not None and key is not None:
                _keep(kept, entry.name, key, result, outcome)
        outcome.results[entry.name] = result
        if note := _note(entry, recording, options, result):
            outcome.notes[entry.name] = note


@contextmanager
def _collect(entry: Entry, outcome: Measurements, options: Mapping[str, Any]) -> Iterator[None]:
    """Record why an assay has no answer, or its failure, so that the others go on.

    A refusal of options that the caller set is raised: the caller can correct them.
    """
    refusal = None
    with isolate(entry.name, outcome.failed):
        try:
            yield
        except Stopped:
            raise
        except ZscopeError as error:
            # Without the name of the function that raised it.
            text = re.sub(r"^[\w-]+: ", "", " ".join(str(error).split()))
            is_option = re.match(r"\w+=", text)
            outcome.missing[entry.name] = text if is_option else text[:1].upper() + text[1:]
            if isinstance(error, ConfigError) and set(options) - {"resamples"}:
                refusal = error
    if refusal is not None:
        raise refusal


@contextmanager
def isolate(name: str, failed: dict[str, Failure]) -> Iterator[None]:
    """Record an unexpected exception in `failed`, so that everything else goes on.

    `name` is an assay, or another part of the report: a figure, a finding, the traversals.
    """
    try:
        yield
    except Stopped:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        failed[name] = Failure(
            f"Failed with {type(error).__name__}: {text}. This is a fault in zscope, or in the "
            "model it called: please report it with the traceback.",
            traceback.format_exc(),
            error,
        )


def _options(entry: Entry, checked: Options, resamples: int) -> dict[str, Any]:
    """The options an assay is called with."""
    options = dict(checked.get(entry.name, {}))
    has_option = "resamples" in inspect.signature(entry.load()).parameters
    if resamples and has_option and "resamples" not in options:
        options["resamples"] = resamples
    return options


def _sizes(entry: Entry, recording: Recording, options: Mapping[str, Any]) -> dict[str, Any]:
    signature = inspect.signature(entry.load())
    return {
        **options_of(signature),
        **defaults_for(entry, recording, signature),
        **options,
        **sizes_of(options, recording, entry),
    }


def _note(entry: Entry, recording: Recording, options: Mapping[str, Any], result: Result) -> str:
    """Why fewer samples than usual were used; nothing if as many as usual were, or all rows."""
    if not entry.is_limited(options):
        return ""
    sizes = _sizes(entry, recording, options)
    usual, count = int(sizes.get(entry.scales, 1)), entry.affordable(sizes)
    used = vars(result).get(entry.scales, count)
    if count == usual or (isinstance(used, int) and used < count):
        return ""
    return (
        f"{count:,} {entry.scales} instead of {usual:,}, to stay within {entry.most:,} passes of "
        f"a model with {recording.latents} latents. For more: --set {entry.name}.{entry.scales}="
        f"{usual}"
    )


def _keep(
    kept: Kept, name: str, key: dict[str, Any], result: Result, outcome: Measurements
) -> None:
    """Store a result; if that fails, it is still reported, with a warning."""
    with _warn_not_kept(outcome):
        kept.put(name, key, result)


@contextmanager
def _warn_not_kept(outcome: Measurements) -> Iterator[None]:
    """Warn, once, of results that could not be stored."""
    try:
        yield
    except (ZscopeError, OSError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        text = " ".join(str(getattr(cause, "strerror", None) or cause).split())
        if not outcome.warnings:
            outcome.warnings.append(
                f"The results were not kept with the run ({text}); the next time they are "
                "measured again."
            )


def _key(recording: Recording, options: str) -> dict[str, Any]:
    """Everything that a result depends on."""
    return {
        "options": options,
        "recording": recording.fingerprint,
        "seed": recording.seed,
        **stamp(),
    }


PRESENTATION = frozenset(
    {"cli", "collection", "experiments", "explorer", "plots", "report", "tables"}
)
"""Folders that no assay imports, so that nothing in them can change a result."""


@functools.cache
def source_hash(package: Path = Path(__file__).parents[1]) -> str:
    """A hash of every module of zscope that a result may depend on."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package)
        if place.parts[0] not in PRESENTATION:
            digest.update(place.as_posix().encode() + file.read_bytes())
    return digest.hexdigest()


class _Clock:
    """The time left, from the stated costs and the time taken so far."""

    def __init__(self, costs: list[int]) -> None:
        self._costs = costs
        self._done = 0
        self._seconds = {True: 0.0, False: 0.0}  # of assays that run the model, and of others
        self._last = time.perf_counter()

    def tick(self) -> None:
        now = time.perf_counter()
        self._seconds[self._costs[self._done] > 0] += now - self._last
        self._last = now
        self._done += 1

    def left(self) -> float | None:
        before, after = self._costs[: self._done], self._costs[self._done :]
        if not before:
            return None
        rate = self._seconds[True] / max(1, sum(before))
        each = self._seconds[False] / max(1, before.count(0))
        return rate * sum(after) + each * after.count(0)
