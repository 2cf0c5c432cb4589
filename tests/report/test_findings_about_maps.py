"""Rules about latents that are maps: each speaks where it must, alone, and nowhere else."""

import dataclasses
import math

import map_reports as worlds
import pytest
import torch
from map_reports import MAP_RULES, TEN, checks, map_facts

import zscope as zs
from zscope.layout import LatentScaling
from zscope.report.channels import channel_matrix, channel_table
from zscope.report.findings import Check, Facts
from zscope.report.rules import RULES
from zscope.report.rules.diffusion import (
    channels_text,
    declared_interval,
    finite,
    near_end,
    times,
)

BY_NAME = {rule.name: rule for rule in RULES}


@pytest.fixture(scope="module")
def x():
    return worlds.pictures()


def told(found):
    """The findings that are not healthy."""
    return [each for each in found if each.level != "healthy"]


WORLDS = {
    "dead channel": worlds.dead,
    "scale off": worlds.misscaled,
    "channels unequal": worlds.unequal,
    "rough spectrum": worlds.rough,
    "not equivariant": worlds.mirrored,
    "fragile decoder": worlds.fragile,
    "not local": worlds.far,
    "channels respond together": worlds.mixing,
}
SENTENCES = {
    "dead channel": "Channel 0 of 4 carries nothing: .* or train with 3 channels",
    "scale off": r"With scaling_factor 0.18215 these latents have std 0.13, not 1: in config.json, "
    r'set "scaling_factor": 1\.\d+, "shift_factor": ',
    "channels unequal": "Channels differ 10× in scale: .* latents_mean and latents_std",
    "rough spectrum": "Latents have 3.1× the high-frequency energy of the pictures at the same "
    "size: fine-tune with scale equivariance",
    "not equivariant": r"(Turning|Flipping) the picture does not \w+ the latents \(error [\d.]+; "
    r"1 = unrelated\): fine-tune with an equivariance loss \(EQ-VAE\)",
    "fragile decoder": "Noise of 0.1 std costs 37 % of the variance: train the decoder with noise",
    "not local": r"A change at one place moves the whole map .*: do not inpaint or tile",
    "channels respond together": r"Channels 0 and 1 respond to each other .*: edit them together",
}
LEVELS = {"dead channel": "problem", "scale off": "problem", "fragile decoder": "problem"}


@pytest.mark.parametrize("rule", WORLDS)
def test_one_thing_wrong_is_one_finding(rule, x):
    import re

    found = told(checks(WORLDS[rule](x), x))
    assert [each.rule for each in found] == [rule], [str(each) for each in found]
    assert re.match(SENTENCES[rule], str(found[0])), str(found[0])
    assert found[0].level == LEVELS.get(rule, "note")
    assert found[0].checked == BY_NAME[rule].sentence


@pytest.mark.parametrize(
    "model", [worlds.healthy, worlds.declared_by_channel, lambda x: worlds.model_of(x, noise=0.1)]
)
def test_a_healthy_model_has_a_number_for_every_check_and_no_other_finding(model, x):
    found = checks(model(x), x)
    assert told(found) == []
    quiet = {
        "few pictures",
        "holes between channels",
        "posterior without noise",
    }  # findings alone; of posteriors with noise
    assert {each.rule for each in found} >= {rule.name for rule in MAP_RULES} - quiet
    assert all(isinstance(each, Check) and each.value is not None for each in found)


def test_the_identity_is_healthy(x):
    maps = worlds.encode(x)
    model = worlds.declare(zs.wrap(lambda x: x.clone(), lambda z: z.clone(), prior=None), maps)
    assert told(checks(model, maps)) == []


def test_a_passive_channel_is_dead(x):
    (found,) = told(checks(worlds.passive(x), x))
    assert (found.rule, found.level) == ("dead channel", "problem")
    assert str(found).startswith("Channel 0 of 4 carries nothing: lower the KL weight, or train")
    assert found.table[1][:2] == ("0", "0.00")  # no divergence from the prior


@pytest.mark.parametrize("spread", [0.02, 0.05])
def test_a_constant_channel_that_is_not_passive_is_dead_too(x, spread):
    model = worlds.unused(x, spread)
    assert zs.assays.variable_types(zs.record(model, x)).labels[0] == "active"
    (found,) = told(checks(model, x))
    assert (found.rule, found.level) == ("dead channel", "problem")
    assert found.text == "Channel 0 of 4 carries nothing"
    assert found.action == "train with 3 channels; the encoder does not use it"


