"""Functions of JAX and models of Keras, through `zs.wrap` alone; NumPy goes the same way.

With an orthonormal basis B, decode(z) = z B' and encode(x) = x B C, the codes of decoded codes are
z C: a change of latent j by d changes latent k by C_jk d. So row j of the response matrix is
|C_j| times what the change of latent j was, whatever is drawn.
"""

import os
import sys

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.errors import InterfaceError, NoGradients

X = torch.randn(400, 6, generator=torch.Generator().manual_seed(0))
BASIS = torch.linalg.qr(torch.randn(6, 3, generator=torch.Generator().manual_seed(1))).Q.numpy()
MIXING = np.array([[1, 0.5, 0], [0, 1, 0], [0, 0.125, 0.25]], np.float32)
WORLDS = {"identity": np.eye(3, dtype=np.float32), "mixed": MIXING}


def numpy_parts(mixing):
    # Tensors have no `astype`: these functions refuse them.
    return lambda x: x.astype(np.float32) @ BASIS @ mixing, lambda z: z.astype(np.float32) @ BASIS.T


def jax_parts(mixing):
    jax = pytest.importorskip("jax", reason="needs jax: make test-adapters")
    return jax.jit(lambda x: x @ BASIS @ mixing), jax.jit(lambda z: z @ BASIS.T)


def keras_parts(mixing):
    keras = load_keras()

    def linear(weights):
        layer = keras.layers.Dense(weights.shape[1], use_bias=False)
        model = keras.Sequential([keras.Input(weights.shape[:1]), layer])
        layer.set_weights([weights])
        return model

    return linear(BASIS @ mixing), linear(np.ascontiguousarray(BASIS.T))


def load_keras():
    if "keras" not in sys.modules:  # it reads its backend once
        os.environ.setdefault("KERAS_BACKEND", "jax")
    return pytest.importorskip("keras", reason="needs keras: make test-adapters")


LIBRARIES = pytest.mark.parametrize("parts", [numpy_parts, jax_parts, keras_parts])


@LIBRARIES
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("checked", [True, False])
def test_the_response_matrix_is_that_of_the_closed_form(parts, world, checked):
    mixing = WORLDS[world]
    model = zs.wrap(*parts(mixing), example=X[:8].numpy() if checked else None)
    posterior = model.encode(X)
    np.testing.assert_allclose(posterior.mean.numpy(), X.numpy() @ BASIS @ mixing, atol=1e-5)
    assert posterior.deterministic
    found = zs.assays.response_matrix(zs.record(model, X)).matrix.numpy()
    changes = np.diag(found) / np.diag(mixing)
    np.testing.assert_allclose(found, changes[:, None] * mixing, atol=1e-5)
    assert changes.min() > 0.3


@LIBRARIES
def test_derivatives_are_central_differences_or_refused(parts):
    model = zs.wrap(*parts(WORLDS["identity"]))
    recording = zs.record(model, X)
    gap = zs.assays.distance_to_orthogonality(recording)
    assert gap.method == "central differences"
    said = (
        "Measured by central differences: the decoder cannot be differentiated (it is not written"
    )
    assert any(flag.startswith(said) for flag in gap.flags)
    assert gap.alignment_gap == pytest.approx(0, abs=1e-6)  # orthogonal columns
    with pytest.raises(NoGradients, match="wrap: the decoder: .* is not written in torch"):
        torch.func.jacrev(model.decode)(torch.zeros(2, 3))
    with pytest.raises(InterfaceError, match="no gradient .* Call with relax=0"):
        zs.assays.manifold_path(recording, cost="field")
    assert zs.assays.manifold_path(recording, cost="field", relax=0).length > 0


@LIBRARIES
def test_a_derivative_that_is_asked_for_first_is_refused_as_clearly(parts):
    """Before a value was computed nothing is known of the decoder."""
    decode = zs.wrap(*parts(WORLDS["identity"])).decode
    with pytest.raises(NoGradients, match="is not written in torch"):
        torch.func.jacrev(decode)(torch.zeros(2, 3))
    decode = zs.wrap(*parts(WORLDS["identity"])).decode
    with pytest.raises(NoGradients, match="is not written in torch"):
        decode(torch.zeros(2, 3, requires_grad=True))


def test_every_default_assay_of_numpy_functions_has_a_result_or_a_reason():
    model = zs.wrap(*numpy_parts(WORLDS["mixed"]))
    report = zs.assay(model, X, names=["alignment", "manifold-path", "holes"], samples=60)
    assert not report.failed
    assert "gradients" not in " ".join(report.missing.values())


def test_a_function_that_fails_on_everything_keeps_its_first_error():
    calls = []

    def encode(x):
        calls.append(type(x))
        raise ValueError(f"no model for a {type(x).__name__}")

    with pytest.raises(InterfaceError, match="raised ValueError .* no model for a Tensor"):
        zs.wrap(encode, lambda z: z).encode(X)
    assert calls == [torch.Tensor, np.ndarray]


def test_a_torch_function_that_cannot_be_differentiated_is_not_taken_for_numpy():
    def decode(z):
        return torch.from_numpy(z.detach().numpy() * 2)  # not within torch.func

    model = zs.wrap(lambda x: x[:, :3], decode)
    with pytest.raises(InterfaceError, match="the decoder raised RuntimeError") as refusal:
        torch.func.jacrev(model.decode)(torch.zeros(2, 3))
    assert not isinstance(refusal.value, NoGradients)


def test_half_precision_of_jax_is_read_as_single():
    jnp = pytest.importorskip("jax.numpy", reason="needs jax: make test-adapters")
    model = zs.wrap(
        lambda x: jnp.asarray(x, jnp.bfloat16)[:, :3], lambda z: jnp.pad(z, ((0, 0), (0, 3)))
    )
    codes = model.encode(X.numpy()).mean
    assert codes.dtype == torch.float32
    assert torch.allclose(codes, X[:, :3].bfloat16().float())


@pytest.mark.filterwarnings("ignore")
def test_a_keras_model_with_an_encoder_and_a_decoder_is_loaded_as_it_is():
    keras = load_keras()

    class Autoencoder(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = keras_parts(WORLDS["identity"])

        def call(self, x):
            return self.decoder(self.encoder(x))

    model = zs.load(Autoencoder())
    assert model.name == "Autoencoder"
    np.testing.assert_allclose(model.encode(X).mean.numpy(), X.numpy() @ BASIS, atol=1e-5)


def test_a_callable_model_of_any_kind_is_not_taken_for_a_factory():
    class Model:
        def encode(self, x):
            return x[:, :3]

        def decode(self, z):
            return torch.nn.functional.pad(z, (0, 3))

        def __call__(self, x):
            raise AssertionError("called without need")

    assert torch.equal(zs.load(Model()).encode(X).mean, X[:, :3])
    assert torch.equal(zs.load(Model).encode(X).mean, X[:, :3])
