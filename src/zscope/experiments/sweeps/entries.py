"""The file of a plan: its parts, and the fields of each run that it describes.

What the fields mean is decided in `plan`; here they are only read, by name and with their place.
"""

import itertools
import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from zscope import models
from zscope.errors import ConfigError, ZscopeError, did_you_mean
from zscope.experiments.fields import OWN, SETTINGS, listed_fields
from zscope.files import as_path, open_regular

__all__ = ["PARTS", "Entries", "read_file"]

PARTS = ("train", "grid", "run", "assay")
MOST = 1_000_000
"""Runs of a plan."""


def read_file(plan: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of the plan for messages, and its content."""
    if isinstance(plan, Mapping):
        return "sweep", {str(key): _as_json(value) for key, value in plan.items()}
    path = as_path("sweep", plan)
    try:
        with open_regular(path, "sweep", ConfigError) as file:
            text = file.read().decode()
        content = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(
            f"sweep: {path} cannot be read ({error.strerror}). Give the file that describes the "
            "sweep; `zscope sweep --help` shows one."
        ) from None
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
        raise ConfigError(
            f"sweep: {path} is not {kind} ({error}). Texts need quotes, and a field with a dot "
            'in its name too: "options.beta" = [1, 4]'
        ) from None
    if not isinstance(content, dict):
        raise ConfigError(
            f"sweep: {path} contains a {type(content).__name__}; expected [grid], [[run]] and "
            "so on."
        )
    return f"sweep: {path}", content


def _as_json(value: Any) -> Any:
    """A value of a dict as a file would have it: lists for tuples and arrays, plain numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [_as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    return str(value) if isinstance(value, Path) else value


class Entries:
    """The fields of each run, and where they come from."""

    def __init__(self, name: str, content: dict[str, Any]) -> None:
        self.name = name
        self.shared = self._table("[train]", content.get("train", {}))
        grid = self._table("[grid]", content.get("grid", {}))
        self.grid = {key: self._values(key, value) for key, value in grid.items()}
        self.varying = [key for key, values in self.grid.items() if len(values) > 1]
        runs = content.get("run", [])
        runs = [runs] if isinstance(runs, dict) else runs
        if not isinstance(runs, list):
            raise ConfigError(f"{name}: [[run]] is {runs!r:.60}; expected tables: [[run]]")
        self.single = [self._table(f"[[run]] {k}", run) for k, run in enumerate(runs, 1)]
        count = 1
        for values in self.grid.values():
            count *= len(values)
        if count > MOST:
            raise ConfigError(
                f"{name}: the grid has {count:,} runs, more than {MOST:,}. Divide it into several "
                "sweeps; with the same --runs they share their runs."
            )

    def __iter__(self) -> Any:
        if self.grid:
            for values in itertools.product(*self.grid.values()):
                chosen = dict(zip(self.grid, values, strict=True))
                named = {k: chosen[k] for k in self.varying or self.grid}
                yield {**self.shared, **chosen}, f"[grid] {listed_fields(named)}"
        for number, run in enumerate(self.single, 1):
            yield self._completed(run), f"[[run]] {number}: {listed_fields(run)}"

    def _completed(self, run: dict[str, Any]) -> dict[str, Any]:
        firsts = {key: values[0] for key, values in self.grid.items()}
        fields = {**firsts, **self.shared, **run}
        model = fields.get("model")
        known = None
        with suppress(ZscopeError):  # what is no model is refused when the run is made
            known = models.entry(model).options if isinstance(model, str) else None
        if known is not None:
            fields = {
                key: value
                for key, value in fields.items()
                if not key.startswith("options.")
                or key in run
                or key in self.shared
                or key.removeprefix("options.") in known
            }
        return fields

    def _table(self, place: str, table: Any) -> dict[str, Any]:
        if not isinstance(table, dict):
            raise ConfigError(f"{self.name}: {place} is {table!r:.60}; expected fields by name.")
        pairs: list[tuple[str, Any]] = []
        for key, value in table.items():
            if key == "options" and isinstance(value, dict):
                pairs += [(f"options.{inner}", each) for inner, each in value.items()]
            elif key == "start" and isinstance(value, dict):
                pairs.append((key, self._table(f"{place} start", value)))
            else:
                pairs.append((key, value))
        flat: dict[str, Any] = {}
        for key, value in ((key.replace("-", "_"), value) for key, value in pairs):
            if key in flat:
                raise ConfigError(
                    f"{self.name}: {place} gives {key} twice, as {flat[key]!r:.60} and as "
                    f"{value!r:.60}. Remove one of them."
                )
            flat[key] = value
        known = (*OWN, *SETTINGS)
        for key in flat:
            if key not in known and not key.startswith("options."):
                hint = did_you_mean(key, [*known, "options.NAME"])
                raise ConfigError(
                    f"{self.name}: {place} has a field {key!r}, which no run has. {hint} Options "
                    f'of a model are written "options.{key}".'
                )
        return flat

    def _values(self, key: str, values: Any) -> list[Any]:
        choices: list[Any] = values if isinstance(values, list) else [values]
        if not choices:
            raise ConfigError(f"{self.name}: [grid] {key} is an empty list; give some values.")
        if key == "start":
            return [self._table("[grid] start", each) if each else None for each in choices]
        return choices
