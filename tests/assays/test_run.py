import json
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn
from worlds import World, gaussian_codes, grid, identity, random_rotation

import zscope as zs
from zscope import assays as a
from zscope import store
from zscope.assays import CATALOGUE, Entry, groups
from zscope.assays.arguments import NEEDS, PARTS, accepts_recording, option_names, unmet
from zscope.assays.run import check_options, choose, compare, costs, measure, passes
from zscope.data.dataset import from_arrays
from zscope.errors import ConfigError, Undefined
from zscope.factors import factors_of
from zscope.kept import KeptResults
from zscope.recording import Recording
from zscope.report.tables import flag_lines
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


def test_few_latents_and_few_rows_leave_no_note():
    """Defaults stand in the function alone: no limit lowers them for two latents."""
    for rows in (60, 2000):
        recording = zs.record(identity(2, std=0.1, prior="normal"), gaussian_codes(rows, 2).float())
        names = [entry.name for entry in choose(None) if entry.most]
        assert not measure(recording, names).notes


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


SCORES = groups()["disentanglement"]


def factor_world():
    """Codes of a model with a passive latent, and factors of two stated kinds."""
    factors = grid(10, 6).repeat(5, 0)
    noise = gaussian_codes(300, 3).float().numpy()
    x = np.column_stack([factors + 0.3 * noise[:, :2], noise[:, 2]]).astype("float32")
    data = from_arrays(
        x, factors, factor_names=("shift", "shape"), factor_kinds=("ordinal", "categorical")
    )
    encode = lambda x: (x / 4, torch.tensor([0.01, 0.01, 1.0]).log().expand(len(x), 3))  # noqa: E731
    return zs.wrap(encode, lambda z: 4 * z, latents=3), data


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_the_same_by_every_door(name, tmp_path, capsys):
    """Python with a recording, Python with arrays, zs.assay, zscope assay, zscope score."""
    from typer.testing import CliRunner

    from zscope.cli import app

    model, data = factor_world()
    recording = zs.record(model, data, seed=3)
    function = CATALOGUE[name].load()
    first = function(recording)
    assert first.kinds == ["ordinal", "categorical"]
    assert first.factor_names == ["shift", "shape"]
    assert not any("guessed" in flag for flag in first.flags)

    np.save(tmp_path / "codes.npy", recording.codes.numpy())
    np.save(tmp_path / "variances.npy", recording.variances.numpy())
    table = "shift,shape\n" + "\n".join(f"{p},{q}" for p, q in data.factors)
    (tmp_path / "factors.csv").write_text(table)
    files = ["--variances", str(tmp_path / "variances.npy"), "--kinds", "ordinal,categorical"]
    files += ["--seed", "3", "--json"]
    codes, factors = str(tmp_path / "codes.npy"), str(tmp_path / "factors.csv")
    runner = CliRunner()
    scored = runner.invoke(app, ["score", codes, factors, "--only", name, *files])
    assayed = runner.invoke(app, ["assay", codes, name, "--factors", factors, *files])
    expected = pytest.approx(first.score, abs=1e-6)
    assert zs.assay(recording, names=[name]).results[name].score == first.score
    assert zs.assay(model, data, names=[name], seed=3).results[name].score == first.score
    assert json.loads(scored.stdout)["scores"][name]["score"] == expected
    assert json.loads(assayed.stdout)["assays"][name]["result"]["score"] == expected

    zero = zs.record(model, data)  # bare arrays have seed 0
    bare = function(
        zero.codes, data.factors, variances=zero.variances, kinds=["ordinal", "categorical"]
    )
    assert bare.score == function(zero).score


