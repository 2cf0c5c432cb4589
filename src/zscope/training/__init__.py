"""Training: `train` for one model, `train_ensemble` for several seeds of a small model.

Functions are loaded when they are first used: the settings of a run need no torch.
"""

from typing import TYPE_CHECKING, Any

from zscope.lazy import load_attribute

if TYPE_CHECKING:
    from zscope.training.config import TrainConfig, read_config
    from zscope.training.ensemble import can_train_together, train_ensemble, train_together
    from zscope.training.loop import train

__all__ = [
    "TrainConfig",
    "can_train_together",
    "read_config",
    "train",
    "train_ensemble",
    "train_together",
]

_HOMES = {
    "TrainConfig": "config",
    "can_train_together": "ensemble",
    "read_config": "config",
    "train": "loop",
    "train_ensemble": "ensemble",
    "train_together": "ensemble",
}


def __getattr__(name: str) -> Any:
    return load_attribute(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
