"""Options that several commands share, and how `key=value` is read."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from zscope.cli import completion
from zscope.errors import ConfigError

if TYPE_CHECKING:
    from zscope.collection import Runs

__all__ = [
    "AsCsv",
    "AsJson",
    "AssayNames",
    "AssayOption",
    "Cluster",
    "ClusterOption",
    "DataName",
    "DataOption",
    "FactorsFile",
    "Fresh",
    "Kinds",
    "LeaveOut",
    "ModelOption",
    "Quiet",
    "Resamples",
    "Root",
    "Samples",
    "Seed",
    "Target",
    "Variances",
    "Weights",
    "Where",
    "assay_options",
    "check_cluster",
    "check_output",
    "fractions",
    "refuse_unknown_names",
    "runs_where",
    "settings",
    "value",
    "value_or_model",
    "values_of_factors",
]

Target = Annotated[
    str,
    Argument(
        help="A run, a folder saved by diffusers or pythae, hf:org/name on the Hugging Face hub, "
        "package.module:attribute, file.py:attribute, or a file of codes."
    ),
]
AssayNames = Annotated[
    list[str] | None,
    Argument(
        metavar="[ASSAY]...",
        help="Assays or groups (default: all that apply).",
        autocompletion=completion.assays,
    ),
]
DataName = Annotated[
    str | None,
    Option(
        help="The name of a dataset, or a file (default for a run: its own data).",
        autocompletion=completion.datasets,
    ),
]
DataOption = Annotated[
    list[str] | None,
    Option(metavar="KEY=VALUE", help="An option of the data, e.g. resolution=32."),
]
ModelOption = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="An option of the model, e.g. --set beta=4."),
]
FactorsFile = Annotated[
    Path | None, Option("--factors", help="For a file of codes: the file of their factors.")
]
Kinds = Annotated[
    str | None,
    Option(help="Kinds of the factors: categorical, ordinal or continuous; one for all, or a,b,c."),
]
Variances = Annotated[
    Path | None, Option(help="For a file of codes: the file of posterior variances.")
]
Samples = Annotated[
    int | None,
    Option(min=1, help="Observations to encode (default 10,000; all for a file of codes)."),
]
Resamples = Annotated[
    int, Option(min=0, help="Resamples for 95 % intervals, e.g. 200; 0 for none.")
]
Weights = Annotated[
    Path | None, Option(help="A state dict (.safetensors, .pt) to load into the model.")
]
Seed = Annotated[int, Option(min=0, max=2**32 - 1, help="Makes every draw repeatable.")]
Root = Annotated[
    Path | None,
    Option(help="Where datasets are kept (default $ZSCOPE_DATA, else ~/.cache/zscope)."),
]
AssayOption = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="ASSAY.OPTION=VALUE",
        help="An option of an assay, e.g. --set response-map.dims=3,5; may be repeated. "
        "@RUN is a model.",
    ),
]
Fresh = Annotated[bool, Option("--fresh", help="Measure again, even if the run has the result.")]
Quick = Annotated[
    bool, Option("--quick", help="A first look: a quarter of the usual passes of the model.")
]
Quiet = Annotated[bool, Option("--quiet", help="Show no progress.")]
LeaveOut = Annotated[
    list[str] | None,
    Option(
        metavar="FACTOR=VALUE,VALUE",
        help="Train without these values of a factor, e.g. shape=sphere; may be repeated.",
    ),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON for another program.")]
Where = Annotated[
    list[str] | None,
    Option(metavar="NAME=VALUE,VALUE", help="Only runs with one of these; may be repeated."),
]
AsCsv = Annotated[bool, Option("--csv", help="Print the scores as CSV.")]


Cluster = Annotated[
    str | None,
    Option(help="A Dask scheduler (tcp://host:8786), or slurm to start workers as its jobs."),
]
ClusterOption = Annotated[
    list[str] | None,
    Option(metavar="KEY=VALUE", help="With --cluster slurm: queue=gpu, jobs=50, …"),
]


def check_cluster(
    command: str, jobs: int | None, cluster: str | None, options: list[str] | None
) -> None:
    """Refuse options of which one makes the other meaningless."""
    if cluster is not None and jobs is not None:
        raise ConfigError(
            f"{command}: got --jobs {jobs} and --cluster {cluster}. Jobs are processes of this "
            "machine: leave one of them out. For jobs of SLURM: --cluster-option jobs=50"
        )
    if options and cluster is None:
        raise ConfigError(
            f"{command}: --cluster-option {options[0]} without --cluster. Add --cluster slurm."
        )


def check_output(command: str, *, json: bool, csv: bool) -> None:
    """Refuse two formats at once, before anything is measured."""
    if json and csv:
        raise ConfigError(
            f"{command}: got --json and --csv, and only one of them can be printed. Leave one out."
        )


def runs_where(command: str, runs: "Runs", conditions: list[str] | None) -> "Runs":
    """The runs that fulfil every condition of --where NAME=VALUE,VALUE."""
    from zscope.results import listed

    for condition in conditions or []:
        name, equals, text = condition.partition("=")
        if not equals or not name.strip() or not text.strip():
            raise ConfigError(
                f"{command}: --where {condition!r} is not of the form NAME=VALUE, for instance "
                "--where beta=1,4."
            )
        column = runs.columns.resolve(name.strip(), f"{command}: --where")
        levels = runs.levels(column)
        # A list is one value, as it is printed: split=0.8,0.2.
        words = [text.strip()] if text.strip() in levels else None
        wanted = words or [value(part.strip()) for part in text.split(",")]
        selected = runs.select(**{column: wanted})
        if not len(selected):
            raise ConfigError(
                f"{command}: no run has {condition}. Values of {name.strip()}: {listed(levels)}."
            )
        runs = selected
    return runs


def settings(pairs: list[str] | None, flag: str) -> dict[str, Any]:
    """The options of `flag key=value`; numbers, booleans and lists are converted."""
    options = _pairs(pairs, flag, "key=value", f"{flag} beta=4")
    return {key.replace("-", "_"): value for key, value in options.items()}


def values_of_factors(pairs: list[str] | None) -> dict[str, Any]:
    """The values of `--leave-out factor=value,value`, by factor."""
    return _pairs(pairs, "--leave-out", "factor=value", "--leave-out shape=sphere")


def _pairs(pairs: list[str] | None, flag: str, form: str, example: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"{flag}: {pair!r} is not of the form {form}, for instance {example}."
            )
        chosen[key.strip()] = value(text.strip())
    return chosen


def assay_options(pairs: list[str] | None) -> dict[str, dict[str, Any]]:
    """The options of `--set ASSAY.OPTION=VALUE`, by assay."""
    options: dict[str, dict[str, Any]] = {}
    for pair in pairs or []:
        place, equals, text = pair.partition("=")
        assay, dot, option = place.strip().partition(".")
        if not equals or not dot or not assay or not option:
            raise ConfigError(
                f"--set: {pair!r} is not of the form ASSAY.OPTION=VALUE, for instance --set "
                "response-map.dims=3,5."
            )
        name = option.strip().replace("-", "_")
        options.setdefault(assay.strip(), {})[name] = value_or_model(text.strip())
    return options


def value_or_model(text: str) -> Any:
    """The model that @TARGET names, or else the `value` of the text."""
    if not text.startswith("@"):
        return value(text)
    from zscope.loading import load

    return load(text[1:])


def value(text: str) -> Any:
    """A number, true, false, null, a list (1,2,3 or [1, 2, 3]) or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if "," in text:
        return [value(part.strip()) for part in text.split(",") if part.strip()]
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return float(text)  # 1e-4 is JSON, .5 is not
    except ValueError:
        return text


def fractions(text: str) -> list[float]:
    """`0.8,0.1,0.1` as numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"--split: {text!r} is not a list of fractions, for instance --split 0.8,0.1,0.1"
        ) from None


def refuse_unknown_names(dataset: str, model: str) -> None:
    """Refuse a mistyped name before torch is loaded and any data are read."""
    from zscope import data, models

    models.about(model.partition("?")[0])
    if not data.looks_like_path(dataset.partition("?")[0]):
        data.source(dataset.partition("?")[0])
