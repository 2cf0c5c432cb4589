"""zscope data perturb: a dataset that VAEs no longer disentangle, though it hardly changed."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from zscope.cli.options import AsJson, DataOption, ModelOption, Quiet, Root, Seed, settings


def perturb(
    dataset: Annotated[str, Argument(help="Data with factors: a name, or a path.")],
    epsilon: Annotated[float, Option(help="Largest change of a pixel, e.g. 0.1.")],
    out: Annotated[Path | None, Option(help="Folder (default perturbed/DATASET-EPSILON).")] = None,
    restarts: Annotated[int, Option(help="Models to train and choose from.")] = 10,
    pairs: Annotated[int, Option(help="Entangled and disentangled models of each kind.")] = 1,
    model: Annotated[str, Option(help="The model that is restarted.")] = "beta-vae",
    latents: Annotated[int | None, Option(help="Its latents (default: one a factor).")] = None,
    set_: ModelOption = None,
    data_option: DataOption = None,
    steps: Annotated[int, Option(help="Updates of each restart.")] = 30_000,
    rate: Annotated[float, Option(help="Learning rate of the restarts.")] = 1e-4,
    batch: Annotated[int, Option(help="Observations in each update.")] = 64,
    rounds: Annotated[int, Option(help="Rounds of the modifier at most.")] = 10_000,
    modifier_rate: Annotated[float, Option(help="Learning rate of modifier and decoders.")] = 1e-4,
    control: Annotated[bool, Option(help="Also write a copy with uniform noise.")] = True,
    seed: Seed = 0,
    resume: Annotated[bool, Option("--resume", help="Go on with what is in --out.")] = False,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Move every pixel by at most EPSILON so that VAEs entangle the factors.

    Trains β-VAEs, takes the most and the least entangled, trains a small change of the
    pictures that favours the first, and writes perturbed.npz and noise.npz (the control).
    Both are data like any other. Interrupted, it goes on with --resume.

    Examples:

      zscope data perturb sprites --epsilon 0.1 --set beta=8 --out perturbed/sprites

      zscope train beta-vae perturbed/sprites/perturbed.npz --latents 5 --set beta=8
    """
    from zscope import experiments
    from zscope.data import load

    loaded = load(dataset, root=root, **settings(data_option, "--data-option"))
    folder = out or Path("perturbed") / f"{Path(dataset).stem}-{epsilon:g}"
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
    print(f"MIG of {len(result.scores)} restarts: {scores}")
    print(f"entangled: {_named(result.entangled)}; disentangled: {_named(result.disentangled)}")
    print(
        f"loss of the entangled minus that of the disentangled: {before:+.2f} before, "
        f"{after:+.2f} after {len(result.history)} rounds"
    )
    print(f"largest change of a pixel: {result.largest:.4f} (allowed {epsilon:g})")
    for flag in result.flags:
        print(flag)
    print(f"Use it: zscope train {model} {folder / 'perturbed.npz'}")
    if result.control is not None:
        print(f"Control with uniform noise: {folder / 'noise.npz'}")


def _named(numbers: list[int]) -> str:
    return ", ".join(f"restart {number}" for number in numbers)
