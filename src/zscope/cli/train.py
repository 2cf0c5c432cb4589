"""zscope train: train a model on a dataset and keep the run."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from zscope.cli.options import (
    AsJson,
    DataOption,
    ModelOption,
    Quiet,
    Root,
    Seed,
    fractions,
    settings,
)


def train(
    model: Annotated[str | None, Argument(help="A name from `zscope models list`.")] = None,
    dataset: Annotated[
        str | None, Argument(help="A name from `zscope data list`, or a file of your own.")
    ] = None,
    latents: Annotated[int, Option(help="Number of latents.")] = 10,
    steps: Annotated[int | None, Option(help="Updates to make (default 10000).")] = None,
    epochs: Annotated[float | None, Option(help="Passes over the data, instead of steps.")] = None,
    batch: Annotated[int, Option(help="Observations in each update.")] = 64,
    rate: Annotated[float, Option(help="Learning rate.")] = 1e-4,
    seed: Seed = 0,
    set_: ModelOption = None,
    data_option: DataOption = None,
    split: Annotated[
        str | None, Option(help="Train on the first part of a split, e.g. 0.8,0.1,0.1.")
    ] = None,
    optimiser: Annotated[str, Option(help="adam or adagrad.")] = "adam",
    schedule: Annotated[str, Option(help="constant, linear, cosine or halving.")] = "constant",
    halve_every: Annotated[int | None, Option(help="Steps between halvings of the rate.")] = None,
    warmup: Annotated[int, Option(help="Steps over which the rate rises from 0.")] = 0,
    clip: Annotated[float | None, Option(help="Largest norm of the gradient.")] = None,
    precision: Annotated[str, Option(help="auto, float32 or bfloat16.")] = "auto",
    device: Annotated[str, Option(help="auto, cpu, cuda, mps, …")] = "auto",
    devices: Annotated[int, Option(help="Processes that share each batch.")] = 1,
    log_every: Annotated[int, Option(help="Steps between rows of the history (1 to 100).")] = 100,
    checkpoint_every: Annotated[int, Option(help="Steps between checkpoints.")] = 1000,
    snapshot: Annotated[
        list[int] | None, Option(help="A step whose checkpoint is kept for good.")
    ] = None,
    out: Annotated[
        Path | None, Option(help="The run's folder (default runs/MODEL-DATASET-SEED).")
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Go on with the run in --out.")] = False,
    config: Annotated[
        Path | None, Option(help="Repeat the run that this run.json describes.")
    ] = None,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Train MODEL on DATASET.

    Examples:

      zscope train beta-vae sprites --latents 6 --steps 20000 --set beta=4

      zscope train vae images.npy --epochs 50 --out runs/mine

      zscope train --out runs/mine --resume

      zscope train --config runs/mine/run.json --out runs/again
    """
    asked = dict(locals())
    from inspect import signature

    from zscope.errors import ConfigError

    if config is None and model is None and resume and out is not None:
        config = out / "run.json"
    if config is not None:
        if model is not None:
            raise ConfigError(
                f"train: both MODEL ({model}) and --config were given. The configuration names "
                "its own model and data: leave one of the two out."
            )
        kept = ("config", "out", "resume", "root", "quiet", "json")
        usual = signature(train).parameters
        given = [k for k in usual if k not in kept and asked[k] != usual[k].default]
        if given:
            flag = "--" + given[0].strip("_").replace("_", "-")
            raise ConfigError(
                f"train: {flag} was given, but the run repeats the settings of {config}. Leave it "
                "out, or start a new run with MODEL and DATASET."
            )
        run = repeat(config, out, resume=resume, root=root, progress=not quiet)
    else:
        if model is None or dataset is None:
            raise ConfigError(
                "train: MODEL and DATASET are needed, for instance: zscope train beta-vae sprites "
                "--latents 6. To go on with a run: zscope train --out RUN --resume"
            )
        chosen = settings(set_, "--set")
        for key in ("name", "shape", "latents", "data"):
            if key in chosen:
                raise ConfigError(
                    f"--set: {key} is no option of a model: it follows from MODEL, DATASET and "
                    "--latents. Leave it out of --set."
                )
        run = begin(
            model,
            dataset,
            latents=latents,
            model_options={"seed": seed, **chosen},
            data_options=settings(data_option, "--data-option"),
            split=None if split is None else fractions(split),
            root=root,
            out=out or Path("runs") / f"{model}-{Path(dataset).stem}-{seed}",
            resume=resume,
            progress=not quiet,
            steps=steps if steps is not None or epochs is not None else 10_000,
            epochs=epochs,
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
        )
    tell(run, json=json, quiet=quiet)


def begin(
    model: str,
    dataset: str,
    *,
    latents: int,
    model_options: dict[str, Any],
    data_options: dict[str, Any],
    split: list[float] | None,
    root: Path | None,
    **training: Any,
) -> Any:
    """Train a model built by name on a dataset loaded by name."""
    from zscope import data, models
    from zscope.training import train

    models.entry(model)  # an unknown name is said before any data are read
    loaded = data.load(dataset, root=root, **data_options)
    if split is not None:
        loaded = loaded.split(split)[0]
    built = models.build_for(model, loaded, latents=latents, **model_options)
    return train(built, loaded, **training)


def repeat(
    config: Path, out: Path | None, *, resume: bool, root: Path | None, progress: bool
) -> Any:
    """Train what a run.json describes."""
    from zscope import data, models
    from zscope.errors import ConfigError
    from zscope.training import read_config, train

    settings = read_config(config)
    if settings.model is None or settings.data is None:
        raise ConfigError(
            f"config: {config} describes a run with a model or data of your own, which the "
            "command line cannot make. Call zs.train from Python."
        )
    built = models.from_recipe(settings.model.model_dump())
    loaded = data.from_recipe(settings.data.model_dump(exclude_none=True), root=root)
    fields = settings.model_dump(exclude={"model", "data"})
    name = f"{settings.model.name}-{Path(settings.data.name).stem}-{settings.seed}"
    return train(
        built, loaded, out=out or Path("runs") / name, resume=resume, progress=progress, **fields
    )


def tell(run: Any, *, json: bool, quiet: bool) -> None:
    """Say where the run is and how it ended."""
    from zscope.training.progress import sentence

    last = run.history[-1]
    if json:
        from json import dumps

        print(dumps({"run": str(run.path), "status": run.status, "step": run.step, "last": last}))
    elif not quiet:
        print(f"{run.path}: {run.status} at step {run.step}.  {sentence(last)}")
