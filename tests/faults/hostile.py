"""Hostile arguments for every public function, drawn by hypothesis; what each call did.

    python tests/faults/hostile.py --calls 200 --out api.json [NAME ...]

Allowed: an answer (finite, the same when repeated, within its range) or a `ZscopeError` with who
raises it and what to do. Anything else is a failure: another exception, NaN, a warning, a hang,
memory beyond 4 GB, or a change of the caller's arrays, of the model or of the global random state.
Run by itself, because the shape checks of the tests would answer first.
"""

import argparse
import contextlib
import inspect
import json
import math
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import zscope as zs
from zscope.assays import _FUNCTIONS, CATALOGUE, arguments

SECONDS, BYTES = 60, 4 << 30
OWN_WORDS = re.compile(
    r"unexpected keyword|positional argument|required .*argument|multiple values"
)
WHO = re.compile(r"^[^\n:]{1,80}: \S")  # a dataset may be called "x"


# --- arrays ---------------------------------------------------------------------------------

CONTENTS = (
    "normal", "normal", "normal", "normal", "whole", "constant", "equal rows", "equal columns",
    "one NaN", "one infinity", "all NaN", "nearly constant", "huge whole", "subnormal", "zeros",
    "outlier", "two values", "unequal scales",
)  # fmt: skip
SCALES = (1, 1, 1, 1, 1e-30, 1e-8, 1e8, 1e30, 1e300)
TYPES = (
    "float32", "float32", "float64", "float64", "float16", "int64", "int8", "uint8", "bool",
    "complex128", "object", "str",
)  # fmt: skip
FORMS = (
    "array", "array", "tensor", "tensor", "tensor with gradients", "list", "frame", "columns first",
    "reversed", "broadcast", "read-only", "vector", "three axes", "number", "none", "text",
    "ragged",
)  # fmt: skip
ROWS = (24, 24, 24, 30, 64, 0, 1, 2, 5)
COLUMNS = (3, 3, 2, 1, 5, 0, 40)


@st.composite
def arrays(draw: Any, rows: int | None = None, columns: int | None = None, tame: int = 2) -> Any:
    """A table; of `tame` + 1 draws, `tame` are plain floats."""
    rows = draw(st.sampled_from(ROWS)) if rows is None else rows
    columns = draw(st.sampled_from(COLUMNS)) if columns is None else columns
    seed = draw(st.integers(0, 2**16))
    if draw(st.integers(0, tame)) < tame:
        return np.random.default_rng(seed).standard_normal((rows, columns))
    spec = [draw(st.sampled_from(choices)) for choices in (CONTENTS, SCALES, TYPES, FORMS)]
    with warnings.catch_warnings():  # what NumPy says about making such numbers
        warnings.simplefilter("ignore")
        return make(rows, columns, seed, *spec)


def make(
    rows: int, columns: int, seed: int, content: str, scale: float, dtype: str, form: str
) -> Any:
    return shape(convert(fill(rows, columns, seed, content) * scale, dtype), form)


def fill(rows: int, columns: int, seed: int, content: str) -> np.ndarray:  # noqa: PLR0912
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((rows, columns))
    if content in ("whole", "two values"):
        table = rng.integers(0, 2 if content == "two values" else 5, (rows, columns)).astype(float)
    elif content in ("constant", "zeros"):
        table[:] = 0.3 if content == "constant" else 0
    elif content == "nearly constant":
        table = 1 + 1e-12 * table
    elif content == "huge whole":
        table = np.round(table * 2.0**62)
    elif content == "subnormal":
        table *= 1e-310
    if table.size:
        if content == "equal rows":
            table[:] = table[:1]
        elif content == "equal columns":
            table[:] = table[:, :1]
        elif content == "one NaN":
            table[-1, 0] = np.nan
        elif content == "one infinity":
            table[0, -1] = -np.inf
        elif content == "all NaN":
            table[:] = np.nan
        elif content == "outlier":
            table[0, 0] = 1e12
        elif content == "unequal scales":
            table *= 10.0 ** rng.integers(-20, 20, columns)
    return table


