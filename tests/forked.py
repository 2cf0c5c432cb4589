"""Commands in processes of their own, forked from one that has imported everything.

    commands = Commands()
    commands.run("assay", "runs/mine", folder=tmp_path, stdout="/dev/full")

Starting a process with torch takes seconds, forking one milliseconds. The interpreter's own end
is imitated (`end`), since freeing the memory of torch takes seconds too.
"""

import atexit
import gc
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class Commands:
    """A process that forks one for each command."""

    def __init__(self, **environment: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MPLBACKEND": "Agg", **environment},
        )

    def run(self, *words: Any, folder: Path, **setup: Any) -> SimpleNamespace:
        """Exit code (negative: by a signal), stdout, stderr, seconds. For `setup` see `start`."""
        job = {"words": [os.fsencode(str(word)).hex() for word in words], "folder": str(folder)}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps({**job, **setup}), file=self._server.stdin, flush=True)
        return SimpleNamespace(**json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        with self._server:  # closes its pipes, and waits
            pass


def load() -> None:
    """Import what commands import, also where `nobody` may not read Python's own files."""
    import tomllib  # noqa: F401

    import matplotlib.pyplot  # noqa: F401
    import rich.table  # noqa: F401
    import scipy.special
    import scipy.stats  # noqa: F401
    import sklearn.ensemble  # noqa: F401
    import torch

    import zscope.cli
    import zscope.experiments
    import zscope.experiments.studies
    import zscope.kept
    import zscope.loading
    import zscope.report.build
    import zscope.report.page  # noqa: F401
    from zscope.assays import CATALOGUE

    torch.set_num_threads(1)
    "".encode("cp437")  # of names in .npz files
    for entry in CATALOGUE.values():
        entry.load()


def stream(number: int, place: Any, encoding: str) -> Any:
    """The standard stream of this number, leading to a place; closed if that is None."""
    if place is None:
        os.close(number)
        return None
    if place == "closed pipe":
        reader, handle = os.pipe()
        os.close(reader)
    else:
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, number)
    os.close(handle)
    raw = io.FileIO(number, "w", closefd=False)
    buffered = io.BufferedWriter(raw)
    lines = number == 2
    errors = "backslashreplace" if lines else "strict"
    return io.TextIOWrapper(buffered, encoding=encoding, errors=errors, line_buffering=lines)


def start(job: dict[str, Any], out: Path, err: Path) -> None:
    """Become the process that the job describes."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    signal.alarm(job.get("limit", 60))
    os.chdir(job["folder"])
    if job.get("deleted"):
        gone = tempfile.mkdtemp()
        os.chdir(gone)
        os.rmdir(gone)
    for name, value in job.get("environment", {}).items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    if most := job.get("file_size"):  # stands in for a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        sys.dont_write_bytecode = True  # Python would keep what it could write of it
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    if job.get("nobody"):
        os.setgid(65534)
        os.setuid(65534)
    encoding = job.get("encoding", "utf-8")
    places = {"stdout": job.get("stdout", str(out)), "stderr": job.get("stderr", str(err))}
    sys.stdout = sys.__stdout__ = stream(1, places["stdout"], encoding)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = stream(2, places["stderr"], encoding)  # type: ignore[misc]
    sys.argv = ["zscope", *(os.fsdecode(bytes.fromhex(word)) for word in job["words"])]
    if delay := job.get("kill_after"):
        pid = os.getpid()
        if os.fork() == 0:
            time.sleep(delay)
            os.kill(pid, job.get("signal", signal.SIGTERM))
            os._exit(0)


def serve() -> bool:
    """Run the jobs of stdin; True in a process that is to run one of them."""
    answers = os.fdopen(os.dup(1), "w")
    for line in os.fdopen(os.dup(0)):
        job = json.loads(line)
        folder = Path(tempfile.mkdtemp())
        folder.chmod(0o777)
        out, err = folder / "out", folder / "err"
        begun = time.monotonic()
        pid = os.fork()
        if pid == 0:
            start(job, out, err)
            return True
        status = os.waitpid(pid, 0)[1]
        files = [path.read_bytes() if path.exists() else b"" for path in (out, err)]
        answer = {
            "code": os.waitstatus_to_exitcode(status),
            "stdout": files[0].decode("utf-8", "replace"),
            "stderr": files[1].decode("utf-8", "replace"),
            "seconds": time.monotonic() - begun,
        }
        shutil.rmtree(folder)
        print(json.dumps(answer), file=answers, flush=True)
    return False


def end() -> None:
    """What the interpreter does when a program ends, without freeing the memory of torch."""
    code, ignored = 0, ""
    try:
        from zscope.cli import main

        main()
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for name in ("stdout", "stderr"):
        try:
            if getattr(sys, name) is not None:
                getattr(sys, name).flush()
        except (OSError, ValueError) as error:
            code, ignored = 120, f"Exception ignored in {name}: {error!r}"
    if ignored and sys.stderr is not None:
        print(ignored, file=sys.stderr, flush=True)
    os._exit(code)


if __name__ == "__main__":
    load()
    gc.collect()
    gc.freeze()
    if serve():
        end()
