"""Run a model over data once and keep what it said, so that assays need only tensors.

Devices, batches and seeds are dealt with here and nowhere else.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.autoencoder import Autoencoder, Posterior, evaluation
from zscope.data.dataset import Dataset, from_arrays
from zscope.errors import DataError, InterfaceError
from zscope.randomness import seed_of
from zscope.types import Codes

BATCH_BYTES = 32 * 2**20


@dataclass(frozen=True, eq=False)
class Recording:
    """What a model made of some data: one posterior for each observation, on the CPU."""

    autoencoder: Autoencoder
    posterior: Posterior
    data: Dataset
    rows: Tensor  # which rows of the data were encoded, ascending
    seed: int

    @property
    def codes(self) -> Codes:
        """The posterior means."""
        return self.posterior.mean

    @cached_property
    def relative(self) -> Posterior:
        """The posterior in units of the prior: what equals its prior is N(0, 1).

        The posterior itself, unless the prior depends on the factors (an iVAE's does).
        """
        if self.factors is None:
            return self.posterior
        device, dtype = self.autoencoder.place
        with evaluation(self.autoencoder):
            prior = self.autoencoder.prior_given(self.factors.to(device, dtype))
        if prior is None or self.posterior.deterministic:
            return self.posterior
        return self.posterior.relative_to(prior.detach().to("cpu"))

    @property
    def factors(self) -> Tensor | None:
        values = self.data.factors
        return None if values is None else torch.from_numpy(np.ascontiguousarray(values))

    @cached_property
    def observations(self) -> Tensor:
        """The encoded observations themselves, as float32; read from the data when first used."""
        return self.data.batch(slice(None))

    def __len__(self) -> int:
        return len(self.posterior)


def as_dataset(data: Any) -> Dataset:
    """A Dataset as it is; an array or tensor as a Dataset without factors."""
    return data if isinstance(data, Dataset) else from_arrays(data)


def record(
    autoencoder: Autoencoder, data: Any, *, samples: int = 10_000, seed: int = 0
) -> Recording:
    """Encode up to `samples` observations, chosen at random without repeats.

    `data` is a Dataset, an array or a tensor. The model is put in evaluation mode on its
    own device, and left in the mode it was found in; no gradients are kept. The chosen
    rows depend on the seed and the size of the data alone, so that two models recorded
    with one seed have seen the same observations in the same order.
    """
    if samples < 1:
        raise DataError(f"record: samples={samples}; at least one observation must be encoded.")
    dataset = as_dataset(data)
    rows = choose_rows(len(dataset), samples, seed)
    chosen = dataset if len(rows) == len(dataset) else dataset.subset(rows)
    size = batch_size(dataset.shape)
    device, dtype = autoencoder.place
    parts = []
    with evaluation(autoencoder):
        for start in range(0, len(chosen), size):
            x = chosen.batch(slice(start, start + size), device).to(dtype)
            told = auxiliary_of(autoencoder, chosen, slice(start, start + size), x)
            posterior = (
                autoencoder.encode(x) if told is None else autoencoder.encode(x, told)
            ).detach()
            bad = ~posterior.mean.isfinite().all(1) | ~posterior.variance.isfinite().all(1)
            if bad.any():
                row = int(rows[start + int(bad.nonzero()[0, 0])])
                raise InterfaceError(
                    f"record: the encoder gave NaN or infinite numbers for {int(bad.sum())} of "
                    f"{len(x)} observations, the first at row {row} of {dataset.name}. Are the "
                    "data scaled as in training, and are the weights finite?"
                )
            parts.append(posterior.to("cpu"))
    return Recording(autoencoder, _joined(parts), chosen, torch.from_numpy(rows), seed)


def auxiliary_of(
    autoencoder: Autoencoder, data: Dataset, rows: slice, like: Tensor
) -> Tensor | None:
    """The factors, for a model whose encoder must be told them."""
    if not autoencoder.needs_auxiliary:
        return None
    if data.factors is None:
        raise DataError(
            f"record: this model encodes an observation together with its factors, and {data.name} "
            "has none. Give the data it was trained on, or others with the same factors."
        )
    return torch.from_numpy(np.ascontiguousarray(data.factors[rows])).to(like)


def choose_rows(available: int, samples: int, seed: int) -> np.ndarray:
    """At most `samples` of `available` rows, without repeats, in ascending order."""
    if samples >= available:
        return np.arange(available)
    generator = np.random.default_rng(seed_of(seed, 2))
    return np.sort(generator.choice(available, size=samples, replace=False))


def batch_size(shape: tuple[int, ...], budget: int = BATCH_BYTES) -> int:
    """How many float32 observations of this shape fit the budget; at least 1, at most 1024."""
    return max(1, min(1024, budget // (4 * int(np.prod(shape)))))


def _joined(parts: list[Posterior]) -> Posterior:
    first = parts[0]
    return Posterior(
        torch.cat([part.mean for part in parts]),
        None if first.std is None else torch.cat([part.std for part in parts]),
        scale_tril=None
        if first.scale_tril is None
        else torch.cat([part.scale_tril for part in parts]),
    )
