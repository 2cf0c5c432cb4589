"""Three processes on one sweep, one of which is killed again and again.

    python sweep_server.py FOLDER [--no-ensemble]

The processes are `zscope sweep run`, forked from this one, which has imported everything; one of
them has two workers of its own. About every second one of them, or one of the workers, is killed
with SIGKILL and started again, until the sweep is done. Prints what was found, as JSON. Each
training notes in FOLDER/trainings.txt where it began, and that it was finished.
"""

import io
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch
from noted_trainings import PLACE, note_trainings

from zscope.errors import ZscopeError
from zscope.experiments import sweeps

GRID = {"options.beta": [0.5, 1, 2, 4], "seed": list(range(10))}
STEPS, EVERY = 160, 20
LONGEST = 600.0  # seconds
PLAN = {
    "train": {"steps": STEPS, "latents": 2, "batch": 16, "rate": 1e-3, "log_every": 20,
              "checkpoint_every": EVERY, "options.hidden": [6], "model": "beta-vae",
              "data": "helix"},
    "grid": GRID,
    "assay": {"names": ["variable-types", "effective-rank"], "samples": 100},
}  # fmt: skip


def sweep_command(folder: Path, jobs: int, extra: list[str]) -> int:
    """`zscope sweep run` in this process; its exit code."""
    from zscope.cli import main

    where = ["--out", str(folder / "out"), "--jobs", str(jobs), "--quiet", *extra]
    sys.argv = ["zscope", "sweep", "run", str(folder / "plan.json"), *where]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def fork(call: Callable[[], int], log: Path) -> int:
    child = os.fork()
    if not child:
        os.setsid()
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        code = 99
        try:
            code = call()
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return child


def workers_of(process: int) -> list[int]:
    """The worker processes of a sweep, as long as they are there."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process and b"popen_loky" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return sorted(found)


class Siege:
    """The three processes, and what was done to them."""

    def __init__(self, folder: Path, extra: list[str]) -> None:
        self.folder, self.extra, self.draw = folder, extra, random.Random(0)
        self.kills = {"process": 0, "process with workers": 0, "worker": 0}
        self.codes: list[int] = []
        # A process that is killed before it has read the plan does nothing: on a busy machine
        # that takes longer.
        begun = time.monotonic()
        sweeps.prepare(folder / "plan.json", folder / "none")
        self.pause = max(1.0, 3 * (time.monotonic() - begun))
        self.alive = {self.start(jobs): jobs for jobs in (1, 1, 2)}

    def start(self, jobs: int) -> int:
        def run() -> int:
            os.environ[PLACE] = str(self.folder / "trainings.txt")  # for its workers
            note_trainings(self.folder / "trainings.txt")
            return sweep_command(self.folder, jobs, self.extra)

        return fork(run, self.folder / "output.txt")

    def kill(self) -> None:
        """Kill one of those that are there, and start it again."""
        process = self.draw.choice(sorted(self.alive))
        workers = self.training(workers_of(process))
        if workers and self.draw.random() < 0.5:
            with suppress(ProcessLookupError):
                os.kill(self.draw.choice(workers), signal.SIGKILL)
                self.kills["worker"] += 1
            return
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        jobs = self.alive.pop(process)
        self.kills["process" if jobs == 1 else "process with workers"] += 1
        self.alive[self.start(jobs)] = jobs

    def training(self, processes: list[int]) -> list[int]:
        """Those that have a run: an item is given up if workers die at once three times."""
        owners = set()
        for file in (self.folder / "out" / "runs").glob("*/.lock"):
            with suppress(OSError, ValueError):
                owners.add(json.loads(file.read_text())["process"])
        return [process for process in processes if process in owners]

    def collect(self) -> None:
        for process in list(self.alive):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self.alive.pop(process)
                self.codes.append(os.waitstatus_to_exitcode(status))

    def is_done(self) -> bool:
        with suppress(ZscopeError):
            return len(sweeps.status(self.folder / "out").done) == 40
        return False

    def last(self) -> None:
        end = time.monotonic() + LONGEST
        pause = time.monotonic() + self.pause
        while self.alive and time.monotonic() < end:
            time.sleep(0.05)
            self.collect()
            if time.monotonic() > pause and not self.is_done():
                self.kill()
                pause = time.monotonic() + self.draw.uniform(0.5, 1.5) * self.pause
        for process in self.alive:
            os.kill(process, signal.SIGKILL)
            self.codes.append(-signal.SIGKILL)


def run_once(folder: Path, extra: list[str]) -> None:
    """The same sweep, undisturbed."""
    child = fork(lambda: sweep_command(folder, 1, extra), folder / "output.txt")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise SystemExit((folder / "output.txt").read_text())


def without_times(content: dict[str, Any]) -> dict[str, Any]:
    """A file of JSON without the times of its scores, and so without its checksum."""
    entries = [{**each, "time": 0} for each in content.get("entries", [])]
    return {**content, "entries": entries, "sha256": ""}


def files_of(out: Path) -> dict[str, Any]:
    """The content of everything that a sweep has made, apart from times."""
    contents: dict[str, Any] = {}
    for file in sorted(out.rglob("*")):
        name = str(file.relative_to(out))
        if not file.is_file() or name == "log.jsonl" or file.suffix in (".sqlite", ".db"):
            continue
        if file.suffix == ".json":
            contents[name] = without_times(json.loads(file.read_text()))
        else:
            contents[name] = file.read_bytes().hex()
    return contents


def main() -> None:
    torch.set_num_threads(1)
    folder, extra = Path(sys.argv[1]), sys.argv[2:]
    for name in ("calm", "killed"):
        (folder / name).mkdir(parents=True)
        (folder / name / "plan.json").write_text(json.dumps(PLAN))
    sweeps.prepare(PLAN, folder / "none")  # imports what is needed, once for all
    run_once(folder / "calm", extra)
    begun = time.monotonic()
    siege = Siege(folder / "killed", extra)
    siege.last()
    calm, killed = (files_of(folder / name / "out") for name in ("calm", "killed"))
    differing = [n for n in {**calm, **killed} if calm.get(n) != killed.get(n)]
    with redirect_stdout(io.StringIO()):
        state = sweeps.status(folder / "killed" / "out")
    answer = {
        "kills": siege.kills,
        "codes": siege.codes,
        "differing": sorted(differing),
        "files": len(calm),
        "status": state.to_dict(),
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
