"""Intervals cover what they say and p-values are uniform under the null.

`make test-slow TESTS=tests/test_statistics.py` measures every row of docs/correctness.md and
writes the page; a run that was interrupted continues where it stopped. The default tests check
that no row is missing and that the page is up to date, and measure a few rows again.
"""

import hashlib
import json
import math
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

import coverage_worlds
import numpy as np
import pytest
import torch
from coverage_worlds import CASES, NULLS, record
from scipy import stats
from scripts import docs_script
from worlds import identity

from zscope.assays import CATALOGUE
from zscope.assays.run import compare, measure, source_hash

ROOT = Path(__file__).resolve().parents[1]
PROGRESS = ROOT / "runs" / "coverage"
BY_NAME = {case.name: case for case in CASES}


@cache
def generator():
    return docs_script("correctness")


def stored():
    return json.loads(generator().COVERAGE.read_text(encoding="utf-8"))


def measure_case(case, repeats):
    """A row for each interval of a case."""
    draws = defaultdict(list)
    for seed in range(repeats):
        for name, interval in case.intervals(seed).items():
            draws[name].append(interval)
    large = {}
    if set(draws) - set(case.truths):
        large = case.values(10**6, case.many)
    rows = []
    for name, values in draws.items():
        value, low, high = np.array(values).T
        truth, mean = case.truths.get(name, large.get(name)), float(value.mean())
        width = float((high - low).mean())
        closed = name in case.truths
        rows.append({
            "case": case.name, "assay": case.assay, "measure": name, "world": case.world,
            "about": case.about, "truth": float(truth),
            "truth_from": "closed form" if closed else f"{case.many:,} samples",
            "samples": case.samples,
            "resamples": case.resamples if case.uses_resamples else 0,
            "repeats": len(values), "mean": mean, "spread": float(value.std()),
            "width": width if math.isfinite(width) else None,
            "hits": int(((low <= truth) & (truth <= high)).sum()),
            "hits_at_this_size": int(((low <= mean) & (mean <= high)).sum()),
        })  # fmt: skip
    return rows


def measure_null(null, repeats):
    values = np.array([null.p_value(seed) for seed in range(repeats)])
    return [{
        "case": null.name, "assay": null.assay, "catalogue": null.assay in CATALOGUE,
        "world": null.world, "samples": null.samples, "repeats": repeats,
        "below_0.05": int((values <= 0.05).sum()), "below_0.5": int((values <= 0.5).sum()),
        "uniform": float(stats.kstest(values, "uniform").pvalue),
    }]  # fmt: skip


def resumed(name, repeats, rows_of_case):
    """The rows of a case, from an interrupted run of the same code or measured now."""
    digest = hashlib.sha256(source_hash().encode())
    for file in (coverage_worlds.__file__, __file__):
        digest.update(Path(file).read_bytes())
    key = [digest.hexdigest(), repeats]
    place = PROGRESS / f"{name.replace(' ', '-')}.json"
    if place.exists() and (known := json.loads(place.read_text()))["key"] == key:
        return known["rows"]
    rows = rows_of_case()
    PROGRESS.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps({"key": key, "rows": rows}))
    return rows


def write(part, name, rows):
    """Replace the rows of a case and keep the order of the cases."""
    place = generator().COVERAGE
    empty = {"first_seed": 0, "intervals": [], "p_values": []}
    table = stored() if place.exists() else empty
    order = {case.name: k for k, case in enumerate([*CASES, *NULLS])}
    kept = [row for row in table[part] if row["case"] != name and row["case"] in order]
    table[part] = sorted([*kept, *rows], key=lambda row: order[row["case"]])
    place.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    generator().PAGE.write_text(generator().page(), encoding="utf-8")


def must_flag(row):
    return row["about"] == "size" or generator().about(row) < generator().LEAST


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_intervals_cover_what_they_are_about(name):
    case = BY_NAME[name]
    rows = resumed(name, case.repeats, lambda: measure_case(case, case.repeats))
    write("intervals", name, rows)
    for row in rows:
        assert row["repeats"] == case.repeats >= 200
        assert generator().about(row) >= generator().LEAST or case.flag, row


@pytest.mark.slow
@pytest.mark.parametrize("null", NULLS, ids=lambda null: null.name)
def test_p_values_are_uniform_under_the_null(null):
    rows = resumed(f"p-{null.name}", null.repeats, lambda: measure_null(null, null.repeats))
    write("p_values", null.name, rows)
    [row] = rows
    assert row["uniform"] > 0.001
    assert stats.binomtest(row["below_0.05"], row["repeats"], 0.05).pvalue > 0.001


