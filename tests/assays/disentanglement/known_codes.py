"""Codes whose disentanglement is known without measuring it."""

import numpy as np

import zscope.assays as a

# Every score with each of its flavours.
FLAVOURS = {
    "mig": ("zscope", "dlib"),
    "dci": ("zscope", "dlib"),
    "sap": ("zscope", "dlib"),
    "irs": ("zscope", "dlib"),
    "modularity": ("zscope", "dlib"),
    "explicitness": ("zscope", "raw", "dlib"),
    "factor_vae_score": ("zscope", "dlib"),
    "beta_vae_score": ("zscope", "dlib"),
    "predictability_gap": ("zscope", "paper"),
    "mig_sup": ("zscope", "dlib"),
    "jemmig": ("zscope", "dlib"),
    "dcimig": ("zscope", "dlib"),
    "mcc": ("linear", "rank"),
}
NAMES = list(FLAVOURS)
PAIRS = [(name, flavour) for name, flavours in FLAVOURS.items() for flavour in flavours]


def score(name, codes, factors, **options):
    return getattr(a, name)(codes, factors, **options)


def grid(sizes=(3, 3, 3), repeats=40, seed=0):
    """Every combination of values `repeats` times, in random order."""
    rows = np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), 1)
    rows = np.tile(rows, (repeats, 1))
    return np.random.default_rng(seed).permutation(rows)


def drawn(sizes, samples, seed=0):
    """Values drawn at random: an incomplete grid."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(size, size=samples) for size in sizes], 1)


def standardised(factors):
    return (factors - factors.mean(0)) / factors.std(0)


def aligned(factors, noise=0.1, seed=1):
    """One code for each factor, with a little noise."""
    return standardised(factors) + noise * normal(factors.shape, seed)


def normal(shape, seed=2):
    return np.random.default_rng(seed).standard_normal(shape)


def rotated(factors, seed=3, noise=0.2):
    """Every code a mixture of all factors; the noise keeps it from telling them all apart."""
    size = factors.shape[1]
    rotation, _ = np.linalg.qr(normal((size, size), seed))
    return standardised(factors) @ rotation + noise * normal(factors.shape, seed + 1)
