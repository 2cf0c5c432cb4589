"""The explorer in a notebook: in a frame, with the token in its path, until the kernel ends."""

import http.server
import socket
import threading
from contextlib import contextmanager

import httpx
import pytest
from conftest import TOKEN, Client, settle

from zscope.explorer.frame import Frame, frame_address, show
from zscope.explorer.session import Session

FRAME = f"/{TOKEN}"


@pytest.fixture
def framed(pictures):
    return Client(pictures, token=None, framed=True)


def test_in_a_frame_the_token_is_the_first_part_of_every_path(framed):
    page = framed.get(f"{FRAME}/")
    assert page.status_code == 200
    assert 'src="static/app.js"' in page.text  # below the token, like everything the page loads
    for path in ("/static/app.js", "/static/style.css", "/api"):
        assert framed.get(FRAME + path).status_code == 200
    assert framed.post(f"{FRAME}/api/session", json={}).status_code == 200
    for path in ("/", "/wrong/", f"/wrong{FRAME}/", f"/api{FRAME}/session", "/static/app.js"):
        reply = framed.get(path)
        assert reply.status_code == 403, path
        assert TOKEN not in reply.text + str(reply.headers)


def test_only_with_the_token_in_its_path_may_pages_of_this_machine_frame_it(framed, pictures):
    def policy(reply):
        assert "default-src 'none'; script-src 'self'" in reply.headers["content-security-policy"]
        framing = reply.headers["content-security-policy"].partition("frame-ancestors ")[2]
        return framing, reply.headers.get("x-frame-options")

    ancestors, option = policy(framed.get(f"{FRAME}/"))
    assert option is None
    assert {each.partition("//")[2] for each in ancestors.split()} == {"127.0.0.1:*", "localhost:*"}
    bearer = {"authorization": f"Bearer {TOKEN}"}
    refused = [framed.get("/"), framed.get("/", headers=bearer), framed.get("/wrong/")]
    for reply in refused:
        assert policy(reply) == ("'none'", "DENY")
    # Outside notebooks no path is a token, and nothing may be framed.
    plain = Client(pictures, token=None)
    assert plain.get(f"{FRAME}/").status_code == 403
    assert policy(plain.get("/", headers=bearer)) == ("'none'", "DENY")


def test_the_other_checks_hold_in_a_frame_too(framed):
    assert framed.get(f"{FRAME}/api", headers={"host": "evil.example"}).status_code == 403
    foreign = {"origin": "http://127.0.0.1:8888", "sec-fetch-site": "same-site"}
    assert framed.post(f"{FRAME}/api/session", headers=foreign).status_code == 403
    for path in ("/static/../app.py", "/../app.py", "//etc/passwd", f"{FRAME}/"):
        assert framed.get(FRAME + path).status_code in (403, 404)


def session(pictures):
    subject = pictures.subject.recording
    return Session(subject.autoencoder, subject.data, name="mine", samples=100)


def is_listening(url):
    port = int(url.split(":")[2].split("/")[0])
    with socket.socket() as trial:
        trial.settimeout(2)
        return trial.connect_ex(("127.0.0.1", port)) == 0


def test_a_frame_serves_in_the_background_until_it_is_closed(pictures):
    frame = Frame(session(pictures), host="127.0.0.1", port=0)
    try:
        reply = httpx.get(frame_address(frame.url), timeout=20)
        assert reply.status_code == 200
        assert httpx.get(frame.url, timeout=20).status_code == 303
        assert frame_address(frame.url) in frame._repr_html_()
        assert f'href="{frame.url}"' in frame._repr_html_()
        assert frame.url in repr(frame)
    finally:
        frame.close()
    assert not is_listening(frame.url)
    assert "closed" in repr(frame)
    assert "iframe" not in frame._repr_html_()
    frame.close()  # a second time does nothing


def test_a_cell_that_runs_again_closes_what_it_showed_before(pictures):
    first, other, second = (
        show(session(pictures), host="127.0.0.1", port=0, cell=cell) for cell in ("a", "b", "a")
    )
    try:
        assert first.closed
        assert not other.closed
        assert is_listening(second.url)
    finally:
        other.close()
        second.close()


@contextmanager
def notebook_page(content):
    """A page of another port of this machine, as that of Jupyter."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(f"<!doctype html><body>{content}</body>".encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


# From the name localhost a frame of 127.0.0.1 is that of another site, which gets no cookies.
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_browser_shows_the_explorer_in_the_frame_of_another_port(pictures, tab, host):
    frame = Frame(session(pictures), host="127.0.0.1", port=0)
    messages = []
    tab.on("console", lambda message: messages.append(message.text))
    try:
        with notebook_page(frame._repr_html_()) as port:
            tab.goto(f"http://{host}:{port}/")
            inside = tab.frame_locator("iframe")
            inside.locator("[role=tab][aria-selected=true]").wait_for()
            [own] = [each for each in tab.frames if frame_address(frame.url) in each.url]
            settle(own)
            inside.get_by_role("tab", name="Matrix").click()
            own.wait_for_selector("table, canvas")
            settle(own)
            assert own.locator("#about").inner_text()
        assert messages == []
    finally:
        frame.close()
        tab.goto("about:blank")


CELLS = [
    """
import torch
import zscope as zs

model = torch.nn.ModuleDict({"encoder": torch.nn.Linear(3, 2), "decoder": torch.nn.Linear(2, 3)})
frame = zs.explore((model["encoder"], model["decoder"]), torch.randn(50, 3), samples=50)
frame
""",
    """
import urllib.request

model["encoder"].train()
with urllib.request.urlopen(frame.url.replace("?token=", "") + "/api/session") as reply:
    status = reply.status
model["encoder"].training, status, frame.url
""",
]


def test_a_notebook_shows_a_frame_and_the_end_of_its_kernel_closes_the_port(tmp_path):
    nbclient, nbformat = map(pytest.importorskip, ("nbclient", "nbformat"))  # not in .venv-floors
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS]
    )
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
        shown = notebook.cells[0].outputs
        training, status, url = eval(notebook.cells[1].outputs[0]["data"]["text/plain"])
        assert is_listening(url)
    assert (training, status) == (True, 200)
    [output] = shown  # nothing besides: no message, no blocking
    assert f'<iframe src="{frame_address(url)}"' in output["data"]["text/html"]
    assert not is_listening(url)
