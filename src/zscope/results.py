"""What an assay returns: a frozen record that can be printed, saved, tabulated and drawn.

A result without a scalar score (a map, a grid of images) derives from `Result`. One with
scalar scores derives from `Scored`, which makes sure that each score comes with a 95 %
interval and a chance level, or with the reason why it has none.
"""

import dataclasses
import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, TypeVar

from zscope.errors import MissingExtra, Undefined

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch

__all__ = [
    "COLUMNS",
    "NOT_REQUESTED",
    "Measure",
    "Result",
    "Scored",
    "counted",
    "duration",
    "frame_of",
    "html_table",
    "is_tensor",
    "listed",
    "name_result",
    "name_units",
    "plain",
    "rows",
    "subject",
    "text_table",
]

R = TypeVar("R")

NOT_REQUESTED = "not requested (resamples=0); set resamples to 200, for example"
"""Why there is no interval, where the caller decides."""
COLUMNS = ("assay", "measure", "value", "low", "high", "chance", "n", "flavour")
MOST_LINES = 14
"""Lines below the title of a printed result."""


@dataclass(frozen=True)
class Measure:
    """A number with its samples, interval and chance level, or the reason why one is missing."""

    name: str  # "" for the score of a result
    value: float
    samples: int
    interval: tuple[float, float] | str  # 95 %, or why there is none
    chance: float | str  # what uninformative codes would get, or why there is no such number

    def __post_init__(self) -> None:
        for part in ("interval", "chance"):
            value = getattr(self, part)
            if value is None or (isinstance(value, str) and not value.strip()):
                raise TypeError(
                    f"Measure {self.name or 'score'!r}: {part} is {value!r}. Give a number, or a "
                    "sentence that says why there is none."
                )
        if not isinstance(self.samples, int) or self.samples < 1:
            raise TypeError(
                f"Measure {self.name or 'score'!r}: samples is {self.samples!r}; expected the "
                "number of samples it was computed from, at least 1."
            )

    def cells(self) -> list[str]:
        """Value, interval, chance and number of samples, as a table prints them."""
        interval, chance = self.interval, self.chance
        return [
            f"{self.value:.4g}",
            "none" if isinstance(interval, str) else f"{interval[0]:.3g} to {interval[1]:.3g}",
            "none" if isinstance(chance, str) else f"{chance:.3g}",
            f"{self.samples:,}",
        ]

    def to_dict(self) -> dict[str, Any]:
        interval, chance = self.interval, self.chance
        return {
            "score": self.name,
            "value": self.value,
            "samples": self.samples,
            "interval": None if isinstance(interval, str) else list(interval),
            "chance": None if isinstance(chance, str) else chance,
            **({"no_interval": interval} if isinstance(interval, str) else {}),
            **({"no_chance": chance} if isinstance(chance, str) else {}),
        }


def _annotation(cls: type, name: str) -> str | None:
    """The type of a field or property as text; None if there is no such field."""
    for base in cls.__mro__:
        member = vars(base).get(name)
        if isinstance(member, property):
            return str(inspect.get_annotations(member.fget).get("return", "None"))  # type: ignore[arg-type]
        if name in (hints := inspect.get_annotations(base)):
            return str(hints[name])
    return None


