"""Datasets: `zs.data.names()` lists them, `zs.data.load(name)` loads one.

Each file is one publisher's dataset or one built-in generator; `CATALOGUE` maps names to
files. A new dataset is one module with a `Source`, one test and one line here.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from zscope.data.dataset import Dataset, from_arrays, grid_factors
from zscope.data.source import Factor, File, Source, plain_value, typed
from zscope.errors import ConfigError, DataError, did_you_mean

__all__ = [
    "CATALOGUE", "Dataset", "Factor", "File", "Source", "files_of", "folder", "from_arrays",
    "from_recipe", "grid_factors", "load", "names", "options_in_force", "source",
]  # fmt: skip

# Name -> module:attribute of its Source. Built-in data first, then real data.
CATALOGUE = {
    "helix": "helix:HELIX",
    "square-linear": "square:LINEAR",
    "square-nonlinear": "square:NONLINEAR",
    "square-wave": "square:WAVE",
    "bent-plane": "bent_plane:BENT_PLANE",
    "sprites": "sprites:SPRITES",
    "sprites-color": "sprites:COLOR",
    "sprites-noisy": "sprites:NOISY",
    "sprites-background": "sprites:BACKGROUND",
    "rooms": "rooms:ROOMS",
    "digits": "digits:DIGITS",
    "mnist": "mnist:MNIST",
    "fashion-mnist": "mnist:FASHION",
    "dsprites": "dsprites:DSPRITES",
    "shapes3d": "shapes3d:SHAPES3D",
    "mpi3d-toy": "mpi3d:TOY",
    "mpi3d-sim": "mpi3d:SIM",
    "mpi3d-real": "mpi3d:REAL",
    "cars3d": "cars3d:CARS3D",
    "smallnorb": "smallnorb:SMALLNORB",
    "celeba": "celeba:CELEBA",
    "symsol": "symsol:SYMSOL",
}


def names() -> list[str]:
    """The names that `load` knows, built-in data first."""
    return list(CATALOGUE)


def source(name: str) -> Source:
    """The catalogue entry of a dataset: what is known without loading it."""
    if name not in CATALOGUE:
        raise DataError(
            f"data: there is no dataset {name!r}. {did_you_mean(name, CATALOGUE)} For a file of "
            "your own give its path, for instance ./images.npy. List all: zscope data list"
        )
    module, attribute = CATALOGUE[name].split(":")
    entry: Source = getattr(import_module(f"zscope.data.{module}"), attribute)
    return entry


def folder(root: str | Path | None = None) -> Path:
    """Where datasets are kept: `root`, else $ZSCOPE_DATA, else ~/.cache/zscope."""
    path = root or os.environ.get("ZSCOPE_DATA")
    return Path(path).expanduser() if path else Path.home() / ".cache" / "zscope"


def load(name: str | Path, *, root: str | Path | None = None, **options: Any) -> Dataset:
    """Load a dataset by name, or a file or folder of your own by its path.

    `options` are those of the dataset (`zscope data info NAME` lists them), for instance
    `load("sprites", resolution=32)`, and those of any dataset (`zscope.data.modified`).
    """
    from zscope.data import modified

    changes = {key: options.pop(key) for key in modified.OPTIONS if key in options}
    if changes:
        return _load_modified(load(name, root=root, **options), changes)
    own = isinstance(name, Path)
    name = str(name)
    if own or (name not in CATALOGUE and looks_like_path(name)):
        from zscope.data.own import OPTIONS, load_path

        _check_options(name, options, OPTIONS)
        data = load_path(Path(name).expanduser(), **options)
        if "imputed" in data.provenance:  # what was filled in, for later tables too
            options = {**options, "impute": data.provenance["imputed"]}
        return _with_recipe(data, str(Path(name).expanduser().resolve()), options, root)
    entry = source(name)
    _check_options(name, options, entry.options)
    parameters = signature(entry.load).parameters
    options = {key: typed(value, parameters[key].annotation) for key, value in options.items()}
    return _with_recipe(load_source(entry, folder(root), options), name, options, root)


def _load_modified(data: Dataset, changes: dict[str, Any]) -> Dataset:
    """The dataset with the options of any dataset, which its recipe then has too."""
    from zscope.data import modified

    parameters = signature(modified.modify).parameters
    changes = {key: typed(value, parameters[key].annotation) for key, value in changes.items()}
    try:
        data = modified.modify(data, **changes)
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{key}={value!r:.60}" for key, value in changes.items())
        raise ConfigError(
            f"{data.name}: it cannot be made with {given} ({error}). Is one of them of the wrong "
            f"kind? See: zscope data info {data.name}"
        ) from error
    recipe = data.recipe or {}
    options = {**recipe.get("options", {}), **changes}
    return replace(data, recipe={**recipe, "options": options})


def load_source(entry: Source, root: Path, options: dict[str, Any]) -> Dataset:
    """The dataset of a source, whose files are below `root`; built-in data need only a cache."""
    from zscope.data.fetching import UNREADABLE

    if entry.built_in:
        try:
            return entry.load(folder() / entry.name, **options)
        except (TypeError, ValueError) as error:
            if not options:
                raise
            given = ", ".join(f"{key}={value!r:.60}" for key, value in options.items())
            raise ConfigError(
                f"{entry.name}: it cannot be made with {given} ({error}). Is one of them of the "
                f"wrong kind? See: zscope data info {entry.name}"
            ) from error
    try:
        return entry.load(root / entry.name, **options)
    except UNREADABLE as error:
        files = ", ".join(file.name for file in entry.files)
        raise DataError(
            f"{entry.name}: {files} in {root / entry.name} cannot be read "
            f"({type(error).__name__}: {error}). Damaged? Fetch again: zscope data fetch "
            f"{entry.name}"
        ) from error


def from_recipe(recipe: dict[str, Any], *, root: str | Path | None = None) -> Dataset:
    """Load the dataset that a run's configuration describes."""
    options = recipe.get("options", {})
    if wrong := sorted({"name", "root"} & set(options)):
        raise ConfigError(
            f"data: the configuration of the run has {wrong[0]}={options[wrong[0]]!r:.60} among "
            f"the options of {recipe['name']}, which is none. Was it edited? Name the data: --data"
        )
    data = load(recipe["name"], root=root, **options)
    if split := recipe.get("split"):
        data = data.split(split["fractions"], seed=split["seed"])[split["part"]]
    if left_out := recipe.get("leave_out"):
        try:
            data = data.leave_out(left_out, missing_ok=True)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{data.name}: the configuration of the run leaves out {left_out!r:.80}, which are "
                f"no values of its factors ({error}). Was it edited? Name the data: --data"
            ) from error
    return data


