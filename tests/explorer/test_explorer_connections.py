"""Connections that are held open: they end, and cost nobody with the token an answer."""

import http.client
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import torch
from conftest import running

import zscope as zs
from zscope.explorer import connections
from zscope.explorer.session import Session

LIMIT = 2.0  # seconds in which whoever has the token is answered
HALF = {
    "nothing": b"",
    "half a header": b"GET /api HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "no body": b"POST /api/latents HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n",
}
# Another program, which shares no interpreter lock with the server.
HOLD = """
import socket, sys
port, count, text = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
held = []
def connect():
    held.append(socket.create_connection(("127.0.0.1", port)))
    try:
        held[-1].sendall(text)
    except OSError:
        pass
for _ in range(count):
    connect()
print("held", flush=True)
while sys.argv[4:]:
    connect()
    held.pop(0).close()
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def session():
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    session = Session(zs.wrap(lambda x: x, lambda z: z, latents=2), x, name="identity")
    yield session
    session.close()


@pytest.fixture
def owner(session):
    """Someone with the token."""
    with running(session) as address:
        yield Owner(address)


class Owner:
    def __init__(self, address):
        url = httpx.URL(address)
        self.port, self.token = url.port, url.params["token"]

    def header(self, method="GET", path="/api", more=""):
        return (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Bearer {self.token}\r\n{more}\r\n"
        ).encode()

    def connect(self, text=b""):
        one = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        one.sendall(text)
        return one

    def ask(self, text=None):
        """(status, seconds) of a request by a new connection."""
        since = time.monotonic()
        with self.connect(text or self.header()) as one:
            return status(one), time.monotonic() - since

    @contextmanager
    def besieged(self, count, text, *more):
        words = [sys.executable, "-c", HOLD, str(self.port), str(count), text.hex(), *more]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"held\n"
            try:
                yield
            finally:
                process.kill()


def status(one):
    """The status of a reply, which is read to its end: another may follow."""
    reply = http.client.HTTPResponse(one)
    reply.begin()
    reply.read()
    return reply.status


def closed_after(one, every=None):
    """Seconds until the server closes a connection; a byte is sent at each interval."""
    since = time.monotonic()
    one.settimeout(every or 60)
    while time.monotonic() - since < 60:
        try:
            if one.recv(65536) == b"":
                break
        except TimeoutError:
            one.sendall(b"x")
        except ConnectionError:
            break
    return time.monotonic() - since


@pytest.mark.parametrize(
    "kind",
    [
        "half a header",
        pytest.param("nothing", marks=pytest.mark.slow),
        pytest.param("no body", marks=pytest.mark.slow),
    ],
)
def test_the_owner_is_answered_while_600_connections_are_held(owner, kind):
    with owner.besieged(600, HALF[kind]):
        for _ in range(3):
            code, seconds = owner.ask()
            assert code == 200
            assert seconds < LIMIT


def test_the_owner_is_answered_while_connections_are_made_without_end(owner):
    with owner.besieged(300, HALF["half a header"], "again"):
        assert [owner.ask()[0] for _ in range(20)] == [200] * 20


@pytest.mark.parametrize("kind", HALF)
def test_a_stranger_is_closed_in_time_whatever_it_sends(owner, monkeypatch, kind):
    monkeypatch.setattr(connections, "PATIENCE", 0.5)
    for every in (None, 0.05):  # a byte now and then gains no time
        with owner.connect(HALF[kind]) as one:
            assert 0.3 < closed_after(one, every) < 5


def test_the_time_for_a_request_is_ten_seconds():
    assert connections.PATIENCE == 10


def test_a_refused_stranger_is_closed_as_well(owner, monkeypatch):
    monkeypatch.setattr(connections, "PATIENCE", 0.5)
    request = f"GET /api HTTP/1.1\r\nHost: 127.0.0.1:{owner.port}\r\n\r\n".encode()
    with owner.connect(request) as one:
        assert status(one) == 403
        since = time.monotonic()
        while time.monotonic() - since < 30:
            time.sleep(0.05)
            try:
                one.sendall(request)
                if one.recv(65536) == b"":
                    break
            except ConnectionError:
                break
        assert time.monotonic() - since < 5


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_owner_too_must_send_a_request_in_time(owner, monkeypatch, capfd, method):
    monkeypatch.setattr(connections, "PATIENCE", 0.5)
    more = "Content-Length: 1000\r\n" if method == "POST" else ""
    with owner.connect(owner.header()) as one:
        assert status(one) == 200
        begun = owner.header(method, "/api/latents", more)
        one.sendall(begun if method == "POST" else begun[:-2])
        assert 0.3 < closed_after(one, 0.05) < 5
    assert owner.ask()[0] == 200
    assert capfd.readouterr().err == ""  # it is no error of the server


def test_a_long_answer_is_waited_for(owner, session, monkeypatch):
    monkeypatch.setattr(connections, "PATIENCE", 0.3)
    plain = session.model.decode
    monkeypatch.setattr(session.model, "decode", lambda z: (time.sleep(0.4), plain(z))[1])
    code, seconds = owner.ask(owner.header(path="/api/latents"))
    assert code == 200
    assert seconds > 0.4


def test_an_idle_connection_is_closed_and_one_in_use_is_kept(owner):
    with owner.connect(owner.header()) as one:
        for _ in range(3):
            assert status(one) == 200
            one.sendall(owner.header())
        assert status(one) == 200
        assert 3 < closed_after(one) < 10


def test_of_too_many_strangers_the_oldest_are_closed(owner):
    with ExitStack() as stack:
        kept = stack.enter_context(owner.connect(owner.header()))
        assert status(kept) == 200
        count = connections.STRANGERS + 20
        strangers = [stack.enter_context(owner.connect()) for _ in range(count)]
        assert [closed_after(one) < 5 for one in strangers[:20]] == [True] * 20
        for one in strangers[20:]:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
        kept.sendall(owner.header())
        assert status(kept) == 200


def test_of_too_many_connections_of_the_owner_an_idle_one_makes_room(owner, monkeypatch, session):
    monkeypatch.setattr(connections, "ADMITTED", 3)
    with ExitStack() as stack:
        idle = [stack.enter_context(owner.connect(owner.header())) for _ in range(3)]
        assert [status(one) for one in idle] == [200] * 3
        assert owner.ask()[0] == 200
        assert closed_after(idle[0]) < 3

    begun, go_on = threading.Event(), threading.Event()
    plain = session.model.decode
    monkeypatch.setattr(
        session.model, "decode", lambda z: (begun.set(), go_on.wait(60), plain(z))[2]
    )
    with ExitStack() as stack:
        header = owner.header(path="/api/latents")
        busy = [stack.enter_context(owner.connect(header)) for _ in range(3)]
        assert begun.wait(60)
        time.sleep(0.2)
        assert owner.ask()[0] == 503
        go_on.set()
        assert [status(one) for one in busy] == [200] * 3


def test_a_long_address_may_come_in_pieces(owner):
    header = owner.header(path="/api/latents?z=" + ",".join(["0.0000000"] * 3000))
    assert len(header) > 29_000
    with owner.connect(header[:17_000]) as one:
        time.sleep(0.2)
        one.sendall(header[17_000:])
        assert status(one) == 422  # the model has two latents


def test_half_a_request_does_not_keep_the_server_from_stopping(session):
    with running(session) as address:
        owner = Owner(address)
        header = owner.header("POST", "/api/latents", "Content-Length: 1000\r\n")
        held = [owner.connect(text) for text in (b"", b"GET ", header)]
        assert owner.ask()[0] == 200
        since = time.monotonic()
    assert time.monotonic() - since < 3
    for one in held:
        one.close()


def test_requests_that_are_not_http_leave_no_trace_in_the_terminal(owner, capfd):
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
    for text in (b"\x16\x03\x01 hello\r\n\r\n", b"GET\r\n\r\n", owner.header(more=upgrade)):
        with owner.connect(text) as one:
            assert status(one) in (400, 200)
    assert capfd.readouterr().err == ""
