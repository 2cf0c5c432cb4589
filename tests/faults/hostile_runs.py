"""Hostile calls of what works on many runs: sweeps, tables, comparisons, selection, searches."""

import atexit
import math
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hostile_arguments import Call, arrays, options
from hypothesis import strategies as st

import zscope as zs
from zscope import experiments
from zscope.tables import table

ODD: tuple[Any, ...] = (
    None, 3, -1, 0, math.nan, math.inf, True, "", "nonesuch", "\0", "a" * 300, b"x", [], {}, [[]],
    ["nonesuch"], [None], object, Path(), Path("/dev/null"), {"model": 1}, 10**30, ["mig", "mig"],
)  # fmt: skip
SMALL = {"steps": 2, "latents": 2, "batch": 8, "options.hidden": [4]}


@cache
def family() -> Path:
    """Four tiny runs with scores and checkpoints, which nobody changes."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    plan = {
        "train": {**SMALL, "snapshots": [1], "model": "beta-vae", "data": "helix"},
        "grid": {"options.beta": [1, 4], "seed": [0, 1]},
        "assay": {"names": ["effective-rank"], "samples": 20},
    }
    zs.sweep(plan, folder, jobs=1, progress=False)
    return folder


@cache
def perturbed() -> tuple[Path, zs.Dataset]:
    """A folder with changed data, and the data."""
    factors = np.stack([np.arange(24) % 4, np.arange(24) // 4], 1)
    noise = np.random.default_rng(0).random((24, 2))
    data = zs.data.from_arrays(np.hstack([factors / 6, noise]).astype(np.float32), factors)
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    zs.perturb(data, out=folder / "out", epsilon=0.1, restarts=2, steps=2, rounds=1, batch=8,
               latents=2, options={"hidden": (4,)}, progress=False)  # fmt: skip
    return folder / "out", data


def odd(*good: Any) -> st.SearchStrategy[Any]:
    """One of the good values, or something else."""
    return st.sampled_from((*good * (4 * len(ODD) // len(good)), *ODD))


def _runs(draw: Any) -> Call:
    def use(path: Any, **fields: Any) -> Any:
        chosen = zs.runs(path).select(**fields)
        groups = [(key, len(group)) for key, group in chosen.groups("beta")]
        return [len(chosen), sorted(map(str, groups)), [row["steps"] for row in chosen.rows]]

    fields = draw(st.sampled_from(({}, {}, {"beta": 1}, {"nonesuch": 1}, {"seed": [0, 1]},
                                   {"seed": math.nan}, {"beta": None}, {"model": object}))
                  )  # fmt: skip
    return use, (draw(odd(family(), str(family()), family() / "runs")),), fields


def _table(draw: Any) -> Call:
    def use(columns: Any, by: Any, paired: Any, **chosen: Any) -> Any:
        made = table(zs.runs(family()), columns, by, paired, **chosen)
        return [str(made), made.to_dict()]

    columns = odd(None, ["effective-rank"], ["loss", "seed"], ["model"])
    by = odd(None, ["beta"], ["beta", "seed"], ["model"])
    values = (draw(columns), draw(by), draw(odd(None, None, "beta", "seed")))
    return use, values, draw(options(["seed"]))


def _compare_runs(draw: Any) -> Call:
    some = sorted((family() / "runs").iterdir())
    chosen = {"samples": 20, "control": False, **draw(options(["samples", "seed", "debiased"]))}
    chosen["by"] = draw(odd(None, "seed", ["seed", "beta"]))
    chosen["checkpoints"] = draw(st.sampled_from((False, False, True, None, 3)))
    targets = draw(odd(family(), some, some[:2], some[:1]))
    data = draw(st.sampled_from((None, None, 3, "nonesuch")))
    return experiments.compare_runs, (targets, data), chosen


def _dynamics(draw: Any) -> Call:
    one = min((family() / "runs").iterdir())
    parts = draw(odd("types", ["types", "dimension"], "similarity", None))
    chosen = {"samples": 40, **draw(options(["samples", "seed"]))}
    return experiments.dynamics, (draw(odd(one, str(one))), parts), chosen


def _select(draw: Any) -> Call:
    chosen: dict[str, Any] = {"samples": draw(odd(40, 60)), **draw(options(["seed"]))}
    chosen["rank"] = draw(odd(None, "udr", "distance-to-orthogonality"))
    chosen["scores"] = draw(odd(None, ["mig"], ["mig", "sap"]))
    return experiments.select_models, (draw(odd(family(), family() / "runs")),), chosen


def _sweep(draw: Any) -> Call:
    """Plans of few runs: whatever is not refused is trained."""

    def use(plan: Any, **chosen: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            return len(zs.sweep(plan, Path(folder) / "out", progress=False, **chosen))

    plan: Any = {"train": {**SMALL, "model": "vae", "data": "helix"}, "grid": {"seed": [0, 1]}}
    key = draw(st.sampled_from(("train", "grid", "run", "assay", "nonesuch", "plan", "none")))
    if key == "plan":
        plan = draw(st.sampled_from(ODD))
    elif key in ("train", "grid"):
        field = draw(st.sampled_from((*SMALL, "model", "data", "seed", "rate", "split", "epochs",
                                      "preset", "snapshots", "device", "nonesuch", "options"))
                     )  # fmt: skip
        value = draw(st.sampled_from(ODD))
        if field == "steps" and value in (None, 10**30):  # as many as it takes
            value = 3
        values = [value] if key == "grid" else value
        plan = {**plan, key: {**plan[key], field: values}}
    elif key == "assay":
        wanted = {"names": draw(odd(["effective-rank"])), "samples": draw(odd(20))}
        plan = {**plan, key: wanted}
    elif key != "none":
        plan = {**plan, key: draw(st.sampled_from(ODD))}
    chosen = {"jobs": draw(st.sampled_from((1, 1, 1, 1, 0, -1, "two", 1.5, math.nan)))}
    chosen["runs"] = draw(st.sampled_from((None, None, None, "\0", "/dev/null", 3)))
    chosen["ensemble"] = draw(st.booleans())
    return use, (plan,), chosen


def _elbow(draw: Any) -> Call:
    curves = ({1: 5.0, 2: 1.0, 3: 0.99}, {1: 1.0}, {}, {1: math.nan, 2: 1.0}, {1: math.inf, 2: 0},
              {"a": 1.0, "b": 2.0}, {1: "x"}, {1: None, 2: 1}, {2: 1.0, 1: 3.0, 4: 0.5, 8: 0.5},
              {-1: 1.0, 0: 1e300}, {1: 10**400, 2: 1}, {True: 1.0, 2: 2.0})  # fmt: skip
    curve = draw(st.one_of(st.sampled_from(curves), st.sampled_from(ODD)))
    chosen: dict[str, Any] = {"better": draw(odd("lower", "higher"))}
    chosen["tolerance"] = draw(st.sampled_from((0.02, 0, -1, math.nan, 10**30, "x", None)))
    return experiments.elbow, (curve,), chosen


def _evaluate(draw: Any) -> Call:
    folder, data = perturbed()
    chosen = {"models": draw(odd("vae")), "scores": draw(odd("mig")), "seeds": draw(odd(1)),
              "latents": draw(odd(2, None)), "samples": draw(odd(24))}  # fmt: skip
    chosen["data"] = draw(st.one_of(st.just(data), st.just(data), st.none(), arrays()))
    settings = {**chosen, "steps": 2, "jobs": 1, "progress": False}
    return experiments.evaluate_perturbation, (draw(odd(folder)),), settings


RUNS: dict[str, Callable[[Any], Call]] = {
    "runs": _runs,
    "tables.table": _table,
    "sweep": _sweep,
    "compare_runs": _compare_runs,
    "dynamics": _dynamics,
    "select_models": _select,
    "experiments.elbow": _elbow,
    "experiments.evaluate_perturbation": _evaluate,
}
