"""The explorer: a live page in the browser.

import zscope as zs

zs.explore("runs/mine")                       # a run, on its own data
zs.explore(autoencoder, x, compare="runs/other")

In a notebook the same page appears in a frame below the cell.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zscope.autoencoder import Autoencoder
    from zscope.explorer.frame import Frame

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
) -> "Frame | None":
    """Explore the latent space of a model in the browser, until Ctrl-C; or below a notebook's cell.

    `target`, and the second model `compare`, are whatever `zs.load` accepts. `data` is a
    Dataset, an array, or the name of a dataset or file as in `zs.data.load`; without it, the
    data of the run (held-out ones if it has any), looked up under `root`; `samples` of them are
    encoded (by default 4,000, or 512 where latents are maps). `labels` of your own, a row for each
    observation of the data, can colour the codes: an array, a data frame, or a file. The page is
    served at `host` and `port` (0: any free port), and opened in the `browser`.

    In a notebook the call returns at once, with a `Frame` that shows the page below the cell, as
    the last value of the cell or by `display(frame)`. It explores a copy of the model, so that
    training may go on, where it can be copied (functions that hold a model cannot). It runs until
    `frame.close()`, until the cell is run again or until the kernel ends; `frame.url` opens it in
    a tab. The page comes from the machine of the kernel: a browser elsewhere, as with JupyterHub,
    Colab or VS Code over SSH, cannot reach it. Forward the port there, or use `zscope explore`
    through an SSH tunnel. The address holds the token that protects the page, and so does the
    output of the cell if the notebook is saved; it is worth nothing once the kernel has ended.
    """
    import os
    import sys
    from contextlib import suppress
    from copy import deepcopy

    import torch

    from zscope import data as datasets
    from zscope.explorer.serving import LOOPBACK, listen, serve
    from zscope.explorer.session import Session
    from zscope.loading import load, run_data
    from zscope.notebook import cell, in_notebook

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
    name = name_of(target, autoencoder)

    def start() -> Session:
        return Session(
            autoencoder,
            data,
            name=name,
            samples=samples,
            seed=seed,
            other=other,
            other_name="" if other is None else name_of(compare, other),
            labels=labels,
        )

    if in_notebook():
        from zscope.explorer.frame import show

        with suppress(Exception):  # whatever the parts of a model raise that cannot be copied
            autoencoder, other = deepcopy((autoencoder, other))
        return show(start(), host=host, port=port, cell=cell())
    threads = torch.get_num_threads()
    # Leave one core for the page while a long answer is computed.
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    try:
        serve(start(), host=host, port=port, browser=browser)
    finally:
        torch.set_num_threads(threads)
    return None


def name_of(target: Any, autoencoder: "Autoencoder") -> str:
    """The last part of a path, an import path as it is, the title of the model of an object."""
    if not isinstance(target, str | Path):
        return autoencoder.title
    return str(target) if ":" in str(target) else Path(target).resolve().name
