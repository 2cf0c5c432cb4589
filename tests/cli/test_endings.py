"""However a command ends, it says so in at most one line, and loses nothing.

The whole matrix, every command with every terminal and place, is tests/faults/test_commands.py.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from forked import Commands

import zscope as zs
from zscope import cli, files, kept, store
from zscope.cli import ending, outputs
from zscope.errors import ConfigError, RunError, Terminated, ZscopeError
from zscope.report import build


@pytest.fixture(scope="module")
def commands():
    started = Commands()
    yield started
    started.close()


@pytest.fixture(scope="module")
def run():
    """A run that everyone may read; `nobody` may not write it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        model = zs.models.build("beta-vae", shape=(3,), latents=2, hidden=(16,), beta=0.02, seed=0)
        zs.train(model, zs.data.load("helix"), steps=30, rate=2e-2, out=Path(folder) / "run")
        yield Path(folder) / "run"


def left_behind(folder):
    return [path for path in folder.rglob("*") if path.name.startswith((".part-", ".lock"))]


# What a command prints


@pytest.mark.parametrize("words", [("models", "list"), ("--version",), ("data", "--help")])
def test_a_full_disk_behind_stdout_is_one_line(commands, tmp_path, words):
    ended = commands.run(*words, folder=tmp_path, stdout="/dev/full")
    assert ended.code == 1
    assert ended.stderr.count("\n") == 1
    assert "could not be printed (No space left on device)" in ended.stderr


def test_a_reader_that_has_seen_enough_is_no_error(commands, tmp_path):
    ended = commands.run("models", "list", folder=tmp_path, stdout="closed pipe")
    assert (ended.code, ended.stderr) == (141, "")


@pytest.mark.parametrize("closed", [["stdout"], ["stderr"], ["stdout", "stderr"]])
def test_what_closed_streams_lose_is_said_where_it_can_be(commands, run, closed):
    words = ("assay", run, "effective-rank", "--samples", "100")
    ended = commands.run(*words, folder=run, **dict.fromkeys(closed))
    assert ended.code == ("stdout" in closed)
    assert "Traceback" not in ended.stderr
    if closed == ["stdout"]:
        assert ended.stderr.count("\n") == 1
        assert "could not be printed (standard output is closed)" in ended.stderr
    refused = commands.run("assay", "nonesuch", folder=run, **dict.fromkeys(closed))
    assert refused.code == 1
    assert refused.stderr.count("\n") == ("stderr" not in closed)


def test_messages_that_cannot_be_shown_do_not_stop_the_work(monkeypatch, capsys):
    def command():
        for step in range(3):
            print(f"step {step}", file=sys.stderr, flush=True)
        print("done")

    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert ending.run(command) == 0
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize("words", [("models", "info", "beta-vae"), ("models", "list", "--json")])
def test_what_an_ascii_terminal_cannot_show_is_replaced(commands, tmp_path, words):
    ended = commands.run(*words, folder=tmp_path, encoding="ascii")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.isascii()
    assert "VAE" in ended.stdout
    if "--json" in words:  # loses nothing
        assert any("β" in entry["title"] for entry in json.loads(ended.stdout))


def test_the_interpreter_has_nothing_to_add():
    """The true end of a process, which the other tests imitate."""
    script = "from zscope.cli import main; main()"
    for words in (["--version"], ["data", "--help"]):
        command = [sys.executable, "-c", script, *words]
        with open("/dev/full", "w") as full:
            ended = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert ended.returncode == 1
        assert ended.stderr.count("\n") == 1
    shell = ["sh", "-c", '"$@" >&- 2>&-', "sh", *command]
    assert subprocess.run(shell, check=False).returncode == 1  # what was printed is lost
    shell = ["sh", "-c", '{ "$@"; echo $? >&2; } | :', "sh", *command]
    ended = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.stderr == "141\n"


# Faults


def ended(error, capsys):
    """The exit code of a command that raises, and what it prints."""

    def command():
        raise error

    return ending.run(command), capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConfigError("who: what\nwas seen"), 1, "who: what was seen"),
        (KeyboardInterrupt("stopped; resume"), 130, "stopped; resume"),
        (Terminated("saved at step 7"), 143, "saved at step 7"),
        (Terminated(), 143, "zscope: stopped."),
        (MemoryError(), 1, "not enough memory. Is the"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), 1, "not enough mem"),
        (RecursionError("maximum recursion depth exceeded"), 1, "nested too deeply"),
        (
            PermissionError(13, "Permission denied", "a\nb"),
            1,
            "zscope: a b: Permission denied. You",
        ),
        (FileNotFoundError(2, "No such file or directory"), 1, "moved or deleted"),
        (OSError(28, "No space left on device"), 1, "The disk is full"),
    ],
)
def test_errors_are_one_line_and_a_code(capsys, error, code, words):
    seen, printed = ended(error, capsys)
    assert seen == code
    assert words in printed
    assert printed.count("\n") == 1


