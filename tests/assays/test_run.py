"""The runner: which assays run, with which options and draws, and what a failure does."""

from dataclasses import dataclass
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn
from worlds import gaussian_codes, grid, identity

import zscope as zs
from zscope import assays as a
from zscope.assays import CATALOGUE, Entry, groups
from zscope.assays.arguments import accepts_recording, option_names
from zscope.assays.parts import NEEDS, PARTS, unmet
from zscope.assays.run import check_options, compare, measure
from zscope.data.dataset import from_arrays
from zscope.errors import ConfigError, Undefined
from zscope.recording import Recording
from zscope.results import Result


@dataclass(frozen=True, eq=False)
class Draws(Result):
    numbers: torch.Tensor
    option: int


@accepts_recording
def drawing(codes, *, generator=None, option=5):
    return Draws(torch.rand(3, generator=generator), option)


@accepts_recording
def again(codes, *, generator=None, option=0):
    return Draws(torch.rand(3, generator=generator), option)


@accepts_recording
def undefined(codes):
    raise Undefined("undefined: these codes have no answer.")


@accepts_recording
def broken(codes):
    return 1 / 0


@accepts_recording
def factored(factors):
    return Draws(torch.zeros(1), 0)


@accepts_recording
def varied(codes):
    return Draws(torch.zeros(1), 0)


@pytest.fixture
def made_up():
    """A catalogue of six assays; afterwards the true one, in its order."""
    real = dict(CATALOGUE)
    CATALOGUE.clear()
    facts = {
        "drawing": {"takes": ("codes",)},
        "undefined": {"takes": ("codes",)},
        "broken": {"takes": ("codes",)},
        "again": {"takes": ("codes",)},
        "factored": {"takes": ("factors",)},
        "varied": {"takes": ("codes",), "needs": ("variances",)},
    }
    for name, fields in facts.items():
        CATALOGUE[name] = Entry("?", **fields, name=name, module=__name__)
    yield
    CATALOGUE.clear()
    CATALOGUE.update(real)


def recorded(*, factors=None, std=None, prior=None, seed=0):
    data = from_arrays(torch.randn(50, 2, generator=torch.Generator().manual_seed(0)), factors)
    return zs.record(identity(2, std=std, prior=prior), data, seed=seed)


@pytest.mark.usefixtures("made_up")
def test_every_assay_has_a_result_a_reason_or_a_failure_with_its_traceback():
    found = measure(recorded())
    assert list(found.results) == ["drawing", "again"]
    assert found.results["drawing"].option == 5
    assert found.missing["undefined"] == "These codes have no answer."
    assert "come without factors" in found.missing["factored"]
    assert "deterministic" in found.missing["varied"]
    assert found.failed["broken"].message.startswith("Failed with ZeroDivisionError: division by")
    assert "fault in zscope" in found.failed["broken"].message
    assert "return 1 / 0" in found.failed["broken"].traceback


@pytest.mark.usefixtures("made_up")
def test_called_by_itself_an_assay_that_does_not_apply_raises():
    with pytest.raises(Undefined, match="factored: the data come without factors"):
        factored(recorded())
    with pytest.raises(ZeroDivisionError):
        broken(recorded())


@pytest.mark.usefixtures("made_up")
def test_the_seed_and_the_name_alone_decide_the_draws():
    alone = measure(recorded(), ["again"]).results["again"].numbers
    together = measure(recorded(), ["drawing", "again"]).results
    assert torch.equal(alone, together["again"].numbers)
    assert not torch.equal(alone, together["drawing"].numbers)
    assert not torch.equal(alone, measure(recorded(seed=1), ["again"]).results["again"].numbers)
    assert torch.equal(alone, again(recorded()).numbers)
    assert torch.equal(alone, again(recorded().codes).numbers)


@pytest.mark.usefixtures("made_up")
def test_progress_names_each_assay_before_it_runs_and_the_time_left():
    steps = []
    measure(recorded(), ["again", "drawing"], progress=steps.append)
    assert [(step.name, step.done, step.total) for step in steps] == [
        ("again", 0, 2),
        ("drawing", 1, 2),
    ]
    assert steps[0].left is None
    assert steps[1].left >= 0


@pytest.mark.usefixtures("made_up")
def test_options_reach_their_assay_alone():
    found = measure(recorded(), ["again", "drawing"], options={"again": {"option": 7}}).results
    assert (found["again"].option, found["drawing"].option) == (7, 5)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"response-matric": {}}, "no assay is called 'response-matric'.*response-matrix"),
        ({"response-map": {"dim": 3}}, "response-map: it has no option 'dim'.*dims"),
        ({"response-map": 3}, "expected the options of an assay"),
        ({"disentanglement": {"flavor": "dlib"}}, "no option 'flavor'.*flavour"),
    ],
)
def test_unknown_options_are_refused_with_the_nearest(options, match):
    with pytest.raises(ConfigError, match=match):
        check_options(options)


