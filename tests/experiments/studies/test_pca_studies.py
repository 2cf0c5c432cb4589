"""Studies of PCA directions: verdicts on made-up measurements, where they are known."""

import numpy as np
import pytest
import torch
from made_up import control_fails, control_untried

import zscope as zs
from zscope.assays.alignment.cartesian_or_polar import cartesian_or_polar
from zscope.experiments.studies import (
    ima,
    load,
    pca_alignment,
    pca_beta_search,
    pca_degenerate,
    pca_regime,
)
from zscope.experiments.studies import pca_restarts as restarts
from zscope.experiments.studies.judging import (
    FAILS,
    HOLDS,
    UNDECIDED,
    bootstrap,
    bootstrap_correlation,
    nested_interval,
)
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.shared import linear_pca
from zscope.experiments.studies.shared.pca import counts, equal_pairs
from zscope.experiments.studies.study import Results
from zscope.factors import Factors
from zscope.tables.statistics import rank_correlation

STUDIES = ["pca-alignment", "pca-regime", "pca-restarts", "pca-beta-search", "ima"]


def made_up(rows, **once):
    """Results of each_run measurements that are part of the rows, and of once-measures."""
    named = [{"run": str(k), **row} for k, row in enumerate(rows)]
    return Results("made up", "small", named, {key: {"": value} for key, value in once.items()})


def verdicts(claims):
    return {(claim.row, claim.name): claim.verdict for claim in claims}


@pytest.mark.parametrize("name", STUDIES)
def test_without_measurements_every_claim_is_undecided(name):
    study = load(name)
    claims = list(study.claims(made_up([])))
    assert claims
    assert {claim.verdict for claim in claims} == {UNDECIDED}
    assert {claim.row for claim in claims} <= {row.id for row in study.rows}
    assert list(study.tables(made_up([])))


@pytest.mark.parametrize("name", STUDIES)
def test_every_row_has_a_claim(name):
    study = load(name)
    assert {row.id for row in study.rows} == {each.row for each in study.claims(made_up([]))}


def linear_rows(gap, unused=0):
    """β-VAEs with a DtO around .01, and others that are larger by `gap`."""
    for seed in range(20, 32):
        wiggle = 0.001 * (seed % 5)
        common = {"group": "linear", "seed": seed, "active": 2, "ds": 0.7, "axes": 0.9}
        own = {"model": "beta-vae", "beta": 0.05, "turned": 1.05 + wiggle, "angle": 0.1}
        yield {**common, **own, "dto": 0.01 + wiggle, "relative": 0.02 + wiggle, "ds": 0.98,
               "axes": 0.995 + wiggle / 10}  # fmt: skip
        for model in ("ae", "beta-vae-full"):
            yield {**common, "model": model, "dto": 0.01 + gap + 2 * wiggle, "angle": 0.01,
                   "active": 2 - unused}  # fmt: skip


def test_alignment_is_judged_both_ways():
    theory = {"axes": 1.0, "angle": 0.0, "order": 1.0, "collapse": [0.67, 0.17]}
    better = verdicts(pca_alignment.claims(made_up(linear_rows(0.4), closed_form=theory)))
    assert better["C-T3.3 lin", "c1"] == better["C-T3.3 lin", "c2"] == HOLDS
    assert better["C-Th2", "c1"] == better["C-Th2", "c3"] == HOLDS
    worse = verdicts(pca_alignment.claims(made_up(linear_rows(-0.4), closed_form=theory)))
    assert worse["C-T3.3 lin", "c1"] == FAILS


def test_models_with_other_latents_in_use_are_not_compared():
    rows = made_up(linear_rows(0.4, unused=1))
    assert verdicts(pca_alignment.claims(rows))["C-T3.3 lin", "c1"] == UNDECIDED
    one = Rows([{"seed": 1, "active": 2, "dto": 0.5}, {"seed": 2, "active": 2, "dto": 0.5}])
    two = Rows([{"seed": 1, "active": 2, "dto": 0.2}, {"seed": 2, "active": 1, "dto": 0.2}])
    assert equal_pairs(one, two, "dto") == {1: pytest.approx(0.3)}
    assert counts([*one, *two]) == "2 (×3), 1 (×1)"


