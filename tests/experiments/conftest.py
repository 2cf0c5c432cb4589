"""A small family of runs, trained once: two values of β, three seeds and two, checkpoints."""

import shutil

import pytest

import zscope as zs


@pytest.fixture(scope="session")
def trained_family(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    helix = zs.data.load("helix")
    for beta, seeds in ((0.01, 3), (4.0, 2)):
        for seed in range(seeds):
            model = zs.models.build("beta-vae", shape=(3,), latents=3, hidden=(16,), beta=beta,
                                    seed=seed)  # fmt: skip
            zs.train(model, helix, steps=60, rate=2e-2, seed=seed, log_every=20, progress=False,
                     snapshot_every=20, out=folder / f"b{beta:g}-s{seed}")  # fmt: skip
    return folder


@pytest.fixture
def family(trained_family, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(trained_family, tmp_path / "family")


@pytest.fixture
def zscope(monkeypatch, capsys, tmp_path):
    """Run a command in this process: (exit code, output, errors)."""
    import sys

    from zscope.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zscope", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        output = capsys.readouterr()
        return end.value.code or 0, output.out, output.err

    return run
