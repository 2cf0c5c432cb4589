"""The studies of alignment: that they run to the end, and that they can say no."""

import json
from dataclasses import replace

import numpy as np
import pytest

import zscope as zs
from zscope.data.fetching import fetch
from zscope.experiments import studies
from zscope.experiments.studies import (
    pca_directions,
    pca_directions_degenerate,
    pca_directions_perturbed,
    pca_directions_regime,
)
from zscope.experiments.studies.pca_directions import Cell, Setup, setups
from zscope.experiments.studies.pca_directions_perturbed import Cell as Perturbed

NAMES = ["pca-directions", "pca-directions-degenerate", "pca-directions-regime"]
NAMES += ["pca-directions-perturbed"]


@pytest.fixture
def brief(monkeypatch):
    """Every run of the studies cut down to a few steps."""
    plain = setups

    def short(scale):
        return {
            name: replace(
                setup, seeds=2, codes=4, training={**setup.training, "steps": 4, "batch": 32}
            )
            for name, setup in plain(scale).items()
        }

    for module in (pca_directions, pca_directions_degenerate, pca_directions_regime):
        monkeypatch.setattr(module, "setups", short)


def test_they_are_in_the_catalogue():
    for name in NAMES:
        module = studies.load(name)
        assert name == module.NAME
        assert module.SUMMARY.endswith(".")


@pytest.mark.slow
def test_the_table_of_alignment_runs_to_the_end_and_says_what_is_missing(brief, tmp_path):
    told = []
    claims = pca_directions.run(tmp_path, progress=told.append)
    by_name = {claim.name: claim for claim in claims}
    assert list(by_name) == ["L1", "L2", "L3", "N1", "N2", "N3", "M1", "F1"]
    assert told[0].startswith("square-linear: β-VAE, 2 seeds, 4 steps")
    assert not by_name["L1"].holds  # nothing is aligned after 4 steps
    assert by_name["M1"].measured.startswith("not measured: mnist")
    assert not by_name["M1"].holds
    kept = json.loads((tmp_path / "claims.json").read_text())
    assert [claim["name"] for claim in kept["claims"]] == list(by_name)


@pytest.fixture
def standing_in(monkeypatch):
    """A few pictures of noise with labels, as large as those of MNIST."""
    random = np.random.default_rng(0)
    pixels = random.integers(256, size=(64, 1, 28, 28), dtype=np.uint8)
    kinds = {"factor_names": ("digit",), "factor_kinds": ("categorical",)}
    data = zs.Dataset("mnist", pixels, random.integers(10, size=(64, 1)), **kinds)
    monkeypatch.setattr(Setup, "load", lambda setup: (data, data))


@pytest.fixture
def imported(real_data, tmp_path, monkeypatch):
    """The real ones, for loading unpacks beside the files, and those are not ours to write to."""
    fetch("mnist", root=tmp_path, from_dir=real_data)
    monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path))


@pytest.mark.parametrize("data", ["standing_in", pytest.param("imported", marks=pytest.mark.slow)])
def test_pictures_are_measured_where_they_are(brief, data, request):
    request.getfixturevalue(data)
    found = pca_directions.table_row(pca_directions.setups("small")["mnist"], lambda _: None)
    assert list(found) == ["β-VAE", "AE", "Σ", "random"]
    assert len(found["β-VAE"].distances) == 2
    assert found["β-VAE"].scores == []  # the digit is no factor


def cell(distance, score=0.5, gap=0.1, ratio=0.5, unused=0):
    return Cell([distance] * 3, [score] * 3, [gap] * 3, [ratio] * 3, [unused] * 3)


def row(vae, ae, full, **options):
    """A row of the table, (DtO, DS, gap) of each model."""
    cells = {"β-VAE": cell(*vae, **options), "AE": cell(*ae), "Σ": cell(*full)}
    return {**cells, "random": Cell([0.8], [], [0.5], [0.5])}


LINEAR = row((0.0, 0.99, 0.0), (0.33, 0.71, 0.3), (0.34, 0.71, 0.3))


