"""zscope data perturb: change a dataset slightly so that VAEs no longer disentangle it."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from zscope.cli.options import AsJson, DataOption, ModelOption, Quiet, Root, Seed, settings

__all__ = ["perturb"]


def perturb(
    dataset: Annotated[
        str, Argument(help="A name from `zscope data list`, or a path; with factors.")
    ],
    epsilon: Annotated[float, Option(help="Largest change of a pixel on the scale 0 to 1.")],
    out: Annotated[
        Path | None, Option(help="Output folder (default perturbed/DATASET-EPSILON).")
    ] = None,
    restarts: Annotated[int, Option(help="Models to train, with different seeds.")] = 10,
    pairs: Annotated[int, Option(help="Number of most and of least entangled models.")] = 1,
    model: Annotated[str, Option(help="The model to train.")] = "beta-vae",
    latents: Annotated[int | None, Option(help="Its latents (default: one per factor).")] = None,
    set_: ModelOption = None,
    data_option: DataOption = None,
    steps: Annotated[int, Option(help="Training steps of each model.")] = 30_000,
    rate: Annotated[float, Option(help="Learning rate of the models.")] = 1e-4,
    batch: Annotated[int, Option(help="Batch size.")] = 64,
    rounds: Annotated[
        int, Option(help="Largest number of training rounds of the modifier.")
    ] = 10_000,
    modifier_rate: Annotated[float, Option(help="Learning rate of modifier and decoders.")] = 1e-4,
    control: Annotated[
        bool, Option(help="Also write a copy with uniform noise, for comparison.")
    ] = True,
    seed: Seed = 0,
    resume: Annotated[
        bool, Option("--resume", help="Continue an interrupted run in --out.")
    ] = False,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Change every pixel by at most EPSILON so that VAEs entangle the factors.

    Trains several β-VAEs, selects the most and the least entangled, and learns a small
    change of the pictures under which the entangled one reconstructs better. Writes
    perturbed.npz, and noise.npz with random changes of the same size as a control. Both
    can be used like any other dataset.

    Examples:

      zscope data perturb sprites --epsilon 0.1 --set beta=8

      zscope train beta-vae perturbed/sprites-0.1/perturbed.npz --set beta=8
    """
    from zscope import experiments
    from zscope.cli.outputs import try_folder
    from zscope.data import load

    folder = out or Path("perturbed") / f"{Path(dataset).stem}-{epsilon:g}"
    try_folder("perturb: --out", folder)
    loaded = load(dataset, root=root, **settings(data_option, "--data-option"))
    result = experiments.perturb(
        loaded,
        epsilon=epsilon,
        out=folder,
        model=model,
        latents=latents,
        options=settings(set_, "--set"),
        restarts=restarts,
        steps=steps,
        rate=rate,
        batch=batch,
        pairs=pairs,
        rounds=rounds,
        modifier_rate=modifier_rate,
        control=control,
        seed=seed,
        resume=resume,
        progress=not quiet,
    )
    if json:
        from json import dumps

        print(dumps(result.to_dict()))
        return
    if quiet:
        return
    scores = ", ".join(f"{score:.2f}" for score in result.scores)
    before, after = result.gap
    print(f"MIG of {len(result.scores)} models: {scores}")
    print(f"entangled: {_models(result.entangled)}; disentangled: {_models(result.disentangled)}")
    print(
        f"loss of the entangled minus loss of the disentangled: {before:+.2f} before, "
        f"{after:+.2f} after {len(result.history)} rounds"
    )
    print(f"largest change of a pixel: {result.largest:.4f} (allowed {epsilon:g})")
    for flag in result.flags:
        print(flag)
    print(f"Use it: zscope train {model} {folder / 'perturbed.npz'}")
    if result.control is not None:
        print(f"Control with uniform noise: {folder / 'noise.npz'}")


def _models(numbers: list[int]) -> str:
    return ", ".join(f"model {number}" for number in numbers)
