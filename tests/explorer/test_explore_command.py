"""zscope explore as a user starts and ends it."""

import _thread
import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import httpx
import numpy as np
import pytest
import torch

import zscope as zs
from zscope.errors import ConfigError
from zscope.explorer import explore, name_of
from zscope.explorer.serving import host_names, listen, serve
from zscope.explorer.session import Session

PATIENCE = 120  # seconds, for the slowest of machines
START = "import typer; from zscope.cli.explore import explore; typer.run(explore)"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "small"
    data = zs.data.load("helix", samples=100)
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=[8, 8], seed=0)
    zs.train(model, data, steps=5, out=folder, progress=False)
    return folder


def start(*words):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", START, *map(str, words), "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    for line in process.stdout:
        if address := re.search(r"http://\S+", line):
            return process, address.group(0)
    raise AssertionError(process.communicate()[1])


def test_it_serves_the_run_until_ctrl_c(run):
    process, address = start(run, "--compare", run)
    try:
        assert re.match(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{40,}$", address)
        with httpx.Client(follow_redirects=True, timeout=PATIENCE) as browser:
            page = browser.get(address)
            assert page.status_code == 200
            assert page.url.query == b""
            about = browser.get(page.url.join("/api/session")).json()
            assert (about["name"], about["model"], about["data"]) == ("small", "vae", "helix")
            assert about["compare"] == "small"
    finally:
        stop(process)


STUCK = """
import atexit
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zscope as zs
from zscope.explorer.lanes import Lane

here = Path(__file__).parent
Lane.close.__defaults__ = (0.5,)  # seconds to wait for the answer, so that the test is quick
never = threading.Event()


def wait():
    (here / "stuck").touch()
    never.wait()


def here_only():
    wait()


def with_clean_up():
    atexit.register(never.wait)  # as libraries do that wait for their own calls
    wait()


def in_another_thread():
    ThreadPoolExecutor().submit(wait).result()


def decode(z):
    if (here / "stick").exists():
        globals()[(here / "stick").read_text()]()
    return z


def load():
    return zs.wrap(lambda x: x, decode, latents=2)
"""


@pytest.mark.parametrize(
    ("how", "sign"),
    [
        ("with_clean_up", signal.SIGINT),
        ("in_another_thread", signal.SIGTERM),
        pytest.param("here_only", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("with_clean_up", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("in_another_thread", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_an_answer_that_never_comes_does_not_keep_it_from_ending(tmp_path, how, sign):
    (tmp_path / "model.py").write_text(STUCK)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 2)).astype("float32"))
    process, address = start(f"{tmp_path}/model.py:load", "--data", tmp_path / "x.npy")
    try:
        with httpx.Client(follow_redirects=True, timeout=PATIENCE) as browser:
            page = browser.get(address)
            assert page.status_code == 200
            (tmp_path / "stick").write_text(how)
            waiting = threading.Thread(target=request, args=(browser, page.url.join("/api/map")))
            waiting.start()
            while not (tmp_path / "stuck").exists():
                assert waiting.is_alive()
                time.sleep(0.01)
            stop(process, sign, patience=30)
            waiting.join()
    finally:
        process.kill()


def request(browser, address):
    """Request an answer that ends with the server."""
    with suppress(httpx.TransportError):
        assert browser.get(address).status_code >= 500


def stop(process, sign=signal.SIGINT, patience=PATIENCE):
    """Press Ctrl-C, or send SIGTERM, and expect an orderly end."""
    process.send_signal(sign)
    output, errors = process.communicate(timeout=patience)
    assert process.returncode == (143 if sign == signal.SIGTERM else 0), errors
    assert output.rstrip().endswith("Stopped.")
    assert errors == ""


@pytest.mark.slow
def test_sigterm_stops_it_as_ctrl_c_does(run):
    process, address = start(run)
    try:
        assert httpx.get(address).status_code == 303
    finally:
        stop(process, signal.SIGTERM)


def test_a_port_in_use_is_said_before_the_model_is_loaded():
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        with pytest.raises(ConfigError, match=r"cannot listen at 127\.0\.0\.1:\d+ .*--port"):
            explore("no-such-run", port=occupied.getsockname()[1])
    with pytest.raises(ConfigError, match="cannot listen at not-a-host.invalid"):
        listen("not-a-host.invalid", 0)
    with pytest.raises(ConfigError, match="cannot listen"):
        listen("127.0.0.1", 99999)


def test_an_address_open_to_others_is_warned_of(capsys):
    with pytest.raises(zs.ZscopeError, match="there is no run at no-such-run"):
        explore("no-such-run", host="0.0.0.0")
    assert "other machines in the network can reach" in capsys.readouterr().err
    assert {"127.0.0.1", socket.gethostname()} <= host_names("0.0.0.0")
    assert socket.gethostname() not in host_names("127.0.0.1") - {"localhost"}


def test_the_function_explores_a_run_on_its_own_data_or_on_others(run, monkeypatch):
    sessions = []
    monkeypatch.setattr(
        "zscope.explorer.serving.serve", lambda session, **_: sessions.append(session)
    )
    threads = torch.get_num_threads()
    explore(run, compare=zs.load(run), samples=50)
    explore(str(run), np.zeros((7, 3), np.float32))
    own, other = sessions
    assert (own.subject.name, own.recording.data.name, len(own.recording)) == ("small", "helix", 50)
    assert own.other.name == own.to_dict()["model"] == zs.load(run).title == "vae"
    assert len(other.recording) == 7
    assert torch.get_num_threads() == threads
    for session in sessions:
        session.close()


def test_a_model_without_a_run_needs_data():
    model = zs.wrap(lambda x: x, lambda z: z, latents=2)
    with pytest.raises(ConfigError, match=r"Wrapped does not say which data to encode.*data="):
        explore(model)


def test_it_serves_inside_an_event_loop_as_that_of_a_notebook():
    model = zs.wrap(lambda x: x, lambda z: z, latents=2)
    session = Session(model, torch.eye(2).repeat(5, 1), name="notebook")
    messages, statuses = [], []

    def visit(address):
        with httpx.Client(follow_redirects=True, timeout=PATIENCE) as browser:
            statuses.append(browser.get(address).status_code)
        _thread.interrupt_main()

    def say(message):
        messages.append(message)
        if address := re.search(r"http://\S+", message):
            threading.Thread(target=visit, args=address.group(0).split()).start()

    async def cell():
        serve(session, browser=False, say=say)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(cell())
    finally:
        loop.close()
        signal.signal(signal.SIGINT, before)
    assert statuses == [200]
    assert messages[-1] == "Stopped."


def test_a_target_is_shown_by_its_last_part(tmp_path):
    model = zs.wrap(lambda x: x, lambda z: z, latents=2)
    assert name_of(str(tmp_path / "runs" / "mine"), model) == "mine"
    assert name_of("package.module:model", model) == "package.module:model"
    assert name_of((None, None), model) == model.title == "Autoencoder"
