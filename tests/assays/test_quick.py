"""A first look: a quarter of the usual passes, of vectors and of maps."""

import json

import pytest
import torch
import torch.nn.functional as F
from map_worlds import Counting, power_law

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.assays.run import passes
from zscope.cli import main
from zscope.errors import ConfigError
from zscope.recording import base_count

X = torch.randn(3000, 6, generator=torch.Generator().manual_seed(0))
MODEL = zs.wrap(lambda x: x[:, :4], lambda z: torch.cat([z, z[:, :2]], 1), latents=4)


def test_a_quick_recording_takes_a_quarter_of_the_samples():
    usual, quick = (zs.record(MODEL, X, quick=each) for each in (False, True))
    assert zs.assays.response_matrix(usual).samples == 1024
    assert zs.assays.response_matrix(quick).samples == 256
    assert zs.assays.response_matrix(quick, samples=500).samples == 500
    for name in ("response-matrix", "holes", "structure-score", "interventional-consistency"):
        cost = [passes(CATALOGUE[name], each, {}) for each in (usual, quick)]
        assert cost[1] <= cost[0] / 4 + 600, name  # holes look at 512 codes whatever is asked


def test_codes_are_measured_as_usual():
    usual, quick = (zs.record(MODEL, X, quick=each) for each in (False, True))
    results = [zs.assays.total_correlation(each) for each in (usual, quick)]
    assert results[0].score == results[1].score
    assert usual.fingerprint != quick.fingerprint


@pytest.mark.parametrize("names", ["diffusion", "response-matrix"])
def test_of_maps_a_quarter_of_the_pictures_is_used(names):
    x = power_law(300, 32, 2.0)
    counts = []
    for quick in (False, True):
        counting = Counting(
            lambda x: F.avg_pool2d(x, 4), lambda z: F.interpolate(z, scale_factor=4)
        )
        recording = zs.record(counting.model, x, quick=quick)
        start = counting.decodings + counting.encodings
        zs.assay(recording, names=names)
        counts.append(counting.decodings + counting.encodings - start)
    assert base_count(recording) == 32
    assert counts[1] <= 0.3 * counts[0]


def test_nothing_is_stored_with_the_run(tmp_path, monkeypatch, capsys):
    data = zs.data.load("helix", samples=200)
    model = zs.models.build_for("beta-vae", data, latents=3)
    run = zs.train(model, data, steps=2, out=tmp_path / "run", progress=False)
    words = ["zscope", "assay", str(run.path), "response-matrix", "--quick", "--json"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    printed = json.loads(capsys.readouterr().out)
    assert printed["about"]["command"].endswith("--quick")
    assert not (run.path / "scores.json").exists()


def test_a_recording_decides_for_itself():
    with pytest.raises(ConfigError, match="got a recording and quick"):
        zs.assay(zs.record(MODEL, X), quick=True)
