"""A run over its checkpoints."""

import json
import shutil

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.errors import ConfigError, RunError, Undefined
from zscope.experiments.training_dynamics import ALIGNMENT, dimensions_over, layer_dimensions

STEPS = [0, 20, 40, 60]


@pytest.fixture(scope="module")
def run(trained_family):
    return trained_family / "b0.01-s0"


@pytest.fixture(scope="module")
def followed(run):
    return zs.dynamics(run, samples=100)


def checkpoint(run, step):
    return zs.load(run / "checkpoints" / f"step-{step:09d}.safetensors")


def test_layers_are_compared_with_the_final_model(run, followed):
    maps = followed.results["similarity"].maps
    assert [each.step for each in maps] == STEPS
    with_noise = {"sampled", "decoder.layers.0", "decoder.layers.2", "output"}
    assert with_noise < set(maps[-1].shared)
    for name in set(maps[-1].shared) - with_noise:
        assert maps[-1].cell(name) == pytest.approx(1, abs=1e-5)
    assert all(0.1 < maps[-1].cell(name) < 1 for name in with_noise)
    settling = zs.compare(run, samples=100)  # CKA alone, by another route
    for each, values in zip(maps, settling.similarity, strict=True):
        for name, value in zip(settling.layers, values, strict=True):
            assert each.cell(name, "cka") == pytest.approx(float(value), abs=1e-5)
    assert maps[1].cell("mean") < 1
    frame = followed.results["similarity"].to_frame()
    assert len(frame) == sum(len(e.row_layers) * len(e.column_layers) for e in maps)


def test_samples_of_a_collapsed_model_do_not_settle_at_the_last_step(tmp_path):
    """They are noise at all steps, and the final model has nothing in common with its own."""
    helix = zs.data.load("helix")
    model = zs.models.build("beta-vae", shape=(3,), latents=2, hidden=(8,), beta=100.0)
    zs.train(model, helix, steps=60, rate=2e-2, snapshot_every=20, out=tmp_path / "run",
             progress=False)  # fmt: skip
    maps = zs.dynamics(tmp_path / "run", "similarity", samples=400).results["similarity"].maps
    settling = zs.compare(tmp_path / "run", samples=400)
    noisy = ["sampled", *(name for name in maps[-1].shared if name.startswith("decoder"))]
    assert len(noisy) > 2
    for name in noisy:
        assert abs(maps[-1].cell(name)) < 0.05
        assert abs(settling.similarity[-1, settling.layers.index(name)]) < 0.05
    assert maps[-1].cell("mean") == pytest.approx(1, abs=1e-5)


def test_dimensions_of_layers_that_are_known():
    generator = torch.Generator().manual_seed(0)
    codes = torch.randn(2000, 5, generator=generator)
    wide = codes @ torch.linalg.qr(torch.randn(30, 5, generator=generator)).Q.T
    plane = codes[:, :2] @ torch.randn(2, 8, generator=generator)
    layers = {"codes": codes, "rotated": 100 * wide, "plane": plane}
    layers["constant"] = torch.ones(2000, 3)
    result = dimensions_over({0: layer_dimensions(dict(layers)), 10: layer_dimensions(layers)})
    assert result.of("codes")[0] == pytest.approx(5, abs=0.1)
    assert result.of("rotated")[10] == pytest.approx(result.of("codes")[10], rel=1e-3)
    assert result.of("plane")[10] == pytest.approx(2.03, abs=0.03)
    assert result.of("constant") == {}
    assert "constant at step 0" in result.missing
    assert result.settled == {"codes": 0, "rotated": 0, "plane": 0}
    assert "none for constant at step 0, constant at step 10: " in repr(result)


