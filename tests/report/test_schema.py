"""JSON schemas: every file that zscope writes fits its schema, and a damaged one does not."""

import copy
import json
import sys

import jsonschema_rs
import map_reports
import numpy as np
import pytest
import torch
from test_report import Pictures, pictures, vectors

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.assays.regime import effective_rank
from zscope.cli import main
from zscope.errors import ConfigError
from zscope.report.schema import comparison_schema, report_schema, result_schema
from zscope.report.several import compare_reports

Validator = jsonschema_rs.Draft202012Validator
ASSAYS = [name for name, entry in CATALOGUE.items() if not entry.compares]


@pytest.fixture(scope="module")
def validator():
    return Validator(report_schema())


@pytest.fixture(scope="module")
def whole():
    """Everything that applies to a small variational model."""
    return zs.assay(Pictures(), pictures(120), resamples=2)


@pytest.fixture(scope="module")
def small():
    return zs.assay(Pictures(), pictures(120), names=["mig", "variable-types"]).to_dict()


def check(validator, content):
    """No error, with the places of those that there are."""
    errors = list(validator.iter_errors(json.loads(json.dumps(content, allow_nan=False))))
    assert not errors, [(each.instance_path, each.message[:200]) for each in errors]


@pytest.mark.parametrize("assay", ASSAYS)
def test_the_schema_of_every_result_is_a_schema_that_asks_for_something(assay):
    schema = result_schema(assay)
    jsonschema_rs.meta.validate(schema)
    assert schema["$id"] == f"urn:zscope:schema:result:{assay}:2"
    validator = Validator(schema)
    assert not validator.is_valid({})
    assert not validator.is_valid({"kind": "NoSuchResult"})


def test_a_report_of_everything_fits_and_so_does_each_result(validator, whole, tmp_path):
    path = whole.save(tmp_path / "report.json")
    content = json.loads(path.read_text())
    assert (content["format"], content["schema"]) == (2, "urn:zscope:schema:report:2")
    assert len(whole.results) > 40
    check(validator, content)
    for name, result in whole.results.items():
        check(Validator(result_schema(name)), result.to_dict())


def test_other_kinds_of_reports_fit(validator, monkeypatch):
    deterministic = zs.wrap(lambda x: x[:, :2], lambda z: torch.cat([z, z], 1))
    names = ["variable-types", "response-matrix", "holes", "effective-rank", "feature-effects"]
    check(validator, zs.assay(deterministic, vectors(), names=names).to_dict())
    codes = zs.Recording.from_arrays(np.random.default_rng(0).normal(size=(60, 3)))
    check(validator, zs.assay(codes).to_dict())
    x = map_reports.pictures(32)
    maps = zs.assay(map_reports.passive(x), x, names=["diffusion", "response-matrix"], resamples=2)
    assert maps.card is not None
    check(validator, maps.to_dict())
    check(validator, maps.to_dict(pictures=False))

    def fail(*_, **__):
        raise ValueError("broken on purpose")

    monkeypatch.setattr(effective_rank, "effective_rank", fail)
    broken = zs.assay(codes, names=["effective-rank", "mig"])
    assert set(broken.failed) | set(broken.missing) == {"effective-rank", "mig"}
    check(validator, broken.to_dict())


def test_several_models_fit():
    reports = [zs.assay(Pictures(), pictures(), names=["mig", "sap"], resamples=2)] * 2
    content = compare_reports(reports).to_dict()
    check(Validator(comparison_schema()), content)
    content["scores"][0]["best"] = 3
    assert not Validator(comparison_schema()).is_valid(content)


DAMAGES = {
    "another version": lambda file: file.update(format=1),
    "the schema of something else": lambda file: file.update(schema="urn:zscope:schema:result:2"),
    "an entry is missing": lambda file: file.pop("findings"),
    "an entry that nobody knows": lambda file: file.update(extra=1),
    "an unknown assay": lambda file: file["assays"].update(nobody=file["assays"]["mig"]),
    "no result": lambda file: file["assays"]["mig"].pop("result"),
    "the result of another assay": lambda file: file["assays"]["mig"].update(
        result=file["assays"]["variable-types"]["result"]
    ),
    "a field of a result is missing": lambda file: file["assays"]["mig"]["result"].pop("chance"),
    "a value that is a text": lambda file: file["assays"]["mig"]["scores"][0].update(value="high"),
    "half an interval": lambda file: file["assays"]["mig"]["scores"][0].update(interval=[0.1]),
    "an unknown type": lambda file: file["latents"][0].update(type="asleep"),
    "an unknown level": lambda file: file["findings"][0].update(level="fine"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_does_not_fit(validator, small, damage):
    content = copy.deepcopy(small)
    check(validator, content)
    DAMAGES[damage](content)
    assert not validator.is_valid(json.loads(json.dumps(content)))


@pytest.fixture
def zscope(monkeypatch, capsys, tmp_path):
    """Run a command in this process: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zscope", *words])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run


def test_what_assay_prints_fits_what_schema_prints(zscope):
    np.save("codes.npy", np.random.default_rng(0).normal(size=(60, 3)))
    _, schema, _ = zscope("schema", "report")
    rules = ("--require", "effective-rank > 1", "--require", "passive < 3")
    code, printed, _ = zscope("assay", "codes.npy", "effective-rank", *rules, "--json")
    assert code == 3
    content = json.loads(printed)
    assert content["requirements"]["verdict"] == "undecided"
    check(Validator(json.loads(schema)), content)


def test_scores_of_codes_fit_their_schema(zscope, tmp_path):
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 3, (120, 2))
    codes = np.concatenate(
        [factors + 0.1 * rng.normal(size=(120, 2)), rng.normal(size=(120, 1))], 1
    )
    np.savez(tmp_path / "both.npz", codes=codes, factors=factors)
    _, schema, _ = zscope("schema", "scores")
    code, printed, _ = zscope("score", str(tmp_path / "both.npz"), "--json")
    assert code == 0
    content = json.loads(printed)
    assert len(content["scores"]) > 5
    validator = Validator(json.loads(schema))
    check(validator, content)
    content["scores"]["mig"]["score"] = "high"
    assert not validator.is_valid(content)


def test_the_command_lists_schemas_and_refuses_what_it_does_not_know(zscope):
    code, out, _ = zscope("schema")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "report", "comparison", "scores", "result",
    ]  # fmt: skip
    code, out, _ = zscope("schema", "result", "mig_sup")
    assert json.loads(out)["$id"] == "urn:zscope:schema:result:mig-sup:2"
    for words, message in {
        ("reprot",): "Did you mean report",
        ("result",): "zscope schema result mig",
        ("result", "mgi"): "Did you mean mig",
        ("report", "mig"): "zscope schema result mig",
    }.items():
        code, _, err = zscope("schema", *words)
        assert code == 1
        assert message in err


def test_an_unknown_assay_has_no_schema():
    with pytest.raises(ConfigError, match="no assay is called 'mgi'"):
        result_schema("mgi")
