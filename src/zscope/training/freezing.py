"""Training with one half of a model frozen: `freeze="encoder"` or `freeze="decoder"`.

The parameters of the frozen half get no gradients and are not given to the optimiser. The half is
kept in evaluation mode, so that batch norm uses its running statistics and does not change them:
parameters and buffers are the same bits after training as before.

What a half is, the model says (`Trainable.halves`): the causal block and a learned variance of the
likelihood belong to the decoder. What belongs to neither half, as a discriminator or a prior that
depends on the factors, is trained in any case.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from zscope.autoencoder import Trainable
from zscope.errors import ConfigError
from zscope.training.config import Half

__all__ = ["frozen", "set_training_mode"]


@contextmanager
def frozen(model: Trainable, half: Half | None) -> Iterator[None]:
    """Keep the parameters of a half out of training; afterwards they can be trained again."""
    parameters = [] if half is None else _parameters_to_freeze(model, half)
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def set_training_mode(model: Trainable, half: Half | None) -> Trainable:
    """The model in training mode, but for its frozen half."""
    model.train()
    if half is not None:
        for module in model.halves[half]:
            module.eval()
    return model


def _parameters_to_freeze(model: Trainable, half: Half) -> list[nn.Parameter]:
    """The trainable parameters of a half; ConfigError if freezing it makes no sense."""
    other: Half = "decoder" if half == "encoder" else "encoder"
    parts = {name: _parameters(modules) for name, modules in model.halves.items()}
    for name in (half, other):
        if not any(p.requires_grad for p in parts.get(name, {}).values()):
            raise ConfigError(
                f"train: freeze={half!r}, but {model.title} has no {name} with weights that can "
                f"be trained, so there is nothing to {'freeze' if name == half else 'train'}. "
                "Leave freeze out; a model of your own says what its halves are by `halves`."
            )
    shared = parts[half].keys() & parts[other].keys()
    if shared:
        raise ConfigError(
            f"train: freeze={half!r}, but {len(shared)} of the {len(parts[half])} weights of the "
            f"encoder and the decoder of {model.title} are the same tensors. Shared weights "
            "cannot be frozen in one half and trained in the other: leave freeze out."
        )
    return [parameter for parameter in parts[half].values() if parameter.requires_grad]


def _parameters(modules: tuple[nn.Module, ...]) -> dict[int, torch.nn.Parameter]:
    return {id(parameter): parameter for module in modules for parameter in module.parameters()}
