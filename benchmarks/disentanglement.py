"""How fast are the disentanglement scores, and do the fast importances agree with the slow?

    python benchmarks/disentanglement.py            everything; about ten minutes
    python benchmarks/disentanglement.py --quick    two minutes: gradient boosting gets few
                                                    rounds and its time is extrapolated

10 codes, each a mixture of two of five factors (3, 6, 40, 32 and 32 values) with noise.
DCI is trained on 10,000 rows (of 15,000), the other scores are measured on 10,000 rows. They
are compared with scikit-learn's gradient boosting at its defaults, and with plain
implementations of the definitions, pair by pair, with scikit-learn and NumPy. Repeats alternate;
the fastest counts. Ratios are of processor time, which depends less on other programs; run with
one thread (OMP_NUM_THREADS=1).
"""

import argparse
import sys
import time

import numpy as np
from scipy.stats import spearmanr
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.metrics import mutual_info_score

import zscope as zs
from zscope.assays.disentanglement.dci import _lightgbm
from zscope.assays.disentanglement.factor_vae import _votes
from zscope.assays.disentanglement.irs import _by_maximum
from zscope.assays.disentanglement.mig import _gaps
from zscope.assays.disentanglement.modularity import _above_chance
from zscope.assays.run import measure
from zscope.assays.sample import prepare, used_latents

SIZES = (3, 6, 40, 32, 32)


