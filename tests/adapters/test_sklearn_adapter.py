"""scikit-learn transformers as autoencoders."""

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.errors import InterfaceError

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(300, 3)) @ RNG.normal(size=(3, 6)) + 0.1 * RNG.normal(size=(300, 6))).astype(
    np.float32
)


@pytest.fixture
def pca():
    from sklearn.decomposition import PCA

    return PCA(3, whiten=True).fit(X)


def test_a_pca_encodes_and_decodes_as_scikit_learn_does(pca):
    model = zs.load(pca)
    posterior = model.encode(torch.from_numpy(X))
    assert posterior.deterministic
    assert (model.latents, model.prior, model.name) == (3, None, "PCA")
    np.testing.assert_allclose(posterior.mean.numpy(), pca.transform(X), rtol=1e-4, atol=1e-5)
    back = pca.inverse_transform(pca.transform(X))
    np.testing.assert_allclose(model.decode(posterior.mean).numpy(), back, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("whiten", [False, True])
def test_the_response_of_a_pca_is_the_identity(whiten):
    from sklearn.decomposition import PCA

    model = zs.load(PCA(4, whiten=whiten).fit(X))
    recording = zs.record(model, X)
    matrix = zs.assays.response_matrix(model, recording.posterior)
    assert torch.allclose(matrix.relative, torch.eye(4).double(), atol=0.1)
    assert (matrix.relative - matrix.relative.diag().diag()).abs().max() < 1e-3


def test_gradients_pass_through_a_pca(pca):
    model = zs.load(pca)
    code = model.encode(torch.from_numpy(X[:1])).mean
    jacobian = torch.func.jacrev(lambda z: model.decode(z)[0])(code)[:, 0]
    expected = (pca.components_ * pca.explained_variance_[:, None] ** 0.5).T
    np.testing.assert_allclose(jacobian.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_pictures_are_flattened_and_restored(pca):
    model = zs.load(pca)
    pictures = torch.from_numpy(X).reshape(-1, 1, 2, 3)
    assert model.decode(model.encode(pictures).mean).shape == pictures.shape


@pytest.mark.parametrize("kind", ["pipeline", "nmf", "kernel"])
def test_any_transformer_with_an_inverse_will_do(kind):
    from sklearn.decomposition import NMF, PCA, KernelPCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    made = {
        "pipeline": make_pipeline(StandardScaler(), PCA(3)),
        "nmf": NMF(3, init="nndsvda", max_iter=2000, random_state=0),
        "kernel": KernelPCA(3, kernel="rbf", fit_inverse_transform=True),
    }[kind]
    x = np.abs(X)
    fitted = made.fit(x)
    model = zs.load(fitted)
    codes = model.encode(torch.from_numpy(x)).mean
    np.testing.assert_allclose(codes.numpy(), fitted.transform(x), rtol=1e-3, atol=1e-4)
    back = fitted.inverse_transform(fitted.transform(x))
    np.testing.assert_allclose(model.decode(codes).numpy(), back, rtol=1e-3, atol=1e-3)
    assert zs.record(model, x).posterior.latents == 3


def test_what_is_not_fitted_or_has_no_gradient_is_said():
    from sklearn.decomposition import NMF, PCA

    with pytest.raises(InterfaceError, match="not fitted yet.*fit\\(x\\)"):
        zs.load(PCA(2))
    model = zs.load(NMF(2, init="nndsvda", max_iter=2000, random_state=0).fit(np.abs(X)))
    codes = model.encode(torch.from_numpy(np.abs(X))).mean.requires_grad_()
    with pytest.raises(
        InterfaceError, match="needs gradients, and this model is not written in torch"
    ):
        model.decode(codes)


def test_a_report_of_a_pca_finds_nothing_dead_and_all_of_the_variance(pca):
    report = zs.assay(pca, X, names=["response-matrix", "holes"])
    assert report.title == "PCA"
    assert report.explained > 0.9
    assert "All 3 latents carry information." in str(report)