def test_a_trained_run_has_the_same_scores_by_every_door(tmp_path):
    """Python with a recording, zs.assay, zscope assay RUN, zscope report RUN."""
    from typer.testing import CliRunner

    from zscope.cli import app

    sizes = {"scale": 2, "orientation": 4, "position_x": 6, "position_y": 6}
    data = zs.data.load("sprites", resolution=16, **sizes)
    run = tmp_path / "run"
    model = zs.models.build(
        "vae", shape=data.shape, latents=3, backbone="mlp", hidden=(32,), seed=0
    )
    zs.train(model, data, steps=100, rate=1e-2, seed=0, out=run, progress=False)
    recording = zs.record(zs.load(run), data, samples=400, seed=3)
    expected = {name: CATALOGUE[name].load()(recording).score for name in SCORES}
    report = zs.assay(run, names="disentanglement", samples=400, seed=3)
    assert {name: result.score for name, result in report.results.items()} == expected
    words = [str(run), "disentanglement", "--samples", "400", "--seed", "3", "--fresh"]
    assayed = CliRunner().invoke(app, ["assay", *words, "--json"])
    page = ["-o", str(tmp_path / "page.html"), "--resamples", "0"]
    reported = CliRunner().invoke(app, ["report", *words, *page])
    assert reported.exit_code == 0
    for text in (assayed.stdout, (tmp_path / "page.json").read_text()):
        assays = json.loads(text)["assays"]
        scores = {name: each["result"]["score"] for name, each in assays.items()}
        assert scores == pytest.approx(expected, abs=1e-5)


def test_bare_factors_have_their_guessed_kinds_flagged_and_those_of_a_recording_have_not():
    model, data = factor_world()
    recording = zs.record(model, data)
    guessed = a.mig(recording.codes, data.factors)
    assert guessed.flags[0] == (
        "Kinds of factors were guessed: factor0 categorical, factor1 categorical. State them "
        "with kinds= (--kinds in the shell)."
    )
    assert not any("guessed" in flag for flag in a.mig(recording.codes, recording.factors).flags)
    assert "Kinds of factors were guessed" in str(
        zs.assay(Recording.from_arrays(recording.codes, data.factors), names=["mig"])
    )


def test_response_assays_of_one_recording_start_from_the_same_samples():
    recording = zs.record(identity(3, std=0.1, prior="normal"), gaussian_codes(400, 3).float())
    matrix, single = a.response_matrix(recording), a.response(recording)
    bare = a.response_matrix(recording.autoencoder, recording.posterior)
    assert torch.equal(matrix.matrix, bare.matrix)
    assert torch.equal(single.codes, recording.base_samples[:1024])
    own = a.response_matrix(recording, generator=torch.Generator().manual_seed(5))
    assert not torch.equal(matrix.scale, own.scale)


def test_what_several_assays_need_is_computed_once():
    world = identity(3, std=0.1, prior="normal")
    recording = zs.record(world, gaussian_codes(300, 3).float())
    a.response_matrix(recording, resamples=20)
    world.decoded.clear()
    first = a.causal_structure_score(recording)
    assert sum(map(len, world.decoded)) <= first.samples + 4  # no second response matrix
    world.decoded.clear()
    a.causal_structure_score(recording)
    a.response(recording)
    assert not world.decoded


@pytest.mark.parametrize("variational", [True, False])
def test_information_and_use_are_computed_once_for_all_scores(monkeypatch, variational):
    """And each score is what it is by itself, on a recording of its own."""
    sample, recordings = (import_module(f"zscope.{n}") for n in ("assays.sample", "recording"))
    tables, decisions = [], []

    def information(bins, labels, **options):
        tables.append(bins.tobytes() + labels.tobytes())
        return real_information(bins, labels, **options)

    def usage(posterior):
        decisions.append(posterior)
        return real_usage(posterior)

    def recording():
        codes = gaussian_codes(400, 3).numpy()
        factors = np.column_stack([np.digitize(codes[:, 0], [-0.5, 0.5]), codes[:, 1] > 0])
        variances = np.full((400, 3), 0.05)
        variances[:, 2] = 20  # passive
        kinds = ["ordinal", "categorical"]
        return Recording.from_arrays(
            codes, factors, variances=variances if variational else None, kinds=kinds
        )

    alone = {name: measure(recording(), name).results[name] for name in groups()["disentanglement"]}
    real_information, real_usage = sample.information, recordings.usage_of_posterior
    monkeypatch.setattr(sample, "information", information)
    monkeypatch.setattr(recordings, "usage_of_posterior", usage)
    monkeypatch.setattr(sample, "usage_of_posterior", usage)
    together = measure(recording(), "disentanglement").results
    assert {n: r.score for n, r in together.items()} == {n: r.score for n, r in alone.items()}
    assert len(tables) > 10  # of the chance levels too, whose rows are permuted
    assert len(set(tables)) == len(tables)
    assert len(decisions) == (1 if variational else 0)


