"""Many runs compared: pairs, averages, steps, memory, and what is refused."""

import dataclasses
import json
import weakref
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from worlds import World, random_rotation

import zscope as zs
from zscope.assays.similarity.layers import layer_similarities
from zscope.errors import ConfigError, RunError, Undefined
from zscope.experiments import comparison_of_runs, families
from zscope.experiments.comparison import (
    choose_observations,
    model_activations,
    untrained_copy,
)
from zscope.store import read_json, write_json

FEW = {"samples": 60}
LOW = ["b0.01-s0", "b0.01-s1", "b0.01-s2"]


def linear_model(hidden: torch.Tensor) -> zs.Autoencoder:
    """Linear layers whose first one is given; the codes are its outputs."""
    layer = torch.nn.utils.skip_init(torch.nn.Linear, 4, 4, bias=False)
    back = torch.nn.utils.skip_init(torch.nn.Linear, 4, 4, bias=False)
    layer.weight.data, back.weight.data = hidden.float(), torch.linalg.inv(hidden).float()
    return zs.wrap(layer, back, example=torch.zeros(2, 4))


def rows(samples: int = 200) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(samples, 4)).astype(np.float32)


def test_models_that_are_rotated_and_scaled_copies_are_the_same():
    base = torch.diag(torch.tensor([3.0, 2.0, 1.0, 0.5], dtype=torch.float64))
    models = [linear_model(q @ base) for q in (torch.eye(4).double(), random_rotation(4, 1))]
    models.append(linear_model(5 * base))
    result = zs.compare_runs(models, rows())
    (found,) = result.maps
    assert len(found.pairs) == 3
    for measure in ("cka", "procrustes", "smaller"):
        for name in found.shared:
            assert found.cell(name, measure) == pytest.approx(1, abs=1e-5)
        assert found.spreads[measure].max() < 1 + 1e-5
    place = found.row_layers.index("mean")
    assert found.spreads["smaller"][place, place] < 1e-5
    assert found.latents == pytest.approx([1, 1, 1], abs=1e-5)
    assert abs(found.shuffled["cka"][place, place]) < 0.1  # a control that must fail
    stretched = zs.compare_runs([models[0], linear_model(base.inverse())], rows())
    assert stretched.maps[0].cell("mean") < 0.8
    assert stretched.maps[0].spreads == {}


@pytest.mark.parametrize(("std", "spread"), [(0.5, 1.0), (1.0, 1.0), (1.0, 1e-3)])
def test_a_model_next_to_itself_has_noise_of_its_own(std, spread):
    """CKA of m + s e and m + s e', with m of variance v: (v / (v + s^2))^2, and its root."""
    share = spread**2 / (spread**2 + std**2)
    model = World(lambda z: z, lambda x: spread * x, 4, std=std)
    many = zs.compare_runs([model, model, model], rows(800), control=False).maps[0]
    for measure, expected in (("cka", share**2), ("procrustes", share)):
        for name in ("sampled", "output"):
            # Procrustes is not debiased: of two noises it is about sqrt(4 / 800).
            assert many.cell(name, measure) == pytest.approx(expected, abs=0.09)
        assert many.cell("mean", measure) == pytest.approx(1, abs=1e-5)
    two = zs.compare(model, model, rows(800), control=False, extractor=None).heatmap
    values = dict(zip(two.shared, two.diagonal.tolist(), strict=True))
    assert values["sampled"] == pytest.approx(share**2, abs=0.09)


def test_the_mean_over_pairs_is_that_of_single_comparisons(trained_family):
    paths = [trained_family / name for name in LOW]
    result = zs.compare_runs(paths, **FEW)
    (found,) = result.maps
    observed = choose_observations(zs.data.load("helix"), 60, 0)
    layers = [model_activations(zs.load(path), observed, draw=k) for k, path in enumerate(paths)]
    pairs = [layer_similarities(a, b) for a, b in combinations(layers, 2)]
    assert found.pairs == list(combinations(LOW, 2))
    for measure in ("cka", "procrustes", "smaller"):
        stack = np.stack([pair.values[measure].numpy() for pair in pairs])
        np.testing.assert_allclose(found.means[measure], stack.mean(0), atol=1e-5)
        np.testing.assert_allclose(found.spreads[measure], stack.std(0, ddof=1), atol=1e-5)
    place = pairs[0].rows.index("mean")
    expected = [float(pair.values["smaller"][place, place]) for pair in pairs]
    assert found.latents == pytest.approx(expected, abs=1e-5)
    assert [each.get_text() for each in result.plot_runs().get_yticklabels()] == LOW
    names, matrix = result.between()
    assert (names, matrix[0][2]) == (LOW, pytest.approx(expected[1], abs=1e-5))
    fresh = model_activations(untrained_copy(zs.load(paths[0])), observed)
    control = layer_similarities(layers[0], fresh).values["smaller"][place, place]
    assert found.untrained["smaller"][place, place] == pytest.approx(float(control), abs=1e-5)
    frame = result.to_frame()
    cell = frame[(frame["row"] == "mean") & (frame["column"] == "mean")].iloc[0]
    assert (cell["pairs"], cell["smaller"]) == (3, pytest.approx(found.cell("mean")))
    # Two models have the numbers of `zs.compare`.
    two = zs.compare(*paths[:2], samples=60, control=False, extractor=None)
    assert two.heatmap.matrix.numpy() == pytest.approx(pairs[0].values["cka"].numpy(), abs=1e-5)


