"""Perturbed data: bounds and range, the file, the game between modifier and decoders."""

import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import zscope as zs
from zscope.cli.data import app
from zscope.data.perturbed import (
    change_size,
    largest_change,
    noise_of,
    perturb_rows,
    reflect,
    write_noisy,
    write_perturbed,
    write_scaled,
)
from zscope.errors import ConfigError, DataError, RunError
from zscope.experiments.perturbation import choose, perturb, size_text
from zscope.experiments.perturbation import game as playing
from zscope.experiments.perturbation.evaluation import check_evaluation
from zscope.experiments.perturbation.game import Choice, Game, converged, encode_factors

OPTIONS = {"backbone": "mlp", "hidden": [24], "beta": 0.5}


@pytest.fixture(scope="module")
def sprites():
    return zs.data.load(
        "sprites",
        resolution=8,
        antialias=True,
        shape=["ellipse", "heart"],
        scale=[5],
        orientation=[0],
        position_x=8,
        position_y=6,
    )


@pytest.fixture(scope="module")
def trained(sprites):
    runs = zs.train_ensemble(
        lambda seed: zs.models.build(
            "beta-vae", shape=sprites.shape, latents=3, seed=seed, **OPTIONS
        ),
        sprites,
        seeds=range(3),
        steps=250,
        rate=3e-3,
        batch=32,
        progress=False,
    )
    return [run.model for run in runs]


# Range and bounds


def test_folding_back_is_the_formula_and_never_moves_further_away():
    target = np.linspace(-1, 2, 301)
    printed = target - 2 * np.maximum(target - 1, 0) + 2 * np.maximum(-target, 0)
    np.testing.assert_allclose(reflect(target), printed, atol=1e-12)
    np.testing.assert_allclose(reflect(torch.from_numpy(target)).numpy(), printed, atol=1e-12)
    x = np.linspace(0, 1, 21)[:, None]
    step = np.linspace(-1, 1, 41)
    assert (np.abs(reflect(x + step) - x) <= np.abs(step) + 1e-12).all()


@pytest.mark.parametrize("epsilon", [0.1, 0.175, 0.2, 0.001, 1.0])
def test_bytes_are_rounded_towards_the_original_and_stay_in_bounds(epsilon):
    original = np.repeat(np.arange(256, dtype=np.uint8), 41).reshape(256, 41)
    change = np.broadcast_to(np.linspace(-2 * epsilon, 2 * epsilon, 41), original.shape)
    result = perturb_rows(original, change, epsilon, fold=True)
    assert result.dtype == np.uint8
    exact = reflect(original / 255 + np.clip(change, -epsilon, epsilon))
    step = (result.astype(int) - original.astype(int)) / 255
    assert np.abs(step).max() <= epsilon
    assert (np.abs(step) <= np.abs(exact - original / 255) + 1e-9).all()
    assert np.abs(result / 255 - exact).max() < 1 / 255
    # Nothing is lost beyond the fraction of a level: 25 of 25.5 levels are used at 0.1.
    assert round(255 * np.abs(step).max()) == int(255 * epsilon + 1e-9)


@given(seed=st.integers(0, 1000), epsilon=st.floats(1e-4, 0.5))
def test_floats_never_exceed_the_bound_by_their_own_rounding(seed, epsilon):
    random = np.random.default_rng(seed)
    original = random.uniform(-40, 40, (4, 5)).astype(np.float32)
    change = random.choice([-epsilon, epsilon], (4, 5))
    result = perturb_rows(original, change, epsilon, fold=False)
    assert result.dtype == np.float32
    step = np.abs(result.astype(np.float64) - original.astype(np.float64))
    assert step.max() <= epsilon
    assert step.min() >= epsilon - 1e-5


# The file


