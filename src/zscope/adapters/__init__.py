"""Adapters: models of other libraries, seen as an `Autoencoder`.

    zs.load(fitted_pca)                          scikit-learn: anything with inverse_transform
    zs.load(vae)                                 diffusers AutoencoderKL, pythae, scvi-tools
    zs.adapters.scvi_cells(model)                the cells of a scVI model, with their batches
    zs.load("saved_model_folder")                a folder saved by pythae or diffusers
    zs.load("encoder.onnx,decoder.onnx")         two ONNX files
    Trainer(callbacks=[zs.adapters.LatentMonitor(x)])      Lightning

`zs.load` and `zs.assay` recognise these objects; the functions `from_...` take options.
Each library is imported where it is used, and none is needed for the others. Everything
else is two callables: `zs.wrap(encoder, decoder)`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from zscope import files
from zscope.errors import InterfaceError, MissingExtra
from zscope.lazy import load_attribute

if TYPE_CHECKING:
    from zscope.autoencoder import Autoencoder

_HOMES = {
    "from_diffusers": "diffusers",
    "from_onnx": "onnx",
    "from_pythae": "pythae",
    "from_scvi": "scvi",
    "from_sklearn": "sklearn",
    "scvi_cells": "scvi",
    "LatentMonitor": "zscope.experiments.lightning",  # it measures, which no adapter does
}

__all__ = ["recognise", "recognise_folder"]
__all__ += list(_HOMES)


def __getattr__(name: str) -> Any:
    return load_attribute(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)


def recognise(target: Any) -> "Autoencoder | None":
    """An Autoencoder for an object of a library that has an adapter; None for anything else.

    No library is imported to find out: the module of an object's class names its library.
    """
    origins = {kind.__module__.partition(".")[0] for kind in type(target).__mro__}
    for library in ("diffusers", "pythae", "scvi"):
        if library in origins:
            return _adapt(f"from_{library}", target)
    transforms = all(callable(getattr(target, n, None)) for n in ("transform", "inverse_transform"))
    if transforms and not isinstance(target, nn.Module):
        return _adapt("from_sklearn", target)
    return None


def recognise_folder(folder: Path) -> "Autoencoder | None":
    """An Autoencoder for a folder in which pythae or diffusers saved a model."""
    if (folder / "model_config.json").is_file():
        return _adapt("from_pythae", folder)
    if (folder / "config.json").is_file():
        try:
            content = json.loads((folder / "config.json").read_bytes())
        except (ValueError, RecursionError, OSError) as error:
            raise InterfaceError(
                f"load: {folder / 'config.json'} cannot be read as JSON ({error}). Is it damaged? "
                "Save the model again."
            ) from error
        if isinstance(content, dict) and "_diffusers_version" in content:
            return _adapt("from_diffusers", folder)
    return None


def _adapt(adapter: str, target: Any) -> "Autoencoder":
    autoencoder: Autoencoder = __getattr__(adapter)(target)
    return autoencoder


class MissingPackage(MissingExtra):
    """An adapter needs the library it adapts."""

    def __init__(self, who: str, package: str):
        Exception.__init__(
            self,
            f"{who}: the package {package!r} is not installed, and its models cannot be used "
            f"without it. Install it with: pip install {package}",
        )


def check_size(who: str, build: Callable[[], nn.Module]) -> None:
    """Refuse a model that does not fit into memory, before its weights are allocated."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = build()
    needed = sum(tensor.nbytes for tensor in model.state_dict().values())
    files.check_memory(who, needed, f"a {type(model).__name__} of these sizes")
