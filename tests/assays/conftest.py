"""Less work for tests that do not ask how exact a score or its chance level is."""

from functools import partial

import pytest

from zscope.assays.disentanglement import beta_vae, factor_vae, score


def permute_less(patch: pytest.MonkeyPatch, most: int) -> None:
    shuffled = score._shuffled_estimates
    patch.setattr(
        score,
        "_shuffled_estimates",
        lambda estimate, sample, seed, count: shuffled(estimate, sample, seed, min(count, most)),
    )


def draw_less(patch: pytest.MonkeyPatch) -> None:
    import sklearn.ensemble as trees

    for module in (beta_vae, factor_vae):
        patch.setattr(module, "TRAIN", 1000)
        patch.setattr(module, "TEST", 500)
    fewer = partial(trees.GradientBoostingClassifier, n_estimators=10)
    patch.setattr(trees, "GradientBoostingClassifier", fewer)


@pytest.fixture
def one_permutation(monkeypatch):
    """Chance comes from one permutation; the score itself is the same to the last bit."""
    permute_less(monkeypatch, 1)


@pytest.fixture
def few_draws(one_permutation, monkeypatch):
    """Fewer votes and, for the older DCI, fewer trees as well: scores are less exact."""
    draw_less(monkeypatch)


@pytest.fixture(scope="module")
def few_draws_in_all_tests():
    """The same for a module with results that its tests share, with two permutations."""
    with pytest.MonkeyPatch.context() as patch:
        permute_less(patch, 2)
        draw_less(patch)
        yield
