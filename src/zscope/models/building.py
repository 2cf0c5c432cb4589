"""Building models: a name, the shape of the data and options become a network with its loss."""

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch

from zscope import files
from zscope.errors import ConfigError, ResourceError, did_you_mean
from zscope.models import CATALOGUE, entry
from zscope.models.composed import Composed
from zscope.models.entry import About, Entry, Option, whole
from zscope.models.naming import parse
from zscope.models.networks import BACKBONES, default_backbone, initialise
from zscope.models.objectives import LIKELIHOODS, default_likelihood
from zscope.models.parts import (
    BELONGS,
    DECODING,
    LOSS,
    PARTS,
    assemble,
    check_parts,
    penalty,
)

__all__ = [
    "build", "build_for", "from_recipe", "load_entry", "numbers_of_objective", "outline",
    "recipe_for", "refuse_arguments",
]  # fmt: skip


def load_entry(about: About) -> Entry:
    """The whole entry of a model, of which lists show a part."""
    name = about.name
    if composed := parse(name):
        plain = entry(composed.objective)
        if "beta" in composed.defaults:
            plain = _with_beta(plain)
        options = {k: option for k, option in plain.options.items() if k not in composed.parts}
        if backbone := composed.parts.get("backbone"):
            options = {k: option for k, option in options.items() if k not in _backbone_options()}
            options |= BACKBONES[backbone].options
        options |= {k: _with_default(options[k], v) for k, v in composed.defaults.items()}
        documents = [_document(module) for module in composed.modules]
        return replace(
            plain,
            **vars(about),
            summary="\n".join([about.title + "\n", *documents, plain.summary]),
            options=options,
        )
    module, attribute = CATALOGUE[name].split(":")
    spec: Entry = getattr(import_module(f"zscope.models.{module}"), attribute)
    options = {**spec.options, **PARTS, **_backbone_options()}
    if not spec.decodes:
        options = {key: option for key, option in options.items() if key not in DECODING}
    return replace(spec, options=options)


def _document(module: str) -> str:
    return import_module(f"zscope.models.{module}").__doc__ or ""


def _with_beta(vae: Entry) -> Entry:
    """A VAE whose divergence has a weight, which is 1 unless it is given."""
    beta = entry("beta-vae")
    option = replace(beta.options["beta"], default=1.0, quiet=True)
    return replace(
        vae,
        objective=beta.objective,
        divergence_weight="beta",
        options={"beta": option, **vae.options},
    )


def _with_default(option: Option, default: Any) -> Option:
    """The option with a default of this model's own, which recipes always record."""
    if option.default == default:
        return option
    return replace(option, default=default, help=option.help.split(" Default:")[0], quiet=False)


ARGUMENTS = {
    "latents": "a setting of its own: --latents, latents= or the field latents of a plan",
    "name": "the name of the model itself",
    "data": "the data, which are named beside the model",
    "shape": "that of the data",
}


def refuse_arguments(options: Iterable[str]) -> None:
    """Refuse options that are arguments of `build` and `build_for`."""
    for key in options:
        if key in ARGUMENTS:
            raise ConfigError(
                f"models: {key} is not an option of a model; it is {ARGUMENTS[key]}. Leave it out "
                "of the options."
            )


def build(
    name: str, *, shape: Sequence[int], latents: int | None = None, **options: Any
) -> Composed:
    """A new model with weights that depend on the option `seed` alone.

    `shape` is the shape of one observation, (channels, height, width) or (features,); a
    dataset has it as `data.shape`. There are 10 latents unless `latents` says otherwise; maps, as
    those of `spatial-vae`, have channels x places, so it is left out. `options` are those of the
    model, its likelihood and its backbone (`zscope models info NAME` lists them).
    `from_recipe(model.recipe)` builds the same model again.
    """
    model, seed, weights = _outline(name, shape, latents, options)
    tensors = [*model.parameters(), *model.buffers()]
    count = sum(tensor.numel() for tensor in tensors)
    what = f"{name} with latents={model.latents} ({count:.2g} weights)"
    files.check_memory("models", sum(tensor.nbytes for tensor in tensors), what)
    with _too_large(name, model.latents):
        initialise(model, seed=seed, weights=weights)
    return model


def outline(recipe: dict[str, Any]) -> Composed:
    """The model of a recipe on the meta device: its structure, without memory for weights."""
    return _outline(*_parts_of(recipe))[0]