@pytest.mark.parametrize("options", [[1], "dims=3", 5])
def test_options_that_are_not_by_assay_are_refused(options):
    import inspect

    unchecked = inspect.unwrap(check_options)  # past the types that only tests check
    with pytest.raises(ConfigError, match=r"options: got a \w+; expected options by assay"):
        unchecked(options)


@pytest.mark.parametrize(
    ("name", "option", "value", "words"),
    [
        ("holes", "quantile", "abc", "holes: quantile='abc'; expected a number"),
        ("response-matrix", "samples", 2.5, "samples=2.5; expected a whole number"),
        ("structure-score", "response", "median", "'median'; expected sampled or mean"),
        ("structure-score", "causal", ["a"], "expected a list of whole numbers"),
        ("cka", "debiased", "perhaps", "expected true or false"),
    ],
)
def test_values_that_an_option_cannot_have_are_refused_in_words(name, option, value, words):
    with pytest.raises(ConfigError, match=words):
        check_options({name: {option: value}})


def test_values_are_converted_to_the_type_of_the_option():
    given = {"samples": np.int64(64), "causal": np.array([1, 3]), "permutations": 1e2}
    checked = check_options({"structure-score": given})["structure-score"]
    assert checked == {"samples": 64, "causal": [1, 3], "permutations": 100}
    assert all(type(checked[name]) is int for name in ("samples", "permutations"))


def test_a_value_for_a_group_goes_to_the_assays_that_can_take_it():
    checked = check_options({"responses": {"response": "mean"}})
    assert set(checked) == {"structure-score", "causal-structure-score"}
    with pytest.raises(ConfigError, match="'median'; expected sampled or mean"):
        check_options({"responses": {"response": "median"}})


def test_options_that_an_assay_refuses_are_raised_and_not_kept_as_a_reason():
    recording = Recording.from_arrays(gaussian_codes(50, 2))
    with pytest.raises(ConfigError, match="bins"):
        measure(recording, options={"mutual-information": {"bins": -3}})


@pytest.mark.parametrize("option", ["codes", "generator", "variances"])
def test_the_list_of_known_options_has_neither_arrays_nor_the_generator(option):
    assert option not in option_names(CATALOGUE["mig"])
    assert "flavour" in option_names(CATALOGUE["mig"])


def test_a_folder_of_comparing_assays_says_who_runs_them():
    recording = Recording.from_arrays(gaussian_codes(50, 2))
    missing = measure(recording, "similarity").missing
    assert "cka" in missing
    assert all("zscope compare" in reason for reason in missing.values())


def test_two_recordings_are_compared_by_the_runner_and_one_failure_stops_no_other(monkeypatch):
    codes, shear = gaussian_codes(60, 2), torch.tensor([[1.0, 0.5], [0, 1]]).double()
    first, second = (Recording.from_arrays(each, seed=3) for each in (codes, codes @ shear))
    outcome = compare([first, second], debiased=False)
    assert outcome.results["cka"].score == a.cka(first, second, debiased=False).score
    assert outcome.results["udr"].score == a.udr([first, second]).score
    assert not outcome.failed

    def broken(*_, **__):
        raise ZeroDivisionError("none")

    monkeypatch.setattr(import_module("zscope.assays.similarity.procrustes"), "procrustes", broken)
    outcome = compare([first, second])
    assert list(outcome.failed) == ["procrustes"]
    assert "ZeroDivisionError" in outcome.failed["procrustes"].traceback
    assert "cka" in outcome.results


def test_a_comparison_draws_by_the_seed_of_its_recordings():
    codes = gaussian_codes(60, 2)
    chances = [a.udr([Recording.from_arrays(codes, seed=seed)] * 2).chance for seed in (0, 1, 1)]
    assert chances[0] != chances[1]
    assert chances[1] == chances[2]
    assert a.udr([codes, codes]).chance == chances[0]


def test_an_option_of_a_group_goes_to_those_that_have_it():
    checked = check_options({"regime": {"alpha": 0.2}})
    assert checked == {"variable-types": {"alpha": 0.2}}


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'response-matric'.*response-matrix"):
        measure(recorded(), ["response-matric"])


