"""The models of CONTRIBUTING.md, taken from its text: they train, record and are measured."""

import importlib
import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from scripts import docs_script
from torch import nn
from typer.testing import CliRunner

import zscope as zs
from zscope import autoencoder
from zscope.cli import app
from zscope.explorer.session import Session

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = (ROOT / "CONTRIBUTING.md").read_text().split("\n## A model\n")[1].split("\n## ")[0]
*CLASSES, ENTRY = re.findall(r"```python\n(.*?)```", CHAPTER, re.DOTALL)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module", name="classes")
def _classes() -> dict:
    names: dict = {}
    for block in CLASSES:
        exec(block, names)
    return names


def test_each_model_is_about_ten_lines():
    for block in CLASSES:
        lines = block[block.index("class ") :].splitlines()
        assert sum(bool(line.strip()) for line in lines) <= 13


def linear(inputs: int, outputs: int) -> nn.Module:
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    layer.weight.data = 0.3 * normal(outputs, inputs)
    layer.bias.data.zero_()
    return layer


def trained(model: zs.Trainable, data: object) -> zs.Recording:
    run = zs.train(model, data, steps=20, rate=0.01, batch=32)
    first, last = run.history[0], run.history[-1]
    assert last["loss"] < first["loss"]
    assert {"reconstruction", "divergence", "active"} <= set(last)
    return zs.record(run.model, data)


def test_a_model_that_trains(classes):
    recording = trained(classes["VAE"](linear(6, 4), linear(2, 6), latents=2), normal(200, 6))
    result = zs.assays.response_matrix(recording.autoencoder, recording.codes)
    assert result.matrix.shape == (2, 2)


def test_the_example_of_the_interface_is_the_same_model(classes):
    documented = re.search(r"\n( +class VAE.*?)\n\S", autoencoder.__doc__, re.DOTALL)[1]
    names = {"zs": zs}
    exec(textwrap.dedent(documented), names)
    losses = [
        made["VAE"](linear(6, 4), linear(2, 6), latents=2).losses(normal(20, 6), None).total
        for made in (names, classes)
    ]
    torch.testing.assert_close(*losses)


def test_a_conditional_model_is_measured_against_its_own_prior(classes):
    factors = torch.arange(200)[:, None].float() / 200
    data = zs.data.from_arrays(normal(200, 6), factors.numpy(), factor_names=["time"])
    recording = trained(classes["ConditionalVAE"](linear(7, 4), linear(2, 6), latents=2), data)
    posterior, prior = recording.posterior, recording.autoencoder.prior_given(factors)
    expected = torch.distributions.kl_divergence(
        torch.distributions.Normal(posterior.mean, posterior.std),
        torch.distributions.Normal(prior.mean, prior.std),
    )
    torch.testing.assert_close(recording.relative.kl(), expected.detach(), rtol=1e-4, atol=1e-5)
    pruned = zs.record(zs.prune(recording.autoencoder, [1]), data)
    torch.testing.assert_close(pruned.relative.mean, recording.relative.mean[:, 1:])


