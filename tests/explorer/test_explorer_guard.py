"""Access control, limits, and models that fail."""

import asyncio
import json
import sys
import threading
import time

import pytest
import torch
from conftest import TOKEN, Client

import zscope as zs
from zscope.errors import MissingExtra
from zscope.explorer.app import create_app
from zscope.explorer.guard import LONGEST_ADDRESS, Bucket
from zscope.explorer.lanes import MAX_WAITING, Busy, Lane, Stopped, interruptible
from zscope.explorer.session import Session


@pytest.fixture
def stranger(pictures):
    return Client(pictures, token=None)


def test_without_the_token_nothing_is_told(stranger):
    for path in ("/", "/api", "/api/session", "/static/app.js"):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "zscope-8000=wrong"}):
            reply = stranger.get(path, headers=headers)
            assert reply.status_code == 403, path
            assert "token" in reply.text
            assert TOKEN not in reply.text + str(reply.headers)
    assert stranger.get(f"/api/session?token={TOKEN}").status_code == 403


def test_the_address_of_the_terminal_sets_a_cookie_and_forgets_the_token(stranger):
    reply = stranger.get(f"/?token={TOKEN}")
    assert reply.status_code == 303
    assert reply.headers["location"] == "/"
    cookie = reply.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    page = stranger.get("/", headers={"cookie": cookie.split(";")[0]})
    assert page.status_code == 200
    assert "zscope" in page.text
    assert stranger.get("/?token=wrong").status_code == 403
    # The cookie of an explorer at another port is not ours.
    assert stranger.get("/", headers={"cookie": f"zscope-9={TOKEN}"}).status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8000", "", "[", "a@b"])
def test_a_request_for_another_host_is_refused(client, host):
    reply = client.get("/api/session", headers={"host": host})
    assert reply.status_code == 403
    assert "not this server" in reply.json()["error"]["message"]


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1:9000", "[::1]:8000", "LOCALHOST"])
def test_the_loopback_address_has_several_names_and_any_port(client, host):
    assert client.get("/api/session", headers={"host": host}).status_code == 200


def test_bound_to_every_address_numbers_are_names_too(pictures):
    api = Client(pictures, any_address=True)
    assert api.get("/api", headers={"host": "192.168.1.7:8000"}).status_code == 200
    assert api.get("/api", headers={"host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    ],
)
def test_a_script_of_another_page_is_refused(client, headers):
    reply = client.post("/api/session", headers=headers)
    assert reply.status_code == 403
    assert "own page" in reply.json()["error"]["message"]


def test_the_own_page_may_ask_and_a_link_may_open_it(client, stranger):
    own = {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}
    assert client.post("/api/session", headers=own).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert stranger.get(f"/?token={TOKEN}", headers=link).status_code == 303


def test_every_reply_forbids_scripts_from_elsewhere(client, stranger):
    replies = [client.get("/"), client.get("/api"), client.get("/nothing"), stranger.get("/")]
    for reply in replies:
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/../../etc/passwd",
     "/static/", "/api/../api/nothing", "/docs", "/openapi.json"],
)  # fmt: skip
def test_no_path_of_a_request_reaches_a_file(client, path):
    reply = client.get(path)
    assert reply.status_code == 404
    assert "does not exist" in reply.json()["error"]["message"]


def test_other_methods_are_refused(client):
    for method in ("PUT", "DELETE", "PATCH"):
        assert client.request(method, "/api/session").status_code == 405


def test_large_bodies_are_refused_before_and_while_they_are_read(pictures):
    api = Client(pictures, largest_body=1000)
    reply = api.post("/api/latents", content=b"[" + b" " * 2000 + b"]")
    assert reply.status_code == 413
    assert "at most 1000" in reply.json()["error"]["message"]

    async def drops():
        for _ in range(30):
            yield b" " * 100

    assert api.post("/api/latents", content=drops()).status_code == 413
    api.ask("session")


