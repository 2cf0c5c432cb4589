"""Masks: open edges, and what closing them changes, where the answer is known."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from worlds import seeded

import zscope as zs
from zscope.autoencoder import Posterior, WithCausalBlock
from zscope.errors import ConfigError, Undefined

# Parents x children. Edge 0>3 is open but does nothing, 1>3 is closed.
WEIGHTS = torch.tensor([[0, 0.5, 0, 0], [0, 0, 2.0, 3.0], [0, 0, 0, -1.0], [0, 0, 0, 0]]).double()
GATES = torch.tensor([[0, 0.9, 0.2, 0.7], [0, 0, 0.8, 0.1], [0, 0, 0, 0.6], [0] * 4]).double()


class Linear(WithCausalBlock):
    """Z_c = N_c + sum_p M_pc W_pc Z_p; observations are the causes, `unit` times repeated."""

    latents, prior, unit = 4, "normal", 1

    def __init__(self):
        super().__init__()
        self.block = torch.nn.Identity()

    def edge_probabilities(self):
        return GATES

    def causes(self, noise, *, fixed=None, edges=None):
        weights = WEIGHTS * (GATES > 0.5 if edges is None else edges)
        causes = []
        for child in range(4):
            parents = sum((causes[p] * weights[p, child] for p in range(child)), 0 * noise[:, 0])
            causes.append(noise[:, child] + parents)
        return torch.stack(causes, 1).repeat_interleave(self.unit, 1)

    def decode_causes(self, causes):
        return causes

    def decode(self, z):
        return self.causes(z)

    def encode(self, x, auxiliary=None):
        causes = x[:, :: self.unit]
        return Posterior(causes - causes @ (WEIGHTS * (GATES > 0.5)))


def world(unit=1, noise=0.5, count=4000):
    model = Linear()
    model.unit = unit
    codes = torch.randn(count, 4, generator=seeded(0), dtype=torch.float64)
    clean = model.causes(codes)
    spoiled = clean + noise * torch.randn(clean.shape, generator=seeded(1), dtype=torch.float64)
    return model, codes, spoiled


def test_self_consistency_changes_by_what_a_closed_edge_leaves_unexplained():
    """The encoder assumes all open edges: closing (p, c) shifts N'_c by W_pc Z_p alone.

    The other responses are unchanged, as the encoder removes what the parents really did.
    """
    model, codes, x = world()
    found = zs.assays.masks(model, codes, x, samples=4000)
    assert found.self_consistency == pytest.approx(1)
    causes = model.causes(codes)
    for p, c in found.edges:
        shift = WEIGHTS[p, c] * causes[:, p]
        response = codes[:, c] - shift
        expected = -float(shift.abs().mean() / response.std(correction=0)) / 4
        assert float(found.self_consistency_change[p, c]) == pytest.approx(expected, abs=1e-9)
    assert float(found.self_consistency_change[0, 3]) == 0  # an edge that does nothing
    change = found.measures()[-1]
    assert change.name == "change of self-consistency without edges"
    assert change.value == found.self_consistency_without_edges - 1 < -0.1


@pytest.mark.parametrize("unit", [1, 3])
def test_effects_are_those_of_the_closed_form(unit):
    """Without edge (p, c) the child's cause misses W_pc Z_p, and so do its descendants."""
    model, codes, x = world(unit)
    found = zs.assays.masks(model, codes, x, samples=4000)
    causes = model.causes(codes)[:, ::unit]
    sd = causes.std(0, correction=0)
    assert found.edges == [(0, 1), (0, 3), (1, 2), (2, 3)]
    for p, c in found.edges:
        change = WEIGHTS[p, c].abs() * sd[p]
        assert float(found.cause_change[p, c]) == pytest.approx(float(change / sd[c]))
    # 1>2 is worth 2 Z_1, and -1 times that reaches unit 3: 4 Z_1² twice.
    rise = unit * 2 * 4 * float(causes[:, 1].square().mean())
    assert float(found.error_rise[1, 2]) == pytest.approx(rise, rel=0.05)
    assert found.error == pytest.approx(unit * 4 * 0.25, rel=0.05)


def test_a_constant_parent_is_not_a_cause_that_moves_its_child():
    """Codes of a collapsed model hardly vary: closing an edge only shifts the child."""
    model, codes, x = world()
    moved = zs.assays.masks(model, codes, x).cause_change
    collapsed = zs.assays.masks(model, 100 + 1e-3 * codes, x).cause_change
    assert torch.allclose(moved, collapsed, rtol=1e-6)  # linear: the same, whatever the scale
    assert collapsed.max() < 2


def test_an_open_edge_that_does_nothing_is_not_needed():
    model, codes, x = world()
    found = zs.assays.masks(model, codes, x)
    assert bool(found.adjacency[0, 3])
    assert found.error_rise[0, 3] == found.cause_change[0, 3] == 0
    assert found.needed == [(0, 1), (1, 2), (2, 3)]


