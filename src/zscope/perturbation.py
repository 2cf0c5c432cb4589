"""Perturb a dataset so that VAEs no longer disentangle it, though no pixel moves by more than ε.

VAEs align their latents with the directions in which data vary most *locally*. A change that
is tiny everywhere but turns those directions takes the alignment with the factors away,
and the disentanglement with it: it came from the data, not from the objective.

    x' = x + ε m(w),      |m| <= 1,      same factors w

1. Train `restarts` β-VAEs that differ in their seed alone. Take the one with the lowest MIG
   ("entangled") and the one with the highest ("disentangled"), or several of each (`pairs`).
2. Freeze their encoders, and always feed them the original x. Their decoders go on from
   where they are.
3. m is a decoder that sees the factors through a single neuron (all of w becomes one number
   s(w)) and ends in tanh. Ordered factors enter standardised, categories one-hot.
4. In turn: 3 batches for the decoders, each minimising its reconstruction loss of x' from
   samples of its frozen posterior, then 1 batch for m, minimising

       L_rec(entangled) - L_rec(disentangled).

   Five latent samples for each picture; Adam 1e-4 (0.9, 0.999, 1e-7). It stops when the gap
   between the losses has settled, or after `rounds`.
5. The whole dataset is rewritten (`data/perturbed.py`: range, bounds, provenance), and a
   control is written with uniform noise of the same ε.

Everything is kept in a folder as it is made, and an interrupted run goes on where it was.

Zietlow, PhD thesis, Tübingen 2022, sections 4.2.2-4.3.3 and figure 4.2; Zietlow, Rolinek &
Martius, "Demystifying inductive biases for β-VAE based architectures", ICML 2021. Not said
there and chosen here: ten restarts; runs that use fewer latents than there are factors
are not chosen while enough others are left; when to stop.
"""

import copy
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zscope import models, store
from zscope.assays import mig
from zscope.autoencoder import Autoencoder, Posterior
from zscope.data.dataset import Dataset
from zscope.data.perturbed import (
    largest_change,
    reflected,
    within_unit_range,
    write_noisy,
    write_perturbed,
)
from zscope.errors import ConfigError, DataError, RunError, TrainingError
from zscope.models.composed import Composed
from zscope.models.layers import initialise
from zscope.randomness import seed_of
from zscope.recording import record
from zscope.training import train
from zscope.training.config import TrainConfig, checked
from zscope.training.feeding import batch_rows
from zscope.training.loop import watch_interrupts
from zscope.training.progress import show

DECODER_BATCHES = 3
LATENT_SAMPLES = 5
WINDOW = 500  # rounds over which the gap is averaged before it is compared
SETTLED = 0.02  # of the range of the gap: windows that differ by less end the training
LOG_EVERY = 50
CHECKPOINT_EVERY = 250
AGAIN = "Go on with the same command and --resume."


