"""Golden values: every assay, loss and comparison on small models that never change.

    python tests/golden.py      # measures them again, prints what changed, writes golden.json

A change of a number is a decision: record it in CHANGELOG.md, with the line that this prints.
`test_golden.py` compares.

Weights are cosines and data come from NumPy's PCG64, so that nothing here is trained.
"""

import functools
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import zscope as zs
from zscope.assays import run
from zscope.results import plain

FILE = Path(__file__).parent / "reference" / "golden.json"
CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
COMMAND = "python tests/golden.py"
SEED, SAMPLES, RESAMPLES = 3, 100, 2
QUICKER: dict[str, dict[str, Any]] = {
    "structure-score": {"samples": 256, "permutations": 20},
    "causal-structure-score": {"samples": 256, "permutations": 20},
    "type-probe": {"penalties": 1},
    "independence": {"samples": 256, "permutations": 20},
    "ima-curve": {"samples": 4, "draws": 200, "noise": 8},
}
SHORT = 12
"""Arrays with more numbers are summarised."""

TOLERANCE = 1e-4
"""Relative to the largest number of the same array. Other instruction sets (PyTorch's default and
AVX2, OpenBLAS's of 2008 and 2013, MKL's most compatible) change the numbers by at most 7e-6, and
weights that differ by 1e-7 by at most 1.1e-5, those of trees and regressions included; but for:"""
LOOSER = {
    # What is left of an iteration in single precision when it stops: 3e-2, 8e-4.
    "drift.spread": 0.2,
    "drift.passes": 5e-3,
}


class Curved(zs.Autoencoder):
    """Four latents of which the decoder uses three, bent; the encoder is nearly its inverse."""

    latents = 4
    likelihood_name = None

    def __init__(self, spread: bool = True, features: int = 6) -> None:
        super().__init__()
        self.spread = spread
        self.weight = torch.nn.Parameter(waves(3, features, phase=1.0))
        self.back = torch.nn.Parameter(torch.linalg.pinv(self.weight.detach()))

    def encode(self, x, auxiliary=None):
        codes = x @ self.back
        mean = torch.cat([codes, 0.02 * x[:, :1]], 1)
        if not self.spread:
            return zs.Posterior(mean)
        width = torch.tensor([0.1, 0.2, 0.4, 0.98]) * (1 + 0.1 * codes[:, :1].tanh())
        return zs.Posterior(mean, width)

    def decode(self, z):
        flat = z[:, :3] @ self.weight
        return flat + 0.2 * flat.sin()


class Plain(Curved):
    """The same without a spread and without a prior."""

    prior = None

    def __init__(self) -> None:
        super().__init__(spread=False)


class Counts(Curved):
    """The same with a likelihood of its own."""

    likelihood_name = "laplace"

    def negative_log_likelihood(self, z, x):
        return (self.decode(z) - x).abs().sum(1) + x.shape[1] * math.log(2)


class Conditional(Curved):
    """The encoder and the prior know the factors."""

    prior = None
    needs_auxiliary = True

    def encode(self, x, auxiliary):
        plain = super().encode(x)
        return zs.Posterior(plain.mean + 0.1 * auxiliary[:, :1], plain.std)

    def prior_given(self, auxiliary):
        mean = 0.3 * auxiliary[:, :1].expand(-1, self.latents)
        return zs.Posterior(mean, torch.ones_like(mean))


class Maps(zs.Autoencoder):
    """Two channels with a place for each four pixels; the encoder is not quite linear."""

    prior = "normal"
    layout = zs.Layout(2, (4, 4))
    latents = 32

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(waves(2, 1, 3, 3, phase=1.0))
        self.back = torch.nn.Parameter(waves(2, 1, 4, 4, phase=2.0))

    def encode(self, x, auxiliary=None):
        maps = F.conv2d(x, self.weight, stride=2, padding=1)
        spread = 0.1 + 0.05 * maps.tanh().square()
        return zs.Posterior(
            (maps + 0.2 * maps.sin()).flatten(1), spread.flatten(1), layout=self.layout
        )

    def decode(self, z):
        return F.conv_transpose2d(self.layout.view(z), self.back, stride=2, padding=1).sigmoid()


