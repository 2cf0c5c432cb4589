"""The batch of each step: observations, and what else the model needs.

Everything is a function of (seed, step): the rows, and the neighbour that is the partner of
each. The `needs` of a model list what it gets besides the observations:

    step      number of updates made so far
    samples   number of observations in the data
    factors   the factors of the batch
    partner   a neighbour of each observation of the batch

A neighbour differs in one ordinal factor, by one step up or down, and is drawn among those
in the data; an observation without neighbours is its own partner. Data without ordinal
factors are treated as a sequence: the neighbour of a row is the next one.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.autoencoder import Trainable, plain_copy
from zscope.data.dataset import Dataset
from zscope.errors import DataError
from zscope.seeds import seed_of
from zscope.training.config import TrainConfig

__all__ = ["Feed", "Neighbours", "batch_rows"]

PARTNERS = 5  # separates this stream of random numbers from the others

# The order of the current epoch for each seed in use: members of an ensemble alternate.
_ORDER: dict[int, tuple[tuple[int, int], np.ndarray]] = {}


def batch_rows(config: TrainConfig, samples: int, step: int, rank: int = 0) -> np.ndarray:
    """The rows of batch `step`: each epoch is a new random order, without a partial batch."""
    epoch, place = divmod(step, samples // config.batch)
    key, order = _ORDER.get(config.seed, (None, None))
    if key != (epoch, samples) or order is None:
        if len(_ORDER) >= 64:
            _ORDER.clear()
        order = np.random.default_rng(seed_of(config.seed, epoch, 3)).permutation(samples)
        _ORDER[config.seed] = ((epoch, samples), order)
    rows = order[place * config.batch : (place + 1) * config.batch]
    return rows[rank :: config.devices]


class Feed:
    """What a model gets at each step of a run."""

    def __init__(self, model: Trainable, dataset: Dataset, device: torch.device) -> None:
        self.dataset, self.device, self.dtype = dataset, device, model.place[1]
        self.plain = not model.safe_inputs
        self.needs = model.needs
        self.factors = self._factors(model) if "factors" in self.needs else None
        self.neighbours = Neighbours(dataset) if "partner" in self.needs else None

    def at(self, config: TrainConfig, step: int, rank: int = 0) -> tuple[Tensor, dict[str, Any]]:
        """The observations of a step, and the other keywords of `losses`."""
        rows = batch_rows(config, len(self.dataset), step, rank)
        x = self._observations(rows)
        return x, self.extras(config, step, rows, rank) if self.needs else {}

    def extras(
        self, config: TrainConfig, step: int, rows: np.ndarray, rank: int = 0
    ) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        if "step" in self.needs:
            extras["step"] = step
        if "samples" in self.needs:
            extras["samples"] = len(self.dataset)
        if self.factors is not None:
            extras["factors"] = self.factors[torch.from_numpy(rows)].to(self.device)
        if self.neighbours is not None:
            generator = np.random.default_rng(seed_of(config.seed, step, rank, PARTNERS))
            partners = self.neighbours.of(rows, generator)
            extras["partner"] = self._observations(partners)
        return extras

    def _observations(self, rows: np.ndarray) -> Tensor:
        x = self.dataset.batch(rows, self.device).to(self.dtype)
        return plain_copy(x) if self.plain else x

    def _factors(self, model: Trainable) -> Tensor:
        values = self.dataset.factors
        if values is None:
            raise DataError(
                f"train: the model learns from factors or labels, but {self.dataset.name} has "
                "none. Use data with factors, or another model."
            )
        factors = torch.from_numpy(np.ascontiguousarray(values)).to(self.dtype)
        model.check_factors(factors)
        return factors


class Neighbours:
    """Finds a neighbour for each row of a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self.samples = len(dataset)
        # Whole numbers whose kind was not stated may well be ordered.
        kinds = [
            "ordinal" if kind == "categorical" and name in dataset.guessed_kinds else kind
            for name, kind in zip(dataset.factor_names, dataset.factor_kinds, strict=True)
        ]
        if kinds and all(kind == "categorical" for kind in kinds):
            raise DataError(
                f"train: the model learns from pairs of neighbours, but {dataset.name} has none: "
                f"its factors ({', '.join(dataset.factor_names)}) are categories without an order. "
                "Use data with ordinal factors, or rows in the order of time."
            )
        self.ordinal = [place for place, kind in enumerate(kinds) if kind == "ordinal"]
        if not self.ordinal:
            return
        # Encode each row as one number, so that neighbours are found by binary search.
        values = np.asarray(dataset.factors)
        ranks = [np.unique(column, return_inverse=True)[1].astype(np.int64) for column in values.T]
        sizes = [int(rank.max()) + 1 for rank in ranks]
        self.ranks, self.sizes = np.stack(ranks, 1), sizes
        self.strides = np.cumprod([1, *sizes[:0:-1]], dtype=np.float64)[::-1]
        if self.strides[0] * sizes[0] >= 2**62:
            raise DataError(
                f"train: the factors of {dataset.name} have {self.strides[0] * sizes[0]:.1e} "
                "combinations, too many to search for neighbours. Use coarser factors."
            )
        self.strides = self.strides.astype(np.int64)
        keys = self.ranks @ self.strides
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]

    def of(self, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """A neighbour of each row."""
        if not self.ordinal:
            return np.where(rows + 1 < self.samples, rows + 1, np.maximum(rows - 1, 0))
        ranks, moves = self.ranks[rows], 2 * len(self.ordinal)
        partners = rows.copy()
        waiting = np.ones(len(rows), dtype=bool)
        order = np.argsort(generator.random((len(rows), moves)), axis=1)
        pick = generator.random(len(rows))
        for move in order.T:
            factor = np.take(self.ordinal, move // 2)
            change = 2 * (move % 2) - 1
            rank = np.take_along_axis(ranks, factor[:, None], 1)[:, 0] + change
            inside = (rank >= 0) & (rank < np.take(self.sizes, factor))
            key = ranks @ self.strides + change * self.strides[factor]
            first = np.searchsorted(self.keys, key, side="left")
            count = np.searchsorted(self.keys, key, side="right") - first
            matched = waiting & inside & (count > 0)
            chosen = first + (pick * count).astype(np.int64)
            partners[matched] = self.order[chosen[matched]]
            waiting &= ~matched
            if not waiting.any():
                break
        return partners
