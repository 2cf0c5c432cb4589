"""What an assay returns: a frozen record that can be saved, printed and drawn."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from zscope.errors import Undefined


@dataclass(frozen=True)
class Measure:
    """A number with what makes it a measurement; where there is no such thing, the reason."""

    name: str  # "" for the score of a result
    value: float
    samples: int
    interval: tuple[float, float] | str  # 95 %, or why there is none
    chance: float | str  # what codes that know nothing would get, or why nothing can be said

    def to_dict(self) -> dict[str, Any]:
        ends, chance = self.interval, self.chance
        return {
            "score": self.name,
            "value": self.value,
            "samples": self.samples,
            "interval": None if isinstance(ends, str) else list(ends),
            "chance": None if isinstance(chance, str) else chance,
            **({"no_interval": ends} if isinstance(ends, str) else {}),
            **({"no_chance": chance} if isinstance(chance, str) else {}),
        }


@dataclass(frozen=True, eq=False)
class Result:
    """A measurement together with what led to it, so that plots and pages recompute nothing."""

    no_interval: ClassVar[str] = ""  # why the score of such a result has none
    no_chance: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain Python numbers, strings, lists and dicts, ready for JSON."""
        values = {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"kind": type(self).__name__, **values}

    def summary(self) -> list[tuple[str, str]]:
        """Lines for a table, (name, value): every field that fits on a line."""
        lines = []
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, bool | str | int):
                lines.append((f.name, str(value)))
            elif isinstance(value, float):
                lines.append((f.name, f"{value:.4g}"))
            elif isinstance(value, list) and all(isinstance(item, int) for item in value):
                lines.append((f.name, ", ".join(map(str, value)) or "none"))
        if not lines:  # a map or a grid: say at least how large it is
            for f in dataclasses.fields(self):
                value = getattr(self, f.name)
                if isinstance(value, torch.Tensor | np.ndarray):
                    lines.append((f.name, " x ".join(map(str, value.shape)) + " numbers"))
        return [(name.replace("_", " "), value) for name, value in lines]

    def measures(self) -> list[Measure]:
        """Every scalar score, each with its samples, interval and chance."""
        value = getattr(self, "score", None)
        return [self.measure("", value)] if isinstance(value, float) else []

    def measure(
        self,
        name: str,
        value: float,
        *,
        interval: tuple[float, float] | str | None = None,
        standard_error: float | None = None,
        chance: float | str | None = None,
        samples: int | None = None,
    ) -> Measure:
        """One score of this result; what is not given is that of the result itself."""
        if interval is None and not name:
            interval = getattr(self, "interval", None)
            standard_error = standard_error or getattr(self, "standard_error", None)
        if interval is None and standard_error is not None:
            interval = value - 1.96 * standard_error, value + 1.96 * standard_error
        if interval is None:
            interval = self.no_interval or "none was asked for: resamples=0"
        if chance is None:
            chance = getattr(self, "chance", None)
        counted = getattr(self, "samples", 0) if samples is None else samples
        return Measure(name, value, counted, interval, self.no_chance if chance is None else chance)

    def plot(self, ax: Any = None) -> Any:
        """Draw the result; returns the matplotlib axes (or figure, where there are several)."""
        raise Undefined(
            f"{type(self).__name__}: this result has no figure of its own. "
            "Its numbers are in .to_dict()."
        )


def plain(value: Any) -> Any:
    """`value` without tensors, arrays or numbers that JSON cannot hold."""
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, torch.Tensor):
        return plain(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        raise Undefined(
            "to_dict: a result holds NaN, which stands for no measurement. This is a fault in "
            "the assay that made it: please report it with the data that led to it."
        )
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value
