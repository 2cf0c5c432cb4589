"""FONDUE with training: how many latents do these data need?

Each size is tried with a fresh model, trained for a short while on nine tenths of the data;
the gap between its samples and its means is measured on the other tenth, with the types of its
latents and their KL. The search is repeated with several seeds, each in its own folder: trials
are saved in OUT/seed-S/trials.json and their runs in OUT/seed-S/latents-N-steps-N, so that a
search that was stopped continues where it was: finished trials are read, a partly trained model
resumes.

See `zscope.assays.dimension.fondue` for the search alone and its theory.
"""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zscope import models, store
from zscope.assays.dimension.fondue import (
    BetaFondue,
    Fondue,
    StableFondue,
    Use,
    binary_fondue,
    fondue_beta,
    fondue_types,
    stable_fondue,
)
from zscope.assays.dimension.fondue import fondue as search_latents
from zscope.assays.dimension.gaps import dimension_gap, information_gap, trace_gap
from zscope.assays.dimension.intrinsic import intrinsic_dimension
from zscope.assays.dimension.repeated_fondue import RepeatedFondue, repeat_fondue
from zscope.assays.regime.types import variable_types
from zscope.autoencoder import Autoencoder, evaluation
from zscope.data.dataset import as_dataset
from zscope.errors import ConfigError, RunError, Undefined, did_you_mean
from zscope.experiments.training import train
from zscope.files import lock, sweep
from zscope.randomness import named_generator, named_seed
from zscope.recording import SAMPLES, Recording, choose_rows, record
from zscope.sampling import whole
from zscope.training.config import RATE

__all__ = ["GAPS", "THRESHOLDS", "Progress", "Trials", "fondue"]

SEARCHES = ("fondue", "binary", "beta")
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
    progress: Callable[[Progress], None] | None = None,
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
    whole("fondue", 1, seeds=seeds)

    def search_with(seed: int) -> Fondue | StableFondue | BetaFondue:
        folder = None if out is None else Path(out) / f"seed-{seed}"
        with nullcontext() if folder is None else lock(folder, "fondue"):
            return search_in(folder, seed)

    def search_in(folder: Path | None, seed: int) -> Fondue | StableFondue | BetaFondue:
        trials = Trials(
            data,
            model=model or ("beta-vae" if search == "beta" else "vae"),
            options=options,
            criterion=criterion,
            threshold=threshold,
            bandwidth=bandwidth,
            batch=batch,
            rate=rate,
            samples=samples,
            seed=seed,
            out=folder,
            progress=progress,
        )
        if latents is not None:
            return _search_beta(trials, latents, steps)
        return _search_latents(trials, search, start, limit, steps, stable=stable)

    if criterion == "types" and (search == "binary" or threshold is not None):
        raise ConfigError(
            "fondue: the criterion types counts the latents that are not passive, so there is "
            "nothing to bisect and no threshold. Leave search and threshold out, or use the "
            "criterion trace."
        )
    return repeat_fondue(search_with, range(seed, seed + seeds))


def _search_latents(
    trials: "Trials", search: str, start: float | None, limit: int, steps: int, *, stable: bool
) -> Fondue | StableFondue:
    begin = trials.intrinsic_dimension() if start is None else start

    def run_search(steps: int) -> Fondue:
        def evaluate(n: int) -> tuple[float, Use]:
            return trials.measure(n, steps=steps)

        if trials.criterion == "types":
            result = fondue_types(lambda n: evaluate(n)[1], start=begin, limit=limit)
        elif search == "binary":
            high = min(limit + 1, 200)  # which is never tried itself
            result = binary_fondue(evaluate, high=high, threshold=trials.threshold)
        else:
            result = search_latents(evaluate, start=begin, threshold=trials.threshold, limit=limit)
        return replace(result, flags=list(trials.flags))

    return stable_fondue(run_search, steps=steps) if stable else run_search(steps)


