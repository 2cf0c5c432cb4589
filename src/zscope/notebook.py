"""Notebooks: whether code runs in one, and a line of output there that is rewritten.

A kernel's stderr is no terminal, and rich draws there with ipywidgets only, which few have. A line
of HTML that is displayed once and then updated is shown by every front end.
"""

import math
import secrets
import sys
import time
from html import escape
from typing import Any

__all__ = ["Line", "cell", "in_notebook"]


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook; IPython is not loaded to answer it."""
    return hasattr(_shell(), "kernel")


def cell() -> str:
    """The cell that is running, as far as the front end names it; otherwise empty."""
    if not in_notebook():
        return ""
    metadata = _shell().kernel.get_parent().get("metadata", {})
    return str(metadata.get("cellId", ""))


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


class Line:
    """A line with a bar below a cell: displayed once, then updated, at most 5 times a second."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(8)
        self._first, self._shown = True, -math.inf

    def show(self, text: str, share: float | None = None, *, last: bool = False) -> None:
        """Show a text after a bar of which `share` is done; None: how much is not known."""
        if not last and time.monotonic() - self._shown < 0.2:
            return
        value = "" if share is None else f' value="{share:.4f}"'
        bar = f'<progress max="1"{value} style="vertical-align: middle; width: 16em"></progress>'
        _shell().display_pub.publish(
            {"text/plain": text, "text/html": f"<div>{bar} <code>{escape(text)}</code></div>"},
            transient={"display_id": self._name},
            update=not self._first,
        )
        self._first, self._shown = False, time.monotonic()
