"""Models and arrays of half precision, NumPy arrays and lists: the answers of float32."""

import inspect
import json

import numpy as np
import pytest
import torch
from torch import nn
from worlds import seeded

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.assays.arguments import _places
from zscope.assays.jacobian import decoder_jacobian
from zscope.assays.parts import PARTS
from zscope.data.dataset import from_arrays

W = torch.linalg.qr(torch.randn(12, 4, generator=seeded(0))).Q


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(W.clone())

    def forward(self, x):
        mean = x @ self.weights
        return mean, -4 + 0 * mean


class Decoder(nn.Module):
    """Nearly linear, with columns that are not quite orthogonal."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(W.clone())

    def forward(self, z):
        return z @ self.weights.T + 0.2 * torch.tanh(z) @ self.weights.roll(1, 1).T


def recording(dtype, samples=200):
    draw = np.random.default_rng(0)
    factors = draw.integers(0, 4, (samples, 3))
    mixing = [[1, 0.3, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.2], [0, 0.2, 0, 1]]
    codes = np.c_[(factors - 1.5) / 1.1, draw.normal(size=samples)] @ mixing
    x = (codes @ W.T.numpy()).astype(np.float32)
    model = zs.wrap(Encoder().to(dtype), Decoder().to(dtype))
    return zs.record(model, from_arrays(x, factors, factor_kinds=("ordinal",) * 3))


# Those that decompose or differentiate, and one of each other kind.
NAMES = [
    *("distance-to-orthogonality", "alignment-gap", "optimal-noise", "predicted-variance"),
    *("loss-decomposition", "manifold-path", "effective-rank", "total-correlation"),
    *("response-matrix", "rate-distortion", "variable-types", "response-map"),
]
OPTIONS = {"manifold-path": {"samples": 40, "relax": 10}, "response-map": {"grid": 8},
           "response-matrix": {"samples": 64}}  # fmt: skip


def close(one, two):
    pairs = zip(one.measures(), two.measures(), strict=True)
    return all(p.value == pytest.approx(q.value, rel=0.05, abs=0.02) for p, q in pairs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_are_measured_in_float32(dtype):
    half, whole = recording(dtype), recording(torch.float32)
    assert half.codes.dtype == torch.float32
    assert half.model.place[1] == dtype  # the model stays as it is
    reports = [zs.assay(each, names=NAMES, options=OPTIONS) for each in (half, whole)]
    for report in reports:
        assert not report.failed
        assert not report.missing
    for name in NAMES:
        json.dumps(reports[0].results[name].to_dict(), allow_nan=False)
        assert close(reports[0].results[name], reports[1].results[name]), name
    assert half.model.place[1] == dtype


def test_derivatives_of_a_half_precision_decoder_are_those_of_its_weights():
    model = recording(torch.bfloat16, 20).model
    twin = zs.wrap(Encoder(), Decoder())
    twin.decoder.weights.data = model.decoder.weights.data.float()
    codes = torch.randn(5, 4, generator=seeded(1))
    jacobian = decoder_jacobian(model, codes)
    assert jacobian.dtype == torch.float32
    assert torch.allclose(jacobian, decoder_jacobian(twin, codes), atol=1e-6)


def convert(value, kind):
    if isinstance(value, zs.Recording):
        value = value.codes
    if isinstance(value, zs.Posterior):
        return zs.Posterior(*(convert(part, kind) for part in (value.mean, value.std)))
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        value = value.half() if "half" in kind else value
        value = value.numpy() if "numpy" in kind else value
        return value.tolist() if kind == "list" else value
    return value


OF_CODES = ["total-correlation", "effective-rank", "intrinsic-dimension", "mig", "variable-types"]
OF_MODELS = ["response-matrix", "holes", "traversal-responses", "distance-to-orthogonality",
             "loss-decomposition", "latent-divergence", "trace-gap", "rate-distortion"]  # fmt: skip
KINDS = ["numpy", "half", "half numpy"]
CASES = [(name, kind) for name in OF_CODES + OF_MODELS for kind in KINDS]


@pytest.mark.parametrize(("name", "kind"), [*CASES, *((name, "list") for name in OF_CODES)])
def test_arrays_of_any_kind_are_accepted(name, kind, whole):
    entry = CATALOGUE[name]
    function = entry.load()
    parts = _places(inspect.signature(function), entry)
    values = {word: convert(PARTS[part](whole), kind) for word, part in parts.items()}
    result = function(**values)
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.fixture(name="whole", scope="module")
def _whole():
    return recording(torch.float32, 60)
