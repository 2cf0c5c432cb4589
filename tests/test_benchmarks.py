"""The record of a measured ratio, and the page that lists all of them."""

import ast
import importlib
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))
import collect  # noqa: E402
import ratios  # noqa: E402
from ratios import Agreement, Ratio, agreement, finish, turns  # noqa: E402

AGREES = Agreement("2 values, largest difference", 0.0, 1e-6)


def ratio(ours=(1.0, 2.0, 6.0), theirs=(2.0, 2.0, 2.0), **options):
    defaults = {
        "name": "a map", "group": "passes", "baseline": "bare passes", "version": "torch 2.13.0",
        "agreement": AGREES,
    }  # fmt: skip
    return Ratio(ours=list(ours), theirs=list(theirs), **{**defaults, **options})


def test_the_median_is_that_of_the_ratios_of_turns():
    """Not the ratio of the medians: the second half of this run was four times as slow."""
    made = ratio(ours=[1, 1, 8, 8], theirs=[2, 2, 4, 16])
    assert made.by_turn == [0.5, 0.5, 2.0, 0.5]
    assert made.median == 0.5
    assert made.spread == (0.5, 0.875)


@pytest.mark.parametrize("share", [0, 0.25, 0.5, 0.75, 1])
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_quantiles_are_those_of_numpy(share, count):
    values = np.random.default_rng(count).normal(size=count)
    assert ratios.quantile(values, share) == pytest.approx(np.quantile(values, share))


def test_a_single_limit_is_the_baseline_of_every_turn():
    assert ratio(ours=[40, 60], theirs=[100]).by_turn == [0.4, 0.6]


def test_no_ratio_without_agreement():
    with pytest.raises(TypeError, match=r"'a map': agreement is 'equal'.*Use agreement\("):
        ratio(agreement="equal")
    with pytest.raises(TypeError, match="required.*agreement"):
        Ratio("a map", "passes", [1.0], [1.0], baseline="bare", version="torch 2.13.0")
    with pytest.raises(ValueError, match="which values were compared"):
        Agreement(" ", 0.0, 1e-6)
    with pytest.raises(ValueError, match=r"responses have shapes \(2,\) and \(3,\)"):
        agreement("responses", [1, 2], [1, 2, 3], 1e-6)
    with pytest.raises(ValueError, match=r"shapes \(0,\) and \(0,\)"):
        agreement("responses", [], [], 1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ([], [1.0], "0 turns of ours"),
        ([1.0, 1.0, 1.0], [1.0, 1.0], "3 turns of ours and 2"),
        ([1.0, math.nan], [1.0, 1.0], "nan"),
        ([1.0], [0.0], "a clock that does not advance".capitalize()),
    ],
)
def test_turns_that_say_nothing_are_refused(ours, theirs, message):
    with pytest.raises(ValueError, match=message):
        ratio(ours, theirs)


def test_an_unknown_group_is_refused():
    with pytest.raises(ValueError, match="group 'speed' is none of passes"):
        ratio(group="speed")


def test_a_goal_is_missed_by_time_or_by_values():
    assert not ratio().missed
    assert not ratio(at_most=1.0).missed
    assert ratio(at_most=0.99).missed
    assert ratio(agreement=Agreement("2 values", 2e-6, 1e-6)).missed
    assert ratio(agreement=Agreement("2 values", math.nan, 1e-6), at_most=9.0).missed
    assert str(ratio(at_most=0.99)).startswith("MISSED a map: 1 [0.75, 2] of bare passes")


def test_the_agreement_is_the_largest_difference():
    made = agreement("responses", [1.0, 2.0], [1.5, 4.0], 1.0)
    assert (made.difference, made.holds) == (2.0, False)
    assert "DIFFERS" in str(made)
    relative = agreement("responses", [1.0, 2.0], [1.5, 4.0], 0.5, relative=True)
    assert (relative.difference, relative.holds) == (0.5, True)


def test_works_run_in_turn_and_each_turn_in_the_other_order():
    order, clock = [], iter(range(100))
    works = {"ours": lambda: order.append("ours"), "plain": lambda: order.append("plain")}
    seconds = turns(works, 2, clock=lambda: next(clock))
    assert order == ["ours", "plain", "ours", "plain", "plain", "ours"]  # the first pair warms up
    assert seconds == {"ours": [1, 1], "plain": [1, 1]}


