"""scVI models with several batches and covariates, by a stand-in with the calls of scvi-tools."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

import zscope as zs
from zscope.adapters import from_scvi, scvi_cells
from zscope.errors import ConfigError, InterfaceError

GENES = 3


class Module(nn.Module):
    """The code is log counts less the offset of the batch and the covariates; and back."""

    n_latent = GENES

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def offset(self, batch_index, cont_covs=None, cat_covs=None):
        # As in scvi, which takes whole numbers only.
        total = 0.5 * one_hot(batch_index.squeeze(-1)).argmax(1, keepdim=True)
        assert cat_covs is None or cat_covs.dtype == torch.long
        total = total if cat_covs is None else total + 0.25 * cat_covs.sum(1, keepdim=True)
        return total if cont_covs is None else total + cont_covs.sum(1, keepdim=True)

    def inference(self, x, batch_index, cont_covs=None, cat_covs=None):
        torch.rand(1)  # scvi draws a code here
        mean = self.scale * (x + 1).log() - self.offset(batch_index, cont_covs, cat_covs)
        return {"qz": torch.distributions.Normal(mean, torch.full_like(mean, 0.1))}

    def generative(self, z, library, batch_index, cont_covs=None, cat_covs=None):
        rate = (z + self.offset(batch_index, cont_covs, cat_covs)).exp() - 1
        return {"px": SimpleNamespace(mu=rate)}


class SCVI:
    """What the adapter asks of a model."""

    def __init__(self, batches, covariates=True):
        draw = np.random.default_rng(0)
        self.module = Module()
        self.module.n_batch = batches
        self.adata = SimpleNamespace(X=draw.poisson(20, size=(60, GENES)).astype(np.float32))
        registry = {"batch": draw.integers(0, batches, (60, 1))}
        if covariates:
            registry["extra_categorical_covs"] = draw.integers(0, 3, (60, 1))
            registry["extra_continuous_covs"] = draw.normal(size=(60, 2)) / 4
        self.adata_manager = SimpleNamespace(
            data_registry=registry, get_from_registry=registry.__getitem__
        )


def test_each_cell_has_its_own_batch_and_covariates():
    theirs = SCVI(batches=3)
    model, cells = from_scvi(theirs), scvi_cells(theirs)
    assert cells.factor_names == ("batch", "category 0", "number 0", "number 1")
    assert cells.factor_kinds == ("categorical", "categorical", "continuous", "continuous")
    recording = zs.record(model, cells)
    batch, numbers, categories = (
        torch.from_numpy(cells.factors[:, columns]) for columns in ([0], [2, 3], [1])
    )
    offset = theirs.module.offset(batch.long(), numbers.float(), categories.long())
    expected = (torch.from_numpy(theirs.adata.X) + 1).log() - offset
    assert torch.allclose(recording.codes, expected, atol=1e-5)
    report = zs.assay(recording, names=["effective-rank", "response-matrix"])
    assert report.explained == pytest.approx(1, abs=1e-4)  # every cell, not the first batch alone
    assert "needs" in report.missing["response-matrix"]
    with pytest.raises(InterfaceError, match="decode needs the batch.*4 columns, and got none"):
        model.decode(recording.codes)


def test_one_batch_can_be_measured_alone():
    theirs = SCVI(batches=3, covariates=False)
    rows = theirs.adata_manager.data_registry["batch"].ravel() == 1
    cells = theirs.adata.X[rows]
    right = zs.assay(from_scvi(theirs, batch=1), cells, names=["response-matrix"])
    assert right.explained == pytest.approx(1, abs=1e-4)
    assert not right.missing
    codes = from_scvi(theirs, batch=0).encode(torch.from_numpy(cells)).mean
    assert torch.allclose(codes - 0.5, from_scvi(theirs, batch=1).encode(cells).mean, atol=1e-5)


def test_a_model_of_one_batch_needs_no_conditions():
    model = from_scvi(SCVI(batches=1, covariates=False))
    assert not model.needs_auxiliary
    assert model.name == "SCVI"


@pytest.mark.parametrize(("covariates", "batch"), [(False, 3), (False, -1), (True, 0)])
def test_a_batch_that_is_not_there_or_not_enough_is_refused(covariates, batch):
    with pytest.raises(ConfigError, match=f"batch={batch}, but the model has 3 batches"):
        from_scvi(SCVI(3, covariates), batch=batch)


def test_a_part_of_the_cells_keeps_its_batch():
    theirs = SCVI(batches=3, covariates=False)
    rows = theirs.adata_manager.data_registry["batch"].ravel() == 1
    theirs.adata.X = theirs.adata.X[rows]
    theirs.adata_manager.data_registry["batch"] = np.ones((rows.sum(), 1), int)
    report = zs.assay(from_scvi(theirs), scvi_cells(theirs), names=["effective-rank"])
    assert report.explained == pytest.approx(1, abs=1e-4)


def test_counts_are_those_that_the_model_was_set_up_with():
    theirs = SCVI(batches=1, covariates=False)
    theirs.adata_manager.data_registry["X"] = theirs.adata.X  # a layer
    theirs.adata.X = np.log1p(theirs.adata.X)
    assert scvi_cells(theirs).batch(slice(0, 60)).sum(1).min() > 10


def test_codes_that_are_not_gaussian_are_refused():
    theirs = SCVI(batches=1)
    theirs.module.latent_distribution = "ln"
    with pytest.raises(InterfaceError, match="a softmax of Gaussian ones"):
        from_scvi(theirs)
