"""The report: one page that needs nothing else, and everything in it as JSON."""

import base64
import dataclasses
import json
import re
from html.parser import HTMLParser
from importlib import import_module

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner
from worlds import grid, identity

import zscope as zs
from zscope.assays import CATALOGUE, groups
from zscope.cli.report import report as command
from zscope.data.dataset import Dataset, from_arrays
from zscope.errors import ConfigError
from zscope.report.build import round_numbers
from zscope.report.page import TEMPLATES, mark_code, number, paragraphs, score_cell
from zscope.report.rules import RULES
from zscope.report.tables import as_tex
from zscope.results import COLUMNS
from zscope.site import SITE

LIMIT = 5_000_000
FEW = ("response-matrix", "variable-types", "mig")
MEASURED = [
    name for name, entry in CATALOGUE.items() if not entry.compares and not entry.on_request
]


WAYS = torch.linalg.qr(torch.randn(64, 3, generator=torch.Generator().manual_seed(1))).Q.T
KEPT = torch.tensor([1.0, 1.0, 0.0])


class Pictures(zs.Autoencoder):
    """Decodes three latents into 8 x 8 pictures and encodes two of them; latent 2 is passive."""

    latents = 3

    def encode(self, x, auxiliary=None):
        mean = x.flatten(1).clamp(1e-4, 1 - 1e-4).logit() @ WAYS.T * KEPT
        return zs.Posterior(mean, torch.tensor([0.2, 0.2, 1.0]).expand_as(mean))

    def decode(self, z):
        return ((z * KEPT) @ WAYS).sigmoid().reshape(-1, 1, 8, 8)


