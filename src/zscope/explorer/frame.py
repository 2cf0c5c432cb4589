"""The explorer in a notebook: served by the kernel, shown in a frame below the cell."""

import atexit
import threading
from html import escape

from zscope.errors import ResourceError
from zscope.explorer.serving import create_server
from zscope.explorer.session import Session

__all__ = ["Frame", "show"]

HEIGHT = 760
"""Pixels."""
PATIENCE = 20.0
"""Seconds in which a server starts or stops."""

_open: dict[str, "Frame"] = {}
"""By the cell that shows them."""


class Frame:
    """The explorer below a cell; `url` opens it in a tab, `close()` ends it, as the kernel does."""

    def __init__(self, session: Session, *, host: str, port: int) -> None:
        self.session = session
        self._server, self._listening, self.url = create_server(
            session, host=host, port=port, framed=True
        )
        run, sockets = self._server.run, [self._listening]
        self._thread = threading.Thread(target=run, kwargs={"sockets": sockets}, daemon=True)
        self._thread.start()
        self.closed = False
        atexit.register(self.close)
        if not self._server.wait_until_started(PATIENCE):
            self.close()
            raise ResourceError(
                f"explore: the server did not start within {PATIENCE:g} s. Is the machine "
                "overloaded? Try again, or use the command: zscope explore TARGET"
            )

    def close(self) -> None:
        """Stop the server and free its port; the frame then shows nothing any more."""
        if self.closed:
            return
        self.closed = True
        atexit.unregister(self.close)
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._listening.close()
        self.session.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"at {self.url}"
        return f"Explorer of {self.session.subject.name}, {state}"

    def _repr_html_(self) -> str:
        name = escape(self.session.subject.name)
        if self.closed:
            return f"<div>Explorer of {name}: closed</div>"
        address = escape(self.url)
        style = "border: 1px solid rgba(128, 128, 128, 0.4); border-radius: 6px"
        return (
            f'<iframe src="{escape(frame_address(self.url))}" title="Explorer of {name}" '
            f'width="100%" height="{HEIGHT}" style="{style}" allow="clipboard-write"></iframe>'
            f'<div><a href="{address}" target="_blank" rel="noopener">Open in a tab</a>. '
            "Runs until the kernel ends.</div>"
        )


def frame_address(url: str) -> str:
    """The address with the token in its path: in the frame of another page there are no cookies."""
    place, _, token = url.partition("/?token=")
    return f"{place}/{token}/"


def show(session: Session, *, host: str, port: int, cell: str) -> Frame:
    """A frame below this cell; what it has shown before is closed."""
    if cell and (before := _open.pop(cell, None)):
        before.close()
    frame = Frame(session, host=host, port=port)
    if cell:
        _open[cell] = frame
    return frame