def test_the_interval_over_groups_is_wider_than_that_over_all_values():
    random = np.random.default_rng(0)
    groups = {k: k + 0.01 * random.normal(size=8) for k in range(6)}
    interval = nested_interval(groups)
    assert interval.value == pytest.approx(2.5, abs=0.01)
    assert interval.n == 6
    # six groups with a spread of 1.7: the values inside of each hardly matter
    assert interval.high - interval.low == pytest.approx(2 * 2.57 * 1.87 / 6**0.5, rel=0.1)
    same = nested_interval({k: random.normal(size=8) for k in range(6)})
    assert same.low < 0 < same.high
    assert nested_interval({}) is None


def test_all_draws_at_once_are_those_of_the_bootstrap():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 9)).round(1)
    slow = bootstrap([[pair] for pair in zip(first, second, strict=True)],
                     lambda pairs: rank_correlation(*zip(*pairs, strict=True)))  # fmt: skip
    quick = bootstrap_correlation(first, second)
    assert (quick.value, quick.low, quick.high, quick.n) == pytest.approx(
        (slow.value, slow.low, slow.high, slow.n)
    )
    assert bootstrap_correlation(first, np.ones(9)) is None


def test_a_gap_settles_only_if_it_stays_small():
    steps = [1, 2, 3, 4]
    assert pca_regime.settling_step(steps, [0.5, 0.02, 0.02, 0.01]) == 2
    assert pca_regime.settling_step(steps, [0.5, 0.02, 0.05, 0.01]) == 4
    assert pca_regime.settling_step(steps, [0.01, 0.01, 0.01, 0.03]) is None
    assert pca_regime.settling_step(steps, [0.01, 0.01, 0.01, None]) is None


def sprite_rows(sign, plain=0):
    random = np.random.default_rng(0)
    for seed in range(20, 60):
        for model, slope in (("beta-vae", sign), ("ae", plain)):
            dto = random.uniform(size=3)
            ds = 0.5 + slope * 0.3 * (dto - 0.5) + 0.03 * random.normal(size=3)
            yield {"group": "sprites", "model": model, "seed": seed, "lengths": [6, 18, 30],
                   "dto_over_time": list(dto), "ds_over_time": list(ds),
                   "mig_over_time": list(ds), "active_over_time": [3, 3, 3], "mig": ds[2],
                   "active": 3, "latents": 3}  # fmt: skip


def test_restarts_that_are_aligned_must_disentangle_better():
    falls = verdicts(restarts.claims(made_up(sprite_rows(-1))))
    rises = verdicts(restarts.claims(made_up(sprite_rows(1))))
    both = verdicts(restarts.claims(made_up(sprite_rows(-1, plain=-1))))
    assert falls["C-F3.4", "c1"] == HOLDS
    assert rises["C-F3.4", "c1"] == FAILS
    assert both["C-F3.4", "c1"] == UNDECIDED  # autoencoders show it as well
    assert falls["C-F4.8", "c1"] == UNDECIDED  # no changed data


def test_few_autoencoders_may_show_the_correlation_as_well():
    rows = [row for row in sprite_rows(-1) if row["model"] != "ae" or row["seed"] < 26]
    (claim,) = (each for each in restarts.claims(made_up(rows)) if each.row == "C-F3.4")
    words = "among autoencoders, which follow no directions, DS falls less with DtO than among "
    assert {part.verdict_text for part in claim.parts} == {control_fails(f"{words}β-VAEs")}


def shuffled(slope, number, draws=100):
    """How many of the made-up experiments pass the control of shuffled pairs."""
    rng = np.random.default_rng(0)
    passed = 0
    for _ in range(draws):
        dto = rng.normal(size=number)
        ds = slope * dto + np.sqrt(1 - slope**2) * rng.normal(size=number)
        passed += restarts.shuffled_pairs(list(dto), list(ds)).passed
    return passed


