"""Models that are not functions are noticed, and functions are not suspected."""

import itertools
import re
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from worlds import seeded

import zscope as zs
from zscope.report.findings import Facts
from zscope.report.rules import RULES

X = torch.randn(40, 6, generator=seeded(0)) + 5
BY_NAME = {rule.name: rule for rule in RULES}
RULE = BY_NAME["not a function"]


def linear(inputs, outputs, seed):
    layer = nn.Linear(inputs, outputs)
    layer.weight.data = torch.randn(outputs, inputs, generator=seeded(seed)) / inputs**0.5
    layer.bias.data.zero_()
    return layer


with torch.random.fork_rng():
    ENCODER, DECODER = linear(6, 3, 1), linear(3, 6, 2)


class Stateful(nn.Module):
    """Its output drifts from call to call."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = ENCODER, 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) + 0.1 * self.calls


class TrainingNorm(nn.Module):
    """Batch norm that uses the batch in evaluation mode too."""

    def forward(self, x):
        return nn.functional.batch_norm(ENCODER(x), None, None, training=True)


NOT_FUNCTIONS = {
    "noise": (lambda x: ENCODER(x) + 0.1 * torch.randn(len(x), 3), DECODER, "encoder is not a f"),
    "dropout": (
        lambda x: nn.functional.dropout(ENCODER(x), 0.2, training=True), DECODER, "draws random"
    ),
    "noise in the spread": (
        lambda x: (ENCODER(x), torch.rand(len(x), 3)), DECODER, "encoder is not a function"
    ),
    "state": (Stateful(), DECODER, "keeps state from call to call"),
    "batch": (lambda x: ENCODER(x - x.mean(0)), DECODER, "depends on the batch.*among 4"),
    "batch norm": (TrainingNorm(), DECODER, "alone raised ValueError: Expected more than 1"),
    "decoder": (ENCODER, lambda z: DECODER(z) + torch.randn(len(z), 6), "decoder is not a f"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_FUNCTIONS)
def test_a_model_that_is_not_a_function_is_noticed(case):
    encoder, decoder, message = NOT_FUNCTIONS[case]
    with torch.random.fork_rng(), pytest.warns(UserWarning, match=f"record: .*{message}") as said:
        recording = zs.record(zs.wrap(encoder, decoder), X)
    assert len(said) == len(recording.notes) == 1
    assert recording.notes[0] in repr(recording)
    assert recording.notes[0] in recording._repr_html_()
    (finding,) = RULE(Facts(recording, {}, []))
    assert finding.level == "problem"
    assert recording.notes[0] in finding.evidence


def normalised(*layers):
    """The layers after a batch norm that has seen data and is still in training mode."""
    norm = nn.BatchNorm1d(6)
    norm(X)
    return nn.Sequential(norm, *layers)


FUNCTIONS = {
    "linear": (ENCODER, DECODER),
    "norm, dropout": (normalised(nn.Dropout(0.5), ENCODER), nn.Sequential(nn.Dropout(), DECODER)),
    "far from 0": (lambda x: 1e3 + ENCODER(x), DECODER),
    "collapsed": (lambda x: (1e-6 * ENCODER(x), torch.zeros(len(x), 3)), DECODER),
    "constant": (lambda x: torch.zeros(len(x), 3), DECODER),
    "encoder alone": (ENCODER, lambda z: 1 / 0),
}  # fmt: skip


def spoiled(z):
    """Decoded codes with a number that is NaN."""
    x = DECODER(z).detach()
    x[:, 2] = torch.nan
    return x


def test_a_decoder_that_always_gives_nan_is_a_function():
    with pytest.warns(UserWarning, match="decoder gives NaN or infinite numbers for 4 of 4"):
        recording = zs.record(zs.wrap(ENCODER, spoiled), X)
    assert len(recording.notes) == 1
    assert RULE(Facts(recording, {}, [])) == []
    (problem,) = BY_NAME["no numbers"](Facts(recording, {}, []))
    assert (problem.level, problem.text) == ("problem", "The decoder gives NaN or infinite numbers")
    report = zs.assay(recording, names=["effective-rank", "response-matrix"])
    reason = (
        "decoder gave NaN or infinite numbers for 2 of 2 codes, first in number 2 of its output"
    )
    assert reason in report.missing["response-matrix"]
    assert report.explained is None
    assert "nan" not in str(report)


def test_a_decoder_that_gives_nan_at_times_is_none():
    both = itertools.cycle([spoiled, DECODER])

    def decoder(z):
        return next(both)(z)

    with pytest.warns(UserWarning, match="record: ") as warned:
        zs.record(zs.wrap(ENCODER, decoder), X)
    assert re.search("decoded twice.* differ by numbers that are NaN", str(warned[0].message))


def test_noise_beside_nan_is_noticed():
    decoder = lambda z: spoiled(z) + 0.1 * torch.randn(len(z), 6)  # noqa: E731
    message = r"decoder is not a function.* up to 0\.\d+ \("
    with torch.random.fork_rng(), pytest.warns(UserWarning, match="record: ") as warned:
        recording = zs.record(zs.wrap(ENCODER, decoder), X)
    first, second = (str(each.message) for each in warned)
    assert re.search(message, first)
    assert "decoder gives NaN or infinite numbers" in second
    (finding,) = RULE(Facts(recording, {}, []))
    assert "NaN" not in finding.evidence


@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_function_is_not_suspected(case):
    recording = zs.record(zs.wrap(*FUNCTIONS[case]), X)
    assert recording.notes == ()
    assert "note" not in repr(recording)
    assert RULE(Facts(recording, {}, [])) == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rounding_of_other_float_types_is_not_suspected(dtype):
    with torch.random.fork_rng():
        encoder = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                                nn.Linear(64, 3)).to(dtype)  # fmt: skip
        decoder = nn.Linear(3, 6).to(dtype)
    assert zs.record(zs.wrap(encoder, decoder), X).notes == ()


def test_the_models_of_zscope_are_functions():
    draw = np.random.default_rng(0)
    pictures = draw.integers(0, 256, (12, 1, 16, 16), dtype=np.uint8)
    for backbone in ("mlp", "locatello"):
        model = zs.models.build("vae", shape=(1, 16, 16), latents=4, backbone=backbone)
        assert zs.record(model, pictures).notes == ()


def test_one_observation_is_enough():
    assert zs.record(zs.wrap(ENCODER, DECODER), X[:1]).notes == ()


def test_the_report_says_so_too():
    encoder, decoder, _ = NOT_FUNCTIONS["batch"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = zs.assay(zs.wrap(encoder, decoder), X, names=["effective-rank"])
    assert report.findings[0].text == "The model is not a function of its input"
    assert "depends on the batch" in str(report.to_dict()["findings"][0])
