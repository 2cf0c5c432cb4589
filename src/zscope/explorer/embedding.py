"""Layouts of the codes in a plane: principal components, and UMAP in the background."""

import threading
import time
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from zscope.errors import ConfigError

__all__ = ["Umap", "principal_components"]

COMPONENTS = 10
MANY = 1000
"""Latents from which on principal components are those of some of the codes only."""
ENOUGH = 4000
NEIGHBOURS = 15
"""Of UMAP; fewer codes than these have no layout of their own."""


def principal_components(codes: Tensor) -> tuple[Tensor, Tensor]:
    """The codes along their principal components (samples x components), the first ones, and the
    share of the variance that each has."""
    centred = codes.double() - codes.double().mean(0)
    rows = centred if codes.shape[1] <= MANY else centred[:: max(1, len(codes) // ENOUGH)]
    if len(rows) > rows.shape[1]:
        values, vectors = torch.linalg.eigh(rows.T @ rows)
        values, directions = values.flip(0), vectors.flip(1)
    else:
        _, sizes, transposed = torch.linalg.svd(rows, full_matrices=False)
        values, directions = sizes.square(), transposed.T
    # Of a direction and its opposite, the one whose largest part is positive.
    largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
    directions = directions * torch.where(largest < 0, -1.0, 1.0)
    shares = values.clamp_min(0) / values.clamp_min(0).sum().clamp_min(1e-300)
    return centred @ directions[:, :COMPONENTS], shares[:COMPONENTS]


class Umap:
    """A UMAP of some codes, computed once in a thread of its own."""

    def __init__(self, codes: Tensor, seed: int) -> None:
        if find_spec("umap") is None:
            raise ConfigError(
                f"explore: a UMAP of {len(codes):,} codes needs the package umap-learn, which is "
                "not installed. Install it with: pip install umap-learn, or look at the principal "
                "components."
            )
        self.codes, self.seed = codes.double().numpy(), seed
        self.points: np.ndarray | None = None
        self.error: Exception | None = None
        self._started = time.monotonic()
        self.thread = threading.Thread(target=self._run, name="zscope-umap", daemon=True)
        self.thread.start()

    @property
    def seconds(self) -> float:
        """How long it has been at work."""
        return time.monotonic() - self._started

    def _run(self) -> None:
        try:
            umap = import_module("umap").UMAP(
                n_neighbors=max(2, min(NEIGHBOURS, len(self.codes) - 1)),
                random_state=self.seed,
                n_jobs=1,  # as a seed requires
            )
            self.points = np.ascontiguousarray(umap.fit_transform(self.codes))
        except Exception as error:
            self.error = error
