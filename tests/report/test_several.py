"""Several models side by side: a verdict that never says more than paired intervals do."""

import csv
import io
import json
import sys

import map_reports
import numpy as np
import pytest
import torch
from test_report import Page
from worlds import grid

import zscope as zs
from zscope.cli import main
from zscope.data.dataset import from_arrays
from zscope.errors import ConfigError, DataError
from zscope.report.several import compare_reports

FACTORS = grid(6, 5, 4).repeat(4, 0)


def codes_report(noise, seed=0, names=("mig", "sap"), factors=FACTORS, resamples=20, shift=0.0):
    """Codes that are the factors and noise."""
    draws = np.random.default_rng(seed).normal(size=factors.shape)
    recording = zs.Recording.from_arrays(factors + noise * draws + shift, factors, kinds="ordinal")
    return zs.assay(recording, names=list(names), resamples=resamples)


class Linear(zs.Autoencoder):
    """Decodes along given directions, one for each latent; exact on their span."""

    def __init__(self, ways, noise=0.0):
        super().__init__()
        self.register_buffer("ways", ways)
        self.latents, self.noise = len(ways), noise

    def encode(self, x, auxiliary=None):
        mean = x.flatten(1) @ torch.linalg.pinv(self.ways)
        return zs.Posterior(mean, torch.full_like(mean, 0.1))

    def decode(self, z):
        return ((z * (1 - self.noise)) @ self.ways).reshape(-1, 1, 4, 4)


def pictures(latents=3, samples=200, seed=0):
    basis = torch.linalg.qr(torch.randn(16, latents, generator=torch.Generator().manual_seed(1))).Q
    scales = torch.tensor([3.0, 2.0, 1.0])[:latents]
    z = torch.randn(samples, latents, generator=torch.Generator().manual_seed(seed)) * scales
    return (z @ basis.T).reshape(-1, 1, 4, 4), (basis * scales).T


@pytest.fixture(scope="module")
def clean_and_noisy():
    return compare_reports([codes_report(0.1), codes_report(1.0)], ["clean", "noisy"])


def test_codes_that_are_the_factors_win_by_the_paired_interval(clean_and_noisy):
    assert [row.best for row in clean_and_noisy.counted] == ["clean", "clean"]
    assert clean_and_noisy.verdict == "clean is better on 2 of 2 scores, noisy on none."
    (reasons,) = clean_and_noisy.reasons.values()
    assert reasons[0].startswith(("mig: ", "sap: "))
    row = clean_and_noisy.counted[0]
    low, high = row.differences[0].interval
    assert low < row.values[1].value - row.values[0].value < high < 0


def test_a_model_is_not_better_than_itself():
    result = compare_reports([codes_report(0.5), codes_report(0.5)])
    for row in result.counted:
        assert row.differences[0].value == 0
        assert row.differences[0].interval == pytest.approx((0, 0), abs=1e-5)
    assert "None of 2 scores tells which model is better" in result.verdict
    assert result.reasons == {}
    assert result.names == ["codes (1)", "codes (2)"]
    assert result.similarity[0][2] == pytest.approx(1)


def test_equal_models_with_noise_of_their_own_are_seldom_told_apart():
    """19 of 20 are expected not to be; 3 or more of 6 come by chance in 2 of 1,000 cases."""
    decided = 0
    for seed in range(6):
        pair = [codes_report(1.0, seed=s, names=["mig"]) for s in (seed, 100 + seed)]
        decided += bool(compare_reports(pair).counted[0].best)
    assert decided <= 2


def test_paired_intervals_are_shorter_where_models_err_on_the_same_rows():
    """The second model differs from the first by little; the rows vary much more."""
    one = codes_report(1.0, seed=3, names=["mig"])
    draws = np.random.default_rng(3).normal(size=FACTORS.shape)
    more = np.random.default_rng(4).normal(size=FACTORS.shape)
    recording = zs.Recording.from_arrays(FACTORS + draws + 0.02 * more, FACTORS, kinds="ordinal")
    other = zs.assay(recording, names=["mig"], resamples=20)
    (row,) = compare_reports([one, other]).counted
    low, high = row.differences[0].interval
    own = [each.interval[1] - each.value for each in row.values]
    assert (high - low) / 2 < 0.6 * np.hypot(*own)


def test_where_low_is_better_the_low_one_wins():
    x, ways = pictures()
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(5))).Q
    names = ["distance-to-orthogonality", "alignment-gap"]
    models = [Linear(turn @ ways), Linear(ways)]
    result = compare_reports([zs.assay(each, x, names=names) for each in models], ["turned", "own"])
    rows = {row.name: row for row in result.rows}
    for name in names:
        assert rows[name].values[0].value > rows[name].values[1].value
        assert rows[name].best == "own"
    explained = rows["explained variance"]  # both decode exactly
    assert (explained.best, explained.comparable) == ("", True)


