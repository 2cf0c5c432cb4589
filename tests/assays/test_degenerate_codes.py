"""Codes with hardly any rows or variation: a finite answer, or a reason why there is none."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from worlds import gaussian_codes

from zscope.assays.choosing import choose
from zscope.assays.run import measure
from zscope.recording import Recording

pytestmark = pytest.mark.usefixtures("few_draws_in_all_tests")

CODES = gaussian_codes(60, 3).float()
WORLDS = {
    "1 row": CODES[:1],
    "2 rows": CODES[:2],
    "5 rows": CODES[:5],
    "constant": torch.ones(60, 3),
    "one constant latent": torch.cat([CODES[:, :2], torch.ones(60, 1)], 1),
    "two equal latents": torch.cat([CODES[:, :2], CODES[:, :1]], 1),
}


def numbers(value):
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, float) or value in ("inf", "-inf"):
        yield float(value)


@cache
def measure_all(world, variances):
    codes = WORLDS[world]
    rows = np.arange(len(codes))
    return measure(
        Recording.from_arrays(
            codes,
            np.stack([rows % 3, rows // 3 % 2], 1),
            variances=torch.full_like(codes, 0.1) if variances else None,
        ),
        resamples=3,
    )


@pytest.mark.parametrize("variances", [False, True], ids=["bare", "variances"])
@pytest.mark.parametrize("world", WORLDS)
def test_every_assay_without_a_model_gives_finite_numbers_or_a_reason(world, variances):
    outcome = measure_all(world, variances)
    assert not outcome.failed
    for name, result in outcome.results.items():
        assert all(map(math.isfinite, numbers(result.to_dict()))), name
        for each in result.measures():
            assert math.isfinite(each.value), name
    for name, reason in outcome.missing.items():
        assert len(reason) > 30, name
        assert reason.endswith((".", ")", "variable-types", "response-matrix", "corrcoef(codes.T)"))
    assert set(outcome.results) | set(outcome.missing) == {entry.name for entry in choose(None)}


@pytest.mark.parametrize("name", ["total-correlation", "mutual-information"])
def test_constant_latents_are_flagged(name):
    for world, latents in (
        ("constant", "Latents 0, 1, 2 are"),
        ("one constant latent", "Latent 2 is"),
    ):
        flags = measure_all(world, False).results[name].flags
        assert flags[0].startswith(f"{latents} constant")


def test_types_of_latents_are_only_probed_where_there_are_variances():
    assert "deterministic" in measure_all("one constant latent", False).missing["type-probe"]
    assert "type-probe" in measure_all("one constant latent", True).results


def test_a_probe_of_a_rare_class_still_answers():
    from zscope.assays import type_probe
    from zscope.autoencoder import Posterior

    rare = torch.zeros(60, 1)
    rare[:2] = 1
    posterior = Posterior(CODES, torch.full_like(CODES, 0.1))
    for seed in range(5):
        found = type_probe(posterior, rare, generator=torch.Generator().manual_seed(seed))
        assert found.accuracy["mean"]["full"] > 0.8


def test_a_table_of_subsets_leaves_out_those_without_an_answer_and_says_so():
    found = measure_all("two equal latents", True).results["truncation"]
    assert "full" not in found.table["total correlation"]
    assert "full" in found.table["mutual information"]
    assert "No total correlation of the subset full: total_correlation: the 3" in found.flags[0]