def pictures(samples=240, names=("height", "<b>width</b>", "tilt")):
    factors = grid(6, 5, 4).repeat(samples // 120, 0)
    values = torch.from_numpy((factors - factors.mean(0)) / factors.std(0)).float()
    images = (values @ WAYS).sigmoid().reshape(-1, 1, 8, 8)
    return from_arrays(images, factors, name="<script>alert(1)</script>", factor_names=names)


def vectors(samples=200):
    return torch.randn(samples, 4, generator=torch.Generator().manual_seed(0))


class Page(HTMLParser):
    """What a browser would fetch, and what links to what."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.sources, self.words = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append((tag, given))
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.sources += [given[key] for key in ("src", "srcset", "data", "action") if key in given]

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Everything that applies to a small model, saved: (report, page, numbers)."""
    report = zs.assay(Pictures(), pictures(), resamples=2)
    path = report.save(tmp_path_factory.mktemp("whole") / "report.html")
    return report, path.read_text(), json.loads(path.with_suffix(".json").read_text())


def test_every_assay_of_the_catalogue_has_its_place(whole):
    report, text, numbers = whole
    assert set(report.results) | set(report.missing) == set(MEASURED)
    assert report.failed == {}
    plain = Page(text).text
    for name in MEASURED:
        entry = CATALOGUE[name]
        assert f'id="{name}"' in text
        assert entry.question in plain
        assert numbers["assays"][name]["question"] == entry.question


def test_the_page_loads_nothing_and_is_small(whole):
    _, text, _ = whole
    page = Page(text)
    assert page.sources
    assert all(source.startswith("data:image/") for source in page.sources)
    assert all(link.startswith(("#", SITE)) for link in page.links)  # the documentation
    assert not [tag for tag, _ in page.tags if tag in ("link", "iframe", "object", "embed", "base")]
    assert not re.search(r"url\(|@import", text)
    assert "default-src 'none'" in text
    assert len(text.encode()) < LIMIT


def test_a_run_shows_the_curves_of_its_training(tmp_path):
    data = from_arrays(vectors(64))
    model = zs.models.build("vae", shape=(4,), latents=2, seed=0, backbone="mlp", hidden=(8,))
    run = zs.train(model, data, steps=3, log_every=1, out=tmp_path / "run", progress=False)
    report = zs.assay(tmp_path / "run", data, names=["effective-rank"])
    assert [row["step"] for row in report.history] == [row["step"] for row in run.history]
    text = report.save(tmp_path / "report.html").read_text()
    curves = unpacked(re.search(r'id="training".*?</figure>', text, re.S).group(0))
    for panel in ("latents", "rate: KL (nats)", "distortion (nats)"):
        assert panel in curves
    assert json.loads((tmp_path / "report.json").read_text())["history"][0]["step"] == 0
    alone = zs.assay(run.model, data, names=["effective-rank"])
    assert 'id="training"' not in alone.save(tmp_path / "alone.html").read_text()


def test_links_lead_somewhere_and_no_two_places_share_a_name(whole):
    page = Page(whole[1])
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert all(given.get("alt") for tag, given in page.tags if tag == "img")


def test_findings_stand_at_the_top_with_evidence_and_rule(whole):
    report, text, numbers = whole
    plain = Page(text).text
    assert "1 of 3 latents carries no information: harmless; to remove it, train with 2" in plain
    assert "<strong>1 of 3 latents carries no information</strong>" in text
    places = [plain.index(finding.text) for finding in report.findings]
    assert places == sorted(places)
    assert max(places) < plain.index("Scores at a glance")
    for finding, kept in zip(report.findings, numbers["findings"], strict=True):
        assert finding.evidence in plain
        assert f"Checked: {finding.checked}" in plain
        assert (kept["text"], kept["evidence"]) == (finding.text, finding.evidence)
    for rule in RULES:
        assert (rule.sentence in plain) == rule.applies(None)  # none about latents that are maps


def test_the_table_of_latents_says_what_each_does(whole):
    report, text, numbers = whole
    rows = report.latents
    assert [row["latent"] for row in numbers["latents"]] == [row["latent"] for row in rows]
    assert {row["latent"]: row["type"] for row in rows} == {0: "active", 1: "active", 2: "passive"}
    for row in rows:
        assert row["low"] <= row["high"]
        assert row["traversal"]["picture"].startswith("data:image/png;base64,")
        assert row["traversal"]["picture"] in text
        assert len(row["traversal"]["values"]) == 7
    dead = rows[-1]
    assert dead["latent"] == 2
    assert dead["response"] == pytest.approx(0, abs=1e-6)
    assert "factor" not in dead
    assert all("factor" in row for row in rows[:2])


def test_every_score_has_its_definition_sample_interval_and_chance(whole):
    report, text, numbers = whole
    plain = Page(text).text
    for name in groups()["disentanglement"]:
        score = numbers["assays"][name]["scores"][0]
        assert score["value"] == pytest.approx(report.results[name].score, rel=1e-5)
        assert score["samples"] == 240
        assert len(score["interval"]) == 2
        assert score["chance"] is not None
        for kind, part in paragraphs(CATALOGUE[name].cite):
            assert kind == "formula" or part in plain


def test_no_score_leaves_a_hole_where_its_sample_interval_or_chance_should_be(whole):
    report, text, numbers = whole
    shown = Page(text)
    for name, found in numbers["assays"].items():
        for score in found.get("scores", []):
            assert score["samples"] > 0, name
            for part in ("interval", "chance"):
                if score[part] is None:
                    reason = score[f"no_{part}"]
                    assert reason, (name, part)
                    assert reason[1:] in shown.text
                else:
                    assert f"no_{part}" not in score
    for result in report.results.values():  # and nothing that calls itself a score is left out
        if isinstance(getattr(result, "score", None), float):
            assert result.measures()[0].value == result.score


def test_the_numbers_behind_every_figure_are_in_the_json(whole):
    report, _, numbers = whole
    for name, result in report.results.items():
        kept = numbers["assays"][name]["result"]
        assert kept["kind"] == type(result).__name__
    matrix = torch.tensor(numbers["assays"]["response-matrix"]["result"]["relative"]).double()
    assert torch.allclose(matrix, report.results["response-matrix"].relative, rtol=1e-5)
    assert numbers["explained_variance"] == pytest.approx(report.explained, rel=1e-5)


def test_results_are_drawn(whole):
    report, text, _ = whole
    assert "could not be drawn" not in text
    figures = re.findall(r'<figure class="figure"', text)
    assert len(figures) > len(report.results) / 2
    assert 'alt="response-matrix: graph"' in text


def test_what_a_user_wrote_is_escaped(whole):
    _, text, numbers = whole
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "<b>width</b>" not in text
    assert numbers["about"]["data"]["name"] == "<script>alert(1)</script>"


def test_the_appendix_repeats_the_report(whole):
    report, text, numbers = whole
    about = numbers["about"]
    assert about["seed"] == 0
    assert about["versions"]["torch"] == torch.__version__
    assert about["command"] in Page(text).text.replace("'", "'")
    again = eval(
        about["command"].split(".save")[0].replace("data,", "data, names=['mig'],"),
        {"zs": zs, "autoencoder": Pictures(), "data": pictures()},
    )
    assert again.results["mig"].score == report.results["mig"].score


def test_the_same_report_is_the_same_bytes(tmp_path):
    pages = []
    for name in ("a", "b"):
        report = zs.assay(Pictures(), pictures(), names=["response-matrix"], resamples=2)
        pages.append(report.save(tmp_path / f"{name}.html").read_bytes())
    assert pages[0] == pages[1]
    other = zs.assay(Pictures(), pictures(), names=["response-matrix"], resamples=2, seed=1)
    assert other.save(tmp_path / "c.html").read_bytes() != pages[0]


def test_named_assays_alone_are_measured_and_one_that_does_not_apply_says_why(tmp_path):
    report = zs.assay(identity(4), vectors(), names=FEW, resamples=0)
    assert set(report.results) == {"response-matrix"}
    assert set(report.missing) == {"variable-types", "mig"}
    assert report.missing["variable-types"].startswith("Not applicable: ")
    assert "factors" in report.missing["mig"]
    page = Page(report.save(tmp_path / "report.html").read_text())
    for reason in report.missing.values():
        assert reason.endswith(".")
        assert reason in page.text


def test_vectors_are_drawn_as_lines(tmp_path):
    report = zs.assay(identity(4), vectors(), names=["response-matrix"])
    assert report.latents[0]["traversal"]["picture"].startswith("data:image/svg+xml")
    text = report.save(tmp_path / "report.html").read_text()
    assert "Lines show what is decoded" in text
    assert "(left to right)" in text
    assert ">feature 3</span>" in text
    assert "Some observations and their reconstructions" in text
    assert report.reconstructions["original"][0] == pytest.approx(vectors()[0].tolist())
    long = torch.randn(100, 9, generator=torch.Generator().manual_seed(0))
    report = zs.assay(identity(9), long, names=["effective-rank"])
    text = report.save(tmp_path / "long.html").read_text()
    assert "(blue to red)" in text
    assert "Some observations and their reconstructions" in text
    assert '<th scope="row">feature 8</th>' in text
    longer = torch.randn(100, 41, generator=torch.Generator().manual_seed(0))
    report = zs.assay(identity(41), longer, names=["effective-rank"])
    text = report.save(tmp_path / "longer.html").read_text()
    assert "One observation (blue) and its reconstruction (red)" in text
    assert '<th scope="row">feature 8</th>' not in text


def test_long_blocks_are_left_out_of_the_json_by_their_shape(monkeypatch):
    monkeypatch.setattr("zscope.report.build.MANY", 10)
    report = zs.assay(identity(4), vectors(), names="response-matrix")
    kept = report.to_dict()["assays"]["response-matrix"]["result"]
    assert kept["matrix"]["shape"] == [4, 4]
    assert kept["samples"] == 200
    assert len(kept["scale"]) == 4


def test_figures_that_would_make_the_page_too_large_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr("zscope.report.page.ROOM", 1000)
    report = zs.assay(identity(4), vectors(), names="response-matrix")
    text = report.save(tmp_path / "report.html").read_text()
    assert "left out to keep the page small" in text
    assert '<figure class="figure"' not in text


def test_a_figure_of_too_many_lines_becomes_pixels(monkeypatch, tmp_path):
    report = zs.assay(identity(4), vectors(), names="response")
    assert "data:image/svg+xml" in pictures_of(report, tmp_path)
    monkeypatch.setattr("zscope.report.pictures.LARGE", 20_000)
    assert "data:image/png" in unpacked(pictures_of(report, tmp_path))


def test_letters_are_read_where_the_fonts_of_this_machine_are_missing(tmp_path):
    figure = pictures_of(zs.assay(identity(4), vectors(), names="response"), tmp_path)
    svg = unpacked(figure)
    families = re.findall(r"font-family: ([^;\"]+)", svg)
    assert families
    assert all(family.endswith("sans-serif") for family in families)


def pictures_of(report, folder):
    text = report.save(folder / "report.html").read_text()
    return re.search(r'<figure class="figure".*?</figure>', text, re.S).group(0)


def unpacked(figure):
    """The first figure as SVG."""
    return base64.b64decode(re.search(r'svg\+xml;base64,([^"]+)"', figure).group(1)).decode()


def test_numbers_without_end_are_written_as_words():
    assert round_numbers({"a": [float("inf"), 1.23456789]}) == {"a": ["inf", 1.23457]}


def broken(recording):
    raise ValueError("the <em>matrix</em> is\nsingular")


def test_a_failing_assay_is_reported_in_its_place_and_the_rest_goes_on(monkeypatch, tmp_path):
    module = import_module(CATALOGUE["mig"].module)
    monkeypatch.setattr(module, "mig", broken)
    report = zs.assay(Pictures(), pictures(), names=["response-matrix", "mig", "sap"], resamples=0)
    assert set(report.results) == {"response-matrix", "sap"}
    assert set(report.failed) == {"mig"}
    text = report.save(tmp_path / "report.html").read_text()
    assert "ValueError: the &lt;em&gt;matrix&lt;/em&gt; is singular" in text
    assert "in broken\n" in text  # the traceback
    assert "<em>" not in text
    assert text.index('id="response-matrix"') < text.index('id="mig"') < text.index('id="sap"')
    kept = json.loads((tmp_path / "report.json").read_text())["assays"]["mig"]
    assert kept["failed"] == report.failed["mig"].message
    assert kept["traceback"] == report.failed["mig"].traceback
    assert "fault in zscope" in str(report)
    assert "Traceback" not in str(report)


@pytest.mark.parametrize(
    ("part", "place", "name"),
    [
        ("latent_table", "zscope.report.build", "table of latents"),
        ("traversals", "zscope.report.build", "traversals"),
        ("reconstruct", "zscope.report.build", "reconstructions"),
        ("plot", "zscope.assays.responses.matrix:ResponseMatrix", "figure of response-matrix"),
    ],
)
def test_a_fault_beside_the_assays_is_kept_with_its_traceback_and_the_rest_goes_on(
    part, place, name, monkeypatch, tmp_path
):
    module, _, owner = place.partition(":")
    target = getattr(import_module(module), owner) if owner else import_module(module)
    monkeypatch.setattr(target, part, lambda *_, **__: broken(None))
    report = zs.assay(Pictures(), pictures(), names=["response-matrix", "sap"])
    text = report.save(tmp_path / "report.html").read_text()
    assert set(report.results) == {"response-matrix", "sap"}
    assert list(report.failed) == [name]
    assert "in broken\n" in text
    assert f"{name.capitalize()}: Failed with ValueError" in text
    assert "<em>" not in text
    fault = json.loads((tmp_path / "report.json").read_text())["faults"][name]
    assert "in broken" in fault["traceback"]
    assert f"{name}: Failed with ValueError" in str(report)


def test_a_rule_that_fails_costs_no_other_finding(monkeypatch):
    from zscope.report.findings import Rule

    whole = zs.assay(Pictures(), pictures(), names=FEW)
    bad = Rule("bad", 0.0, "Bad.", lambda facts, threshold: broken(None))
    monkeypatch.setattr("zscope.report.build.RULES", (bad, *RULES))
    report = zs.assay(Pictures(), pictures(), names=FEW)
    assert list(map(str, report.findings)) == list(map(str, whole.findings))
    assert list(report.failed) == ["finding on bad"]


def test_a_fault_in_a_figure_or_a_rule_makes_the_commands_exit_with_1(monkeypatch, tmp_path):
    from zscope.assays.regime.effective_rank import EffectiveRank
    from zscope.cli import app

    np.save(tmp_path / "codes.npy", np.random.default_rng(0).random((50, 3)))
    monkeypatch.setattr(EffectiveRank, "plot", lambda *_: broken(None))
    target = [str(tmp_path / "codes.npy"), "effective-rank", "mutual-information"]
    figures = ["--figures", str(tmp_path / "figures")]
    assayed = CliRunner().invoke(app, ["assay", *target, *figures])
    reported = CliRunner().invoke(app, ["report", *target, "-o", str(tmp_path / "report.html")])
    for result in (assayed, reported):
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)
        assert "figure of effective-rank: Failed with ValueError" in result.output
    assert [file.name for file in (tmp_path / "figures").iterdir()] == ["mutual-information.png"]


