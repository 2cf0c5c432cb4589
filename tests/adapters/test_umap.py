"""UMAP as the explorer computes it, with the real package."""

import pytest
import torch

from zscope.explorer.embedding import Umap

pytest.importorskip("umap", reason="needs umap-learn: make test-adapters")


@pytest.mark.filterwarnings("ignore")  # of the package, while it is compiled
def test_groups_of_codes_stay_apart_and_a_seed_repeats_the_layout():
    generator = torch.Generator().manual_seed(0)
    group = torch.randint(3, (120,), generator=generator)
    codes = 8 * torch.eye(3)[group] + 0.3 * torch.randn(120, 3, generator=generator)
    layouts = [Umap(codes, seed=0) for _ in range(2)]
    for layout in layouts:
        layout.thread.join(600)
        assert layout.error is None
    points = torch.from_numpy(layouts[0].points)
    assert points.shape == (120, 2)
    centres = torch.stack([points[group == k].mean(0) for k in range(3)])
    assert (torch.cdist(points, centres).argmin(1) == group).all()
    assert (layouts[0].points == layouts[1].points).all()