LATENTS = [1, 2, 10, 64, 256, 304, 499, 1024, 16_384]


@pytest.mark.parametrize("latents", LATENTS)
def test_a_default_report_takes_less_than_120_000_passes(latents):
    codes = torch.zeros(20, latents)
    factors = grid(4, 5)
    model = zs.Autoencoder()
    model.latents = latents
    recording = Recording(model, zs.Posterior(codes, codes + 1), None, None, 0, factors_of(factors))
    assert sum(costs(choose(None), recording, {})) < 120_000


class Counting(World):
    """Counts codes decoded (with derivatives: once for each latent) and observations encoded."""

    decodings = encodings = 0

    def decode(self, z):
        derivatives = torch._C._functorch.maybe_current_level() is not None
        self.decodings += len(z) * (self.latents if derivatives else 1)
        return self.decoder(z)

    def encode(self, x, auxiliary=None):
        self.encodings += len(x)
        return super().encode(x)


def test_the_stated_cost_of_masks_is_that_measured(monkeypatch):
    model = zs.models.build("xvae", shape=(6,), latents=6, backbone="mlp", hidden=(8,))
    recording = zs.record(model, gaussian_codes(3000, 6).float())
    a.response_matrix(recording)  # its own cost; they share it
    rows, real = [], model.decode_causes
    monkeypatch.setattr(model, "decode_causes", lambda z: rows.append(z) or real(z))
    entry = CATALOGUE["masks"]
    entry.load()(recording)
    assert sum(map(len, rows)) == pytest.approx(passes(entry, recording, {}), rel=0.1)


COSTLY = [n for n, entry in CATALOGUE.items() if entry.passes and "causal block" not in entry.needs]


@pytest.mark.parametrize("name", COSTLY)
def test_stated_costs_are_those_measured(name):
    # A rotation has no fixed point, so that paths and drifts do not arrive early; enough values
    # of each factor, so that the groups of a conditioned response are not exhausted; codes whose
    # graph of ten neighbours is connected, or a path would try more neighbours.
    turn = random_rotation(6)
    world = Counting(lambda z: z @ turn.T.to(z), lambda x: x, 6, prior="normal", std=0.1)
    data = from_arrays(gaussian_codes(3000, 6).float(), grid(5, 20, 30))
    recording = zs.record(world, data, seed=1)
    entry = CATALOGUE[name]
    stated = passes(entry, recording, {})
    world.decodings = world.encodings = 0
    entry.load()(recording)
    # abs=2: the first use of a model decodes two codes to learn how much memory they take.
    assert max(world.decodings, world.encodings) == pytest.approx(stated, rel=0.1, abs=2)


def test_more_latents_lower_the_samples_and_the_note_says_so():
    recording = zs.record(identity(64), gaussian_codes(300, 64).float())
    found = measure(recording, ["response-matrix"])
    assert found.results["response-matrix"].samples == 12_000 // 65
    assert found.notes["response-matrix"].startswith("184 samples instead of 1,024")
    own = measure(recording, ["response-matrix"], options={"response-matrix": {"samples": 200}})
    assert own.results["response-matrix"].samples == 200
    assert not own.notes


