"""zscope assay and zscope demo, as a user meets them."""

import json
import shutil
import sys
from functools import wraps
from importlib import import_module

import numpy as np
import pytest
from worlds import gaussian_codes

import zscope as zs
from zscope import store
from zscope.assays import CATALOGUE, groups
from zscope.assays.responses import matrix
from zscope.cli import main
from zscope.report.build import Report

demo = import_module("zscope.cli.demo")
effective_rank = import_module(CATALOGUE["effective-rank"].module)


@pytest.fixture
def zscope(monkeypatch, capsys, tmp_path):
    """Run a command in this process: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zscope", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder, helix = tmp_path_factory.mktemp("trained") / "run", zs.data.load("helix")
    # With β = 1 both latents of so small a model collapse, which training says on stderr.
    model = zs.models.build("beta-vae", shape=(3,), latents=2, hidden=(16,), beta=0.02, seed=0)
    zs.train(model, helix, steps=30, rate=2e-2, out=folder)
    return folder


@pytest.fixture
def run_folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def test_named_assays_are_measured_shown_kept_and_drawn(zscope, run_folder, tmp_path):
    words = ("response-matrix", "variable-types", "--samples", 200, "--figures", "figures")
    code, out, err = zscope("assay", run_folder, *words)
    assert code == 0, err
    assert "response-matrix" in out
    assert "causal" in out
    assert set(store.open_run(run_folder).results()) == {"response-matrix", "variable-types"}
    for name in ("response-matrix", "response-matrix-graph"):  # its own and its further figure
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_json_holds_what_the_library_returns(zscope, run_folder):
    code, out, _ = zscope("assay", run_folder, "variable-types", "--samples", 200, "--json")
    assert code == 0
    result = json.loads(out)["assays"]["variable-types"]["result"]
    recording = zs.record(zs.load(run_folder), zs.data.load("helix"), samples=200)
    types = zs.assays.variable_types(recording.posterior.variance)
    assert result["active"] == types.active
    assert result["mean_variance"] == pytest.approx(types.mean_variance.tolist(), rel=1e-5)


def test_warnings_of_a_result_are_said_and_not_hidden(zscope, tmp_path):
    """Equal singular values, and a decoder without a derivative."""
    numbers = "lambda x: x), (lambda z: torch.from_numpy(z.numpy()))"
    (tmp_path / "equal.py").write_text("def load():\n    return (lambda x: x), (lambda z: z)\n")
    (tmp_path / "plain.py").write_text(f"import torch\ndef load():\n    return ({numbers}\n")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32))
    words = ("distance-to-orthogonality", "--data", "x.npy")
    _, out, _ = zscope("assay", "equal.py:load", *words)
    assert "two singular values are equal" in " ".join(out.split())
    _, out, _ = zscope("assay", "plain.py:load", *words)
    assert "Measured by central differences" in " ".join(out.split())


def test_a_model_of_ones_own_is_measured_on_ones_own_data(zscope, tmp_path):
    (tmp_path / "mine.py").write_text("def load():\n    return (lambda x: x), (lambda z: z)\n")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32))
    code, out, err = zscope("assay", "mine.py:load", "response-matrix", "--data", "x.npy", "--json")
    assert code == 0, err
    relative = np.array(json.loads(out)["assays"]["response-matrix"]["result"]["relative"])
    assert np.allclose(relative, np.eye(3), atol=0.2)
    assert np.all(relative[~np.eye(3, dtype=bool)] == 0)


def test_a_run_trained_on_a_split_is_measured_on_the_last_part(tmp_path):
    from zscope.cli.targets import data_for

    helix = zs.data.load("helix")
    train, test = helix.split((0.75, 0.25))
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(8,), seed=0)
    zs.train(model, train, steps=2, out=tmp_path / "split")
    assert np.array_equal(
        data_for(str(tmp_path / "split"), None, None, None).images[:], test.images[:]
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("assay",), "TARGET is missing"),
        (("assay", "nowhere"), "there is no run at nowhere"),
        (("assay", "RUN", "respons-matrix"), "Did you mean response-matrix"),
        (("assay", "mine.py:load"), "no file mine.py"),
        (("assay", "RUN", "mig", "--data", "x.npy"), "x.npy"),
        (("assay", "nowhere.npy"), "nowhere.npy"),
        (("assay", "nowhere", "--format", "bmp"), "--format bmp. Known: pdf, png, svg."),
        (("assay", "nowhere", "--format", "pgn"), "Did you mean png?"),
        (("assay", "codes.npy", "--data", "x.npy"), "--data is for models"),
        (("assay", "codes.npy", "--data-option", "a=1"), "--data-option is for models"),
        (("assay", "codes.npy", "--weights", "x.pt"), "--weights is for models"),
        (("report", "codes.npy", "--data", "x.npy"), "--data is for models"),
        (("assay", "RUN", "--factors", "f.csv"), "--factors is for files of codes"),
        (("assay", "RUN", "--kinds", "ordinal"), "--kinds is for files of codes"),
        (("assay", "RUN", "--variances", "v.npy"), "--variances is for files of codes"),
        (("assay", "nowhere", "--set", "response-mp.dims=3,5"), "Did you mean response-map"),
        (("assay", "nowhere", "--set", "response-map.dim=3,5"), "dims"),
        (("assay", "nowhere", "--set", "dims=3,5"), "is not of the form ASSAY.OPTION=VALUE"),
        (("assay", "nowhere", "--set", "response-map.dims"), "is not of the form ASSAY.OPTION"),
        (("report", "nowhere", "-o", "page.pdf"), "a report is written as .html, .json"),
        (("report", "nowhere", "-o", "page"), "ends in nothing"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(zscope, run_folder, words, said):
    code, out, errors = zscope(*(run_folder if word == "RUN" else word for word in words))
    assert code == 1
    assert said in errors
    assert errors.count("\n") == 1
    assert out == ""


def test_an_assay_that_does_not_apply_is_refused_by_name_with_the_reason(
    zscope, run_folder, tmp_path
):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32))
    for words in (("mig",), ("effective-rank", "mig")):
        code, _, errors = zscope("assay", run_folder, *words, "--data", "x.npy")
        assert code == 1
        assert errors.startswith("mig: Not applicable: ")
        assert "factors" in errors
        assert errors.count("\n") == 1


def test_each_assay_that_was_named_has_its_reason(zscope, tmp_path):
    np.save(tmp_path / "codes.npy", gaussian_codes(300, 2).numpy())
    code, _, errors = zscope("assay", "codes.npy", "mig", "response-matrix", "sap")
    assert code == 1
    assert errors.startswith("mig, sap: Not applicable: the data come without factors")
    assert "response-matrix: Not applicable: a model is needed" in errors
    assert errors.count("Not applicable") == 2


@pytest.mark.parametrize("names", ["cka", "cka svcca"])
def test_assays_that_compare_are_named_with_the_command_that_runs_them(zscope, tmp_path, names):
    np.save(tmp_path / "codes.npy", gaussian_codes(300, 2).numpy())
    code, out, errors = zscope("assay", "codes.npy", *names.split())
    assert code == 1
    assert out.startswith(f"{len(names.split())} assay")
    assert errors == (
        f"{', '.join(names.split())}: Not applicable: two or more models are needed, and one was "
        "given. Use: zscope compare RUN RUN.\n"
    )
    assert "cka" not in zscope("assay", "codes.npy", "effective-rank", "--all")[1]


@pytest.fixture
def mine(tmp_path):
    """A model of one's own, and data."""
    (tmp_path / "mine.py").write_text("def load():\n    return (lambda x: x), (lambda z: z)\n")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32))
    return "mine.py:load", "--data", "x.npy"


