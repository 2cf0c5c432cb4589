"""Stated costs of assays that use the result of another."""

import pytest
from worlds import World, gaussian_codes, grid, random_rotation

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.assays.run import costs, passes
from zscope.data.dataset import from_arrays

USERS = ["causal-structure-score", "conditioned-response-matrix", "response-map"]


class Counting(World):
    encodings = 0

    def encode(self, x, auxiliary=None):
        self.encodings += len(x)
        return super().encode(x)


@pytest.fixture
def world():
    turn = random_rotation(6)
    return Counting(lambda z: z @ turn.T.to(z), lambda x: x, 6, prior="normal", std=0.1)


@pytest.fixture
def recording(world):
    recording = zs.record(world, from_arrays(gaussian_codes(3000, 6).float(), grid(5, 20, 30)))
    world.encodings = 0
    return recording


@pytest.mark.parametrize("name", USERS)
def test_a_result_that_exists_already_costs_nothing(recording, world, name):
    alone = passes(CATALOGUE[name], recording, {})
    zs.assays.response_matrix(recording)
    matrix = world.encodings
    assert alone - passes(CATALOGUE[name], recording, {}) == pytest.approx(matrix, abs=2)


@pytest.mark.parametrize("order", [["response-matrix", *USERS], [*USERS, "response-matrix"]])
def test_assays_together_count_the_result_they_share_once(recording, world, order):
    entries = [CATALOGUE[name] for name in order]
    stated = costs(entries, recording, {})
    for entry, count in zip(entries, stated, strict=True):
        world.encodings = 0
        entry.load()(recording)
        assert world.encodings == pytest.approx(count, rel=0.1, abs=2), entry.name


@pytest.mark.parametrize(
    ("name", "options"),
    [("response-map", {"dims": (0, 1)}), ("causal-structure-score", {"causal": [0, 1]})],
)
def test_a_result_that_the_caller_chose_costs_nothing(recording, world, name, options):
    stated = passes(CATALOGUE[name], recording, options)
    CATALOGUE[name].load()(recording, **options)
    assert world.encodings == pytest.approx(stated, rel=0.1, abs=2)


def test_a_matrix_with_options_of_its_own_is_not_the_one_that_others_use(recording):
    entries = [CATALOGUE[name] for name in ("response-matrix", "response-map")]
    own = costs(entries, recording, {"response-matrix": {"samples": 64}})
    assert own[1] == passes(entries[1], recording, {})
    assert costs(entries, recording, {})[1] < own[1]
    assert own[0] == 64 * 7