def test_a_channel_that_encodes_something_is_not_dead_although_the_decoder_ignores_it(x):
    def encoder(x):
        z = worlds.encode(x)
        z = torch.cat([z[:, :1].flip(-1), z], 1)
        return z, torch.full_like(z, 0.05).square().log()

    model = worlds.declare(zs.wrap(encoder, lambda z: worlds.decode(z[:, 1:])), x)
    facts = map_facts(model, x)
    row = next(row for row in facts.channels if row["channel"] == 0)
    assert abs(row["response"]) < 0.1
    assert abs(row["importance"]) < 0.01
    (found,) = BY_NAME["dead channel"](facts)
    assert found.level == "healthy"


def test_a_channel_that_is_the_same_for_all_pictures_is_dead(x):
    def encoder(x):
        z = worlds.encode(x)
        ramp = torch.linspace(-2, 2, 8).expand(len(z), 1, 8, 8)
        z = torch.cat([ramp, z], 1)
        return z, torch.full_like(z, -4.0)

    model = worlds.declare(zs.wrap(encoder, lambda z: worlds.decode(z[:, 1:])), x)
    (found,) = BY_NAME["dead channel"](map_facts(model, x))
    assert found.text == "Channel 0 of 4 carries nothing"


def test_whether_a_channel_is_dead_does_not_depend_on_resamples(x):
    recording = zs.record(worlds.dead(x), x)
    names = ["diffusion", "response-matrix"]
    for resamples in (0, 20):
        report = zs.assay(recording, names=names, resamples=resamples)
        assert [row["channel"] for row in report.channels if row["dead"]] == [0]
    # A response of .095 whose interval reaches .1, which `resamples` must not decide.
    matrix = dataclasses.replace(
        report.results["response-matrix"],
        relative=torch.full((4, 4), 0.095),
        relative_low=torch.full((4, 4), 0.08),
        relative_interval=None,
    )
    object.__setattr__(matrix, "unit", "channel")
    rows = channel_table(recording, {**report.results, "response-matrix": matrix})
    assert not any(row["dead"] for row in rows)


def test_all_channels_dead_is_said_once(x):
    def encoder(x):
        z = 0 * worlds.encode(x)
        return z, z

    model = zs.wrap(encoder, worlds.decode)
    recording = zs.record(model, x)
    facts = Facts(recording, {}, [], None, channel_table(recording, {}))
    assert facts.collapsed
    (found,) = [each for rule in MAP_RULES for each in rule(facts)]
    assert found.text == "None of the 3 channels carries anything"


def test_whether_a_channel_of_a_deterministic_model_is_dead_needs_both_numbers(x):
    recording = zs.record(worlds.dead(x), x)
    importance = {"unit-importance": zs.assays.unit_importance(recording)}
    for results in ({}, importance):  # without a response
        assert {row["dead"] for row in channel_table(recording, results)} == {None}
        facts = Facts(recording, results, [], None, channel_table(recording, results))
        assert BY_NAME["dead channel"](facts) == []
    results = {**importance, "locality": zs.assays.locality(recording)}
    rows = channel_table(recording, results)
    assert [row["channel"] for row in rows if row["dead"]] == [0]
    assert rows[-1]["channel"] == 0  # the least important is last


def test_a_model_that_declares_no_scale_is_given_one(x):
    model = worlds.healthy(x)
    model.latent_scaling = None
    (found,) = told(checks(model, x))
    statistics = zs.assays.latent_statistics(zs.record(model, x))
    assert (found.rule, found.level) == ("scale off", "note")
    factor = f"{statistics.scaling_factor:.4g}"
    assert found.text == f"Scale for diffusion: scaling_factor {factor}"
    assert statistics.paste().splitlines()[0] in found.action


@pytest.mark.parametrize(("wrong", "level"), [(1.1, "healthy"), (1.35, "note"), (1.7, "problem")])
@pytest.mark.parametrize("inverse", [False, True])
def test_the_scale_is_judged_by_how_far_it_is_off_in_both_directions(x, wrong, level, inverse):
    model = worlds.healthy(x)
    own = model.latent_scaling.scaling_factor
    wrong = 1 / wrong if inverse else wrong
    model.latent_scaling = LatentScaling(own * wrong)
    (found,) = BY_NAME["scale off"](map_facts(model, x, ["latent-statistics"]))
    assert found.level == level
    assert found.value == pytest.approx(wrong)
    assert found.interval[0] < found.value < found.interval[1]


