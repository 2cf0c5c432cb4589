"""Claims about the polarised regime on made-up measurements whose verdicts are known."""

import numpy as np
import pytest

from zscope.experiments import studies
from zscope.experiments.studies import regime_correlations, regime_truncation, regime_types
from zscope.experiments.studies.judging import FAILS, HOLDS, UNDECIDED
from zscope.experiments.studies.study import Results

SEEDS = range(20, 26)
STUDIES = ["ivae-histograms", "regime-types", "regime-mean-sampled", "regime-truncation",
           "regime-correlations"]  # fmt: skip


def results(study, group, rows):
    runs, values = [], {}
    for number, (settings, measured) in enumerate(rows):
        usual = {"data": "sprites?resolution=16", "reconstruction_weight": 16}
        runs.append({"run": f"r{number}", "group": group, **usual, **settings})
        values[f"r{number}"] = measured
    return Results(study, "small", runs, {"measure": values})


def verdict(study, measured, row, name):
    claims = {(claim.row, claim.name): claim for claim in study.STUDY.claims(measured)}
    return claims[row, name]


@pytest.mark.parametrize("name", STUDIES)
def test_without_measurements_every_claim_is_undecided_and_all_is_drawn(name):
    study = studies.load(name)
    runs = [
        {"run": f"r{number}", "group": group, **{key.removeprefix("options."): value
                                                 for key, value in run.items()}}
        for number, (group, run) in enumerate(study.plan("small", 1))
    ]  # fmt: skip
    empty = Results(name, "small", runs)
    assert {claim.verdict for claim in study.claims(empty)} == {UNDECIDED}
    for table in study.tables(empty):
        assert table.cells
    import matplotlib.pyplot as plt

    list(study.figures(empty))
    plt.close("all")


@pytest.mark.parametrize("name", STUDIES)
def test_rows_of_claims_are_rows_of_the_study(name):
    study = studies.load(name)
    known = {row.id for row in study.rows}
    assert {claim.row for claim in study.claims(Results(name, "small", []))} <= known


class TestCorrelations:
    """Latents 0 to 2 are active, 3 and 4 passive since the 20th of 60 snapshots."""

    def tracked(self, *, before, after):
        rng = np.random.default_rng(0)
        rows = []
        for seed in SEEDS:
            matrix = 0.01 * rng.standard_normal((60, 5, 5))
            matrix[:20, :3, 3:] += before * rng.standard_normal((20, 3, 2))
            matrix[20:, :3, 3:] += after * rng.standard_normal((40, 3, 2))
            measured = {
                "types": ["active"] * 3 + ["passive"] * 2, "counts": [5, 6, 5, 40, 41 - seed % 2],
                "stages": list(range(100, 6_100, 100)),
                "since": {"3": 20, "4": 20}, "correlations": matrix,
            }  # fmt: skip
            rows.append(({"seed": seed}, measured))
        return results("regime-correlations", "tracked", rows)

    def test_holds_where_passive_latents_vary_more_than_before(self):
        measured = self.tracked(before=0.05, after=0.4)
        assert verdict(regime_correlations, measured, "D-F6.10", "c1").verdict == HOLDS
        assert verdict(regime_correlations, measured, "D-F6.11", "c1").verdict == HOLDS

    def test_variation_from_the_beginning_is_no_evidence(self):
        measured = self.tracked(before=0.4, after=0.4)
        claim = verdict(regime_correlations, measured, "D-F6.11", "c1")
        assert claim.verdict == UNDECIDED
        assert "before they became passive" in claim.reason

    def test_fails_where_they_vary_less(self):
        measured = self.tracked(before=0.0, after=0.0)
        flipped = {key: {**row, "counts": [40, 41, 40, 5, 6]}
                   for key, row in measured.values["measure"].items()}  # fmt: skip
        measured.values["measure"] = flipped
        assert verdict(regime_correlations, measured, "D-F6.10", "c1").verdict == FAILS


class TestTruncation:
    def noisy(self, *, used, random):
        """TC(M) - TC(Z) is 3 for all latents, `used` without passive ones."""
        rng = np.random.default_rng(0)

        def pair(gap):
            noise = 0.01 * rng.standard_normal()
            return {"M": {"tc": 1 + gap + noise, "tc_floor": 0.0}, "Z": {"tc": 1, "tc_floor": 0.0}}

        rows = [
            (
                {"seed": seed, "model": "beta-tcvae"},
                {"strength": 4.0, "passive": 4, "mixed": 1, "active": 5,
                 "nats": {"full": pair(3.0), "used": pair(used)},
                 "random": {"tc": random, "mi": None}},
            )
            for seed in SEEDS
        ]  # fmt: skip
        return results("regime-truncation", "noisy", rows)

    def test_holds_where_passive_latents_make_the_difference(self):
        measured = self.noisy(used=0.05, random=2.0)
        assert verdict(regime_truncation, measured, "D-F6.8", "c1").verdict == HOLDS
        assert verdict(regime_truncation, measured, "D-F6.8", "c2").verdict == HOLDS

    def test_any_latents_would_do(self):
        measured = self.noisy(used=0.05, random=0.0)
        part = verdict(regime_truncation, measured, "D-F6.8", "c1").parts[0]
        assert part.verdict == UNDECIDED
        assert "random" in part.reason

    def test_fails_where_others_differ_as_well(self):
        measured = self.noisy(used=1.5, random=3.0)
        assert verdict(regime_truncation, measured, "D-F6.8", "c1").verdict == HOLDS
        assert verdict(regime_truncation, measured, "D-F6.8", "c2").verdict == FAILS

    def test_models_without_passive_latents_are_left_out(self):
        measured = self.noisy(used=0.05, random=2.0)
        for row in measured.values["measure"].values():
            row["passive"] = 0
        part = verdict(regime_truncation, measured, "D-F6.8", "c1").parts[0]
        assert part.interval is None
        assert "6 of 6 models have none" in part.statistic
        assert part.reason == "no model has passive latents"


class TestCurve:
    def betas(self, distort):
        """On the convex curve D = 1 / R, whose slope is -β / 16 where R = 4 / sqrt(β)."""
        rng = np.random.default_rng(0)
        rows = []
        for seed in SEEDS:
            for beta in (1, 2, 4, 8, 16):
                rate = 4 / beta**0.5
                distortion = 1 / rate + distort(beta) + 1e-4 * rng.standard_normal()
                measured = {"strength": float(beta), "rate_nats": rate, "distortion": distortion}
                rows.append(({"seed": seed, "beta": beta, "model": "beta-vae"}, measured))
        return results("regime-types", "beta", rows)

    def test_optimal_models_violate_nothing(self):
        claim = verdict(regime_types, self.betas(lambda beta: 0.0), "D-F4.1", "c1")
        assert claim.interval.value == 0
        assert claim.verdict == HOLDS

    def test_a_model_above_its_neighbours_is_noticed(self):
        claim = verdict(
            regime_types, self.betas(lambda beta: 2.0 * (beta in (2, 8))), "D-F4.1", "c1"
        )
        assert claim.verdict == FAILS
