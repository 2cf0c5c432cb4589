"""Rules about the model and its latents: each speaks where it must and nowhere else."""

from dataclasses import replace

import pytest
import torch
from rule_facts import BY_NAME, facts, normal, only, said
from worlds import World, identity

import zscope as zs
from zscope.data.dataset import from_arrays
from zscope.report.build import compare_reconstructions
from zscope.report.findings import Facts, findings
from zscope.report.latents import latent_table
from zscope.report.rules import RULES


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
    share, _ = compare_reconstructions(recording)
    found = only(BY_NAME["reconstruction"](Facts(recording, {}, [], share)))
    assert found.level == level
    assert words in found.text.replace("26 %", "25 %").replace("24 %", "25 %")


def test_reconstructions_are_judged_over_all_of_data_that_are_sorted():
    """The second half decodes to nothing: the first rows alone would look perfect."""
    x = normal(4000, 3)
    x[2000:] += 100
    model = World(lambda z: torch.where(z > 50, 0.0, z), lambda x: x, 3)
    share, examples = compare_reconstructions(zs.record(model, from_arrays(x)))
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


def test_codes_on_a_curve_fill_one_dimension_of_four():
    t = torch.linspace(-2, 2, 800).unsqueeze(1)
    curve = torch.cat([t, t.sin(), t.cos(), t.square()], 1)
    found = only(said("few dimensions", identity(4), curve, "intrinsic-dimension"))
    assert found.text == "The codes of 4 latents have an intrinsic dimension of about 1"
    assert said("few dimensions", identity(4), normal(), "intrinsic-dimension") == []


def test_few_observations_are_said_to_be_few():
    assert only(said("few samples", identity(4), normal(60))).text.startswith(
        "Only 60 observations"
    )
    assert said("few samples", identity(4), normal(200)) == []