def test_the_interval_of_the_declared_scale_follows_from_that_of_the_channels(x):
    recording = zs.record(worlds.declared_by_channel(x), x)
    statistics = zs.assays.latent_statistics(recording)
    low, high = declared_interval(statistics)
    assert statistics.declared_std == pytest.approx(1)
    ends = (statistics.std_interval / statistics.std[:, None]).square().mean(0).sqrt()
    assert (low, high) == pytest.approx(tuple(ends.tolist()))
    alone = zs.assays.latent_statistics(recording, resamples=0)
    assert declared_interval(alone) is None


def test_means_far_from_0_are_told_unless_they_are_declared(x):
    (found,) = told(checks(worlds.shifted(x), x))
    assert found.rule == "channels unequal"
    assert found.text.startswith("The mean of channel ")
    assert "1.4" in found.text
    everywhere = worlds.model_of(x, lambda z: z + 5, lambda z: z - 5)  # the shift is declared
    facts = map_facts(everywhere, x, ["latent-statistics"])
    assert told(BY_NAME["channels unequal"](facts)) == []


def test_a_channel_that_does_it_alone_is_named(x):
    (found,) = told(checks(worlds.one_colour(x * TEN), x * TEN))
    assert (found.rule, found.level) == ("one channel dominates", "note")
    assert found.text == "Channel 0 alone explains 98 % of what all channels explain"
    two = worlds.model_of(x, lambda z: z[:, :2], lambda z: torch.cat([z, z[:, :1] * 0], 1))
    assert BY_NAME["one channel dominates"](map_facts(two, x, ["unit-importance"])) == []


def test_outliers_are_told_and_placed_only_where_they_have_a_place(x):
    bright = worlds.spots(x)
    (found,) = told(checks(worlds.healthy(bright), bright))
    assert (found.rule, found.level) == ("heavy tails", "note")
    assert "has outliers (excess kurtosis" in found.text
    assert "mostly at" not in found.text  # anywhere
    fixed = x.clone()
    fixed[::3, :, :4, -4:] += 40  # a third of the pictures, in one corner
    facts = map_facts(worlds.healthy(fixed), fixed, ["latent-statistics"])
    (found,) = BY_NAME["heavy tails"](facts)
    assert "mostly at place 0, 7" in found.text


def test_a_posterior_without_noise_is_told(x):
    (found,) = told(checks(worlds.model_of(x, noise=1e-4), x))
    assert (found.rule, found.level) == ("posterior without noise", "note")
    assert "effectively deterministic" in found.text
    rule, names = BY_NAME["posterior without noise"], ["latent-statistics"]
    (healthy,) = rule(map_facts(worlds.model_of(x, noise=0.1), x, names))
    assert healthy.level == "healthy"
    assert rule(map_facts(worlds.healthy(x), x, names)) == []  # it has no posterior


def test_a_posterior_may_have_noise_as_far_as_its_interval_tells(x):
    facts = map_facts(worlds.model_of(x, noise=1e-3), x, ["latent-statistics"])
    result, rule = facts.get("latent-statistics"), BY_NAME["posterior without noise"]
    share = torch.full((3,), 5e-5)
    for top, level in ((9e-5, "note"), (2e-4, "healthy")):
        ends = torch.stack([share / 2, torch.full((3,), top)], 1)
        changed = dataclasses.replace(result, noise_share=share, noise_interval=ends)
        some = Facts(facts.recording, {"latent-statistics": changed}, [], None, facts.channels)
        assert [each.level for each in rule(some)] == [level]


def test_smoothed_latents_that_decode_to_something_else_are_told(x):
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))

    def shuffle(z, by):
        return z.flatten(2)[:, :, by].reshape(z.shape)

    model = worlds.model_of(x, lambda z: shuffle(z, order), lambda z: shuffle(z, order.argsort()))
    found = BY_NAME["rough spectrum"](map_facts(model, x, ["latent-spectrum"]))
    assert [each.level for each in found] == ["note", "note"]
    assert found[1].text.startswith("Smoothed latents do not decode to smoothed pictures (error")


def test_few_pictures_are_counted_by_what_their_places_are_worth(x):
    flat = torch.randn(40, 3, 1, 1, generator=torch.Generator().manual_seed(0)).expand(
        -1, -1, 32, 32
    )
    (found,) = BY_NAME["few pictures"](map_facts(worlds.healthy(flat), flat, ["latent-statistics"]))
    assert found.text == "Only 40 pictures were encoded for 3 channels"
    assert "worth about 40 independent numbers" in found.evidence
    facts = map_facts(worlds.healthy(x), x, ["latent-statistics"])
    assert BY_NAME["few pictures"](facts) == []