def test_a_model_whose_decoder_throws_still_gets_a_page(tmp_path):
    def decoder(z):
        raise RuntimeError("out of order")

    model = zs.wrap(lambda x: (x[:, :2], x[:, :2] * 0), decoder)
    names = ["response-matrix", "variable-types"]
    report = zs.assay(model, vectors(), names=names)
    assert not report.failed  # not a fault in zscope
    assert report.missing["response-matrix"].startswith("The decoder raised RuntimeError")
    assert list(report.results) == ["variable-types"]
    assert report.explained is None
    assert "out of order" in report.save(tmp_path / "report.html").read_text()


def test_progress_names_each_assay_that_applies():
    steps = []
    names = [*FEW, "effective-rank"]
    zs.assay(identity(4), vectors(), names=names, progress=steps.append)
    assert [step[:3] for step in steps] == [("response-matrix", 0, 2), ("effective-rank", 1, 2)]
    assert steps[0].left is None
    assert steps[1].left >= 0


class Rounded(Pictures):
    """Without the rounding errors of the logit, from which tilt can be read in part."""

    def encode(self, x, auxiliary=None):
        posterior = super().encode(x)
        return zs.Posterior(posterior.mean.round(decimals=3), posterior.std)


def test_a_report_prints_its_findings():
    report = zs.assay(Rounded(), pictures(), names=FEW, resamples=0)
    lines = str(report).splitlines()
    assert lines[0].startswith("The code does not encode tilt: if it matters, train longer")
    first = "1 of 3 latents carries no information: harmless; to remove it, train with 2"
    assert lines[1].startswith(first)
    assert len([line for line in lines if line.startswith("mig ")]) == 1
    assert repr(report) == f"Rounded\n{report}"


