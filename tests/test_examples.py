"""Every example runs and prints what it should."""

import os
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BENCHMARKS = EXAMPLES.parent / "benchmarks"
LIBRARIES = {"burgess.py"}  # imported by an example, not an example itself


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run an example in an empty folder; returns its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("MPLBACKEND", "Agg")

    def run_example(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        with torch.random.fork_rng():  # a script may set the global seed, zscope may not
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    yield run_example
    import matplotlib.pyplot as plt

    plt.close("all")


def test_your_own_model_in_ten_lines(run, tmp_path):
    output = run("own_model.py")
    # The data have 3 directions.
    assert output.startswith(
        "2 of 5 latents hardly change the decoded observation: harmless; to remove them, train "
        "with 3, or prune with zs.prune"
    )
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "report.json").is_file()
    text = (EXAMPLES / "own_model.py").read_text().split('"""')[2]
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 10


@pytest.mark.slow
def test_how_many_latents(run, tmp_path):
    output = run("how_many_latents.py")
    assert "use 4 latents" in output
    assert (tmp_path / "how_many_latents.png").is_file()


def test_compare_two_models(run, tmp_path):
    output = run("compare_models.py")
    assert 0 < float(output.split("CKA ")[1].split(",")[0]) <= 1
    assert "input: 1.000" in output
    assert (tmp_path / "compare_models.png").is_file()


def test_interpolate_on_the_manifold(run, tmp_path):
    output = run("interpolate.py")
    straight, manifold = (
        float(line.split("up to ")[1].split()[0]) for line in output.splitlines()[:2]
    )
    assert manifold < 0.8 * straight
    assert (tmp_path / "interpolate.png").is_file()


def test_latents_of_a_diffusion_autoencoder(run, tmp_path):
    output = run("diffusion_latents.py")
    assert output.startswith("Ready for diffusion?")
    assert '"scaling_factor": ' in output
    before, after = re.search(r"PSNR ([\d.]+) dB, without: ([\d.]+)", output).groups()
    assert float(before) > float(after) + 1
    assert (tmp_path / "report.html").is_file()


def test_pca_as_an_autoencoder(run, tmp_path):
    output = run("pca.py")
    assert "All 8 latents carry information." in output
    assert 60 < int(output.split("components explain ")[1].split("%")[0]) < 75
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("model", "finding"),
    [
        ("btcvae", "2 of 10 latents carry no information: harmless; to remove them, train with 8, "
                   "or prune with zs.prune(autoencoder, [0, 1, 3, 4, 5, 6, 8, 9])"),
        ("vae", "All 10 latents carry information."),
    ],
)  # fmt: skip
def test_the_report_finds_what_is_dead_in_models_of_other_people(
    run, tmp_path, real_models, real_data, model, finding
):
    shutil.copytree(real_data / "mnist", tmp_path / "data" / "mnist")
    output = run("foreign_vae.py", real_models / f"{model}-mnist.safetensors", tmp_path / "data")
    assert finding in output.splitlines()
    assert output.count("carry no information") == (model == "btcvae")
    page = (tmp_path / "report.html").read_text()
    assert ("<strong>2 of 10 latents carry no information</strong>" in page) == (model == "btcvae")
    assert page.count('class="type passive"') == (2 if model == "btcvae" else 0)


@pytest.mark.parametrize("file", sorted(BENCHMARKS.glob("*.py")), ids=lambda file: file.stem)
def test_every_benchmark_can_be_imported(file, monkeypatch):
    """Running them takes minutes; a name that has moved is found here."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", dict(os.environ))  # one of them sets the number of threads
        names = runpy.run_path(str(file), run_name=file.stem)
    assert names["__doc__"]


def test_every_example_is_run_here():
    text = Path(__file__).read_text()
    names = {file.name for file in EXAMPLES.glob("*.py")}
    assert names
    for name in names - LIBRARIES:
        assert f'run("{name}"' in text, name
