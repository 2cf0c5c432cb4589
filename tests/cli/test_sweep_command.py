"""zscope sweep as a user meets it: what it prints, and what it refuses in one line."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import zscope as zs
from zscope import files, store
from zscope.cli import main
from zscope.experiments.sweeps import prepare, status

PLAN = """
[train]
steps = 6
latents = 2
batch = 16
rate = 1e-3
options.hidden = [4]

[grid]
model = ["beta-vae"]
data = ["helix"]
seed = [0, 1]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with plan.toml and its sweep, out, all of which is done."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "plan.toml").write_text(PLAN)
    zs.sweep(folder / "plan.toml", folder / "out", jobs=1, ensemble=False, progress=False)
    return folder


@pytest.fixture
def trained(finished, tmp_path):
    """A copy that a test may change."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "out"


@pytest.fixture
def zscope(monkeypatch, capsys, tmp_path):
    """Run a command in this process: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zscope", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        output = capsys.readouterr()
        return end.value.code or 0, output.out, output.err

    return run


@pytest.fixture
def sweep(zscope):
    """`zscope sweep run plan.toml --out out`, in this process."""
    return lambda *words: zscope(
        "sweep", "run", "plan.toml", "--out", "out", "--jobs", 1, "--no-ensemble", "--quiet", *words
    )


def refused(ended, *parts):
    """One line on stderr that has these parts, and exit code 1."""
    code, out, err = ended
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1, err
    assert "Traceback" not in err
    for part in parts:
        assert part in err


def names():
    return [run.name for run in prepare("plan.toml", "out", ensemble=False)[0].runs]


def test_plan_run_and_status_for_people_and_programs(zscope, tmp_path):
    before = sorted(tmp_path.iterdir())
    code, out, err = zscope("sweep", "plan", "plan.toml", "--out", "out", "--no-timing")
    assert (code, err) == (0, "")
    assert "2 runs" in out
    words = ("sweep", "plan", "plan.toml", "--out", "out", "--no-timing", "--json")
    answer = json.loads(zscope(*words)[1])
    assert (answer["runs"], answer["done"]) == (2, 0)
    assert sorted(tmp_path.iterdir()) == before  # nothing is written
    code, out, err = zscope("sweep", "run", "plan.toml", "--out", "out", "--jobs", 1)
    assert code == 0, err
    assert out.splitlines() == ["2 of 2 runs done.", "Table: zscope table out"]
    assert zscope("sweep", "status", "out")[1] == "2 of 2 runs done\n"
    words = ("sweep", "run", "plan.toml", "--out", "out", "--jobs", 1, "--json", "--quiet")
    for answer in (zscope(*words), zscope("sweep", "status", "out", "--json")):
        assert answer[0] == 0
        state = json.loads(answer[1])
        assert (state["done"], state["failed"]) == (names(), {})


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("seed = ", "sede = ", "Did you mean seed"),
        ('"beta-vae"', '"beta-vea"', "Did you mean beta-vae"),
        ("hidden", "hiden", "Did you mean hidden"),
        ('"helix"', '"helix?smaples=3"', "Did you mean samples"),
        ("[0, 1]", "[1, 1]", "the same run as"),
        ("steps = 6", "steps = 6.5", "steps"),
        ("steps = 6", 'steps = "six"', "steps"),
        ("rate = 1e-3", "rate = nan", "rate"),
        ("batch = 16", "batch = [16]", "batch"),
        ("latents = 2", "latents = 0", "latents"),
        ("latents = 2", "latents = true", "latents"),
        ("[0, 1]", "[0, -1]", "seed=-1"),
        ("[0, 1]", "[0, 99999999999999999999999]", "seed"),
        ('"helix"', "1979-05-27", "data="),
        ("[grid]", "[[grid]]", "[grid]"),
        ("[grid]", "[grid]\npreset = 3", "preset"),
    ],
)
def test_a_plan_that_is_wrong_is_refused_and_nothing_is_written(
    sweep, tmp_path, before, after, message
):
    (tmp_path / "plan.toml").write_text(PLAN.replace(before, after))
    refused(sweep(), "plan.toml", message)
    assert not (tmp_path / "out").exists()


def test_workers_of_two_kinds_are_refused(zscope, tmp_path):
    words = ("sweep", "run", "plan.toml", "--out", "out")
    both = zscope(*words, "--jobs", 2, "--cluster", "slurm")
    refused(both, "--jobs 2", "--cluster slurm", "leave one of them out")
    refused(zscope(*words, "--cluster-option", "queue=gpu"), "without --cluster")
    refused(zscope(*words, "--cluster", "slrum"), "slrum")
    assert zscope(*words, "--jobs", 0)[0] == 2
    assert not (tmp_path / "out").exists()


