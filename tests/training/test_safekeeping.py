"""A run has one writer, notices damage, and survives a full disk."""

import errno
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import zscope as zs
from zscope import documents, files, store
from zscope.errors import RunError

ROWS = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
SETTINGS = {"steps": 50, "batch": 16, "log_every": 5, "checkpoint_every": 10}


def build(seed=0):
    return zs.models.build("vae", shape=(3,), latents=2, hidden=(8,), seed=seed)


def train(out, **settings):
    return zs.train(build(), ROWS, out=out, **(SETTINGS | settings))


class Killed(BaseException):
    """The process ends here, and no handler runs."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped."""
    return train(tmp_path_factory.mktemp("whole") / "run").path


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The same, killed after step 34: its checkpoints are of steps 20 and 30."""
    path = tmp_path_factory.mktemp("killed") / "run"

    def stop_at_35(variances):
        if store.open_run(path).step == 30 and stop_at_35.rows.pop() == 35:
            raise Killed
        return {}

    stop_at_35.rows = [35, 30]
    with pytest.raises(Killed):
        train(path, monitor=stop_at_35)
    assert [step for step, _ in store.checkpoints(path)] == [20, 30]
    return path


def resumed_like(path, whole):
    """Whether a run, once resumed, is byte for byte the one that was never stopped."""
    train(path, resume=True, monitor=lambda variances: {})
    same = [
        (path / name).read_bytes() == (whole / name).read_bytes() for name in ("model.safetensors",)
    ]
    steps = [row["loss"] for row in store.open_run(path).history]
    return all(same) and steps == [row["loss"] for row in store.open_run(whole).history]


@pytest.fixture
def run(killed, tmp_path):
    return shutil.copytree(killed, tmp_path / "run")


def flip(file, place, bit=0):
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)


def test_a_second_writer_is_refused_and_the_first_goes_on(tmp_path, whole):
    refusals = []

    def second(variances):
        for resume in (False, True):
            with pytest.raises(RunError) as refused:
                train(tmp_path / "run", resume=resume)
            refusals.append(str(refused.value))
        return {}

    train(tmp_path / "run", monitor=second)
    assert len(refusals) == 22
    assert all(f"is being written by process {os.getpid()} on" in text for text in refusals)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (
        whole / "model.safetensors"
    ).read_bytes()
    assert not (tmp_path / "run" / ".lock").exists()


def test_members_of_an_ensemble_a_search_and_a_perturbation_are_locked(tmp_path):
    cases = {
        "seed-1": lambda: zs.train_ensemble(build, ROWS, seeds=[0, 1], steps=2, out=tmp_path),
        "fondue/seed-0": lambda: zs.fondue(ROWS, seeds=1, steps=2, out=tmp_path / "fondue"),
        "change": lambda: zs.perturb(
            zs.data.load("square-linear"), epsilon=0.1, out=tmp_path / "change", steps=2
        ),
    }
    for folder, start in cases.items():
        with (
            files.lock(tmp_path / folder, "another"),
            pytest.raises(RunError, match=f"{folder} is being written by"),
        ):
            start()


def test_every_flipped_bit_in_weights_is_noticed(whole, tmp_path):
    file = tmp_path / "model.safetensors"
    intact = (whole / "model.safetensors").read_bytes()
    wanted, _ = store.read_tensors(whole / "model.safetensors")
    noticed = 0
    for place in range(0, len(intact), 7):
        file.write_bytes(intact)
        flip(file, place, place % 8)
        try:
            tensors, _ = store.read_tensors(file)
        except RunError:
            noticed += 1
        else:  # a bit that says nothing, such as one of the name of the checksum
            assert tensors.keys() == wanted.keys()
            assert all(torch.equal(tensors[name], wanted[name]) for name in wanted)
    assert noticed > 0.95 * len(range(0, len(intact), 7))


def test_weights_of_earlier_versions_have_no_checksum_and_are_read(tmp_path):
    from safetensors.torch import save

    old = save({"w": torch.ones(2)}, {"zscope": json.dumps({"format": 1, "step": 3})})
    (tmp_path / "old.safetensors").write_bytes(old)
    tensors, about = store.read_tensors(tmp_path / "old.safetensors")
    assert tensors["w"].tolist() == [1, 1]
    assert about["step"] == 3


@pytest.mark.parametrize("count", [0, 1, 2])
def test_damaged_checkpoints_are_passed_over(run, whole, capsys, count):
    newest = [file for _, file in reversed(store.checkpoints(run))]
    for file in newest[:count]:
        flip(file, -5)
    assert resumed_like(run, whole)
    said = capsys.readouterr().err
    assert said.count("does not agree with its own checksum") == count
    assert all(file.name in said for file in newest[:count])


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"step": 10', '"step": "x"'),
        lambda text: text.replace('"loss": ', '"loss": 1', 1),
        lambda text: text.replace("}\n{", "}\n", 1),
        lambda text: text.split("\n", 1)[1],
        lambda text: "",
        lambda text: "[" * 100_000 + "\n" + text,
    ],
    ids=["no step", "another number", "a bad line", "a line less", "empty", "nested"],
)
def test_a_damaged_history_is_neither_cut_nor_rewritten(run, damage):
    file = run / "history.jsonl"
    damaged = damage(file.read_text())
    assert damaged != file.read_text()
    file.write_text(damaged)
    with pytest.raises(RunError, match=r"history.jsonl is damaged: .*Restore it from a copy"):
        train(run, resume=True)
    assert file.read_text() == damaged
    with pytest.raises(RunError, match=r"history.jsonl is damaged"):
        store.open_run(run).history  # noqa: B018


def test_only_a_torn_last_line_of_a_history_is_forgiven(run, whole):
    with (run / "history.jsonl").open("a") as file:
        file.write('{"format": 1, "step": 35, "lo')
    assert [row["step"] for row in store.open_run(run).history] == [0, 5, 10, 15, 20, 25, 30]
    assert resumed_like(run, whole)


def test_a_history_without_its_checksum_is_still_read_line_by_line(run):
    content = json.loads((run / "run.json").read_text())
    del content["history"], content["sha256"]  # as written by an earlier version
    (run / "run.json").write_text(json.dumps(content))
    assert len(store.open_run(run).history) == 7
    text = (run / "history.jsonl").read_text()
    (run / "history.jsonl").write_text(text.replace('"step": 10', '"stop": 10'))
    with pytest.raises(RunError, match="has no step"):
        store.open_run(run).history  # noqa: B018


def test_a_flipped_bit_in_run_json_is_noticed(run):
    intact = (run / "run.json").read_bytes()
    before = store.open_run(run)
    for place in range(0, len(intact), 11):
        (run / "run.json").write_bytes(intact)
        flip(run / "run.json", place, place % 7)
        try:
            now = store.open_run(run)
        except RunError:
            continue
        assert now.config == before.config
        assert (now.step, now.status) == (before.step, before.status)


def edit(run, **changes):
    content = json.loads((run / "run.json").read_text())
    del content["sha256"]
    (run / "run.json").write_text(json.dumps({**content, **changes}))


FOREIGN = {
    "no checkpoint": lambda run: (run / "checkpoints" / "step-abc.safetensors").write_text("x"),
    "a folder": lambda run: (run / "checkpoints" / "step-x.safetensors").mkdir(),
    "another step": lambda run: (run / "checkpoints" / "step-².safetensors").write_text("x"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_files_that_are_no_checkpoints_are_left_alone(run, whole, name):
    FOREIGN[name](run)
    assert resumed_like(run, whole)


HOSTILE = {
    "metadata that is no JSON": lambda run: metadata(run, "not JSON"),
    "metadata that is a list": lambda run: metadata(run, "[1]"),
    "nested metadata": lambda run: metadata(run, "[" * 100_000),
    "nested run.json": lambda run: (run / "run.json").write_text("[" * 100_000),
    "environment": lambda run: edit(run, environment=[1]),
    "history as a list": lambda run: edit(run, history=[1]),
    "history of negative length": lambda run: edit(run, history={"bytes": -4, "sha256": ""}),
    "model as a list": lambda run: edit(run, config={"steps": 50, "model": [1]}),
    "model without a name": lambda run: edit(run, config={"steps": 50, "model": {"latents": 2}}),
    "scaling": lambda run: edit(
        run, config={**json.loads((run / "run.json").read_text())["config"], "scaling": {"x": 1}}
    ),
}


def metadata(run, text):
    from safetensors.torch import save

    for _, file in store.checkpoints(run):
        file.write_bytes(save({"w": torch.ones(2)}, {"zscope": text}))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_of_a_run_end_in_a_clear_error(run, name):
    checkpoint = store.checkpoints(run)[-1][1]
    HOSTILE[name](run)

    def read():
        zs.load(checkpoint)
        return store.open_run(run).history

    with pytest.raises(zs.ZscopeError) as refused:
        read()
    assert str(run) in str(refused.value)


def test_a_pipe_in_a_run_is_refused_at_once(run):
    for name in ("history.jsonl", "run.json"):
        (run / name).unlink()
        os.mkfifo(run / name)
        with pytest.raises(RunError):
            train(run, resume=True)


@pytest.mark.parametrize("row", [0, 1, 4, 9])
def test_a_disk_that_fills_up_stops_the_run_which_then_resumes(tmp_path, whole, monkeypatch, row):
    class Full(io.FileIO):
        rows = 0

        def write(self, line):
            Full.rows += 1
            if Full.rows <= row:
                return super().write(line)
            super().write(line[:9])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files.io, "FileIO", Full)
        with pytest.raises(RunError, match="No space left.*disk is full.*[Rr]esume.*resume=True"):
            train(tmp_path / "run")
    assert len(store.open_run(tmp_path / "run").history) == row
    assert resumed_like(tmp_path / "run", whole)


def test_left_overs_are_swept_at_the_next_start(run, whole, tmp_path):
    for folder in (run, run / "checkpoints", run / "assays"):
        folder.mkdir(exist_ok=True)
        (folder / f".part-{'0' * 16}.json").write_text("half")
    assert resumed_like(run, whole)
    assert not list(run.rglob(".part-*"))
    # Killed between the last write and the deletion of checkpoints.
    shutil.copytree(run, tmp_path / "ended")
    store.write_checkpoint(tmp_path / "ended", 40, build(), {})
    train(tmp_path / "ended", resume=True)
    assert store.checkpoints(tmp_path / "ended") == []


def test_snapshots_at_regular_steps_are_kept(tmp_path):
    run = train(tmp_path / "run", snapshot_every=15, snapshots=[7])
    assert [step for step, _ in store.checkpoints(run.path)] == [7, 15, 30, 45]
    assert Path(run.path, "model.safetensors").is_file()


def test_results_have_checksums(whole, tmp_path):
    run = store.open_run(shutil.copytree(whole, tmp_path / "run"))
    codes = np.random.default_rng(0).normal(size=(200, 40))
    large = zs.assays.cka(codes, codes)
    object.__setattr__(large, "flags", [])
    run.save_result("cka", large)
    result = zs.assays.response_matrix(zs.record(zs.load(run.path), ROWS))
    run.save_result("response-matrix", result)
    assert set(run.results()) == {"cka", "response-matrix"}
    file = run.path / "assays" / "cka.json"
    intact = file.read_text()
    assert '"score": ' in intact
    file.write_text(intact.replace('"score": ', '"score": 1', 1))
    with pytest.raises(RunError, match="does not agree with its own checksum"):
        run.results()
    file.write_text(intact)
    content = json.loads(intact)
    content["arrays"] = "0" * 64
    del content["sha256"]
    file.write_text(json.dumps(content))
    with pytest.raises(RunError, match="cka.npz is damaged: it is missing"):
        run.results()
    np.savez(file.with_suffix(".npz"), x=np.zeros(3))
    with pytest.raises(RunError, match="cka.npz is damaged: its checksum is another"):
        run.results()
    del content["arrays"]
    file.write_text(json.dumps(content))
    file.with_suffix(".npz").write_bytes(b"PK\x03\x04 not a zip file")
    with pytest.raises(RunError, match="cka.npz is damaged: BadZipFile"):
        run.results()


@pytest.fixture
def measured(whole, tmp_path, monkeypatch):
    """A run with the results of two assays, which have arrays of their own."""
    monkeypatch.setattr(store, "LARGE", 3)
    run = store.open_run(shutil.copytree(whole, tmp_path / "run"))
    for name in ("response-matrix", "variable-types"):
        run.save_result(name, zs.assay(run.path, ROWS, names=[name], fresh=True).results[name])
    return run


@pytest.mark.parametrize("writes", [0, 1])
def test_a_result_that_was_being_replaced_is_whole_or_absent(measured, monkeypatch, writes):
    write, count = files.write_whole, []

    def killed(path, content):
        if len(count) == writes:
            raise Killed
        count.append(path)
        write(path, content)

    recording = zs.record(zs.load(measured.path), ROWS[:40])
    for module in (store, documents):
        monkeypatch.setattr(module, "write_whole", killed)
    with pytest.raises(Killed):
        measured.save_result("response-matrix", zs.assays.response_matrix(recording))
    assert list(measured.results()) == ["variable-types"]


def test_partial_files_beside_results_are_not_read(measured):
    (measured.path / "assays" / f".part-{'0' * 16}.json").write_text("{")
    assert set(measured.results()) == {"response-matrix", "variable-types"}


def test_a_result_under_the_name_of_another_is_noticed(measured):
    one, other = (measured.path / "assays" / f"{name}.json" for name in measured.results())
    one.replace(other)
    with pytest.raises(
        RunError, match=rf"{other.name} is damaged: it has no result of {other.stem}"
    ):
        measured.results()


def test_a_checkpoint_under_the_name_of_another_is_noticed(run):
    (_, early), (_, late) = store.checkpoints(run)
    early.replace(late)
    with pytest.raises(RunError, match="step-000000030.* it is the checkpoint of step 20"):
        zs.load(late)


def test_a_pipe_in_place_of_a_stored_result_does_not_block(measured):
    kept = measured.path / "assays" / "response-matrix.kept.npz"
    kept.unlink()
    os.mkfifo(kept)
    report = zs.assay(measured.path, ROWS, names=["response-matrix"])
    assert "response-matrix" in report.results
    assert kept.is_file()


def test_a_result_that_names_no_array_is_returned_as_it_is(measured):
    file = measured.path / "assays" / "response-matrix.json"
    content = json.loads(file.read_text())
    del content["sha256"]
    content["result"] = {"array": {}}
    file.write_text(json.dumps(content))
    assert measured.results()["response-matrix"] == {"array": {}}


def test_a_folder_in_place_of_run_json_is_named(run):
    (run / "run.json").unlink()
    (run / "run.json").mkdir()
    with pytest.raises(RunError, match="contains no run.json"):
        zs.assay(run)
