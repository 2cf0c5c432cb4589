"""zscope elbow and zscope beta: searches that train many models by one sweep."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from zscope.cli import completion
from zscope.cli.options import (
    AsJson,
    Cluster,
    ClusterOption,
    DataOption,
    ModelOption,
    Quiet,
    Root,
    Seed,
    check_cluster,
    refuse_unknown_names,
    settings,
    value,
)

__all__ = [
    "Batch", "Figure", "Jobs", "Name", "Rate", "Samples", "Seeds", "beta", "data_with_options",
    "elbow", "prepare_sweep", "print_sweep",
]  # fmt: skip

Name = Annotated[
    str,
    Argument(help="A name from `zscope data list`, or a file.", autocompletion=completion.datasets),
]
Steps = Annotated[int, Option(help="Training steps of each model.")]
Batch = Annotated[int, Option(help="Batch size.")]
Rate = Annotated[float, Option(help="Learning rate.")]
Seeds = Annotated[int, Option(min=1, help="Models of each kind, with seeds from --seed on.")]
Samples = Annotated[int | None, Option(min=1, help="Observations to measure on (default 10,000).")]
Jobs = Annotated[int | None, Option(min=1, help="Processes on this machine (default: the cores).")]
Figure = Annotated[Path | None, Option(help="File of the figure (.png, .pdf, .svg).")]


def elbow(
    dataset: Name,
    sizes: Annotated[str, Option(help="Numbers of latents to try, e.g. 2,4,8,16.")],
    model: Annotated[
        str, Option(help="The model to train.", autocompletion=completion.models)
    ] = "vae",
    score: Annotated[
        str, Option(help="A column of `zscope table` (loss, reconstruction), or an assay.")
    ] = "loss",
    higher: Annotated[
        bool | None,
        Option("--higher/--lower", help="Which scores are good (assays know it; else: low ones)."),
    ] = None,
    steps: Steps = 10_000,
    batch: Batch = 64,
    rate: Rate = 1e-4,
    seed: Seed = 0,
    seeds: Seeds = 3,
    samples: Samples = None,
    set_: ModelOption = None,
    data_option: DataOption = None,
    out: Annotated[
        Path | None, Option(help="Folder of the runs (default runs/elbow-MODEL-DATASET).")
    ] = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    cluster_option: ClusterOption = None,
    figure: Figure = None,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Find the number of latents beyond which a model gets no better on DATASET.

    Trains a model of every size in --sizes with --seeds seeds, and draws --score against the
    size. Two rules read the elbow off the mean curve and off that of each seed: the knee is the
    size farthest from the straight line between the first and the last point; `within` is the
    first size within 2 % of the best. `zscope fondue` looks for the size that a model can use,
    with fewer models.

    OUT is an ordinary sweep: killed and started again it continues, more sizes or seeds train
    only what is new, and `zscope table OUT` shows every score of its runs. The loss is that of
    the last batch that was logged: an assay is less noisy.

    Examples:

      zscope elbow digits --sizes 1,2,4,8,16,32 --steps 2000 --rate 1e-3

      zscope elbow sprites --sizes 2,4,6,8,10 --score reconstruction --figure elbow.png

      zscope elbow sprites --sizes 2,4,6,8,10 --score dci --cluster tcp://host:8786
    """
    from zscope import experiments

    where = prepare_sweep("elbow", dataset, model, out, jobs, cluster, cluster_option, figure)
    where |= {} if samples is None else {"samples": samples}
    result = experiments.elbow_curve(
        data_with_options(dataset, data_option),
        _numbers("elbow: --sizes", sizes, "2,4,8,16"),
        model=model,
        score=score,
        better=None if higher is None else "higher" if higher else "lower",
        options=settings(set_, "--set"),
        steps=steps,
        batch=batch,
        rate=rate,
        seed=seed,
        seeds=seeds,
        root=root,
        progress=not (quiet or json),
        **where,
    )
    print_sweep(result, where["out"], figure, json=json)


