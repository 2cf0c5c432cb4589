"""zscope table, as people meet it who have run a sweep."""

import json
import re

import pytest
import typer
from made_runs import make_run, write_sweep
from typer.testing import CliRunner

from zscope.cli.table import table
from zscope.errors import ConfigError, RunError

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """2 models x 3 β x 3 seeds, one running and one not begun."""
    out = tmp_path_factory.mktemp("made") / "beta"
    names, plan = [], []
    for model in ("beta-vae", "beta-tcvae"):
        for beta in (1, 2, 4):
            for seed in range(3):
                names.append(f"{model}-digits-b{beta}-s{seed}")
                plan.append({"name": names[-1], "fields": {"model": model, "options.beta": beta}})
                mig = 0.1 * beta + 0.01 * seed + 0.2 * (model == "beta-tcvae")
                status = "running" if names[-1] == "beta-tcvae-digits-b4-s1" else "finished"
                if names[-1] != "beta-tcvae-digits-b4-s2":
                    make_run(
                        out / "runs" / names[-1], model=model, seed=seed, options={"beta": beta},
                        status=status, scores={"mig": mig, "sap": 0.3 + mig / 2},
                    )  # fmt: skip
    return write_sweep(out, names, runs=plan)


@pytest.fixture
def run(out, tmp_path, monkeypatch):
    """The command in a folder of its own: its output and its errors."""
    app = typer.Typer(rich_markup_mode=None)
    app.command()(table)
    monkeypatch.chdir(tmp_path)

    def call(*words, target=out):
        result = CliRunner().invoke(app, [str(target), *map(str, words)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout, result.stderr

    return call


def test_by_default_every_score_by_what_varies(run):
    printed, said = run()
    lines = printed.splitlines()
    assert lines[0].split() == ["model", "beta", "n", "mig", "sap"]
    assert lines[1].split()[:6] == ["beta-tcvae", "1", "3", "0.310", "±", "0.025"]
    assert "1 run not finished, left out: beta-tcvae-digits-b4-s1" in printed
    assert said.startswith("table: left out runs: 1 not finished, 1 not begun; see: zscope sweep ")
    assert said.count("\n") == 1


def test_columns_rows_and_conditions(run):
    printed, said = run("--columns", "mig", "--by", "model", "--where", "beta=1,2")
    rows = [line.split()[:2] for line in printed.splitlines()[1:3]]
    assert rows == [["beta-tcvae", "6"], ["beta-vae", "6"]]
    assert said == ""


def test_paired(run):
    printed, _ = run("--paired", "model", "--columns", "mig")
    assert re.search(r"beta-vae − beta-tcvae +mig +-0\.2\S* .* 7 +below", printed)


@pytest.mark.parametrize("format", ["csv", "json", "md", "tex"])
def test_formats_are_printed_or_written_alike(run, format):
    printed, _ = run("--format", format)
    said, _ = run("-o", f"t.{format}")
    assert said == f"table: t.{format}\n"
    with open(f"t.{format}", encoding="utf-8") as file:
        assert file.read() == printed
    if format == "json":
        assert len(json.loads(printed)["rows"]) == 6


def test_parquet_goes_to_a_file(run):
    import pyarrow.parquet

    run("-o", "t.parquet")
    assert pyarrow.parquet.read_table("t.parquet").num_rows == 6
    with pytest.raises(ConfigError, match=r"cannot be printed. Name a file: -o table.parquet"):
        run("--format", "parquet")


@pytest.mark.parametrize(
    "words",
    [
        ("--plot", "mig", "--against", "beta", "--line", "model"),
        ("--plot", "mig,sap", "--against", "beta"),
        ("--plot", "mig", "--against", "sap", "--line", "model"),
        ("--plot", "mig,sap"),
    ],
)
def test_figures(run, words):
    printed, _ = run(*words, "-o", "figure.png")
    assert printed == "figure: figure.png\n"
    with open("figure.png", "rb") as file:
        assert file.read(4) == PNG


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--columns", "mgi"), "no column is called 'mgi'. Did you mean mig"),
        (("--by", "modell"), "no column is called 'modell'. Did you mean model"),
        (("--paired", "data"), "all 16 runs have data=digits"),
        (("--where", "beta=3"), "no run has beta=3. Values of beta: 1, 2, 4."),
        (("--where", "beta"), "not of the form NAME=VALUE"),
        (("--where", "betta=3"), "'betta'. Did you mean beta"),
        (("--format", "jsn"), "no format 'jsn'. Did you mean json"),
        (("-o", "table.xls"), "table.xls ends in .xls"),
        (("--plot", "mig"), "a figure goes to a file"),
        (("--plot", "mig", "-o", "a.png"), "--against beta"),
        (("--plot", "mig", "--against", "model", "-o", "a.png"), "no finished runs with numbers"),
        (("--plot", "mig", "-o", "a.tex"), "figures are saved as"),
        (("--against", "beta"), "--plot is missing"),
        (("--plot", "mig,sap", "--line", "model", "-o", "a.png"), "--against is missing"),
    ],
)
def test_mistakes_are_told_in_one_line_and_write_nothing(run, tmp_path, words, message):
    with pytest.raises(ConfigError, match=message):
        run(*words)
    assert list(tmp_path.iterdir()) == []


def test_the_plan_of_a_sweep_is_never_replaced(run, out):
    before = (out / "sweep.json").read_bytes()
    with pytest.raises(ConfigError, match=r"would replace .*sweep.json, which belongs to"):
        run("-o", out / "sweep.json")
    assert (out / "sweep.json").read_bytes() == before


def test_a_folder_that_is_not_there(run, tmp_path):
    with pytest.raises(RunError, match="there is no folder"):
        run(target=tmp_path / "none")


def test_a_list_is_one_value_of_a_setting(run, tmp_path):
    for hidden in ([64], [64, 64], [32]):
        name = "-".join(map(str, hidden))
        make_run(tmp_path / "runs" / name, options={"hidden": hidden}, scores={"mig": len(hidden)})
    printed, _ = run("--by", "hidden", "--where", "hidden=64,64", target=tmp_path / "runs")
    assert printed.splitlines()[1].split() == ["64,64", "1", "2"]
    printed, _ = run("--by", "hidden", "--where", "hidden=64,32", target=tmp_path / "runs")
    assert [line.split()[0] for line in printed.splitlines()[1:3]] == ["32", "64"]
