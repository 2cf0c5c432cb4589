"""Tables of runs: intervals that cover, verdicts that are earned, formats that others read."""

import csv
import io
import json
import re

import numpy as np
import pytest
from made_runs import make_run, write_scores, write_sweep
from scipy import stats

import zscope as zs
from zscope.collection import as_runs
from zscope.errors import ConfigError, RunError
from zscope.tables import Table, table
from zscope.tables.formats import number_with_error, tex_text
from zscope.tables.statistics import difference_of, mean_of, rank_correlation, rank_test


@pytest.mark.parametrize("count", [3, 5, 40])
def test_the_interval_is_that_of_scipy(count):
    values = np.random.default_rng(count).normal(2, 3, count)
    low, high = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    mean = mean_of(list(values))
    assert (mean.value, mean.low, mean.high) == pytest.approx((values.mean(), low, high))
    assert not mean.is_range


def test_one_or_two_runs_have_a_range_and_none_has_nothing():
    assert mean_of([]) is None
    mean = mean_of([1.0, 3.0])
    assert (mean.value, mean.low, mean.high, mean.is_range) == (2.0, 1.0, 3.0, True)
    equal = mean_of([0.1, 0.1, 0.1])
    assert equal.low == equal.high == pytest.approx(0.1)


@pytest.mark.parametrize("count", [3, 5, 12])
def test_intervals_of_normal_seeds_cover_their_mean(count):
    worlds = np.random.default_rng(0).normal(1.0, 0.3, (1000, count))
    means = [mean_of(list(each)) for each in worlds]
    covered = sum(mean.low <= 1.0 <= mean.high for mean in means)
    assert stats.binomtest(covered, 1000, 0.95).pvalue > 0.001


@pytest.mark.parametrize("count", [3, 5, 12])
def test_without_a_difference_the_verdict_is_undecided(count):
    """The negative control: percentiles alone would call one in four worlds with three pairs."""
    worlds = np.random.default_rng(1).normal(0.0, 0.3, (300, count))
    undecided = sum(difference_of(list(each)).verdict == "undecided" for each in worlds)
    assert undecided >= 0.93 * 300


def test_a_difference_is_called_on_its_side_and_repeatably():
    values = list(np.random.default_rng(2).normal(0.5, 0.1, 8))
    above = difference_of(values)
    assert above.verdict == "above"
    assert above.low < 0.5 < above.high
    assert difference_of([-each for each in values]).verdict == "below"
    assert difference_of(values) == above
    assert difference_of([1.0, 1.0]).verdict == "undecided"  # fewer than three pairs
    assert difference_of([0.0, 0.0, 0.0]).verdict == "undecided"
    assert difference_of([]) is None


@pytest.mark.parametrize("value", [1.0, 0.1 + 0.2])
def test_equal_differences_have_no_spread_and_are_called_by_their_number(value):
    """Chance gives five of one sign in one of 16 cases, six in one of 32."""
    for count in (3, 4, 5):
        difference = difference_of([value] * count)
        assert (difference.verdict, difference.is_range) == ("undecided", True)
        assert difference_of([-value] * count).verdict == "undecided"
    assert difference_of([value] * 6).verdict == "above"
    assert difference_of([-value] * 6).verdict == "below"
    assert difference_of([0.0] * 20).verdict == "undecided"
    # Equal but for rounding is equal; a spread that is real is judged by it.
    assert difference_of([value, value, value * (1 + 1e-15)]).verdict == "undecided"
    assert difference_of([value, value * 1.01, value * 1.02]).verdict == "above"


def test_without_a_difference_equal_counts_are_called_in_one_of_twenty():
    """The negative control for integers: pairs that differ by one, with either sign."""
    for count in (3, 4, 5, 6):
        worlds = [[1.0 if k >> bit & 1 else -1.0 for bit in range(count)] for k in range(2**count)]
        called = sum(difference_of(each).verdict != "undecided" for each in worlds)
        assert called / len(worlds) <= 0.05


def test_the_bootstrap_is_that_of_scipy_with_many_pairs():
    values = np.random.default_rng(3).exponential(1.0, 400)
    low, high = stats.bootstrap(
        (values,), np.mean, method="percentile", rng=np.random.default_rng(0), n_resamples=4000
    ).confidence_interval
    difference = difference_of(list(values))
    assert (difference.low, difference.high) == pytest.approx((low, high), abs=0.02)