def test_unknown_assays_and_files_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="'response-matrx'.*response-matrix"):
        zs.assay(identity(4), vectors(), names=["response-matrx"])
    report = zs.assay(identity(4), vectors(), names=["effective-rank"])
    for name in ("report.pdf", "report"):
        with pytest.raises(ConfigError, match=r"a report is written as \.html, \.json, \.csv"):
            report.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_pair_of_callables_is_enough(tmp_path):
    report = zs.assay((lambda x: x[:, :2], lambda z: torch.cat([z, z], 1)), vectors(), names=FEW)
    assert isinstance(report, zs.Report)
    assert report.title == "Autoencoder"
    assert report.results["response-matrix"].matrix.shape == (2, 2)


# Looks


def luminance(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("mode", ["light", "dark", "print"])
def test_all_text_is_readable_in_every_mode(mode):
    style = (TEMPLATES / "report.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.S)
    assert len(blocks) == 3
    defined = dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", blocks[0]))
    defined |= dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", blocks[1])) if mode == "dark" else {}
    defined |= dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", blocks[2])) if mode == "print" else {}
    defined = {
        name: c if len(c) == 7 else "#" + "".join(2 * d for d in c[1:])
        for name, c in defined.items()
    }
    for paper in ("paper", "raised"):
        for ink in ("ink", "quiet", "link", "problem", "note", "healthy"):
            one, two = sorted(luminance(defined[name]) for name in (paper, ink))
            assert (two + 0.05) / (one + 0.05) >= 4.5, f"{ink} on {paper}"


def test_words_around_code_are_escaped_and_calls_are_set_as_code():
    assert mark_code("<i> zs.prune(autoencoder, [0, 1]) & more") == (
        "&lt;i&gt; <code>zs.prune(autoencoder, [0, 1])</code> &amp; more"
    )


def test_docstrings_become_text_and_formulas():
    parts = paragraphs("Question?\n\n    a = b\n      + c\n\nWhere b is\none thing.\n")
    assert parts == [("formula", "a = b\n  + c"), ("text", "Where b is one thing.")]


def test_small_negative_numbers_have_no_minus():
    assert number(-0.001) == "0.00"
    assert number(-1.5) == "−1.50"
    assert number(None) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.31415926, "0.314"),
        (-2.5, "−2.500"),
        (123.456, "123.5"),
        (12345.6, "1.235e+04"),
        (0.00031416, "0.0003142"),
        (-3.1416e-7, "−3.142e−07"),
        (0.0, "0.000"),
        (-0.0, "0.000"),
        (None, ""),
    ],
)
def test_small_scores_keep_four_digits(value, text):
    assert score_cell(value) == text