def test_the_control_is_uniform_noise_in_a_file_like_any_other(sprites, tmp_path):
    result = write_noisy(tmp_path / "noise.npz", sprites, epsilon=0.1, seed=3)
    assert np.array_equal(result.factors, sprites.factors)
    assert result.factor_names == sprites.factor_names
    assert result.factor_kinds == sprites.factor_kinds == ("categorical", *["ordinal"] * 4)
    assert result.provenance["epsilon"] == 0.1
    assert result.provenance["change"] == "uniform noise"
    assert result.provenance["made_from"] == sprites.recipe
    assert result.factor_labels["shape"] == ["ellipse", "heart"]
    assert result.factors_with_kinds.labels["shape"] == ["ellipse", "heart"]
    assert result.factors_with_kinds.guessed == ()
    # Labels and guesses are read from the factors, not from the provenance.
    assert not {"categories", "guessed_kinds"} & set(result.provenance)
    assert isinstance(result.images, np.memmap)
    assert 24 / 255 < largest_change(sprites, result) <= 0.1
    again = zs.data.from_recipe(result.recipe)
    assert np.array_equal(again.images, result.images)
    other = write_noisy(tmp_path / "other.npz", sprites, epsilon=0.1, seed=4)
    assert not np.array_equal(other.images, result.images)
    # Black pixels are folded: |noise| is uniform from 0 to 0.1, in levels rounded down.
    black = result.images[sprites.images[:] == 0]
    assert black.mean() == pytest.approx(255 * 0.05 - 0.5, abs=0.15)
    assert list(tmp_path.glob(".*")) == []


def test_rows_outside_the_unit_range_are_moved_but_not_folded(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    data = zs.data.from_arrays(
        rows, np.arange(100).reshape(50, 2) % 7, feature_names=("a", "b", "c")
    )
    changed = write_perturbed(
        tmp_path / "x.npz",
        data,
        lambda numbers: np.full((len(numbers), 3), 0.05),
        epsilon=0.05,
        about={},
    )
    np.testing.assert_allclose(changed.images[:] - rows, 0.05, atol=1e-6)
    assert changed.feature_names == ("a", "b", "c")
    assert changed.guessed_kinds == ("factor0", "factor1")
    renamed = zs.data.load(str(tmp_path / "x.npz"), names="dose,plate")
    assert renamed.factors_with_kinds.guessed == ("dose", "plate")
    assert largest_change(data, changed) <= 0.05


def test_what_cannot_be_written_is_said(sprites, tmp_path):
    with pytest.raises(ConfigError, match="must end in .npz"):
        write_noisy(tmp_path / "noise.npy", sprites, epsilon=0.1)
    with pytest.raises(ConfigError, match="epsilon=0"):
        write_noisy(tmp_path / "noise.npz", sprites, epsilon=0.0)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="could not be written"):
        write_noisy(tmp_path / "file" / "noise.npz", sprites, epsilon=0.1)
    few = sprites.subset(range(5))
    with pytest.raises(DataError, match="same rows"):
        largest_change(sprites, few)


def test_bytes_refuse_what_rounding_would_erase(sprites, tmp_path):
    with pytest.raises(ConfigError, match=r"epsilon=0.0039, but sprites is stored as bytes.*0.004"):
        write_noisy(tmp_path / "noise.npz", sprites, epsilon=0.0039)
    one_level = write_perturbed(
        tmp_path / "one.npz",
        sprites,
        lambda rows: np.full((len(rows), *sprites.shape), 1 / 255),
        epsilon=1 / 255,
        about={},
    )
    step = one_level.images[:].astype(int) - sprites.images[:].astype(int)
    assert set(np.unique(step)) <= {-1, 0, 1}
    assert (np.abs(step) == 1).mean() > 0.9


def rows_of(values):
    return zs.data.from_arrays(np.asarray(values, np.float32), np.arange(len(values)) % 2)


def test_the_size_of_a_change_is_its_closed_form():
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 3)) * [3, 2, 1] + 100
    sign = np.where(np.arange(40) % 2, 1.0, -1.0)
    # 0.3 up and down along one feature, and 0.4 up for all along another.
    change = np.stack([0.3 * sign, np.full(40, 0.4), np.zeros(40)], 1)
    size = change_size(rows_of(x), rows_of(x + change))
    assert size.largest == pytest.approx(0.4, abs=1e-4)
    assert size.rms == pytest.approx(np.sqrt((0.3**2 + 0.4**2) / 3), abs=1e-4)
    assert size.variance == pytest.approx(0.3**2, abs=1e-4)  # a constant shift has none
    assert size.relative_variance == pytest.approx(0.09 / x.var(0).sum(), rel=1e-3)
    rise = (x + change).var(0).sum() / x.var(0).sum() - 1
    assert size.added_variance == pytest.approx(rise, abs=1e-5)
    assert size.first_direction == pytest.approx(1, abs=1e-4)
    even = np.stack([0.1 * sign, 0.1 * np.where(np.arange(40) % 4 > 1, 1, -1), 0 * sign], 1)
    assert change_size(rows_of(x), rows_of(x + even)).first_direction == pytest.approx(0.5, abs=1e-3)  # fmt: skip # noqa: E501
    none = change_size(rows_of(x), rows_of(x))
    assert (none.rms, none.variance, none.first_direction) == (0, 0, None)
    constant = change_size(rows_of(np.ones((4, 2))), rows_of(np.ones((4, 2)) + 1))
    assert constant.relative_variance is None
    assert constant.added_variance is None


