"""How many latents for these data? FONDUE with real training behind it.

Every size tried is a fresh model, trained for a short while on nine tenths of the data;
the gap between its samples and its means is measured on the other tenth. Trials are kept
in OUT/trials.json and their runs in OUT/latents-N as they go, so that a search that was
stopped goes on where it was: finished trials are read, a half-trained model resumes.

See `zscope.assays.dimension.fondue` for the search and its theory.
"""

import json
from collections.abc import Callable
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
    binary_fondue,
    fondue,
    fondue_beta,
    fondue_types,
    stable_fondue,
)
from zscope.assays.dimension.gaps import dimension_gap, information_gap, trace_gap
from zscope.assays.dimension.intrinsic import intrinsic_dimension
from zscope.assays.regime.types import VariableTypes, variable_types
from zscope.autoencoder import Autoencoder, evaluation
from zscope.errors import ConfigError, Undefined, did_you_mean
from zscope.randomness import seed_of
from zscope.recording import Recording, as_dataset, choose_rows, record
from zscope.training import train

# criterion -> the threshold it is published with
THRESHOLDS = {"trace": 1.0, "sampled": 1.0, "dimension": 1.0, "information": -0.01, "types": 0.0}
SATURATED = (
    "The kernel tells every two observations apart, so that the information kept is at its "
    "ceiling whatever the decoder does, and the answer depends on the codes alone. Use the "
    "criterion trace."
)


class Report(NamedTuple):
    """What a watcher is told before (value None) and after each trial."""

    latents: int
    beta: float | None
    steps: int
    value: float | None
    threshold: float
    remembered: bool  # read from an earlier search, not trained


class Trials:
    """Trains models of one family on one dataset and measures them; remembers in a folder."""

    def __init__(
        self,
        data: Any,
        *,
        model: str = "vae",
        options: dict[str, Any] | None = None,
        criterion: str = "trace",
        threshold: float | None = None,
        batch: int = 64,
        rate: float = 1e-3,
        samples: int = 10_000,
        seed: int = 0,
        out: str | Path | None = None,
        watch: Callable[[Report], None] | None = None,
    ) -> None:
        if criterion not in THRESHOLDS:
            raise ConfigError(
                f"fondue: no criterion is called {criterion!r}. "
                f"{did_you_mean(criterion, THRESHOLDS)}"
            )
        taken = sorted({"latents", "seed"} & set(options or {}))
        if taken:
            raise ConfigError(
                f"fondue: the option {taken[0]} is not the model's to choose here: the search "
                "decides the latents, and seed= (--seed) all random numbers. Leave it out."
            )
        whole = as_dataset(data)
        self.data, self.held_out = whole.split((0.9, 0.1), seed=seed)
        self.model, self.options = model, dict(options or {})
        self.criterion = criterion
        self.threshold = THRESHOLDS[criterion] if threshold is None else threshold
        self.training: dict[str, Any] = {"batch": batch, "rate": rate}
        self.samples, self.seed, self.watch = samples, seed, watch
        self.out = None if out is None else Path(out)
        self.known: dict[str, Any] = {}
        self.flags: list[str] = []  # what must be known to read the answer
        self._refuse_unfit()
        self._remember()

    def gap(self, latents: int, *, steps: int, beta: float | None = None) -> float:
        """The criterion's value for a model with so many latents, trained if need be."""
        key = f"{latents}" if beta is None else f"{latents} beta {beta:.6g}"
        key = f"{key} steps {steps}"
        kept = key in self.known
        self._tell(latents, beta, steps, None, kept)
        if not kept:
            trained = self._train(latents, steps, beta)
            self.known[key] = self._measure(trained)
            self._save()
        self._tell(latents, beta, steps, self.known[key], kept)
        return self.known[key]

    def types(self, latents: int, *, steps: int) -> VariableTypes:
        """The types of the latents of such a model; measured anew from its run."""
        self._tell(latents, None, steps, None, False)
        recording = self._record(self._train(latents, steps, None))
        types = variable_types(recording.posterior.variance)
        self._tell(latents, None, steps, float(len(types.passive)), False)
        return types

    def intrinsic_dimension(self, samples: int = 5000) -> float:
        """Of the observations themselves: where the search begins."""
        rows = choose_rows(len(self.data), samples, self.seed)
        x = self.data.batch(rows).flatten(1)
        try:
            return intrinsic_dimension(x).dimension
        except Undefined:
            return 10.0  # too few distinct observations to say

    def _train(self, latents: int, steps: int, beta: float | None) -> Autoencoder:
        options = dict(self.options)
        if beta is not None:
            options["beta"] = beta
        # A seed of its own for each size: an unlucky draw is then not repeated in all.
        own = seed_of(self.seed, latents) % 2**31
        built = models.build_for(self.model, self.data, latents=latents, seed=own, **options)
        folder = None
        if self.out is not None:
            name = f"latents-{latents:03d}-steps-{steps}"
            folder = self.out / (name if beta is None else f"{name}-beta-{beta:.6g}")
        try:
            run = train(
                built,
                self.data,
                steps=steps,
                seed=own,
                out=folder,
                resume=folder is not None,
                progress=False,
                **self.training,
            )
        except KeyboardInterrupt:
            # What the run says of itself is how to go on with that one model.
            kept = f" All is kept in {self.out}: start the same command again to go on."
            raise KeyboardInterrupt(
                f"fondue: stopped while training {latents} latents.{kept if self.out else ''}"
            ) from None
        assert run.model is not None
        return run.model

    def _record(self, model: Autoencoder) -> Recording:
        return record(model, self.held_out, samples=self.samples, seed=self.seed)

    def _measure(self, model: Autoencoder) -> float:
        recording = self._record(model)
        posterior = recording.posterior
        generator = torch.Generator().manual_seed(seed_of(self.seed, 4))
        if self.criterion == "dimension":
            return dimension_gap(posterior, generator=generator).score
        if self.criterion == "information":
            z = posterior.sample(generator)
            device, dtype = model.place
            with evaluation(model):
                decoded = torch.cat(
                    [model.decode(part.to(device, dtype)).cpu() for part in z.split(256)]
                )
            found = information_gap(recording.observations, decoded, z)
            if found.saturated and SATURATED not in self.flags:
                self.flags.append(SATURATED)
            return found.score
        sampled = self.criterion == "sampled"
        return trace_gap(posterior, sampled=sampled, generator=generator).score

    def _tell(
        self, latents: int, beta: float | None, steps: int, value: float | None, kept: bool
    ) -> None:
        if self.watch is not None:
            self.watch(Report(latents, beta, steps, value, self.threshold, kept))

    def _refuse_unfit(self) -> None:
        entry = models.entry(self.model)
        if entry.posterior == "point":
            raise ConfigError(
                f"fondue: {self.model} is deterministic, so its samples and means are the same "
                "and there is no gap. Search with --model vae: the size it finds suits "
                "autoencoders of the same architecture too."
            )

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
            "seed": self.seed,
            "samples": self.samples,
            **self.training,
        }

    def _remember(self) -> None:
        """Take over the trials of an earlier search with the same settings."""
        if self.out is None or not (self.out / "trials.json").is_file():
            return
        content = store.read_json(self.out / "trials.json")
        before, now = content["settings"], json.loads(json.dumps(self._settings()))
        for key in now:
            if before.get(key) != now[key]:
                raise ConfigError(
                    f"fondue: {self.out} holds a search with {key}={before.get(key)!r}, now "
                    f"{key}={now[key]!r} is asked for. Leave the option out to go on with it, or "
                    "choose another --out."
                )
        self.known, self.flags = content["trials"], content["flags"]

    def _save(self) -> None:
        if self.out is not None:
            content = {
                "format": store.FORMAT,
                "settings": self._settings(),
                "trials": self.known,
                "flags": self.flags,
            }
            store.write_whole(self.out / "trials.json", json.dumps(content, indent=1).encode())


