"""zscope explore: explore a model in the browser."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from zscope.cli.options import DataName, DataOption, Root, Seed, Weights

__all__ = ["explore"]


def explore(
    target: Annotated[
        str,
        Argument(
            help="A run, a folder saved by diffusers or pythae, hf:org/name on the Hugging Face "
            "hub, package.module:attribute, or file.py:attribute."
        ),
    ],
    data: DataName = None,
    data_option: DataOption = None,
    weights: Weights = None,
    compare: Annotated[
        str | None, Option(metavar="TARGET", help="A second model, to compare with the first.")
    ] = None,
    samples: Annotated[
        int | None, Option(help="Observations to encode (default 4,000; of latent maps 512).")
    ] = None,
    labels: Annotated[
        Path | None,
        Option(help="Your own labels, a row for each observation: .csv, .npy, .parquet, …"),
    ] = None,
    seed: Seed = 0,
    port: Annotated[int, Option(help="Port to listen on; 0 for any free port.")] = 0,
    host: Annotated[
        str, Option(help="Address to listen on; any but 127.0.0.1 is open to the network.")
    ] = "127.0.0.1",
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    root: Root = None,
) -> None:
    """Explore the latent space of TARGET in the browser.

    Starts a local server, opens its page, and runs until Ctrl-C. Move sliders to see
    what each latent does and how the decoded observation is encoded again.

    Examples:

      zscope explore runs/mine

      zscope explore runs/mine --compare runs/other

      zscope explore mymodel:load --data images.npy --no-browser --port 8000
    """
    from zscope import explorer
    from zscope.cli.targets import data_for

    explorer.explore(
        target,
        None if data is None else data_for(target, data, data_option, root),
        compare=compare,
        weights=weights,
        samples=samples,
        seed=seed,
        host=host,
        port=port,
        browser=browser,
        root=root,
        labels=labels,
    )
