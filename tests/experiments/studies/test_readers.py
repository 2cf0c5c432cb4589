"""Classifiers that read pictures for a study."""

import pytest
import torch

import zscope as zs
from zscope.experiments.studies.shared.readers import Readers
from zscope.experiments.studies.trained import TrainedRuns

SPLIT = (0.8, 0.2)


def train(folder, seed, split=SPLIT):
    data = zs.data.load("digits").split(split, seed=0)[0]
    model = zs.models.build("classifier", shape=data.shape, latents=10, hidden=(16, 8), seed=seed)
    zs.train(model, data, steps=5, batch=32, seed=seed, out=folder, progress=False)


def runs_of(folder, *names):
    rows = [{"run": name, "group": "classifiers", "seed": 0, "data": "digits"} for name in names]
    return TrainedRuns(rows, folder, scale="small").select("classifiers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("first", "second")):
        train(place / name, seed)
    train(place / "other", 0, (0.6, 0.4))
    return place


def test_every_classifier_counts_the_same(folder):
    runs = runs_of(folder, "first", "second")
    rows = Readers(runs).features_of_held_out(runs[0])
    parts = rows.split(rows.shape[1] // 2, 1)
    for part in parts:
        assert float(part.var(0).sum()) == pytest.approx(1)
    assert not torch.allclose(*parts)


@pytest.mark.parametrize("name", ["second", "other"])  # the same held-out pictures, and others
def test_features_of_held_out_pictures_are_those_of_the_pictures_of_the_run(folder, name):
    classifier, run = runs_of(folder, "first", name)
    readers = Readers([classifier])
    rows = readers.features_of_held_out(run)
    assert torch.equal(rows, readers.features(run.recording().observations))
    assert len(rows) == len(run.data)


def test_features_are_found_again_if_a_run_was_trained_anew(folder, tmp_path):
    train(tmp_path / "first", 0)
    (old,) = runs_of(tmp_path, "first")
    before = Readers([old]).features_of_held_out(old)
    (same,) = runs_of(folder, "first")
    assert torch.equal(before, Readers([same]).features_of_held_out(same))
    for file in (tmp_path / "first").iterdir():
        file.unlink()
    train(tmp_path / "first", 3)
    (new,) = runs_of(tmp_path, "first")
    assert not torch.allclose(before, Readers([new]).features_of_held_out(new))
