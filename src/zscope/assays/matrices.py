"""What an assay accepts as numbers: tensors or arrays, checked, as float64 rows."""

import numpy as np
import torch
from torch import Tensor

from zscope.errors import Undefined
from zscope.factors import Factors

Array = Tensor | np.ndarray | Factors


def as_rows(values: Array, who: str, *, least: int = 1) -> Tensor:
    """`values` as samples x columns in float64, on their device, without gradients.

    A single column may be given as a vector; further axes are flattened into columns.
    Raises `Undefined` for fewer than `least` samples, no columns, or numbers that are
    not finite: no measurement of such rows would mean anything.
    """
    if not isinstance(values, Tensor):
        try:
            values = torch.from_numpy(np.array(values, dtype=np.float64))
        except (ValueError, TypeError) as error:
            raise Undefined(
                f"{who}: got something that is not a table of numbers ({error}). Are there words "
                "in it? Number them: np.unique(words, return_inverse=True)[1]"
            ) from error
    rows = values.detach().to(torch.float64)
    if rows.ndim == 0:
        raise Undefined(f"{who}: got a single number; samples x columns are needed.")
    rows = rows.reshape(-1, 1) if rows.ndim == 1 else rows.flatten(1)
    if len(rows) < least or rows.shape[1] == 0:
        raise Undefined(
            f"{who}: got {len(rows)} samples x {rows.shape[1]} columns; at least {least} samples "
            "and 1 column are needed. Record more observations: zs.record(model, data, samples=N)"
        )
    # The sum of finite numbers is nearly always finite, and a fast way to see that all are.
    if not rows.sum().isfinite() and (bad := ~rows.isfinite().all(1)).any():
        raise Undefined(
            f"{who}: {int(bad.sum())} of {len(rows)} samples hold NaN or infinite numbers, the "
            f"first at row {int(bad.nonzero()[0, 0])}. Has training diverged, or were the data "
            "not scaled? Find out why before leaving those rows out."
        )
    return rows


def same_rows(x: Array, y: Array, who: str, *, least: int = 2) -> tuple[Tensor, Tensor]:
    """Two matrices about the same samples in the same order."""
    first, second = as_rows(x, who, least=least), as_rows(y, who, least=least)
    if len(first) != len(second):
        raise Undefined(
            f"{who}: the first matrix has {len(first)} rows and the second {len(second)}; row i "
            "of both must be the same sample. Record both models with one seed on the same data."
        )
    return first, second.to(first.device)


def centred(rows: Tensor) -> Tensor:
    """Rows less their mean; exactly 0 in columns that differ by rounding alone.

    The mean of equal numbers is often not that number, and what is left of it, however
    small, would be measured like anything else.
    """
    gaps = rows - rows.mean(0)
    still = gaps.abs().amax(0) <= 1e-13 * rows.abs().amax(0)
    return gaps.masked_fill(still, 0.0)
