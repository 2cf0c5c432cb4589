"""A run as a repository on the hub: what is in it, and that it is the same model again."""

import json
import re
import shutil
from dataclasses import replace

import pytest
import small_hub
import torch

import zscope as zs
from zscope import hub
from zscope.errors import ConfigError, MissingExtra, RunError
from zscope.report import publishing

FEW = ["mig", "sap", "variable-types", "response-matrix"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    return small_hub.empty_cache(tmp_path / "cache", monkeypatch)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    data = zs.data.load("digits").split([0.8, 0.2])[0]
    model = zs.models.build("beta-vae", shape=data.shape, latents=3, hidden=(16,), beta=0.2, seed=1)
    return zs.train(model, data, steps=100, rate=1e-2, out=tmp_path_factory.mktemp("runs") / "mine")


@pytest.fixture(scope="module")
def report(run):
    return zs.assay(run, names=FEW, samples=300, resamples=5)


@pytest.fixture(scope="module")
def folder(run, report, tmp_path_factory):
    place = tmp_path_factory.mktemp("hub") / "files"
    return run.save_for_hub(place, repository="org/name", report=report, license="mit")


def test_the_saved_folder_is_the_same_model_to_the_bit(run, folder):
    assert (folder / "model.safetensors").read_bytes() == (
        run.path / "model.safetensors"
    ).read_bytes()
    again, x = zs.load(folder), torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.encode(x).mean, run.model.encode(x).mean)
    assert torch.equal(again.decode(torch.ones(1, 3)), run.model.decode(torch.ones(1, 3)))
    saved = zs.store.open_run(folder)
    assert saved.config == run.config
    assert saved.history == run.history
    assert {file.suffix for file in folder.rglob("*") if file.is_file()} == {
        ".md", ".png", ".json", ".jsonl", ".safetensors",
    }  # fmt: skip


def test_the_front_matter_is_read_by_the_hubs_own_library(folder, report):
    from huggingface_hub import ModelCard

    card = ModelCard.load(folder / "README.md")
    assert (card.data.library_name, card.data.license) == ("zscope", "mit")
    assert "autoencoder" in card.data.tags
    metrics = {each.metric_name: each for each in card.data.eval_results}
    mig = metrics["mig"]
    expected = report.results["mig"]
    assert mig.metric_value == pytest.approx(expected.score, rel=1e-5)
    assert mig.metric_args["chance"] == pytest.approx(expected.chance, rel=1e-5)
    assert mig.metric_args["n"] == 300
    assert [mig.metric_args[end] for end in ("low", "high")] == pytest.approx(
        list(expected.interval), rel=1e-5
    )
    assert mig.dataset_name == "digits"


def test_the_card_has_findings_scores_pictures_and_how_to_load_it(folder, report):
    text = (folder / "README.md").read_text()
    assert report.findings
    for finding in report.findings:
        assert f"**{finding.text}**" in re.sub(r"[\\`]", "", text)
    row = next(line for line in text.splitlines() if line.startswith("| [mig]"))
    value, interval, chance, n = [cell.strip() for cell in row.split("|")[2:6]]
    low, high = report.results["mig"].interval
    assert (value, interval) == (f"{report.results['mig'].score:.4g}", f"{low:.3g} to {high:.3g}")
    assert (chance, n) == (f"{report.results['mig'].chance:.3g}", "300")
    assert 'zs.load("hf:org/name")' in text
    assert '"latents": 3' in text  # how it was trained
    shown = {part.partition(")")[0] for part in text.split("](figures/")[1:]}
    assert shown == {file.name for file in (folder / "figures").iterdir()}
    assert shown >= {"reconstructions.png", "response-matrix.png", "latent-0.png", "latent-2.png"}
    for name in shown:
        assert (folder / "figures" / name).read_bytes().startswith(b"\x89PNG")


def test_a_pushed_run_is_loaded_from_the_hub(run, report, tmp_path, monkeypatch):
    (tmp_path / "remote").mkdir()
    with small_hub.serve(tmp_path / "remote", monkeypatch) as asked:
        address = run.push_to_hub("org/name", report=report, token="hf_made_up")
        assert address.endswith("/org/name")
        again = zs.load("hf:org/name")
    assert any("/commit/" in path for path in asked)
    assert {file.name for file in hub.local_path("hf:org/name").iterdir()} == {
        "run.json", "model.safetensors", "history.jsonl",
    }  # fmt: skip
    weights = again.state_dict()
    assert all(torch.equal(weights[k], v) for k, v in run.model.state_dict().items())


def test_a_push_that_is_refused_says_what_to_do(run, report, tmp_path, monkeypatch):
    with (
        small_hub.serve(tmp_path, monkeypatch),
        pytest.raises(RunError, match="other/name could not be uploaded.*403.*hf auth login"),
    ):
        run.push_to_hub("other/name", report=report, token="hf_made_up")
    with pytest.raises(ConfigError, match="hf:name is not an address"):
        run.push_to_hub("name")
    with pytest.raises(ConfigError, match="push_to_hub: org/name@v1 names a revision or a folder"):
        run.push_to_hub("org/name@v1", report=report)
    with pytest.raises(ConfigError, match="hf:<b>/c is not an address"):
        run.save_for_hub(tmp_path / "new", repository="<b>/c", report=report)