def test_rank_correlation_is_spearmans():
    x, y = np.random.default_rng(4).normal(size=(2, 30)).round(1)
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert rank_correlation([1, 2, 3], [8, 27, 64]) == pytest.approx(1)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None
    assert rank_correlation([1, 2], [1, 2]) is None


def test_rank_correlations_have_exact_p_values():
    rng = np.random.default_rng(0)
    few = np.arange(5.0)
    assert rank_test(few, few**3) == pytest.approx((1, 2 / 120))
    assert rank_test(few, -few) == pytest.approx((-1, 2 / 120))
    assert rank_test(few, few * 0) is None
    for ties in (40, 1):
        x, y = np.round(rng.normal(size=(2, 30)) * ties)
        y = y + x / 2
        expected = stats.spearmanr(x, y)
        value, p = rank_test(x, y)
        assert value == pytest.approx(expected.statistic)
        assert p == pytest.approx(expected.pvalue, abs=0.02)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """mig = 0.1 β + 0.01 seed, and 0.2 more for factor_vae; one factor_vae run is missing."""
    folder = tmp_path_factory.mktemp("runs")
    for model in ("beta-vae", "factor_vae"):
        for beta in (1, 4):
            for seed in range(4):
                if (model, beta, seed) == ("factor_vae", 4, 3):
                    continue
                mig = 0.1 * beta + 0.01 * seed + (0.2 + 0.001 * seed) * (model == "factor_vae")
                make_run(
                    folder / f"{model}-b{beta}-s{seed}", model=model, seed=seed,
                    options={"beta": beta, **({"gamma": 6} if model == "factor_vae" else {})},
                    scores={"mig": mig, **({"sap": 0.5} if seed else {})},
                )  # fmt: skip
    return zs.runs(folder)


def test_means_by_every_setting_that_varies_but_the_seed(runs):
    result = table(runs)
    assert (result.by, result.columns) == (("model", "beta"), ("mig", "sap"))
    row = result.rows[1]
    assert (row["model"], row["beta"], row["n"]) == ("beta-vae", 4, 4)
    assert row["mig"] == pytest.approx(0.415)
    low, high = stats.t.interval(0.95, 3, 0.415, stats.sem([0.4, 0.41, 0.42, 0.43]))
    assert (row["mig.low"], row["mig.high"]) == pytest.approx((low, high))
    assert (row["mig.n"], row["mig.interval"], row["sap.n"]) == (4, "t", 3)
    assert "0.415 ± 0.021" in repr(result)
    assert "(n=3)" in repr(result)
    assert "4 of 15 runs have no sap" in result.notes
    assert result.rows[3]["sap.interval"] == "range"


def test_settings_that_rows_average_over_are_named(runs):
    notes = table(runs, ["mig"], by=["model"]).notes
    assert any(note.startswith("Rows also average over beta (1, 4)") for note in notes)
    assert not any("seed" in note for note in notes)


def test_any_setting_can_be_a_column(runs):
    result = table(runs, ["beta", "data", "loss"], by=["model"])
    assert result.rows[0]["data"] == "digits"
    assert result.rows[0]["beta"] == pytest.approx(2.5)
    assert result.rows[0]["loss"] == pytest.approx(31.5)


def test_differences_are_paired_by_everything_else(runs):
    """Without pairs, β and the seed would hide the difference of 0.2."""
    result = table(runs, ["mig"], paired="model")
    (row,) = result.rows
    assert row["model"] == "factor_vae − beta-vae"
    pairs = [0.2 + 0.001 * seed for seed in (0, 1, 2, 3, 0, 1, 2)]  # one has no partner
    assert row["pairs"] == 7
    assert row["difference"] == pytest.approx(np.mean(pairs))
    assert (row["verdict"], row["interval"]) == ("above", "bootstrap")
    text = "\n".join(result.notes)
    assert "agree in beta, seed" in text
    assert "Runs without a partner: 1" in text


def test_paired_within_groups_and_with_few_pairs(runs):
    result = table(runs, ["mig", "sap"], by=["model"], paired="beta")
    assert [(row["model"], row["score"], row["pairs"]) for row in result.rows] == [
        ("beta-vae", "mig", 4), ("beta-vae", "sap", 3),
        ("factor_vae", "mig", 3), ("factor_vae", "sap", 2),
    ]  # fmt: skip
    # All differences of mig are 0.3, and those of sap 0: too few to be called.
    assert [row["verdict"] for row in result.rows] == ["undecided"] * 4
    assert [row["interval"] for row in result.rows] == ["range"] * 4
    assert "(range)" in repr(result)