def beta(
    dataset: Name,
    betas: Annotated[str, Option(help="Values of β to try, e.g. 0.5,1,2,4,8.")],
    latents: Annotated[int, Option(min=1, help="Latents of the model.")],
    model: Annotated[
        str, Option(help="The variational model to train.", autocompletion=completion.models)
    ] = "beta-vae",
    score: Annotated[
        str | None,
        Option(help="Choose by this among the usable β: mig, distance-to-orthogonality, …"),
    ] = None,
    needed: Annotated[
        int | None, Option(min=1, help="Latents that must be used (default: as at the smallest β).")
    ] = None,
    steps: Steps = 10_000,
    batch: Batch = 64,
    rate: Rate = 1e-4,
    seed: Seed = 0,
    seeds: Seeds = 3,
    samples: Samples = None,
    set_: ModelOption = None,
    data_option: DataOption = None,
    out: Annotated[
        Path | None, Option(help="Folder of the runs (default runs/beta-MODEL-DATASET).")
    ] = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    cluster_option: ClusterOption = None,
    figure: Figure = None,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Find how large β may be before a model of fixed size stops using its latents.

    Trains the model with every β in --betas and --seeds seeds; small networks are trained
    together. The onset is the first β at which the mean posterior variance of some latent
    reaches 0.95: from there on latents are pruned. The β chosen is the largest with as many
    active latents as at the smallest β (or as --needed says), or the best of these by --score.

    OUT is an ordinary sweep: killed and started again it continues, more β or seeds train only
    what is new, and `zscope table OUT` shows every score of its runs. `zscope fondue --search
    beta` bisects instead of trying a list.

    Examples:

      zscope beta digits --betas 0.5,1,2,4,8 --latents 10 --steps 2000 --rate 1e-3

      zscope beta sprites --betas 1,2,4,8,16 --latents 10 --score mig --figure beta.png
    """
    from zscope import experiments

    where = prepare_sweep("beta", dataset, model, out, jobs, cluster, cluster_option, figure)
    where |= {} if samples is None else {"samples": samples}
    result = experiments.search_beta(
        data_with_options(dataset, data_option),
        _numbers("beta: --betas", betas, "0.5,1,2,4,8"),
        latents=latents,
        model=model,
        score=score,
        needed=needed,
        options=settings(set_, "--set"),
        steps=steps,
        batch=batch,
        rate=rate,
        seed=seed,
        seeds=seeds,
        root=root,
        progress=not (quiet or json),
        **where,
    )
    print_sweep(result, where["out"], figure, json=json)


def prepare_sweep(
    command: str,
    dataset: str,
    model: str,
    out: Path | None,
    jobs: int | None,
    cluster: str | None,
    cluster_option: list[str] | None,
    figure: Path | None,
) -> dict[str, Any]:
    """Where the runs go and who trains them, after trying the places to write to."""
    from zscope.cli.outputs import try_figure, try_folder

    refuse_unknown_names(dataset, model)
    check_cluster(command, jobs, cluster, cluster_option)
    folder = out or Path("runs") / f"{command}-{model}-{Path(dataset.partition('?')[0]).stem}"
    try_folder(f"{command}: --out", folder)
    try_figure("--figure", figure)
    return {
        "out": folder,
        "jobs": jobs,
        "cluster": cluster,
        "cluster_options": settings(cluster_option, "--cluster-option"),
    }


def data_with_options(dataset: str, options: list[str] | None) -> str:
    """The data as a plan names them, with the options of --data-option."""
    from zscope.experiments.sweeps.names import data_text, parse_name

    if not options:
        return dataset
    name, own = parse_name(dataset)
    return data_text({"name": name, "options": {**own, **settings(options, "--data-option")}})


def _numbers(option: str, text: str, example: str) -> list[Any]:
    from zscope.errors import ConfigError

    numbers = value(text)
    numbers = numbers if isinstance(numbers, list) else [numbers]
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers):
        raise ConfigError(f"{option}: {text!r} is not a list of numbers, for instance {example}")
    return numbers


def print_sweep(result: Any, out: Path, figure: Path | None, *, json: bool) -> None:
    from zscope.cli.outputs import print_with_figure

    print_with_figure(result, figure, json=json)
    if not json:
        print(f"Runs: zscope table {out}")
