"""A run prints as short lines, aligned like those of a recording."""

from pathlib import Path

from zscope.store import Run


def test_a_run_says_each_thing_once():
    run = Run(Path("runs/mine"), {"model": {"name": "beta-vae"}}, "finished", 1300)
    assert repr(run).splitlines() == [
        "Run         finished, 1,300 steps",
        "model       beta-vae",
        "path        runs/mine",
    ]
    assert repr(Run(None, {})).splitlines() == [
        "Run         running, 0 steps",
        "path        in memory",
    ]
