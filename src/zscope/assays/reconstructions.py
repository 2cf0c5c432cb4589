"""Reconstructions: how much of the variance of the data do they explain?

    explained = 1 - |x - D(z)|^2 / |x - mean x|^2

with z the posterior mean of x, over up to 1,024 recorded observations, evenly spaced because data
are often sorted; of maps over the base pictures, which other assays decode too. Reports and
monitors share it.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from zscope.assays.engine import check_size
from zscope.assays.pictures import base_pictures
from zscope.autoencoder import evaluation
from zscope.recording import Recording

__all__ = ["Reconstructions", "reconstruct"]

COMPARED = 1024
"""Observations that are reconstructed."""
AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Reconstructions:
    """Observations and what is decoded of their codes."""

    observations: Tensor
    decoded: Tensor
    explained: float | None  # None of observations that are all the same


def reconstruct(recording: Recording) -> Reconstructions:
    """Decode the posterior means of some recorded observations."""
    if recording.layout is not None:
        base = base_pictures(recording.autoencoder, recording, "reconstructions")
        check_size(base.decoded, base.observations, "reconstructions")
        decoded = base.decoded.reshape(base.observations.shape)
        x, made = base.observations.double(), decoded.double()
        lost, total = float((x - made).square().sum()), float((x - x.mean(0)).square().sum())
        return Reconstructions(base.observations, decoded, _explained(lost, total))
    device, dtype = recording.autoencoder.place
    count = min(COMPARED, len(recording))
    rows = np.linspace(0, len(recording) - 1, count).round().astype(int)
    everything = recording.data.batch(rows)
    centre = everything.double().mean(0)
    lost = total = 0.0
    parts = []
    with evaluation(recording.autoencoder):
        for start in range(0, count, AT_ONCE):
            x = everything[start : start + AT_ONCE]
            codes = recording.codes[rows[start : start + len(x)]].to(device, dtype)
            extra = []
            if recording.autoencoder.decodes_given and recording.factors is not None:
                own = recording.factors.values[rows[start : start + len(x)]]
                extra = [torch.from_numpy(np.ascontiguousarray(own)).to(device, dtype)]
            decoded = recording.autoencoder.decode(codes, *extra).float().cpu()
            check_size(decoded, x, "reconstructions")
            decoded = decoded.reshape(x.shape)  # a decoder may return rows
            lost += float((x.double() - decoded.double()).square().sum())
            total += float((x.double() - centre).square().sum())
            parts.append(decoded)
    return Reconstructions(everything, torch.cat(parts), _explained(lost, total))


def _explained(lost: float, total: float) -> float | None:
    return 1 - lost / total if total > 0 and math.isfinite(lost) else None
