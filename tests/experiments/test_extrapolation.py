"""Extrapolation: which half has to learn a new value of a factor?

A linear world where every answer is known. Observations with kind 0 are a e_1, those with kind 1
are a e_1 + b u with u orthogonal to e_1, in twelve dimensions; a linear autoencoder has four
latents. Without kind 1, it learns to reconstruct e_1, and its decoder reaches three directions
besides, those of its initial weights. Then, with kind 1:

    decoder alone   error 0: a, b can be read off the codes, as the encoder is linear in both
    both            error 0: the data have two dimensions
    encoder alone   b^2 |u - P u|^2, with P the projection onto what the frozen decoder reaches
    sham            as neither: where x is 0 there is no gradient
"""

import json
import sys

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.cli import main
from zscope.errors import ConfigError, DataError
from zscope.experiments import mean_squared_error
from zscope.experiments.extrapolation import BRANCHES, _flags, _shares

ROWS, SIZE, LATENTS = 1000, 12, 4
SETTINGS = {
    "latents": LATENTS, "steps": 150, "more": 200, "rate": 3e-2, "batch": 100, "schedule": "cosine",
    "options": {"backbone": "linear"}, "jobs": 1, "progress": False,
}  # fmt: skip


@pytest.fixture(scope="module", name="world")
def _world(tmp_path_factory):
    rng = np.random.default_rng(0)
    kind = np.arange(ROWS) % 2
    a, b = rng.normal(size=(2, ROWS))
    u = np.array([0, *[1, -1] * 5, 1]) / np.sqrt(11)
    rows = np.outer(a, np.eye(SIZE)[0]) + np.outer(kind * b, u)
    file = tmp_path_factory.mktemp("data") / "world.npz"
    np.savez(file, images=rows.astype(np.float32), factors=kind[:, None], factor_names=["kind"])
    return f"{file}?standardise=false", u


@pytest.fixture(scope="module", name="answer")
def _answer(world, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    data, _ = world
    return zs.extrapolate("ae", data, leave_out={"kind": 1}, seeds=2, out=out, **SETTINGS), out


def test_the_decoder_alone_learns_a_direction_that_it_has_never_seen(answer):
    result, _ = answer
    assert result.seeds == [0, 1]
    for seed in range(2):
        assert result.new["neither"][seed] > 0.05
        assert result.new["decoder"][seed] < 1e-4
        assert result.new["both"][seed] < 1e-4
        assert result.new["sham"][seed] == pytest.approx(result.new["neither"][seed], rel=0.05)
        assert all(result.old[branch][seed] < 1e-4 for branch in BRANCHES)
    assert result.decoder_share == pytest.approx(1, abs=0.01)
    assert result.sham_share == pytest.approx(0, abs=0.05)
    assert result.flags == []


def test_the_encoder_alone_reaches_what_the_frozen_decoder_does(answer, world):
    result, out = answer
    text, u = world
    data = zs.data.load(text.partition("?")[0], standardise=False).split([0.8, 0.2])[1]
    kind = np.asarray(data.factors)[:, 0]
    new = data.batch(np.flatnonzero(kind == 1)).numpy().astype(float)
    assert result.samples == {"new": len(new), "old": int((kind == 0).sum())}
    b_squared = float(((new @ u) ** 2).mean())
    for seed, name in enumerate(result.runs["encoder"]):
        weight = next(zs.load(out / "runs" / name).decoder.parameters()).detach().double().numpy()
        basis, _ = np.linalg.qr(weight)
        missed = float(((u - basis @ basis.T @ u) ** 2).sum())
        assert missed > 0.3  # there is something that it cannot reach
        expected = b_squared * missed / SIZE
        assert result.new["encoder"][seed] == pytest.approx(expected, rel=0.05)
        assert result.new["encoder"][seed] > 10 * result.new["decoder"][seed]


def test_frozen_halves_are_those_of_the_first_run(answer):
    result, out = answer
    for branch, half in (("encoder", "decoder"), ("decoder", "encoder")):
        for first, second in zip(result.runs["neither"], result.runs[branch], strict=True):
            one, two = (zs.load(out / "runs" / name).halves[half][0] for name in (first, second))
            assert all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))


def test_parameters_of_both_halves_are_stated(answer):
    result, _ = answer
    weights = SIZE * LATENTS
    expected = {"encoder": weights + LATENTS, "decoder": weights + SIZE, "neither": 0}
    assert result.parameters == expected


