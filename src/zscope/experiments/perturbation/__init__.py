"""Perturb a dataset so that VAEs no longer disentangle it, with no pixel changed by more than ε.

VAEs align their latents with the directions in which data vary most *locally*. A change that
is tiny everywhere but rotates those directions removes the alignment with the factors, and
the disentanglement with it: it came from the data, not from the objective.

    x' = x + ε m(w),      |m| <= 1,      same factors w

1. Train `restarts` β-VAEs that differ in their seed alone. Take the one with the lowest MIG
   ("entangled") and the one with the highest ("disentangled"), or several of each (`pairs`).
2. Freeze their encoders, and always feed them the original x. Their decoders keep training.
3. m is a decoder that sees the factors through a single neuron (all of w becomes one number
   s(w)) and ends in tanh. Ordered factors enter standardised, categories one-hot.
4. Alternate: 3 batches for the decoders, each minimising its reconstruction loss of x' from
   samples of its frozen posterior, then 1 batch for m, minimising

       L_rec(entangled) - L_rec(disentangled).

   Five latent samples per image; Adam 1e-4 (0.9, 0.999, 1e-7). Training stops when the gap
   between the losses has converged, or after `rounds`.
5. The whole dataset is rewritten (`data/perturbed.py`: range, bounds, provenance), and a
   control is written with uniform noise of the same ε.

Intermediate results are saved in a folder, and an interrupted run can be resumed.

Zietlow, PhD thesis, Tübingen 2022, sections 4.2.2-4.3.3 and figure 4.2; Zietlow, Rolinek &
Martius, "Demystifying inductive biases for β-VAE based architectures", ICML 2021. Not stated
there and chosen here: ten restarts; runs that use fewer latents than there are factors are
chosen only if there are not enough others; the stopping rule.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from zscope import models, store
from zscope.assays.disentanglement.mig import mig
from zscope.autoencoder import Autoencoder
from zscope.data.dataset import Dataset, as_dataset
from zscope.data.perturbed import largest_change, write_noisy, write_perturbed
from zscope.errors import ConfigError, DataError, RunError
from zscope.experiments.perturbation.game import RESUME, Choice, Game, mean_losses, play
from zscope.experiments.training import train
from zscope.files import lock
from zscope.recording import record
from zscope.results import Result
from zscope.sampling import whole

__all__ = ["Perturbation", "perturb"]


@dataclass(frozen=True, eq=False)
class Perturbation(Result):
    """The perturbed dataset and its control, the models used, and the course of the losses."""

    dataset: Dataset
    control: Dataset | None
    scores: list[float]  # MIG of each restart on the original data
    active: list[int]  # latents of mean variance below 0.8 in each restart
    entangled: list[int]  # restarts
    disentangled: list[int]
    before: dict[str, float]  # losses on the original data: entangled, disentangled, gap
    history: list[dict[str, Any]]  # the same on the perturbed data, for every round
    largest: float  # max |x' - x|
    flags: list[str]

    @property
    def gap(self) -> tuple[float, float]:
        """L_rec(entangled) - L_rec(disentangled) on the original data, and in the last rounds."""
        return self.before["gap"], mean_losses(self.history)["gap"]

    def summary(self) -> list[tuple[str, str]]:
        before, after = self.gap
        files = [("dataset", self.dataset), ("control with uniform noise", self.control)]
        return [
            (f"MIG of {len(self.scores)} restarts", ", ".join(f"{s:.2f}" for s in self.scores)),
            ("entangled restarts", ", ".join(map(str, self.entangled))),
            ("disentangled restarts", ", ".join(map(str, self.disentangled))),
            ("loss entangled - disentangled", f"{before:+.2f} before, {after:+.2f} after"),
            ("rounds", str(self.history[-1]["round"])),
            ("largest change of a pixel", f"{self.largest:.4f}"),
            *((name, str(data.provenance["path"])) for name, data in files if data is not None),
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "dataset": self.dataset.provenance["path"],
            "control": None if self.control is None else self.control.provenance["path"],
            "scores": self.scores,
            "active": self.active,
            "entangled": self.entangled,
            "disentangled": self.disentangled,
            "gap": list(self.gap),
            "rounds": self.history[-1]["round"],
            "largest_change": self.largest,
            "flags": self.flags,
        }


def perturb(
    data: Any,
    *,
    epsilon: float,
    out: str | Path,
    model: str = "beta-vae",
    latents: int | None = None,
    options: dict[str, Any] | None = None,
    restarts: int | Sequence[Autoencoder] = 10,
    steps: int = 30_000,
    rate: float = 1e-4,
    batch: int = 64,
    pairs: int = 1,
    rounds: int = 10_000,
    modifier_rate: float = 1e-4,
    control: bool = True,
    seed: int = 0,
    resume: bool = False,
    progress: bool | None = None,
) -> Perturbation:
    """Move every pixel by at most `epsilon` so that VAEs entangle the factors.

    Everything is saved in the folder `out`; load the data with
    `zs.data.load(out / "perturbed.npz")`. `restarts` is the number of models to train (each for
    `steps`, with `options` of `model`), or a list of trained models. `latents` defaults to
    the number of factors. `resume` continues an interrupted run with the same settings.
    """
    out = Path(out)
    data = replace(as_dataset(data), standardise=False)  # epsilon is in the units of the data
    if count_factors(data) < 2:
        raise DataError(
            f"perturb: {data.name} has fewer than two factors that vary, and the change is a "
            "function of them. Use data with factors: zscope data list"
        )
    whole("perturb", seed=seed)
    whole("perturb", 1, pairs=pairs, rounds=rounds, batch=batch)
    if latents is not None:
        whole("perturb", 1, latents=latents)
    trained = None if isinstance(restarts, int) else list(restarts)
    count = restarts if isinstance(restarts, int) else len(restarts)
    if count < 2 * pairs:
        raise ConfigError(
            f"perturb: restarts={count} and pairs={pairs}; expected two restarts for every pair."
        )
    numbers = {"epsilon": epsilon, "rate": rate, "modifier_rate": modifier_rate}
    for name, value in numbers.items():
        if not isinstance(value, int | float | np.integer | np.floating) or not 0 < value <= 1:
            raise ConfigError(f"perturb: {name}={value!r}; expected a number above 0, at most 1.")
    latents = latents or count_factors(data)
    options = dict(options or {})
    settings = {
        "data": data.recipe or data.name,
        "epsilon": float(epsilon),
        "model": model if trained is None else "given",
        "latents": latents,
        "options": options,
        "restarts": count,
        "steps": steps,
        "rate": float(rate),
        "batch": min(batch, len(data)),
        "pairs": pairs,
        "rounds": rounds,
        "modifier_rate": float(modifier_rate),
        "seed": seed,
    }
    with lock(out, "perturb"):
        return _perturb(data, out, settings, trained, resume, control, progress)


def _perturb(
    data: Dataset,
    out: Path,
    settings: dict[str, Any],
    trained: list[Autoencoder] | None,
    resume: bool,
    control: bool,
    progress: bool | None,
) -> Perturbation:
    """The work of `perturb`, with its settings checked and its folder locked."""
    epsilon, seed, batch = settings["epsilon"], settings["seed"], settings["batch"]
    count, options = settings["restarts"], settings["options"]
    _start(out, settings, resume)
    if trained is None:
        trained = []
        for number in range(count):
            untrained = models.build(
                settings["model"],
                shape=data.shape,
                latents=settings["latents"],
                **{**options, "seed": seed + number},
            )
            folder = out / "original" / f"seed-{seed + number}"
            if progress or (progress is None and sys.stderr.isatty()):
                print(f"restart {number + 1} of {count}", file=sys.stderr, flush=True)
            try:
                run = train(
                    untrained,
                    data,
                    steps=settings["steps"],
                    batch=batch,
                    rate=settings["rate"],
                    seed=seed + number,
                    out=folder,
                    resume=resume and folder.exists(),
                    progress=progress,
                )
            except KeyboardInterrupt as interrupt:
                raise type(interrupt)(
                    f"perturb: stopped and saved in restart {number + 1} of {count}. {RESUME}"
                ) from None
            assert run.model is not None
            trained.append(run.model)
    choice = choose(trained, data, settings["pairs"])
    game = Game(data, trained, choice, epsilon=epsilon, seed=seed, options=options)
    before = game.original_losses(batch, seed)
    history = play(
        game,
        out / "modifier",
        rounds=settings["rounds"],
        batch=batch,
        rate=settings["modifier_rate"],
        seed=seed,
        resume=resume,
        progress=progress,
    )
    about = {"change": "modifier trained against disentanglement", "settings": settings}
    about["chosen"] = {"entangled": choice.entangled, "disentangled": choice.disentangled}
    about["rounds"] = history[-1]["round"]
    perturbed = write_perturbed(
        out / "perturbed.npz", data, game.change, epsilon=epsilon, about=about
    )
    noisy = write_noisy(out / "noise.npz", data, epsilon=epsilon, seed=seed) if control else None
    result = Perturbation(
        dataset=perturbed,
        control=noisy,
        scores=choice.scores,
        active=choice.active,
        entangled=choice.entangled,
        disentangled=choice.disentangled,
        before=before,
        history=history,
        largest=largest_change(data, perturbed),
        flags=choice.flags,
    )
    content = {"settings": settings, "result": result.to_dict()}
    store.write_json(out / "perturbation.json", content)
    return result


def _start(out: Path, settings: dict[str, Any], resume: bool) -> None:
    """Save the settings, or check that they are those of the run to resume."""
    file = out / "perturbation.json"
    plain = json.loads(json.dumps(settings))
    if file.is_file():
        before = _settings_in(file)
        if not resume:
            raise RunError(
                f"perturb: {out} already contains a perturbation. Continue it with --resume "
                "(resume=True), or choose another folder."
            )
        changed = [key for key in plain if before.get(key) != plain[key]]
        if changed:
            key = changed[0]
            raise ConfigError(
                f"perturb: {out} was started with {key}={before.get(key)!r}, now {key}="
                f"{plain[key]!r}. Use the same value, or choose another folder."
            )
        return
    if out.is_dir() and any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise RunError(
            f"perturb: {out} is not empty and contains no {file.name}. Choose a new or empty "
            "folder, so that nothing is overwritten."
        )
    store.write_json(file, {"settings": plain})


def _settings_in(file: Path) -> dict[str, Any]:
    """The settings in a perturbation.json."""
    settings = store.read_json(file).get("settings")
    if not isinstance(settings, dict):
        raise RunError(
            f"perturb: {file} has no settings. It was edited, or written by another program: "
            "restore it, or choose another folder."
        )
    return settings


def choose(trained: Sequence[Autoencoder], data: Dataset, pairs: int) -> Choice:
    """The restarts with the lowest and with the highest MIG, leaving out over-pruned ones."""
    needed = count_factors(data)
    scores, active = [], []
    for model in trained:
        recording = record(model, data)
        if recording.posterior.std is None:
            raise ConfigError(
                "perturb: the models must have independent noise in their latents, as vae and "
                "beta-vae have: the change works against the alignment that this noise causes."
            )
        variances = recording.posterior.variance
        # The source's rule for over-pruned models (Zietlow 2022, chapter 4), not `recording.used`.
        active.append(int((variances.double().mean(0) < 0.8).sum()))
        factors = recording.factors
        assert factors is not None
        kinds = list(data.factor_kinds)
        scores.append(mig(recording.codes, factors, variances=variances, kinds=kinds).score)
    order = sorted(range(len(scores)), key=lambda k: scores[k])
    usable = [k for k in order if active[k] >= needed]
    flags = []
    if len(usable) < 2 * pairs:
        flags.append(
            f"Only {len(usable)} of {len(order)} restarts use as many latents as there are factors "
            f"({needed}), so restarts with fewer were chosen too. β may be too large."
        )
        usable = order
    return Choice(scores, active, usable[:pairs], usable[-pairs:][::-1], flags)


def count_factors(data: Dataset) -> int:
    """The number of factors that take more than one value."""
    values = np.zeros((1, 0)) if data.factors is None else data.factors
    return int((values != values[0]).any(0).sum())
