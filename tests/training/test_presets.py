"""Presets: the settings of papers, and what overrides them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import zscope as zs
from zscope.cli import app
from zscope.errors import ConfigError
from zscope.experiments.training import with_defaults
from zscope.presets import PRESETS
from zscope.training.config import TrainConfig
from zscope.training.loop import configure

ROWS = np.random.default_rng(0).random((640, 3), dtype=np.float32)
PICTURES = np.random.default_rng(0).random((300, 1, 16, 16), dtype=np.float32)


def config(preset, **given):
    model = zs.models.build("ae", shape=(3,), latents=2)
    given = {"steps": None, "epochs": None, "batch": None, "rate": None, **given}
    first = [given.pop(key) for key in ("steps", "epochs", "batch", "rate")]
    return configure(model, zs.data.from_arrays(ROWS), *first, 0, given, preset)


def test_a_preset_has_the_printed_settings():
    """Leeb et al. 2023, A.2.2: Adam, 5e-4, batches of 128, 100,000 steps."""
    found = config("structural-2023")
    assert (found.optimiser, found.rate, found.batch, found.steps) == ("adam", 5e-4, 128, 100_000)
    large = config("structural-2023-celeba")
    assert (large.rate, large.batch, large.steps) == (5e-4, 32, 200_000)


def test_a_rate_is_halved_every_so_many_epochs_of_the_data():
    """640 rows are 5 batches of 128, and 10 of 64."""
    found = config("consistency-2021")
    assert (found.schedule, found.halve_every) == ("halving", 30 * 5)
    assert found.rate_at(150) == found.rate / 2
    assert config("consistency-2021", batch=64).halve_every == 30 * 10
    other = config("consistency-2021", schedule="cosine")
    assert (other.schedule, other.halve_every) == ("cosine", None)


def test_what_is_given_takes_precedence():
    found = config("structural-2023", steps=7, rate=1e-2)
    assert (found.steps, found.rate, found.batch) == (7, 1e-2, 128)
    assert config("structural-2023", epochs=2).steps == 2 * 5
    assert config("pca-2022-mnist", steps=9).steps == 9
    plain = config(None, steps=7)
    assert (plain.batch, plain.rate) == (64, 1e-4)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_one_that_training_and_the_models_accept(name):
    preset = PRESETS[name]
    assert config(name).optimiser in ("adam", "adagrad")
    assert set(preset.training) <= {*TrainConfig.model_fields, "epochs", "halve_epochs"}
    for model in ("ae", "vae", "xae"):
        built = zs.models.build(model, shape=(1, 32, 32), latents=preset.latents, **preset.network)
        assert built.recipe["options"]["backbone"] == preset.network["backbone"]


def test_the_consistency_presets_have_the_published_number_of_weights():
    counts = {
        ("consistency-2021", "ae"): 423_259,
        ("consistency-2021", "vae"): 298_771,
        ("consistency-2021-s", "ae"): 309_973,
        ("consistency-2021-s", "xvae"): 187_036,
    }
    for (name, model), count in counts.items():
        preset = PRESETS[name]
        built = zs.models.build(model, shape=(1, 28, 28), latents=preset.latents, **preset.network)
        assert sum(parameter.numel() for parameter in built.parameters()) == count
    # As its notes say of an SAE.
    assert "start=dense, width=10,20" in preset.notes
    sae = zs.models.build("sae-6", shape=(1, 28, 28), latents=preset.latents, start="dense",
                          width="10,20", **preset.network)  # fmt: skip
    assert sum(parameter.numel() for parameter in sae.parameters()) == 319_477


@pytest.mark.parametrize(
    ("name", "models", "shape", "least", "most"),
    [
        ("responses-2021", ("vae",), (3, 64, 64), 450_000, 550_000),
        ("structural-2023", ("ae", "sae-12", "vlae-12"), (3, 64, 64), 1_000_000, 1_200_000),
        ("structural-2023-celeba", ("ae", "vlae-16"), (3, 128, 128), 6_000_000, 7_000_000),
    ],
)
def test_other_presets_are_in_the_printed_range(name, models, shape, least, most):
    preset = PRESETS[name]
    for model in models:
        recipe = {"name": model, "shape": list(shape), "latents": preset.latents}
        built = zs.models.outline({**recipe, "options": dict(preset.network)})
        assert least < sum(parameter.numel() for parameter in built.parameters()) < most


def test_an_unknown_preset_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"no preset is called 'structural'.*structural-2023"):
        config("structural")


def test_training_and_ensembles_take_a_preset():
    def build(seed):
        return zs.models.build("ae", shape=(3,), latents=2, seed=seed)

    run = zs.train(build(0), ROWS, preset="structural-2023", steps=2, progress=False)
    many = zs.train_ensemble(
        build, ROWS, seeds=[0], preset="structural-2023", steps=2, progress=False
    )
    for each in (run, many[0]):
        assert (each.config["rate"], each.config["batch"]) == (5e-4, 128)


def test_the_command_takes_networks_latents_and_split_from_the_preset(tmp_path):
    np.save(tmp_path / "pictures.npy", PICTURES)
    words = ["sae-12", str(tmp_path / "pictures.npy"), "--preset", "structural-2023"]
    out = tmp_path / "run"
    done = CliRunner().invoke(
        app, ["train", *words, "--steps", "1", "--set", "filters=8", "--out", str(out), "--quiet"]
    )
    assert done.exit_code == 0, done.output
    written = json.loads((out / "run.json").read_text())["config"]
    assert (written["batch"], written["rate"], written["steps"]) == (128, 5e-4, 1)
    assert written["model"]["latents"] == 12
    assert written["model"]["options"]["backbone"] == "structural"
    assert written["model"]["options"]["filters"] == 8
    assert written["data"]["split"]["fractions"] == [0.7, 0.1, 0.2]


def test_with_a_preset_the_discriminator_is_the_published_one_unless_given():
    def of(preset, **options):
        given = with_defaults(preset, "factor-vae", options=options)
        options = {**given.options, "backbone": "mlp", "kernels": None}
        data = zs.data.from_arrays(PICTURES)
        own = zs.models.recipe_for("factor-vae", data, latents=4, **options)["options"]
        return own["discriminator"], own["discriminator_rate"]

    assert of("locatello-2019") == ([1000] * 6, 1e-4)
    assert of(None) == ([128] * 6, pytest.approx(1e-4 * 1000 / 128))
    assert of("locatello-2019", discriminator=[64]) == ([64], 1e-4)
    assert "discriminator" not in with_defaults("locatello-2019", "beta-vae").options


def test_help_and_the_list_name_every_preset():
    help_text = "".join(CliRunner().invoke(app, ["train", "--help"]).output.split())
    listed = CliRunner().invoke(app, ["models", "presets"]).output
    as_json = json.loads(CliRunner().invoke(app, ["models", "presets", "--json"]).output)
    for name, preset in PRESETS.items():
        assert name in help_text
        assert f"{name}  ({preset.paper})" in listed
        assert as_json[name]["training"] == dict(preset.training)