def choose_latents(
    data: Any,
    *,
    steps: int = 2000,
    start: float | None = None,
    limit: int = 512,
    search: str = "fondue",
    stable: bool = False,
    **trials: Any,
) -> Fondue | StableFondue:
    """The number of latents that a model can use on these data.

    `search` is "fondue" or "binary" (up to `limit`, at most 199); `stable` trains twice as
    long until the answer repeats. `trials` are the options of `Trials`: model, options (of
    the model), criterion ("trace", "sampled", "dimension", "information" or "types"),
    threshold, batch, rate, samples, seed, out, watch.
    """
    if search not in ("fondue", "binary"):
        raise ConfigError(
            f"fondue: search={search!r} is not known. Use 'fondue' or 'binary'; a search for β is "
            "choose_beta, on the command line --search beta --latents N."
        )
    family = Trials(data, **trials)
    if family.criterion == "types" and (search == "binary" or trials.get("threshold") is not None):
        raise ConfigError(
            "fondue: the criterion types counts the latents that are not passive, so there is "
            "nothing to bisect and no threshold. Leave search and threshold out, or use the "
            "criterion trace."
        )
    begin = family.intrinsic_dimension() if start is None else start

    def once(steps: int) -> Fondue:
        return replace(searched(steps), flags=list(family.flags))

    def searched(steps: int) -> Fondue:
        if family.criterion == "types":
            return fondue_types(lambda n: family.types(n, steps=steps), start=begin, limit=limit)
        if search == "binary":
            high = min(limit + 1, 200)  # which is never tried itself
            return binary_fondue(
                lambda n: family.gap(n, steps=steps), high=high, threshold=family.threshold
            )
        return fondue(
            lambda n: family.gap(n, steps=steps),
            start=begin,
            threshold=family.threshold,
            limit=limit,
        )

    return stable_fondue(once, steps=steps) if stable else once(steps)


def choose_beta(data: Any, *, latents: int, steps: int = 2000, **trials: Any) -> BetaFondue:
    """The largest β at which a model of this size, a β-VAE unless another is named, still uses
    all its latents."""
    family = Trials(data, **{"model": "beta-vae", **trials})
    if family.criterion == "types" or "beta" in family.options:
        raise ConfigError(
            "fondue: a search for β needs a gap that grows with β, which counts of types are not, "
            "and a β that is free. Leave the criterion types and the option beta out."
        )
    found = fondue_beta(
        lambda beta: family.gap(latents, steps=steps, beta=beta), threshold=family.threshold
    )
    return replace(found, flags=list(family.flags))
