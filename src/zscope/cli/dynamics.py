"""zscope dynamics: how did a model become what it is?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from zscope.cli.options import AsJson, DataName, DataOption, Root, Seed

if TYPE_CHECKING:
    from zscope.experiments.training_dynamics import Dynamics

__all__ = ["dynamics"]


def dynamics(
    run: Annotated[str, Argument(help="A run with checkpoints.")],
    parts: Annotated[
        list[str] | None,
        Argument(
            metavar="[PART]...",
            help="similarity, dimension, correlations, alignment or types (default: all that "
            "apply).",
        ),
    ] = None,
    data: DataName = None,
    data_option: DataOption = None,
    samples: Annotated[
        int | None, Option(help="Observations to measure on (default 2,000).")
    ] = None,
    seed: Seed = 0,
    figure: Annotated[
        Path | None,
        Option(help="Save the figure to this file; of several parts, to FILE-PART each."),
    ] = None,
    root: Root = None,
    json: AsJson = False,
    csv: Annotated[bool, Option("--csv", help="Print the numbers of one part as CSV.")] = False,
) -> None:
    """Follow RUN over its checkpoints, from the untrained model to the final one.

    similarity: CKA, Procrustes and the smaller of both, layer by layer, with the final model.
    dimension: the intrinsic dimension of every layer. correlations: between latents, and how
    often they are large. alignment: of the decoder with the latent axes, and how polarised the
    latents are. types: how many latents are active, mixed and passive, from the history.

    All but the types need checkpoints: zscope train --snapshot-every STEPS.

    Examples:

      zscope dynamics runs/a

      zscope dynamics runs/a similarity --figure maps.png

      zscope dynamics runs/a dimension alignment --figure over-training.pdf

      zscope dynamics runs/a types --csv
    """
    from zscope import experiments
    from zscope.cli.options import check_output
    from zscope.cli.outputs import try_figure
    from zscope.cli.targets import data_for
    from zscope.errors import ConfigError
    from zscope.experiments.comparison import SAMPLES
    from zscope.report.progress import show_progress

    try_figure("dynamics: --figure", figure)
    check_output("dynamics", json=json, csv=csv)
    if csv and len(parts or []) != 1:
        raise ConfigError(
            f"dynamics: --csv prints one table, and {len(parts or []) or 'all'} parts were named. "
            "Name one of them, for instance: zscope dynamics RUN types --csv"
        )
    given = data is not None or data_option or root is not None
    with show_progress(None) as progress:
        result = experiments.dynamics(
            run,
            parts or None,
            data_for(run, data, data_option, root) if given else None,
            samples=SAMPLES if samples is None else samples,
            seed=seed,
            progress=progress,
        )
    _print(result, figure, json=json, csv=csv)


def _print(result: "Dynamics", figure: Path | None, *, json: bool, csv: bool) -> None:
    from zscope.cli.outputs import save_figures

    single = len(result.results) == 1
    files = {} if figure is None else {
        figure if single else figure.with_stem(f"{figure.stem}-{part}"): each
        for part, each in result.results.items()
    }  # fmt: skip
    saved, unsaved = save_figures({**files})
    if json:
        from json import dumps

        print(dumps({**result.to_dict(), "figures": [str(file) for file in saved]}))
    elif csv:
        from zscope.report.tables import as_csv

        (part,) = result.results.values()
        print(as_csv(part.records(), part.columns).decode(), end="")
    else:
        print(result)
        for file in saved:
            print(f"figure: {file}")
    if unsaved is not None:
        raise unsaved