def test_layers_of_two_models_are_alive_at_once(trained_family, monkeypatch):
    class Tracked(dict):
        __hash__ = object.__hash__  # for weak references

    alive, most, loads = weakref.WeakSet(), [], []
    original = comparison_of_runs.layers_of

    def tracked(*arguments):
        most.append(len(alive) + 1)
        layers = Tracked(original(*arguments))
        alive.add(layers)
        loads.append(1)
        return layers

    monkeypatch.setattr(comparison_of_runs, "layers_of", tracked)
    paths = sorted(trained_family.iterdir())
    assert len(zs.compare_runs(paths, samples=30).maps[0].pairs) == 10
    assert max(most) == 2
    assert len(loads) <= 12 + 1  # most pairs share a model with the pair before; and the control


def test_runs_that_differ_in_the_seed_alone_are_compared(trained_family):
    seen = []
    result = zs.compare_runs(trained_family, by="seed", control=False, progress=seen.append, **FEW)
    assert result.groups == ["beta 0.01", "beta 4"]
    assert [len(each.pairs) for each in result.maps] == [3, 1]
    assert result.maps[0].pairs == list(combinations(LOW, 2))
    assert (seen[0].done, seen[-1].done, seen[0].total, seen[0].left) == (0, 3, 4, None)
    assert seen[-1].left > 0
    alone = zs.compare_runs([trained_family / name for name in LOW], control=False, **FEW)
    assert alone.maps[0].means["smaller"].equal(result.maps[0].means["smaller"])


def test_runs_are_compared_by_other_fields(trained_family):
    result = zs.compare_runs(trained_family, by="beta", control=False, **FEW)
    (found,) = result.maps
    assert found.group == "beta 0.01 and 4"
    assert found.pairs == [(f"b0.01-s{k}", f"b4-s{k}") for k in range(2)]
    assert "same weights" in result.flags[-1]
    both = zs.compare_runs(trained_family, by="options.beta,seed", control=False, **FEW)
    assert len(both.maps[0].pairs) == 4
    assert not any(a[-1] == b[-1] for a, b in both.maps[0].pairs)
    assert not any("same weights" in flag for flag in both.flags)


def test_pairs_that_were_not_compared_are_none_and_not_0(trained_family):
    result = zs.compare_runs(trained_family, by="options.beta,seed", control=False, **FEW)
    names, matrix = result.between()
    pairs = {frozenset(pair) for pair in result.maps[0].pairs}
    for i, first in enumerate(names):
        for j, second in enumerate(names):
            cell = matrix[i][j]
            assert (cell is not None) == (first == second or {first, second} in pairs)
            assert cell == matrix[j][i]
    assert json.loads(json.dumps(matrix, allow_nan=False)) == matrix
    json.dumps(result.to_dict(), allow_nan=False)
    ax = result.plot_runs()
    cells = [text.get_text() for text in ax.texts if not text.get_gid()]  # not of the colour bar
    assert "hatched: not compared" in cells
    assert len(ax.patches) == sum(row.count(None) for row in matrix)
    assert len(cells) == len(names) ** 2 - len(ax.patches) + 1
    with pytest.raises(ConfigError, match="no group is called 'beta 9'"):
        result.between("beta 9")
    bare = [dataclasses.replace(each, latents=[]) for each in result.maps]
    with pytest.raises(Undefined, match="no layer of latent means in common"):
        dataclasses.replace(result, maps=bare).between()


