"""Three processes on one sweep, one of them killed about every second: nothing is lost or redone.

With ZSCOPE_RECORD set, it writes down what it found.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from noted_trainings import read_trainings

from zscope import store

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "reference" / "reliability" / "sweeps.json"


def kill_again_and_again(folder, *extra):
    done = subprocess.run(
        [sys.executable, HERE / "sweep_server.py", folder, *extra],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def record(variant, answer, resumed):
    if os.environ.get("ZSCOPE_RECORD"):
        content = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
        row = {"runs": 40, "kills": sum(answer["kills"].values()), **answer["kills"],
               "resumed": resumed, "failures": len(answer["differing"])}  # fmt: skip
        RECORD.write_text(json.dumps({**content, variant: row}, indent=1) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("extra", [["--no-ensemble"], []], ids=["alone", "together"])
def test_a_sweep_whose_processes_are_killed_ends_as_one_that_was_not(tmp_path, extra):
    answer = kill_again_and_again(tmp_path, *extra)
    killed = tmp_path / "killed"
    groups = store.read_json(killed / "out" / "sweep.json")["groups"]
    begun = read_trainings(killed / "trainings.txt", groups)
    assert len(begun) == 40
    resumed = sum(len(steps) - 1 for steps in begun.values())
    record("together" if not extra else "alone", answer, resumed)
    assert answer["codes"] == [0, 0, 0]
    assert answer["differing"] == []  # every file but for times
    state = answer["status"]
    assert (len(state["done"]), state["running"], state["waiting"], state["failed"]) == (
        40, {}, [], {},
    )  # fmt: skip
    assert sum(answer["kills"].values()) >= 10
    assert resumed > 0
    assert not [*tmp_path.rglob(".part-*"), *tmp_path.rglob(".lock")]