def test_a_change_can_take_variance_away():
    pictures = np.zeros((40, 1, 4, 4), np.float32)
    pictures[::2] = 1.0
    data = zs.data.from_arrays(pictures, np.arange(40) % 2)
    greyer = zs.data.from_arrays(0.1 + 0.8 * pictures, np.arange(40) % 2)
    size = change_size(data, greyer)
    assert size.relative_variance == pytest.approx(0.2**2, rel=1e-4)
    assert size.added_variance == pytest.approx(0.8**2 - 1, rel=1e-4)
    text = size_text(size)
    assert "variance of the change 4.0 % of that of the data, 100 % of it in one direction" in text
    assert "the variance of the data changes by -36.0 %" in text


# Half of the rows moved by 0.1 have a variance of 0.1²/4. Noise from -a to a has a²/3, and a²/12
# where it is folded at black.
@pytest.mark.parametrize(("level", "amplitude"), [(0.5, 0.1 * 3**0.5 / 2), (0.0, 0.1 * 3**0.5)])
@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_a_control_adds_as_much_variance_as_the_change(level, amplitude, kind, tmp_path):
    scale = 255 if kind == np.uint8 else 1
    pictures = np.full((400, 1, 4, 4), level * scale).astype(kind)
    data = zs.data.from_arrays(pictures, np.arange(400) % 2)
    change = np.where(np.arange(400) % 2, 0.1, 0.0)[:, None, None, None]
    changed = write_perturbed(
        tmp_path / "changed.npz",
        data,
        lambda rows: change[rows] + np.zeros((len(rows), 1, 4, 4)),
        epsilon=0.1,
        about={},
    )
    noise = write_scaled(tmp_path / "noise.npz", data, noise_of(data, 0), changed, about={"by": 3})
    sizes = [change_size(data, each) for each in (changed, noise)]
    assert sizes[1].variance == pytest.approx(sizes[0].variance, rel=0.03)
    assert noise.provenance["amplitude"] == pytest.approx(amplitude, rel=0.05)
    assert sizes[1].largest <= noise.provenance["amplitude"]
    assert noise.provenance["by"] == 3
    assert noise.images[:].min() >= 0


# The procedure


def test_factors_enter_standardised_or_one_hot(sprites):
    w = encode_factors(sprites)
    assert w.shape == (96, 2 + 4)
    assert w[:, :2].sum(1).unique().tolist() == [1]
    assert w[:, 4].mean() == pytest.approx(0, abs=1e-6)
    assert w[:, 4].std(correction=0) == pytest.approx(1)
    assert w[:, 2].abs().max() == 0  # a factor with one value


def test_the_least_and_the_most_disentangled_are_chosen(sprites, trained):
    chosen = choose(trained, sprites, 1)
    assert chosen.scores[chosen.entangled[0]] == min(chosen.scores)
    assert chosen.scores[chosen.disentangled[0]] == max(chosen.scores)
    assert chosen.active == [3, 3, 3]
    assert chosen.flags == []

    class Pruned(zs.Autoencoder):
        """One latent of three is noise: its score must not count."""

        latents = 3

        def encode(self, x, auxiliary=None):
            before = trained[0].encode(x)
            off = torch.tensor([0.0, 1.0, 1.0])
            return zs.Posterior(before.mean * off, torch.where(off > 0, before.std, 1.0))

    pruned = choose([Pruned(), *trained], sprites, 1)
    assert pruned.active[0] == 2
    assert 0 not in (*pruned.entangled, *pruned.disentangled)
    few = choose([Pruned(), Pruned(), trained[0]], sprites, 1)
    assert "Only 1 of 3 restarts use as many latents as there are factors (3)" in few.flags[0]


def test_latents_are_counted_as_everywhere(sprites, trained):
    chosen = choose(trained, sprites, 1)
    assert chosen.active == [len(zs.record(model, sprites).used) for model in trained]

    class Wide(zs.Autoencoder):
        """Posteriors of variance 0.9, which tell much about x all the same."""

        latents = 3

        def encode(self, x, auxiliary=None):
            before = trained[0].encode(x)
            mean = 9 * before.mean
            return zs.Posterior(mean, torch.full_like(mean, 0.9**0.5))

    assert choose([Wide(), *trained], sprites, 1).active[0] == 3


