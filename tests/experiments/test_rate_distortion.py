"""Rate and distortion of stored runs."""

import json

import pytest

import zscope as zs
from zscope.errors import Undefined


def test_a_family_of_runs_is_one_curve_with_the_numbers_of_the_assay(trained_family):
    result = zs.experiments.rate_distortion_curves(trained_family, samples=300)
    (curve,) = result.curves
    assert curve.betas == [0.01, 4]
    assert curve.seeds == [0, 1, 2]
    assert len(curve.points) == 5
    assert [(slope.seed, slope.low, slope.high) for slope in curve.slopes] == [
        (0, 0.01, 4), (1, 0.01, 4),
    ]  # fmt: skip
    model, helix = zs.load(trained_family / "b4-s1"), zs.data.load("helix")
    expected = zs.assays.rate_distortion(zs.record(model, helix, samples=300))
    (point,) = [each for each in curve.points if (each.beta, each.seed) == (4, 1)]
    assert point.rate == pytest.approx(expected.rate)
    assert point.distortion == pytest.approx(expected.distortion)
    assert curve.means[0][1] > curve.means[1][1]  # a small β buys more rate


def test_other_settings_make_other_curves_and_models_without_beta_are_left_out(family):
    helix = zs.data.load("helix")
    few = {"steps": 60, "rate": 2e-2, "progress": False}
    for beta in (0.01, 4.0):
        model = zs.models.build("beta-vae", shape=(3,), latents=2, hidden=(4,), beta=beta)
        zs.train(model, helix, out=family / f"small-{beta:g}", **few)
    for name in ("beta-tcvae", "ae"):
        model = zs.models.build(name, shape=(3,), latents=2, hidden=(4,))
        zs.train(model, helix, out=family / name, **few)
    result = zs.experiments.rate_distortion_curves(family, samples=200)
    assert len(result.curves) == 2
    assert len({curve.name for curve in result.curves}) == 2
    assert len(result.areas) <= 1
    notes = " ".join(result.notes)
    assert "beta-tcvae is left out: its loss is not the distortion plus β times the rate" in notes
    assert "ae is left out" in notes
    assert len(result.to_frame()) == 7
    with pytest.raises(Undefined, match="none of 1 run has a rate and a β"):
        zs.experiments.rate_distortion_curves(family / "ae")


def test_the_rate_of_an_ivae_is_against_its_prior_given_the_factors(tmp_path):
    helix = zs.data.load("helix")
    model = zs.models.build_for("ivae", helix, latents=2, hidden=(4,))
    zs.train(model, helix, steps=3, out=tmp_path / "ivae", progress=False)
    (curve,) = zs.experiments.rate_distortion_curves(tmp_path / "ivae", samples=200).curves
    recording = zs.record(zs.load(tmp_path / "ivae"), helix, samples=200)
    against_its_prior, against_normal = (
        float(each.kl().sum(1).double().mean())
        for each in (recording.relative, recording.posterior)
    )
    assert curve.points[0].beta == 1
    assert curve.points[0].rate == pytest.approx(against_its_prior, rel=1e-5)
    assert against_normal != pytest.approx(against_its_prior, rel=1e-3)


def test_the_command_prints_draws_and_filters(zscope, trained_family, tmp_path):
    figure = tmp_path / "plane.png"
    options = ("--samples", 200, "--figure", figure)
    code, out, err = zscope("rate-distortion", trained_family, *options)
    assert code == 0, err
    assert "slope to the next" in out
    assert figure.stat().st_size > 5000
    code, out, _ = zscope("rate-distortion", trained_family, "--samples", 200, "--csv")
    assert out.splitlines()[0].startswith("curve,beta,seed,rate,distortion,elbo")
    assert len(out.splitlines()) == 6
    code, out, _ = zscope(
        "rate-distortion", trained_family, "--where", "beta=4", "--samples", 200, "--json"
    )
    assert code == 0
    (curve,) = json.loads(out)["curves"]
    assert [point["beta"] for point in curve["points"]] == [4, 4]
    assert curve["slopes"] == []
    code, _, err = zscope("rate-distortion", trained_family, "--where", "beta=3")
    assert code != 0
    assert "beta" in err
