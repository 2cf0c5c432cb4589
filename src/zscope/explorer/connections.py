"""Connections: whoever has no token cannot hold them at the cost of those who have it.

- A request, header and body together, must arrive within `PATIENCE` seconds.
- A connection is a stranger until a request with the token comes over it. Strangers are
  closed after `PATIENCE` seconds whatever they send, and of more than `STRANGERS` from one
  address the oldest.
- Of more than `ADMITTED` other connections from one address an idle one is closed; where none
  is idle, the request is refused.

Idle connections are closed by uvicorn, after five seconds.
"""

import asyncio
import selectors
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Connection"]

PATIENCE = 10.0
STRANGERS = 64
ADMITTED = 256


class Connection(H11Protocol):
    """One connection; the guard calls `admit`, which it finds in the state of the request."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.app_state = {**self.app_state, "admit": self.admit}
        self.admitted = False
        self.answered = False
        self.made = 0.0
        self.deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.made = self.loop.time()
        self._set_deadline()
        self.loop.call_soon(self._make_room)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.admitted and not self._receiving():
            self._cancel_deadline()
        elif self.deadline is None:
            self._set_deadline()

    def on_response_complete(self) -> None:
        self.answered = True
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        if self._receiving():
            self.transport.abort()  # the server would wait for the rest of the request

    def admit(self) -> bool:
        """A request had the token: whether there is room for its connection."""
        if not self.admitted:
            others = [each for each in self._neighbours() if each.admitted]
            idle = [each for each in others if each.timeout_keep_alive_task is not None]
            if len(others) >= ADMITTED:
                if not idle:
                    return False
                min(idle, key=lambda each: each.made).transport.abort()
            self.admitted = True
            if not self._receiving():
                self._cancel_deadline()
        return True

    def _make_room(self) -> None:
        """Close the oldest strangers of this address, if there are too many."""
        strangers = [each for each in self._neighbours() if not each.admitted]
        strangers.sort(key=lambda each: each.made)
        surplus = len(strangers) - STRANGERS
        if surplus <= 0 or strangers[-1] is not self:
            return  # of those accepted at once, the last makes room
        # Not those whose request may have the token, but was not looked at yet.
        unread = _with_unread_data(strangers)
        expendable = [
            each for each in strangers if each.answered or not (each.cycle or each in unread)
        ]
        for each in expendable[:surplus]:
            each.transport.abort()

    def _neighbours(self) -> list["Connection"]:
        """The open connections from the same address."""
        address = self.client and self.client[0]
        return [
            each
            for each in self.connections
            if isinstance(each, Connection)
            and (each.client and each.client[0]) == address
            and not each.transport.is_closing()
        ]

    def _receiving(self) -> bool:
        """Whether a part of a request is still to come."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _set_deadline(self) -> None:
        self.deadline = self.loop.call_later(PATIENCE, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


def _with_unread_data(connections: list[Connection]) -> set[Connection]:
    with getattr(selectors, "PollSelector", selectors.SelectSelector)() as selector:
        for each in connections:
            selector.register(each.transport.get_extra_info("socket"), selectors.EVENT_READ, each)
        return {key.data for key, _ in selector.select(0)}
