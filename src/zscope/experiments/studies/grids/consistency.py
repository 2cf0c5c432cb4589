"""Runs of "on the interventional consistency of autoencoders" (2021), on MNIST.

Small runs are perceptrons with two hidden layers of 256 units and 6 latents; gates harden over the
whole training. The published weight of the penalty is 4; 1 was chosen on one seed at this size,
because with the causal block 4 failed in some seeds. The study of consistency has both
(AUTOENCODERS), and judges claims at each; all other small runs have weight 1.
"""

from dataclasses import replace

from zscope.experiments.studies.grid import Grid, runs
from zscope.experiments.studies.grids.responses import HOLD_OUT, PERCEPTRON

__all__ = [
    "AUTOENCODERS",
    "DIGIT_CLASSIFIER",
    "FACES",
    "MASKS",
    "PAPER_AUTOENCODERS",
    "PLANE_CLASSIFIER",
    "STRUCTURAL",
    "STRUCTURAL_BLOCKS",
    "VARIATIONAL",
    "VARIATIONAL_BLOCKS",
]

STEPS = 3_000
SEEDS = (11, 13, 17, 37, 121)
SIZES = ["consistency-2021-s", "consistency-2021"]
_published = {"data": "mnist", "split": HOLD_OUT, "seeds": SEEDS}
"""No split is printed; ours holds out as many digits as at scale small."""
_small = {
    "data": "mnist", "split": HOLD_OUT, "latents": 6, "steps": STEPS, "batch": 64, "rate": 1e-3,
    "schedule": "cosine", **PERCEPTRON,
}  # fmt: skip
_gates = {"gate_steps": STEPS}

_plain = runs(model="ae", seeds=6, **_small) + runs(model="xae", seeds=6, **_gates, **_small)
AUTOENCODERS = Grid(
    small=_plain
    + runs(model="cae-i", consistency_weight=[1.0, 4.0], seeds=6, **_small)
    + runs(model="xcae-i", consistency_weight=[1.0, 4.0], seeds=6, **_gates, **_small)
    + runs(model="xcae-e", consistency_weight=1.0, seeds=6, **_gates, **_small),
    paper=runs(model=["ae", "xae", "xcae-i", "xcae-e"], preset=SIZES, **_published),
    notes="Published: depth 6 (S) and 12 (Standard); the weight of the penalty is 4.",
    tiny={"gate_steps": None},
)  # fmt: skip
PAPER_AUTOENCODERS = replace(
    AUTOENCODERS,
    small=_plain
    + runs(model=["xcae-i", "xcae-e"], consistency_weight=1.0, seeds=6, **_gates, **_small),
)
"""Those of the paper, with one weight: without the penalty alone, which is ours."""

VARIATIONAL_BLOCKS = Grid(
    small=runs(model="xvae", seeds=4, **_gates, **_small)
    + runs(model="xcvae-i", consistency_weight=1.0, seeds=4, **_gates, **_small),
    paper=runs(model=["xvae", "xcvae-i"], preset=SIZES, **_published),
    notes="The published β is not printed; ours is 1.",
    tiny={"gate_steps": None},
)  # fmt: skip
"""Those whose masks are measured."""
VARIATIONAL = replace(
    VARIATIONAL_BLOCKS,
    small=(
        *runs(model=["vae", "avae"], seeds=6, **_small),
        *VARIATIONAL_BLOCKS.small,
        *runs(model="xcvae-e", consistency_weight=1.0, seeds=4, **_gates, **_small),
    ),
    paper=runs(model=["vae", "xvae", "xcvae-i", "xcvae-e", "avae"], preset=SIZES, **_published),
)

_dense = {"options.start": "dense", "width": (10, 20)}
STRUCTURAL_BLOCKS = Grid(
    small=runs(model="xcsae-6-i", consistency_weight=1.0, seeds=4, **_gates, **_small),
    paper=runs(model="xcsae-6-i", preset=SIZES[0], **_dense, **_published)
    + runs(model="xcsae-12-i", preset=SIZES[1], **_dense, **_published),
    notes="One latent a variable, as the parameter counts of table 4 imply.",
    tiny={"gate_steps": None},
)  # fmt: skip
"""Those whose masks are measured."""
STRUCTURAL = replace(
    STRUCTURAL_BLOCKS,
    small=(
        *runs(model="sae-6", seeds=4, **_small),
        *runs(model="xsae-6", seeds=4, **_gates, **_small),
        *STRUCTURAL_BLOCKS.small,
    ),
    paper=runs(model=["sae-6", "xsae-6", "xcsae-6-i", "xcsae-6-e"], preset=SIZES[0], **_dense,
               **_published)
    + runs(model=["sae-12", "xsae-12", "xcsae-12-i", "xcsae-12-e"], preset=SIZES[1], **_dense,
           **_published),
)  # fmt: skip

MASKS = Grid(
    small=runs(model="xae", seeds=4, **_gates, **{**_small, "latents": 12})
    + runs(model="xae", unit=4, seeds=4, **_gates, **_small)
    + runs(model="xcae-i", unit=4, consistency_weight=1.0, seeds=4, **_gates, **_small),
    paper=runs(model=["xae", "xcae-i", "xcae-e"], unit=4, preset=SIZES[0], **_published),
    small_notes="12 units of one number, and 6 units whose causes have four numbers each (S4).",
    tiny={"gate_steps": None},
)  # fmt: skip

_faces = {
    "data": "celeba?resolution=128", "split": HOLD_OUT, "preset": "consistency-2021-celeba",
    "seeds": SEEDS,
}  # fmt: skip
FACES = Grid(
    paper=runs(model=["ae", "xae", "xcae-i"], **_faces)
    + runs(model=["xae", "xcae-i"], unit=4, **_faces),
    paper_only="needs CelebA: 32 units of one number (v32) and of four (v324)",
)

_classifier = {
    "model": "classifier", "split": HOLD_OUT, "latents": 10, "backbone": "mlp",
    "hidden": (256, 128), "steps": 1_500, "batch": 128, "rate": 1e-3, "schedule": "cosine",
    "seeds": 1,
}  # fmt: skip
DIGIT_CLASSIFIER = Grid(
    small=runs(model="classifier", data=["mnist", "fashion-mnist"], split=HOLD_OUT, latents=10,
               backbone="mlp", hidden=(256, 128), steps=1_500, batch=128, rate=1e-3,
               schedule="cosine", seeds=1),
    paper=runs(data=["mnist", "fashion-mnist"], **_classifier),
    notes="One feature extractor for all models that are compared.",
    tiny={"steps": 60},
)  # fmt: skip

PLANE_CLASSIFIER = replace(
    DIGIT_CLASSIFIER,
    paper=runs(data=["mnist?resolution=32", "fashion-mnist?resolution=32"], **_classifier),
)
"""The same for pictures of the size that models of two latents have at scale paper."""
