"""Every way to an assay gives one number, and what assays share is computed once."""

import json
from importlib import import_module

import numpy as np
import pytest
import torch
from worlds import gaussian_codes, grid, identity

import zscope as zs
from zscope import assays as a
from zscope.assays import CATALOGUE, groups
from zscope.assays.run import check_options, measure
from zscope.data.dataset import from_arrays
from zscope.errors import ConfigError
from zscope.recording import Recording

SCORES = groups()["disentanglement"]

# The same fewer draws by every door.
pytestmark = pytest.mark.usefixtures("few_draws_in_all_tests")


def factor_world():
    """Codes of a model with a passive latent, and factors of two stated kinds."""
    factors = grid(10, 6).repeat(5, 0)
    noise = gaussian_codes(300, 3).float().numpy()
    x = np.column_stack([factors + 0.3 * noise[:, :2], noise[:, 2]]).astype("float32")
    data = from_arrays(
        x, factors, factor_names=("shift", "shape"), factor_kinds=("ordinal", "categorical")
    )
    log_variance = torch.tensor([0.01, 0.01, 1.0]).log()
    model = zs.wrap(lambda x: (x / 4, log_variance.expand(len(x), 3)), lambda z: 4 * z, latents=3)
    return model, data


@pytest.fixture(scope="module")
def doors(tmp_path_factory, few_draws_in_all_tests):
    """All scores by the doors that compute them together: door -> name -> score."""
    from typer.testing import CliRunner

    from zscope.cli import app

    folder = tmp_path_factory.mktemp("doors")
    model, data = factor_world()
    recording = zs.record(model, data, seed=3)
    np.save(folder / "codes.npy", recording.codes.numpy())
    np.save(folder / "variances.npy", recording.variances.numpy())
    table = "shift,shape\n" + "\n".join(f"{p},{q}" for p, q in data.factors)
    (folder / "factors.csv").write_text(table)
    files = ["--variances", str(folder / "variances.npy"), "--kinds", "ordinal,categorical"]
    files += ["--seed", "3", "--json"]
    codes, factors = str(folder / "codes.npy"), str(folder / "factors.csv")
    runner = CliRunner()
    scored = runner.invoke(app, ["score", codes, factors, *files])
    words = ["assay", codes, "disentanglement", "--factors", factors, *files]
    assayed = json.loads(runner.invoke(app, words).stdout)["assays"]
    reports = {
        "zs.assay of a recording": zs.assay(recording, names=SCORES),
        "zs.assay of a model": zs.assay(model, data, names=SCORES, seed=3),
    }
    scores = {
        door: {name: result.score for name, result in report.results.items()}
        for door, report in reports.items()
    }
    scores["zscope score"] = {
        name: each["score"] for name, each in json.loads(scored.stdout)["scores"].items()
    }
    scores["zscope assay"] = {name: each["result"]["score"] for name, each in assayed.items()}
    return scores


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_the_same_by_every_door(name, doors):
    """Python with a recording, Python with arrays, zs.assay, zscope assay, zscope score."""
    model, data = factor_world()
    function = CATALOGUE[name].load()
    first = function(zs.record(model, data, seed=3))
    assert first.kinds == ["ordinal", "categorical"]
    assert first.factor_names == ["shift", "shape"]
    assert not any("guessed" in flag for flag in first.flags)
    for door, scores in doors.items():
        exact = 0 if door.startswith("zs.") else 1e-6  # files and JSON have fewer digits
        assert scores[name] == pytest.approx(first.score, rel=0, abs=exact), door

    zero = zs.record(model, data)  # bare arrays have seed 0
    bare = function(
        zero.codes, data.factors, variances=zero.variances, kinds=["ordinal", "categorical"]
    )
    assert bare.score == function(zero).score


def test_intervals_do_not_change_what_they_are_about():
    """Resampling draws after the score, or from a generator of its own."""
    model, data = factor_world()
    plain, resampled = (
        {
            (row["assay"], row["measure"]): (row["value"], row["chance"], row["n"])
            for row in zs.assay(model, data, resamples=resamples).rows()
        }
        for resamples in (0, 2)
    )
    assert len(plain) > 40
    assert resampled == plain


def test_a_trained_run_has_the_same_scores_by_every_door(tmp_path):
    """Python with a recording, zs.assay, zscope assay RUN, zscope report RUN."""
    from typer.testing import CliRunner

    from zscope.cli import app

    sizes = {"scale": 2, "orientation": 4, "position_x": 6, "position_y": 6}
    data = zs.data.load("sprites", resolution=16, **sizes)
    run = tmp_path / "run"
    model = zs.models.build(
        "vae", shape=data.shape, latents=3, backbone="mlp", hidden=(32,), seed=0
    )
    zs.train(model, data, steps=100, rate=1e-2, seed=0, out=run, progress=False)
    recording = zs.record(zs.load(run), data, samples=400, seed=3)
    expected = {name: CATALOGUE[name].load()(recording).score for name in SCORES}
    report = zs.assay(run, names="disentanglement", samples=400, seed=3)
    assert {name: result.score for name, result in report.results.items()} == expected
    words = [str(run), "disentanglement", "--samples", "400", "--seed", "3", "--fresh"]
    assayed = CliRunner().invoke(app, ["assay", *words, "--json"])
    page = ["-o", str(tmp_path / "page.json"), "--resamples", "0"]
    reported = CliRunner().invoke(app, ["report", *words, *page])
    assert reported.exit_code == 0
    for text in (assayed.stdout, (tmp_path / "page.json").read_text()):
        assays = json.loads(text)["assays"]
        scores = {name: each["result"]["score"] for name, each in assays.items()}
        assert scores == pytest.approx(expected, abs=1e-5)


