"""Trials of FONDUE: train a model of some size briefly, and measure the gap of its codes.

Finished trials are saved in a folder, in trials.json, and their runs beside it.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zscope import models, store
from zscope.assays.dimension.fondue import Use
from zscope.assays.dimension.gaps import (
    InformationGap,
    dimension_gap,
    information_gap,
    trace_gap,
)
from zscope.assays.dimension.intrinsic import intrinsic_dimension
from zscope.assays.regime.types import variable_types
from zscope.autoencoder import Autoencoder, evaluation
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError, RunError, Undefined, did_you_mean
from zscope.experiments.training import train
from zscope.files import sweep
from zscope.randomness import named_generator
from zscope.recording import SAMPLES, Recording, choose_rows, record
from zscope.sampling import whole
from zscope.seeds import named_seed
from zscope.training.checks import check_first_batch
from zscope.training.config import RATE
from zscope.training.loop import configure

__all__ = [
    "BANDWIDTHS", "GAPS", "THRESHOLDS", "Progress", "Trials", "check_criterion", "contents_of",
    "measure_gap", "read_trials", "size_of",
]  # fmt: skip

# criterion -> the threshold it is published with
THRESHOLDS = {"trace": 1.0, "sampled": 1.0, "dimension": 1.0, "information": -0.01, "types": 0.0}
# criterion -> what its gap is, for those who read the trials
GAPS = {
    "trace": "sum of the mean posterior variances, about 1 for each unused latent",
    "sampled": "variance of sampled codes minus that of the means, about 1 for each unused latent",
    "dimension": "intrinsic dimension of sampled codes minus that of the means",
    "information": "entropy of the codes minus the information of decoded observations, in bits",
    "types": "number of passive latents",
}
BANDWIDTHS = ("silverman", "median")
FEWEST = 10
"""Samples to measure a gap on."""
SATURATED = (
    "The kernel separates every two observations, so the information is at its ceiling whatever "
    "the decoder does, and the answer depends on the codes alone. Use bandwidth median, or the "
    "criterion trace."
)


class Progress(NamedTuple):
    """What `progress` is called with before (value None) and after each trial."""

    seed: int
    latents: int
    beta: float | None
    steps: int
    value: float | None
    use: Use | None
    threshold: float
    remembered: bool  # read from an earlier search, not trained
    left: float | None = None  # seconds until all searches are done; None if that is not known


def key_of(latents: int, beta: float | None, steps: int) -> str:
    """The name of a trial in trials.json."""
    size = f"{latents}" if beta is None else f"{latents} beta {beta:.6g}"
    return f"{size} steps {steps}"


def size_of(key: str) -> tuple[int, float | None, int]:
    """Latents, β and steps of a trial in trials.json."""
    words = key.split()
    return int(words[0]), float(words[2]) if "beta" in words else None, int(words[-1])


def contents_of(data: Dataset) -> str:
    """A hash of the first observations: arrays have no name of their own, and files change."""
    first = data.batch(slice(0, 64)).contiguous().numpy()
    return sha256(first.tobytes()).hexdigest()[:16]


def read_trials(file: Path) -> tuple[dict[str, Any], list[str], dict[str, tuple[float, Use]]]:
    """The settings, flags and finished trials of a search."""
    content = store.read_json(file)
    try:
        measured = {
            key: (float(row.pop("value")), Use(**row)) for key, row in content["trials"].items()
        }
        return dict(content["settings"]), list(content["flags"]), measured
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"fondue: {file} is not a list of trials ({type(error).__name__}: {error}). It was "
            "edited, or written by another program: restore it, or choose another --out."
        ) from error


def measure_gap(
    recording: Recording, criterion: str = "trace", bandwidth: str = BANDWIDTHS[0]
) -> tuple[float, Use, list[str]]:
    """The gap of a model by a criterion, how it uses its latents, and flags about the gap.

    Types, latents in use and KL are relative to the prior, as is the trace gap.
    """
    kl = float(recording.relative.kl().double().mean(0).sum())
    use = Use.of(variable_types(recording))._replace(used=len(recording.used), kl=kl)
    if criterion == "types":
        return float(use.passive), use, []
    if criterion == "dimension":
        return dimension_gap(recording).score, use, []
    if criterion == "information":
        gap = _information_gap(recording, bandwidth)
        return gap.score, use, [SATURATED] if gap.saturated else []
    return trace_gap(recording, sampled=criterion == "sampled").score, use, []


def _information_gap(recording: Recording, bandwidth: str) -> InformationGap:
    model = recording.autoencoder
    z = recording.posterior.sample(named_generator(recording.seed, "information-gap"))
    device, dtype = model.place
    with evaluation(model):
        parts = torch.split(z, 256)
        decoded = torch.cat([model.decode(part.to(device, dtype)).cpu() for part in parts])
    return information_gap(recording.observations, decoded, z, bandwidth=bandwidth)


def check_criterion(criterion: str, bandwidth: str | None) -> None:
    """Refuse an unknown criterion, and a bandwidth that it does not have."""
    if criterion not in THRESHOLDS:
        raise ConfigError(
            f"fondue: no criterion is called {criterion!r}. {did_you_mean(criterion, THRESHOLDS)}"
        )
    if bandwidth is not None and (criterion != "information" or bandwidth not in BANDWIDTHS):
        raise ConfigError(
            f"fondue: bandwidth={bandwidth!r} with the criterion {criterion}. Only the criterion "
            f"information has a kernel; its bandwidth is {' or '.join(BANDWIDTHS)}."
        )


class Trials:
    """Trains models of one kind on one dataset and measures them; saves results in a folder."""

    def __init__(
        self,
        data: Any,
        *,
        model: str = "vae",
        options: dict[str, Any] | None = None,
        criterion: str = "trace",
        threshold: float | None = None,
        bandwidth: str | None = None,
        batch: int = 64,
        rate: float = RATE,
        samples: int = SAMPLES,
        seed: int = 0,
        out: str | Path | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        check_criterion(criterion, bandwidth)
        reserved = sorted({"latents", "seed"} & set(options or {}))
        if reserved:
            raise ConfigError(
                f"fondue: the model option {reserved[0]} cannot be set here: the search decides "
                "the latents, and seed= (--seed) all random numbers. Leave it out."
            )
        models.refuse_arguments(options or {})
        self.data, self.held_out = as_dataset(data).split((0.9, 0.1), seed=seed)
        whole("fondue", FEWEST, samples=samples)  # fewer do not tell which latents are used
        self.data = self.data.in_units(self.data.units_for_training())
        self.model, self.options = model, dict(options or {})
        self.criterion = criterion
        self.threshold = THRESHOLDS[criterion] if threshold is None else threshold
        self.bandwidth = bandwidth or BANDWIDTHS[0]
        self.training: dict[str, Any] = {"batch": batch, "rate": rate}
        self.samples, self.seed, self.progress = samples, seed, progress
        self.out = None if out is None else Path(out)
        # The gap and the use of the latents, by size, β and steps.
        self.measured: dict[str, tuple[float, Use]] = {}
        self.flags: list[str] = []  # warnings needed to read the answer
        if models.entry(model).posterior == "point":
            raise ConfigError(
                f"fondue: {model} is deterministic, so its samples and means are the same and "
                "there is no gap. Search with --model vae: the size it finds suits autoencoders "
                "of the same architecture too."
            )
        self._restore()

    def measure(self, latents: int, *, steps: int, beta: float | None = None) -> tuple[float, Use]:
        """The gap of a model with so many latents, and how it uses them.

        The model is trained unless it was before.
        """
        key = key_of(latents, beta, steps)
        remembered = key in self.measured

        def report(value: float | None, use: Use | None) -> None:
            if self.progress is not None:
                size = (self.seed, latents, beta, steps)
                self.progress(Progress(*size, value, use, self.threshold, remembered))

        report(None, None)
        if not remembered:
            self.measured[key] = self._measure(self._train(latents, steps, beta))
            self._save()
        report(*self.measured[key])
        return self.measured[key]

    def known(self, steps: int) -> dict[int, tuple[float, Use]]:
        """By size, the trials so far that were trained for so many steps without a β of theirs."""
        sizes = {key: size_of(key) for key in self.measured}
        return {
            latents: self.measured[key]
            for key, (latents, beta, own) in sorted(sizes.items(), key=lambda each: each[1][0])
            if beta is None and own == steps
        }

    def try_training(self, latents: int, *, beta: float | None = None) -> None:
        """Refuse settings with which no model could be trained; nothing is written."""
        try:
            model = self._build(latents, self.seed, beta)
            batch, rate = self.training["batch"], self.training["rate"]
            config = configure(model, self.data, 1, None, batch, rate, self.seed, {}, None)
            check_first_batch(model, self.data, config, model.place[0])
        except ConfigError as error:
            raise ConfigError(f"fondue: {str(error).removeprefix('train: ')}") from None

    def intrinsic_dimension(self, samples: int = 5000) -> float:
        """The intrinsic dimension of the observations, where the search begins."""
        rows = choose_rows(len(self.data), samples, self.seed)
        x = self.data.batch(rows).flatten(1)
        try:
            return intrinsic_dimension(x).dimension
        except Undefined:
            return 10.0  # too few distinct observations for an estimate

    def _build(self, latents: int, seed: int, beta: float | None) -> models.Composed:
        options = self.options if beta is None else {**self.options, "beta": beta}
        return models.build_for(self.model, self.data, latents=latents, seed=seed, **options)

    def _train(self, latents: int, steps: int, beta: float | None) -> Autoencoder:
        # A different seed for each size, so that an unlucky draw is not repeated in all.
        seed = named_seed(self.seed, f"fondue, {latents} latents") % 2**31
        model = self._build(latents, seed, beta)
        folder = None
        if self.out is not None:
            name = f"latents-{latents:03d}-steps-{steps}"
            folder = self.out / (name if beta is None else f"{name}-beta-{beta:.6g}")
        try:
            run = train(
                model,
                self.data,
                steps=steps,
                seed=seed,
                out=folder,
                resume=folder is not None,
                progress=False,
                **self.training,
            )
        except KeyboardInterrupt as interrupt:
            # The message of the run says how to resume that one model, not the search.
            resume = f" Everything is saved in {self.out}: run the same command again to continue."
            raise type(interrupt)(
                f"fondue: stopped while training {latents} latents.{resume if self.out else ''}"
            ) from None
        assert run.model is not None
        return run.model

    def _record(self, model: Autoencoder) -> Recording:
        return record(model, self.held_out, samples=self.samples, seed=self.seed)

    def _measure(self, model: Autoencoder) -> tuple[float, Use]:
        gap, use, flags = measure_gap(self._record(model), self.criterion, self.bandwidth)
        self.flags += [flag for flag in flags if flag not in self.flags]
        return gap, use

    def _settings(self) -> dict[str, Any]:
        return {
            "data": self.data.recipe or self.data.name,
            "observations": len(self.data),
            "contents": contents_of(self.held_out),
            "model": self.model,
            "options": self.options,
            "criterion": self.criterion,
            "bandwidth": self.bandwidth,
            "seed": self.seed,
            "samples": self.samples,
            **self.training,
        }

    def _restore(self) -> None:
        """Read the trials of an earlier search with the same settings."""
        if self.out is None:
            return
        sweep(self.out)
        file = self.out / "trials.json"
        if not file.exists():
            return
        before, self.flags, self.measured = read_trials(file)
        now = json.loads(json.dumps(self._settings()))
        for key in now:
            if before.get(key) != now[key]:
                raise ConfigError(
                    f"fondue: {self.out} contains a search with {key}={before.get(key)!r}, now "
                    f"{key}={now[key]!r}. Leave the option out to continue that search, or choose "
                    "another --out."
                )

    def _save(self) -> None:
        if self.out is not None:
            content = {
                "settings": self._settings(),
                "trials": {
                    key: {"value": value, **use._asdict()}
                    for key, (value, use) in self.measured.items()
                },
                "flags": self.flags,
            }
            store.write_json(self.out / "trials.json", content)
