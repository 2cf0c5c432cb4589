"""Hostile arguments end in an answer or in an error that names the problem."""

import inspect
import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import zscope as zs
from zscope.assays.choosing import choose
from zscope.assays.run import measure
from zscope.errors import ConfigError, DataError, InterfaceError
from zscope.types import as_tensor

HERE = Path(__file__).parent
RESULTS = HERE.parent / "reference" / "reliability" / "api.json"
QUICK = ["assays.mig", "assays.cka", "assays.response_matrix", "assays.variable_types",
         "assays.effective_rank", "assays.fondue", "Posterior", "wrap", "record",
         "Recording.from_arrays", "sampling.hybrid", "prune", "data.from_arrays"]  # fmt: skip


def attack(calls: int, out: Path, *words: str) -> dict:
    """Every outcome, by public name; in a process of its own, without the checks of shapes."""
    script = [sys.executable, str(HERE / "hostile.py"), "--calls", str(calls), "--out", str(out)]
    subprocess.run([*script, *words], check=False, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


def outcomes(results: dict) -> dict[str, dict[str, int]]:
    """Calls that were made, by public name; arguments that could not be made are no calls."""
    kinds = ("answer", "refusal", "failure")
    return {name: {k: each["counts"].get(k, 0) for k in kinds} for name, each in results.items()}


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
    with ThreadPoolExecutor(2) as pool:
        halves = pool.map(lambda k: attack(1250, tmp_path / f"{k}.json", f"--half={k}"), (0, 1))
        results = {name: each for half in halves for name, each in half.items()}
    counts = outcomes(results)
    kept = {
        "tries": sum(sum(each.values()) for each in counts.values()),
        "failures": sum(each["failure"] for each in counts.values()),
        "outcomes": counts,
        "repaired": json.loads(RESULTS.read_text())["repaired"],
    }
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    assert not failures(results), failures(results)
    assert [name for name, each in counts.items() if not each["answer"]] == []
    assert min(sum(each.values()) for each in counts.values()) >= 200
    assert kept["tries"] >= 10**5


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


def test_a_renyi_entropy_has_a_finite_order():
    codes = np.random.default_rng(0).standard_normal((60, 3))
    with pytest.raises(ConfigError, match="renyi: order=inf; expected a finite number"):
        zs.assays.renyi_entropy(codes, order=math.inf)
    sizes = [zs.assays.renyi_entropy(codes, order=order).score for order in (2, 10, 1e3, 1e30)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] == pytest.approx(sizes[3], rel=0.01)  # the largest eigenvalue alone


@pytest.mark.parametrize("call", ["loss_decomposition", "sample_quality"])
@pytest.mark.parametrize("number", [3.5, np.array(3.5), torch.tensor(3.5)])
def test_a_single_number_is_no_observations(call, number):
    model = Odd(lambda x: zs.Posterior(x[:, :2], torch.ones(len(x), 2)))
    posterior = zs.Posterior(np.zeros((9, 2)), np.ones((9, 2)))
    with pytest.raises(DataError, match=rf"{call}: observations=.* is a single number"):
        getattr(zs.assays, call)(model, number, posterior=posterior)


def test_layers_that_are_not_finite_are_refused():
    def spread(x):
        return zs.Posterior(x[:, :2], torch.full((len(x), 2), torch.inf))

    with pytest.raises(zs.errors.Undefined, match="activations: variance of Odd .* 9 of 9"):
        zs.assays.activations(Odd(spread), torch.ones(9, 4))
    lost = Odd(lambda x: zs.Posterior(x[:1, :2]))
    with pytest.raises(InterfaceError, match="1 means for 9 observations"):
        zs.assays.activations(lost, torch.ones(9, 4))


def test_effects_and_variances_that_overflow_are_undefined():
    model = Odd(lambda x: zs.Posterior(x[:, :2], torch.ones(len(x), 2)))
    codes = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    huge = codes.double() @ torch.ones(2, 4).double() * 1e300
    with pytest.raises(zs.errors.Undefined, match="feature_effects: .* overflow"):
        zs.assays.feature_effects(model, codes, huge)
    infinite = zs.Posterior(codes, torch.full((40, 2), torch.nan))
    with pytest.raises(zs.ZscopeError, match="predicted_variance: "):
        zs.assays.predicted_variance(model, infinite)


def test_information_of_posteriors_needs_posteriors_with_a_spread():
    mean, std = torch.eye(9, 2, requires_grad=True), torch.ones(9, 2)
    assert zs.assays.carried_information(zs.Posterior(mean, std)) >= 0
    for bad in (zs.Posterior(mean[:0], std[:0]), zs.Posterior(mean, 0 * std)):
        with pytest.raises(zs.errors.Undefined, match="carried_information: "):
            zs.assays.carried_information(bad)


def test_complex_codes_have_no_response():
    model = Odd(lambda x: zs.Posterior(x[:, :2]))
    for call in (zs.assays.respond, zs.assays.respond_posterior):
        with pytest.raises(DataError, match="complex128; expected real numbers"):
            call(model, np.ones((9, 2)) * 1j)


def test_a_decoder_of_another_size_is_named():
    model = Odd(lambda x: zs.Posterior(x[:, :2], torch.ones(len(x), 2)))
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    message = r"returned shape \(40, 4\) for observations of shape \(40, 5\)"
    with pytest.raises(InterfaceError, match=message):
        zs.assays.rate_distortion(model, x)
    report = zs.assay(model, x, names=["rate-distortion"], progress=False)
    assert not report.failed
    assert "Do the data belong to this model?" in report.missing["rate-distortion"]


def test_a_name_with_a_null_byte_is_refused(tmp_path):
    codes = np.random.default_rng(0).standard_normal((60, 3))
    report = zs.assay(zs.Recording.from_arrays(codes), names=["effective-rank"], progress=False)
    for name in ("\0.csv", "\0/a.csv"):
        with pytest.raises(zs.errors.RunError, match="null byte.* Choose another name"):
            report.save(tmp_path / name)


def test_perturb_and_fondue_refuse_options_of_the_wrong_kind(tmp_path):
    x = np.random.default_rng(0).random((24, 4), np.float32)
    with pytest.raises(DataError, match="fewer than two factors"):
        zs.perturb(x, epsilon=0.1, out=tmp_path)
    data = zs.data.from_arrays(x, np.stack([np.arange(24) % 4, np.arange(24) // 4], 1))
    for option, value in {"epsilon": [1], "seed": [], "pairs": {}, "latents": 0.5}.items():
        with pytest.raises(ConfigError, match=f"perturb: {option}="):
            inspect.unwrap(zs.perturb)(data, out=tmp_path, **{"epsilon": 0.1, option: value})
    with pytest.raises(ConfigError, match="fondue: seed=inf"):
        inspect.unwrap(zs.fondue)(x, seed=math.inf)  # without the checks of types in tests


def test_a_large_whole_number_is_the_float_that_it_stands_for():
    codes = np.random.default_rng(0).standard_normal((60, 3))
    scores = [zs.assays.renyi_entropy(codes, order=order).score for order in (10**30, 1e30)]
    assert scores[0] == scores[1]
    assert zs.assays.correlation_tracking([codes], threshold=10**30).counts == [0, 0, 0]


def test_data_have_real_factors_and_a_name():
    x = np.ones((9, 4))
    with pytest.raises(DataError, match="array: factors are complex"):
        zs.data.from_arrays(x, x * 1j)
    with pytest.raises(ConfigError, match="from_arrays: name=7"):
        inspect.unwrap(zs.data.from_arrays)(x, name=7)


@pytest.mark.parametrize(
    "options",
    [{"tolerance": 0.0}, {"low": 0.0}, {"start": -1.0}, {"high": math.inf}, {"low": 9, "high": 1}],
)
def test_a_search_for_beta_ends(options):
    with pytest.raises(ConfigError, match="fondue_beta: start=.* would not end"):
        zs.assays.fondue_beta(lambda beta: 9.0 * (beta > 4), **options)
    found = zs.assays.fondue_beta(lambda beta: 9.0 * (beta > 4), tolerance=1e-9)
    assert found.beta == pytest.approx(4, rel=2e-9)


@pytest.mark.parametrize("shape", [(9,), (9, 2, 1)])
def test_mmd_takes_tables(shape):
    with pytest.raises(zs.errors.Undefined, match="mmd: clouds of shape"):
        inspect.unwrap(zs.assays.mmd)(np.ones(shape), np.ones(shape), variance=1.0)


def test_an_information_gap_of_reversed_arrays():
    x = np.random.default_rng(0).standard_normal((60, 3))
    plain, turned = (zs.assays.information_gap(each, each, x) for each in (x[::-1].copy(), x[::-1]))
    assert (plain.score, plain.samples) == (turned.score, turned.samples) == (plain.score, 60)


def test_a_trace_gap_is_finite_and_needs_no_gradients():
    mean, std = torch.eye(9, 2), torch.ones(9, 2, requires_grad=True)
    assert zs.assays.trace_gap(zs.Posterior(mean, std)).score == pytest.approx(2)
    with pytest.raises(zs.errors.Undefined, match="trace_gap: .* NaN or infinite"):
        zs.assays.trace_gap(zs.Posterior(mean, torch.full((9, 2), torch.inf)))


def test_a_pair_is_moved_by_a_finite_reach():
    model = Odd(lambda x: zs.Posterior(x[:, :2]))
    with pytest.raises(ConfigError, match="pair_traversal: reach=inf"):
        zs.assays.pair_traversal(model, torch.eye(9, 2), (0, 1), reach=math.inf)


def test_true_is_no_number_of_samples():
    model = Odd(lambda x: zs.Posterior(x[:, :2]))
    with pytest.raises(ConfigError, match="record: samples=True"):
        zs.record(model, torch.ones(9, 4), samples=True)


def test_a_ranking_needs_finite_variances():
    with pytest.raises(zs.errors.Undefined, match="latent_ranking: of 9 posteriors"):
        zs.assays.latent_ranking(zs.Posterior(torch.eye(9, 2), torch.full((9, 2), torch.nan)))


@pytest.mark.parametrize("std", [0.0, math.inf, math.nan])
def test_polarisation_needs_a_finite_divergence(std):
    with pytest.raises(zs.errors.Undefined, match="polarisation: the divergence of 9 posteriors"):
        zs.assays.polarisation(zs.Posterior(torch.eye(9, 2), torch.full((9, 2), std)))


def test_a_pair_traversal_shows_no_nan():
    model = Odd(lambda x: zs.Posterior(x[:, :2]))
    model.decode = lambda z: z * math.nan
    with pytest.raises(InterfaceError, match="NaN"):
        zs.assays.pair_traversal(model, torch.eye(9, 2), (0, 1))


def test_codes_of_another_model_are_named():
    model = Odd(lambda x: zs.Posterior(x[:, :2]))
    with pytest.raises(InterfaceError, match="codes of 3 latents were given, but Odd has 2"):
        zs.assays.interventional_consistency(model, torch.eye(9, 3))
    with pytest.raises(zs.errors.Undefined, match="interventional_consistency: .*shape .0, 2."):
        zs.assays.interventional_consistency(model, zs.Posterior(torch.ones(0, 2)))


def test_holes_need_two_posteriors_and_one_held_out():
    model = Odd(lambda x: zs.Posterior(x[:, :2]))
    model.decode = lambda z: z @ torch.eye(2, 4)
    with pytest.raises(zs.errors.Undefined, match="hole_score: 2 posteriors were recorded"):
        zs.assays.holes(model, torch.eye(2))
    assert zs.assays.holes(model, torch.eye(3, 2)).score >= 0


@pytest.mark.parametrize("options", [{"samples": -1}, {"samples": 0}, {"batch": 0}])
def test_a_distortion_needs_samples(options):
    model = Odd(lambda x: zs.Posterior(x[:, :2], torch.ones(len(x), 2)))
    with pytest.raises(ConfigError, match=f"rate_distortion: {next(iter(options))}="):
        zs.assays.rate_distortion(model, torch.eye(9, 4), **options)
    assert zs.assays.rate_distortion(model, 2 * torch.eye(9, 4, requires_grad=True)).rate > 0


def test_a_distortion_is_finite():
    model = Odd(lambda x: zs.Posterior(x[:, :2], torch.ones(len(x), 2)))
    model.decode = lambda z: z.sum(1, keepdim=True).expand(-1, 4) * torch.nan
    with pytest.raises(InterfaceError, match="rate_distortion: .* 9 of 9 .* NaN or infinite"):
        zs.assays.rate_distortion(model, torch.eye(9, 4))


def test_a_predicted_variance_that_rounding_hides_is_undefined():
    model, codes = Odd(lambda x: zs.Posterior(x[:, :2])), torch.eye(9, 2)
    answer = zs.assays.predicted_variance(model, codes, gamma=1.0)  # (J'J + I) = [[5, 4], [4, 5]]
    assert answer.variance.flatten().tolist() == pytest.approx([5 / 9] * 18)
    with pytest.raises(zs.errors.Undefined, match="gamma=1e-30 is too small"):
        zs.assays.predicted_variance(model, codes, gamma=1e-30)


def test_features_are_of_rows():
    model = Odd(lambda x: zs.Posterior(x[:, :2]))
    with pytest.raises(zs.errors.Undefined, match=r"sample_quality: got numbers of shape \(12,\)"):
        zs.assays.sample_quality(model, np.arange(24), posterior=zs.Posterior(torch.eye(24, 2)))


def test_names_and_resamples_of_the_wrong_kind_are_refused():
    codes = zs.Recording.from_arrays(np.random.default_rng(0).standard_normal((60, 3)))
    for names in (3, [3], ["mig", None], b"mig"):
        with pytest.raises(ConfigError, match=r"assay: names=\[.*(3|None|b'mig')\]"):
            inspect.unwrap(choose)(names)
    with pytest.raises(ConfigError, match=r"assay: resamples=\(1, 1\)"):
        inspect.unwrap(measure)(codes, ["effective-rank"], resamples=(1, 1))
    assert list(measure(codes, (name for name in ["effective-rank"])).results) == ["effective-rank"]


def test_a_decoder_may_return_rows_for_pictures():
    model = Odd(lambda x: zs.Posterior(x.flatten(1)[:, :2], torch.ones(len(x), 2)))
    model.decode = lambda z: z @ torch.eye(2, 4)
    x = torch.zeros(9, 1, 4, 1)
    x[:, 0, :2, 0] = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    report = zs.assay(model, x, names=["latent-divergence"], progress=False)
    assert not report.failed
    assert report.explained == pytest.approx(1, abs=1e-6)


def test_far_whole_numbers_are_factors():
    far = np.array([-(2**63), 2**63 - 1, 0, 0])
    middle = np.array([2**63 - 1, 2**63, 2**63, 2**63], np.uint64)
    for factors in (far, far.astype(np.uint64), middle, np.array([-128, 127, 0, 0], np.int8)):
        data = zs.data.from_arrays(np.ones((4, 2)), factors[:, None])
        assert data.factor_kinds == ("categorical",)


def test_neighbours_at_any_scale():
    x = np.random.default_rng(0).standard_normal((60, 3))
    near = zs.assays.nearest_neighbours(x, 3).distances
    for scale in (2.0**-930, 2.0**900):
        assert torch.equal(zs.assays.nearest_neighbours(x * scale, 3).distances, near * scale)
    assert zs.assays.precision_recall(x * 1e-281, x * 1e-281).precision == 1
    with pytest.raises(zs.errors.Undefined, match=r"features of shape \(9, 0\)"):
        zs.assays.precision_recall(x[:9, :0], x[:9, :0])


def test_errors_that_overflow_are_no_loss():
    model = Odd(lambda x: zs.Posterior(x[:, :2], torch.ones(len(x), 2)))
    posterior, x = zs.Posterior(torch.eye(9, 2), torch.ones(9, 2)), np.eye(9, 4)
    for message, bad in {"overflow; the observations go up to 1e\\+300": x * 1e300,
                         "complex128; expected real": x * 1j}.items():  # fmt: skip
        with pytest.raises(zs.errors.Undefined, match=f"loss_decomposition: .*{message}"):
            zs.assays.loss_decomposition(model, bad, posterior=posterior)
    with pytest.raises(ConfigError, match="type_probe: folds=0"):
        zs.assays.type_probe(posterior, np.arange(9) % 3, folds=0)
    model.decode = lambda z: z * math.nan
    with pytest.raises(InterfaceError, match="decoder gave NaN"):
        zs.assays.nonlinear_eigenfaces(model, posterior)


def test_scales_that_squares_do_not_bear():
    """The answer of the same numbers in another unit, or an error that names the overflow."""
    x = np.random.default_rng(0).standard_normal((60, 3))
    y = x @ np.diag([1.0, 2.0, 3.0]) + 1
    for scale in (2.0**-1000, 2.0**900):
        big, other = x * scale, y * scale
        assert zs.assays.renyi_information(big, other, order=0.5).score == pytest.approx(
            zs.assays.renyi_information(x, y, order=0.5).score
        )
        product, plain = zs.assays.column_product(big), zs.assays.column_product(x)
        assert product.gap == pytest.approx(plain.gap)
        assert product.log_columns - plain.log_columns == pytest.approx(3 * math.log(scale))
    small = zs.assays.frechet_distance(x * 2.0**-400, y * 2.0**-400).distance
    plain_distance = zs.assays.frechet_distance(x, y)
    assert small * 2.0**800 == pytest.approx(plain_distance.distance)
    means = float(((x.mean(0) - y.mean(0)) ** 2).sum())
    assert plain_distance.of_means == pytest.approx(means, rel=1e-12)
    lengths = np.log(np.linalg.norm(x, axis=0)).sum()
    assert plain.log_columns == pytest.approx(lengths, rel=1e-13)
    with pytest.raises(zs.errors.Undefined, match="overflow or vanish"):
        zs.assays.frechet_distance(x * 1e-250, y * 1e-250)
    with pytest.raises(zs.errors.Undefined, match="frechet_distance: the squares .* overflow"):
        zs.assays.frechet_distance(big, other)
    assert zs.assays.rotation_excess(big, beta=1.0) == pytest.approx(plain.gap)


def test_columns_and_latents_that_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match=r"total_correlation: columns=\[99\] .* 3 columns"):
        zs.assays.total_correlation(np.eye(9, 3), columns=[99])
    for columns in ([True], [True, False], [0.5]):
        with pytest.raises(ConfigError, match="total_correlation: columns.*whole number"):
            zs.assays.total_correlation(np.eye(9, 3), columns=columns)
    with pytest.raises(ConfigError, match=r"total_correlation: columns=\[\] of codes"):
        zs.assays.total_correlation(np.eye(9, 3), columns=[])
    with pytest.raises(ConfigError, match="samples=5 of 10000000000000 latents"):
        zs.sampling.prior(10**13, 5)
    with pytest.raises(ConfigError, match="samples=4096 of 1048576 latents"):
        inspect.unwrap(zs.sampling._count)(np.int32(2**12), np.int32(2**20))  # wraps around


def test_networks_of_thousands_of_layers_are_refused():
    with pytest.raises(ConfigError, match="hidden=.* at most 1,000 layers"):
        zs.models.build("ae", shape=(4,), latents=2, hidden=[2] * 1001)


def test_a_pipe_in_place_of_weights_is_named(tmp_path):
    model = zs.models.build("ae", shape=(4,), latents=2, hidden=(4,))
    zs.train(model, np.eye(9, 4, dtype=np.float32), steps=2, out=tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "run" / "model.safetensors")
    with pytest.raises(zs.errors.RunError, match="model.safetensors is a pipe"):
        zs.load(tmp_path / "run")
