"""What calls of every public function with hostile arguments did.

    python tests/faults/hostile.py --calls 200 --out api.json [NAME ...]

Allowed: an answer (finite, the same when repeated, within its range) or a `ZscopeError` with who
raises it and what to do. Anything else is a failure: another exception, NaN, a warning, a hang,
memory beyond 4 GB, or a change of the caller's arrays, of the model or of the global random state.
Run by itself, because the shape checks of the tests would answer first.
"""

import argparse
import contextlib
import json
import math
import os
import random
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import torch
from hostile_arguments import Model
from hostile_calls import Call, callables
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import zscope as zs

SECONDS, BYTES = 60, 4 << 30
OWN_WORDS = re.compile(
    r"unexpected keyword|positional argument|required .*argument|multiple values"
)
WHO = re.compile(r"^[^\n:]{1,80}: \S")  # a dataset may be called "x"


class Hang(BaseException):
    """A call took longer than a minute."""


def _alarm(*_: Any) -> None:
    raise Hang


def numbers(value: Any) -> list[float]:
    """All numbers of an answer."""
    if isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj().numpy() if value.dtype != torch.bfloat16 else 0
    if isinstance(value, np.ndarray):
        return value.astype(float).ravel().tolist() if value.dtype.kind in "biuf" else []
    if isinstance(value, dict):
        return [n for item in value.values() for n in numbers(item)]
    if isinstance(value, list | tuple):
        return [n for item in value for n in numbers(item)]
    is_number = isinstance(value, float) or (isinstance(value, int) and abs(value) < 1e300)
    return [float(value)] if is_number else []


def plain(answer: Any) -> Any:
    if isinstance(answer, zs.Posterior):
        return [answer.mean, answer.variance]
    if isinstance(answer, zs.Recording):
        return [answer.codes, answer.variances]
    if isinstance(answer, zs.Report):
        assert not answer.failed, next(iter(answer.failed.values())).traceback
        return [result.to_dict() for result in answer.results.values()]
    return answer.to_dict() if hasattr(answer, "to_dict") else answer


def snapshot(value: Any) -> Any:  # noqa: PLR0911
    """What a call must leave as it is."""
    if isinstance(value, torch.nn.Module):
        modes = [module.training for module in value.modules()]
        return modes, [p.detach().clone().numpy().tobytes() for p in value.parameters()]
    if isinstance(value, torch.Tensor):
        return value.detach().clone().resolve_conj().numpy().tobytes()
    if isinstance(value, np.ndarray):
        return repr(value.tolist()) if value.dtype == object else value.tobytes()
    if isinstance(value, zs.Posterior):
        return snapshot([value.mean, value.std])
    if isinstance(value, zs.Recording):
        return snapshot([value.codes])
    if isinstance(value, dict):
        return snapshot(list(value.values()))
    if isinstance(value, list | tuple):
        return [snapshot(item) for item in value]
    return None


def _random_state() -> tuple[Any, ...]:
    state = np.random.get_state()[1].tobytes()  # type: ignore[union-attr]
    return torch.get_rng_state().numpy().tobytes(), state, random.getstate()


def fault_of(values: tuple[Any, ...], options: dict[str, Any]) -> str:
    """The fault of the model among the arguments."""
    for each in [*values, *options.values()]:
        value = getattr(each, "__self__", each)  # of a method, its model
        if isinstance(value, zs.Recording) and isinstance(value.model, Model):
            return value.model.fault
        if isinstance(value, Model) and value.fault:
            return value.fault
    return ""


def judge(call: Call, twice: bool) -> tuple[str, str]:
    """("answer" | "refusal" | "failure", what happened)."""
    function, values, chosen = call
    fault = fault_of(values, chosen)
    before, state = snapshot([values, chosen]), _random_state()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            outcome, text = _outcome(function, values, chosen, fault, twice)
    except Hang:
        outcome, text = "failure", f"took more than {SECONDS} s"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    # The warning of a model that is no function is meant.
    meant = ("record: ", "compare: ", "`torch.jit")  # the last as in pyproject.toml
    odd = [w for w in seen if not str(w.message).startswith(meant)]
    if odd:
        return "failure", f"warning: {str(odd[0].message)[:150]} {_site(odd[0])}"
    if fault != "sets the seed" and _random_state() != state:
        return "failure", "the global random state changed"
    if fault != "training mode" and snapshot([values, chosen]) != before:
        return "failure", "an argument was changed"
    return outcome, text


