"""Training, from top to bottom.

Batches and noise are functions of (seed, step) alone: step s always gets the same rows
and the same noise, whether the run was interrupted or not. So a checkpoint needs only
weights and optimiser states, and a resumed run has the same history as an uninterrupted one,
bit for bit (on the same machine, with the same number of threads).

A row of the history at step s has the loss on batch s of the model after s updates: row 0
is the untrained model, the last row the trained one. All rows, the last too, are losses in
training mode: with relaxed gates of a causal block, and with batch statistics in batch norm.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from numbers import Real
from pathlib import Path
from typing import Any

import torch

from zscope import store
from zscope.autoencoder import Autoencoder, Losses, Trainable
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError, InterfaceError, TrainingError
from zscope.files import lock
from zscope.interrupts import Interrupts, watch_interrupts
from zscope.presets import preset as find_preset
from zscope.seeds import seed_of
from zscope.training.branching import as_start, load_weights
from zscope.training.checks import check_finite, check_first_batch, check_weights
from zscope.training.config import TrainConfig, validate
from zscope.training.feeding import Feed
from zscope.training.freezing import frozen, set_training_mode
from zscope.training.keeping import (
    History,
    Log,
    begin,
    check_log,
    delete_old_checkpoints,
    how_to_resume,
    load_finished,
    resumable,
    saved,
    send,
    stopped,
)
from zscope.training.progress import Progress, collapse_warning, show
from zscope.types import Codes

__all__ = [
    "Measure", "advance", "backward", "configure", "describe", "flush_denormals",
    "make_optimisers", "pick_device", "run_loop", "train", "trainable", "trained_weights",
    "watch_interrupts",
]  # fmt: skip

# What to add to a row of the history, from the posterior variances of its batch: a column for
# each latent; of latents that are maps one for each channel, and a row for each place.
Measure = Callable[[Codes], dict[str, Any]]


def train(
    model: Autoencoder,
    data: Any,
    *,
    steps: int | None = None,
    epochs: float | None = None,
    batch: int | None = None,
    rate: float | None = None,
    seed: int = 0,
    preset: str | None = None,
    freeze: str | None = None,
    start: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    log: Log | None = None,
    monitor: Measure | None = None,
    **settings: Any,
) -> store.Run:
    """Train a model on data; returns the run, with the trained model as `run.model`.

    Give `steps` (updates) or `epochs` (passes over the data), or a `preset`: the name of a
    paper's settings (`zscope models presets` lists them), of which any may be given as well.
    Otherwise batches have 64 rows and the rate is 1e-4. `settings` are the other
    fields of `TrainConfig`: optimiser ("adam", "adagrad"), schedule ("constant", "linear",
    "cosine", "halving" with halve_every), warmup, clip, precision, device, devices,
    log_every, checkpoint_every, snapshots, snapshot_every. With `out`, the run is written to that
    folder during training, which no other process may write meanwhile, and can be resumed;
    without, it stays in memory. `progress=None` shows a bar in a terminal or a notebook only. If
    at the end every latent is passive, a line on stderr says so, unless progress=False.

    `log` is called with every row of the history as it is made, log(values, step): a dict of
    numbers (the loss, its terms, the counts of latents) and the step, for instance to send them
    to TensorBoard or MLflow. A resumed run sends its rows from the checkpoint on. If `log`
    raises, the run is saved and can be resumed. `monitor` takes the posterior variances of a batch
    and returns what to add to its row of the history; in `zs.train` that is by default how many
    latents are active, mixed and passive, and the sum of their mean variances. Of latents that are
    maps it gets every place as a row and the channels as columns, and counts channels.

    `freeze` is the half of the model, "encoder" or "decoder", that stays as it is, to the bit:
    it is kept in evaluation mode, so that batch norm in it does not move either. The causal block
    belongs to the decoder. `start` is a finished run, or its folder, whose final weights training
    starts from, with a new optimiser, steps that count from 0 and the batches of this `seed`; the
    model must have the same networks.

    Tables and vectors from files (`zs.data.load("table.csv")`) are standardised: the model sees
    features of mean 0 and standard deviation 1, and keeps the scaling (`model.scaling`), which
    is stored with the run and applied to all data that are recorded later. An array or tensor
    is used as it is; `zs.data.from_arrays(x, standardise=True)` asks for the same.

    The model is trained in place. Ctrl-C saves a checkpoint at the end of the step and then
    raises KeyboardInterrupt; SIGTERM does the same and raises Terminated.
    """
    model, dataset = trainable(model), as_dataset(data)
    if resume and out is not None and store.is_run(out):
        settings.setdefault("scaling", store.open_run(out).config.get("scaling"))
    beginning, units = as_start(start)
    if units is not None:
        settings.setdefault("scaling", units)
    settings |= {"freeze": freeze, "start": beginning}
    config = configure(model, dataset, steps, epochs, batch, rate, seed, settings, preset)
    model.scaling = config.scaling
    if config.devices > 1 and not torch.distributed.is_initialized():
        from zscope.training.distributed import train_on_many

        loop = train_on_many
    else:
        loop = run_loop
    check_log(log, config.devices)
    given: dict[str, Any] = {"resume": resume, "progress": progress, "monitor": monitor, "log": log}
    with nullcontext() if out is None else lock(Path(out), "train"), frozen(model, config.freeze):
        run = loop(model, dataset, config, out=out, **given)
    if progress is not False and (warning := last_warning(model, run.history[-1])):
        print(warning, file=sys.stderr)
    return run


def last_warning(model: Autoencoder | None, row: dict[str, Any]) -> str | None:
    """What to say of a model whose latents are all passive in the last row of its history."""
    maps = model is not None and model.layout is not None
    warning = collapse_warning(row, "channel" if maps else "latent")
    if warning is None or model is None or not model.needs_auxiliary or model.prior is not None:
        return warning
    return (
        f"Warning: no latent tells more than the factors do after {row['step']:,} steps: each "
        "posterior equals the prior given the factors. If the observations hold more than that, "
        "train longer or with a larger rate, or choose another backbone."
    )


def trainable(model: Autoencoder) -> Trainable:
    """The model itself, if it can be trained."""
    if not isinstance(model, Trainable):
        raise InterfaceError(
            f"train: {type(model).__name__} has no losses(x, generator), so there is nothing to "
            "minimise. Wrapped models are measured, not trained: build one with zs.models.build, "
            "or derive your class from zs.Trainable and define losses."
        )
    return model


def configure(
    model: Trainable | dict[str, Any],
    dataset: Dataset,
    steps: Any,
    epochs: Any,
    batch: Any,
    rate: Any,
    seed: Any,
    settings: dict[str, Any],
    preset: str | None = None,
) -> TrainConfig:
    """The validated configuration of a run of this model, or of its recipe, on these data."""
    recipe = model if isinstance(model, dict) else model.recipe
    own_scaling = None if isinstance(model, dict) else model.scaling
    given = {"steps": steps, "epochs": epochs, "batch": batch, "rate": rate, **settings}
    if preset is not None:
        given = find_preset(preset).settings(given)
    steps, epochs = given.pop("steps", None), given.pop("epochs", None)
    if (steps is None) == (epochs is None):
        raise ConfigError(
            f"train: steps={steps} and epochs={epochs}; give exactly one of them, so that it is "
            "clear when to stop."
        )
    given = {key: value for key, value in given.items() if value is not None}
    batch = min(validate("train", steps=1, batch=given.pop("batch", 64)).batch, len(dataset))
    if steps is None:
        if not isinstance(epochs, Real) or not math.isfinite(epochs) or epochs <= 0:
            raise ConfigError(
                f"train: epochs={epochs!r}; expected a positive number of passes over the data. "
                "Correct it, or give a number of updates with steps."
            )
        steps = max(1, round(float(epochs) * (len(dataset) // batch)))
    if halve_epochs := given.pop("halve_epochs", None):
        given |= {"schedule": "halving", "halve_every": halve_epochs * (len(dataset) // batch)}
    if "scaling" not in settings:  # what the model was trained with before, if it was
        given["scaling"] = dataset.units_for_training() if own_scaling is None else own_scaling
    return validate(
        "train",
        model=recipe,
        data=dataset.recipe,
        steps=steps,
        batch=batch,
        seed=seed,
        **given,
    )


def run_loop(
    model: Trainable,
    dataset: Dataset,
    config: TrainConfig,
    *,
    out: str | Path | None,
    resume: bool,
    progress: bool | None,
    monitor: Measure | None,
    log: Log | None,
    rank: int = 0,
    stop: Any = None,
) -> store.Run:
    """One process of a run: the only one, or number `rank` of `config.devices`."""
    path = None if out is None else Path(out)
    run = begin(path, config, resume) if rank == 0 else store.Run(path, config.model_dump())
    if run.finished:
        return load_finished(run, model, config)
    run.status = "running"
    device = pick_device(config, rank)
    run.environment["device"] = str(device)
    model = set_training_mode(model.to(device), config.freeze)
    optimisers = make_optimisers(model, config)
    first = load_weights(model, optimisers, config, path)
    losses_of = losses_function(model, config)
    dataset = dataset.in_units(config.scaling)
    feed = Feed(model, dataset, device)
    check_first_batch(model, dataset, config, device)
    if path is not None and rank == 0:
        store.clear_leftovers(path)
    history = History(run, first) if rank == 0 else None
    if history is not None:
        run.save()
    bar = show(progress, config.steps, first, dataset.name) if rank == 0 else Progress()
    generator = torch.Generator(device)
    autocast = mixed_precision(config, device)

    def save(step: int, status: str = "running") -> None:
        run.step, run.status = step, status
        if path is not None and rank == 0:
            history.flush()  # type: ignore[union-attr]
            store.write_checkpoint(path, step, model, optimisers)
            run.save()
            delete_old_checkpoints(path, config)

    how = how_to_resume(path, config, dataset.provenance.get("root"))

    def report(step: int, row: dict[str, Any]) -> TrainingError | None:
        """Keep a row of the history, show it and send it; the error, if it cannot be sent."""
        if history is None:
            return None
        history.add(row)
        bar.update(step, row)
        return send(log, row, saved(step + 1, how)) if step < config.steps else None

    with resumable(how), watch_interrupts() as interrupted, flush_denormals(), bar:
        for step in range(first, config.steps):
            logged = step % config.log_every == 0
            x, extras = feed.at(config, step, rank)
            generator.manual_seed(seed_of(config.seed, step, rank))
            with autocast:
                losses = losses_of(x, generator, **extras)
            if logged or device.type == "cpu":
                check_finite(losses, step, path, exact=device.type == "cpu")
            unsent = None
            if logged:
                unsent = report(step, describe(losses, step, config, monitor))
            else:
                bar.update(step, None)
            backward(optimisers, losses.whole)
            advance(optimisers, config, step)
            done = step + 1
            if should_stop(interrupted, stop, logged, config):
                save(done, "interrupted")
                raise interrupted.error(stopped("train", done, config, how))
            if unsent is not None:  # not before: a step is made whole, or not at all
                save(done, "interrupted")
                raise unsent
            if config.is_snapshot(done) or (
                done % config.checkpoint_every == 0 and done < config.steps
            ):
                check_weights(model, done, path)
                save(done)
        generator.manual_seed(seed_of(config.seed, config.steps, rank))
        x, extras = feed.at(config, config.steps, rank)
        with preserving_buffers(model), autocast:
            losses = model.losses(x, generator, **extras)
        check_finite(losses, config.steps, path, exact=True)
        check_weights(model, config.steps, path)
        row = describe(losses, config.steps, config, monitor)
        report(config.steps, row)
        run.model, run.step, run.status = model.eval(), config.steps, "finished"
        if path is not None and history is not None:
            history.flush()
            weights = model.state_dict()
            store.write_tensors(path / "model.safetensors", weights, {"step": config.steps})
            run.save()
            delete_old_checkpoints(path, config, finished=True)
    if history is not None and (unsent := send(log, row, "The run itself is finished.")):
        raise unsent
    return run


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Within this block, numbers too small for full precision (below 1e-38) are 0.

    Where a pixel is nearly always black, the moments of its weights fade to such numbers, and
    processors take many times as long to multiply them. Next to weights of usual size, steps so
    small are lost in rounding anyway.
    """
    before = float(torch.tensor(1e-39) * 1) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def pick_device(config: TrainConfig, rank: int) -> torch.device:
    if config.device != "auto":
        try:
            return torch.empty(0, device=config.device).device
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(
                f"train: device {config.device!r} cannot be used ({str(error).splitlines()[0]}). "
                "Leave it out to use the best device available, or use device='cpu'."
            ) from error
    if torch.cuda.is_available():
        return torch.device("cuda", rank % torch.cuda.device_count())
    if torch.backends.mps.is_available() and config.devices == 1:
        return torch.device("mps")
    return torch.device("cpu")


