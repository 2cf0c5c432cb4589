"""Results stored with a run, so that nothing is measured twice.

    RUN/assays/NAME.json          the result as plain values, for people and other programs
    RUN/assays/NAME.kept.npz      the same with its types, and everything it depends on
    RUN/scores.json               the scores of all of them, for tables of many runs

A stored result is reused when its key is the same: options, seed, codes, factors, weights,
version of zscope and source of the assay. Reading one constructs result classes of zscope and
nothing else; no code in a file is ever executed.
"""

import dataclasses
import io
import json
import math
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.autoencoder import Autoencoder
from zscope.errors import RunError
from zscope.files import lock, sweep, write_whole
from zscope.results import Result, name_result, name_units
from zscope.store import Run, is_run, open_run, read_json, read_npz, weights_checksum, write_json

__all__ = ["KeptResults", "Request", "note_scores", "read_scores", "results_of", "scores_of"]

SCORES = "scores.json"
SETS = ("active", "mixed", "passive", "causal", "collapsed")
"""Fields of results that are sets of latents; tables show how many there are."""

Request = dict[str, Any]
"""What was asked of one assay: its name, options (as text), samples, seed and resamples."""


def scores_of(result: Result) -> tuple[dict[str, float], dict[str, list[float]]]:
    """The scalar scores of a result by name ("" for one without), and their intervals."""
    scores: dict[str, float] = {}
    intervals: dict[str, list[float]] = {}
    for measure in result.measures():
        if math.isfinite(measure.value):
            scores[measure.name] = float(measure.value)
            if not isinstance(measure.interval, str):
                intervals[measure.name] = [float(end) for end in measure.interval]
    for name in SETS if not scores else ():  # a score that lists the latents it used has no counts
        latents = getattr(result, name, None)
        if isinstance(latents, list):
            scores[name] = float(len(latents))
    return scores, intervals


def read_scores(path: Path) -> list[dict[str, Any]]:
    """The entries of a run's scores.json: one for each request, the newest last."""
    if not (path / SCORES).is_file():
        return []
    entries = read_json(path / SCORES).get("entries")
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def note_scores(
    path: Path,
    outcomes: Mapping[str, Result | str],
    requests: Mapping[str, Request],
    *,
    samples: int,
    used: int | None,
    stamp: Mapping[str, str],
) -> None:
    """Add to scores.json what each assay gave: its result, or the reason why it has none.

    `requests` say what was asked of each, `used` how many latents are in use in the recording
    (`recording.used`), `stamp` by which version and source of zscope. An earlier entry for the
    same request is replaced.
    """
    weights = weights_checksum(path / "model.safetensors")
    fresh = []
    for name, outcome in outcomes.items():
        scores, intervals = ({}, {}) if isinstance(outcome, str) else scores_of(outcome)
        fresh.append(
            {
                **requests[name],
                "samples": samples,
                "used": used,
                "scores": scores,
                "intervals": intervals,
                "missing": outcome if isinstance(outcome, str) else None,
                **stamp,
                "weights": weights,
                "time": time.time(),
            }
        )
    with lock(path / "assays", "assay", wait=True):
        asked = [requests[name] for name in outcomes]
        others = [
            entry
            for entry in read_scores(path)
            if not any(all(entry.get(k) == v for k, v in each.items()) for each in asked)
        ]
        write_json(path / SCORES, {"entries": [*others, *fresh]}, indent=None)


def results_of(
    target: Any, model: Autoencoder | None, *, fresh: bool = False, own_data: bool = False
) -> "KeptResults | None":
    """The stored results of a run, to be reused unless `fresh`; None for other targets.

    `own_data`: measured on the data of the run itself, so that tables of runs may show them.
    """
    target = target.path if isinstance(target, Run) else target
    if not isinstance(target, str | Path) or not is_run(target):
        return None
    return KeptResults(open_run(target), model, fresh=fresh, own_data=own_data)


class KeptResults:
    """The stored results of one run. `fresh`: reuse none of them, only replace them.

    Results that refer to the model of the run refer to `model` when they are read again.
    """

    def __init__(
        self,
        run: Run,
        model: Autoencoder | None,
        *,
        fresh: bool = False,
        own_data: bool = False,
    ) -> None:
        if run.path is None:
            raise RunError("kept: this run is only in memory. Train with out=FOLDER to save it.")
        self._run, self._model, self._fresh, self._own_data = run, model, fresh, own_data
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

    def note(
        self,
        outcomes: Mapping[str, Result | str],
        requests: Mapping[str, Request],
        *,
        samples: int,
        used: int | None,
        stamp: Mapping[str, str],
    ) -> None:
        """Write the scores to the run's scores.json, if they are of the data of the run."""
        if self._own_data and self._run.path is not None:
            about: dict[str, Any] = {"samples": samples, "used": used, "stamp": stamp}
            note_scores(self._run.path, outcomes, requests, **about)

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
        content: dict[str, Any] = {
            "object": f"{kind.__module__}:{kind.__qualname__}",
            "fields": fields,
        }
        if isinstance(value, Result) and value.unit != "latent":  # not among the fields
            content["units"] = [value.unit, list(value.unit_names), value.rows_text]
        return content

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
        fields = {key: self._decode(item, arrays) for key, item in value["fields"].items()}
        return name_units(kind(**fields), *value.get("units", ("latent", ())))
