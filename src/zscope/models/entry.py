"""What the catalogue knows about a model: its formula, its paper, and its options."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from numbers import Integral, Real
from typing import Any, Literal

__all__ = [
    "About", "Entry", "Option", "finite", "not_negative", "one_of", "positive",
    "positive_or_learned",
    "sizes", "whole", "width",
]  # fmt: skip

MOST_LAYERS = 1000


@dataclass(frozen=True)
class Option:
    """One setting of `zs.models.build`.

    `read` turns a Python value or the text of a command line into the value used, or raises
    a ValueError that says what was expected. A default of None means that the value follows
    from the data or from another option; the help says how. A `quiet` option is left out of a
    recipe where it has its default: a new one, so that known runs keep their recipes.
    """

    default: Any
    help: str
    read: Callable[[Any], Any]
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class About:
    """What lists show of a model. They read it from the file of its entry without running it.

    `needs` is that of `zscope.autoencoder.Trainable`.
    """

    name: str
    title: str
    formula: str
    paper: str
    needs: frozenset[str] = frozenset()
    decodes: bool = True


@dataclass(frozen=True, kw_only=True)
class Entry(About):
    """One entry of the catalogue of models.

    `objective` is a function (batch, **options) -> Losses, or, if it has weights of its
    own, a class that is constructed with (latents=, **options) and called with the batch.
    `posterior` is the kind that the encoder gives by default: "point", "gaussian" or "full";
    `refuses` says why some of the others, or "maps" as latents, cannot be used.
    `conditional`: the encoder is given the factors too.
    `divergence_weight`: β of a loss of the form NLL + β KL, or the option that sets it.
    `fit` takes the shape of an observation and the options, and returns those that follow from it.
    """

    summary: str
    objective: Callable[..., Any]
    options: Mapping[str, Option]
    posterior: str = "gaussian"
    refuses: Mapping[str, str] = field(default_factory=dict)
    prior: Literal["normal"] | None = "normal"
    conditional: bool = False
    divergence_weight: float | str | None = None
    fit: Callable[[tuple[int, ...], Mapping[str, Any]], Mapping[str, Any]] | None = None


def whole(least: int, most: int = 2**31 - 1) -> Callable[[Any], int]:
    """Reads a whole number that is at least `least`, and at most `most`."""

    def read(value: Any) -> int:
        number = _whole(value)
        if number is None or number < least:
            raise ValueError(f"expected a whole number, at least {least}")
        if number > most:
            raise ValueError(f"expected a whole number, at most {most}")
        return number

    return read


def finite(value: Any) -> float:
    number = _number(value)
    if number is None:
        raise ValueError("expected a number")
    return number


def positive(value: Any) -> float:
    number = _number(value)
    if number is None or number <= 0:
        raise ValueError("expected a positive number")
    return number


def not_negative(value: Any) -> float:
    number = _number(value)
    if number is None or number < 0:
        raise ValueError("expected a number that is 0 or more")
    return number


def positive_or_learned(value: Any) -> float | str:
    if value == "learned":
        return "learned"
    try:
        return positive(value)
    except ValueError:
        raise ValueError("expected a positive number or 'learned'") from None


def one_of(known: Iterable[str]) -> Callable[[Any], str]:
    """Reads one of the `known` words."""
    known = tuple(known)

    def read(value: Any) -> str:
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return str(value)

    return read


def sizes(value: Any) -> list[int]:
    """Reads layer sizes: (400, 300), [400, 300], 400, or the text "400,300"."""
    if isinstance(value, str):
        value = [part for part in value.strip("[]() ").split(",") if part.strip()]
    parts = list(value) if isinstance(value, Iterable) else [value]
    if len(parts) > MOST_LAYERS:
        raise ValueError(f"expected sizes of at most {MOST_LAYERS:,} layers")
    try:
        return [whole(1)(part) for part in parts]
    except ValueError:
        raise ValueError("expected sizes of layers, for instance (400, 300)") from None


def width(value: Any) -> int | list[int]:
    """Reads the size of all layers as one number, or the size of each as `sizes` does."""
    try:
        return whole(1)(value)
    except ValueError:
        layers = sizes(value)
    if not layers:
        raise ValueError("expected a size, or sizes of layers, for instance (10, 20)")
    return layers


def _number(value: Any) -> float | None:
    """A finite number, also from text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def _whole(value: Any) -> int | None:
    """A whole number, also from text and from floats without a fraction."""
    try:
        # Not by way of a float, which cannot represent large ones exactly.
        if isinstance(value, str) or (isinstance(value, Integral) and not isinstance(value, bool)):
            return int(value)
    except ValueError:
        pass
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None