def test_small_maps_have_no_places_far_from_another():
    x = worlds.pictures(side=4)
    facts = map_facts(worlds.model_of(x, undo=lambda z: z.roll(2, 3)), x, ["locality"])
    assert BY_NAME["not local"](facts) == []


def test_a_rule_speaks_only_if_the_nearer_end_is_beyond_its_threshold():
    assert near_end(1.6, (1.4, 1.8)) == 1.4
    assert near_end(0.6, (0.4, 0.8), above=False) == 0.8
    assert near_end(1.6, None) == 1.6
    assert finite((1.0, math.inf)) is None


def test_an_uncertain_number_beyond_the_threshold_is_not_told(x):
    from dataclasses import replace

    facts = map_facts(worlds.healthy(x), x, ["noise-robustness"])
    for interval, level in (((3.9, 4.5), "healthy"), ((4.1, 4.5), "problem")):
        result = replace(facts.results["noise-robustness"], score=4.2, interval=interval)
        changed = Facts(facts.recording, {"noise-robustness": result}, [], None, facts.channels)
        (found,) = BY_NAME["fragile decoder"](changed)
        assert found.level == level


def test_a_number_beyond_its_threshold_whose_interval_is_not_is_undecided(x):
    """Neither a finding nor healthy: a healthy sentence would say the opposite of its number."""
    facts = map_facts(worlds.healthy(x), x, ["diffusion"])
    locality, spectrum = facts.get("locality"), facts.get("latent-spectrum")
    equal, importance = facts.get("equivariance"), facts.get("unit-importance")
    statistics = facts.get("latent-statistics")
    within = locality.within.clone()
    within[2] = 0.45
    around = torch.stack([within - 0.2, within + 0.2], 1)
    alone = torch.tensor([0.92, 0.1, 0.1])
    tails = torch.tensor([1600.0, 0.0, 0.0])
    changed = {
        "not local": dataclasses.replace(locality, within=within, within_interval=around),
        "one channel dominates": dataclasses.replace(
            importance, alone=alone, explained=1.0,
            share_interval=torch.stack([alone - 0.05, alone + 0.05], 1),
        ),
        "heavy tails": dataclasses.replace(
            statistics, kurtosis=tails,
            kurtosis_interval=torch.stack([tails - 1700, tails + 1700], 1),
        ),
        "rough spectrum": dataclasses.replace(
            spectrum, correspondence={"1/2": 0.6}, correspondence_interval={"1/2": (0.4, 0.8)}
        ),
        "not equivariant": dataclasses.replace(
            equal, kinds={"flips": 0.3}, kind_intervals={"flips": (0.2, 0.4)}
        ),
    }  # fmt: skip
    sentences = {
        "not local": "Perhaps: a change at one place moves the whole map (45 % stays within 2",
        "one channel dominates": "Perhaps: Channel 0 alone explains 92 % of what all",
        "heavy tails": "Perhaps: channel 0 has outliers (excess kurtosis 1,600",
        "rough spectrum": "Perhaps: smoothed latents do not decode to smoothed pictures (error 0.6",
        "not equivariant": "Perhaps: flipping the picture does not flip the latents (error 0.30",
    }
    assays = {
        "not local": "locality", "one channel dominates": "unit-importance",
        "heavy tails": "latent-statistics", "rough spectrum": "latent-spectrum",
        "not equivariant": "equivariance",
    }  # fmt: skip
    for rule, result in changed.items():
        some = Facts(facts.recording, {assays[rule]: result}, [], None, facts.channels)
        (found,) = told(BY_NAME[rule](some))
        assert found.text.startswith(sentences[rule]), found.text
        assert (found.level, found.action) == ("note", "use more pictures to decide")


def test_one_picture_with_a_bright_spot_is_not_healthy(x):
    bright = x.clone()
    bright[17, 0, 8:12, 8:12] = 60
    (found,) = BY_NAME["heavy tails"](
        map_facts(worlds.healthy(bright), bright, ["latent-statistics"])
    )
    assert found.level == "note"
    assert "hannel 0 has outliers (excess kurtosis 1,678, skewness 30" in found.text