def _search_beta(trials: "Trials", latents: int, steps: int) -> BetaFondue:
    if trials.criterion == "types" or "beta" in trials.options:
        raise ConfigError(
            "fondue: a search for β needs a gap that grows with β, which counts of types do not, "
            "and a β that is not fixed. Leave the criterion types and the option beta out."
        )
    result = fondue_beta(
        lambda beta: trials.measure(latents, steps=steps, beta=beta), threshold=trials.threshold
    )
    return replace(result, flags=list(trials.flags))


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
        if criterion not in THRESHOLDS:
            raise ConfigError(
                f"fondue: no criterion is called {criterion!r}. "
                f"{did_you_mean(criterion, THRESHOLDS)}"
            )
        if bandwidth is not None and (criterion != "information" or bandwidth not in BANDWIDTHS):
            raise ConfigError(
                f"fondue: bandwidth={bandwidth!r} with the criterion {criterion}. Only the "
                f"criterion information has a kernel; its bandwidth is {' or '.join(BANDWIDTHS)}."
            )
        reserved = sorted({"latents", "seed"} & set(options or {}))
        if reserved:
            raise ConfigError(
                f"fondue: the model option {reserved[0]} cannot be set here: the search decides "
                "the latents, and seed= (--seed) all random numbers. Leave it out."
            )
        self.data, self.held_out = as_dataset(data).split((0.9, 0.1), seed=seed)
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
        key = f"{latents}" if beta is None else f"{latents} beta {beta:.6g}"
        key = f"{key} steps {steps}"
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

    def intrinsic_dimension(self, samples: int = 5000) -> float:
        """The intrinsic dimension of the observations, where the search begins."""
        rows = choose_rows(len(self.data), samples, self.seed)
        x = self.data.batch(rows).flatten(1)
        try:
            return intrinsic_dimension(x).dimension
        except Undefined:
            return 10.0  # too few distinct observations for an estimate

    def _train(self, latents: int, steps: int, beta: float | None) -> Autoencoder:
        options = dict(self.options)
        if beta is not None:
            options["beta"] = beta
        # A different seed for each size, so that an unlucky draw is not repeated in all.
        seed = named_seed(self.seed, f"fondue, {latents} latents") % 2**31
        model = models.build_for(self.model, self.data, latents=latents, seed=seed, **options)
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
        recording = self._record(model)
        kl = float(recording.relative.kl().double().mean(0).sum())
        use = Use.of(variable_types(recording))._replace(used=len(recording.used), kl=kl)
        return self._gap(recording, use), use

    def _gap(self, recording: Recording, use: Use) -> float:
        if self.criterion == "types":
            return float(use.passive)
        if self.criterion == "dimension":
            return dimension_gap(recording).score
        if self.criterion == "information":
            return self._information_gap(recording)
        return trace_gap(recording, sampled=self.criterion == "sampled").score

    def _information_gap(self, recording: Recording) -> float:
        model = recording.autoencoder
        z = recording.posterior.sample(named_generator(self.seed, "information-gap"))
        device, dtype = model.place
        with evaluation(model):
            parts = torch.split(z, 256)
            decoded = torch.cat([model.decode(part.to(device, dtype)).cpu() for part in parts])
        gap = information_gap(recording.observations, decoded, z, bandwidth=self.bandwidth)
        if gap.saturated and SATURATED not in self.flags:
            self.flags.append(SATURATED)
        return gap.score

    def _settings(self) -> dict[str, Any]:
        first = self.held_out.batch(slice(0, 64)).contiguous().numpy()
        return {
            "data": self.data.recipe or self.data.name,
            "observations": len(self.data),
            # Arrays have no name of their own, and files change.
            "contents": sha256(first.tobytes()).hexdigest()[:16],
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
        content = store.read_json(file)
        try:
            before, self.flags = dict(content["settings"]), list(content["flags"])
            self.measured = {
                key: (float(row.pop("value")), Use(**row)) for key, row in content["trials"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(
                f"fondue: {file} is not a list of trials ({type(error).__name__}: {error}). It was "
                "edited, or written by another program: restore it, or choose another --out."
            ) from error
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