def test_every_step_that_all_runs_have_gets_a_map(family):
    (family / LOW[1] / "checkpoints" / "step-000000020.safetensors").unlink()
    folders = [family / name for name in LOW[:2]]
    result = zs.compare_runs(folders, checkpoints=True, control=False, **FEW)
    assert [each.step for each in result.maps] == [0, 40, 60]
    final = zs.compare_runs(folders, control=False, **FEW).maps[0]
    assert result.maps[-1].means["smaller"].equal(final.means["smaller"])
    assert not result.maps[0].means["smaller"].equal(final.means["smaller"])
    assert "step 40" in repr(result)
    assert "shuffled" not in repr(result)
    many = zs.compare_runs([family / name for name in LOW], checkpoints=True, **FEW)
    first, last = many.maps[0], many.maps[-1]
    place = first.row_layers.index("mean")
    spread = float(first.spreads["smaller"][place, place])
    (line,) = [line for line in repr(many).splitlines() if line.startswith("mean ")]
    assert f" {first.cell('mean'):.3f} ± {spread:.3f} " in line
    assert line.endswith(
        f" {last.untrained['smaller'][place, place]:.3f}"
        f"     {last.shuffled['smaller'][place, place]:.3f}"
    )
    assert "(mean ± standard deviation over pairs)" in repr(many)
    assert "of a group, at the last step" in repr(many)
    assert sum(len(ax.images) for ax in result.plot().axes) == 9  # three measures, three steps


def test_what_cannot_be_compared_is_refused(family, tmp_path):
    for call, message in (
        (lambda: zs.compare_runs([family / LOW[0]]), "got 1 targets.*two models or more"),
        (lambda: zs.compare_runs(family), "by='seed'"),
        (lambda: zs.compare_runs(family, by="bata"), "no field 'bata'.*Did you mean.*beta"),
        (lambda: zs.compare_runs(family, by="steps"), "no two of the 5 runs agree.*beta, seed"),
        (lambda: zs.compare_runs(rows(), by="seed"), "expected a folder of runs"),
        (lambda: zs.compare_runs([family / LOW[0], zs.load(family / LOW[1])], checkpoints=True),
         "expected the folder of a run"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            call()
    with pytest.raises(RunError, match="there is no folder"):
        zs.compare_runs(tmp_path / "nowhere", by="seed")
    for name in LOW[:2]:
        for file in (family / name / "checkpoints").iterdir():
            file.unlink()
    with pytest.raises(RunError, match="has 0 checkpoints.*--snapshot-every"):
        zs.compare_runs([family / name for name in LOW[:2]], checkpoints=True)


def test_runs_without_a_partner_or_an_end_are_named(family):
    for name, change in (("b4-s1", {"status": "interrupted"}),):
        content = read_json(family / name / "run.json")
        content |= change
        write_json(family / name / "run.json", content)
    (family / "damaged").mkdir()
    (family / "damaged" / "run.json").write_text("{")
    result = zs.compare_runs(family, by="seed", control=False, samples=30)
    assert result.runs == LOW
    assert any("damaged is left out: store: " in flag for flag in result.flags)
    assert "b4-s1 is left out: interrupted, step 60." in result.flags
    assert any("No other run differs from b4-s0 in seed alone" in f for f in result.flags)


def test_a_damaged_model_is_left_out_of_a_folder_and_refused_by_name(family):
    file = family / LOW[1] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-40])
    result = zs.compare_runs(family, by="seed", control=False, samples=30)
    assert result.maps[0].pairs == [(LOW[0], LOW[2])]
    (flag,) = [flag for flag in result.flags if flag.startswith(f"{LOW[1]} is left out: ")]
    assert "model.safetensors" in flag
    assert flag in repr(result)
    with pytest.raises(RunError, match="model.safetensors"):
        zs.compare_runs([family / name for name in LOW], samples=30)
    with pytest.raises(ConfigError, match=f"there is one run, {LOW[0]},.*{LOW[1]} is left out"):
        zs.compare_runs([family / name for name in LOW[:2]], by="seed")


def test_layers_that_not_all_models_have_are_named(tmp_path):
    models = [
        zs.models.build("vae", shape=(4,), latents=2, hidden=hidden, seed=seed)
        for seed, hidden in enumerate([(8, 8), (8,), (8, 8)])
    ]
    models.append(zs.models.build("ae", shape=(4,), latents=2, hidden=(8, 8), seed=3))
    result = zs.compare_runs(models, rows(60), control=False)
    (found,) = result.maps
    shallow = {"encoder.trunk.2", "decoder.layers.4"} & set(found.left_out)
    assert shallow
    assert {"variance", "sampled"} <= set(found.left_out)
    assert not set(found.left_out) & set(found.shared)
    line = f"left out, because not all runs have them: {', '.join(found.unshared)}"
    assert line in repr(result)
    assert result.to_dict()["maps"][0]["left_out"] == found.left_out
    drawn = " ".join(text.get_text() for text in result.plot().texts)
    assert "left out, because not all runs have them" in drawn.replace("\n", " ")
    # Two models have a map of all their layers; the table shows those they share.
    two = zs.compare(*models[:2], rows(60), control=False, extractor=None)
    assert two.layers.left_out == []
    assert "not all runs have them: " in repr(two)
    same = zs.compare_runs([models[0], models[2]], rows(60), control=False)
    assert "left out" not in repr(same)


