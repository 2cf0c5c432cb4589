"""Serve the explorer from this process until it is stopped."""

import asyncio
import atexit
import os
import secrets
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from zscope.errors import ConfigError, MissingExtra
from zscope.explorer.app import create_app
from zscope.explorer.guard import LONGEST_ADDRESS
from zscope.explorer.session import Session

__all__ = ["create_server", "serve"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ALL_ADDRESSES = ("0.0.0.0", "::", "")


def serve(
    session: Session,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a session on `host` and `port` (0: any free port) until Ctrl-C.

    SIGTERM stops it as well, and then ends the program with exit code 143.
    """
    server, listening, address = create_server(session, host=host, port=port)
    say(f"Exploring {session.subject.name} at\n\n  {address}\n\nPress Ctrl-C to stop.")
    if browser:
        threading.Thread(target=_open, args=(server, address), daemon=True).start()
    code = 0
    try:
        with _sigterm_raises():
            _run(server, listening)
    except Terminated:
        code = 128 + signal.SIGTERM
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()
        stopped = session.close()
    say("Stopped.")
    if not stopped:
        # A model call that is still running may crash the interpreter while it shuts down, or
        # have it wait for ever: `atexit` alone comes after threads that the call waits for.
        register = getattr(threading, "_register_atexit", atexit.register)
        register(_exit, code)
    if code:
        raise SystemExit(code)


class Terminated(KeyboardInterrupt):
    """SIGTERM was received."""


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Turn SIGTERM into `Terminated`; uvicorn repeats a signal once it has shut down."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return

    def terminate(*_: Any) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(server: Any, listening: socket.socket) -> None:
    """Run the server until it stops; in a thread where an event loop runs, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        server.run(sockets=[listening])
        return
    stopped = threading.Event()

    def run() -> None:
        try:
            server.run(sockets=[listening])
        finally:
            stopped.set()

    threading.Thread(target=run, daemon=True).start()
    try:
        while not stopped.wait(0.2):  # an interrupt does not end a wait without a limit
            pass
    finally:
        server.should_exit = True
        stopped.wait()


def create_server(
    session: Session, *, host: str = "127.0.0.1", port: int = 0, framed: bool = False
) -> tuple[Any, socket.socket, str]:
    """(the server, the socket it will listen on, the address with its token).

    With `framed`, pages of this machine that know the token may show it in a frame.
    """
    try:
        import uvicorn

        from zscope.explorer.connections import Connection
    except ImportError as error:
        raise MissingExtra("explore", "uvicorn", "explore") from error

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.stopping.set()
            await super().shutdown(sockets)

        def wait_until_started(self, seconds: float) -> bool:
            """Whether it has started within this time, in another thread."""
            end = time.monotonic() + seconds
            while not self.started and time.monotonic() < end:
                time.sleep(0.01)
            return self.started

    token = secrets.token_urlsafe(32)
    app = create_app(
        session,
        token=token,
        names=host_names(host),
        any_address=host in ALL_ADDRESSES,
        framed=framed,
    )
    listening = listen(host, port)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_level="error",  # warnings are about requests: anybody could fill the terminal
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=2 * LONGEST_ADDRESS,  # the address, and other headers
        backlog=128,  # as many are accepted at once, and each needs a file descriptor
    )
    name = socket.gethostname() if host in ALL_ADDRESSES else host
    name = f"[{name}]" if ":" in name else name
    address = f"http://{name}:{listening.getsockname()[1]}/?token={token}"
    return Server(config), listening, address


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at this address; ConfigError if there cannot be one."""
    listening = None
    try:
        if not 0 <= port < 2**16:
            raise OSError("ports are numbers from 0 to 65535")
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)  # whoever connects before the server runs waits for it
        return listening
    except OSError as error:
        if listening is not None:
            listening.close()
        raise ConfigError(
            f"explore: cannot listen at {host}:{port} ({error.strerror or error}). Does another "
            "program, or another explorer, use this port? Leave --port out to use a free one."
        ) from error


def host_names(host: str) -> set[str]:
    """The host names that requests may use."""
    names = {*LOOPBACK, host}
    return names | {socket.gethostname(), socket.getfqdn()} if host in ALL_ADDRESSES else names


def _open(server: Any, address: str) -> None:
    """Open the browser when the server has started."""
    if server.wait_until_started(10.0):
        webbrowser.open(address)
