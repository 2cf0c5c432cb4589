"""How fast are the disentanglement scores, compared with scikit-learn as common libraries call it?

    python benchmarks/disentanglement.py [--rounds 3]

10 codes, each a mixture of two of five factors (3, 6, 40, 32 and 32 values) with noise. DCI is
trained on 10,000 rows (of 15,000), the other scores are measured on 10,000 rows. The libraries of
published tables go pair by pair: MIG and modularity by mutual_info_score on a histogram, IRS by
groups, FactorVAE by batches, SAP by LinearSVC, explicitness by LogisticRegression and
roc_auc_score, DCI by GradientBoostingClassifier at its defaults. Their definitions (flavour="dlib";
of IRS the usual one) are timed against them, without the chance level, which none of them
computes: values are equal.

Gradient boosting takes many minutes. It is timed on the first `--rounds` of its 100 rounds, each of
which costs the same, and agreement is that of importances after all 100 for the two factors with
few values.
"""

import argparse
import sys
import time

import numpy as np
from ratios import Agreement, Ratio, agreement, finish, released, turns
from scipy.stats import spearmanr
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mutual_info_score, roc_auc_score
from sklearn.svm import LinearSVC

import zscope as zs
from zscope.assays.disentanglement import explicitness, irs, mig, modularity, sap
from zscope.assays.disentanglement.dci import _lightgbm
from zscope.assays.disentanglement.factor_vae import _votes
from zscope.assays.disentanglement.logistic import ignore_fit_warnings
from zscope.assays.run import measure
from zscope.assays.sample import Sample, all_latents, prepare

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


NAMES = {
    "mig": "MIG", "modularity": "modularity", "irs": "IRS", "factor_vae_score": "FactorVAE score",
    "sap": "SAP", "explicitness": "explicitness", "predictability_gap": "predictability gap",
    "mcc": "MCC",
}  # fmt: skip


def rows_of(name: str, codes: np.ndarray, factors: np.ndarray) -> Sample:
    """Codes and factors that are split into the same two parts each time."""
    sample, _ = prepare(name, codes, factors, "categorical")
    return sample.with_split_keys(np.random.default_rng(0))


def plain_sap(codes: np.ndarray, factors: np.ndarray) -> float:
    train, test = rows_of("sap", codes, factors).split()
    accuracy = np.zeros((codes.shape[1], factors.shape[1]))
    for j in range(codes.shape[1]):
        for k in range(factors.shape[1]):
            machine = LinearSVC(C=0.01, class_weight="balanced", random_state=0)
            with ignore_fit_warnings():
                machine.fit(codes[train, j : j + 1], factors[train, k])
            accuracy[j, k] = machine.score(codes[test, j : j + 1], factors[test, k])
    ordered = np.sort(accuracy, axis=0)
    return float(np.mean(ordered[-1] - ordered[-2]))


def plain_explicitness(codes: np.ndarray, factors: np.ndarray) -> float:
    train, test = rows_of("explicitness", codes, factors).split()
    scaled = (codes - codes[train].mean(0)) / codes[train].std(0)
    areas = []
    for values in factors.T:
        with ignore_fit_warnings():
            model = LogisticRegression().fit(scaled[train], values[train])
        chances = model.predict_proba(scaled[test])
        areas.append(
            np.mean(
                [
                    roc_auc_score(values[test] == value, chances[:, place])
                    for place, value in enumerate(model.classes_)
                ]
            )
        )
    return float(np.mean(areas))


SCORES = {
    # name: (ours, pair by pair, by what, repeats, at most, tolerance)
    "mig": (mig._plain_gaps, plain_mig, "mutual_info_score", 7, 0.2, 1e-9),
    "modularity": (modularity._plain, plain_modularity, "mutual_info_score", 7, 0.2, 1e-9),
    "irs": (irs._by_maximum, plain_irs, "groups of rows", 15, 0.3, 1e-9),
    "factor_vae_score": (
        lambda sample, rng: _votes(sample, rng, by_value=True),
        plain_factor_vae, "batches of 64, one by one", 3, 0.2, 0.01,
    ),
    "sap": (sap._with_svm, plain_sap, "LinearSVC", 3, 1.0, 1e-9),
    "explicitness": (
        lambda sample, rng: explicitness._explicitness(sample, rng, flavour="dlib"),
        plain_explicitness, "LogisticRegression and roc_auc_score", 3, 1.0, 1e-6,
    ),
}  # fmt: skip


