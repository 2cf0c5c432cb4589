"""A table of the latents: how informative each is, whether it is used, what it decodes to."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.assays.regime.divergence import latent_divergence
from zscope.assays.regime.types import VariableTypes, variable_types
from zscope.assays.sample import prepare
from zscope.autoencoder import evaluation
from zscope.errors import Undefined
from zscope.factors import Factors
from zscope.randomness import named_generator
from zscope.recording import Recording

__all__ = ["SHOWN", "informativeness", "latent_table", "traversals"]

STEPS = 7
"""Values of a latent at which it is decoded."""
SHOWN = 30
"""Latents that the page shows with their traversals, the most informative ones."""


def latent_table(
    recording: Recording,
    responses: Sequence[float] | None = None,
    types: VariableTypes | None = None,
    *,
    factors: bool = True,
) -> list[dict[str, Any]]:
    """One row for each latent, most informative first.

    Columns, as far as the model and the data have them: latent; used (whether it counts, see
    `zscope.usage`); effect (on the decoded observation, of a deterministic model); type (active,
    mixed, passive: `types`, by default those of `variable_types`); kl (nats); information (the
    measure of `zscope.usage` in nats, where the prior depends on the factors: kl leaves out what
    the latent tells about them); variance (mean posterior variance, in units of the prior's);
    spread (standard deviation of the means); low and high (the range of 98 % of the means);
    response (`responses`, the diagonal of the relative response matrix); factor (the one that
    samples of the latent are most informative about) and factor_share (the share of that factor's
    entropy that they explain beyond chance; without `factors` neither). A report of vectors adds
    moves, the features that a latent moves.
    """
    posterior = recording.posterior
    codes = posterior.mean.double()
    spread = codes.std(0, unbiased=False).tolist()
    low, high = ranges(codes).T.tolist()
    rows: list[dict[str, Any]] = [
        {"latent": j, "used": False, "spread": spread[j], "low": low[j], "high": high[j]}
        for j in range(posterior.latents)
    ]
    for j in recording.used:
        rows[j]["used"] = True
    if recording.usage.measure == "effect":
        for row, effect in zip(rows, recording.usage.values.tolist(), strict=True):
            row["effect"] = effect
    if not posterior.deterministic:
        types = variable_types(recording) if types is None else types
        kl = latent_divergence(recording).per_latent.tolist()
        for j, row in enumerate(rows):
            row |= {"type": types.labels[j], "kl": kl[j], "variance": float(types.mean_variance[j])}
        if recording.relative is not posterior:
            for row, nats in zip(rows, recording.usage.values.tolist(), strict=True):
                row["information"] = nats
    for j, row in enumerate(rows):
        if responses is not None:
            row["response"] = float(responses[j])
    if not factors:
        return sorted(rows, key=informativeness, reverse=True)
    # Of samples: the mean of a passive latent may depend on factors, but drowns in the noise.
    samples = posterior.sample(named_generator(recording.seed, "latent table")).double()
    for j, (factor, share) in best_factors(samples, recording.factors).items():
        rows[j] |= {"factor": factor, "factor_share": share}
    return sorted(rows, key=informativeness, reverse=True)


def informativeness(row: Mapping[str, Any]) -> float:
    """What the latents are ordered by."""
    measures = ("information", "kl", "effect", "spread")
    return next(float(row[measure]) for measure in measures if measure in row)


def ranges(codes: Tensor) -> Tensor:
    """The range of the middle 98 % of the codes (latents x 2)."""
    ends = np.quantile(codes.double().numpy(), [0.01, 0.99], axis=0)
    return torch.from_numpy(ends.T.copy())


def best_factors(codes: Tensor, factors: Factors | None) -> dict[int, tuple[str, float]]:
    """The factor that each latent is most informative about, if it is about any."""
    if factors is None:
        return {}
    try:
        sample, _ = prepare("table of latents", codes, factors, None)
    except Undefined:  # too few samples, or no factor that varies
        return {}
    shared = sample.information
    best = shared.share.argmax(1)
    return {
        j: (factors.names[sample.columns[k]], float(shared.share[j, k]))
        for j, k in enumerate(best)
        if shared.plain[j, k] > shared.threshold[j, k]
    }


def traversals(recording: Recording, latents: list[int]) -> tuple[Tensor, Tensor]:
    """Decode the code nearest the mean while one latent moves over its range.

    Returns the values (latents x steps) and the observations (latents x steps x shape).
    """
    codes = recording.codes
    base = codes[(codes - codes.mean(0)).norm(dim=1).argmin()]
    ends = ranges(codes)[latents].to(codes)
    share = torch.linspace(0, 1, STEPS, dtype=codes.dtype)
    values = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * share
    return values, torch.stack(
        [_decode(recording, base, j, along) for j, along in zip(latents, values, strict=True)]
    )


def _decode(recording: Recording, base: Tensor, latent: int, values: Tensor) -> Tensor:
    moved = base.repeat(len(values), 1)
    moved[:, latent] = values
    device, dtype = recording.autoencoder.place
    with evaluation(recording.autoencoder):
        return recording.autoencoder.decode(moved.to(device, dtype)).float().cpu()
