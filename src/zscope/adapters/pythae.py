"""pythae: its models, and the folders they are saved in.

The encoder's `embedding` is the mean, its `log_covariance` the log-variances. Models whose
decoder does not take draws of a Gaussian posterior (on spheres, in hyperbolic space,
quantised, or transformed by flows) are refused.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zscope.adapters import MissingPackage, check_size
from zscope.adapters.weights import load_weights
from zscope.autoencoder import Autoencoder
from zscope.errors import InterfaceError, ZscopeError
from zscope.wrapping import wrap

__all__ = ["from_pythae"]

NOT_GAUSSIAN = {
    "SVAE": "lies on a sphere",
    "PoincareVAE": "lies in hyperbolic space",
    "VQVAE": "is quantised",
    "VAE_IAF": "is transformed by a flow before it is decoded",
    "VAE_LinNF": "is transformed by a flow before it is decoded",
    "HVAE": "is transformed by Hamiltonian steps before it is decoded",
    "RHVAE": "is transformed by Hamiltonian steps before it is decoded",
}


def from_pythae(model: Any) -> Autoencoder:
    """A pythae model, or the folder it was saved in.

    Only weights and settings are read from a folder. pythae saves custom networks as
    pickles, which run code when they are opened: such a folder is refused.
    """
    if isinstance(model, str | Path):
        model = _read(Path(model))
    name = type(model).__name__
    if name in NOT_GAUSSIAN:
        raise InterfaceError(
            f"from_pythae: the code of a {name} {NOT_GAUSSIAN[name]}, so the decoder does not take "
            "draws of a Gaussian posterior. Wrap the part you mean: zs.wrap(encoder, decoder)."
        )
    # The prior of a VAMP is a mixture of posteriors, not N(0, I).
    prior = None if name == "VAMP" else "auto"
    autoencoder = wrap(_Encoder(model.encoder), _Decoder(model.decoder), prior=prior)
    autoencoder.name = name
    return autoencoder


def _read(folder: Path) -> nn.Module:
    try:
        from pythae import models
        from pythae.models.auto_model import AutoConfig
    except ImportError:
        raise MissingPackage(f"from_pythae: {folder}", "pythae") from None
    pickles = sorted(file.name for file in folder.glob("*.pkl"))
    if pickles:
        raise InterfaceError(
            f"from_pythae: {folder} contains {' and '.join(pickles)}, pickles that run code when "
            "they are opened. If you trust them, open them yourself and pass the model: "
            "zs.load(AutoModel.load_from_folder(folder))"
        )
    file = folder / "model_config.json"
    try:
        name = str(json.loads(file.read_bytes())["name"])
        settings = AutoConfig.from_json_file(str(file))
        kind = getattr(models, name.removesuffix("Config").removesuffix("_"))
        check_size("from_pythae", lambda: kind(settings))
        with torch.random.fork_rng(devices=[]):  # initial weights, replaced below
            model: nn.Module = kind(settings)
    except ZscopeError:
        raise
    except Exception as error:
        raise InterfaceError(
            f"from_pythae: {file} does not describe a model that pythae can build "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]}). Was the folder "
            "written by model.save(folder)?"
        ) from error
    safe = folder / "model.safetensors"  # on the hub
    load_weights(model, safe if safe.is_file() else folder / "model.pt")
    return model.eval()


class _Encoder(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Any:
        output = self.encoder(x)
        mean, log_variance = output["embedding"], output.get("log_covariance")
        return mean if log_variance is None else (mean, log_variance)


class _Decoder(nn.Module):
    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.decoder(z)["reconstruction"]
        return x