def test_dimensions_are_followed_and_say_when_they_settled(run, followed):
    result = followed.results["dimension"]
    assert result.steps == STEPS
    recording = zs.record(checkpoint(run, 40), zs.data.load("helix"), samples=100)
    expected = zs.assays.intrinsic_dimension(recording.codes).dimension
    assert result.of("mean")[40] == pytest.approx(expected, rel=1e-4)
    table = [{"step": s, "layer": "x", "value": v, "low": v, "high": v, "n": 9}
             for s, v in ((0, 4.0), (1, 2.0), (2, 3.0), (3, 3.1))]  # fmt: skip
    made = type(result)([0, 1, 2, 3], ["x"], table)
    assert made.settled == {"x": 2}
    assert made.settled_step == 2
    assert "step 2" in repr(made)
    assert "all layers: step 2" in repr(made)
    assert made.change("x", 0) == pytest.approx(0.5)
    assert made.change("x", 0, until=1) == pytest.approx(0.5)
    assert made.change("x", 1) == pytest.approx(0.55)
    assert made.change("x", 2) == pytest.approx(1 / 30)
    with pytest.raises(Undefined, match="expected one at step 3 and one after it"):
        made.change("x", 3)
    table[-1]["value"] = 9.0  # it still changes
    assert "not yet" in repr(made)
    assert made.settled_step is None
    assert "not all layers have settled" in repr(made)


def test_correlations_are_those_of_the_library(run, followed):
    result = followed.results["correlations"]
    helix = zs.data.load("helix")
    tracked = zs.experiments.correlations_over_training(run, helix, samples=100)
    assert result.steps == STEPS[1:]  # the checkpoint of the last step is not counted twice
    assert tracked.snapshots == 3
    assert result.tracking.counts == tracked.counts
    codes = zs.record(checkpoint(run, 20), helix, samples=100).codes
    expected = np.corrcoef(codes.numpy().T)[0, 2]
    (row,) = [
        row for row in result.records() if (row["step"], row["latent"], row["other"]) == (20, 0, 2)
    ]
    assert row["correlation"] == pytest.approx(expected, abs=1e-5)
    assert set(result.types) <= {"active", "mixed", "passive"}


def test_alignment_is_measured_by_the_assays(run, followed):
    result = followed.results["alignment"]
    helix = zs.data.load("helix")
    recording = zs.record(checkpoint(run, 40), helix, samples=100)
    assert set(result.assays) == set(ALIGNMENT)
    assert result.of("polarisation")[40] == pytest.approx(
        zs.assays.polarisation(recording).gap, rel=1e-5
    )
    assert result.of("distance-to-orthogonality")[60] >= 0
    assert all(row["low"] <= row["value"] <= row["high"] for row in result.records())


def test_types_come_from_the_history(run, followed):
    rows = followed.results["types"].records()
    history = zs.store.open_run(run).history
    assert [row["step"] for row in rows] == [row["step"] for row in history] == STEPS
    assert all(row["active"] + row["mixed"] + row["passive"] == 3 for row in rows)


def test_every_part_has_a_figure(followed):
    for part in followed.results.values():
        assert part.plot() is not None
    largest = followed.results["correlations"].tracking.correlations.abs().amax(2)
    image = followed.results["correlations"].plot().images[0].get_array()
    np.testing.assert_allclose(image, largest.T, atol=1e-6)
    notes = [
        text.get_text() for ax in followed.results["alignment"].plot().axes for text in ax.texts
    ]
    assert "shaded: 95 % interval" in notes
    with pytest.raises(Undefined, match="5 figures.*one by one"):
        followed.plot()


def test_a_run_without_checkpoints_has_types_alone(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "checkpoints")
    result = zs.dynamics(copy, samples=50)
    assert list(result.results) == ["types"]
    assert "--snapshot-every" in result.missing["alignment"]
    assert repr(result).count("has 0 checkpoints") == 1
    assert "\nsimilarity, dimension, correlations, alignment: dynamics: " in repr(result)
    with pytest.raises(RunError, match="has 0 checkpoints"):
        zs.dynamics(copy, "dimension")
    with pytest.raises(ConfigError, match="no part is called 'type'. Did you mean types"):
        zs.dynamics(copy, "type")
    with pytest.raises(ConfigError, match="expected the folder of a run"):
        zs.dynamics(zs.load(run))


