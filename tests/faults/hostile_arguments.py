"""Hostile arrays, models, options and recordings, drawn by hypothesis."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

import zscope as zs
from zscope.data.dataset import Dataset

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


class MapModel(Model):
    """The same of pictures, with latents that are maps of the same shape."""

    def __init__(self, fault: str, shape: tuple[int, ...]) -> None:
        size = int(np.prod(shape))
        super().__init__(fault, size, size)
        self.shape = shape
        self.weight.data = torch.eye(size) + 0.1 * self.weight.data / size**0.5
        self.layout = zs.Layout(shape[0], shape[1:])

    def decode(self, z):
        x = super().decode(z)
        return x.reshape(-1, *self.shape) if x.shape[1] == self.features else x


SHAPES = ((2, 4, 4), (2, 4, 4), (1, 8, 4), (2, 8), (1, 2, 4, 4), (3, 1, 2))


@st.composite
def map_recordings(draw: Any) -> zs.Recording:
    """Of a model with a fault, or of arrays; latents with channels and places."""
    shape, rows = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(ROWS))
    x = draw(arrays(rows, int(np.prod(shape)), 3))
    layout = zs.Layout(shape[0], shape[1:])
    if draw(st.booleans()):
        spread = draw(st.sampled_from((None, 0.0, 0.1, 1e30)))
        variances = None if spread is None else np.full((rows, layout.latents), spread)
        return zs.Recording.from_arrays(x, variances=variances, layout=layout)
    table = np.asarray(x, np.float32).reshape(-1, *shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MapModel(draw(st.sampled_from(FAULTS)), shape)
        return zs.record(model, Dataset("maps", table))


def healthy_maps(deterministic: bool) -> zs.Recording:
    """One that every assay of maps can answer."""
    x = np.random.default_rng(0).standard_normal((24, 2, 8, 8)).astype(np.float32)
    return zs.record(MapModel("deterministic" if deterministic else "", (2, 8, 8)), x)


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
