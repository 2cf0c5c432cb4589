"""A study: the runs of a paper's experiment, what is measured of them, and what that shows.

    STUDY = Study(
        name="responses-structure",
        document="A",
        title="Does the structure score fall with β?",
        rows=(Row("A-T2", "table 2", "structure score against β"),),
        grids={"digits": PICTURES},
        measures=(each_run(measure),),
        tables=tables, figures=plot_figures, claims=claims,
    )

`measures` are functions of trained runs that return plain numbers, lists and pictures; these are
stored. `tables`, `figures` and `claims` are functions of the stored measurements alone
(`Results`), so that they can be made again where no model was ever trained.
"""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zscope.experiments.studies.grid import Grid
from zscope.experiments.studies.made import MadeData

if TYPE_CHECKING:
    from zscope.experiments.studies.judging import Claim
    from zscope.experiments.studies.rows import Rows
    from zscope.experiments.studies.trained import Trained

__all__ = ["DOCUMENTS", "Figure", "Measure", "Results", "Row", "Study", "Table", "each_run",
           "for_groups", "once"]  # fmt: skip

DOCUMENTS = {
    "A": "Leeb et al., Exploring the latent space of autoencoders with interventional assays, "
    "arXiv:2106.16091",
    "B": "On the interventional consistency of autoencoders, 2021",
    "C": "Zietlow, thesis, 2022: why variational autoencoders align with PCA directions",
    "D": "Bonheme, thesis, University of Kent, 2023: the polarised regime",
    "E": "Leeb et al., Structure by architecture: structured representations without "
    "regularization, ICLR 2023",
}


@dataclass(frozen=True)
class Row:
    """A table or figure of the document. `paper_only` says why it needs scale paper."""

    id: str
    source: str
    what: str
    paper_only: str = ""


@dataclass(frozen=True)
class Table:
    """A table for people: texts, the header first; numbers as they are in `records` for CSV."""

    name: str
    title: str
    cells: Sequence[Sequence[str]]
    left: int = 1  # columns that are aligned to the left
    notes: Sequence[str] = ()
    row: str = ""  # the row of the study that it belongs to


@dataclass(frozen=True)
class Figure:
    """A figure that can be laid beside the document's, and a sentence on how to read it."""

    name: str
    caption: str
    drawing: Any  # of matplotlib: a figure or axes
    row: str = ""


Units = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Sequence[str]]]


@dataclass(frozen=True)
class Measure:
    """A function of runs, called once for each unit: one run, some runs, or all of them."""

    function: Callable[..., Mapping[str, Any]]
    units: Units
    single: bool = False  # whether it takes one run instead of a list

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def code(self) -> str:
        """A hash of the function and of all that it uses of the studies: functions, constants.

        Assays are not looked into: after an upgrade that changes one, delete OUT/NAME/measured.
        """
        return hashlib.sha256("\n".join(_sources(self.function)).encode()).hexdigest()[:12]


HERE = __name__.rpartition(".")[0]


def _sources(function: Any) -> list[str]:
    """The source of a function and of all that it uses, directly or not."""
    own: Any = inspect.getmodule(function)
    pending, texts = [(own, function.__name__)], {}
    while pending:
        module, name = pending.pop()
        value = vars(module).get(name)
        home = getattr(value, "__module__", None)
        if not (inspect.isfunction(value) or inspect.isclass(value)):
            if value is not None and (text := _text(value)) is not None:
                texts[module.__name__, name] = f"{name} = {text}"
            continue
        if (home, name) in texts or not (home == own.__name__ or str(home).startswith(HERE)):
            continue
        source = textwrap.dedent(inspect.getsource(value))
        texts[str(home), name] = source
        names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        pending += [(inspect.getmodule(value), each) for each in names]
    return [texts[key] for key in sorted(texts)]


