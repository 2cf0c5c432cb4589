"""Hostile arguments end in an answer or in an error that names the problem."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.errors import ConfigError, DataError, InterfaceError
from zscope.types import as_tensor

HERE = Path(__file__).parent
RESULTS = HERE.parent / "reference" / "reliability.json"
QUICK = ["assays.mig", "assays.cka", "assays.response_matrix", "assays.variable_types",
         "assays.effective_rank", "assays.fondue", "Posterior", "wrap", "record",
         "Recording.from_arrays", "sampling.hybrid", "prune", "data.from_arrays"]  # fmt: skip


def attack(calls: int, out: Path, *names: str) -> dict:
    """Every outcome, by public name; in a process of its own, without the checks of shapes."""
    words = [sys.executable, str(HERE / "hostile.py"), "--calls", str(calls), "--out", str(out)]
    subprocess.run([*words, *names], check=False, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


def failures(results: dict) -> str:
    lines = [
        f"{name}: {count} x {text} [{example}]"
        for name, each in results.items()
        for text, (count, example) in each["failures"].items()
    ]
    return "\n".join(lines)


def test_hostile_arguments_are_answered_or_refused(tmp_path):
    results = attack(25, tmp_path / "api.json", *QUICK)
    assert set(results) == set(QUICK)
    assert not failures(results), failures(results)
    assert all(each["counts"].get("answer") for each in results.values())


@pytest.mark.slow
def test_a_hundred_thousand_hostile_calls(tmp_path):
    results = attack(1050, tmp_path / "api.json")
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    outcomes = ("answer", "refusal", "failure")
    counts = {name: {k: e["counts"].get(k, 0) for k in outcomes} for name, e in results.items()}
    total = {k: sum(each[k] for each in counts.values()) for k in outcomes}
    kept["api"] = {**kept.get("api", {}), "total": total, "calls": counts}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    assert not failures(results), failures(results)
    assert [name for name, each in counts.items() if not each["answer"]] == []
    assert min(sum(each.values()) for each in counts.values()) >= 200
    assert sum(total.values()) >= 10**5


# What the attack broke, each in its smallest form.


class Odd(zs.Autoencoder):
    latents = 2

    def __init__(self, output):
        super().__init__()
        self.output = output

    def encode(self, x, auxiliary=None):
        return self.output(x)

    def decode(self, z):
        return z @ torch.ones(2, 4)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda x: None, "Odd: encode returned a NoneType"),
        (lambda x: (x, x), "Odd: encode returned a tuple"),
        (lambda x: zs.Posterior(x[:, :1]), r"means of shape \(9, 1\); expected \(9, 2\)"),
        (lambda x: zs.Posterior(x[:1, :2]), r"means of shape \(1, 2\)"),
        (lambda x: zs.Posterior(x[:, :2], -x[:, :2].abs() - 1), "std of .*log-variance"),
        (lambda x: x @ x, "Odd: encode raised RuntimeError for torch.float32 .9, 4.: mat1"),
        (lambda x: {}["mean"], "Odd: encode raised KeyError"),
    ],
)
def test_a_model_that_misbehaves_is_named(output, message):
    with pytest.raises(InterfaceError, match=message):
        zs.record(Odd(output), torch.ones(9, 4))


@pytest.mark.parametrize("codes", ["codes.npy", None, [["a", "b"]], [[1.0, 2.0], [3.0]]])
def test_what_is_no_table_of_numbers_is_refused(codes):
    with pytest.raises(DataError, match="who: got .* no table of numbers"):
        as_tensor(codes, "who")


def test_reversed_arrays_and_whole_numbers_are_arrays():
    table = np.arange(6).reshape(3, 2)
    posterior = zs.Posterior(table[::-1], np.ones((3, 2), int))
    assert posterior.mean.tolist() == [[4, 5], [2, 3], [0, 1]]
    assert posterior.sample().is_floating_point()
    with pytest.raises(InterfaceError, match="complex"):
        zs.Posterior(table * 1j)
    with pytest.raises(InterfaceError, match=r"shape \(3, 0\)"):
        zs.Posterior(np.zeros((3, 0)))


@pytest.mark.parametrize(
    ("function", "option", "value"),
    [
        ("total_correlation", "resamples", "x"),
        ("mig", "resamples", math.nan),
        ("mig", "resamples", 10**30),
        ("total_correlation", "columns", -1),
        ("intrinsic_dimension", "method", [0]),
        ("intrinsic_dimension", "neighbours", 10**13),
        ("nearest_neighbours", "tolerance", [1]),
        ("renyi_entropy", "order", math.nan),
    ],
)
def test_options_of_the_wrong_kind_are_refused_in_every_call(function, option, value):
    codes = np.random.default_rng(0).standard_normal((60, 3))
    arrays = [codes, np.arange(60) % 3] if function == "mig" else [codes]
    with pytest.raises(ConfigError, match=rf"{function}: {option}="):
        getattr(zs.assays, function)(*arrays, **{option: value})


def test_udr_leaves_the_global_random_state_alone():
    codes = np.random.default_rng(0).standard_normal((40, 3))
    before = np.random.get_state()[2]
    zs.assays.udr([codes, codes + 1])
    assert np.random.get_state()[2] == before


def test_more_samples_than_fit_into_memory_are_refused():
    with pytest.raises(ConfigError, match="at most 1,000,000,000"):
        zs.sampling.prior(3, 10**13)


def test_zero_noise_has_no_best_noise():
    model = Odd(lambda x: zs.Posterior(x[:, :2], torch.zeros(len(x), 2)))
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(zs.ZscopeError):
        zs.assays.optimal_noise(zs.record(model, x), active="all")