def _never_none(cls: type, name: str) -> bool:
    """Whether there is such a field or property, and by its type it is never None."""
    annotation = _annotation(cls, name)
    return annotation is not None and not re.search(r"\bNone|Optional", annotation)


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A measurement and what led to it, so that plots and pages recompute nothing."""

    assay: ClassVar[str] = ""
    """The name of the assay that made it; empty for a result made by hand."""
    further_plots: ClassVar[tuple[str, ...]] = ()
    """Methods that draw further figures, plot_..., which `zscope assay --figures` saves too."""
    unit: ClassVar[str] = "latent"
    """What its numbers are of, one each: latents or, of maps, channels, places or patches."""
    unit_names: ClassVar[tuple[str, ...]] = ()
    """What these are called, "channel 2", if they are not single latents."""
    rows_text: ClassVar[str] = ""
    """What the rows and columns are, if they are not codes and their latents."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in [each for each in vars(cls) if re.match(r"plot(_|$)", each)]:
            setattr(cls, name, _call_units(vars(cls)[name]))
        if "__repr__" not in vars(cls):  # else @dataclass writes one that prints whole tensors
            cls.__repr__ = cls.__repr__  # type: ignore[method-assign]
        scored = _annotation(cls, "score") is not None or cls.measures is not Result.measures
        if scored and not hasattr(cls, "why_no_chance"):
            raise TypeError(
                f"{cls.__name__} has a score. Derive it from Scored instead of Result, and state "
                "its interval and chance level, or why it has none."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain Python numbers, strings, lists and dicts, ready for JSON.

        Without the latents of each channel or place, which may be thousands and follow from it.
        """
        left_out = {*self.not_written, *(["groups"] if self.unit_names else [])}
        fields = [f.name for f in dataclasses.fields(self) if f.name not in left_out]
        values = {name: plain(getattr(self, name)) for name in fields}
        units = {"unit": self.unit, "unit_names": list(self.unit_names)} if self.unit_names else {}
        return {"kind": type(self).__name__, **values, **units}

    def lines(self) -> list[tuple[str, str]]:
        """The summary about the units of this result, and what its rows are."""
        lines = [(self.worded(name), self.worded(text)) for name, text in self.summary()]
        return [*lines, ("rows", self.rows_text)] if self.rows_text else lines

    def worded(self, text: str) -> str:
        """A text about latents as one about the units of this result: "channel 2"."""
        return text if self.unit == "latent" else _about_units(text, self.unit)

    def measures(self) -> list[Measure]:
        """Every scalar score, each with its samples, interval and chance."""
        return []

    not_written: ClassVar[tuple[str, ...]] = ()
    """Fields that to_dict leaves out."""
    needs_equal_sizes: ClassVar[bool] = False
    """Whether scores of models with different numbers of latents in use cannot be compared."""

    def on_halves(self) -> Mapping[str, Sequence[float]]:
        """Scores by name, each measured on halves of the rows; none if it was not.

        Which rows are in which half depends on their number and the seed alone: two models of the
        same rows are compared half by half.
        """
        return {}

    def summary(self) -> list[tuple[str, str]]:
        """Further lines, (name, value), that repeat nothing of measures().

        By default every field that fits on a line, but those that measures() reports.
        """
        reported = self._reported_fields()
        fields = [f.name for f in dataclasses.fields(self) if f.name not in reported]
        lines = [(name, text) for name in fields if (text := _one_line(getattr(self, name)))]
        if not lines and not self.measures():  # a map or a grid: say at least how large it is
            arrays = [(name, getattr(self, name)) for name in fields]
            lines = [
                (name, " x ".join(map(str, value.shape)) + " numbers")
                for name, value in arrays
                if _is_array(value)
            ]
        return [(name.replace("_", " "), text) for name, text in lines]

    def to_frame(self, assay: str = "") -> "pd.DataFrame":
        """The scores as a pandas DataFrame, one row each.

        `assay` fills the first column, by default the name of the assay that made it.
        """
        return frame_of(rows(self, assay or self.assay))

    def plot(self, ax: Any = None) -> Any:
        """Draw the result; returns the matplotlib axes (or figure, where there are several)."""
        raise Undefined(
            f"{type(self).__name__}: this result has no figure of its own. "
            "Its numbers are in .to_dict()."
        )

    def __repr__(self) -> str:
        scores, lines = self._tables()
        text = [*text_table(scores).splitlines(), *text_table(lines, left=2).splitlines()]
        flags = [line for line in text if line.startswith("flag ")]
        if len(text) > MOST_LINES:  # what limits the numbers is never cut off
            kept = max(1, MOST_LINES - 1 - len(flags))
            more = len(text) - kept - len(flags)
            cut = f"… {more} more lines: .measures() and .summary()"
            text = [*text[:kept], cut, *flags] if more > 0 else text
        return "\n".join([self._title(), *text])

    def _repr_html_(self) -> str:
        scores, lines = self._tables()
        tables = html_table(scores) + html_table(lines, left=2, header=False)
        return f"<div><strong>{escape(self._title())}</strong>{tables}</div>"

    def _title(self) -> str:
        return type(self).__name__

    def _reported_fields(self) -> set[str]:
        """Fields that summary() leaves to measures() and to the list of flags."""
        return {"flags"}

    def _tables(self) -> tuple[list[list[str]], list[list[str]]]:
        """What is printed: the scores with a header, then names with values."""
        measures = self.measures()
        scores = [[self.worded(measure.name) or "score", *measure.cells()] for measure in measures]
        header = ["", "value", "95 % interval", "chance", "n"]
        lines = [list(line) for line in self.lines()]
        for part in ("interval", "chance"):
            reasons = {getattr(measure, part): None for measure in measures}
            texts = [self.worded(reason) for reason in reasons if isinstance(reason, str)]
            lines += [[f"no {part}", text] for text in texts]
        lines += [["flag", self.worded(flag)] for flag in getattr(self, "flags", [])]
        return ([header, *scores] if scores else []), lines


@dataclass(frozen=True, eq=False, repr=False)
class Scored(Result):
    """A result with scalar scores, each with its interval and chance level.

    A class has a field or property `score`, `samples`, `interval` (or `standard_error`) and
    `chance`. Where interval or chance may be None or is missing, the class says why in
    `why_no_interval` or `why_no_chance`: a clause without a full stop. Where the reason for a
    missing interval depends on the samples, each result has its own in a field `no_interval`
    (empty if there is an interval). A class with other or several scores overrides `measures`.
    If a part is missing, defining the class fails.
    """

    why_no_interval: ClassVar[str] = ""
    why_no_chance: ClassVar[str] = ""
    score_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that measures() reports under another name than score, interval or chance."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        missing = []
        if cls.measures is Scored.measures:
            missing += [
                f"a field or property `{name}`, or an own measures()"
                for name in ("score", "samples")
                if not _never_none(cls, name)
            ]
        if not (
            cls.why_no_interval.strip()
            or _never_none(cls, "interval")
            or _never_none(cls, "standard_error")
            or _never_none(cls, "no_interval")
        ):
            missing.append(
                "a field `interval` or `standard_error` that is never None, or the reason: "
                'why_no_interval = "…", or a field `no_interval`'
            )
        if not (cls.why_no_chance.strip() or _never_none(cls, "chance")):
            missing.append(
                'a field `chance` that is never None, or the reason: why_no_chance = "…"'
            )
        if missing:
            raise TypeError(f"{cls.__name__} is a scored result. Add {'; '.join(missing)}.")

    def measures(self) -> list[Measure]:
        return [self.measure("", float(getattr(self, "score")))]  # noqa: B009

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
        """One score of this result; parts that are left out are those of the result itself."""
        if not name and interval is None and standard_error is None:
            interval = getattr(self, "interval", None)
            standard_error = getattr(self, "standard_error", None)
        if interval is None and standard_error is not None:
            interval = value - 1.96 * standard_error, value + 1.96 * standard_error
        if chance is None:
            chance = getattr(self, "chance", None)
        return Measure(
            name,
            value,
            getattr(self, "samples", 0) if samples is None else samples,
            getattr(self, "no_interval", self.why_no_interval) if interval is None else interval,
            self.why_no_chance if chance is None else chance,
        )

    def _reported_fields(self) -> set[str]:
        own = {"score", "samples", "interval", "no_interval", "standard_error", "chance"}
        return super()._reported_fields() | own | set(self.score_fields)


def name_result(result: R, assay: str) -> R:
    """The same result, which now knows the assay that made it."""
    if isinstance(result, Result):
        object.__setattr__(result, "assay", assay)  # frozen, and not one of its fields
    return result


def name_units(result: R, unit: str, names: Sequence[str], rows: str = "") -> R:
    """The same result, which now knows what its numbers are of."""
    if isinstance(result, Result) and unit != "latent":
        object.__setattr__(result, "unit", unit)
        object.__setattr__(result, "unit_names", tuple(names))
        object.__setattr__(result, "rows_text", rows)
    return result


def _about_units(text: str, unit: str) -> str:
    """A text that speaks of latents, about other units; "single latents" are what they are."""
    noun = unit.partition(":")[0]  # "patch:4"

    def word(found: re.Match[str]) -> str:
        plural = ("es" if noun.endswith("h") else "s") if found[2] else ""
        return (noun.capitalize() if found[1] == "L" else noun) + plural

    return re.sub(r"(?<!single )\b([Ll])atent(s?)\b(?! (?:space|diffusion|map))", word, text)


def _call_units(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A method that draws, whose labels are about the units of the result."""

    @functools.wraps(draw)
    def draw_and_name(self: Result, *arguments: Any, **options: Any) -> Any:
        axes = draw(self, *arguments, **options)
        if self.unit != "latent":
            figure = axes if hasattr(axes, "savefig") else axes.get_figure()
            for text in figure.findobj(lambda each: hasattr(each, "set_text")):
                text.set_text(self.worded(text.get_text()))
            # Ticks take their names from their axis whenever it is drawn.
            for axis in (each for ax in figure.axes for each in (ax.xaxis, ax.yaxis)):
                names = [each.get_text() for each in axis.get_ticklabels()]
                if (worded := [self.worded(name) for name in names]) != names:
                    axis.set_ticklabels(worded)
        return axes

    return draw_and_name


def rows(result: Result, assay: str = "") -> list[dict[str, Any]]:
    """The scores of a result in long form, one dict each; None where a part is missing."""
    table = []
    for measure in result.measures():
        low, high = (None, None) if isinstance(measure.interval, str) else measure.interval
        values = (
            assay,
            measure.name or "score",
            measure.value,
            low,
            high,
            None if isinstance(measure.chance, str) else measure.chance,
            measure.samples,
            getattr(result, "flavour", None),
        )
        table.append(dict(zip(COLUMNS, values, strict=True)))
    return table


def frame_of(table: list[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> "pd.DataFrame":
    """Scores in long form, or a table of other columns, as a pandas DataFrame.

    Missing numbers are NaN.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtra("to_frame", "pandas", "frames") from None
    frame = pd.DataFrame(table, columns=list(columns))
    return frame.astype(
        {name: float for name in ("value", "low", "high", "chance") if name in frame}
    )


def text_table(rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Rows of cells, the header first, as lines; all but the first `left` columns right-aligned."""
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            f"{cell:<{width}}" if k < left else f"{cell:>{width}}"
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def html_table(rows: Sequence[Sequence[str]], *, left: int = 1, header: bool = True) -> str:
    """The same as an HTML table, everything escaped; `header`: whether the first row is one."""
    if not rows:
        return ""
    parts = []
    for number, row in enumerate(rows):
        tag = "th" if header and number == 0 else "td"
        cells = "".join(
            f'<{tag} style="text-align: {"left" if k < left else "right"}">{escape(cell)}</{tag}>'
            for k, cell in enumerate(row)
        )
        parts.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(parts)}</table>"


def listed(items: Iterable[object], most: int = 12) -> str:
    """The items separated by commas, cut after `most` of them; "none" if there are none."""
    texts = [str(item) for item in items]
    if len(texts) > most:
        return f"{', '.join(texts[:most])}, … ({len(texts)} in all)"
    return ", ".join(texts) or "none"


def counted(count: int, noun: str) -> str:
    """A number of things: "1 model", "2 models"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time in the unit that people would use: 40 s, 12 min, 3.5 h, 2.1 days; at least 1 s."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def subject(noun: str, items: Sequence[object], one: str = "is", more: str = "are") -> str:
    """The beginning of a sentence: "Latent 2 is", or "Latents 2, 3 are"."""
    return f"{noun} {listed(items)} {one}" if len(items) == 1 else f"{noun}s {listed(items)} {more}"


def plain(value: Any) -> Any:
    """`value` without tensors, arrays or numbers that JSON cannot hold."""
    if isinstance(value, Result):
        return value.to_dict()
    if _is_array(value):
        return value.tolist() if _is_finite(value) else plain(value.tolist())
    if _is_numpy(value, "generic"):
        return plain(value.item())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # a part of a result
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        raise Undefined(
            "to_dict: a result contains NaN, which is not a measurement. This is a fault in "
            "the assay that made it: please report it with the data that led to it."
        )
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def is_tensor(value: object) -> "TypeGuard[torch.Tensor]":
    """Whether this is a tensor; torch is not loaded to answer it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_array(value: Any) -> bool:
    return _is_numpy(value, "ndarray") or is_tensor(value)


def _is_numpy(value: object, kind: str) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, kind))


def _is_finite(values: "torch.Tensor | np.ndarray") -> bool:
    """Whether an array has numbers only, all finite: its lists then need no second look."""
    import numpy as np

    if not isinstance(values, np.ndarray):
        return bool(values.isfinite().all())
    return values.dtype.kind in "biuf" and bool(np.isfinite(values).all())


def _one_line(value: Any) -> str:
    """The value of a field, or "" where it does not fit on a line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, list | tuple) and all(isinstance(item, int) for item in value):
        return listed(value)
    return ""
