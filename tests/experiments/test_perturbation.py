"""A perturbation says whether it worked, and trains its restarts together."""

import numpy as np
import pytest
import torch

import zscope as zs
from zscope import store
from zscope.errors import ConfigError
from zscope.experiments.perturbation import perturb, restarts
from zscope.experiments.perturbation.game import Choice, Game, play
from zscope.experiments.perturbation.restarts import train_restarts
from zscope.experiments.perturbation.verdict import batch_interval, judge
from zscope.experiments.whole import Whole
from zscope.tables.statistics import mean_of

NETWORKS = {"backbone": "mlp", "hidden": [8], "beta": 0.1}


def planes(dtype=np.uint8, equal=False):
    """Two factors, each the contrast of one pattern of 4 x 4 pixels."""
    w = np.stack([part.ravel() for part in np.indices((6, 6))], 1)
    u = 2 * w / 5 - 1
    rows, columns = np.indices((4, 4))
    a, b = u[:, :1, None] * np.sign(columns - 1.5), u[:, 1:, None] * np.sign(rows - 1.5)
    x = 0.5 + 0.1 * ((1 if equal else 2) * a + b)
    images = (255 * x).round().astype(np.uint8) if dtype == np.uint8 else x.astype(np.float32)
    kinds = ("ordinal", "ordinal")
    return zs.data.from_arrays(images[:, None], w, factor_names=("a", "b"), factor_kinds=kinds)


SETTINGS = {"model": "beta-vae", "latents": 2, "options": NETWORKS, "restarts": 3, "steps": 40,
            "batch": 18, "rate": 1e-2, "seed": 5}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return planes()


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("restarts")
    return train_restarts(data, folder, SETTINGS, resume=False)


# The verdict


def rounds(gaps, loss=10.0):
    return [{"gap": float(gap), "entangled": loss + gap, "disentangled": loss} for gap in gaps]


def noisy(mean, seed=0, spread=0.1):
    return mean + spread * np.random.default_rng(seed).normal(size=60)


@pytest.mark.parametrize(
    ("after", "without", "worked", "words"),
    [
        (-1.0, 0.5, True, "The change worked"),
        (-1.0, -0.5, True, "The change worked"),
        (0.5, 2.0, False, "not cheaper than the disentangled"),
        (0.0, 2.0, False, "not cheaper than the disentangled"),
        (-1.0, -1.0, False, "the decoders gain as much by training longer"),
        (-1.05, -1.0, False, "would count"),  # lower, but hardly
    ],
)
def test_the_verdict_needs_a_gap_below_0_and_below_that_without_a_change(
    after, without, worked, words
):
    # Shared batches: the noise of both games is the same, as in `play`.
    verdict = judge(rounds(noisy(after)), rounds(noisy(without)))
    assert verdict.worked == worked
    assert words in verdict.sentence
    assert verdict.difference.mean == pytest.approx(after - without)
    assert ("larger epsilon, more rounds" in verdict.sentence) != worked
    assert f"{without + noisy(0)[-50:].mean():+.2f} after the same game" in verdict.sentence


def test_restarts_that_do_not_differ_say_nothing_about_entanglement():
    game = rounds(noisy(-1.0)), rounds(noisy(0.5))
    for scores, chance, words in (
        ([0.0, 0.0], 0.0, "do not differ in MIG (0.000 and 0.000; permuted codes reach 0.000)"),
        ([0.010, 0.014], 0.006, "(0.010 and 0.014; permuted codes reach 0.006)"),
    ):
        chosen = Choice(scores, [2, 2], [0], [1], [], chance)
        verdict = judge(*game, chosen.no_difference)
        assert not verdict.worked
        assert words in verdict.sentence
        assert "says nothing about entanglement" in verdict.sentence
        assert verdict.difference.mean == pytest.approx(-1.5)
    assert Choice([0.010, 0.017], [2, 2], [0], [1], [], 0.006).no_difference is None
    several = Choice([0.0, 0.1, 0.2, 0.3], [2] * 4, [0, 1], [3, 2], [], 0.01)
    assert several.mig == pytest.approx({"entangled": 0.05, "disentangled": 0.25, "chance": 0.01})


