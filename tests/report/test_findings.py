"""Every rule speaks where it must and is silent where it must not: models made for it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from worlds import World, gaussian_codes, grid, identity, responding

import zscope as zs
from zscope.assays.disentanglement.score import Score
from zscope.assays.run import measure
from zscope.data.dataset import from_arrays
from zscope.report.build import reconstruct
from zscope.report.findings import (
    Facts,
    Finding,
    Rule,
    findings,
    index_list,
    percent,
    table,
    title,
)
from zscope.report.latents import latent_table
from zscope.report.rules import RULES

BY_NAME = {rule.name: rule for rule in RULES}


def facts(model, data, *names, factors=None, kinds=(), explained=None, seed=0, options=None):
    """What a rule may look at, of a constructed model on constructed data."""
    dataset = from_arrays(data, factors, factor_kinds=kinds)
    recording = zs.record(model, dataset, seed=seed)
    measurements = measure(recording, names, resamples=20, options=options)
    assert not measurements.missing
    assert not measurements.failed
    matrix = measurements.results.get("response-matrix")
    diagonal = None if matrix is None else matrix.relative.diagonal().tolist()
    return Facts(recording, measurements.results, latent_table(recording, diagonal), explained)


def said(rule, *args, **options):
    return BY_NAME[rule](facts(*args, **options))


def only(found):
    assert len(found) == 1, [str(each) for each in found]
    return found[0]


def normal(samples=600, latents=4, seed=0):
    return gaussian_codes(samples, latents, seed).float()


def keeping(latents, kept, **options):
    """Neither decoder nor encoder looks at the other latents."""
    mask = torch.zeros(latents)
    mask[kept] = 1
    return World(lambda z: z * mask, lambda x: x * mask, latents, **options)


class Spread(World):
    """The identity, with a posterior spread that depends on the observation."""

    def __init__(self, spread, latents):
        super().__init__(lambda z: z, lambda x: x, latents, prior="normal")
        self.spread = spread

    def encode(self, x, auxiliary=None):
        return zs.Posterior(x, self.spread(x))


# Functions


def test_a_model_whose_codes_depend_on_the_batch_is_not_a_function():
    batch = World(lambda z: z, lambda x: x - x.mean(0), 4)
    with pytest.warns(UserWarning, match="The encoder depends on the batch"):
        finding = only(said("not a function", batch, normal()))
    assert finding.level == "problem"
    assert str(finding).startswith("The model is not a function of its input: return the mean")
    assert "one observation, encoded alone and among 4" in finding.evidence
    assert said("not a function", identity(4), normal()) == []


# Reconstruction


@pytest.mark.parametrize(
    ("decoder", "level", "words"),
    [
        (lambda z: z, "healthy", "explain 100 % of the variance"),
        (lambda z: z * torch.tensor([1.0, 0, 0, 0]), "problem", "only 25 % of the variance"),
        (lambda z: -z, "problem", "worse than the mean of the data"),
    ],
)
def test_reconstructions_are_judged_by_the_variance_they_explain(decoder, level, words):
    model = World(decoder, lambda x: x, 4)
    recording = zs.record(model, normal())
    share, _ = reconstruct(recording)
    found = only(BY_NAME["reconstruction"](Facts(recording, {}, [], share)))
    assert found.level == level
    assert words in found.text.replace("26 %", "25 %").replace("24 %", "25 %")


def test_reconstructions_are_judged_over_all_of_data_that_are_sorted():
    """The second half decodes to nothing: the first rows alone would look perfect."""
    x = normal(4000, 3)
    x[2000:] += 100
    model = World(lambda z: torch.where(z > 50, 0.0, z), lambda x: x, 3)
    share, examples = reconstruct(zs.record(model, from_arrays(x)))
    assert share < 0
    assert any(max(row) > 50 for row in examples["original"])


def test_without_a_decoder_nothing_is_said_of_reconstructions():
    assert said("reconstruction", identity(2), normal(latents=2)) == []


# Dead and ignored latents


@pytest.mark.parametrize("std", [None, (0.1, 1.0, 0.1, 1.0)], ids=["deterministic", "variational"])
def test_dead_latents_are_counted_and_what_is_left_is_named(std):
    prior = None if std is None else "normal"
    std = None if std is None else torch.tensor(std)
    model = keeping(4, [0, 2], prior=prior, std=std)
    found = only(said("dead latents", model, normal(), "response-matrix"))
    assert found.level == "note"  # capacity that is not needed does no harm
    assert found.text == (
        "2 of 4 latents hardly change the decoded observation"
        if std is None
        else "2 of 4 latents carry no information"
    )
    assert str(found).startswith(
        f"{found.text}: harmless; to remove them, train with 2, or prune with zs."
    )
    assert "zs.prune(autoencoder, [0, 2])" in found.action
    assert [row[0] for row in found.table] == ["latent", "1", "3"]
    assert "600 observations" in found.evidence


def test_passive_latents_need_no_response_matrix():
    std = torch.tensor([0.1, 1.0])
    found = only(said("dead latents", keeping(2, [0], prior="normal", std=std), normal(latents=2)))
    assert found.text == "1 of 2 latents carries no information"


def test_the_pruning_that_is_advised_can_be_typed_and_leaves_nothing_dead():
    model = keeping(4, [0, 2])
    advice = only(said("dead latents", model, normal(), "response-matrix")).action
    call = advice.split("prune with ")[1]
    pruned = eval(call, {"zs": zs, "autoencoder": model})
    assert only(said("dead latents", pruned, normal(), "response-matrix")).level == "healthy"


@pytest.mark.parametrize("std", [None, torch.tensor(0.1)], ids=["deterministic", "variational"])
def test_where_all_latents_are_used_it_is_said_so(std):
    model = identity(4, std=std, prior=None if std is None else "normal")
    found = only(said("dead latents", model, normal(), "response-matrix"))
    assert (found.level, found.text) == ("healthy", "All 4 latents carry information")


def test_a_collapsed_model_is_the_first_thing_to_know():
    model = keeping(3, [], prior="normal", std=torch.tensor(1.0))
    looked = facts(model, normal(latents=3), "response-matrix", explained=0.3)
    first = findings(looked, RULES, {})[0]
    assert first.text == "None of the 3 latents carries information"
    assert first.matters == 1.0


def test_of_an_encoder_alone_nothing_is_said_of_dead_latents():
    recording = zs.Recording.from_arrays(normal())
    assert BY_NAME["dead latents"](Facts(recording, {}, latent_table(recording))) == []


def test_a_deterministic_latent_that_the_encoder_loses_is_named():
    model = World(lambda z: z, lambda x: x[:, [0, 0, 2]], 3)
    found = only(said("ignored latents", model, normal(latents=3), "response-matrix"))
    assert found.text == "Latent 1 is lost when decoded and encoded again"


def test_the_latents_of_a_deterministic_model_are_ordered_by_effect_not_by_response():
    """As of PCA with a noise component: its response is 1, but it changes next to nothing."""
    scale = torch.tensor([0.02, 1.0, 3.0])
    model = identity(3)
    recording = zs.record(model, from_arrays(normal(latents=3) * scale))
    table = latent_table(recording, [1.0, 0.9, 0.8])
    assert [row["latent"] for row in table] == [2, 1, 0]
    assert [row["used"] for row in table] == [True, True, False]


@pytest.mark.parametrize(
    ("kept", "explained", "texts"),
    [
        ([], 0.01, ["None of the 3 latents carries information"]),
        ([], -0.02, ["None of the 3 latents carries information"]),
        # Data on another scale: a decoder that knows nothing is not that bad.
        (
            [],
            -3.0,
            [
                "None of the 3 latents carries information",
                "Reconstructions are worse than the mean of the data",
            ],
        ),
        (
            [0, 1, 2],
            0.01,
            [
                "Reconstructions explain only 1.0 % of the variance",
                "All 3 latents carry information",
                "The code encodes all 3 factors",
                "Each factor is encoded mainly by one latent",
                "No latent responds to another",
            ],
        ),
    ],
)
def test_what_collapse_explains_is_not_said_beside_it(kept, explained, texts):
    std = torch.tensor(0.1 if kept else 1.0)
    model = keeping(3, kept, prior="normal", std=std)
    x = normal(latents=3)
    names = ("response-matrix", "mig", "explicitness")
    looked = facts(model, x, *names, factors=(x > 0).long(), explained=explained)
    assert [each.text for each in findings(looked, RULES, {})] == texts
    # Otherwise this would be said, with the advice to check the order of the factors.
    heedless = replace(BY_NAME["scores at chance"], of_collapsed=True)
    assert bool(heedless(looked)) == (not kept)


def test_a_latent_that_is_encoded_but_ignored_by_the_decoder_is_named():
    mask = torch.tensor([1.0, 0.0, 1.0])
    std = torch.tensor(0.1)
    model = World(lambda z: z * mask, lambda x: x, 3, prior="normal", std=std)
    found = only(said("ignored latents", model, normal(latents=3), "response-matrix"))
    assert found.text == "Latent 1 is encoded but ignored by the decoder"
    assert said("dead latents", model, normal(latents=3), "response-matrix") == []
    heard = identity(3, prior="normal", std=std)
    assert said("ignored latents", heard, normal(latents=3), "response-matrix") == []


def test_a_passive_latent_is_dead_and_not_also_ignored():
    model = keeping(2, [0], prior="normal", std=torch.tensor([0.1, 1.0]))
    assert said("ignored latents", model, normal(latents=2), "response-matrix") == []


def test_a_latent_used_for_half_of_the_observations_is_mixed_and_a_steady_one_is_not():
    def half(x):
        return torch.where(x[:, :1] > 0, torch.tensor([[0.1, 0.02]]), torch.tensor([[0.1, 1.0]]))

    found = only(said("mixed latents", Spread(half, 2), normal(latents=2), "variable-types"))
    assert found.text == "Latent 1 is used only for some observations"
    steady = Spread(lambda x: torch.full_like(x, 0.7), 2)
    assert said("mixed latents", steady, normal(latents=2), "variable-types") == []


# Holes, prior, structure


def ring(samples=600, seed=0):
    angle = 2 * torch.pi * torch.rand(samples, generator=torch.Generator().manual_seed(seed))
    return torch.stack([angle.cos(), angle.sin()], 1)


def onto_the_ring(z):
    return z / z.norm(dim=1, keepdim=True).clamp_min(1e-9)


def test_prior_samples_in_holes_are_counted_and_hybrids_are_advised():
    model = responding(onto_the_ring, 2, prior="normal", std=torch.tensor(0.02))
    found = only(said("holes", model, ring(), "holes"))
    assert found.level == "problem"
    assert found.text.endswith("% of prior samples fall into holes")
    share = float(found.text.split(" %")[0])
    # The ring is 0.06 wide where N(0, I) has at most a density of exp(-1/2).
    assert share > 85
    assert "zs.sampling.hybrid(recording.posterior, 64)" in found.action


def test_without_a_prior_it_is_hybrids_that_fall_into_holes():
    noisy = ring() * (1 + 0.02 * normal(latents=1))
    found = only(said("holes", responding(onto_the_ring, 2), noisy, "holes"))
    assert "hybrid samples fall into holes" in found.text
    assert "zs.sampling.posterior" in found.action


def test_an_exact_autoencoder_has_no_holes():
    model = identity(2, prior="normal", std=torch.tensor(0.1))
    found = only(said("holes", model, normal(latents=2), "holes"))
    assert found.level == "healthy"


def test_self_consistent_samples_may_be_unlike_the_data():
    """An identity moves nothing, so it has no holes; but the prior is not a ring."""
    model = identity(2, prior="normal", std=torch.tensor(0.02))
    found = only(said("unlike data", model, ring(), "holes"))
    assert found.level == "problem"
    assert float(found.text.split(" %")[0]) > 70
    assert "prior samples decode to observations unlike the data" in found.text
    assert "All of them are self-consistent" in found.evidence
    assert only(said("holes", model, ring(), "holes")).level == "healthy"


def test_samples_that_fill_the_data_look_like_them():
    model = identity(2, prior="normal", std=torch.tensor(0.1))
    assert only(said("unlike data", model, normal(latents=2), "holes")).level == "healthy"


@pytest.mark.parametrize(("shift", "scale"), [(2.0, 1.0), (0.0, 3.0), (0.0, 0.3)])
def test_latents_that_do_not_match_the_prior_are_named(shift, scale):
    data = normal(latents=2)
    data[:, 1] = shift + scale * data[:, 1]
    model = identity(2, prior="normal", std=torch.tensor(0.05))
    found = only(said("unlike the prior", model, data))
    assert found.text == "Latent 1 does not match the prior"
    assert found.table[1][1] == f"{float(data[:, 1].mean()):.2f}"


def test_codes_spread_like_the_prior_and_models_without_one_are_left_alone():
    # Means and noise together make up the prior's variance.
    model = identity(2, prior="normal", std=torch.tensor(0.6))
    assert said("unlike the prior", model, 0.8 * normal(2000, 2)) == []
    assert said("unlike the prior", identity(2), 5 + normal(latents=2)) == []


def test_prior_samples_that_shrink_change_their_distribution():
    shrinking = responding(lambda z: 0.3 * z, 2, prior="normal", std=torch.tensor(0.05))
    found = only(said("structure", shrinking, normal(latents=2), "structure-score"))
    assert "changes the distribution of prior samples" in found.text
    exact = identity(2, prior="normal", std=torch.tensor(0.01))
    assert said("structure", exact, normal(latents=2), "structure-score") == []


# Features of vectors


def test_the_features_that_latents_move_are_named_and_so_are_latents_that_move_none():
    data, name = normal(latents=2), "feature-effects"
    found = only(said("moved features", identity(2), data, name))
    assert found.level == "note"
    assert found.text.removesuffix(", and 1 other latent moves features too") in {
        *("Latent 0 moves feature 0 +2.0 sd", "Latent 1 moves feature 1 +2.0 sd")
    }
    assert "±" not in found.evidence
    assert sorted(row[0] for row in found.table) == ["0", "1", "latent"]
    weak = World(lambda z: 0.01 * z, lambda x: x, 2)
    still = only(said("moved features", weak, data, name))
    assert still.text == "Latents 0 and 1 move no feature by 0.1 standard deviations"
    assert said("moved features", identity(2), data) == []
    three = only(said("moved features", identity(3), normal(latents=3), name))
    assert three.text.endswith("sd, and 2 other latents move features too")


def test_a_feature_that_moves_both_ways_is_explained():
    folded = World(lambda z: torch.stack([z[:, 0], z[:, 0] * z[:, 1]], 1), lambda x: x, 2)
    codes = normal(latents=2)
    found = only(said("moved features", folded, folded.decode(codes), "feature-effects"))
    assert any("±" in row[1] for row in found.table)
    assert "±: up from some codes and down from others" in found.evidence


# Latents that depend on each other


def mixing(*members, latents=4):
    """The named latents are turned into one another; the others stay."""
    matrix = torch.eye(latents)
    count = len(members)
    if count == 2:
        turn = torch.tensor([[1.0, 1.0], [-1.0, 1.0]]) / 2**0.5
    else:
        turn = 0.5 * torch.eye(count) + 0.5
    for row, j in enumerate(members):
        for column, k in enumerate(members):
            matrix[j, k] = turn[row, column]
    return responding(lambda z: z @ matrix.to(z), latents)


def test_two_latents_that_respond_to_each_other_are_one_variable():
    found = only(said("responding pairs", mixing(1, 3), normal(), "response-matrix"))
    assert str(found).startswith(
        "Latents 1 and 3 respond to each other: treat them as one two-dimensional variable"
    )
    assert found.table[0] == ("latents", "second to first", "first to second")
    assert found.table[1][0] == "1 and 3"
    assert float(found.table[1][1]) == pytest.approx(0.71, abs=0.06)


def test_three_latents_that_respond_to_one_another_are_one_variable_too():
    found = only(said("responding pairs", mixing(0, 1, 2), normal(), "response-matrix"))
    assert found.text == "Latents 0, 1 and 2 respond to one another"
    assert "three-dimensional" in found.action


def test_two_pairs_are_two_findings():
    matrix = torch.block_diag(*[torch.tensor([[1.0, 1.0], [-1.0, 1.0]]) / 2**0.5] * 2)
    model = responding(lambda z: z @ matrix.to(z), 4)
    found = said("responding pairs", model, normal(), "response-matrix")
    assert [each.text.split(" respond")[0] for each in found] == [
        "Latents 0 and 1",
        "Latents 2 and 3",
    ]


def test_a_latent_that_moves_another_but_not_the_reverse_is_no_pair():
    matrix = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    model = responding(lambda z: z @ matrix.to(z), 2)
    found = only(said("responding pairs", model, normal(latents=2), "response-matrix"))
    assert (found.level, found.text) == ("note", "Latent 1 responds to latent 0")


def test_independent_latents_are_said_to_be_so():
    found = only(said("responding pairs", identity(4), normal(), "response-matrix"))
    assert (found.level, found.text) == ("healthy", "No latent responds to another")


def test_the_finding_the_table_and_the_graph_use_one_rule():
    """Leaks of 3 to 10 % between all latents, and nothing else: no edges, and it is said so."""
    leaks = 0.03 + 0.07 * torch.rand(6, 6, generator=torch.Generator().manual_seed(3))
    model = responding(lambda z: z @ (leaks.fill_diagonal_(1)).to(z), 6)
    known = facts(model, normal(latents=6), "response-matrix")
    matrix = known.get("response-matrix")
    assert not matrix.edges()
    assert len(matrix.graph().edges) == 0
    assert only(BY_NAME["responding pairs"](known)).text == "No latent responds to another"
    assert dict(matrix.summary())["edges"] == "0 (above 0.15 and above the posterior noise)"


@pytest.mark.parametrize(("latents", "response"), [(2, 0.25), (4, 0.25), (6, 0.2)])
def test_latents_that_all_respond_to_all_others_are_not_called_healthy(latents, response):
    matrix = torch.full((latents, latents), response).fill_diagonal_(1)
    model = responding(lambda z: z @ matrix.to(z), latents)
    found = only(said("responding pairs", model, normal(2000, latents), "response-matrix"))
    assert found.level == "note"
    assert found.text.startswith("Latents 0")
    assert "respond to" in found.text


def test_unequal_responses_between_most_latents_are_one_finding():
    # In a ring, each latent moves the next three: little, more, much.
    matrix = torch.eye(6)
    for step, response in ((1, 0.2), (2, 0.4), (3, 0.8), (4, 0.2)):
        matrix += response * torch.eye(6).roll(step, 1)
    model = responding(lambda z: z @ matrix.to(z), 6)
    found = said("responding pairs", model, normal(2000, 6), "response-matrix")
    assert found[-1].text == "Most latents respond to most others: 24 of 30 responses"
    assert [each.text for each in found[:-1]] == [
        f"Latents {j} and {j + 3} respond to each other" for j in range(3)
    ]


def test_several_one_way_responses_are_counted():
    matrix = torch.eye(4)
    matrix[0, 1] = matrix[2, 3] = 0.5
    model = responding(lambda z: z @ matrix.to(z), 4)
    found = only(said("responding pairs", model, normal(), "response-matrix"))
    assert found.text == "2 one-way responses between latents"
    assert [row[:2] for row in found.table[1:]] in (
        [("0", "1"), ("2", "3")],
        [("2", "3"), ("0", "1")],
    )


def test_responses_within_the_noise_are_told_with_the_noise_but_not_called_healthy():
    matrix = torch.eye(3)
    matrix[0, 1] = 0.3

    def response(x):
        return x @ matrix.to(x)

    model = responding(response, 3, prior="normal", std=torch.tensor([0.1, 0.6, 0.1]))
    found = only(said("responding pairs", model, normal(2000, 3), "response-matrix"))
    assert found.level == "note"
    assert found.text.endswith("but no response stands out")
    (row,) = found.table[1:]
    assert row[:2] == ("0", "1")
    assert 0.15 < float(row[2]) < float(row[3]) == pytest.approx(0.5, abs=0.04)
    quiet = responding(response, 3, prior="normal", std=torch.tensor([0.1, 0.1, 0.1]))
    again = only(said("responding pairs", quiet, normal(2000, 3), "response-matrix"))
    assert again.text == "Latent 1 responds to latent 0"


def test_interventions_that_leak_are_said_and_clean_ones_are_not():
    leaking, data = mixing(0, 1, 2, latents=3), normal(latents=3)
    found = only(said("invariance", leaking, data, "interventional-consistency"))
    assert found.text == "Intervening on one latent also moves others"
    assert said("invariance", identity(3), data, "interventional-consistency") == []


def test_correlated_latents_are_named_with_their_correlation():
    data = normal(2000, 3)
    data[:, 2] = 0.9 * data[:, 0] + 0.19**0.5 * data[:, 2]
    found = only(said("correlated latents", identity(3), data))
    assert found.text == "Latents 0 and 2 are correlated"
    assert float(found.table[1][1]) >= 0.9
    assert said("correlated latents", identity(3), normal(2000, 3)) == []


def test_the_tiny_means_of_passive_latents_correlate_and_nobody_minds():
    data = normal(latents=2)
    data[:, 1] = 0.01 * data[:, 0]
    model = identity(2, prior="normal", std=torch.tensor([0.1, 1.0]))
    assert said("correlated latents", model, data) == []


def test_codes_on_a_curve_fill_one_dimension_of_four():
    t = torch.linspace(-2, 2, 800).unsqueeze(1)
    curve = torch.cat([t, t.sin(), t.cos(), t.square()], 1)
    found = only(said("few dimensions", identity(4), curve, "intrinsic-dimension"))
    assert found.text == "The codes of 4 latents have an intrinsic dimension of about 1"
    assert said("few dimensions", identity(4), normal(), "intrinsic-dimension") == []


# Scores and samples


FACTORS = grid(4, 4, 4).repeat(8, 0)
VALUES = torch.from_numpy((FACTORS - FACTORS.mean(0)) / FACTORS.std(0)).float()
VALUES = VALUES + 0.01 * gaussian_codes(len(VALUES), 3).float()


def test_a_score_at_chance_is_named_and_so_is_what_shuffled_codes_get():
    shuffled = np.random.default_rng(1).permutation(FACTORS)
    found = only(said("scores at chance", identity(3), VALUES, "sap", factors=shuffled))
    assert found.text == "SAP is at chance"
    assert found.table[1][2].startswith("0.0")
    assert "same order" in found.action


@pytest.mark.parametrize("seed", range(8))
def test_chance_is_seen_as_such_whichever_way_the_codes_are_shuffled(seed):
    rng = np.random.default_rng(seed)
    few = rng.permutation(len(FACTORS))[:150]  # so few that single shuffles differ by 0.02
    shuffled = rng.permutation(FACTORS[few])
    model = identity(3, std=0.1, prior="normal")  # in use by their spread, whatever they tell
    found = said("scores at chance", model, VALUES[few], "sap", factors=shuffled, seed=seed)
    assert only(found).text == "SAP is at chance"
    assert "over 20 shuffles" in only(found).table[1][2]
    # A weak code is not taken for chance in any of them.
    weak = VALUES + VALUES.std(0) * normal(len(VALUES), 3)
    assert said("scores at chance", identity(3), weak, "sap", factors=FACTORS, seed=seed) == []


def test_several_scores_at_chance_are_one_finding():
    shuffled = np.random.default_rng(1).permutation(FACTORS)
    names = ("mig", "sap", "predictability-gap")
    found = only(said("scores at chance", identity(3), VALUES, *names, factors=shuffled))
    assert found.text == "MIG, SAP and Predictability gap are at chance"


def test_scores_of_codes_that_are_the_factors_are_not_at_chance():
    assert said("scores at chance", identity(3), VALUES, "sap", "mig", factors=FACTORS) == []


def test_a_score_that_shuffled_codes_pass_says_nothing():
    """Modularity of plug-in information: a factor with a value of its own in every row shares
    nearly as much with any code as the code's bins can tell, a factor of two values nearly
    nothing."""
    factors = np.column_stack([normal(600, 1)[:, 0], np.arange(600) % 2])
    codes = torch.from_numpy(factors).float() + 0.1 * normal(600, 2, seed=1)
    arguments = ("scores at chance", identity(2), codes, "modularity")
    options = {"modularity": {"flavour": "dlib"}}
    found = only(said(*arguments, factors=factors, options=options))
    assert found.text == "Modularity is uninformative here"
    assert float(found.table[1][2]) > 0.99
    assert "default flavour" in found.action
    assert said(*arguments, factors=factors) == []  # chance is subtracted


def with_modularity(score, shuffled):
    """Good codes, whose modularity and that of shuffled codes are as given."""
    looked = facts(identity(3), VALUES, "modularity", factors=FACTORS)
    chance = float(np.mean(shuffled))
    result = replace(looked.get("modularity"), score=score, chance=chance, shuffled=shuffled)
    return replace(looked, results={"modularity": result})


def test_one_shuffle_of_ten_does_not_make_a_score_chance_but_two_do():
    rule = BY_NAME["scores at chance"]
    assert rule(with_modularity(0.884, [0.0] * 9 + [1.0])) == []
    assert only(rule(with_modularity(0.884, [0.0] * 8 + [1.0] * 2))).text == (
        "Modularity is at chance"
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [None, 0.1], ids=["deterministic", "variational"])
def test_every_score_of_noise_is_at_chance(seed, spread):
    recording = zs.Recording.from_arrays(
        normal(len(FACTORS), 4, seed),
        FACTORS,
        variances=None if spread is None else torch.full((len(FACTORS), 4), spread**2),
        seed=seed,
    )
    report = zs.assay(recording, names="disentanglement")
    found = [each for each in report.findings if each.rule == "scores at chance"]
    scores = {name for name, each in report.results.items() if isinstance(each, Score)}
    assert len(scores) >= 10
    text = " ".join(each.text for each in found)
    assert [name for name in scores if title(name) not in text] == []
    assert not report.failed


def test_no_gap_between_latents_that_share_a_factor_is_not_chance():
    """Ten values, each of six latents tells as much: gaps vanish, the code is informative."""
    digit = np.random.default_rng(0).integers(0, 10, (2000, 1))
    codes = torch.from_numpy(
        np.eye(10)[digit[:, 0]] @ np.random.default_rng(1).normal(size=(10, 6))
    )
    codes = codes.float() + 0.3 * normal(2000, 6)
    names = ("predictability-gap", "mig", "sap")
    looked = facts(identity(6), codes, *names, factors=digit)
    small = {
        name: replace(each, score=0.0058, chance=0.0008, shuffled=[0.0008] * 2)
        for name, each in looked.results.items()
    }
    assert BY_NAME["scores at chance"](replace(looked, results=small)) == []
    # The same numbers of codes without information are chance.
    noise = facts(identity(6), normal(2000, 6, 1), *names, factors=digit)
    assert only(BY_NAME["scores at chance"](replace(noise, results=small))).text.endswith("chance")


def test_a_factor_that_the_code_does_not_encode_is_named():
    blind = VALUES.clone()
    blind[:, 2] = normal(len(VALUES), 1)[:, 0]
    found = only(said("missing factors", identity(3), blind, "mig", factors=FACTORS))
    assert (found.level, found.text) == ("problem", "The code does not encode factor2")
    assert [row[0] for row in found.table] == ["factor", "factor0", "factor1", "factor2"]
    whole = only(said("missing factors", identity(3), VALUES, "mig", factors=FACTORS))
    assert (whole.level, whole.text) == ("healthy", "The code encodes all 3 factors")
    noise = normal(len(VALUES), 3)
    model = identity(3, std=0.1, prior="normal")
    none = only(said("missing factors", model, noise, "mig", factors=FACTORS))
    assert none.text == "The code encodes none of the factors"


def test_noise_codes_without_a_latent_that_counts_encode_none_of_the_factors():
    looked = facts(identity(4), normal(1000, 4), "mig", "dci", factors=FACTORS.repeat(2, 0)[:1000])
    assert looked.get("mig").active == []
    found = only(BY_NAME["missing factors"](looked))
    assert found.text == "The code encodes none of the factors"
    assert BY_NAME["factors spread over latents"](looked) == []


def test_a_single_factor_is_encoded_or_not():
    """DCI is undefined then; the skill of the same trees is not."""
    kind = np.random.default_rng(0).integers(0, 5, (1000, 1))
    codes = np.random.default_rng(1).normal(size=(5, 4))[kind[:, 0]] * 2
    codes = torch.from_numpy(codes).float() + 0.3 * normal(1000, 4)
    found = only(said("missing factors", identity(4), codes, "mig", factors=kind))
    assert (found.level, found.text) == ("healthy", "The code encodes factor0")
    noise = only(said("missing factors", identity(4), normal(1000, 4, 2), "mig", factors=kind))
    assert (noise.level, noise.text) == ("problem", "The code does not encode factor0")
    assert "same order" in noise.action
    assert said("missing factors", identity(4), codes, factors=kind) == []  # no score was asked


@pytest.mark.parametrize("kind", ["categorical", "continuous"])
@pytest.mark.parametrize(
    ("skill", "level", "words"),
    [
        (0.03, "problem", "does not encode factor0"),
        (0.3, "note", "encodes factor0 (0."),
        (0.8, "healthy", "encodes 2 factors"),
    ],
)
@pytest.mark.parametrize("samples", [1200, 3000])
def test_factors_of_known_skill_are_encoded_in_part_or_not_at_all(
    kind, skill, level, words, samples
):
    """A label that is right with probability `skill` and else at random, or R^2 = `skill`."""
    rng = np.random.default_rng(samples)
    if kind == "categorical":
        factor = rng.integers(0, 4, samples)
        code = np.where(rng.random(samples) < skill, factor, rng.integers(0, 4, samples))
        code = code + 0.01 * rng.normal(size=samples)
    else:
        factor = rng.normal(size=samples)
        code = skill**0.5 * factor + (1 - skill) ** 0.5 * rng.normal(size=samples)
    other = rng.normal(size=samples)
    codes = torch.from_numpy(np.column_stack([code, other])).float()
    factors, kinds = np.column_stack([factor, other]), (kind, "continuous")
    found = only(said("missing factors", identity(2), codes, "mig", factors=factors, kinds=kinds))
    assert found.level == level
    assert words in found.text
    if level != "problem":
        assert float(found.table[1][1]) == pytest.approx(skill, abs=0.12)


def test_a_factor_of_two_latents_together_is_encoded():
    """The sign of a product: no single latent tells it. The sign of one latent is told by it."""
    codes = normal(3000, 2)
    factors = torch.stack([codes[:, 0] * codes[:, 1] > 0, codes[:, 1] > 0], 1).long().numpy()
    model = identity(2, std=0.1, prior="normal")
    looked = facts(model, codes, "mig", factors=factors)
    found = only(BY_NAME["missing factors"](looked))
    assert (found.level, found.text) == ("healthy", "The code encodes 2 factors")
    (_, skill, nats), (_, other_skill, other_nats) = found.table[1:]
    assert float(skill) > 0.5
    assert float(nats) < 0.05
    assert float(other_skill) > 0.9
    assert float(other_nats) > 0.5
    spread = only(BY_NAME["factors spread over latents"](looked))
    assert spread.text == "factor0 is encoded by several latents"
    assert spread.table[1][1] == "none alone"


def on_a_ring(samples=3000, centre=(0.0, 0.0)):
    """Twelve values of an angle in two latents, four of another factor in the third."""
    rng = np.random.default_rng(0)
    angle, other = rng.integers(0, 12, samples), rng.integers(0, 4, samples)
    turn = 2 * np.pi * angle / 12
    codes = np.column_stack([np.cos(turn) + centre[0], np.sin(turn) + centre[1], other - 1.5])
    codes = torch.from_numpy(codes + 0.02 * rng.normal(size=codes.shape)).float()
    return codes, np.column_stack([angle, other]), turn


ORDERED = ("ordinal", "ordinal")


def test_a_factor_encoded_as_an_angle_is_named():
    codes, factors, turn = on_a_ring()
    chart = "cartesian-or-polar"
    looked = facts(identity(3), codes, chart, "mig", factors=factors, kinds=ORDERED)
    found = only(BY_NAME["polar pairs"](looked))
    assert found.text == "Latents 0 and 1 encode factor0 as an angle"
    # The angle is not also reported as a factor of several latents.
    other = only(BY_NAME["factors spread over latents"](looked))
    assert other.text == "factor1 is encoded mainly by latent 2"
    straight = np.column_stack([turn, factors[:, 1], normal(3000, 1)[:, 0]])
    straight = torch.from_numpy(straight).float()
    assert said("polar pairs", identity(3), straight, chart, factors=factors, kinds=ORDERED) == []
    # Values without an order are at no angle.
    kinds = ("categorical", "ordinal")
    assert said("polar pairs", identity(3), codes, chart, factors=factors, kinds=kinds) == []


def test_the_advised_angle_is_around_the_centre_of_the_ring():
    rng = np.random.default_rng(0)
    hue, size = rng.uniform(-np.pi, np.pi, 2000), rng.uniform(0.8, 1.2, 2000)
    codes = np.column_stack([5 + size * np.cos(hue), -3 + size * np.sin(hue)])
    codes = torch.from_numpy(codes + 0.02 * rng.normal(size=codes.shape)).float()
    factors, chart = np.column_stack([hue, size]), "cartesian-or-polar"
    kinds = ("continuous", "continuous")
    found = only(said("polar pairs", identity(2), codes, chart, factors=factors, kinds=kinds))
    assert found.text == "Latents 0 and 1 encode factor0 as an angle and factor1 as a radius"
    formula = found.action.split("from ")[1].split(", not")[0]
    names = {"atan2": np.arctan2, "z0": codes[:, 0].numpy(), "z1": codes[:, 1].numpy()}
    error = np.angle(np.exp(1j * (eval(formula, names) - hue)))
    assert np.abs(error).max() < 0.2
    assert np.corrcoef(np.arctan2(names["z1"], names["z0"]), hue)[0, 1] < 0.8  # without it


@pytest.mark.parametrize("samples", [600, 2000])
@pytest.mark.parametrize("degrees", [20, 45])
@pytest.mark.parametrize("kind", ["categorical", "ordinal"])
def test_two_factors_on_a_turned_grid_are_no_angle(samples, degrees, kind):
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 4, (samples, 2))
    codes = (factors - 1.5) * [1, 1.5] + 0.5 * rng.normal(size=(samples, 2))
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    codes = torch.from_numpy(codes @ [[cosine, -sine], [sine, cosine]]).float()
    kinds, name = (kind, kind), "cartesian-or-polar"
    assert said("polar pairs", identity(2), codes, name, factors=factors, kinds=kinds) == []


@pytest.mark.parametrize("seed", range(6))
def test_random_clusters_are_no_angles_even_if_they_are_numbered(seed):
    rng = np.random.default_rng(seed)
    label, other = rng.integers(0, 10, 600), rng.integers(0, 3, 600)
    codes = rng.normal(size=(10, 4))[label] * 2 + 0.3 * rng.normal(size=(600, 4))
    codes, factors = torch.from_numpy(codes).float(), np.column_stack([label, other])
    name = "cartesian-or-polar"
    assert said("polar pairs", identity(4), codes, name, factors=factors, kinds=ORDERED) == []


def test_two_latents_with_a_part_of_a_factor_are_no_angle():
    """A noisy ring beside a latent that tells the factor well: the code is not an angle."""
    codes, factors, _ = on_a_ring()
    chart, rule = "cartesian-or-polar", "polar pairs"
    codes[:, :2] += 0.6 * normal(len(codes), 2)
    noisy = said(rule, identity(3), codes, chart, "mig", factors=factors, kinds=ORDERED)
    assert only(noisy).text == "Latents 0 and 1 encode factor0 as an angle"
    more = torch.cat([codes, torch.from_numpy(factors[:, :1]).float()], 1)
    assert said(rule, identity(4), more, chart, "mig", factors=factors, kinds=ORDERED) == []


def test_the_radius_names_no_factor_that_it_does_not_encode():
    rng = np.random.default_rng(0)
    turn, other = rng.uniform(-np.pi, np.pi, 600), rng.integers(0, 3, 600)
    codes = np.column_stack([np.cos(turn), np.sin(turn)]) * rng.uniform(0.5, 1.5, (600, 1))
    factors, kinds = np.column_stack([turn, other]), ("continuous", "ordinal")
    codes, name = torch.from_numpy(codes).float(), "cartesian-or-polar"
    found = only(said("polar pairs", identity(2), codes, name, factors=factors, kinds=kinds))
    assert found.text == "Latents 0 and 1 encode factor0 as an angle"


def test_a_factor_in_two_latents_is_named_and_one_in_a_single_latent_is_not():
    twice = torch.cat([VALUES, VALUES[:, :1] + 0.3 * normal(len(VALUES), 1)], 1)
    rule = "factors spread over latents"
    found = only(said(rule, identity(4), twice, "mig", factors=FACTORS))
    assert found.text == "factor0 is encoded by several latents"
    assert found.table[1][1] == "0, 3"
    own = only(said(rule, identity(3), VALUES, "mig", factors=FACTORS))
    assert (own.level, own.text) == ("healthy", "Each factor is encoded mainly by one latent")


def test_one_factor_in_many_latents_is_one_statement_that_lists_all_of_them():
    digit = np.random.default_rng(0).integers(0, 10, (2000, 1))
    # Each of four latents has the ten values in another order, so that all tell as much.
    codes = torch.from_numpy(digit * [1, 3, 7, 9, 0] % 10).float() + normal(2000, 5)
    report = zs.assay(zs.Recording.from_arrays(codes, digit, names=["digit"]))
    texts = [each.text for each in report.findings if each.rule == "factors spread over latents"]
    assert texts == ["digit is encoded by several latents"]
    found = next(each for each in report.findings if each.text in texts)
    assert sorted(found.table[1][1].split(", ")) == ["0", "1", "2", "3"]
    assert "factors" not in found.action


def test_axes_of_the_decoder_that_are_no_better_than_random_are_said_to_be_so():
    scale = torch.tensor([1.0, 2.0, 4.0])

    def turned(rotation):
        weight = rotation @ torch.diag(scale)
        inverse = torch.linalg.inv(weight)
        return World(lambda z: z @ weight.to(z), lambda x: x @ inverse.to(x), 3)

    name = "distance-to-orthogonality"
    aligned = only(said("decoder axes", turned(torch.eye(3)), normal(latents=3), name))
    assert aligned.level == "healthy"
    third = 2 * torch.ones(3, 3) / 3 - torch.eye(3)  # each axis is shared by all directions
    found = only(said("decoder axes", turned(third), normal(latents=3), name))
    assert found.level == "note"
    assert found.text.startswith("The decoder's axes are no better than random (distance ")


def test_a_long_table_counts_what_it_leaves_out():
    rows = table(("latent", "share"), [(j, 0.5) for j in range(20)])
    assert len(rows) == 9
    assert rows[1] == ("0", "0.50")
    assert rows[-1] == ("and 13 more", "")


def test_rotated_factors_can_be_read_but_sit_in_no_latent_alone():
    turned = VALUES @ (torch.eye(3) - 2 / 3)  # a reflection: two codes share each factor
    names = ("mig", "explicitness")
    found = only(said("factors spread over latents", identity(3), turned, *names, factors=FACTORS))
    assert found.level == "note"
    assert found.text == "factor0, factor1 and factor2 are each encoded by several latents"
    own = only(said("factors spread over latents", identity(3), VALUES, *names, factors=FACTORS))
    assert own.level == "healthy"
    noise = normal(len(FACTORS), 3)
    assert said("factors spread over latents", identity(3), noise, *names, factors=FACTORS) == []


def test_few_observations_are_said_to_be_few():
    assert only(said("few samples", identity(4), normal(60))).text.startswith(
        "Only 60 observations"
    )
    assert said("few samples", identity(4), normal(200)) == []


# All of them


def test_every_rule_is_named_once_shows_its_threshold_and_is_tested_above():
    assert len(BY_NAME) == len(RULES)
    text = Path(__file__).read_text()
    for rule in RULES:
        as_percent = "{percent" in rule.checks
        threshold = f"{100 * rule.threshold:g} %" if as_percent else f"{rule.threshold:g}"
        assert threshold in rule.sentence, rule.name
        assert text.count(f'"{rule.name}"') >= 2, f"{rule.name} lacks a test"


def test_problems_come_first_then_what_matters_more():
    def always(*found):
        return Rule("always", 0.0, "Always.", lambda facts, threshold: found)

    rules = [
        always(Finding("a", "", level="healthy", matters=1.0)),
        always(Finding("b", "", level="note", matters=0.2), Finding("c", "", matters=0.4)),
        always(Finding("d", "", level="problem", matters=0.1)),
    ]
    assert [each.text for each in findings(facts(identity(2), normal(latents=2)), rules, {})] == [
        *("d", "c", "b", "a")
    ]


def test_a_finding_carries_its_rule_and_is_plain_in_json():
    found = only(said("few samples", identity(4), normal(60)))
    assert found.rule == "few samples"
    assert "50" in found.checked
    assert found.to_dict()["sentence"] == str(found)


def test_numbers_in_sentences_are_short():
    assert percent(0.314) == "31 %"
    assert percent(0.0149) == "1.5 %"
    assert percent(0) == "0 %"
    assert percent(0.0001) == "under 0.1 %"
    assert index_list(range(3)) == "[0, 1, 2]"
    assert index_list(range(100)) == "[0, 1, 2, 3, 4, 5, 6, 7, …, 99]"
    assert [title(n) for n in ("sap", "mig-sup", "factor-vae-score", "explicitness")] == [
        *("SAP", "MIG-sup", "FactorVAE score", "Explicitness")
    ]
