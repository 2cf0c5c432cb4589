"""Features are standardised for training, and the scaling is stored and applied to later data."""

import json
import sys

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.cli import main
from zscope.errors import DataError
from zscope.scaling import Scaling

COLUMNS = ("age", "income", "dose")


@pytest.fixture
def draw():
    return np.random.default_rng(0)


@pytest.fixture
def command(monkeypatch):
    """Run `zscope ...` in this process; returns its exit code."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zscope", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0

    return run


def table(draw, rows=300):
    """Ordinary units: tens, thousands, hundredths."""
    u = draw.normal(size=(rows, 3))
    return (u * [12, 350, 0.01] + [45, 9000, 0.05]).astype(np.float32)


def write(path, values, columns=COLUMNS, colours=None):
    extra = [] if colours is None else ["colour"]
    lines = [",".join([*columns, *extra])]
    for k, row in enumerate(values):
        cells = [f"{x:.9g}" for x in row]
        lines.append(",".join(cells if colours is None else [*cells, colours[k]]))
    path.write_text("\n".join(lines))
    return path


def build(data, **options):
    options = {"backbone": "mlp", "hidden": [16], "seed": 0, **options}
    return zs.models.build_for("vae", data, latents=2, **options)


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_a_model_sees_files_of_vectors_standardised(tmp_path, draw, kind):
    values = table(draw)
    path = tmp_path / f"x.{kind}"
    np.save(path, values) if kind == "npy" else write(path, values)
    data = zs.data.load(path)
    run = zs.train(build(data), data, steps=3)
    assert run.model.scaling.mean == pytest.approx(values.mean(0, dtype=float).tolist())
    assert run.model.scaling.scale == pytest.approx(values.std(0, dtype=float).tolist())
    recording = zs.record(run.model, data)
    assert recording.observations.mean(0).tolist() == pytest.approx([0] * 3, abs=1e-3)
    assert recording.observations.std(0).tolist() == pytest.approx([1] * 3, abs=1e-2)
    assert np.asarray(recording.data.images) == pytest.approx(values)  # original units
    restored = recording.data.original(recording.observations)
    assert restored.numpy() == pytest.approx(values, rel=1e-5)
    # An array in original units is scaled too, and gives the same codes.
    assert torch.equal(zs.record(run.model, values).codes, recording.codes)


def test_arrays_and_other_files_are_used_as_they_are(tmp_path, draw):
    values = table(draw) / 1000
    np.savez(tmp_path / "x.npz", x=values)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n5,7\n")
    off = zs.data.load(tmp_path / "x.csv", standardise=False)
    asked = zs.data.load(tmp_path / "x.npz", standardise=True)
    for data in (values, zs.data.load(tmp_path / "x.npz"), off):
        dataset = zs.data.from_arrays(data) if data is values else data
        run = zs.train(build(dataset), data, steps=1)
        assert run.model.scaling is None
        assert torch.equal(zs.record(run.model, data).observations, dataset.batch(slice(None)))
    for data in (zs.data.from_arrays(values, standardise=True), asked):
        assert zs.train(build(data), data, steps=1).model.scaling is not None


def test_a_wrapped_model_gets_the_units_of_the_file(tmp_path, draw):
    values = table(draw)
    data = zs.data.load(write(tmp_path / "x.csv", values))
    model = zs.wrap(lambda x: x, lambda z: z, latents=3)
    assert zs.record(model, data).codes.numpy() == pytest.approx(values)


def test_constant_features_and_categories_are_not_divided():
    rows = np.column_stack([np.full(50, 0.1), np.eye(50)[0], 1e9 + np.arange(50) * 1e4])
    scaling = Scaling.of(rows.astype(np.float32), ("a", "c=x", "t"), {"c": ["x"]})
    assert scaling.scale[:2] == (1, 1)
    assert scaling.mean[:2] == pytest.approx((0.1, 0))
    assert scaling.apply(rows.astype(np.float32))[:, 2].std() == pytest.approx(1, rel=1e-3)


def test_a_table_with_ordinary_units_trains_and_is_loaded_with_its_scaling(
    tmp_path, draw, command, capsys
):
    """The path of a user: infinite loss at step 0 before the features were standardised."""
    path = write(tmp_path / "x.csv", table(draw), colours=["red", "blue", "green"] * 100)
    run = tmp_path / "run"
    options = ["--latents", "2", "--steps", "4", "--set", "hidden=16", "--quiet"]
    assert command("train", "vae", str(path), *options, "--out", str(run)) == 0
    trained = zs.load(run)
    again = zs.record(trained, zs.data.load(path))
    assert again.feature_names == (*COLUMNS, "colour=blue", "colour=green", "colour=red")
    assert float(again.observations.abs().max()) < 6
    stored = json.loads((run / "run.json").read_text())["config"]["scaling"]
    assert Scaling(**stored) == trained.scaling
    # Repeated from its configuration, with the scaling of the first run.
    config = str(run / "run.json")
    assert command("train", "--config", config, "--out", str(tmp_path / "b"), "--quiet") == 0
    for a, b in zip(trained.parameters(), zs.load(tmp_path / "b").parameters(), strict=True):
        assert torch.equal(a, b)
    off = [*options, "--data-option", "standardise=false", "--out", str(tmp_path / "off")]
    assert command("train", "vae", str(path), *off) == 1  # what the standardising cures
    assert "No update has been made yet" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_scaling_when_the_file_has_grown(tmp_path, draw):
    values = table(draw)
    path = write(tmp_path / "x.csv", values)
    data = zs.data.load(path)
    settings = {"steps": 40, "checkpoint_every": 10, "out": tmp_path / "run"}
    run = zs.train(build(data), data, snapshots=[20], **settings)
    saved = json.loads((run.path / "run.json").read_text())
    del saved["sha256"]
    (run.path / "run.json").write_text(json.dumps({**saved, "status": "interrupted", "step": 20}))
    more = zs.data.load(write(path, np.concatenate([values, 2 * values[:10]])))
    assert more.units_for_training() != run.model.scaling
    again = zs.train(build(more), more, snapshots=[20], resume=True, **settings)
    assert again.model.scaling == run.model.scaling


def test_training_on_a_split_measures_the_training_part_alone(tmp_path, draw):
    data = zs.data.load(write(tmp_path / "x.csv", table(draw)))
    part = data.split((0.5, 0.5))[0]
    scaling = zs.train(build(part), part, steps=1).model.scaling
    assert scaling == Scaling.of(part.images, part.feature_names)
    assert scaling != data.units_for_training()


def test_later_columns_are_found_by_name(tmp_path, draw):
    values = table(draw)
    colours = ["red", "blue", "green"] * 100
    data = zs.data.load(write(tmp_path / "x.csv", values, colours=colours))
    model = zs.train(build(data), data, steps=1).model
    expected = zs.record(model, data).codes[:3]
    # Another order, another column, and values of the category that do not occur.
    swapped = np.column_stack([values[:, ::-1], np.ones(300)])[:3]
    later = write(tmp_path / "y.csv", swapped, ("dose", "income", "age", "more"), colours[:3])
    assert torch.allclose(zs.record(model, zs.data.load(later)).codes, expected, atol=1e-5)
    one = write(tmp_path / "z.csv", values[:1], colours=colours[:1])
    assert torch.allclose(zs.record(model, zs.data.load(one)).codes, expected[:1], atol=1e-5)
    new = write(tmp_path / "n.csv", values[:1], colours=["pink"])
    with pytest.raises(DataError, match="'colour' has the value 'pink'.*blue, green, red"):
        zs.record(model, zs.data.load(new))
    lacks = write(tmp_path / "l.csv", values[:1, :2], ("age", "dose"), colours[:1])
    with pytest.raises(DataError, match="1 of the 6 features.*'income'"):
        zs.record(model, zs.data.load(lacks))
    with pytest.raises(DataError, match=r"shape \(3,\).*6 features"):
        zs.record(model, values)


def test_later_tables_are_read_as_the_run_read_its_own(tmp_path, draw, command):
    values = table(draw)
    path = write(tmp_path / "x.csv", values, colours=["red", "blue", "green"] * 100)
    run = str(tmp_path / "run")
    words = ["--latents", "2", "--steps", "2", "--set", "hidden=16", "--quiet", "--out", run]
    words += ["--data-option", "features=age,dose", "--data-option", "impute=median"]
    assert command("train", "vae", str(path), *words) == 0
    later = write(tmp_path / "y.csv", values[:20], colours=["pink"] * 20)  # not a feature of it
    later.write_text(later.read_text().replace(f"{values[0, 0]:.9g}", "", 1))
    assert command("assay", run, "variable-types", "--data", str(later), "--json") == 0
    from zscope.cli.targets import data_for

    data = data_for(run, str(later), None, None)
    assert data.images[0, 0] == pytest.approx(np.median(values[:, 0]))


def test_ensembles_and_derived_models_carry_the_scaling(tmp_path, draw):
    data = zs.data.load(write(tmp_path / "x.csv", table(draw)))
    runs = zs.train_ensemble(lambda seed: build(data, seed=seed), data, seeds=[0, 1], steps=2)
    expected = data.units_for_training()
    assert all(run.model.scaling == expected for run in runs)
    single = zs.train(build(data, seed=1), data, steps=2, seed=1)
    row, alone = runs[1].history[-1], single.history[-1]
    assert row["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert zs.prune(single.model, [0]).scaling == expected
    assert zs.rotate_latents(single.model, torch.eye(2)).scaling == expected


def test_comparing_and_searching_see_the_scaled_features(tmp_path, draw):
    data = zs.data.load(write(tmp_path / "x.csv", table(draw)))
    models = [zs.train(build(data, seed=s), data, steps=2, seed=s).model for s in (0, 1)]
    heat = zs.compare(*models, data, samples=100, control=True).heatmap
    scaled = zs.data.from_arrays(data.in_units(models[0].scaling).batch(slice(None)).numpy())
    for model in models:
        model.scaling = None
    assert zs.compare(*models, scaled, samples=100).heatmap.matrix == pytest.approx(
        heat.matrix, abs=1e-4
    )
    found = [
        zs.fondue(each, steps=20, start=1, limit=3, options={"hidden": [8]}, rate=1e-2, seeds=1)
        for each in (data, scaled)
    ]
    gaps, expected = ([trial.value for trial in each.searches[0].trials] for each in found)
    assert gaps == pytest.approx(expected, abs=1e-2)


def test_a_perturbation_keeps_the_units_of_its_bound(tmp_path):
    """epsilon is in the units of the file, so that what it bounds is trained on as it is."""
    from zscope.experiments.perturbation import perturb

    rows = "\n".join(f"{a},{b},{a},{b}" for a in range(6) for b in range(6))
    path = tmp_path / "x.csv"
    path.write_text("x,y,f,g\n" + rows)
    data = zs.data.load(path, factors="f,g")
    assert data.standardise
    perturb(
        data, epsilon=0.1, out=tmp_path / "p", restarts=2, steps=2, rounds=1, control=False,
        options={"backbone": "mlp", "hidden": [8]}, progress=False,
    )  # fmt: skip
    changed = np.asarray(zs.data.load(tmp_path / "p" / "perturbed.npz").images)
    assert 0 < np.abs(changed - np.asarray(data.images)).max() <= 0.1