def test_equal_restarts_are_not_said_to_work(data, trained, tmp_path):
    result = perturb(
        data, epsilon=0.1, out=tmp_path / "out", restarts=[trained[0], trained[0]], rounds=30,
        batch=18, modifier_rate=1e-2, control=False, progress=False,
    )  # fmt: skip
    assert result.scores[0] == result.scores[1]
    assert not result.verdict.worked
    assert any("says nothing about entanglement" in flag for flag in result.flags)
    assert result.to_dict()["mig"]["entangled"] == result.scores[0]


@pytest.mark.parametrize("count", [2, 24])
def test_few_rounds_are_too_few_for_a_verdict(count):
    verdict = judge(rounds([-1] * count), rounds([1] * count))
    assert not verdict.worked
    assert f"{count} rounds are too few" in verdict.sentence
    assert "at least 25" in verdict.sentence
    assert verdict.intervals() == {"gap": None, "unchanged": None, "difference": None}
    assert judge(rounds([-1] * 25), rounds([1] * 25)).worked


def test_the_interval_is_that_of_five_batches_of_the_last_fifty_rounds():
    gaps = noisy(-1.0)
    verdict = judge(rounds(gaps), rounds(np.zeros(60)))
    means = np.array([gaps[k : k + 10].mean() for k in range(10, 60, 10)])
    half = 2.77645 * means.std(ddof=1) / np.sqrt(5)  # t(.975, 4)
    expected = [means.mean(), means.mean() - half, means.mean() + half]
    assert verdict.gap.to_list() == pytest.approx(expected, abs=1e-5)
    assert verdict.gap.mean == pytest.approx(gaps[-50:].mean())
    # Of 33 rounds the first three are left out: every batch has as many.
    assert batch_interval(gaps[:33]) == batch_interval(gaps[3:33])


# How often an interval contains the mean of a correlated sequence, which is known. The seeds are
# fixed; of 400 repeats the share has a standard error of 0.011 at 95 %.


def correlated(rho, repeat, mean=0.0, count=50):
    """AR(1) of standard deviation 1."""
    noise = np.random.default_rng([repeat, int(100 * rho)]).normal(size=count)
    values = noise.copy()
    for k in range(1, count):
        values[k] = rho * values[k - 1] + np.sqrt(1 - rho**2) * noise[k]
    return mean + values


def coverage(interval, rho, repeats=400):
    intervals = [interval(correlated(rho, repeat)) for repeat in range(repeats)]
    return np.mean([each.low <= 0 <= each.high for each in intervals])


def of_rounds(values):
    return mean_of(list(values))  # takes them as independent


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.5])
def test_the_interval_covers_the_mean_of_a_correlated_sequence(rho):
    assert 0.92 <= coverage(batch_interval, rho) <= 0.98


def test_an_interval_that_takes_rounds_as_independent_does_not():
    assert coverage(of_rounds, 0.0) > 0.92
    assert coverage(of_rounds, 0.5) < 0.85
    assert coverage(of_rounds, 0.7) < 0.7
    assert coverage(batch_interval, 0.7) > 0.88


def test_the_interval_of_independent_rounds_is_hardly_wider():
    rows = [correlated(0.0, repeat) for repeat in range(400)]
    widths = [[i.high - i.low for i in (batch_interval(row), of_rounds(row))] for row in rows]
    ours, others = np.mean(widths, 0)
    assert 1.1 < ours / others < 1.5


def test_correlated_rounds_without_an_effect_are_rarely_called_and_an_effect_is():
    def called(mean):
        verdicts = [
            judge(rounds(correlated(0.6, k, mean)), rounds(correlated(0.6, k + 1000)))
            for k in range(200)
        ]
        return np.mean([verdict.worked for verdict in verdicts])

    assert called(0.0) <= 0.03  # both intervals must exclude 0, on one side
    assert called(-2.0) > 0.95


# A world where the change can win: the codes of the entangled side are a + b, those of the other
# side are a. Both tell as much about the data, but only the first tells a function of a + b.


