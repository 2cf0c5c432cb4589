"""Arrays that assays accept, checked and converted to float64 rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.errors import Undefined
from zscope.factors import Factors

__all__ = ["Array", "as_rows", "centre", "exponent_of", "same_rows", "times_power", "unit_scale"]

Array = Tensor | np.ndarray | Factors | Sequence[Any]


def as_rows(values: Array, who: str, *, least: int = 1) -> Tensor:
    """`values` as samples x columns in float64, on their device, without gradients.

    A single column may be given as a vector; further axes are flattened into columns.
    Raises `Undefined` for fewer than `least` samples, no columns, or numbers that are
    not finite.
    """
    if values.is_complex() if isinstance(values, Tensor) else _is_complex(values):
        raise Undefined(
            f"{who}: got complex numbers; expected real ones. Do they come from a Fourier "
            "transform? Give both parts as columns: np.hstack([values.real, values.imag])"
        )
    if not isinstance(values, Tensor):
        try:
            values = torch.from_numpy(np.array(values, dtype=np.float64))
        except (ValueError, TypeError) as error:
            raise Undefined(
                f"{who}: got something that is not a table of numbers ({error}). Does it contain "
                "strings? Number them: np.unique(words, return_inverse=True)[1]"
            ) from error
    rows = values.detach().to(torch.float64)
    if rows.ndim == 0:
        raise Undefined(f"{who}: got a single number; expected samples x columns.")
    rows = rows.reshape(-1, 1) if rows.ndim == 1 else rows.flatten(1)
    if len(rows) < least or rows.shape[1] == 0:
        raise Undefined(
            f"{who}: got {len(rows)} samples x {rows.shape[1]} columns; expected at least {least} "
            "samples and 1 column. Record more observations: zs.record(model, data, samples=N)"
        )
    # Summing is the fastest check: the sum of finite numbers is nearly always finite.
    if not rows.sum().isfinite() and (bad := ~rows.isfinite().all(1)).any():
        raise Undefined(
            f"{who}: {int(bad.sum())} of {len(rows)} samples contain NaN or infinity, the "
            f"first at row {int(bad.nonzero()[0, 0])}. Has training diverged, or were the data "
            "not scaled? Find out why before leaving those rows out."
        )
    return rows


def _is_complex(values: Array) -> bool:
    try:
        return np.iscomplexobj(values)
    except ValueError:  # rows of different lengths: no table at all
        return False


def same_rows(x: Array, y: Array, who: str, *, least: int = 2) -> tuple[Tensor, Tensor]:
    """Two matrices of the same samples in the same order, both as float64 rows."""
    first, second = as_rows(x, who, least=least), as_rows(y, who, least=least)
    if len(first) != len(second):
        raise Undefined(
            f"{who}: the first matrix has {len(first)} rows and the second {len(second)}; row i "
            "of both must be the same sample. Record both models with one seed on the same data."
        )
    return first, second.to(first.device)


def centre(rows: Tensor) -> Tensor:
    """Rows minus their mean; exactly 0 in columns that vary by rounding errors only.

    The computed mean of equal numbers often differs from that number in the last digit, and
    the remainder would be measured like real variation.
    """
    deviations = rows - rows.mean(0)
    constant = deviations.abs().amax(0) <= 1e-13 * rows.abs().amax(0)
    return deviations.masked_fill(constant, 0.0)


def unit_scale(rows: Tensor) -> Tensor:
    """Rows in units of the power of two above their largest entry, so that their squares and
    fourth powers neither vanish nor overflow. No digit changes."""
    return times_power(rows, -exponent_of(rows))


def exponent_of(rows: Tensor, *axes: int) -> Tensor:
    """The exponent of the power of two above the largest entry; along the axes, or of all."""
    size = rows.abs()
    return torch.frexp(size.amax(axes) if axes else size.max()).exponent


def times_power(rows: Tensor, exponent: Tensor) -> Tensor:
    """Rows times two to the power of the exponent, which may itself be beyond all numbers."""
    half = exponent // 2
    return torch.ldexp(torch.ldexp(rows, half), exponent - half)
