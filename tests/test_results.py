"""Results cannot be half-made, and print, save and tabulate what they hold."""

import dataclasses
import importlib
import json
import pkgutil
import sys
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from worlds import gaussian_codes, grid, identity

import zscope as zs
from zscope.errors import MissingExtra, Undefined
from zscope.results import (
    NOT_REQUESTED,
    Measure,
    Result,
    Scored,
    duration,
    html_table,
    listed,
    plain,
    rows,
    text_table,
)

a = zs.assays
SETS = ("active", "mixed", "passive", "causal", "collapsed")


def subclasses(cls):
    for module in pkgutil.walk_packages(a.__path__, "zscope.assays."):
        importlib.import_module(module.name)
    children = set(cls.__subclasses__())
    return children.union(*(subclasses(child) for child in children)) if children else set()


def of_zscope(cls):
    found = [each for each in subclasses(cls) if each.__module__.startswith("zscope.")]
    return sorted(found, key=lambda each: each.__name__)


@dataclass(frozen=True, eq=False)
class Count(Scored):
    score: float
    samples: int
    latents: int
    interval: tuple[float, float] | None = None
    note: str = ""

    why_no_interval = "nobody asked"
    why_no_chance = "there is <b>no</b> chance"


# Forgetting is an error when the class is defined.


def test_a_score_without_interval_or_chance_is_refused_with_what_to_add():
    with pytest.raises(TypeError, match=r"Bare.*why_no_interval = .*why_no_chance = "):

        class Bare(Scored):
            score: float
            samples: int


def test_a_result_may_have_its_own_reason_and_forgetting_it_is_an_error():
    @dataclass(frozen=True, eq=False)
    class Own(Scored):
        score: float
        samples: int
        interval: tuple[float, float] | None
        no_interval: str
        why_no_chance = "there is none"

    assert Own(1.0, 3, None, "too few samples").measures()[0].interval == "too few samples"
    assert "no interval  too few samples" in repr(Own(1.0, 3, None, "too few samples"))
    assert repr(Own(1.0, 3, (0.0, 2.0), "")).count("interval") == 1  # the head of the table
    with pytest.raises(TypeError, match="interval is ''"):
        Own(1.0, 3, None, "").measures()
    with pytest.raises(TypeError, match="why_no_interval"):

        class Optional(Scored):
            score: float
            samples: int
            interval: tuple[float, float] | None
            no_interval: str | None
            why_no_chance = "there is none"


def test_an_empty_reason_is_none():
    with pytest.raises(TypeError, match="why_no_chance"):

        class Empty(Scored):
            score: float
            samples: int
            interval: tuple[float, float]
            why_no_chance = " "


@pytest.mark.parametrize("optional", ["float | None", "Optional[float]", "None"])
def test_a_part_that_may_be_none_needs_its_reason_too(optional):
    body = {
        "__annotations__": {
            "score": float,
            "samples": int,
            "standard_error": float,
            "chance": optional,
        }
    }
    with pytest.raises(TypeError, match="why_no_chance"):
        type("Sometimes", (Scored,), body)
    assert type("Sometimes", (Scored,), {**body, "why_no_chance": "it depends"})


def test_a_property_that_may_be_none_needs_its_reason_too():
    with pytest.raises(TypeError, match="why_no_interval"):

        class Sometimes(Scored):
            score: float
            samples: int
            chance: float

            @property
            def interval(self) -> tuple[float, float] | None:
                return None


def test_fields_that_are_always_there_need_no_reason():
    class Full(Scored):
        score: float
        samples: int
        standard_error: float
        chance: float = 0.0

    @dataclass(frozen=True, eq=False)
    class Child(Full):
        score: float = 1.0
        samples: int = 100
        standard_error: float = 0.1

    (measure,) = Child().measures()
    assert measure.interval == pytest.approx((1 - 0.196, 1 + 0.196))
    assert measure.chance == 0


def test_a_scored_result_has_a_score_and_samples_or_its_own_measures():
    with pytest.raises(TypeError, match="`score`.*`samples`"):

        class Nothing(Scored):
            why_no_interval = why_no_chance = "it has none"