def test_a_model_without_a_decoder_among_others_leaves_the_encoders():
    build = zs.models.build
    models = [build("vae", shape=(4,), latents=2, hidden=(8,), seed=k) for k in range(2)]
    models.append(build("classifier", shape=(4,), latents=2, hidden=(8,), seed=2))
    result = zs.compare_runs(models, rows(60), control=False)
    assert not any(name.startswith(("decoder", "output")) for name in result.maps[0].column_layers)
    assert any(flag.startswith("The encoders alone are compared") for flag in result.flags)


def test_models_with_other_observations_are_refused_at_once(trained_family):
    digits = zs.models.build("vae", shape=(1, 8, 8), latents=2, backbone="mlp", hidden=(8,))
    runs = [trained_family / LOW[0], trained_family / LOW[1], digits]
    with pytest.raises(ConfigError, match="vae takes observations of shape .1, 8, 8."):
        zs.compare_runs(runs)


def test_fields_leave_out_what_cannot_change_a_model(trained_family):
    fields = families.fields_of(zs.store.open_run(trained_family / LOW[1]).config)
    assert (fields["model"], fields["options.beta"], fields["data"], fields["seed"]) == (
        "beta-vae", 0.01, "helix", 1)  # fmt: skip
    assert not {"snapshot_every", "options.seed", "device", "log_every"} & set(fields)
    config = {"seed": 3, "model": {"name": "ae", "options": {"seed": 5}}}
    assert families.fields_of(config)["seed"] == "3, weights 5"


def test_labels_leave_out_what_the_model_implies(tmp_path):
    more = {"beta-vae": {}, "beta-tcvae": {"options.estimator": "weighted"}}
    members = [
        families.Member(f"{model}-{seed}", tmp_path, {"model": model, "seed": seed, **options})
        for model, options in more.items()
        for seed in range(2)
    ]
    groups = families.pairs_by("compare", members, ["seed"])
    assert [group.label for group in groups] == ["model beta-vae", "model beta-tcvae"]
    members[0].fields["options.estimator"] = "biased"  # it varies for other reasons too
    assert "estimator weighted" in families.families(members, ["seed"])[-1].label


@pytest.mark.slow
def test_the_command_compares_many(zscope, trained_family, tmp_path):
    paths = [trained_family / name for name in LOW]
    code, out, err = zscope("compare", *paths, "--samples", 60, "--json")
    assert code == 0, err
    content = json.loads(out)
    assert (content["runs"], content["figure"]) == (LOW, None)
    two = [trained_family / name for name in ("b4-s0", "b4-s1")]
    words = ("compare", "--by", "seed", *two, "--samples", 30, "--no-control")
    code, out, err = zscope(*words, "--figure", "maps.png")
    assert code == 0, err
    assert "1 pair" in out
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = zscope(*words, "--checkpoints")
    assert code == 0, err
    assert "1 pair, the smaller of CKA and Procrustes" in out
    code, out, err = zscope("compare", paths[0], "--checkpoints", "--samples", 30)
    assert code == 0, err
    assert "with the final model; step 0 is untrained" in out
    for words, message in (
        ((*paths, "--set", "cka.debiased=false"), "--set is for the comparison of two models"),
        ((*paths, "--extractor", "inception"), "--extractor is for the comparison of two"),
        (("--by", "seed", paths[0]), "further runs that differ in seed"),
        ((*paths[:2], "nowhere"), "there is no run at nowhere"),
        ((trained_family,), "is a folder of 5 runs, not a run"),
    ):
        code, out, err = zscope("compare", *words)
        assert (code, out, message in err) == (1, "", True), err


def test_a_label_says_what_differs_and_no_more():
    sprites = {"data": "sprites", "data.options.resolution": 16, "data.options.shape": 2}
    fields = [
        {"data": "digits", "options.beta": 1.0},
        {**sprites, "options.beta": 1.0},
        {**sprites, "options.beta": 1.0, "data.options.shape": 3},
    ]
    members = [families.Member(f"run {k}", Path(), own) for k, own in enumerate(fields)]
    assert [each.label for each in families.families(members, ["seed"])] == [
        "data digits", "data sprites, shape 2", "data sprites, shape 3"
    ]  # fmt: skip
    assert [each.label for each in families.families(members[:2], ["seed"])] == [
        "data digits", "data sprites"
    ]  # fmt: skip
