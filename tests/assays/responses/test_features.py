"""Feature effects: decoders whose effects are known."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from worlds import gaussian_codes, identity

import zscope as zs
from zscope.assays import feature_effects
from zscope.assays.responses.features import _differences, _spread
from zscope.errors import Undefined

W = torch.tensor([[2.0, 0.0, 1.0, 0.0], [0.0, -3.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
SPREAD = torch.tensor([1.0, 0.5, 1.0])
MEAN = torch.tensor([0.3, -1.0, 0.0])


def linear(seed, rows=400, noise=0.5):
    """Codes of known spread and x = z W + noise; the last latent moves nothing."""
    generator = torch.Generator().manual_seed(seed)
    codes = MEAN + SPREAD * torch.randn(rows, 3, generator=generator)
    x = codes @ W + noise * torch.randn(rows, 4, generator=generator)
    return zs.wrap(lambda x: x[:, :3], lambda z: z @ W, latents=3), codes, x


def truth(noise=0.5):
    deviation = ((SPREAD[:, None] * W).square().sum(0) + noise**2).sqrt()
    return 2 * SPREAD[:, None] * W / deviation


def test_a_linear_decoder_has_the_effects_of_its_weights():
    model, codes, x = linear(0, rows=20_000)
    result = feature_effects(model, codes, x, samples=2000)
    assert result.effects.numpy() == pytest.approx(truth().numpy(), abs=0.03)
    assert result.sizes.numpy() == pytest.approx(truth().abs().numpy() / 2, abs=0.05)
    assert [result.moved(j) for j in range(3)] == [[0, 2], [1, 2], []]
    assert result.text(0) == "feature 0 +1.9 sd, feature 2 +1.6 sd"
    assert result.text(1, most=1) == "feature 1 -1.9 sd, and 1 more"
    assert result.text(2) == ""


@pytest.mark.parametrize("scaled", [True, False])
def test_a_pca_of_a_real_table_moves_each_feature_by_twice_its_correlation(scaled):
    """x_k = W_kj z_j + …, components are uncorrelated: 2 W_kj s_j / sd_k = 2 corr(x_k, z_j)."""
    table = load_wine(as_frame=True).data
    pca = make_pipeline(StandardScaler(with_std=scaled), PCA(3)).fit(table)
    result = feature_effects(zs.record(zs.load(pca), table))
    correlations = np.corrcoef(pca.transform(table).T, table.T)[:3, 3:]
    assert result.effects.numpy() == pytest.approx(2 * correlations, abs=1e-5)
    changes = 2 * correlations * table.to_numpy().std(0)
    assert result.changes.numpy() == pytest.approx(changes, rel=1e-3, abs=1e-3)
    for j, row in enumerate(2 * correlations):
        first, second = np.abs(row).argsort()[::-1][:2]
        sentence = f"{table.columns[first]} {row[first]:+.1f} sd, {table.columns[second]} "
        assert result.text(j).startswith(sentence + f"{row[second]:+.1f} sd")
    # In raw units proline, whose variance is largest by far, is the first component.
    assert result.text(0).startswith("proline") is not scaled


def test_intervals_hold_the_truth_at_least_as_often_as_they_say():
    inside = torch.zeros(3, 4)
    widths = []
    for seed in range(100, 220):
        result = feature_effects(*linear(seed, rows=300))
        inside += (result.low <= truth() + 1e-6) & (truth() - 1e-6 <= result.high)
        widths.append((result.high - result.low).max())
    assert (inside / 120).min() > 0.92
    assert 0.05 < np.mean(widths) < 0.6  # an interval that is always right says nothing


def test_a_feature_that_moves_both_ways_is_shown_with_plus_minus():
    generator = torch.Generator().manual_seed(0)
    codes = torch.randn(4000, 2, generator=generator)

    def decode(z):
        return torch.stack([z[:, 0], z[:, 0].square(), z[:, 0] * z[:, 1]], 1)

    model = zs.wrap(lambda x: x[:, :2], decode, latents=2)
    names = ["line", "square", "product"]
    result = feature_effects(model, codes, decode(codes), names=names, samples=4000)
    assert result.effects[0].tolist() == pytest.approx([2, 0, 0], abs=0.15)
    assert result.both_ways[0].tolist() == [False, True, True]
    assert result.both_ways[1].tolist()[2]
    # x = z² has the total effect 1, the product of two that of both: 1 each.
    assert result.sizes[0].tolist() == pytest.approx([1, 1, 1], abs=0.15)
    assert result.sizes[1].tolist() == pytest.approx([0, 0, 1], abs=0.15)
    assert "line +2.0 sd" in result.text(0)
    assert "square ±" in result.text(0)


def test_units_of_features_and_latents_change_nothing():
    model, codes, x = linear(1)
    scale, shift = torch.tensor([1e3, 1e-2, 7.0, 1.0]), torch.tensor([5.0, -2.0, 0.0, 1e4])
    other = zs.wrap(lambda x: x[:, :3], lambda z: (z / 4) @ W * scale + shift, latents=3)
    a = feature_effects(model, codes, x)
    b = feature_effects(other, 4 * codes, x * scale + shift)
    for part in ("effects", "low", "high", "sizes"):
        assert torch.allclose(getattr(a, part), getattr(b, part), atol=2e-3)
    assert torch.allclose(b.changes, a.changes * scale, rtol=0.02, atol=1e-4)


def test_constant_features_are_not_moved():
    model, codes, x = linear(2)
    x[:, 1] = 0.1
    result = feature_effects(model, codes, x)
    assert result.effects[:, 1].tolist() == [0, 0, 0]
    assert result.moved(1) == [2]
    result.to_dict()


def test_pictures_have_no_features():
    model = zs.wrap(lambda x: x.flatten(1)[:, :2], lambda z: z[:, :, None, None], latents=2)
    recording = zs.record(model, np.random.default_rng(0).random((40, 2, 1, 1), np.float32))
    with pytest.raises(Undefined, match="the data are pictures"):
        feature_effects(recording)


def test_a_table_gives_names_and_changes_in_its_own_units(tmp_path):
    draw = np.random.default_rng(0)
    values = draw.normal(size=(400, 2)) * [12, 0.01] + [45, 0.05]
    (tmp_path / "x.csv").write_text(
        "\n".join(["age,dose", *(f"{a:.6g},{b:.6g}" for a, b in values)])
    )
    data = zs.data.load(tmp_path / "x.csv")
    model = zs.wrap(lambda x: x, lambda z: z, latents=2)
    model.scaling = data.units_for_training()
    result = feature_effects(zs.record(model, data))
    assert result.names == ["age", "dose"]
    assert result.text(0) == "age +2.0 sd"
    assert result.changes.diagonal().tolist() == pytest.approx([24, 0.02], rel=0.1)
    lines = dict(result.summary())
    assert lines["latent 1 moves"].startswith("dose +2.0 sd [+1.")
    assert result.plot() is not None


def test_the_errors_of_sizes_know_that_neighbours_share_a_draw():
    """Of one latent with weight 1, squares of differences of neighbours: without their
    covariance the variance of the mean would be two thirds of what it is."""
    base = gaussian_codes(20_000, 1).float()
    world = identity(1)
    _, _, square, error = _differences(world, base, base.double(), 0, 0.0, 1.0)
    # (a - b)^2 of unit Gaussians: mean 2, variance 8, covariance with the next one 2.
    assert float(square) == pytest.approx(2, abs=0.1)
    assert float(error) == pytest.approx(((8 + 2 * 2) / 20_000) ** 0.5, rel=0.05)


def test_the_spread_of_a_long_table_is_summed_in_parts(monkeypatch):
    rows = 3 + gaussian_codes(1000, 5) * torch.tensor([1.0, 2, 3, 4, 5])
    whole = _spread(rows)
    monkeypatch.setattr("zscope.assays.responses.features.CELLS", 35)
    for part, other in zip(_spread(rows), whole, strict=True):
        torch.testing.assert_close(part, other, rtol=1e-12, atol=0)
    torch.testing.assert_close(whole[0], rows.mean(0))
    torch.testing.assert_close(whole[1], rows.std(0, correction=0))
