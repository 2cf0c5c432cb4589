"""zscope export: the codes of a model as a table for other programs."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from zscope.cli import options

__all__ = ["export"]


def export(
    target: options.Target,
    out: Annotated[
        Path,
        Argument(metavar="FILE", help="The table, .parquet or .csv."),
    ],
    data: options.DataName = None,
    data_option: options.DataOption = None,
    weights: options.Weights = None,
    factors: options.FactorsFile = None,
    kinds: options.Kinds = None,
    variances: options.Variances = None,
    samples: options.Samples = None,
    holes: Annotated[
        bool,
        Option(
            "--holes/--no-holes", help="Hole scores, for which every code is decoded and encoded."
        ),
    ] = True,
    seed: options.Seed = 0,
    root: options.Root = None,
    quiet: options.Quiet = False,
) -> None:
    """Write the codes of TARGET as a table, a row for each observation.

    Columns: index (the row of the data), code_0, ... (posterior means), std_0, ... (posterior
    standard deviations), hole_score (how far the code moves when it is decoded and encoded
    again; 1 is typical) and in_hole, the factors by name, and path (the file of the picture,
    where the data are a folder). The type of each latent is in the metadata: of a Parquet file,
    under the key "zscope"; of FILE.csv in FILE.metadata.json.

    Examples:

      zscope export runs/mine codes.parquet

      zscope export runs/mine codes.csv --samples 50000 --no-holes

      zscope export mymodel:load codes.parquet --data pictures/
    """
    from zscope.cli.outputs import try_file
    from zscope.report.codes import check_table_file, code_table

    for place in check_table_file(out):
        try_file("export: FILE", place)
    from zscope.cli.targets import recording_of
    from zscope.report.progress import show_progress

    with show_progress(False if quiet else None):
        recording = recording_of(
            "export", target, data=data, data_option=data_option, weights=weights, factors=factors,
            kinds=kinds, variances=variances, samples=samples, seed=seed, root=root,
        )  # fmt: skip
        table = code_table(recording, holes=holes)
        files = table.save(out)
    print(f"{len(table):,} observations in {files[0]}: {table.column_text}")
    if holes and "no_hole_score" in table.metadata:
        print(f"No hole scores: {table.metadata['no_hole_score']}")
    for file in files[1:]:
        print(f"types of the latents: {file}")