@pytest.mark.parametrize("how", ["field", "property", "measures"])
def test_a_score_in_a_plain_result_is_refused(how):
    body = {
        "field": {"__annotations__": {"score": float}},
        "property": {"score": property(lambda self: 1.0)},
        "measures": {"measures": lambda self: []},
    }[how]
    with pytest.raises(TypeError, match="Derive it from Scored"):
        type("Plain", (Result,), body)


@pytest.mark.parametrize(
    "parts",
    [(1, "", 0.0), (1, None, 0.0), (1, (0.0, 1.0), "  "), (1, (0.0, 1.0), None), (0, "a", "b")],
)
def test_a_measure_refuses_what_is_missing(parts):
    with pytest.raises(TypeError, match="Measure"):
        Measure("", 0.5, *parts)


@pytest.mark.parametrize("cls", of_zscope(Scored), ids=lambda cls: cls.__name__)
def test_every_scored_result_has_its_parts_or_reasons(cls):
    Scored.__init_subclass__.__func__(cls)  # as when it was defined
    for reason in (cls.why_no_interval, cls.why_no_chance):
        assert reason == reason.strip()
        assert not reason.endswith(".")
        assert reason == "" or len(reason.split()) > 2
        # Whoever makes the result gives its parts: a reason is about the measurement.
        assert not reason.endswith(("was given", "were given"))
    fields = {field.name for field in dataclasses.fields(cls)}
    assert set(cls.score_fields) <= fields


@pytest.mark.parametrize("cls", of_zscope(Result), ids=lambda cls: cls.__name__)
def test_sets_of_latents_are_lists_of_indices_and_results_print_by_one_method(cls):
    assert "__repr__" in vars(cls)
    if cls.__module__.startswith("zscope.assays."):  # comparisons print their table of layers
        assert cls.__repr__ is Result.__repr__
    for field in dataclasses.fields(cls):
        if field.name in SETS:
            # None: the score was computed over all latents, causal or not.
            optional = (cls.__name__, field.name) == ("StructureScore", "causal")
            assert field.type == (list[int] | None if optional else list[int])


# Summary lines and scores.


CODES, FACTORS = gaussian_codes(200, 2), grid(4, 5).repeat(10, 0)
SEEN = torch.from_numpy(FACTORS).double() + 0.01 * CODES
MODEL = identity(2, std=0.1, prior="normal")
POSTERIOR = zs.Posterior(CODES, torch.full_like(CODES, 0.1))
MADE = {  # cheap results of every folder
    "effective-rank": lambda: a.effective_rank(CODES, resamples=4),
    "variable-types": lambda: a.variable_types(POSTERIOR.variance),
    "latent-divergence": lambda: a.latent_divergence(POSTERIOR),
    "polarisation": lambda: a.polarisation(POSTERIOR),
    "rate-distortion": lambda: a.rate_distortion(MODEL, CODES, likelihood="gaussian"),
    "predicted-variance": lambda: a.predicted_variance(MODEL, POSTERIOR, samples=20),
    "total-correlation": lambda: a.total_correlation(CODES),
    "mutual-information": lambda: a.mutual_information(CODES),
    "truncation": lambda: a.truncation(POSTERIOR),
    "mig": lambda: a.mig(SEEN, FACTORS, kinds="ordinal"),
    "dci": lambda: a.dci(SEEN, FACTORS, kinds="ordinal"),
    "udr": lambda: a.udr([CODES, CODES + 1], similarity="spearman"),
    "response-matrix": lambda: a.response_matrix(MODEL, POSTERIOR, samples=50),
    "structure-score": lambda: a.structure_score(MODEL, samples=50),
    "interventional-consistency": lambda: a.interventional_consistency(MODEL, CODES, samples=20),
    "holes": lambda: a.holes(MODEL, POSTERIOR, samples=50),
    "response-map": lambda: a.response_map(MODEL, CODES[:1], (0, 1), grid=4, extent=(-1, 1)),
    "alignment-gap": lambda: a.alignment_gap(MODEL, POSTERIOR, samples=10),
    "distance-to-orthogonality": lambda: a.distance_to_orthogonality(MODEL, POSTERIOR, samples=10),
    "optimal-noise": lambda: a.optimal_noise(MODEL, POSTERIOR, samples=10),
    "loss-decomposition": lambda: a.loss_decomposition(MODEL, CODES + 0.1, posterior=POSTERIOR),
    "intrinsic-dimension": lambda: a.intrinsic_dimension(CODES),
    "trace-gap": lambda: a.trace_gap(POSTERIOR),
    "information-gap": lambda: a.information_gap(CODES, CODES, CODES),
    "fondue": lambda: a.fondue(lambda n: float(n > 3), start=2, threshold=0.5),
    "cka": lambda: a.cka(CODES, CODES, debiased=False),
    "procrustes": lambda: a.procrustes(CODES, CODES),
    "svcca": lambda: a.svcca(CODES, CODES),
    "frechet-distance": lambda: a.frechet_distance(CODES, CODES[:150]),
    "precision-recall": lambda: a.precision_recall(CODES, CODES[:150] + 0.5),
    "sample-quality": lambda: a.sample_quality(MODEL, CODES, posterior=POSTERIOR, samples=50),
}


