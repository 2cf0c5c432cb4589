"""The fields that describe a run of a sweep plan or of a study.

    OWN         what is trained, and on which data
    SETTINGS    how, as `zs.train` takes it

Every other word is an option of the model, "options.beta".
"""

from collections.abc import Mapping
from typing import Any

from zscope.training.config import TrainConfig

__all__ = ["OWN", "SETTINGS", "listed_fields"]

OWN = ("model", "data", "latents", "epochs", "split", "leave_out", "preset")
SETTINGS = tuple(k for k in TrainConfig.model_fields if k not in ("model", "data", "scaling"))


def listed_fields(fields: Mapping[str, Any]) -> str:
    """The fields as text: "model=vae, steps=100"."""
    return ", ".join(f"{key}={value}" for key, value in fields.items())
