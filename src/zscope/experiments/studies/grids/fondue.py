"""Runs of "the polarised regime of variational autoencoders" (Bonheme, thesis, 2023), chapter 8.

Every size is trained once with each seed, and all searches replay on these runs. Training has no
schedule, so the model at half of the steps is what training for half as long gives: there the
searches take their models, and at the end they are called fully trained. At scale small,
runs under another strength end where searches take them. Losses count every pixel once, which keeps
the numbers of latents small; those of digits of 8 x 8 pixels count it 8 times, chosen on seed 0,
where the answer was 2 without and 7 with it. No published number is expected. Answers are whole
numbers, often the same for all seeds, which is judged from six seeds on.
"""

from dataclasses import replace
from typing import Any

from zscope.experiments.studies.grid import Block, Grid, runs
from zscope.experiments.studies.grids.regime import (
    FULLY_CONNECTED,
    SPRITES,
    SPRITES_CONTINUOUS,
    penalised,
)

__all__ = [
    "CELEBA_EPOCHS",
    "CONTINUOUS_SIZES",
    "DIGIT_AE",
    "DIGIT_CONNECTED",
    "DIGIT_CONNECTED_VAE",
    "DIGIT_PLAIN",
    "DIGIT_PRESSURE",
    "DIGIT_PRESSURE_DRAWN",
    "DIGIT_SIZES",
    "DIGIT_STRENGTHS",
    "DSPRITES_EPOCHS",
    "DSPRITES_SIZES",
    "FASHION_AE",
    "FASHION_CONNECTED",
    "FASHION_CONNECTED_VAE",
    "FASHION_PRESSURE",
    "FASHION_SIZES",
    "FOLLOWED_EPOCHS",
    "SPRITE_AE",
    "SPRITE_CONNECTED",
    "SPRITE_CONNECTED_VAE",
    "SPRITE_PLAIN",
    "SPRITE_PRESSURE",
    "SPRITE_PRESSURE_DRAWN",
    "SPRITE_SIZES",
    "SPRITE_SIZES_RELU",
    "SPRITE_STRENGTHS",
    "STARTS",
    "SYMSOL_EPOCHS",
    "SYMSOL_SIZES",
]

SPLIT = (0.9, 0.1)
BETAS = [0.5, 2, 4]
PENALTIES = (0.5, 1, 2, 4)
DRAWN_PENALTIES = (0.5, 2)
"""Those of figures D.3 and D.4."""
STARTS = (5, 19, 22, 39, 74, 94, 116, 145, 180, 182)
"""The random starts of tables 8.4 to 8.6."""

_EPOCH = {"symsol?resolution=64": 3_516, "dsprites": 10_368, "celeba?resolution=64": 2_849}
"""Steps of an epoch."""
_SYMSOL, _DSPRITES, _CELEBA = _EPOCH

_halved = {start >> k for start in STARTS for k in range(8)} - {0}
_paper: dict[str, Any] = {
    "preset": "polarised-2023", "latents": sorted({*range(1, 65), *_halved}),
    "seeds": tuple(range(10)),
}  # fmt: skip
_elbow = [3, 6, 8, 10, 12, 18, 24, 32]
_faces = [*_elbow, 42, 52, 62, 100, 150, 200]
_full: dict[str, Any] = {"preset": "polarised-2023", "seeds": (0, 1, 2, 3, 4)}

_few = {"latents": [1, 2, 3, 4]}  # at scale tiny
_shared = {"split": SPLIT, "batch": 64, "rate": 1e-3}
_wide = {"backbone": "mlp", "hidden": (128, 128)}
_tanh: dict[str, Any] = {
    "data": SPRITES, **_shared, **_wide, "activation": "tanh", "weights": "xavier",
    "steps": 3_750,
}  # fmt: skip
_digits: dict[str, Any] = {
    "data": "digits", **_shared, "backbone": "mlp", "hidden": (64, 64), "steps": 4_000,
    "reconstruction_weight": 8,
}  # fmt: skip
_fashion: dict[str, Any] = {"data": "fashion-mnist", **_shared, **_wide, "steps": 2_000}
_snapshots = {"snapshots": (625, 1_875)}

