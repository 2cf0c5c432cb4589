"""Runs of "the polarised regime of variational autoencoders" (Bonheme, thesis, 2023), chapters 5-7.

Losses are sums over pixels: at 16 x 16 pixels the reconstruction term counts (64 / 16)² = 16 times
(at 32 x 32: 4 times), so that the published strengths act as they do at 64 x 64. Networks are
perceptrons with two hidden layers of 128 units. Models see the whole dataset, as those that the
thesis took from Locatello et al. (ICML 2019) did, and are measured on it. Counts of latents are
often the same for all seeds, which is judged from six seeds on: so there are six.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from zscope.experiments.studies.grid import Block, Grid, runs
from zscope.experiments.studies.grids.responses import HOLD_OUT

__all__ = [
    "ANNEALED",
    "ANNEALED_FOLLOWED",
    "BETA",
    "BETA_FOLLOWED",
    "BETA_SMALL",
    "CARS",
    "CLASSIFIERS",
    "COLLAPSED",
    "COLOUR",
    "CONNECTED",
    "CONTINUOUS",
    "CONVOLUTIONAL",
    "DIP",
    "DIP_FOLLOWED",
    "FACTOR",
    "FASHION",
    "FULLY_CONNECTED",
    "HAND_DIGITS",
    "IDENTIFIABLE",
    "IDENTIFIABLE_SHUFFLED",
    "NOISY",
    "NORB",
    "ROOM_TC",
    "SPRITES",
    "SPRITES_32",
    "SPRITES_CONTINUOUS",
    "TC",
    "TC_FOLLOWED",
    "TRACKED",
]

_grid = ("antialias=true&shape=square,ellipse&scale=0,2,3,5&orientation=0,2,4,6&position_x=16"
         "&position_y=16")  # fmt: skip
SPRITES = f"sprites?resolution=16&{_grid}"
"""8,192 pictures, 5 factors: shape 2, scale 4, orientation 4, x 16, y 16."""
SPRITES_32 = f"sprites?resolution=32&{_grid}"
SPRITES_COLOUR = f"sprites-color?resolution=16&{_grid}"
SPRITES_NOISY = f"sprites-noisy?resolution=16&{_grid}"
SPRITES_CONTINUOUS = "sprites?resolution=16&continuous=12000"
ROOMS = (
    "rooms?resolution=16&floor_hue=5&wall_hue=5&object_hue=1&scale=4&shape=4&orientation=15"
    "&pictures=6000"
)
CARS, NORB = "cars3d?resolution=64", "smallnorb?resolution=64"
BETAS, TC_BETAS = [1, 2, 4, 6, 8, 16], [1, 2, 4, 6, 8, 10]
PENALTIES = (1, 2, 5, 10, 20, 50)
CAPACITIES = [5, 10, 25, 50, 75, 100]

_training = {"steps": 3_000, "batch": 64, "rate": 1e-3}
_network = {"backbone": "mlp", "hidden": (128, 128), "latents": 10}
_weighted: dict[str, Any] = {**_training, **_network, "reconstruction_weight": 16}
_sprites: dict[str, Any] = {"data": SPRITES, **_weighted, "snapshots": (25, 100, 300, 1_000)}
_small_penalty = {"discriminator": (128, 128, 128), "discriminator_rate": 1e-3}
_paper: dict[str, Any] = {
    "data": [
        "dsprites", "sprites-color", "sprites-noisy", "sprites-background",
        NORB, CARS,
    ],
    "preset": "locatello-2019", "seeds": tuple(range(50)),
}  # fmt: skip


def penalised(*strengths: float, **fields: Any) -> tuple[Block, ...]:
    """DIP-VAE-II with λ_d = λ_od, as published."""
    blocks: tuple[Block, ...] = ()
    for strength in strengths:
        blocks += runs(model="dip-vae-ii", offdiagonal=strength, diagonal=strength, **fields)
    return blocks


EPOCHS = {  # steps of an epoch, and the epochs of figures C.2, C.3 and C.4
    "dsprites": (10_368, (2, 7, 14, 19, 26)),
    CARS: (247, (25, 292, 559, 826, 1_090)),
    NORB: (683, (10, 110, 210, 311, 410)),
}
_five: dict[str, Any] = {"preset": "polarised-2023", "seeds": (0, 1, 2, 3, 4)}
FULLY_CONNECTED: dict[str, Any] = {
    "backbone": "mlp", "hidden": (1200, 1200), "decoder_hidden": (256, 1200, 1200),
    "decoder_activation": "tanh",
}  # fmt: skip


def _convolved(make: Callable[..., tuple[Block, ...]], *data: str) -> tuple[Block, ...]:
    """Runs of chapter 7 (tables C.1 to C.3) on these datasets, or on all three."""
    blocks: tuple[Block, ...] = ()
    for name in data or EPOCHS:
        steps, epochs = EPOCHS[name]
        snapshots = tuple(steps * epoch for epoch in epochs)
        blocks += make(data=name, snapshots=snapshots, **_five)
    return blocks


def _connected(data: str, *epochs: int) -> tuple[Block, ...]:
    """Runs of chapter 7 with fully connected networks (tables C.4 and C.5)."""
    fields = {**_five, **FULLY_CONNECTED, "data": data}
    if epochs:
        fields["snapshots"] = tuple(EPOCHS[data][0] * epoch for epoch in epochs)
    return (
        runs(model="beta-vae", beta=[1, 8, 16], **fields)
        + runs(model="beta-tcvae", beta=2, **fields)
        + penalised(1, 20, 50, **fields)
        + runs(model="annealed-vae", capacity=5, **fields)
    )


BETA = Grid(
    small=runs(model="beta-vae", beta=BETAS, seeds=6, **_sprites),
    paper=runs(model="beta-vae", beta=BETAS, **_paper),
)
COLLAPSED = Grid(
    small=runs(model="beta-vae", beta=128, seeds=6, **_sprites),
    paper=runs(model="beta-vae", beta=128, data="dsprites", **_five),
    notes="Ours: a β-VAE that has collapsed, as a control.",
)
TC = Grid(
    small=runs(model="beta-tcvae", beta=TC_BETAS, seeds=6, **_sprites),
    paper=runs(model="beta-tcvae", beta=TC_BETAS, **_paper),
)
DIP = Grid(small=penalised(*PENALTIES, seeds=6, **_sprites), paper=penalised(*PENALTIES, **_paper))
ANNEALED = Grid(
    small=runs(model="annealed-vae", capacity=[1, *CAPACITIES], capacity_steps=1_000, seeds=6,
               **_sprites),
    paper=runs(model="annealed-vae", capacity=CAPACITIES, **_paper)
    + runs(model="annealed-vae", capacity=1,
           **{**_paper, "data": ["dsprites", "sprites-background", CARS]}),
    notes="Capacity 1 is ours, as a control. Published: it grows for 100,000 of 300,000 steps.",
)  # fmt: skip
FACTOR = Grid(
    small=runs(model="factor-vae", alpha=[10, 40, 100], seeds=6, **_small_penalty, **_sprites),
    paper=runs(
        model="factor-vae", alpha=[10, 20, 30, 40, 50, 100], discriminator="published", **_paper
    ),
    small_notes="A discriminator of 3 x 128 units at rate 1e-3 instead of 6 x 1,000 at 1e-4.",
)
BETA_SMALL = Grid(
    small=runs(model="beta-vae", beta=BETAS, data=SPRITES, seeds=6,
               **{**_weighted, "hidden": (16, 16)}),
    notes="Ours: hidden layers of 16 units, for the rate-distortion plane.",
    small_only="Ours, at scale small only: figure 4.1 is a schematic, without a second network.",
)  # fmt: skip

ROOM_TC = Grid(
    small=runs(
        model="beta-tcvae",
        data=ROOMS,
        beta=[1, 4, 10],
        seeds=6,
        **{**_weighted, "reconstruction_weight": 4},
    ),
    paper=runs(model="beta-tcvae", beta=TC_BETAS, **{**_paper, "data": NORB}),
    small_notes="6,000 pictures instead of SmallNORB: hues of floor and wall, scale, shape, "
    "orientation. The reconstruction counts 4 times: at 16 no latent becomes passive within 3,500 "
    "steps.",
)
COLOUR = Grid(
    small=runs(model="beta-tcvae", data=SPRITES_COLOUR, beta=[1, 4, 10], seeds=6, **_weighted)
    + runs(model="beta-vae", data=SPRITES_COLOUR, beta=[1, 8, 16], seeds=6, **_weighted)
    + penalised(1, 5, 20, data=SPRITES_COLOUR, seeds=6, **_weighted),
    paper=runs(model="beta-tcvae", beta=TC_BETAS, **{**_paper, "data": "sprites-color"})
    + runs(model="beta-vae", beta=BETAS, **{**_paper, "data": "sprites-color"})
    + penalised(*PENALTIES, **{**_paper, "data": CARS}),
    notes="Published: DIP-VAE-II on Cars3D.",
    small_notes="Coloured sprites stand for Cars3D.",
)
NOISY = Grid(
    small=runs(model="beta-tcvae", data=SPRITES_NOISY, beta=[1, 4, 10], seeds=6, **_weighted),
    paper=runs(model="beta-tcvae", beta=TC_BETAS, **{**_paper, "data": "sprites-noisy"}),
)
CONTINUOUS = Grid(
    small=penalised(1, 5, 20, data=SPRITES_CONTINUOUS, seeds=6, **_weighted),
    paper=penalised(
        *PENALTIES,
        data="sprites?resolution=64&continuous=100000",
        preset="locatello-2019",
        seeds=tuple(range(6)),
    ),
    notes="Ours: factors that are not on a grid, since binned information reads the grid.",
)

TRACKED = Grid(
    small=runs(model="beta-vae", beta=8, data=SPRITES, snapshot_every=100, seeds=6,
               **{**_weighted, "steps": 6_000}),
    paper=runs(model="beta-vae", beta=8, data="dsprites", preset="locatello-2019",
               seeds=tuple(range(6)), snapshot_every=1_000),
    notes="Published: one model. Six, so that the claims can be judged.",
    tiny={"steps": 14},  # or these would be the runs of BETA
)  # fmt: skip

_identifiable = {
    "model": "ivae", "backbone": "mlp", "hidden": (128, 128), "latents": 12, "batch": 64,
    "rate": 1e-3, "steps": 4_000, "seeds": 6, "reconstruction_weight": 16,
}  # fmt: skip
_published_identifiable: dict[str, Any] = {
    "model": "ivae", "prior_mean": ["fixed", "learned"], "latents": 30, "preset": "polarised-2023",
    "seeds": (0, 1, 2, 3, 4),
}  # fmt: skip
IDENTIFIABLE = Grid(
    small=runs(prior_mean=["fixed", "learned"], data=SPRITES,
               snapshots=(250, 500, 1_000, 2_000, 3_000), **_identifiable),
    paper=runs(data="dsprites", snapshots=(18_750, 37_500, 75_000, 150_000, 225_000),
               **_published_identifiable),
    notes="u are the 5 factors.",
    small_notes="12 latents instead of 30. The weight 16 was chosen on seed 0: with 1, and with a "
    "fixed prior mean, no latent was active.",
)  # fmt: skip
IDENTIFIABLE_SHUFFLED = Grid(
    small=runs(prior_mean=["fixed", "learned"], data=f"{SPRITES}&shuffled=1", **_identifiable),
    paper=runs(data="dsprites?shuffled=1", **_published_identifiable),
    notes="Ours: u in an order that does not fit the pictures, as a control.",
)

_early = (32, 125, 500, 1_000)
_fashion: dict[str, Any] = {
    "data": "fashion-mnist", "split": HOLD_OUT, **_network, **_training, "steps": 2_000,
    "snapshots": _early, "seeds": 4,
}  # fmt: skip
FASHION = Grid(
    small=runs(model="beta-vae", beta=[1, 8, 16], **_fashion)
    + penalised(1, **_fashion)
    + runs(model="annealed-vae", capacity=5, capacity_steps=700, **_fashion),
    paper=_connected(NORB, 1, 10, 410),
    notes="Fully connected networks.",
    small_notes="Of Fashion-MNIST, in place of SmallNORB.",
)
HAND_DIGITS = Grid(
    small=runs(model="beta-vae", beta=1, data="digits", backbone="mlp", hidden=(64, 64),
               latents=10, steps=2_000, batch=64, rate=1e-3, seeds=6)
    + penalised(1, data="digits", backbone="mlp", hidden=(64, 64), latents=10, steps=2_000,
                batch=64, rate=1e-3, seeds=6),
    paper=_connected(CARS),
    notes="Fully connected networks.",
    small_notes="Of digits, in place of Cars3D.",
)  # fmt: skip
CONNECTED = Grid(
    paper=_connected("dsprites"),
    paper_only="at scale small the networks of all other runs on sprites are fully connected",
    notes="Fully connected networks.",
)  # fmt: skip
CONVOLUTIONAL = Grid(
    small=runs(model="beta-vae", beta=[1, 8], data=SPRITES_32, reconstruction_weight=4,
               backbone="locatello", latents=10, steps=1_200, batch=64, rate=1e-3,
               snapshots=(32, 125, 500), seeds=4),
    paper=_convolved(partial(runs, model="beta-vae", beta=[1, 8]), "dsprites", CARS),
    notes="Convolutional networks.",
    small_notes="Sprites of 32 x 32 pixels.",
)  # fmt: skip
_classifier: dict[str, Any] = {
    "model": "classifier", "backbone": "mlp", "steps": 2_000, "batch": 64, "rate": 1e-3, "seeds": 6,
}  # fmt: skip
CLASSIFIERS = Grid(
    small=runs(data=[SPRITES, f"{SPRITES}&shuffled=1"], latents=2, hidden=(128, 128),
               **_classifier)
    + runs(data=["fashion-mnist", "fashion-mnist?shuffled=1"], split=HOLD_OUT, latents=10,
           hidden=(128, 128), **_classifier)
    + runs(data=["digits", "digits?shuffled=1"], latents=10, hidden=(64, 64), **_classifier),
    paper=runs(model="classifier", data=["dsprites", "dsprites?shuffled=1"], latents=3, **_five)
    + runs(model="classifier", data=[NORB, f"{NORB}&shuffled=1"], latents=5, **_five)
    + runs(model="classifier", data=[CARS, f"{CARS}&shuffled=1"], latents=183, factor=2, **_five),
    notes="Each also on labels in an order that does not fit the pictures, as a control. At scale "
    "paper of shapes, categories and cars, since the source does not say of what.",
)  # fmt: skip

BETA_FOLLOWED = Grid(
    small=runs(model="beta-vae", beta=[1, 8, 16], seeds=6, **_sprites),
    paper=_convolved(partial(runs, model="beta-vae", beta=[1, 2, 4, 6, 8])),
)
DIP_FOLLOWED = Grid(small=penalised(1, 5, 20, seeds=6, **_sprites),
                    paper=_convolved(partial(penalised, 1, 2, 5, 10, 20)))  # fmt: skip
TC_FOLLOWED = Grid(
    small=runs(model="beta-tcvae", beta=2, seeds=6, **_sprites),
    paper=_convolved(partial(runs, model="beta-tcvae", beta=[1, 2, 4, 6, 8])),
)
ANNEALED_FOLLOWED = Grid(
    small=runs(model="annealed-vae", capacity=5, capacity_steps=1_000, seeds=6, **_sprites),
    paper=_convolved(partial(runs, model="annealed-vae", capacity=[5, 10, 25, 50, 75])),
)
