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
VARIANTS = {"each run trained alone": ["--no-ensemble"], "ten runs trained together": []}
REPAIRED = [
    "the lock of a process that was killed right after it had finished a run stayed for ever",
    "a run that was killed right after its last step never said on which device it was trained",
    "checkpoints of a run that was killed right after its last step stayed for ever",
]


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
    """Write the counts of one variant beside those of the other."""
    if not os.environ.get("ZSCOPE_RECORD"):
        return
    rows = json.loads(RECORD.read_text())["by_work"] if RECORD.is_file() else {}
    rows[variant] = {
        "tries": sum(answer["kills"].values()),
        **{f"kills of a {who}": count for who, count in answer["kills"].items()},
        "runs": 40,
        "resumed trainings": resumed,
        "files compared": answer["files"],
        "failures": len(answer["differing"]),
    }
    content = {
        "tries": sum(row["tries"] for row in rows.values()),
        "failures": sum(row["failures"] for row in rows.values()),
        "by_work": rows,
        "repaired": REPAIRED,
    }
    RECORD.write_text(json.dumps(content, indent=2) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_sweep_whose_processes_are_killed_ends_as_one_that_was_not(tmp_path, variant):
    answer = kill_again_and_again(tmp_path, *VARIANTS[variant])
    killed = tmp_path / "killed"
    groups = store.read_json(killed / "out" / "sweep.json")["groups"]
    begun = read_trainings(killed / "trainings.txt", groups)
    assert len(begun) == 40
    resumed = sum(len(steps) - 1 for steps in begun.values())
    record(variant, answer, resumed)
    assert answer["codes"] == [0, 0, 0]
    assert answer["differing"] == []  # every file but for times
    state = answer["status"]
    assert (len(state["done"]), state["running"], state["waiting"], state["failed"]) == (
        40, {}, [], {},
    )  # fmt: skip
    assert sum(answer["kills"].values()) >= 10
    assert resumed > 0
    assert not [*tmp_path.rglob(".part-*"), *tmp_path.rglob(".lock")]
