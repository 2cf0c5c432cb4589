"""Pictures that a study keeps: few shades, so that they take few bytes."""

import numpy as np
from torch import Tensor

__all__ = ["few_shades"]


def few_shades(pictures: Tensor) -> np.ndarray:
    """Pictures from 0 to 1 as bytes with 16 shades a channel, which compress well."""
    return (17 * (15 * pictures.clamp(0, 1)).round()).byte().cpu().numpy()
