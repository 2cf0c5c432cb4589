"""Load a model: from a run, by the import path of a Python object, or the object itself.

Objects and folders of other libraries are recognised by `zscope.adapters`.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from zscope import adapters, hub, store
from zscope import data as datasets
from zscope.adapters.weights import load_weights
from zscope.autoencoder import Autoencoder
from zscope.data.columns import SUFFIXES
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, InterfaceError, RunError
from zscope.results import listed
from zscope.scaling import Scaling
from zscope.wrapping import wrap

__all__ = ["load", "load_options", "run_data", "run_history", "table_options"]


def load(target: Any, *, weights: str | Path | None = None) -> Autoencoder:
    """The model that `target` names, ready to be measured.

    - a run directory written by `zs.train` (or a checkpoint file in one), or the `Run` itself;
    - "package.module:attribute", or "path/to/file.py:attribute": an Autoencoder, a module
      with encode and decode (or encoder and decoder), a pair (encoder, decoder), or a class
      or function that returns one of these when called without arguments;
    - "encoder.onnx,decoder.onnx", or a folder saved by pythae or diffusers;
    - "hf:org/name[@revision][/subfolder]": a run of zscope, or a model of diffusers or pythae, in
      the cache of the Hugging Face hub or downloaded from it; safetensors only, no code;
    - any of these objects themselves, or one of a library in `zs.adapters`: a fitted
      scikit-learn transformer, a model of diffusers, pythae or scvi-tools.

    `weights` is a `.safetensors`, `.pt` or `.pth` file with a state dict for that module; it
    is read without running any code that it may contain (`weights_only=True`).
    """
    owner = f"load: {target if isinstance(target, str | Path) else type(target).__name__}"
    if isinstance(target, str | Path):
        text = str(target)
        if Path(text).suffix == ".safetensors" and Path(text).parent.name == "checkpoints":
            _refuse_weights(owner, weights)
            return from_run(Path(text).parents[1], Path(text))
        if text.endswith(".onnx"):
            _refuse_weights(owner, weights)
            return from_onnx_files(text)
        if hub.is_address(text):
            _refuse_weights(owner, weights)
            return from_hub(text)
        if os.path.isdir(text) or ":" not in text:
            _refuse_weights(owner, weights)
            _refuse_codes(owner, Path(text))
            _refuse_checkpoints(owner, Path(text))
            return from_folder(hub.local_path(text))
        target = import_object(text)
    if isinstance(target, store.Run):
        _refuse_weights(owner, weights)
        if target.model is None and target.path is not None:
            return from_run(target.path)
        target = target.model
    if isinstance(target, type) or (callable(target) and not _is_model(target)):
        target = call_factory(target, owner)
    if weights is not None:
        load_weights(_module_of(target, owner), weights)
    return as_autoencoder(target, owner)


def load_options(options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Options of assays in which each "@TARGET" is the model that it names."""
    return {
        assay: {
            name: load(value[1:]) if isinstance(value, str) and value.startswith("@") else value
            for name, value in values.items()
        }
        for assay, values in options.items()
    }


def run_data(target: Any, *, root: str | Path | None = None) -> Dataset:
    """The data a run was trained on, or its held-out part if the data were split."""
    recipe, name = None, type(target).__name__
    if isinstance(target, store.Run):
        recipe, name = target.config.get("data"), target.name
    if isinstance(target, str | Path):
        folder, name = hub.local_path(target), str(target)
        folder = folder.parent.parent if folder.suffix == ".safetensors" else folder
        if os.path.lexists(folder / "run.json"):  # also one that is a folder or leads nowhere
            recipe = store.open_run(folder).config.get("data")
    if recipe is None:
        raise ConfigError(
            f"load: {name} does not say which data to encode. Name them with --data (in Python "
            "data=): a dataset (zscope data list) or a file, for instance --data images.npy"
        )
    recipe = {key: value for key, value in recipe.items() if value is not None}
    if split := recipe.get("split"):
        recipe["split"] = {**split, "part": len(split["fractions"]) - 1}
    return datasets.from_recipe(recipe, root=root)