def convert(table: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "str":
        return np.array([[f"v{value:.0f}" for value in row] for row in table], dtype=object)
    if dtype == "complex128":
        return table + 1j * table
    if dtype in ("int64", "int8", "uint8"):
        return np.nan_to_num(table, nan=0, posinf=99, neginf=-99).clip(-1e18, 1e18).astype(dtype)
    return table.astype(dtype)


def shape(table: np.ndarray, form: str) -> Any:  # noqa: PLR0911, PLR0912
    if form.startswith("tensor"):
        if table.dtype == object:
            return table
        tensor = torch.from_numpy(table.copy())
        return tensor.requires_grad_(form != "tensor" and tensor.is_floating_point())
    if form == "list":
        return table.tolist()
    if form == "frame":
        import pandas as pd

        return pd.DataFrame(table, columns=[f"c{k}" for k in range(table.shape[1])])
    if form == "columns first":
        return np.asfortranarray(table)
    if form == "reversed":
        return table[::-1, ::-1]
    if form == "broadcast":
        return np.broadcast_to(table[:1], table.shape) if len(table) else table
    if form == "read-only":
        table.flags.writeable = False
    if form == "vector":
        return table[:, 0] if table.shape[1] else table.ravel()
    if form == "three axes":
        return table[:, :, None]
    if form == "number":
        return 3.5
    if form == "none":
        return None
    if form == "text":
        return "codes.npy"
    if form == "ragged":
        return [[1.0, 2.0], [3.0]]
    return table


# --- models ---------------------------------------------------------------------------------

FAULTS = (
    "", "", "", "", "", "deterministic", "encoder of another size", "decoder of another size",
    "NaN at times", "NaN decoded", "raises", "raises in decode", "double", "half",
    "writes in place", "writes to codes", "noisy", "by batch size", "negative variance",
    "infinite spread",
    "zero spread", "returns tuple", "returns None", "sets the seed", "constant", "ignores all",
    "huge", "tiny", "no batch axis", "training mode",
)  # fmt: skip


class Model(zs.Autoencoder):
    """A linear model with one fault."""

    def __init__(self, fault: str, features: int, latents: int) -> None:
        super().__init__()
        self.fault, self.latents, self.features = fault, latents, features
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(features, latents, generator=generator))
        self.norm = torch.nn.BatchNorm1d(latents)
        self.calls = 0

    def encode(self, x, auxiliary=None):  # noqa: PLR0912
        self.calls += 1
        fault = self.fault
        if fault == "raises":
            raise ValueError("no such thing")
        if fault == "sets the seed":
            torch.manual_seed(0)
        if fault == "writes in place":
            x.mul_(2)
        mean = x.flatten(1).to(self.weight) @ self.weight
        if fault == "training mode":
            self.train()
            mean = self.norm(mean) if len(mean) > 1 else mean
        if fault == "encoder of another size":
            mean = mean[:, :-1]
        if fault == "NaN at times" and self.calls % 3 == 0:
            mean = mean * torch.nan
        if fault == "noisy":
            mean = mean + 0.1 * self.calls
        if fault == "by batch size":
            mean = mean + len(x)
        if fault == "constant":
            mean = torch.zeros_like(mean)
        if fault in ("huge", "tiny"):
            mean = mean * (1e30 if fault == "huge" else 1e-30)
        if fault in ("double", "half"):
            mean = mean.to(torch.float64 if fault == "double" else torch.float16)
        if fault == "no batch axis":
            mean = mean[:1]
        if fault == "returns tuple":
            return mean, mean
        if fault == "returns None":
            return None
        if fault == "deterministic":
            return zs.Posterior(mean)
        std = torch.full_like(mean, 0.2)
        if fault == "negative variance":
            std = -std
        if fault == "infinite spread":
            std = std / 0
        if fault == "zero spread":
            std = std * 0
        return zs.Posterior(mean, std)

    def decode(self, z):
        fault = self.fault
        if fault == "raises in decode":
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
        if fault == "writes to codes":
            z.mul_(0)
        x = z.to(self.weight) @ self.weight.T
        if fault == "decoder of another size":
            x = x[:, :-1]
        if fault == "NaN decoded":
            x = x * torch.nan
        if fault == "ignores all":
            x = x * 0
        return x


