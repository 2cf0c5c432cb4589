"""The address of a run: a hash of its configuration, so that the same run is trained once.

    beta-vae-sprites-b4-s0-3f9a1c20be77

The hash is of the model recipe, the data recipe (with the content of one's own files instead of
their path), the address of the run that it starts from, if any, and the settings of training, each
in one form: a default that is written out or left
out, 1 and 1.0, a list and a tuple are the same. Recipes of models and settings are in that form
when they are checked; options of data are brought into it here. The hash leaves out what does not
change the trained weights: where checkpoints and snapshots are taken, on which device, and the
scaling, which follows from the data. Sweeps and studies that use one folder of runs share the runs
of equal address.
"""

import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from zscope import data as datasets
from zscope.collection.index import LEFT_OUT
from zscope.errors import DataError
from zscope.files import open_regular
from zscope.training.config import TrainConfig

__all__ = ["LEFT_OUT", "address", "content_hash", "data_hash", "run_name"]

DIGITS = 12


def address(config: TrainConfig) -> str:
    """The hash of a configuration whose model and data have recipes."""
    plain = config.model_dump(exclude=set(LEFT_OUT))
    plain["data"] = _data(plain["data"], scaled=config.scaling is not None)
    if config.start is not None and config.start.address is not None:
        plain["start"] = config.start.address
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _data(recipe: dict[str, Any], *, scaled: bool) -> dict[str, Any]:
    """A data recipe in one form: however its options were written, wherever its files lie."""
    name, options = recipe["name"], datasets.options_in_force(recipe["name"], recipe["options"])
    contents = _contents(recipe)
    options |= {option: content for option, content in contents.items() if option}
    if "" in contents:
        # Whether features are standardised follows from the file where it is not said.
        name, options["standardise"] = contents[""], scaled
    return {**recipe, "name": name, "options": options}


def data_hash(recipe: dict[str, Any]) -> str:
    """A hash of one's own files that a data recipe names; "" if it names none."""
    return " ".join(_contents(recipe).values())


def _contents(recipe: dict[str, Any]) -> dict[str, str]:
    """A hash of each file of one's own in a data recipe, by the option that names it."""
    files = datasets.files_of(recipe)
    return {option: content_hash(file, *_stamp(file)) for option, file in files.items()}


def run_name(config: TrainConfig, hashed: str) -> str:
    """The name of the folder of a run: model, data, β if it has one, seed, hash."""
    assert config.model is not None
    assert config.data is not None
    beta = config.model.options.get("beta")
    parts = [config.model.name, Path(config.data.name).stem]
    parts += [] if beta is None else [f"b{beta:g}"]
    parts += [f"s{config.seed}"]
    words = re.sub(r"[^\w.+-]+", "-", "-".join(parts))[:80].strip("-.")
    return f"{words}-{hashed[:DIGITS]}"


@lru_cache(maxsize=1024)
def content_hash(path: Path, *stamp: Any) -> str:
    """A hash of a file, or of the names and contents of all files in a folder.

    `stamp` is not used: it makes the cache forget files that have changed.
    """
    digest = hashlib.sha256()
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
    try:
        for file in files:
            if path.is_dir():
                digest.update(file.relative_to(path).as_posix().encode() + b"\0")
            with open_regular(file, "sweep") as stream:
                while piece := stream.read(2**22):
                    digest.update(piece)
    except OSError as error:
        raise DataError(
            f"sweep: {path} cannot be read ({error.strerror or error}), and a run is named by the "
            "content of its data. Is the file there, and may you read it?"
        ) from error
    return f"sha256:{digest.hexdigest()}"


def _stamp(path: Path) -> tuple[Any, ...]:
    """What changes when the files do."""
    try:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    except OSError:
        return ()
