"""Several models of one architecture as one batched network (torch.func).

Each weight of the stack has an axis for the members; so have the batches, the noise and the
numbers, such as β, in which members differ. The numbers that all members share stay plain.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from zscope.autoencoder import Losses, Posterior, Trainable
from zscope.data.dataset import Dataset
from zscope.layout import Layout
from zscope.randomness import Shapes, Tape, normal, seed_of
from zscope.training.config import TrainConfig
from zscope.training.feeding import Feed, batch_rows
from zscope.training.loop import make_optimisers, update

__all__ = ["Noise", "Outputs", "Stack", "member_losses"]

# The sum to descend, the loss, its terms, and the mean and std of the posteriors.
Outputs = tuple[Tensor, Tensor, dict[str, Tensor], Any]


class _Forward(torch.nn.Module):
    """The module for `functional_call`: the losses of one member, as plain tensors."""

    def __init__(self, model: Trainable) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, draws: list[Tensor], extras: dict[str, Any]) -> Outputs:
        losses = self.model.losses(x, Tape(draws), **extras)
        posterior = losses.posterior
        parts = () if posterior is None else (posterior.mean, posterior.variance.sqrt())
        return losses.whole, losses.total, dict(losses.terms), parts


class Stack:
    """The stacked weights of all members, with their optimisers.

    `models` and `alone`, an optimiser for each of them, are for files: `hand_out` gives each
    member its weights and its state of the optimiser; `take_in` takes the weights of all, and
    the states of those that are `given`.

    `weights`, those that the optimisers see, have their matrices turned, inputs x outputs: so a
    batched product gives the gradients of linear layers, which would otherwise be copied at every
    step. The modules are given `parameters`, the same weights turned back.
    """

    def __init__(
        self,
        models: Sequence[Trainable],
        dataset: Dataset,
        configs: Sequence[TrainConfig],
        device: torch.device,
    ) -> None:
        self.models, self.dataset, self.configs, self.device = models, dataset, configs, device
        first, self.config = models[0], configs[0]
        self.feed = Feed(first, dataset, device)
        self.noise = Noise(first, *self.feed.at(self.config, 0), [own.seed for own in configs])
        parameters, self.buffers = stack_module_state([_Forward(model) for model in models])
        self.weights = {
            name.removeprefix("model."): _stored(stack) for name, stack in parameters.items()
        }
        self.optimisers = make_optimisers(first, self.config, self.weights)
        self.alone = [make_optimisers(model, self.config) for model in models]
        self.numbers = {
            key: torch.tensor([model.numbers[key] for model in models], dtype=first.place[1])
            for key in first.numbers
            if len({model.numbers[key] for model in models}) > 1
        }
        self.numbers = {key: values.to(device) for key, values in self.numbers.items()}
        self.skeleton = _Forward(copy.deepcopy(first).to("meta"))
        # Always with the first batch and the first weights: a resumed ensemble must choose the
        # same operations as one that was never stopped.
        self.plain = self._trace()

    def losses(self, step: int) -> Outputs:
        arguments, constants = self._arguments(step)
        return (self.plain or self._together(constants))(self.parameters, *arguments)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The stacked weights by the names and in the shapes that the modules know."""
        return {f"model.{name}": _turned(stack) for name, stack in self.weights.items()}

    def update(self, outputs: Outputs, step: int) -> None:
        update(self.optimisers, outputs[0].sum(), self.config, step, clip_each)

    @torch.no_grad()
    def hand_out(self) -> None:
        for member, (model, alone) in enumerate(zip(self.models, self.alone, strict=True)):
            for name, parameter in model.named_parameters():
                parameter.copy_(_turned(self.weights[name])[member])
            for role, optimiser in self.optimisers.items():
                for stack, own in zip(_tensors(optimiser), _tensors(alone[role]), strict=True):
                    alone[role].state[own] = {
                        key: value if key == "step" else _turned(value)[member]
                        for key, value in optimiser.state[stack].items()
                    }

    @torch.no_grad()
    def take_in(self, given: Sequence[int]) -> None:
        members = [dict(model.named_parameters()) for model in self.models]
        for name, stack in self.weights.items():
            stack.copy_(_turned(torch.stack([own[name] for own in members])))
        for role, optimiser in self.optimisers.items():
            # What a member without a state of its own gets does not matter, only its shape.
            alone = [self.alone[k if k in given else given[0]][role] for k in range(len(members))]
            places = zip(*(_tensors(own) for own in alone), strict=True)
            for stack, parameters in zip(_tensors(optimiser), places, strict=True):
                states = [own.state[p] for own, p in zip(alone, parameters, strict=True)]
                optimiser.state[stack] = {
                    key: value if key == "step" else _like(stack, [own[key] for own in states])
                    for key, value in states[0].items()
                }

    def _arguments(self, step: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What `_together` takes besides the weights, and the keywords that all members share."""
        rows = [batch_rows(own, len(self.dataset), step) for own in self.configs]
        x = self.dataset.batch(np.concatenate(rows), self.device).to(self.feed.dtype)
        x = x.reshape(len(rows), self.config.batch, *x.shape[1:])
        each = [self.feed.extras(own, step, r) for own, r in zip(self.configs, rows, strict=True)]
        constants = {key: v for key, v in each[0].items() if not isinstance(v, Tensor)}
        tensors = {k: torch.stack([e[k] for e in each]) for k in each[0] if k not in constants}
        return (self.buffers, x, self.noise.at(step), tensors, self.numbers), constants

    def _together(self, constants: dict[str, Any]) -> Callable[..., Outputs]:
        def member(
            weights: Any, buffers: Any, x: Tensor, draws: Any, extras: Any, numbers: Any
        ) -> Outputs:
            extras = {**extras, **constants, **({"numbers": numbers} if numbers else {})}
            arguments = (x, draws, extras)
            outputs: Outputs = functional_call(self.skeleton, (weights, buffers), arguments)
            return outputs

        return vmap(member)

    def _trace(self) -> Callable[..., Outputs] | None:
        """The losses as plain batched operations; None if they cannot be traced.

        For a network of a few units, functional_call and vmap would take longer at every step
        than the arithmetic.
        """
        arguments, constants = self._arguments(0)
        # A trace would fix what changes from step to step. It would also mix up the gradients
        # of rivals with those of the rest.
        if "step" in constants or len(self.optimisers) > 1:
            return None
        from torch.fx.experimental.proxy_tensor import make_fx  # slow to load

        together = self._together(constants)
        detached = {name: stack.detach() for name, stack in self.parameters.items()}
        plain: Callable[..., Outputs] = make_fx(together)(detached, *arguments)
        # A trace may drop a detach: it is used only if its gradients are the true ones.
        trained = [stack for stack in self.weights.values() if stack.requires_grad]
        gradients = [
            torch.autograd.grad(
                run(self.parameters, *arguments)[0].sum(), trained, allow_unused=True
            )
            for run in (plain, together)
        ]
        return plain if all(map(_close, *gradients)) else None


class Noise:
    """The noise of every member at every step, as in a run of its own."""

    def __init__(
        self, model: Trainable, x: Tensor, extras: dict[str, Any], seeds: Sequence[int]
    ) -> None:
        shapes = Shapes()
        with torch.no_grad():
            model.losses(x, shapes, **extras)
        self._shapes, self._seeds = shapes.draws, seeds
        self._generator = torch.Generator(x.device)

    def at(self, step: int) -> list[Tensor]:
        noise: list[list[Tensor]] = [[] for _ in self._shapes]
        for seed in self._seeds:
            self._generator.manual_seed(seed_of(seed, step, 0))
            for place, like in enumerate(self._shapes):
                noise[place].append(normal(like, self._generator))
        return [torch.stack(draws) for draws in noise]


def member_losses(outputs: Outputs, member: int, layout: Layout | None = None) -> Losses:
    _, totals, terms, posteriors = outputs
    parts = [part[member] for part in posteriors]
    posterior = Posterior(*parts, layout=layout) if parts else None
    return Losses(totals[member], {name: term[member] for name, term in terms.items()}, posterior)


def clip_each(parameters: list[Tensor], largest: float) -> None:
    """Clip the gradient of every member by its own norm, as in a run of its own."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = [gradient.reshape(len(gradient), -1).square().sum(1) for gradient in gradients]
    norms = torch.stack(squares).sum(0).sqrt()
    factors = (largest / (norms + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(factors.reshape(-1, *[1] * (gradient.ndim - 1)))


def _turned(stack: Tensor) -> Tensor:
    """Stacked matrices with their inputs first, or the other way round; anything else as it is."""
    return stack.mT if stack.ndim == 3 else stack


def _stored(stack: Tensor) -> Tensor:
    """Stacked weights as they are stored; kernels keep their memory format."""
    if stack.ndim != 3:
        return stack
    return stack.detach().mT.contiguous().requires_grad_(stack.requires_grad)


def _like(stack: Tensor, states: list[Tensor]) -> Tensor:
    """The states of all members, stacked in the memory order of the weights.

    A fused optimiser goes through weights and states in the order of their memory.
    """
    return torch.empty_like(stack, requires_grad=False).copy_(_turned(torch.stack(states)))


def _tensors(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    return [tensor for group in optimiser.param_groups for tensor in group["params"]]


def _close(first: Tensor | None, second: Tensor | None) -> bool:
    """Whether two gradients are equal up to rounding."""
    if first is None or second is None:
        return first is second
    return bool((first - second).norm() <= 1e-4 * second.norm())