def make_optimisers(
    model: Trainable, config: TrainConfig, weights: dict[str, torch.Tensor] | None = None
) -> dict[str, torch.optim.Optimizer]:
    """The main optimiser, and one for each rival of the model.

    `weights` replace the model's own, under the same names.
    """
    names = trained_weights(model)
    own = {name: p for name, p in model.named_parameters() if p.requires_grad}
    fused = all(p.device.type in ("cpu", "cuda") for p in own.values())
    stacks: Mapping[str, torch.Tensor] = own if weights is None else weights
    kind = torch.optim.Adagrad if config.optimiser == "adagrad" else torch.optim.Adam
    optimisers: dict[str, torch.optim.Optimizer] = {
        "main": kind([stacks[name] for name in names["main"]], lr=config.rate, fused=fused)
    }
    for role, rival in model.rivals.items():
        optimisers[role] = torch.optim.Adam(
            [stacks[name] for name in names[role]], lr=rival.rate, betas=rival.betas, fused=fused
        )
    return optimisers


def trained_weights(model: Trainable) -> dict[str, list[str]]:
    """The names of the weights that each optimiser trains: the main one and those of rivals.

    Refuses a model that has none.
    """
    own = {name: id(p) for name, p in model.named_parameters() if p.requires_grad}
    names = {}
    for role, rival in model.rivals.items():
        parameters = {id(p) for p in rival.module.parameters()}
        names[role] = [name for name, key in own.items() if key in parameters]
    of_rivals = {name for each in names.values() for name in each}
    if own.keys() <= of_rivals:
        raise InterfaceError(
            f"train: {type(model).__name__} has no parameters that can be trained. Are they all "
            "frozen (requires_grad=False)?"
        )
    return {"main": [name for name in own if name not in of_rivals], **names}


