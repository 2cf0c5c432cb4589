"""Extractors of the features by which sets of observations are compared.

A distance between sets of images is a distance between features, and cannot be interpreted
without the name of their extractor; models are compared by one and the same extractor. It can
be

    None            if the rows are features already
    "random"        64 features of a network with fixed random weights, which depend on the shape
                    of the observations alone: the same for every model of the same data
    an Autoencoder  the last hidden layer of its encoder if it has `features`, else its
                    posterior means; a small classifier of the data is a good choice
    a function      from a batch of observations to rows of features
    "inception"     the pool layer of torch-fidelity's Inception network, if its weights are
                    available: only distances with this extractor may be called FID

Randomly initialised networks carry no bias of a training set, and judge pictures unlike those of
ImageNet more sensibly than networks trained on it: Naeem et al., "Reliable fidelity and diversity
metrics for generative models", ICML 2020, arXiv:2002.09797 (a random VGG16; here a much smaller
network). On MNIST and Fashion-MNIST the Fréchet distance by these features grows with blur,
noise, shifts and mixtures of two pictures, from .08 for other real data.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.assays.engine import encode_alone
from zscope.autoencoder import Autoencoder, WithFeatures, evaluation, plain_copy
from zscope.errors import ConfigError, Undefined
from zscope.randomness import named_generator, normal
from zscope.types import Matrix

__all__ = ["Extractor", "extract", "inception", "name_of", "random_features"]

Extractor = Autoencoder | Callable[[Tensor], Tensor] | str | None
BATCH = 256
FEATURES = 64
LAYER_BYTES = 32 * 2**20
"""Of the largest layer of the random network at once."""


def extract(observations: Any, extractor: Extractor, who: str) -> Matrix:
    """The features of observations in float64, one row each, on the CPU."""
    try:
        is_tensor = isinstance(observations, Tensor)
        x = observations if is_tensor else torch.tensor(np.asarray(observations))
    except (TypeError, ValueError) as error:
        raise Undefined(f"{who}: got something that is not a table of numbers ({error}).") from None
    if x.ndim < 2 or x.is_complex():
        raise Undefined(
            f"{who}: got numbers of shape {tuple(x.shape)} and type {x.dtype}; expected real "
            "numbers, one row per observation."
        )
    if len(x) == 0:
        raise Undefined(f"{who}: got 0 observations; expected at least two.")
    if extractor is None:
        rows = x
    else:
        function, owner = _function(extractor, who)
        with evaluation(owner):
            parts = [function(x[a : a + BATCH]) for a in range(0, len(x), BATCH)]
        rows = torch.cat([torch.as_tensor(part).detach().cpu() for part in parts])
    if rows.ndim != 2 or len(rows) != len(x) or rows.shape[1] == 0:
        raise Undefined(
            f"{who}: {len(x)} observations gave features of shape {tuple(rows.shape)}; expected "
            "one row per observation. Give rows of features, or an extractor= that turns images "
            "into rows, for instance a trained classifier."
        )
    rows = rows.detach().cpu().double()
    bad = int((~rows.isfinite()).any(1).sum())
    if bad:
        raise Undefined(
            f"{who}: the features of {bad} of {len(rows)} observations contain NaN or infinity. "
            "Are the observations scaled as the extractor expects?"
        )
    return rows


def name_of(extractor: Extractor) -> str:
    """The name of the extractor in results."""
    if extractor is None:
        return "rows as given"
    if isinstance(extractor, str):
        return f"{FEATURES} features of a random network" if extractor == "random" else extractor
    if isinstance(extractor, Autoencoder):
        layer = "last hidden layer" if isinstance(extractor, WithFeatures) else "codes"
        return f"{layer} of {extractor.title}"
    return getattr(extractor, "__name__", type(extractor).__name__)


def random_features(x: Tensor) -> Tensor:
    """Features of a network with random weights, the same in every call.

    Pictures pass three 3 x 3 convolutions of stride 2, rows two layers, then a linear map; with
    ReLUs, and weights of variance 2 / inputs (He et al., ICCV 2015), so that the features are of
    the scale of the observations whatever their size.
    """
    generator = named_generator(0, "random features")

    def weights(*shape: int) -> Tensor:
        spread = math.sqrt(2 / math.prod(shape[1:]))
        return normal(torch.empty(shape), generator) * spread

    x = x.detach().cpu().float()
    # One observation says which weights are needed, and how large its largest layer is.
    one, largest, layers = x[:1], 1, []
    for _ in range(3 if x.ndim == 4 else 2):
        inputs = (one.shape[1], 3, 3) if x.ndim == 4 else (one[0].numel(),)
        layers.append(weights(FEATURES if x.ndim == 4 else 2 * FEATURES, *inputs))
        one = _layer(one, layers[-1])
        largest = max(largest, one.numel())
    last = weights(FEATURES, one[0].numel())

    def features(part: Tensor) -> Tensor:
        for each in layers:
            part = _layer(part, each)
        return part.flatten(1) @ last.T

    return torch.cat([features(part) for part in x.split(max(1, LAYER_BYTES // (4 * largest)))])


def _layer(x: Tensor, weights: Tensor) -> Tensor:
    if weights.ndim == 4:
        return torch.nn.functional.conv2d(x, weights, stride=2, padding=1).relu()
    return (x.flatten(1) @ weights.T).relu()


def inception(weights: str | Path | None = None) -> Callable[[Tensor], Tensor]:
    """The 2048 pool features of Inception v3 in torch-fidelity (Heusel et al., 2017).

    `weights` is the file with its weights; with None torch-fidelity uses its own cache or
    downloads them. Images are grey or in colour, with values from 0 to 1.
    """
    try:
        from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
    except ImportError:
        raise ConfigError(
            "inception: the package torch-fidelity, which has the Inception network, is not "
            "installed. Install it with: pip install torch-fidelity, or give another extractor, "
            "for instance a classifier trained on the data."
        ) from None
    path = None if weights is None else str(weights)
    network = FeatureExtractorInceptionV3(
        "inception", ["2048"], feature_extractor_weights_path=path
    )

    def inception(x: Tensor) -> Tensor:
        pixels = (x.clamp(0, 1) * 255).round().to(torch.uint8)
        features: Tensor = network(pixels.expand(-1, 3, -1, -1))[0]
        return features

    return inception


def _function(extractor: Any, who: str) -> tuple[Callable[[Tensor], Tensor], torch.nn.Module]:
    """A function from observations to features, and its module."""
    if extractor == "inception":
        return inception(), torch.nn.Module()
    if extractor == "random":
        return random_features, torch.nn.Module()
    if isinstance(extractor, Autoencoder):
        device, dtype = extractor.place
        if isinstance(extractor, WithFeatures):
            return lambda x: extractor.features(x.to(device, dtype)), extractor
        return lambda x: encode_alone(extractor, x.to(device, dtype)).mean, extractor
    if not callable(extractor):
        raise ConfigError(
            f"{who}: extractor={extractor!r} is neither a model, nor a function, nor 'random' or "
            "'inception'. Give a trained classifier (on the command line @RUN), or leave it out."
        )
    owner = extractor if isinstance(extractor, torch.nn.Module) else torch.nn.Module()
    return lambda x: extractor(plain_copy(x)), owner
