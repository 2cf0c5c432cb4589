"""Runs of "structure by architecture" (Leeb et al., ICLR 2023).

At 16 x 16 pixels the reconstruction term of the variational models counts (64 / 16)² = 16 times,
so that their published strengths act as they do at 64 x 64. SAE-6 with 6 latents and 6 blocks is
the small counterpart of SAE-12 with 12; it is not the published SAE-6, which has 12 latents.
"""

from zscope.experiments.studies.grid import Grid, runs
from zscope.experiments.studies.grids.responses import HOLD_OUT, PERCEPTRON, ROOM_DATA, ROOM_SPLIT

__all__ = ["GENERATION", "ORDER", "SCORES"]

PUBLISHED = {"preset": "structural-2023", "seeds": (0, 1, 2, 3, 4)}
NETWORK = {"backbone": "structural", "depth": 6, "filters": 16}
_rooms = {
    "data": ROOM_DATA, "split": ROOM_SPLIT, "latents": 6, **NETWORK, "steps": 1_500, "batch": 32,
    "rate": 2e-3, "schedule": "cosine", "seeds": 4,
}  # fmt: skip

SCORES = Grid(
    small=runs(model=["sae-6", "sae-3", "adaae-6", "ae", "wae"], **_rooms)
    + runs(model=["vae", "vlae-6"], reconstruction_weight=16, **_rooms)
    + runs(model="beta-tcvae", beta=4, reconstruction_weight=16, **_rooms),
    paper=runs(model=["sae-2", "sae-3", "sae-4", "sae-6", "sae-12", "vlae-2", "vlae-3", "vlae-4",
                      "vlae-6", "vlae-12", "adaae-12", "ae", "wae", "vae"],
               data=["shapes3d", "mpi3d-toy", "mpi3d-sim", "mpi3d-real"], **PUBLISHED)
    + runs(model="beta-vae", beta=2, data="shapes3d", **PUBLISHED)
    + runs(model="beta-tcvae", beta=4, data="shapes3d", **PUBLISHED)
    + runs(model="factor-vae", gamma_tc=40, data="shapes3d", **PUBLISHED),
    notes="β-VAE 2 and FactorVAE 40 only at scale paper.",
    tiny={"data": "rooms?resolution=16&pictures=460"},
)  # fmt: skip

ORDER = Grid(
    small=runs(model=["sae-4", "adaae-4"], data="mnist", split=HOLD_OUT, latents=8,
               backbone="structural", depth=4, filters=16, steps=400, batch=64, rate=1e-3,
               schedule="cosine", seeds=4),
)  # fmt: skip

GENERATION = Grid(
    small=runs(model=["vae", "wae", "ae"], data="mnist", split=HOLD_OUT, latents=10, steps=3_000,
               batch=64, rate=1e-3, schedule="cosine", seeds=4, **PERCEPTRON)
    + runs(model="beta-vae", beta=2, data="mnist", split=HOLD_OUT, latents=10, steps=3_000,
           batch=64, rate=1e-3, schedule="cosine", seeds=4, **PERCEPTRON)
    + runs(model="beta-tcvae", beta=4, data="mnist", split=HOLD_OUT, latents=10, steps=3_000,
           batch=64, rate=1e-3, schedule="cosine", seeds=4, **PERCEPTRON),
)  # fmt: skip