# The command


@pytest.fixture
def zscope(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(command)

    def run(*words):
        return CliRunner().invoke(app, list(map(str, words)))

    return run


def test_a_run_is_reported_on_its_own_data_with_its_configuration(zscope, tmp_path):
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(16,), seed=0)
    zs.train(model, zs.data.load("helix"), steps=30, rate=1e-2, out=tmp_path / "run")
    words = ("variable-types", "effective-rank", "-o", "page.html", "--samples", 300)
    done = zscope("run", *words)
    assert done.exit_code == 0, done.output
    assert "2 assays in page.html" in done.output
    numbers = json.loads((tmp_path / "page.json").read_text())
    assert numbers["about"]["config"]["steps"] == 30
    assert numbers["about"]["data"]["name"] == "helix"
    assert numbers["about"]["command"] == (
        "zscope report run variable-types effective-rank --samples 300 --resamples 20 --seed 0"
    )
    assert "steps" in (tmp_path / "page.html").read_text()


def test_a_model_of_ones_own_is_reported_on_ones_own_file(zscope, tmp_path):
    import numpy as np

    (tmp_path / "minemodel.py").write_text("def load():\n    return (lambda x: x), (lambda z: z)\n")
    np.save(tmp_path / "x.npy", vectors().numpy())
    words = ("minemodel.py:load", "response-matrix", "--data", "x.npy", "--json")
    done = zscope(*words)
    assert done.exit_code == 0, done.output
    output = json.loads(done.output)
    assert output["page"] == "report.html"
    assert output["numbers"] == "report.json"
    assert output["findings"][0]["sentence"]
    assert output["failed"] == []
    assert (tmp_path / "report.html").is_file()