def run_history(target: Any) -> list[dict[str, Any]]:
    """The logged steps of a run or of one of its checkpoints; none of other targets."""
    if isinstance(target, str | Path):
        folder = hub.local_path(target)
        if folder != Path(target) and not (folder / "history.jsonl").is_file():
            return []  # repositories on the hub need not have it
        folder = folder.parent.parent if folder.suffix == ".safetensors" else folder
        target = store.open_run(folder) if store.is_run(folder) else None
    return target.history if isinstance(target, store.Run) else []


def table_options(target: Any, file: str) -> dict[str, Any]:
    """The options with which a run on a table also reads another table."""
    own = hub.local_path(target) if isinstance(target, str | Path) else None
    if own is None or Path(file).suffix.lower() not in (".csv", ".tsv", ".parquet"):
        return {}
    own = own.parent.parent if own.suffix == ".safetensors" else own
    recipe = (store.open_run(own).config.get("data") if store.is_run(own) else None) or {}
    options = recipe.get("options", {})
    return {key: options[key] for key in ("features", "categories", "impute") if key in options}


def from_run(path: Path, checkpoint: Path | None = None) -> Autoencoder:
    """The model of a finished run, or as it was at a checkpoint."""
    from zscope import models

    run = store.open_run(path)
    recipe = run.config.get("model")
    if recipe is None:
        raise RunError(
            f"load: the run {path} was trained with a model of your own, which zscope cannot "
            f"build. Use: zs.load('package.module:name', weights='{path}/model.safetensors')"
        )
    model = models.from_recipe(recipe)
    if (scaling := run.config.get("scaling")) is not None:
        try:
            model.scaling = Scaling(**scaling)
        except TypeError as error:
            raise RunError(
                f"load: {path / 'run.json'} has a scaling that cannot be read ({error}). Was it "
                "edited? Restore it, or train again."
            ) from error
    if checkpoint is not None:
        store.read_checkpoint(checkpoint, model)
        return model.eval()
    if not run.finished:
        saved = store.checkpoints(path)
        last = f", or load its last checkpoint: {saved[-1][1]}" if saved else ""
        command = f"zscope train --out {path} --resume"
        if run.config.get("data") is None:  # without a recipe the command line cannot load them
            command = f"the same call of zs.train with out={str(path)!r} and resume=True"
        raise RunError(
            f"load: the run {path} is not finished ({run.status}, step {run.step} of "
            f"{run.config.get('steps')}). Resume with: {command}{last}"
        )
    file = path / "model.safetensors"
    tensors, _ = store.read_tensors(file)
    store.fill(model, tensors, file)
    return model.eval()


def from_folder(folder: Path) -> Autoencoder:
    """A run, or a model that another library has saved."""
    adapted = None if store.is_run(folder) else adapters.recognise_folder(folder)
    if adapted is not None:
        return adapted
    try:
        return from_run(folder)
    except RunError as error:
        if advice := hub.hint(folder):
            raise RunError(f"{error}{advice}") from None
        raise


def from_hub(text: str) -> Autoencoder:
    """A model on the Hugging Face hub: of zscope, diffusers or pythae."""
    folder = hub.local_path(text)
    model = from_run(folder) if store.is_run(folder) else adapters.recognise_folder(folder)
    if model is None:
        raise InterfaceError(
            f"load: {text}: its config.json does not say which class of diffusers it is "
            "(_class_name, _diffusers_version), so zscope cannot build it. If it is a module of "
            f"your own: zs.load('package.module:name', weights=FILE) with the file in {folder}"
        )
    return model


def from_onnx_files(text: str) -> Autoencoder:
    """Two ONNX files, encoder and decoder."""
    files = [part.strip() for part in text.split(",")]
    if len(files) != 2:
        raise InterfaceError(
            f"load: {text} names {len(files)} file(s); expected an encoder and a decoder, with a "
            "comma between them: encoder.onnx,decoder.onnx"
        )
    autoencoder: Autoencoder = adapters.from_onnx(*files)
    return autoencoder


