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

`leave_out = {shape = ["sphere"]}` trains without some values of factors (after the split), and
`freeze = "encoder"` or "decoder" with a half as it is ("none" is neither). A run with a `start`
is a branch: it starts from the final weights of another run, which differs from it in the named
fields and has neither start nor freeze unless named too. That run is added to the plan, and
trained once for all of its branches:

    [[run]]
    steps = 300
    freeze = "encoder"
    start = {steps = 1200, leave_out = {shape = ["sphere"]}}

Which runs are trained together as one ensemble is decided here, by the configurations alone.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from zscope import data as datasets
from zscope import models
from zscope.collection.columns import WORDS
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, ZscopeError, did_you_mean
from zscope.experiments.fields import SETTINGS, listed_fields
from zscope.experiments.sweeps.address import address, run_name
from zscope.experiments.sweeps.entries import PARTS, Entries, read_file
from zscope.experiments.sweeps.names import parse_name
from zscope.experiments.sweeps.request import Measured, read_request
from zscope.experiments.training import with_defaults
from zscope.recording import Recording, record
from zscope.sampling import whole
from zscope.training.checks import check_first_batch
from zscope.training.config import TrainConfig
from zscope.training.ensemble import can_train_together
from zscope.training.feeding import Feed
from zscope.training.freezing import frozen
from zscope.training.loop import configure, pick_device, trained_weights

__all__ = ["Entry", "Plan", "PlannedRun", "read_plan", "snapshots"]

TOGETHER = 10
"""Runs that are trained together at most."""
SMALL = 250_000
"""Weights of a model up to which several are trained together: beyond, arithmetic dominates."""


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
    name, content = read_file(plan)
    unknown = [key for key in content if key not in PARTS]
    if unknown:
        raise ConfigError(
            f"{name}: there is no part [{unknown[0]}]. {did_you_mean(unknown[0], PARTS)}"
        )
    entries = Entries(name, content)
    builder = _Builder(name, root)
    described = [builder.run(fields, line) for fields, line in entries]
    if not described:
        raise ConfigError(
            f"{name}: it describes no run. Add a [grid] with model and data, or a [[run]]."
        )
    _refuse_duplicates(name, described)
    runs = builder.with_starts(described)
    assay = read_request(name, content.get("assay"), builder.recordings)
    chosen = _groups(runs, groups) if ensemble else []
    where = None if root is None else str(Path(root).absolute())
    return Plan(json.loads(json.dumps(content)), runs, chosen, assay, where)