@st.composite
def models(draw: Any, features: int = 4, latents: int | None = None) -> zs.Autoencoder:
    if latents is None or draw(st.integers(0, 7)) == 0:
        latents = draw(st.sampled_from((3, 3, 2, 1, 30)))
    model = Model(draw(st.sampled_from(FAULTS)), features, latents)
    return model.train(draw(st.booleans()))


# --- options --------------------------------------------------------------------------------

VALUES = (
    -1, 0, 1, 2, 3, 7, 10**13, 10**30, 0.5, -0.5, 1e-30, 1e30, math.nan, math.inf, True, None, "x",
    "auto", "", [], [0], [0, 1], [0, 0], [99], [-1], (0, 1), (1, 1), {}, [[0], [1, 2]], [[0, 1, 2]],
    b"x", 2 + 1j, "0.5",
)  # fmt: skip
USUAL = {"samples": 16, "permutations": 4, "interventions": 2, "grid": 4, "decode_grid": 3,
         "score_grid": 3, "frames": 3, "draws": 2, "steps": 6, "penalties": 1}  # fmt: skip
SEED = ("seed",)


@st.composite
def options(draw: Any, names: list[str], most: int = 1) -> dict[str, Any]:
    """Few draws, so that a call is quick; at times one value that makes no sense."""
    chosen = {name: USUAL[name] for name in names if name in USUAL}
    if names and draw(st.integers(0, 2)) == 0:
        for _ in range(most):
            chosen[draw(st.sampled_from(names))] = draw(st.sampled_from(VALUES))
    return chosen


