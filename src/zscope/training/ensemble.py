"""Several small models of one architecture, trained together.

With a small network most time is overhead. Stacking the weights of k models and running
them as one batched network (`stacking.py`) does the work of k runs in the time of two or
three. Each member gets the same batches and the same noise as in a run of its own: its
losses are those of `train` with its seed, up to floating-point rounding.

Members are saved at the same steps, each in a run directory of its own, and resume from the
newest step at which all of them have a checkpoint. Rounding depends on the members, so a run
that was begun in an ensemble goes on only in the same one.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from zscope import models as catalogue
from zscope import store
from zscope.autoencoder import Autoencoder, Trainable
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError, InterfaceError, TrainingError
from zscope.files import lock
from zscope.training.checks import check_finite, check_first_batch, check_weights
from zscope.training.config import ModelRecipe, TrainConfig
from zscope.training.keeping import (
    History,
    begin,
    delete_old_checkpoints,
    load_finished,
    resumable,
    stopped,
)
from zscope.training.loop import (
    Measure,
    configure,
    describe,
    flush_denormals,
    pick_device,
    trainable,
    watch_interrupts,
)
from zscope.training.progress import Progress, show
from zscope.training.stacking import Outputs, Stack, member_losses

__all__ = ["can_train_together", "train_ensemble", "train_together"]

HOW = "the same call of zs.train_ensemble with resume=True"
Recipe = ModelRecipe | dict[str, Any] | None


def train_ensemble(
    build: Callable[[int], Autoencoder],
    data: Any,
    *,
    seeds: Sequence[int],
    steps: int | None = None,
    epochs: float | None = None,
    batch: int | None = None,
    rate: float | Sequence[float] | None = None,
    preset: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    monitor: Measure | None = None,
    **settings: Any,
) -> list[store.Run]:
    """Train `build(seed)` for every seed, all at once; returns one run for each.

    The models must have the same architecture and no running statistics (batch norm); numbers
    in their losses, such as β, may differ, and `rate` may be one for each. `monitor` and
    `settings` are those of `train`. With `out`, each run is written to out/seed-N during
    training, and all of them can be resumed together. A run whose loss becomes NaN is marked as
    failed, and the others go on; the error is raised in the end.
    """
    listed = list(seeds) if isinstance(seeds, Iterable) else []
    if not listed or len(set(listed)) < len(listed):
        raise ConfigError(
            f"train_ensemble: seeds={seeds!r}; expected at least one seed, without repeats, for "
            "instance seeds=range(5)."
        )
    dataset = as_dataset(data)
    models = [trainable(build(seed)) for seed in listed]
    paths = [None if out is None else Path(out) / f"seed-{seed}" for seed in listed]
    begun = [path for path in paths if path is not None and store.is_run(path)]
    if resume and begun:
        settings.setdefault("scaling", store.open_run(begun[0]).config.get("scaling"))
    rates = list(rate) if isinstance(rate, Iterable) else [rate] * len(listed)
    if len(rates) != len(listed):
        raise ConfigError(
            f"train_ensemble: {len(rates)} rates for {len(listed)} seeds. Give one rate, or one "
            "for each seed."
        )
    configs = [
        configure(model, dataset, steps, epochs, batch, own, seed, dict(settings), preset)
        for model, own, seed in zip(models, rates, listed, strict=True)
    ]
    return train_together(
        models, dataset, configs, paths, resume=resume, progress=progress, monitor=monitor
    )


def train_together(
    models: Sequence[Trainable],
    data: Any,
    configs: Sequence[TrainConfig],
    paths: Sequence[Path | None],
    *,
    resume: bool = False,
    progress: bool | None = None,
    monitor: Measure | None = None,
) -> list[store.Run]:
    """Train models of one architecture, each with its configuration, into its run directory.

    Configurations may differ in the seed and the rate, and in the seed and the numbers of the
    model (`can_train_together`). Without a path a run stays in memory. A finished ensemble is
    loaded.
    """
    check_configs(configs, paths)
    check_same_architecture(models)
    with ExitStack() as locks:
        # In a fixed order, so that of two processes one has them all.
        for path in sorted((path for path in paths if path is not None), key=Path.absolute):
            locks.enter_context(lock(path, "train_ensemble"))
        names = [path.name for path in paths if path is not None]
        pairs = zip(paths, configs, strict=True)
        runs = [begin(path, own, resume, names) for path, own in pairs]
        members = Members(runs, models, configs)
        if all(runs[k].finished for k in members.going):
            members.load()
        else:
            members.train(as_dataset(data), progress, monitor)
        if members.error is not None:
            members.error.members = members.failures
            raise members.error
        return runs


class Members:
    """The runs of an ensemble while they are trained.

    `going` are the places of those that have not failed. What a failed member holds no longer
    matters: no member sees the numbers of another.
    """

    def __init__(
        self,
        runs: list[store.Run],
        models: Sequence[Trainable],
        configs: Sequence[TrainConfig],
    ) -> None:
        self.runs, self.configs, self.config = runs, configs, configs[0]
        self.device = pick_device(self.config, 0)
        self.models = [model.to(self.device).train() for model in models]
        for model in models:
            model.scaling = self.config.scaling
        self.going = [k for k, run in enumerate(runs) if run.status != "failed"]
        self.error: TrainingError | None = None
        self.failures: dict[str, TrainingError] = {}  # by the name of the run
        if failed := [run.name for run in runs if run.status == "failed"]:
            self.error = TrainingError(
                f"train_ensemble: {len(failed)} of {len(runs)} runs ({', '.join(failed)}) failed "
                "before, and would fail again at the same step; the others are finished. Open "
                "those with zs.load, and train these anew with a smaller rate or with clip=1."
            )

    def load(self) -> None:
        """Load the weights of runs that are all finished."""
        for k in self.going:
            load_finished(self.runs[k], self.models[k], self.config)

    def train(self, dataset: Dataset, progress: bool | None, monitor: Measure | None) -> None:
        config = self.config
        dataset = dataset.in_units(config.scaling)
        for model in self.models:
            check_first_batch(model, dataset, config, self.device)
        stack = Stack(self.models, dataset, self.configs, self.device)
        first = self.read_checkpoints(stack)
        for k in self.going:
            self.runs[k].status, path = "running", self.runs[k].path
            self.runs[k].environment["device"] = str(self.device)
            if path is not None:
                store.clear_leftovers(path)
        self.histories = {k: History(self.runs[k], first) for k in self.going}
        for k in self.going:
            self.runs[k].save()
        bar = show(progress, config.steps, first, f"{dataset.name} × {len(self.runs)}")
        how = None if self.runs[0].path is None else HOW
        with resumable(how), watch_interrupts() as interrupted, flush_denormals(), bar:
            for step in range(first, config.steps):
                outputs = stack.losses(step)
                self.check_losses(outputs, step)
                if step % config.log_every == 0:
                    self.log(outputs, step, bar, monitor)
                else:
                    bar.update(step, None)
                stack.update(outputs, step)
                done = step + 1
                if interrupted.is_set():
                    self.save(stack, done, "interrupted")
                    raise interrupted.error(stopped("train_ensemble", done, config, how))
                if config.is_snapshot(done) or (
                    done % config.checkpoint_every == 0 and done < config.steps
                ):
                    self.save(stack, done)
            with torch.no_grad():
                outputs = stack.losses(config.steps)
            self.check_losses(outputs, config.steps)
            stack.hand_out()
            self.check_weights(config.steps)
            self.log(outputs, config.steps, bar, monitor)
            self.finish()

    def read_checkpoints(self, stack: Stack) -> int:
        """Load the newest step at which all members have a readable checkpoint; 0 if none."""
        files = {k: dict(store.checkpoints(p)) for k in self.going if (p := self.runs[k].path)}
        common = set.intersection(*map(set, files.values())) if files else set()
        for step in sorted(common, reverse=True):
            try:
                for k in self.going:
                    store.read_checkpoint(files[k][step], self.models[k], stack.alone[k])
            except store.Damaged as error:
                print(f"{error} Trying the checkpoint before it.", file=sys.stderr)
            else:
                stack.take_in(self.going)
                return step
        return 0

    def log(self, outputs: Outputs, step: int, bar: Progress, monitor: Measure | None) -> None:
        for k in self.going:
            losses = member_losses(outputs, k, self.models[k].layout)
            row = describe(losses, step, self.config, monitor)
            self.histories[k].add(row)
            if k == self.going[0]:
                bar.update(step, row)

    def check_losses(self, outputs: Outputs, step: int) -> None:
        totals = outputs[1]
        if not math.isfinite(totals.sum().item()):
            # A sum of finite losses may overflow, and then none of them is broken.
            for k in (~totals.isfinite()).nonzero()[:, 0].tolist():
                losses = member_losses(outputs, k)
                self.check(k, partial(check_finite, losses, step, exact=True))

    def check_weights(self, step: int) -> None:
        for k, model in enumerate(self.models):
            self.check(k, partial(check_weights, model, step))

    def check(self, k: int, check: Callable[[Path | None], None]) -> None:
        """Go on without a member that fails a check, if the others are kept in files."""
        if k not in self.going:
            return
        try:
            check(self.runs[k].path)
        except TrainingError as error:
            path = self.runs[k].path
            name = f"seed {self.configs[k].seed}" if path is None else path.name
            failure = TrainingError(f"{error} This is run {k + 1} of {len(self.runs)} ({name}).")
            self.error = self.error or failure
            self.failures[name] = failure
            self.going.remove(k)
            self.runs[k].status = "failed"
            if not self.going or path is None:
                failure.members = self.failures
                raise failure from error
            others = "The other goes on." if len(self.going) == 1 else "The others go on."
            print(f"{failure} {others}", file=sys.stderr)

    def save(self, stack: Stack, step: int, status: str = "running") -> None:
        """Write a checkpoint of every member, and then delete old ones."""
        stack.hand_out()
        if status == "running":
            self.check_weights(step)
        saved = [(self.runs[k], k) for k in self.going]
        for run, k in saved:
            run.step, run.status = step, status
            self.histories[k].flush()
            if run.path is not None:
                store.write_checkpoint(run.path, step, self.models[k], stack.alone[k])
            run.save()
        for run, _ in saved:
            if run.path is not None:
                delete_old_checkpoints(run.path, self.config)

    def finish(self) -> None:
        """Write all weights, then mark all as finished, then delete checkpoints.

        Killed in between, the ensemble goes on from checkpoints that all members still have.
        """
        finished, step = [self.runs[k] for k in self.going], self.config.steps
        for k in self.going:
            self.histories[k].flush()
            self.runs[k].model = self.models[k].eval()
            if (path := self.runs[k].path) is not None:
                weights = self.models[k].state_dict()
                store.write_tensors(path / "model.safetensors", weights, {"step": step})
        for run in finished:
            run.step, run.status = step, "finished"
            run.save()
        for run in finished:
            if run.path is not None:
                delete_old_checkpoints(run.path, self.config, finished=True)


def check_configs(configs: Sequence[TrainConfig], paths: Sequence[Path | None]) -> None:
    """Refuse configurations of runs that cannot be trained together."""
    if configs[0].devices != 1:
        raise ConfigError("train_ensemble: an ensemble trains on one device; leave devices out.")
    if None in paths and any(paths):
        raise ConfigError(
            "train_ensemble: some runs have a folder and others have none. Resuming needs all of "
            "them: give each a folder, or none."
        )
    given = [path.absolute() for path in paths if path is not None]
    if len(set(given)) < len(given):
        raise ConfigError(
            f"train_ensemble: {len(given)} runs have {len(set(given))} folders, so that some would "
            "overwrite each other. Give each run a folder of its own."
        )
    for own in configs:
        for key, value in (("freeze", own.freeze), ("start", own.start)):
            if value is not None:
                raise ConfigError(
                    f"train_ensemble: {key}={value!r:.60}, which models that are trained together "
                    "cannot have. Train them one by one with zs.train, or by a sweep."
                )
    first = configs[0].model_dump(exclude={"seed", "model", "rate"})
    for own in configs[1:]:
        now = own.model_dump(exclude={"seed", "model", "rate"})
        if differing := [key for key in first if first[key] != now[key]]:
            key = differing[0]
            raise ConfigError(
                f"train_ensemble: one run has {key}={first[key]!r} and another {key}={now[key]!r}. "
                "Runs that are trained together may differ in the seed, in the rate and in numbers "
                "of the loss such as β: train these separately."
            )


def check_same_architecture(models: Sequence[Trainable]) -> None:
    first = models[0]
    shapes = {name: p.shape for name, p in first.named_parameters()}
    for model in models:
        alike = type(model) is type(first) and model.numbers.keys() == first.numbers.keys()
        if not alike or shapes != {name: p.shape for name, p in model.named_parameters()}:
            raise InterfaceError(
                "train_ensemble: build(seed) returned different architectures, which cannot be "
                "stacked. Build the same one for every seed, or train them one by one."
            )
        if differing := differences(first, model):
            key, before, now = differing[0]
            raise InterfaceError(
                f"train_ensemble: one model has {key}={before!r} and another {key}={now!r}. A "
                "stack computes the same for all of its members, except for numbers that the "
                "model lists in `numbers`. Train these one by one."
            )
        if has_running_statistics(model):
            raise InterfaceError(
                "train_ensemble: the model has running statistics (batch norm), which a stack "
                "would mix up. Use group norm, or train one by one."
            )


def differences(first: Trainable, other: Trainable) -> list[tuple[str, Any, Any]]:
    """(name, value of the one, value of the other) of settings that a stack cannot carry."""
    built = first.recipe is not None and other.recipe is not None
    before, now = (options_of(m) if built else attributes_of(m) for m in (first, other))
    carried = {"seed", "divergence_weight", *first.numbers}
    return [
        (key, before.get(key), now.get(key))
        for key in {**before, **now}
        if repr(before.get(key)) != repr(now.get(key)) and key not in carried
    ]


def options_of(model: Trainable) -> dict[str, Any]:
    recipe = dict(model.recipe or {})
    options: dict[str, Any] = recipe.pop("options", {})
    return {**recipe, **options}


def attributes_of(model: Trainable) -> dict[str, Any]:
    """The numbers that the modules of a model have besides their weights."""
    return {
        f"{place}.{key}".strip("."): value
        for place, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, float)
    }


def has_running_statistics(model: torch.nn.Module) -> bool:
    return any(getattr(module, "track_running_stats", False) for module in model.modules())


def can_train_together(first_recipe: Recipe, other_recipe: Recipe) -> bool:
    """Whether models of these recipes may be members of one ensemble.

    They may differ in the seed, and in the options that enter the loss as plain numbers, such
    as β. Models with running statistics (batch norm) are trained alone.
    """
    first, other = outline_of(first_recipe), outline_of(other_recipe)
    if first is None or other is None or first.numbers.keys() != other.numbers.keys():
        return False
    return not has_running_statistics(first) and not differences(first, other)


def outline_of(recipe: Recipe) -> Trainable | None:
    if recipe is None:
        return None
    plain = recipe.model_dump() if isinstance(recipe, ModelRecipe) else dict(recipe)
    options = {key: v for key, v in plain.get("options", {}).items() if key != "seed"}
    return _outline(json.dumps({**plain, "options": options}, sort_keys=True))


@lru_cache(maxsize=1024)
def _outline(recipe: str) -> Trainable:
    return catalogue.outline(json.loads(recipe))
