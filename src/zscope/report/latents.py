"""A table of the latents: what each one carries and whether it is used."""

from typing import Any

from zscope.assays.regime.types import variable_types
from zscope.recording import Recording


def latent_table(
    recording: Recording, responses: list[float] | None = None
) -> list[dict[str, Any]]:
    """One row for each latent, most informative first.

    Columns: latent, type (active, mixed, passive), kl (nats), variance (mean of the
    posterior variance), spread (standard deviation of the means) and response (how much
    of a change made to the latent comes back, 0 to 1), as far as the model has them.
    """
    posterior = recording.posterior
    spread = posterior.mean.double().std(0, unbiased=False).tolist()
    rows: list[dict[str, Any]] = [
        {"latent": j, "spread": spread[j]} for j in range(posterior.latents)
    ]
    if not posterior.deterministic:
        types = variable_types(posterior.variance)
        names = {j: name for name in ("active", "mixed", "passive") for j in getattr(types, name)}
        kl = posterior.kl().double().mean(0).tolist()
        for j, row in enumerate(rows):
            row |= {"type": names[j], "kl": kl[j], "variance": float(types.mean_variance[j])}
    for j, row in enumerate(rows):
        if responses is not None:
            row["response"] = responses[j]
    return sorted(rows, key=lambda row: -row.get("kl", row.get("response", row["spread"])))
