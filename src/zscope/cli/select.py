"""zscope select: which of many trained models is the most disentangled?"""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from zscope.cli.options import AsJson, AssayOption, DataName, DataOption, Root, Seed, Where
from zscope.errors import ConfigError

__all__ = ["folders_where", "select"]


def select(
    runs: Annotated[list[str], Argument(metavar="RUNS", help="A folder of runs, or several.")],
    rank: Annotated[
        str | None,
        Option(metavar="COLUMN", help="The column that orders the table (default: UDR)."),
    ] = None,
    scores: Annotated[
        str | None,
        Option(
            metavar="ASSAYS",
            help="Scores to stand beside (default: mig,dci,sap,factor-vae-score).",
        ),
    ] = None,
    where: Where = None,
    data: DataName = None,
    data_option: DataOption = None,
    samples: Annotated[int | None, Option(help="Observations to encode (default 10,000).")] = None,
    set_: AssayOption = None,
    seed: Seed = 0,
    figure: Annotated[Path | None, Option(help="Save the rank correlations to this file.")] = None,
    root: Root = None,
    json: AsJson = False,
    csv: Annotated[bool, Option("--csv", help="Print the table as CSV.")] = False,
) -> None:
    """Rank the models in RUNS by criteria that need no factors, best first.

    UDR: does a model agree with those that differ from it in the seed alone? It needs two seeds of
    each configuration or more. Distance to orthogonality, as a share of chance: does the decoder
    stretch space along the latent axes? Where the data have factors, the scores that use them
    stand beside, with the rank correlation of each criterion with each score. All models must be
    of the same data, because the scores of different data cannot be compared.

    Examples:

      zscope select runs

      zscope select runs --rank distance-to-orthogonality --csv

      zscope select runs --where data=digits --where beta=1,4

      zscope select runs/a runs/b runs/c --scores mig,dci --json
    """
    from zscope import experiments
    from zscope.assays.run import check_options
    from zscope.cli.options import assay_options, check_output
    from zscope.cli.outputs import print_with_figure, try_figure
    from zscope.cli.targets import data_for
    from zscope.experiments.families import find_members
    from zscope.recording import SAMPLES
    from zscope.report.progress import show_progress
    from zscope.report.tables import as_csv

    try_figure("select: --figure", figure)
    check_output("select", json=json, csv=csv)
    options = check_options(assay_options(set_))
    if where:
        runs = folders_where("select", runs, where)
    observed = None
    if data is not None:
        first = find_members("select", runs)[0][0]
        observed = data_for(str(first.path), data, data_option, root)
    with show_progress(None) as progress:
        result = experiments.select_models(
            runs,
            observed,
            root=root,
            rank=rank,
            scores=None if scores is None else [part.strip() for part in scores.split(",")],
            options=options,
            samples=SAMPLES if samples is None else samples,
            seed=seed,
            progress=progress,
        )
    table = as_csv(result.records(), list(result.records()[0])) if csv else None
    print_with_figure(result, figure, json=json, csv=table)


def folders_where(command: str, targets: list[str], where: list[str]) -> list[str]:
    """The folders of the runs that fulfil the conditions, of which some targets may have none."""
    from zscope.cli.options import runs_where
    from zscope.collection import runs as read_runs

    folders, refusals = [], []
    for target in targets:
        try:
            folders += [str(path) for path in runs_where(command, read_runs(target), where).paths]
        except ConfigError as error:
            refusals.append(error)
    if not folders:
        raise refusals[0]
    return folders
