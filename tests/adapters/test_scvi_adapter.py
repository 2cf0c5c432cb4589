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
    assert report.failed == []
