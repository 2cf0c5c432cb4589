"""Rules about the latent space: each speaks where it must and nowhere else."""

import pytest
import torch
from rule_facts import BY_NAME, facts, normal, only, said
from worlds import World, identity, responding

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
    assert 'zs.assays.holes(recording, base="hybrid")' in found.action  # which may not be better


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
