"""zscope score, as people meet it who only have arrays."""

import json
from importlib import import_module

import numpy as np
import pytest
from typer.testing import CliRunner

from zscope.assays import CATALOGUE
from zscope.cli import app
from zscope.cli.score import score
from zscope.errors import ConfigError, DataError, Undefined


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    factors = np.stack([rng.integers(size, size=400) for size in (3, 4)], 1)
    codes = np.column_stack([factors + 0.05 * rng.standard_normal((400, 2)), np.ones(400)])
    return codes, factors


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command in a folder of its own: what it printed, or the error it raised."""
    import typer

    app = typer.Typer(rich_markup_mode=None)
    app.command()(score)
    monkeypatch.chdir(tmp_path)

    def call(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return call


def save(arrays):
    codes, factors = arrays
    np.save("codes.npy", codes)
    np.save("factors.npy", factors)


FEW = ("--only", "mig", "--only", "irs")


def test_a_table_with_chance_and_what_was_left_out(run, arrays):
    save(arrays)
    printed = run("codes.npy", "factors.npy", *FEW)
    assert "400 samples, 3 latents" in printed
    lines = {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}
    assert float(lines["mig"][1]) > 0.9
    assert "Latent 2 is constant" in printed
    assert printed.count("mig") >= 2  # also by factor


def test_the_other_numbers_of_a_score_stand_beside_their_chance_too(run, arrays):
    save(arrays)
    printed = run("codes.npy", "factors.npy", "--only", "dci", "--resamples", 2)
    printed, _ = printed.split("by factor")
    lines = {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}
    for part in ("dci", "completeness", "informativeness"):
        value, low, to, high, chance = lines[part][1:6]
        assert float(chance) < 0.6 < float(value)
        assert to == "to"
        assert float(low) <= float(value) <= float(high)


def test_json_holds_every_number_and_nothing_else_is_printed(run, arrays):
    save(arrays)
    found = json.loads(run("codes.npy", "factors.npy", *FEW, "--resamples", 4, "--json"))
    assert found["samples"] == 400
    assert set(found["scores"]) == {"mig", "irs"}
    mig = found["scores"]["mig"]
    assert mig["interval"][0] < mig["score"] < mig["interval"][1] <= 1
    assert mig["active"] == [0, 1]


def test_all_scores_by_default(run, arrays):
    save(arrays)
    found = json.loads(run("codes.npy", "factors.npy", "--json"))
    assert len(found["scores"]) == 13
    assert found["missing"] == {}
    assert found["failed"] == {}


def test_every_kind_of_file_gives_the_same(run, arrays):
    import pyarrow as pa
    import pyarrow.parquet

    codes, factors = arrays
    save(arrays)
    np.savez("both.npz", codes=codes, factors=factors, factor_names=np.array(["shape", "size"]))
    np.savetxt("codes.csv", codes, delimiter=",")
    rows = "\n".join(f"{'abc'[shape]},{size}" for shape, size in factors)
    with open("factors.csv", "w") as file:
        file.write(f"shape,size\n{rows}\n")
    pyarrow.parquet.write_table(pa.table({f"z{j}": codes[:, j] for j in range(3)}), "codes.parquet")
    pyarrow.parquet.write_table(
        pa.table({"shape": ["abc"[v] for v in factors[:, 0]], "size": factors[:, 1]}),
        "factors.parquet",
    )
    expected = json.loads(run("codes.npy", "factors.npy", *FEW, "--json"))
    for files in (
        ("both.npz",),
        ("codes.csv", "factors.csv"),
        ("codes.parquet", "factors.parquet"),
        ("codes.npy", "factors.csv"),
    ):
        found = json.loads(run(*files, *FEW, "--json"))
        assert found["scores"]["mig"]["score"] == pytest.approx(
            expected["scores"]["mig"]["score"], abs=1e-9
        )
        assert found["factors"] == ["shape", "size"]
        assert found["scores"]["mig"]["kinds"] == ["categorical", "categorical"]


def test_flavour_kinds_seed_and_variances_are_passed_on(run, arrays):
    save(arrays)
    np.save("variances.npy", np.tile([0.01, 20.0, 0.01], (400, 1)))  # 1 drowns in its noise
    words = ("codes.npy", "factors.npy", "--only", "sap", "--json")
    plain = json.loads(run(*words))["scores"]["sap"]
    assert json.loads(run(*words, "--flavour", "dlib"))["scores"]["sap"]["flavour"] == "dlib"
    other = json.loads(run(*words, "--kinds", "ordinal,categorical"))["scores"]["sap"]
    assert other["kinds"] == ["ordinal", "categorical"]
    assert json.loads(run(*words, "--seed", 3))["scores"]["sap"]["chance"] != plain["chance"]
    assert plain["passive"] == [2]
    typed = json.loads(run(*words, "--variances", "variances.npy"))["scores"]["sap"]
    assert typed["passive"] == [1, 2]


def test_missing_factors_are_named(run, arrays):
    codes, factors = arrays
    save(arrays)
    np.savez("codes.npz", codes=codes)
    np.savez("factors.npz", factors=factors)
    np.savez("unnamed.npz", codes)
    for name in ("codes.npy", "codes.npz", "unnamed.npz"):
        with pytest.raises(ConfigError, match="factors are missing.*second file"):
            run(name)
    assert "400 samples" in run("unnamed.npz", "factors.npz", *FEW)
    with pytest.raises(DataError, match="nowhere.npy"):
        run("nowhere.npy", "factors.npy")


def test_mistakes_in_the_numbers_are_those_of_the_library(run, arrays):
    save(arrays)
    np.save("short.npy", arrays[1][:399])
    with pytest.raises(DataError, match="short.npy: 399 rows of factors for 400 codes"):
        run("codes.npy", "short.npy")
    with pytest.raises(ConfigError, match="no score is called 'mgi'.*mig"):
        run("codes.npy", "factors.npy", "--only", "mgi")


def no_answer(recording):
    raise Undefined("sap: no answer.")


def test_a_score_without_an_answer_is_named_and_asked_for_alone_is_an_error(
    run, arrays, monkeypatch
):
    save(arrays)
    monkeypatch.setattr(import_module(CATALOGUE["sap"].module), "sap", no_answer)
    printed = run("codes.npy", "factors.npy")
    assert "No score of sap. No answer." in printed.splitlines()
    assert "\nmig " in printed
    with pytest.raises(Undefined, match="sap: No answer"):
        run("codes.npy", "factors.npy", "--only", "sap")


def test_options_of_scores_are_checked(run, arrays):
    save(arrays)
    words = ("codes.npy", "factors.npy", "--only", "mig", "--json")
    scored = json.loads(run(*words, "--set", "mig.flavour=dlib"))["scores"]["mig"]
    assert scored["flavour"] == "dlib"
    with pytest.raises(ConfigError, match="no option 'flavor'.*flavour"):
        run(*words, "--set", "mig.flavor=dlib")
    with pytest.raises(ConfigError, match="no flavour 'dlip'"):
        run(*words, "--flavour", "dlip")


def test_a_flavour_holds_beside_other_options_of_a_score(tmp_path):
    factors = np.arange(120)[:, None] // [1, 6] % [6, 5]
    np.save(tmp_path / "codes.npy", factors + 0.1 * np.random.default_rng(0).random((120, 2)))
    np.save(tmp_path / "factors.npy", factors)
    words = ["score", str(tmp_path / "codes.npy"), str(tmp_path / "factors.npy"), "--only", "mig"]
    words += ["--flavour", "dlib", "--set", "mig.resamples=5", "--json"]
    result = json.loads(CliRunner().invoke(app, words).stdout)["scores"]["mig"]
    assert result["flavour"] == "dlib"
    assert result["interval"] is not None


def test_files_of_many_codes_are_used_whole_by_both_commands(tmp_path):
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 3, (10_500, 1))
    np.save(tmp_path / "codes.npy", factors + rng.normal(size=(10_500, 2)))
    np.save(tmp_path / "factors.npy", factors)
    codes, labels = str(tmp_path / "codes.npy"), str(tmp_path / "factors.npy")
    scored = CliRunner().invoke(app, ["score", codes, labels, "--only", "mig", "--json"])
    assayed = CliRunner().invoke(app, ["assay", codes, "mig", "--factors", labels, "--json"])
    first = json.loads(scored.stdout)["scores"]["mig"]
    second = json.loads(assayed.stdout)["assays"]["mig"]["result"]
    assert first["samples"] == second["samples"] == 10_500
    assert first["score"] == pytest.approx(second["score"], abs=1e-6)


def test_a_flavour_is_found_by_the_type_of_the_option_not_by_the_text_of_its_help(run, arrays):
    save(arrays)
    words = ("codes.npy", "factors.npy", "--only", "dcimig", "--only", "mcc", "--json")
    scores = json.loads(run(*words, "--flavour", "zscope"))["scores"]
    assert [scores[name]["flavour"] for name in ("dcimig", "mcc")] == ["zscope", "linear"]
    scores = json.loads(run(*words, "--flavour", "rank"))["scores"]
    assert [scores[name]["flavour"] for name in ("dcimig", "mcc")] == ["zscope", "rank"]


def test_constant_factors_give_one_reason_and_no_empty_table(tmp_path):
    np.save(tmp_path / "codes.npy", np.random.default_rng(0).random((50, 2)))
    np.save(tmp_path / "factors.npy", np.ones((50, 2)))
    words = ["score", str(tmp_path / "codes.npy"), str(tmp_path / "factors.npy")]
    result = CliRunner().invoke(app, words)
    everything = f"{result.output}{result.exception}"
    assert isinstance(result.exception, Undefined)
    assert everything.count("factors are constant") == 1
    assert "explicitness and 7 more: All 2 factors are constant" in everything
    assert "by factor" not in everything
    assert "95 %" not in everything


def test_csv_is_that_of_the_assay_command_and_excludes_json(run, arrays, tmp_path):
    save(arrays)
    printed = run("codes.npy", "factors.npy", *FEW, "--csv")
    assert printed.startswith("assay,measure,value,low,high,chance,n,flavour\nmig,score,")
    words = ["assay", "codes.npy", "--factors", "factors.npy", "mig", "irs"]
    assert CliRunner().invoke(app, [*words, "--csv"]).stdout == printed
    with pytest.raises(ConfigError, match="score: got --json and --csv"):
        run("codes.npy", "factors.npy", *FEW, "--csv", "--json")
    error = CliRunner().invoke(app, [*words, "--csv", "--json"]).exception
    assert "assay: got --json and --csv" in str(error)