class _Builder:
    """Makes the runs of a plan, loading each dataset and building each network once."""

    def __init__(self, name: str, root: str | Path | None) -> None:
        self.name, self.root = name, root
        self._data: dict[str, Dataset] = {}
        self._shapes: dict[str, bool] = {}
        self._examples: list[tuple[TrainConfig, Dataset]] = []  # a run of each shape
        self._starts: dict[str, PlannedRun] = {}  # what branches start from, by name

    def run(self, fields: dict[str, Any], line: str) -> PlannedRun:
        try:
            return self._run(dict(fields), line)
        except ZscopeError as error:
            text = " ".join(str(error).split())
            raise ConfigError(f"{self.name}: {line}: {text}") from None

    def with_starts(self, runs: list[PlannedRun]) -> list[PlannedRun]:
        """The runs, and before each branch the run that it starts from."""
        described = {run.name: run for run in runs}
        ordered: dict[str, PlannedRun] = {}

        def add(run: PlannedRun) -> None:
            if (start := run.config.start) is not None:
                add(described.get(start.run, self._starts[start.run]))
            ordered.setdefault(run.name, run)

        for run in runs:
            add(run)
        return list(ordered.values())

    def _start(self, fields: dict[str, Any], line: str) -> PlannedRun | None:
        """The run that a branch starts from."""
        named = fields.get("start")
        if named is None:
            return None
        if not isinstance(named, dict) or not named:
            raise ConfigError(
                f"start={named!r:.60}; expected the fields in which the run that it starts from "
                "differs, for instance start = {steps = 1000}."
            )
        length = {"steps", "epochs"} if {"steps", "epochs"} & named.keys() else set()
        inherited = {k: v for k, v in fields.items() if k not in {"start", "freeze", *length}}
        parent = self._run({**inherited, **named}, f"start of {line}")
        self._starts[parent.name] = parent
        return parent

    def _run(self, fields: dict[str, Any], line: str) -> PlannedRun:
        parent = self._start(fields, line)
        about = listed_fields(fields["start"]) if parent else None
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
            fields["model"],
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
        dataset = self.dataset(fields["data"], given.split, fields.get("leave_out"))
        own = {"seed": seed, **given.options}
        recipe = models.recipe_for(fields["model"], dataset, latents=given.latents, **own)
        named = {"steps", "epochs", "batch", "rate", "seed"}
        settings = {k: fields[k] for k in SETTINGS if k in fields and k not in named}
        settings["scaling"] = dataset.units_for_training()
        if parent is not None:
            _check_same_weights(recipe, parent.config)
            settings["scaling"] = parent.config.scaling
            settings["start"] = {"run": parent.name, "address": parent.address, "about": about}
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

    def dataset(self, text: str, split: Any = None, leave_out: Any = None) -> Dataset:
        """The dataset that "name?option=value&option=value" names, or the first part of it."""
        key = f"{text} {split} {leave_out}"
        if key not in self._data:
            name, options = parse_name(text)
            loaded = datasets.load(name, root=self.root, **options)
            loaded = loaded if split is None else loaded.split(split)[0]
            self._data[key] = loaded if leave_out is None else loaded.leave_out(leave_out)
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
        parts += [config.optimiser, config.device]
        parts += [] if config.freeze is None else [config.freeze]
        return json.dumps(parts, sort_keys=True)

    def _check(self, config: TrainConfig, dataset: Dataset) -> bool:
        """Refuse what would fail in the first step; returns whether the model is a small one."""
        assert config.model is not None
        device = pick_device(config, 0)
        model = models.from_recipe(config.model.model_dump())
        units = dataset.in_units(config.scaling)
        Feed(model, units, device)
        check_first_batch(model, units, config, device)
        with frozen(model, config.freeze):
            trained_weights(model)  # refuses a model that has none
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
        "leave_out": (Mapping, "values of factors by name, as {shape = ['sphere']}"),
    }
    for key, (kind, expected) in kinds.items():
        value = fields.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise ConfigError(f"{key}={value!r:.60}; expected {expected}.")


def _check_same_weights(recipe: Mapping[str, Any], parent: TrainConfig) -> None:
    """Refuse a branch whose model could not take the weights of the run that it starts from."""
    assert parent.model is not None
    own, other = (
        {name: weights.shape for name, weights in models.outline(each).state_dict().items()}
        for each in (dict(recipe), parent.model.model_dump())
    )
    if own != other:
        different = next(name for name in {**own, **other} if own.get(name) != other.get(name))
        raise ConfigError(
            f"start: the models have different networks, the weights {different!r} for one. A "
            "branch goes on with the weights of the run that it starts from: leave the model, its "
            "latents and options of its networks out of start, and choose data of one shape."
        )


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
    """Runs that are trained together: small networks that differ in seed, rate and loss alone."""
    names = {run.name for run in runs}
    chosen = [list(group) for group in earlier if set(group) <= names]
    taken = {name for group in chosen for name in group}
    fresh: list[list[PlannedRun]] = []
    growing: dict[str, list[list[PlannedRun]]] = {}  # those that are not full yet
    for run in runs:
        alone = run.config.freeze is not None or run.config.start is not None
        if not run.small or alone or run.name in taken:
            continue
        settings = run.config.model_dump_json(exclude={"seed", "model", "rate"})
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
    if config.data is not None and config.data.leave_out is not None:
        fields["leave_out"] = config.data.leave_out
    rest = config.model_dump(include=set(SETTINGS))
    if config.start is not None:
        rest["start"] = config.start.about
    return fields | {key: value for key, value in rest.items() if value not in (None, [])}
