"""Studies from end to end at a tiny scale: trained, measured, judged, drawn, and resumed."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from zscope.cli import app
from zscope.documents import read_json
from zscope.errors import RunError
from zscope.experiments import studies
from zscope.experiments.studies.storage import decode, encode, read_results, write_results
from zscope.experiments.studies.study import Results
from zscope.experiments.studies.trained import TrainedRuns
from zscope.report.studies import write_reproduction, write_study

QUICK = ["pca-degenerate", "regime-correlations", "ivae-histograms"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("studies")


def run_tiny(name, folder, **settings):
    study = studies.load(name)
    return study, studies.run_study(study, folder, scale="tiny", seeds=1, jobs=1, **settings)


@pytest.mark.parametrize("name", QUICK)
def test_a_study_writes_its_tables_figures_claims_and_page(name, folder):
    check_outputs(name, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in studies.names() if name not in QUICK])
def test_every_other_study_does_too(name, folder, pictures):
    check_outputs(name, folder, root=pictures)


def check_outputs(name, folder, **settings):
    study, results = run_tiny(name, folder, **settings)
    assert not results.failed
    claims = write_study(study, results, folder / name)
    assert claims
    written = read_json(folder / name / "claims.json")["claims"]
    assert len(written) == len(claims)
    assert {each["verdict"] for each in written} <= {"holds", "does not hold", "undecided"}
    page = (folder / name / "study.html").read_text()
    for claim in claims:
        assert f"{claim.row} {claim.name}:" in page
    # At this scale some have nothing to draw: no latent carries a factor, no two seeds to compare.
    drawn = {each.name for each in study.figures(results)}
    assert drawn or name in ("responses-maps", "regime-classifier")
    for kind in ("png", "svg", "pdf"):
        assert {each.stem for each in (folder / name / "figures").glob(f"*.{kind}")} == drawn
    for kind in ("csv", "md", "tex"):
        assert list((folder / name / "tables").glob(f"*.{kind}"))
    for image in (folder / name / "figures").glob("*.png"):
        assert f"figures/{image.name}" in page


def test_started_again_nothing_is_trained_or_measured(folder, monkeypatch):
    name = QUICK[0]
    run_tiny(name, folder)
    before = {f: f.stat().st_mtime_ns for f in (folder / name / "measured").rglob("*.json")}

    def refuse(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr("zscope.experiments.studies.execution.measure_unit", refuse)
    _, results = run_tiny(name, folder)
    assert not results.failed
    assert before == {f: f.stat().st_mtime_ns for f in (folder / name / "measured").rglob("*.json")}


def test_a_run_without_snapshots_has_two_stages_before_and_after_training(folder):
    _, results = run_tiny(QUICK[0], folder)
    run = TrainedRuns(results.runs, folder / "runs", scale="tiny").select()[0]
    first, last = run.stages
    assert (first, last) == (0, run.run.step)
    weights = [next(run.at(step).parameters()) for step in (first, last)]
    assert torch.equal(weights[1], next(run.model.parameters()))
    assert not torch.equal(*weights)


def test_what_is_missing_is_measured_and_gives_the_same(folder):
    name = QUICK[0]
    _, first = run_tiny(name, folder)
    lost = sorted((folder / name / "measured").rglob("*.json"))[0]
    lost.write_text("{")  # as a disk failure may leave it
    _, second = run_tiny(name, folder)
    assert json.dumps(encode(first.values)) == json.dumps(encode(second.values))


def test_claims_are_judged_from_the_stored_measurements_alone(folder, tmp_path):
    name = QUICK[0]
    study, results = run_tiny(name, folder)
    expected = write_study(study, results, tmp_path / "first", formats=("png",))
    again = write_study(study, read_results(folder / name), tmp_path / "second", formats=("png",))
    assert [each.to_dict() for each in again] == [each.to_dict() for each in expected]
    for file in (tmp_path / "first").rglob("*.*"):
        assert (tmp_path / "second" / file.relative_to(tmp_path / "first")).read_bytes() == (
            file.read_bytes()
        )


def test_one_table_of_all_claims_says_what_was_not_run(folder, tmp_path):
    study, results = run_tiny(QUICK[0], folder)
    write_study(study, results, folder / study.name)
    write_reproduction(folder, tmp_path / "reproduction.md")
    text = (tmp_path / "reproduction.md").read_text()
    assert text.count(f"| {QUICK[0]} |") == len(list(study.claims(results)))
    for other in studies.names():
        assert f"| {other} |" in text
    assert "not run yet" in text
    assert "nothing can be concluded from its verdicts" in " ".join(text.split())  # scale tiny
    assert "At scale small" not in text


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_study_that_cannot_be_run_does_not_stop_the_others(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN.replace("seed == 21", "seed == 99"))
    (tmp_path / "lost.py").write_text(
        OWN.replace("helix?samples=64", "lost.npz").replace('"own"', '"lost"')
    )
    files = [str(tmp_path / "lost.py"), str(tmp_path / "own.py")]
    monkeypatch.setattr(studies, "names", lambda: files)
    result = invoke("study", "run", "all", "--out", tmp_path / "out", "--jobs", 1)
    assert result.exit_code == 1
    assert "lost could not be run: " in result.output
    assert "T1       c1   undecided (2 seeds; at least 4 are needed)" in result.output
    assert (tmp_path / "out" / "own" / "study.html").is_file()
    assert "| own |" in (tmp_path / "out" / "reproduction.md").read_text()


def test_the_list_counts_runs_that_another_study_has_trained(tmp_path, monkeypatch):
    text = OWN.replace("seed == 21", "seed == 99")
    (tmp_path / "own.py").write_text(text)
    more = text.replace('name="own"', 'name="more", minutes=5, own_minutes=2')
    (tmp_path / "more.py").write_text(more.replace("seeds=2", "seeds=3"))
    files = [str(tmp_path / "own.py"), str(tmp_path / "more.py")]
    monkeypatch.setattr(studies, "names", lambda: files)
    words = ("study", "list", "--out", tmp_path / "out", "--json")
    before = json.loads(invoke(*words).output)["studies"]
    assert [(row["there"], row["runs"]) for row in before] == [(0, 2), (0, 3)]
    assert [(row["minutes"], row["own_minutes"]) for row in before] == [(None, None), (5, 2)]
    studies.run_study(studies.load(files[0]), tmp_path / "out", jobs=1)
    after = json.loads(invoke(*words).output)["studies"]
    assert [(row["there"], row["runs"]) for row in after] == [(2, 2), (2, 3)]


def test_minutes_of_its_own_are_given_for_studies_that_share_runs_with_earlier_ones():
    earlier = set()
    for name in studies.names():
        study = studies.load(name)
        steps = {json.dumps(run, sort_keys=True): run["steps"] for _, run in study.plan("small")}
        shared = sum(steps[run] for run in earlier.intersection(steps)) / sum(steps.values())
        if study.own_minutes is None:
            assert shared < 0.12, name  # a tenth or less is not worth a number
        else:
            assert shared > 0, name
            assert study.own_minutes < study.minutes
        earlier.update(steps)


OWN = '''
"""A study of one's own."""

