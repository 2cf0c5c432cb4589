"""Tables in a report and in the explorer: names of features, effects, original units."""

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.explorer.session import Session
from zscope.explorer.views.compare import Compare, compare
from zscope.explorer.views.latents import Sample, sample
from zscope.report.rules import RULES

ROWS = 300
RULE = next(rule for rule in RULES if rule.name == "moved features")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Age and income follow one variable, the dose another."""
    draw = np.random.default_rng(0)
    u, v = draw.normal(size=(2, ROWS))
    age, income, dose = 45 + 12 * u, 9000 + 350 * u, 0.05 + 0.01 * v
    path = tmp_path_factory.mktemp("table") / "people.csv"
    rows = [f"{a:.7g},{b:.7g},{c:.7g}" for a, b, c in zip(age, income, dose, strict=True)]
    path.write_text("\n".join(["age,income,dose", *rows]))
    return zs.data.load(path)


def model_of(data, wide=1.0):
    """Latent 0 is age and income, latent 1 minus the dose; latent 2 moves nothing."""
    weights = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, -1.0], [0.0, 0.0, 0.0]]) * wide

    def encode(x):
        return torch.stack([x[:, 0], -x[:, 2], x[:, 0] * x[:, 2]], 1)

    model = zs.wrap(encode, lambda z: z @ weights, latents=3, prior=None)
    model.scaling = data.units_for_training()
    return model


@pytest.fixture(scope="module")
def report(data):
    return zs.assay(model_of(data), data, names=["feature-effects", "response-matrix"])


def test_the_table_and_a_finding_say_what_latents_move(report):
    moves = {row["latent"]: row["moves"] for row in report.latents}
    assert moves == {0: "age +2.0 sd, income +2.0 sd", 1: "dose -2.0 sd", 2: ""}
    (finding,) = [each for each in report.findings if each.rule == "moved features"]
    assert "atent 0 moves age +2.0 sd, income +2.0 sd" in finding.text
    (dose,) = [moved for latent, moved in finding.table[1:] if latent == "1"]
    assert dose.startswith("dose -2.0 sd [-2.")
    assert "(-0.019" in dose  # in units of the dose
    assert finding.text.startswith("Latent")


def test_the_head_of_the_page_counts_features(report, tmp_path):
    head = report.save(tmp_path / "report.html").read_text().split("</header>")[0]
    assert f"({report.about['data']['shape'][0]} features)" in head


def test_latents_in_use_that_move_nothing_are_named(data):
    from zscope.report.findings import Facts

    recording = zs.record(model_of(data, wide=0.01), data)
    results = {"feature-effects": zs.assays.feature_effects(recording)}
    rows = [{"latent": j, "response": 1.0} for j in range(3)]
    (finding,) = RULE(Facts(recording, results, rows))
    assert recording.used == [0, 1]  # the decoder does not look at latent 2
    assert finding.text.startswith("Latents 0 and 1 move no feature by 0.1")
    assert not RULE(Facts(recording, {}, rows))


def test_reconstructions_are_shown_in_original_units(report, data, tmp_path):
    first = report.reconstructions["original"][0]
    assert first == pytest.approx(data.images[0].tolist(), rel=1e-4)
    assert report.reconstructions["decoded"][0] == pytest.approx(first, rel=1e-3)
    assert report.explained > 0.99
    page = report.save(tmp_path / "r.html").read_text()
    assert "age +2.0 sd, income +2.0 sd" in page
    assert f"{data.images[0, 1]:.0f}" in page


def test_wider_tables_list_features_as_rows(tmp_path):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(100, 12)) * 1000
    data = zs.data.from_arrays(x, feature_names=[f"gene{k}" for k in range(12)], standardise=True)
    model = zs.wrap(lambda x: x, lambda z: z, latents=12)
    model.scaling = data.units_for_training()
    page = zs.assay(model, data, names="feature-effects").save(tmp_path / "r.html").read_text()
    assert '<th scope="row">gene11</th>' in page
    assert "gene11 +2.0 sd" in page


def test_the_explorer_sends_the_units(data):
    session = Session(model_of(data), data, name="people")
    try:
        units = session.to_dict()["observation"]["units"]
        shown = sample(session, Sample(index=0))["observation"]["values"]
        restored = np.array(shown) * units["scale"] + units["mean"]
        assert restored == pytest.approx(data.images[0], rel=1e-4)
        exact = sample(session, Sample(index=0, exact=True))["observation"]["values"]
        assert exact == pytest.approx(data.images[0].tolist(), rel=1e-4)
    finally:
        session.close()


def test_models_with_other_units_are_compared_in_those_of_the_first(data):
    plain = zs.wrap(lambda x: x, lambda z: z, latents=3)  # sees years, money and doses
    session = Session(model_of(data), data, name="a", other=plain, other_name="b")
    try:
        answer = compare(session, Compare(sample=0))
        seen = answer["sample"]["observation"]["values"]
        for model in answer["models"]:
            assert model["decoded"]["values"] == pytest.approx(seen, abs=1e-3)
            assert model["error"] < 1e-5
    finally:
        session.close()


def test_the_explorer_leaves_out_columns_the_model_does_not_know(data, tmp_path):
    file = tmp_path / "more.csv"
    rows = [f"{k},{c:.6g},{b:.6g},{a:.6g}" for k, (a, b, c) in enumerate(data.images[:50])]
    file.write_text("\n".join(["number,dose,income,age", *rows]))
    session = Session(model_of(data), zs.data.load(file), name="people")
    try:
        assert session.to_dict()["observation"]["features"] == ["age", "income", "dose"]
    finally:
        session.close()