def test_a_record_is_read_as_it_was_written(tmp_path, capsys):
    made = [ratio(), ratio(name="a path", at_most=0.1)]
    assert finish("maps", made, ["Nothing else was compared."], tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["maps.json"]
    results = collect.read(["maps"], tmp_path)
    assert results.ratios == made
    assert results.missed == made[1:]
    assert results.notes == ["Nothing else was compared."]
    assert "MISSED a path" in capsys.readouterr().out
    assert finish("maps", made[:1], folder=tmp_path) == 0


@pytest.fixture
def results(tmp_path, capsys):
    finish("training", [ratio(name="a step", group="training", at_most=0.5)], folder=tmp_path)
    finish("maps", [ratio(at_most=1.0), ratio(name="fast", ours=[0.02] * 3)], folder=tmp_path)
    ratios.record("paths", {"failed": "MemoryError"}, tmp_path)
    return collect.read(["training", "maps", "paths", "scores"], tmp_path)


def test_the_page_says_what_missed_and_what_failed(results):
    text = collect.page(results)
    assert "1 of 2 goals reached; 2 scripts failed." in text
    assert "- Missed: a step: 1 [0.75, 2]" in text
    assert "- Failed: `benchmarks/paths.py`: MemoryError" in text
    assert "- Failed: `benchmarks/scores.py`: was not run" in text
    assert text.index("## Assays that decode and encode") < text.index("## Training")
    assert "**0.01 (100 times as fast)**" in text
    assert "**1**, missed | 0.75 to 2, 3 turns | at most 0.5 | 2 s | 2 s |" in text
    for each in results.ratios:
        assert f"| {each.name} |" in text
        assert str(each.agreement) in text


def test_page_and_figure_depend_on_the_records_alone(results, tmp_path):
    again = collect.read(["scores", "paths", "maps", "training"], tmp_path)
    assert collect.page(again) == collect.page(results)
    for name, each in (("a.svg", results), ("b.svg", again)):
        collect.figure(each, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise SystemExit('no compiler here')", "no compiler here"),
        ("import time; print('begun', flush=True); time.sleep(60)", "stopped after 3 seconds"),
        ("pass", "ended with 0 and printed nothing"),
    ],
)
def test_a_script_that_fails_is_listed_with_its_last_line(script, message, tmp_path):
    (tmp_path / "old.py").write_text(script)
    finish("old", [ratio()], folder=tmp_path)  # of an earlier run: it does not count
    collect.run(tmp_path / "old.py", tmp_path, longest=3)
    assert collect.read(["old"], tmp_path).failed == {"old": message}
    assert json.loads((tmp_path / "old.json").read_text())["script"] == "old"


def test_every_benchmark_is_collected_and_writes_records():
    """A script that prints its own kind of ratio would be missing from the page."""
    assert "maps" in collect.scripts()
    assert "ratios" not in collect.scripts()
    silent = [
        script
        for script in collect.scripts()
        if not re.search(rf'finish\(\s*"{script}"', (BENCHMARKS / f"{script}.py").read_text())
    ]
    assert silent == []


def test_a_peer_can_be_one_that_is_there_already(monkeypatch):
    monkeypatch.setenv("ZSCOPE_SCIKIT_DIMENSION", "/somewhere/python")
    assert ratios.peer("scikit-dimension") == "/somewhere/python"


def test_every_peer_is_installed_at_one_version_and_torch_first():
    """Any other version of torch pulls gigabytes, and one that follows may replace it."""
    for name, packages in ratios.PEERS.items():
        assert all("==" in package for package in packages)
        assert packages[-1].startswith(f"{name}==")
        assert not any(package.startswith("torch") for package in packages[1:])


def test_a_command_that_fails_says_why():
    with pytest.raises(RuntimeError, match="ended with 3: no such model"):
        ratios.command(sys.executable, "-c", "import sys; print('no such model'); sys.exit(3)")


def test_the_time_of_child_processes_counts():
    work = "sum(range(3_000_000))"
    seconds = turns(
        {"child": lambda: ratios.command(sys.executable, "-c", work), "nothing": lambda: None},
        1, warm=False, clock=ratios.children,
    )  # fmt: skip
    assert seconds["child"][0] > 10 * seconds["nothing"][0]


@pytest.mark.parametrize("script", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_takes_from_zscope_exists(script):
    """Most are imported where they are used, so that a script finds out after minutes."""
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "zscope":
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