def test_a_declared_std_is_wanted_where_channels_have_their_own_scales(x):
    model = worlds.declared_by_channel(x)
    own = model.latent_scaling
    rule, names = BY_NAME["scale off"], ["latent-statistics"]
    model.latent_scaling = dataclasses.replace(own, scaling_factor=0.5)
    (found,) = rule(map_facts(model, x, names))
    assert found.level == "healthy"
    assert found.text.endswith("have std 0.50, as scaling_factor 0.5 asks")
    wide = tuple(2 * each for each in own.latents_std)
    model.latent_scaling = dataclasses.replace(own, scaling_factor=0.5, latents_std=wide)
    (found,) = rule(map_facts(model, x, names))
    assert (found.level, found.text[-22:]) == ("problem", "have std 0.25, not 0.5")
    assert '"scaling_factor": 0.5' in found.action


@pytest.mark.parametrize(
    ("factor", "level"), [(1.0, "healthy"), (-1.0, "healthy"), (0.3, "problem")]
)
def test_a_factor_beside_means_alone_is_a_scale_and_no_target(x, factor, level):
    model = worlds.model_of(x)
    own = model.latent_scaling.scaling_factor
    mean = (0.0,) * 3
    model.latent_scaling = LatentScaling(factor * own, None, mean, None)
    (found,) = BY_NAME["scale off"](map_facts(model, x, ["latent-statistics"]))
    assert found.level == level
    name = f"the declared latents_mean and scaling_factor {factor * own:g}"
    assert found.text.startswith(f"With {name} these latents have std {abs(factor):.2f}")


def test_a_target_of_0_is_none(x):
    model = worlds.declared_by_channel(x)
    model.latent_scaling = dataclasses.replace(model.latent_scaling, scaling_factor=0.0)
    (found,) = BY_NAME["scale off"](map_facts(model, x, ["latent-statistics"]))
    assert found.text.endswith("have std 0.00, not 1")


def test_the_surest_kind_of_transformations_is_told_with_its_own_interval(x):
    facts = map_facts(worlds.healthy(x), x, ["equivariance"])
    result = dataclasses.replace(
        facts.get("equivariance"),
        kinds={"flips": 0.30, "turns": 0.28, "scaling": 0.0},
        kind_intervals={"flips": (0.2, 0.4), "turns": (0.27, 0.29), "scaling": (0.0, 0.0)},
    )
    some = Facts(facts.recording, {"equivariance": result}, [], None, facts.channels)
    (found,) = BY_NAME["not equivariant"](some)
    assert found.text.startswith("Turning the picture does not turn the latents (error 0.28")
    assert "turns 0.28 (95 % interval 0.27 to 0.29), scaling 0.00;" in found.evidence


def test_outliers_on_one_side_are_told_with_the_interval_of_the_skewness(x):
    facts = map_facts(worlds.healthy(x), x, ["latent-statistics"])
    skew, tails = torch.tensor([0.0, 1.2, 0.0]), torch.tensor([2.0, 1.5, 0.0])
    result = dataclasses.replace(
        facts.get("latent-statistics"), kurtosis=tails, skewness=skew,
        kurtosis_interval=torch.stack([tails - 2, tails + 2], 1),
        skewness_interval=torch.stack([skew - 0.5, skew + 0.5], 1),
    )  # fmt: skip
    some = Facts(facts.recording, {"latent-statistics": result}, [], None, facts.channels)
    (found,) = BY_NAME["heavy tails"](some)
    assert found.text == "Perhaps: channel 1 has outliers on one side (skewness 1.2)"
    assert found.interval == pytest.approx((0.7, 1.7))


def test_shares_of_noise_are_percentages_at_both_ends(x):
    std = torch.tensor([0.005, 0.05, 0.05]).reshape(-1, 1, 1)
    model = zs.wrap(
        lambda x: (worlds.encode(x), std.expand(len(x), -1, 8, 8).square().log()), worlds.decode
    )
    (found,) = BY_NAME["posterior without noise"](map_facts(model, x, ["latent-statistics"]))
    assert found.text == "Posterior noise is under 0.1 % to 0.5 % of the variance of a channel"


def test_shifts_do_not_hide_that_flips_are_not_followed():
    """Space-to-depth follows whole shifts exactly, and flips and turns not."""
    import torch.nn.functional as F

    x = worlds.pictures(96)
    model = zs.wrap(lambda x: F.pixel_unshuffle(x, 4), lambda z: F.pixel_shuffle(z, 4), prior=None)
    (found,) = BY_NAME["not equivariant"](map_facts(model, x[:, :1], ["equivariance"]))
    assert found.level == "note"
    assert found.text.startswith(("Turning the picture", "Flipping the picture"))
    assert "shifts 0.00" in found.evidence


