"""The plan of a sweep: a file of a few lines becomes a list of runs, all of them valid.

    [train]                           # shared by all runs
    steps = 2000
    rate = 1e-3

    [grid]                            # the product of these lists
    model = ["beta-vae", "beta-tcvae"]
    data = ["sprites?resolution=32", "rooms"]
    "options.beta" = [1, 2, 4]
    seed = [0, 1, 2]

    [[run]]                           # and single ones
    model = "ae"

    [assay]                           # measured on every finished run
    names = ["variable-types", "mig"]
    samples = 5000

TOML or JSON. Fields are those of the training configuration, and model, data (with options
after a question mark), latents, options.NAME of the model, epochs, split and preset. A single
run takes what it does not name from [train], or else the first value of the grid; of the
grid's options only those that its model has. The field seed sets the initial weights too.

Which runs are trained together as one ensemble is decided here, by the configurations alone.
"""

import itertools
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from zscope import data as datasets
from zscope import models
from zscope.collection.columns import WORDS
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, ZscopeError, did_you_mean
from zscope.experiments.sweeps.address import address, run_name
from zscope.experiments.sweeps.names import parse_name
from zscope.experiments.sweeps.request import Measured, read_request
from zscope.experiments.training import with_defaults
from zscope.files import as_path, open_regular
from zscope.recording import Recording, record
from zscope.sampling import whole
from zscope.training.checks import check_first_batch
from zscope.training.config import TrainConfig
from zscope.training.ensemble import can_train_together
from zscope.training.feeding import Feed
from zscope.training.loop import configure, pick_device

__all__ = ["Entry", "Plan", "PlannedRun", "read_plan", "snapshots"]

PARTS = ("train", "grid", "run", "assay")
OWN = ("model", "data", "latents", "epochs", "split", "preset")
SETTINGS = tuple(k for k in TrainConfig.model_fields if k not in ("model", "data", "scaling"))
TOGETHER = 10
"""Runs that are trained together at most."""
SMALL = 250_000
"""Weights of a model up to which several are trained together: beyond, arithmetic dominates."""
MOST = 1_000_000
"""Runs of a plan."""


class Entry(NamedTuple):
    """What the progress of a run is judged by."""

    name: str
    steps: int
    shape: str  # runs of equal shape take the same time for each step
    snapshots: list[int]


@dataclass(frozen=True)
class PlannedRun:
    """One run: its configuration, its address and the place in the file that it comes from."""

    name: str
    address: str
    config: TrainConfig
    fields: dict[str, Any]
    line: str
    shape: str
    small: bool  # whether it may be trained together with others

    @property
    def entry(self) -> Entry:
        config = self.config
        return Entry(self.name, config.steps, self.shape, snapshots(config))

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "address": self.address,
            "line": self.line,
            "fields": self.fields,
            "shape": self.shape,
            "snapshots": snapshots(self.config),
        }


def snapshots(config: TrainConfig) -> list[int]:
    """The steps whose checkpoints a run keeps."""
    every = config.snapshot_every
    regular = [] if every is None else range(every, config.steps + 1, every)
    return sorted({*config.snapshots, *regular})


@dataclass(frozen=True)
class Plan:
    """What a sweep trains and measures."""

    source: dict[str, Any]
    runs: list[PlannedRun]
    groups: list[list[str]]
    assay: Measured | None
    root: str | None = None

    @cached_property
    def by_name(self) -> dict[str, PlannedRun]:
        return {run.name: run for run in self.runs}

    @cached_property
    def files(self) -> list[Path]:
        """The files that workers must be able to read: data of one's own, and `root`."""
        recipes = [run.config.data.model_dump() for run in self.runs if run.config.data is not None]
        own = {file for recipe in recipes for file in datasets.files_of(recipe).values()}
        published = {each["name"] for each in recipes if each["name"] in datasets.CATALOGUE}
        if self.root and not all(datasets.source(name).built_in for name in published):
            own.add(Path(self.root))
        return sorted(own)

    def to_dict(self, runs_folder: str) -> dict[str, Any]:
        """What sweep.json says."""
        assay = self.assay
        return {
            "plan": self.source,
            "runs_folder": runs_folder,
            "runs": [run.to_dict() for run in self.runs],
            "groups": self.groups,
            "assay": None
            if assay is None
            else {
                "names": assay.names,
                "samples": assay.samples,
                "seed": assay.seed,
                "resamples": assay.resamples,
                "options": assay.options,
                "requests": assay.requests,
            },
        }


