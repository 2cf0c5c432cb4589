"""zscope extrapolate: which half of a model has to learn a new value of a factor?"""

from pathlib import Path
from typing import Annotated

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
    settings,
    values_of_factors,
)
from zscope.cli.searches import (
    Batch,
    Figure,
    Jobs,
    Name,
    Rate,
    Samples,
    Seeds,
    data_with_options,
    prepare_sweep,
    print_sweep,
)

__all__ = ["extrapolate"]


def extrapolate(
    model: Annotated[
        str, Argument(help="A name from `zscope models list`.", autocompletion=completion.models)
    ],
    dataset: Name,
    leave_out: Annotated[
        list[str],
        Option(
            metavar="FACTOR=VALUE,VALUE",
            help="Values to leave out at first, e.g. shape=sphere; may be repeated.",
        ),
    ],
    steps: Annotated[int, Option(help="Training steps without the left-out values.")] = 10_000,
    more: Annotated[int, Option(help="Further steps, on all values.")] = 2500,
    latents: Annotated[int, Option(min=1, help="Latents of the model.")] = 10,
    batch: Batch = 64,
    rate: Rate = 1e-4,
    schedule: Annotated[
        str, Option(help="Learning rate schedule: constant, linear or cosine.")
    ] = "constant",
    seed: Seed = 0,
    seeds: Seeds = 3,
    held_out: Annotated[float, Option(help="Share of the data that errors are measured on.")] = 0.2,
    samples: Samples = None,
    set_: ModelOption = None,
    data_option: DataOption = None,
    out: Annotated[
        Path | None, Option(help="Folder of the runs (default runs/extrapolate-MODEL-DATASET).")
    ] = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    cluster_option: ClusterOption = None,
    figure: Figure = None,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Find which half of MODEL has to learn values of a factor that it has not seen.

    Trains MODEL on DATASET without the values of --leave-out for --steps steps, and from there
    for --more steps on all values: the encoder alone (the decoder is frozen), the decoder alone,
    and both. Then it prints the mean squared error of held-out observations with the left-out
    values, and with the others. A share of the gap near 1 for the decoder alone says that the
    encoder could encode the new values without having seen any: only decoding them was missing.

    The sham control goes on with the old values alone. It should stay where it was ("neither"):
    what it gains is due to longer training. Compare the numbers of parameters too: a half with
    few of them can learn little.

    OUT is an ordinary sweep: killed and started again it continues, more seeds train only what
    is new, and `zscope table OUT` shows its runs. --freeze, --start and --leave-out of `zscope
    train`, and fields of these names in the plan of a sweep, do the same for single runs.

    Examples:

      zscope extrapolate ae rooms?resolution=16 --leave-out shape=sphere --steps 1200 --more 300

      zscope extrapolate sae-6 rooms --leave-out orientation=0,1,13,14 --latents 6 --seeds 5

      zscope extrapolate vae cells.csv --data-option factors=dose --leave-out dose=3
    """
    from zscope import experiments

    out_and_jobs = (out, jobs, cluster, cluster_option, figure)
    where = prepare_sweep("extrapolate", dataset, model, *out_and_jobs)
    where |= {} if samples is None else {"samples": samples}
    result = experiments.extrapolate(
        model,
        data_with_options(dataset, data_option),
        leave_out=values_of_factors(leave_out),
        steps=steps,
        more=more,
        latents=latents,
        options=settings(set_, "--set"),
        batch=batch,
        rate=rate,
        schedule=schedule,
        seed=seed,
        seeds=seeds,
        held_out=held_out,
        root=root,
        progress=not (quiet or json),
        **where,
    )
    print_sweep(result, where["out"], figure, json=json)