def test_fewer_latents_than_factors_are_not_called_a_large_beta(sprites, trained):
    class Narrow(zs.Autoencoder):
        latents = 2

        def __init__(self, model):
            super().__init__()
            self.model = model

        def encode(self, x, auxiliary=None):
            before = self.model.encode(x)
            return zs.Posterior(before.mean[:, :2], before.std[:, :2])

    chosen = choose([Narrow(model) for model in trained], sprites, 1)
    assert chosen.active == [2, 2, 2]
    (flag,) = chosen.flags
    assert "2 latents and the data 3 factors" in flag
    assert "Use 3 latents or more" in flag


def game_of(sprites, trained, epsilon=0.1):
    chosen = Choice([0.1, 0.2, 0.3], [3, 3, 3], [0], [2], [])
    return Game(sprites, trained, chosen, epsilon=epsilon, seed=0, options=OPTIONS)


def test_the_modifier_sees_the_factors_through_one_number(sprites, trained):
    game = game_of(sprites, trained).requires_grad_(False)
    s = game.modifier.squeeze(game.w)
    assert s.shape == (96, 1)
    rows = np.arange(96)
    change = game.change(rows)
    assert np.abs(change).max() <= 0.1
    # Whatever is drawn is a function of s alone.
    torch.testing.assert_close(
        torch.from_numpy(change).float(), 0.1 * torch.tanh(game.modifier.decoder(s))
    )
    target = game.perturbed(rows)
    assert float(target.min()) >= 0
    assert float(target.max()) <= 1
    assert float((target - sprites.batch(rows)).abs().max()) <= 0.1 + 1e-6


def test_each_turn_changes_its_own_side_and_never_an_encoder(sprites, trained):
    game = game_of(sprites, trained)
    before = {name: tensor.clone() for name, tensor in game.state_dict().items()}
    adam = {
        "decoders": torch.optim.Adam(game.decoder_parameters(), lr=1e-3),
        "modifier": torch.optim.Adam(game.modifier.parameters(), lr=1e-3),
    }
    config = playing.validate("test", steps=8, batch=16, seed=0)
    row = playing.one_round(game, adam, config, 0)
    assert row["round"] == 1
    assert row["gap"] == pytest.approx(row["entangled"] - row["disentangled"])
    changed = {k for k, v in game.state_dict().items() if not torch.equal(v, before[k])}
    assert any(name.startswith("modifier.") for name in changed)
    assert any(name.startswith("decoders.entangled.0.decoder") for name in changed)
    assert any(name.startswith("decoders.disentangled.0.decoder") for name in changed)
    assert not any(".encoder." in name for name in changed)
    # Three batches for the decoders, one for the modifier.
    steps = [next(iter(o.state.values()))["step"].item() for o in adam.values()]
    assert steps == [3, 1]
    # The models that were given are copied, not trained on.
    given = trained[0].decoder.state_dict()
    start = {
        name.removeprefix("decoders.entangled.0.decoder."): tensor
        for name, tensor in before.items()
        if name.startswith("decoders.entangled.0.decoder.")
    }
    assert all(torch.equal(given[name], tensor) for name, tensor in start.items())


def test_the_loss_is_the_mean_over_five_latent_samples_of_the_original(sprites, trained):
    game = game_of(sprites, trained)
    rows = np.arange(10)
    x = sprites.batch(rows)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        entangled, _ = game.losses(rows, x, generator)
        generator.manual_seed(5)
        posterior = trained[0].encode(x)
        noise = torch.randn(50, 3, generator=generator)
        z = posterior.mean.repeat(5, 1) + posterior.std.repeat(5, 1) * noise
        decoded = trained[0].decode(z)
        expected = torch.nn.functional.binary_cross_entropy(
            decoded, x.repeat(5, 1, 1, 1), reduction="none"
        )
    assert entangled.item() == pytest.approx(expected.flatten(1).sum(1).mean().item(), rel=1e-4)


def test_training_stops_when_the_gap_stands_still():
    def history(gaps):
        return [{"gap": gap} for gap in gaps]

    falling = np.linspace(0, -10, 4000)
    assert not converged(history(falling))
    assert converged(history([*falling, *[-10.0] * 1000]))
    assert not converged(history([0.0] * 1999))
    rising = [*np.linspace(0, -10, 2000), *np.linspace(-10, -5, 2000)]
    assert not converged(history(rising))


