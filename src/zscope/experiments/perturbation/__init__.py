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
5. The same game is played with ε = 0 for as many rounds: what the decoders gain by training
   longer is not the modifier's work. The change works if the gap ends below 0 *and* below that
   of the game with ε = 0, each with its 95 % interval over the last rounds; if not, `verdict`
   says so. If the chosen restarts differ in MIG by no more than chance gives, there was nothing
   to work against, and the verdict says that.
6. The whole dataset is rewritten (`data/perturbed.py`: range, bounds, provenance), and a
   control is written with uniform noise of the same ε.

Reported with it: the size of the change (largest, root mean square, variance, share of its first
principal direction), by how much the variance of the data changes, and the alignment of the data
with their factors before and after (`assays/alignment/dataset_alignment.py`), which is what the
change is meant to destroy.
`evaluation.py` trains models on the original, the changed and two kinds of control data.

Intermediate results are saved in a folder, and an interrupted run can be resumed.

Zietlow, PhD thesis, Tübingen 2022, sections 4.2.2-4.3.3 and figure 4.2; Zietlow, Rolinek &
Martius, "Demystifying inductive biases for β-VAE based architectures", ICML 2021. Not stated
there and chosen here: ten restarts; runs that use fewer latents than there are factors (or than
the models have, if these are fewer) are chosen only if there are not enough others, where the
latents in use are those of `recording.used`; the stopping rule.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zscope import store
from zscope.assays.alignment.dataset_alignment import DatasetAlignment, dataset_alignment
from zscope.autoencoder import Autoencoder
from zscope.data.dataset import Dataset
from zscope.data.perturbed import (
    ChangeSize,
    change_size,
    check_epsilon,
    write_noisy,
    write_perturbed,
)
from zscope.errors import ConfigError, DataError, RunError, Undefined
from zscope.experiments.perturbation.game import Game, mean_losses, play
from zscope.experiments.perturbation.restarts import (
    check_restarts,
    choose,
    count_factors,
    in_own_units,
    train_restarts,
)
from zscope.experiments.perturbation.verdict import Verdict, judge
from zscope.experiments.whole import Whole
from zscope.files import lock
from zscope.models import refuse_arguments
from zscope.results import Result
from zscope.sampling import whole as check_whole

__all__ = ["FILE", "Perturbation", "perturb"]

FILE = "perturbation.json"
EXAMPLES = 8
NOISE = "noise of the same ε"
"""Of OUT/noise.npz; that of the evaluation has the variance of the change instead."""