SPRITE_SIZES = Grid(
    small=runs(model="beta-vae", beta=1, latents=list(range(1, 13)), seeds=8, **_tanh,
               **_snapshots),
    paper=runs(model="beta-vae", beta=1, data="dsprites", snapshots=(10_368, 20_736),
               **_paper, steps=41_472),
    tiny=_few,
    notes="Published: 300,000 steps when fully trained; searches at 2 epochs.",
    small_notes="Here searches take models at 1,875 steps.",
)  # fmt: skip
SPRITE_SIZES_RELU = Grid(
    small=runs(model="beta-vae", beta=1, latents=list(range(1, 13)), seeds=8, data=SPRITES,
               **_shared, **_wide, steps=1_875, snapshots=(625,)),
    tiny=_few,
    notes="Ours: the same with ReLU, which leaves latents that are half used.",
    small_only="Ours, at scale small only: the published networks have ReLU.",
)  # fmt: skip
DIGIT_SIZES = Grid(
    small=runs(model="beta-vae", beta=1, latents=list(range(1, 13)), seeds=8,
               snapshots=(1_000, 2_000), **_digits),
    paper=runs(model="beta-vae", beta=1, data="symsol?resolution=64", snapshots=(3_516,), **_paper,
               steps=7_032),
    tiny=_few,
    notes="Published: searches at 1 epoch.",
    small_notes="Digits of 8 x 8 pixels, in place of Symsol.",
)  # fmt: skip
FASHION_SIZES = Grid(
    small=runs(model="beta-vae", beta=1, latents=[*range(1, 13), 16, 24], seeds=6,
               snapshots=(422, 844, 1_000, 1_500), **_fashion),
    paper=runs(model="beta-vae", beta=1, data="celeba?resolution=64",
               snapshots=(2_849, 5_698), **_paper, steps=11_396),
    tiny={"latents": [1, 2, 3, 4, 10]},
    notes="Published: searches at 2 epochs.",
    small_notes="Fashion-MNIST, in place of CelebA; 844 steps are an epoch.",
)  # fmt: skip

SPRITE_PLAIN = replace(
    SPRITE_SIZES,
    small=runs(model="beta-vae", beta=1, latents=list(range(1, 9)), seeds=6, **_tanh, **_snapshots),
)
"""Those of the same seeds and sizes as under pressure."""
DIGIT_PLAIN = replace(
    DIGIT_SIZES,
    small=runs(model="beta-vae", beta=1, latents=list(range(1, 13)), seeds=6,
               snapshots=(1_000, 2_000), **_digits),
)  # fmt: skip
_searched_sprites, _searched_digits = {**_tanh, "steps": 1_875}, {**_digits, "steps": 2_000}


def _published_pressure(
    data: str, penalties: tuple[float, ...] = PENALTIES
) -> tuple[Block, ...]:  # fmt: skip
    paper = {"data": data, "snapshots": (_EPOCH[data],), "steps": 3 * _EPOCH[data], **_paper}
    return runs(model="beta-vae", beta=BETAS, **paper) + penalised(*penalties, **paper)


def _pressure(
    data: str, most: int, few: int, fields: dict[str, Any], penalties: tuple[float, ...] = PENALTIES
) -> Grid:  # fmt: skip
    """Every strength; under strong ones searches try no more than a few latents."""
    sizes = list(range(1, few + 1))
    return Grid(
        small=runs(model="beta-vae", beta=0.5, latents=list(range(1, most + 1)), seeds=6, **fields)
        + runs(model="beta-vae", beta=[2, 4], latents=sizes, seeds=6, **fields)
        + penalised(*penalties, latents=sizes, seeds=6, **fields),
        paper=_published_pressure(data, penalties),
        tiny=_few,
        notes="λ is that of both parts of the penalty.",
    )


SPRITE_PRESSURE = _pressure(_DSPRITES, 8, 5, _searched_sprites)
DIGIT_PRESSURE = _pressure(_SYMSOL, 12, 8, _searched_digits)
SPRITE_PRESSURE_DRAWN = _pressure(_DSPRITES, 8, 5, _searched_sprites, DRAWN_PENALTIES)
DIGIT_PRESSURE_DRAWN = _pressure(_SYMSOL, 12, 8, _searched_digits, DRAWN_PENALTIES)