def backward(optimisers: dict[str, torch.optim.Optimizer], loss: torch.Tensor) -> None:
    """Compute all gradients, of the same weights."""
    for optimiser in optimisers.values():
        optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)


def advance(
    optimisers: dict[str, torch.optim.Optimizer],
    config: TrainConfig,
    step: int,
    clip: Callable[[Any, float], Any] = torch.nn.utils.clip_grad_norm_,
) -> None:
    """Step all optimisers on the gradients."""
    for optimiser in optimisers.values():
        for group in optimiser.param_groups:
            if config.clip is not None:
                clip(group["params"], config.clip)
            relative_rate = group.setdefault("initial_lr", group["lr"]) / config.rate
            group["lr"] = relative_rate * config.rate_at(step)
        optimiser.step()


def losses_function(model: Trainable, config: TrainConfig) -> Any:
    """The function (x, generator, ...) -> Losses to train; over all processes if several."""
    if config.devices == 1:
        return model.losses
    from zscope.training.distributed import Shared

    return Shared(model)


def mixed_precision(config: TrainConfig, device: torch.device) -> Any:
    """bfloat16 where it is faster: on accelerators, not on the CPU."""
    low = config.precision == "bfloat16" or (
        config.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )
    return torch.autocast(device.type, torch.bfloat16) if low else nullcontext()