def read_plan(
    plan: str | Path | Mapping[str, Any],
    *,
    root: str | Path | None = None,
    ensemble: bool = True,
    groups: Iterable[list[str]] = (),
) -> Plan:
    """The plan in a file or a dict, completely checked: every run of it could start.

    `groups` are runs that an earlier version of the plan trains together: they stay together.
    """
    name, content = _read(plan)
    unknown = [key for key in content if key not in PARTS]
    if unknown:
        raise ConfigError(
            f"{name}: there is no part [{unknown[0]}]. {did_you_mean(unknown[0], PARTS)}"
        )
    entries = _Entries(name, content)
    builder = _Builder(name, root)
    runs = [builder.run(fields, line) for fields, line in entries]
    if not runs:
        raise ConfigError(
            f"{name}: it describes no run. Add a [grid] with model and data, or a [[run]]."
        )
    _refuse_duplicates(name, runs)
    assay = read_request(name, content.get("assay"), builder.recordings)
    chosen = _groups(runs, groups) if ensemble else []
    where = None if root is None else str(Path(root).absolute())
    return Plan(json.loads(json.dumps(content)), runs, chosen, assay, where)


def _read(plan: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
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


class _Entries:
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
                yield {**self.shared, **chosen}, f"[grid] {_listed(named)}"
        for number, run in enumerate(self.single, 1):
            yield self._completed(run), f"[[run]] {number}: {_listed(run)}"

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
        return choices


class _Builder:
    """Makes the runs of a plan, loading each dataset and building each network once."""

    def __init__(self, name: str, root: str | Path | None) -> None:
        self.name, self.root = name, root
        self._data: dict[str, Dataset] = {}
        self._shapes: dict[str, bool] = {}
        self._examples: list[tuple[TrainConfig, Dataset]] = []  # a run of each shape

    def run(self, fields: dict[str, Any], line: str) -> PlannedRun:
        try:
            return self._run(dict(fields), line)
        except ZscopeError as error:
            text = " ".join(str(error).split())
            raise ConfigError(f"{self.name}: {line}: {text}") from None

    def _run(self, fields: dict[str, Any], line: str) -> PlannedRun:
        for key in ("model", "data"):
            if not isinstance(fields.get(key), str):
                raise ConfigError(
                    f"{key}={fields.get(key)!r}; expected a name. Add it to [train], to [grid] or "
                    f"to the run. See: zscope {'models' if key == 'model' else 'data'} list"
                )
        _check_kinds(fields)
        options = {k.removeprefix("options."): v for k, v in fields.items() if k[:8] == "options."}
        given = with_defaults(
            fields.get("preset"),
            latents=fields.get("latents"),
            options=options,
            split=fields.get("split"),
            steps=fields.get("steps"),
            epochs=fields.get("epochs"),
        )
        if "seed" in options:
            raise ConfigError(
                "options.seed would give runs of every seed the same initial weights. Leave it "
                "out: the field seed sets them too."
            )
        seed = fields.get("seed", 0)
        whole("sweep", seed=seed)
        dataset = self.dataset(fields["data"], given.split)
        own = {"seed": seed, **given.options}
        recipe = models.recipe_for(fields["model"], dataset, latents=given.latents, **own)
        named = {"steps", "epochs", "batch", "rate", "seed"}
        settings = {k: fields[k] for k in SETTINGS if k in fields and k not in named}
        settings["scaling"] = dataset.units_for_training()
        config = configure(
            recipe,
            dataset,
            given.steps,
            given.epochs,
            fields.get("batch"),
            fields.get("rate"),
            seed,
            settings,
            fields.get("preset"),
        )
        shape = self._shape(config, fields["data"])
        if shape not in self._shapes:
            self._shapes[shape] = self._check(config, dataset)
            self._examples.append((config, dataset))
        hashed = address(config)
        words = {key: fields[key] for key in WORDS if fields.get(key) is not None}
        described = {**_plain(config), "data": fields["data"], **words}
        return PlannedRun(
            run_name(config, hashed), hashed, config, described, line, shape, self._shapes[shape]
        )

    def dataset(self, text: str, split: Any = None) -> Dataset:
        """The dataset that "name?option=value&option=value" names, or the first part of it."""
        key = f"{text} {split}"
        if key not in self._data:
            name, options = parse_name(text)
            loaded = datasets.load(name, root=self.root, **options)
            self._data[key] = loaded if split is None else loaded.split(split)[0]
        return self._data[key]

    def recordings(self, samples: int) -> Iterator[Recording]:
        """What an untrained model makes of its data, for each shape."""
        for config, dataset in self._examples:
            assert config.model is not None
            model = models.from_recipe(config.model.model_dump())
            model.scaling = config.scaling
            yield record(model, dataset, samples=min(samples, len(dataset)))

    def _shape(self, config: TrainConfig, data: str) -> str:
        """What the time of a step depends on."""
        assert config.model is not None
        recipe = config.model.model_dump()
        ignored = {"seed", *models.numbers_of_objective(recipe["name"])}
        options = {k: v for k, v in recipe["options"].items() if k not in ignored}
        parts = [recipe["name"], data, recipe["latents"], options, config.batch, config.precision]
        return json.dumps([*parts, config.optimiser, config.device], sort_keys=True)

    def _check(self, config: TrainConfig, dataset: Dataset) -> bool:
        """Refuse what would fail in the first step; returns whether the model is a small one."""
        assert config.model is not None
        device = pick_device(config, 0)
        model = models.from_recipe(config.model.model_dump())
        units = dataset.in_units(config.scaling)
        Feed(model, units, device)
        check_first_batch(model, units, config, device)
        weights = sum(parameter.numel() for parameter in model.parameters())
        convolutions = any(isinstance(m, nn.Conv2d | nn.ConvTranspose2d) for m in model.modules())
        return weights <= SMALL and not convolutions and config.devices == 1


def _check_kinds(fields: Mapping[str, Any]) -> None:
    """Refuse values of the wrong kind in what does not go through the training configuration."""
    whole("sweep", **{k: fields[k] for k in ("latents", "steps") if fields.get(k) is not None})
    kinds: dict[str, tuple[Any, str]] = {
        "epochs": (int | float, "a number"),
        "preset": (str, "a name"),
        "split": (list, "a list of fractions"),
    }
    for key, (kind, expected) in kinds.items():
        value = fields.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise ConfigError(f"{key}={value!r:.60}; expected {expected}.")


def _refuse_duplicates(name: str, runs: list[PlannedRun]) -> None:
    seen: dict[str, str] = {}
    for run in runs:
        if run.address in seen:
            raise ConfigError(
                f"{name}: {run.line} is the same run as {seen[run.address]}. Every run is trained "
                "once: remove one of them."
            )
        seen[run.address] = run.line


def _groups(runs: list[PlannedRun], earlier: Iterable[list[str]]) -> list[list[str]]:
    """Runs that are trained together: small networks that differ in seed and loss alone."""
    names = {run.name for run in runs}
    chosen = [list(group) for group in earlier if set(group) <= names]
    taken = {name for group in chosen for name in group}
    fresh: list[list[PlannedRun]] = []
    growing: dict[str, list[list[PlannedRun]]] = {}  # those that are not full yet
    for run in runs:
        if not run.small or run.name in taken:
            continue
        settings = run.config.model_dump_json(exclude={"seed", "model"})
        candidates = growing.setdefault(f"{run.shape} {settings}", [])
        for group in candidates:
            first, other = group[0].config.model, run.config.model
            assert first is not None
            assert other is not None
            if can_train_together(first.model_dump(), other.model_dump()):
                group.append(run)
                if len(group) == TOGETHER:
                    candidates.remove(group)
                break
        else:
            candidates.append([run])
            fresh.append(candidates[-1])
    return chosen + [[run.name for run in group] for group in fresh if len(group) > 1]


def _plain(config: TrainConfig) -> dict[str, Any]:
    """The fields of a configuration by the names that a plan uses."""
    assert config.model is not None
    fields: dict[str, Any] = {"model": config.model.name, "latents": config.model.latents}
    fields |= {f"options.{key}": value for key, value in config.model.options.items()}
    if config.data is not None and config.data.split is not None:
        fields["split"] = config.data.split.fractions
    rest = config.model_dump(include=set(SETTINGS))
    return fields | {key: value for key, value in rest.items() if value not in (None, [])}


def _listed(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in fields.items())
