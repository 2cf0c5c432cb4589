"""Compare many runs: the similarity of their layers, averaged over pairs.

    compare_runs(["runs/a", "runs/b", "runs/c"])        every two of them
    compare_runs("runs", by="seed")                     runs that agree in everything but the seed
    compare_runs("runs", by="beta,seed")                pairs that differ in β and in the seed

Pairs that differ in the same way are averaged (`zscope.experiments.layer_maps`); with
`checkpoints`, for each step that all of them have. Two controls come with the final models: the
first one against an untrained model of its architecture, and the first pair with the samples of
one model shuffled, which is the level of no agreement (not 0 for Procrustes).

The layers of two models are in memory at a time, however many runs there are, and a third time
those of one while its samples are shuffled.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zscope import store
from zscope.assays.similarity.heatmap import Layer, prepare_layers
from zscope.assays.similarity.layers import PairOfModels, layer_similarities
from zscope.autoencoder import Autoencoder
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError, RunError, Undefined, did_you_mean
from zscope.experiments.families import Member, find_members, pairs_by, resolve
from zscope.experiments.layer_maps import LayerMap, average, plot_maps, steps_table
from zscope.experiments.observed import (
    SAMPLES,
    check_shape,
    choose_observations,
    model_activations,
    untrained_copy,
)
from zscope.experiments.records import Clock, Tabular, Watch
from zscope.experiments.stages import Load, run_folder, stages_of
from zscope.loading import load, run_data
from zscope.randomness import named_generator
from zscope.results import listed, text_table
from zscope.sampling import whole

__all__ = ["ComparisonOfRuns", "DataOf", "compare_runs", "layers_of", "map_of_two", "names_of"]

AT_ONCE = 2
"""Models whose layers are kept."""


@dataclass(frozen=True, eq=False)
class ComparisonOfRuns(Tabular):
    """A map of layers for each group of pairs, and for each step if there are several."""

    columns = LayerMap.columns

    maps: list[LayerMap]
    runs: list[str]
    by: list[str]
    samples: int
    debiased: bool
    flags: list[str] = field(default_factory=list)

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(each.group for each in self.maps))

    def between(self, group: str = "") -> tuple[list[str], list[list[float | None]]]:
        """The runs of a group, and the smaller similarity of the latent means of each two.

        1 for a run and itself, None for two runs that were not compared. Of the last step.
        """
        chosen = [each for each in self.maps if each.group == (group or self.groups[0])]
        if not chosen:
            raise ConfigError(
                f"compare: no group is called {group!r}. {did_you_mean(group, self.groups)}"
            )
        last = chosen[-1]
        if not last.latents:
            raise Undefined(
                f"compare: the runs of {last.group or 'this comparison'} have no layer of latent "
                "means in common, so there is nothing to show of them. Their layers: .plot()"
            )
        firsts, seconds = zip(*last.pairs, strict=True)
        names = list(dict.fromkeys([*firsts, *sorted(seconds)]))
        rows: list[list[float | None]] = [[1.0 if a == b else None for b in names] for a in names]
        for (first, second), value in zip(last.pairs, last.latents, strict=True):
            i, j = names.index(first), names.index(second)
            rows[i][j] = rows[j][i] = value
        return names, rows

    def records(self) -> list[dict[str, Any]]:
        """A row for each cell of each map."""
        return [row for each in self.maps for row in each.records()]

    def plot(self, ax: Any = None) -> Any:
        """The maps: CKA, Procrustes and the smaller of both, or one for each step."""
        first, second = "the first run of a pair", "the second run of a pair"
        if len(self.groups) == 1 and len(self.maps[0].pairs) == 1:
            first, second = self.maps[0].pairs[0]
        elif len(self.groups) == 1 and len(self.runs) <= 4:
            first, second = "one run", f"the other (pairs of {', '.join(self.runs)})"
        return plot_maps(self.maps, x=f"layers of {second}", y=f"layers of {first}", ax=ax)

    def plot_runs(self, group: str = "", ax: Any = None) -> Any:
        """The runs of a group: the smaller similarity of the latent means of each two."""
        from zscope.plots import heatmap

        names, matrix = self.between(group)
        label = "similarity of latent means\n(smaller of CKA and Procrustes)"
        return heatmap(
            matrix, rows=names, columns=names, label=label, limit=1.0, diverging=False,
            empty="not compared", ax=ax,
        )  # fmt: skip

    def __repr__(self) -> str:
        parts = []
        for group in self.groups:
            maps = [each for each in self.maps if each.group == group]
            if len(maps) == 1:
                parts.append(repr(maps[0]))
                parts += self._pairs_table(maps[0])
                continue
            count = f"{len(maps[0].pairs)} pair{'' if len(maps[0].pairs) == 1 else 's'}"
            spread = " (mean ± standard deviation over pairs)" if maps[0].spreads else ""
            measure = f"the smaller of CKA and Procrustes{spread}"
            head = ", ".join(filter(None, [group, count, measure]))
            parts.append(f"{head}\n{steps_table(maps)}")
        notes = [f"{len(self.runs)} runs, {self.samples} samples"]
        if any(each.controls for each in self.maps):
            last = "" if len(self.maps) == len(self.groups) else ", at the last step"
            notes.append(
                f"untrained, shuffled: the smaller of both for the first run of a group{last}"
            )
        return "\n\n".join([*parts, "\n".join([*notes, *self.flags])])

    def _pairs_table(self, last: LayerMap) -> list[str]:
        """The latent means of each pair, if there are few of them."""
        if not 1 < len(last.pairs) <= 15 or not last.latents:
            return []
        pairs = zip(last.pairs, last.latents, strict=True)
        table = [["latent means", "smaller of both"]]
        table += [[f"{first}, {second}", f"{value:.3f}"] for (first, second), value in pairs]
        return [text_table(table)]


class _Source(NamedTuple):
    """A model, or the stages of a run, that is loaded when its turn comes."""

    name: str
    target: Any
    stages: dict[int | None, Load]
    draw: int  # of noise: another one for each, as two of them may be the same model


class _Group(NamedTuple):
    label: str
    pairs: list[tuple[_Source, _Source]]
    steps: list[int | None]


class _Settings(NamedTuple):
    observed: Dataset
    debiased: bool
    control: int | None  # the seed of the controls; None for none
    decode: bool


class _About(NamedTuple):
    """What has to be known of a model before any is compared."""

    name: str
    shape: tuple[int, ...] | None  # of its observations
    decodes: bool
    seed: Any  # of its initial weights; None if it is not known


def compare_runs(
    targets: Any,
    data: Any = None,
    *,
    by: str | Sequence[str] | None = None,
    checkpoints: bool = False,
    samples: int = SAMPLES,
    seed: int = 0,
    debiased: bool = True,
    control: bool = True,
    root: str | Path | None = None,
    progress: Watch | None = None,
) -> ComparisonOfRuns:
    """Compare the layers of many models pair by pair, by CKA, Procrustes and the smaller of both.

    Without `by`, `targets` are two or more of what `zs.load` takes, and every two are compared.
    With `by`, they are a folder of runs or several runs, of which those are compared that differ
    in each of these fields of the configuration ("seed", "beta,seed") and in nothing else.
    `checkpoints` compares the models at every step that all runs of a group have kept, and
    before training. `data` are by default those of the first run of each group; `root` is where
    datasets are kept.
    """
    whole("compare", samples=samples, seed=seed)
    if by is None:
        groups, fields, flags = _every_two(targets, checkpoints)
    else:
        groups, fields, flags = _by_fields(targets, by, checkpoints)
    # All models before any data, so that a run that is missing is reported as such.
    known = {id(one): _about(one) for group in groups for pair in group.pairs for one in pair}
    if by is None:
        flags += _shared_starts(list(known.values()))
    own_data = DataOf(data, root)
    clock = Clock(sum(len(group.pairs) * len(group.steps) for group in groups), progress)
    maps: list[LayerMap] = []
    count = 0
    for group in groups:
        dataset = own_data(group.pairs[0][0].target)
        own = list({id(one): known[id(one)] for pair in group.pairs for one in pair}.values())
        for each in own:
            check_shape(each.name, each.shape, dataset)
        bare = [each.name for each in own if not each.decodes]
        if bare and len(bare) < len(own):
            flags.append(f"The encoders alone are compared: no decoder in {listed(bare, 6)}.")
        observed = choose_observations(dataset, samples, seed)
        count = len(observed)
        for step in group.steps:
            final = control and step == group.steps[-1]
            settings = _Settings(observed, debiased, seed if final else None, decode=not bare)
            maps.append(_map(group, step, settings, clock))
    names = dict.fromkeys(one.name for group in groups for pair in group.pairs for one in pair)
    return ComparisonOfRuns(maps, list(names), fields, count, debiased, flags)


def map_of_two(
    names: Sequence[str],
    models: Sequence[Autoencoder],
    observed: Dataset,
    *,
    debiased: bool,
    control: int | None,
) -> LayerMap:
    """The map of two models that are loaded; `control` is the seed of its controls, if any."""
    first, second = (
        _Source(name, model, {None: partial(load, model)}, draw)
        for draw, (name, model) in enumerate(zip(names, models, strict=True))
    )
    decode = all(model.decodes for model in models)
    settings = _Settings(observed, debiased, control, decode)
    return _map(_Group("", [(first, second)], [None]), None, settings, Clock(1, None))


def _map(group: _Group, step: int | None, settings: _Settings, clock: Clock) -> LayerMap:
    """The map of one group at one step."""
    observed, debiased, control, decode = settings

    def prepare(source: _Source) -> dict[str, Layer]:
        # The final model is the last stage, whatever its step.
        stage = source.stages[step] if step in source.stages else list(source.stages.values())[-1]
        return layers_of(stage(), observed, source.draw, decode)

    layers = _Layers(prepare)
    pairs: dict[tuple[str, str], PairOfModels] = {}
    controls: dict[str, PairOfModels] = {}
    for first, second in _few_changes(group.pairs):
        at = "" if step is None else f", step {step}"
        clock(f"{first.name} and {second.name}{at}")
        # No local name may hold layers longer than `layers` itself does.
        pairs[first.name, second.name] = layer_similarities(
            layers(first), layers(second), debiased=debiased
        )
        if control is not None and not controls:
            generator = named_generator(control, "similarity-heatmap")
            order = torch.randperm(len(observed), generator=generator)
            controls["shuffled"] = layer_similarities(
                layers(first),
                {name: layer.shuffle(order) for name, layer in layers(second).items()},
                debiased=debiased,
            )
    if control is not None:
        first = group.pairs[0][0]
        layers.keep_only(first)
        fresh = untrained_copy(list(first.stages.values())[-1](), seed=control)
        controls["untrained"] = layer_similarities(
            layers(first), layers_of(fresh, observed, 0, decode), debiased=debiased
        )
    named = {(a.name, b.name): pairs[a.name, b.name] for a, b in group.pairs}
    return average(group.label, step, named, **controls)


def layers_of(
    model: Autoencoder, observed: Dataset, draw: int = 0, decode: bool = True
) -> dict[str, Layer]:
    """The layers of a model, in at most as many columns as there are samples."""
    outputs = model_activations(model, observed, decode, draw)
    prepared: dict[str, Layer] = {}
    for name in list(outputs):  # the activations of images are large: each goes as it is done
        prepared |= prepare_layers({name: outputs.pop(name)}, narrow=True)
    return prepared


class _Layers:
    """The layers of the models that were used last, AT_ONCE of them."""

    def __init__(self, prepare: Callable[[_Source], dict[str, Layer]]) -> None:
        self._prepare = prepare
        self._layers: OrderedDict[int, dict[str, Layer]] = OrderedDict()

    def __call__(self, source: _Source) -> dict[str, Layer]:
        key = id(source)
        if key not in self._layers:
            while len(self._layers) >= AT_ONCE:
                self._layers.popitem(last=False)
            self._layers[key] = self._prepare(source)
        self._layers.move_to_end(key)
        return self._layers[key]

    def keep_only(self, source: _Source) -> None:
        """Make room for the layers of another model."""
        own = self._layers.pop(id(source), None)
        self._layers.clear()
        if own is not None:
            self._layers[id(source)] = own


def _few_changes(pairs: Sequence[tuple[_Source, _Source]]) -> list[tuple[_Source, _Source]]:
    """The pairs in an order in which most share a model with the pair before."""
    by_first: dict[int, list[tuple[_Source, _Source]]] = {}
    for pair in pairs:
        by_first.setdefault(id(pair[0]), []).append(pair)
    turns = enumerate(by_first.values())
    return [pair for k, own in turns for pair in (own[::-1] if k % 2 else own)]


def _every_two(targets: Any, checkpoints: bool) -> tuple[list[_Group], list[str], list[str]]:
    several = isinstance(targets, Sequence) and not isinstance(targets, str)
    if not several or len(targets) < 2:
        seen = f"{len(targets)} targets" if several else f"a {type(targets).__name__}"
        raise ConfigError(
            f"compare: got {seen}; expected two models or more, as a list. For a folder of runs, "
            "say what they may differ in: by='seed' (--by seed)."
        )
    names = names_of(targets)
    sources = [
        _source(name, target, checkpoints, draw)
        for draw, (name, target) in enumerate(zip(names, targets, strict=True))
    ]
    pairs = list(combinations(sources, 2))
    return [_Group("", pairs, _steps(pairs, checkpoints))], [], []


def _by_fields(
    targets: Any, by: str | Sequence[str], checkpoints: bool
) -> tuple[list[_Group], list[str], list[str]]:
    found, flags = find_members("compare", targets)
    fields = resolve("compare", by, found)
    members = _whole(found, flags)
    sources: dict[str, _Source] = {}
    groups = []
    try:
        found_pairs = pairs_by("compare", members, fields)
    except ConfigError as error:
        raise ConfigError(" ".join([str(error), *flags[:3]])) from None
    for family in found_pairs:
        for member in family.members:
            if member.name not in sources:
                sources[member.name] = _source(member.name, member.path, checkpoints, len(sources))
        pairs = [(sources[a.name], sources[b.name]) for a, b in family.pairs]
        groups.append(_Group(family.label, pairs, _steps(pairs, checkpoints)))
    alone = [member.name for member in members if member.name not in sources]
    if alone:
        flags.append(
            f"No other run differs from {listed(alone, 6)} in {' and '.join(fields)} alone: left "
            "out."
        )
    if "seed" not in fields:
        flags.append(
            "The runs of each pair have the same seed: layers of the same size started from the "
            f"same weights, which makes them similar by itself. For different seeds: by "
            f"{','.join([*fields, 'seed'])}."
        )
    return groups, fields, flags


def _source(name: str, target: Any, checkpoints: bool, draw: int) -> _Source:
    if not checkpoints:
        return _Source(name, target, {None: partial(load, target)}, draw)
    stages = stages_of("compare", run_folder("compare", target))
    return _Source(name, target, dict(stages.items()), draw)


def _steps(pairs: Sequence[tuple[_Source, _Source]], checkpoints: bool) -> list[int | None]:
    """The steps that all models of the pairs have."""
    if not checkpoints:
        return [None]
    sources = {
        one.name: {step for step in one.stages if step is not None}
        for pair in pairs
        for one in pair
    }
    steps = sorted(set.intersection(*sources.values()))
    if not any(steps):
        seen = [f"{name} has {listed(sorted(own), 4)}" for name, own in sources.items()]
        raise RunError(
            f"compare: no step after 0 is kept by all {len(sources)} runs: "
            f"{'; '.join(seen[:3])}. Train them with the same --snapshot-every STEPS."
        )
    return [*steps]


def names_of(targets: Sequence[Any]) -> list[str]:
    """Names of runs and models, each another one."""
    names = []
    for target in targets:
        path = target.path if isinstance(target, store.Run) else target
        if isinstance(path, str | Path) and Path(path).suffix == ".safetensors":
            names.append("/".join([Path(path).resolve().parents[1].name, Path(path).stem]))
        elif isinstance(path, str | Path):
            names.append(Path(path).resolve().name if Path(path).is_dir() else str(path))
        elif isinstance(path, Autoencoder):
            names.append(path.title)
        else:
            names.append(type(target).__name__)
    if len(set(names)) == len(names):
        return names
    paths = all(isinstance(target, str | Path) for target in targets)
    texts = [str(target) for target in targets] if paths else names
    if len(set(texts)) == len(texts):
        return texts
    return [f"{text} ({k + 1})" for k, text in enumerate(texts)]


def _whole(members: Sequence[Member], flags: list[str]) -> list[Member]:
    """The runs whose model can be loaded; `flags` gets a line for each other one."""
    whole_ones = []
    for member in members:
        try:
            load(member.path)
        except RunError as error:
            flags.append(f"{member.name} is left out: {error}")
        else:
            whole_ones.append(member)
    if not whole_ones:
        raise RunError(
            f"compare: none of the {len(members)} models can be loaded. {' '.join(flags[:3])}"
        )
    return whole_ones


def _about(source: _Source) -> _About:
    model = list(source.stages.values())[-1]()
    seed = None if model.recipe is None else model.recipe.get("options", {}).get("seed")
    return _About(source.name, model.observation_shape, model.decodes, seed)


def _shared_starts(models: Sequence[_About]) -> list[str]:
    """A flag for models that started from the same weights."""
    seeds: dict[str, list[str]] = {}
    for each in models:
        if each.seed is not None:
            seeds.setdefault(str(each.seed), []).append(each.name)
    return [
        f"{', '.join(names)} started from the weights of seed {seed}, which makes them similar by "
        "itself. To see the effect of training alone, train with different seeds."
        for seed, names in seeds.items()
        if len(names) > 1
    ]


class DataOf:
    """The data that were given, or those of a run; the last ones stay loaded."""

    def __init__(self, data: Any, root: str | Path | None = None) -> None:
        self._root = root
        self._given = None if data is None else as_dataset(data)
        self._key, self._last = "", self._given

    def __call__(self, target: Any) -> Dataset:
        if self._given is not None:
            return self._given
        key = json.dumps(_data_recipe(target), sort_keys=True)
        if self._last is None or key != self._key:
            self._key, self._last = key, run_data(target, root=self._root)
        return self._last


def _data_recipe(target: Any) -> Any:
    if isinstance(target, str | Path) and store.is_run(target):
        return store.open_run(target).config.get("data")
    return str(target)