def test_the_data_can_be_a_dataset(tmp_path):
    assert isinstance(pictures(), Dataset)


# Files and notebooks


@pytest.fixture(scope="module")
def scored():
    names = ["mig", "dci", "effective-rank", "response-matrix"]
    return zs.assay(Pictures(), pictures(), names=names, resamples=5)


def test_a_saved_table_holds_every_score(scored, tmp_path):
    import pandas as pd

    frame = scored.to_frame()
    assert list(frame.columns) == list(COLUMNS)
    assert {frame[name].dtype.kind for name in ("value", "low", "high", "chance")} == {"f"}
    assert set(frame["assay"]) >= {"mig", "dci", "effective-rank"}
    mig = frame[frame["assay"] == "mig"].iloc[0]
    assert mig["value"] == scored.results["mig"].score
    assert (mig["low"], mig["high"]) == pytest.approx(scored.results["mig"].interval)
    assert mig["n"] == 240
    csv = pd.read_csv(scored.save(tmp_path / "scores.csv"))
    parquet = pd.read_parquet(scored.save(tmp_path / "scores.PARQUET"))
    for table in (csv, parquet):
        assert list(table.columns) == list(COLUMNS)
        assert table["assay"].tolist() == frame["assay"].tolist()
        assert table["measure"].tolist() == frame["measure"].tolist()
        for column in ("value", "low", "high", "chance"):
            assert table[column].astype(float).tolist() == pytest.approx(
                frame[column].astype(float).tolist(), nan_ok=True
            )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.PARQUET", "scores.csv"]


def test_a_saved_latex_table_is_complete_and_escaped(scored, tmp_path):
    lines = scored.save(tmp_path / "scores.tex").read_text().splitlines()
    assert lines[:2] == [r"\begin{tabular}{lrrr}", r"\toprule"]
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    rows = [line for line in lines if line.startswith("mig ")]
    assert len(rows) == 1
    _, value, interval, chance = rows[0].removesuffix(r" \\").split(" & ")
    assert float(value) == pytest.approx(scored.results["mig"].score, abs=6e-4)
    assert " to " in interval
    assert float(chance.replace("$-$", "-").split("$")[0])
    odd = {"assay": "a_b", "measure": "50 % & ^", "value": -1.5e-5, "low": None, "high": None}
    text = as_tex([{**odd, "chance": None, "n": 3, "flavour": None}]).decode()
    assert r"a\_b, 50 \% \& \^{} & $-$1.5$\times 10^{-5}$ &  &  \\" in text


