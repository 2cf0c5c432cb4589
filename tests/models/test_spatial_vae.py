"""Spatial latents: maps of channels and places, what goes with them, and what is refused."""

import json
import re

import numpy as np
import pytest
import torch
from test_zoo import extras
from worlds import seeded

import zscope as zs
from zscope.cli import main
from zscope.errors import ConfigError, InterfaceError
from zscope.experiments.sweeps.plan import read_plan
from zscope.models import consistency
from zscope.models.composed import Batch
from zscope.training.progress import collapse_warning

SMALL = {"channels": 2, "filters": 16}
# Objectives that add up what single latents contribute, which maps leave unchanged.
OF_MAPS = {"ae", "vae", "beta-vae", "annealed-vae", "avae", "slow-vae"}


def build(shape=(1, 8, 8), **options):
    return zs.models.build("spatial-vae", shape=shape, **{**SMALL, **options})


def pictures(*shape, seed=0):
    return torch.rand(*shape, generator=seeded(seed))


@pytest.mark.parametrize(
    ("shape", "places"),
    [
        ((3, 32, 32), (8, 8)),
        ((3, 64, 64), (8, 8)),
        ((3, 128, 128), (8, 8)),
        ((1, 28, 28), (7, 7)),
        ((3, 32, 64), (8, 16)),
        ((2, 96, 96), (12, 12)),
        ((1, 100, 100), (25, 25)),  # 100 pixels can be halved twice
        ((1, 16, 16), (8, 8)),
        ((1, 8, 8), (4, 4)),  # at least one halving
    ],
    ids=str,
)
def test_defaults_give_about_eight_places_a_side(shape, places):
    model = zs.models.build("spatial-vae", shape=shape, filters=16)
    layout = zs.Layout(4, places)
    assert (model.layout, model.latents) == (layout, layout.latents)
    x = pictures(2, *shape)
    posterior = model.encode(x)
    assert (posterior.layout, posterior[:1].layout) == (layout, layout)
    assert posterior.std.shape == posterior.mean.shape == (2, layout.latents)
    assert model.decode(posterior.mean).shape == x.shape
    assert model.features(x).shape == (2, 16 if max(shape) > 16 else 8)


def test_the_model_of_the_guide_is_small():
    model = zs.models.build("spatial-vae", shape=(3, 32, 32))
    block = 2 * 64 + 9 * 64 * 64 + 64, 2 * 32 + 9 * 32 * 32 + 32
    strided = (16 * 3 * 32 + 32) + (16 * 32 * 64 + 64)
    encoder = strided + sum(block) + 2 * 64 + (64 * 8 + 8)
    growing = (16 * 64 * 32 + 32) + (16 * 32 * 3 + 3)
    decoder = (4 * 64 + 64) + sum(block) + growing + 2 * 32
    assert sum(p.numel() for p in model.parameters()) == encoder + decoder == 162_507