def test_explained_variance_is_compared_row_by_row():
    x, ways = pictures()
    reports = [zs.assay(Linear(ways, noise), x, names=["effective-rank"]) for noise in (0.2, 0.25)]
    (row,) = compare_reports(reports, ["a", "b"]).counted
    assert [each.value for each in row.values] == pytest.approx([1 - 0.04, 1 - 0.0625], abs=2e-3)
    assert row.best == "a"


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*NaN or infinite:UserWarning")
def test_a_model_that_decodes_to_nan_is_put_beside_the_other(tmp_path):
    x, ways = pictures()
    broken = Linear(ways)
    broken.decode = lambda z: Linear.decode(broken, z) * float("nan")
    reports = [zs.assay(each, x, names=["effective-rank"]) for each in (Linear(ways), broken)]
    result = compare_reports(reports, ["sound", "broken"])
    (row,) = result.counted
    assert (row.values[1], row.verdict) == (None, "not measured of all")
    result.save(tmp_path / "page.html")
    assert "Reconstructions by broken" in (tmp_path / "page.html").read_text()
    json.loads((tmp_path / "page.json").read_text(), parse_constant=pytest.fail)


def test_distances_of_models_of_different_sizes_decide_nothing():
    x, ways = pictures()
    names = ["distance-to-orthogonality"]
    result = compare_reports([zs.assay(Linear(w), x, names=names) for w in (ways, ways[:2])])
    row = next(row for row in result.counted if row.assay)
    assert row.best == ""
    assert row.verdict == "2 and 3 latents in use are not comparable"
    assert "1 more score cannot be judged" in result.verdict


def test_rounding_errors_decide_nothing():
    """Models of the same function, of which one computes it in another way."""
    x, ways = pictures()
    scaled = Linear(2 * ways)
    scaled.decode = lambda z: (0.3 * z @ ways + 1.7 * z @ ways).reshape(-1, 1, 4, 4)
    reports = [zs.assay(each, x, names=["effective-rank"]) for each in (Linear(2 * ways), scaled)]
    (row,) = compare_reports(reports).counted
    assert abs(row.differences[0].value) < 1e-5
    assert (row.best, row.comparable) == ("", True)


def test_reconstructions_of_maps_are_compared_picture_by_picture():
    x = map_reports.pictures(48)
    models = [map_reports.model_of(x, noise=0.01), map_reports.model_of(x, undo=lambda z: 0.9 * z)]
    names = ["reconstruction-quality"]
    result = compare_reports([zs.assay(each, x, names=names) for each in models], ["good", "dull"])
    rows = {row.assay: row for row in result.counted}
    assert rows["reconstruction-quality"].name == "reconstruction-quality, PSNR, dB"
    assert [row.best for row in rows.values()] == ["good", "good"]


def test_without_resamples_nothing_is_decided():
    result = compare_reports([codes_report(0.1, resamples=0), codes_report(1.0, resamples=0)])
    assert result.verdict.startswith("Nothing is decided")
    assert not any(row.best for row in result.rows)


def test_of_three_models_the_best_is_better_than_each_and_the_worst_worse():
    reports = [codes_report(noise, names=["mig"]) for noise in (1.0, 0.1, 0.5)]
    result = compare_reports(reports, ["a", "b", "c"])
    (row,) = result.counted
    assert (row.best, row.worst) == ("b", "a")
    assert result.verdict == (
        "b is best on 1 of 1 score, no other model on any. a is worse than all others on 1."
    )
    twice = compare_reports([*reports[:2], reports[1]], ["a", "b", "c"])
    assert twice.counted[0].best == ""
    assert twice.verdict.startswith("No model is better than all others on any of 1 score")
    assert "a is worse than all others on 1." in twice.verdict


def test_what_was_not_measured_of_all_decides_nothing():
    result = compare_reports([codes_report(0.1), codes_report(0.1, names=["mig"])], ["a", "b"])
    row = next(row for row in result.counted if row.name == "sap")
    assert (row.verdict, row.missing) == ("not measured of all", ("", "It was not measured."))


