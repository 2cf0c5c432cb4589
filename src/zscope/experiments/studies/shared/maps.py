"""What the studies of layers share: the CKA of layers of two models, over pairs of seeds.

Models of the same seed began with the same weights, so only models of different seeds are paired:
each with the next two seeds of the other side. Values of a seed are means over its pairs. Layers
are called by their place: enc 1, enc 2, ..., mean, variance, sampled, dec 1, ...; the layer that
outputs means and log variances together is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from zscope.assays.regime.types import variable_types
from zscope.assays.similarity.heatmap import Layer, prepare_layers, similarity_heatmap
from zscope.assays.similarity.layers import layer_similarities
from zscope.autoencoder import Autoencoder
from zscope.data.dataset import Dataset
from zscope.experiments.observed import choose_observations, model_activations
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.shared.sizes import all_data
from zscope.experiments.studies.study import Results, Units
from zscope.experiments.studies.trained import Trained
from zscope.tables.statistics import rank_correlation

__all__ = [
    "LATENT",
    "Sides",
    "active_latents",
    "agreement",
    "block",
    "block_mean",
    "compare_sides",
    "layers",
    "matrix_of",
    "named_units",
    "observe",
    "plot_panel",
    "settings_of",
]

LATENT = ("mean", "variance", "sampled")
SETTINGS = ("group", "model", "data", "beta", "offdiagonal", "capacity")
REACH = 2
"""Seeds of the other side that each model is paired with."""

Maps = dict[str, Layer]
Sides = Mapping[str, Sequence[Mapping[str, Any]]]
"""By name, the settings of the runs on each side of a comparison."""


def named_units(wanted: Sides) -> Units:
    """Units of a measure by name: the runs with the first settings, then those with the second.

    Units of which a side has no runs are left out.
    """

    def units(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
        rows = Rows(dict(row) for row in runs)
        found = {name: [rows.where(**side) for side in sides] for name, sides in wanted.items()}
        return {
            name: [row["run"] for own in sides for row in own]
            for name, sides in found.items()
            if all(sides)
        }

    return units


def settings_of(run: Trained) -> tuple[Any, ...]:
    """What tells the two sides of a comparison apart."""
    return tuple(run.fields.get(name) for name in SETTINGS)


def observe(run: Trained, samples: int = 1_500) -> Dataset:
    """The observations that models are compared on."""
    return choose_observations(all_data(run), 60 if run.tiny else samples, 0)


def layers(
    model: Autoencoder, observed: Dataset, *, draw: int = 0, decode: bool = True, narrow: bool
) -> tuple[Maps, dict[str, int]]:
    """The layers of a model, prepared, and their widths; `narrow` for Procrustes."""
    outputs = model_activations(model, observed, decode, draw)
    outputs.pop("encoder.head", None)
    renamed, count = {}, {"encoder": 0, "decoder": 0}
    for name, values in outputs.items():
        part = name.partition(".")[0]
        if part in count:
            count[part] += 1
        renamed[f"{part[:3]} {count[part]}" if part in count else name] = values
    # The last layer of a decoder is the output before the likelihood reads it.
    if "output" in renamed and count["decoder"]:
        renamed.pop(f"dec {count['decoder']}")
    widths = {name: int(values.flatten(1).shape[1]) for name, values in renamed.items()}
    return prepare_layers(renamed, narrow=narrow), widths


def compare_sides(
    first: Sequence[Trained], second: Sequence[Trained], *, samples: int = 1_500,
    procrustes: bool = False, untrained: bool = False, decode: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """The similarity of the layers of two sides, mean over pairs; {} without different seeds.

    CKA is debiased; "plain" is the one that is not.
    """
    pairs = list(_pairs(first, second))
    if not pairs:
        return {}
    observed = observe(first[0], samples)
    known: dict[str, tuple[Maps, dict[str, int]]] = {}

    def prepared(run: Trained) -> Maps:
        if run.name not in known:
            model = run.untrained if untrained else run.model
            known[run.name] = layers(model, observed, decode=decode, narrow=procrustes)
        return known[run.name][0]

    results = []
    for one, two in pairs:
        sides = prepared(one), prepared(two)
        cka = similarity_heatmap(*sides)
        values = {"cka": cka.matrix, "plain": similarity_heatmap(*sides, debiased=False).matrix}
        if procrustes:
            values["procrustes"] = layer_similarities(*sides).values["procrustes"]
        results.append((cka.rows, cka.columns, values))
    rows = [name for name in results[0][0] if all(name in each[0] for each in results)]
    columns = [name for name in results[0][1] if all(name in each[1] for each in results)]
    widths = known[first[0].name][1]
    answer: dict[str, Any] = {"rows": rows, "columns": columns, "widths": widths, "seeds": {}}
    for measure in results[0][2]:
        stack = [matrix_of(each, measure, rows, columns) for each in results]
        answer[measure] = np.mean(stack, axis=0)
        for (one, _), matrix in zip(pairs, stack, strict=True):
            _collect(answer["seeds"], one.seed, measure, matrix, rows, columns)
        if measure == "procrustes":
            ckas = [matrix_of(each, "cka", rows, columns) for each in results]
            for (one, _), cka_of, other in zip(pairs, ckas, stack, strict=True):
                own = answer["seeds"][str(one.seed)]
                own.setdefault("agreement", []).append(agreement(cka_of, other, rows, columns,
                                                                 widths))  # fmt: skip
    for own in answer["seeds"].values():
        own.update({name: _mean(values) for name, values in own.items()})
    return answer


def _pairs(
    first: Sequence[Trained], second: Sequence[Trained]
) -> Iterator[tuple[Trained, Trained]]:
    by_seed = {run.seed: run for run in second}
    seeds = sorted(by_seed)
    for one in sorted(first, key=lambda run: run.seed):
        later = [seed for seed in seeds if seed > one.seed] + [s for s in seeds if s < one.seed]
        yield from ((one, by_seed[seed]) for seed in later[:REACH])


def matrix_of(result: Any, measure: str, rows: list[str], columns: list[str]) -> np.ndarray:
    """The cells of these layers."""
    own_rows, own_columns, values = result
    matrix = torch.as_tensor(values[measure]).double().numpy()
    picked = [own_rows.index(name) for name in rows], [own_columns.index(n) for n in columns]
    return np.asarray(matrix[np.ix_(*picked)])


def _collect(
    seeds: dict[str, Any], seed: int, measure: str, matrix: np.ndarray, rows: list[str],
    columns: list[str],
) -> None:  # fmt: skip
    """The diagonal, and the means of the rows and columns of the latents."""
    own = seeds.setdefault(str(seed), {})
    shared = [name for name in rows if name in columns]
    places = [(rows.index(name), columns.index(name)) for name in shared]
    prefix = "" if measure == "cka" else f"{measure} "
    own.setdefault(f"{prefix}diagonal", []).append(
        {name: float(matrix[place]) for name, place in zip(shared, places, strict=True)}
    )
    for words, names, values in (
        ("row", rows, matrix.mean(1)),
        ("column", columns, matrix.mean(0)),
    ):
        own.setdefault(f"{prefix}{words}", []).append(
            {name: float(values[names.index(name)]) for name in LATENT if name in names}
        )


def _mean(values: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The mean of each entry over pairs."""
    answer: dict[str, float | None] = {}
    for name in values[0]:
        known = [each[name] for each in values if each.get(name) is not None]
        answer[name] = float(np.mean(known)) if known else None  # type: ignore[arg-type]
    return answer