def test_nothing_to_pair_is_refused(runs):
    with pytest.raises(ConfigError, match=r"all 15 runs have data=digits.*model, beta, seed"):
        table(runs, ["mig"], paired="data")
    with pytest.raises(ConfigError, match="'data' is not a number"):
        table(runs, ["data"], paired="model")
    with pytest.raises(ConfigError, match=r"'mgi'. Did you mean mig"):
        table(runs, ["mgi"])


def test_a_level_that_cannot_be_matched_has_no_pairs(tmp_path):
    for beta in (1, 2):
        make_run(tmp_path / f"b{beta}", options={"beta": beta}, scores={"mig": 0.1})
    make_run(tmp_path / "ae", model="ae", scores={"mig": 0.1})
    (row,) = table(zs.runs(tmp_path), paired="model").rows
    assert (row["pairs"], row["difference"], row["verdict"]) == (0, None, "undecided")


def test_only_finished_runs_count_and_the_others_are_named(tmp_path):
    for k, status in enumerate(["finished", "running", "failed", "interrupted"]):
        make_run(tmp_path / "runs" / status, seed=k, status=status, scores={"mig": 0.1 * k})
    (make_run(tmp_path / "runs" / "broken") / "run.json").write_text("{")
    write_sweep(tmp_path, ["finished", "running", "failed", "interrupted", "broken", "later"])
    result = table(zs.runs(tmp_path))
    assert result.rows == [
        {"n": 1, "mig": 0.0, "mig.low": 0.0, "mig.high": 0.0, "mig.n": 1, "mig.interval": "range"}
    ]
    assert result.notes == [
        "3 runs not finished, left out: running, failed, interrupted",
        "1 run damaged, left out: broken",
        "1 planned run not begun: later",
    ]


def test_what_else_differs_is_below_the_table(tmp_path):
    make_run(tmp_path / "a", scores={"mig": 0.1})
    make_run(tmp_path / "b", seed=1, scores={"mig": 0.1}, environment={"torch": "2.14"})
    assert any(
        note.startswith("version of torch differs") for note in table(zs.runs(tmp_path)).notes
    )


def test_tables_without_finished_or_measured_runs_are_refused(tmp_path):
    write_sweep(tmp_path, ["a", "b"])
    with pytest.raises(RunError, match="has a score"):
        table(zs.runs(tmp_path))
    make_run(tmp_path / "runs" / "a", status="running", scores={"mig": 1.0})
    with pytest.raises(RunError, match="none of the 1 runs has finished and 1 planned"):
        table(zs.runs(tmp_path))


def test_unmeasured_runs_have_their_loss(tmp_path):
    make_run(tmp_path / "a")
    assert table(zs.runs(tmp_path)).columns == ("history.loss",)
    notes = table(zs.runs(tmp_path), ["loss", "history.passive"]).notes
    assert "loss, history.passive: of the last batch that was logged in training" in notes


def saved(result: Table, path):
    result.save(path)
    return path.read_text()


def test_every_format_has_the_numbers(runs, tmp_path):
    result = table(runs, ["mig"])
    rows = list(csv.DictReader(io.StringIO(saved(result, tmp_path / "t.csv"))))
    assert [float(row["mig"]) for row in rows] == [row["mig"] for row in result.rows]
    content = json.loads(saved(result, tmp_path / "t.json"))
    assert content["rows"] == result.rows
    import pyarrow.parquet

    result.save(tmp_path / "t.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pylist() == result.rows
    assert list(result.to_frame()["mig"]) == [row["mig"] for row in result.rows]
    lines = saved(result, tmp_path / "t.md").splitlines()
    assert {line.count("|") for line in lines[:6]} == {5}
    assert set(lines[1]) <= set("|-: ")
    assert "<table>" in result._repr_html_()
    with pytest.raises(ConfigError, match=r"t.xls ends in .xls; tables are saved as .csv"):
        result.save(tmp_path / "t.xls")


def test_latex_is_escaped_and_balanced(runs, tmp_path):
    text = saved(table(runs, ["mig"]), tmp_path / "t.tex")
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert body[0] == r"\begin{tabular}{llrr}"
    assert (body[1], body[3], body[-2], body[-1]) == (
        r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}",
    )  # fmt: skip
    for line in [body[2], *body[4:-2]]:
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", line)) == 3
        assert line.count("$") % 2 == 0
    assert body[6].startswith(r"factor\_vae & 1 & 4 & 0.317 $\pm$ 0.02")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & 50% #1", r"a\_b \& 50\% \#1"),
        ("-0.5 to 1.2e-05", r"$-$0.5 to 1.2$\times 10^{-5}$"),
        ("beta-vae − ae-2", r"beta-vae $-$ ae-2"),
        ("4e12-abc", "4e12-abc"),
        ("a|b <c>", r"a\textbar{}b \textless{}c\textgreater{}"),
        ("{x}^2~$\\", r"\{x\}\^{}2\~{}\$\textbackslash{}"),
    ],
)
def test_text_for_latex(text, expected):
    assert tex_text(text) == expected


