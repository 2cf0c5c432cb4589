"""zscope compare: which layers of two models agree?"""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from zscope.cli.options import AsJson, DataName, DataOption, Root, Seed


def compare(
    first: Annotated[str, Argument(help="A run, a checkpoint file, or package.module:attribute.")],
    second: Annotated[
        str | None, Argument(help="Another; left out: the checkpoints of the first run.")
    ] = None,
    data: DataName = None,
    data_option: DataOption = None,
    samples: Annotated[int, Option(help="Observations to compare on.")] = 2000,
    plain: Annotated[
        bool, Option("--plain", help="Plain CKA, biased upwards with few samples.")
    ] = False,
    control: Annotated[
        bool, Option(help="Also compare with an untrained model, and with shuffled samples.")
    ] = True,
    seed: Seed = 0,
    figure: Annotated[Path | None, Option(help="Draw the heatmap into this file.")] = None,
    root: Root = None,
    json: AsJson = False,
) -> None:
    """Compare FIRST and SECOND layer by layer (CKA), and their latents in other ways too.

    With one run alone, its checkpoints are compared with its final model, which shows when
    each layer settled; --snapshot of zscope train keeps checkpoints.

    Examples:

      zscope compare runs/a runs/b --figure heatmap.png

      zscope compare runs/a
    """
    from zscope.cli.assay import data_for
    from zscope.experiments.comparison import compare_models, settling
    from zscope.loading import load
    from zscope.recording import as_dataset

    model = load(first)
    dataset = as_dataset(data_for(first, data, data_option, root))
    options: dict[str, Any] = {"samples": samples, "seed": seed, "debiased": not plain}
    if second is None:
        result: Any = settling(Path(first), model, dataset, **options)
    else:
        result = compare_models(model, load(second), dataset, control=control, **options)
    drawn = None
    if figure is not None:
        from zscope.plots import save

        figure.parent.mkdir(parents=True, exist_ok=True)
        save(result.plot(), figure)
        drawn = figure
    if json:
        from json import dumps

        print(dumps({**result.to_dict(), "figure": None if drawn is None else str(drawn)}))
        return
    print(table(result))
    if drawn is not None:
        print(f"figure: {drawn}")


def table(result: Any) -> str:
    """Lines of aligned columns."""
    rows = result.table()
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([*lines, *result.notes()])