def _text(value: Any) -> str | None:
    """A constant as text, the same in every process; None for anything that is not plain."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, dict):
        parts = [part for pair in value.items() for part in map(_text, pair)]
    elif isinstance(value, tuple | list | set | frozenset):
        parts = [_text(each) for each in value]
    else:
        return None
    texts = [part for part in parts if part is not None]
    if len(texts) < len(parts):
        return None
    return f"[{', '.join(sorted(texts) if isinstance(value, set | frozenset) else texts)}]"


def each_run(
    function: "Callable[[Trained], Mapping[str, Any]]", *groups: str, **fields: Any
) -> Measure:
    """Measure every run of the named grids (default: all), or those with these settings."""

    def units(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
        from zscope.experiments.studies.rows import Rows

        chosen = Rows(dict(r) for r in runs if not groups or r["group"] in groups).where(**fields)
        return {row["run"]: [row["run"]] for row in chosen}

    return Measure(function, units, single=True)


def once(function: Callable[..., Mapping[str, Any]], *groups: str) -> Measure:
    """Call the function once, with all runs of the named grids (default: all)."""

    def units(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
        return {"": [r["run"] for r in runs if not groups or r["group"] in groups]}

    return Measure(function, units)


def for_groups(
    function: Callable[..., Mapping[str, Any]], *fields: str, groups: Sequence[str] = ()
) -> Measure:
    """Call the function with the runs that agree in these settings, for each value of them."""

    def units(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
        from zscope.experiments.studies.rows import Rows

        chosen = Rows(dict(row) for row in runs if not groups or row["group"] in groups)
        return {
            ",".join(f"{field}={value}" for field, value in zip(fields, _tuple(key), strict=True)):
            [row["run"] for row in own]
            for key, own in chosen.by(*fields).items()
        }  # fmt: skip

    return Measure(function, units)


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


@dataclass(frozen=True)
class Results:
    """What was measured: the settings of all runs, and the values of every measure and unit."""

    study: str
    scale: str
    runs: list[dict[str, Any]]  # run, group, and settings
    values: dict[str, dict[str, Any]] = field(default_factory=dict)  # measure -> unit -> values
    failed: dict[str, str] = field(default_factory=dict)  # run or unit -> reason
    about: dict[str, Any] = field(default_factory=dict)

    def rows(self, *groups: str, **fields: Any) -> "Rows":
        """The runs of these grids with their settings and all that was measured of each."""
        from zscope.experiments.studies.rows import Rows

        rows = Rows()
        for run in self.runs:
            if not groups or run["group"] in groups:
                row = dict(run)
                for units in self.values.values():
                    row |= units.get(run["run"], {})
                rows.append(row)
        return rows.where(**fields)

    def once(self, measure: str) -> dict[str, Any]:
        """The values of a measure that is made once; {} if it has none."""
        return dict(self.values.get(measure, {}).get("", {}))

    def units(self, measure: str) -> dict[str, Any]:
        """The values of a measure by unit."""
        return self.values.get(measure, {})


@dataclass(frozen=True)
class Study:
    """One experiment of a document."""

    name: str
    document: str
    title: str
    rows: Sequence[Row]
    grids: Mapping[str, Grid]
    measures: Sequence[Measure]
    claims: Callable[[Results], Iterable["Claim"]]
    tables: Callable[[Results], Iterable[Table]] = lambda results: ()
    figures: Callable[[Results], Iterable[Figure]] = lambda results: ()
    minutes: float | None = None  # about, on two cores at scale small with no run there yet
    own_minutes: float | None = None  # the same after the studies above it in the list
    chosen: str = ""  # what was fixed or tuned before the first run that is judged
    changed: str = ""  # what was changed after seeing results, and why
    made: Mapping[str, MadeData] = field(default_factory=dict)  # data made before the runs
    file: str = ""  # of a study of one's own

    def plan(self, scale: str, seeds: int | None = None) -> list[tuple[str, dict[str, Any]]]:
        """The runs with the grid that each is in; one that is in two grids stands twice."""
        return [
            (group, run) for group, grid in self.grids.items() for run in grid.expand(scale, seeds)
        ]