def test_too_many_latents_are_refused_with_a_way_forward():
    recording = zs.record(identity(2000), gaussian_codes(20, 2000).float())
    with pytest.raises(Undefined, match=r"2,000 latents needs more than the 12,000.*samples=16"):
        a.response_matrix(recording)


class Calls:
    """Counts how often an assay is really run."""

    calls = 0


@accepts_recording
def counted(codes, *, option=0):
    Calls.calls += 1
    return a.effective_rank(codes)


def trained(folder):
    x = gaussian_codes(64, 3).float()
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(8,), seed=0)
    return zs.train(model, x, steps=2, out=folder, progress=False), x


def test_kept_results_are_taken_over_until_something_changes(tmp_path, monkeypatch):
    monkeypatch.setitem(
        CATALOGUE, "counted", Entry("?", ("codes",), name="counted", module=__name__)
    )
    run, x = trained(tmp_path)
    recording = zs.record(run.model, x)
    Calls.calls = 0

    def again(recording=recording, **options):
        kept = KeptResults(store.open_run(tmp_path), recording.model)
        fresh = Recording(recording.model, recording.posterior, seed=recording.seed)
        return measure(fresh, ["counted"], kept=kept, **options).results["counted"]

    first, second = again(), again()
    assert Calls.calls == 1
    assert second.score == first.score
    assert type(second) is type(first)
    again(options={"counted": {"option": 3}})
    again(zs.record(run.model, x, seed=1))
    with torch.no_grad():
        next(iter(run.model.parameters())).add_(1)  # only the weights
    again()
    assert Calls.calls == 4
    file = tmp_path / "assays" / "counted.kept.npz"
    file.write_bytes(file.read_bytes()[:-40])  # damaged
    again()
    assert Calls.calls == 5


def test_every_kind_of_result_comes_back_as_it_was_kept(tmp_path):
    run, _ = trained(tmp_path)
    x = gaussian_codes(64, 3).float()
    data = from_arrays(x, (x[:, :2] > 0).long().numpy())
    recording = zs.record(run.model, data)
    kept = KeptResults(store.open_run(tmp_path), recording.model)
    found = measure(recording, kept=kept)
    assert not found.failed
    taken_over = measure(
        Recording(recording.model, recording.posterior, recording.dataset, recording.rows, 0,
                  recording.factors),
        kept=kept,
    )  # fmt: skip
    for name, result in found.results.items():
        other = taken_over.results[name]
        assert repr(other) == repr(result), name
        assert other.to_dict() == result.to_dict(), name
        assert (tmp_path / "assays" / f"{name}.kept.npz").is_file(), name


def test_a_kept_file_can_name_no_class_but_results(tmp_path):
    trained(tmp_path)
    kept = KeptResults(store.open_run(tmp_path), None)
    for kind in ("os:system", "zscope.store:Run", "zscope.assays.run:choose"):
        content = {"key": {}, "result": {"object": kind, "fields": {}}}
        (tmp_path / "assays").mkdir(exist_ok=True)
        np.savez(tmp_path / "assays" / "x.kept.npz", content=np.array(json.dumps(content)))
        assert kept.get("x", {}) is None


def test_codes_alone_are_measured_by_every_assay_that_needs_no_model():
    codes = gaussian_codes(300, 3).float()
    found = measure(Recording.from_arrays(codes, (codes[:, :2] > 0).long().numpy()))
    assert not found.failed
    assert {"effective-rank", "intrinsic-dimension", "mig", "dci"} <= set(found.results)
    assert "needs the model" in found.missing["response-matrix"]
    variances = torch.full_like(codes, 0.1)
    assert "variable-types" in measure(Recording.from_arrays(codes, variances=variances)).results


def test_unmet_needs_are_told_from_met_ones():
    needs = ("two factors", "prior", "two latents")
    entry = Entry("?", ("codes",), needs=needs, name="x", module="x")
    rich = recorded(factors=grid(10, 5), prior="normal")
    assert unmet(entry, rich) is None
    assert "fewer than two" in unmet(entry, recorded(factors=grid(50, 1)[:, :1], prior="normal"))
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


