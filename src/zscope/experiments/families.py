"""Families of runs: those that agree in everything but the seed, or but other fields.

    model, latents, options.beta, …      the model and its options
    data, data.options.resolution, …     the data and their options
    seed                                 of the batches and of the initial weights, as one field
    steps, batch, rate, …                the other settings of training

The last part of a name serves where it is unique: `beta` for `options.beta`. What cannot change a
trained model (checkpoints, logging, the device) is no field.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from zscope import store
from zscope.collection import Runs
from zscope.collection import runs as collect
from zscope.collection.columns import OPTIONS, follows_another
from zscope.collection.index import fields_of as flatten
from zscope.errors import ConfigError, RunError, did_you_mean, listed_names
from zscope.results import counted, listed

__all__ = ["Family", "Member", "families", "fields_of", "find_members", "pairs_by", "resolve"]

IGNORED = {"shape", "log_every", "checkpoint_every", "snapshots", "snapshot_every", "device"}


@dataclass(frozen=True, eq=False)
class Member:
    """A finished run and what it was trained with."""

    name: str
    path: Path
    fields: dict[str, Any]

    def without(self, names: Iterable[str]) -> str:
        """What all runs of one family have in common, as a key."""
        rest = {key: value for key, value in self.fields.items() if key not in set(names)}
        return json.dumps(rest, sort_keys=True)


@dataclass(eq=False)
class Family:
    """Runs, or pairs of them, with what tells them from those of other families."""

    label: str
    members: list[Member] = field(default_factory=list)
    pairs: list[tuple[Member, Member]] = field(default_factory=list)


def fields_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run's configuration by name; those that are not set are left out."""
    fields = {key: value for key, value in flatten(config).items() if key not in IGNORED}
    seed = fields.get("seed")
    weights = fields.pop("options.seed", seed)
    return {**fields, "seed": seed if weights == seed else f"{seed}, weights {weights}"}


def find_members(who: str, runs: Any) -> tuple[list[Member], list[str]]:
    """The finished runs in a folder of runs, or of several; and why others are left out."""
    several = isinstance(runs, Iterable) and not isinstance(runs, str | bytes | Path | Mapping)
    targets = list(runs) if several else [runs]
    found = [_runs_in(who, target) for target in targets]
    folders = list(dict.fromkeys(path for each in found for path in each.paths))
    names = _names(folders)
    members: list[Member] = []
    notes = [
        f"{name} is left out: the same run as {copy.of}."
        for each in found
        for name, copy in each.copies.items()
    ]
    for name, path in zip(names, folders, strict=True):
        try:
            run = store.open_run(path)
        except RunError as error:
            notes.append(f"{name} is left out: {error}")
            continue
        if not run.finished:
            notes.append(f"{name} is left out: {run.status}, step {run.step}.")
        elif run.config.get("model") is None:
            notes.append(f"{name} is left out: trained with a model that zscope cannot build.")
        else:
            members.append(Member(name, path, fields_of(run.config)))
    if not members:
        raise RunError(
            f"{who}: {counted(len(folders), 'run')}, and none can be used. {' '.join(notes[:3])} "
            "Resume them with: zscope train --out RUN --resume"
        )
    return members, notes


def _runs_in(who: str, target: Any) -> Runs:
    """The runs at a path: itself, those in it, or those in a folder of it."""
    path = target.path if isinstance(target, store.Run) else target
    if not isinstance(path, str | Path):
        raise ConfigError(
            f"{who}: got a {type(target).__name__}; expected a folder of runs or the folders of "
            "several runs. Train with out=FOLDER."
        )
    return collect(path)


