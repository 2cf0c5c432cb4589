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
from zscope.errors import InterfaceError
from zscope.layout import Layout
from zscope.randomness import Shapes, Tape, normal
from zscope.seeds import seed_of
from zscope.training.config import TrainConfig
from zscope.training.feeding import Feed, batch_rows
from zscope.training.loop import advance, backward, make_optimisers
from zscope.training.tracing import trace

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
        # The largest rate: the others take a part of its steps, which cannot enlarge rounding.
        first, self.config = models[0], max(configs, key=lambda own: own.rate)
        self.feed = Feed(first, dataset, device)
        batch = self.feed.at(self.config, 0)
        self.noise = Noise(first, *batch, [own.seed for own in configs])
        refuse_counting(first, *batch)
        parameters, self.buffers = stack_module_state([_Forward(model) for model in models])
        self.weights = {
            name.removeprefix("model."): _stored(stack) for name, stack in parameters.items()
        }
        self.optimisers = make_optimisers(first, self.config, self.weights)
        self.alone = [make_optimisers(*pair) for pair in zip(models, configs, strict=True)]
        self.numbers = {
            key: torch.tensor([model.numbers[key] for model in models], dtype=first.place[1])
            for key in first.numbers
            if len({model.numbers[key] for model in models}) > 1
        }
        self.numbers = {key: values.to(device) for key, values in self.numbers.items()}
        shares = [own.rate / self.config.rate for own in configs]
        differ = min(shares) < 1
        self.shares = torch.tensor(shares, dtype=first.place[1]).to(device) if differ else None
        self.skeleton = _Forward(copy.deepcopy(first).to("meta"))
        # Always with the first batch and the first weights: a resumed ensemble must choose the
        # same operations as one that was never stopped.
        self.plain = self._trace()

    def losses(self, step: int) -> Outputs:
        arguments, constants = self._arguments(step)
        if self.plain is None:
            return self._together(constants)(self.parameters, *arguments)
        outputs, self.gradients = self.plain(*arguments)
        return outputs

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The stacked weights by the names and in the shapes that the modules know."""
        return _named(self.weights)

    def update(self, outputs: Outputs, step: int) -> None:
        if self.plain is None:
            backward(self.optimisers, outputs[0].sum())
        else:
            for name, gradient in self.gradients.items():
                weights = self.weights[name]
                ordered = gradient.stride() == weights.stride()
                weights.grad = gradient if ordered else _like(weights, gradient)
        main = [] if self.shares is None else _tensors(self.optimisers["main"])
        before = [stack.detach().clone() for stack in main]
        advance(self.optimisers, self.config, step, clip_each)
        if self.shares is not None:
            self._shorten(main, before, self.shares)

    @torch.no_grad()
    def _shorten(self, stacks: list[Tensor], before: list[Tensor], shares: Tensor) -> None:
        """Take of the last step of each member the share that belongs to its own rate.

        A step of Adam or Adagrad is the rate times a direction in which the rate has no part.
        """
        for stack, start in zip(stacks, before, strict=True):
            share = shares.reshape(-1, *[1] * (stack.ndim - 1))
            stack.copy_(torch.lerp(start, stack, share))

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
                    key: value
                    if key == "step"
                    else _like(stack, _turned(torch.stack([own[key] for own in states])))
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

    def _trace(self) -> Callable[..., tuple[Outputs, dict[str, Tensor]]] | None:
        """The losses and their gradients as plain operations; None if they cannot be traced.

        For a network of a few units, functional_call, vmap and autograd would take longer at
        every step than the arithmetic.
        """
        arguments, constants = self._arguments(0)
        # A trace would fix what changes from step to step.
        if "step" in constants:
            return None
        together = self._together(constants)
        trained = {name: stack for name, stack in self.weights.items() if stack.requires_grad}
        outputs = together(self.parameters, *arguments)
        expected = {
            name: gradient
            for name, gradient in zip(trained, _gradients(outputs, trained), strict=True)
            if gradient is not None
        }
        names, keys = list(self.weights), list(outputs[2])

        def whole(weights: dict[str, Tensor], others: dict[str, Tensor], *rest: Any) -> Any:
            results = together(_named({name: {**weights, **others}[name] for name in names}), *rest)
            return results[0].sum(), results

        def flat(*tensors: Tensor) -> list[Tensor]:
            weights = dict(zip(names, tensors, strict=False))
            rest = _unflatten(arguments, tensors[len(names) :])
            own = {name: weights.pop(name) for name in expected}
            gradients, results = torch.func.grad(whole, has_aux=True)(own, weights, *rest)
            total, losses, terms, posterior = results
            return [*gradients.values(), total, losses, *terms.values(), *posterior]

        weights = [stack.detach() for stack in self.weights.values()]  # which optimisers change
        try:
            operations = trace(flat, [*weights, *_flatten(arguments)])
        except Exception:  # an operation that cannot be recorded; the losses have been computed
            return None

        @torch.no_grad()
        def plain(*arguments: Any) -> tuple[Outputs, dict[str, Tensor]]:
            results = operations(*weights, *_flatten(arguments))
            gradients = dict(zip(expected, results, strict=False))
            total, losses, *others = results[len(expected) :]
            terms = dict(zip(keys, others, strict=False))
            return (total, losses, terms, tuple(others[len(keys) :])), gradients

        gradients = plain(*arguments)[1]
        same = all(map(_close, gradients.values(), expected.values()))
        return plain if same else None


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
    gradients = {p: p.grad for p in parameters if p.grad is not None}
    squares = [gradient.reshape(len(p), -1).square().sum(1) for p, gradient in gradients.items()]
    norms = torch.stack(squares).sum(0).sqrt()
    factors = (largest / (norms + 1e-6)).clamp(max=1)
    for p, gradient in gradients.items():
        # Not in place: in a trace two weights may have the same tensor as their gradient.
        p.grad = gradient * factors.reshape(-1, *[1] * (p.ndim - 1))


def refuse_counting(model: Trainable, x: Tensor, extras: dict[str, Any]) -> None:
    """Refuse a model whose losses change when they are computed again, for it counts its steps."""
    before = _plain_numbers(model)
    with torch.no_grad():
        model.losses(x, Shapes(), **extras)
    now = _plain_numbers(model)
    if changed := [key for key in now if repr(now[key]) != repr(before.get(key))]:
        raise InterfaceError(
            f"train_ensemble: the losses of the model change its attribute {changed[0]} at every "
            f"call (from {before.get(changed[0])!r} to {now[changed[0]]!r}), which the members of "
            "an ensemble would share. Take `step` as an argument of losses, or train one by one."
        )


def _plain_numbers(model: Trainable) -> dict[str, Any]:
    """The numbers that modules have as plain attributes, such as a count of their calls."""
    return {
        f"{place}.{key}".strip("."): value
        for place, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, int | float)
    }


def _gradients(outputs: Outputs, weights: dict[str, Tensor]) -> Sequence[Tensor | None]:
    return torch.autograd.grad(outputs[0].sum(), list(weights.values()), allow_unused=True)


def _named(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"model.{name}": _turned(stack) for name, stack in weights.items()}


def _flatten(arguments: tuple[Any, ...]) -> list[Tensor]:
    """All tensors of `Stack._arguments`, in order."""
    buffers, x, draws, extras, numbers = arguments
    return [*buffers.values(), x, *draws, *extras.values(), *numbers.values()]


def _unflatten(like: tuple[Any, ...], tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    buffers, _, draws, extras, numbers = like
    left = iter(tensors)
    return (
        {key: next(left) for key in buffers},
        next(left),
        [next(left) for _ in draws],
        {key: next(left) for key in extras},
        {key: next(left) for key in numbers},
    )


def _turned(stack: Tensor) -> Tensor:
    """Stacked matrices with their inputs first, or the other way round; anything else as it is."""
    return stack.mT if stack.ndim == 3 else stack


def _stored(stack: Tensor) -> Tensor:
    """Stacked weights as they are stored; kernels keep their memory format."""
    if stack.ndim != 3:
        return stack
    return stack.detach().mT.contiguous().requires_grad_(stack.requires_grad)


def _like(stack: Tensor, numbers: Tensor) -> Tensor:
    """The same numbers in the memory order of the weights.

    A fused optimiser goes through weights, gradients and states in the order of their memory.
    """
    return torch.empty_like(stack, requires_grad=False).copy_(numbers)


def _tensors(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    return [tensor for group in optimiser.param_groups for tensor in group["params"]]


def _close(first: Tensor, second: Tensor) -> bool:
    """Whether two gradients are equal up to rounding."""
    return bool((first - second).norm() <= 1e-4 * second.norm())