@dataclass(frozen=True, eq=False)
class Perturbation:
    """What came out: the datasets, the models behind them, and how the losses went."""

    dataset: Dataset
    control: Dataset | None
    scores: list[float]  # MIG of each restart on the original data
    active: list[int]  # latents in use in each restart
    entangled: list[int]  # restarts
    disentangled: list[int]
    before: dict[str, float]  # losses on the original data: entangled, disentangled, gap
    history: list[dict[str, Any]]  # the same on the changed data, for every round
    largest: float  # max |x' - x|
    flags: list[str]

    @property
    def gap(self) -> tuple[float, float]:
        """L_rec(entangled) - L_rec(disentangled) on the original data, and in the last rounds."""
        return self.before["gap"], averaged(self.history)["gap"]

    def to_dict(self) -> dict[str, Any]:
        return {
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
    data: Dataset,
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
    """Run the whole procedure in the folder `out`; `zs.data.load(out/"perturbed.npz")` after.

    `restarts` is how many models to train (each for `steps`, with `options` of `model`), or
    models that are trained already. `latents` is the number of factors unless said. With
    `resume` an interrupted run is taken up, and settings must be the same.
    """
    who = "perturb"
    out = Path(out)
    if varying(data) < 2:
        raise DataError(
            f"{who}: {data.name} has fewer than two factors that vary, and the change is made "
            "from them. Give data with factors: zscope data list"
        )
    trained = None if isinstance(restarts, int) else list(restarts)
    count = restarts if isinstance(restarts, int) else len(restarts)
    if count < 2 * pairs or pairs < 1 or rounds < 1:
        raise ConfigError(
            f"{who}: restarts={count}, pairs={pairs}, rounds={rounds}; at least one pair, one "
            "round and two restarts for every pair are needed."
        )
    if not 0 < epsilon <= 1:
        raise ConfigError(f"{who}: epsilon={epsilon}; it must lie above 0 and not above 1.")
    latents = latents or varying(data)
    options = dict(options or {})
    settings = {
        "data": data.recipe or data.name,
        "epsilon": epsilon,
        "model": model if trained is None else "given",
        "latents": latents,
        "options": options,
        "restarts": count,
        "steps": steps,
        "rate": rate,
        "batch": min(batch, len(data)),
        "pairs": pairs,
        "rounds": rounds,
        "modifier_rate": modifier_rate,
        "seed": seed,
    }
    begin(out, settings, resume)
    batch = min(batch, len(data))
    if trained is None:
        trained = []
        for number in range(count):
            built = models.build(
                model, shape=data.shape, latents=latents, **{**options, "seed": seed + number}
            )
            folder = out / "original" / f"seed-{seed + number}"
            if progress or (progress is None and sys.stderr.isatty()):
                print(f"restart {number + 1} of {count}", file=sys.stderr, flush=True)
            try:
                run = train(
                    built,
                    data,
                    steps=steps,
                    batch=batch,
                    rate=rate,
                    seed=seed + number,
                    out=folder,
                    resume=resume and folder.exists(),
                    progress=progress,
                )
            except KeyboardInterrupt:
                raise KeyboardInterrupt(
                    f"perturb: stopped and saved in restart {number + 1} of {count}. {AGAIN}"
                ) from None
            assert run.model is not None
            trained.append(run.model)
    chosen = choose(trained, data, pairs)
    game = Game(data, trained, chosen, epsilon=epsilon, seed=seed, options=options)
    before = game.untouched(batch, seed)
    history = play(
        game,
        out / "modifier",
        rounds=rounds,
        batch=batch,
        rate=modifier_rate,
        seed=seed,
        resume=resume,
        progress=progress,
    )
    about = {"change": "modifier trained against disentanglement", "settings": settings}
    about["chosen"] = {"entangled": chosen.entangled, "disentangled": chosen.disentangled}
    about["rounds"] = history[-1]["round"]
    changed = write_perturbed(
        out / "perturbed.npz", data, game.change, epsilon=epsilon, about=about
    )
    noisy = None
    if control:
        noisy = write_noisy(out / "noise.npz", data, epsilon=epsilon, seed=seed)
    result = Perturbation(
        dataset=changed,
        control=noisy,
        scores=chosen.scores,
        active=chosen.active,
        entangled=chosen.entangled,
        disentangled=chosen.disentangled,
        before=before,
        history=history,
        largest=largest_change(data, changed),
        flags=chosen.flags,
    )
    content = {"format": store.FORMAT, "settings": settings, "result": result.to_dict()}
    store.write_whole(out / "perturbation.json", json.dumps(content, indent=1).encode())
    return result


def begin(out: Path, settings: dict[str, Any], resume: bool) -> None:
    """Write the settings down, or check that they are those of the run to go on with."""
    file = out / "perturbation.json"
    plain = json.loads(json.dumps(settings))
    if file.is_file():
        before = store.read_json(file)["settings"]
        if not resume:
            raise RunError(
                f"perturb: {out} already holds a perturbation. Go on with it by --resume "
                "(resume=True), or choose another folder."
            )
        changed = [key for key in plain if before.get(key) != plain[key]]
        if changed:
            key = changed[0]
            raise ConfigError(
                f"perturb: {out} was started with {key}={before.get(key)!r}, now {key}="
                f"{plain[key]!r} is asked for. Leave the option out or choose another folder."
            )
        return
    if out.is_dir() and any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise RunError(
            f"perturb: {out} is not empty and holds no perturbation. So that nothing of yours is "
            "overwritten, choose a new or empty folder."
        )
    content = {"format": store.FORMAT, "settings": plain}
    store.write_whole(file, json.dumps(content, indent=1).encode())


@dataclass(frozen=True)
class Choice:
    scores: list[float]
    active: list[int]
    entangled: list[int]
    disentangled: list[int]
    flags: list[str]


def choose(trained: Sequence[Autoencoder], data: Dataset, pairs: int) -> Choice:
    """The restarts with the lowest and with the highest MIG, leaving out over-pruned ones."""
    needed = varying(data)
    scores, active = [], []
    for model in trained:
        recording = record(model, data)
        if recording.posterior.std is None:
            raise ConfigError(
                "perturb: the models must have independent noise in their latents: use vae, "
                "beta-vae or the like, whose alignment the change attacks."
            )
        variances = recording.posterior.variance
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
            f"({needed}), so others were chosen too: β may be too large."
        )
        usable = order
    return Choice(scores, active, usable[:pairs], usable[-pairs:][::-1], flags)


