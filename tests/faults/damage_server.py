"""Damages the files of runs, and calls zscope with them in forked processes.

Reads one request a line (JSON), {"door": "resume", "count": 100, "seed": 0}, and answers each
with one line. A door is a function of zscope that reads some files of a run. Allowed are its
right answer and a ZscopeError that names the file; for values that were replaced by hostile
ones in a readable file, any answer and any ZscopeError. A file that was refused is left alone.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import damage
import kill_works
import numpy as np
import torch
from kill_server import outcome

import zscope as zs
from zscope import store
from zscope.experiments.perturbation import game

LONGEST = 10  # seconds
MEMORY = 4 * 2**30  # bytes that a process may have more than at its start
NAMES = ["variable-types", "response-matrix", "mig"]
SETTINGS = {**kill_works.SETTINGS, "steps": 12, "checkpoint_every": 3, "snapshots": [5]}


class Killed(BaseException):
    """The process ends here, and no handler runs."""


def make_world(folder: Path) -> None:
    """A finished run with results, one that was stopped, a search and a perturbation."""
    header = "a,b,c,d,f,g"
    table = np.concatenate([kill_works.ROWS, kill_works.GRID], 1)
    np.savetxt(folder / "rows.csv", table, "%.6g", ",", header=header, comments="")
    world = folder / "world"
    store.LARGE = 3
    train(world / "run")
    zs.assay(world / "run", names=NAMES, progress=False)
    rows = []

    def stop(variances: Any) -> dict[str, Any]:
        rows.append(1)
        if len(rows) == 5:
            raise Killed
        return {}

    for start in (lambda: train(world / "stopped", monitor=stop), lambda: perturb(world, stop=5)):
        try:
            start()
        except Killed:
            continue
        raise AssertionError("not stopped")
    result = fondue(world)
    store.write_json(world / "fondue.json", result)
    store.write_json(world / "claims.json", {"claims": [{"row": "A1", "verdict": "holds"}]})
    for left in world.rglob(".lock"):
        left.unlink()


def data() -> Any:
    # Beside the world, which is copied for each try.
    whole = zs.data.load(Path(os.environ["TABLE"]), factors="f,g")
    return whole.split((0.8, 0.2), seed=0)[0]


def train(out: Path, **options: Any) -> Any:
    table = data()
    model = zs.models.build_for("vae", table, latents=2, hidden=(6,), seed=0)
    options.setdefault("monitor", lambda variances: {})
    return zs.train(model, table, out=out, **SETTINGS, **options)


def fondue(world: Path) -> dict[str, Any]:
    return zs.fondue(data(), seeds=1, steps=4, batch=8, start=1, limit=2, options={"hidden": (4,)},
                     out=world / "search").to_dict()  # fmt: skip


def perturb(world: Path, *, resume: bool = False, stop: int = 0) -> Any:
    game.CHECKPOINT_EVERY = 2
    one_round, rounds = game.one_round, []

    def counted(*args: Any) -> Any:
        rounds.append(1)
        if len(rounds) == stop:
            raise Killed
        return one_round(*args)

    game.one_round = counted
    try:
        return zs.perturb(kill_works.DATA, epsilon=0.1, restarts=2, steps=2, rounds=6, batch=8,
                          options={"hidden": (4,)}, out=world / "change", resume=resume,
                          progress=False)  # fmt: skip
    finally:
        game.one_round = one_round


def weights(model: torch.nn.Module) -> str:
    state = sorted(model.state_dict().items())
    return sha256(b"".join(name.encode() + t.numpy().tobytes() for name, t in state)).hexdigest()


def load(world: Path) -> Any:
    model = zs.load(world / "run")
    return [weights(model), repr(model.scaling)]


def load_checkpoint(world: Path) -> Any:
    return weights(zs.load(world / "run" / "checkpoints" / "step-000000005.safetensors"))


def history(world: Path) -> Any:
    run = store.open_run(world / "run")
    return [run.status, run.step, repr(run.config), run.history]


def results(world: Path) -> Any:
    return repr(store.open_run(world / "run").results())


def again(world: Path) -> Any:
    run = train(world / "run", resume=True)
    return [weights(run.model), run.history]


def resume(world: Path) -> Any:
    run = train(world / "stopped", resume=True)
    return [weights(run.model), run.history]


def assay(world: Path) -> Any:
    store.LARGE = 3
    report = zs.assay(world / "run", names=NAMES, progress=False)
    return [report.rows(), report.missing, sorted(report.failed)]


def compare(world: Path) -> Any:
    return zs.compare(world / "run").similarity.tolist()


def resume_perturbation(world: Path) -> Any:
    result = perturb(world, resume=True)
    content = (world / "change" / "perturbed.npz").read_bytes()
    return [result.before, result.gap, result.scores, sha256(content).hexdigest()]


def read_json(world: Path) -> Any:
    return [store.read_json(world / name) for name in ("fondue.json", "claims.json")]


# door -> the function, and the files that it reads
DOORS: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "load": (load, ("run/run.json", "run/model.safetensors")),
    "checkpoint": (load_checkpoint, ("run/checkpoints/*", "run/run.json")),
    "history": (history, ("run/run.json", "run/history.jsonl")),
    "results": (results, ("run/assays/*", "run/run.json")),
    "again": (again, ("run/*.*", "run/checkpoints/*")),
    "resume": (resume, ("stopped/*.*", "stopped/checkpoints/*")),
    "assay": (assay, ("run/*.*", "run/assays/*")),
    "compare": (compare, ("run/*.*", "run/checkpoints/*")),
    "fondue": (fondue, ("search/seed-0/trials.json",)),
    "perturb": (resume_perturbation, ("change/*.*", "change/original/seed-0/*.*",
                                      "change/modifier/*.*", "change/modifier/checkpoints/*")),
    "json": (read_json, ("fondue.json", "claims.json")),
}  # fmt: skip


def files_for(door: str, world: Path) -> list[Path]:
    """Files, as often as they should be chosen: those of one kind share."""
    groups = [sorted(path for path in world.glob(g) if path.is_file()) for g in DOORS[door][1]]
    most = max(map(len, groups))
    return [file for group in groups for file in group * max(1, most // max(1, len(group)))]


def harm(draw: random.Random, file: Path, others: list[Path]) -> str:
    """Damage a file; returns how."""
    kind = draw.random()
    if kind < 0.12:
        return damage.replaced(draw, file)
    if kind < 0.18 and len(others) > 1:
        return damage.exchanged(draw, file, others)
    if kind < 0.45 and harm_values(draw, file):
        return "hostile"
    change = draw.choice(damage.CONTENTS)
    content = file.read_bytes()
    file.write_bytes(change(draw, content))
    return change.__name__


def harm_values(draw: random.Random, file: Path) -> bool:
    """Replace a value of a file that stays readable, without the checksum that would tell."""
    if file.suffix == ".json":
        content = json.loads(file.read_text())
        content.pop(store.CHECKSUM, None)
        file.write_text(damage.hostile_json(draw, content, ("model", "options")))
    elif file.suffix == ".jsonl":
        lines = file.read_text().splitlines()
        place = draw.randrange(len(lines))
        lines[place] = damage.hostile_json(draw, json.loads(lines[place]))
        file.write_text("\n".join(lines) + "\n")
        run = file.with_name("run.json")
        if run.exists():
            content = json.loads(run.read_text())
            del content[store.CHECKSUM], content["history"]
            run.write_text(json.dumps(content))
    elif file.name.endswith(".kept.npz"):
        with np.load(file) as arrays:
            parts = dict(arrays)
        content = json.loads(str(parts["content"]))
        key = content.pop("key")
        text = damage.hostile_json(draw, content)
        parts["content"] = np.array(f'{{"key": {json.dumps(key)}, {text[1:]}')
        np.savez_compressed(file, **parts)
    elif file.suffix == ".safetensors":
        from safetensors.torch import save

        tensors, about = store.read_tensors(file)
        name = draw.choice(sorted(tensors))
        tensors[draw.choice((name, "x", "model.x", f"optimiser.main.{10**9}.exp_avg"))] = (
            draw.choice([torch.zeros(0), torch.ones(3, 3), torch.tensor(1), torch.ones(2).bool(),
                         torch.full((2,), float("nan"))]))  # fmt: skip
        if draw.random() < 0.5:
            del tensors[name]
        file.write_bytes(save(tensors, {"zscope": damage.hostile_json(draw, about)}))
    else:
        return False
    return True


def attempt(door: str, seed: str, source: Path, out: Path, right: Any) -> tuple[str, str | None]:
    """What was done to which file, and what is wrong with the outcome, if anything."""
    draw = random.Random(seed)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(source, out, symlinks=True)
    files = files_for(door, out)
    file = draw.choice(files)
    # Nobody reads fondue.json and claims.json, so that nobody is surprised by one for the other.
    how = harm(draw, file, [] if door == "json" else sorted({*files}))
    label = f"{file.relative_to(out)}: {how}"
    before = state(file)
    rows = readable_rows(out)
    try:
        answer = json.loads(json.dumps(DOORS[door][0](out)))
    except zs.ZscopeError as error:
        message = str(error)
        if how != "hostile" and not any(name in message for name in names(file, how)):
            return label, f"the error does not name the file: {message[:300]}"
        if state(file) != before:
            return label, f"a refused file was changed: {message[:300]}"
        if lost := [row for row in rows if row not in readable_rows(out)]:
            return label, f"{len(lost)} readable rows of a history were lost: {message[:200]}"
        return label, None
    if how != "hostile" and answer != right:
        return label, f"another answer: {str(answer)[:200]}"
    return label, None


def names(file: Path, how: str) -> list[str]:
    """How an error may name a file: by itself, or the one that was put in its place."""
    return [file.name, *([how.rsplit(maxsplit=1)[-1]] if how.startswith("exchanged") else [])]


def state(file: Path) -> Any:
    if file.is_symlink():
        return os.readlink(file)
    return file.read_bytes() if file.is_file() else file.is_dir()


def readable_rows(out: Path) -> list[bytes]:
    file = out / "stopped" / "history.jsonl"
    if not file.is_file() or file.is_symlink():
        return []
    rows = []
    for line in file.read_bytes().splitlines(keepends=True):
        try:
            json.loads(line)
        except (ValueError, RecursionError):
            continue
        if line.endswith(b"\n"):
            rows.append(line)
    return rows


def attempts(door: str, numbers: list[int], seed: int, source: Path, out: Path,
             right: Any) -> Iterator[tuple[str, str | None]]:  # fmt: skip
    """The outcome of each try, in forked processes that do many each."""
    numbers = list(numbers)
    while numbers:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            with os.fdopen(writing, "w") as pipe:
                for number in numbers:
                    signal.alarm(LONGEST)
                    here = f"{door} {seed} {number}"
                    code, answer = outcome(lambda: attempt(door, here, source, out, right))  # noqa: B023
                    if code:
                        answer = (here, answer)
                    print(json.dumps(answer), file=pipe, flush=True)
                signal.alarm(0)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            for line in pipe:
                numbers.pop(0)
                yield tuple(json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            yield (f"{door} {seed} {numbers.pop(0)}", f"the process ended with {code}")


def serve(request: dict[str, Any], folder: Path, rights: dict[str, Any]) -> dict[str, Any]:
    door, seed = request["door"], request.get("seed", 0)
    numbers = request.get("numbers") or list(range(request["count"]))
    kinds: Counter[str] = Counter()
    failures = []
    for label, problem in attempts(door, numbers, seed, folder / "world", folder / "out",
                                   rights[door]):  # fmt: skip
        kinds[label.split(": ")[-1].split(" with ")[0]] += 1
        if problem is not None:
            failures.append(f"{door}: {label}: {problem}")
    return {"files": len(numbers), "by_damage": dict(kinds), "failures": failures}


def main() -> None:
    from kill_server import fork

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    folder = Path(sys.argv[1])
    os.environ["TABLE"] = str(folder / "rows.csv")
    os.environ["ZSCOPE_DATA"] = str(folder / "data")

    def must(call: Callable[[], Any]) -> Any:
        code, answer = fork(call)
        if code:
            raise SystemExit(f"{code}: {answer}")
        return answer

    must(lambda: make_world(folder))
    rights: dict[str, Any] = {}
    before = set(sys.modules)

    def right_answers() -> Any:
        found = {}
        for door, (function, _) in DOORS.items():
            shutil.rmtree(folder / "out", ignore_errors=True)
            shutil.copytree(folder / "world", folder / "out")
            found[door] = function(folder / "out")
        return [found, sorted(set(sys.modules) - before)]

    rights, modules = must(right_answers)
    kill_works.import_all(modules)
    for line in sys.stdin:
        begun = time.monotonic()
        answer = serve(json.loads(line), folder, rights)
        answer["seconds"] = round(time.monotonic() - begun, 1)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