@pytest.mark.parametrize(
    ("found", "pruned", "holds"),
    [
        (LINEAR, 0.99, [True, True, True]),
        (LINEAR, 0.5, [True, True, False]),
        (row((0.3, 0.99, 0.1), (0.33, 0.7, 0.3), (0.34, 0.7, 0.3)), 0.99, [False, True, True]),
        # An aligned autoencoder would be as bad for the claim as a β-VAE that is not.
        (row((0.0, 0.99, 0.0), (0.33, 0.7, 0.3), (0.1, 0.95, 0.3)), 0.99, [False, False, True]),
        # A latent that is not used looks aligned.
        (row((0.0, 0.99, 0.0), (0.3, 0.7, 0.3), (0.3, 0.7, 0.3), unused=1), 0.99,
         [False, True, True]),
    ],
)  # fmt: skip
def test_the_linear_row_is_judged_by_its_numbers(found, pruned, holds):
    claims = pca_directions.linear_claims(found, [0.999, pruned], 0.05)
    assert [claim.holds for claim in claims] == holds
    assert "smallest mean variance of a latent 0." in claims[2].measured


def test_the_nonlinear_row_is_judged_by_its_numbers():
    published = row((0.18, 0.73, 0.1), (0.54, 0.59, 0.3), (0.55, 0.42, 0.3))
    assert [claim.holds for claim in pca_directions.nonlinear_claims(published)] == [True] * 3
    turned = row((0.54, 0.59, 0.3), (0.18, 0.73, 0.1), (0.55, 0.42, 0.3))
    assert [claim.holds for claim in pca_directions.nonlinear_claims(turned)][:2] == [False, False]
    # Well aligned and yet without the factors: the two no longer go together.
    apart = row((0.18, 0.4, 0.1), (0.54, 0.59, 0.3), (0.55, 0.7, 0.3))
    assert [claim.holds for claim in pca_directions.nonlinear_claims(apart)] == [True, False, False]


def test_pictures_are_judged_by_distance_and_gap():
    better = row((1.59, 0, 0.1), (1.83, 0, 0.5), (1.93, 0, 0.5))
    claim = pca_directions.image_claim("mnist", "", better, "")
    assert claim.holds
    assert "β-VAE 1.59±0.00, AE 1.83" in claim.measured
    assert "alignment gap β-VAE 0.10" in claim.measured
    further = row((1.95, 0, 0.1), (1.83, 0, 0.5), (1.93, 0, 0.5))
    assert not pca_directions.image_claim("mnist", "", further, "").holds
    wider = row((1.59, 0, 0.6), (1.83, 0, 0.5), (1.93, 0, 0.5))
    assert not pca_directions.image_claim("fashion", "", wider, "").holds
    pruned = row((1.59, 0, 0.1), (1.83, 0, 0.5), (1.93, 0, 0.5), unused=2)
    assert "unused" in pca_directions.image_claim("mnist", "", pruned, "").measured
    assert not pca_directions.image_claim("mnist", "", pruned, "").holds


def test_the_linear_table_holds_where_models_are_aligned():
    aligned = {1.0: Cell([0.5] * 3, [0.2, 0.5, 0.9], [0.0] * 3, [0.99] * 3)}
    aligned |= {1.2: cell(0.2, 0.76), 1.5: cell(0.01, 0.98), 2.0: cell(0.0, 0.99)}

    def judged(longer=(0.05, 0.9), **changed):
        found = {**aligned, **{float(key[1:].replace("_", ".")): c for key, c in changed.items()}}
        claims = pca_directions_degenerate.claims_of(found, cell(*longer), 100)
        return [claim.holds for claim in claims]

    assert judged() == [True] * 4
    # ρ = 2 not at rest: the order means nothing and is not asserted.
    assert judged(_2_0=cell(0.3, 0.6))[0] is False
    assert judged(_1_5=cell(0.01, 0.98, unused=1))[0] is False
    assert judged(longer=(0.2, 0.8))[3] is False
    assert judged(_1_5=cell(0.3, 0.7))[:2] == [False, False]
    # At ρ = 1: equal lengths, orthogonal columns, and factors found by luck alone.
    assert judged(_1_0=Cell([0.5] * 3, [0.2, 0.5, 0.9], [0.1] * 3, [0.99] * 3))[2] is False
    assert judged(_1_0=Cell([0.5] * 3, [0.2, 0.5, 0.9], [0.0] * 3, [0.7] * 3))[2] is False
    assert judged(_1_0=Cell([0.5] * 3, [0.5, 0.5, 0.5], [0.0] * 3, [0.99] * 3))[2] is False


def test_the_degenerate_case_runs_to_the_end(brief, tmp_path):
    claims = pca_directions_degenerate.run(tmp_path, progress=lambda line: None)
    assert [claim.name for claim in claims] == ["D1", "D2", "D3", "D4"]
    assert (tmp_path / "claims.json").is_file()


