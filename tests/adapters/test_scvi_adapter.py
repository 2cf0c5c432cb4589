"""scvi-tools: a variational autoencoder of counts."""

import numpy as np
import pytest
import torch

import zscope as zs

scvi = pytest.importorskip("scvi", exc_type=ImportError)
anndata = pytest.importorskip("anndata")


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_counts_is_recognised_and_measured():
    counts = np.random.default_rng(0).poisson(3, size=(200, 12)).astype(np.float32)
    cells = anndata.AnnData(counts)
    scvi.model.SCVI.setup_anndata(cells)
    with torch.random.fork_rng():
        theirs = scvi.model.SCVI(cells, n_latent=3, n_hidden=16)
    theirs.module.eval()
    model = zs.load(theirs)
    x = torch.from_numpy(counts)
    posterior = model.encode(x)
    with torch.random.fork_rng():
        law = theirs.module.inference(x, batch_index=torch.zeros(200, 1))["qz"]
    assert torch.allclose(posterior.mean, law.loc)
    assert torch.allclose(posterior.std, law.scale)
    assert (model.latents, model.prior, model.name) == (3, "normal", "SCVI")
    decoded = model.decode(posterior.mean)
    # Expected counts share out one library size among the genes.
    size = np.exp(np.log(counts.sum(1)).mean())
    assert torch.allclose(decoded.sum(1), torch.tensor(float(size)), rtol=1e-4)
    report = zs.assay(theirs, counts, names=["response-matrix", "variable-types"])
    assert not report.failed


@pytest.fixture(scope="module")
def conditioned():
    """SCVI of counts in a layer, with two batches, a categorical and a continuous covariate."""
    draw = np.random.default_rng(0)
    batch, kind, age = draw.integers(0, 2, 300), draw.integers(0, 3, 300), draw.normal(size=300)
    rates = 3 + 6 * (batch[:, None] == (np.arange(12) > 5)) + 2 * (kind[:, None] == 1)
    counts = draw.poisson(rates * draw.uniform(0.5, 2, (300, 1))).astype(np.float32)
    cells = anndata.AnnData(np.log1p(counts), layers={"counts": counts})
    cells.obs["batch"], cells.obs["kind"] = batch.astype(str), kind.astype(str)
    cells.obs["age"] = age
    scvi.model.SCVI.setup_anndata(
        cells, layer="counts", batch_key="batch", categorical_covariate_keys=["kind"],
        continuous_covariate_keys=["age"],
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = scvi.model.SCVI(cells, n_latent=3, n_hidden=16, encode_covariates=True)
        model.train(max_epochs=2, accelerator="cpu", enable_progress_bar=False)
    return model, counts


@pytest.mark.filterwarnings("ignore")
def test_each_cell_is_encoded_and_decoded_as_by_scvi(conditioned):
    theirs, counts = conditioned
    cells = zs.adapters.scvi_cells(theirs)
    assert cells.factor_names == ("batch", "kind", "age")
    assert cells.factor_kinds == ("categorical", "categorical", "continuous")
    model = zs.load(theirs)
    recording = zs.record(model, cells, samples=300)
    np.testing.assert_array_equal(recording.observations.numpy(), counts)
    with torch.random.fork_rng():  # theirs also draws codes
        mean, variance = theirs.get_latent_representation(return_dist=True)
    np.testing.assert_allclose(recording.codes.numpy(), mean, atol=1e-5)
    np.testing.assert_allclose(recording.posterior.variance.numpy(), variance, rtol=1e-4)
    # At the same library size for all cells, decoded from the means of the codes.
    factors = torch.from_numpy(np.ascontiguousarray(recording.factors.values)).float()
    decoded = model.decode(recording.codes, factors).detach().numpy()
    size = np.exp(np.log(counts.sum(1)).mean())
    module = theirs.module.eval()
    with torch.no_grad():
        law = module.generative(
            torch.from_numpy(mean),
            torch.full((300, 1), float(np.log(size))),
            factors[:, :1].long(),
            cont_covs=factors[:, 2:],
            cat_covs=factors[:, 1:2].long(),
        )["px"]
    np.testing.assert_allclose(decoded, law.scale.numpy() * size, rtol=1e-4)
    # scvi's own route draws codes, so ours are drawn too: what is left is the error of the mean.
    options = {"n_samples": 1000, "library_size": float(size), "return_numpy": True}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        own = theirs.get_normalized_expression(**options)
        other = theirs.get_normalized_expression(**options, transform_batch="0")
    generator = torch.Generator().manual_seed(0)
    drawn = torch.zeros(own.shape)
    with torch.no_grad():
        for _ in range(1000):
            drawn += model.decode(recording.posterior.sample(generator), factors) / 1000
    second = factors[:, 0].numpy() == 1
    error, shift = (np.abs(drawn.numpy() - each) for each in (own, other))
    assert error.mean() < 0.1 * shift[second].mean()
    assert shift[~second].mean() < 0.1 * shift[second].mean()


@pytest.mark.filterwarnings("ignore")
def test_a_model_with_batches_is_measured(conditioned):
    report = zs.assay(conditioned[0], zs.adapters.scvi_cells(conditioned[0]), names="regime")
    assert not report.failed
    assert report.results["variable-types"]