def test_long_addresses_are_refused(client):
    reply = client.get("/api/latents?z=" + "0," * (LONGEST_ADDRESS // 2))
    assert reply.status_code == 414
    assert "POST" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"[1, 2]", 400, "JSON list"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"z": [NaN, 0, 0, 0, 0, 0]}', 422, "z.0"),
        (b'{"z": [1e999, 0, 0, 0, 0, 0]}', 422, "z.0"),
        (b'{"z": "DROP TABLE"}', 422, "z='DROP TABLE'"),
        (b'{"z": {"a": 1}}', 422, "z="),
        (b'{"sample": -1}', 422, "sample=-1"),
        (b'{"sample": 1e30}', 422, "sample"),
        (b'{"unknown": 1}', 422, "unknown"),
        (b'{"exact": "perhaps"}', 422, "exact"),
    ],
)
def test_malformed_requests_are_answered_with_what_is_wrong(client, body, status, expected):
    reply = client.post("/api/latents", content=body)
    assert reply.status_code == status, reply.text
    message = reply.json()["error"]["message"]
    assert expected in message
    assert "/api" in message
    assert len(message) < 500


def test_more_than_fits_is_refused_by_number(client):
    assert "at most 256" in client.error(422, "decode", codes=[[0] * 6] * 257)
    assert "less than or equal to 200" in client.error(422, "samples", count=201)
    assert "less than or equal to 128" in client.error(422, "map", grid=129)
    assert "less than or equal to 100" in client.error(422, "project", passes=101)


def test_a_flood_is_refused(pictures):
    api = Client(pictures, rate=0.01, burst=3.0)
    replies = [api.get("/api") for _ in range(5)]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 429, 429]
    assert replies[-1].headers["retry-after"] == "1"
    assert "requests per second" in replies[-1].json()["error"]["message"]


def test_a_flood_ebbs_away(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bucket = Bucket(rate=10.0, burst=2.0)
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    now[0] = 0.11
    assert [bucket.take() for _ in range(2)] == [True, False]
    now[0] = 100.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]


def test_a_flood_without_the_token_does_not_count(pictures):
    api = Client(pictures, rate=0.01, burst=1.0)
    wrong = {"authorization": "Bearer wrong"}
    assert {api.get("/api", headers=wrong).status_code for _ in range(20)} == {403}
    assert api.get("/api").status_code == 200
    assert api.get("/api").status_code == 429


def test_a_header_that_decides_must_come_once(client):
    pairs = [("host", "127.0.0.1:8000"), ("origin", "http://127.0.0.1:8000"), ("origin", "null")]
    assert client.get("/api", headers=pairs).status_code == 400


class Breaking(zs.Autoencoder):
    """Decodes codes as they are, unless the first latent triggers a failure."""

    latents, prior = 2, None

    def __init__(self):
        super().__init__()
        self.inside, self.most, self.lock = 0, 0, threading.Lock()

    def __deepcopy__(self, memory):
        return Breaking()

    def encode(self, x, auxiliary=None):
        return zs.Posterior(x)

    def decode(self, z):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        try:
            trigger = float(z[0, 0])
            if trigger == 100:
                raise RuntimeError("mat1 and mat2 shapes cannot be multiplied\nmore")
            if trigger == 200:
                raise SystemExit(3)
            if trigger == 300:
                return torch.full_like(z, float("nan"))
            if trigger == 400:
                return z[:0]
            time.sleep(0.002)
            return z
        finally:
            with self.lock:
                self.inside -= 1


@pytest.fixture
def breaking():
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    session = Session(Breaking(), x, name="breaking")
    yield session
    session.close()


@pytest.mark.parametrize(
    ("trigger", "status", "expected"),
    [
        (100, 500, "raised RuntimeError for torch.float32 (1, 2): mat1 and mat2 shapes cannot be"),
        (200, 500, "raised SystemExit: 3. "),
        (300, 422, "NaN or infinite numbers for 1 of 1"),
        (400, 422, "must return one observation for each code"),
    ],
)
def test_a_model_that_breaks_is_reported_and_the_server_lives_on(
    breaking, caplog, trigger, status, expected
):
    api = Client(breaking)
    assert expected in api.error(status, "latents", z=[trigger, 0])
    assert api.ask("latents", z=[1, 0])["response"] == [1, 0]
    if status == 500:
        assert "/api/latents failed" in caplog.text  # the terminal shows where


