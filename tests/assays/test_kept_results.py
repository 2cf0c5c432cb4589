"""When results that are stored with a run are reused."""

import shutil
from pathlib import Path

import pytest
from worlds import gaussian_codes

import zscope
from zscope.assays.run import measure, source_hash
from zscope.kept import KeptResults
from zscope.recording import Recording
from zscope.store import Run


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the source of zscope."""
    copy = tmp_path_factory.mktemp("source") / "zscope"
    shutil.copytree(Path(zscope.__file__).parent, copy, ignore=shutil.ignore_patterns("*.pyc"))
    return copy


def hash_after_an_edit(package, name):
    file = package / name
    before = file.read_text()
    file.write_text(before + "\nEDITED = True\n")
    source_hash.cache_clear()
    edited = source_hash(package)
    file.write_text(before)
    source_hash.cache_clear()
    return edited


@pytest.mark.parametrize(
    "name",
    [
        "usage.py",
        "types.py",
        "scaling.py",
        "determinism.py",
        "models/objectives.py",
        "recording.py",
        "assays/disentanglement/mig.py",
    ],
)
def test_a_module_that_results_depend_on_makes_stored_ones_stale(package, name):
    assert hash_after_an_edit(package, name) != source_hash(package)


@pytest.mark.parametrize("name", ["cli/assay.py", "report/page.py", "plots/theme.py"])
def test_how_results_are_shown_leaves_them_valid(package, name):
    assert hash_after_an_edit(package, name) == source_hash(package)


def test_the_source_is_that_of_the_package_in_use(package):
    assert source_hash() == source_hash(package)


def test_a_result_that_was_stored_knows_its_assay(tmp_path):
    run = Run(tmp_path, {})
    recording = Recording.from_arrays(gaussian_codes(50, 2))
    for _ in range(2):
        results = measure(recording, "effective-rank", kept=KeptResults(run, None)).results
        assert set(results["effective-rank"].to_frame()["assay"]) == {"effective-rank"}
        recording = Recording.from_arrays(gaussian_codes(50, 2))
