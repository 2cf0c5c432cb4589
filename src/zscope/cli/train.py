"""zscope train: train a model on a dataset and store the run."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from zscope.cli import completion
from zscope.cli.options import (
    AsJson,
    DataOption,
    LeaveOut,
    ModelOption,
    Quiet,
    Root,
    Seed,
    fractions,
    refuse_unknown_names,
    settings,
    values_of_factors,
)
from zscope.presets import PRESETS

__all__ = ["train"]


def train(
    model: Annotated[
        str | None,
        Argument(help="A name from `zscope models list`.", autocompletion=completion.models),
    ] = None,
    dataset: Annotated[
        str | None,
        Argument(
            help="A name from `zscope data list`, or a file of your own.",
            autocompletion=completion.datasets,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        Option(
            help=f"Settings of a paper: {', '.join(PRESETS)}. See: zscope models presets",
            autocompletion=completion.presets,
        ),
    ] = None,
    latents: Annotated[
        int | None,
        Option(help="Number of latents (default 10; spatial-vae: channels x places)."),
    ] = None,
    steps: Annotated[int | None, Option(help="Training steps (default 10000).")] = None,
    epochs: Annotated[
        float | None, Option(help="Passes over the data, instead of --steps.")
    ] = None,
    batch: Annotated[int | None, Option(help="Batch size (default 64).")] = None,
    rate: Annotated[float | None, Option(help="Learning rate (default 1e-4).")] = None,
    seed: Seed = 0,
    set_: ModelOption = None,
    data_option: DataOption = None,
    split: Annotated[
        str | None,
        Option(help="Split the data randomly, e.g. 0.8,0.1,0.1, and train on the first part."),
    ] = None,
    leave_out: LeaveOut = None,
    freeze: Annotated[
        str | None, Option(help="Keep this half of the model as it is: encoder or decoder.")
    ] = None,
    start: Annotated[
        Path | None,
        Option(metavar="RUN", help="Start from the final weights of this finished run."),
    ] = None,
    optimiser: Annotated[str | None, Option(help="adam (default) or adagrad.")] = None,
    schedule: Annotated[
        str | None,
        Option(help="Learning rate schedule: constant (default), linear, cosine or halving."),
    ] = None,
    halve_every: Annotated[
        int | None, Option(help="With --schedule halving: steps between halvings.")
    ] = None,
    warmup: Annotated[int, Option(help="Steps over which the learning rate rises from 0.")] = 0,
    clip: Annotated[float | None, Option(help="Clip gradients to this norm.")] = None,
    precision: Annotated[str, Option(help="auto, float32 or bfloat16.")] = "auto",
    device: Annotated[str, Option(help="auto, cpu, cuda, mps, …")] = "auto",
    devices: Annotated[
        int, Option(help="Number of devices; each batch is divided among them.")
    ] = 1,
    log_every: Annotated[
        int, Option(help="Steps between rows of the history (at most 100).")
    ] = 100,
    checkpoint_every: Annotated[int, Option(help="Steps between checkpoints.")] = 1000,
    snapshot: Annotated[
        list[int] | None,
        Option(metavar="STEP", help="Keep the checkpoint of this step; may be repeated."),
    ] = None,
    snapshot_every: Annotated[
        int | None, Option(metavar="STEPS", help="Keep a checkpoint every so many steps.")
    ] = None,
    out: Annotated[
        Path | None, Option(help="The run's folder (default runs/MODEL-DATASET-SEED).")
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Continue the run in --out.")] = False,
    config: Annotated[
        Path | None, Option(help="Repeat the run that this run.json describes.")
    ] = None,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Train MODEL on DATASET and store the run.

    A run is a folder with the configuration, the weights, checkpoints and the history of
    losses; `zscope assay` and `zscope report` measure it. An interrupted run is continued
    with --resume and gives the same result as an uninterrupted one.

    Examples:

      zscope train beta-vae sprites --latents 6 --steps 20000 --set beta=4

      zscope train vae images.npy --epochs 50 --out runs/mine

      zscope train spatial-vae rooms --set channels=4 --data-option resolution=32

      zscope train sae-12 shapes3d --preset structural-2023

      zscope train --out runs/mine --resume

      zscope train ae rooms --start runs/ae-rooms-0 --freeze encoder --steps 2000 --out runs/b

      zscope train --config runs/mine/run.json --out runs/again
    """
    arguments = dict(locals())
    from inspect import signature

    from zscope.errors import ConfigError

    if config is None and model is None and resume and out is not None:
        config = out / "run.json"
    if config is not None:
        if model is not None:
            raise ConfigError(
                f"train: both MODEL ({model}) and --config were given. The configuration names "
                "its own model and data, so leave one of them out."
            )
        allowed = ("config", "out", "resume", "root", "quiet", "json")
        defaults = {key: value.default for key, value in signature(train).parameters.items()}
        extra = [k for k in defaults if k not in allowed and arguments[k] != defaults[k]]
        if extra:
            flag = "--" + extra[0].strip("_").replace("_", "-")
            raise ConfigError(
                f"train: {flag} was given, but the run repeats the settings of {config}. Leave it "
                "out, or start a new run with MODEL and DATASET."
            )
        run = repeat(config, out, resume=resume, root=root, progress=not quiet)
    else:
        if model is None or dataset is None:
            raise ConfigError(
                "train: MODEL and DATASET are missing, for instance: zscope train beta-vae sprites "
                "--latents 6. To continue a run: zscope train --out RUN --resume"
            )
        refuse_unknown_names(dataset, model)
        from zscope.experiments.training import with_defaults

        given = with_defaults(
            preset,
            model,
            latents=latents,
            options=settings(set_, "--set"),
            split=None if split is None else fractions(split),
            steps=steps,
            epochs=epochs,
        )
        run = begin(
            model,
            dataset,
            latents=given.latents,
            model_options={"seed": seed, **given.options},
            data_options=settings(data_option, "--data-option"),
            split=given.split,
            leave_out=values_of_factors(leave_out),
            root=root,
            out=out or Path("runs") / f"{model}-{Path(dataset).stem}-{seed}",
            resume=resume,
            progress=not quiet,
            preset=preset,
            freeze=freeze,
            start=start,
            steps=given.steps,
            epochs=given.epochs,
            batch=batch,
            rate=rate,
            seed=seed,
            optimiser=optimiser,
            schedule=schedule,
            halve_every=halve_every,
            warmup=warmup,
            clip=clip,
            precision=precision,
            device=device,
            devices=devices,
            log_every=log_every,
            checkpoint_every=checkpoint_every,
            snapshots=snapshot or [],
            snapshot_every=snapshot_every,
        )
    print_result(run, json=json, quiet=quiet)