def test_other_rows_are_refused_with_a_way_forward():
    one = codes_report(0.1)
    x, ways = pictures()
    seen = zs.assay(Linear(ways), x, names=["effective-rank"])
    cases = {
        "480 and 240 rows": (one, codes_report(0.1, factors=FACTORS[:240])),
        "other values of the factors": (one, codes_report(0.1, factors=FACTORS[::-1].copy())),
        "other observations": (seen, zs.assay(Linear(ways), x.flip(0), names=["effective-rank"])),
        "other rows of the data": (
            zs.assay(Linear(ways), x, names=["effective-rank"], samples=100),
            zs.assay(Linear(ways), x, names=["effective-rank"], samples=100, seed=1),
        ),
        "seeds 0 and 1": (seen, zs.assay(Linear(ways), x, names=["effective-rank"], seed=1)),
    }
    for reason, pair in cases.items():
        with pytest.raises(DataError, match=f"not measured on the same rows.*{reason}.*--data"):
            compare_reports(pair)
    with pytest.raises(ConfigError, match="got 1 report; two or more"):
        compare_reports([one])
    with pytest.raises(ConfigError, match="two models are called 'a'"):
        compare_reports([one, one], ["a", "a"])


def test_the_page_needs_nothing_else_and_the_json_says_the_same(tmp_path, clean_and_noisy):
    x, ways = pictures()
    data = from_arrays(x, name="<script>alert(1)</script>")
    names = ["distance-to-orthogonality", "variable-types", "effective-rank", "sample-quality"]
    reports = [zs.assay(Linear(ways, noise), data, names=names) for noise in (0.0, 0.4)]
    result = compare_reports(reports, ["runs/exact", "runs/<b>shrunk</b>"])
    path = result.save(tmp_path / "page.html")
    page = Page(path.read_text())
    assert page.sources
    assert all(source.startswith("data:image/") for source in page.sources)
    assert "<script>alert" not in path.read_text()
    assert result.verdict in page.text
    for row in result.rows:
        assert row.name in page.text
    images = [given["alt"] for tag, given in page.tags if tag == "img"]
    assert images[:3] == [
        "Observations", "Reconstructions by runs/exact", "Reconstructions by runs/<b>shrunk</b>",
    ]  # fmt: skip
    content = json.loads((tmp_path / "page.json").read_text())
    assert content["verdict"] == result.verdict
    assert [row["score"] for row in content["scores"]] == [row.name for row in result.rows]
    table = list(csv.DictReader(io.StringIO(clean_and_noisy.to_csv().decode())))
    assert [line["better model"] for line in table[:1]] == ["clean"]
    with pytest.raises(ConfigError, match=r"ends in .tex; several models"):
        result.save(tmp_path / "page.tex")


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_fits_the_screen(tmp_path, browser, clean_and_noisy, width):
    path = clean_and_noisy.save(tmp_path / "page.html")
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#scores tbody tr").count() >= 2
    assert page.locator("td.best").count() == 2
    table = "document.querySelector('#scores .scroll')"
    assert page.evaluate(f"{table}.scrollWidth <= {table}.clientWidth")
    assert not errors
    context.close()


@pytest.fixture
def zscope(monkeypatch, capsys, tmp_path):
    """Run a command in this process: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    for name, noise in (("clean", 0.1), ("noisy", 1.0)):
        draws = np.random.default_rng(0).normal(size=FACTORS.shape)
        np.savez(f"{name}.npz", codes=FACTORS + noise * draws, factors=FACTORS)

    def run(*words):
        words = ["zscope", "report", *words, "--kinds", "ordinal"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run


def test_the_command_tells_models_from_assays(zscope, tmp_path):
    words = ("clean.npz", "noisy.npz", "mig", "-o", "page.html")
    code, out, err = zscope(*words)
    assert (code, err) == (0, "")
    assert out.startswith("clean.npz is better on 1 of 1 score, noisy.npz on none.")
    assert "2 models in page.html" in out
    assert "zscope report clean.npz noisy.npz mig" in (tmp_path / "page.html").read_text()
    code, out, _ = zscope(*words, "--require", "mig > 0.6", "--junit", "gate.xml", "--json")
    content = json.loads(out)
    verdicts = {name: each["verdict"] for name, each in content["requirements"].items()}
    assert (code, verdicts) == (1, {"clean.npz": "passed", "noisy.npz": "failed"})
    assert (tmp_path / "gate.xml").read_text().count("<testsuite ") == 2


def test_what_is_neither_a_model_nor_an_assay_is_refused(zscope, tmp_path):
    code, _, err = zscope("clean.npz", "nosy.npz")
    assert code == 1
    assert "there is no file or folder 'nosy.npz' with a further model" in err
    assert "no assay is called 'nosy.npz'" in err
    code, _, err = zscope("clean.npz", "noisy.npz", "-o", "page.tex")
    assert code == 1
    assert "several models side by side" in err
    assert not list(tmp_path.glob("page*"))