def world(data, epsilon):
    a, b = torch.from_numpy(data.factors).float().T / 2.5 - 1
    codes = {"entangled": (a + b) / 2, "disentangled": a}
    posteriors = {
        side: [zs.Posterior(mean[:, None], torch.full((len(mean), 1), 0.01))]
        for side, mean in codes.items()
    }
    models = [zs.models.build("beta-vae", shape=data.shape, latents=1, **NETWORKS)] * 2
    return Game(
        data, models, choice(0, 1), epsilon=epsilon, seed=0, options={}, posteriors=posteriors
    )


def choice(entangled, disentangled):
    return Choice([0.0] * 2, [1] * 2, [entangled], [disentangled], [])


def played(game, folder, rounds=30, rate=2e-2):
    return play(game, folder, rounds=rounds, batch=36, rate=rate, seed=0, resume=False)


def test_a_change_works_where_it_can_and_fails_where_it_is_too_small(tmp_path):
    data = planes(equal=True)
    still = played(world(data, 0.0), tmp_path / "still")
    large = judge(played(world(data, 0.2), tmp_path / "large"), still)
    assert large.worked, large.sentence
    assert large.gap.mean < -0.1
    tiny = judge(played(world(data, 1e-5), tmp_path / "tiny"), still)
    assert not tiny.worked, tiny.sentence
    assert abs(tiny.difference.mean) < abs(large.difference.mean) / 100


def test_without_a_change_only_the_decoders_train_on_the_same_batches(data, tmp_path):
    game = world(data, 0.0)
    before = {name: tensor.clone() for name, tensor in game.state_dict().items()}
    history = played(game, tmp_path / "still", rounds=4)
    changed = {k for k, v in game.state_dict().items() if not torch.equal(v, before[k])}
    assert changed
    assert all(".decoder." in name and name.startswith("decoders.") for name in changed)
    rows = np.arange(9)
    assert torch.equal(game.perturbed(rows), data.batch(rows))
    # The first round of a game whose modifier changes nothing yet has the same losses.
    silent = world(data, 0.1)
    torch.nn.init.zeros_(list(silent.modifier.decoder.parameters())[-2])
    torch.nn.init.zeros_(list(silent.modifier.decoder.parameters())[-1])
    assert played(silent, tmp_path / "silent", rounds=1)[0] == pytest.approx(history[0])


def test_a_game_is_stopped_and_taken_up_without_a_change_too(data, tmp_path):
    whole = played(world(data, 0.0), tmp_path / "whole", rounds=6)
    played(world(data, 0.0), tmp_path / "parts", rounds=3)
    game = world(data, 0.0)
    more = {"batch": 36, "rate": 2e-2, "seed": 0}
    assert play(game, tmp_path / "parts", rounds=6, resume=True, **more) == whole


# The whole procedure


def test_a_failure_is_a_flag_with_what_to_do_and_numbers_are_saved(data, trained, tmp_path):
    result = perturb(
        data, epsilon=0.05, out=tmp_path / "out", restarts=trained, rounds=5, batch=18,
        modifier_rate=1e-9, progress=False,
    )  # fmt: skip
    assert not result.verdict.worked
    assert result.verdict.sentence in result.flags
    assert "Use a larger epsilon" in result.verdict.sentence
    assert len(result.unchanged) == len(result.history) == 5
    saved = store.read_json(tmp_path / "out" / "perturbation.json")["result"]
    assert saved["worked"] is False
    assert saved["verdict"] == result.verdict.sentence
    assert saved["gap_without_change"] == pytest.approx(result.unchanged_gap)
    assert saved["size"]["rms"] <= saved["size"]["largest"] <= 0.05
    assert set(saved["alignment"]) == {"original", "changed", "noise"}
    assert saved["alignment"]["original"]["distance"] == pytest.approx(0, abs=0.05)
    assert result.alignment["noise"].distance > result.alignment["original"].distance
    assert "size of the change" in dict(result.summary())
    assert "noise of the same ε" in dict(result.summary())["alignment"]
    assert {"rms", "relative_variance", "added_variance", "first_direction"} <= set(saved["size"])


def test_data_without_a_grid_say_why_there_is_no_alignment(tmp_path):
    random = np.random.default_rng(0)
    data = zs.data.from_arrays(random.random((20, 3)), random.random((20, 2)))
    result = perturb(
        data, epsilon=0.1, out=tmp_path / "out", restarts=2, steps=3, rounds=3, batch=8,
        options={"hidden": (4,)}, control=False, progress=False,
    )  # fmt: skip
    assert result.alignment == {}
    assert "alignment of the data was not measured" in result.flags[-1]
    assert result.plot() is not None


