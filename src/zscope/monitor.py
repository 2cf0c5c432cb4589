"""The latents during training: a few cheap measurements for any training loop.

    monitor = zs.Monitor(autoencoder, x_validation, every=1000)
    for step, batch in enumerate(batches):
        ...
        values = monitor(step)  # {} except at every 1,000th step
    monitor.plot()

`regime` takes the posterior variances of a batch; `zs.train` writes it into every row of the
history.
"""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from zscope.assays.reconstructions import COMPARED, reconstruct
from zscope.assays.regime.divergence import Divergence
from zscope.assays.regime.types import VariableTypes, variable_types
from zscope.assays.responses.holes import HoleScore
from zscope.assays.responses.matrix import ResponseMatrix
from zscope.assays.run import Measurements, isolate, measure
from zscope.data.dataset import as_dataset
from zscope.errors import ConfigError, Undefined, ZscopeError
from zscope.loading import load
from zscope.recording import Recording, most_pictures, record
from zscope.results import counted, frame_of, html_table, text_table
from zscope.types import Codes
from zscope.usage import PASSES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Monitor", "regime"]

ASSAYS = ("variable-types", "latent-divergence", "response-matrix", "holes")
FEW = 8
"""Observations that are encoded beforehand, to see what the model is like."""
RESPONSES = 64
"""Base samples of the responses, or fewer where there are many latents."""
MOST = 1024
"""Interventions, the base samples times the latents; with at least `FEW` samples."""
MANY_LATENTS = 512
"""With as many latents, even few interventions on each cost too much to ask for by default."""


def regime(variances: Codes) -> dict[str, Any]:
    """Counts of latents by type, and the sum of their mean variances, over one batch.

    Of latents that are maps, `zs.train` gives the places as rows and the channels as columns.
    """
    return counts(variable_types(variances))


def counts(types: VariableTypes) -> dict[str, Any]:
    """How many latents are of each type, and the sum of their mean variances.

    `variance` is FONDUE's criterion (Bonheme 2023, section 8.1): near 0 when every latent
    is active, near the number of latents when all are passive.
    """
    return {
        "active": len(types.active),
        "mixed": len(types.mixed),
        "passive": len(types.passive),
        "variance": float(types.mean_variance.sum()),
    }