@pytest.mark.parametrize("halvings", [1, 2, 3])
def test_the_number_of_halvings_can_be_chosen(halvings):
    model = build((3, 32, 16), halvings=halvings)
    assert model.layout.places == (32 // 2**halvings, 16 // 2**halvings)
    x = pictures(2, 3, 32, 16)
    assert model.decode(model.encode(x).mean).shape == x.shape


def test_every_pixel_is_seen_and_every_pixel_can_be_drawn():
    model, x = build((2, 24, 16)), pictures(8, 2, 24, 16).requires_grad_()
    seen = torch.autograd.grad(model.encode(x).mean.square().sum(), x)[0]
    assert (seen.abs().sum(0) > 0).all()
    z = torch.randn(8, model.latents, generator=seeded(1))
    assert (model.decode(z).std(0) > 0).all()


def test_latents_are_numbered_channel_by_channel_and_place_by_place():
    model = build((1, 32, 32))  # maps of 2 x 8 x 8, a place has 4 x 4 pixels
    z = torch.randn(1, model.latents, generator=seeded(0)).repeat(2, 1)
    maps = model.layout.view(z.clone())
    z[1, 1 * 64 + 2 * 8 + 5] += 1  # channel 1, row 2, column 5
    maps[1, 1, 2, 5] += 1
    with torch.no_grad():
        decoded = model.decode(z)
        assert torch.equal(decoded, model.decode_any_size(maps))
    changed = (decoded[1] - decoded[0]).abs()[0]
    of_places = changed.reshape(8, 4, 8, 4).mean((1, 3))
    assert of_places.argmax() == 2 * 8 + 5  # group norm lets all others change a little


def test_pictures_of_other_sizes_have_maps_of_other_sizes():
    model, layout = build((3, 32, 32)), zs.Layout(2, (8, 8))
    x = pictures(4, 3, 32, 32)
    maps = model.encode_any_size(x)
    assert torch.equal(maps, layout.view(model.encode(x).mean))
    assert torch.equal(model.decode_any_size(maps), model.decode(layout.flat(maps)))
    for height, width in [(16, 16), (48, 20), (4, 4)]:
        other = pictures(2, 3, height, width)
        maps = model.encode_any_size(other)
        assert maps.shape == (2, 2, height // 4, width // 4)
        assert model.decode_any_size(maps).shape == other.shape
    with pytest.raises(InterfaceError, match=r"\(3, 18, 32\).*multiples of 4.*Crop or pad"):
        model.encode_any_size(pictures(2, 3, 18, 32))
    with pytest.raises(InterfaceError, match=r"\(1, 32, 32\).*3 colours"):
        model.encode_any_size(pictures(2, 1, 32, 32))
    with pytest.raises(InterfaceError, match=r"maps of shape \(2, 3, 8, 8\).*2 channels"):
        model.decode_any_size(pictures(2, 3, 8, 8))
    with pytest.raises(InterfaceError, match=r"takes batches of \(3, 32, 32\)"):
        model.encode(pictures(2, 3, 16, 16))  # other sizes are for those who ask for maps
    vector = zs.models.build("vae", shape=(3, 32, 32), latents=2)
    with pytest.raises(InterfaceError, match="vae: the model takes pictures of one size"):
        vector.encode_any_size(x)
    with pytest.raises(InterfaceError, match="vae: the model takes latents of one size"):
        vector.decode_any_size(maps)


def test_the_loss_is_the_squared_error_and_beta_nats_of_all_places():
    model, x = build(beta=0.25).double(), pictures(5, 1, 8, 8).double()
    losses = model.losses(x, seeded(1))
    posterior = model.encode(x)
    decoded = model.decode(posterior.sample(seeded(1)))
    error = (decoded - x).square().sum((1, 2, 3)).mean()
    variance = posterior.std.square()
    nats = 0.5 * (posterior.mean.square() + variance - 1 - variance.log())
    assert losses.terms["reconstruction"].item() == pytest.approx(error.item())
    assert losses.terms["divergence"].item() == pytest.approx(nats.sum().item() / 5)
    assert losses.total.item() == pytest.approx((error + 0.25 * nats.sum() / 5).item())


def test_beta_zero_and_one_are_the_autoencoder_with_noise_and_the_vae():
    x = pictures(5, 1, 8, 8)
    free = build(beta=0).losses(x, seeded(1))
    assert free.total == free.terms["reconstruction"]
    assert free.terms["divergence"] > 0
    options = {"shape": (1, 8, 8), "backbone": "spatial", "likelihood": "mse", **SMALL}
    plain = zs.models.build("vae", **options)
    assert build(beta=1).losses(x, seeded(1)).total == plain.losses(x, seeded(1)).total
    assert build().divergence_weight == 0.003
    assert plain.divergence_weight == 1


def test_a_recipe_holds_every_option_and_makes_the_same_model():
    model = build((3, 16, 16), seed=4, beta=0.5)
    assert model.recipe == {
        "name": "spatial-vae",
        "shape": [3, 16, 16],
        "latents": 128,
        "options": {
            "beta": 0.5,
            "likelihood": "mse",
            "weights": "torch",
            "seed": 4,
            "channels": 2,
            "halvings": None,
            "filters": 16,
            "activation": "silu",
        },
    }
    again = zs.models.from_recipe(json.loads(json.dumps(model.recipe)))
    assert (again.recipe, again.layout) == (model.recipe, model.layout)
    one, two = model.state_dict(), again.state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert build().recipe["options"]["beta"] == 0.003  # a default of its own is recorded
    other = build(likelihood="bernoulli").decode(torch.randn(3, 32, generator=seeded(0)) * 50)
    assert 0 <= other.min() <= other.max() <= 1


def test_the_number_of_latents_follows_from_channels_and_places():
    assert build(latents=2 * 4 * 4).latents == 32
    with pytest.raises(ConfigError, match=r"spatial-vae has 2 x 4 x 4 = 32 latents .*latents=10"):
        build(latents=10)
    with pytest.raises(ConfigError, match="latents=0; expected a whole number"):
        build(latents=0)
    data = zs.data.from_arrays(np.zeros((4, 1, 16, 16), np.float32))
    assert zs.models.recipe_for("spatial-vae", data, channels=3)["latents"] == 3 * 8 * 8
    assert zs.models.build("vae", shape=(4,)).latents == 10  # what others have by default


@pytest.mark.parametrize("name", zs.models.CATALOGUE)
def test_every_objective_takes_maps_or_says_why_not(name):
    options = {"auxiliary": 2} if name == "ivae" else {}
    options |= {"shape": (1, 8, 8), "backbone": "spatial", **SMALL}
    if name in OF_MAPS:
        model, x = zs.models.build(name, **options), pictures(4, 1, 8, 8)
        losses = model.losses(x, seeded(1), **extras(model, x))
        losses.whole.backward()
        assert losses.total.isfinite()
        assert all(p.grad is not None for p in model.parameters())
        assert model.encode(x).layout == model.layout == zs.Layout(2, (4, 4))
        return
    with pytest.raises(ConfigError) as refusal:
        zs.models.build(name, **options)
    message = str(refusal.value)
    assert message.startswith(f"models: {name} with backbone='spatial': ")
    if name != "beta-vae-full":  # whose posterior is refused, as of any model
        assert zs.models.entry(name).refuses["maps"] in message
    assert "another backbone" in message
    # The page of the model says so too.
    word = {"beta-vae-full": "full covariances", "classifier": "a classifier"}.get(name)
    word = word or re.sub("-I+$", "", zs.models.entry(name).title.split(":")[0])
    refused = zs.models.entry("spatial-vae").summary.split("is refused:")[1]
    assert word in refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posterior": "full"}, "a full covariance of maps.*posterior='gaussian'"),
        ({"posterior": "point"}, "divergence of a deterministic code.*infinite"),
        ({"decoder": "structural", "variables": 2}, "maps enter a decoder as a whole.*hourglass"),
        ({"block": "causal"}, "block='causal' have no places.*block='none'"),
        ({"hidden": 4}, "spatial-vae has no option 'hidden'"),
        ({"backbone": "mlp"}, "spatial-vae has no option 'backbone'"),
        ({"filters": 24}, "filters=24; expected a multiple of 16"),
        ({"channels": 0}, "channels=0; expected a whole number, at least 1"),
    ],
)
def test_what_does_not_fit_maps_is_refused_with_the_reason(options, message):
    with pytest.raises(ConfigError, match=message):
        build(**options)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 33, 32), {}, r"33 x 32 pixels have an odd side.*Crop or pad"),
        ((1, 100, 100), {"halvings": 3}, r"100 x 100 pixels; .*multiples of 8 .*halvings=2 or"),
        ((1, 16, 64), {"halvings": 4}, r"leave 2 places or more, 32 pixels.*Use halvings=3 or"),
        ((7,), {}, r"needs pictures of at least 8 x 8.*\(7,\). Use another model"),
        ((1, 4, 4), {}, r"needs pictures of at least 8 x 8.*\(1, 4, 4\)"),
    ],
    ids=str,
)
def test_sizes_that_do_not_fit_are_refused(shape, options, message):
    with pytest.raises(ConfigError, match=message):
        build(shape, **options)


