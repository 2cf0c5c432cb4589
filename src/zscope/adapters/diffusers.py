"""diffusers: the autoencoders of latent diffusion models, such as `AutoencoderKL`.

Their latents have channels and positions (4 x 64 x 64 in Stable Diffusion): zscope numbers
them one by one, channel by channel, so that with c channels and p positions

    groups = torch.arange(c * p).reshape(c, p).tolist()

makes each channel one variable. Their observations range from -1 to 1, those of zscope
from 0 to 1: `symmetric` converts both ways.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zscope import files
from zscope.adapters import MissingPackage, check_size
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import InterfaceError, ZscopeError
from zscope.wrapping import wrap

__all__ = ["from_diffusers"]


def from_diffusers(
    model: Any, *, symmetric: bool = True, prior: str | None = "auto"
) -> Autoencoder:
    """An autoencoder of diffusers, or the folder it was saved in.

    A folder is read from disk only: nothing is downloaded, and weights are safetensors.
    Use `symmetric=False` if your observations already range from -1 to 1.
    """
    if isinstance(model, str | Path):
        model = _read(Path(model))
    if not all(callable(getattr(model, name, None)) for name in ("encode", "decode")):
        raise InterfaceError(
            f"from_diffusers: a {type(model).__name__} has no encode and decode. Give the "
            "autoencoder of the pipeline: pipeline.vae"
        )
    autoencoder = wrap(_Encoder(model, symmetric), _Decoder(model, symmetric), prior=prior)
    autoencoder.name = type(model).__name__
    return autoencoder


def _read(folder: Path) -> Any:
    try:
        import diffusers
    except ImportError:
        raise MissingPackage(f"from_diffusers: {folder}", "diffusers") from None
    try:
        name = json.loads((folder / "config.json").read_bytes())["_class_name"]
        kind = getattr(diffusers, name)
        for file in folder.iterdir():
            files.require_regular(file, "from_diffusers", InterfaceError)
        check_size("from_diffusers", lambda: kind.from_config(kind.load_config(str(folder))))
        with torch.random.fork_rng(devices=[]):
            return kind.from_pretrained(
                str(folder), local_files_only=True, use_safetensors=True, low_cpu_mem_usage=False
            )
    except ZscopeError:
        raise
    except Exception as error:
        raise InterfaceError(
            f"from_diffusers: {folder} could not be read ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}). Save the model with "
            "model.save_pretrained(folder), weights as safetensors."
        ) from error


class _Encoder(nn.Module):
    def __init__(self, model: nn.Module, symmetric: bool) -> None:
        super().__init__()
        self.model: Any = model
        self.symmetric = symmetric

    def forward(self, x: Tensor) -> Any:
        output = self.model.encode(2 * x - 1 if self.symmetric else x)
        posterior = getattr(output, "latent_dist", None)
        if posterior is not None:
            mean, log_variance = posterior.mean, posterior.logvar
            return (mean, log_variance) if log_variance.shape == mean.shape else Posterior(mean)
        for name in ("latents", "latent"):
            if hasattr(output, name):
                return getattr(output, name)
        raise InterfaceError(
            f"from_diffusers: {type(self.model).__name__}.encode returned a "
            f"{type(output).__name__} without latents. Wrap it: zs.wrap(encoder, decoder)."
        )


class _Decoder(nn.Module):
    def __init__(self, model: nn.Module, symmetric: bool) -> None:
        super().__init__()
        self.model: Any = model
        self.symmetric = symmetric

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.model.decode(z).sample
        return (x + 1) / 2 if self.symmetric else x
