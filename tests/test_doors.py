"""The report, the comparison and the explorer say the same about the same model."""

from pathlib import Path

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.explorer.session import Session
from zscope.explorer.views.compare import Similarity, similarity


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def vae(seed: int = 0) -> zs.Trainable:
    return zs.models.build("vae", shape=(5,), latents=3, hidden=(8,), seed=seed)


class Mine(zs.Autoencoder):
    latents = 2

    def encode(self, x, auxiliary=None):
        return zs.Posterior(x[:, :2])

    def decode(self, z):
        return torch.cat([z, z[:, :1]], 1)


def into(x):
    return x[:, :2]


def back(z):
    return torch.cat([z, z[:, :1]], 1)


def named(model: zs.Autoencoder, name: str) -> zs.Autoencoder:
    model.name = name
    return model


@pytest.mark.parametrize(
    ("model", "features", "title"),
    [
        (vae(), 5, "vae"),
        (named(vae(), "mine, β = 4"), 5, "mine, β = 4"),
        (Mine(), 3, "Mine"),
        (zs.wrap(into, back), 3, "into and back"),
    ],
)
def test_a_model_has_one_name(model, features, title):
    recording = zs.record(model, normal(50, features))
    assert f"model       {title}" in repr(recording).splitlines()
    report = zs.assay(recording, names=["effective-rank"])
    assert (report.title, report.about["model"]["name"]) == (title, title)
    session = Session(model, normal(50, features), name="some")
    assert session.to_dict()["model"] == title
    session.close()


def test_holes_of_the_explorer_are_those_of_the_report():
    class Ring(Mine):
        """Decodes every code to the circle that the data lie on; both latents are in use."""

        prior = "normal"

        def encode(self, x, auxiliary=None):
            return zs.Posterior(x[:, :2], torch.full((len(x), 2), 1e-3))

        def decode(self, z):
            return back(z / z.norm(dim=1, keepdim=True).clamp_min(1e-9))

    x = Ring().decode(normal(3000, 2))
    session = Session(Ring(), x, name="ring", samples=2500, seed=3)
    result = zs.assay(Ring(), x, names=["holes"], samples=2500, seed=3).results["holes"]
    assert result.score > 0.5
    assert session.hole_reference.limit == result.limit
    assert torch.equal(session.hole_reference.reference, result.reference)
    assert session.measure("holes").score == result.score
    session.close()


def test_layers_of_the_explorer_are_compared_as_by_the_function():
    x = normal(2500, 5)
    first, second = vae(), vae(seed=1)
    session = Session(first, x, name="a", other=second, other_name="b", samples=100, seed=3)
    answer = similarity(session, Similarity(of="layers"))
    expected = zs.compare(first, second, x, seed=3, control=False).heatmap
    assert answer["samples"] == expected.samples == 2000
    assert torch.equal(answer["values"], expected.matrix.clamp(min=0))
    session.close()


def test_latents_of_pure_noise_are_not_similar_in_the_explorer():
    class Noise(Mine):
        def encode(self, x, auxiliary=None):
            return zs.Posterior(0 * x[:, :2], torch.ones(len(x), 2))

    session = Session(Noise(), normal(2000, 3), name="a", other=Noise(), other_name="b")
    values = similarity(session, Similarity(of="latents"))["values"]
    assert float(values.max()) < 0.1  # standard error .022
    session.close()


def test_features_are_called_by_their_names(tmp_path: Path):
    names = ("height", "weight", "age")
    data = zs.data.from_arrays(normal(60, 3), feature_names=names)
    recording = zs.record(Mine(), data, samples=40)
    assert recording.feature_names == names
    assert zs.Recording.from_arrays(np.eye(3)).feature_names == ()
    report = zs.assay(recording, names=["effective-rank"])
    page = report.save(tmp_path / "report.html").read_text()
    for name in names:
        assert f'<th scope="col" class="n">{name}</th>' in page
        assert f">{name}</span>" in page
    assert "feature 0" not in page
    session = Session(Mine(), data, name="mine")
    assert session.to_dict()["observation"]["features"] == list(names)
    session.close()