def _names(paths: Sequence[Path]) -> list[str]:
    """The last parts of paths, or the whole paths where these are not unique."""
    short = [path.resolve().name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def resolve(who: str, names: str | Sequence[str], members: Sequence[Member]) -> list[str]:
    """The full names of fields; a unique last part is enough."""
    texts = names.split(",") if isinstance(names, str) else listed_names(who, "by", names)
    known = list(dict.fromkeys(key for member in members for key in member.fields))
    fields = []
    for text in (each.strip() for each in texts):
        matches = [key for key in known if key.rpartition(".")[2] == text]
        if text not in known and len(matches) != 1:
            short = {key.rpartition(".")[2] for key in known}
            hint = f"It could be {listed(matches)}." if matches else did_you_mean(text, short)
            raise ConfigError(
                f"{who}: the runs have no field {text!r} in their configuration. {hint}"
            )
        fields.append(text if text in known else matches[0])
    return list(dict.fromkeys(fields))


def families(members: Sequence[Member], free: Sequence[str]) -> list[Family]:
    """Runs that agree in everything but the `free` fields, in the order of the runs."""
    groups: dict[str, Family] = {}
    shown = _varying(members, free)
    for member in members:
        label = _label(member, shown)
        groups.setdefault(member.without(free), Family(label)).members.append(member)
    for family in groups.values():
        family.members.sort(key=lambda member: _order(member, free))
    return list(groups.values())


def pairs_by(who: str, members: Sequence[Member], by: Sequence[str]) -> list[Family]:
    """Pairs of runs that differ in each of the fields `by` and in nothing else.

    Pairs that differ in the same way (β 1 and β 8, say) and agree in everything else but the
    seed are one family.
    """
    compared = [name for name in by if name != "seed"]
    shown = _varying(members, [*by, "seed"])
    groups: dict[str, Family] = {}
    for group in families(members, by):
        for first, second in combinations(group.members, 2):
            if any(first.fields.get(name) == second.fields.get(name) for name in by):
                continue
            sides = [{name: each.fields.get(name) for name in compared} for each in (first, second)]
            key = first.without([*by, "seed"]) + json.dumps(sides)
            versus = [
                f"{_short(name)} {_text(sides[0][name])} and {_text(sides[1][name])}"
                for name in compared
            ]
            label = ", ".join([*filter(None, [_label(first, shown)]), *versus])
            groups.setdefault(key, Family(label)).pairs.append((first, second))
    for group in groups.values():
        group.members = list({id(each): each for pair in group.pairs for each in pair}.values())
    if len(members) == 1:
        raise ConfigError(
            f"{who}: there is one run, {members[0].name}, and nothing to compare it with. Train "
            f"further runs that differ in {' and '.join(map(_short, by))}."
        )
    if not groups:
        differing = _varying(members, [])
        raise ConfigError(
            f"{who}: no two of the {len(members)} runs agree in everything but "
            f"{' and '.join(map(_short, by))}. They differ in "
            f"{listed(map(_short, differing)) if differing else 'nothing'}. Choose another field, "
            "or train further runs."
        )
    return list(groups.values())


def _varying(members: Sequence[Member], free: Sequence[str]) -> list[str]:
    """The fields in which runs differ, but those that are free to and those that the name of the
    model or of the data implies."""
    keys = dict.fromkeys(key for member in members for key in member.fields if key not in free)
    models = len({str(member.fields.get("model")) for member in members})
    levels = {
        key: {_level(member.fields[key]) if key in member.fields else None for member in members}
        for key in keys
    }
    return [
        key
        for key in keys
        if len(levels[key]) > 1
        and not follows_another(key, levels[key], models)
        and not _follows_data(key, members)
    ]


def _follows_data(key: str, members: Sequence[Member]) -> bool:
    """Whether an option of the data has one value in all runs on data of the same name."""
    values = {(member.fields.get("data"), _level(member.fields.get(key))) for member in members}
    return key.startswith(OPTIONS) and len(values) == len({data for data, _ in values})


def _level(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _label(member: Member, shown: Sequence[str]) -> str:
    own = [name for name in shown if name in member.fields]
    return ", ".join(f"{_short(name)} {_text(member.fields[name])}" for name in own)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short(name: str) -> str:
    return name.removeprefix("data.").removeprefix("options.")


def _order(member: Member, free: Sequence[str]) -> list[tuple[bool, float, str]]:
    """Numbers in ascending order, before everything else."""
    order = []
    for value in (member.fields.get(name) for name in free):
        number = float(value) if isinstance(value, int | float) else None
        order.append((number is None, number or 0.0, str(value)))
    return order