def test_saved_json_has_what_the_page_has(scored, tmp_path):
    content = json.loads(scored.save(tmp_path / "scores.json").read_text())
    assert content == scored.to_dict()
    assert content["format"] == 2
    assert content["assays"]["mig"]["scores"][0]["value"] == pytest.approx(
        scored.results["mig"].score, rel=1e-5
    )
    assert "reconstructions" not in scored.to_dict(pictures=False)
    assert list(tmp_path.iterdir()) == [tmp_path / "scores.json"]


def test_reports_and_recordings_are_escaped_in_notebooks(scored):
    text = zs.assay(
        zs.record(Pictures(), pictures(names=("a", "<b>width</b>", "c"))), names=["mig", "holes"]
    )._repr_html_()
    Page(text)
    assert text.count("<table>") == 1
    assert "mig" in text
    assert "<li>" in text
    recorded = zs.record(Pictures(), pictures())._repr_html_()
    for each in (text, recorded, scored._repr_html_()):
        assert "<script>" not in each
        assert "<b>width" not in each
    assert "&lt;script&gt;" in recorded
    bad = dataclasses.replace(scored, title="<script>")
    assert bad._repr_html_().count("<script>") == 0


# Many latents


LARGE = 128


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A model of two linear layers with 128 latents; some assays, and all that a page does."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder, decoder = torch.nn.Linear(64, 2 * LARGE), torch.nn.Linear(LARGE, 64)
    model = zs.wrap(lambda x: encoder(x).chunk(2, 1), decoder, latents=LARGE)
    x = torch.randn(600, 64, generator=generator)
    data = from_arrays(x, (x[:, :2] > 0).long().numpy())
    names = ["response-matrix", "variable-types", "latent-divergence", "mig", "traversal-responses"]
    report = zs.assay(model, data, names=names)
    return report, report.save(tmp_path_factory.mktemp("large") / "report.html")


def test_many_latents_get_a_short_table_and_short_sentences(large):
    report, path = large
    assert not report.failed
    assert len(report.results) == 5
    page = Page(path.read_text())
    rows = [given for tag, given in page.tags if tag == "img" and "along latent" in given["alt"]]
    assert len(rows) == 30
    assert f"The first 30 of {LARGE} are shown, the others folded below" in page.text
    assert f"{LARGE - 30} less informative latents" in page.text
    assert len(json.loads(path.with_suffix(".json").read_text())["latents"]) == LARGE
    for finding in report.findings:
        assert len(str(finding)) < 400
        assert len(finding.evidence) < 1200
    assert max(map(len, str(report).splitlines())) < 400
    assert len(path.read_bytes()) < LIMIT


def test_many_codes_without_a_model_get_a_short_table_too(tmp_path):
    codes = torch.randn(300, 100, generator=torch.Generator().manual_seed(0))
    report = zs.assay(zs.Recording.from_arrays(codes), names=["effective-rank"])
    text = report.save(tmp_path / "report.html").read_text()
    assert "The first 30 of 100 are shown" in Page(text).text
    assert "from low to high" not in text
    shown, folded = text.split("70 less informative latents")
    assert (shown + folded).count('<span class="narrow">latent </span>') == 100
    assert shown.count('<span class="narrow">latent </span>') == 30


def test_a_page_in_a_folder_that_cannot_exist_is_refused_before_measuring(tmp_path, monkeypatch):
    from zscope.cli import app

    np.save(tmp_path / "codes.npy", np.eye(3))
    monkeypatch.setattr("zscope.cli.targets.measure_target", broken)
    words = ["report", str(tmp_path / "codes.npy"), "-o", str(tmp_path / "codes.npy" / "x.html")]
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, ConfigError)
    assert "codes.npy/x.html cannot be written (Not a directory)" in str(error)


def test_a_recording_keeps_its_own_samples_and_seed():
    recording = zs.record(identity(4), vectors())
    for options in ({"seed": 5}, {"samples": 10}, {"data": vectors()}):
        with pytest.raises(ConfigError, match=f"a recording and {next(iter(options))}.*zs.record"):
            zs.assay(recording, names=["effective-rank"], **options)
