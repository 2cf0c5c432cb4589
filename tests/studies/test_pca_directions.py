"""The studies of alignment: that they run to the end, and that they can say no."""

import json
from dataclasses import replace

import pytest

import zscope as zs
from zscope import studies
from zscope.data.fetching import fetch
from zscope.studies import (
    pca_directions,
    pca_directions_degenerate,
    pca_directions_perturbed,
    pca_directions_regime,
)
from zscope.studies.pca_directions import Cell, setups

NAMES = ["pca-directions", "pca-directions-degenerate", "pca-directions-regime"]
NAMES += ["pca-directions-perturbed"]


@pytest.fixture
def brief(monkeypatch):
    """Every run of the studies cut down to a few steps."""
    plain = setups

    def short(scale):
        return {
            name: replace(
                setup, seeds=2, codes=4, training={**setup.training, "steps": 10, "batch": 32}
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


def test_the_table_of_alignment_runs_to_the_end_and_says_what_is_missing(brief, tmp_path):
    told = []
    claims = pca_directions.run(tmp_path, root=tmp_path / "none", progress=told.append)
    by_name = {claim.name: claim for claim in claims}
    assert list(by_name) == ["L1", "L2", "L3", "N1", "N2", "N3", "M1", "F1"]
    assert told[0].startswith("square-linear: β-VAE, 2 seeds, 10 steps")
    assert not by_name["L1"].holds  # nothing is aligned after 10 steps
    assert by_name["M1"].measured.startswith("not measured: mnist")
    assert not by_name["M1"].holds
    kept = json.loads((tmp_path / "claims.json").read_text())
    assert [claim["name"] for claim in kept["claims"]] == list(by_name)


def test_pictures_are_measured_where_they_are(brief, real_data, tmp_path):
    # Imported, for loading unpacks beside the files, and those are not ours to write to.
    fetch("mnist", root=tmp_path, from_dir=real_data)
    found = pca_directions.row(pca_directions.setups("small")["mnist"], tmp_path, lambda _: None)
    assert list(found) == ["β-VAE", "AE", "Σ", "random"]
    assert len(found["β-VAE"].distances) == 2
    assert found["β-VAE"].scores == []  # the digit is no factor


def test_the_linear_table_holds_where_models_are_aligned():
    def cell(distance, score):
        return Cell([distance] * 3, [score] * 3, [0.0] * 3, [0.5] * 3)

    aligned = {side: cell(*values) for side, values in zip(
        (1.0, 1.2, 1.5, 2.0), ((0.5, 0.5), (0.2, 0.76), (0.01, 0.98), (0.0, 0.99)), strict=True
    )}  # fmt: skip
    aligned[1.0] = Cell([0.5] * 3, [0.2, 0.5, 0.9], [0.0] * 3, [0.99] * 3)
    claims = pca_directions_degenerate.claims_of(aligned, cell(0.05, 0.9), 100)
    assert [claim.holds for claim in claims] == [True] * 4
    # ρ = 2 not at rest: the order means nothing and is not asserted.
    early = {**aligned, 2.0: cell(0.3, 0.6)}
    assert not pca_directions_degenerate.claims_of(early, cell(0.05, 0.9), 100)[0].holds
    assert not pca_directions_degenerate.claims_of(aligned, cell(0.2, 0.8), 100)[3].holds


def test_the_degenerate_case_runs_to_the_end(brief, tmp_path):
    claims = pca_directions_degenerate.run(tmp_path, progress=None)
    assert [claim.name for claim in claims] == ["D1", "D2", "D3", "D4"]
    assert (tmp_path / "claims.json").is_file()


@pytest.mark.parametrize(
    ("gaps", "published", "holds", "said"),
    [
        ([0.5, 0.01, 0.01, 0.01], 100, True, "for 75.0% of 400 steps: from step 200 on"),
        ([0.01, 0.01], 10, True, "from step 100 on"),
        ([0.01, 0.04], 10, False, "not settled in 200 steps: Δ_KL = 4.0%"),
        ([*[0.5] * 20, 0.01, 0.01], 375, False, "from step 2100 on"),
        ([*[0.5] * 20, 0.01, 0.01], 2000, True, "from step 2100 on"),
    ],
)
def test_the_regime_is_judged_by_the_step_at_which_it_settles(gaps, published, holds, said):
    measured, held = pca_directions_regime.judged(gaps, 100, published)
    assert held is holds
    assert said in measured


def test_the_regime_is_read_off_snapshots(monkeypatch, tmp_path):
    setup = pca_directions_regime.chosen("linear", "small")
    assert setup.beta == 1e-4
    setup = replace(setup, training={"steps": 300, "batch": 32, "rate": 3e-2})
    gaps, every = pca_directions_regime.gaps_of(setup, 2, "small", None)
    assert (len(gaps), every) == (30, 10)
    assert all(0 <= gap <= 1 for gap in gaps)
    assert gaps[0] > gaps[-1]


def test_perturbed_sprites_run_to_the_end(monkeypatch, tmp_path):
    small = pca_directions_perturbed.SMALL
    plan = replace(
        small,
        seeds=2,
        training={**small.training, "steps": 20},
        rounds=3,
        scales=(1.5,),
        networks={**small.networks, "hidden": (8,)},
    )
    monkeypatch.setattr(pca_directions_perturbed, "SMALL", plan)
    claims = pca_directions_perturbed.run(tmp_path, progress=None)
    assert [claim.name for claim in claims] == [f"P{k}" for k in range(1, 8)]
    assert claims[-1].holds
    assert "(0.05, 80) 0.79 with 0.3%" in claims[-1].measured
    assert len(zs.data.load(str(tmp_path / "perturbed" / "perturbed.npz"))) == 384