def test_one_unlucky_order_of_the_restarts_does_not_fail_the_control():
    assert shuffled(-0.7, 40) >= 99
    assert shuffled(0.0, 40) <= 12
    assert shuffled(0.7, 40) == 0


def test_random_pairs_of_too_few_or_equal_restarts_do_not_pass():
    assert restarts.shuffled_pairs([1, 2, 3, 4], [3, 4, 1, 2]).passed is False
    assert restarts.shuffled_pairs([1, 2], [2, 1]).passed is None
    assert restarts.shuffled_pairs([1, 2, 3, 4], [5, 5, 5, 5]).passed is None


@pytest.mark.parametrize(("fallen", "verdict"), [(0.2, HOLDS), (0.5, UNDECIDED)])
def test_restarts_are_spared_only_where_scores_fall(fallen, verdict):
    rows = [{"group": group, "model": "beta-vae", "seed": 20 + k, "mig": mig + 0.001 * k,
             "active": 3, "latents": 3}
            for group, level, count in (("sprites", 0.5, 40), ("changed", fallen, 24))
            for k in range(count)
            for mig in [0.9 if k % 3 == 0 else level]]  # fmt: skip
    assert verdicts(restarts.claims(made_up(rows)))["C-F4.8", "c1"] == verdict


def room_rows(best, worst, number=24):
    for k in range(number):
        middle = (best, worst, "neither")[k % 3]
        chart = best if k >= number - 4 else worst if k < 4 else middle
        yield {"group": "rooms", "model": "beta-vae", "seed": 20 + k, "mig": 0.01 * k,
               "active": 3, "latents": 3, "chart": chart, "mig_of": {"wall_hue": 0.1}}  # fmt: skip


PUBLISHED = sum(group == "rooms" for group, _ in load("pca-restarts").plan("paper"))


@pytest.mark.parametrize("number", [8, PUBLISHED, 24])
def test_charts_of_the_best_and_the_worst_four(number):
    rows = list(room_rows("cartesian", "polar, hue is the angle", number))
    seen = verdicts(restarts.claims(made_up(rows, traversals={"turned": "neither"})))
    for row in ("C-F4.10", "C-F4.11"):
        assert seen[row, "c1"] == UNDECIDED  # four of four are a share above .4, no more
        assert seen[row, "c2"] == HOLDS
    looks_polar = verdicts(restarts.claims(made_up(rows, traversals={"turned": "cartesian"})))
    assert looks_polar["C-F4.10", "c2"] == UNDECIDED
    other = list(room_rows("neither", "cartesian", number))
    assert verdicts(restarts.claims(made_up(other)))["C-F4.10", "c1"] == FAILS


@pytest.mark.parametrize("count", [0, 1, 4, 5, 7])
def test_too_few_restarts_decide_nothing_of_charts(count):
    rows = list(room_rows("cartesian", "polar, hue is the angle"))[:count]
    few = "1 restart" if count == 1 else f"{count} restarts"
    claims = [each for each in restarts.claims(made_up(rows)) if each.row in ("C-F4.10", "C-F4.11")]
    assert {each.verdict_text for each in claims} == {
        f"undecided ({few} with all latents in use; at least 8 are needed)"
    }
    assert {each.needs for each in claims} == {
        "a larger --seeds, so that 8 restarts have all latents in use"
    }
    assert "nan" not in " ".join(f"{each.statistic} {each.measured}" for each in claims)


@pytest.mark.parametrize(("group", "other"), [("sprites", "changed"), ("changed", "original")])
def test_restarts_on_one_version_of_the_data_are_not_compared(group, other):
    rows = [{"group": group, "model": "beta-vae", "seed": seed, "mig": 0.01 * seed, "active": 3,
             "latents": 3} for seed in range(20, 44)]  # fmt: skip
    claims = {(each.row, each.name): each for each in restarts.claims(made_up(rows))}
    claim = claims["C-F4.8", "c1"]
    assert claim.verdict_text == f"undecided (no restart on {other} data was measured)"
    assert claim.measured == "not measured"


