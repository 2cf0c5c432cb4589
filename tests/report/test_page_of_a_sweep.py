"""The page of a sweep: everything of many runs in one file, and nothing of the sweep replaced."""

import json
import re

import pytest
import typer
from made_runs import make_run, write_sweep
from typer.testing import CliRunner

from zscope import plots
from zscope.cli.report import report
from zscope.errors import ConfigError
from zscope.report import family
from zscope.report.family import family_report, has_runs


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "my sweep"
    names = []
    for model in ("beta-vae", "<b>model</b>"):
        for beta in (1, 2, 4):
            for seed in range(2):
                names.append(f"run-{len(names)}")
                scores = {"mig": 0.1 * beta + seed / 50, "sap": 0.3 - 0.05 * beta + seed / 90}
                about = {"torch": "2.14.0"} if seed else {}
                make_run(
                    out / "runs" / names[-1], model=model, seed=seed, options={"beta": beta},
                    scores=scores, environment=about,
                )  # fmt: skip
    (out / "runs" / names[3] / "report.html").write_text("its report")
    (out / "failed").mkdir(parents=True)
    (out / "failed" / "bad.txt").write_text("the loss became NaN & infinite\nTraceback\n")
    return write_sweep(out, [*names, "bad", "later"])


@pytest.fixture(scope="module")
def saved(out):
    path = out / "sweep.html"
    result = CliRunner().invoke(app(), [str(out), "-o", str(path)])
    assert result.exit_code == 0, result.output
    assert "12 runs in" in result.stdout
    assert "2 runs have no scores" in result.stderr
    return path


def app():
    application = typer.Typer(rich_markup_mode=None)
    application.command()(report)
    return application


def test_the_page_has_the_table_the_figures_and_what_differs(saved):
    text = saved.read_text("utf-8")
    assert re.search(r'<td class="n">0.100 to 0.120</td>', text)
    assert "the range, where there are fewer than 3 runs" in text
    assert "version of torch differs: 2.13.0 (6 runs), 2.14.0 (6 runs)" in text
    assert text.count("<img ") == 4  # two scores, their correlation, and both
    assert "<b>model</b>" not in text
    assert not re.search(r'(src|href)="(?!data:|#|runs/)', text)


def test_scores_with_short_names_are_drawn_and_others_named(tmp_path, monkeypatch):
    for k, beta in enumerate((0.5, 1, 2)):
        scores = {"variable-types": {"active": 6, "passive": k}, "mig": k, "sap": -k}
        make_run(tmp_path / str(k), options={"beta": float(beta)}, scores=scores)
    text = family.page(family_report(str(tmp_path), ["passive", "mig"]), tmp_path / "page.html")
    assert "<figcaption>passive</figcaption>" in text
    assert "<figcaption>passive against mig, each run</figcaption>" in text
    assert "<span>beta: 0.5, 1, 2</span>" in text
    monkeypatch.setattr(family, "SCORES", 1)
    text = family.page(family_report(str(tmp_path), ["mig", "passive", "sap"]), tmp_path / "p.html")
    assert "Not drawn, to keep the page short: passive, sap." in text


def test_too_few_points_and_constant_scores_are_said_and_not_drawn(tmp_path):
    for k, beta in enumerate((1, 1, 2, 2)):
        scores = {"mig": beta, "sap": -beta, "irs": 0.5, **({"dci": 0.1} if k else {})}
        make_run(tmp_path / str(k), seed=k, options={"beta": beta}, scores=scores)
    text = family.page(family_report(str(tmp_path)), tmp_path / "page.html")
    assert text.count("<img ") == 2  # the scores against β
    assert "the runs have 2 different points, and fewer than 3 say nothing" in text
    assert "Not drawn, because they have one value in all runs: irs, dci." in text


def test_problems_with_one_reason_are_one_row(tmp_path):
    make_run(tmp_path / "runs" / "good", scores={"mig": 0.1})
    names = [f"vae-digits-s{k}-{k:012x}" for k in range(40)]
    (tmp_path / "failed").mkdir()
    for k, name in enumerate(names):
        reason = f"{name}: the loss became NaN in step {k}, see runs/{names[0]}.\nTraceback"
        (tmp_path / "failed" / f"{name}.txt").write_text(reason)
    out = write_sweep(tmp_path, ["good", *names, "later", "later-2"])
    content = family_report(str(out))
    text = family.page(content, tmp_path / "page.html")
    assert re.search(rf"<code>{names[0]}</code> and 39 more</th><td>failed</td>", text)
    assert text.count("the loss became NaN") == 1
    assert "<code>later</code> and 1 more</th><td>not begun</td>" in text
    assert len(content.to_dict()["problems"]) == 42


def test_a_figure_that_cannot_be_drawn_says_why_beside_the_others():
    def fail():
        raise ConfigError("plots: there are no finished runs.")

    drawings = {"mig": fail, "sap": lambda: plots.heatmap([[1.0]])}
    item = family._draw("Scores", drawings, 1_000_000)
    assert [caption for _, caption in item["figures"]] == ["sap"]
    assert item["undrawn"] == "mig: plots: there are no finished runs."


def test_failed_runs_have_their_first_line(saved):
    text = saved.read_text("utf-8")
    assert "the loss became NaN &amp; infinite" in text
    assert "Traceback" not in text
    assert re.search(r"<code>later</code></th><td>not begun</td>", text)


def test_runs_link_to_their_own_reports_or_say_how_to_make_one(saved):
    text = saved.read_text("utf-8")
    assert '<a href="runs/run-3/report.html">run-3</a>' in text
    assert text.count("report.html") == 2  # and in the command for another one
    assert re.search(r"zscope report .*run-0&#39; -o .*run-0&#39;/report.html", text)  # quoted


def test_the_numbers_lie_beside_the_page_and_not_in_place_of_the_plan(saved, out):
    numbers = json.loads((out / "sweep-table.json").read_text())
    assert len(numbers["table"]["rows"]) == 6
    assert {each["run"] for each in numbers["problems"]} == {"bad", "later"}
    assert "plan" in json.loads((out / "sweep.json").read_text())


def test_columns_and_other_formats(out, tmp_path):
    content = family_report(str(out), ["mig"])
    assert content.table.columns == ("mig",)
    content.save(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().startswith("model,beta,n,mig,")


def test_options_for_one_model_are_refused(out, tmp_path):
    words = [str(out), "--samples", "10", "-o", str(tmp_path / "a.html")]
    error = CliRunner().invoke(app(), words).exception
    assert isinstance(error, ConfigError)
    assert "--samples is for one model" in str(error)
    assert not list(tmp_path.iterdir())


def test_a_page_in_a_run_does_not_replace_its_configuration(out):
    run = out / "runs" / "run-0"
    before = (run / "run.json").read_bytes()
    error = CliRunner().invoke(app(), [str(run), "-o", str(run / "run.html")]).exception
    assert "would replace" in str(error)
    assert (run / "run.json").read_bytes() == before


def test_what_is_a_folder_of_runs(out, tmp_path):
    assert has_runs(str(out))
    assert has_runs(str(out / "runs"))
    assert not has_runs(str(out / "runs" / "run-0"))
    assert not has_runs(str(tmp_path))
    assert not has_runs("package.module:attribute")