def options_in_force(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a recipe in one form, however they were written: for comparisons.

    What equals its default is left out, numbers and lists are `plain_value`s, and choices are
    what was chosen: noise=1 and noise=1.0, shape=square and shape=[0] are the same.
    """
    from zscope.data import modified

    if Path(name).is_absolute():
        from zscope.data.own import FORMS, load_path

        forms, function, side = FORMS, load_path, None
    else:
        entry = source(name)
        forms, function = dict(entry.forms), entry.load
        side = entry.shape[-1] if entry.shape else None  # without the option resolution
    parameters = {**signature(function).parameters, **signature(modified.modify).parameters}
    forms = {**forms, **modified.FORMS}
    chosen = {}
    for option, value in options.items():
        default = parameters[option].default
        if option == "resolution" and default is None:
            default = side
        form = forms.get(option, plain_value)
        if (plain := plain_value(form(value))) != plain_value(form(default)):
            chosen[option] = plain
    return chosen


def files_of(recipe: Mapping[str, Any]) -> dict[str, Path]:
    """The files of one's own that a recipe names: its data (""), and those that options name."""
    name, options = recipe.get("name", ""), recipe.get("options", {})
    if Path(name).is_absolute():
        from zscope.data.arrays import factors_file
        from zscope.data.columns import comma_separated

        path = Path(name)
        factors = comma_separated(options.get("factors"))
        other = {"factors": factors_file(path, factors[0])} if factors else {}
        return {"": path, **(other if path.suffix == ".npy" else {})}
    image = options.get("image")
    return {} if image is None else {"image": Path(image).expanduser()}


def looks_like_path(name: str) -> bool:
    """Whether a name can only be meant as a path."""
    return os.sep in name or name.startswith((".", "~")) or Path(name).suffix != ""


def _check_options(name: str, options: dict[str, Any], known: Mapping[str, str]) -> None:
    from zscope.data import modified

    known = {**known, **modified.OPTIONS} if known else known
    for option in options:
        if option not in known:
            raise ConfigError(
                f"data: {name} has no option {option!r}. "
                + (did_you_mean(option, known) if known else "It has no options.")
            )


def _with_recipe(
    data: Dataset, name: str, options: dict[str, Any], root: str | Path | None
) -> Dataset:
    # Another process that loads the dataset again must look in the same folder.
    where = {} if root is None else {"root": str(root)}
    # And find the same files, whatever folder it is in.
    recipe = {"name": name, "options": options}
    files = {k: str(path.resolve()) for k, path in files_of(recipe).items() if k}
    recipe = {"name": name, "options": {**options, **files}}
    return replace(data, recipe=recipe, provenance={**data.provenance, **where})


def __dir__() -> list[str]:
    return sorted(__all__)
