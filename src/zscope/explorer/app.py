"""The web application: the page, its files, and the answers as JSON.

Every answer is made in a lane (see `lanes`), never in the event loop, so that one slow
model call holds up nobody else. The files of the page are read when the server starts:
no request names a file.
"""

import asyncio
import json
import logging
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from zscope.errors import MissingExtra, ZscopeError
from zscope.explorer.guard import Guard, Refused
from zscope.explorer.lanes import Busy, Stopped
from zscope.explorer.session import Session
from zscope.explorer.views import ENDPOINTS, Endpoint
from zscope.explorer.views.query import Query
from zscope.results import plain

if TYPE_CHECKING:
    from fastapi import FastAPI

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLL = 0.5
"""Seconds between looks whether somebody still waits for a long answer."""

log = logging.getLogger("zscope.explorer")


def create_app(
    session: Session,
    *,
    token: str,
    names: Iterable[str] = ("127.0.0.1", "localhost", "::1"),
    any_address: bool = False,
    **limits: Any,
) -> "FastAPI":
    """The explorer of a session, for an ASGI server."""
    try:
        from fastapi import FastAPI, Request, Response
        from starlette.exceptions import HTTPException
    except ImportError as error:
        raise MissingExtra("explore", "fastapi", "explore") from error

    app = FastAPI(title="zscope explorer", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.ending = asyncio.Event()
    app.add_middleware(Guard, token=token, names=names, any_address=any_address, **limits)

    def answered(status: int, content: bytes) -> Response:
        return Response(content, status, media_type="application/json")

    def failed(status: int, error: BaseException | str) -> Response:
        kind = "Refused" if isinstance(error, str) else type(error).__name__
        content = {"error": {"kind": kind, "message": " ".join(str(error).split())}}
        return answered(status, json.dumps(content).encode())

    def add(endpoint: Endpoint) -> None:
        async def answer(request: Request) -> Response:
            try:
                query = await _read(request, endpoint)
                return answered(200, await _answer(session, endpoint, query, request))
            except Refused as refused:
                return failed(refused.status, refused.message)
            except Busy as error:
                return failed(503, error)
            except ZscopeError as error:
                return failed(422, error)
            except Exception as error:
                log.exception("explorer: /api/%s failed", endpoint.name)
                said = (str(error).strip().splitlines() or ["(no text)"])[0][:300]
                kind = "" if type(error).__name__ == "Ended" else f"{type(error).__name__}: "
                return failed(
                    500,
                    f"{endpoint.name}: the model (or an assay of it) raised {kind}{said}. These "
                    "values may lie outside what it can take. Go back to a data sample; the "
                    "terminal shows where it happened.",
                )

        app.add_api_route(f"/api/{endpoint.name}", answer, methods=["GET", "POST"])

    for endpoint in ENDPOINTS.values():
        add(endpoint)

    async def api() -> Response:
        return answered(
            200, json.dumps({"endpoints": [each.to_dict() for each in ENDPOINTS.values()]}).encode()
        )

    app.add_api_route("/api", api, methods=["GET"])

    def serve(path: str, content: bytes, kind: str) -> None:
        async def file() -> Response:
            return Response(content, media_type=kind)

        app.add_api_route(path, file, methods=["GET", "HEAD"])

    for path, (content, kind) in _files().items():
        serve(path, content, kind)

    async def unknown(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 404)
        what = "does not answer to " + request.method if status == 405 else "is not here"
        return failed(
            status, f"explorer: {request.url.path[:200]!r} {what}. What there is: see /api."
        )

    app.add_exception_handler(HTTPException, unknown)
    return app


async def _read(request: Any, endpoint: Endpoint) -> Query:
    """The checked parameters of a request: its query string, or its JSON body."""
    given: Any = dict(request.query_params)
    if request.method == "POST":
        try:
            given = json.loads(await request.body() or b"{}")
        except (ValueError, RecursionError) as error:
            raise Refused(
                400,
                f"explorer: the body is not JSON ({str(error)[:120]}). Send one JSON object with "
                "the parameters that /api describes.",
            ) from error
    if not isinstance(given, dict):
        raise Refused(
            400,
            f"explorer: the body holds a JSON {type(given).__name__}; one object with the "
            "parameters that /api describes is needed.",
        )
    try:
        return endpoint.query.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        seen = repr(first.get("input"))
        seen = seen if len(seen) <= 60 else f"{seen[:60]}…"
        raise Refused(
            422,
            f"{endpoint.name}: {where or 'the request'}={seen} cannot be used: {first['msg']}. "
            "The parameters and their limits are described at /api.",
        ) from error


async def _answer(session: Session, endpoint: Endpoint, query: Query, request: Any) -> bytes:
    """Made in its lane, and given up when nobody waits for it any more."""
    lane = session.live if endpoint.lane == "live" else session.slow

    def work() -> bytes:
        # As bytes already: writing a large answer takes long enough to hold up others.
        return json.dumps(plain(endpoint.answer(session, query))).encode()

    job = lane.submit(work)
    waiting = asyncio.wrap_future(job.future)
    while True:
        done, _ = await asyncio.wait({waiting}, timeout=POLL)
        if done:
            break
        if request.app.state.ending.is_set():
            # The model may never return; the server must end all the same.
            job.stop.set()
            raise Busy("explorer: the server is ending. Start it again: zscope explore TARGET")
        if await request.is_disconnected():
            job.stop.set()
    try:
        return waiting.result()
    except Stopped as error:
        raise Busy(str(error)) from error


def _files() -> dict[str, tuple[bytes, str]]:
    """The page and what it loads, by address, read once."""
    found = {}
    folder = files("zscope.explorer") / "static"
    for file in folder.iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in TYPES:
            address = "/" if file.name == "index.html" else f"/static/{file.name}"
            found[address] = (file.read_bytes(), TYPES[suffix])
    return found