def test_the_result_prints_saves_tabulates_and_draws(answer):
    result, _ = answer
    text = repr(result)
    for words in ("without kind=1: 150 steps, then 200", "both, old values (sham)", "gap closed by",
                  "encoder 52, decoder 60", "2 seeds"):  # fmt: skip
        assert words in text
    assert "decoder alone" in result._repr_html_()
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["decoder_share"] == result.decoder_share
    frame = result.to_frame()
    assert list(frame.columns) == ["branch", "seed", "new", "old", "share", "run"]
    assert len(frame) == 2 * len(BRANCHES)
    assert len(result.plot().patches) == len(BRANCHES)


def test_the_same_call_trains_nothing_again_and_more_seeds_only_the_new_ones(world, answer):
    from zscope.experiments.sweeps import task

    result, out = answer
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "_train_members", None)  # cannot be called
        again = zs.extrapolate(
            "ae", world[0], leave_out={"kind": [1]}, seeds=2, out=out, **SETTINGS
        )
    assert again.to_dict() == result.to_dict()


def test_the_error_is_the_mean_over_observations_and_numbers():
    class Zero(zs.Autoencoder):
        latents = 1

        def encode(self, x, auxiliary=None):
            return zs.Posterior(x.flatten(1)[:, :1])

        def decode(self, z):
            return torch.zeros(len(z), 6)

    rows = np.random.default_rng(0).normal(size=(50, 1, 2, 3)).astype(np.float32)
    assert mean_squared_error(Zero(), rows) == pytest.approx(float((rows**2).mean()))
    assert mean_squared_error(Zero(), 3 * rows) == pytest.approx(9 * float((rows**2).mean()))


def test_shares_and_flags_follow_the_errors():
    errors = {"neither": [10.0], "encoder": [7.5], "decoder": [3.0], "both": [2.0], "sham": [10.0]}
    assert _shares(errors, "decoder") == [pytest.approx(0.875)]
    assert _shares(errors, "neither") == [0.0]
    assert _flags(errors, 0.0) == []
    assert "moved by 0.50 of the gap" in _flags(errors, 0.5)[0]
    assert "only 1.2 times" in _flags({**errors, "both": [8.0]}, 0.0)[0]
    assert _shares({**errors, "both": [10.0]}, "decoder") == [None]
    assert "no gap to share out" in _flags({**errors, "both": [10.0]}, None)[0]


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"leave_out": {"colour": 1}}, DataError, "no factor 'colour'. Known: kind"),
        ({"leave_out": {"kind": 7}}, DataError, "no sample has kind=7. Known: 0, 1"),
        ({"leave_out": {"kind": [0, 1]}}, DataError, "nothing is left to train on"),
        ({"leave_out": {}}, DataError, "for values of factors; expected them by name"),
        ({"held_out": 1.5}, ConfigError, "held_out=1.5; expected a share"),
        ({"more": 0}, ConfigError, "more=0"),
        ({"model": "pcl"}, ConfigError, "pcl has no decoder"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_trained(world, tmp_path, given, kind, message):
    settings = {"leave_out": {"kind": 1}, "out": tmp_path, **SETTINGS, **given}
    model = settings.pop("model", "ae")
    with pytest.raises(kind, match=message):
        zs.extrapolate(model, world[0], **settings)
    assert not list(tmp_path.iterdir())


def test_data_without_factors_are_refused(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((10, 3), np.float32))
    with pytest.raises(DataError, match="has no factors whose values could be left out"):
        zs.extrapolate("ae", tmp_path / "rows.npy", leave_out={"a": 1}, out=tmp_path, **SETTINGS)


def test_the_command_prints_the_table(monkeypatch, capsys, tmp_path):
    command = ["extrapolate", "ae", "helix?samples=200", "--leave-out", "strand=1", "--steps", "4",
               "--more", "3", "--seeds", "1", "--latents", "2", "--out", str(tmp_path / "out"),
               "--jobs", "1", "--set", "hidden=6", "--quiet"]  # fmt: skip
    for extra in ([], ["--json", "--figure", str(tmp_path / "figure.svg")]):
        monkeypatch.setattr(sys, "argv", ["zscope", *command, *extra])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 0
    text, line = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert "ae on helix?samples=200 without strand=1: 4 steps, then 3 on all values" in text
    assert json.loads(line)["left_out"] == {"strand": [1]}
    assert (tmp_path / "figure.svg").is_file()