def test_a_push_needs_the_package(run, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"push_to_hub.*pip install 'zscope\[hub\]'"):
        run.push_to_hub("org/name")


def test_no_folder_of_this_machine_is_published(tmp_path, monkeypatch):
    x = torch.rand(80, 5, generator=torch.Generator().manual_seed(0)).numpy()
    secret = tmp_path / "secret-project"
    secret.mkdir()
    import numpy as np

    np.save(secret / "x.npy", x)
    data = zs.data.load(str(secret / "x.npy"))
    model = zs.models.build("beta-vae", shape=data.shape, latents=2, hidden=(4,), seed=1)
    run = zs.train(model, data, steps=2, batch=16, out=secret / "run")
    folder = run.save_for_hub(tmp_path / "out", report=zs.assay(run, names=["variable-types"]))
    for file in folder.rglob("*"):
        assert file.is_dir() or b"secret-project" not in file.read_bytes(), file
    assert zs.store.open_run(folder).config["data"]["name"] == "x.npy"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(zs.ZscopeError, match=r"x\.npy"):
        zs.assay(folder)  # the data are not there
    monkeypatch.chdir(secret)
    assert len(zs.assay(folder, names=["variable-types"]).results) == 1


def test_only_paths_lose_their_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "y.npy").touch()
    paths = ["/a/x.npy", "~/x.npy", "../x.npy", r"C:\a\x.npy", "near/y.npy"]
    options = {"features": "glucose mg/dl,age", "files": paths, "more": {"size": 3}}
    data = publishing.without_folders({"data": {"name": "/a/t.csv", "options": options}})["data"]
    assert data["name"] == "t.csv"
    assert data["options"] == {**options, "files": [*["x.npy"] * 4, "y.npy"]}


def test_a_report_writes_a_card_for_any_model(report, tmp_path):
    file = report.model_card(tmp_path)
    text = file.read_text()
    assert "library_name" not in text  # nobody knows how it is loaded
    assert "How to use it" not in text
    assert report.model_card(tmp_path) == file  # one of its own is replaced
    file.write_text("# written by hand\n")
    with pytest.raises(ConfigError, match=r"README.md exists and is not a model card of zscope"):
        report.model_card(tmp_path)
    assert file.read_text() == "# written by hand\n"


def test_names_are_no_markup_in_a_card(report, tmp_path):
    about = {**report.about, "data": {**report.about["data"], "name": "<script>|`x`"}}
    hostile = replace(report, title="runs/<img src=x> [a](b)", about=about)
    text = hostile.model_card(tmp_path).read_text()
    head, _, body = text.removeprefix("---\n").partition("\n---\n")
    assert "# \\<img src=x\\> \\[a\\](b)" in body
    assert "\\<script\\>\\|\\`x\\`" in body
    assert not re.search(r"(?<!\\)<(img|script)", body)
    assert '"<script>|`x`"' in head  # quoted, as YAML has it


def test_codes_without_a_model_have_a_card_too(tmp_path):
    codes = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    report = zs.assay(zs.Recording.from_arrays(codes), names=["effective-rank"])
    text = report.model_card(tmp_path).read_text()
    assert "60 codes with 3 latents" in text
    assert "autoencoder with" not in text
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]  # there are no figures


def test_latents_that_are_maps_have_a_table_of_channels(tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder, decoder = torch.nn.Conv2d(1, 2, 4, 2, 1), torch.nn.ConvTranspose2d(2, 1, 4, 2, 1)
        x = torch.rand(16, 1, 8, 8)
    report = zs.assay(zs.wrap(encoder, decoder, example=x), x, names=["latent-statistics"])
    text = report.model_card(tmp_path).read_text()
    assert "latents of 2 × 4 × 4" in text
    assert "Ready for diffusion?" in text
    row = next(line for line in text.splitlines() if line.startswith("| 0 |"))
    mean = next(each["mean"] for each in report.channels if each["channel"] == 0)
    assert row.split("|")[2].strip() == f"{mean:.2f}"


def test_what_cannot_be_saved_for_the_hub(run, report, tmp_path):
    with pytest.raises(RunError, match="is not an empty folder"):
        run.save_for_hub(run.path, report=report)
    with pytest.raises(RunError, match="only in memory.*out=FOLDER"):
        zs.Run(None, {}).save_for_hub(tmp_path / "x")
    shutil.copytree(run.path, tmp_path / "begun")
    content = json.loads((run.path / "run.json").read_text())
    del content["sha256"]
    (tmp_path / "begun" / "run.json").write_text(json.dumps({**content, "status": "interrupted"}))
    with pytest.raises(RunError, match="is not finished .*--resume"):
        zs.store.open_run(tmp_path / "begun").save_for_hub(tmp_path / "x")


TEXTS = ["a: 'b' \"c\" ω", "a\x7f\u2028\ud800b\n"]


@pytest.mark.parametrize("value", [1e-7, 2.5e-12, 1e20, 3.0, -0.25, *TEXTS, True, None])
def test_yaml_has_the_same_values(value):
    yaml = pytest.importorskip("yaml")
    from zscope.report.model_card import _yaml

    content = {"a": [{"b": value, "c": [value, {"d": {}}]}], "e": {"f": []}}
    assert yaml.safe_load("\n".join(_yaml(content))) == content