def test_one_model_is_never_called_twice_at_once(breaking):
    async def many():
        async with Client(breaking).connect() as connection:
            requests = [connection.post("/api/latents", json={"z": [k, 0]}) for k in range(20)]
            return await asyncio.gather(*requests)

    replies = asyncio.run(many())
    assert [reply.json()["response"] for reply in replies] == [[k, 0] for k in range(20)]
    assert breaking.model.most == 1


def test_a_long_answer_holds_up_no_short_one(breaking):
    begun, go_on = threading.Event(), threading.Event()

    def wait(z):
        begun.set()
        assert go_on.wait(60)
        return z

    breaking.subject.copy.autoencoder.decode = wait

    async def both():
        async with Client(breaking).connect() as connection:
            long = asyncio.create_task(connection.post("/api/map", json={"grid": 6}))
            await asyncio.to_thread(begun.wait, 60)
            short = await connection.post("/api/latents", json={"z": [1, 2]})
            waiting = not long.done()
            go_on.set()
            return short, waiting, await long

    short, waiting, long = asyncio.run(both())
    assert short.json()["response"] == [1, 2]
    assert waiting
    assert long.status_code == 200


def test_an_answer_that_nobody_waits_for_is_given_up(breaking):
    begun, left = threading.Event(), threading.Event()
    twin = breaking.subject.copy.autoencoder
    plain = twin.decode

    def wait(z):
        begun.set()
        assert left.wait(60)
        assert breaking.slow._current.stop.wait(60)  # until the server has noticed
        return plain(z)

    twin.decode = wait
    app = create_app(breaking, token=TOKEN)
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/api/map", "raw_path": b"/api/map",
             "query_string": b"", "headers": headers, "client": ("1", 1)}  # fmt: skip
    sent = []

    async def gone():
        messages = [{"type": "http.request", "body": b'{"grid": 6}', "more_body": False}]

        async def receive():
            if messages:
                return messages.pop()
            while not begun.is_set():
                await asyncio.sleep(0.01)
            left.set()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        await app(scope, receive, send)

    asyncio.run(gone())
    assert sent[0]["status"] == 503
    assert "was cancelled" in json.loads(sent[1]["body"])["error"]["message"]


def test_a_model_that_cannot_be_copied_answers_everything_in_one_lane():
    class Unique(Breaking):
        def __deepcopy__(self, memory):
            raise TypeError("cannot pickle")

    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    session = Session(Unique(), x, name="unique")
    assert session.slow is session.live
    assert session.subject.copy is session.subject.recording
    Client(session).ask("map", grid=4)
    assert session.close()


def test_a_lane_refuses_more_than_it_can_work_out_soon():
    lane, go_on = Lane("test"), threading.Event()
    begun = threading.Event()
    lane.submit(lambda: (begun.set(), go_on.wait()))
    assert begun.wait(60)
    jobs = [lane.submit(lambda: 7) for _ in range(MAX_WAITING)]
    with pytest.raises(Busy, match="64 requests are waiting"):
        lane.submit(lambda: 7)
    go_on.set()
    assert jobs[-1].future.result(60) == 7
    assert lane.close()
    with pytest.raises(Busy):
        lane.submit(lambda: 7)


def test_a_lane_that_is_closed_ends_what_runs():
    lane, begun = Lane("test"), threading.Event()
    model = interruptible(Breaking(), lane.check)

    def endless():
        while True:
            begun.set()
            model.decode(torch.zeros(1, 2))

    job = lane.submit(endless)
    waiting = lane.submit(lambda: 7)
    assert begun.wait(60)
    assert lane.close()
    for one in (job, waiting):
        with pytest.raises(Stopped):
            one.future.result(60)


def test_a_missing_package_is_named_with_its_extra(pictures, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(MissingExtra, match=r"pip install 'zscope\[explore\]'"):
        create_app(pictures, token=TOKEN)


def test_websockets_are_closed(client):
    sent = []

    async def connect():
        async def send(message):
            sent.append(message)

        await client.app({"type": "websocket", "path": "/", "headers": []}, None, send)

    asyncio.run(connect())
    assert sent == [{"type": "websocket.close", "code": 1008}]