def test_scores_call_factors_by_the_names_that_the_data_give_them():
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    factors = torch.stack([x[:, 0] > 0, torch.zeros(300), x[:, 1] > 0.5], 1).long().numpy()
    data = from_arrays(x, factors, factor_names=("left", "still", "right"))
    found = a.mig(zs.record(identity(2), data))
    assert found.factors == [0, 2]  # what does not vary is left out
    assert "Factor still is constant over these 300 samples and left out." in found.flags
    assert found.factor_names == ["left", "right"]
    drawn = found.plot().get_xticklabels()
    assert [label.get_text() for label in drawn] == ["left", "right"]
    assert zs.assays.mig(x, factors).factor_names is None


def test_options_that_cannot_be_written_down_are_neither_shared_nor_kept(tmp_path):
    """Two networks of one architecture print alike."""
    recording = zs.record(identity(3), gaussian_codes(80, 3).float())
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        small, large = (nn.Linear(3, 3) for _ in range(2))
        large.weight.copy_(50 * small.weight)
    first, second = (a.sample_quality(recording, extractor=net) for net in (small, large))
    assert second.distances["hybrid"] > 10 * first.distances["hybrid"]


def test_a_store_that_cannot_be_written_costs_no_result_and_a_line_says_so(tmp_path):
    run, x = trained(tmp_path)
    (tmp_path / "assays").write_text("in the way")
    recording = zs.record(run.model, x)
    kept = KeptResults(store.open_run(tmp_path), recording.model)
    found = measure(recording, ["effective-rank", "total-correlation"], kept=kept)
    assert set(found.results) == {"effective-rank", "total-correlation"}
    assert not found.failed
    assert len(found.warnings) == 1
    assert "were not stored" in found.warnings[0]


def test_stated_kinds_and_other_observations_make_another_recording():
    codes, factors = gaussian_codes(40, 2).float(), grid(4, 10)
    guessed = Recording.from_arrays(codes, factors)
    stated = Recording.from_arrays(codes, factors, kinds="categorical")
    assert guessed.fingerprint != stated.fingerprint
    blind = zs.wrap(lambda x: x[:, :2], lambda z: torch.cat([z, z[:, :1]], 1), latents=2)
    x = gaussian_codes(40, 3).float()
    moved = x + torch.tensor([0, 0, 1.0])
    first, second = zs.record(blind, x), zs.record(blind, moved)
    assert torch.equal(first.codes, second.codes)
    assert first.fingerprint != second.fingerprint


def test_a_conditioned_matrix_is_the_same_with_the_posterior_as_with_the_recording():
    model, data = factor_world()
    recording = zs.record(model, data)
    first = a.conditioned_response_matrix(recording)
    second = a.conditioned_response_matrix(model, recording.data, posterior=recording.posterior)
    assert first.disentanglement == second.disentanglement
    assert torch.equal(first.matrix, second.matrix)


@pytest.mark.parametrize("option", ["codes", "factors", "variances"])
def test_arrays_of_the_recording_are_no_options(option):
    model, data = factor_world()
    with pytest.raises(ConfigError, match=f"no option '{option}'"):
        a.mig(zs.record(model, data), **{option: data.factors})
    with pytest.raises(ConfigError, match="follow from the seed"):
        check_options({"mig": {"generator": 5}})


@pytest.mark.parametrize("resamples", [-1, 1])
def test_resamples_that_give_no_interval_are_refused_at_once(resamples):
    with pytest.raises(ConfigError, match=f"resamples={resamples} gives no interval"):
        measure(recorded(), ["effective-rank"], resamples=resamples)


@pytest.mark.parametrize(
    "factors",
    [[["a"], ["b"]], [[1], [1, 2]], np.zeros((2, 2, 2)), np.zeros((2, 0)), [[1.0], [np.nan]]],
    ids=["words", "ragged", "cube", "empty", "nan"],
)
def test_factors_that_are_no_table_of_numbers_are_refused(factors):
    with pytest.raises(zs.errors.DataError, match="from_arrays: .*factors"):
        Recording.from_arrays(np.zeros((2, 2)), factors)


