"""What models make of the same observations: the outputs of their layers, trained and untrained."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from zscope import models
from zscope.assays.similarity.activations import activations
from zscope.autoencoder import Autoencoder
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, Undefined
from zscope.recording import auxiliary_of, choose_rows
from zscope.seeds import seed_of

__all__ = [
    "SAMPLES", "check_shape", "choose_observations", "model_activations", "untrained_copy",
]  # fmt: skip

SAMPLES = 2000
"""Observations that models are compared on by default."""


def check_shape(who: str, shape: Sequence[int] | None, data: Dataset) -> None:
    """Refuse data for a model that takes observations of another shape."""
    shape = shape or data.shape
    if tuple(shape) != data.shape:
        raise ConfigError(
            f"compare: {who} takes observations of shape {tuple(shape)}, but those of {data.name} "
            f"have shape {data.shape}. All models must see the same observations: choose data "
            "that fit them with --data (data=), or compare models of the same data."
        )


def choose_observations(data: Dataset, samples: int, seed: int) -> Dataset:
    """Some rows of the data, with their factors."""
    if min(samples, len(data)) < 4:
        raise Undefined(
            f"compare: samples={samples} of the {len(data)} observations of {data.name}; expected "
            f"at least 4, and some hundreds for reliable numbers ({SAMPLES} is usual)."
        )
    return data.subset(choose_rows(len(data), samples, seed))


def model_activations(
    model: Autoencoder, data: Dataset, decode: bool = True, draw: int = 0
) -> dict[str, Tensor]:
    """The outputs of every layer of a model, which sees the data in its own units.

    Models that are compared need draws of their own: they may be one and the same.
    """
    every = slice(0, len(data))
    data = data.in_units(model.scaling)
    x = data.batch(every)
    auxiliary = auxiliary_of(model, data, every, x)
    return activations(model, x, auxiliary=auxiliary, decode=decode, draw=draw)


def untrained_copy(autoencoder: Autoencoder, *, seed: int = 0) -> Autoencoder:
    """The same architecture with fresh weights, as a control.

    A model of zscope is built again; in any other, every module that can reset its parameters
    does so. The weights differ from those that any model is likely to have started from: next
    to its own initial weights, a model that learned little would look as if it had learned
    nothing. The global random state is left unchanged.
    """
    recipe = autoencoder.recipe
    if recipe is not None:
        options = {**recipe.get("options", {}), "seed": seed_of(seed, 7) % 2**31}
        built = models.from_recipe({**recipe, "options": options}).eval()
        built.scaling = autoencoder.scaling
        return built
    twin = copy.deepcopy(autoencoder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, 7))
        for module in twin.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    return twin
