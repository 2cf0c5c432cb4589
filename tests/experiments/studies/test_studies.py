"""Every study of the catalogue: run whole, and where its data are missing."""

import json

import pytest

from zscope.data.fetching import fetch
from zscope.errors import DataError
from zscope.experiments import studies


@pytest.fixture
def pictures_at_hand(real_data, tmp_path, monkeypatch):
    """Real pictures in a folder of their own, where studies look for data."""
    for name in ("mnist", "fashion-mnist"):
        fetch(name, root=tmp_path / "data", from_dir=real_data)
    monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path / "data"))


# Claims that did not hold when the studies were last run; a claim that fails is a result.
# consistency: with the causal block, one of four seeds did not gain from consistency training
# (hybrid self-consistency .80 to .75; the other three .78 to .90, .84 to .89, .82 to .87).
NOT_HOLDING = {"consistency": {"X1", "X2", "X3", "X5"}}


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.names())
def test_the_verdicts_are_those_of_the_last_run(name, pictures_at_hand, tmp_path):
    claims = studies.load(name).run(tmp_path / "out", progress=lambda line: None)
    assert claims
    failed = {claim.name: str(claim) for claim in claims if not claim.holds}
    assert set(failed) == NOT_HOLDING.get(name, set()), failed
    assert len(json.loads((tmp_path / "out" / "claims.json").read_text())["claims"]) == len(claims)


@pytest.mark.parametrize("name", ["consistency", "structural", "hybrid-sampling"])
def test_where_the_digits_are_missing_it_says_how_to_get_them(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ZSCOPE_DATA", str(tmp_path))
    with pytest.raises(DataError, match="zscope data fetch mnist"):
        studies.load(name).run(None, progress=lambda line: None)