def _outline(
    name: str, shape: Sequence[int], given: int | None, options: dict[str, Any]
) -> tuple[Composed, int, str]:
    """A model without weights, and the seed and the scheme to draw them with."""
    spec = entry(name)
    size = _read_shape(name, shape)
    given = None if given is None else _read(name, "latents", whole(1), given)
    recorded, settings = _choose_options(spec, size, options)
    latents = check_parts(spec, size, given, settings)
    backbone_options = {key: settings[key] for key in BACKBONES[settings["backbone"]].options}
    objective_options = {key: settings[key] for key in _objective_options(spec)}
    # PyTorch's constructors draw weights from the global random state. On the meta device
    # there is nothing to draw for; `initialise` then fills in our own numbers.
    with _too_large(name, latents), torch.device("meta"):
        networks = assemble(spec, size, latents, settings, backbone_options)
        gamma = {"gamma": settings["gamma"]} if settings["likelihood"] == "gaussian" else {}
        likelihood: Any = LIKELIHOODS[settings["likelihood"]](**gamma)
        if isinstance(spec.objective, type):
            objective = spec.objective(latents=latents, **objective_options)
        else:
            objective = partial(spec.objective, **objective_options)
        weight = spec.divergence_weight
        model = Composed(
            networks.encoder,
            networks.decoder,
            shape=size,
            latents=latents,
            likelihood=likelihood,
            objective=objective,
            posterior=settings["posterior"],
            prior=spec.prior,
            block=networks.block,
            penalty=penalty(settings),
            groups=networks.groups,
            layout=networks.layout,
            needs=spec.needs,
            conditional=spec.conditional,
            reconstruction_weight=settings["reconstruction_weight"],
            divergence_weight=settings[weight] if isinstance(weight, str) else weight,
        )
    model.recipe = {"name": name, "shape": list(size), "latents": latents, "options": recorded}
    return model, settings["seed"], settings["weights"]


@contextmanager
def _too_large(name: str, latents: int) -> Iterator[None]:
    """Sizes that PyTorch cannot count or allocate."""
    try:
        yield
    except (RuntimeError, OverflowError, MemoryError) as error:
        raise ResourceError(
            f"models: {name} with latents={latents} and these layers is too large to be built "
            f"({str(error).splitlines()[0][:100]}). Use fewer latents or smaller layers."
        ) from error


def build_for(name: str, data: Any, *, latents: int | None = None, **options: Any) -> Composed:
    """A new model for a dataset: `build`, with what follows from the data filled in.

    The shape, and the columns of the auxiliary variable for models that have one.
    """
    return build(name, shape=data.shape, latents=latents, **_for_data(name, data, options))


def recipe_for(
    name: str, data: Any, *, latents: int | None = None, **options: Any
) -> dict[str, Any]:
    """The recipe of the model that `build_for` would build, with all its options."""
    spec, size = entry(name), _read_shape(name, data.shape)
    given = None if latents is None else _read(name, "latents", whole(1), latents)
    recorded, settings = _choose_options(spec, size, _for_data(name, data, options))
    latents = check_parts(spec, size, given, settings)
    return {"name": name, "shape": list(size), "latents": latents, "options": recorded}