def test_the_whole_procedure_favours_the_entangled_model(sprites, trained, tmp_path):
    result = perturb(
        sprites,
        epsilon=0.1,
        out=tmp_path / "out",
        restarts=trained,
        rounds=60,
        batch=32,
        modifier_rate=5e-3,
        progress=False,
    )
    before, after = result.gap
    assert after < before - 1  # with a modifier that never learns it falls by a third
    assert result.largest <= 0.1
    assert result.largest > 0.09  # and stays at 0.07
    assert dict(result.summary())["rounds"] == "60"
    assert np.array_equal(result.dataset.factors, sprites.factors)
    loaded = zs.data.load(str(tmp_path / "out" / "perturbed.npz"))
    assert np.array_equal(loaded.images, result.dataset.images)
    assert loaded.provenance["settings"]["epsilon"] == 0.1
    assert loaded.provenance["rounds"] == 60
    control = zs.data.load(str(tmp_path / "out" / "noise.npz"))
    assert 0 < largest_change(sprites, control) <= 0.1
    summary = json.loads((tmp_path / "out" / "perturbation.json").read_text())
    assert summary["result"]["largest_change"] == result.largest


def test_a_stopped_run_taken_up_again_gives_the_same_data(sprites, tmp_path, monkeypatch):
    settings = {
        "epsilon": 0.1, "restarts": 2, "steps": 30, "rate": 1e-3, "rounds": 12, "batch": 32,
        "latents": 3, "options": OPTIONS, "control": False, "progress": False,
    }  # fmt: skip
    whole = perturb(sprites, out=tmp_path / "whole", **settings)
    plain = playing.one_round

    def stopping(game, optimisers, config, number):
        if number == 7:
            raise KeyboardInterrupt
        return plain(game, optimisers, config, number)

    monkeypatch.setattr(playing, "CHECKPOINT_EVERY", 3)
    monkeypatch.setattr(playing, "one_round", stopping)
    with pytest.raises(KeyboardInterrupt):
        perturb(sprites, out=tmp_path / "parts", **settings)
    monkeypatch.setattr(playing, "one_round", plain)
    with pytest.raises(RunError, match="already contains a perturbation.*--resume"):
        perturb(sprites, out=tmp_path / "parts", **settings)
    with pytest.raises(ConfigError, match="started with epsilon=0.1, now epsilon=0.2"):
        perturb(sprites, out=tmp_path / "parts", resume=True, **{**settings, "epsilon": 0.2})
    resumed = perturb(sprites, out=tmp_path / "parts", resume=True, **settings)
    assert resumed.history == whole.history
    assert np.array_equal(resumed.dataset.images, whole.dataset.images)
    assert [row["round"] for row in resumed.history] == list(range(1, 13))


def test_what_cannot_be_perturbed_is_refused(sprites, trained, tmp_path):
    with pytest.raises(DataError, match="fewer than two factors that vary"):
        perturb(zs.data.from_arrays(np.zeros((5, 8, 8))),
                epsilon=0.1, out=tmp_path / "a")  # fmt: skip
    with pytest.raises(ConfigError, match="two restarts for every pair"):
        perturb(sprites, epsilon=0.1, out=tmp_path / "a", restarts=3, pairs=2)
    with pytest.raises(ConfigError, match="epsilon=2"):
        perturb(sprites, epsilon=2.0, out=tmp_path / "a", restarts=trained)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="not empty"):
        perturb(sprites, epsilon=0.1, out=tmp_path / "full", restarts=trained)
    ae = zs.models.build("ae", shape=sprites.shape, latents=3, backbone="mlp", hidden=[8])
    with pytest.raises(ConfigError, match="independent noise"):
        perturb(sprites, epsilon=0.1, out=tmp_path / "b", restarts=[ae, ae])


