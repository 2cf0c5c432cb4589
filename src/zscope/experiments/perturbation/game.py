"""Train the modifier against the decoders of both sides (step 4 of the procedure).

The decoders keep training in the game, so their losses fall whatever the modifier does. The
same game with ε = 0 (the same batches, noise and rounds, and no modifier) shows how much of the
gap is due to that.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from zscope import models, store
from zscope.autoencoder import Autoencoder, Posterior
from zscope.data.dataset import Dataset
from zscope.data.perturbed import reflect, within_unit_range
from zscope.errors import RunError, TrainingError
from zscope.interrupts import watch_interrupts
from zscope.models.composed import Composed
from zscope.models.layers import initialise
from zscope.recording import record
from zscope.seeds import seed_of
from zscope.training.config import TrainConfig, validate
from zscope.training.feeding import batch_rows

__all__ = [
    "Choice",
    "Game",
    "Modifier",
    "architecture_of",
    "encode_factors",
    "modifier_for",
    "play",
]

DECODER_BATCHES = 3
LATENT_SAMPLES = 5
WINDOW = 500  # rounds over which the gap is averaged before it is compared
CONVERGED = 0.02  # of the range of the gap: windows that differ by less end the training
LOG_EVERY = 50  # rounds, and how many of the last ones are averaged
CHECKPOINT_EVERY = 250
SIDES = ("entangled", "disentangled")
NETWORK = (
    "backbone", "hidden", "decoder_hidden", "activation", "decoder_activation", "kernels",
    "depth", "filters",
)  # fmt: skip
HISTORY = "history.json"
RESUME = "Continue with the same command and --resume."


@dataclass(frozen=True)
class Choice:
    """The restarts that are used, and the scores of all."""

    scores: list[float]
    active: list[int]
    entangled: list[int]
    disentangled: list[int]
    flags: list[str]
    chance: float = 0.0  # the largest MIG of a chosen restart whose codes were permuted

    @property
    def mig(self) -> dict[str, float]:
        """The mean MIG of both sides, and that of chance."""
        sides = {"entangled": self.entangled, "disentangled": self.disentangled}
        means = {side: float(np.mean([self.scores[k] for k in n])) for side, n in sides.items()}
        return {**means, "chance": self.chance}

    @property
    def no_difference(self) -> str | None:
        """Why the two sides say nothing about entanglement; None if their MIG differs."""
        low, high = (self.mig[side] for side in SIDES)
        if high - low > self.chance:
            return None
        return (
            f"the chosen restarts do not differ in MIG ({low:.3f} and {high:.3f}; permuted codes "
            f"reach {self.chance:.3f}), so the result says nothing about entanglement"
        )


class Modifier(nn.Module):
    """m(w): the factors reduced to one number, then a decoder; outputs from -1 to 1."""

    def __init__(self, inputs: int, decoder: nn.Module) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 1))
        self.decoder = decoder

    def forward(self, w: Tensor) -> Tensor:
        return torch.tanh(self.logits(w))

    def logits(self, w: Tensor) -> Tensor:
        logits: Tensor = self.decoder(self.squeeze(w))
        return logits


def architecture_of(trained: Autoencoder, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a model that decide its decoder: the modifier gets the same."""
    known = {**(trained.recipe or {}).get("options", {}), **options}
    return {key: known[key] for key in NETWORK if known.get(key) is not None}


def modifier_for(data: Dataset, inputs: int, architecture: dict[str, Any], seed: int) -> Modifier:
    """A modifier with its initial weights."""
    plain = models.build("ae", shape=data.shape, latents=1, **architecture)
    with torch.device("meta"):
        modifier = Modifier(inputs, copy.deepcopy(_decoder(plain)).to("meta"))
    initialise(modifier, seed=seed_of(seed, 7))
    return modifier


