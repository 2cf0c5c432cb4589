"""Whatever is killed, whenever: files are complete or absent, and the work can be done again.

The long version kills every kind of work more than a thousand times in all. With ZSCOPE_RECORD
set, it writes down what it found.
"""

import json
import os
from pathlib import Path

import pytest
from scripts import answering

import zscope as zs

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "reference" / "reliability" / "kills.json"

# work -> crash points ("all": each of them before, after and in the middle), kills at random
# times, and pairs of processes at once
MANY = {
    **{f"train {name}": (8, 4, 0) for name in zs.models.names()},
    "train vae": ("all", 20, 20),
    "ensemble": (60, 15, 4),
    "unpack": ("all", 10, 20),
    "own array": ("all", 10, 5),
    "data fetch": ("all", 10, 5),
    "perturb": (40, 15, 2),
    "fondue": (40, 15, 2),
    "report": (60, 15, 2),
    "assay": ("all", 10, 5),
}
FEW = {"train vae": (6, 2, 1), "assay": (5, 0, 0), "unpack": (4, 0, 1), "data fetch": (4, 0, 0)}
REPAIRED = [
    "results of a run could not be read while a partial file lay beside them",
    "a result whose arrays were being replaced was damaged by a kill between its two files",
    "partial files beside a report and beside results were left for ever",
    "the lock of a dead process stayed in folders that are locked only for writing",
    "the lock of a dead process stayed in a cache whose file was complete",
]


@pytest.fixture(scope="module")
def kill(tmp_path_factory):
    """Kill a work at some moments, in processes forked from one that has imported everything."""
    with answering(HERE / "kill_server.py", tmp_path_factory.mktemp("kills")) as ask:
        yield lambda work, points, random, both: ask(
            work=work, points=points, random=random, both=both
        )


@pytest.mark.parametrize("work", FEW)
def test_a_few_kills(kill, work):
    answer = kill(work, *FEW[work])
    assert answer["failures"] == []
    assert answer["tries"] >= FEW[work][0]


@pytest.mark.slow
def test_a_thousand_kills(kill):
    answers = {work: kill(work, *plan) for work, plan in MANY.items()}
    failures = [failure for answer in answers.values() for failure in answer["failures"]]
    kinds = {kind for answer in answers.values() for kind in answer["by_moment"]}
    content = {
        "tries": sum(answer["tries"] for answer in answers.values()),
        "kills": sum(answer["kills"] for answer in answers.values()),
        "pairs": sum(plan[2] for plan in MANY.values()),
        "failures": len(failures),
        "by_moment": {
            kind: sum(answer["by_moment"].get(kind, 0) for answer in answers.values())
            for kind in sorted(kinds)
        },
        "by_work": {
            work: {"tries": answer["tries"], "kills": answer["kills"],
                   "crash points": answer["points"], "failures": len(answer["failures"])}
            for work, answer in answers.items()
        },
        "seconds": round(sum(answer["seconds"] for answer in answers.values())),
        "repaired": REPAIRED,
    }  # fmt: skip
    if os.environ.get("ZSCOPE_RECORD"):
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(content, indent=2) + "\n")
    assert failures == []
    assert content["kills"] >= 1000