# Assays without an interval, whether they are asked for one or not.
WITHOUT = [
    "response", "traversal-responses", "hybridisation", "response-map", "manifold-path", "drift",
    "variable-types", "truncation", "latent-ranking", "nonlinear-eigenfaces", "cartesian-or-polar",
    "sample-quality", "structure-panel", "factor-place", "variable-nonlinearity", "cka",
    "procrustes", "svcca", "pwcca", "similarity-heatmap", "codes-against-pca", "ima-curve",
    "latent-histograms",
]  # fmt: skip


def test_every_interval_of_the_catalogue_has_a_row():
    rows = stored()["intervals"]
    assert {row["case"] for row in rows} == set(BY_NAME)
    assert sorted([*{row["assay"] for row in rows}, *WITHOUT]) == sorted(CATALOGUE)


def test_assays_without_a_row_have_no_interval_even_if_asked():
    source = torch.Generator().manual_seed(0)
    factors = torch.randint(4, (200, 2), generator=source)
    x = (factors + 0.1 * torch.randn(200, 2, generator=source)).float()
    recording = record(identity(2, prior="normal", std=0.3), x, 0, factors)
    other = record(identity(2, prior="normal", std=0.3), x, 1)  # the same by another seed
    alone = [name for name in WITHOUT if not CATALOGUE[name].compares]
    outcome = measure(recording, alone, resamples=2)
    results = [*outcome.results.values(), *compare([recording, other]).results.values()]
    assert len(outcome.results) == len(alone), outcome.missing
    assert len(results) > len(alone) + 3
    for result in results:
        for each in result.measures():
            assert isinstance(each.interval, str), result.assay


def test_no_interval_covers_too_little_without_a_flag_and_every_row_has_enough_repeats():
    for row in stored()["intervals"]:
        assert row["repeats"] >= 200
        assert 0 <= row["hits"] <= row["repeats"]
        if must_flag(row):
            assert BY_NAME[row["case"]].flag, row
    for row in stored()["p_values"]:
        assert row["repeats"] >= 200
        assert row["uniform"] > 0.001


FLAGGED = [case.name for case in CASES if case.flag]


@pytest.mark.parametrize("name", FLAGGED)
def test_the_result_itself_says_what_its_interval_does_not_cover(name):
    case = BY_NAME[name]
    assert any(must_flag(row) for row in stored()["intervals"] if row["case"] == name)
    result = replace(case, resamples=2).result(0)
    assert any(case.flag in flag for flag in result.flags), result.flags
    assert case.flag in repr(result)


def test_the_page_is_that_of_the_measured_rows():
    assert generator().PAGE.read_text(encoding="utf-8") == generator().page()


REPEATS = 30
QUICK = [case.name for case in CASES if case.quick]


def improbable(hits, row):
    """Whether so many hits in a few repeats contradict the stored coverage."""
    share = min(max(generator().about(row), 0.5 / row["repeats"]), 1 - 0.5 / row["repeats"])
    return stats.binomtest(hits, REPEATS, share).pvalue < 1e-3


@cache
def again(name):
    """The first repeats of a cheap case: score -> rows of value, low, high."""
    draws = defaultdict(list)
    for seed in range(REPEATS):
        for score, interval in BY_NAME[name].intervals(seed).items():
            draws[score].append(interval)
    return {score: np.array(values) for score, values in draws.items()}


def rows_of(name):
    for row in stored()["intervals"]:
        if row["case"] == name:
            target = row["truth"] if row["about"] == "truth" else row["mean"]
            yield row, target, again(name)[row["measure"]]


@pytest.mark.parametrize("name", QUICK)
def test_a_few_repeats_agree_with_the_stored_coverage(name):
    for row, target, values in rows_of(name):
        _, low, high = values.T
        assert not improbable(int(((low <= target) & (target <= high)).sum()), row), row


def test_intervals_of_a_third_of_their_width_would_be_noticed():
    """The negative control of the test above."""
    noticed = []
    for name in QUICK:
        for row, target, values in rows_of(name):
            if row["width"] is not None:
                value, low, high = values.T
                low, high = value - (value - low) / 3, value + (high - value) / 3
                hits = int(((low <= target) & (target <= high)).sum())
                noticed.append(improbable(hits, row))
    assert len(noticed) > 8
    assert np.mean(noticed) > 0.9