def agreement(
    cka: np.ndarray, procrustes: np.ndarray, rows: Sequence[str], columns: Sequence[str],
    widths: Mapping[str, int],
) -> dict[str, float | None]:  # fmt: skip
    """Rank correlations over cells: of both measures, and of their difference with the width."""
    sizes = np.add.outer([widths[name] for name in rows], [widths[name] for name in columns])
    over = (procrustes - cka).ravel().tolist()
    return {
        "measures": rank_correlation(cka.ravel().tolist(), procrustes.ravel().tolist()),
        "width": rank_correlation(over, sizes.ravel().tolist()),
    }


def active_latents(run: Trained) -> int:
    """How many latents are active, of the final model."""
    recording = run.recording(samples=200 if run.tiny else 3_000, data=all_data(run))
    return len(variable_types(recording.variances).active)


# What follows from measurements


def block(names: Sequence[str], part: str) -> list[str]:
    """The layers of the encoder, the latents or the decoder."""
    if part == "latents":
        return [name for name in names if name in LATENT]
    return [name for name in names if name.startswith(f"{part[:3]} ")]


def block_mean(values: Mapping[str, float | None] | None, part: str) -> float | None:
    """The mean of a value by layer over the layers of a part."""
    known = [values[name] for name in block(list(values), part)] if values else []
    numbers = [value for value in known if value is not None]
    return float(np.mean(numbers)) if numbers else None


def plot_panel(results: Results, measure: str, unit: str, key: str, title: str) -> Any:
    """A map of a unit for a grid of heatmaps; None if it was not measured."""
    from zscope.plots.matrices import Panel

    values = results.units(measure).get(unit) or {}
    if values.get(key) is None:
        return None
    matrix = np.asarray(values[key], dtype=float)
    return Panel(matrix, values["rows"], values["columns"], title)
