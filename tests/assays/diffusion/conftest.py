"""Pictures and models of latent maps that several tests share."""

import pytest
from map_worlds import PatchPCA, power_law


@pytest.fixture(scope="session")
def pictures():
    """96 smooth pictures of 16 x 16, without a mean picture."""
    x = power_law(96, 16, 2.0)
    return x - x.mean(0)


@pytest.fixture(scope="session")
def patch_pca(pictures):
    return PatchPCA(pictures, 4, 3)
