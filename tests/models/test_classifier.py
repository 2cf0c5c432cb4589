"""Classifier: cross-entropy of a label, and the trunk of an autoencoder."""

import math

import numpy as np
import pytest
import torch
from worlds import seeded

import zscope as zs
from zscope.errors import ConfigError, InterfaceError


def blobs(kinds=("ordinal", "categorical")):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    x = rng.normal(size=(300, 2)) * 0.3 + np.array([[0, 3], [3, 0], [-3, -3]])[labels]
    factors = np.stack([rng.integers(5, size=300), labels], 1)
    return zs.data.from_arrays(
        x.astype(np.float32), factors, factor_names=["noise", "label"], factor_kinds=list(kinds)
    )


def test_ignorance_of_k_classes_costs_log_k():
    model = zs.models.build("classifier", shape=(2,), latents=7, backbone="linear")
    torch.nn.init.zeros_(model.encoder.head.weight)
    torch.nn.init.zeros_(model.encoder.head.bias)
    labels = torch.arange(7.0).reshape(7, 1)
    losses = model.losses(torch.rand(7, 2, generator=seeded(0)), factors=labels)
    assert losses.total.item() == pytest.approx(math.log(7))
    assert losses.terms["error"].item() == pytest.approx(6 / 7)


def test_the_loss_is_the_negative_log_of_the_right_share():
    model = zs.models.build("classifier", shape=(2,), latents=3, factor=1).double()
    x = torch.rand(5, 2, generator=seeded(0), dtype=torch.float64)
    factors = torch.tensor([[9, 0], [9, 1], [9, 2], [9, 0], [9, 1]]).double()
    shares = model.encode(x).mean.exp()
    shares = shares / shares.sum(1, keepdim=True)
    expected = -shares[torch.arange(5), factors[:, 1].long()].log().mean()
    assert model.losses(x, factors=factors).total.item() == pytest.approx(expected.item())


def test_it_learns_a_label_that_can_be_learned_and_not_one_that_cannot():
    data = blobs()
    model = zs.models.build_for("classifier", data, latents=3, factor=1, hidden=(16,))
    run = zs.train(model, data, steps=200, rate=1e-2)
    assert run.history[-1]["error"] == 0
    assert model.features(torch.from_numpy(data.images)).shape == (300, 16)
    chance = zs.train(
        zs.models.build("classifier", shape=(2,), latents=5, hidden=(16,)), data, steps=200,
        rate=1e-3,
    )  # fmt: skip
    assert chance.history[-1]["error"] > 0.5


def test_it_learns_the_shape_of_sprites_with_layers_of_any_size():
    """As an extractor of features: the last hidden layer has the size that was chosen."""
    grid = {"shape": ["square", "ellipse"], "scale": [5], "orientation": [0]}
    data = zs.data.load("sprites", resolution=16, **grid)
    assert data.factor_names[0] == "shape"
    model = zs.models.build_for(
        "classifier", data, latents=2, factor=0, backbone="mlp", hidden=(48, 12)
    )
    run = zs.train(model, data, steps=200, rate=3e-3)
    assert run.history[-1]["error"] < 0.1
    assert model.features(torch.zeros(3, 1, 16, 16)).shape == (3, 12)
    assert model.recipe["options"]["hidden"] == [48, 12]


def test_its_trunk_is_that_of_an_autoencoder():
    options = {"shape": (1, 16, 16), "latents": 4, "seed": 3, "backbone": "locatello"}
    classifier, vae = (zs.models.build(name, **options) for name in ("classifier", "vae"))
    for one, two in zip(
        classifier.encoder.trunk.parameters(), vae.encoder.trunk.parameters(), strict=True
    ):
        assert torch.equal(one, two)
    assert classifier.decoder is None


def test_what_it_cannot_learn_is_refused():
    data = blobs()

    def train(**options):
        model = zs.models.build("classifier", shape=(2,), **{"latents": 3, **options})
        return zs.train(model, data, steps=1)

    with pytest.raises(ConfigError, match=r"labels go up to 4.*3 logits.*latents=5"):
        train()
    with pytest.raises(ConfigError, match=r"factor=2, but the data have 2 factors"):
        train(factor=2)
    model = zs.models.build("classifier", shape=(2,), latents=3)
    with pytest.raises(zs.ZscopeError, match=r"learns from factors or labels.*has none"):
        zs.train(model, data.images, steps=1)
    data = zs.data.from_arrays(data.images, data.factors + 0.5)
    with pytest.raises(ConfigError, match="classes are numbered 0, 1, 2"):
        train()
    with pytest.raises(InterfaceError, match="no labels were given"):
        zs.models.build("classifier", shape=(2,), latents=3).losses(torch.zeros(2, 2))
    with pytest.raises(InterfaceError, match="classifier has an encoder only"):
        zs.models.build("classifier", shape=(2,), latents=3).decode(torch.zeros(2, 3))
    with pytest.raises(ConfigError, match=r"no option 'likelihood'"):
        zs.models.build("classifier", shape=(2,), latents=3, likelihood="mse")
