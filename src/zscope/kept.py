"""Results stored with a run, so that nothing is measured twice.

    RUN/assays/NAME.json          the result as plain values, for people and other programs
    RUN/assays/NAME.kept.npz      the same with its types, and everything it depends on

A stored result is reused when its key is the same: options, seed, codes, factors, weights,
version of zscope and source of the assay. Reading one constructs result classes of zscope and
nothing else; no code in a file is ever executed.
"""

import dataclasses
import io
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.autoencoder import Autoencoder
from zscope.errors import RunError
from zscope.files import lock, sweep, write_whole
from zscope.results import Result, name_result
from zscope.store import Run, is_run, open_run, read_npz

__all__ = ["KeptResults", "results_of"]


def results_of(
    target: Any, model: Autoencoder | None, *, fresh: bool = False
) -> "KeptResults | None":
    """The stored results of a run, to be reused unless `fresh`; None for other targets."""
    target = target.path if isinstance(target, Run) else target
    if not isinstance(target, str | Path) or not is_run(target):
        return None
    return KeptResults(open_run(target), model, fresh=fresh)


class KeptResults:
    """The stored results of one run. `fresh`: reuse none of them, only replace them.

    Results that refer to the model of the run refer to `model` when they are read again.
    """

    def __init__(self, run: Run, model: Autoencoder | None, *, fresh: bool = False) -> None:
        if run.path is None:
            raise RunError("kept: this run is only in memory. Train with out=FOLDER to save it.")
        self._run, self._model, self._fresh = run, model, fresh
        self._folder = run.path / "assays"
        sweep(self._folder)

    def get(self, name: str, key: dict[str, Any]) -> Result | None:
        """The stored result if its key is the same; None if not, or if its file is damaged."""
        if self._fresh:
            return None
        file = self._folder / f"{name}.kept.npz"
        try:
            arrays = read_npz(file)
            content = json.loads(str(arrays["content"]))
            if content["key"] != key:
                return None
            result = self._decode(content["result"], arrays)
        except Exception:  # whatever is wrong with the file, the assay can be run again
            return None
        return name_result(result, name) if isinstance(result, Result) else None

    def put(self, name: str, key: dict[str, Any], result: Result) -> None:
        """Store a result, if everything in it can be written to a file."""
        # One process at a time: a result is several files, which belong together.
        with lock(self._folder, "assay", wait=True):
            self._run.save_result(name, result)
            arrays: dict[str, np.ndarray] = {}
            try:
                content = {"key": key, "result": self._encode(result, arrays)}
            except TypeError:
                return
            memory = io.BytesIO()
            np.savez_compressed(memory, content=np.array(json.dumps(content)), **arrays)  # type: ignore[arg-type]
            write_whole(self._folder / f"{name}.kept.npz", memory.getvalue())

    def _encode(self, value: Any, arrays: dict[str, np.ndarray]) -> Any:
        """JSON with a tag for every type that JSON does not have; arrays go to `arrays`."""
        value = value.item() if isinstance(value, np.generic) else value
        if value is None or isinstance(value, bool | int | str | float):
            return value
        if isinstance(value, Autoencoder) and value is self._model:
            return {"model": True}
        if isinstance(value, Tensor | np.ndarray):
            place = f"array{len(arrays)}"
            plain = value.detach().cpu() if isinstance(value, Tensor) else value
            arrays[place] = plain.numpy() if isinstance(plain, Tensor) else plain
            return {"tensor" if isinstance(value, Tensor) else "array": place}
        if isinstance(value, list | tuple):
            tag = "list" if isinstance(value, list) else "tuple"
            return {tag: [self._encode(item, arrays) for item in value]}
        if isinstance(value, dict):
            pairs = [[self._encode(part, arrays) for part in item] for item in value.items()]
            return {"dict": pairs}
        kind = type(value)
        if not dataclasses.is_dataclass(value) or not kind.__module__.startswith("zscope."):
            raise TypeError(f"kept: a {kind.__name__} cannot be stored")
        fields = {
            field.name: self._encode(getattr(value, field.name), arrays)
            for field in dataclasses.fields(value)
        }
        return {"object": f"{kind.__module__}:{kind.__qualname__}", "fields": fields}

    def _decode(self, value: Any, arrays: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "object" in value:
            return self._object(value, arrays)
        ((tag, content),) = value.items()
        if tag == "model":
            return self._model
        if tag in ("tensor", "array"):
            array = arrays[content]
            return torch.from_numpy(array) if tag == "tensor" else array
        if tag == "dict":
            return {self._decode(k, arrays): self._decode(v, arrays) for k, v in content}
        items = [self._decode(item, arrays) for item in content]
        return items if tag == "list" else tuple(items)

    def _object(self, value: dict[str, Any], arrays: Any) -> Any:
        module, _, name = value["object"].partition(":")
        if not module.startswith("zscope.assays."):
            raise ValueError(f"kept: {module} has no results")
        kind = getattr(import_module(module), name)
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            raise ValueError(f"kept: {name} is not a result")
        return kind(**{key: self._decode(item, arrays) for key, item in value["fields"].items()})