def _for_data(name: str, data: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options, with those that follow from the data."""
    if not entry(name).conditional or "auxiliary" in options:
        return options
    if data.factors is None:
        raise ConfigError(
            f"models: {name} needs an auxiliary variable, but {data.name} has no factors to take "
            "it from. Use data with factors or labels, or another model."
        )
    return {**options, "auxiliary": _columns(data)}


def from_recipe(recipe: dict[str, Any]) -> Composed:
    """The model that a run's configuration describes, with its initial weights."""
    name, shape, latents, options = _parts_of(recipe)
    return build(name, shape=shape, latents=latents, **options)


def _parts_of(recipe: dict[str, Any]) -> tuple[str, list[int], int, dict[str, Any]]:
    """Name, shape, latents and options of a model."""
    recipe = recipe if isinstance(recipe, dict) else {}
    missing = {"name", "shape", "latents"} - set(recipe)
    if missing:
        raise ConfigError(
            f"models: the recipe lacks {', '.join(sorted(missing))}; it has "
            f"{', '.join(sorted(recipe)) or 'nothing'}. Use model.recipe of a built model."
        )
    refuse_arguments(recipe.get("options", {}))
    return recipe["name"], recipe["shape"], recipe["latents"], recipe.get("options", {})


def _choose_options(
    spec: Entry, shape: tuple[int, ...], given: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options in force as the recipe records them, given or default, in plain JSON; and
    all options, with the parts that the name fixes and those that are absent."""
    unknown = sorted(set(given) - set(spec.options))
    if unknown:
        raise ConfigError(
            f"models: {spec.name} has no option {unknown[0]!r}. "
            f"{did_you_mean(unknown[0], spec.options)}"
        )
    given = {key: value for key, value in given.items() if value is not None}
    composed = parse(spec.name)
    fixed = composed.parts if composed else {}
    parts = {
        key: fixed.get(key, spec.options.get(key, option).default) for key, option in PARTS.items()
    }
    parts |= {
        key: _read(spec.name, key, PARTS[key].read, given[key]) for key in given if key in PARTS
    }
    many_blocks = parts["decoder"] != "hourglass"
    parts["backbone"] = parts["backbone"] or default_backbone(shape, many_blocks=many_blocks)
    # A model without a decoder puts no condition on its observations.
    likelihood = default_likelihood(shape) if spec.decodes else "mse"
    parts["likelihood"] = parts["likelihood"] or likelihood
    parts["posterior"] = parts["posterior"] or spec.posterior
    # The same word may mean something else in another backbone (relu here, elu there).
    options = {key: spec.options[key] for key in _objective_options(spec)}
    options |= dict(BACKBONES[parts["backbone"]].options)
    settings = {
        key: _read(spec.name, key, option.read, given[key]) if key in given else option.default
        for key, option in options.items()
    }
    if spec.fit is not None:
        settings |= spec.fit(shape, settings)
    for key in given:
        part, homes = BELONGS.get(key, (None, ()))
        if part is not None and parts[part] not in homes:
            default = "" if part in given or part in fixed else " (the default for such data)"
            raise ConfigError(
                f"models: the option {key}={given[key]!r} has no effect with {part}="
                f"{parts[part]!r}{default}. Leave it out, or choose {part}={' or '.join(homes)}."
            )
    chosen = parts | settings
    defaults = {key: option.default for key, option in (PARTS | options).items() if option.quiet}
    defaults["posterior"] = spec.posterior
    omitted = {key for key, default in defaults.items() if chosen[key] == default} | set(fixed)
    omitted |= set() if spec.decodes else set(DECODING)
    omitted |= {k for k, (part, homes) in BELONGS.items() if parts[part] not in homes}
    of_backbone = [key for key in settings if key in BACKBONES[parts["backbone"]].options]
    recorded = {k: value for k, value in settings.items() if k not in of_backbone}
    recorded |= parts | {key: settings[key] for key in of_backbone}
    recorded = {key: value for key, value in recorded.items() if key not in omitted}
    return deepcopy(recorded), deepcopy(chosen)


def numbers_of_objective(name: str) -> list[str]:
    """The options of a model that its loss takes, which change nothing of its networks."""
    spec = entry(name)
    return [*_objective_options(spec), *(LOSS if spec.decodes else ())]


def _objective_options(spec: Entry) -> list[str]:
    of_networks = {key for backbone in BACKBONES.values() for key in backbone.options}
    return [key for key in spec.options if key not in PARTS and key not in of_networks]


@cache
def _backbone_options() -> dict[str, Option]:
    """The options of all backbones. One that several backbones have with different defaults
    is listed with the default None, and with the help of each."""
    union: dict[str, Option] = {}
    for key in dict.fromkeys(key for backbone in BACKBONES.values() for key in backbone.options):
        homes = BELONGS[key][1]
        first, *others = (BACKBONES[home].options[key] for home in homes)
        text = f"{first.help} ({', '.join(homes)})"
        if any(option.help != first.help for option in others):
            text = " ".join(f"{home}: {BACKBONES[home].options[key].help}" for home in homes)
        same = all(option.default == first.default for option in others)
        union[key] = replace(first, help=text, default=first.default if same else None)
    return union


def _columns(data: Any) -> list[int | list[float]]:
    """How many categories, or which range, each factor of the data has."""
    columns: list[int | list[float]] = []
    for values, size, kind in zip(
        data.factors.T, data.factor_sizes, data.factor_kinds, strict=True
    ):
        low, high = float(values.min()), float(values.max())
        if kind == "categorical":
            columns.append(max(int(size), int(high) + 1))
        else:
            # A subset may lack the ends of the grid, so take them from the whole grid.
            whole_grid = size > 1 and low >= 0 and high <= size - 1
            columns.append([0.0, float(size - 1)] if whole_grid else [low, high])
    return columns


def _read(name: str, key: str, read: Any, value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ConfigError(
            f"models: {name}: {key}={reprlib.repr(value)}; {error}. See: zscope models info {name}"
        ) from None


def _read_shape(name: str, shape: Any) -> tuple[int, ...]:
    try:
        size = tuple(whole(1)(side) for side in shape)
    except (TypeError, ValueError):
        size = ()
    if len(size) not in (1, 3):
        raise ConfigError(
            f"models: {name}: shape={shape!r}; expected the shape of one observation, "
            "(features,) or (channels, height, width), without the batch. Use data.shape."
        )
    return size