def waves(*shape: int, phase: float = 0.0) -> torch.Tensor:
    """Cosines of squares, so that a matrix has full rank; the scale of a usual initialisation."""
    values = np.cos(1.7 * np.arange(math.prod(shape)) ** 2 + phase) * math.sqrt(
        2 / (shape or (1,))[-1]
    )
    return torch.from_numpy(values.astype(np.float32)).reshape(shape)


def with_waves(model: zs.Autoencoder) -> zs.Autoencoder:
    """The model with weights in closed form; drawn ones could change with PyTorch."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(waves(*parameter.shape, phase=float(number)))
    return model


def built(name: str, data: zs.Dataset, **options: Any) -> zs.Autoencoder:
    sizes = {"latents": 4, "backbone": "mlp", "hidden": (8,), "activation": "tanh"}
    return with_waves(zs.models.build_for(name, data, **{**sizes, **options}))


@functools.cache
def table() -> zs.Dataset:
    """Six features bent from three factors on a grid."""
    rng = np.random.default_rng(11)
    rows = np.arange(240)
    factors = np.stack([rows % 5, rows // 5 % 3, rows // 15 % 4], 1)
    scaled = (factors - factors.mean(0)) / factors.std(0)
    flat = torch.from_numpy(scaled.astype(np.float32)) @ waves(3, 6, phase=1.0)
    x = flat + 0.2 * flat.sin() + 0.05 * torch.from_numpy(rng.standard_normal((240, 6))).float()
    kinds = ("ordinal", "categorical", "ordinal")
    return zs.data.from_arrays(x.numpy(), factors, factor_kinds=kinds)


@functools.cache
def pictures() -> zs.Dataset:
    return zs.data.load("digits").subset(np.arange(0, 1797, 8))


@functools.cache
def bare() -> zs.Recording:
    """Codes and factors of all kinds, no model: one latent mixes two factors."""
    rng = np.random.default_rng(12)
    factors = np.stack(
        [rng.integers(0, 4, 150), rng.integers(0, 2, 150), rng.standard_normal(150)], 1
    )
    mix = np.array([[1.0, 0.1, 0.0, 0.4], [0.0, 2.0, 0.3, 0.5], [0.1, 0.0, 1.0, 0.5]])
    codes = factors @ mix + 0.2 * rng.standard_normal((150, 4))
    kinds = ("ordinal", "categorical", "continuous")
    return zs.Recording.from_arrays(codes, factors, kinds=kinds, seed=SEED)


MODELS = {
    "vae": lambda: (Curved(), table()),
    "ae": lambda: (Plain(), table()),
    "own likelihood": lambda: (Counts(), table()),
    "conditional": lambda: (Conditional(), table()),
    "causal block": lambda: (built("xvae", table(), latents=3), table()),
    "pictures": lambda: (built("vae", pictures(), latents=3), pictures()),
}
# All assays of the first; of the others those that treat them in another way.
RESPONSES = ["response-matrix", "structure-score", "holes", "interventional-consistency"]
NAMES = {
    "ae": [*RESPONSES, "distance-to-orthogonality", "mig", "sample-quality", "effective-rank"],
    "own likelihood": ["rate-distortion", "loss-decomposition"],
    "conditional": [
        "variable-types",
        "latent-histograms",
        "latent-divergence",
        "rate-distortion",
        "trace-gap",
        "sap",
    ],
    "causal block": ["masks", "response-matrix", "causal-structure-score"],
    "pictures": [*RESPONSES, "hybridisation", "nonlinear-eigenfaces", "polarisation"],
    "bare": ["disentanglement", "intrinsic-dimension", "total-correlation", "effective-rank"],
}


def measure() -> Iterator[tuple[str, Any]]:
    """(where the number is from, a result as plain values), for all of them."""
    for world, make in MODELS.items():
        model, data = make()
        names = NAMES.get(world)
        usual = [name for name in QUICKER if not zs.assays.CATALOGUE[name].on_request]
        options = {name: QUICKER[name] for name in usual if names is None or name in names}
        report = zs.assay(
            model, data, names=names, options=options, samples=SAMPLES, resamples=RESAMPLES,
            seed=SEED, progress=False,
        )  # fmt: skip
        yield from results_of(world, report)
    on_request = [name for name, entry in zs.assays.CATALOGUE.items() if entry.on_request]
    report = zs.assay(
        *MODELS["vae"](), names=on_request, samples=SAMPLES, seed=SEED, progress=False,
        options={name: QUICKER[name] for name in on_request if name in QUICKER},
    )  # fmt: skip
    yield from results_of("vae", report)
    maps = zs.record(Maps(), pictures(), samples=SAMPLES, seed=SEED)
    outcome = run.measure(maps, ["diffusion"], resamples=RESAMPLES)
    yield from results_of("maps", outcome)
    report = zs.assay(bare(), names=NAMES["bare"], resamples=RESAMPLES, progress=False)
    yield from results_of("bare", report)
    vae, other = Curved(), built("vae", table())
    pair = zs.compare(vae, other, table(), samples=SAMPLES, seed=SEED)
    assert not pair.failed, pair.failed
    for name, result in pair.latents.items():
        yield f"compare: {name}", numbers_of(result)
    # Layers of deterministic models: the noise of others depends on the last bit of their means.
    pair = zs.compare(Plain(), built("ae", table()), table(), samples=SAMPLES, seed=SEED)
    yield "compare: similarity-heatmap", pair.heatmap.to_dict()
    codes = [zs.record(model, table(), seed=SEED) for model in (vae, other, Plain())]
    yield "compare: udr of three", numbers_of(zs.assays.udr(codes))
    yield from losses()


OPTIONS = {"factor-vae": {"discriminator": (8, 8)}, "classifier": {"latents": 5}}


def losses() -> Iterator[tuple[str, Any]]:
    """The losses of every model of the catalogue on one batch."""
    data = table()
    x = data.batch(slice(0, 16))
    given = {
        "step": 5,
        "samples": len(data),
        "factors": torch.from_numpy(np.asarray(data.factors[:16])).float(),
        "partner": data.batch(slice(16, 32)),
    }
    waving = (torch.arange(16 * 64).reshape(16, 1, 8, 8) * 0.37).sin() / 2 + 0.5
    for name in zs.models.names():
        if name == "spatial-vae":
            model = with_waves(zs.models.build(name, shape=(1, 8, 8), channels=2, filters=16))
        else:
            model = built(name, data, **OPTIONS.get(name, {}))
        extras = {need: given[need] for need in sorted(model.needs)}
        observed = waving if name == "spatial-vae" else x
        batch = model.losses(observed, torch.Generator().manual_seed(SEED), **extras)
        values = {"total": batch.total, **batch.terms}
        values |= {} if batch.opponent is None else {"opponent": batch.opponent}
        yield f"losses: {name}", {term: value.item() for term, value in values.items()}


def results_of(world: str, report: zs.Report | run.Measurements) -> Iterator[tuple[str, Any]]:
    assert not report.failed, {name: each.traceback for name, each in report.failed.items()}
    for name, result in report.results.items():
        yield f"{world}: {name}", numbers_of(result)


def numbers_of(result: Any) -> dict[str, Any]:
    """The fields of a result and all its scores with intervals and chance levels."""
    scores = {each.name or "score": each.to_dict() for each in result.measures()}
    return {**result.to_dict(), "measures": scores}


def flatten(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """(place, number), (place, None) or (place, short list of numbers); texts are left out.

    A long array is summarised by its mean, its root mean square and its mean weighted with
    cosines, which depends on the order.
    """
    array = as_array(value)
    if array is not None and array.size > SHORT:
        flat = array.astype(float).ravel()
        weighted = float((flat * np.cos(np.arange(flat.size))).mean())
        size = " x ".join(map(str, array.shape))
        yield (
            f"{place} ({size}: mean, root mean square, weighted mean)",
            [float(flat.mean()), float(np.sqrt((flat**2).mean())), weighted],
        )
    elif array is not None and array.ndim:
        yield place, array.tolist() if array.ndim == 1 else array.ravel().tolist()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from flatten(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from flatten(item, f"{place}[{index}]")
    elif not isinstance(value, str):
        yield place, value


def as_array(value: Any) -> np.ndarray | None:
    """A number or a full table of numbers as an array; anything else is None."""
    try:
        array = np.array(value)
    except ValueError:  # rows of different lengths
        return None
    return array if array.dtype.kind in "biuf" and array.size else None


def golden() -> dict[str, dict[str, Any]]:
    """Where -> place -> number, everything that golden.json holds; to eight digits."""

    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(item) for item in value]
        return float(f"{value:.8g}") if isinstance(value, float) else value

    return {
        where: {place: short(value) for place, value in flatten(plain(result))}
        for where, result in measure()
    }


def tolerance(where: str, place: str) -> float:
    """The relative tolerance of a number."""
    field = place.partition(" (")[0]
    return LOOSER.get(f"{where.partition(': ')[2]}.{field}", TOLERANCE)


def same(new: Any, old: Any, within: float) -> bool:
    """Whether numbers agree; whole numbers exactly, others relative to the largest."""
    one, two = as_array(new), as_array(old)
    if one is None or two is None:
        return bool(new == old)
    if one.shape != two.shape or (one.dtype.kind == "f") != (two.dtype.kind == "f"):
        return False
    if one.dtype.kind != "f":
        return bool((one == two).all())
    scale = float(np.abs(two).max())
    return bool((np.abs(one - two) <= within * max(scale, 1e-6)).all())


def changes(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """One line for each number that is not what it was."""
    lines = []
    for where in dict.fromkeys([*old, *new]):
        before, after = old.get(where), new.get(where)
        if before is None or after is None:
            lines.append(f"{where}: {'no longer measured' if after is None else 'new'}")
            continue
        for place in dict.fromkeys([*before, *after]):
            if place not in before or place not in after:
                word = "is gone" if place in before else "is new"
                lines.append(f"{where}: {place} {word}: {before.get(place, after.get(place))}")
            elif not same(after[place], before[place], tolerance(where, place)):
                lines.append(f"{where}: {place} was {before[place]}, is {after[place]}")
    return lines


def settled(new: dict[str, Any], old: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The new numbers; where one agrees, the old one: rounding of a processor is no change."""

    def choose(where: str, place: str, value: Any) -> Any:
        before = old.get(where, {})
        agrees = place in before and same(value, before[place], tolerance(where, place))
        return before[place] if agrees else value

    return {
        where: {place: choose(where, place, value) for place, value in values.items()}
        for where, values in new.items()
    }


def as_text(values: dict[str, dict[str, Any]]) -> str:
    """JSON with one line for each number or short list, so that a change is one line too."""
    blocks = []
    for where, numbers in values.items():
        lines = [f"  {json.dumps(place)}: {json.dumps(n)}" for place, n in numbers.items()]
        blocks.append(f" {json.dumps(where)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def digest() -> str:
    """The first digits of the hash of golden.json, which CHANGELOG.md must name."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()[:12]


def changelog_line() -> str:
    return f"Golden values: {digest()}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    new = golden()
    old = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    lines = changes(new, old)
    print("\n".join(lines) or "No number changed.")
    if lines:
        FILE.write_text(as_text(settled(new, old)), encoding="utf-8")
        print(f"\nWrite in CHANGELOG.md what changed and why, with:\n\n  {changelog_line()}")