def score_alone(name: str, codes: np.ndarray, factors: np.ndarray) -> float:
    """A score from arrays by its published definition, without its chance level."""
    sample = rows_of(name, codes, factors)
    estimate = SCORES[name][0]
    return estimate(sample.keep(all_latents(sample)[0]), np.random.default_rng(0)).score


def compare_scores() -> list[Ratio]:
    codes, factors = make_data(10_000)
    ratios = []
    for name, (_, plain, what, repeats, limit, tolerance) in SCORES.items():
        works = {
            "ours": lambda name=name: score_alone(name, codes, factors),
            "plain": lambda plain=plain: plain(codes, factors),
        }
        seconds = turns(works, repeats)
        ratios.append(
            Ratio(
                NAMES[name],
                "peers",
                seconds["ours"],
                seconds["plain"],
                baseline=f"pair by pair, by {what}",
                version=released("scikit-learn"),
                at_most=limit,
                agreement=agreement("the score", works["ours"](), works["plain"](), tolerance),
            )
        )
    return ratios


def compare_importances(rounds: int) -> Ratio:
    codes, factors = make_data(15_000)
    order = np.random.default_rng(0).permutation(len(codes))
    train, test = order[:10_000], order[10_000:]

    def ours() -> None:
        for values in factors.T:
            _lightgbm(codes[train], values[train], codes[test], True)

    def theirs() -> None:
        for values in factors.T:
            GradientBoostingClassifier(random_state=0, n_estimators=rounds).fit(
                codes[train], values[train]
            )

    ours()
    seconds = turns({"ours": ours, "theirs": theirs}, 3, warm=False)
    fast, slow = small_importances()
    return Ratio(
        "importances for DCI", "peers", seconds["ours"],
        [100 / rounds * each for each in seconds["theirs"]],
        baseline=f"GradientBoostingClassifier, timed on {rounds} of its 100 rounds",
        version=released("scikit-learn"), at_most=1 / 30,
        agreement=Agreement(
            "1 - Spearman's correlation of the importances of two factors, all rounds",
            float(1 - spearmanr(np.ravel(fast), np.ravel(slow)).statistic), 0.05,
        ),
    )  # fmt: skip


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


def compare_sizes() -> list[Ratio]:
    codes, factors = make_data(10_000)
    recording = zs.Recording.from_arrays(codes, factors, kinds="categorical")
    start = time.process_time()
    report = measure(recording, "disentanglement")
    seconds = time.process_time() - start
    zscope = released("zscope")
    ratios = [
        Ratio(
            f"all {len(report.results)} scores with their chance levels", "scores", [seconds],
            [60.0], baseline="the limit of a minute", version=zscope, at_most=1,
            agreement=Agreement("scores that failed", len(report.failed), 0),
        )
    ]  # fmt: skip
    large = make_data(400_000)
    small = tuple(each[:100_000] for each in large)
    for name in ("mig", "modularity", "irs", "sap", "predictability_gap", "mcc"):
        score = getattr(zs.assays, name)
        values: dict[str, float] = {}

        def few(score=score, values=values) -> None:
            values["few"] = score(*small).score

        def many(score=score, values=values) -> None:
            values["many"] = score(*large).score

        both = turns({"many": many, "few": few}, 3, warm=False)
        ratios.append(
            Ratio(
                f"{NAMES[name]} of 400,000 rows",
                "scores",
                both["many"],
                [4 * each for each in both["few"]],
                baseline="four times that of 100,000",
                version=zscope,
                at_most=1.5,
                agreement=agreement(
                    "the score with that of plain code", values["many"], plain_irs(*large), 1e-9
                )
                if name == "irs"  # maxima grow with the number of rows
                else agreement(
                    "the score with that of 100,000 rows", values["many"], values["few"], 0.02
                ),
            )
        )
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=3, help="of gradient boosting, that are timed"
    )
    options = parser.parse_args()
    return finish(
        "disentanglement",
        [*compare_scores(), *compare_sizes(), compare_importances(options.rounds)],
    )


if __name__ == "__main__":
    sys.exit(main())