def make_data(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    factors = np.stack([rng.integers(size, size=rows) for size in SIZES], 1)
    scaled = (factors - factors.mean(0)) / factors.std(0)
    mixing = np.zeros((len(SIZES), 10))
    for j in range(10):
        mixing[j % 5, j] = 1
        mixing[(j + 1 + j // 5) % 5, j] = rng.uniform(0.1, 0.9)
    return scaled @ mixing + 0.5 * rng.standard_normal((rows, 10)), factors


def pairwise_information(codes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    matrix = np.zeros((codes.shape[1], factors.shape[1]))
    for j in range(codes.shape[1]):
        edges = np.histogram(codes[:, j], 20)[1][:-1]
        binned = np.digitize(codes[:, j], edges)
        for k in range(factors.shape[1]):
            matrix[j, k] = mutual_info_score(factors[:, k], binned)
    return matrix


def plain_mig(codes: np.ndarray, factors: np.ndarray) -> float:
    ordered = np.sort(pairwise_information(codes, factors), axis=0)
    entropies = [mutual_info_score(column, column) for column in factors.T]
    return float(np.mean((ordered[-1] - ordered[-2]) / entropies))


def plain_modularity(codes: np.ndarray, factors: np.ndarray) -> float:
    squares = pairwise_information(codes, factors) ** 2
    best = squares.max(1)
    return float(np.mean(1 - (squares.sum(1) - best) / (best * (factors.shape[1] - 1))))


def plain_irs(codes: np.ndarray, factors: np.ndarray) -> float:
    matrix = np.zeros((codes.shape[1], factors.shape[1]))
    largest = np.zeros(codes.shape[1])
    for j in range(codes.shape[1]):
        code = codes[:, j]
        largest[j] = np.abs(code - code.mean()).max()
        for k in range(factors.shape[1]):
            deviations = []
            for value in np.unique(factors[:, k]):
                group = code[factors[:, k] == value]
                deviations.append(np.abs(group - group.mean()).max())
            matrix[j, k] = 1 - np.mean(deviations) / largest[j]
    return float(np.average(matrix.max(1), weights=largest))


def plain_factor_vae(codes: np.ndarray, factors: np.ndarray) -> float:
    rng = np.random.default_rng(0)
    variances = codes.var(0, ddof=1)
    rows = [
        {value: np.flatnonzero(column == value) for value in np.unique(column)}
        for column in factors.T
    ]
    tables = np.zeros((2, factors.shape[1], codes.shape[1]))
    for table, votes in zip(tables, (10_000, 5_000), strict=True):
        for _ in range(votes):
            k = rng.integers(factors.shape[1])
            value = factors[rng.integers(len(factors)), k]
            batch = codes[rng.choice(rows[k][value], 64)]
            table[k, np.argmin(batch.var(0, ddof=1) / variances)] += 1
    assigned = tables[0].argmax(0)
    return float(tables[1][assigned, np.arange(codes.shape[1])].sum() / tables[1].sum())


def score_alone(name: str, codes: np.ndarray, factors: np.ndarray) -> float:
    """One of zscope's scores from arrays, without its chance level."""
    sample, _ = prepare(name, codes, factors, None)
    sample = sample.keep(used_latents(name, sample, None)[0])
    rng = np.random.default_rng(0)
    if name == "factor_vae_score":
        return _votes(sample, rng, by_value=False).score
    estimate = {"mig": _gaps, "modularity": _above_chance, "irs": _by_maximum}[name]
    return estimate(sample, rng).score


def fastest(functions: list, repeats: int) -> list[float]:
    """The shortest time of each function; they run in turn."""
    times = [[] for _ in functions]
    for _ in range(repeats):
        for function, seconds in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            seconds.append(time.process_time() - start)
    return [min(seconds) for seconds in times]


def elapsed(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


failed = []


def check(claim: str, passed: bool) -> None:
    print(f"  {'ok' if passed else 'FAILED'}: {claim}", flush=True)
    if not passed:
        failed.append(claim)


def compare_scores() -> None:
    codes, factors = make_data(10_000)
    for name, plain, repeats in (
        ("mig", plain_mig, 7),
        ("modularity", plain_modularity, 7),
        ("irs", plain_irs, 15),
        ("factor_vae_score", plain_factor_vae, 3),
    ):
        score_alone(name, codes, factors)
        ours, theirs = fastest(
            [
                lambda name=name: score_alone(name, codes, factors),
                lambda plain=plain: plain(codes, factors),
            ],
            repeats,
        )
        print(f"{name}: {1e3 * ours:.1f} ms, pair by pair {1e3 * theirs:.1f} ms")
        check(f"{name} at least 5 times as fast ({theirs / ours:.1f} times)", theirs >= 5 * ours)


def compare_importances(quick: bool) -> None:
    codes, factors = make_data(15_000)
    ours = elapsed(lambda: zs.assays.dci(codes, factors))
    print(f"dci with its chance level: {ours:.1f} s")
    order = np.random.default_rng(0).permutation(len(codes))
    train, test = order[:10_000], order[10_000:]
    ours = 0.0
    fast = []
    for k in range(len(SIZES)):
        start = time.process_time()
        importances, _ = _lightgbm(codes[train], factors[train, k], codes[test], True)
        ours += time.process_time() - start
        fast.append(importances / importances.sum())
    rounds = 3 if quick else 100
    theirs, slow = 0.0, []
    for k, size in enumerate(SIZES):
        model = GradientBoostingClassifier(random_state=0, n_estimators=rounds)
        start = time.process_time()
        model.fit(codes[train], factors[train, k])
        seconds = time.process_time() - start
        theirs += seconds
        slow.append(model.feature_importances_)
        print(f"  gradient boosting, {size} values, {rounds} rounds: {seconds:.1f} s", flush=True)
    label = ""
    if quick:
        theirs *= 100 / rounds
        label = f" (extrapolated from {rounds} rounds)"
        fast, slow = small_importances()
    agreement = spearmanr(np.ravel(fast), np.ravel(slow)).statistic
    print(f"dci alone: {ours:.1f} s, gradient boosting {theirs:.0f} s{label}")
    check(f"dci at least 30 times as fast ({theirs / ours:.0f} times)", theirs >= 30 * ours)
    check(f"importances agree (Spearman {agreement:.3f})", agreement >= 0.95)


def small_importances() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Both importances for the two factors with few values.

    From as many rows as above: with fewer, small importances are mostly noise.
    """
    codes, factors = make_data(10_000)
    fast, slow = [], []
    for k in (0, 1):
        importances, _ = _lightgbm(codes, factors[:, k], codes[:10], True)
        fast.append(importances / importances.sum())
        model = GradientBoostingClassifier(random_state=0).fit(codes, factors[:, k])
        slow.append(model.feature_importances_)
    return fast, slow


def compare_sizes() -> None:
    codes, factors = make_data(10_000)
    recording = zs.Recording.from_arrays(codes, factors, kinds="categorical")
    seconds = elapsed(lambda: measure(recording, "disentanglement"))
    print(f"all scores with their chance levels: {seconds:.1f} s")
    check(f"all scores within a minute ({seconds:.0f} s)", seconds < 60)
    small, large = make_data(100_000), make_data(400_000)
    for name in ("mig", "modularity", "irs", "sap", "predictability_gap", "mcc"):
        score = getattr(zs.assays, name)
        score(*small)
        short, long = fastest(
            [lambda score=score: score(*small), lambda score=score: score(*large)], 3
        )
        check(f"{name}: four times the rows take {long / short:.1f} times", long < 6 * short)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="extrapolate the time of gradient boosting"
    )
    options = parser.parse_args()
    compare_scores()
    compare_sizes()
    compare_importances(options.quick)
    sys.exit(1 if failed else 0)