class Modifier(nn.Module):
    """m(w): the factors squeezed into one number, and a decoder behind it; from -1 to 1."""

    def __init__(self, inputs: int, decoder: nn.Module) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 1))
        self.decoder = decoder

    def forward(self, w: Tensor) -> Tensor:
        return torch.tanh(self.decoder(self.squeeze(w)))


class Game(nn.Module):
    """The two sides: decoders that follow x', and the modifier that moves it."""

    def __init__(
        self,
        data: Dataset,
        trained: Sequence[Autoencoder],
        chosen: Choice,
        *,
        epsilon: float,
        seed: int,
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        strange = [type(m).__name__ for m in trained if not isinstance(m, Composed)]
        if strange:
            raise ConfigError(
                f"perturb: {strange[0]} is not a model of zs.models, whose decoder can be trained "
                "apart from its encoder. Give the number of restarts, or models built there."
            )
        self.data, self.epsilon = data, epsilon
        self.device = trained[0].place[0]
        self.fold = within_unit_range(data)
        self.w = described_factors(data).to(self.device)
        sides = {"entangled": chosen.entangled, "disentangled": chosen.disentangled}
        # The encoders never change and always see the original x: asked once, for all rows.
        self.posteriors = {
            side: [_whole(trained[k], data) for k in numbers] for side, numbers in sides.items()
        }
        self.decoders = nn.ModuleDict(
            {side: nn.ModuleList(copy.deepcopy(trained[k]) for k in n) for side, n in sides.items()}
        )
        for parameter in self.decoders.parameters():
            parameter.requires_grad_(False)
        for member in self._members():
            for parameter in member.decoder.parameters():
                parameter.requires_grad_(True)
        recipe = getattr(trained[0], "recipe", None) or {}
        backbone = {**recipe.get("options", {}), **options}
        keep = {
            key: backbone[key]
            for key in ("backbone", "hidden", "decoder_hidden", "activation", "decoder_activation",
                        "kernels", "depth", "filters")
            if backbone.get(key) is not None
        }  # fmt: skip
        plain = models.build("ae", shape=data.shape, latents=1, **keep)
        with torch.device("meta"):
            squeezed = Modifier(self.w.shape[1], copy.deepcopy(plain.decoder).to("meta"))  # type: ignore[union-attr, arg-type]
        initialise(squeezed, seed=seed_of(seed, 7))
        self.modifier = squeezed
        self.to(self.device)

    def _members(self) -> list[Any]:
        return [member for side in self.decoders.values() for member in side]  # type: ignore[attr-defined]

    def decoder_parameters(self) -> list[nn.Parameter]:
        return [p for p in self.decoders.parameters() if p.requires_grad]

    def moved(self, rows: np.ndarray) -> Tensor:
        """x' of some rows."""
        x = self.data.batch(rows, self.device)
        target = x + self.epsilon * self.modifier(self.w[torch.from_numpy(rows)])
        return reflected(target) if self.fold else target

    def losses(self, rows: np.ndarray, target: Tensor, generator: torch.Generator) -> list[Tensor]:
        """Mean reconstruction loss of each side, entangled first."""
        place = torch.from_numpy(rows)
        found = []
        for side, members in self.decoders.items():
            total = torch.zeros((), device=self.device)
            for member, posterior in zip(members, self.posteriors[side], strict=True):  # type: ignore[call-overload]
                part = posterior[place].to(self.device)
                repeated = Posterior(
                    part.mean.repeat(LATENT_SAMPLES, 1), part.std.repeat(LATENT_SAMPLES, 1)
                )
                output = member.output(repeated.sample(generator))
                several = target.repeat(LATENT_SAMPLES, *[1] * (target.ndim - 1))
                total = total + member.likelihood.nll(output, several).mean()
            found.append(total / len(members))  # type: ignore[arg-type]
        return found

    def untouched(self, batch: int, seed: int) -> dict[str, float]:
        """The losses of both sides on the original data, over a few batches."""
        generator = torch.Generator().manual_seed(seed_of(seed, 9))
        rows = np.random.default_rng(seed_of(seed, 9)).permutation(len(self.data))[: 20 * batch]
        parts = [rows[k : k + batch] for k in range(0, len(rows), batch)]
        with torch.no_grad():
            losses = [
                torch.stack(self.losses(part, self.data.batch(part, self.device), generator))
                for part in parts
            ]
        entangled, disentangled = torch.stack(losses).mean(0).tolist()
        return named(entangled, disentangled)

    def change(self, rows: np.ndarray) -> np.ndarray:
        """ε m(w) of some rows, for the rewritten dataset."""
        with torch.no_grad():
            parts = self.w[torch.from_numpy(rows)].split(256)
            m = torch.cat([self.modifier(part) for part in parts])
        return self.epsilon * m.double().cpu().numpy()


def play(
    game: Game,
    folder: Path,
    *,
    rounds: int,
    batch: int,
    rate: float,
    seed: int,
    resume: bool,
    progress: bool | None,
) -> list[dict[str, Any]]:
    """Train decoders and modifier in turn; returns the losses of every round.

    Batches and noise are functions of (seed, step), so a run that was stopped and taken up
    again gives the same modifier as one that was not.
    """
    adam: dict[str, Any] = {"lr": rate, "betas": (0.9, 0.999), "eps": 1e-7}
    optimisers: dict[str, torch.optim.Optimizer] = {
        "decoders": torch.optim.Adam(game.decoder_parameters(), **adam),
        "modifier": torch.optim.Adam(game.modifier.parameters(), **adam),
    }
    config = checked("perturb", steps=rounds * (DECODER_BATCHES + 1), batch=batch, seed=seed)
    history: list[dict[str, Any]] = []
    if resume and (saved := store.checkpoints(folder)):
        first = store.read_checkpoint(saved[-1][1], game, optimisers)
        history = [row for row in store.read_history(folder) if row["round"] <= first]

    def save() -> None:
        lines = "".join(json.dumps(row) + "\n" for row in history)
        store.write_whole(folder / "history.jsonl", lines.encode())
        newest = store.write_checkpoint(folder, len(history), game, optimisers)
        for _, file in store.checkpoints(folder):
            if file != newest:
                file.unlink(missing_ok=True)

    bar = show(progress, rounds, len(history), "modifier")
    with watch_interrupts() as interrupted, bar:
        while len(history) < rounds and not settled(history):
            history.append(one_round(game, optimisers, config, len(history)))
            if not math.isfinite(history[-1]["gap"]):
                raise TrainingError(
                    f"perturb: a loss broke in round {len(history)} of the modifier's training. "
                    "Take a smaller modifier_rate; the last checkpoint is kept."
                )
            done = len(history)
            shown = averaged(history) if done % LOG_EVERY == 0 else None
            bar.update(done, shown)
            if done % CHECKPOINT_EVERY == 0:
                save()
            if interrupted.is_set():
                save()
                raise KeyboardInterrupt(
                    f"perturb: stopped and saved after round {done} of {rounds}. {AGAIN}"
                )
        save()
    return history


def one_round(
    game: Game,
    optimisers: dict[str, torch.optim.Optimizer],
    config: TrainConfig,
    number: int,
) -> dict[str, Any]:
    """Three batches for the decoders and one for the modifier; returns the losses of the last."""
    generator = torch.Generator()
    samples = len(game.data)
    for turn in range(DECODER_BATCHES + 1):
        step = number * (DECODER_BATCHES + 1) + turn
        rows = batch_rows(config, samples, step)
        generator.manual_seed(seed_of(config.seed, step, 8))
        if turn < DECODER_BATCHES:
            with torch.no_grad():
                target = game.moved(rows)
            entangled, disentangled = game.losses(rows, target, generator)
            optimiser, loss = optimisers["decoders"], entangled + disentangled
        else:
            target = game.moved(rows)
            entangled, disentangled = game.losses(rows, target, generator)
            optimiser, loss = optimisers["modifier"], entangled - disentangled
        for each in optimisers.values():
            each.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    return {"round": number + 1, **named(entangled.item(), disentangled.item())}


def named(entangled: float, disentangled: float) -> dict[str, float]:
    return {
        "entangled": entangled,
        "disentangled": disentangled,
        "gap": entangled - disentangled,
    }


def averaged(history: list[dict[str, Any]], count: int = LOG_EVERY) -> dict[str, float]:
    """The mean losses of the last rounds."""
    names = ("entangled", "disentangled", "gap")
    return {name: float(np.mean([row[name] for row in history[-count:]])) for name in names}


def settled(history: list[dict[str, Any]]) -> bool:
    """Whether the gap of the last two windows is the same, against all that it has moved.

    The modifier runs ahead at first and the decoders catch up, so the gap falls and then
    rises again: standing still is what counts, not falling.
    """
    if len(history) < 4 * WINDOW or len(history) % LOG_EVERY:
        return False
    gaps = np.array([row["gap"] for row in history])
    before, now = gaps[-2 * WINDOW : -WINDOW].mean(), gaps[-WINDOW:].mean()
    smooth = gaps[: len(gaps) // LOG_EVERY * LOG_EVERY].reshape(-1, LOG_EVERY).mean(1)
    return bool(abs(before - now) < SETTLED * (smooth.max() - smooth.min()))


def varying(data: Dataset) -> int:
    """How many factors take more than one value."""
    values = np.zeros((1, 0)) if data.factors is None else data.factors
    return int((values != values[0]).any(0).sum())


def described_factors(data: Dataset) -> Tensor:
    """The factors as a network sees them: standardised, or one-hot for categories."""
    assert data.factors is not None
    columns = []
    for k, kind in enumerate(data.factor_kinds):
        values = np.asarray(data.factors[:, k])
        if kind == "categorical":
            known, place = np.unique(values, return_inverse=True)
            columns.append(np.eye(len(known))[place])
        else:
            spread = values.std() or 1.0
            columns.append(((values - values.mean()) / spread)[:, None])
    return torch.from_numpy(np.concatenate(columns, 1)).float()


def _whole(model: Autoencoder, data: Dataset) -> Posterior:
    return record(model, data, samples=len(data)).posterior
