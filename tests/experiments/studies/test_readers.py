"""Classifiers that read pictures for a study."""

import pytest
import torch

import zscope as zs
from zscope.experiments.studies.shared.readers import Readers
from zscope.experiments.studies.trained import TrainedRuns


def train(folder, seed):
    data = zs.data.load("digits")
    model = zs.models.build("classifier", shape=data.shape, latents=10, hidden=(16, 8), seed=seed)
    zs.train(model, data, steps=5, batch=32, seed=seed, out=folder, progress=False)


def readers_of(folder, *names):
    rows = [{"run": name, "group": "classifiers", "seed": 0, "data": "digits"} for name in names]
    return Readers(TrainedRuns(rows, folder, scale="small").select("classifiers"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("first", "second")):
        train(place / name, seed)
    return place


def test_every_classifier_counts_the_same(folder):
    rows = readers_of(folder, "first", "second").features_of_held_out()
    parts = rows.split(rows.shape[1] // 2, 1)
    for part in parts:
        assert float(part.var(0).sum()) == pytest.approx(1)
    assert not torch.allclose(*parts)


def test_features_of_held_out_pictures_are_those_of_the_same_pictures_given(folder):
    readers = readers_of(folder, "first")
    pictures = readers.classifiers[0].recording().observations
    assert torch.equal(readers.features_of_held_out(), readers.features(pictures))


def test_features_are_found_again_if_a_run_was_trained_anew(folder, tmp_path):
    train(tmp_path / "first", 0)
    before = readers_of(tmp_path, "first").features_of_held_out()
    assert torch.equal(before, readers_of(folder, "first").features_of_held_out())
    for file in (tmp_path / "first").iterdir():
        file.unlink()
    train(tmp_path / "first", 3)
    assert not torch.allclose(before, readers_of(tmp_path, "first").features_of_held_out())
