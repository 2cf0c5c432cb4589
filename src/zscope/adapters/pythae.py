"""pythae: its models, and the folders they are saved in.

The encoder's `embedding` is the mean, its `log_covariance` the log-variances. Models whose
posterior is not a Gaussian that the decoder reads directly (on spheres, in hyperbolic
space, quantised, or moved by flows) are refused.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zscope.adapters import MissingPackage
from zscope.autoencoder import Autoencoder
from zscope.errors import InterfaceError
from zscope.wrapping import wrap

OTHERWISE = {
    "SVAE": "lies on a sphere",
    "PoincareVAE": "lies in hyperbolic space",
    "VQVAE": "is quantised",
    "VAE_IAF": "is moved by a flow before it is decoded",
    "VAE_LinNF": "is moved by a flow before it is decoded",
    "HVAE": "is moved by Hamiltonian steps before it is decoded",
    "RHVAE": "is moved by Hamiltonian steps before it is decoded",
}


def from_pythae(model: Any) -> Autoencoder:
    """A pythae model, or the folder it was saved in.

    Of a folder only numbers and settings are read. Networks of your own are saved by pythae
    as pickles, which run code when they are opened: such a folder is refused.
    """
    if isinstance(model, str | Path):
        model = _read(Path(model))
    name = type(model).__name__
    if name in OTHERWISE:
        raise InterfaceError(
            f"from_pythae: the code of a {name} {OTHERWISE[name]}, so it is no Gaussian posterior "
            "of latents that the decoder reads. Wrap the part you mean: zs.wrap(encoder, decoder)."
        )
    # The prior of a VAMP is a mixture of posteriors, not N(0, I).
    prior = None if name == "VAMP" else "auto"
    autoencoder = wrap(_Encoder(model.encoder), _Decoder(model.decoder), prior=prior)
    autoencoder.name = name
    return autoencoder


def _read(folder: Path) -> nn.Module:
    try:
        import pythae  # noqa: F401
    except ImportError:
        raise MissingPackage(f"from_pythae: {folder}", "pythae") from None
    from pythae import models
    from pythae.models.auto_model import AutoConfig

    from zscope.loading import load_weights

    pickles = sorted(file.name for file in folder.glob("*.pkl"))
    if pickles:
        raise InterfaceError(
            f"from_pythae: {folder} holds {' and '.join(pickles)}, pickles that run code when they "
            "are opened. If you trust them, open them yourself and hand over the model: "
            "zs.load(AutoModel.load_from_folder(folder))"
        )
    file = folder / "model_config.json"
    try:
        name = str(json.loads(file.read_bytes())["name"])
        settings = AutoConfig.from_json_file(str(file))
        kind = getattr(models, name.removesuffix("Config").removesuffix("_"))
        with torch.random.fork_rng(devices=[]):  # first weights, replaced below
            model = kind(settings)
    except Exception as error:
        raise InterfaceError(
            f"from_pythae: {file} does not describe a model that pythae can build "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]}). Was the folder "
            "written by model.save(folder)?"
        ) from error
    load_weights(model, folder / "model.pt")
    return model.eval()


class _Encoder(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Any:
        found = self.encoder(x)
        spread = found.get("log_covariance")
        return found["embedding"] if spread is None else (found["embedding"], spread)


class _Decoder(nn.Module):
    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, z: Tensor) -> Tensor:
        return self.decoder(z)["reconstruction"]