def _site(warning: Any) -> str:
    return f"({Path(warning.filename).name}:{warning.lineno})"


def _outcome(  # noqa: PLR0911
    function: Any, values: Any, chosen: Any, fault: str, twice: bool
) -> tuple[str, str]:
    try:
        answer = plain(function(*values, **chosen))
        if twice and not fault:
            again = plain(function(*values, **chosen))
            if repr(again) != repr(answer):
                return "failure", "the second answer differs"
    except zs.ZscopeError as error:
        text = str(error)
        good = WHO.match(text) and len(text) > 40
        if "contains NaN" in text and text.startswith("to_dict"):
            return "failure", text
        return ("refusal", type(error).__name__) if good else ("failure", f"says little: {text}")
    except Exception as error:
        if isinstance(error, TypeError) and OWN_WORDS.search(str(error)):
            return "refusal", "TypeError of Python"
        if fault.startswith("raises") and str(error) in ("no such thing", DECODE):
            return "refusal", "the model's own error"
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if "zscope" in f.filename] or frames
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        return "failure", f"{type(error).__name__}: {str(error)[:150]} ({where})"
    bad = [n for n in numbers(answer) if math.isnan(n)]
    return ("failure", "NaN in the answer") if bad else ("answer", "")


DECODE = "mat1 and mat2 shapes cannot be multiplied"


def run(name: str, strategy: st.SearchStrategy[Call], calls: int) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    failures: dict[str, list[Any]] = {}
    start = time.process_time()

    @settings(
        max_examples=calls, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    @given(st.data(), st.integers(0, 9))
    def attack(data: Any, tenth: int) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call = data.draw(strategy)
        except zs.ZscopeError:  # arguments that cannot be made: `record` and others refuse them
            counts["no arguments"] += 1
            return
        except Exception as error:
            fault = str(error)
            counts["no arguments"] += 1
            if fault not in ("no such thing", DECODE):
                frames = traceback.extract_tb(error.__traceback__)
                ours = [f for f in frames if "/src/zscope" in f.filename]
                if ours:
                    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
                    key = f"making arguments, {type(error).__name__}: {fault[:150]} ({where})"
                    failures.setdefault(key, [0, ""])[0] += 1
            return
        outcome, text = judge(call, tenth == 0)
        counts[outcome] += 1
        if outcome == "failure":
            key = re.sub(r"0x[0-9a-f]+|\d{4,}", "N", text)
            entry = failures.setdefault(key, [0, describe(call)])
            entry[0] += 1

    attack()
    return {
        "counts": dict(counts),
        "seconds": round(time.process_time() - start, 2),
        "failures": failures,
    }


def describe(call: Call) -> str:
    def short(value: Any) -> str:
        if isinstance(value, torch.Tensor | np.ndarray):
            return f"{type(value).__name__} {tuple(value.shape)} {value.dtype}"
        if isinstance(value, Model):
            return f"Model({value.fault!r}, {value.latents})"
        return " ".join(repr(value).split())[:120]

    _, values, chosen = call
    words = [*map(short, values), *(f"{name}={short(value)}" for name, value in chosen.items())]
    return ", ".join(words)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--half", type=int, choices=(0, 1), help="of all names")
    given_ = parser.parse_args()
    torch.set_num_threads(1)
    import sklearn.ensemble  # importing it draws random numbers
    import sklearn.linear_model  # noqa: F401

    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, _alarm)
    results = {}
    every = callables()
    names = given_.names or list(every)
    for name in names if given_.half is None else names[given_.half :: 2]:
        results[name] = run(name, every[name], given_.calls)
        line = results[name]
        print(name, line["counts"], f"{line['seconds']} s", flush=True)
        for text, (count, example) in line["failures"].items():
            print(f"    {count} x {text}\n        {example}", flush=True)
        if given_.out:
            given_.out.write_text(json.dumps(results, indent=1))
    return any(each["failures"] for each in results.values())


if __name__ == "__main__":
    sys.exit(main())
