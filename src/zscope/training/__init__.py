"""Training: `train` for one model, `train_ensemble` for several seeds of a small model."""

from zscope.training.config import TrainConfig, read_config
from zscope.training.ensemble import train_ensemble
from zscope.training.loop import train

__all__ = ["TrainConfig", "read_config", "train", "train_ensemble"]


def __dir__() -> list[str]:
    return sorted(__all__)
