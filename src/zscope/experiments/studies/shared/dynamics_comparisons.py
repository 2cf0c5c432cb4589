"""What `regime_dynamics` compares: layers over training, between strengths and objectives."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from zscope.assays.similarity.cka import cka
from zscope.assays.similarity.heatmap import similarity_heatmap
from zscope.assays.similarity.layers import layer_similarities
from zscope.assays.similarity.procrustes import procrustes
from zscope.errors import ZscopeError
from zscope.experiments.over_training import fall_step
from zscope.experiments.studies.grids.regime import CARS, NORB, SPRITES, SPRITES_32
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.shared.maps import (
    Sides,
    active_latents,
    agreement,
    block_mean,
    compare_sides,
    layers,
    matrix_of,
    observe,
    settings_of,
)
from zscope.experiments.studies.shared.polarised import minus
from zscope.experiments.studies.study import Results
from zscope.experiments.studies.trained import Trained

__all__ = [
    "COUNTS",
    "FEATURES",
    "FOLLOWED",
    "OBJECTIVES",
    "SHARES",
    "STRENGTHS",
    "active_counts",
    "added",
    "all_pairs",
    "connected_unit",
    "data_of",
    "matrix_rows",
    "measure_history",
    "measure_input",
    "measure_matrices",
    "measure_objectives",
    "measure_strengths",
    "measure_training",
    "seeds_of",
    "titles",
]

FEATURES = 50
SHARES = {"B": 0.8, "C": 0.5, "D": 0.0}
COUNTS = (100, 200, 500, 1_000, 2_000, 5_000)
DRAWS = 6
EARLY = {"tc": 100, "dip": 100, "annealed": 100, "fashion": 32}
"""The step that is called early, 2 to 3 % of the training as published."""

ON_SPRITES = [SPRITES, "dsprites"]
FOLLOWED: Sides = {  # over training, on the data of figures 7.2 and 7.8
    "tc": [{"group": "tc", "beta": 2, "data": [SPRITES, CARS]}],
    "dip": [{"group": "dip", "offdiagonal": 5, "data": ON_SPRITES}],
    "annealed": [{"group": "annealed", "capacity": 5, "data": [SPRITES, NORB]}],
    "fashion": [{"group": "fashion", "model": "annealed-vae"}],
}
TITLES = {"tc": "β-TCVAE, β = 2", "dip": "DIP-VAE-II, λ = 5", "annealed": "annealed VAE, C = 5",
          "fashion": "annealed VAE, Fashion-MNIST"}  # fmt: skip
PUBLISHED_TITLES = {
    "tc": "β-TCVAE, β = 2, Cars3D", "dip": "DIP-VAE-II, λ = 5, dSprites",
    "annealed": "annealed VAE, C = 5, SmallNORB",
    "fashion": "fully connected annealed VAE, SmallNORB",
}  # fmt: skip


def _beta(beta: float, data: Any = ON_SPRITES, group: str = "beta") -> dict[str, Any]:
    return {"group": group, "model": "beta-vae", "beta": beta, "data": data}


def _dip(strength: float, data: Any = ON_SPRITES, group: str = "dip") -> dict[str, Any]:
    return {"group": group, "model": "dip-vae-ii", "offdiagonal": strength, "data": data}


_convolved, _connected = [SPRITES_32, "dsprites"], "dsprites"
STRENGTHS: Sides = {  # weak and strong
    "β 1 and 8": [_beta(1), _beta(8)],
    "β 1 and 16": [_beta(1), _beta(16)],
    "β 1 and 128": [_beta(1), {"group": "collapsed"}],
    "λ 1 and 20": [_dip(1), _dip(20)],
    "β 1 and 1": [_beta(1), _beta(1)],
    "convolutions, β 1 and 8": [_beta(1, _convolved, "conv"), _beta(8, _convolved, "conv")],
    # At scale small the first ones are fully connected.
    "connected, β 1 and 8": [_beta(1, _connected, "connected"), _beta(8, _connected, "connected")],
    "connected, β 1 and 16": [_beta(1, _connected, "connected"),
                              _beta(16, _connected, "connected")],
}  # fmt: skip
OBJECTIVES: Sides = {  # β-VAE and DIP-VAE-II
    "sprites": [_beta(1), _dip(1)],
    "fashion": [_beta(1, ["fashion-mnist", NORB], "fashion"),
                _dip(1, ["fashion-mnist", NORB], "fashion")],
    "digits": [_beta(1, ["digits", CARS], "digits"), _dip(1, ["digits", CARS], "digits")],
    # At scale paper only, where the networks of "sprites" are convolutional.
    "connected": [_beta(1, _connected, "connected"), _dip(1, _connected, "connected")],
    "smallnorb": [_beta(1, NORB), _dip(1, NORB)],
    "cars3d": [_beta(1, CARS), _dip(1, CARS)],
}  # fmt: skip
CONVOLUTIONAL_DATA = {"cars3d": "Cars3D", "sprites": "dSprites", "smallnorb": "SmallNORB"}
CONNECTED_DATA = {"digits": "Cars3D", "connected": "dSprites", "fashion": "SmallNORB"}
"""Units of OBJECTIVES at scale paper, and their titles."""
DATA = {"sprites": "sprites (for dSprites)", "fashion": "Fashion-MNIST (for SmallNORB)",
        "digits": "digits (for Cars3D)"}  # fmt: skip


# Measurements


def measure_matrices(runs: Sequence[Trained]) -> dict[str, Any]:
    """CKA and Procrustes of Gaussian matrices that share some of their features."""
    answer: dict[str, Any] = {}
    for name, share in SHARES.items():
        kept = round(share * FEATURES)
        rows = []
        for count in COUNTS[:3] if runs[0].tiny else COUNTS:
            for seed in range(DRAWS):
                generator = torch.Generator().manual_seed(1_000 * seed + count)
                first = torch.randn(count, FEATURES, generator=generator)
                other = torch.randn(count, FEATURES - kept, generator=generator)
                second = torch.cat([first[:, :kept], other], 1)
                rows.append({
                    "n": count, "seed": seed, "plain": cka(first, second, debiased=False).score,
                    "cka": cka(first, second).score, "procrustes": procrustes(first, second).score,
                })  # fmt: skip
        answer[name] = rows
    return answer


def measure_strengths(runs: Sequence[Trained]) -> dict[str, Any]:
    """Layers of weakly and strongly regularised models."""
    first, second = _sides(runs)
    wide = first[0].group == "conv"
    answer = compare_sides(first, second, samples=500 if wide else 1_500)
    counts = {run.seed: active_latents(run) for run in second}
    return answer | {"active": {str(seed): count for seed, count in counts.items()},
                     "pairs": _latent_pairs(first, second)}  # fmt: skip


def measure_objectives(runs: Sequence[Trained]) -> dict[str, Any]:
    """Layers of β-VAEs and DIP-VAE-II, trained and untrained."""
    first, second = _sides(runs)
    answer = compare_sides(first, second, procrustes=first[0].group == "beta")
    before = compare_sides(first, second, untrained=True)
    return answer | {"untrained": before.get("seeds", {}),
                     "pairs": _latent_pairs(first, second)}  # fmt: skip


def _sides(runs: Sequence[Trained]) -> tuple[list[Trained], list[Trained]]:
    keys = list(dict.fromkeys(settings_of(run) for run in runs))
    return ([run for run in runs if settings_of(run) == keys[0]],
            [run for run in runs if settings_of(run) == keys[-1]])  # fmt: skip


def _latent_pairs(first: Sequence[Trained], second: Sequence[Trained]) -> list[list[Any]]:
    """For each pair of different seeds: the seed, CKA of the means, active counts, of variances."""
    observed = observe(first[0], 1_000)
    every = {run.name: run for run in (*first, *second)}
    codes, counts = {}, {name: active_latents(run) for name, run in every.items()}
    for name, run in every.items():
        recording = run.recording(samples=len(observed), data=observed)
        codes[name] = recording.codes, recording.variances
    rows = []
    for one in first:
        for two in second:
            same = settings_of(one) == settings_of(two)
            if one.seed == two.seed or (same and one.seed > two.seed):
                continue
            means, variances = (
                _cka(a, b) for a, b in zip(codes[one.name], codes[two.name], strict=True)
            )
            if means is not None:
                rows.append([one.seed, means, counts[one.name], counts[two.name], variances])
    return rows


def _cka(first: Any, second: Any) -> float | None:
    try:
        return cka(first, second).score
    except ZscopeError:
        return None


def measure_training(runs: Sequence[Trained]) -> dict[str, Any]:
    """Layers at every snapshot and at the end, of the same run."""
    observed = observe(runs[0])
    maps: list[Any] = []
    seeds: dict[str, Any] = {}
    steps = sorted(set.intersection(*({*run.stages} for run in runs)))
    early = min((step for step in steps if step),
                key=lambda s: abs(s - _early(runs[0]) * steps[-1]))  # fmt: skip
    rows: list[str] = []
    for run in runs:
        wide = runs[0].group == "tc"  # for Procrustes
        final, widths = layers(run.model, observed, draw=1, narrow=wide)
        found = {}
        for step in steps:
            own, _ = layers(run.at(step), observed, narrow=wide)
            result = similarity_heatmap(own, final)
            found[step] = result.rows, result.columns, {"cka": result.matrix}
            if wide and step == early:
                both = layer_similarities(own, final)
                values = both.values["cka"].numpy(), both.values["procrustes"].numpy()
                agreed = agreement(*values, both.rows, both.columns, widths)
                seeds[str(run.seed)] = {"agreement": agreed, "procrustes": values[1]}
        if not rows:
            rows = [n for n in final if all(n in each[0] and n in each[1]
                                            for each in found.values())]  # fmt: skip
        own_maps = [matrix_of(found[step], "cka", rows, rows) for step in steps]
        maps.append(own_maps)
        seeds.setdefault(str(run.seed), {})["diagonals"] = [
            dict(zip(rows, each.diagonal().tolist(), strict=True)) for each in own_maps
        ]
    both_maps = [own.pop("procrustes") for own in seeds.values() if "procrustes" in own]
    mean = np.mean(maps, axis=0)
    return {
        "steps": steps, "early": early, "rows": rows, "columns": rows, "seeds": seeds,
        **{f"step {step}": each for step, each in zip(steps, mean, strict=True)},
        "procrustes": np.mean(both_maps, axis=0) if both_maps else None,
    }  # fmt: skip


def _early(run: Trained) -> float:
    """The early step as a share of the training."""
    return EARLY[run.group] / (2_000 if run.group == "fashion" else 3_000)


def measure_input(run: Trained) -> dict[str, Any]:
    """The input and each layer of the encoder of one model, by both measures."""
    observed = observe(run, 500)
    own, _ = layers(run.model, observed, decode=False, narrow=True)
    names = [name for name in own if name.startswith("enc ")]
    both = layer_similarities({"input": own["input"]}, {name: own[name] for name in names})
    return {f"input_{key}": both.values[key][0].tolist() for key in ("cka", "procrustes")}


def measure_history(run: Trained) -> dict[str, Any]:
    """The loss over training, and the step at 90 % of its fall."""
    rows = [(row["step"], row["loss"]) for row in run.run.history if row.get("loss") is not None]
    try:
        step: int | None = fall_step(run.run.history)
    except ZscopeError:
        step = None
    return {"fall": step, "loss": [[step, loss] for step, loss in rows]}


# Reading them


def titles(results: Results) -> dict[str, str]:
    """What is followed over training."""
    return PUBLISHED_TITLES if results.scale == "paper" else TITLES


def data_of(results: Results, *, connected: bool = False) -> dict[str, str]:
    """The units of OBJECTIVES of figure 7.4, or with connected networks of 7.10; their titles."""
    if results.scale != "paper":
        return DATA
    return CONNECTED_DATA if connected else CONVOLUTIONAL_DATA


def connected_unit(results: Results, unit: str) -> str:
    """The unit of STRENGTHS with fully connected networks, which all are at scale small."""
    return f"connected, {unit}" if results.scale == "paper" else unit


def matrix_rows(results: Results, name: str) -> Rows:
    return Rows(results.once("measure_matrices").get(name) or [])


def added(values: Mapping[str, Any], seed: str, part: str, step: int) -> float | None:
    """CKA with the final model at a step minus that of the untrained one, mean over a part."""
    own, steps = values["seeds"][seed]["diagonals"], values["steps"]
    now = block_mean(own[steps.index(step)], part)
    return minus(now, block_mean(own[0], part))


def seeds_of(results: Results, measure: str, unit: str) -> dict[str, Any]:
    return dict((results.units(measure).get(unit) or {}).get("seeds") or {})


def active_counts(results: Results, unit: str) -> list[float]:
    counts = (results.units("measure_strengths").get(unit) or {}).get("active") or {}
    return [float(count) for count in counts.values()]


def all_pairs(results: Results) -> list[list[Any]]:
    units = [*results.units("measure_strengths").values(),
             *results.units("measure_objectives").values()]  # fmt: skip
    return [row for unit in units for row in unit.get("pairs") or []]
