"""Models: `zs.models.names()` lists them, `zs.models.build(name, ...)` makes one.

    model = zs.models.build("beta-vae", shape=data.shape, latents=10, beta=8)

One file is one model; `CATALOGUE` says where each name lives. A new model is one module
with an `ENTRY`, one test and one line here. Networks (`networks.py`) and likelihoods
(`objectives.py`) are chosen by options and combine with every model.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch

from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, did_you_mean
from zscope.models.entry import Entry, Option, one_of, positive_or_learned, whole
from zscope.models.networks import BACKBONES, SMALLEST_SIDE, default_backbone, initialise
from zscope.models.objectives import LIKELIHOODS, Losses, default_likelihood

__all__ = ["CATALOGUE", "Entry", "Losses", "Option", "build", "entry", "from_recipe", "names"]

# name -> module:attribute of its Entry.
CATALOGUE = {
    "ae": "ae:ENTRY",
    "vae": "vae:ENTRY",
    "beta-vae": "beta_vae:ENTRY",
}

# Options that every model has; the backbones' own are in BACKBONES.
PARTS = {
    "backbone": Option(
        None,
        f"Networks: {', '.join(BACKBONES)}. Pictures from 8 x 8 up get locatello, the rest mlp.",
        one_of(BACKBONES),
    ),
    "likelihood": Option(
        None,
        f"How x differs from its mean: {', '.join(LIKELIHOODS)}. Pictures get bernoulli, rows mse.",
        one_of(LIKELIHOODS),
    ),
    "gamma": Option(1.0, "Variance of the gaussian likelihood, or 'learned'.", positive_or_learned),
    "weights": Option(
        "torch", "Law of the initial weights: torch or xavier.", one_of(["torch", "xavier"])
    ),
    "seed": Option(0, "Decides the initial weights.", whole(0)),
}


def names() -> list[str]:
    """The names that `build` knows."""
    return list(CATALOGUE)


def entry(name: str) -> Entry:
    """What is known about a model: title, formula, paper, and all its options."""
    if name not in CATALOGUE:
        raise ConfigError(
            f"models: no model is called {name!r}. {did_you_mean(name, CATALOGUE)} See: "
            "zscope models list"
        )
    module, attribute = CATALOGUE[name].split(":")
    known: Entry = getattr(import_module(f"zscope.models.{module}"), attribute)
    return replace(known, options={**known.options, **PARTS, **_backbone_options()})


def build(name: str, *, shape: Sequence[int], latents: int, **options: Any) -> Autoencoder:
    """A new model with weights that depend on the option `seed` alone.

    `shape` is the shape of one observation, (channels, height, width) or (features,); a
    dataset has it as `data.shape`. `options` are those of the model, its likelihood and its
    backbone (`zscope models info NAME` lists them). `model.recipe` says how `from_recipe`
    can make the same model again.
    """
    known = entry(name)
    size = _read_shape(name, shape)
    latents = _read(name, "latents", whole(1), latents)
    chosen = _chosen(known, size, options)
    backbone = BACKBONES[chosen["backbone"]]
    of_backbone = {key: value for key, value in chosen.items() if key in backbone.options}
    common = {*PARTS, *backbone.options}
    of_model = {key: value for key, value in chosen.items() if key not in common}
    of_likelihood = {"gamma": chosen["gamma"]} if "gamma" in chosen else {}
    # PyTorch's constructors draw weights from the global random state. On the meta device
    # there is nothing to draw for; `initialise` then fills in our own numbers.
    with torch.device("meta"):
        model: Any = known.model(
            backbone.encoder(size, known.outputs(latents), **of_backbone),
            backbone.decoder(size, latents, **of_backbone),
            shape=size,
            latents=latents,
            likelihood=LIKELIHOODS[chosen["likelihood"]](**of_likelihood),
            **of_model,
        )
    initialise(model, seed=chosen["seed"], weights=chosen["weights"])
    model.recipe = {"name": name, "shape": list(size), "latents": latents, "options": chosen}
    return model


def from_recipe(recipe: dict[str, Any]) -> Autoencoder:
    """The model that a run's configuration describes, with its initial weights."""
    missing = {"name", "shape", "latents"} - set(recipe)
    if missing:
        raise ConfigError(
            f"models: a recipe without {', '.join(sorted(missing))}; found "
            f"{', '.join(sorted(recipe)) or 'nothing'}. Take model.recipe of a built model."
        )
    return build(
        recipe["name"],
        shape=recipe["shape"],
        latents=recipe["latents"],
        **recipe.get("options", {}),
    )


def _chosen(known: Entry, shape: tuple[int, ...], given: dict[str, Any]) -> dict[str, Any]:
    """All options in force, in plain JSON: those given, and the defaults of the rest."""
    unknown = sorted(set(given) - set(known.options))
    if unknown:
        raise ConfigError(
            f"models: {known.name} has no option {unknown[0]!r}. "
            f"{did_you_mean(unknown[0], known.options)}"
        )
    values = {
        key: _read(known.name, key, known.options[key].read, value)
        for key, value in given.items()
        if value is not None
    }
    backbone = values.get("backbone") or default_backbone(shape)
    likelihood = values.get("likelihood") or default_likelihood(shape)
    if BACKBONES[backbone].pictures_only and (len(shape) != 3 or min(shape[1:]) < SMALLEST_SIDE):
        raise ConfigError(
            f"models: the backbone {backbone} convolves pictures of at least {SMALLEST_SIDE} x "
            f"{SMALLEST_SIDE}, but the observations have shape {shape}. Use backbone='mlp'."
        )
    defaults = {key: option.default for key, option in known.options.items()}
    defaults |= {"backbone": backbone, "likelihood": likelihood}
    # The same word may have another default in another backbone (relu here, elu there).
    defaults |= {key: option.default for key, option in BACKBONES[backbone].options.items()}
    idle = {
        key: "backbone" for key in _backbone_options() if key not in BACKBONES[backbone].options
    }
    if likelihood != "gaussian":
        idle["gamma"] = "likelihood"
    for key in values:
        if key in idle:
            part = idle[key]
            homes = "gaussian" if key == "gamma" else " or ".join(_backbones_with(key))
            raise ConfigError(
                f"models: the option {key}={given[key]!r} has no effect with {part}="
                f"{defaults[part]!r}{'' if part in values else ' (the default for such data)'}. "
                f"Leave it out, or choose {part}={homes}."
            )
    return deepcopy({key: values.get(key, defaults[key]) for key in defaults if key not in idle})


def _backbone_options() -> dict[str, Option]:
    """The options of all backbones. One that several have is shown with the default None."""
    union: dict[str, Option] = {}
    for backbone in BACKBONES.values():
        for key, option in backbone.options.items():
            same = union.get(key, option)
            union[key] = option if same.default == option.default else replace(option, default=None)
    return {
        key: replace(option, help=f"{option.help} ({', '.join(_backbones_with(key))})")
        for key, option in union.items()
    }


def _backbones_with(option: str) -> list[str]:
    return [name for name, backbone in BACKBONES.items() if option in backbone.options]


def _read(name: str, key: str, read: Any, value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ConfigError(
            f"models: {name}: {key}={value!r}, but {error}. See: zscope models info {name}"
        ) from None


def _read_shape(name: str, shape: Any) -> tuple[int, ...]:
    try:
        size = tuple(whole(1)(side) for side in shape)
    except (TypeError, ValueError):
        size = ()
    if len(size) not in (1, 3):
        raise ConfigError(
            f"models: {name}: shape={shape!r}, but the shape of one observation is needed: "
            "(features,) or (channels, height, width), without the batch. Use data.shape."
        )
    return size
