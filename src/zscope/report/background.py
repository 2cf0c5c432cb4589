"""How to reproduce a report: command, seed, model, data and versions."""

import platform
from typing import Any

import numpy as np
import torch

from zscope import __version__
from zscope.recording import Recording
from zscope.results import plain

__all__ = ["background"]

MANY = 100
"""Features whose scaling is listed."""


def background(
    recording: Recording,
    name: str,
    resamples: int,
    command: str,
    config: dict[str, Any] | None,
) -> dict[str, Any]:
    """Command, seed, model, data and versions, as plain values."""
    model, data, factors = recording.model, recording.dataset, recording.factors
    return {
        "command": command,
        "seed": recording.seed,
        "resamples": resamples,
        "model": {
            "name": name,
            "latents": recording.latents,
            "prior": None if model is None else model.prior,
            "posterior": "point" if recording.posterior.deterministic else "Gaussian",
            **_layout(recording),
            "parameters": 0 if model is None else sum(p.numel() for p in model.parameters()),
        },
        "data": {
            "name": "codes" if data is None else data.name,
            "shape": [] if data is None else list(data.shape),
            "encoded": len(recording),
            **({"features": list(names)} if (names := recording.feature_names) else {}),
            "factors": [] if factors is None else list(factors.names),
            "kinds of factors": [] if factors is None else list(factors.kinds),
            **({"recipe": plain(data.recipe)} if data is not None and data.recipe else {}),
        },
        **({"config": plain(_shorten(config))} if config else {}),
        "versions": {
            "zscope": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "system": f"{platform.system()} {platform.machine()}",
        },
    }


def _layout(recording: Recording) -> dict[str, Any]:
    """Channels and places of latents that are maps, and how the model declares to scale them."""
    layout, model = recording.layout, recording.model
    if layout is None:
        return {}
    scaling = None if model is None else model.latent_scaling
    declared = {} if scaling is None else plain(vars(scaling))
    return {
        "layout": list(layout.shape),
        "axes": ["channels", *layout.names],
        **({"layout_note": model.layout_note} if model is not None and model.layout_note else {}),
        **({"scaling": {k: v for k, v in declared.items() if v is not None}} if declared else {}),
        "pictures": recording.map_summary.pictures,
    }


def _shorten(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration, with the means and scales of many features only counted."""
    scaling = config.get("scaling")
    if scaling is None or len(scaling["mean"]) <= MANY:
        return config
    return {**config, "scaling": f"of {len(scaling['mean']):,} features, see run.json"}
