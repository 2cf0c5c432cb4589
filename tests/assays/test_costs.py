"""What assays cost, and what they do where that is too much."""

import pytest
import torch
import torch.nn.functional as F
from map_worlds import Counting as CountingMaps
from map_worlds import power_law
from worlds import World, gaussian_codes, grid, identity, random_rotation

import zscope as zs
from zscope import assays as a
from zscope.assays import CATALOGUE
from zscope.assays.choosing import choose
from zscope.assays.run import costs, measure, passes
from zscope.data.dataset import from_arrays
from zscope.errors import Undefined
from zscope.factors import factors_of
from zscope.recording import Recording


def test_few_latents_and_few_rows_leave_no_note():
    """Defaults stand in the function alone: no limit lowers them for two latents."""
    for rows in (60, 2000):
        recording = zs.record(identity(2, std=0.1, prior="normal"), gaussian_codes(rows, 2).float())
        names = [entry.name for entry in choose(None) if entry.most]
        assert not measure(recording, names).notes


LATENTS = [1, 2, 10, 32, 38, 64, 256, 304, 499, 1024, 16_384]


def recording_of_sizes(latents: int, factors: int) -> Recording:
    codes = torch.zeros(20, latents)
    values = torch.arange(20)[:, None] % torch.arange(2, 2 + factors)
    model = zs.Autoencoder()
    model.latents = latents
    return Recording(model, zs.Posterior(codes, codes + 1), None, None, 0, factors_of(values))


@pytest.mark.parametrize("factors", [2, 10, 40])
@pytest.mark.parametrize("latents", LATENTS)
def test_a_default_report_takes_less_than_120_000_passes(latents, factors):
    recording = recording_of_sizes(latents, factors)
    assert sum(costs(choose(None), recording, {})) < 120_000


@pytest.mark.parametrize("factors", [2, 5, 10])
@pytest.mark.parametrize("latents", [2, 84, 256])
def test_ten_factors_and_256_latents_leave_no_assay_out(latents, factors):
    recording = recording_of_sizes(latents, factors)
    entries = [entry for entry in choose(None) if entry.most and "causal block" not in entry.needs]
    assert [entry.name for entry in entries if not passes(entry, recording, {})] == []


class Counting(World):
    """Counts codes decoded (with derivatives: once for each latent) and observations encoded."""

    decodings = encodings = 0

    def decode(self, z):
        derivatives = torch._C._functorch.maybe_current_level() is not None
        self.decodings += len(z) * (self.latents if derivatives else 1)
        return self.decoder(z)

    def encode(self, x, auxiliary=None):
        self.encodings += len(x)
        return super().encode(x)


def test_the_stated_cost_of_masks_is_that_measured(monkeypatch):
    model = zs.models.build("xvae", shape=(6,), latents=6, backbone="mlp", hidden=(8,))
    recording = zs.record(model, gaussian_codes(3000, 6).float())
    a.response_matrix(recording)  # its own cost; they share it
    rows, real = [], model.decode_causes
    monkeypatch.setattr(model, "decode_causes", lambda z: rows.append(z) or real(z))
    entry = CATALOGUE["masks"]
    entry.load()(recording)
    assert sum(map(len, rows)) == pytest.approx(passes(entry, recording, {}), rel=0.1)


# What is measured on request has a test of its own: of a linear decoder it costs far less.
USUAL = {name: entry for name, entry in CATALOGUE.items() if not entry.on_request}
COSTLY = [
    name
    for name, entry in USUAL.items()
    if entry.passes and not {"causal block", "layout"} & set(entry.needs)
]
OF_MAPS = [name for name, entry in USUAL.items() if entry.passes and "layout" in entry.needs]


@pytest.mark.parametrize("name", COSTLY)
def test_stated_costs_are_those_measured(name):
    # A rotation has no fixed point, so that paths and drifts do not arrive early; enough values
    # of each factor, so that the groups of a conditioned response are not exhausted; codes whose
    # graph of ten neighbours is connected, or a path would try more neighbours.
    turn = random_rotation(6)
    world = Counting(lambda z: z @ turn.T.to(z), lambda x: x, 6, prior="normal", std=0.1)
    data = from_arrays(gaussian_codes(3000, 6).float(), grid(5, 20, 30))
    recording = zs.record(world, data, seed=1)
    entry = CATALOGUE[name]
    stated = passes(entry, recording, {})
    world.decodings = world.encodings = 0
    entry.load()(recording)
    # abs=2: the first use of a model decodes two codes to learn how much memory they take.
    assert max(world.decodings, world.encodings) == pytest.approx(stated, rel=0.1, abs=2)


@pytest.mark.parametrize("side", [16, 32])
@pytest.mark.parametrize("name", OF_MAPS)
def test_stated_costs_of_maps_are_those_measured_and_the_same_for_larger_ones(name, side):
    counting = CountingMaps(
        lambda x: F.avg_pool2d(x, 2), lambda z: F.interpolate(z, scale_factor=2)
    )
    recording = zs.record(counting.model, power_law(600, side, 1.0, colours=2))
    entry = CATALOGUE[name]
    stated = passes(entry, recording, {})
    assert stated == entry.cost({"samples": None, "channels": 2, "pictures": 128})
    counting.decodings = counting.encodings = 0
    entry.load()(recording)
    assert max(counting.decodings, counting.encodings) == pytest.approx(stated, abs=2)


def test_more_latents_lower_the_samples_and_the_note_says_so():
    recording = zs.record(identity(64), gaussian_codes(300, 64).float())
    found = measure(recording, ["response-matrix"])
    assert found.results["response-matrix"].samples == 12_000 // 65
    assert found.notes["response-matrix"].startswith("184 samples instead of 1,024")
    own = measure(recording, ["response-matrix"], options={"response-matrix": {"samples": 200}})
    assert own.results["response-matrix"].samples == 200
    assert not own.notes


def test_too_many_latents_are_refused_with_a_way_forward():
    recording = zs.record(identity(2000), gaussian_codes(20, 2000).float())
    with pytest.raises(Undefined, match=r"2,000 latents needs more than the 12,000.*samples=16"):
        a.response_matrix(recording)


def test_a_refusal_says_how_many_passes_it_would_take():
    recording = zs.record(identity(512), gaussian_codes(600, 512).float())
    with pytest.raises(
        Undefined,
        match=r"4,000 passes that it may take by default: 4,096 with samples=8, .*"
        r"samples=16 \(--set distance-to-orthogonality.samples=16; 8,192 passes\)",
    ):
        a.distance_to_orthogonality(recording)