def test_a_closed_edge_has_no_effect_whatever_its_function():
    model, codes, x = world()
    found = zs.assays.masks(model, codes, x)
    assert not found.adjacency[1, 3]
    assert found.error_rise[1, 3] == found.cause_change[1, 3] == 0


def test_shares_are_of_possible_edges_and_of_all_cells():
    found = zs.assays.masks(*world())
    assert found.score == pytest.approx(4 / 6)
    assert found.of_all_cells == pytest.approx(4 / 16)
    assert torch.equal(found.probabilities, GATES)


def test_without_edges_the_causes_are_the_noises():
    model, codes, x = world()
    found = zs.assays.masks(model, codes, x, samples=4000)
    assert found.error_without_edges == pytest.approx(float((codes - x).square().sum(1).mean()))
    changes = (codes - model.causes(codes)).std(0, correction=0)
    expected = changes / model.causes(codes).std(0, correction=0)
    assert torch.allclose(found.cause_change_without_edges, expected)


def test_a_rise_within_its_own_noise_is_not_called_needed():
    """Independent noise in x, of 1,000 times the effect: no edge can be told to matter."""
    model, codes, x = world(noise=1000.0, count=200)
    assert zs.assays.masks(model, codes, x).needed == []
    quiet = zs.assays.masks(*world(noise=0.01, count=200))
    assert quiet.needed == [(0, 1), (1, 2), (2, 3)]


def test_a_model_of_the_catalogue_is_measured_and_drawn():
    x = torch.rand(80, 5, generator=seeded(0))
    model = zs.models.build("xvae", shape=(5,), latents=4, unit=2)
    recording = zs.record(model, x)
    report = zs.assay(recording, names=["masks", "response-matrix"])
    found = report.results["masks"]
    assert found.score == 1
    assert found.responses is not None
    # Another way to the same number: the decoder on causes computed with hand-made gates.
    gates = torch.ones(6)
    gates[0] = 0  # the edge 0>1 is the first
    with torch.no_grad():
        z = model.encode(x).mean
        errors = [
            (model.likelihood.mean(model.output(z, g)) - x).square().sum(1).mean()
            for g in (gates, torch.ones(6))
        ]
    assert float(found.error_rise[0, 1]) == pytest.approx(float(errors[0] - errors[1]), abs=1e-6)
    json.dumps(found.to_dict())
    assert "6 of 6 (37.5% of all cells)" in repr(found)
    assert len(found.plot_graph().axes) == 2  # beside the graph of the responses
    found.plot()
    found.plot_effects()


def test_models_without_a_block_are_told_so():
    x = torch.rand(40, 5, generator=seeded(0))
    plain = zs.models.build("vae", shape=(5,), latents=3)
    report = zs.assay(zs.record(plain, x), names=["response-matrix", "masks"])
    assert "no causal block" in str(report.missing["masks"])
    with pytest.raises(Undefined, match="Composed has no causal block.*block='causal'"):
        zs.assays.masks(plain, torch.zeros(4, 3), x[:4])


def test_what_does_not_belong_together_is_refused():
    model, codes, x = world()
    with pytest.raises(ConfigError, match="4000 codes and 10 observations"):
        zs.assays.masks(model, codes.numpy(), x[:10].numpy())
    with pytest.raises(ConfigError, match="least=-1"):
        zs.assays.masks(model, codes, x, least=-1)


@pytest.fixture(scope="module")
def learn():
    """Trains models on five causes whose dependence is known; the decoder is the identity."""
    file = Path(__file__).resolve().parents[3] / "benchmarks" / "gates.py"
    return runpy.run_path(str(file), run_name="gates")["learn"]


@pytest.mark.slow
def test_gates_find_a_known_structure_where_only_the_block_can_express_it(learn):
    """No wrong edge is open; a true one may have closed too early, as 2 of 12 had before."""
    outcomes = learn("chosen", (40, 41, 42))
    for each in outcomes:
        assert each.wrong == 0
        assert each.masks.needed == each.masks.edges
    assert sum(each.true for each in outcomes) >= 4  # of 6


@pytest.mark.slow
def test_gates_find_nothing_among_independent_causes(learn):
    for each in learn("chosen, independent", (40, 41, 42)):
        assert each.masks.edges == []


def test_the_error_of_the_rise_is_that_of_a_jackknife_of_the_ratio():
    model, codes, x = world(count=300)
    found = zs.assays.masks(model, codes, x, samples=300)
    errors = (model.causes(codes) - x).square().sum(1)
    without = (codes - x).square().sum(1)
    left_out = (without.sum() - without) / (errors.sum() - errors)
    jackknife = float((299 / 300 * (left_out - left_out.mean()).square().sum()).sqrt())
    assert found.standard_error_of_rise == pytest.approx(jackknife, rel=0.03)
    # The error of the difference alone, over the same denominator, is another number.
    alone = found.standard_error_without_edges / found.error
    assert found.standard_error_of_rise != pytest.approx(alone, rel=0.1)
