"""Bent plane: two Gaussian factors, stretched, sheared and bent by the complex exponential.

    u + iv = (z1 + shear z2) + i stretch z2,      z ~ N(0, I)
    x1 + i x2 = (exp(bend (u + iv)) - 1) / bend

The exponential is conformal: it bends, and keeps angles. So at every point the Jacobian dx/dz is a
rotation and a scale times [[1, shear], [0, stretch]]: its columns are orthogonal if shear = 0, and
the contrast of independent mechanism analysis, the sum of the log lengths of the columns minus
log |det|, is the same everywhere:

    c = 1/2 log(1 + (shear / stretch)^2)

With stretch = 1 and shear = 0 the whole map is conformal: both columns are equally long, and the
map after any rotation of z is conformal, too. With stretch = 2 the principal directions are z1 and
z2. Samples that the exponential would wrap around (bend |v| >= pi) are drawn again.

Ours, for figure 7.6 of Zietlow, PhD thesis, Tübingen 2022; conformal maps as ground truth:
Gresele et al., NeurIPS 2021.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zscope import files
from zscope.data.dataset import Dataset
from zscope.data.source import Factor, Source, factor_arguments, whole
from zscope.errors import ConfigError
from zscope.seeds import seed_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BENT_PLANE", "bend_plane", "contrast", "load"]

FACTORS = (Factor("z1", 0, "continuous"), Factor("z2", 0, "continuous"))
SAMPLES = 20_000


def bend_plane(
    z: "Tensor", *, stretch: float = 2.0, shear: float = 0.0, bend: float = 0.25
) -> "Tensor":
    """The points x of factors z (samples x 2); a decoder, through which gradients flow."""
    import torch

    u, v = z[:, 0] + shear * z[:, 1], stretch * z[:, 1]
    if bend == 0:
        return torch.stack([u, v], 1)
    radius = (bend * u).exp() / bend
    return torch.stack([radius * (bend * v).cos() - 1 / bend, radius * (bend * v).sin()], 1)


def contrast(*, stretch: float = 2.0, shear: float = 0.0) -> float:
    """The contrast c of independent mechanism analysis, the same at every point."""
    return 0.5 * math.log1p((shear / stretch) ** 2)


def load(
    folder: Path,
    *,
    samples: int = SAMPLES,
    stretch: float = 2.0,
    shear: float = 0.0,
    bend: float = 0.25,
    seed: int = 0,
) -> Dataset:
    """Random points of the bent plane."""
    import torch

    who = "bent-plane"
    samples = whole(who, "samples", samples, "a number of points", SAMPLES)
    if not (0 < stretch < 100 and abs(shear) < 100 and 0 <= bend * stretch <= 1):
        raise ConfigError(
            f"{who}: stretch={stretch}, shear={shear}, bend={bend}; expected a stretch above 0 "
            "and a bend from 0 to 1 / stretch, beyond which the plane wraps around itself."
        )
    files.check_memory(who, 200 * samples, f"samples={samples}")
    random = np.random.default_rng(seed_of(seed, 5))
    z = random.standard_normal((samples, 2))
    while (wrapped := bend * stretch * np.abs(z[:, 1]) >= math.pi).any():
        z[wrapped] = random.standard_normal((int(wrapped.sum()), 2))
    x = bend_plane(torch.from_numpy(z), stretch=stretch, shear=shear, bend=bend).numpy()
    return Dataset(who, x.astype(np.float32), z, **factor_arguments(FACTORS))


BENT_PLANE = Source(
    name="bent-plane",
    title="Bent plane",
    summary="Two Gaussian factors through a known bent map, with or without orthogonal columns",
    cite="Zietlow, PhD thesis, Tübingen 2022, fig. 7.6",
    load=load,
    options={
        "samples": f"number of points ({SAMPLES})",
        "stretch": "length of the second direction; at 1 and shear 0 the map is conformal (2)",
        "shear": "how far the second direction leans towards the first (0)",
        "bend": "strength of the complex exponential; 0 is a flat plane (0.25)",
        "seed": "random seed of the points (0)",
    },
    samples=SAMPLES,
    shape=(2,),
    factors=FACTORS,
)
