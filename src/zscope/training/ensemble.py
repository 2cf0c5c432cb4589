"""Several seeds of one small model, trained together.

With a small network most time is overhead. Stacking the weights of k models and running
them as one batched network (torch.func) does the work of k runs in the time of two or
three. Each member gets the same batches and the same noise as in a run of its own: its
losses are those of `train` with its seed, up to floating-point rounding.
"""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from zscope import store
from zscope.autoencoder import Autoencoder, Losses, Posterior, Trainable
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError, InterfaceError, RunError
from zscope.files import lock
from zscope.randomness import Shapes, Tape, normal, seed_of
from zscope.training.checks import check_finite, check_first_batch, check_weights
from zscope.training.config import TrainConfig
from zscope.training.feeding import Feed, batch_rows
from zscope.training.keeping import History, begin
from zscope.training.loop import (
    Measure,
    configure,
    describe,
    make_optimisers,
    pick_device,
    trainable,
    update,
    watch_interrupts,
)
from zscope.training.progress import show

__all__ = ["Noise", "train_ensemble"]

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


def train_ensemble(
    build: Callable[[int], Autoencoder],
    data: Any,
    *,
    seeds: Sequence[int],
    steps: int | None = None,
    epochs: float | None = None,
    batch: int | None = None,
    rate: float | None = None,
    preset: str | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    monitor: Measure | None = None,
    **settings: Any,
) -> list[store.Run]:
    """Train `build(seed)` for every seed, all at once; returns one run for each.

    The models must have the same architecture and no running statistics (batch norm).
    `monitor` and `settings` are those of `train`. With `out`, each run is written to out/seed-N
    when it has finished; an interrupted ensemble cannot be resumed, only started again.
    """
    listed = list(seeds) if isinstance(seeds, Iterable) else []
    if not listed or len(set(listed)) < len(listed):
        raise ConfigError(
            f"train_ensemble: seeds={seeds!r}; expected at least one seed, without repeats, for "
            "instance seeds=range(5)."
        )
    seeds = listed
    if settings.get("devices", 1) != 1:
        raise ConfigError("train_ensemble: an ensemble trains on one device; leave devices out.")
    dataset = as_dataset(data)
    models = [trainable(build(seed)) for seed in seeds]
    configs = [
        configure(model, dataset, steps, epochs, batch, rate, seed, dict(settings), preset)
        for model, seed in zip(models, seeds, strict=True)
    ]
    check_same_architecture(models)
    paths = [None if out is None else Path(out) / f"seed-{seed}" for seed in seeds]
    with ExitStack() as locks:
        for path in [path for path in paths if path is not None]:
            locks.enter_context(lock(path, "train_ensemble"))
        return _train_together(models, dataset, configs, paths, progress, monitor)