def conditional_models(classes: dict) -> dict[str, tuple[zs.Trainable, zs.Dataset]]:
    factors = torch.stack([torch.arange(200) % 3, torch.arange(200) // 50], 1)
    values = 3 * normal(200, 6)  # wide enough that a trained model uses both latents
    data = zs.data.from_arrays(values, factors.numpy(), factor_kinds=["categorical"] * 2)
    return {
        "recipe": (classes["ConditionalVAE"](linear(8, 4), linear(2, 6), latents=2), data),
        "catalogue": (zs.models.build_for("ivae", data, latents=2, hidden=(8,)), data),
    }


@pytest.mark.parametrize("which", ["recipe", "catalogue"])
def test_a_conditional_model_is_measured_by_all_that_need_not_encode_what_it_decodes(
    classes, which
):
    model, data = conditional_models(classes)[which]
    zs.train(model, data, steps=60, rate=0.01)
    report = zs.assay(model, data, progress=False)
    assert not report.failed
    assert "no causal block" in report.missing.pop("masks")
    for name, entry in zs.assays.CATALOGUE.items():
        if "layout" in entry.needs and "autoencoder" not in entry.takes:
            assert "without channels and places" in report.missing.pop(name)
    assert set(report.missing.values()) == {
        "Not applicable: the encoder of this model is conditional: it needs factors, and decoded "
        "observations have none. Use assays of its codes or of its decoder."
    }
    assert {"response-matrix", "holes", "sample-quality"} <= set(report.missing)
    entries = [
        each
        for each in zs.assays.CATALOGUE.values()
        if each.name != "masks" and "layout" not in each.needs
    ]
    usual = [each for each in entries if not each.compares and not each.on_request]
    apply = {each.name for each in usual if "autoencoder" not in each.takes}
    assert set(report.results) == apply
    only_decode = {"predicted-variance", "alignment-gap", "loss-decomposition", "hybridisation"}
    scores = {each.name for each in entries if each.group == "disentanglement"} - {"udr"}
    assert only_decode | scores | {"variable-types", "rate-distortion"} <= apply


def test_a_conditional_model_is_not_explored(classes):
    model, data = conditional_models(classes)["recipe"]
    with pytest.raises(zs.ZscopeError, match=r"encoder of mine needs the factors.*zscope report"):
        Session(model, data, name="mine")


@pytest.mark.parametrize(
    "measure",
    [
        lambda model, x: zs.assays.response_matrix(model, x[:, :2]),
        zs.assays.rate_distortion,
        zs.assays.loss_decomposition,
        lambda model, x: zs.assays.frechet_distance(x, x, extractor=model),
    ],
)
def test_arrays_alone_are_not_encoded_by_a_conditional_model(classes, measure):
    model, _ = conditional_models(classes)["recipe"]
    with pytest.raises(
        zs.ZscopeError, match="it needs factors, and decoded observations have none"
    ):
        measure(model, normal(50, 6))


def test_a_model_with_its_own_likelihood_pays_what_it_says(classes):
    rates = (0.3 * normal(200, 5)).exp()
    counts = torch.poisson(rates, generator=torch.Generator().manual_seed(1))
    model = classes["CountVAE"](linear(5, 4), linear(2, 5), latents=2)
    trained(model, counts)
    with torch.no_grad():
        nats = model.losses(counts, torch.Generator().manual_seed(1)).terms["reconstruction"]
    for each in (model, zs.rotate_latents(model, torch.eye(2))):
        generator = torch.Generator().manual_seed(1)
        result = zs.assays.rate_distortion(each, counts, generator=generator, batch=200)
        assert result.likelihood == "poisson"
        assert result.distortion == pytest.approx(nats.item(), rel=1e-5)


def test_a_likelihood_that_is_named_but_not_defined_is_refused(classes):
    model = classes["VAE"](linear(6, 4), linear(2, 6), latents=2)
    model.likelihood_name = "student"
    with pytest.raises(zs.ZscopeError, match=r"'student', but negative_log_likelihood\(z, x\)"):
        zs.assays.rate_distortion(model, normal(50, 6))


@pytest.fixture(name="warm_vae")
def _warm_vae(tmp_path, monkeypatch):
    """The recipe followed: one file, one line in the catalogue."""
    (tmp_path / "warm_vae.py").write_text(ENTRY)
    monkeypatch.setattr(zs.models, "__path__", [*zs.models.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    line = re.search(r'`"([\w-]+)": "([\w:]+)",`', CHAPTER)
    monkeypatch.setitem(zs.models.CATALOGUE, line[1], line[2])
    yield line[1]
    sys.modules.pop("zscope.models.warm_vae", None)


def test_a_made_up_model_of_the_catalogue_is_found_everywhere(warm_vae, monkeypatch):
    assert warm_vae in zs.models.names()
    listed = CliRunner().invoke(app, ["models", "list"]).output
    assert "warm-vae" in listed
    assert "a VAE whose divergence counts β times" in listed
    info = CliRunner().invoke(app, ["models", "info", warm_vae]).output
    assert "Weight of the divergence." in info
    monkeypatch.setenv("ZSCOPE_DOCS_FIGURES", "no")
    pages = docs_script("pages")
    made = pages.model_pages()
    assert "`beta`" in made["models/warm-vae.md"]
    assert "warm-vae.md" in made["models/index.md"]


def test_a_made_up_model_of_the_catalogue_trains_and_is_built_again(warm_vae):
    model = zs.models.build(warm_vae, shape=(6,), latents=2, hidden=(8,), beta=2)
    recording = trained(model, normal(200, 6))
    assert recording.codes.shape == (200, 2)
    again = zs.models.from_recipe(model.recipe)
    assert again.recipe["options"]["beta"] == 2.0
    with pytest.raises(zs.ZscopeError, match="beta=-1.*0 or more"):
        zs.models.build(warm_vae, shape=(6,), latents=2, beta=-1)
