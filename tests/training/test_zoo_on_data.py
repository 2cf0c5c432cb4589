"""Every model trains on every dataset it makes sense for, and says why where it does not.

Each dataset is stood in for by a few observations of its shape, with its factors: which
models make sense depends on nothing else. Models that use no factors depend on the shape
alone, and the networks here see of it only whether there are rows or pictures of how many
channels.
"""

import numpy as np
import pytest

import zscope as zs
from zscope.data.source import factor_arguments
from zscope.errors import ZscopeError

# One of each objective, and one with every part that a name can fix.
MODELS = [*zs.models.CATALOGUE, "adaae-2", "vlae-2", "xcsae-2-i", "xcvae-e"]
PAIRED = {"slow-vae", "pcl"}
OF_FACTORS = {"ivae", "classifier"}
LABELS_ALONE = {"digits", "mnist", "fashion-mnist", "celeba"}
NO_LABEL = {"square-linear", "square-nonlinear", "square-wave", "bent-plane"}
# The smallest of each kind.
SHAPES = {
    shape[:-2]: shape
    for shape in sorted((zs.data.source(name).shape for name in zs.data.names()), reverse=True)
}


def standing_in(name):
    """Two values of every factor, in all combinations of the first five."""
    source = zs.data.source(name)
    rng = np.random.default_rng(0)
    grid = zs.data.grid_factors([2] * 5)
    columns = [
        rng.uniform(size=len(grid)) if factor.kind == "continuous" else grid[:, place % 5]
        for place, factor in enumerate(source.factors)
    ]
    pixels = rng.integers(256, size=(len(grid), *source.shape), dtype=np.uint8)
    rows = rng.normal(size=(len(grid), *source.shape)).astype(np.float32)
    images = rows if len(source.shape) == 1 else pixels
    return zs.Dataset(name, images, np.stack(columns, 1), **factor_arguments(source.factors))


def attempt(name, data):
    """One step; the classifier has as many logits as its label has values."""
    options, latents = {}, 4
    if name == "classifier":
        labels = [place for place, kind in enumerate(data.factor_kinds) if kind != "continuous"]
        options["factor"] = labels[0] if labels else 0
        latents = max(2, data.factor_sizes[options["factor"]])
    model = zs.models.build_for(
        name, data, latents=latents, backbone="mlp", hidden=(4, 4), **options
    )
    return zs.train(model, data, steps=1, batch=4, progress=False)


@pytest.mark.parametrize("dataset", zs.data.names())
def test_a_dataset_trains_every_model_of_factors_it_makes_sense_for(dataset):
    data = standing_in(dataset)
    unsuited = PAIRED if dataset in LABELS_ALONE else set()
    unsuited = unsuited | ({"classifier"} if dataset in NO_LABEL else set())
    for name in sorted(PAIRED | OF_FACTORS):
        if name in unsuited:
            with pytest.raises(ZscopeError) as refused:
                attempt(name, data)
            said = str(refused.value)
            # Who, what was seen, the likely cause, the next step.
            assert said.startswith(("train: the model learns from pairs", "classifier: factor 0"))
            assert dataset in said or "has values such as 0." in said
            assert "are categories" in said or "classes are numbered" in said
            assert "Use data with" in said or "Choose a factor" in said
        else:
            history = attempt(name, data).history
            assert np.isfinite(history[-1]["loss"]), (dataset, name)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=str)
def test_data_without_factors_train_what_needs_none(shape):
    random = np.random.default_rng(0)
    rows = random.normal(size=(32, *shape)).astype(np.float32)
    pixels = random.integers(256, size=(32, *shape), dtype=np.uint8)
    data = zs.Dataset("plain", rows if len(shape) == 1 else pixels)
    for name in MODELS:
        if name in OF_FACTORS:
            with pytest.raises(ZscopeError, match=r"has no(ne| factors)|none\. Use data"):
                attempt_plain(name, data)
        else:
            assert np.isfinite(attempt_plain(name, data).history[-1]["loss"])


def attempt_plain(name, data):
    options = {"discriminator": (4, 4)} if name == "factor-vae" else {}
    model = zs.models.build_for(name, data, latents=4, backbone="mlp", hidden=(4, 4), **options)
    return zs.train(model, data, steps=1, batch=4, progress=False)