@pytest.mark.parametrize(
    ("value", "error", "usual", "expected"),
    [
        (0.31234, 0.0213, None, ("0.312", "0.021")),
        (0.31234, 0.00213, 3, ("0.312", "0.002")),
        (0.31234, 0.000213, 2, ("0.31234", "0.00021")),
        (1234.5, 56.7, None, ("1234", "57")),
        (3.0, 0.0, None, ("3", "0")),
        (-0.0001, 0.5, None, ("0.00", "0.50")),
        (1e9, 3e7, None, ("1e+09", "3e+07")),
    ],
)
def test_digits_follow_the_error(value, error, usual, expected):
    assert number_with_error(value, error, usual) == expected


def test_a_wide_table_is_divided_with_its_keys_repeated(runs):
    text = table(runs).to_text(width=45)
    assert text.count("model") == 2
    lines = [line for line in text.splitlines() if line.startswith(("model", "beta", "factor"))]
    assert max(map(len, lines)) <= 45


def ask(*names, given=None, **options):
    """The parts of sweep.json that say what is measured."""
    requests = {
        name: {"assay": name, "options": options.get(name, "[]"), "asked": 5000, "seed": 0}
        for name in names
    }
    assay = {"names": list(names), "requests": requests}
    return {"assay": assay, "plan": {"assay": {"names": list(given or names)}}}


def test_what_a_sweep_asked_for_is_a_column_even_without_a_value(tmp_path):
    reason = "Not applicable: two factors are needed."
    for seed in range(2):
        path = make_run(tmp_path / "runs" / f"a{seed}", seed=seed, scores={"mig": 0.1})
        write_scores(path, {"dci": {}, "modularity": {}}, missing=reason)
    out = write_sweep(tmp_path, ["a0", "a1"], **ask("mig", "dci", "modularity"))
    result = table(zs.runs(out))
    assert result.columns == ("mig", "dci", "modularity")
    assert result.cells[1][2:] == ["-", "-"]
    assert result.rows[0]["dci"] is None
    line = "2 of 2 runs have no dci, modularity: Not applicable: two factors are needed"
    assert line in result.notes
    assert table(out, ["dci", "mig"]).columns == ("dci", "mig")
    assert line.replace(", modularity", "") in table(out, ["dci", "mig"]).notes
    with pytest.raises(ConfigError, match=r"dci.x was measured, and no run has a value. Not appl"):
        table(out, ["dci.x"])
    # An assay of a group is named in one line, and has no column.
    write_sweep(tmp_path, ["a0", "a1"], **ask("mig", "dci", "modularity", given=["mig", "group"]))
    result = table(zs.runs(out))
    assert result.columns == ("mig",)
    assert "Asked for with a group, and no run has a score: dci, modularity" in result.notes


def test_reasons_stand_beside_the_column_that_some_runs_have(tmp_path):
    for data in ("digits", "sprites"):
        for seed in range(2):
            path = make_run(tmp_path / "runs" / f"{data}{seed}", data=data, seed=seed)
            many = data == "sprites"
            write_scores(path, {"dci": {"d": 0.1, "c": 0.2} if many else {}},
                         missing=None if many else "Not applicable: one factor.")  # fmt: skip
    names = ["digits0", "digits1", "sprites0", "sprites1"]
    out = write_sweep(tmp_path, names, **ask("dci"))
    result = table(out)
    assert [row[2:] for row in result.cells[1:]] == [["-", "-"], ["0.100", "0.200"]]
    assert "2 of 4 runs have no dci.d, dci.c: Not applicable: one factor" in result.notes
    notes = table(out, paired="seed").notes
    assert "2 of 4 runs have no dci.d, dci.c: Not applicable: one factor" in notes