@pytest.fixture
def code_files(tmp_path):
    """codes.npy, factors.csv and variances.npy."""
    rng = np.random.default_rng(0)
    factors = np.stack([rng.integers(size, size=300) for size in (3, 4)], 1)
    codes = np.column_stack([factors + 0.1 * rng.standard_normal((300, 2)), np.ones(300)])
    np.save(tmp_path / "codes.npy", codes.astype(np.float32))
    np.save(tmp_path / "variances.npy", np.tile([0.01, 0.01, 1.0], (300, 1)))
    table = "\n".join(f"{a},{b}" for a, b in factors)
    (tmp_path / "factors.csv").write_text(f"shape,size\n{table}\n")


def test_findings_come_first_then_one_table_and_details_of_named_assays_only(zscope, mine):
    code, out, err = zscope("assay", *mine, "response-matrix", "effective-rank", "dimension")
    assert code == 0, err
    lines = out.splitlines()
    table = lines.index("")
    assert "All 3 latents carry information." in lines[:table]
    assert lines[table + 1].split() == ["value", "95", "%", "interval", "chance", "n"]
    assert lines[table + 2].startswith("effective-rank ")
    named, *others = [line for line in lines if line in CATALOGUE]
    assert [named, *others] == ["response-matrix", "effective-rank"]  # headings of details
    assert "intrinsic-dimension " in out  # a member of a group that was named
    assert "Traceback" not in out


