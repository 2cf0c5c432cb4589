"""The latents during training: counts of active, mixed and passive ones."""

from typing import Any

from zscope.assays.regime.types import VariableTypes, variable_types
from zscope.types import Codes

__all__ = ["collapse_warning", "regime"]


def regime(variances: Codes) -> dict[str, Any]:
    """Counts of latents by type, and the sum of their mean variances, over one batch."""
    return counts(variable_types(variances))


def counts(types: VariableTypes) -> dict[str, Any]:
    """How many latents are of each type, and the sum of their mean variances.

    `variance` is FONDUE's criterion (Bonheme 2023, section 8.1): near 0 when every latent
    is active, near the number of latents when all are passive.
    """
    return {
        "active": len(types.active),
        "mixed": len(types.mixed),
        "passive": len(types.passive),
        "variance": float(types.mean_variance.sum()),
    }


def collapse_warning(row: dict[str, Any]) -> str | None:
    """What to say of a model whose latents are all passive in this row of the history."""
    if row.get("passive", 0) == 0 or row["active"] or row["mixed"]:
        return None
    total = "The only latent is" if row["passive"] == 1 else f"All {row['passive']} latents are"
    return (
        f"Warning: {total} passive after {row['step']:,} steps: the posterior equals the prior, so "
        "the codes say nothing about the data. Train longer or with a larger rate, lower β, or "
        "choose another backbone."
    )