def test_every_entry_can_be_loaded_asks_a_question_and_takes_what_it_says():
    import inspect

    for name, entry in CATALOGUE.items():
        assert name == entry.name
        assert entry.question.endswith("?"), name
        assert set(entry.needs) <= set(NEEDS), name
        function = entry.load()
        assert getattr(zs.assays, entry.attribute) is function
        assert entry.cite.strip(), name
        if entry.compares:
            continue
        assert {word.rpartition("=")[2] for word in entry.takes} <= set(PARTS), name
        positional = [word for word in entry.takes if "=" not in word]
        keywords = {word.split("=")[0] for word in entry.takes if "=" in word}
        assert inspect.signature(function).bind(*positional, **dict.fromkeys(keywords)).args


def test_the_catalogue_equals_the_folders():
    from pathlib import Path

    root = Path(a.__file__).parent
    entries = {
        file.relative_to(root).with_suffix("").as_posix().replace("/", ".")
        for file in root.glob("*/*.py")
        if "\nENTRY = " in file.read_text() or "\nENTRIES = " in file.read_text()
    }
    assert entries == {entry.module.removeprefix("zscope.assays.") for entry in CATALOGUE.values()}
    folders = {file.parent.name for file in root.glob("*/__init__.py")}
    assert {entry.group for entry in CATALOGUE.values()} == folders
    assert set(groups()) == {e.group for e in CATALOGUE.values() if not e.compares}


def test_lists_and_help_do_not_import_torch():
    import subprocess
    import sys

    code = "import sys, zscope.assays as a; len(a.CATALOGUE); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_codes_alone_are_measured_by_every_assay_that_needs_no_model():
    codes = gaussian_codes(300, 3).float()
    found = measure(Recording.from_arrays(codes, (codes[:, :2] > 0).long().numpy()))
    assert not found.failed
    assert {"effective-rank", "intrinsic-dimension", "mig", "dci"} <= set(found.results)
    assert "a model is needed" in found.missing["response-matrix"]
    variances = torch.full_like(codes, 0.1)
    assert "variable-types" in measure(Recording.from_arrays(codes, variances=variances)).results


def test_unmet_needs_are_told_from_met_ones():
    needs = ("two factors", "prior", "two latents")
    entry = Entry("?", ("codes",), needs=needs, name="x", module="x")
    rich = recorded(factors=grid(10, 5), prior="normal")
    assert unmet(entry, rich) is None
    assert "two factors are needed" in unmet(
        entry, recorded(factors=grid(50, 1)[:, :1], prior="normal")
    )
    assert "no prior" in unmet(entry, recorded(factors=grid(10, 5)))


RESPONSES = groups()["responses"]


class Pictures(zs.Autoencoder):
    """A small variational autoencoder of 8 x 8 pictures, not trained."""

    latents = 3

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
            self.decoder = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))

    def encode(self, x, auxiliary=None):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        return zs.Posterior(3 * mean, (log_variance / 2).exp())

    def decode(self, z):
        return self.decoder(z)


def pictures_with_factors():
    generator = torch.Generator().manual_seed(1)
    factors = grid(6, 5, 4)
    mix = torch.randn(3, 64, generator=generator)
    values = torch.from_numpy(factors).float()
    return from_arrays((values @ mix).tanh().reshape(-1, 1, 8, 8).numpy(), factors)


@pytest.mark.parametrize("kind", ["variational", "deterministic", "foreign"])
def test_every_response_assay_runs_saves_and_draws_for_every_kind_of_model(kind):
    import matplotlib.pyplot as plt

    model = Pictures()
    if kind == "deterministic":
        model.prior = None
        model.encode = lambda x, auxiliary=None: zs.Posterior(3 * model.encoder(x)[:, :3])
    if kind == "foreign":
        inner = model
        model = zs.wrap(lambda x: 3 * inner.encoder(x)[:, :3], inner.decoder)
    recording = zs.record(model, pictures_with_factors())
    found = measure(recording, RESPONSES)
    results = found.results
    assert set(found.missing) == {"feature-effects", "masks"}  # of vectors; of causal blocks
    assert set(results) == set(RESPONSES) - set(found.missing)
    assert results["structure-score"].distribution == (
        "prior" if kind == "variational" else "hybrid"
    )
    for result in results.values():
        assert result.summary()
        assert result.to_dict()["kind"] == type(result).__name__
        if kind == "variational":  # the others draw the same figures
            assert result.plot() is not None
            plt.close("all")


@pytest.mark.parametrize("resamples", [-1, 1])
def test_resamples_that_give_no_interval_are_refused_at_once(resamples):
    with pytest.raises(ConfigError, match=f"resamples={resamples} gives no interval"):
        measure(recorded(), ["effective-rank"], resamples=resamples)