def test_a_share_has_the_exact_binomial_interval():
    assert restarts._share([]) is None
    none = restarts._share([0.0] * 4)
    assert (none.value, none.low, none.high) == pytest.approx((0, 0, 1 - 0.025**0.25))
    some = restarts._share([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert (some.low, some.high) == pytest.approx((0.0252, 0.5561), abs=1e-4)  # as tabulated


def test_a_turned_grid_is_no_polar_chart():
    hue, scale, turn = zs.data.grid_factors([10, 3, 15]).T
    values = np.stack([hue, scale, turn], axis=1).astype(float)
    names = ("wall_hue", "scale", "orientation")
    factors = Factors(values, names, ("ordinal", "ordinal", "ordinal"))
    noise = 0.03 * np.random.default_rng(0).normal(size=(450, 3))
    u, v, s = (hue - 4.5) / 3, (turn - 7) / 4.5, scale - 1
    angle, radius = 2 * np.pi * hue / 10, 0.3 + turn / 10
    other, size = 2 * np.pi * turn / 15, 0.3 + hue / 8
    planes = {
        "cartesian": (u, v),
        "neither": (u - v, u + v),
        "polar, hue is the angle": (radius * np.cos(angle), radius * np.sin(angle)),
        "polar, orientation is the angle": (size * np.cos(other), size * np.sin(other)),
    }
    for name, (x, y) in planes.items():
        codes = np.stack([x, y, s], axis=1) + noise
        charts = cartesian_or_polar(codes, factors)
        assert restarts.name_chart(charts, codes, factors) == name


def test_latents_are_pruned_where_the_closed_form_says():
    assert [pca_beta_search._remaining(beta) for beta in (0.1, 0.3, 1.0)] == [2, 1, 0]
    rows = [
        {"group": "linear", "seed": seed, "beta": beta, "ds": 0.99, "count": count}
        for seed in range(20, 28)
        for beta, count in ((0.05, 2), (0.3, 1), (1.0, 0))
    ]
    assert verdicts(pca_beta_search.claims(made_up(rows)))["C-F3.7", "c2"] == HOLDS
    wrong = [{**row, "count": 2} for row in rows]
    assert verdicts(pca_beta_search.claims(made_up(wrong)))["C-F3.7", "c2"] == FAILS


def curve(gaps, contrast):
    return [{"gap": [g * (1 + 0.001 * k) for g in gaps], "contrast": contrast} for k in range(8)]


def test_the_gap_must_become_the_contrast_and_vanish_without_one():
    good = dict.fromkeys(ima.SHEARED, curve([0.1, 0.2, 0.3, 0.35, 0.36], 0.37))
    none = dict.fromkeys(ima.CONTROLS, curve([0.01, 0.005, 0.001, 0.001, 0.0001], 0.0))
    seen = verdicts(ima.claims(made_up([], curves={**good, **none})))
    assert seen["C-F7.6", "c1"] == seen["C-F7.6", "c2"] == HOLDS
    gap = dict.fromkeys(ima.CONTROLS, curve([0.1] * 5, 0.0))
    assert verdicts(ima.claims(made_up([], curves={**good, **gap})))["C-F7.6", "c2"] == UNDECIDED
    far = dict.fromkeys(ima.SHEARED, curve([0.1, 0.1, 0.1, 0.1, 0.1], 0.37))
    assert verdicts(ima.claims(made_up([], curves={**far, **none})))["C-F7.6", "c2"] == FAILS


def test_settling_is_timed_between_snapshots():
    # Log Δ_KL falls evenly from 12 % at step 100 to .75 % at 200: 3 % is half way.
    assert pca_regime.crossing([100, 200, 300], [0.12, 0.0075, 0.001]) == pytest.approx(150)
    assert pca_regime.crossing([100, 200], [0.01, 0.001]) == 50
    assert pca_regime.crossing([100, 200], [0.01, 0.1]) == 200
    assert pca_regime.crossing([100, 200], [None, 0.01]) == 150


def test_a_gap_must_settle_in_every_seed():
    rows = [{"seed": seed, "place": "linear", "exact": True, "steps_measured": [0, 100],
             "late": 0.01 + 0.001 * (seed % 3), "untrained": 0.5, "settled": 60}
            for seed in range(20, 28)]  # fmt: skip

    def settles():
        whole = next(each for each in pca_regime.claims(made_up(rows)) if each.name == "c1")
        return next(part.verdict_text for part in whole.parts if part.measured != "not measured")

    assert settles() == HOLDS
    rows[3]["settled"] = None
    assert settles() == control_fails("Δ_KL settles below 3 % in every seed")


SPREADS = "at ρ = 1 DS spreads over seeds by more than .3"


@pytest.mark.parametrize(
    ("spread", "seeds", "verdict"),
    [
        (0.4, 8, HOLDS),
        (0.2, 8, control_fails(SPREADS)),
        (0.4, 1, control_untried(SPREADS)),
        (0.4, 0, control_untried(SPREADS)),
    ],
)
def test_the_rotation_of_a_square_is_arbitrary_only_if_scores_spread(spread, seeds, verdict):
    rows = [{"group": "squares", "seed": seed, "rho": 1.0, "ratio": 0.99 + 0.001 * (seed % 3),
             "gap": 0.001, "ds": 0.5 + spread * (seed % 2) if seed < 20 + seeds else None,
             "angle": 11.0 * (seed - 20)}
            for seed in range(20, 28)]  # fmt: skip
    seen = {each.name: each for each in pca_degenerate.claims(made_up(rows))
            if each.row == "C-T3.4"}  # fmt: skip
    assert seen["c3"].verdict_text == verdict


@pytest.mark.parametrize(
    ("values", "reason"),
    [(None, "ρ = 2 was not measured"), ({"dto": 0.2, "unused": 0}, "ρ = 2 has not converged"),
     ({"dto": 0.01, "unused": 1}, "some latents are unused")],
)  # fmt: skip
def test_squares_that_are_not_at_rest_are_not_judged(values, reason):
    usual = {"group": "squares", "angle": 0.1, "ratio": 1.0, "unused": 0}
    rows = [{**usual, "rho": rho, "seed": seed, "ds": rho, "dto": 1 / rho + seed / 1e3}
            for rho in (1.0, 1.2, 1.5) for seed in range(20, 28)]  # fmt: skip
    if values:
        rows += [{**usual, "rho": 2.0, "seed": seed, "ds": 2.0, **values} for seed in range(20, 28)]
    seen = {each.name: each for each in pca_degenerate.claims(made_up(rows))
            if each.row == "C-T3.4"}  # fmt: skip
    assert seen["c1"].verdict_text == f"undecided ({reason})"


def test_hits_among_the_best_are_judged_by_an_urn():
    # All four hits among 24 are the four best: 1 / (24 choose 4).
    assert restarts._more_often([1.0] * 4, [0.0] * 20).value == pytest.approx(1 / 10626)
    assert restarts._more_often([1.0] * 4, [1.0] * 20).value == pytest.approx(1)
    assert restarts._more_often([], [1.0]) is None


def test_the_plane_of_a_linear_decoder():
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) @ torch.eye(2, 3)

    class Linear(zs.Autoencoder):
        latents = 2

        def __init__(self, W):
            super().__init__()
            self.W = W

        def decode(self, z):
            return z @ self.W + 1.0

    within = torch.tensor([[1.0, 1, 0], [0, 2, 0]])
    tilted = torch.tensor([[1.0, 0, 0], [0, 1, 1]])  # by 45 degrees about the first axis
    assert linear_pca._decoder_angle(Linear(within), x) == pytest.approx(0, abs=1e-2)
    assert linear_pca._decoder_angle(Linear(tilted), x) == pytest.approx(45, abs=1e-2)