def test_the_command_writes_both_datasets(tmp_path):
    words = [
        "perturb", "sprites", "--epsilon", "0.1", "--out", str(tmp_path / "out"), "--restarts",
        "2", "--steps", "5", "--rounds", "25", "--set", "backbone=mlp", "--set", "hidden=8",
        "--batch", "16",
    ]  # fmt: skip
    for option in ("resolution=8", "shape=1", "scale=2", "orientation=1", "position_x=4",
                   "position_y=4"):  # fmt: skip
        words += ["--data-option", option]
    result = CliRunner().invoke(app, [*words, "--quiet", "--json"])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["largest_change"] <= 0.1
    assert len(zs.data.load(summary["dataset"])) == 32
    assert len(zs.data.load(summary["control"])) == 32
    assert summary["worked"] is False
    more = ["--evaluate", "ae?hidden=4", "--scores", "mig", "--evaluate-seeds", "1", "--jobs", "1"]
    again = CliRunner().invoke(app, [*words, "--resume", *more])
    assert again.exit_code == 0, again.output
    assert "largest change of a pixel" in again.stdout
    assert "after as many without a change" in again.stdout
    # After five steps no latent is in use, and no restart is more entangled than another.
    assert "The change cannot be judged: the chosen restarts do not differ in MIG" in again.stdout
    assert "untrained" in again.stdout
    assert "one seed, no interval" in again.stdout
    for file in ("examples.png", "evaluate/table.csv", "evaluate/table.json", "evaluate/table.md"):
        assert (tmp_path / "out" / file).stat().st_size > 50
    wrong = CliRunner().invoke(app, [*words, "--resume", "--evaluate", "ae?hiden=4"])
    assert isinstance(wrong.exception, ConfigError)
    assert "Did you mean hidden" in str(wrong.exception)
    output = CliRunner().invoke(app, ["info", summary["dataset"]]).stdout
    assert "made from sprites (resolution=8, shape=1" in output
    assert "epsilon 0.1, rounds 25" in output


SMALL = [
    "perturb", "sprites", "--epsilon", "0.1", "--restarts", "2", "--steps", "3", "--rounds", "2",
    "--set", "backbone=mlp", "--set", "hidden=4", "--batch", "16", "--quiet",
]  # fmt: skip
for option in ("resolution=8", "shape=1", "scale=2", "orientation=1", "position_x=6",
               "position_y=6"):  # fmt: skip
    SMALL += ["--data-option", option]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("--model nosuch", "no model is called 'nosuch'"),
        ("--model ae", "ae has no noise in its latents.*independent noise"),
        ("--set bta=4", "no option 'bta'. Did you mean beta"),
        ("--steps 0", "steps: .*greater than or equal to 1"),
        ("--set likelihood=nosuch", "likelihood"),
        ("--evaluate beta-vae --cluster foo", "'foo' is neither an address nor a kind"),
        ("--evaluate beta-vae --cluster tcp://127.0.0.1:1 --cluster-option queue=a", "'queue'"),
        ("--evaluate beta-vae --cluster slurm --cluster-option quue=a", "Did you mean queue"),
        ("--evaluate beta-vae --scores udr", "udr is no score.*two or more models are needed"),
        ("--evaluate beta-vae --scores mig,dci.nosuch", "'nosuch'. Known: dci.completeness"),
        ("--evaluate ae --scores trace-gap", "trace-gap is no score.*deterministic"),
        ("--evaluate ae --scores response-matrix", "response-matrix has no single number"),
        ("--scores mig", "--scores mig .*no effect without --evaluate"),
        ("--evaluate-seeds 3", "--evaluate-seeds 3 .*no effect without --evaluate"),
        ("--jobs 2", "--jobs 2 .*no effect without --evaluate"),
        ("--cluster slurm", "--cluster slurm .*no effect without --evaluate"),
        ("--runs there", "--runs there .*no effect without --evaluate"),
    ],
)
def test_a_wrong_command_trains_nothing_and_leaves_nothing(words, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("zscope.experiments.perturbation.train_restarts", None)
    wrong = CliRunner().invoke(app, [*SMALL, "--out", "p", *words.split()])
    assert isinstance(wrong.exception, ConfigError)
    assert re.search(match, str(wrong.exception)), wrong.exception
    assert list(tmp_path.iterdir()) == []


def test_measures_that_only_a_trained_model_has_are_known_before(sprites, tmp_path):
    given = {"out": tmp_path, "latents": 3, "options": OPTIONS}
    for models in ("beta-vae", "ae"):
        scores = "dci.completeness,mig,trace-gap" if models == "beta-vae" else "dci.completeness"
        assert check_evaluation(sprites, models, scores, 1, **given)[1] == scores.split(",")
    # What one of the models has is a column, and "none" for the others.
    assert check_evaluation(sprites, "ae,beta-vae", "trace-gap", 1, **given)[1] == ["trace-gap"]
