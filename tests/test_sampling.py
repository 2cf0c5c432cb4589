import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from worlds import gaussian_codes, identity, seeded

import zscope as zs
from zscope.errors import ConfigError, Undefined

seeds = st.integers(0, 10_000)


def test_the_prior_is_standard_normal():
    codes = zs.sampling.prior(identity(3, prior="normal"), 4000)
    assert codes.shape == (4000, 3)
    for latent in range(3):
        assert stats.kstest(codes[:, latent].numpy(), "norm").pvalue > 0.001
    assert torch.corrcoef(codes.T).fill_diagonal_(0).abs().max() < 0.07
    assert zs.sampling.prior(3, 10).shape == (10, 3)


def test_a_model_without_a_prior_has_nothing_to_draw_from():
    with pytest.raises(Undefined, match=r"no prior.*sampling\.hybrid"):
        zs.sampling.prior(identity(3), 5)


def test_posterior_samples_use_each_observation_once_while_they_last():
    posterior = zs.Posterior(torch.arange(10.0)[:, None])
    assert zs.sampling.posterior(posterior, 10).flatten().sort().values.tolist() == list(range(10))
    counts = torch.bincount(zs.sampling.posterior(posterior, 25).flatten().long(), minlength=10)
    assert sorted(counts.unique().tolist()) == [2, 3]


def test_posterior_samples_have_the_spread_of_the_posterior():
    posterior = zs.Posterior(torch.full((3000, 1), 5.0), torch.full((3000, 1), 2.0))
    codes = zs.sampling.posterior(posterior, 3000)
    assert codes.mean().item() == pytest.approx(5, abs=0.15)
    assert codes.std().item() == pytest.approx(2, rel=0.05)


@given(seed=seeds)
def test_hybrids_take_every_latent_from_the_store(seed):
    codes = gaussian_codes(30, 3, seed)
    hybrids = zs.sampling.hybrid(codes, 100, generator=seeded(seed))
    for latent in range(3):
        assert np.isin(hybrids[:, latent].numpy(), codes[:, latent].numpy()).all()


def test_hybrids_keep_the_marginals_and_lose_the_dependence():
    line = gaussian_codes(5000, 1).expand(5000, 2).contiguous()
    hybrids = zs.sampling.hybrid(line, 5000)
    assert abs(torch.corrcoef(hybrids.T)[0, 1]) < 0.06
    for latent in range(2):
        test = stats.ks_2samp(hybrids[:, latent].numpy(), line[:, latent].numpy())
        assert test.pvalue > 0.001
    together = zs.sampling.hybrid(line, 5000, groups=[[0, 1]])
    assert torch.equal(together[:, 0], together[:, 1])


def test_hybrids_draw_from_all_recorded_codes_unless_a_store_is_asked_for():
    codes = torch.arange(1000.0)[:, None].expand(1000, 2).contiguous()
    everything = zs.sampling.hybrid(codes, 20_000)
    assert len(everything[:, 0].unique()) == 1000  # not only the last batch
    stored = zs.sampling.hybrid(codes, 20_000, store=128)
    assert len(stored[:, 0].unique()) == 128
    assert set(stored[:, 0].tolist()) == set(stored[:, 1].tolist())  # one store for all latents
    assert stored[:, 0].max() > 900  # chosen at random, not the first ones
    assert stored[:, 0].min() < 100


def test_one_segment_can_be_hybridised_while_the_rest_stays():
    codes, base = gaussian_codes(50, 4), torch.tensor([9.0, 8, 7, 6]).double()
    groups = [[0, 2], [1], [3]]
    hybrids = zs.sampling.hybrid(codes, 30, groups=groups, base=base, vary=[0])
    assert torch.equal(hybrids[:, [1, 3]], base[[1, 3]].expand(30, 2))
    pairs = {tuple(row) for row in codes[:, [0, 2]].tolist()}
    assert {tuple(row) for row in hybrids[:, [0, 2]].tolist()} <= pairs
    whole = zs.sampling.hybrid(codes, 30, groups=groups)
    assert torch.equal(hybrids[:, [0, 2]], whole[:, [0, 2]])