def test_factors_may_be_tensors_of_any_type_with_or_without_gradients():
    values = torch.tensor([[0.5], [1.5]], dtype=torch.bfloat16, requires_grad=True)
    assert Recording.from_arrays(np.eye(2), values).factors.values.tolist() == [[0.5], [1.5]]


@pytest.mark.parametrize("codes", [np.ones((4, 2)) * 1j, torch.ones(4, 2) * 1j, [[1j], [2j]]])
def test_complex_codes_are_refused(codes):
    with pytest.raises(zs.errors.DataError, match="complex.*codes.real, codes.imag"):
        Recording.from_arrays(codes)
    with pytest.raises(zs.errors.Undefined, match="complex"):
        zs.assays.effective_rank(codes if isinstance(codes, torch.Tensor) else np.array(codes))


@pytest.mark.parametrize(
    "about", [{"kinds": "ordinal"}, {"names": ["a", "b"]}, {"labels": {"a": ["x"]}}]
)
def test_what_describes_factors_needs_factors(about):
    with pytest.raises(ConfigError, match=f"{next(iter(about))}=.*no factors"):
        Recording.from_arrays(np.eye(2), **about)


@pytest.mark.parametrize(
    "kinds",
    [["continuous", None], {"dose": "continuous"}, "dose=continuous", ["dose=continuous"]],
)
def test_kinds_of_arrays_are_stated_as_those_of_files(kinds):
    table = Recording.from_arrays(
        np.eye(4), np.arange(8).reshape(4, 2), names=["dose", "plate"], kinds=kinds
    ).factors
    assert table.kinds == ("continuous", "categorical")
    assert table.guessed == ("plate",)


def test_data_frames_bring_the_names_of_their_columns():
    pd = pytest.importorskip("pandas")
    codes = pd.DataFrame(np.eye(4), columns=list("wxyz"))
    factors = pd.DataFrame({"dose": [0.5, 1.5, 2.5, 3.5], "plate": [0, 1, 0, 1]})
    recording = Recording.from_arrays(codes, factors)  # without a warning of torch
    assert recording.factors.names == ("dose", "plate")
    assert recording.factors.kinds == ("continuous", "categorical")
    assert torch.equal(recording.codes, torch.eye(4, dtype=torch.float64))
    assert Recording.from_arrays(codes, factors, names=["a", "b"]).factors.names == ("a", "b")
    plain = pd.DataFrame(np.eye(4))  # its columns are only numbered
    assert Recording.from_arrays(codes, plain).factors.names[0] == "factor0"


def test_flags_call_factors_by_name_and_count_latents_and_do_not_name_the_score():
    codes = np.column_stack([np.zeros(120), np.arange(120) % 6])
    factors = np.column_stack([np.arange(120) % 6, np.zeros(120)])
    names, variances = ["shape", "still"], np.full((120, 2), 99)
    recording = Recording.from_arrays(
        codes, factors, kinds="categorical", names=names, variances=variances
    )
    results = measure(recording, "disentanglement").results
    flags = {flag for result in results.values() for flag in result.flags}
    assert "Factor still is constant over these 120 samples and left out." in flags
    assert "Factor shape has 6 values: its gap can be at most 0.83." in flags
    assert "Factor shape is categorical but treated as ordered." in flags
    assert "Latent 1 is passive (the posterior tells nothing) and left out." in flags
    definition = [line for line in flag_lines(results) if "0 by definition" in line]
    assert len(definition) == 1
    assert definition[0].endswith(" more: No latent is in use, so the score is 0 by definition.")
    unnamed = a.sap(codes, factors[:, :1], kinds="categorical").flags
    assert "Factor 0 has 6 values: its gap can be at most 0.83." in unnamed