def describe(
    losses: Losses, step: int, config: TrainConfig, monitor: Measure | None
) -> dict[str, Any]:
    """A row of the history: the loss, its terms, and what the monitor says, over all processes."""
    row: dict[str, Any] = {"format": store.FORMAT, "step": step}
    numbers = torch.stack([losses.total, *losses.terms.values()]).detach().double().cpu()
    posterior = losses.posterior
    variance = None if posterior is None else posterior.variance.detach()
    if config.devices > 1:
        from zscope.training.distributed import gather, mean_over_processes

        numbers = mean_over_processes(numbers)
        variance = None if variance is None else gather(variance)
    for name, value in zip(["loss", *losses.terms], numbers.tolist(), strict=True):
        row[name] = value
    if monitor is None or posterior is None or variance is None or posterior.deterministic:
        return row
    layout = posterior.layout
    row.update(monitor(variance if layout is None else layout.by_place(variance)))
    return row


@contextmanager
def preserving_buffers(model: torch.nn.Module) -> Iterator[None]:
    """Compute losses as in training, without gradients and without new running statistics."""
    before = [buffer.clone() for buffer in model.buffers()]
    with torch.no_grad():
        yield
        for buffer, value in zip(model.buffers(), before, strict=True):
            buffer.copy_(value)


def should_stop(interrupted: Interrupts, stop: Any, log: bool, config: TrainConfig) -> bool:
    """Whether to stop here. Several processes decide together, at steps that are logged."""
    if config.devices == 1:
        return interrupted.is_set()
    if not log:
        return False
    from zscope.training.distributed import mean_over_processes

    requested = stop is not None and stop.is_set()
    return bool(mean_over_processes(torch.tensor([float(requested)])) > 0)
