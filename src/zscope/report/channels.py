"""A table of the channels of latents that are maps: their scale, what each carries and does."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from zscope.assays.diffusion.importance import UnitImportance
from zscope.assays.diffusion.locality import Locality
from zscope.assays.diffusion.spectrum import LatentSpectrum
from zscope.assays.parts import shared_result
from zscope.assays.pictures import NOISE, channel_scales
from zscope.assays.regime.divergence import latent_divergence
from zscope.assays.regime.types import VariableTypes, variable_types
from zscope.assays.responses.matrix import ResponseMatrix
from zscope.errors import Undefined
from zscope.map_summary import MapSummary
from zscope.recording import Recording
from zscope.results import Result

__all__ = [
    "LEAST_IMPORTANCE", "LEAST_RESPONSE", "channel_matrix", "channel_table", "types_of",
]  # fmt: skip

LEAST_RESPONSE = 0.1
LEAST_IMPORTANCE = 0.01
"""A channel below both carries nothing."""


def channel_table(recording: Recording, results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """One row for each channel, the most important first.

    Columns, as far as they were measured: channel; mean and std (of posterior draws, over pictures
    and places); of a variational model type (active, mixed or passive) and kl (nats a picture);
    response (the diagonal of the response matrix); gain (what is left of a change at one place,
    from `locality`); importance and alone (from `unit_importance`); excess (its high frequencies
    over those of the pictures, from `latent_spectrum`); dead (whether it carries nothing; None if
    that was not measured).
    """
    summary = recording.map_summary
    mean, std = channel_scales(summary)
    rows: list[dict[str, Any]] = [
        {"channel": k, "mean": float(mean[k]), "std": float(std[k])} for k in range(len(mean))
    ]
    with suppress(Undefined):  # of too few pictures, or without variances
        kl, labels = (
            shared_result(latent_divergence, recording).per_latent,
            types_of(recording).labels,
        )
        for row, kind, nats in zip(rows, labels, kl.tolist(), strict=True):
            row |= {"type": kind, "kl": nats}
    for name, values in _measured(results, len(rows)).items():
        for row, value in zip(rows, values.tolist(), strict=True):
            row[name] = value
    dead = _dead(rows, results, summary)
    for row, each in zip(rows, dead, strict=True):
        row["dead"] = each
    order = next((key for key in ("importance", "kl", "std") if key in rows[0]), "std")
    return sorted(rows, key=lambda row: -float(row[order]))


def channel_matrix(results: Mapping[str, Result], channels: int) -> ResponseMatrix | None:
    """The response matrix, if it was measured channel by channel."""
    matrix = results.get("response-matrix")
    if not isinstance(matrix, ResponseMatrix) or matrix.unit != "channel":
        return None
    return matrix if len(matrix.relative) == channels else None


def _measured(results: Mapping[str, Result], channels: int) -> dict[str, Tensor]:
    """What assays say of every channel, by column."""
    columns: dict[str, Tensor] = {}
    if (matrix := channel_matrix(results, channels)) is not None:
        columns["response"] = matrix.relative.diagonal()
    if isinstance(local := results.get("locality"), Locality):
        columns["gain"] = local.gain
    if isinstance(importance := results.get("unit-importance"), UnitImportance):
        columns |= {"importance": importance.importance, "alone": importance.alone}
    if isinstance(spectrum := results.get("latent-spectrum"), LatentSpectrum) and spectrum.excess:
        axes = next(iter(spectrum.excess))
        if axes == next(iter(spectrum.spectra)):  # that of `channel_high`
            columns["excess"] = spectrum.channel_high / spectrum.picture_spectra[axes].high
    return columns


def types_of(recording: Recording) -> VariableTypes:
    """The type of each channel, and of each of its places, by the published rule."""
    return shared_result(variable_types, recording)


def _dead(
    rows: list[dict[str, Any]], results: Mapping[str, Result], summary: MapSummary
) -> list[bool | None]:
    """Whether each channel carries nothing: it is passive, or nothing depends on it.

    The latter means that its response and its importance are both small, at the upper ends of their
    intervals. In a variational model it must be nearly all noise besides, but for what all pictures
    have in common: so is a channel that is constant where the KL weight is tiny, which keeps a
    variance far below the prior's and is not passive. Without the response matrix, what is left of
    a change at one place stands for the response.
    """
    passive = [row["type"] == "passive" if "type" in row else None for row in rows]
    importance = results.get("unit-importance")
    matrix = channel_matrix(results, len(rows))
    if (matrix is None and "gain" not in rows[0]) or not isinstance(importance, UnitImportance):
        return passive
    if matrix is None:
        response = torch.tensor([abs(row["gain"]) for row in rows])
    else:  # its interval needs no resamples, so that every report says the same
        squares, low = matrix.relative.square(), matrix.relative_low.square()
        response = (2 * squares - low).diagonal().sqrt()
    most = importance.importance
    if importance.importance_interval is not None:
        most = importance.importance_interval[:, 1]
    unused = (response < LEAST_RESPONSE) & (most < LEAST_IMPORTANCE)
    if not summary.deterministic:
        noise = summary.moments()["v"]
        unused &= noise >= NOISE * (noise + summary.spread().mean(1))
    return [bool(first) or bool(second) for first, second in zip(passive, unused, strict=True)]