def test_a_sweep_shows_no_value_that_it_did_not_ask_for(tmp_path):
    for seed in range(3):
        make_run(tmp_path / "runs" / f"a{seed}", seed=seed, scores={"mig": 0.1, "sap": 0.5})
    write_scores(tmp_path / "runs" / "a0", {"mig": 0.9}, options="[('bins', 10)]")
    names = [f"a{seed}" for seed in range(3)]
    out = write_sweep(tmp_path, names, **ask("mig", mig="[('bins', 10)]"))
    result = table(out)
    assert (result.rows[0]["mig"], result.rows[0]["mig.n"]) == (0.9, 1)
    assert result.rows[0]["sap.n"] == 3  # measured by hand: the newest
    (note,) = [note for note in result.notes if "have no mig" in note]
    assert note.startswith("2 of 3 runs have no mig: measured with other options or samples: start")
    write_sweep(tmp_path, names, **ask("mig", mig="[('bins', 99)]"))
    assert table(out).cells[1][-1] == "-"
    assert table(tmp_path / "runs").rows[0]["mig.n"] == 3  # no sweep: the newest, with a note
    assert any("options of mig differs" in note for note in table(tmp_path / "runs").notes)


def test_a_run_that_is_there_twice_counts_once(tmp_path):
    for sweep in ("one", "two"):
        for seed in range(3):
            make_run(tmp_path / sweep / f"s{seed}", seed=seed, scores={"mig": 0.1 * seed},
                     environment={"address": f"hash-{seed}"})  # fmt: skip
    alone, both = table(tmp_path / "one"), table(tmp_path)
    assert both.rows == alone.rows
    line = ("3 runs left out as copies of others (same configuration and seed), the first by name "
            "is counted")  # fmt: skip
    assert line in both.notes
    runs = zs.runs(tmp_path)
    assert [row["run"] for row in runs.rows] == ["one/s0", "one/s1", "one/s2"]
    assert {name: copy.of for name, copy in runs.copies.items()} == {
        f"two/s{seed}": f"one/s{seed}" for seed in range(3)
    }
    assert "copies of other runs, left out: 3" in repr(runs)
    # Scores that only a copy has are those of the run.
    write_scores(tmp_path / "two" / "s1", {"sap": 0.7})
    assert zs.runs(tmp_path).rows[1]["sap"] == 0.7
    # Other numbers are said, and an unfinished copy is none.
    make_run(tmp_path / "w" / "s0", seed=0, scores={"mig": 0.3}, environment={"address": "hash-0"})
    make_run(tmp_path / "x" / "s0", status="running", environment={"address": "hash-0"})
    notes = table(tmp_path).notes
    assert any(note.endswith("counted; 1 of them have other numbers: w/s0") for note in notes)
    assert any("not finished, left out: x/s0" in note for note in notes)


def test_equal_configurations_are_one_run_and_different_addresses_are_not(tmp_path):
    make_run(tmp_path / "a", scores={"mig": 0.1})
    make_run(tmp_path / "b", scores={"mig": 0.1}, checkpoint_every=7, snapshots=[50])
    assert [*zs.runs(tmp_path).copies] == ["b"]
    make_run(tmp_path / "c", scores={"mig": 0.1}, environment={"address": "one"})
    assert [*zs.runs(tmp_path).copies] == ["b", "c"]  # trained by hand, and by a sweep
    make_run(tmp_path / "d", data="own.npy", environment={"address": "two"})
    make_run(tmp_path / "e", data="own.npy", environment={"address": "three"})  # another content
    assert [*zs.runs(tmp_path).copies] == ["b", "c"]


def test_tables_of_a_path_of_nothing_and_of_other_things(runs, tmp_path):
    assert table(str(runs.folder), ["mig"]).rows == table(runs, ["mig"]).rows
    assert table(runs.folder, ["mig"]).rows == table(runs, ["mig"]).rows
    with pytest.raises(ConfigError, match=r"table: got a int; expected runs .* zs.runs\(FOLDER\)"):
        as_runs("table", 3)
    for columns in (None, ["mig"]):
        with pytest.raises(RunError, match="table: nothing was selected"):
            table(runs.select(beta=7), columns)