def test_data_of_another_shape_are_refused_once(zscope, run):
    with pytest.raises(ConfigError, match=r"of shape .3,., but those of digits.*.1, 8, 8."):
        zs.dynamics(run, data=zs.data.load("digits"))
    code, out, err = zscope("dynamics", run, "--data", "digits")
    assert (code, out, len(err.splitlines())) == (1, "", 1)


def test_lines_of_types_do_not_hide_each_other(followed):
    made = type(followed.results["types"])([0, 1, 2], [4, 2, 2], [0, 0, 0], [0, 2, 0])
    ax = made.plot()
    values = np.array([line.get_ydata() for line in ax.lines])
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert (abs(values[first] - values[second]) > 0.01 * 4).all()
    assert abs(values - np.array([made.active, made.mixed, made.passive])).max() < 0.25
    assert ax.get_ylim()[0] < values.min() - 0.02 * 4  # the axis runs below all lines
    ax.figure.canvas.draw()
    bottom = ax.get_window_extent().y0
    assert all(text.get_window_extent().y0 >= bottom - 1 for text in ax.texts)


def test_a_deterministic_model_has_no_types(tmp_path):
    helix = zs.data.load("helix")
    model = zs.models.build("ae", shape=(3,), latents=2, hidden=(8,))
    zs.train(model, helix, steps=4, snapshot_every=2, out=tmp_path / "ae", progress=False)
    result = zs.dynamics(tmp_path / "ae", ["correlations", "similarity"], samples=50)
    assert result.results["correlations"].types == []
    with pytest.raises(Undefined, match="no types of latents: the model is deterministic"):
        zs.dynamics(tmp_path / "ae", "types")


def test_the_command_prints_draws_and_refuses(zscope, run, tmp_path):
    code, out, err = zscope("dynamics", run, "types", "--csv")
    assert code == 0, err
    assert out.splitlines()[0] == "step,active,mixed,passive"
    assert len(out.splitlines()) == 5
    code, out, err = zscope("dynamics", run, "dimension", "types", "--samples", 60, "--figure",
                            "over.png", "--json")  # fmt: skip
    assert code == 0, err
    content = json.loads(out)
    assert set(content["results"]) == {"dimension", "types"}
    assert content["figures"] == ["over-dimension.png", "over-types.png"]
    assert all((tmp_path / file).exists() for file in content["figures"])
    for words, message in (
        ((run, "--csv"), "--csv prints one table"),
        ((run, "typse"), "Did you mean types"),
        ((run, "--data-option", "noise=3"), "--data-option noise=3 needs --data"),
        (("nowhere", "types"), "there is no run at nowhere"),
        ((run, "types", "--figure", "over.xyz"), "figures are saved as"),
    ):
        code, out, err = zscope("dynamics", *words)
        assert (code, out, message in err) == (1, "", True), err


def test_the_step_at_which_a_loss_has_made_most_of_its_fall():
    falling = [{"step": s, "loss": 100 * 0.5**s} for s in range(40)]
    # The rest of the fall is 100 / 2^s: a tenth is left after log2(10) = 3.3 steps.
    assert zs.experiments.fall_step(falling) == 4
    assert zs.experiments.fall_step(falling, share=0.99) == 7
    slower = [{"step": 10 * row["step"], "other": 1, "loss": row["loss"] + 7} for row in falling]
    assert zs.experiments.fall_step(slower) == 40  # neither shifts nor the unit of steps matter
    rising = [{"step": s, "loss": s} for s in range(5)]
    with pytest.raises(Undefined, match="it does not fall"):
        zs.experiments.fall_step(rising)
    with pytest.raises(ConfigError, match="0 logged values of 'kl'"):
        zs.experiments.fall_step(rising, "kl")
