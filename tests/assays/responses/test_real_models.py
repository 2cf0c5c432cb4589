"""Two VAEs trained on MNIST by other people: what is known about them must come out."""

import gzip

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

import zscope as zs
from zscope.autoencoder import evaluation


class Burgess(zs.Autoencoder):
    """The network of Burgess et al. 2018 as the published weights name its layers."""

    latents = 10

    def __init__(self):
        super().__init__()

        def down(given):
            return nn.Conv2d(given, 32, 4, 2, 1)

        def up(made):
            return nn.ConvTranspose2d(32, made, 4, 2, 1)

        with torch.random.fork_rng():
            self.encoder = nn.ModuleDict(
                {
                    "conv1": down(1),
                    "conv2": down(32),
                    "conv3": down(32),
                    "lin1": nn.Linear(512, 256),
                    "lin2": nn.Linear(256, 256),
                    "mu_logvar_gen": nn.Linear(256, 20),
                }
            )
            self.decoder = nn.ModuleDict(
                {
                    "lin1": nn.Linear(10, 256),
                    "lin2": nn.Linear(256, 256),
                    "lin3": nn.Linear(256, 512),
                    "convT1": up(32),
                    "convT2": up(32),
                    "convT3": up(1),
                }
            )

    def encode(self, x, auxiliary=None):
        for name in ("conv1", "conv2", "conv3"):
            x = self.encoder[name](x).relu()
        x = x.flatten(1)
        for name in ("lin1", "lin2"):
            x = self.encoder[name](x).relu()
        mean, log_variance = self.encoder["mu_logvar_gen"](x).view(-1, 10, 2).unbind(-1)
        return zs.Posterior(mean, (log_variance / 2).exp())

    def decode(self, z):
        for name in ("lin1", "lin2", "lin3"):
            z = self.decoder[name](z).relu()
        z = z.view(-1, 32, 4, 4)
        for name in ("convT1", "convT2"):
            z = self.decoder[name](z).relu()
        return self.decoder["convT3"](z).sigmoid()


@pytest.fixture(scope="module")
def pictures(real_data):
    raw = gzip.decompress((real_data / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    values = np.frombuffer(raw, np.uint8, offset=16)[: 2000 * 784].reshape(-1, 1, 28, 28)
    x = torch.from_numpy(values.copy()).float() / 255
    return F.interpolate(x, size=(32, 32), mode="bilinear", align_corners=False)


def recorded(name, folder, pictures):
    model = Burgess()
    model.load_state_dict(load_file(folder / f"{name}-mnist.safetensors"))
    return zs.record(model, pictures)


@pytest.fixture(scope="module")
def vae(real_models, pictures):
    return recorded("vae", real_models, pictures)


@pytest.fixture(scope="module")
def btcvae(real_models, pictures):
    return recorded("btcvae", real_models, pictures)


class InSequences(zs.Autoencoder):
    """The same layers in sequences, which run faster: see zscope.inference."""

    latents = 10

    def __init__(self, model):
        super().__init__()
        down, up = model.encoder, model.decoder
        first = [part for k in (1, 2, 3) for part in (down[f"conv{k}"], nn.ReLU())]
        last = [part for k in (1, 2, 3) for part in (up[f"convT{k}"], nn.ReLU())][:-1]
        rows = [part for k in (1, 2) for part in (down[f"lin{k}"], nn.ReLU())]
        codes = [part for k in (1, 2, 3) for part in (up[f"lin{k}"], nn.ReLU())]
        self.down = nn.Sequential(*first, nn.Flatten(), *rows, down["mu_logvar_gen"])
        self.up = nn.Sequential(*codes, nn.Unflatten(1, (32, 4, 4)), *last, nn.Sigmoid())

    def encode(self, x, auxiliary=None):
        mean, log_variance = self.down(x).view(-1, 10, 2).unbind(-1)
        return zs.Posterior(mean, (log_variance / 2).exp())

    def decode(self, z):
        return self.up(z)


@pytest.mark.parametrize("name", ["vae", "btcvae"])
def test_their_layers_in_sequences_give_the_same_responses(name, request, pictures):
    theirs = request.getfixturevalue(name)
    ours = zs.record(InSequences(theirs.autoencoder), pictures)
    torch.testing.assert_close(ours.posterior.mean, theirs.posterior.mean, rtol=1e-5, atol=1e-5)
    with evaluation(ours.autoencoder):
        assert "forward" in vars(ours.autoencoder.up)  # the faster way is taken
        decoded = ours.autoencoder.decode(theirs.codes[:300])
    with torch.no_grad():
        expected = theirs.autoencoder.decode(theirs.codes[:300])
    torch.testing.assert_close(decoded, expected, rtol=1e-5, atol=1e-5)
    found, plain = (
        zs.assays.response_matrix(each.autoencoder, theirs.posterior, samples=100)
        for each in (ours, theirs)
    )
    torch.testing.assert_close(found.relative, plain.relative, rtol=1e-5, atol=1e-5)
    assert found.causal == plain.causal


def test_every_latent_of_the_vae_answers(vae):
    found = zs.assays.response_matrix(vae.autoencoder, vae.posterior, samples=500, resamples=100)
    assert found.causal == list(range(10))
    # Known on 4,000 pictures: the diagonal lies between 1.16 and 1.34.
    low, high = found.interval[:, range(10), range(10)]
    assert (low < 1.34).all()
    assert (high > 1.16).all()
    assert 1.20 < found.matrix.diagonal().mean() < 1.32
    # Latents that respond by up to 0.3 are those whose posteriors are as wide.
    assert 0.2 < (found.relative - found.relative.diagonal().diag()).max() < 0.4
    assert found.edges() == []


def test_the_passive_latents_of_the_btcvae_do_not_answer(btcvae):
    found = zs.assays.response_matrix(btcvae.autoencoder, btcvae.posterior, samples=300)
    assert found.causal == [0, 1, 3, 4, 5, 6, 8, 9]
    # Known: their responses are 0.00. What else they move, or moves them, is next to nothing.
    assert found.matrix.diagonal()[[2, 7]].max() < 0.005
    assert found.matrix[[2, 7]].max() < 0.05
    assert found.matrix[:, [2, 7]].max() < 0.1


def test_collapse_is_structure_to_mean_responses_only(btcvae):
    sampled = zs.assays.structure_score(btcvae.autoencoder, samples=1000)
    means = zs.assays.structure_score(btcvae.autoencoder, samples=1000, response="mean")
    assert 0.003 < sampled.score < 0.02
    assert 0.12 < means.score < 0.22
    assert means.score > 10 * sampled.score


def test_the_passive_latents_of_the_btcvae_are_collapsed_units(btcvae):
    found = zs.assays.interventional_consistency(
        btcvae.autoencoder, btcvae.posterior, interventions=4, samples=64
    )
    assert found.collapsed == [2, 7]
    assert found.means["self-consistency (posterior)"] > 0.4
    assert found.means_with_collapsed["self-consistency (posterior)"] < 0
    assert found.means["invariance"] > 0.8


def test_prior_samples_of_the_btcvae_lie_where_data_do(btcvae):
    found = zs.assays.holes(btcvae.autoencoder, btcvae.posterior, samples=500)
    assert found.ignored == [2, 7]
    assert found.score < 0.05
    far = zs.assays.hole_score(
        btcvae.autoencoder, torch.full((5, 10), 8.0), btcvae.posterior, samples=500
    )
    assert far.score == 1