SPRITE_AE = Grid(
    small=runs(model="ae", latents=[1, 2, 3, 4, 5, 6, 8, 12], seeds=6, **_tanh),
    paper=runs(model=["ae", "vae"], latents=_elbow, data="dsprites", **_full),
    tiny=_few,
)
DIGIT_AE = Grid(
    small=runs(model="ae", latents=[1, 2, 3, 4, 5, 6, 8, 10, 12], seeds=6, **_digits),
    paper=runs(model=["ae", "vae"], latents=_elbow, data="symsol?resolution=64", **_full),
    tiny=_few,
)
FASHION_AE = Grid(
    small=runs(model="ae", latents=[1, 2, 4, 8, 12, 16, 24], seeds=6, **_fashion),
    paper=runs(model=["ae", "vae"], latents=_faces, data="celeba?resolution=64", **_full),
    tiny=_few,
)

CONTINUOUS_SIZES = Grid(
    small=runs(model="beta-vae", beta=1, latents=[*range(1, 9), 10, 12], seeds=6,
               **{**_tanh, "data": SPRITES_CONTINUOUS, "steps": 2_500},
               snapshots=(169, 500, 1_250, 1_750)),
    tiny={"latents": [1, 2, 3, 4, 10]},
    notes="Ours: sprites whose factors are not on a grid, because neighbours on a grid have few "
    "distances; 169 steps are an epoch.",
    small_only="Ours, at scale small only: scale paper has the published data.",
)  # fmt: skip


# At scale paper only

_all_connected = "at scale small all networks are fully connected"


def _connected(data: str, epochs: int) -> Grid:
    """Fully connected networks (table D.3) of every size, for as many epochs and for twice."""
    steps = epochs * _EPOCH[data]
    return Grid(
        paper=runs(model="beta-vae", beta=1, data=data, snapshots=(steps,), steps=2 * steps,
                   **FULLY_CONNECTED, **_paper),
        paper_only=_all_connected,
        notes=f"Fully connected networks. Published: searches at {epochs} epochs.",
    )  # fmt: skip


def _connected_vae(data: str, sizes: list[int]) -> Grid:
    return Grid(
        paper=runs(model="vae", data=data, latents=sizes, **FULLY_CONNECTED, **_full),
        paper_only=_all_connected, notes="Fully connected networks, fully trained.",
    )  # fmt: skip


def _strengths(data: str) -> Grid:
    return Grid(
        paper=runs(model="beta-vae", beta=BETAS, data=data, latents=_elbow, **_full)
        + penalised(*DRAWN_PENALTIES, data=data, latents=_elbow, **_full),
        paper_only="at scale small the models of the searches have elbows, too",
        notes="Fully trained, for elbows.",
    )


FOLLOWED_EPOCHS = (1, 2, 5, 10, 20)


def _followed(data: str, *sizes: int) -> Grid:
    steps = [_EPOCH[data] * epoch for epoch in FOLLOWED_EPOCHS]
    return Grid(
        paper=runs(model="beta-vae", beta=1, data=data, latents=list(sizes),
                   snapshots=tuple(steps[:-1]), steps=steps[-1], **_full),
        paper_only="at scale small the models of the searches are followed",
        notes="Followed for 20 epochs; the source does not say for how many.",
    )  # fmt: skip


DIGIT_CONNECTED, DIGIT_CONNECTED_VAE = _connected(_SYMSOL, 3), _connected_vae(_SYMSOL, _elbow)
SPRITE_CONNECTED = _connected(_DSPRITES, 1)
SPRITE_CONNECTED_VAE = _connected_vae(_DSPRITES, _elbow)
FASHION_CONNECTED, FASHION_CONNECTED_VAE = _connected(_CELEBA, 4), _connected_vae(_CELEBA, _faces)
DIGIT_STRENGTHS, SPRITE_STRENGTHS = _strengths(_SYMSOL), _strengths(_DSPRITES)
FASHION_PRESSURE = Grid(
    paper=_published_pressure(_CELEBA),
    paper_only="needs CelebA, which has no counterpart at scale small",
    notes="λ is that of both parts of the penalty.",
)
SYMSOL_SIZES = Grid(
    paper=DIGIT_SIZES.paper, paper_only="the runs on Symsol", notes=DIGIT_SIZES.notes
)
DSPRITES_SIZES = Grid(
    paper=SPRITE_SIZES.paper, paper_only="the runs on dSprites", notes=SPRITE_SIZES.notes
)
SYMSOL_EPOCHS, DSPRITES_EPOCHS = _followed(_SYMSOL, 10), _followed(_DSPRITES, 10)
CELEBA_EPOCHS = _followed(_CELEBA, 10, 32)