class Game(nn.Module):
    """The two sides: decoders that reconstruct x', and the modifier that changes it.

    With epsilon 0 nothing is changed, and only the decoders train. `posteriors` are those of a
    game with the same models, which need not be encoded again.
    """

    def __init__(
        self,
        data: Dataset,
        trained: Sequence[Autoencoder],
        choice: Choice,
        *,
        epsilon: float,
        seed: int,
        options: dict[str, Any],
        posteriors: dict[str, list[Posterior]] | None = None,
    ) -> None:
        super().__init__()
        self.data, self.epsilon = data, epsilon
        self.device = trained[0].place[0]
        self.fold = within_unit_range(data)
        self.w = encode_factors(data).to(self.device)
        sides = {"entangled": choice.entangled, "disentangled": choice.disentangled}
        # The encoders never change and always see the original x: one pass over all rows.
        self.posteriors = posteriors or {
            side: [record(trained[k], data, samples=len(data)).posterior for k in numbers]
            for side, numbers in sides.items()
        }
        self.decoders = nn.ModuleDict(
            {side: nn.ModuleList(copy.deepcopy(trained[k]) for k in n) for side, n in sides.items()}
        )
        self.decoders.requires_grad_(False)
        for side in sides:
            for member in self._members(side):
                _decoder(member).requires_grad_(True)
        self.architecture = architecture_of(trained[0], options)
        self.modifier = modifier_for(data, self.w.shape[1], self.architecture, seed)
        self.to(self.device)

    def _members(self, side: str) -> list[Composed]:
        return [cast(Composed, member) for member in cast(nn.ModuleList, self.decoders[side])]

    def decoder_parameters(self) -> list[nn.Parameter]:
        return [p for p in self.decoders.parameters() if p.requires_grad]

    def perturbed(self, rows: np.ndarray) -> Tensor:
        """x' of some rows."""
        x = self.data.batch(rows, self.device)
        if not self.epsilon:
            return x
        m: Tensor = self.modifier(self.w[torch.from_numpy(rows)])
        target = x + self.epsilon * m
        return reflect(target) if self.fold else target

    def losses(self, rows: np.ndarray, target: Tensor, generator: torch.Generator) -> list[Tensor]:
        """Mean reconstruction loss of each side, entangled first."""
        place = torch.from_numpy(rows)
        losses = []
        for side, posteriors in self.posteriors.items():
            total = torch.zeros((), device=self.device)
            for member, posterior in zip(self._members(side), posteriors, strict=True):
                part = posterior[place].to(self.device)
                assert part.std is not None
                repeated = Posterior(
                    part.mean.repeat(LATENT_SAMPLES, 1), part.std.repeat(LATENT_SAMPLES, 1)
                )
                output = member.output(repeated.sample(generator))
                several = target.repeat(LATENT_SAMPLES, *[1] * (target.ndim - 1))
                total = total + member.likelihood.nll(output, several).mean()
            losses.append(total / len(posteriors))
        return losses

    def original_losses(self, batch: int, seed: int) -> dict[str, float]:
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
        return _row(entangled, disentangled)

    def change(self, rows: np.ndarray) -> np.ndarray:
        """ε m(w) of some rows, for the rewritten dataset."""
        with torch.no_grad():
            parts = torch.split(self.w[torch.from_numpy(rows)], 256)
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
    tick: Callable[[int], None] = lambda done: None,
) -> list[dict[str, Any]]:
    """Train decoders and modifier in turn; returns the losses of every round.

    A game with epsilon 0 is played for all `rounds`, another one until the gap has converged.
    `tick` is called with the number of rounds after each of them. Batches and noise are
    functions of (seed, step), so a resumed run gives the same modifier as one that was not
    interrupted.
    """
    adam: dict[str, Any] = {"lr": rate, "betas": (0.9, 0.999), "eps": 1e-7}
    optimisers: dict[str, torch.optim.Optimizer] = {
        "decoders": torch.optim.Adam(game.decoder_parameters(), **adam)
    }
    if game.epsilon:
        optimisers["modifier"] = torch.optim.Adam(game.modifier.parameters(), **adam)
    config = validate("perturb", steps=rounds * (DECODER_BATCHES + 1), batch=batch, seed=seed)
    history: list[dict[str, Any]] = []
    store.clear_leftovers(folder)
    if resume and (first := store.read_newest_checkpoint(folder, game, optimisers)):
        history = _read_rounds(folder / HISTORY)[:first]
        if len(history) != first:
            raise RunError(
                f"perturb: {folder / HISTORY} has {len(history)} rounds up to the "
                f"checkpoint of round {first}. It is damaged: restore it, or start again in "
                "another folder."
            )

    def save() -> None:
        store.write_json(folder / HISTORY, {"rounds": history}, indent=None)
        store.write_checkpoint(folder, len(history), game, optimisers)
        for _, file in store.checkpoints(folder)[:-2]:
            file.unlink(missing_ok=True)

    with watch_interrupts() as interrupted:
        while len(history) < rounds and not (game.epsilon and converged(history)):
            history.append(one_round(game, optimisers, config, len(history)))
            if not math.isfinite(history[-1]["gap"]):
                raise TrainingError(
                    f"perturb: a loss is not finite in round {len(history)} of "
                    f"{_name_of(game)}. Use a smaller modifier_rate; the last checkpoint is kept."
                )
            done = len(history)
            tick(done)
            if done % CHECKPOINT_EVERY == 0:
                save()
            if interrupted.is_set():
                save()
                raise interrupted.error(
                    f"perturb: stopped and saved after round {done} of {rounds} of "
                    f"{_name_of(game)}. {RESUME}"
                )
        save()
    return history


