"""Models on the Hugging Face hub, from its cache or from a small hub on this machine."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import small_hub
import torch
from small_hub import COMMIT, keep

import zscope as zs
from zscope import hub
from zscope.cli import main
from zscope.errors import ConfigError, InterfaceError, MissingExtra, RunError, ZscopeError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    return small_hub.empty_cache(tmp_path / "cache", monkeypatch)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    data = zs.data.load("helix", samples=64)
    model = zs.models.build("beta-vae", shape=data.shape, latents=2, hidden=(4,), seed=1)
    return zs.train(model, data, steps=2, batch=16, out=tmp_path_factory.mktemp("runs") / "mine")


@pytest.fixture
def published(run, tmp_path):
    """The files of a run as a repository has them, with some that nobody needs."""
    folder = tmp_path / "repository"
    shutil.copytree(run.path, folder)
    (folder / "README.md").write_text("# a model\n")
    (folder / "optimiser.bin").write_bytes(b"a pickle")
    (folder / "modeling.py").write_text("raise SystemExit('code was run')\n")
    return folder


@pytest.fixture
def online(published, monkeypatch):
    """The paths that a hub on this machine is asked for."""
    with small_hub.serve(published, monkeypatch) as asked:
        yield asked


def same(model: zs.Autoencoder, other: zs.Autoencoder) -> bool:
    weights, others = model.state_dict(), other.state_dict()
    return weights.keys() == others.keys() and all(
        torch.equal(weights[name], others[name]) for name in weights
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hf:org/name", ("org/name", "main", "")),
        ("hf:org/name@v1.0", ("org/name", "v1.0", "")),
        ("hf:org/na.me/vae", ("org/na.me", "main", "vae")),
        ("hf:org/name@refs%2Fpr%2F1/a/b/", ("org/name", "refs/pr/1", "a/b")),
        ("hf://org/name@v1", ("org/name", "v1", "")),
    ],
)
def test_an_address_has_parts(text, parts):
    address = hub.Address.parse(text)
    assert (address.repository, address.revision, address.subfolder) == parts
    assert hub.Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["hf:", "hf:name", "hf:/org/name", "hf:org/name/../x", "hf:a/b@",
                                  "hf:org/name@v1@v2", "hf:../x", "hf:a/b@..%2Fc",
                                  "hf:a/b@%2Fetc", "hf:a/b/%2e%2e/c", r"hf:a/b/..\c", "hf:a/b..c",
                                  "hf:a--b/c", "hf:a/b\0c", "hf:a/b/" + 300 * "c"])  # fmt: skip
def test_an_address_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match=r"expected hf:org/name\[@revision\]\[/subfolder\]"):
        zs.load(text)


def test_a_run_in_the_cache_is_loaded_and_measured(cache, published, run):
    keep(cache, "org/name", published)
    for target in ("hf:org/name", f"hf:org/name@{COMMIT}", "org/name"):
        assert same(zs.load(target), run.model)
    report = zs.assay("hf:org/name", names=["variable-types"], samples=64)  # on the run's own data
    assert report.about["data"]["name"] == "helix"
    assert [row["step"] for row in report.history] == [row["step"] for row in run.history]
    assert not any(cache.rglob("assays")), "nothing is written to the cache"
    with pytest.raises(InterfaceError, match="weights= is for a module of your own"):
        zs.load("hf:org/name", weights="x.safetensors")


def test_a_run_without_its_history_is_measured_too(cache, published):
    (published / "history.jsonl").unlink()
    keep(cache, "org/name", published)
    assert zs.assay("hf:org/name", names=["variable-types"], samples=64).history == []


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("data", "options"), {"root": "/etc"}, "has root='/etc' among the options of helix"),
        (("data",), {"leave_out": {"x": 1}}, "leaves out {'x': 1}, which are no values"),
        (("scaling",), {"evil": 1}, "a scaling that cannot be read"),
        (("model", "options"), {"hidden": [10**9]}, "needs .* of memory, and .* are available"),
        (("model",), {"shape": [10**6] * 3}, "too large to be built"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(cache, published, place, value, reason):
    content = json.loads((published / "run.json").read_text())
    del content["sha256"]
    scaling = {"mean": [0.0] * 3, "scale": [1.0] * 3, "names": [], "categories": {}}
    part = content["config"] = {**content["config"], "scaling": scaling}
    for key in place:
        part = part[key]
    part.update(value)
    (published / "run.json").write_text(json.dumps(content))
    keep(cache, "org/name", published)
    with pytest.raises(ZscopeError, match=reason):
        zs.assay("hf:org/name", names=["variable-types"], samples=8)


def test_commands_take_an_address(cache, published, monkeypatch, capsys):
    keep(cache, "org/name", published)
    words = ["zscope", "assay", "hf:org/name", "variable-types", "--samples", "64", "--json"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert "variable-types" in json.loads(capsys.readouterr().out)["assays"]


def test_other_folders_and_revisions_in_the_cache(cache, published, run, tmp_path):
    (tmp_path / "outer").mkdir()
    published.rename(tmp_path / "outer" / "small")
    keep(cache, "org/name", tmp_path / "outer", revision="v1")
    assert same(zs.load("hf:org/name@v1/small"), run.model)
    with pytest.raises(InterfaceError, match="Name one of them: hf:org/name@v1/small"):
        zs.load("hf:org/name@v1")
    with pytest.raises(InterfaceError, match="no files in smal. Its folders: small"):
        zs.load("hf:org/name@v1/smal")
    with pytest.raises(InterfaceError, match="not in the cache.*HF_HUB_OFFLINE"):
        zs.load("hf:org/name")  # another revision
    with pytest.raises(RunError, match="there is no run at org/name.*load it as hf:org/name"):
        zs.load("org/name")


def test_the_cache_is_where_huggingface_hub_has_it(tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hub.cache_folder() == tmp_path / "huggingface" / "hub"
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    assert hub.cache_folder() == tmp_path / "home" / "hub"
    monkeypatch.setenv("HUGGINGFACE_HUB_CACHE", "~/old")
    assert hub.cache_folder() == Path.home() / "old"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "new"))
    assert hub.cache_folder() == tmp_path / "new"


def test_a_path_comes_before_a_name_on_the_hub(cache, published, run, tmp_path, monkeypatch):
    keep(cache, "org/name", published)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    with pytest.raises(RunError) as caught:
        zs.load("org/name")
    assert "hf:" not in str(caught.value)


def test_what_is_not_in_the_cache_is_downloaded_without_pickles_and_code(
    online, cache, published, run
):
    assert same(zs.load("hf:org/name"), run.model)
    folder = hub.local_path("hf:org/name")
    assert cache in folder.parents
    assert {file.name for file in folder.iterdir()} == {
        "run.json", "model.safetensors", "history.jsonl",
    }  # fmt: skip
    assert not any(".bin" in path or ".py" in path for path in online)
    count = len(online)
    assert same(zs.load("hf:org/name"), run.model)  # the second time without asking
    assert len(online) == count
    assert zs.store.open_run(folder).history == run.history


def test_the_hub_says_what_it_does_not_have(online):
    with pytest.raises(InterfaceError, match=r"no repository org/other that you may see.*hf auth"):
        zs.load("hf:org/other")
    with pytest.raises(InterfaceError, match="no revision v7. Name a branch"):
        zs.load("hf:org/name@v7")


def test_a_hub_out_of_reach_is_reported(monkeypatch, cache):
    from huggingface_hub import constants

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InterfaceError, match="could not be downloaded .*connected to the hub"):
        zs.load("hf:org/name")


def test_a_cache_that_cannot_be_written_to_is_named(online, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InterfaceError, match=r"file/cache cannot be written to \(Not a directory"):
        zs.load("hf:org/name")


def test_without_huggingface_hub_the_cache_serves_and_the_package_is_named(
    cache, published, run, monkeypatch
):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # its import fails
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with pytest.raises(MissingExtra, match=r"not in the cache.*pip install 'zscope\[hub\]'"):
        zs.load("hf:org/name")
    keep(cache, "org/name", published)
    assert same(zs.load("hf:org/name"), run.model)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["config.json", "diffusion_pytorch_model.bin"], "can run code when it is opened .*model"),
        (["model_config.json", "model.pt"], r"can run code when it is opened \(model.pt\)"),
        (["config.json", "modeling.py", "model.safetensors"], r"code of its own \(modeling.py\)"),
        (["model_config.json", "model.safetensors", "encoder.pkl"], r"of its own \(encoder.pkl\)"),
        (["config.json", "diffusion_pytorch_model.safetensors", "model_config.json", "model.pt"],
         r"can run code when it is opened \(model.pt\)"),
        (["config.json", "model.safetensors"], "neither a run of zscope.*weights='model.safet"),
        (["a/run.json", "a/model.safetensors", "b/run.json"], "others. Name one .*: hf:o/n/a$"),
        ([], "there are no files in this repository. Is the name right"),
    ],
)  # fmt: skip
def test_a_repository_without_a_model_is_refused_with_the_reason(names, reason):
    with pytest.raises(InterfaceError, match=reason):
        hub.choose(hub.Address("o/n"), names)


def test_of_a_pipeline_the_autoencoder_is_chosen_and_nothing_else():
    pipeline = [
        "model_index.json", "unet/config.json", "unet/diffusion_pytorch_model.safetensors",
        "vae/config.json", "vae/diffusion_pytorch_model.safetensors",
        "vae/diffusion_pytorch_model.bin", "vae/diffusion_pytorch_model.fp16.safetensors",
    ]  # fmt: skip
    chosen = ["vae/config.json", "vae/diffusion_pytorch_model.safetensors"]
    assert hub.choose(hub.Address("o/n"), pipeline) == ("vae", chosen)
    assert hub.choose(hub.Address("o/n", subfolder="vae"), pipeline) == ("vae", chosen)
    parts = [f"diffusion_pytorch_model-0000{k}-of-00002.safetensors" for k in (1, 2)]
    large = ["config.json", "diffusion_pytorch_model.safetensors.index.json", *parts]
    assert sorted(hub.choose(hub.Address("o/n"), large)[1]) == sorted(large)
    with pytest.raises(InterfaceError, match="no model that zscope can read"):
        hub.choose(hub.Address("o/n"), large[:-1])  # as in a cache that has only a part


def test_settings_that_name_no_class_of_diffusers_are_refused(cache, tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "config.json").write_text('{"hidden": 3}')
    (folder / "diffusion_pytorch_model.safetensors").write_bytes(b"")
    keep(cache, "org/name", folder)
    with pytest.raises(InterfaceError, match="does not say which class of diffusers"):
        zs.load("hf:org/name")
