"""scikit-learn: a transformer with an inverse is a deterministic autoencoder.

PCA and its variants, NMF, ICA, dictionary learning, kernel PCA with an inverse, and
pipelines of them. A PCA is computed in torch, so that it has gradients:

    z = (x - mean) Wᵀ / s,   x = s z W + mean      s = 1, or the standard deviations (whiten)
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from zscope.adapters import MissingPackage
from zscope.autoencoder import Autoencoder
from zscope.errors import InterfaceError
from zscope.types import array_of
from zscope.wrapping import wrap

__all__ = ["from_sklearn"]


def from_sklearn(transformer: Any) -> Autoencoder:
    """A fitted transformer with `inverse_transform`; observations are flattened for it."""
    who = f"from_sklearn: {type(transformer).__name__}"
    try:
        from sklearn.decomposition import PCA, IncrementalPCA
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted
    except ImportError:
        raise MissingPackage(who, "scikit-learn") from None
    try:
        check_is_fitted(transformer)
    except (NotFittedError, TypeError) as error:
        raise InterfaceError(
            f"{who}: it is not fitted yet ({error}). Call fit(x) on training data first."
        ) from error
    exact = type(transformer) in (PCA, IncrementalPCA)
    parts = _Components(transformer) if exact else _Transformer(transformer, who)
    autoencoder = wrap(parts.encode, parts.decode, prior=None)
    autoencoder.name = type(transformer).__name__
    return autoencoder


class _Transformer:
    """Any transformer, by way of NumPy."""

    def __init__(self, transformer: Any, who: str) -> None:
        self._transformer, self._who = transformer, who
        self._shape: tuple[int, ...] = ()

    def encode(self, x: Tensor) -> Tensor:
        self._shape = tuple(x.shape[1:])
        with warnings.catch_warnings():
            # Fitted on a data frame; an array of the same columns is what it computes with.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            codes = self._transformer.transform(array_of(x.flatten(1), self._who))
        return torch.as_tensor(codes).to(x)

    def decode(self, z: Tensor) -> Tensor:
        x = torch.as_tensor(self._transformer.inverse_transform(array_of(z, self._who)))
        return x.to(z).reshape(len(z), *(self._shape or x.shape[1:]))


class _Components:
    """A PCA in torch, in double precision as in scikit-learn."""

    def __init__(self, fitted: Any) -> None:
        scale = fitted.explained_variance_**0.5 if fitted.whiten else 1.0
        self._components = torch.as_tensor(fitted.components_).double()
        self._mean = torch.as_tensor(fitted.mean_).double()
        self._scale = torch.as_tensor(scale).double().clamp_min(1e-300)
        self._shape: tuple[int, ...] = ()

    def encode(self, x: Tensor) -> Tensor:
        self._shape = tuple(x.shape[1:])
        centred = x.flatten(1).double() - self._mean
        return (centred @ self._components.T / self._scale).to(x.dtype)

    def decode(self, z: Tensor) -> Tensor:
        x = (z.double() * self._scale) @ self._components + self._mean
        return x.to(z.dtype).reshape(len(z), *(self._shape or x.shape[1:]))