@pytest.mark.parametrize("name", ["ae", "spatial-vae"])
def test_consistency_penalties_intervene_on_whole_channels(name):
    options = {"consistency": "invariance", "channels": 3, "filters": 16}
    options |= {"backbone": "spatial"} if name == "ae" else {}
    model = zs.models.build(name, shape=(1, 8, 8), **options)
    x = pictures(6, 1, 8, 8)
    batch = Batch(model, x, seeded(2))
    noises, values, member = consistency.draw(batch, 2, 4)
    codes = model.layout.view(batch.code.detach())
    assert member.shape == (3, 1, 1, model.latents)
    for rows, count in ((noises, 4), (values, 2)):
        assert len(rows) == count
        # Each channel is that of one picture of the batch, as a whole, and of no picture twice.
        same = (model.layout.view(rows)[:, None] == codes).flatten(3).all(3)
        assert torch.equal(same.sum(1), torch.ones(count, 3, dtype=torch.long))
        assert same.sum(0).max() == 1
    losses = model.losses(x, seeded(2))
    assert losses.terms["invariance"].item() > 0
    assert losses.total > sum(v for k, v in losses.terms.items() if k == "reconstruction")


def test_a_model_that_encodes_what_it_decodes_is_consistent():
    """The penalty of maps that come back as they are is 0, for every picture and channel."""
    model = build(consistency="equivariance")
    batch = Batch(model, pictures(4, 1, 8, 8), seeded(2))
    batch.response = zs.Posterior
    options = {"consistency_weight": 4.0, "interventions": 2, "vectors": 3}
    assert consistency.equivariance(batch, **options).total == 0
    batch.response = lambda z: zs.Posterior(0.5 * z)
    assert consistency.equivariance(batch, **options).total > 0
    assert consistency.invariance(batch, **options).total == 0


