"""`zs.train` and `zs.train_ensemble`: training with the types of latents in the history.

The loop is in `zscope.training`, which measures nothing of its own.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from zscope import training
from zscope.monitor import regime

__all__ = ["train", "train_ensemble", "train_together"]

P = ParamSpec("P")
R = TypeVar("R")


def monitored(function: Callable[P, R]) -> Callable[P, R]:
    """The function with `regime` as its monitor, unless another is given."""

    @wraps(function)
    def call(*args: P.args, **settings: P.kwargs) -> R:
        settings.setdefault("monitor", regime)
        return function(*args, **settings)

    call.__module__ = __name__  # where pickle finds it
    return call


train = monitored(training.train)
train_ensemble = monitored(training.train_ensemble)
train_together = monitored(training.train_together)
