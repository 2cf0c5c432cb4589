"""diffusers: the autoencoders of latent diffusion models, such as `AutoencoderKL`.

Their latents have channels and places (4 x 64 x 64 in Stable Diffusion), which `wrap` reads from
their shape (`autoencoder.layout`). What their configuration says about the scale of latents in
diffusion models (scaling_factor, shift_factor, latents_mean, latents_std) is
`autoencoder.latent_scaling`. Their observations range from -1 to 1, those of zscope from 0 to 1:
`symmetric` converts both ways.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zscope import files
from zscope.adapters import MissingPackage, check_size
from zscope.autoencoder import Autoencoder
from zscope.errors import InterfaceError, ZscopeError
from zscope.layout import LatentScaling
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
    autoencoder.latent_scaling = _scaling(getattr(model, "config", None))
    return autoencoder


def _scaling(config: Any) -> LatentScaling | None:
    """What the configuration of a model says about the scale of its latents, if anything."""

    def value(name: str) -> Any:
        return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)

    def number(name: str) -> float | None:
        return None if (given := value(name)) is None else float(given)

    def numbers(name: str) -> tuple[float, ...] | None:
        return None if (given := value(name)) is None else tuple(float(each) for each in given)

    try:
        scaling = LatentScaling(
            number("scaling_factor"),
            number("shift_factor"),
            numbers("latents_mean"),
            numbers("latents_std"),
        )
    except (TypeError, ValueError) as error:
        raise InterfaceError(
            f"from_diffusers: the configuration declares a scale of latents that cannot be read "
            f"({error}). Correct scaling_factor, shift_factor, latents_mean and latents_std."
        ) from None
    return scaling if scaling else None


def _read(folder: Path) -> Any:
    try:
        import diffusers
    except ImportError:
        raise MissingPackage(f"from_diffusers: {folder}", "diffusers") from None
    try:
        name = json.loads((folder / "config.json").read_bytes())["_class_name"]
        kind = getattr(diffusers, name)
        if diffusers.ModelMixin not in getattr(kind, "__mro__", ()):
            raise TypeError(f"{name} is not a model of diffusers")
        for file in folder.iterdir():
            if not file.is_dir():  # a repository may have other models below this one
                files.require_regular(file, "from_diffusers", InterfaceError)
        _check_parts(folder)
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


def _check_parts(folder: Path) -> None:
    """Refuse an index that names files elsewhere, or weights that are not safetensors."""
    for index in folder.glob("*.safetensors.index.json"):
        for name in set(json.loads(index.read_bytes())["weight_map"].values()):
            if Path(name).name != name or "\\" in name or not name.endswith(".safetensors"):
                raise ValueError(f"{index.name} names {name!r}, not a safetensors file beside it")


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
            return (mean, log_variance) if log_variance.shape == mean.shape else mean
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
