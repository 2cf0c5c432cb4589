"""Options that several commands have, and the reading of `key=value`."""

import json
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from zscope.errors import ConfigError

DataName = Annotated[
    str | None, Option(help="A dataset by name or a file; for a run, its own data.")
]
DataOption = Annotated[
    list[str] | None,
    Option(metavar="KEY=VALUE", help="An option of the data, e.g. resolution=32."),
]
ModelOption = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="An option of the model, e.g. --set beta=4."),
]
Weights = Annotated[
    Path | None, Option(help="A state dict (.safetensors, .pt) for the module named.")
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
        help="An option of an assay, e.g. --set response-map.dims=3,5; may be repeated.",
    ),
]
Fresh = Annotated[bool, Option("--fresh", help="Measure again what was kept with the run.")]
Quiet = Annotated[bool, Option("--quiet", help="No progress.")]
AsJson = Annotated[bool, Option("--json", help="Print JSON for another program.")]


def settings(pairs: list[str] | None, flag: str) -> dict[str, Any]:
    """The options given by `flag key=value`, with numbers, booleans and lists understood."""
    found: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"{flag}: {pair!r} is not of the form key=value, for instance {flag} beta=4."
            )
        found[key.strip().replace("-", "_")] = value(text.strip())
    return found


def assay_options(pairs: list[str] | None) -> dict[str, dict[str, Any]]:
    """The options given by `--set ASSAY.OPTION=VALUE`, by assay."""
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
        options.setdefault(assay.strip(), {})[name] = value(text.strip())
    return options


def value(text: str) -> Any:
    """A number, true, false, null, a list (1,2,3 or [1, 2, 3]) or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if "," in text:
        return [value(part.strip()) for part in text.split(",") if part.strip()]
    named = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in named:
        return named[text.lower()]
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
