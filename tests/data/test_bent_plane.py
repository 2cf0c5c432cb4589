"""The bent plane: known angles, a known contrast, and a map that can be undone."""

import math

import numpy as np
import pytest
import torch
from worlds import gaussian_codes

import zscope as zs
from zscope.data import options_in_force
from zscope.data.bent_plane import bend_plane, contrast
from zscope.errors import ConfigError


@pytest.mark.parametrize(("stretch", "shear"), [(2.0, 0.0), (1.0, 0.0), (1.0, 1.0), (2.0, -0.5)])
def test_columns_and_contrast_are_the_promised_ones_everywhere(stretch, shear):
    def point(z):
        return bend_plane(z[None], stretch=stretch, shear=shear)[0]

    J = torch.func.vmap(torch.func.jacfwd(point))(gaussian_codes(50, 2))
    first, second = J[:, :, 0], J[:, :, 1]
    lengths = first.norm(dim=1), second.norm(dim=1)
    ratio = torch.full((50,), math.hypot(stretch, shear), dtype=torch.float64)
    assert torch.allclose(lengths[1] / lengths[0], ratio)
    cosine = (first * second).sum(1) / lengths[0] / lengths[1]
    assert torch.allclose(cosine, shear / ratio, atol=1e-9)
    c = lengths[0].log() + lengths[1].log() - torch.linalg.det(J).abs().log()
    assert torch.allclose(c, torch.full_like(c, contrast(stretch=stretch, shear=shear)), atol=1e-9)


def test_factors_can_be_read_off_by_the_complex_logarithm():
    data = zs.data.load("bent-plane", samples=2000, stretch=1.5, shear=0.5, bend=0.3)
    w = np.log(0.3 * (data.images[:, 0] + 1j * data.images[:, 1]) + 1) / 0.3
    second = w.imag / 1.5
    assert data.factors == pytest.approx(np.stack([w.real - 0.5 * second, second], 1), abs=1e-4)
    assert data.factors.std(0) == pytest.approx([1, 1], abs=0.05)


def test_without_bend_it_is_a_gaussian_of_known_covariance():
    flat = zs.data.load("bent-plane", bend=0, stretch=2, shear=1)
    assert np.cov(flat.images.T) == pytest.approx(np.array([[2, 2], [2, 4]]), rel=0.05)
    nearly = zs.data.load("bent-plane", bend=1e-4, stretch=2, shear=1)
    assert nearly.images == pytest.approx(flat.images, abs=0.01)


def test_a_plane_that_wraps_around_itself_is_refused():
    with pytest.raises(ConfigError, match="expected a stretch above 0 and a bend from 0 to 1"):
        zs.data.load("bent-plane", bend=0.6)
    assert options_in_force("bent-plane", {"stretch": 2.0, "samples": 20_000}) == {}
