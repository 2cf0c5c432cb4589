"""zscope assay and zscope demo, as a user meets them."""

import json
import sys

import numpy as np
import pytest

import zscope as zs
from zscope import store
from zscope.cli import main


@pytest.fixture
def zscope(monkeypatch, capsys, tmp_path):
    """Run a command in this process: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zscope", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return end.value.code or 0, said.out, said.err

    return run


@pytest.fixture
def run_folder(tmp_path):
    helix = zs.data.load("helix")
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(16,), seed=0)
    zs.train(model, helix, steps=30, rate=1e-2, out=tmp_path / "run")
    return tmp_path / "run"


def test_named_assays_are_measured_shown_kept_and_drawn(zscope, run_folder, tmp_path):
    words = ("response-matrix", "variable-types", "--samples", 200, "--figures", "figures")
    code, out, err = zscope("assay", run_folder, *words)
    assert code == 0, err
    assert "response-matrix" in out
    assert "causal" in out
    assert set(store.open_run(run_folder).results()) == {"response-matrix", "variable-types"}
    assert (tmp_path / "figures" / "response-matrix.png").read_bytes().startswith(b"\x89PNG")


def test_json_holds_what_the_library_returns(zscope, run_folder):
    code, out, _ = zscope("assay", run_folder, "variable-types", "--samples", 200, "--json")
    assert code == 0
    said = json.loads(out)["assays"]["variable-types"]
    recording = zs.record(zs.load(run_folder), zs.data.load("helix"), samples=200)
    types = zs.assays.variable_types(recording.posterior.variance)
    assert said["active"] == types.active
    assert said["mean_variance"] == pytest.approx(types.mean_variance.tolist())


def test_warnings_of_a_result_are_said_and_not_hidden(zscope, tmp_path):
    """Equal singular values, and a decoder without a derivative."""
    numbers = "lambda x: x), (lambda z: torch.from_numpy(z.numpy()))"
    (tmp_path / "equal.py").write_text("def load():\n    return (lambda x: x), (lambda z: z)\n")
    (tmp_path / "plain.py").write_text(f"import torch\ndef load():\n    return ({numbers}\n")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32))
    words = ("distance-to-orthogonality", "--data", "x.npy")
    _, out, _ = zscope("assay", "equal.py:load", *words)
    assert "two singular values are equal" in " ".join(out.split())
    _, out, _ = zscope("assay", "plain.py:load", *words)
    assert "Measured by central differences" in " ".join(out.split())


def test_a_model_of_ones_own_is_measured_on_ones_own_data(zscope, tmp_path):
    (tmp_path / "mine.py").write_text("def load():\n    return (lambda x: x), (lambda z: z)\n")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32))
    code, out, err = zscope("assay", "mine.py:load", "response-matrix", "--data", "x.npy", "--json")
    assert code == 0, err
    relative = np.array(json.loads(out)["assays"]["response-matrix"]["relative"])
    assert np.allclose(relative, np.eye(3), atol=0.2)
    assert np.all(relative[~np.eye(3, dtype=bool)] == 0)


def test_a_run_trained_on_a_split_is_measured_on_the_last_part(tmp_path):
    from zscope.cli.targets import data_for

    helix = zs.data.load("helix")
    train, test = helix.split((0.75, 0.25))
    model = zs.models.build("vae", shape=(3,), latents=2, hidden=(8,), seed=0)
    zs.train(model, train, steps=2, out=tmp_path / "split")
    assert np.array_equal(
        data_for(str(tmp_path / "split"), None, None, None).images[:], test.images[:]
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("assay",), "TARGET is needed"),
        (("assay", "nowhere"), "there is no run at nowhere"),
        (("assay", "RUN", "respons-matrix"), "Did you mean response-matrix"),
        (("assay", "mine.py:load"), "no file mine.py"),
        (("assay", "RUN", "mig", "--data", "x.npy"), "x.npy"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(zscope, run_folder, words, said):
    code, _, errors = zscope(*(run_folder if word == "RUN" else word for word in words))
    assert code == 1
    assert said in errors
    assert errors.count("\n") == 1


def test_an_assay_that_does_not_apply_is_refused_by_name_with_the_reason(
    zscope, run_folder, tmp_path
):
    np.save(tmp_path / "x.npy", np.zeros((20, 3), np.float32))
    code, _, errors = zscope("assay", run_folder, "mig", "--data", "x.npy")
    assert code == 1
    assert "mig: the data come without factors" in errors


def test_the_catalogue_is_listed_with_its_questions(zscope):
    code, out, _ = zscope("assay", "--list")
    assert code == 0
    for name, entry in zs.assays.CATALOGUE.items():
        assert name in out
        assert entry.question in out


def test_the_demo_trains_measures_draws_and_can_be_called_again(zscope, tmp_path):
    code, out, err = zscope("demo", "--steps", 3, "--quiet")
    assert code == 0, err
    assert (tmp_path / "zscope-demo" / "traversals.png").stat().st_size > 10_000
    for word in ("KL (nats)", "mean variance", "response", "passive"):
        assert word in out
    last = out.strip().splitlines()[-1]
    assert "traversals.png" in last
    assert "zscope explore zscope-demo" in last
    assert "report.html" in last
    assert ">Findings<" in (tmp_path / "zscope-demo" / "report.html").read_text()
    code, again, _ = zscope("demo", "--steps", 3, "--quiet")
    assert (code, again) == (0, out)
    code, said, _ = zscope("demo", "--steps", 3, "--json")
    assert len(json.loads(said)["latents"]) == 10


def test_a_seed_out_of_range_is_refused(zscope):
    code, _, err = zscope("score", "codes.npy", "factors.npy", "--seed", 10**20)
    assert code == 2
    assert "--seed" in err
    assert "Traceback" not in err
