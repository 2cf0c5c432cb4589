"""zscope data alignment: how far do a dataset's factors move it along orthogonal directions?"""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from zscope.cli import completion
from zscope.cli.options import AsJson, DataOption, Root, settings

__all__ = ["alignment"]


def alignment(
    dataset: Annotated[
        str,
        Argument(
            help="A name from `zscope data list` (with ?options), or a path.",
            autocompletion=completion.datasets,
        ),
    ],
    cyclic: Annotated[
        str | None, Option(help="Factors without ends, separated by commas: hue,angle.")
    ] = None,
    samples: Annotated[int, Option(min=1, help="Points of the grid of factors.")] = 2_000,
    seed: Annotated[int, Option(help="Makes the choice of points repeatable.")] = 0,
    data_option: DataOption = None,
    figure: Annotated[Path | None, Option(help="Save a figure (.png, .pdf or .svg).")] = None,
    root: Root = None,
    json: AsJson = False,
) -> None:
    """Measure how aligned a dataset is with its factors, before any model is trained.

    A VAE aligns its latents with the directions in which data vary most. It can find the factors
    only if each moves the data along a direction of its own: if the derivatives by the factors are
    orthogonal and of different length. This is the distance to orthogonality of the data
    themselves (0: aligned; chance: any rotation), from differences on their grid of factors.

    Examples:

      zscope data alignment rooms?resolution=16 --cyclic floor_hue,wall_hue,object_hue

      zscope data alignment cells.csv --data-option factors=dose,time
    """
    from zscope import data as datasets
    from zscope.assays.alignment.dataset_alignment import dataset_alignment
    from zscope.cli.outputs import try_file
    from zscope.errors import DataError
    from zscope.experiments.sweeps.names import parse_name
    from zscope.randomness import named_generator

    if figure is not None:
        try_file("data alignment: --figure", figure)
    name, options = parse_name(dataset)
    data = datasets.load(name, root=root, **{**options, **settings(data_option, "--data-option")})
    factors = data.factors_with_kinds
    if factors is None:
        raise DataError(
            f"data alignment: {data.name} has no factors, so there are no derivatives by them. "
            "Name the columns that are factors: --data-option factors=dose,time"
        )
    words = [word.strip() for word in (cyclic or "").split(",") if word.strip()]
    result = dataset_alignment(
        data.images, factors, cyclic=words, samples=samples,
        generator=named_generator(seed, "dataset-alignment"),
    )  # fmt: skip
    if json:
        from json import dumps

        print(dumps(result.to_dict()))
    else:
        print(result)
    if figure is not None:
        from zscope.plots import save

        save(result.plot(), figure)