@pytest.mark.parametrize(
    ("gaps", "whole", "holds", "said"),
    [
        ([0.5, *[0.01] * 9], 10_000, True, "for 98.0% of 10000 steps: from step 200 of 1000 on"),
        ([0.01, 0.01], 100, False, "for 50.0% of 200 steps"),  # the first snapshot comes late
        ([0.01] * 20, 100, True, "for 95.0% of 2000 steps: from step 100 of 2000 on"),
        ([*[0.01] * 9, 0.04], 10_000, False, "not converged in 1000 steps: Δ_KL = 4.0%"),
        # Below 3 % only just before the end: who knows for how long.
        ([*[0.5] * 9, 0.01], 100_000, False, "for 99.0% of 100000 steps"),
        ([*[0.5] * 7, *[0.01] * 3], 100_000, True, "for 99.2% of 100000 steps"),
        ([*[0.5] * 7, *[0.01] * 3], 5000, False, "for 84.0% of 5000 steps"),
    ],
)
def test_the_regime_is_judged_by_the_step_at_which_it_settles(gaps, whole, holds, said):
    measured, held = pca_directions_regime.judge(gaps, 100, whole)
    assert held is holds
    assert said in measured


def test_the_regime_is_read_off_snapshots(monkeypatch, tmp_path):
    setup = pca_directions_regime.setup_for("linear", "small")
    assert setup.beta == 1e-4
    assert pca_directions_regime.setup_for("mnist", "paper").networks["likelihood"] == "bernoulli"
    setup = replace(setup, training={"steps": 300, "batch": 32, "rate": 3e-2})
    gaps, every = pca_directions_regime.gaps_of(setup, 2, "small")
    assert (len(gaps), every) == (30, 10)
    assert all(0 <= gap <= 1 for gap in gaps)
    assert gaps[0] > gaps[-1]


@pytest.mark.slow
def test_perturbed_sprites_run_to_the_end(monkeypatch, tmp_path):
    small = pca_directions_perturbed.SMALL
    plan = replace(
        small,
        seeds=2,
        data={**small.data, "position_x": [0, 8, 16, 24], "position_y": [8, 12, 16, 20]},
        training={**small.training, "steps": 4},
        rounds=2,
        scales=(1.5,),
        networks={**small.networks, "hidden": (8,)},
    )
    monkeypatch.setattr(pca_directions_perturbed, "SMALL", plan)
    claims = pca_directions_perturbed.run(tmp_path, progress=lambda line: None)
    assert [claim.name for claim in claims] == [f"P{k}" for k in range(1, 8)]
    assert claims[-1].holds
    assert "(0.05, 80) 0.79 with 0.3%" in claims[-1].measured
    assert len(zs.data.load(str(tmp_path / "perturbed" / "perturbed.npz"))) == 48


def test_perturbed_data_are_judged_by_their_numbers():
    def mig(score, factors=None, active=3):
        return Perturbed([score] * 4, [factors or [score] * 3] * 4, [active] * 4)

    cells = {("β-VAE", "original"): mig(0.5), ("β-VAE", "changed"): mig(0.1)}
    cells |= {("β-VAE", "noise"): mig(0.45)}
    cells |= {("AE", kind): mig(0.06) for kind in ("original", "changed", "noise")}

    def judged(gap=(-1.0, -3.0), largest=0.1, sweep=None, **changed):
        found = {**cells, **{("β-VAE", kind): c for kind, c in changed.items()}}
        claims = [pca_directions_perturbed.change_claim(largest, *gap)]
        claims += pca_directions_perturbed.table_claims(found)
        sweep = sweep or {1.5: mig(0.2)}
        claims += pca_directions_perturbed.detail_claims(found, sweep, ["scale", "x", "y"])
        return {claim.name for claim in claims if not claim.holds}

    assert judged() == set()
    assert judged(largest=0.1001) == {"P1"}
    assert judged(gap=(-3.0, -1.0)) == {"P1"}
    assert judged(changed=mig(0.48)) == {"P2", "P3"}
    assert judged(noise=mig(0.1)) == {"P3"}
    assert judged(changed=mig(0.1, [0.6, 0.0, 0.0])) == {"P5"}
    assert judged(sweep={1.5: mig(0.6)}) == {"P6"}
    # A recovery that comes with over-pruning does not count.
    assert judged(sweep={1.5: mig(0.6, active=2)}) == set()
    cells["AE", "original"] = mig(0.3)
    assert judged() == {"P4"}
