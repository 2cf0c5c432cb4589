"""Serve the explorer from this process until it is stopped."""

import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

from zscope.errors import ConfigError, MissingExtra
from zscope.explorer.app import create_app
from zscope.explorer.session import Session

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERY = ("0.0.0.0", "::", "")


def serve(
    session: Session,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve on `host` (the loopback address) and `port` (a free one) until Ctrl-C."""
    server, listening, address = prepared(session, host=host, port=port)
    say(f"Exploring {session.subject.name} at\n\n  {address}\n\nCtrl-C stops it.")
    if browser:
        threading.Thread(target=_open, args=(server, address), daemon=True).start()
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()
        ended = session.close()
    say("Stopped.")
    if not ended:
        # A model call that cannot be interrupted would keep the program, or crash its end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def prepared(
    session: Session, *, host: str = "127.0.0.1", port: int = 0
) -> tuple[Any, socket.socket, str]:
    """(the server, the socket it will use, the address with its token)."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("explore", "uvicorn", "explore") from error

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.ending.set()
            await super().shutdown(sockets)

    token = secrets.token_urlsafe(32)
    app = create_app(session, token=token, names=names_of(host), any_address=host in EVERY)
    listening = bound(host, port)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=5,
        limit_concurrency=256,
    )
    shown = socket.gethostname() if host in EVERY else host
    shown = f"[{shown}]" if ":" in shown else shown
    address = f"http://{shown}:{listening.getsockname()[1]}/?token={token}"
    return Server(config), listening, address


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens at this address, or a word on why there is none."""
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
        return listening
    except OSError as error:
        if listening is not None:
            listening.close()
        raise ConfigError(
            f"explore: cannot listen at {host}:{port} ({error.strerror or error}). Is another "
            "program there, or another explorer? Leave --port out for a free one."
        ) from error


def names_of(host: str) -> set[str]:
    """The names under which the server may be called."""
    names = {*LOOPBACK, host}
    return names | {socket.gethostname(), socket.getfqdn()} if host in EVERY else names


def _open(server: Any, address: str) -> None:
    """Open the browser once the server answers."""
    import time

    for _ in range(200):
        if server.started:
            webbrowser.open(address)
            return
        time.sleep(0.05)