def begin(
    model: str,
    dataset: str,
    *,
    latents: int | None,
    model_options: dict[str, Any],
    data_options: dict[str, Any],
    split: list[float] | None,
    leave_out: dict[str, Any],
    root: Path | None,
    **training: Any,
) -> Any:
    """Train a model built by name on a dataset loaded by name."""
    from zscope import data, models
    from zscope.experiments.training import train

    loaded = data.load(dataset, root=root, **data_options)
    if split is not None:
        loaded = loaded.split(split)[0]
    if leave_out:
        loaded = loaded.leave_out(leave_out)
    built = models.build_for(model, loaded, latents=latents, **model_options)
    return train(built, loaded, **training)


def repeat(
    config: Path, out: Path | None, *, resume: bool, root: Path | None, progress: bool
) -> Any:
    """Train the model on the data that a run.json describes."""
    from zscope.errors import ConfigError
    from zscope.experiments.training import train_config
    from zscope.training import read_config

    settings = read_config(config)
    if settings.model is None or settings.data is None:
        raise ConfigError(
            f"config: {config} describes a run whose model or data were passed as Python objects, "
            "so the command line cannot repeat it. Call zs.train from Python."
        )
    name = f"{settings.model.name}-{Path(settings.data.name).stem}-{settings.seed}"
    return train_config(
        settings, out=out or Path("runs") / name, resume=resume, root=root, progress=progress
    )


def print_result(run: Any, *, json: bool, quiet: bool) -> None:
    """Print where the run is and how it ended."""
    import sys

    from zscope.training.loop import last_warning
    from zscope.training.progress import sentence

    last = run.history[-1]
    if quiet and (warning := last_warning(run.model, last)):  # else it was printed after training
        print(warning, file=sys.stderr)
    if json:
        from json import dumps

        print(dumps({"run": str(run.path), "status": run.status, "step": run.step, "last": last}))
    elif not quiet:
        print(f"{run.path}: {run.status} at step {run.step}.  {sentence(last)}")
