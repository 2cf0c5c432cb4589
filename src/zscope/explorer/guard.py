"""Access control: checks that every request must pass first.

- Host: the request must name this server. This refuses pages whose host name was pointed at
  this machine (DNS rebinding).
- Origin: scripts of other pages are refused.
- Token: random, part of the address that the terminal prints; then a cookie that scripts
  cannot read and other sites cannot send, or an "Authorization: Bearer" header for programs. In
  the frame of a notebook, where browsers keep no cookies of ours, it is the first part of every
  path; only then, and only by pages of this machine, may the page be framed.
- Size: long addresses and large bodies are refused.
- Rate: too many requests are refused. Only those with the token count, so that nobody
  without it can use up what is allowed (see also `connections`).
"""

import hmac
import ipaddress
import json
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

__all__ = ["Guard", "Refused"]

LONGEST_ADDRESS = 32 * 1024
LARGEST_BODY = 4 * 2**20
RATE, BURST = 200.0, 400.0  # requests a second, and at once

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# In a notebook, whose page is served from this machine too.
FRAMED_HEADERS = {name: text for name, text in HEADERS.items() if name != "x-frame-options"} | {
    "content-security-policy": HEADERS["content-security-policy"].replace(
        "frame-ancestors 'none'",
        "frame-ancestors "
        + " ".join(f"{scheme}://{name}:*" for scheme in ("http", "https")
                   for name in ("127.0.0.1", "localhost")),
    )
}  # fmt: skip


