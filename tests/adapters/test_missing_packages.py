"""An adapter whose library is missing says which one to install."""

import builtins
import importlib
import sys

import pytest

import zscope as zs
from zscope import adapters
from zscope.adapters import MissingPackage
from zscope.errors import InterfaceError


@pytest.fixture
def without(monkeypatch):
    """No import of the given packages succeeds."""

    def hide(*packages):
        real = builtins.__import__

        def refuse(name, *args, **options):
            if name.partition(".")[0] in packages:
                raise ImportError(f"No module named {name!r}")
            return real(name, *args, **options)

        for name in [n for n in sys.modules if n.partition(".")[0] in packages]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(builtins, "__import__", refuse)

    return hide


def test_onnx_files_need_onnxruntime(without):
    without("onnxruntime")
    with pytest.raises(MissingPackage, match="'onnxruntime'.*pip install onnxruntime"):
        zs.load("encoder.onnx,decoder.onnx")


def test_a_saved_folder_needs_the_library_that_saved_it(without, tmp_path):
    without("pythae", "diffusers")
    (tmp_path / "model_config.json").write_text('{"name": "VAEConfig"}')
    with pytest.raises(MissingPackage, match="'pythae'.*pip install pythae"):
        zs.load(tmp_path)
    (tmp_path / "model_config.json").unlink()
    (tmp_path / "config.json").write_text('{"_diffusers_version": "0", "_class_name": "X"}')
    with pytest.raises(MissingPackage, match="'diffusers'.*pip install diffusers"):
        zs.load(tmp_path)


def test_the_callback_needs_lightning(without, monkeypatch):
    without("lightning", "pytorch_lightning")
    monkeypatch.delitem(sys.modules, "zscope.experiments.lightning", raising=False)
    monkeypatch.delitem(adapters.__dict__, "LatentMonitor", raising=False)
    with pytest.raises(MissingPackage, match="LatentMonitor.*pip install lightning"):
        importlib.import_module("zscope.adapters").LatentMonitor  # noqa: B018


def test_a_folder_of_something_else_is_no_model(tmp_path):
    (tmp_path / "config.json").write_text("not json")
    with pytest.raises(InterfaceError, match="config.json cannot be read as JSON"):
        adapters.recognise_folder(tmp_path)
    (tmp_path / "config.json").write_text('{"model": 1}')
    assert adapters.recognise_folder(tmp_path) is None
    assert adapters.recognise(object()) is None


def test_names_of_adapters_are_listed_and_others_refused():
    assert {"from_sklearn", "from_onnx", "LatentMonitor"} <= set(dir(adapters))
    with pytest.raises(AttributeError, match="from_nothing"):
        adapters.from_nothing  # noqa: B018
