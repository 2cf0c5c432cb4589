"""scvi-tools: variational autoencoders of single-cell counts.

The input are counts; the output is the expected count of each gene, without dropouts, at
the same library size for all cells: the geometric mean of those the model was set up with (of
the size factors, if the model was given these).

Encoder and decoder of a model with several batches, or with covariates, are given those of
each cell: they are the factors of the data, which `scvi_cells(model)` takes from the model.

    zs.assay(scvi_model, zs.adapters.scvi_cells(scvi_model))

A code alone then has no single decoded observation, so assays that decode new codes do not
apply. `from_scvi(model, batch=0)` takes all cells as of one batch: give it the cells of that
batch.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zscope.autoencoder import Autoencoder, Posterior
from zscope.data.dataset import Dataset, from_arrays
from zscope.errors import ConfigError, InterfaceError
from zscope.types import Codes
from zscope.wrapping import wrap

__all__ = ["from_scvi", "scvi_cells"]

CATEGORIES, NUMBERS = "extra_categorical_covs", "extra_continuous_covs"  # keys of the registry


def from_scvi(model: Any, *, batch: int | None = None) -> Autoencoder:
    """A model of scvi-tools with a Gaussian posterior, such as SCVI.

    With `batch` (its number, from 0) all cells are taken as of that batch.
    """
    module: Any = getattr(model, "module", None)
    if not all(callable(getattr(module, name, None)) for name in ("inference", "generative")):
        raise InterfaceError(
            f"from_scvi: a {type(model).__name__} has no module with inference and generative. "
            "Give the model itself, for instance scvi.model.SCVI(adata)."
        )
    if getattr(module, "latent_distribution", "normal") != "normal":
        raise InterfaceError(
            f"from_scvi: the codes of this model are {module.latent_distribution!r}, a softmax of "
            "Gaussian ones, which no assay here knows. Train with latent_distribution='normal'."
        )
    size = float(np.log(_sizes(model)).mean())
    cells = _conditions(model)
    # The cells at hand may be of some batches only.
    batches = int(getattr(module, "n_batch", cells["batch"].max() + 1))
    covariates = [name for name in cells if name != "batch"]
    if batch is not None and (covariates or not 0 <= batch < batches):
        raise ConfigError(
            f"from_scvi: batch={batch}, but the model has {batches} batches (counted from 0) and "
            f"{len(covariates)} covariates. Choose one of the batches; a model with covariates "
            "needs those of each cell: leave batch out, and use scvi_cells(model)."
        )
    autoencoder: Autoencoder
    if batch is None and (batches > 1 or covariates):
        kinds = ["numbers" if name.startswith(NUMBERS) else "categories" for name in covariates]
        autoencoder = _Conditional(module, size, kinds)
    else:
        autoencoder = wrap(_Encoder(module, batch or 0), _Decoder(module, size, batch or 0))
    autoencoder.name = type(model).__name__
    return autoencoder


def scvi_cells(model: Any) -> Dataset:
    """The cells a model was set up with: counts, with batch and covariates as factors."""
    counts = _counts(model)
    counts = np.asarray(counts.toarray() if hasattr(counts, "toarray") else counts, np.float32)
    cells = _conditions(model)
    return from_arrays(
        counts,
        np.column_stack(list(cells.values())),
        name="cells",
        factor_names=tuple(name.rpartition(":")[2] for name in cells),
        factor_kinds=tuple(
            "continuous" if name.startswith(NUMBERS) else "categorical" for name in cells
        ),
    )


def _registered(model: Any, key: str) -> Any:
    """What the model was set up with under this key of its registry; None without."""
    manager = getattr(model, "adata_manager", None)
    if manager is None or key not in manager.data_registry:
        return None
    return manager.get_from_registry(key)


def _counts(model: Any) -> Any:
    """The counts the model was set up with, dense or sparse: a layer of the cells, or X."""
    counts = _registered(model, "X")
    return model.adata.X if counts is None else counts


def _sizes(model: Any) -> np.ndarray:
    """The library size of each cell: its size factor, if the model has them, or its counts."""
    factors = _registered(model, "size_factor")
    sizes = np.asarray(_counts(model).sum(axis=1) if factors is None else factors).ravel()
    return sizes if factors is not None else np.maximum(sizes, 1)


def _conditions(model: Any) -> dict[str, np.ndarray]:
    """Batch, categorical and continuous covariates of each cell, as the module takes them."""
    batch = _registered(model, "batch")
    columns = {
        "batch": np.zeros(model.adata.X.shape[0]) if batch is None else np.asarray(batch).ravel()
    }
    for key, word in ((CATEGORIES, "category"), (NUMBERS, "number")):
        table = _registered(model, key)
        if table is None:
            continue
        values = np.asarray(table)
        names = getattr(table, "columns", [f"{word} {k}" for k in range(values.shape[1])])
        columns |= {f"{key}:{name}": values[:, k] for k, name in enumerate(names)}
    return columns


class _Conditional(Autoencoder):
    """A model whose encoder and decoder take the batch and the covariates of each cell."""

    needs_auxiliary = True
    decodes_given = True

    def __init__(self, module: Any, size: float, kinds: list[str]) -> None:
        super().__init__()
        self.module, self.size, self.kinds = module, size, kinds
        self.latents = int(module.n_latent)

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        return _encode(self.module, x, **self._words(auxiliary, "encode"))

    def decode(self, z: Codes, auxiliary: Tensor | None = None) -> Tensor:
        return _decode(self.module, z, self.size, **self._words(auxiliary, "decode"))

    def _words(self, auxiliary: Tensor | None, who: str) -> dict[str, Tensor | None]:
        """The batch and the covariates as keywords of inference and generative."""
        columns = 1 + len(self.kinds)
        if auxiliary is None or auxiliary.shape[1] != columns:
            got = "none" if auxiliary is None else f"{auxiliary.shape[1]}"
            raise InterfaceError(
                f"scvi: {who} needs the batch and the covariates of each cell, {columns} columns, "
                f"and got {got}. Use the cells with theirs, scvi_cells(model); to decode codes "
                "alone, choose a batch: from_scvi(model, batch=0)."
            )
        covariates = {
            kind: [k for k, each in enumerate(self.kinds, 1) if each == kind]
            for kind in ("categories", "numbers")
        }
        some = {kind: auxiliary[:, places] for kind, places in covariates.items() if places}
        categories = some.get("categories")
        return {
            "batch_index": auxiliary[:, :1].long(),
            "cat_covs": None if categories is None else categories.long(),
            "cont_covs": some.get("numbers"),
        }


class _Encoder(nn.Module):
    def __init__(self, module: nn.Module, batch: int) -> None:
        super().__init__()
        self.module: Any = module
        self.batch = batch

    def forward(self, x: Tensor) -> Posterior:
        return _encode(self.module, x, batch_index=_indices(x, self.batch))


class _Decoder(nn.Module):
    def __init__(self, module: nn.Module, size: float, batch: int) -> None:
        super().__init__()
        self.module: Any = module
        self.size, self.batch = size, batch

    def forward(self, z: Tensor) -> Tensor:
        return _decode(self.module, z, self.size, batch_index=_indices(z, self.batch))


def _indices(rows: Tensor, batch: int) -> Tensor:
    """The number of the batch for each row; scvi takes whole numbers."""
    return rows.new_full((len(rows), 1), batch, dtype=torch.long)


def _encode(module: Any, x: Tensor, **conditions: Tensor | None) -> Posterior:
    # It also draws a code, which is not used: the global random state is restored.
    # Rounding may leave a decoded count slightly below 0, where log(1 + x) is undefined.
    with torch.random.fork_rng(devices=[]):
        posterior = module.inference(x.clamp_min(0), **conditions)["qz"]
    return Posterior(posterior.loc, posterior.scale)


def _decode(module: Any, z: Tensor, size: float, **conditions: Tensor | None) -> Tensor:
    library = z.new_full((len(z), 1), size)
    if getattr(module, "use_size_factor_key", False):
        conditions["size_factor"] = library
    law = module.generative(z=z, library=library, **conditions)["px"]
    # `mu` is without dropouts; likelihoods without dropouts have only the mean.
    x: Tensor = law.mu if hasattr(law, "mu") else law.mean
    return x
