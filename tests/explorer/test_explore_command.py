"""zscope explore as a user starts and ends it."""

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

import zscope as zs
from zscope.errors import ConfigError
from zscope.explorer import explore, name_of
from zscope.explorer.serving import host_names, listen

PATIENCE = 120  # seconds, for the slowest of machines
START = "import typer; from zscope.cli.explore import explore; typer.run(explore)"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "small"
    data = zs.data.load("helix", samples=100)
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=[8, 8], seed=0)
    zs.train(model, data, steps=5, out=folder, progress=False)
    return folder


def started(*words):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", START, *map(str, words), "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    for line in process.stdout:
        if found := re.search(r"http://\S+", line):
            return process, found.group(0)
    raise AssertionError(process.communicate()[1])


def test_it_serves_the_run_until_ctrl_c(run):
    process, address = started(run, "--compare", run)
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
        ended(process)


STUCK = """
import time
from pathlib import Path

import zscope as zs

here = Path(__file__).parent


def decode(z):
    if (here / "stick").exists():
        (here / "stuck").touch()
        while True:
            time.sleep(0.1)
    return z


def load():
    return zs.wrap(lambda x: x, decode, latents=2)
"""


def test_an_answer_that_never_comes_does_not_keep_it_from_ending(tmp_path):
    (tmp_path / "model.py").write_text(STUCK)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 2)).astype("float32"))
    process, address = started(f"{tmp_path}/model.py:load", "--data", tmp_path / "x.npy")
    try:
        with httpx.Client(follow_redirects=True, timeout=PATIENCE) as browser:
            page = browser.get(address)
            assert page.status_code == 200
            (tmp_path / "stick").touch()
            asking = threading.Thread(target=refused, args=(browser, page.url.join("/api/map")))
            asking.start()
            while not (tmp_path / "stuck").exists():
                assert asking.is_alive()
                time.sleep(0.01)
            ended(process)
            asking.join()
    finally:
        process.kill()


def refused(browser, address):
    """Ask for an answer that ends with the server."""
    with suppress(httpx.TransportError):
        assert browser.get(address).status_code >= 500


def ended(process):
    """Press Ctrl-C, and see it end in good order."""
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert said.rstrip().endswith("Stopped.")
    assert errors == ""


def test_a_port_in_use_is_said_before_the_model_is_loaded():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match=r"cannot listen at 127\.0\.0\.1:\d+ .*--port"):
            explore("no-such-run", port=taken.getsockname()[1])
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


def test_a_target_is_shown_by_its_last_part(tmp_path):
    assert name_of(str(tmp_path / "runs" / "mine")) == "mine"
    assert name_of("package.module:model") == "package.module:model"
