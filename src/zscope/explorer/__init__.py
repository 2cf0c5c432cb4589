"""The explorer: a live page in the browser.

import zscope as zs

zs.explore("runs/mine")                       # a run, on its own data
zs.explore(autoencoder, x, compare="runs/other")
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zscope.autoencoder import Autoencoder

__all__ = ["explore"]


def explore(
    target: Any,
    data: Any = None,
    *,
    compare: Any = None,
    weights: str | Path | None = None,
    samples: int | None = None,
    seed: int = 0,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
    root: str | Path | None = None,
    labels: Any = None,
) -> None:
    """Explore the latent space of a model in the browser, until Ctrl-C.

    `target`, and the second model `compare`, are whatever `zs.load` accepts. `data` is a
    Dataset, an array, or the name of a dataset or file as in `zs.data.load`; without it, the
    data of the run (held-out ones if it has any), looked up under `root`; `samples` of them are
    encoded (by default 4,000, or 512 where latents are maps). `labels` of your own, a row for each
    observation of the data, can colour the codes: an array, a data frame, or a file. The page is
    served at `host` and `port` (0: any free port), and opened in the `browser`.
    """
    import os
    import sys

    import torch

    from zscope import data as datasets
    from zscope.explorer.serving import LOOPBACK, listen, serve
    from zscope.explorer.session import Session
    from zscope.loading import load, run_data

    listen(host, port).close()  # fails before the model is loaded
    if host not in LOOPBACK:
        print(
            f"explore: listening at {host}, which other machines in the network can reach. Anyone "
            "who has the address with its token can use the model, and traffic is not encrypted. "
            "For one person on another machine, an SSH tunnel to 127.0.0.1 is safer.",
            file=sys.stderr,
        )
    autoencoder = load(target, weights=weights)
    other = None if compare is None else load(compare)
    if data is None:
        data = run_data(target, root=root)
    elif isinstance(data, str | Path):
        data = datasets.load(str(data), root=root)
    threads = torch.get_num_threads()
    # Leave one core for the page while a long answer is computed.
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    try:
        session = Session(
            autoencoder,
            data,
            name=name_of(target, autoencoder),
            samples=samples,
            seed=seed,
            other=other,
            other_name="" if other is None else name_of(compare, other),
            labels=labels,
        )
        serve(session, host=host, port=port, browser=browser)
    finally:
        torch.set_num_threads(threads)


def name_of(target: Any, autoencoder: "Autoencoder") -> str:
    """The last part of a path, an import path as it is, the title of the model of an object."""
    if not isinstance(target, str | Path):
        return autoencoder.title
    return str(target) if ":" in str(target) else Path(target).resolve().name
