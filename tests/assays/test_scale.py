"""What is said to be free of scale is so at any scale."""

import pytest
import torch
from worlds import seeded

import zscope as zs
from zscope.assays.similarity.cka import StreamingCKA

a = zs.assays
MIXING = torch.tensor([[1.0, 0.6, 0.0], [0.0, 1.0, 0.4], [0.3, 0.0, 1.0]]).double()
CODES = torch.randn(300, 3, generator=seeded(0)).double() @ MIXING
OTHERS = CODES @ MIXING + torch.randn(300, 3, generator=seeded(1)).double()


def streaming(x, y):
    stream = StreamingCKA()
    for rows in (slice(0, 100), slice(100, 300)):
        stream.add(x[rows], y[rows])
    return stream.result()


def heatmap(x, y):
    layers = {"layer": x}
    return a.similarity_heatmap(layers, {"layer": y})


ALONE = {
    "total correlation": a.total_correlation,
    "effective rank": a.effective_rank,
    "effective rank of the data": lambda x: a.effective_rank(x, of="data"),
    "intrinsic dimension": a.intrinsic_dimension,
    "two nearest neighbours": lambda x: a.intrinsic_dimension(x, method="twonn"),
    "mutual information": a.mutual_information,
}
PAIRS = {
    "CKA": a.cka,
    "plain CKA": lambda x, y: a.cka(x, y, debiased=False),
    "streaming CKA": streaming,
    "procrustes": a.procrustes,
    "SVCCA": a.svcca,
    "PWCCA": a.pwcca,
}
SCALES = [1e-100, 1e-30, 1e-7, 1e7, 1e60]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ALONE)
def test_one_representation(name, scale):
    score = ALONE[name](CODES).score
    assert ALONE[name](scale * CODES).score == pytest.approx(score, rel=1e-6)
    assert score > 0.1


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", PAIRS)
def test_two_representations(name, scale):
    score = PAIRS[name](CODES, OTHERS).score
    assert PAIRS[name](scale * CODES, OTHERS).score == pytest.approx(score, rel=1e-6)
    assert PAIRS[name](CODES, scale * OTHERS).score == pytest.approx(score, rel=1e-6)
    assert 0.1 < score < 0.99


@pytest.mark.parametrize("scale", SCALES)
def test_heatmaps(scale):
    value = heatmap(CODES, OTHERS).matrix
    assert torch.allclose(heatmap(scale * CODES, OTHERS).matrix, value, rtol=1e-5)


def test_each_latent_has_its_own_scale():
    """Total correlation is that of the correlation matrix, whatever the units of a latent."""
    units = torch.tensor([1e-9, 1.0, 1e9]).double()
    score = a.total_correlation(CODES).score
    result = a.total_correlation(units * CODES)
    assert result.score == pytest.approx(score, rel=1e-9)
    assert result.dropped == []
    # The halves of an interval are scaled alike.
    drawn = [a.total_correlation(u * CODES, resamples=20, generator=seeded(0)).interval
             for u in (1, units)]  # fmt: skip
    assert drawn[0] == pytest.approx(drawn[1], rel=1e-6)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_latent_that_varies_by_rounding_alone_is_constant(kind):
    rounding = torch.finfo(kind).eps * torch.randint(0, 2, (300, 1), generator=seeded(2))
    codes = torch.cat([CODES, 1 + rounding.double()], 1).to(kind)
    result = a.total_correlation(codes)
    assert result.dropped == [3]
    varied = torch.cat([CODES, 1 + 64 * rounding.double()], 1).to(kind)
    assert a.total_correlation(varied).dropped == []