@dataclass(frozen=True, eq=False)
class Perturbation(Result):
    """The perturbed dataset and its control, the models used, and the course of the losses."""

    original: Dataset
    dataset: Dataset
    control: Dataset | None
    scores: list[float]  # MIG of each restart on the original data
    active: list[int]  # latents in use in each restart
    entangled: list[int]  # restarts
    disentangled: list[int]
    mig: dict[str, float]  # of the chosen restarts: both sides, and what chance gives
    before: dict[str, float]  # losses on the original data: entangled, disentangled, gap
    history: list[dict[str, Any]]  # the same on the perturbed data, for every round
    unchanged: list[dict[str, Any]]  # the same of the game with ε = 0
    verdict: Verdict
    size: ChangeSize
    noise: ChangeSize | None  # of the control
    alignment: dict[str, DatasetAlignment]  # of original, changed and noise; empty without a grid
    architecture: dict[str, Any]  # of the modifier
    flags: list[str]

    @property
    def gap(self) -> tuple[float, float]:
        """L_rec(entangled) - L_rec(disentangled) on the original data, and in the last rounds."""
        return self.before["gap"], mean_losses(self.history)["gap"]

    @property
    def unchanged_gap(self) -> float:
        """The same in the last rounds of the game with ε = 0."""
        return mean_losses(self.unchanged)["gap"]

    @property
    def largest(self) -> float:
        """max |x' - x|."""
        return self.size.largest

    def summary(self) -> list[tuple[str, str]]:
        before, after = self.gap
        files = [("dataset", self.dataset), (f"control: {NOISE}", self.control)]
        return [
            *([("verdict", self.verdict.sentence)] if self.verdict.worked else []),  # else a flag
            (f"MIG of {len(self.scores)} restarts", ", ".join(f"{s:.2f}" for s in self.scores)),
            ("latents in use", ", ".join(map(str, self.active))),
            ("entangled restarts", ", ".join(map(str, self.entangled))),
            ("disentangled restarts", ", ".join(map(str, self.disentangled))),
            (
                "loss entangled - disentangled",
                f"{before:+.2f} before, {after:+.2f} after, {self.unchanged_gap:+.2f} after the "
                "same game with ε = 0",
            ),
            ("rounds", str(self.history[-1]["round"])),
            ("largest change of a pixel", f"{self.largest:.4f}"),
            ("size of the change", size_text(self.size)),
            *(("alignment", line) for line in alignment_lines(self.alignment)),
            *((name, str(data.provenance["path"])) for name, data in files if data is not None),
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "dataset": self.dataset.provenance["path"],
            "control": None if self.control is None else self.control.provenance["path"],
            "worked": self.verdict.worked,
            "verdict": self.verdict.sentence,
            "scores": self.scores,
            "active": self.active,
            "entangled": self.entangled,
            "disentangled": self.disentangled,
            "mig": self.mig,
            "gap": list(self.gap),
            "gap_without_change": self.unchanged_gap,
            "intervals": self.verdict.intervals(),
            "rounds": self.history[-1]["round"],
            "largest_change": self.largest,
            "size": self.size.to_dict(),
            "noise": None if self.noise is None else self.noise.to_dict(),
            "alignment": {name: _brief(each) for name, each in self.alignment.items()},
            "architecture": self.architecture,
            "flags": self.flags,
        }

    def plot(self, ax: Any = None) -> Any:
        """Some observations: original, changed, the change amplified, and the same of the noise."""
        from zscope.plots import image_grid

        count = len(self.original)
        rows = np.sort(np.random.default_rng(0).choice(count, min(EXAMPLES, count), replace=False))
        x = self.original.batch(rows).numpy()
        largest = max(s.largest for s in (self.size, self.noise) if s is not None)
        factor = max(1, int(0.5 / largest)) if largest else 1
        lines, names = [x], ["original"]
        for name, data in (("changed", self.dataset), (NOISE, self.control)):
            if data is not None:
                other = data.batch(rows).numpy()
                grey = 0.5 if x.ndim == 4 else 0.0
                lines += [other, grey + factor * (other - x)]
                names += [name, f"its change × {factor}"]
        title = f"largest change {self.largest:.3f}, root mean square {self.size.rms:.3f}"
        title += " (grey: no change)" if x.ndim == 4 else ""
        return image_grid(np.stack(lines), rows=names, title=title, ax=ax)


def size_text(size: ChangeSize) -> str:
    """The size of a change in one line."""
    parts = [f"root mean square {size.rms:.4f}"]
    if size.relative_variance is not None:
        parts.append(
            f"variance of the change {percent(size.relative_variance)} of that of the data"
        )
    if size.first_direction is not None:
        parts.append(f"{percent(size.first_direction, 0)} of it in one direction")
    text = ", ".join(parts)
    if size.added_variance is None:
        return text
    return f"{text}; the variance of the data changes by {percent(size.added_variance, sign='+')}"


def percent(share: float, digits: int = 1, *, sign: str = "") -> str:
    return f"{100 * share:{sign}.{digits}f} %"


def alignment_lines(alignment: dict[str, DatasetAlignment]) -> list[str]:
    """The alignment of data with their factors, in one line."""
    if not alignment:
        return []
    first = next(iter(alignment.values()))
    names = {"noise": NOISE}
    values = ", ".join(
        f"{names.get(name, name)} {each.distance:.2f}" for name, each in alignment.items()
    )
    return [
        f"distance of the factors to the principal directions of the data: {values} "
        f"(0 aligned, {first.chance:.2f} random; {first.samples:,} points)"
    ]


def _brief(alignment: DatasetAlignment) -> dict[str, Any]:
    names = ("distance", "standard_error", "chance", "gap", "separation", "samples", "coarse",
             "checked", "dependent", "factors", "flags")  # fmt: skip
    return {name: getattr(alignment, name) for name in names}


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
    progress: bool | Whole | None = None,
) -> Perturbation:
    """Move every pixel by at most `epsilon` so that VAEs entangle the factors.

    Everything is saved in the folder `out`; load the data with
    `zs.data.load(out / "perturbed.npz")`. `restarts` is the number of models to train (each for
    `steps`, with `options` of `model`), or a list of trained models. `latents` defaults to
    the number of factors. `resume` continues an interrupted run with the same settings.
    `verdict` of the result says whether it worked. `progress` is None for a bar in a terminal
    only, or a `Whole` of which this is one part.
    """
    out = Path(out)
    data = in_own_units(data)
    if count_factors(data) < 2:
        raise DataError(
            f"perturb: {data.name} has fewer than two factors that vary, and the change is a "
            "function of them. Use data with factors: zscope data list"
        )
    check_whole("perturb", seed=seed)
    check_whole("perturb", 1, pairs=pairs, rounds=rounds, batch=batch)
    if latents is not None:
        check_whole("perturb", 1, latents=latents)
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
    check_epsilon(data, float(epsilon))
    latents = latents or count_factors(data)
    options = dict(options or {})
    refuse_arguments(options)
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
    check_restarts(data, settings, trained)
    whole = progress if isinstance(progress, Whole) else Whole(progress)
    _expect(whole, data, settings, trained is None)
    with lock(out, "perturb"):
        return _perturb(data, out, settings, trained, resume, control, whole)


