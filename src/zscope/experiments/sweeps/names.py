"""Names with options behind them: "sprites?resolution=32", "beta-vae?beta=4&hidden=[64,64]"."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from zscope.errors import ConfigError

__all__ = ["data_text", "parse_name"]


def parse_name(text: str) -> tuple[str, dict[str, Any]]:
    """The name, and the options: numbers, true, false, null, lists or words."""
    name, _, query = text.strip().partition("?")
    for pair in filter(None, query.split("&")):
        if not pair.partition("=")[1] or pair.startswith("="):
            raise ConfigError(
                f"{name}: {pair!r} in {text!r} is not of the form option=value, for instance "
                "sprites?resolution=32&samples=1000."
            )
    pairs = parse_qsl(query, keep_blank_values=True, separator="&")
    return name, {key.replace("-", "_"): _value(value) for key, value in pairs}


def data_text(recipe: Mapping[str, Any]) -> str:
    """The text that names the data of a recipe (`dataset.recipe`) in a plan."""
    name, options = str(recipe["name"]), dict(recipe.get("options", {}))
    if part := recipe.get("split") or recipe.get("leave_out"):
        raise ConfigError(
            f"data_text: the data are a part of {name} ({part}), and a plan names whole datasets. "
            "Give the whole one, or save the part as a file."
        )
    if "?" in name:
        raise ConfigError(
            f"data_text: {name} has a question mark in its name, behind which options are "
            "expected. Rename the file."
        )
    if not options:
        return name
    return f"{name}?{urlencode({key: _text(key, value) for key, value in options.items()})}"


def _value(text: str) -> Any:
    """A number, true, false or null, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(option: str, value: Any) -> str:
    if isinstance(value, str) and _value(value) == value:
        return value
    try:
        return json.dumps(value)
    except TypeError:
        raise ConfigError(
            f"data_text: the option {option} of the data is a {type(value).__name__}, which cannot "
            "be written down. Save the data as a file and give its path."
        ) from None
