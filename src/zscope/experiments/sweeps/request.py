"""What a sweep measures of every run: the part [assay] of a plan.

    [assay]
    names = ["variable-types", "mig"]
    samples = 5000

Assays that apply to no run, and values that an option does not take, are found out on untrained
models, before everything is trained.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from zscope.assays import CATALOGUE
from zscope.assays.choosing import assay_name, choose
from zscope.assays.parts import unmet
from zscope.assays.run import measure, refuse_unused, requests
from zscope.errors import ConfigError, ZscopeError, did_you_mean
from zscope.loading import load_options
from zscope.recording import SAMPLES, Recording
from zscope.sampling import whole

__all__ = ["Measured", "read_request"]

FEW, TRIAL = 8, 256
"""Observations that show whether an assay applies, and on which its options are tried."""

Recordings = Callable[[int], Iterator[Recording]]


@dataclass(frozen=True)
class Measured:
    """What is measured of every run."""

    names: list[str]
    samples: int = SAMPLES
    seed: int = 0
    resamples: int = 0
    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def loaded(self) -> dict[str, dict[str, Any]]:
        """The options with the models that "@RUN" names: a classifier that extracts features."""
        return load_options(self.options)

    @cached_property
    def requests(self) -> dict[str, dict[str, Any]]:
        return requests(
            self.names,
            options=self.loaded,
            resamples=self.resamples,
            samples=self.samples,
            seed=self.seed,
        )


def read_request(name: str, table: Any, recordings: Recordings) -> Measured | None:
    """What the part [assay] of the plan called `name` asks for; refuses what no run could answer.

    `recordings` gives what an untrained model of each shape makes of so many observations.
    """
    if table is None:
        return None
    known = ("names", "samples", "seed", "resamples", "options")
    if not isinstance(table, dict) or not set(table) <= set(known):
        wrong = table if not isinstance(table, dict) else min(set(table) - set(known))
        hint = did_you_mean(str(wrong), known)
        raise ConfigError(f"{name}: [assay] has {wrong!r:.60}. {hint}")
    try:
        numbers = {k: table[k] for k in ("samples", "seed", "resamples") if k in table}
        whole("assay", **numbers)
        if table.get("samples", 1) < 1 or table.get("resamples", 0) == 1:
            raise ConfigError(
                f"samples={table.get('samples')}, resamples={table.get('resamples')}; expected at "
                "least one sample, and two or more resamples (0: no intervals)."
            )
        chosen = [entry.name for entry in choose(table.get("names"))]
        options = table.get("options", {})
        measured = Measured(chosen, options=options, **numbers)
        refuse_unused(options, chosen)
        missing = [each for each in chosen if each not in measured.requests]
        _refuse_unmeasurable(measured, table.get("names"), recordings)
        _try_options(measured, recordings)
    except ZscopeError as error:
        raise ConfigError(f"{name}: [assay] {error}") from None
    if missing:
        raise ConfigError(
            f"{name}: [assay] the options of {missing[0]} cannot be written down, so its results "
            "could not be kept. Use numbers and words."
        )
    return measured


def _refuse_unmeasurable(measured: Measured, names: Any, recordings: Recordings) -> None:
    """Refuse assays that apply to no run of the plan, before all of them are trained."""
    named = [names] if isinstance(names, str) else list(names or ())
    single = {assay_name(name) for name in named} & set(CATALOGUE)
    reasons: dict[str, str] = {}
    left = set(measured.names)
    for recording in recordings(FEW):
        now = {name: unmet(CATALOGUE[name], recording) for name in measured.names if name in left}
        reasons |= {name: reason for name, reason in now.items() if reason is not None}
        left = {name for name, reason in now.items() if reason is not None}
        if not left:
            return
    all_of_them = left == set(measured.names)
    for name in measured.names:
        if name in left and (name in single or all_of_them):
            raise ConfigError(
                f"{name} cannot be measured of any run: {reasons[name]}, or leave it out."
            )


def _try_options(measured: Measured, recordings: Recordings) -> None:
    """Refuse values of options that an assay does not take, on an untrained model."""
    for name, values in measured.loaded.items():
        names = [entry.name for entry in choose([name]) if entry.name in measured.names]
        for samples in (TRIAL, measured.samples):  # a value may need more samples than a trial has
            try:
                measure(next(recordings(samples)), names, options={name: values})
            except ConfigError:
                if samples == measured.samples or measured.samples <= TRIAL:
                    raise
            else:
                break
