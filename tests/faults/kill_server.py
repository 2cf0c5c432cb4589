"""A process that has imported everything, and forks others to be killed.

Reads one request a line (JSON) and answers each with one line:

    {"work": "train vae", "points": 20, "random": 10, "seed": 0}

`points` is how many crash points are tried, or "all" of them in all moments; `random` how many
kills come at a random time. Some works are killed two or three times in a row. After each the
files that are left must be complete, and the same work, started again, must end with the files
of one that was never killed.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crash_points
import kill_works
import torch

LONGEST = 300.0  # seconds, on a machine that does much else


def fork(call: Callable[[], Any], kill_after: float | None = None) -> tuple[int, Any]:
    """The exit code of a forked process, and what it returned."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        code, answer = outcome(call)
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(code)
    os.close(writing)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    alarm = time.monotonic() + LONGEST
    with os.fdopen(reading) as pipe:
        text = pipe.read()  # ends with the process
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if time.monotonic() > alarm:
        return 5, f"took more than {LONGEST} s"
    return code, json.loads(text) if code >= 0 and text else None


def outcome(call: Callable[[], Any]) -> tuple[int, Any]:
    """What a call returns, without what it prints: 3 for a ZscopeError, 4 for any other."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        return 0, call()
    except kill_works.zs.ZscopeError as error:
        return 3, f"{type(error).__name__}: {error}"
    except BaseException:
        return 4, traceback.format_exc()


class Trial:
    """One work in one folder, and what it must end with."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.work = name, kill_works.WORKS[name]
        self.out, self.prepared = folder / "out", folder / "prepared"
        self.prepared.mkdir(parents=True)
        self.work.load()
        self.must(lambda: self.work.prepare(self.prepared))
        self.import_for(lambda: [self.renew(), self.start(False)])
        self.renew()
        begun = time.monotonic()
        self.must(lambda: self.start(False))
        self.seconds = time.monotonic() - begun
        self.wanted = self.must(lambda: kill_works.files_of(self.out))
        self.renew()
        self.points = self.must(self.count)

    def must(self, call: Callable[[], Any]) -> Any:
        code, answer = fork(call)
        if code:
            raise SystemExit(f"{self.name}: {code}: {answer}")
        return answer

    def import_for(self, call: Callable[[], Any]) -> None:
        """Import here what the work imports, once for all."""
        before = set(sys.modules)
        modules = self.must(lambda: [call(), [*set(sys.modules) - before]][1])
        kill_works.import_all(modules)

    def renew(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.prepared, self.out)

    def start(self, again: bool) -> None:
        kill_works.start(self.work, self.out, again)

    def count(self) -> list[str]:
        points = crash_points.arm()
        self.start(False)
        return points

    def kill(self, again: bool, at: int | None, moment: str, share: float) -> bool:
        """Whether it was killed before it ended."""

        def begin() -> None:
            crash_points.arm(at, moment)
            self.start(again)

        code, answer = fork(begin, None if at is not None else share * self.seconds)
        if code > 0:
            raise AssertionError(f"started again: {answer}")
        return code == -signal.SIGKILL

    def finish(self) -> None:
        """Check what is left, start the work again, and compare its files with those wanted."""

        def end() -> dict[str, str]:
            kill_works.check_complete(self.out)
            kill_works.check_runs(self.out)
            self.work.check(self.out)
            self.start(True)
            kill_works.check_runs(self.out)
            return kill_works.files_of(self.out)

        code, files = fork(end)
        if code:
            raise AssertionError(f"after the kill: {files}")
        if files != self.wanted:
            names = [name for name in {**files, **self.wanted}
                     if files.get(name) != self.wanted.get(name)]  # fmt: skip
            raise AssertionError(f"other files than without a kill: {sorted(names)}")

    def both(self) -> None:
        """Two processes at once."""
        self.renew()
        gate_reads, gate_opens = os.pipe()

        def begin() -> None:
            os.close(gate_opens)
            os.read(gate_reads, 1)  # until both are there
            self.start(False)

        children = []
        for _ in range(2):
            if not (child := os.fork()):
                os._exit(outcome(begin)[0])
            children.append(child)
        os.close(gate_reads)
        time.sleep(0.02)
        os.close(gate_opens)
        codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
        if codes != ([0, 0] if self.work.both else [0, 3]):
            raise AssertionError(f"two at once ended with {codes}")
        self.finish()


def moments(
    trial: Trial, request: dict[str, Any]
) -> list[tuple[str, list[tuple[int | None, str]]]]:
    """(kind, kills in a row) of each try; a kill is (point, moment) or (None, "random")."""
    draw = random.Random(f"{trial.name} {request.get('seed', 0)}")
    every = [(k, moment) for k, name in enumerate(trial.points) for moment in crash_points.MOMENTS
             if moment != "half" or name == "write"]  # fmt: skip
    wanted = request.get("points", 0)
    chosen = every if wanted == "all" else draw.sample(every, min(wanted, len(every)))
    tries = []
    for k, point in enumerate(chosen):
        more = [draw.choice(every) for _ in range(k % 10 // 7)]  # two of ten are killed again
        more += [draw.choice(every)] if k % 10 == 9 else []
        tries.append((point[1], [point, *more]))
    tries += [("random", [(None, "random")] * (1 + (k % 5 == 4)))
              for k in range(request.get("random", 0))]  # fmt: skip
    return tries


def serve(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    draw = random.Random(f"{request['work']} times {request.get('seed', 0)}")
    trial = Trial(request["work"], folder)
    counts: dict[str, int] = {}
    kills, failures = 0, []
    for kind, row in moments(trial, request):
        trial.renew()
        try:
            killed = 0
            for at, moment in row:
                if not trial.kill(killed > 0, at, moment, draw.random()):
                    break  # it had ended before
                killed += 1
            trial.finish()
        except AssertionError as error:
            names = [f"{moment} {trial.points[at] if at is not None else ''} {at}".strip()
                     for at, moment in row]  # fmt: skip
            failures.append(f"{trial.name}, killed {', '.join(names)}: {error}")
        kills += killed
        counts[kind] = counts.get(kind, 0) + (killed > 0)
    for _ in range(request.get("both", 0)):
        try:
            trial.both()
        except AssertionError as error:
            failures.append(f"{trial.name}, twice at once: {error}")
    shutil.rmtree(folder)
    return {"tries": sum(counts.values()), "kills": kills, "by_moment": counts,
            "points": len(trial.points), "failures": failures}  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    for number, line in enumerate(sys.stdin):
        begun = time.monotonic()
        answer = serve(json.loads(line), Path(sys.argv[1]) / str(number))
        answer["seconds"] = round(time.monotonic() - begun, 1)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
