"""Names of assays and their options, on every command that takes them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import zscope as zs
from zscope.assays.run import compare, measure
from zscope.cli import app
from zscope.errors import ConfigError
from zscope.recording import Recording


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    values = rng.integers(3, size=(90, 2))
    np.savez("both.npz", codes=values + 0.1 * rng.normal(size=(90, 2)), factors=values)

    def call(*words):
        result = CliRunner().invoke(app, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout

    return call


def test_underscores_are_accepted_everywhere(run):
    words = ("--set", "mig_sup.flavour=dlib", "--json")
    for command in (("assay", "both.npz", "mig_sup"), ("score", "both.npz", "--only", "mig_sup")):
        content = json.loads(run(*command, *words))
        results = content["scores"] if "scores" in content else content["assays"]
        assert list(results) == ["mig-sup"]
        assert "dlib" in json.dumps(results)
    assert "\nmig-sup\n" in run("assay", "both.npz", "mig_sup")  # its details, as it was named


@pytest.mark.parametrize("command", [("assay", "both.npz", "mig"), ("score", "both.npz")])
def test_options_of_what_is_not_measured_are_refused(run, command):
    words = (*command, *(("--only", "mig") if command[0] == "score" else ()))
    with pytest.raises(ConfigError, match="dci has options, but is not measured; measured: mig."):
        run(*words, "--set", "dci.flavour=dlib")
    # An option of a group is meant for those of its assays that are measured.
    run(*words, "--set", "disentanglement.flavour=dlib")


def test_a_score_of_several_models_is_pointed_to(run):
    with pytest.raises(ConfigError, match=r"udr compares two or more models.*zscope compare"):
        run("score", "both.npz", "--only", "udr")


@pytest.mark.parametrize("command", ["assay", "report"])
def test_the_error_names_the_command(run, command):
    with pytest.raises(ConfigError, match=f"^{command}: --data is for models"):
        run(command, "both.npz", "--data", "digits")


@pytest.fixture(scope="module")
def models():
    return [zs.models.build("ae", shape=(3,), latents=2, hidden=(4,), seed=seed) for seed in (0, 1)]


def test_options_reach_the_assays_that_compare(models):
    data = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    few = {"control": False, "extractor": None}
    plain = zs.compare(*models, data, debiased=False, **few)
    usual = zs.compare(*models, data, **few)
    own = zs.compare(*models, data, options={"cka": {"debiased": False}}, **few)
    assert own.latents["cka"].score == plain.latents["cka"].score != usual.latents["cka"].score
    assert own.heatmap.matrix.equal(usual.heatmap.matrix)
    layers = {"similarity-heatmap": {"debiased": False}}
    assert zs.compare(*models, data, options=layers, **few).heatmap.matrix.equal(
        plain.heatmap.matrix
    )
    with pytest.raises(ConfigError, match="mig has options, but is not measured"):
        zs.compare(*models, data, options={"mig": {"flavour": "dlib"}}, **few)


def test_the_runner_refuses_them_too():
    recording = Recording.from_arrays(np.random.default_rng(0).normal(size=(50, 2)))
    with pytest.raises(ConfigError, match="not measured"):
        measure(recording, "effective-rank", options={"total-correlation": {}})
    with pytest.raises(ConfigError, match="not measured"):
        compare([recording, recording], options={"mig": {}})


def test_compare_takes_options_on_the_command_line(run, models, tmp_path):
    data = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    np.save("data.npy", data)
    for name, model in zip("ab", models, strict=True):
        zs.train(model, data, steps=2, out=tmp_path / name)
    words = ("compare", "a", "b", "--data", "data.npy", "--no-control", "--extractor", "none")
    usual = json.loads(run(*words, "--json"))["latents"]["cka"]["score"]
    own = json.loads(run(*words, "--set", "cka.debiased=false", "--json"))["latents"]["cka"]
    assert own["score"] != usual