def _name_of(game: Game) -> str:
    return "the modifier's training" if game.epsilon else "the same game without a change"


def _read_rounds(file: Path) -> list[dict[str, Any]]:
    """The losses of the rounds in a file of `play`, in their order."""
    rows = store.read_json(file).get("rounds")
    rows = rows if isinstance(rows, list) else []
    for number, row in enumerate(rows, 1):
        numbers = [row.get(name) for name in ("gap", *SIDES)] if isinstance(row, dict) else [None]
        if not all(isinstance(n, float) for n in numbers) or row.get("round") != number:
            raise RunError(
                f"perturb: {file} has no losses of round {number}. It was edited, or written by "
                "another program: restore it, or start again in another folder."
            )
    return rows


def one_round(
    game: Game,
    optimisers: dict[str, torch.optim.Optimizer],
    config: TrainConfig,
    number: int,
) -> dict[str, Any]:
    """Three batches for the decoders and one for the modifier; returns the losses of the last.

    With epsilon 0 the last batch is for nobody: it has the same rows and noise as with a modifier.
    """
    generator = torch.Generator()
    samples = len(game.data)
    for turn in range(DECODER_BATCHES + 1):
        step = number * (DECODER_BATCHES + 1) + turn
        rows = batch_rows(config, samples, step)
        generator.manual_seed(seed_of(config.seed, step, 8))
        if turn < DECODER_BATCHES:
            with torch.no_grad():
                target = game.perturbed(rows)
            entangled, disentangled = game.losses(rows, target, generator)
            optimiser, loss = optimisers["decoders"], entangled + disentangled
        elif not game.epsilon:
            with torch.no_grad():
                entangled, disentangled = game.losses(rows, game.perturbed(rows), generator)
            break
        else:
            target = game.perturbed(rows)
            entangled, disentangled = game.losses(rows, target, generator)
            optimiser, loss = optimisers["modifier"], entangled - disentangled
        for each in optimisers.values():
            each.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimiser.step()
    return {"round": number + 1, **_row(entangled.item(), disentangled.item())}


def _row(entangled: float, disentangled: float) -> dict[str, float]:
    return {
        "entangled": entangled,
        "disentangled": disentangled,
        "gap": entangled - disentangled,
    }


def mean_losses(history: list[dict[str, Any]], count: int = LOG_EVERY) -> dict[str, float]:
    """The mean losses of the last rounds."""
    names = ("entangled", "disentangled", "gap")
    return {name: float(np.mean([row[name] for row in history[-count:]])) for name in names}


def converged(history: list[dict[str, Any]]) -> bool:
    """Whether the gap differs little between the last two windows, relative to its range.

    The modifier is ahead at first and the decoders catch up, so the gap falls and then rises
    again: it has converged when it is constant, not when it stops falling.
    """
    if len(history) < 4 * WINDOW or len(history) % LOG_EVERY:
        return False
    gaps = np.array([row["gap"] for row in history])
    before, now = gaps[-2 * WINDOW : -WINDOW].mean(), gaps[-WINDOW:].mean()
    smooth = gaps[: len(gaps) // LOG_EVERY * LOG_EVERY].reshape(-1, LOG_EVERY).mean(1)
    return bool(abs(before - now) < CONVERGED * (smooth.max() - smooth.min()))


def encode_factors(data: Dataset) -> Tensor:
    """The factors as inputs of a network: standardised, or one-hot for categories."""
    assert data.factors is not None
    columns = []
    for k, kind in enumerate(data.factor_kinds):
        values = np.asarray(data.factors[:, k])
        if kind == "categorical":
            categories, place = np.unique(values, return_inverse=True)
            columns.append(np.eye(len(categories))[place])
        else:
            std = values.std() or 1.0
            columns.append(((values - values.mean()) / std)[:, None])
    return torch.from_numpy(np.concatenate(columns, 1)).float()


def _decoder(model: Composed) -> nn.Module:
    assert model.decoder is not None
    return model.decoder