def _expect(whole: Whole, data: Dataset, settings: dict[str, Any], train: bool) -> None:
    """The work of each part, in training steps of one model."""
    if train:
        # Trained together, several models take about a third of the time.
        whole.expect("restarts", settings["restarts"] * settings["steps"] / 3)
    rounds = settings["rounds"] * settings["pairs"]
    whole.expect("modifier", 20 * rounds)  # 4 batches, 2 decoders, 5 samples: half a step each
    whole.expect("the same game with ε = 0", 16 * rounds)
    whole.expect("writing", len(data) / settings["batch"])


def _perturb(
    data: Dataset,
    out: Path,
    settings: dict[str, Any],
    trained: list[Autoencoder] | None,
    resume: bool,
    control: bool,
    whole: Whole,
) -> Perturbation:
    """The work of `perturb`, with its settings checked and its folder locked."""
    epsilon, seed, batch = settings["epsilon"], settings["seed"], settings["batch"]
    _start(out, settings, resume)
    if trained is None:
        with whole.part("restarts") as tick:
            trained = train_restarts(data, out / "original", settings, resume=resume, tick=tick)
    choice = choose(trained, data, settings["pairs"])
    shared: dict[str, Any] = {"seed": seed, "options": settings["options"]}
    game = Game(data, trained, choice, epsilon=epsilon, **shared)
    before = game.original_losses(batch, seed)
    playing = {"batch": batch, "rate": settings["modifier_rate"], "seed": seed, "resume": resume}
    rounds = settings["rounds"]
    with whole.part("modifier") as tick:
        history = play(
            game, out / "modifier", rounds=rounds, tick=lambda n: tick(n / rounds), **playing
        )
    still = Game(data, trained, choice, epsilon=0.0, posteriors=game.posteriors, **shared)
    rounds = len(history)
    with whole.part("the same game with ε = 0") as tick:
        unchanged = play(
            still, out / "unchanged", rounds=rounds, tick=lambda n: tick(n / rounds), **playing
        )
    about = {"change": "modifier trained against disentanglement", "settings": settings}
    about["chosen"] = {"entangled": choice.entangled, "disentangled": choice.disentangled}
    about["rounds"] = history[-1]["round"]
    with whole.part("writing"):
        perturbed = write_perturbed(
            out / "perturbed.npz", data, game.change, epsilon=epsilon, about=about
        )
        noisy = (
            write_noisy(out / "noise.npz", data, epsilon=epsilon, seed=seed) if control else None
        )
        versions = {"original": data, "changed": perturbed, "noise": noisy}
        alignment, reasons = align(versions)
        verdict = judge(history, unchanged, choice.no_difference)
        result = Perturbation(
            original=data,
            dataset=perturbed,
            control=noisy,
            scores=choice.scores,
            active=choice.active,
            entangled=choice.entangled,
            disentangled=choice.disentangled,
            mig=choice.mig,
            before=before,
            history=history,
            unchanged=unchanged,
            verdict=verdict,
            size=change_size(data, perturbed),
            noise=None if noisy is None else change_size(data, noisy),
            alignment=alignment,
            architecture=game.architecture,
            flags=[*choice.flags, *([] if verdict.worked else [verdict.sentence]), *reasons],
        )
        content = {"settings": settings, "result": result.to_dict()}
        store.write_json(out / FILE, content)
    return result


def align(
    versions: dict[str, Dataset | None],
) -> tuple[dict[str, DatasetAlignment], list[str]]:
    """The alignment of each dataset with its factors, and why there is none."""
    results: dict[str, DatasetAlignment] = {}
    for name, data in versions.items():
        if data is None:
            continue
        try:
            results[name] = dataset_alignment(data.images, data.factors_with_kinds)
        except Undefined as error:
            return {}, [f"The alignment of the data was not measured: {error}"]
    return results, []


def _start(out: Path, settings: dict[str, Any], resume: bool) -> None:
    """Save the settings, or check that they are those of the run to resume."""
    file = out / FILE
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
