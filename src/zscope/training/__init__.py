"""Training: `train` for one model, `train_ensemble` for several seeds of a small model."""

from zscope.training.config import TrainConfig, read_config
from zscope.training.ensemble import can_train_together, train_ensemble, train_together
from zscope.training.loop import train

__all__ = [
    "TrainConfig", "can_train_together", "read_config", "train", "train_ensemble",
    "train_together",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