def test_bytes_refuse_an_epsilon_that_rounding_would_erase(data, tmp_path):
    with pytest.raises(
        ConfigError, match=r"epsilon=0.002.*bytes.*1/255 = 0.003922.*at least 0.004"
    ):
        perturb(data, epsilon=0.002, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    floats = perturb(
        planes(np.float32), epsilon=0.002, out=tmp_path / "floats", restarts=2, steps=3, rounds=3,
        batch=8, options=NETWORKS, progress=False,
    )  # fmt: skip
    assert 0 < floats.largest <= 0.002


def test_the_picture_says_by_how_much_a_change_is_amplified(data, trained, tmp_path):
    result = perturb(
        data, epsilon=0.05, out=tmp_path / "out", restarts=trained, rounds=3, batch=18,
        progress=False,
    )  # fmt: skip
    labels = [label.get_text() for label in result.plot().get_yticklabels()]
    factor = int(0.5 / max(result.largest, result.noise.largest))
    assert labels == ["original", "changed", f"its change × {factor}", "noise of the same ε", f"its change × {factor}"]  # fmt: skip # noqa: E501


# Restarts


def test_restarts_are_those_of_single_runs(data, tmp_path):
    together = train_restarts(data, tmp_path / "together", SETTINGS, resume=False)
    for number, model in enumerate(together):
        path = tmp_path / "together" / f"seed-{5 + number}"
        assert store.open_run(path).finished
        alone = zs.train(
            zs.models.build("beta-vae", shape=data.shape, latents=2, seed=5 + number, **NETWORKS),
            data, steps=40, batch=18, rate=1e-2, seed=5 + number, progress=False,
        ).model  # fmt: skip
        for one, other in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    again = train_restarts(data, tmp_path / "together", SETTINGS, resume=True)
    assert all(
        torch.equal(one, other)
        for a, b in zip(together, again, strict=True)
        for one, other in zip(a.parameters(), b.parameters(), strict=True)
    )


def test_models_that_cannot_be_stacked_are_trained_one_by_one(data, tmp_path, monkeypatch):
    monkeypatch.setattr(restarts, "can_train_together", lambda first, other: False)
    monkeypatch.setattr(restarts, "train_together", None)
    shares = []
    settings = {**SETTINGS, "restarts": 2}
    models = train_restarts(data, tmp_path / "r", settings, resume=False, tick=shares.append)
    assert len(models) == 2
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 1


def test_restarts_that_were_stopped_go_on(data, tmp_path):
    whole = train_restarts(data, tmp_path / "whole", SETTINGS, resume=False)

    def stop(share):
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="3 restarts.*--resume"):
        train_restarts(data, tmp_path / "parts", SETTINGS, resume=False, tick=stop)
    again = train_restarts(data, tmp_path / "parts", SETTINGS, resume=True)
    assert all(
        torch.equal(one, other)
        for a, b in zip(whole, again, strict=True)
        for one, other in zip(a.parameters(), b.parameters(), strict=True)
    )


# The time left


def test_the_time_left_is_that_of_all_parts(capsys):
    now = [0.0]
    whole = Whole(True, {"first": 10, "second": 30}, clock=lambda: now[0])
    assert whole.left is None
    with whole.part("first") as tick:
        now[0] = 5.0
        tick(0.5)
        assert whole.left == pytest.approx(5 + 30)  # one second for each unit of work
        now[0] = 10.0
    assert whole.share == pytest.approx(0.25)
    with whole.part("second") as tick:
        assert whole.left == pytest.approx(30)
        now[0] = 30.0
        tick(1 / 3)  # ten units in twenty seconds: its own speed counts
        assert whole.left == pytest.approx(40)
    assert whole.left is None
    assert "first: 12 % of all work done, about 35 s left" in capsys.readouterr().err


def test_a_quiet_whole_shows_nothing(capsys):
    with Whole(False, {"a": 1}).part("a") as tick:
        tick(0.5)
    assert capsys.readouterr().err == ""
