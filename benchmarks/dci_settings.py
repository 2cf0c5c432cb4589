"""Which settings of LightGBM come closest to the DCI of scikit-learn's gradient boosting?

    python benchmarks/dci_settings.py                                about a minute
    python benchmarks/dci_settings.py --rows 400 700 2000 6000       about fifteen minutes

Four kinds of codes (mixtures of two factors, rotated factors, two noisy copies of each factor
beside noise, nonlinear mixtures) of factors with 2 to 8 values, training rows only. For each
setting: the difference of disentanglement from that of GradientBoostingClassifier at its
defaults (mean, mean size, largest), the mean difference of completeness, and how many times as
fast it is, by processor time. Run with one thread (OMP_NUM_THREADS=1). See
docs/decisions for what was chosen and why.
"""

import argparse
import sys
import time

import numpy as np
from ratios import Agreement, Ratio, finish, released
from sklearn.ensemble import GradientBoostingClassifier

from zscope.assays.disentanglement import dci
from zscope.assays.disentanglement.dci import SETTINGS, _lightgbm, disentanglement_of, weighted_mean

WORLDS = {"mixed": (3, 4, 6), "rotated": (2, 3, 5), "noisy": (3, 4), "nonlinear": (2, 4, 8)}
# settings of LightGBM, and whether importance is its own gain
CANDIDATES = {
    "rate .1, 100 rounds, own gain": ({"learning_rate": 0.1, "num_iterations": 100}, True),
    "rate .1, 50 rounds, own gain": ({"learning_rate": 0.1, "num_iterations": 50}, True),
    "rate .2, 30 rounds, own gain": ({"learning_rate": 0.2, "num_iterations": 30}, True),
    "rate .1, 100 rounds": ({"learning_rate": 0.1, "num_iterations": 100}, False),
    "rate .1, 120 rounds": ({"learning_rate": 0.1, "num_iterations": 120}, False),
    "rate .2, 50 rounds": ({"learning_rate": 0.2, "num_iterations": 50}, False),
    "rate .2, 60 rounds": ({"learning_rate": 0.2, "num_iterations": 60}, False),
    "rate .2, 50 rounds, 63 bins": (
        {"learning_rate": 0.2, "num_iterations": 50, "max_bin": 63},
        False,
    ),
    "rate .3, 33 rounds": ({"learning_rate": 0.3, "num_iterations": 33}, False),
    "rate .3, 40 rounds": ({"learning_rate": 0.3, "num_iterations": 40}, False),
    "rate .3, 50 rounds": ({"learning_rate": 0.3, "num_iterations": 50}, False),
    "rate .3, 40 rounds, 127 bins": (
        {"learning_rate": 0.3, "num_iterations": 40, "max_bin": 127},
        False,
    ),
    "rate .4, 25 rounds": ({"learning_rate": 0.4, "num_iterations": 25}, False),
    "rate .4, 30 rounds": ({"learning_rate": 0.4, "num_iterations": 30}, False),
}


def make_data(world: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, rows])
    sizes = WORLDS[world]
    factors = np.stack([rng.integers(size, size=rows) for size in sizes], 1)
    scaled, count = (factors - factors.mean(0)) / factors.std(0), len(sizes)
    if world == "mixed":
        mixing = np.zeros((count, 6))
        for j in range(6):
            mixing[j % count, j] = 1
            mixing[(j + 1 + j // count) % count, j] = rng.uniform(0.1, 0.9)
        return scaled @ mixing + 0.5 * rng.standard_normal((rows, 6)), factors
    if world == "rotated":
        rotation, _ = np.linalg.qr(rng.standard_normal((count, count)))
        return scaled @ rotation + 0.3 * rng.standard_normal((rows, count)), factors
    if world == "noisy":
        copies = [scaled + noise * rng.standard_normal(scaled.shape) for noise in (1.0, 0.5)]
        return np.column_stack([*copies, rng.standard_normal((rows, 2))]), factors
    bent = np.tanh(scaled @ rng.standard_normal((count, 10)))
    return bent + 0.5 * rng.standard_normal((rows, 10)), factors


def importances(learn, factors: np.ndarray) -> tuple[np.ndarray, float]:
    """The importances of all latents for all factors, and the processor time."""
    start = time.process_time()
    columns = [learn(values) for values in factors.T]
    return np.stack([c / c.sum() for c in columns], 1), time.process_time() - start


def scores(importance: np.ndarray) -> np.ndarray:
    """Disentanglement and completeness."""
    return np.array(
        [
            weighted_mean(disentanglement_of(each), each.sum(1))
            for each in (importance, importance.T)
        ]
    )


def boosted(codes: np.ndarray, values: np.ndarray) -> np.ndarray:
    return GradientBoostingClassifier(random_state=0).fit(codes, values).feature_importances_


def fast(codes: np.ndarray, values: np.ndarray, settings: dict, own_gain: bool) -> np.ndarray:
    importance_of = dci._residuals_explained
    if own_gain:
        dci._residuals_explained = lambda model: model.feature_importance("gain")
    try:
        return _lightgbm(codes, values, codes[:1], True, settings)[0]
    finally:
        dci._residuals_explained = importance_of


def compare(rows: int, seeds: range) -> Ratio:
    """The speed of the chosen setting, and how much farther it is from the slow one than others."""
    differences = {name: [] for name in CANDIDATES}
    seconds: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    reference = []
    for world in WORLDS:
        for seed in seeds:
            codes, factors = make_data(world, rows, seed)
            slow, spent = importances(lambda y, codes=codes: boosted(codes, y), factors)
            reference.append(spent)
            for name, (settings, own) in CANDIDATES.items():
                ours, spent = importances(
                    lambda y, codes=codes, settings=settings, own=own: fast(
                        codes, y, settings, own
                    ),
                    factors,
                )
                seconds[name].append(spent)
                differences[name].append(scores(ours) - scores(slow))
    print(f"{rows} training rows; gradient boosting {sum(reference):.0f} s")
    print(f"  {'':30s}  mean    size   largest  completeness  speed")
    for name, each in differences.items():
        d, c = np.array(each).T
        print(
            f"  {name:30s} {d.mean():+.3f}  {np.abs(d).mean():.3f}  {np.abs(d).max():.3f}    "
            f"{np.abs(c).mean():.3f}         {sum(reference) / sum(seconds[name]):.0f}x",
            flush=True,
        )
    sizes = {name: float(np.abs(np.array(each)[:, 0]).mean()) for name, each in differences.items()}
    chosen = next(n for n, (s, own) in CANDIDATES.items() if s == SETTINGS and not own)
    return Ratio(
        f"importances for DCI, {rows} rows, few values", "choices", seconds[chosen], reference,
        baseline="GradientBoostingClassifier at its defaults", version=released("scikit-learn"),
        at_most=1.0,
        agreement=Agreement(
            f"mean difference of disentanglement, {sizes[chosen]:.3f}, less that of the closest of "
            f"{len(CANDIDATES)} settings",
            sizes[chosen] - min(sizes.values()), 0.01,
        ),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[700])
    parser.add_argument("--seeds", type=int, nargs=2, default=[200, 202], help="first, last + 1")
    options = parser.parse_args()
    seeds = range(*options.seeds)
    return finish("dci_settings", [compare(rows, seeds) for rows in options.rows])


if __name__ == "__main__":
    sys.exit(main())
