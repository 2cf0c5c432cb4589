"""ONNX files as autoencoders."""

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.adapters import from_onnx
from zscope.errors import InterfaceError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(6, 3)).astype(np.float32)
BACK = np.linalg.pinv(WEIGHTS).astype(np.float32)
X = torch.from_numpy(RNG.normal(size=(50, 6)).astype(np.float32))


def write(path, weights, *, second=None, batch="n", kind=np.float32, inputs=1):
    """y = x W, and with `second` another output of that name that is always log 0.25."""
    from onnx import TensorProto, helper, numpy_helper

    real = TensorProto.FLOAT if kind == np.float32 else TensorProto.DOUBLE
    wide, narrow = weights.shape
    nodes = [helper.make_node("MatMul", ["x", "w"], ["mean"])]
    stored = [numpy_helper.from_array(weights.astype(kind), "w")]
    outputs = ["mean"]
    if second is not None:
        nodes += [
            helper.make_node("Mul", ["mean", "zero"], ["none"]),
            helper.make_node("Add", ["none", "constant"], [second]),
        ]
        constant = 0.5 if "std" in second else np.log(0.25)
        stored.append(numpy_helper.from_array(np.array(0, kind), "zero"))
        stored.append(numpy_helper.from_array(np.array(constant, kind), "constant"))
        outputs.append(second)
    given = ["x", *(f"more{k}" for k in range(inputs - 1))]
    graph = helper.make_graph(
        nodes,
        "part",
        [helper.make_tensor_value_info(name, real, [batch, wide]) for name in given],
        [helper.make_tensor_value_info(name, real, [batch, narrow]) for name in outputs],
        stored,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(path))
    return str(path)


def test_two_files_are_an_autoencoder(tmp_path):
    files = write(tmp_path / "e.onnx", WEIGHTS), write(tmp_path / "d.onnx", BACK)
    model = zs.load(",".join(files))
    posterior = model.encode(X)
    assert posterior.deterministic
    np.testing.assert_allclose(posterior.mean.numpy(), X.numpy() @ WEIGHTS, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        model.decode(posterior.mean).numpy(), X.numpy() @ WEIGHTS @ BACK, rtol=1e-4, atol=1e-5
    )
    assert model.prior is None


@pytest.mark.parametrize("second", ["log_variance", "std"])
def test_a_second_output_is_the_spread(tmp_path, second):
    encoder = write(tmp_path / "e.onnx", WEIGHTS, second=second)
    model = from_onnx(encoder, write(tmp_path / "d.onnx", BACK))
    posterior = model.encode(X)
    assert torch.allclose(posterior.std, torch.tensor(0.5))
    assert model.prior == "normal"


def test_a_fixed_batch_is_fed_in_parts_of_it(tmp_path):
    encoder = write(tmp_path / "e.onnx", WEIGHTS, batch=8)
    model = from_onnx(encoder, write(tmp_path / "d.onnx", BACK, batch=1))
    codes = model.encode(X).mean
    np.testing.assert_allclose(codes.numpy(), X.numpy() @ WEIGHTS, rtol=1e-5, atol=1e-5)
    assert model.decode(codes).shape == X.shape


def test_double_precision_files_are_fed_doubles(tmp_path):
    encoder = write(tmp_path / "e.onnx", WEIGHTS, kind=np.float64)
    decoder = write(tmp_path / "d.onnx", BACK, kind=np.float64)
    assert from_onnx(encoder, decoder).encode(X).mean.dtype == torch.float32


def test_a_network_exported_from_torch_is_measured_like_itself(tmp_path):
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder, decoder = nn.Linear(6, 2), nn.Linear(2, 6)
    write_weights = encoder.weight.detach().T.numpy(), decoder.weight.detach().T.numpy()
    nn.init.zeros_(encoder.bias)
    nn.init.zeros_(decoder.bias)
    files = [write(tmp_path / f"{n}.onnx", w) for n, w in zip("ed", write_weights, strict=True)]
    names = ["response-matrix"]
    ours, theirs = (
        zs.assay(model, X, names=names).results["response-matrix"].matrix
        for model in ((encoder, decoder), ",".join(files))
    )
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_what_cannot_be_used_is_said(tmp_path):
    encoder, decoder = write(tmp_path / "e.onnx", WEIGHTS), write(tmp_path / "d.onnx", BACK)
    with pytest.raises(InterfaceError, match="no file nowhere.onnx"):
        from_onnx("nowhere.onnx", decoder)
    (tmp_path / "bad.onnx").write_bytes(b"hello")
    with pytest.raises(InterfaceError, match="bad.onnx could not be read"):
        from_onnx(tmp_path / "bad.onnx", decoder)
    with pytest.raises(InterfaceError, match="1 file.*encoder.onnx,decoder.onnx"):
        zs.load(encoder)
    two = write(tmp_path / "two.onnx", WEIGHTS, inputs=2)
    with pytest.raises(InterfaceError, match="takes 2 inputs"):
        from_onnx(two, decoder)
    with pytest.raises(InterfaceError, match="2 .*expected one or two from the encoder and one"):
        from_onnx(encoder, write(tmp_path / "wide.onnx", BACK, second="log_variance"))
    model = from_onnx(encoder, decoder)
    with pytest.raises(InterfaceError, match="an assay needs gradients"):
        model.encode(X.clone().requires_grad_())
