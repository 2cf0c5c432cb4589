"""The names of columns: settings by their short names, scores, and the end of the history.

A setting such as `options.beta` has the short name `beta` if no other setting or column claims
it. A score is `ASSAY` or `ASSAY.MEASURE`, and `ASSAY` alone is its first measure. `history.loss`
is that of the last batch that was logged. The last part of a name is enough wherever it is unique,
except for the counts of types of latents: `passive` is always that of the assay variable-types, on
the data, and `history.passive` that of a batch.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from zscope.errors import ConfigError, did_you_mean

__all__ = [
    "WORDS", "Columns", "choose_entries", "columns_of", "data_names", "follows_another", "rows_of",
    "score_name",
]  # fmt: skip

Row = dict[str, Any]

ABOUT = ("run", "status", "step")
OPTIONS = "data.options."
SPLIT = "data.split."
FOLLOWS = ("shape", OPTIONS)
"""Settings that follow from the data, which have them in their name."""
ASIDE = ("log_every", "checkpoint_every", "snapshots", "snapshot_every", "device")
"""Settings that are not meant to change a result."""
WORDS = ("epochs", "preset")
"""Fields of a plan that stand for other settings, which have columns of their own."""
COUNTED = ("active", "mixed", "passive")
"""Types of latents: an assay counts them on the data, the history in a batch."""


@dataclass(frozen=True)
class Columns:
    """Every column of some runs, by its short name; the long one leads to it too."""

    fields: dict[str, str]  # long: short
    scores: list[str]
    history: list[str]
    first: dict[str, str]  # an assay: its first measure
    without: dict[str, str] = field(default_factory=dict)  # an assay that has none: why
    asked: tuple[str, ...] = ()  # assays that a sweep asks for: columns even without a value

    def resolve(self, name: str, who: str = "runs") -> str:
        """The short name of a column; ConfigError if there is none, or several."""
        if name in ABOUT or name in self.scores or name in self.history:
            return name
        short = self.fields.values()
        if name in self.fields or name in short:
            return self.fields.get(name, name)
        if name in self.first:
            return self.first[name]
        if name in self.asked:
            return name
        history = [each for each in self.history if each.rpartition(".")[2] not in COUNTED]
        tiers: list[Iterable[str]] = [self.fields, self.scores, history]
        for tier in tiers:
            near = [each for each in tier if each.rpartition(".")[2] == name]
            if len(near) > 1:
                raise ConfigError(
                    f"{who}: {name!r} may be {' or '.join(near)}. Use one of these names."
                )
            if near:
                return self.fields.get(near[0], near[0])
        if f"history.{name}" in self.history:
            raise ConfigError(
                f"{who}: {name!r} was not measured on these runs, and history.{name} is another "
                "number: that of the last batch that was logged. Measure it on the data (zscope "
                f"assay RUN variable-types), or ask for history.{name}."
            )
        if (plain := name.replace("-", "_")) != name and plain in {*self.fields, *short}:
            return self.fields.get(plain, plain)  # a plan may say options.decoder-hidden
        if reason := self.without.get(name.partition(".")[0]):
            raise ConfigError(
                f"{who}: {name} was measured, and no run has a value. {reason.rstrip('.')}. Leave "
                "it out."
            )
        raise ConfigError(f"{who}: no column is called {name!r}. {self.suggest(name)}")

    def label(self, name: str, who: str = "runs") -> str:
        """How a column is called that somebody asked for: an assay with its measure."""
        column = self.resolve(name, who)
        return column if name in self.first else name

    def suggest(self, name: str) -> str:
        """The end of an error about an unknown column."""
        known = {*ABOUT, *self.fields.values(), *self.scores, *self.first, *self.history}
        known |= {*self.asked}
        return did_you_mean(name, known | {each.rpartition(".")[2] for each in self.scores})

    def is_setting(self, column: str) -> bool:
        """Whether runs that differ in this setting are meant to be different."""
        long = {short: long for long, short in self.fields.items()}.get(column)
        return long is not None and not long.startswith(FOLLOWS) and long not in {*ASIDE, *WORDS}

    def is_seed(self, column: str) -> bool:
        return column in ("seed", "options.seed")


def follows_another(field: str, levels: Collection[Any], models: int) -> bool:
    """Whether a setting is that of some models or of split data alone, always with one value.

    The model, or the split, says it. `levels` are the different values, None of runs without it;
    `models` how many models there are.
    """
    own = (models > 1 and field.startswith("options.")) or field.startswith(SPLIT)
    return own and len(set(levels) - {None}) == 1


def columns_of(records: Iterable[Mapping[str, Any]], asked: Iterable[str] = ()) -> Columns:
    """The columns of runs, in the order in which the runs have them.

    `asked` are the assays that a sweep measures.
    """
    fields: dict[str, None] = {}
    measures: dict[str, dict[str, None]] = {}
    reasons: dict[str, str] = {}
    last: dict[str, None] = {}
    one_seed = True
    for record in records:
        own = record.get("fields", {})
        fields.update(dict.fromkeys(own))
        one_seed = one_seed and own.get("options.seed", own.get("seed")) == own.get("seed")
        for entry in record.get("entries", ()):
            names = measures.setdefault(entry["assay"], {})
            names.update(dict.fromkeys(entry.get("scores") or ()))
            if isinstance(entry.get("missing"), str):
                reasons[entry["assay"]] = entry["missing"]
        last.update(dict.fromkeys(record.get("last", ())))
    if one_seed:  # of the weights and of the batches
        fields.pop("options.seed", None)
    fields = dict.fromkeys(sorted(fields, key=_rank))
    scores = [score_name(assay, name) for assay, names in measures.items() for name in names]
    first = {a: score_name(a, next(iter(names))) for a, names in measures.items() if names}
    history = [f"history.{key}" for key in last]
    without = {assay: reason for assay, reason in reasons.items() if assay not in first}
    short = _short_names(fields, {*ABOUT, *scores, *first})
    return Columns(short, scores, history, first, without, tuple(asked))


def _rank(field: str) -> int:
    """Model, data and latents first, then options: whichever run is read first has fewer."""
    order = ("model", "data", "latents", "options.", OPTIONS)
    for rank, name in enumerate(order):
        if field == name or (name.endswith(".") and field.startswith(name)):
            return rank
    return len(order)


def score_name(assay: str, measure: str) -> str:
    """The column of a measure, without spaces and commas: type-probe.mean-passive."""
    return f"{assay}.{'-'.join(measure.replace(',', ' ').split())}" if measure else assay


def _short_names(fields: Iterable[str], taken: set[str]) -> dict[str, str]:
    fields = list(fields)
    lasts = [each.rpartition(".")[2] for each in fields]
    return {
        each: last if lasts.count(last) == 1 and last not in taken else each
        for each, last in zip(fields, lasts, strict=True)
    }


def rows_of(
    records: Mapping[str, Mapping[str, Any]],
    columns: Columns,
    choose: Callable[[Sequence[Row]], Row | None],
) -> list[Row]:
    """Each run as a plain dict of what it has; `choose` takes one of several entries, or none."""
    data = data_names([record.get("fields", {}) for record in records.values()])
    rows = []
    for (name, record), dataset in zip(records.items(), data, strict=True):
        row: Row = {"run": name, "status": record["status"]}
        if "step" in record:
            row["step"] = record["step"]
        for long, value in record.get("fields", {}).items():
            if short := columns.fields.get(long):
                row[short] = value
        if "data" in row:
            row["data"] = dataset
        for entry in choose_entries(record, choose).values():
            for measure, value in (entry.get("scores") or {}).items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    row[score_name(entry["assay"], measure)] = value
        for key, value in record.get("last", {}).items():
            row[f"history.{key}"] = value
        if record.get("problems"):
            row["problem"] = " ".join(record["problems"])
        rows.append(row)
    return rows


def choose_entries(
    record: Mapping[str, Any], choose: Callable[[Sequence[Row]], Row | None]
) -> dict[str, Row]:
    """One entry for each assay that was measured of a run, as far as one is chosen."""
    entries: dict[str, list[Row]] = {}
    for entry in record.get("entries", ()):
        entries.setdefault(entry["assay"], []).append(entry)
    chosen = {assay: choose(each) for assay, each in entries.items()}
    return {assay: entry for assay, entry in chosen.items() if entry is not None}


def _data_key(fields: Mapping[str, Any]) -> tuple[str, str]:
    """The name of the data, and their options."""
    options = {
        key[len(OPTIONS) :]: value for key, value in fields.items() if key.startswith(OPTIONS)
    }
    text = "&".join(f"{key}={value}" for key, value in sorted(options.items()))
    return str(fields.get("data")), f"?{text}" if text else ""


def data_names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the data of each run are called, with their options.

    One's own files are called by the last part of their path.
    """
    keys = [_data_key(each) for each in settings]
    lasts = {name: PurePath(name).name for name, _ in keys}
    counts = Counter(lasts.values())
    return [(lasts[name] if counts[lasts[name]] == 1 else name) + options for name, options in keys]
