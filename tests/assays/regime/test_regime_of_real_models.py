"""Two VAEs trained on MNIST by other people: their regime is known, and must come out."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scripts import load_script
from torch.nn.functional import interpolate

import zscope as zs
from zscope.assays.regime.rate_distortion import negative_log_likelihood

BURGESS = Path(__file__).parents[3] / "examples" / "burgess.py"


@pytest.fixture(scope="module")
def pictures(real_data):
    raw = gzip.decompress((real_data / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    values = np.frombuffer(raw, np.uint8, offset=16)[: 4000 * 784].reshape(-1, 1, 28, 28)
    x = torch.from_numpy(values.copy()).float() / 255
    return interpolate(x, size=(32, 32), mode="bilinear", align_corners=False)


@pytest.fixture(scope="module")
def recordings(real_models, pictures):
    code = load_script(BURGESS)
    found = {}
    for name in ("vae", "btcvae"):
        with torch.random.fork_rng(devices=[]):
            module = code.VAE()
        module.load_state_dict(load_file(real_models / f"{name}-mnist.safetensors"))
        model = zs.wrap(module.encoder, module.decoder, example=pictures[:2])
        found[name] = zs.record(model, pictures)
    return found


def test_types_and_distortion_are_those_published_with_the_models(recordings, pictures):
    types = {n: zs.assays.variable_types(r.posterior.variance) for n, r in recordings.items()}
    assert types["vae"].passive == []
    assert float(types["vae"].mean_variance.max()) == pytest.approx(0.13, abs=0.005)
    assert types["btcvae"].passive == [2, 7]
    assert types["btcvae"].mean_variance[[2, 7]].tolist() == pytest.approx([0.98, 0.95], abs=0.005)
    for name, nats in (("vae", 117.6), ("btcvae", 133.9)):
        with torch.no_grad():
            decoded = recordings[name].autoencoder.decode(recordings[name].codes)
        lost = negative_log_likelihood(decoded, pictures, "bernoulli").mean().item()
        assert lost == pytest.approx(nats, abs=0.05)


def test_pruning_the_passive_latents_leaves_the_pictures_as_they_were(recordings, pictures):
    recording = recordings["btcvae"]
    model, types = recording.autoencoder, zs.assays.variable_types(recording.posterior.variance)
    pruned = zs.prune(model, types.not_passive, fill=recording.codes.mean(0))
    assert pruned.latents == 8
    with torch.no_grad():
        z = recording.posterior.sample(torch.Generator().manual_seed(1))[:500]
        before, after = model.decode(z), pruned.decode(z[:, types.not_passive])
        cut = zs.prune(model, [0, 1, 3, 4, 5, 6, 8]).decode(z[:, [0, 1, 3, 4, 5, 6, 8]])
    # The samples of a passive latent are pure noise; its traces in the picture are below
    # a grey level on average. Taking a used latent away is another matter.
    gap = (before - after).abs().mean()
    assert gap < 1 / 255
    assert (before - cut).abs().mean() > 10 * gap


def test_passive_means_alone_make_total_correlation_differ(recordings):
    table = zs.assays.truncation(recordings["btcvae"].posterior).table["total correlation"]
    (mean, sampled), (mean_used, sampled_used) = table["full"], table["active+mixed"]
    assert mean - sampled > 5 * abs(mean_used - sampled_used)


def test_encoders_agree_more_than_shuffled_samples_do(recordings, pictures):
    layers = [
        zs.assays.activations(recordings[name].autoencoder, pictures[:500])
        for name in ("vae", "btcvae")
    ]
    result = zs.assays.similarity_heatmap(*layers, null=True)
    means = result.matrix[result.rows.index("mean"), result.columns.index("mean")]
    assert means > 0.5
    assert result.null.abs().max() < 0.05
    assert result.matrix[0, 0] == pytest.approx(1)  # the input is the same


def test_pruning_unused_latents_leaves_the_share_of_holes_as_it_was(recordings, pictures):
    recording = recordings["btcvae"]
    assert recording.used == [0, 1, 3, 4, 5, 6, 8, 9]
    assert zs.assays.polarisation(recording).passive == [2, 7]
    pruned = zs.prune(recording.autoencoder, recording.used, fill=recording.codes.mean(0))
    before, after = zs.assays.holes(recording), zs.assays.holes(zs.record(pruned, pictures))
    assert before.interval[0] <= after.score <= before.interval[1]