def test_exact_reconstructions_are_called_so(x):
    maps = worlds.encode(x)
    model = zs.wrap(lambda x: x.clone(), lambda z: z.clone(), prior=None)
    (found,) = BY_NAME["fragile decoder"](map_facts(model, maps, ["noise-robustness"]))
    assert "reconstructions are exact" in found.evidence
    assert "0 std" not in found.evidence


def test_a_channel_of_noise_does_not_make_the_others_rough_or_spread(x):
    """A passive channel whose means are rough, but far smaller than its noise."""

    def encoder(x):
        z = worlds.encode(x)
        rough = (1e4 * z[:, :1]).sin() * 1e-3
        std = torch.tensor([1.0, 0.1, 0.1, 0.1]).reshape(-1, 1, 1).expand(len(z), -1, 8, 8)
        return torch.cat([rough, z], 1), std.square().log()

    model = worlds.declare(zs.wrap(encoder, lambda z: worlds.decode(z[:, 1:])), x)
    assert [each.rule for each in told(checks(model, x))] == ["dead channel"]


def test_ratios_are_printed_as_people_read_them():
    assert [times(each) for each in (1.0, 3.14, 9.96, 123.4, 5e-31)] == [
        "1.0×", "3.1×", "10×", "120×", "under 0.01×",
    ]  # fmt: skip


def test_rules_about_single_latents_are_silent_about_maps(x):
    recording = zs.record(worlds.healthy(x), x)
    facts = Facts(recording, {}, [], None, channel_table(recording, {}))
    spoken = {rule.name for rule in RULES if rule.applies(facts.layout)}
    assert not spoken & {
        "dead latents", "ignored latents", "few samples", "few dimensions", "unlike the prior",
        "correlated latents", "mixed latents", "responding pairs", "decoder axes",
    }  # fmt: skip
    assert spoken >= {"not a function", "reconstruction", "holes between channels", "dead channel"}
    vector = {rule.name for rule in RULES if rule.applies(None)}
    assert not vector & {rule.name for rule in MAP_RULES}


def test_holes_between_channels_are_worth_no_more_than_a_note(x):
    from dataclasses import replace

    facts = map_facts(worlds.far(x), x, ["holes"])
    result = facts.results["holes"]
    levels = {}
    for share in (0.08, 0.9):
        holes = replace(result, score=share)
        changed = Facts(facts.recording, {"holes": holes}, [], None, facts.channels)
        assert BY_NAME["holes"](changed) == []  # of single latents
        (found,) = BY_NAME["holes between channels"](changed)
        levels[share] = found.level
    assert levels == {0.08: "healthy", 0.9: "note"}
    assert "no harm to diffusion" in found.action
    assert "farther than 95 % of 96 pictures" in found.evidence


def test_many_channels_are_counted():
    assert channels_text([2]) == "Channel 2"
    assert channels_text([0, 2]) == "Channels 0 and 2"
    assert channels_text(range(14)) == "Channels 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 4 others"


def test_a_scale_for_each_channel_is_corrected_by_one_for_each_channel(x):
    # diffusers divides by latents_std, whatever else is declared beside it.
    model = worlds.model_of(x)
    model.latent_scaling = LatentScaling(1.0, None, (0.0,) * 3, (9.0,) * 3)
    (finding,) = told(checks(model, x))
    assert finding.rule == "scale off"
    assert '"latents_std": [' in finding.action
    assert "shift_factor" not in finding.action


def test_responses_of_as_many_patches_as_channels_are_not_those_of_channels(x):
    recording = zs.record(worlds.mixing(x), x)
    patches = zs.assays.response_matrix(recording, units="patch:4")
    assert len(patches.relative) == 4
    assert channel_matrix({"response-matrix": patches}, 4) is None
    channels = zs.assays.response_matrix(recording)
    assert channel_matrix({"response-matrix": channels}, 3) is channels


def test_one_channel_does_not_differ_from_others(x):
    facts = map_facts(worlds.model_of(x[:, :1]), x[:, :1])
    assert list(BY_NAME["channels unequal"](facts)) == []


def test_a_decoder_that_bears_all_noise_is_said_to_do_so(x):
    facts = map_facts(worlds.healthy(x), x)
    result = dataclasses.replace(facts.get("noise-robustness"), tolerance=None)
    facts.results["noise-robustness"] = result
    (check,) = BY_NAME["fragile decoder"](facts)
    assert "even noise of 1 std costs less than the reconstruction itself" in check.evidence