class Refused(Exception):
    """The request is refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: App,
        *,
        token: str,
        names: Iterable[str],
        any_address: bool = False,
        framed: bool = False,
        rate: float = RATE,
        burst: float = BURST,
        largest_body: int = LARGEST_BODY,
    ) -> None:
        self.app, self.token, self.largest_body = app, token.encode(), largest_body
        self.names = {name.lower() for name in names}
        # A server that listens on all addresses accepts any IP address as its host name:
        # DNS rebinding needs a name.
        self.any_address = any_address
        self.framed = framed
        self.bucket = Bucket(rate, burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        scope, in_path = self._take_token(scope)
        replies = FRAMED_HEADERS if in_path else HEADERS
        try:
            headers = _headers(scope)
            self._check_host(headers)
            self._check_size(scope, headers)
            self._check_origin(headers)
            in_address = not in_path and self._has_token(scope)
            if not in_path and not in_address:
                self._check_token(headers)
            self._check_room(scope)
            self._check_rate()
            if in_address:
                await _reply(send, 303, b"", {"location": "/", "set-cookie": self._cookie(headers)})
                return
        except Refused as refused:
            await refuse(scope, send, refused)
            return
        await self.app(scope, self._limit_size(receive), _with_headers(send, replies))

    def _take_token(self, scope: Scope) -> tuple[Scope, bool]:
        """The request without the token that its path begins with, and whether it does."""
        token, slash, rest = scope["path"][1:].partition("/")
        if not self.framed or not slash or not self._is_token(token):
            return scope, False
        return {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}, True

    def _check_host(self, headers: dict[str, str]) -> None:
        name = _name(headers.get("host", ""))
        if name in self.names or (self.any_address and _is_address(name)):
            return
        raise Refused(
            403,
            f"explorer: the request was for the host {name[:80]!r}, which is not this server. Was "
            "the page opened under another name? Open the address that the terminal shows.",
        )

    def _check_room(self, scope: Scope) -> None:
        admit = scope.get("state", {}).get("admit")  # of a `Connection`
        if admit is not None and not admit():
            raise Refused(
                503,
                "explorer: too many requests from one address wait for their answers. Does a "
                "script send requests without waiting for answers? Try again later.",
            )

    def _check_rate(self) -> None:
        if not self.bucket.take():
            raise Refused(
                429,
                f"explorer: more than {self.bucket.rate:g} requests per second. Does a script "
                "send requests without waiting for answers? Wait a second.",
            )

    def _check_size(self, scope: Scope, headers: dict[str, str]) -> None:
        address = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        if address > LONGEST_ADDRESS:
            raise Refused(
                414,
                f"explorer: the address has {address} bytes, more than {LONGEST_ADDRESS}. Send "
                "long latent vectors as JSON with POST.",
            )
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.largest_body:
            raise self._too_large(length[:20])

    def _too_large(self, length: str) -> Refused:
        return Refused(
            413,
            f"explorer: the body has {length} bytes; at most {self.largest_body} are accepted. "
            "Send fewer latent vectors at once.",
        )

    def _check_origin(self, headers: dict[str, str]) -> None:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        parts = urlsplit(origin or "")
        same = parts.scheme in ("http", "https") and parts.netloc == headers.get("host")
        # A link on another page may open this one (with the token); its scripts may not.
        foreign = (
            site not in ("none", "same-origin") and headers.get("sec-fetch-mode") != "navigate"
        )
        if (origin is not None and not same) or foreign:
            raise Refused(
                403,
                f"explorer: the request came from a page of {(origin or 'another site')[:80]!r}. "
                "Only the explorer's own page may send requests; programs send no Origin header.",
            )

    def _has_token(self, scope: Scope) -> bool:
        """Whether the request is for the page, with the token in its address."""
        if scope["path"] != "/" or scope["method"] not in ("GET", "HEAD"):
            return False
        query = parse_qs((scope.get("query_string") or b"").decode("latin-1"))
        return any(self._is_token(text) for text in query.get("token", []))

    def _check_token(self, headers: dict[str, str]) -> None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(token.strip()):
            return
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie_name(headers))
        except CookieError:
            cookie = None
        if cookie is not None and self._is_token(cookie.value):
            return
        raise Refused(
            403,
            "explorer: the token is missing, or belongs to an earlier start of the server. Open "
            "the whole address that the terminal shows, including ?token=… at its end.",
        )

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token)

    def _cookie_name(self, headers: dict[str, str]) -> str:
        """A name for each port: all ports of a host share their cookies."""
        port = headers.get("host", "").rpartition(":")[2]
        return f"zscope-{port if port.isdigit() else 'explorer'}"

    def _cookie(self, headers: dict[str, str]) -> str:
        name = self._cookie_name(headers)
        return f"{name}={self.token.decode()}; Path=/; HttpOnly; SameSite=Strict"

    def _limit_size(self, receive: Receive) -> Receive:
        """Limit the size of bodies without a Content-Length header while they are read."""
        size = 0

        async def limited() -> MutableMapping[str, Any]:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.largest_body:
                raise self._too_large(f"more than {self.largest_body}")
            return message

        return limited


class Bucket:
    """A token bucket: `burst` requests may come at once, and `rate` per second."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self._left, self._before = burst, time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._left = min(self.burst, self._left + (now - self._before) * self.rate)
        self._before = now
        allowed = self._left >= 1
        self._left -= allowed
        return allowed


async def refuse(scope: Scope, send: Send, refused: Refused) -> None:
    """Reply with the reason: as JSON under /api, else as a line of text."""
    more = {"retry-after": "1"} if refused.status == 429 else {}
    if scope["path"].startswith("/api"):
        content = {"error": {"kind": "Refused", "message": refused.message}}
        body, kind = json.dumps(content).encode(), "application/json"
    else:
        body, kind = (refused.message + "\n").encode(), "text/plain; charset=utf-8"
    await _reply(send, refused.status, body, {"content-type": kind, **more})


async def _reply(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    every = {**HEADERS, "content-length": str(len(body)), **headers}
    pairs = [(name.encode(), value.encode("utf-8")) for name, value in every.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send, headers: dict[str, str]) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *(
                    (name.encode(), value.encode())
                    for name, value in headers.items()
                    if name.encode() not in own
                ),
            ]
        await send(message)

    return sending


def _headers(scope: Scope) -> dict[str, str]:
    """The headers by lower-case name. Headers that decide about access must not be repeated."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in headers and key in ("host", "origin", "authorization", "content-length"):
            raise Refused(400, f"explorer: the request has the header {key} twice. Send it once.")
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]}; {text}" if key == "cookie" and key in headers else text
    return headers


def _name(host: str) -> str:
    """The host of "host:port" or "[address]:port", in lower case."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