def _train_together(
    models: list[Trainable],
    dataset: Dataset,
    configs: list[TrainConfig],
    paths: list[Path | None],
    progress: bool | None,
    monitor: Measure | None,
) -> list[store.Run]:
    config, seeds = configs[0], [own.seed for own in configs]
    dataset = dataset.in_units(config.scaling)
    device, dtype = pick_device(config, 0), models[0].place[1]
    models = [model.to(device).train() for model in models]
    for model in models:
        model.scaling = config.scaling
        check_first_batch(model, dataset, config, device)
    feed = Feed(models[0], dataset, device)
    check_no_runs([path for path in paths if path is not None and store.is_run(path)])
    runs = [begin(path, own, resume=False) for path, own in zip(paths, configs, strict=True)]
    histories = [History(run, 0) for run in runs]
    for run in runs:
        run.save()

    parameters, buffers = stack_module_state([_Forward(model) for model in models])
    skeleton = _Forward(copy.deepcopy(models[0]).to("meta"))
    weights = {name.removeprefix("model."): stack for name, stack in parameters.items()}
    traced: list[Any] = []
    optimisers = make_optimisers(models[0], config, weights)
    noise = Noise(models[0], *feed.at(config, 0), seeds)

    def losses_at(step: int) -> Outputs:
        rows = [batch_rows(own, len(dataset), step) for own in configs]
        x = dataset.batch(np.concatenate(rows), device).to(dtype)
        x = x.reshape(len(seeds), config.batch, *x.shape[1:])
        each = [feed.extras(own, step, r) for own, r in zip(configs, rows, strict=True)]
        numbers = {key: v for key, v in each[0].items() if not isinstance(v, Tensor)}
        tensors = {k: torch.stack([e[k] for e in each]) for k in each[0] if k not in numbers}

        def member(own: Any, constants: Any, x: Tensor, draws: Any, extras: Any) -> Outputs:
            arguments = (x, draws, {**extras, **numbers})
            outputs: Outputs = functional_call(skeleton, (own, constants), arguments)
            return outputs

        together = vmap(member)
        arguments = (parameters, buffers, x, noise.at(step), tensors)
        # A trace would fix numbers that change from step to step. It would also mix up the
        # gradients of rivals with those of the rest.
        if numbers or len(optimisers) > 1:
            return together(*arguments)
        # Traced once into plain batched operations: for a network of a few units,
        # functional_call and vmap would take longer at every step than the arithmetic.
        if not traced:
            from torch.fx.experimental.proxy_tensor import make_fx  # slow to load

            detached = {name: stack.detach() for name, stack in parameters.items()}
            plain = make_fx(together)(detached, *arguments[1:])
            # A trace may drop a detach: it is used only if its gradients are the true ones.
            trained = [stack for stack in parameters.values() if stack.requires_grad]
            gradients = [
                torch.autograd.grad(run(*arguments)[0].sum(), trained, allow_unused=True)
                for run in (plain, together)
            ]
            same = all(
                a is b or (a is not None and b is not None and torch.allclose(a, b, rtol=1e-4))
                for a, b in zip(*gradients, strict=True)
            )
            traced.append(plain if same else together)
        outputs: Outputs = traced[0](*arguments)
        return outputs

    def log(step: int, outputs: Outputs) -> None:
        for member, history in enumerate(histories):
            row = describe(member_losses(outputs, member), step, config, monitor)
            history.add(row)
            if member == 0:
                bar.update(step, row)

    def check_losses(step: int, outputs: Outputs) -> None:
        totals = outputs[1]
        if not math.isfinite(totals.sum().item()):
            # A sum of finite losses may overflow, and then none of them is broken.
            for member in (~totals.isfinite()).nonzero()[:1, 0].tolist():
                check_finite(member_losses(outputs, member), step, paths[member], exact=True)

    bar = show(progress, config.steps, 0, f"{dataset.name} × {len(seeds)}")
    with watch_interrupts() as interrupted, bar:
        for step in range(config.steps):
            outputs = losses_at(step)
            check_losses(step, outputs)
            if step % config.log_every == 0:
                log(step, outputs)
            else:
                bar.update(step, None)
            update(optimisers, outputs[0].sum(), config, step, clip_each)
            if interrupted.is_set():
                for run in runs:
                    run.status = "interrupted"
                    run.save()
                place = None if paths[0] is None else paths[0].parent
                raise interrupted.error(
                    f"train_ensemble: stopped after step {step + 1} of {config.steps}. An ensemble "
                    "cannot be resumed: start it again"
                    + (
                        "."
                        if place is None
                        else f", in another folder, or delete this one: {place}"
                    )
                )
        with torch.no_grad():
            outputs = losses_at(config.steps)
            check_losses(config.steps, outputs)
            log(config.steps, outputs)

    for member, (run, model, history) in enumerate(zip(runs, models, histories, strict=True)):
        for name, parameter in model.named_parameters():
            parameter.data.copy_(parameters[f"model.{name}"][member])
        check_weights(model, config.steps, run.path)
        run.model, run.step, run.status = model.eval(), config.steps, "finished"
        history.flush()
        if run.path is not None:
            store.write_tensors(
                run.path / "model.safetensors", model.state_dict(), {"step": config.steps}
            )
            run.save()
    return runs


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


def member_losses(outputs: Outputs, member: int) -> Losses:
    _, totals, terms, posteriors = outputs
    posterior = Posterior(*(part[member] for part in posteriors)) if posteriors else None
    return Losses(totals[member], {name: term[member] for name, term in terms.items()}, posterior)


def clip_each(parameters: list[Tensor], largest: float) -> None:
    """Clip the gradient of every member by its own norm, as in a run of its own."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = [gradient.flatten(1).square().sum(1) for gradient in gradients]
    norms = torch.stack(squares).sum(0).sqrt()
    factors = (largest / (norms + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(factors.reshape(-1, *[1] * (gradient.ndim - 1)))


def check_no_runs(existing: list[Path]) -> None:
    if existing:
        run = store.open_run(existing[0])
        raise RunError(
            f"train_ensemble: {run.path} already contains a run ({run.status}). An ensemble can "
            "neither be resumed nor overwrite runs: choose another folder for out, or delete this."
        )


def check_same_architecture(models: list[Trainable]) -> None:
    first = {name: p.shape for name, p in models[0].named_parameters()}
    for model in models:
        if type(model) is not type(models[0]) or first != {
            name: p.shape for name, p in model.named_parameters()
        }:
            raise InterfaceError(
                "train_ensemble: build(seed) returned different architectures, which cannot be "
                "stacked. Build the same one for every seed, or train them one by one."
            )
        if any(getattr(module, "track_running_stats", False) for module in model.modules()):
            raise InterfaceError(
                "train_ensemble: the model has running statistics (batch norm), which a stack "
                "would mix up. Use group norm, or train one by one."
            )