def import_object(text: str) -> Any:
    """The object at "package.module:attribute" or "file.py:attribute"."""
    place, _, attribute = text.rpartition(":")
    file = None
    if place.endswith(".py"):
        file = Path(place).resolve()
        if not file.is_file():
            raise InterfaceError(
                f"load: there is no file {place}. Give the path of a Python file and, after a "
                "colon, the name of the model in it."
            )
        folder, place = str(file.parent), file.stem
    else:
        folder = os.getcwd()
    # As `python -m` does: modules in the current folder can be imported.
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(place)
        if file is not None and Path(module.__file__ or "").resolve() != file:
            module = _import_file(file)  # another module has that name already
    except Exception as error:
        raise InterfaceError(
            f"load: importing {place!r} raised {type(error).__name__}: {error}. Is it installed "
            "in this environment, or in the current folder?"
        ) from error
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            from zscope.errors import did_you_mean

            public = [name for name in dir(value) if not name.startswith("_")]
            raise InterfaceError(
                f"load: {place!r} has no {part!r}. {did_you_mean(part, public[:50])}"
            )
        value = getattr(value, part)
    return value


def _import_file(file: Path) -> ModuleType:
    """A file as a module with a unique name."""
    name = f"{file.stem}_{sha256(str(file).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def call_factory(factory: Any, owner: str) -> Any:
    """The result of calling a class or function without arguments."""
    try:
        return factory()
    except Exception as error:
        raise InterfaceError(
            f"{owner}: calling {getattr(factory, '__name__', factory)}() without arguments raised "
            f"{type(error).__name__}: {error}. Write a small function without arguments that "
            "returns the model or the pair (encoder, decoder), and load that."
        ) from error


def as_autoencoder(target: Any, owner: str) -> Autoencoder:
    """An Autoencoder for an object that has an encoder and a decoder in one of the usual forms."""
    if isinstance(target, Autoencoder):
        return target
    if isinstance(target, tuple | list) and len(target) == 2:
        return wrap(*target)
    if (adapted := adapters.recognise(target)) is not None:
        return adapted
    if parts := _parts(target):
        wrapped = wrap(*parts)
        wrapped.name = type(target).__name__
        return wrapped
    raise InterfaceError(
        f"{owner}: a {type(target).__name__} is neither an Autoencoder, nor a pair (encoder, "
        "decoder), and has no encode and decode. Wrap it: zs.wrap(encoder, decoder)."
    )


def _is_model(target: Any) -> bool:
    """Models of Keras and others can be called too; what makes a model has no parts yet."""
    return isinstance(target, nn.Module) or _parts(target) is not None


def _parts(target: Any) -> tuple[Any, Any] | None:
    """The encoder and the decoder of an object that has both under their usual names."""
    for names in (("encode", "decode"), ("encoder", "decoder")):
        first, second = (getattr(target, name, None) for name in names)
        if callable(first) and callable(second):
            return first, second
    return None


def _module_of(target: Any, owner: str) -> nn.Module:
    if isinstance(target, nn.Module):
        return target
    raise InterfaceError(
        f"{owner}: weights= needs a torch module, but this is a {type(target).__name__}. Give the "
        "module (its class or a function that builds it), or load the weights in your function."
    )


def _refuse_weights(owner: str, weights: Any) -> None:
    if weights is not None:
        raise InterfaceError(
            f"{owner}: weights= is for a module of your own; this target has its own weights. "
            "Leave weights out, or give the module as 'package.module:attribute'."
        )


def _refuse_checkpoints(owner: str, folder: Path) -> None:
    """Name the checkpoints in the folder of a run that has them, where one of them is meant."""
    if folder.name != "checkpoints" or not store.is_run(folder.parent):
        return
    saved = [file.name for _, file in store.checkpoints(folder.parent)]
    if not saved:
        raise RunError(
            f"{owner} is the folder of the checkpoints of a run, and there are none: they are "
            f"deleted when a run is finished. Use the run itself, {folder.parent}, or keep some "
            "with: zscope train --snapshot STEP"
        )
    raise RunError(
        f"{owner} holds {len(saved)} checkpoint{'' if len(saved) == 1 else 's'} of a run, not a "
        f"run: {listed(saved)}. Name one of them, for instance {folder / saved[-1]}, or the run: "
        f"{folder.parent}"
    )


def _refuse_codes(owner: str, file: Path) -> None:
    if file.suffix.lower() in SUFFIXES and not file.is_dir():
        raise InterfaceError(
            f"{owner} is a file of codes or data, and a model is needed here: a run, or "
            f"package.module:attribute. For codes alone use: zscope assay {file}"
        )
