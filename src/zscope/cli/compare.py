"""zscope compare: which layers of two models agree?"""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from zscope.cli.options import AsJson, AssayOption, DataName, DataOption, Root, Seed

__all__ = ["compare"]


def compare(
    first: Annotated[str, Argument(help="A run, a checkpoint file, or package.module:attribute.")],
    second: Annotated[
        str | None, Argument(help="Another one (default: the checkpoints of the first run).")
    ] = None,
    data: DataName = None,
    data_option: DataOption = None,
    samples: Annotated[
        int | None, Option(help="Observations to compare on (default 2,000).")
    ] = None,
    plain: Annotated[
        bool, Option("--plain", help="Plain CKA, biased upwards with few samples.")
    ] = False,
    control: Annotated[
        bool, Option(help="Also compare with an untrained model, and with shuffled samples.")
    ] = True,
    extractor: Annotated[
        str,
        Option(
            help="Features to judge samples of both models by: random, inception, none, or a run "
            "(preferably a classifier of the data)."
        ),
    ] = "random",
    set_: AssayOption = None,
    seed: Seed = 0,
    figure: Annotated[Path | None, Option(help="Save the heatmap to this file.")] = None,
    root: Root = None,
    json: AsJson = False,
) -> None:
    """Compare FIRST and SECOND layer by layer (CKA), their latents and their samples.

    Samples are compared with the data by Fréchet distance, with the same features for both.

    With a single run, its checkpoints are compared with its final model, which shows when
    each layer settled; zscope train --snapshot keeps checkpoints.

    Examples:

      zscope compare runs/a runs/b --figure heatmap.png

      zscope compare runs/a runs/b --extractor runs/classifier

      zscope compare runs/a runs/b --set cka.debiased=false

      zscope compare runs/a
    """
    from zscope import experiments
    from zscope.assays.run import check_options
    from zscope.cli.options import assay_options
    from zscope.cli.outputs import try_file
    from zscope.cli.targets import data_for
    from zscope.errors import RunError
    from zscope.experiments.comparison import SAMPLES
    from zscope.loading import load

    if figure is not None:
        from zscope.plots.theme import check_format

        check_format(figure)
        try_file("compare: --figure", figure)
    options = check_options(assay_options(set_))
    autoencoder = load(first)  # before its data, so that a missing run is reported first
    result = experiments.compare(
        first if second is None else autoencoder,
        second,
        data_for(first, data, data_option, root),
        samples=SAMPLES if samples is None else samples,
        seed=seed,
        debiased=not plain,
        control=control,
        extractor=None if extractor == "none" else extractor,
        options=options,
    )
    unsaved = None
    if figure is not None:
        from zscope.plots import save

        try:
            save(result.plot(), figure)
        except RunError as error:  # the disk is full, say: the comparison is still printed
            figure, unsaved = None, error
    if json:
        from json import dumps

        print(dumps({**result.to_dict(), "figure": None if figure is None else str(figure)}))
    else:
        print(result)
        if figure is not None:
            print(f"figure: {figure}")
    if unsaved is not None:
        raise unsaved
    if getattr(result, "failed", None):
        raise Exit(1)
