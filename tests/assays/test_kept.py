"""Results that a run keeps: reused only where a new measurement would be the same."""

import json

import numpy as np
import torch
from torch import nn
from worlds import gaussian_codes, grid, identity

import zscope as zs
from zscope import assays as a
from zscope import store
from zscope.assays import CATALOGUE, Entry
from zscope.assays.arguments import accepts_recording
from zscope.assays.run import measure
from zscope.data.dataset import from_arrays
from zscope.kept import KeptResults
from zscope.recording import Recording


class Calls:
    """Counts how often an assay is really run."""

    calls = 0


@accepts_recording
def counted(codes, *, option=0):
    Calls.calls += 1
    return a.effective_rank(codes)


def trained(folder):
    x = gaussian_codes(64, 3).float()
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(8,), seed=0)
    return zs.train(model, x, steps=2, out=folder, progress=False), x


def test_kept_results_are_taken_over_until_something_changes(tmp_path, monkeypatch):
    monkeypatch.setitem(
        CATALOGUE, "counted", Entry("?", ("codes",), name="counted", module=__name__)
    )
    run, x = trained(tmp_path)
    recording = zs.record(run.model, x)
    Calls.calls = 0

    def again(recording=recording, **options):
        kept = KeptResults(store.open_run(tmp_path), recording.model)
        fresh = Recording(recording.model, recording.posterior, seed=recording.seed)
        return measure(fresh, ["counted"], kept=kept, **options).results["counted"]

    first, second = again(), again()
    assert Calls.calls == 1
    assert second.score == first.score
    assert type(second) is type(first)
    again(options={"counted": {"option": 3}})
    again(zs.record(run.model, x, seed=1))
    with torch.no_grad():
        next(iter(run.model.parameters())).add_(1)  # only the weights
    again()
    assert Calls.calls == 4
    file = tmp_path / "assays" / "counted.kept.npz"
    file.write_bytes(file.read_bytes()[:-40])  # damaged
    again()
    assert Calls.calls == 5


def test_every_kind_of_result_comes_back_as_it_was_kept(tmp_path):
    run, _ = trained(tmp_path)
    x = gaussian_codes(64, 3).float()
    data = from_arrays(x, (x[:, :2] > 0).long().numpy())
    recording = zs.record(run.model, data)
    kept = KeptResults(store.open_run(tmp_path), recording.model)
    found = measure(recording, kept=kept)
    assert not found.failed
    taken_over = measure(
        Recording(recording.model, recording.posterior, recording.dataset, recording.rows, 0,
                  recording.factors),
        kept=kept,
    )  # fmt: skip
    for name, result in found.results.items():
        other = taken_over.results[name]
        assert repr(other) == repr(result), name
        assert other.to_dict() == result.to_dict(), name
        assert (tmp_path / "assays" / f"{name}.kept.npz").is_file(), name


def test_a_kept_file_can_name_no_class_but_results(tmp_path):
    trained(tmp_path)
    kept = KeptResults(store.open_run(tmp_path), None)
    for kind in ("os:system", "zscope.store:Run", "zscope.assays.run:choose"):
        content = {"key": {}, "result": {"object": kind, "fields": {}}}
        (tmp_path / "assays").mkdir(exist_ok=True)
        np.savez(tmp_path / "assays" / "x.kept.npz", content=np.array(json.dumps(content)))
        assert kept.get("x", {}) is None


def test_options_that_cannot_be_written_down_are_neither_shared_nor_kept(tmp_path):
    """Two networks of one architecture print alike."""
    recording = zs.record(identity(3), gaussian_codes(80, 3).float())
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        small, large = (nn.Linear(3, 3) for _ in range(2))
        large.weight.copy_(50 * small.weight)
    first, second = (a.sample_quality(recording, extractor=net) for net in (small, large))
    assert second.distances["hybrid"] > 10 * first.distances["hybrid"]


def test_a_store_that_cannot_be_written_costs_no_result_and_a_line_says_so(tmp_path):
    run, x = trained(tmp_path)
    (tmp_path / "assays").write_text("in the way")
    recording = zs.record(run.model, x)
    kept = KeptResults(store.open_run(tmp_path), recording.model)
    found = measure(recording, ["effective-rank", "total-correlation"], kept=kept)
    assert set(found.results) == {"effective-rank", "total-correlation"}
    assert not found.failed
    assert len(found.warnings) == 1
    assert "were not kept" in found.warnings[0]


def test_stated_kinds_and_other_observations_make_another_recording():
    codes, factors = gaussian_codes(40, 2).float(), grid(4, 10)
    guessed = Recording.from_arrays(codes, factors)
    stated = Recording.from_arrays(codes, factors, kinds="categorical")
    assert guessed.fingerprint != stated.fingerprint
    blind = zs.wrap(lambda x: x[:, :2], lambda z: torch.cat([z, z[:, :1]], 1), latents=2)
    x = gaussian_codes(40, 3).float()
    moved = x + torch.tensor([0, 0, 1.0])
    first, second = zs.record(blind, x), zs.record(blind, moved)
    assert torch.equal(first.codes, second.codes)
    assert first.fingerprint != second.fingerprint


def test_kept_results_of_maps_still_speak_of_channels(tmp_path):
    trained(tmp_path)
    codes = gaussian_codes(60, 12).float().reshape(60, 3, 2, 2)
    for _ in range(2):  # the second time they are read
        recording = Recording.from_arrays(codes, layout=zs.Layout(3, (2, 2)))
        kept = KeptResults(store.open_run(tmp_path), None)
        result = measure(recording, ["total-correlation"], kept=kept).results["total-correlation"]
        assert (result.unit, len(result.unit_names)) == ("channel", 3)
        assert dict(result.lines())["channels"] == "3"
        assert dict(result.lines())["rows"].startswith("240 places of 60 pictures, worth ")