def test_the_traceback_of_a_fault_is_saved(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, printed = ended(ZeroDivisionError("by zero"), capsys)
    assert code == 70
    assert printed.count("\n") == 1
    assert "ZeroDivisionError: by zero. This is a fault in zscope" in printed
    (file,) = tmp_path.iterdir()
    assert str(file) in printed
    assert "Traceback (most recent call last)" in file.read_text()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nonesuch"))
    code, printed = ended(ZeroDivisionError("by zero"), capsys)
    assert "could not be saved; it ends in" in printed
    assert (code, printed.count("\n")) == (70, 1)


# Places that cannot be written


def test_results_that_cannot_be_kept_are_printed_all_the_same(commands, run):
    before = sorted(path.name for path in run.rglob("*"))
    words = ("assay", run, "effective-rank", "variable-types", "--samples", "200")
    for extra in ((), ("--json",), ("--csv",)):
        ended = commands.run(*words, *extra, folder=run, nobody=True)
        assert ended.code == 0
        assert "effective-rank" in ended.stdout
        assert ended.stderr == (
            "The results were not kept with the run (Permission denied); the next time they are "
            "measured again.\n"
        )
    assert sorted(path.name for path in run.rglob("*")) == before


def test_a_full_disk_leaves_the_results_that_were_there(commands, run):
    words = ("assay", run, "response-matrix", "--samples", "100", "--json")
    first = commands.run(*words, folder=run)
    assert first.code == 0, first.stderr
    contents = {path: path.read_bytes() for path in (run / "assays").iterdir()}
    fuller = commands.run(*words, "--seed", "1", folder=run, file_size=512, stdout="/dev/null")
    assert fuller.code == 0
    assert "not kept with the run (File too large)" in fuller.stderr
    assert {path: path.read_bytes() for path in (run / "assays").iterdir()} == contents


def test_zs_assay_says_that_results_were_not_kept(run, monkeypatch):
    def refuse(path, content):
        raise RunError("store: not written") from OSError(30, "Read-only file system")

    monkeypatch.setattr(kept, "write_whole", refuse)
    report = zs.assay(str(run), names=["effective-rank"], samples=150, fresh=True)
    assert "effective-rank" in report.results
    assert "The results were not kept with the run (Read-only file system)" in str(report)


PLACES = ["page.nonesuch", "page", "taken", "taken/page.html", "folder", "folder.html",
          f"{'a' * 300}.html", f"{'a' * 300}/page.html"]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_report_tries_its_target_before_anything_is_loaded(monkeypatch, capsys, tmp_path, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "zscope.cli.targets.measure_target", lambda *a, **k: pytest.fail("measured")
    )
    (tmp_path / "taken").write_bytes(b"mine")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["zscope", "report", "run", "-o", place])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "taken").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "words",
    [
        ("assay", "run", "--figures"),
        ("compare", "run", "run", "--figure"),
        ("demo", "--out"),
        ("fondue", "sprites", "--out"),
        ("elbow", "sprites", "--sizes", "2,4,8", "--out"),
        ("beta", "sprites", "--betas", "1,2", "--latents", "4", "--out"),
        ("study", "run", "pca-degenerate", "--out"),
        ("data", "perturb", "sprites", "--epsilon", "0.1", "--out"),
    ],
)
def test_other_commands_try_theirs_too(monkeypatch, capsys, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_bytes(b"mine")
    monkeypatch.setattr(sys, "argv", ["zscope", *words, "taken/figure.png"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    printed = capsys.readouterr().err
    assert f"{words[-1]} taken/figure.png cannot be written" in printed
    assert [path.name for path in tmp_path.rglob("*")] == ["taken"]


def test_trying_sweeps_partial_files_and_leaves_the_target(tmp_path):
    (tmp_path / "page.html").write_bytes(b"old")
    (tmp_path / f"{files.PARTIAL}{'0' * 16}.html").touch()
    outputs.try_file("--out", tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_bytes() == b"old"
    outputs.try_folder("--out", tmp_path / "a" / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(ConfigError, match="no regular file"):
        outputs.try_file("--out", tmp_path / "pipe.html")


def test_a_page_and_its_numbers_are_written_together_or_not_at_all(tmp_path, monkeypatch):
    page, numbers = tmp_path / "page.html", tmp_path / "page.json"
    build.write_all({page: b"old", numbers: b"old"})
    opened = build.writing

    def full(path):
        if path == numbers:
            raise OSError(28, "No space left on device")
        return opened(path)

    monkeypatch.setattr(build, "writing", full)
    with pytest.raises(RunError, match=r"page.html could not be written \(No space left"):
        build.write_all({page: b"new", numbers: b"new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "page.html": b"old",
        "page.json": b"old",
    }


def test_a_figure_is_whole_or_absent(tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    from zscope.plots import save, theme

    figure = plt.figure()
    for wrong in ("figure", "figure.nonesuch"):
        with pytest.raises(ConfigError, match="figures are saved as"):
            save(figure, tmp_path / wrong)
    monkeypatch.setattr(theme, "write_whole", lambda *a: (_ for _ in ()).throw(RunError("full")))
    with pytest.raises(RunError):
        save(figure, tmp_path / "figure.pdf")
    assert list(tmp_path.iterdir()) == []


def test_figures_that_cannot_be_saved_do_not_cost_the_answer(commands, run, tmp_path):
    words = ("assay", run, "response-matrix", "--samples", "100", "--figures", "figures")
    ended = commands.run(*words, folder=tmp_path, file_size=5000)
    assert ended.code == 1
    assert "response-matrix" in ended.stdout
    assert "response-matrix.png could not be written (File too large)" in ended.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_report_on_a_full_disk_still_says_what_was_found(commands, run, tmp_path):
    words = ("report", run, "response-matrix", "--samples", "100", "-o", "page.html")
    ended = commands.run(*words, folder=tmp_path, file_size=5000)
    assert ended.code == 1
    assert ended.stdout
    assert "page.html could not be written (File too large)" in ended.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_not_utf8_can_be_reported(commands, tmp_path):
    name = os.fsdecode(b"caf\xe9.npy")
    np.save(tmp_path / name, np.random.default_rng(0).normal(size=(50, 3)))
    words = ("report", name, "effective-rank", "-o", f"{name}.html")
    ended = commands.run(*words, folder=tmp_path)
    assert (ended.code, ended.stderr) == (0, "")
    assert json.loads((tmp_path / f"{name}.json").read_bytes())["title"] == name


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_command_as_ctrl_c_does(commands, run, tmp_path, number):
    words = ("report", run, "--samples", "2000", "--fresh", "-o", tmp_path / "page.html")
    ended = commands.run(*words, folder=tmp_path, kill_after=1.5, signal=int(number))
    assert (ended.code, ended.stderr) == (143, "zscope: stopped.\n")
    assert ended.seconds < 1.5 + 5
    assert list(tmp_path.iterdir()) == []
    assert left_behind(run) == []


def test_a_signal_is_not_lost_where_a_loop_ends_on_any_interrupt(capsys):
    """The explorer stops on Ctrl-C as on any other day."""

    def command():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except KeyboardInterrupt:
            print("Stopped.")

    before = signal.getsignal(signal.SIGTERM)
    assert ending.run(command) == 143
    assert signal.getsignal(signal.SIGTERM) == before
    assert capsys.readouterr().out == "Stopped.\n"


def test_a_message_raised_on_the_way_keeps_the_code(capsys):
    def command():
        try:
            raise Terminated("train: saved")
        except KeyboardInterrupt:
            raise KeyboardInterrupt("fondue: 2 trials are saved") from None

    assert ending.run(command) == 143
    assert capsys.readouterr().err == "fondue: 2 trials are saved\n"


def test_terminated_is_an_interrupt_and_no_error_of_the_users():
    assert issubclass(Terminated, KeyboardInterrupt)
    assert not issubclass(Terminated, ZscopeError)


# Two at once


def test_two_processes_do_not_mix_their_results(run, monkeypatch):
    """One that writes slowly finishes all its files before another begins."""
    order = []
    save = store.Run.save_result

    def slow(self, name, result):
        order.append((threading.get_ident(), "begins"))
        time.sleep(0.3)
        target = save(self, name, result)
        order.append((threading.get_ident(), "ends"))
        return target

    monkeypatch.setattr(store.Run, "save_result", slow)
    result = zs.assays.effective_rank(np.random.default_rng(0).normal(size=(50, 2)))
    two = [
        threading.Thread(
            target=kept.KeptResults(store.open_run(run), None).put, args=("mine", {}, result)
        )
        for _ in range(2)
    ]
    for each in two:
        each.start()
    for each in two:
        each.join()
    assert [what for _, what in order] == ["begins", "ends"] * 2
    assert order[0][0] == order[1][0]
    assert left_behind(run) == []


def test_a_message_that_nobody_would_read_is_shortened(capsys):
    def refuse():
        raise ConfigError(f"models: hidden={[2] * 9000}; expected fewer. See: zscope models info")

    assert ending.run(refuse) == 1
    said = capsys.readouterr().err
    assert len(said) < 2100
    assert said.startswith("models: hidden=[2, 2, ")
    assert said.endswith("expected fewer. See: zscope models info\n")
