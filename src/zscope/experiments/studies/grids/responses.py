"""Runs of "latent responses" (Leeb et al., arXiv:2106.16091).

The published networks take hours here, so the small runs have other networks. Losses are sums over
pixels: on `rooms` at 16 x 16 pixels a reconstruction term that counts (64 / 16)² = 16 times makes
the published β act as it does at 64 x 64 (`ROOMS_BY_PIXELS`).

To compare disentanglement, models must use their latents: at least 5 causal ones at β 1 and 2 at
β 8, a rule that looks at no score. After 4,000 steps with a weight of 16 there are 2 and 3, and 1
(seeds 0 and 1); with 64 there are 7 and 4, 3 and 3; with 256 there are 8, 5, 7 and 6, and 6, 4, 4
and 4 (seeds 0 to 3). So `ROOMS` has 256.
"""

from zscope.experiments.studies.grid import Grid, runs

__all__ = [
    "HELIX",
    "HELIX_COLLAPSED",
    "HELIX_WEAK",
    "PICTURES",
    "PLANE",
    "ROOMS",
    "ROOMS_AS_DIGITS",
    "ROOMS_BY_PIXELS",
]

HOLD_OUT = (0.95, 0.05)
"""57,000 digits to train on, 3,000 held out."""
ROOM_DATA = "rooms?resolution=16&pictures=23000"
ROOM_SPLIT = (20 / 23, 3 / 23)
PERCEPTRON = {"backbone": "mlp", "hidden": (256, 256)}
SEEDS = (0, 1, 2, 3)
"""Of scale paper: one more than the paper has, since fewer than 4 decide nothing."""
PUBLISHED = {"preset": "responses-2021", "seeds": SEEDS}

_helix = {
    "data": "helix?samples=1024&noise=0.1", "latents": 2, "likelihood": "mse", "backbone": "mlp",
    "hidden": (32, 32, 32, 32), "activation": "elu",
}  # fmt: skip

HELIX = Grid(
    small=runs(**_helix, model="beta-vae", beta=0.02, steps=5_000, batch=128, rate=3e-3,
               schedule="cosine", seeds=8),
    paper=runs(**_helix, model="beta-vae", beta=0.02, steps=5_000, batch=128, rate=3e-3,
               schedule="cosine", seeds=20),
    notes="Rate, batch, β, activation and seeds are not printed; these are ours.",
)  # fmt: skip
HELIX_WEAK = Grid(
    small=runs(**_helix, model="beta-vae", beta=0.02, steps=4_000, batch=64, rate=1e-3, seeds=4),
    paper=runs(**_helix, model="beta-vae", beta=0.02, steps=4_000, batch=64, rate=1e-3, seeds=4),
    notes="Ours: a weaker recipe, as a control.",
)
HELIX_COLLAPSED = Grid(
    small=runs(**_helix, model="vae", steps=5_000, batch=128, rate=3e-3, schedule="cosine",
               seeds=1),
    paper=runs(**_helix, model="vae", steps=5_000, batch=128, rate=3e-3, schedule="cosine",
               seeds=1),
    notes="Ours: β = 1 collapses.",
)  # fmt: skip

PICTURES = Grid(
    small=runs(model="beta-vae", data=["mnist", "fashion-mnist"], split=HOLD_OUT, latents=12,
               beta=[1, 2, 4, 8], steps=3_000, batch=128, rate=1e-3, seeds=4, **PERCEPTRON),
    paper=runs(model="beta-vae", data=["mnist?resolution=32", "fashion-mnist?resolution=32"],
               latents=12, beta=[1, 2, 4, 8], preset="responses-2021-mnist", seeds=SEEDS),
    notes="β as printed. The rate is printed as 1e-3 in section 6 and as 1e-4 in A.4.2; the "
    "latents of table 2 are not printed (12). Table 2 has 3 seeds.",
    small_notes="784 values instead of 1,024.",
)  # fmt: skip

ROOMS = Grid(
    small=runs(model="beta-vae", data=ROOM_DATA, split=ROOM_SPLIT, latents=12, beta=[1, 2, 4, 8],
               reconstruction_weight=256, backbone="locatello", steps=4_000, batch=64, rate=1e-3,
               schedule="cosine", seeds=4)
    + runs(model="beta-vae", data=ROOM_DATA, split=ROOM_SPLIT, latents=24, beta=4,
           reconstruction_weight=256, backbone="locatello", steps=4_000, batch=64, rate=1e-3,
           schedule="cosine", seeds=4),
    paper=runs(model="beta-vae", data="shapes3d", latents=[12, 24], beta=[1, 2, 4, 8],
               **PUBLISHED)
    + runs(model="beta-vae", data=["mpi3d-toy", "mpi3d-real"], latents=12, beta=[1, 2, 4, 8],
           **PUBLISHED),
    notes="Table 1 has 2 seeds, table 2 has 3.",
    tiny={"data": "rooms?resolution=16&pictures=460"},
)  # fmt: skip

ROOMS_BY_PIXELS = Grid(
    small=runs(model="beta-vae", data=ROOM_DATA, split=ROOM_SPLIT, latents=12, beta=[1, 2, 4, 8],
               reconstruction_weight=16, backbone="locatello", steps=4_000, batch=64, rate=1e-3,
               schedule="cosine", seeds=4),
    paper=ROOMS.paper,
    notes=ROOMS.notes,
    tiny=ROOMS.tiny,
)  # fmt: skip

ROOMS_AS_DIGITS = Grid(
    small=runs(model="beta-vae", data=ROOM_DATA, split=ROOM_SPLIT, latents=12, beta=[1, 8],
               steps=3_000, batch=128, rate=1e-3, seeds=4, **PERCEPTRON),
    paper=runs(model="beta-vae", data="shapes3d?resolution=32", latents=12, beta=[1, 8],
               preset="responses-2021-mnist", seeds=SEEDS),
    notes="Ours: the network and the β of the digits, for the comparison between data sets.",
    small_notes="768 values instead of 784.",
    tiny={"data": "rooms?resolution=16&pictures=460"},
)  # fmt: skip

PLANE = Grid(
    small=runs(model="vae", data="mnist", split=HOLD_OUT, latents=2, steps=3_000, batch=128,
               rate=1e-3, seeds=4, **PERCEPTRON)
    + runs(model="beta-vae", beta=8, data="fashion-mnist", split=HOLD_OUT, latents=2, steps=3_000,
           batch=128, rate=1e-3, seeds=4, **PERCEPTRON),
    paper=runs(model="vae", data="mnist?resolution=32", latents=2, preset="responses-2021-mnist",
               seeds=SEEDS)
    + runs(model="beta-vae", beta=8, data="fashion-mnist?resolution=32", latents=2,
           preset="responses-2021-mnist", seeds=SEEDS),
    notes="The caption of figure 28 says MNIST under the heading Fashion-MNIST: a misprint.",
)  # fmt: skip