def test_bare_factors_have_their_guessed_kinds_flagged_and_those_of_a_recording_have_not():
    model, data = factor_world()
    recording = zs.record(model, data)
    guessed = a.mig(recording.codes, data.factors)
    assert guessed.flags[0] == (
        "Kinds of factors were guessed: categorical (factor0, factor1). State them "
        "with kinds= (--kinds on the command line)."
    )
    assert not any("guessed" in flag for flag in a.mig(recording.codes, recording.factors).flags)
    assert "Kinds of factors were guessed" in str(
        zs.assay(Recording.from_arrays(recording.codes, data.factors), names=["mig"])
    )


def test_response_assays_of_one_recording_start_from_the_same_samples():
    recording = zs.record(identity(3, std=0.1, prior="normal"), gaussian_codes(400, 3).float())
    matrix, single = a.response_matrix(recording), a.response(recording)
    bare = a.response_matrix(recording.autoencoder, recording.posterior)
    assert torch.equal(matrix.matrix, bare.matrix)
    assert torch.equal(single.codes, recording.base_samples[:1024])
    own = a.response_matrix(recording, generator=torch.Generator().manual_seed(5))
    assert not torch.equal(matrix.scale, own.scale)


def test_what_several_assays_need_is_computed_once():
    world = identity(3, std=0.1, prior="normal")
    recording = zs.record(world, gaussian_codes(300, 3).float())
    a.response_matrix(recording, resamples=20)
    world.decoded.clear()
    first = a.causal_structure_score(recording)
    assert sum(map(len, world.decoded)) <= first.samples + 4  # no second response matrix
    world.decoded.clear()
    a.causal_structure_score(recording)
    a.response(recording)
    assert not world.decoded


@pytest.mark.parametrize("variational", [True, False])
def test_information_and_use_are_computed_once_for_all_scores(monkeypatch, variational):
    """And each score is what it is by itself, on a recording of its own."""
    sample, recordings = (import_module(f"zscope.{n}") for n in ("assays.sample", "recording"))
    tables, decisions = [], []

    def information(bins, labels, **options):
        tables.append(bins.tobytes() + labels.tobytes())
        return real_information(bins, labels, **options)

    def usage(posterior):
        decisions.append(posterior)
        return real_usage(posterior)

    def recording():
        codes = gaussian_codes(400, 3).numpy()
        factors = np.column_stack([np.digitize(codes[:, 0], [-0.5, 0.5]), codes[:, 1] > 0])
        variances = np.full((400, 3), 0.05)
        variances[:, 2] = 20  # passive
        kinds = ["ordinal", "categorical"]
        return Recording.from_arrays(
            codes, factors, variances=variances if variational else None, kinds=kinds
        )

    alone = {name: measure(recording(), name).results[name] for name in groups()["disentanglement"]}
    real_information, real_usage = sample.information, recordings.usage_of_posterior
    monkeypatch.setattr(sample, "information", information)
    monkeypatch.setattr(recordings, "usage_of_posterior", usage)
    monkeypatch.setattr(sample, "usage_of_posterior", usage)
    together = measure(recording(), "disentanglement").results
    assert {n: r.score for n, r in together.items()} == {n: r.score for n, r in alone.items()}
    assert len(tables) > 10  # of the chance levels too, whose rows are permuted
    assert len(set(tables)) == len(tables)
    assert len(decisions) == (1 if variational else 0)


def test_a_conditioned_matrix_is_the_same_with_the_posterior_as_with_the_recording():
    model, data = factor_world()
    recording = zs.record(model, data)
    first = a.conditioned_response_matrix(recording)
    second = a.conditioned_response_matrix(model, recording.data, posterior=recording.posterior)
    assert first.disentanglement == second.disentanglement
    assert torch.equal(first.matrix, second.matrix)


@pytest.mark.parametrize("option", ["codes", "factors", "variances"])
def test_arrays_of_the_recording_are_no_options(option):
    model, data = factor_world()
    with pytest.raises(ConfigError, match=f"no option '{option}'"):
        a.mig(zs.record(model, data), **{option: data.factors})
    with pytest.raises(ConfigError, match="follow from the seed"):
        check_options({"mig": {"generator": 5}})