def test_live_counts_are_those_of_channels_over_places():
    data = pictures(32, 1, 8, 8).numpy()
    model = build(channels=3)
    row = zs.train(model, data, steps=2, batch=32, progress=False).history[-1]
    assert row["active"] + row["mixed"] + row["passive"] == 3
    # The last row has the losses of the trained model; a batch of 32 has all pictures.
    variance = model.layout.view(model.encode(torch.from_numpy(data)).variance)
    expected = sum(variance[:, channel].mean().item() for channel in range(3))
    assert row["variance"] == pytest.approx(expected, rel=1e-5)
    builds = {seed: build(channels=3, seed=seed) for seed in (0, 1)}
    runs = zs.train_ensemble(builds.get, data, seeds=[0, 1], steps=2, batch=32, progress=False)
    for key in ("active", "mixed", "passive", "variance"):
        assert runs[0].history[-1][key] == pytest.approx(row[key], rel=1e-4)


def test_a_collapsed_model_is_told_about_its_channels(capfd):
    row = {"step": 7, "active": 0, "mixed": 0, "passive": 3}
    assert "All 3 channels are passive" in collapse_warning(row, "channel")
    data = np.full((16, 1, 8, 8), 0.5, np.float32)  # nothing to encode
    zs.train(build(beta=1e3), data, steps=150, batch=16, rate=1e-2)
    assert "All 2 channels are passive after 150 steps" in capfd.readouterr().err


def test_a_stored_run_keeps_its_layout(spatial_vae, small_rooms):
    loaded = zs.load(spatial_vae.path)
    assert loaded.layout == zs.Layout(4, (8, 8))
    x = small_rooms.batch(slice(0, 8))
    one, two = loaded.encode(x), spatial_vae.model.encode(x)
    assert one.layout == two.layout == loaded.layout
    assert torch.equal(one.mean, two.mean)
    assert zs.record(loaded, small_rooms, samples=16).layout == loaded.layout


def test_it_learns_rooms(spatial_vae, small_rooms):
    first, last = spatial_vae.history[0], spatial_vae.history[-1]
    assert last["loss"] < 0.1 * first["loss"]
    x = small_rooms.batch(slice(0, 256))
    with torch.no_grad():
        posterior = spatial_vae.model.encode(x)
        decoded = spatial_vae.model.decode(posterior.mean).clamp(0, 1)
    errors = (decoded - x).square().mean((1, 2, 3))
    assert -10 * errors.log10().mean() > 18  # the mean picture has 11
    assert posterior.kl().sum(1).mean() > 256  # a nat for each latent: none has collapsed
    assert last["passive"] == 0


def test_the_command_trains_it_without_a_number_of_latents(tmp_path, monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr("sys.argv", ["zscope", "train", "spatial-vae", "rooms", *words])
        with pytest.raises(SystemExit) as done:
            main()
        return done.value.code, capsys.readouterr()

    small = ["--data-option", "pictures=16", "--batch", "8", "--steps", "2", "--quiet"]
    code, _ = run("--set", "channels=4", *small, "--out", str(tmp_path / "run"))
    assert code in (0, None)
    assert zs.load(tmp_path / "run").layout == zs.Layout(4, (8, 8))
    code, output = run("--latents", "10", *small, "--out", str(tmp_path / "other"))
    assert code == 1
    [line] = output.err.splitlines()
    assert re.search(r"4 x 8 x 8 = 256 latents .*\(3, 64, 64\).*latents=10\. Leave it out", line)


def test_a_plan_of_many_runs_needs_no_number_of_latents():
    plan = read_plan(
        {
            "train": {"steps": 2},
            "grid": {
                "model": ["spatial-vae"],
                "data": ["rooms?resolution=32&pictures=64"],
                "options.channels": [2, 4],
            },
        }
    )
    assert sorted(run.config.model.latents for run in plan.runs) == [128, 256]