def test_what_is_missing_is_counted_in_one_line_and_explained_by_all(zscope, mine):
    _, out, _ = zscope("assay", *mine, "effective-rank", "variable-types", "--samples", 100)
    line = "1 assay could not be measured (.missing or --all gives the reasons): variable-types"
    assert line in out.splitlines()
    assert "deterministic" not in out
    _, out, _ = zscope("assay", *mine, "regime", "dimension", "--all")
    assert "\nvariable-types: Not applicable: the encoder is deterministic" in out
    assert "\neffective-rank\n" in out


def test_a_file_of_codes_is_measured_without_a_model(zscope, code_files):
    code, out, err = zscope("assay", "codes.npy", "--json", "--set", "mutual-information.bins=5")
    assert code == 0, err
    alone = json.loads(out)
    assert alone["assays"]["effective-rank"]["scores"][0]["samples"] == 300
    assert "a model is needed" in alone["assays"]["response-matrix"]["missing"]
    assert "factors" in alone["assays"]["mig"]["missing"]
    assert not [name for name, each in alone["assays"].items() if "failed" in each]
    assert alone["about"]["command"].startswith("zscope assay codes.npy --set mutual-information")

    files = ("--factors", "factors.csv", "--variances", "variances.npy", "--kinds", "ordinal")
    code, out, _ = zscope("assay", "codes.npy", "mig", "variable-types", *files, "--json")
    assert code == 0
    full = json.loads(out)["assays"]
    assert full["variable-types"]["result"]["passive"] == [2]
    mig = full["mig"]["result"]
    assert mig["score"] > 0.8
    assert mig["kinds"] == ["ordinal", "ordinal"]
    assert mig["factor_names"] == ["shape", "size"]
    assert mig["passive"] == [2]

    code, out, _ = zscope("report", "codes.npy", "mig", *files, "-o", "page.html")
    assert code == 0
    assert "1 assay in page.html" in out


def test_rows_that_do_not_match_are_refused(zscope, code_files, tmp_path):
    np.save(tmp_path / "short.npy", np.ones((299, 3)))
    for option in ("--factors", "--variances"):
        code, _, err = zscope("assay", "codes.npy", option, "short.npy")
        assert code == 1
        assert "short.npy: 299 rows of" in err
        assert "300 codes in codes.npy" in err


def test_options_and_resamples_reach_the_assay(zscope, code_files):
    words = ("assay", "codes.npy", "mig", "--factors", "factors.csv", "--json")
    plain = json.loads(zscope(*words)[1])["assays"]["mig"]
    assert plain["scores"][0]["interval"] is None
    assert plain["scores"][0]["no_interval"]
    low, high = json.loads(zscope(*words, "--resamples", 20)[1])["assays"]["mig"]["scores"][0][
        "interval"
    ]
    assert low < plain["scores"][0]["value"] < high
    options = ("--set", "mig.resamples=20", "--set", "mig.flavour=dlib")
    other = json.loads(zscope(*words, *options)[1])["assays"]["mig"]
    assert other["scores"][0]["interval"] is not None
    assert other["result"]["flavour"] == "dlib"


