"""Verdicts on made-up measurements where the answer is known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from zscope.experiments.studies.judging import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Control,
    Expect,
    Interval,
    above,
    below,
    bootstrap,
    claim,
    claim_of_parts,
    compare_groups,
    mean_interval,
    rank_correlation_interval,
    within,
)

DRAWS = "zscope.experiments.studies.judging.DRAWS"
RISING = [1.0, 1.1, 0.9, 1.05]
ABOVE_ZERO = above(0)


def judge(values, expect=ABOVE_ZERO, **about):
    seeds = dict(enumerate(values, 20)) if isinstance(values, list) else values
    return claim("A-T1", "c1", "it rises", source="table 1", expect=expect, values=seeds,
                 statistic="slope", **about)  # fmt: skip


@pytest.mark.parametrize(
    ("values", "expect", "verdict"),
    [
        (RISING, above(0), HOLDS),
        (RISING, below(0), FAILS),
        ([-value for value in RISING], above(0), FAILS),
        ([1.0, -1.1, 0.9, -1.05], above(0), UNDECIDED),
        (RISING, above(2), FAILS),
        ([0.01, -0.02, 0.015, 0.0], within(0.1), HOLDS),
        ([0.5, 0.52, 0.48, 0.51], within(0.1), FAILS),
        ([0.09, 0.12, 0.08, 0.11], within(0.1), UNDECIDED),
        ([-0.5, -0.52, -0.48, -0.51], within(0.1), FAILS),
    ],
)
def test_the_verdict_follows_the_interval(values, expect, verdict):
    assert judge(values, expect).verdict == verdict


def test_one_seed_that_goes_the_other_way_leaves_four_undecided():
    assert judge([1.0, 1.2, 0.9, -0.4]).verdict == UNDECIDED


def test_fewer_than_four_seeds_are_not_judged():
    three = judge(RISING[:3])
    assert (three.verdict, three.reason) == (UNDECIDED, "3 seeds; at least 4 are needed")
    assert judge(RISING[:1]).reason == "1 seed; at least 4 are needed"


def test_equal_values_show_no_spread_until_there_are_six():
    expected = "undecided (5 values show no spread; at least 6 are needed)"
    assert judge([1.0] * 5).verdict_text == expected
    assert judge([1.0] * 6).verdict == HOLDS


@pytest.mark.parametrize("value", [1.0, -1.0, 0.25])
def test_an_interval_without_length_is_judged_like_equal_values(value):
    verdicts = [judge(Interval(value, value, value, n)).verdict for n in (5, 6, 4000)]
    assert verdicts == [UNDECIDED, *[HOLDS if value > 0 else FAILS] * 2]


def test_a_control_that_fails_turns_holds_into_undecided_and_nothing_else():
    broken = Control("the untrained model stays below", False, "0.9")
    untried, passed = Control("it could be tried", None), Control("it passes", True)
    assert judge(RISING, controls=[passed]).verdict == HOLDS
    expected = "undecided (control failed; expected: the untrained model stays below)"
    assert judge(RISING, controls=[passed, broken]).verdict_text == expected
    expected = "control could not be tried: it could be tried"
    assert judge(RISING, controls=[untried]).reason == expected
    assert judge(RISING, below(0), controls=[broken]).verdict == FAILS


def test_an_interval_that_is_none_reads_not_measured_in_a_control():
    control = Control("the untrained model is far", None, f"DtO {None}, τ {mean_interval([])}")
    assert control.measured == "DtO not measured, τ not measured"
    assert Control("it is far", True, f"{Interval(0.5, 0.25, 1, 8)}").measured == (
        "0.5 [0.25, 1], n = 8"
    )


def test_no_zero_has_a_sign():
    assert [str(below(-0.0)), str(above(0)), str(below(-0.1))] == [
        "below 0",
        "above 0",
        "below -0.1",
    ]
    assert str(Interval(-0.0, -1.0, 0.0, 8)) == "0 [−1, 0], n = 8"


def test_what_a_claim_presupposes_is_its_reason():
    claimed = judge(RISING, presupposes="two latents have collapsed")
    assert claimed.verdict_text == "undecided (two latents have collapsed)"


def test_undefined_values_are_left_out_and_none_at_all_is_undecided():
    values = {20: 1.0, 21: None, 22: float("nan"), 23: 1.1, 24: 0.9, 25: 1.0}
    assert judge(values).values == {"20": 1.0, "23": 1.1, "24": 0.9, "25": 1.0}
    assert judge([]).verdict_text == "undecided (not measured)"
    assert judge(None).verdict == UNDECIDED


def test_half_widths_are_those_of_the_bootstrap_times_the_factor_for_few_seeds():
    values = np.random.default_rng(1).normal(size=4)
    picks = np.random.default_rng([0, 4]).integers(4, size=(10_000, 4))
    low, high = np.quantile(values[picks].mean(1), [0.025, 0.975])
    factor = np.sqrt(4 / 3) * student.ppf(0.975, 3) / 1.96
    assert factor == pytest.approx(1.87, abs=0.01)
    interval = mean_interval(list(values))
    assert interval.value - interval.low == pytest.approx(factor * (values.mean() - low))
    assert interval.high - interval.value == pytest.approx(factor * (high - values.mean()))


@pytest.mark.parametrize("count", [4, 8])
def test_intervals_of_normal_values_cover_their_mean(count):
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        interval = mean_interval(list(rng.normal(1.0, 1.0, count)))
        hits += interval.low <= 1 <= interval.high
    assert 0.90 <= hits / 200 <= 0.99  # a plain bootstrap of four has 80 %


def test_seeds_with_many_rows_stay_together():
    # Ten copies of each of four values count as four, not as forty.
    values = [0.0, 1.0, 2.0, 3.0]
    copied = bootstrap([[value] * 10 for value in values], lambda rows: float(np.mean(rows)))
    single = mean_interval(values)
    assert copied.n == 4
    assert (copied.low, copied.high) == pytest.approx((single.low, single.high), abs=0.05)


def test_a_statistic_that_is_mostly_undefined_has_no_interval():
    assert bootstrap([[1], [2], [3], [4]], lambda rows: None if 1 in rows else 1.0) is None
    assert bootstrap([], lambda rows: 1.0) is None


def test_groups_without_common_seeds_are_compared_by_their_means():
    interval = compare_groups([0.0, 0.1, -0.1, 0.05], RISING)
    assert interval.value == pytest.approx(1.0)
    assert interval.low > 0.5
    assert compare_groups([1.0], [2.0, 3.0]) is None


def test_a_claim_over_several_cells_needs_all_of_them():
    holds, fails = judge(RISING), judge([-value for value in RISING])
    either = judge([1.0, -1.0, 1.0, -1.0])

    def together(*parts):
        return claim_of_parts("A-T1", "c2", "everywhere", parts, source="table 1")

    assert together(holds, holds).verdict == HOLDS
    assert together(holds, fails).verdict == FAILS
    assert together(holds, either).verdict == UNDECIDED
    assert together().verdict_text == "undecided (not measured)"
    assert len(together(holds, fails).to_dict()["parts"]) == 2


def test_what_several_parts_need_is_said_once():
    either = judge([1.0, -1.0, 1.0, -1.0], needs="longer training")
    other = judge([1.0, -1.0, 1.0, -1.0], needs="a larger β")
    parts = [replace(each, name=name) for each, name in ((either, "ae"), (other, "wae"),
                                                         (either, "vae"))]  # fmt: skip
    needs = claim_of_parts("A-T1", "c2", "everywhere", parts, source="table 1").needs
    assert needs == f"ae, vae: {either.needs}; wae: {other.needs}"


@pytest.mark.parametrize(
    ("held", "open_", "expected"),
    [
        (0, 1, "its only part is undecided"),
        (0, 2, "both parts are undecided"),
        (0, 3, "all 3 parts are undecided"),
        (1, 1, "1 of 2 parts holds, 1 is undecided"),
        (1, 2, "1 of 3 parts holds, 2 are undecided"),
        (2, 3, "2 of 5 parts hold, 3 are undecided"),
        (4, 1, "4 of 5 parts hold, 1 is undecided"),
    ],
)
def test_parts_are_counted_in_good_english(held, open_, expected):
    parts = [judge(RISING)] * held + [judge([1.0, -1.0, 1.0, -1.0])] * open_
    assert claim_of_parts("A-T1", "c2", "everywhere", parts, source="table 1").reason == expected


def test_an_interval_that_touches_the_limit_decides_nothing():
    edge = Interval(0.5, 0.0, 1.0, 8)
    assert Expect("above", 0.0).verdict(edge) == UNDECIDED


@pytest.mark.parametrize("levels", [2, 50])  # many ties, few
def test_the_interval_of_a_rank_correlation_is_that_of_the_bootstrap(levels, monkeypatch):
    from zscope.tables.statistics import rank_correlation

    monkeypatch.setattr(DRAWS, 400)
    random = np.random.default_rng(levels)
    clusters = [
        [(float(random.normal()), float(random.integers(levels))) for _ in range(size)]
        for size in (3, 1, 4, 2, 3)
    ]
    expected = bootstrap(clusters, lambda pairs: rank_correlation(*zip(*pairs, strict=True)))
    interval = rank_correlation_interval(clusters)
    assert (interval.value, interval.low, interval.high) == pytest.approx(
        (expected.value, max(-1, expected.low), min(1, expected.high)), abs=1e-9
    )
    assert interval.n == expected.n == 5
    assert rank_correlation_interval([[(1.0, 2.0)] * 3, [(1.0, 3.0)]]) is None
    assert rank_correlation_interval([]) is None


def test_the_interval_of_a_rank_correlation_stays_in_its_range(monkeypatch):
    monkeypatch.setattr(DRAWS, 500)
    random, cut = np.random.default_rng(3), 0
    for _ in range(30):
        clusters = [[tuple(map(float, random.normal(size=2))) for _ in range(3)] for _ in range(4)]
        interval = rank_correlation_interval(clusters)
        assert -1 <= interval.low <= interval.value <= interval.high <= 1
        low, high = interval.uncut or (interval.low, interval.high)
        whole = Interval(interval.value, low, high, interval.n)
        for limit in (-0.9, -0.3, 0.0, 0.3, 0.9):
            for expect in (above(limit), below(limit), within(abs(limit))):
                first, second = judge(interval, expect), judge(whole, expect)
                assert (first.verdict, first.needs) == (second.verdict, second.needs)
        cut += interval.uncut is not None
    assert cut > 5


@pytest.mark.parametrize(
    ("interval", "expect", "needed"),
    [
        # The half-width 2 must become 1, the distance to the limit: four times the seeds.
        (Interval(1.0, -1.0, 3.0, 5), above(0), "about 20 seeds"),
        (Interval(-1.0, -2.0, 1.0, 5), above(0), "about 20 seeds"),
        (Interval(-1.0, -4.0, 1.0, 5), below(0), "about 20 seeds"),
        (Interval(0.05, -0.05, 0.15, 5), within(0.1), "about 20 seeds"),
        (Interval(-0.05, -0.15, 0.05, 5), within(0.1), "about 20 seeds"),
        (Interval(0.2, 0.0, 0.4, 5), within(0.1), "about 20 seeds"),
        (Interval(0.01, -1.0, 1.0, 5), above(0), "more than 200 seeds"),
        (Interval(0.0, -1.0, 1.0, 5), above(0), "more than 200 seeds"),
    ],
)
def test_an_undecided_claim_says_how_many_seeds_would_decide_it(interval, expect, needed):
    undecided = judge(interval, expect, needs="another dataset")
    assert undecided.verdict == UNDECIDED
    assert undecided.needs.startswith(f"another dataset; {needed}")


def test_what_is_decided_needs_nothing_but_what_its_study_says_of_a_failure():
    assert judge(RISING, needs="longer training").needs == ""
    assert [judge(RISING, below(0)).needs, judge(RISING, below(0), needs="time").needs] == [
        "",
        "time",
    ]


@pytest.mark.parametrize(
    ("values", "about", "expected"),
    [
        (None, {}, "runs in which it can be measured"),
        (None, {"needs": "a larger ε"}, "a larger ε"),
        (RISING, {"presupposes": "it collapses"}, "runs where this is not so: it collapses"),
        (RISING, {"presupposes": "no unit collapses", "needs": "a larger β"}, "a larger β"),
        (RISING[:2], {"needs": "a larger β"}, "a larger β; at least 4 seeds"),
        ([1.0] * 4, {}, "at least 6 values"),
        (RISING, {"controls": [Control("it is less untrained", False), Control("b", True)]},
         "a control that passes: it is less untrained"),
        (RISING, {"controls": [Control("a", None), Control("b", False)]},
         "a control that passes: b; a control that can be tried: a"),
    ],
)  # fmt: skip
def test_every_undecided_claim_says_what_would_decide_it(values, about, expected):
    undecided = judge(values, **about)
    assert (undecided.verdict, undecided.needs) == (UNDECIDED, expected)
    whole = claim_of_parts("A-T1", "c2", "everywhere", [judge(RISING), undecided], source="table 1")
    assert whole.needs == f"c1: {expected}"
    assert claim_of_parts("A-T1", "c2", "everywhere", [], source="table 1").needs


def test_a_part_that_fails_says_what_would_have_to_change():
    parts = [
        judge(RISING),
        judge(RISING, below(0), needs="longer training"),
        judge([1.0, -1.0] * 2),
    ]
    whole = claim_of_parts("A-T1", "c2", "everywhere", parts, source="table 1")
    assert (whole.verdict, whole.needs) == (FAILS, "c1: longer training")
    assert (
        claim_of_parts("A-T1", "c2", "all", parts, source="table 1", needs="data").needs == "data"
    )


@pytest.mark.parametrize("passed", [False, None])
@pytest.mark.parametrize(
    ("interval", "expect"),
    [
        (Interval(1.0, -1.0, 3.0, 5), above(0)),
        (Interval(-1.0, -4.0, 1.0, 5), below(0)),
        (Interval(0.05, -0.05, 0.15, 5), within(0.1)),
    ],
)
def test_no_number_of_seeds_makes_a_claim_hold_whose_control_fails(interval, expect, passed):
    control = Control("it is less untrained", passed)
    text = judge(interval, expect, controls=[control], needs="another dataset").needs
    assert text.startswith("another dataset; a control that ")
    assert text.endswith(": it is less untrained")
    assert "seeds" not in text


def test_seeds_can_show_that_a_claim_fails_whatever_its_controls():
    expected = "about 20 seeds to show that it does not hold, if mean and spread stay the same"
    for controls in ([], [Control("it is less untrained", False)]):
        assert judge(Interval(-1.0, -2.0, 1.0, 5), above(0), controls=controls).needs == expected
        assert judge(Interval(0.2, 0.0, 0.4, 5), within(0.1), controls=controls).needs == expected


def test_so_many_seeds_do_decide_it():
    rng = np.random.default_rng(0)
    needed = []
    for _ in range(40):
        few = judge(list(rng.normal(0.4, 1, 6)))
        if few.verdict == UNDECIDED and few.interval.value > 0 and "about" in few.needs:
            count = int(few.needs.split()[1])
            values = np.resize([few.values[key] for key in few.values], 6 * -(-count // 6))
            needed.append(judge(list(map(float, values))).verdict)
    assert len(needed) > 10
    assert needed.count(HOLDS) > 0.9 * len(needed)


def test_parts_of_a_claim_with_printed_numbers_do_not_say_that_there_are_none():
    part = claim("A-T1", "one", "it falls", source="table 1", expect=below(0), statistic="d",
                 values={k: -1.0 - k for k in range(6)})  # fmt: skip
    own = claim("A-T1", "two", "it falls", source="table 1", expect=below(0), statistic="d",
                values={k: -1.0 - k for k in range(6)}, published="3.5")  # fmt: skip
    numbers = claim_of_parts("A-T1", "c1", "it falls", [part, own], source="table 1",
                             published="4, 3.5")  # fmt: skip
    assert [each.published for each in numbers.parts] == ["as above", "3.5"]
    figure = claim_of_parts("A-F1", "c1", "it falls", [part], source="figure 1")
    assert figure.parts[0].published == "figure only, no numbers"