def test_uniform_samples_fill_the_box_of_the_codes():
    codes = gaussian_codes(100, 2, scale=[1, 10])
    drawn = zs.sampling.uniform(codes, 4000)
    low, high = codes.amin(0), codes.amax(0)
    assert (drawn >= low).all()
    assert (drawn <= high).all()
    for latent in range(2):
        share = ((drawn - low) / (high - low))[:, latent].numpy()
        assert stats.kstest(share, "uniform").pvalue > 0.001


def test_a_posterior_can_be_hybridised():
    posterior = zs.Posterior(torch.zeros(4000, 2), torch.ones(4000, 2))
    assert zs.sampling.hybrid(posterior, 4000).std().item() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("name", ["prior", "posterior", "hybrid", "uniform"])
def test_plain_calls_repeat_themselves_and_seeds_differ(name):
    given_ = {"prior": 2, "posterior": zs.Posterior(gaussian_codes(20, 2))}
    source = given_.get(name, gaussian_codes(20, 2))
    draw = getattr(zs.sampling, name)
    assert torch.equal(draw(source, 10), draw(source, 10))
    assert not torch.equal(draw(source, 10), draw(source, 10, generator=seeded(7)))


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: zs.sampling.hybrid(torch.zeros(5, 2), 0), ConfigError, "samples=0"),
        (lambda: zs.sampling.hybrid(torch.zeros(5, 2), 3, store=0), ConfigError, "store=0"),
        (lambda: zs.sampling.hybrid(torch.zeros(0, 2), 3), Undefined, r"shape \(0, 2\)"),
        (lambda: zs.sampling.uniform(torch.zeros(5), 3), Undefined, "one row of latents"),
        (lambda: zs.sampling.hybrid(torch.zeros(5, 2).int(), 3), Undefined, "int32"),
        (
            lambda: zs.sampling.hybrid(torch.tensor([[0.0], [torch.nan]]), 3),
            Undefined,
            "1 of 2 codes contain NaN or infinite numbers, the first is row 1",
        ),
        (
            lambda: zs.sampling.hybrid(
                zs.Posterior(
                    torch.tensor([[0.0] * 8, [0, 0, 0, 0, 0, 0, torch.inf, 0]]),
                    layout=zs.Layout(2, (2, 2)),
                ),
                3,
            ),
            Undefined,
            "the first is row 1, in channel 1 at place 1, 0",
        ),
        (
            lambda: zs.sampling.hybrid(torch.zeros(5, 2), 3, vary=[0]),
            ConfigError,
            "base= and vary= go together",
        ),
        (
            lambda: zs.sampling.hybrid(torch.zeros(5, 2), 3, vary=[0], base=torch.zeros(3)),
            ConfigError,
            "3 numbers, but the codes have 2",
        ),
        (
            lambda: zs.sampling.hybrid(torch.zeros(5, 2), 3, groups=[[0]]),
            ConfigError,
            "leave out 1 of 2 latents",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()


@pytest.mark.parametrize("vary", [[2], [-1], [0, 7]])
def test_groups_to_vary_that_do_not_exist_are_refused(vary):
    """They would leave the base as it is, in every sample."""
    codes = gaussian_codes(10, 2)
    with pytest.raises(ConfigError, match=r"vary=.*there are 2 \(0 to 1\)"):
        zs.sampling.hybrid(codes, 5, base=codes[0], vary=vary)


def test_the_base_of_hybrids_may_be_an_array():
    codes = gaussian_codes(10, 2)
    drawn = zs.sampling.hybrid(codes, 5, base=codes[0].numpy(), vary=[1])
    assert (drawn[:, 0] == codes[0, 0]).all()


def test_a_number_of_latents_below_one_is_refused():
    with pytest.raises(ConfigError, match="latents=0.*at least 1"):
        zs.sampling.prior(0, 5)