# --- calls ----------------------------------------------------------------------------------

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@st.composite
def tables(draw: Any, tame: int = 2) -> tuple[Any, Any, Any]:
    """Codes, factors and variances, mostly of the same rows."""
    rows = draw(st.sampled_from(ROWS))
    latents = draw(st.sampled_from(COLUMNS))
    codes = draw(arrays(rows, latents, tame))
    if isinstance(codes, np.ndarray) and codes.dtype == np.float64 and draw(st.booleans()):
        codes[:, :1] += 3 * (np.arange(len(codes)) % 3)[:, None]  # tells about the first factor
    other = draw(st.sampled_from((rows,) * 8 + ROWS))
    factors = np.stack([np.arange(other) % 3, np.arange(other) // 3 % 4], 1)
    if draw(st.integers(0, tame)) == 0:
        factors = draw(arrays(other, draw(st.sampled_from((2, 1, 3, 0))), 0))
    variances = None
    if draw(st.booleans()):
        variances = draw(arrays(rows, latents, tame + 2))
        if isinstance(variances, np.ndarray) and variances.dtype == np.float64:
            variances = 0.1 + np.abs(variances)
    return codes, factors, variances


@st.composite
def recordings(draw: Any) -> zs.Recording:
    """One that could be made."""
    if draw(st.booleans()):
        model = draw(models())
        if draw(st.integers(0, 9)) == 0:
            data = zs.data.from_arrays(np.random.default_rng(0).random((24, 4), np.float32))
            model = zs.models.build("xvae", shape=(4,), latents=3, hidden=(4,))
        else:
            data = draw(datasets())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return zs.record(model, data, samples=draw(st.sampled_from((10_000, 12, 1))))
    codes, factors, variances = draw(tables())
    return zs.Recording.from_arrays(codes, factors, variances=variances)


def healthy(block: bool, deterministic: bool) -> zs.Recording:
    """One that every assay can answer, but for those that need a spread."""
    rows = np.arange(96)
    factors = np.stack([rows % 3, rows // 3 % 4], 1)
    noise = np.random.default_rng(0).standard_normal((96, 4))
    x = np.column_stack([factors, factors[:, ::-1]]) @ np.diag([1, 1, 0.1, 0.1]) + 0.1 * noise
    data = zs.data.from_arrays(x.astype(np.float32), factors)
    model: Any = Model("deterministic" if deterministic else "", 4, 2)
    if block:
        model = zs.models.build("xvae", shape=(4,), latents=3, hidden=(4,))
    else:
        model.weight.data = torch.eye(4)[:, :2].contiguous()
    return zs.record(model, data)


@st.composite
def datasets(draw: Any) -> Any:
    rows = draw(st.sampled_from(ROWS))
    factors = np.stack([np.arange(rows) % 3, np.arange(rows) // 3 % 4], 1)
    return zs.data.from_arrays(draw(arrays(rows, 4, 5)), factors)


@st.composite
def assay_calls(draw: Any, name: str) -> Call:
    entry = CATALOGUE[name]
    function = entry.load()
    names = arguments.option_names(entry)
    if not entry.compares and draw(st.integers(0, 7)) == 0:
        chosen = {option: USUAL[option] for option in names if option in USUAL}
        return function, (healthy("causal block" in entry.needs, draw(st.booleans())),), chosen
    chosen = draw(options(names))
    if entry.compares:
        return function, draw(compared(name)), chosen
    if draw(st.booleans()):
        return function, (draw(recordings()),), chosen
    codes, factors, variances = draw(tables())
    columns = np.shape(codes)[1] if np.ndim(codes) == 2 and np.shape(codes)[1] else None  # type: ignore[arg-type]
    parts = arguments._places(inspect.signature(function), entry)
    makers: dict[str, Callable[[], Any]] = {
        "codes": lambda: codes,
        "recording": lambda: draw(st.sampled_from((posterior(codes, variances), codes))),
        "recording_or_codes": lambda: codes,
        "posterior": lambda: posterior(codes, variances),
        "relative": lambda: posterior(codes, variances),
        "factors": lambda: factors,
        "variances": lambda: variances,
        "usage": lambda: variances,
        "autoencoder": lambda: draw(models(latents=columns)),
        "decoder": lambda: draw(models(latents=columns)),
        "observations": lambda: draw(arrays(len(codes) if columns else None, 4)),
        "data": lambda: draw(datasets()),
        "start_code": lambda: draw(arrays(1, 3)),
        "end_code": lambda: draw(arrays(1, 3)),
        "base": lambda: draw(arrays(1, 3)),
        "some_codes": lambda: codes,
        "plane": lambda: draw(st.sampled_from(((0, 1), (1, 0), (0, 0), (0, 9), "x", None))),
    }
    places = {place: makers[part]() for place, part in parts.items() if part in makers}
    return function, (), {**places, **chosen}


def posterior(mean: Any, variance: Any) -> Any:
    """May raise, as the user's own call would."""
    if variance is None:
        return zs.Posterior(mean)
    return zs.Posterior(mean, np.sqrt(variance) if isinstance(variance, np.ndarray) else variance)


@st.composite
def compared(draw: Any, name: str) -> tuple[Any, ...]:
    rows = draw(st.sampled_from(ROWS))
    if name == "udr" and draw(st.booleans()):
        same = np.random.default_rng(rows).standard_normal((rows, 3))
        return ([same, same[:, ::-1] * draw(st.sampled_from(SCALES)), same + 1],)
    pair = [draw(arrays(rows)), draw(arrays(draw(st.sampled_from((rows,) * 5 + ROWS))))]
    if name != "similarity-heatmap" and draw(st.integers(0, 3)) == 0:
        pair = [zs.Recording.from_arrays(each) for each in pair]
    if name == "similarity-heatmap":
        return {"a": pair[0], "b": pair[1]}, {"a": pair[1]}
    return (pair,) if name == "udr" else tuple(pair)


def evaluation(value: Any) -> Callable[[Any], Any]:
    return lambda latents: value


@st.composite
def function_calls(draw: Any, name: str) -> Call:
    """The public functions of zs.assays that are no assays of one recording."""
    function = getattr(zs.assays, name)
    some, rows = arrays(tame=1), draw(st.sampled_from(ROWS))
    x, y = draw(arrays(rows, tame=1)), draw(arrays(rows, tame=1))
    first: dict[str, Callable[[], tuple[Any, ...]]] = {
        "activations": lambda: (draw(models()), draw(arrays(rows, 4, 1))),
        "carried_information": lambda: (posterior(x, draw(st.sampled_from((None, x, y)))),),
        "column_product": lambda: (x,),
        "correlation_tracking": lambda: ([x, y],),
        "decoder_jacobian": lambda: (draw(models(latents=3)), draw(arrays(2, 3, 1))),
        "gaussian_kl": lambda: (x, y),
        "hole_score": lambda: (draw(models(latents=3)), draw(arrays(5, 3)), draw(arrays(24, 3))),
        "information_gap": lambda: (x, y, draw(some)),
        "nearest_neighbours": lambda: (x, draw(st.sampled_from((3, 20, 0, -1, 2.5, "x")))),
        "nearest_signed_permutation": lambda: (
            draw(st.sampled_from((np.ones((2, 3, 3)), np.eye(3), np.full((1, 2, 2), np.nan), x))),
        ),
        "pair_traversal": lambda: (
            draw(models(latents=3)), draw(arrays(24, 3, 1)),
            draw(st.sampled_from(((0, 1), (0, 0), (0, 9)))),
        ),
        "renyi_entropy": lambda: (x,),
        "respond": lambda: (draw(models(latents=3)), draw(arrays(5, 3, 1))),
        "respond_posterior": lambda: (draw(models(latents=3)), draw(arrays(5, 3, 1))),
        "rotation_excess": lambda: (x,),
        "settled_fraction": lambda: (draw(st.sampled_from(([0.1, 0.0], [], [math.nan], x, "x"))),),
        "variable_types_by_kl": lambda: (x,),
    }  # fmt: skip
    named = [each for each in inspect.signature(function).parameters if each not in
             ("generator", "extractor", "auxiliary", "source", "name")]  # fmt: skip
    chosen = draw(options([each for each in named if each in OPTIONS]))
    if name in SEARCHES:
        return function, SEARCHES[name](draw), chosen
    values = first.get(name, lambda: (x, y))()
    if name == "nearest_neighbours" and draw(st.integers(0, 3)) == 0:
        values = draw(arrays(24, 3, 9)), 3
    if name == "rotation_excess":
        chosen.setdefault("beta", 1.0)
    return function, values, chosen


OPTIONS = {
    "variance", "biased", "permutations", "tolerance", "order", "batch", "bandwidth", "neighbours",
    "alpha", "margin", "limit", "threshold", "start", "low", "high", "keep", "steps", "rounds",
    "reach", "samples", "quantile", "method", "debiased", "decode", "beta", "learn_mean",
}  # fmt: skip
GAPS = (0.0, 5.0, -1.0, math.nan, math.inf, None, "x", (1.0, 0.0))


def _searching(draw: Any) -> tuple[Any, ...]:
    types = zs.assays.variable_types(np.array([[0.1, 1.0]] * 9))
    gap = draw(st.sampled_from((types, *GAPS)))
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return (lambda latents: (latents > 4) * 9.0,)
    return (evaluation(gap),) if kind == 1 else (draw(st.sampled_from((None, "x", 3))),)


def found() -> Any:
    return zs.assays.fondue(lambda latents: (latents > 4) * 9.0, start=2)


def _repeated(draw: Any) -> tuple[Any, ...]:
    return (
        evaluation(draw(st.sampled_from((found(), found(), *GAPS)))),
        draw(st.sampled_from(([0, 1], [], None, "x"))),
    )


SEARCHES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    **dict.fromkeys(("fondue", "binary_fondue", "fondue_beta", "fondue_types"), _searching),
    "stable_fondue": lambda draw: (evaluation(draw(st.sampled_from((found(), *GAPS)))),),
    "repeat_fondue": _repeated,
}
CLASSES = {"StreamingCKA", "VarianceMoments"}


@st.composite
def other_calls(draw: Any, name: str) -> Call:
    """Everything else of design.md."""
    return OTHERS[name](draw)


def _posterior(draw: Any) -> Call:
    rows, latents = draw(st.sampled_from(ROWS)), draw(st.sampled_from(COLUMNS))
    mean, spread = draw(arrays(rows, latents, 1)), draw(arrays(rows, latents, 1))

    def use(*values: Any, **parts: Any) -> Any:
        made = zs.Posterior(*values, **parts)
        drawn = made.sample(torch.Generator().manual_seed(0))
        # It holds what it was given, also infinity and NaN, which `record` and the assays refuse.
        given_ = [each for each in (made.mean, made.std, made.scale_tril) if each is not None]
        finite = all(bool(each.isfinite().all()) for each in given_)
        return [repr(made), len(made), *((made.variance, drawn) if finite else ())]

    if draw(st.integers(0, 4)) == 0:
        return use, (mean,), {"scale_tril": draw(arrays(rows, latents, 0))}
    return use, (mean, spread)[: draw(st.sampled_from((1, 2)))], {}


def _wrap(draw: Any) -> Call:
    model = draw(models())
    outputs = draw(st.sampled_from(("posterior", "mean", "tuple", "dict", "none")))

    def encoder(x: Any) -> Any:
        q = model.encode(x)
        mean = getattr(q, "mean", q)
        kinds = {"posterior": q, "mean": mean, "none": None, "dict": {"latent": mean}}
        return kinds[outputs] if outputs != "tuple" else (mean, mean)

    def use(*values: Any, **chosen: Any) -> Any:
        made = zs.wrap(*values, **chosen)
        return made.encode(torch.zeros(5, 4)).mean

    odd = draw(st.sampled_from((None,) * 6 + ("x", 3)))
    chosen = draw(options(["latents", "prior", "example"]))
    return use, (odd or encoder, model.decode), chosen


def _record(draw: Any) -> Call:
    chosen = draw(options(["samples", "seed"]))
    data = draw(st.one_of(arrays(None, 4, 2), datasets()))
    return zs.record, (draw(models()), data), chosen


def _from_arrays(draw: Any) -> Call:
    codes, factors, variances = draw(tables(1))
    chosen = draw(options(["kinds", "names", "labels", "seed"]))
    return zs.Recording.from_arrays, (codes, factors), {"variances": variances, **chosen}


def _assay(draw: Any) -> Call:
    names = draw(st.lists(st.sampled_from(QUICK), min_size=1, max_size=3))
    odd = (None, {}, {"mig": 3}, {"mig": {"x": 1}}, {"effective-rank": {}}, "x", [1], {"x": {}})
    chosen: dict[str, Any] = {"names": names, "progress": False}
    if draw(st.integers(0, 3)) == 0:
        chosen["options"] = draw(st.sampled_from(odd))
    if draw(st.integers(0, 5)) == 0:
        chosen["names"] = draw(st.sampled_from(("x", [], "", ["mig", "mig"], [3], 3, "regime")))
    chosen |= draw(options(["samples", "resamples", "seed"]))
    chosen.pop("samples", None) if draw(st.booleans()) else None
    if draw(st.booleans()):
        return zs.assay, (draw(recordings()),), chosen
    return zs.assay, (draw(models()), draw(arrays(None, 4, 3))), chosen


QUICK = ["mig", "effective-rank", "variable-types", "response-matrix", "intrinsic-dimension",
         "latent-divergence", "total-correlation", "jemmig", "feature-effects"]  # fmt: skip


def _save(draw: Any) -> Call:
    path = draw(st.sampled_from(("r.json", "r.csv", "r.tex", "r", "r.xyz", "no/r.csv", "", "a" * 300
                                 + ".csv", "\0.csv", "r.parquet", ".csv")))  # fmt: skip
    codes, factors, _ = draw(tables())
    recording = zs.Recording.from_arrays(codes, factors)

    def use(name: str) -> Any:
        report = zs.assay(recording, names=["effective-rank", "mig"], progress=False)
        with tempfile.TemporaryDirectory() as folder:
            return report.save(Path(folder) / name).name

    return use, (path,), {}


def _sampling(name: str) -> Callable[[Any], Call]:
    def make_call(draw: Any) -> Call:
        function = getattr(zs.sampling, name)
        samples = draw(st.sampled_from((5, 5, 5, *VALUES)))
        codes = draw(arrays(tame=1))
        if name == "prior":
            return function, (draw(st.one_of(models(), st.sampled_from(VALUES))), samples), {}
        if name == "posterior" or draw(st.integers(0, 3)) == 0:
            codes = posterior(codes, None)
        if draw(st.integers(0, 3)) == 0:
            return function, (zs.Posterior(np.eye(3)), 5), {}
        extra = ["groups", "store", "base", "vary"] if name == "hybrid" else []
        return function, (codes, samples), draw(options(extra))

    return make_call


def _linear_vae(draw: Any) -> Call:
    chosen = draw(options(["bias", "beta", "diagonal"]))
    gamma = draw(st.sampled_from((0.5, 0.5, 0.5, *VALUES)))

    def use(weights: Any, **chosen: Any) -> Any:
        return zs.theory.linear_vae(weights, **chosen).variance

    return use, (draw(arrays(5, 3, 2)),), {"gamma": gamma, **chosen}


def _prune(draw: Any) -> Call:
    keep = draw(st.sampled_from(([0], [0, 1], [], [0, 0], [99], [-1], "x", None, 3, [0.5], ["a"])))

    def use(model: Any, keep: Any, **chosen: Any) -> Any:
        return zs.prune(model, keep, **chosen).latents

    return use, (draw(models()), keep), draw(options(["fill"]))


def _rotate(draw: Any) -> Call:
    U = draw(st.one_of(arrays(3, 3, 0), st.just(torch.eye(3)), st.just(np.eye(3))))

    def use(*values: Any, **chosen: Any) -> Any:
        return zs.rotate_latents(*values, **chosen).latents

    return use, (draw(models()), U), draw(options(["diagonal"]))


def _dataset(draw: Any) -> Call:
    rows = draw(st.sampled_from(ROWS))
    factors = draw(st.one_of(st.none(), arrays(rows, 2, 1)))
    chosen = draw(options(["factor_names", "factor_kinds", "feature_names", "name"]))

    def use(*values: Any, **chosen: Any) -> Any:
        made = zs.data.from_arrays(*values, **chosen)
        return [len(made), made.shape, made.batch(slice(0, 2))]

    return use, (draw(arrays(rows, 4, 1)), factors), chosen


def _build(draw: Any) -> Call:
    name = draw(st.sampled_from((*zs.models.names(), "vae", "x", "", None, 3)))
    shape = draw(st.sampled_from(((4,), (4,), (4,), (1, 8, 8), (0,), (-1,), (), (4, 4), "x", None,
                                  (10**13,), (2.5,))))  # fmt: skip
    latents = draw(st.sampled_from((2, 3, 3, *VALUES)))
    known = ["hidden", "beta", "activation", "likelihood", "posterior", "gamma", "seed", "weights"]

    def use(name: Any, **chosen: Any) -> Any:
        return zs.models.build(name, **chosen).latents

    return use, (name,), {"shape": shape, "latents": latents, **draw(options(known))}


def _train(draw: Any) -> Call:
    name = draw(st.sampled_from(("vae", "ae", "beta-vae", "dip-vae-i")))
    data = draw(arrays(draw(st.sampled_from((24, 24, 5, 1, 0))), 4, 2))
    known = ["steps", "batch", "rate", "seed", "clip", "warmup", "log_every"]
    chosen = {"steps": 2, "batch": 8, "progress": False, **draw(options(known))}
    chosen["steps"] = 2 if chosen["steps"] in (10**13, 10**30, 1e30) else chosen["steps"]

    def use(data: Any, **chosen: Any) -> Any:
        model = zs.models.build(name, shape=(4,), latents=2, hidden=(4,))
        return len(zs.train(model, data, **chosen).history)

    return use, (data,), chosen


def _ensemble(draw: Any) -> Call:
    data = draw(arrays(draw(st.sampled_from((24, 24, 5, 1, 0))), 4, 2))
    seeds = draw(st.sampled_from(([0, 1], [0], [], [0, 0], [-1], ["x"], None, 3, [math.nan])))

    def use(data: Any, **chosen: Any) -> Any:
        def build(seed: Any) -> Any:
            return zs.models.build("vae", shape=(4,), latents=2, hidden=(4,), seed=seed)

        return len(zs.train_ensemble(build, data, **chosen))

    known = ["batch", "rate"]
    return use, (data,), {"seeds": seeds, "steps": 2, "batch": 8, **draw(options(known))}


def _compare(draw: Any) -> Call:
    chosen = {"samples": 20, "control": False, "extractor": None}
    chosen |= draw(options(["samples", "seed", "debiased", "control"]))
    data = draw(arrays(draw(st.sampled_from((24, 24, 24, 5, 1, 0))), 4, 3))
    return zs.compare, (draw(models()), draw(models()), data), chosen


def _perturb(draw: Any) -> Call:
    tiny = {"epsilon": 0.1, "restarts": 1, "steps": 1, "rounds": 1, "batch": 8, "progress": False}
    chosen = {
        **tiny,
        "latents": 2,
        **draw(options(["epsilon", "latents", "pairs", "seed", "rate"])),
    }

    def use(data: Any, **chosen: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            made = zs.perturb(data, out=Path(folder) / "out", **chosen)
        return [made.scores, made.largest]

    kind = draw(st.integers(0, 9))
    if kind == 0:  # two factors as the coordinates of a point in a square
        points = np.stack([np.arange(24) % 4, np.arange(24) // 4], 1)
        noise = np.random.default_rng(0).random((24, 2))
        data = zs.data.from_arrays(np.hstack([points / 6, noise]).astype(np.float32), points)
    else:
        data = draw(st.one_of(datasets(), arrays(None, 4, 1)))
    if kind <= 1:
        chosen = {**chosen, "restarts": 2, "steps": 2, "options": {"hidden": (4,)}}
    return use, (data,), chosen


def _search(draw: Any) -> Call:
    tiny = {"steps": 2, "limit": 2, "seeds": 1, "batch": 8, "start": 1}
    chosen = {**tiny, **draw(options(["start", "threshold", "seed", "samples", "rate", "latents"]))}
    chosen["steps"] = 2
    return zs.fondue, (draw(arrays(draw(st.sampled_from((24, 24, 5, 1, 0))), 4, 1)),), chosen


OTHERS: dict[str, Callable[[Any], Call]] = {
    "Posterior": _posterior,
    "wrap": _wrap,
    "record": _record,
    "Recording.from_arrays": _from_arrays,
    "assay": _assay,
    "Report.save": _save,
    **{f"sampling.{n}": _sampling(n) for n in ("prior", "posterior", "hybrid", "uniform")},
    "theory.linear_vae": _linear_vae,
    "prune": _prune,
    "rotate_latents": _rotate,
    "data.from_arrays": _dataset,
    "models.build": _build,
    "train": _train,
    "train_ensemble": _ensemble,
    "compare": _compare,
    "fondue": _search,
    "perturb": _perturb,
}


def callables() -> dict[str, st.SearchStrategy[Call]]:
    """Every public callable by its name, with its calls."""
    functions = [name for name in _FUNCTIONS if name not in CLASSES]
    return {
        **{f"assays.{name.replace('-', '_')}": assay_calls(name) for name in CATALOGUE},
        **{f"assays.{name}": function_calls(name) for name in functions},
        **{name: other_calls(name) for name in OTHERS},
    }


# --- outcomes -------------------------------------------------------------------------------


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