@cache
def result_of(name):
    return MADE[name]()


@pytest.mark.parametrize("name", MADE)
def test_summary_lines_repeat_no_score(name):
    result = result_of(name)
    measures = {measure.name or "score" for measure in result.measures()}
    lines = {line for line, _ in result.summary()}
    assert not lines & (
        measures | {"chance", "interval", "standard error", "samples", "flags"}
    ) or (not measures)
    if isinstance(result, Scored) and type(result).summary is Result.summary:
        # The score is left out under whatever name its field has.
        numbers = {m.value for m in result.measures()} | {m.chance for m in result.measures()}
        for field in dataclasses.fields(result):
            value = getattr(result, field.name)
            if isinstance(value, float) and value in numbers and value not in (0.0, 1.0):
                assert field.name.replace("_", " ") not in lines


def test_a_count_that_equals_the_score_keeps_its_line():
    result = Count(score=2.0, samples=10, latents=2)
    assert result.summary() == [("latents", "2")]
    assert ("latents", "4") in a.effective_rank(torch.eye(4).repeat(3, 1)).summary()


@pytest.mark.parametrize("name", MADE)
def test_results_print_as_short_aligned_tables(name):
    result = result_of(name)
    lines = repr(result).splitlines()
    assert 2 <= len(lines) <= 15
    assert lines[0] == (result.name if hasattr(result, "name") else type(result).__name__)
    for text in (repr(result), result._repr_html_()):
        assert "tensor(" not in text
        assert "array(" not in text
    measures = result.measures()
    if measures:
        header = lines[1]
        assert header.split() == ["value", "95", "%", "interval", "chance", "n"]
        assert lines[2].startswith(measures[0].name or "score")
        table = lines[1 : 2 + len(measures)][:13]
        assert len({len(line) for line in table}) == 1
        assert "<th" in result._repr_html_()


@pytest.mark.parametrize("name", MADE)
def test_results_tabulate_as_long_rows(name):
    result = result_of(name)
    table = rows(result, name)
    assert len(table) == len(result.measures())
    for row in table:
        assert list(row) == ["assay", "measure", "value", "low", "high", "chance", "n", "flavour"]
        assert row["assay"] == name
        assert row["n"] > 0
    assert "NaN" not in json.dumps(plain(table))
    frame = result.to_frame(name)
    assert list(frame.columns) == [
        "assay", "measure", "value", "low", "high", "chance", "n", "flavour",
    ]  # fmt: skip
    assert len(frame) == len(table)
    assert frame["value"].tolist() == [measure.value for measure in result.measures()]
    assert {frame[name].dtype.kind for name in ("value", "low", "high", "chance")} == {"f"}


