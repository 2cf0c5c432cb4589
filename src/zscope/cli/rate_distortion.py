"""zscope rate-distortion: are models with different β as good as they could be?"""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from zscope.cli.options import AsJson, DataName, DataOption, Root, Seed, Where

__all__ = ["rate_distortion"]


def rate_distortion(
    runs: Annotated[list[str], Argument(metavar="RUNS", help="A folder of runs, or several.")],
    where: Where = None,
    data: DataName = None,
    data_option: DataOption = None,
    samples: Annotated[
        int | None, Option(help="Observations to measure on (default 2,000).")
    ] = None,
    tolerance: Annotated[
        float, Option(help="Nats by which a loss may exceed that of a neighbour.")
    ] = 0.0,
    seed: Seed = 0,
    figure: Annotated[
        Path | None, Option(help="Save rate against distortion to this file.")
    ] = None,
    root: Root = None,
    json: AsJson = False,
    csv: Annotated[bool, Option("--csv", help="Print the table as CSV.")] = False,
) -> None:
    """Rate against distortion of the models in RUNS, as a curve over β for each family.

    Runs that agree in everything but β and the seed are one curve. The slope between two
    neighbouring β lies between them if both models are the best for their β; elsewhere one of
    them has a lower loss at the β of the other, and is named. Between curves of the same data
    the distortion at equal rate is compared.

    Examples:

      zscope rate-distortion runs

      zscope rate-distortion runs --where model=beta-vae --figure plane.png

      zscope rate-distortion runs/narrow runs/wide --csv
    """
    from zscope import experiments
    from zscope.cli.options import check_output
    from zscope.cli.outputs import print_with_figure, try_figure
    from zscope.cli.select import folders_where
    from zscope.cli.targets import data_for
    from zscope.experiments.families import find_members
    from zscope.experiments.observed import SAMPLES
    from zscope.report.progress import show_progress
    from zscope.report.tables import as_csv

    try_figure("rate-distortion: --figure", figure)
    check_output("zscope rate-distortion", json=json, csv=csv)
    if where:
        runs = folders_where("zscope rate-distortion", runs, where)
    observed = None
    if data is not None:
        first = find_members("zscope rate-distortion", runs)[0][0]
        observed = data_for(str(first.path), data, data_option, root)
    with show_progress(None) as progress:
        result = experiments.rate_distortion_curves(
            runs,
            observed,
            root=root,
            samples=SAMPLES if samples is None else samples,
            seed=seed,
            tolerance=tolerance,
            progress=progress,
        )
    table = as_csv(result.records(), result.columns) if csv else None
    print_with_figure(result, figure, json=json, csv=table)