def test_csv_holds_every_score_in_long_form(zscope, code_files):
    import csv

    words = ("codes.npy", "mig", "dci", "--factors", "factors.csv", "--csv")
    code, out, _ = zscope("assay", *words)
    assert code == 0
    rows = list(csv.DictReader(out.splitlines()))
    assert list(rows[0]) == ["assay", "measure", "value", "low", "high", "chance", "n", "flavour"]
    assert [(row["assay"], row["measure"]) for row in rows[:2]] == [
        ("mig", "score"),
        ("dci", "score"),
    ]
    assert len(rows) > 3  # completeness and informativeness
    assert 0.8 < float(rows[0]["value"]) <= 1
    assert rows[0]["low"] == ""
    assert rows[0]["flavour"] == "zscope"


@pytest.mark.parametrize(("suffix", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_figures_have_the_format_that_was_asked_for(zscope, code_files, tmp_path, suffix, start):
    words = ("effective-rank", "intrinsic-dimension", "--figures", "figures", "--format", suffix)
    code, out, err = zscope("assay", "codes.npy", *words)
    assert code == 0, err
    files = list((tmp_path / "figures").iterdir())
    assert files
    assert all(file.suffix == f".{suffix}" for file in files)
    assert all(file.read_bytes().startswith(start) for file in files)
    assert f"{len(files)} figure" in out.splitlines()[-1]


def test_a_folder_of_figures_that_cannot_be_created_is_refused_before_measuring(
    zscope, code_files, monkeypatch
):
    monkeypatch.setattr(
        "zscope.cli.targets.measure_target", lambda *_, **__: pytest.fail("measured")
    )
    code, out, err = zscope("assay", "codes.npy", "--figures", "codes.npy/figures")
    assert code != 0
    assert out == ""
    assert "--figures codes.npy/figures cannot be written (Not a directory)" in err
    assert "Traceback" not in err


def test_kinds_without_factors_are_refused(zscope, code_files):
    code, _, err = zscope("assay", "codes.npy", "effective-rank", "--kinds", "ordinal")
    assert code != 0
    assert "--kinds ordinal: no factors were given" in err


def test_a_value_that_makes_no_sense_is_refused_and_no_fault_of_zscope(zscope, code_files):
    code, _, err = zscope(*("assay", "codes.npy", "effective-rank", "--set", "effective-rank.of=3"))
    assert code != 0
    assert "effective-rank: of=3; expected covariance or data" in err
    assert "fault in zscope" not in err


def test_results_of_a_run_are_reused_until_fresh(zscope, run_folder, monkeypatch):
    words = ("assay", run_folder, "response-matrix", "effective-rank", "--samples", 200)
    code, first, err = zscope(*words)
    assert code == 0, err
    real, calls = matrix.response_matrix, []

    @wraps(real)
    def counted(*arguments, **options):
        calls.append(options)
        return real(*arguments, **options)

    monkeypatch.setattr(matrix, "response_matrix", counted)
    code, again, _ = zscope(*words)
    assert (code, again) == (0, first)
    assert calls == []
    code, again, _ = zscope(*words, "--fresh")
    assert (code, again) == (0, first)
    assert len(calls) == 1
    zscope(*words, "--set", "response-matrix.samples=100")
    zscope(*words, "--seed", 1)
    assert len(calls) == 3
    zs.assay(run_folder, names=["response-matrix"], samples=200, seed=1)
    assert len(calls) == 3  # what the command line measured serves Python as well
    zs.assay(run_folder, names=["response-matrix"], samples=200, seed=1, fresh=True)
    assert len(calls) == 4


def broken(recording):
    return 1 / 0


@pytest.mark.parametrize("command", ["assay", "report"])
def test_a_fault_of_one_assay_leaves_the_others_and_ends_with_exit_code_1(
    zscope, mine, monkeypatch, tmp_path, command
):
    monkeypatch.setattr(effective_rank, "effective_rank", broken)
    code, out, err = zscope(command, *mine, "effective-rank", "intrinsic-dimension")
    assert code == 1
    assert "effective-rank: Failed with ZeroDivisionError: division by zero. This is a fault" in out
    assert "Traceback" not in out + err
    if command == "assay":
        assert err == "For the traceback, run it again with --json.\n"
        assert "\nintrinsic-dimension " in out
        return
    page = (tmp_path / "report.html").read_text()
    assert "ZeroDivisionError" in page
    assert "in broken\n" in page
    assert 'id="intrinsic-dimension"' in page
    content = json.loads((tmp_path / "report.json").read_text())["assays"]
    assert "in broken\n" in content["effective-rank"]["traceback"]
    assert content["intrinsic-dimension"]["scores"]


def test_results_beside_a_fault_are_kept(zscope, run_folder, monkeypatch):
    monkeypatch.setattr(effective_rank, "effective_rank", broken)
    names = ("variable-types", "effective-rank", "intrinsic-dimension")
    code, _, _ = zscope("assay", run_folder, *names, "--samples", 100)
    assert code == 1
    assert set(store.open_run(run_folder).results()) == {"variable-types", "intrinsic-dimension"}


@pytest.mark.parametrize("suffix", ["csv", "json", "tex", "parquet"])
def test_a_report_can_be_a_table(zscope, code_files, tmp_path, suffix):
    words = ("codes.npy", "mig", "--factors", "factors.csv", "--resamples", 0)
    code, _, err = zscope("report", *words, "-o", f"scores.{suffix}", "--json")
    assert code == 0, err
    assert {file.name for file in tmp_path.glob("scores*")} == {f"scores.{suffix}"}


def test_the_catalogue_is_listed_with_its_questions(zscope):
    code, out, _ = zscope("assay", "--list")
    assert code == 0
    for name, entry in CATALOGUE.items():
        assert name in out
        assert entry.question in out


@pytest.mark.parametrize(
    "names",
    [["response-matrix", "mig"], pytest.param(demo.GROUPS, marks=pytest.mark.slow)],
    ids=["few", "all"],
)
def test_the_demo_trains_measures_draws_and_can_be_called_again(
    zscope, tmp_path, monkeypatch, names
):
    assert set(demo.GROUPS) <= set(groups())  # whose assays are measured elsewhere
    monkeypatch.setattr(demo, "GROUPS", names)
    fewer = {"scale": [3, 5], "orientation": [0, 4], "position_x": 3, "position_y": 3}
    monkeypatch.setattr(demo, "GRID", fewer)
    code, out, err = zscope("demo", "--steps", 3, "--quiet")
    assert code == 0, err
    assert (tmp_path / "zscope-demo" / "traversals.png").stat().st_size > 10_000
    for word in ("KL (nats)", "mean variance", "response", "passive"):
        assert word in out
    last = out.strip().splitlines()[-1]
    assert "traversals.png" in last
    assert "zscope explore zscope-demo" in last
    assert "report.html" in last
    assert ">Findings<" in (tmp_path / "zscope-demo" / "report.html").read_text()
    monkeypatch.setattr(Report, "save", lambda report, path: path)  # the same page again
    code, again, _ = zscope("demo", "--steps", 3, "--quiet")
    assert (code, again) == (0, out)
    code, output, _ = zscope("demo", "--steps", 3, "--json")
    assert len(json.loads(output)["latents"]) == 10


def test_a_seed_out_of_range_is_refused(zscope):
    code, _, err = zscope("score", "codes.npy", "factors.npy", "--seed", 10**20)
    assert code == 2
    assert "--seed" in err
    assert "Traceback" not in err