def test_a_scheduler_that_is_not_there_is_one_line(zscope, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("zscope.experiments.cluster.TIMEOUT", 0.3)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
        ended = zscope("sweep", "run", "plan.toml", "--out", "out", "--cluster", address)
    refused(ended, "no Dask scheduler answers", address, "dask scheduler")
    assert not (tmp_path / "out").exists()


def test_files_that_are_no_plans(zscope, tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\x00")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for file, message in {
        "none.toml": "cannot be read (No such file",
        ".": "is a folder",
        "pipe.toml": "is a pipe",
        "bytes.toml": "is not TOML",
        "list.json": "contains a list",
        "deep.json": "is not JSON",
        "/dev/zero": "is a device",
        "": "",
    }.items():
        refused(zscope("sweep", "run", file, "--out", "out"), message)
    assert not (tmp_path / "out").exists()


def test_places_that_cannot_be_written(zscope, tmp_path):
    (tmp_path / "taken").write_text("mine")
    words = ("sweep", "run", "plan.toml", "--jobs", 1)
    for option in (("--out", "taken"), ("--out", "/proc/none"), ("--out", "a" * 300),
                   ("--out", "out", "--runs", "taken")):  # fmt: skip
        refused(zscope(*words, *option), option[-1])
    assert (tmp_path / "taken").read_text() == "mine"
    assert not (tmp_path / "out").exists()
    refused(zscope("sweep", "status", "taken"), "taken")
    refused(zscope("sweep", "status", "none"), "no sweep.json")


def edit(text, before, after):
    assert before in text
    return text.replace(before, after)


@pytest.mark.parametrize(
    ("damage", "message", "remedy"),
    [
        (lambda text: text[: len(text) // 2], "out/sweep.json", "deleted"),
        (lambda text: "[]", "out/sweep.json", "deleted"),
        (lambda text: "\x00", "out/sweep.json", "deleted"),
        (lambda text: edit(text, '"latents"', '"latent"'), "its own checksum", "sha256"),
    ],
)
def test_a_damaged_sweep_json_is_said_and_costs_nothing(
    trained, sweep, zscope, damage, message, remedy
):
    file = trained / "sweep.json"
    file.write_text(damage(file.read_text()))
    for ended in (zscope("sweep", "status", "out"), sweep()):
        refused(ended, message, remedy)
    file.unlink()
    assert sweep()[0] == 0
    assert zscope("sweep", "status", "out")[1] == "2 of 2 runs done\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"runs_folder":"runs"', '"runs_folder":7'),
        ('"steps":', '"stops":'),
        ('"groups":[]', '"groups":7'),
        ('"groups":[]', '"groups":[["nobody",7]]'),
        ('"runs":[', '"runs":[7,'),
        ('"runs":[', '"runs":[{"name":"../../x","fields":{"steps":1},"shape":1,"snapshots":3},'),
        ('"assay":null', '"assay":{"names":7}'),
        ('"assay":null', '"assay":7'),
        ('"snapshots":[]', '"snapshots":["a"]'),
    ],
)
def test_a_sweep_json_edited_by_hand_is_refused_or_written_anew(
    trained, sweep, zscope, before, after
):
    file = trained / "sweep.json"
    content = json.loads(file.read_text())
    content.pop("sha256")
    file.write_text(edit(json.dumps(content, separators=(",", ":")), before, after))
    code, out, err = zscope("sweep", "status", "out")
    if code:
        refused((code, out, err), "sweep.json")
    code, out, err = sweep()
    if code:
        refused((code, out, err), "sweep.json")
    else:
        assert zscope("sweep", "status", "out")[1] == "2 of 2 runs done\n"


def test_a_sweep_json_that_lists_other_things_is_written_anew(trained, sweep, zscope):
    content = store.read_json(trained / "sweep.json")
    content["runs"] = content["runs"][:1]
    content["added"] = "by another version"
    store.write_json(trained / "sweep.json", content)
    assert zscope("sweep", "status", "out")[1] == "1 of 1 runs done\n"
    assert sweep()[0] == 0
    assert zscope("sweep", "status", "out")[1] == "2 of 2 runs done\n"


def test_something_else_in_the_folder_of_a_run_costs_only_that_run(trained, sweep):
    first, second = names()
    place = trained / "runs" / first
    shutil.rmtree(place)
    place.mkdir()
    (place / "thesis.tex").write_text("mine")
    code, out, err = sweep()
    assert (code, err) == (1, "")
    assert f"failed: {first}" in out
    assert "is not empty and contains no run.json" in out
    assert (place / "thesis.tex").read_text() == "mine"
    state = status("out")
    assert (state.done, [*state.failed]) == ([second], [first])
    (place / "thesis.tex").unlink()
    assert sweep()[0] == 1  # it is left alone until it is asked for
    assert sweep("--retry-failed")[0] == 0
    assert status("out").done == [first, second]


@pytest.mark.parametrize("damage", ["cut", "other", "file", "weights"])
def test_a_damaged_run_is_said_and_costs_only_itself(trained, sweep, damage):
    first, second = names()
    place = Path("out/runs") / first
    if damage == "cut":
        file = place / "run.json"
        file.write_bytes(file.read_bytes()[:40])
    elif damage == "other":  # a run of another seed under this name
        shutil.rmtree(place)
        shutil.copytree(place.with_name(second), place)
    elif damage == "file":
        shutil.rmtree(place)
        place.write_text("mine")
    else:
        (place / "model.safetensors").unlink()
    before = content_of(place)
    code, out, err = sweep()
    assert (code, err) == (1, ""), out
    assert f"failed: {first}: " in out
    if damage == "cut":
        advice = f"delete the folder {place.absolute()} and start the same sweep with --retry"
        assert advice in out
    assert content_of(place) == before  # nothing of it was overwritten
    assert status("out").done == [second]


def content_of(place):
    """What a file or the files of a folder contain."""
    paths = [place, *place.rglob("*")]
    return {path: path.read_bytes() for path in sorted(paths) if path.is_file()}


def test_a_full_disk_in_the_middle_is_said_and_the_sweep_goes_on_later(sweep):
    first, second = names()
    real = files._new_partial

    def full(path):
        if first in str(path) and path.name == "model.safetensors":
            raise OSError(28, "No space left on device")
        return real(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_new_partial", full)
        code, out, err = sweep()
    assert (code, err) == (1, "")
    assert f"failed: {first}: " in out
    assert "The disk is full" in out
    assert "start the same sweep again with --retry-failed" in out
    assert "resume=True" not in out
    assert "zscope train" not in out
    assert status("out").done == [second]
    assert not list(Path("out").rglob(".part-*")) + list(Path("out").rglob(".lock"))
    assert sweep("--retry-failed")[0] == 0
    assert status("out").done == [first, second]


def test_a_disk_so_full_that_no_failure_can_be_recorded(sweep):
    real = files._new_partial

    def full(path):
        if path.name != "sweep.json":
            raise OSError(28, "No space left on device")
        return real(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_new_partial", full)
        code, out, err = sweep()
    assert code == 1
    assert "The disk is full" in out + err
    assert "Traceback" not in out + err
    assert len(err.splitlines()) <= 1
    assert sweep()[0] == 0


@pytest.mark.parametrize(
    ("number", "code", "ensemble"),
    [(signal.SIGINT, 130, "--no-ensemble"), (signal.SIGTERM, 143, "--ensemble")],
)
def test_a_sweep_that_is_stopped_saves_its_runs_and_says_how_to_go_on(
    zscope, tmp_path, number, code, ensemble
):
    long = "steps = 1000000\ncheckpoint_every = 20"
    (tmp_path / "plan.toml").write_text(PLAN.replace("steps = 6", long))
    words = ("sweep", "run", "plan.toml", "--out", "out", "--jobs", 1, "--quiet", ensemble)

    def stop():
        """As soon as a run is in training, when the signal is expected."""
        while not any(store.checkpoints(path) for path in Path("out").glob("runs/*")):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    stopper = threading.Thread(target=stop, daemon=True)
    # A shell starts jobs in the background with SIGINT ignored, and so would these tests be.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stopper.start()
        ended, out, err = zscope(*words)
        stopper.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended, out) == (code, "")
    assert err.startswith("sweep: stopped with 0 of 2 runs done")
    assert err.endswith("start the same sweep again to go on.\n")
    assert len(err.splitlines()) == 1
    begun = [path for path in Path("out/runs").iterdir() if store.is_run(path)]
    assert len(begun) == (1 if ensemble == "--no-ensemble" else 2)
    for path in begun:
        newest = max(step for step, _ in store.checkpoints(path))
        assert newest == store.open_run(path).step > 0
    assert not list(Path("out").rglob(".lock"))
    assert len(status("out").waiting) == 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
@pytest.mark.slow
@pytest.mark.parametrize("place", ["read-only", "small"])
def test_a_disk_that_is_read_only_or_full(tmp_path, place):
    """In a view of files of its own: a disk of 24 kB, or one that cannot be written."""
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "disk").mkdir()
    options = "ro" if place == "read-only" else "size=24k"
    command = f"mount -t tmpfs -o {options} none disk && exec {sys.executable} -c "
    command += "'from zscope.cli import main; main()' sweep run plan.toml --out disk/out"
    program = [*("unshare", "-m", "sh", "-c"), f"{command} --jobs 1 --quiet"]
    if subprocess.run(
        [*program[:-1], "mount -t tmpfs none disk"], cwd=tmp_path, check=False
    ).returncode:
        pytest.skip("a mount of one's own cannot be made here")
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode == 1, printed
    assert "Traceback" not in printed
    assert ("may not write there" if place == "read-only" else "disk is full") in printed
    assert len(done.stderr.splitlines()) <= 1
