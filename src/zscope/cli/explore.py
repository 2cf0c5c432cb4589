"""zscope explore: look into a model in the browser."""

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
        str | None, Option(metavar="TARGET", help="A second model, seen beside the first.")
    ] = None,
    samples: Annotated[int, Option(help="Observations to encode.")] = 4000,
    seed: Seed = 0,
    port: Annotated[int, Option(help="Where to listen; 0 takes a free port.")] = 0,
    host: Annotated[
        str, Option(help="The address to listen at; others than 127.0.0.1 are open to others.")
    ] = "127.0.0.1",
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    root: Root = None,
) -> None:
    """Explore the latent space of TARGET in the browser, until Ctrl-C.

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

    bound(host, port).close()  # said at once, before a model is loaded
    if host not in LOOPBACK:
        print(
            f"explore: listening at {host}, which others in the network can reach. Whoever has the "
            "address with its token can use the model; it travels unencrypted. For one person on "
            "another machine, an SSH tunnel to 127.0.0.1 is safer.",
            file=sys.stderr,
        )
    # One core is left for the page while something long is worked out.
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
    """The last part of a path; an import path as it is."""
    return target if ":" in target else Path(target).resolve().name
