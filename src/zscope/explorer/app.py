"""The web application: the page, its static files, and the answers as JSON.

Answers are computed in a lane (see `lanes`), never in the event loop, so that a slow model
call blocks no other request. The static files are read when the server starts; no request
can name a file.
"""

import asyncio
import json
import logging
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from zscope.errors import InterfaceError, MissingExtra, ZscopeError
from zscope.explorer.guard import Guard, Refused
from zscope.explorer.lanes import Busy, ModelExit, Stopped
from zscope.explorer.schema import SCHEMA, openapi
from zscope.explorer.session import Session
from zscope.explorer.views import ENDPOINTS, Endpoint
from zscope.explorer.views.query import Query
from zscope.results import plain

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["create_app"]

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLL = 0.5
"""Seconds between checks whether the client is still connected."""

log = logging.getLogger("zscope.explorer")


def create_app(
    session: Session,
    *,
    token: str,
    names: Iterable[str] = ("127.0.0.1", "localhost", "::1"),
    any_address: bool = False,
    framed: bool = False,
    **limits: Any,
) -> "FastAPI":
    """The explorer of a session, as an ASGI application."""
    try:
        from fastapi import FastAPI, Request, Response
        from starlette.exceptions import HTTPException
        from starlette.requests import ClientDisconnect
    except ImportError as error:
        raise MissingExtra("explore", "fastapi", "explore") from error

    app = FastAPI(title="zscope explorer", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.stopping = asyncio.Event()
    access: dict[str, Any] = {
        "token": token,
        "names": names,
        "any_address": any_address,
        "framed": framed,
    }
    app.add_middleware(Guard, **access, **limits)

    def json_response(status: int, content: bytes) -> Response:
        return Response(content, status, media_type="application/json")

    def error_response(status: int, error: BaseException | str) -> Response:
        kind = "Refused" if isinstance(error, str) else type(error).__name__
        content = {"error": {"kind": kind, "message": " ".join(str(error).split())}}
        return json_response(status, json.dumps(content).encode())

    def raised_by_model(error: ZscopeError) -> bool:
        """Whether it stands for an error that the model's own code raised."""
        return isinstance(error, InterfaceError) and error.__cause__ is not None

    def explain(endpoint: Endpoint, error: Exception) -> str:
        if isinstance(error, ZscopeError):
            return f"{error} Go back to a data sample; the terminal shows the traceback."
        message = (str(error).strip().splitlines() or ["(no message)"])[0][:300]
        kind = "" if isinstance(error, ModelExit) else f"{type(error).__name__}: "
        return (
            f"{endpoint.name}: the model, or an assay of it, raised {kind}{message}. The values "
            "may be outside the range that it accepts. Go back to a data sample; the terminal "
            "shows the traceback."
        )

    def add_endpoint(endpoint: Endpoint) -> None:
        async def answer(request: Request) -> Response:
            try:
                query = await _parse(request, endpoint)
                return json_response(200, await _compute(session, endpoint, query, request))
            except Refused as refused:
                return error_response(refused.status, refused.message)
            except ClientDisconnect:
                return error_response(400, "explorer: the connection was closed early.")
            except Busy as error:
                return error_response(503, error)
            except Exception as error:
                if isinstance(error, ZscopeError) and not raised_by_model(error):
                    return error_response(422, error)
                log.exception("explorer: /api/%s failed", endpoint.name)
                return error_response(500, explain(endpoint, error))

        app.add_api_route(f"/api/{endpoint.name}", answer, methods=endpoint.methods)

    for endpoint in ENDPOINTS.values():
        add_endpoint(endpoint)

    def add_file(path: str, content: bytes, media_type: str) -> None:
        async def file() -> Response:
            return Response(content, media_type=media_type)

        app.add_api_route(path, file, methods=["GET", "HEAD"])

    for path, (content, media_type) in _static_files().items():
        add_file(path, content, media_type)
    endpoints = [each.to_dict() for each in ENDPOINTS.values()]
    for path, document in (("/api", {"endpoints": endpoints}), (SCHEMA, openapi(endpoints))):
        add_file(path, json.dumps(document).encode(), "application/json")

    async def unknown(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 404)
        problem = f"does not accept {request.method}" if status == 405 else "does not exist"
        reply = error_response(
            status, f"explorer: {request.url.path[:200]!r} {problem}. /api lists all endpoints."
        )
        reply.headers.update(getattr(error, "headers", None) or {})  # which methods are allowed
        return reply

    app.add_exception_handler(HTTPException, unknown)
    return app


async def _parse(request: Any, endpoint: Endpoint) -> Query:
    """The validated parameters of a request, from its query string or its JSON body."""
    try:
        if request.method != "POST":
            return endpoint.query.from_texts(request.query_params.multi_items())
        return endpoint.query.model_validate(await _read_object(request))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        value = repr(first.get("input"))
        value = value if len(value) <= 60 else f"{value[:60]}…"
        raise Refused(
            422,
            f"{endpoint.name}: {where or 'the request'}={value} is not valid: {first['msg']}. "
            "/api describes the parameters and their limits.",
        ) from error


async def _read_object(request: Any) -> dict[str, Any]:
    """The JSON object in the body of a request; an empty body is an empty one."""
    try:
        parameters = json.loads(await request.body() or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refused(
            400,
            f"explorer: the body is not JSON ({str(error)[:120]}). Send one JSON object with "
            "the parameters that /api describes.",
        ) from error
    if not isinstance(parameters, dict):
        raise Refused(
            400,
            f"explorer: the body is a JSON {type(parameters).__name__}. Send one JSON object with "
            "the parameters that /api describes.",
        )
    return parameters


async def _compute(session: Session, endpoint: Endpoint, query: Query, request: Any) -> bytes:
    """The answer as JSON, computed in its lane and cancelled if the client disconnects."""
    lane = session.live if endpoint.lane == "live" else session.slow

    def work() -> bytes:
        # Encoded in the lane: a large answer takes long enough to block other requests.
        return json.dumps(plain(endpoint.reply(session, query))).encode()

    job = lane.submit(work)
    waiting = asyncio.wrap_future(job.future)
    while True:
        done, _ = await asyncio.wait({waiting}, timeout=POLL)
        if done:
            break
        if request.app.state.stopping.is_set():
            # The model may never return; the server must stop nevertheless.
            job.stop.set()
            raise Busy("explorer: the server is stopping. Start it again: zscope explore TARGET")
        if await request.is_disconnected():
            job.stop.set()
    try:
        content: bytes = waiting.result()
        return content
    except Stopped as error:
        raise Busy(str(error)) from error


def _static_files() -> dict[str, tuple[bytes, str]]:
    """The content and media type of the page and its files, by path."""
    contents = {}
    folder = files("zscope.explorer") / "static"
    for file in folder.iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in MEDIA_TYPES:
            path = "/" if file.name == "index.html" else f"/static/{file.name}"
            contents[path] = (file.read_bytes(), MEDIA_TYPES[suffix])
    return contents