def test_the_main_score_is_called_score_and_carries_its_flavour():
    frame = result_of("dci").to_frame("dci")
    assert frame["measure"].tolist() == ["score", "completeness", "informativeness"]
    assert frame["flavour"].tolist() == ["zscope"] * 3
    assert frame["low"].isna().all()
    rank = rows(result_of("effective-rank"), "effective-rank")[0]
    assert (rank["low"], rank["high"]) == result_of("effective-rank").interval
    assert rank["chance"] is None


def test_without_pandas_rows_still_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert rows(result_of("mig"))
    with pytest.raises(MissingExtra, match=r"pandas.*zscope\[frames\]"):
        result_of("mig").to_frame()


def test_a_printed_result_says_why_a_part_is_missing():
    text = repr(Count(score=2.0, samples=1234, latents=2))
    assert text.splitlines() == [
        "Count",
        "       value  95 % interval  chance      n",
        "score      2           none    none  1,234",
        "latents      2",
        "no interval  nobody asked",
        "no chance    there is <b>no</b> chance",
    ]
    assert NOT_REQUESTED in repr(result_of("mig"))


def test_html_is_escaped():
    text = Count(score=2.0, samples=1, latents=2, note="<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "there is &lt;b&gt;no&lt;/b&gt; chance" in text
    assert html_table([["<i>"], ["&"]]) == (
        '<table><tr><th style="text-align: left">&lt;i&gt;</th></tr>'
        '<tr><td style="text-align: left">&amp;</td></tr></table>'
    )


def test_text_tables_are_aligned():
    table = text_table([["name", "n", "x"], ["a", "10", "2"], ["longer", "1", "0.25"]])
    assert table.splitlines() == [
        "name     n     x",
        "a       10     2",
        "longer   1  0.25",
    ]
    assert text_table([]) == html_table([]) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (40, "40 s"), (89, "89 s"), (720, "12 min"), (12_600, "3.5 h"),
     (180_000, "2.1 days")],
)  # fmt: skip
def test_times_are_in_the_unit_that_people_would_use(seconds, text):
    assert duration(seconds) == text


def test_long_lists_are_cut():
    assert listed([]) == "none"
    assert listed([1, 2]) == "1, 2"
    assert listed(range(256)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … (256 in all)"
    types = a.variable_types(torch.ones(50, 256))
    assert max(map(len, repr(types).splitlines())) < 100


@dataclass(frozen=True, eq=False)
class Anything(Result):
    value: object


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_of_any_float_type_become_plain_numbers(dtype):
    tensor = torch.tensor([[0.5, 2.0]], dtype=dtype, requires_grad=True)
    assert Anything(tensor).to_dict() == {"kind": "Anything", "value": [[0.5, 2.0]]}
    with pytest.raises(Undefined, match="contains NaN"):
        Anything(torch.tensor(float("nan"), dtype=dtype)).to_dict()


def test_infinite_numbers_are_written_as_words():
    assert plain({"a": np.float32("inf"), "b": torch.tensor([-torch.inf])}) == {
        "a": "inf",
        "b": ["-inf"],
    }


# Runs and datasets.


def test_runs_and_datasets_print_shortly(tmp_path):
    data = zs.data.load("helix")
    run = zs.train(
        zs.models.build("vae", shape=(3,), latents=2, hidden=(8,), seed=0), data, steps=2,
        out=tmp_path / "<mine>",
    )  # fmt: skip
    assert [line.split(maxsplit=1) for line in repr(run).splitlines()] == [
        ["Run", "finished, 2 steps"],
        ["model", "vae"],
        ["path", str(run.path)],
    ]
    assert "&lt;mine&gt;" in run._repr_html_()
    assert len(repr(data).splitlines()) == 1 + 1 + len(data.factor_names)
    assert data.factor_names[0] in data._repr_html_()
    many = np.arange(60).reshape(3, 20)
    wide = zs.data.from_arrays(np.zeros((3, 2), np.float32), many)
    assert len(repr(wide).splitlines()) <= 15
    assert "no factors" in repr(zs.data.from_arrays(np.zeros((3, 2), np.float32)))