class Monitor:
    """The latents of a model while any loop trains it, as a flat dict of floats.

    `autoencoder` is whatever `zs.load` accepts, with the weights that are being trained; `data`
    is an array, a tensor or a Dataset, best of observations that are not trained on. Call it
    with the number of the step (without one it counts its calls): at every `every`th step, the
    first among them, it measures, keeps the values in `history` and returns them; otherwise it
    returns {}. `measure()` measures now, whatever the step.

        latents/active, latents/mixed, latents/passive     how many are of each type
        latents/variance    the sum of their mean posterior variances (near 0: all are active)
        latents/causal      how many are causal, by the response matrix
        latents/used        how many are in use
        kl/total, kl/0, …   nats, summed over all latents (the rate) and of each
        response/0, …       of each latent to a change of itself: 1 is fully preserved, 0 is lost
        explained_variance  the share of the data's variance that reconstructions explain
        hole_share          the share of prior samples in holes: about 0.01 if there are none

    Of latents that are maps these are numbers of channels. What a model has no answer for is left
    out, and `missing` says why: deterministic models have neither types nor KL, conditional ones
    neither responses nor holes, and no hole share can be given while all latents are collapsed.

    The numbers are those of `zs.assay` for the same data, seed and samples: `samples`
    observations are encoded, with as many draws for the hole share (of maps, as many as the
    assay takes), and `responses` base samples for the response matrix (by default 64, fewer
    with more than 16 latents: about 1,000 interventions in all, but at least 8 base samples; with
    512 latents or more none unless asked for). So a hole share is coarse, in steps of 1/512.

    `passes` is what a measurement costs: how often an observation is encoded and decoded, 2,000
    times for 10 latents. With the defaults that is below 2 % of the time of a default training
    loop (1,000 steps of 64 observations, forward and backward); benchmarks/monitoring.py measures
    it. Evaluation mode is set and reset; gradients, statistics of batch norm and the state of
    random numbers, global ones too, stay as they are. An encoder that is a function whose module
    cannot be seen, a lambda for instance, has to set evaluation mode itself.
    """

    def __init__(
        self,
        autoencoder: Any,
        data: Any,
        *,
        every: int = 1000,
        samples: int = 512,
        responses: int | None = None,
        seed: int = 0,
    ) -> None:
        for name, value in (("every", every), ("samples", samples), ("responses", responses)):
            if name == "responses" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(
                    f"Monitor: {name}={value!r}; expected a whole number of at least 1. Leave it "
                    "out for the default."
                )
        self.every, self.samples, self.responses, self.seed = every, samples, responses, seed
        with preserve_random_state():
            self.autoencoder, self.data = load(autoencoder), as_dataset(data)
            few = self._record(FEW)  # raises here, not hours later, if model and data do not fit
        self._options = self._choose_options(few)
        self.passes = self._count_passes(few)
        self.history: list[dict[str, float]] = []
        self.missing: dict[str, str] = {}
        self._calls = 0

    def __call__(self, step: int | None = None) -> dict[str, float]:
        """The values if it is their turn, else {}; kept in `history` with their step."""
        step = self._calls if step is None else int(step)
        self._calls += 1
        if step % self.every:
            return {}
        values = self.measure()
        self.history.append({"step": step, **values})
        return values

    def measure(self) -> dict[str, float]:
        """The values for the model in its present state; `missing` says what has none, and why."""
        with preserve_random_state():
            recording = self._record(self.samples)
            asked = [name for name in ASSAYS if name in self._options]
            outcome = measure(
                recording, asked, options={k: v for k, v in self._options.items() if v}
            )
            values = read(outcome)
            with isolate("latents in use", outcome.failed), suppress(Undefined):
                values["latents/used"] = float(len(recording.used))
            explained = self._explain(recording, outcome)
        self.missing = {**outcome.missing, **{k: v.message for k, v in outcome.failed.items()}}
        if "response-matrix" not in self._options:
            self.missing["response-matrix"] = (
                f"{recording.latents} latents would take at least {FEW * recording.latents:,} "
                "passes; ask for them with responses=8."
            )
        values |= {} if explained is None else {"explained_variance": explained}
        return dict(sorted(values.items(), key=lambda each: not each[0].startswith("latents/")))

    def to_frame(self) -> "pd.DataFrame":
        """The history as a pandas DataFrame, a row for each measurement."""
        return frame_of(self.history, self._columns())

    def plot(self) -> Any:
        """The history as curves: types, KL, responses, explained variance and hole share."""
        from zscope.plots import training_curves

        return training_curves(self.history)

    def __repr__(self) -> str:
        lines = text_table(self._last(), left=2)
        return self._title() + (f"\n{lines}" if lines else "")

    def _repr_html_(self) -> str:
        return f"<div><strong>{escape(self._title())}</strong>{html_table(self._last())}</div>"

    def _title(self) -> str:
        often = "every step" if self.every == 1 else f"every {self.every:,} steps"
        measured = counted(len(self.history), "measurement")
        return (
            f"Monitor of {self.autoencoder.title}: {often}, {self.passes:,} passes each, {measured}"
        )

    def _last(self) -> list[list[str]]:
        """The last values as a table; those of single latents in one row."""
        if not self.history:
            return []
        rows = [["", f"step {self.history[-1]['step']:,}"]]
        groups: dict[str, list[str]] = {}
        for name, value in self.history[-1].items():
            group, _, unit = name.partition("/")
            if unit.isdigit():
                groups.setdefault(group, []).append(f"{value:.2f}")
            elif name != "step":
                rows.append([name, f"{value:.4g}"])
        return rows + [
            [f"{group} of each", " ".join(texts[:16]) + (" …" if len(texts) > 16 else "")]
            for group, texts in groups.items()
        ]

    def _columns(self) -> list[str]:
        return list(dict.fromkeys(["step", *(name for row in self.history for name in row)]))

    def _record(self, samples: int) -> Recording:
        return record(self.autoencoder, self.data, samples=samples, seed=self.seed)

    def _choose_options(self, recording: Recording) -> dict[str, dict[str, Any]]:
        """The options of each assay, {} for the defaults; no entry for what is not measured."""
        chosen: dict[str, dict[str, Any]] = {name: {} for name in ASSAYS}
        chosen["holes"] = {"unlike_data": False}
        if recording.layout is None:
            chosen["holes"]["samples"] = self.samples
        if self.responses is not None:
            chosen["response-matrix"] = {"samples": self.responses}
        elif recording.layout is None and recording.latents < MANY_LATENTS:
            number = max(FEW, min(RESPONSES, MOST // recording.latents))
            chosen["response-matrix"] = {"samples": number}
        elif recording.layout is None:
            del chosen["response-matrix"]
        return chosen

    def _count_passes(self, few: Recording) -> int:
        """How many observations are encoded and decoded; each of the two is half a pass."""
        model, layout = few.autoencoder, few.layout
        count = min(self.samples, len(self.data))
        if not model.decodes:
            return math.ceil(count / 2)
        if layout is None:
            units, base, drawn = few.latents, count, self.samples
            again = min(count, COMPARED) / 2  # decoded, to compare with the observations
        else:
            units, base, again = layout.channels, min(count, most_pictures(layout)), 0
            drawn = base
        passes = count / 2 + again
        if model.needs_auxiliary:
            return math.ceil(passes if layout is None else count)
        passes += base + drawn  # of the hole share; the responses start from the same codes
        if "response-matrix" in self._options:
            passes += units * min(base, self._options["response-matrix"].get("samples", base))
        if few.posterior.deterministic:  # which latents are in use
            passes += min(base, PASSES // units, 64) * (units + 2) / 2
        return math.ceil(passes)

    def _explain(self, recording: Recording, outcome: Measurements) -> float | None:
        model = recording.model
        if model is None or not model.decodes:
            return None
        with isolate("explained variance", outcome.failed):
            try:
                return reconstruct(recording).explained
            except ZscopeError as error:
                outcome.missing["explained variance"] = str(error)
        return None


def read(outcome: Measurements) -> dict[str, float]:
    """The results as flat numbers; no name is the folder of another, as some trackers need."""
    values: dict[str, float] = {}
    for result in outcome.results.values():
        if isinstance(result, VariableTypes):
            named = counts(result)
            values |= {f"latents/{name}": float(number) for name, number in named.items()}
        if isinstance(result, Divergence):
            values["kl/total"] = float(result.rate)
            values |= number_each("kl", result.per_latent)
        if isinstance(result, ResponseMatrix):
            values["latents/causal"] = float(len(result.causal))
            values |= number_each("response", result.relative.diagonal())
        if isinstance(result, HoleScore):
            values["hole_share"] = float(result.score)
    return values


def number_each(name: str, numbers: Tensor) -> dict[str, float]:
    """A number for each latent, by its name: response/3."""
    return {f"{name}/{unit}": value for unit, value in enumerate(numbers.tolist())}


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Whatever a model draws within this block, global random states are the same after it."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)
