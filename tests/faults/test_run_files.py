"""Whatever happens to the files of a run: the right answer, or an error that names the file.

The long version damages more than four thousand files. With ZSCOPE_RECORD set, it writes down
what it found.
"""

import json
import os
from pathlib import Path

import pytest
from scripts import answering

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "reference" / "reliability" / "run_files.json"

# door -> how many files are damaged before it is tried
MANY = {"load": 900, "history": 1300, "results": 900, "checkpoint": 300, "json": 200, "resume": 200,
        "fondue": 130, "again": 50, "assay": 50, "compare": 20, "perturb": 20}  # fmt: skip
FEW = {"load": 20, "history": 20, "results": 20, "resume": 6}
REPAIRED = [
    "results of two assays whose files were exchanged were returned under each other's name",
    "a checkpoint under the name of another step was loaded as that of the other",
    "a changed number in the history of a perturbation was taken for a loss",
    "a pipe in place of a stored result blocked the assay for ever",
    "a result whose reference to an array was no text ended in a traceback",
    "errors about a folder without a run or a perturbation did not name the missing file",
]


@pytest.fixture(scope="module")
def damage(tmp_path_factory):
    """Damage files of runs and read them in forked processes with limits of memory and time."""
    with answering(HERE / "damage_server.py", tmp_path_factory.mktemp("files")) as ask:
        yield lambda door, count: ask(door=door, count=count)


@pytest.mark.parametrize("door", FEW)
def test_a_few_damaged_files(damage, door):
    answer = damage(door, FEW[door])
    assert answer["failures"] == []
    assert answer["files"] == FEW[door]


@pytest.mark.slow
def test_thousands_of_damaged_files(damage):
    answers = {door: damage(door, count) for door, count in MANY.items()}
    failures = [failure for answer in answers.values() for failure in answer["failures"]]
    kinds = sorted({kind for answer in answers.values() for kind in answer["by_damage"]})
    content = {
        "files": sum(answer["files"] for answer in answers.values()),
        "failures": len(failures),
        "by_damage": {
            kind: sum(answer["by_damage"].get(kind, 0) for answer in answers.values())
            for kind in kinds
        },
        "by_door": {
            door: {"files": answer["files"], "failures": len(answer["failures"])}
            for door, answer in answers.items()
        },
        "seconds": round(sum(answer["seconds"] for answer in answers.values())),
        "repaired": REPAIRED,
    }
    if os.environ.get("ZSCOPE_RECORD"):
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(content, indent=2) + "\n")
    assert failures == []
    assert content["files"] >= 4000
