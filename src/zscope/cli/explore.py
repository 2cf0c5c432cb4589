"""zscope explore: explore a model in the browser."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from zscope.cli.options import DataName, DataOption, Root, Seed, Weights


def explore(
    target: Annotated[str, Argument(help="A run, or package.module:attribute.")],
    data: DataName = None,
    data_option: DataOption = None,
    weights: Weights = None,
    compare: Annotated[
        str | None, Option(metavar="TARGET", help="A second model, to compare with the first.")
    ] = None,
    samples: Annotated[int, Option(help="Observations to encode.")] = 4000,
    seed: Seed = 0,
    port: Annotated[int, Option(help="Port to listen on; 0 takes a free one.")] = 0,
    host: Annotated[
        str, Option(help="Address to listen on; any but 127.0.0.1 is open to the network.")
    ] = "127.0.0.1",
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    root: Root = None,
) -> None:
    """Explore the latent space of TARGET in the browser.

    Starts a local server, opens its page, and runs until Ctrl-C. Move sliders, and see
    what a latent does and what the encoder makes of the decoded observation.

    Examples:

      zscope explore runs/mine

      zscope explore runs/mine --compare runs/other

      zscope explore mymodel:load --data images.npy --no-browser --port 8000
    """
    import os
    import sys

    import torch

    from zscope.cli.targets import data_for
    from zscope.explorer.serving import LOOPBACK, bound, serve
    from zscope.explorer.session import Session
    from zscope.loading import load

    bound(host, port).close()  # refuse an unusable address before a model is loaded
    if host not in LOOPBACK:
        print(
            f"explore: listening on {host}, which other machines in the network can reach. Anyone "
            "who has the address with its token can use the model, and the connection is not "
            "encrypted. To use it from another machine, an SSH tunnel to 127.0.0.1 is safer.",
            file=sys.stderr,
        )
    # One core is left for the page during long computations.
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    session = Session(
        load(target, weights=weights),
        data_for(target, data, data_option, root),
        name=name_of(target),
        samples=samples,
        seed=seed,
        other=None if compare is None else load(compare),
        other_name="" if compare is None else name_of(compare),
    )
    serve(session, host=host, port=port, browser=browser)


def name_of(target: str) -> str:
    """The last part of a path; an import path is left as it is."""
    return target if ":" in target else Path(target).resolve().name
