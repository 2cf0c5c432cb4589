"""Packages whose functions are loaded when they are first used, so that a list needs no torch."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

__all__ = ["load_attribute"]


def load_attribute(package: str, name: str, homes: Mapping[str, str]) -> Any:
    """What the `__getattr__` of a package returns, and keeps as its attribute.

    `homes` are the modules of all such names: of the package itself, or with their whole name.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    home = homes[name] if homes[name].startswith("zscope.") else f"{package}.{homes[name]}"
    value = getattr(import_module(home), name)
    setattr(sys.modules[package], name, value)
    return value
