"""Adapters: models of other libraries, seen as an `Autoencoder`.

    zs.load(fitted_pca)                          scikit-learn: anything with inverse_transform
    zs.load(vae)                                 diffusers AutoencoderKL, pythae, scvi-tools
    zs.load("saved_model_folder")                a folder saved by pythae or diffusers
    zs.load("encoder.onnx,decoder.onnx")         two ONNX files
    Trainer(callbacks=[zs.adapters.LatentMonitor(x)])      Lightning

`zs.load` and `zs.assay` recognise these objects; the functions `from_...` take options.
Each library is imported where it is used, and none is needed for the others. Everything
else is two callables: `zs.wrap(encoder, decoder)`.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from zscope.errors import InterfaceError, MissingExtra

if TYPE_CHECKING:
    from zscope.autoencoder import Autoencoder

_HOMES = {
    "from_diffusers": "diffusers",
    "from_onnx": "onnx",
    "from_pythae": "pythae",
    "from_scvi": "scvi",
    "from_sklearn": "sklearn",
    "LatentMonitor": "lightning",
}

__all__ = ["recognise", "recognise_folder"]
__all__ += list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zscope.adapters' has no attribute {name!r}")
    value = getattr(import_module(f"zscope.adapters.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def recognise(target: Any) -> "Autoencoder | None":
    """An Autoencoder of an object of a library that is known here; None for anything else.

    No library is imported to find out: an object tells where its class comes from.
    """
    origins = {kind.__module__.partition(".")[0] for kind in type(target).__mro__}
    for library in ("diffusers", "pythae", "scvi"):
        if library in origins:
            return __getattr__(f"from_{library}")(target)
    transforms = all(callable(getattr(target, n, None)) for n in ("transform", "inverse_transform"))
    if transforms and not isinstance(target, nn.Module):
        return __getattr__("from_sklearn")(target)
    return None


def recognise_folder(folder: Path) -> "Autoencoder | None":
    """An Autoencoder of a folder in which pythae or diffusers saved a model."""
    if (folder / "model_config.json").is_file():
        return __getattr__("from_pythae")(folder)
    if (folder / "config.json").is_file():
        try:
            content = json.loads((folder / "config.json").read_bytes())
        except ValueError:
            return None
        if isinstance(content, dict) and "_diffusers_version" in content:
            return __getattr__("from_diffusers")(folder)
    return None


class MissingPackage(MissingExtra):
    """An adapter needs the library it adapts."""

    def __init__(self, who: str, package: str):
        Exception.__init__(
            self,
            f"{who}: the package {package!r} is not installed, and models of its kind cannot be "
            f"used without it. Install it with: pip install {package}",
        )


def array_of(tensor: Tensor, who: str) -> np.ndarray:
    """The numbers of a tensor, for a library that knows no gradients."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or (
        torch.is_grad_enabled() and tensor.requires_grad
    ):
        raise InterfaceError(
            f"{who}: a gradient was asked for, and none can be taken through a model that is not "
            "made of torch. Assays that need gradients do not apply to it; all others do."
        )
    return tensor.detach().cpu().numpy()
