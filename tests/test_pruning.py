"""Pruning: fewer latents, the same reconstructions."""

import copy

import pytest
import torch
from torch import nn

import zscope as zs
from zscope.assays import variable_types
from zscope.errors import InterfaceError


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network(inputs: int, outputs: int, seed: int) -> nn.Module:
    layers = nn.Sequential(
        nn.utils.skip_init(nn.Linear, inputs, 16),
        nn.Tanh(),
        nn.utils.skip_init(nn.Linear, 16, outputs),
    )
    generator = torch.Generator().manual_seed(seed)
    for parameter in layers.parameters():
        parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator)
    return layers


def collapsed_model(ignored=(1, 3), value: float = 0.0) -> zs.Autoencoder:
    """A wrapped VAE of 5 latents, some of which are passive: N(value, 1), not decoded."""
    encoder, decoder = network(8, 10, seed=1), network(5, 8, seed=2)
    decoder[0].weight.data[:, list(ignored)] = 0

    def encode(x):
        mean, log_variance = encoder(x).chunk(2, 1)
        mean, log_variance = mean.clone(), log_variance - 6
        mean[:, list(ignored)], log_variance[:, list(ignored)] = value, 0.0
        return mean, log_variance

    return zs.wrap(encode, decoder, latents=5)


def test_reconstructions_stay_and_passive_latents_go():
    model, x = collapsed_model(), normal(64, 8)
    types = variable_types(model.encode(x).variance)
    assert types.passive == [1, 3]
    pruned = zs.prune(model, types.used)
    assert (pruned.latents, pruned.prior) == (3, "normal")
    whole, part = model.encode(x), pruned.encode(x)
    torch.testing.assert_close(part.mean, whole.mean[:, [0, 2, 4]])
    torch.testing.assert_close(part.variance, whole.variance[:, [0, 2, 4]])
    torch.testing.assert_close(pruned.decode(part.mean), model.decode(whole.mean))
    # also for samples: the noise of the dropped latents was never seen
    generator = torch.Generator().manual_seed(3)
    z = whole.sample(generator)
    torch.testing.assert_close(pruned.decode(z[:, [0, 2, 4]]), model.decode(z))
    assert variable_types(pruned.encode(x).variance).passive == []


def test_dropping_a_latent_that_is_used_does_change_them():
    model, x = collapsed_model(), normal(64, 8)
    pruned = zs.prune(model, [0, 1])
    gap = (pruned.decode(pruned.encode(x).mean) - model.decode(model.encode(x).mean)).abs()
    assert gap.max() > 0.05


def test_dropped_latents_are_filled_with_the_given_values():
    model, x = collapsed_model(value=2.0), normal(64, 8)
    # The decoder does look at latents 1 and 3 now, and they always say 2.
    model.decoder[0].weight.data[:, [1, 3]] = 0.3
    expected = model.decode(model.encode(x).mean)
    by_mean = zs.prune(model, [4, 0, 2], fill=model.encode(x).mean.mean(0))
    torch.testing.assert_close(by_mean.decode(by_mean.encode(x).mean), expected)
    by_number = zs.prune(model, [0, 2, 4], fill=2.0)
    torch.testing.assert_close(by_number.decode(by_number.encode(x).mean), expected)
    zero = zs.prune(model, [0, 2, 4])
    assert (zero.decode(zero.encode(x).mean) - expected).abs().max() > 0.05


def test_a_pruned_model_is_a_model_like_any_other():
    model, x = collapsed_model(), normal(64, 8)
    pruned = zs.prune(model, [0, 2, 4])
    recording = zs.record(pruned, x)
    assert recording.codes.shape == (64, 3)
    twice = zs.prune(pruned, [1])
    torch.testing.assert_close(twice.encode(x).mean, model.encode(x).mean[:, [2]])
    assert set(map(id, pruned.parameters())) == set(map(id, model.parameters()))
    jacobian = torch.func.jacfwd(lambda z: pruned.decode(z[None])[0])(torch.zeros(3))
    assert jacobian.shape == (8, 3)
    torch.testing.assert_close(pruned.causes(normal(4, 3)), normal(4, 3))


@pytest.mark.parametrize("likelihood", ["bernoulli", "mse"])
def test_a_pruned_model_loses_what_the_original_loses(likelihood):
    model = zs.models.build("vae", shape=(4,), latents=3, hidden=(8,), likelihood=likelihood)
    model.decoder.layers[0].weight.data[:, 1] = 0  # the decoder ignores latent 1
    x = torch.rand(100, 4, generator=torch.Generator().manual_seed(0))
    whole = model.encode(x)
    pruned = zs.prune(model, [0, 2])
    turned = zs.rotate_latents(model, torch.eye(3))
    z = whole.sample(torch.Generator().manual_seed(1))
    for other, codes in ((pruned, z[:, [0, 2]]), (turned, z)):
        found = zs.assays.rate_distortion(other, x).likelihood
        assert found == zs.assays.rate_distortion(model, x).likelihood
        torch.testing.assert_close(other.output(codes), model.output(z))
        torch.testing.assert_close(other.likelihood.nll(other.output(codes), x),
                                   model.likelihood.nll(model.output(z), x))  # fmt: skip
    copied = copy.deepcopy(pruned)
    copied.original.decoder.layers[0].weight.data.zero_()
    torch.testing.assert_close(pruned.output(z[:, [0, 2]]), model.output(z))
    assert (copied.output(z[:, [0, 2]]) - model.output(z)).abs().max() > 1e-3


def test_a_model_that_is_told_factors_is_told_them_after_pruning_too():
    digits = zs.data.load("digits")
    model = zs.models.build_for("ivae", digits, latents=3, backbone="mlp", hidden=(8,))
    whole = zs.record(model, digits, samples=50)
    part = zs.record(zs.prune(model, [2, 0]), digits, samples=50)
    torch.testing.assert_close(part.codes, whole.codes[:, [2, 0]])
    # And so is its prior, which depends on them: posteriors are held against it.
    torch.testing.assert_close(part.relative.mean, whole.relative.mean[:, [2, 0]])
    torch.testing.assert_close(part.relative.std, whole.relative.std[:, [2, 0]])
    assert not torch.allclose(whole.relative.mean, whole.codes)


def test_the_kept_part_of_a_full_covariance_is_its_marginal():
    root = torch.tril(normal(6, 3, 3))
    root.diagonal(dim1=1, dim2=2).abs_().add_(0.1)
    model = zs.wrap(lambda x: zs.Posterior(x[:, :3], scale_tril=root), lambda z: z, latents=3)
    part = zs.prune(model, [2, 0]).encode(normal(6, 3))
    covariance = root @ root.transpose(1, 2)
    expected = covariance[:, [2, 0]][:, :, [2, 0]]
    torch.testing.assert_close(part.scale_tril @ part.scale_tril.transpose(1, 2), expected)


@pytest.mark.parametrize("keep", [[], [0, 0], [5], [-1]])
def test_impossible_choices_are_refused(keep):
    with pytest.raises(InterfaceError, match="different latents from 0 to 4"):
        zs.prune(collapsed_model(), keep)


def test_codes_and_fills_of_the_wrong_size_are_refused():
    with pytest.raises(InterfaceError, match=r"decode got 5 latents, but 2 were kept \(of 5\)"):
        zs.prune(collapsed_model(), [0, 1]).decode(torch.zeros(1, 5))
    with pytest.raises(InterfaceError, match="fill has 2 values"):
        zs.prune(collapsed_model(), [0, 1], fill=[1.0, 2.0])
