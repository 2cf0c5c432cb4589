"""Reading `key=value` options from the command line."""

import json
from typing import Any

from zscope.errors import ConfigError


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