from zscope.experiments.studies.grid import Grid, runs
from zscope.experiments.studies.judging import above, claim
from zscope.experiments.studies.study import Row, Study, each_run


def measure(run):
    if run.seed == 21:
        raise ValueError("this seed is broken")
    return {"size": run["latents"], "codes": run.recording(samples=40).codes[:2].numpy()}


def claims(results):
    yield claim("T1", "c1", "there are latents", source="table 1", expect=above(0),
                values=results.rows().per_seed("size"), statistic="latents")


STUDY = Study(
    name="own", document="A", title="Does it work?", rows=(Row("T1", "table 1", "latents"),),
    grids={"all": Grid(small=runs(model="ae", data="helix?samples=64", latents=2, hidden=(4,),
                                  steps=3, seeds=2))},
    measures=(each_run(measure),), claims=claims,
)
'''  # fmt: skip


def test_a_study_in_a_file_of_ones_own_runs_and_a_failure_does_not_stop_the_rest(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    study = studies.load(str(tmp_path / "own.py"))
    lines = []
    results = studies.run_study(study, tmp_path / "out", jobs=1, progress=lines.append)
    assert len(results.rows()) == 2
    assert list(results.rows().per_seed("size")) == [20]
    assert [reason for reason in results.failed.values() if "this seed is broken" in reason]
    assert any("failed" in line for line in lines)
    (claim,) = write_study(study, results, tmp_path / "page")
    assert claim.verdict_text == "undecided (1 seed; at least 4 are needed)"


def test_a_measurement_with_the_name_of_a_setting_is_refused(tmp_path):
    (tmp_path / "own.py").write_text(OWN.replace('"size"', '"steps"'))
    study = studies.load(str(tmp_path / "own.py"))
    results = studies.run_study(study, tmp_path / "out", jobs=1, seeds=1)
    assert "also the name of a setting" in next(iter(results.failed.values()))


@pytest.mark.parametrize(
    ("old", "new", "again"),
    [
        ('"there are latents"', '"there are some"', False),  # a claim
        ("SAMPLES = 40", "SAMPLES = 41", True),  # a constant that is measured with
        ("return count * 1", "return count * 2", True),  # a function of the same file
        ("OTHER = 1", "OTHER = 2", False),  # what is not used
    ],
)
def test_what_measures_differently_is_measured_again(tmp_path, old, new, again):
    head, rest = OWN.split("def measure", 1)
    text = head + "SAMPLES = 40\nOTHER = 1\n\n\ndef scaled(count):\n    return count * 1\n\n\n"
    text += "def measure" + rest.replace("samples=40", "samples=scaled(SAMPLES)")
    assert old in text
    codes = []
    for name, content in (("one", text), ("two", text.replace(old, new))):
        (tmp_path / f"{name}.py").write_text(content)
        (measure,) = studies.load(str(tmp_path / f"{name}.py")).measures
        codes.append(measure.code)
    assert (codes[0] != codes[1]) == again


def test_what_studies_share_is_part_of_a_measurement(monkeypatch):
    (measure, *_) = studies.load("pca-alignment").measures
    before = measure.code
    source = inspect.getsource
    monkeypatch.setattr(
        inspect,
        "getsource",
        lambda value: source(value) + ("#" if value.__name__ == "measure_alignment" else ""),
    )
    assert measure.code != before


def test_measurements_survive_being_stored():
    values = {
        "number": np.float32(1.23456789), "flag": True, "none": float("nan"), "text": "β",
        "few": torch.tensor([1.0, 2.5]), "bytes": np.arange(100, dtype=np.uint8).reshape(10, 10),
        "map": np.linspace(0, 1, 200).reshape(2, 100), "nested": [{"a": (1, 2)}],
    }  # fmt: skip
    again = decode(json.loads(json.dumps(encode(values))))
    assert again["number"] == pytest.approx(1.2346, abs=1e-4)
    assert (again["flag"], again["none"], again["text"]) == (True, None, "β")
    assert again["few"] == [1.0, 2.5]
    np.testing.assert_array_equal(again["bytes"], values["bytes"])
    np.testing.assert_allclose(again["map"], values["map"], atol=5e-4)
    assert again["nested"] == [{"a": [1, 2]}]
    with pytest.raises(TypeError, match="expected numbers and texts"):
        encode(object())


def test_damaged_measurements_are_refused_with_a_way_forward(tmp_path):
    results = Results("own", "tiny", [{"run": "a", "group": "g", "seed": 20}])
    write_results(results, tmp_path)
    assert read_results(tmp_path).runs == results.runs
    file = tmp_path / "measurements.json.gz"
    file.write_bytes(file.read_bytes()[:-12])
    with pytest.raises(RunError, match="damaged.*start the study again"):
        read_results(tmp_path)
    with pytest.raises(RunError, match="zscope study run NAME"):
        read_results(tmp_path / "absent")


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_measurements(tmp_path):
    (tmp_path / "own.py").write_text(OWN.replace("seed == 21", "seed == 99"))
    study = studies.load(str(tmp_path / "own.py"))
    expected = studies.run_study(study, tmp_path / "calm", jobs=1)
    start = "from zscope.cli import main; main()"
    command = [sys.executable, "-c", start, "study", "run", str(tmp_path / "own.py"), "--out",
               str(tmp_path / "killed"), "--jobs", "1"]  # fmt: skip
    kills = 0
    for wait in (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, None):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            code = process.wait(wait)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            continue
        assert code == 0
        break
    assert kills
    killed = read_results(tmp_path / "killed" / "own")
    assert killed.runs == expected.runs
    assert json.dumps(encode(killed.values)) == json.dumps(encode(expected.values))
    assert not list((tmp_path / "killed").rglob(".part-*"))


def test_a_file_that_is_not_there_is_called_a_study(zscope):
    code, printed, message = zscope("study", "run", "nofile.py")
    assert (code, printed) == (1, "")
    assert "no file nofile.py" in message
    assert "STUDY" in message
    assert "model" not in message


@pytest.mark.parametrize("name", ["own.py", "all"])
def test_a_cluster_that_is_none_is_refused_before_anything_is_said(name, zscope, tmp_path):
    pytest.importorskip("distributed")
    (tmp_path / "own.py").write_text(OWN)
    code, printed, message = zscope("study", "run", name, "--cluster", "nonsense")
    assert (code, printed) == (1, "")
    assert "'nonsense' is neither an address nor a kind of cluster" in message
    assert message.count("\n") == 1
    assert not (tmp_path / "studies").exists()
