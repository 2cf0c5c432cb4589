"""The codes of a recording as one table, a row for each observation.

    table = code_table(zs.record(autoencoder, data))
    table.to_frame()
    table.save("codes.parquet")                  # or codes.csv, with codes.metadata.json

Columns: `index` (the row of the data), `code_0`, … (posterior means), `std_0`, … (posterior
standard deviations, of a variational encoder), `hole_score` and `in_hole`, the factors by name
(words where their values have names), and `path`, the file of the observation, where the data
are a folder of pictures and empty otherwise.

The hole score of an observation is how far its code moves when it is decoded and encoded again,
divided by the median of posterior samples: 1 is typical, and `in_hole` are those that move
further than 99 % of them (see `zscope.assays.responses.holes`). The metadata hold the type of
each latent, what is known of factors, and where the codes come from.
"""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from zscope import __version__, files
from zscope.assays.engine import respond
from zscope.assays.parts import unmet
from zscope.assays.regime.types import variable_types
from zscope.assays.responses.holes import ENTRY, HoleReference, hole_reference
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, MissingExtra, Undefined, did_you_mean
from zscope.factors import Factors
from zscope.recording import Recording
from zscope.report.latents import latent_table
from zscope.results import plain

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SUFFIXES", "CodeTable", "Holes", "check_table_file", "code_table", "hole_scores"]

SUFFIXES = (".parquet", ".csv")
FORMAT = 1

Holes = tuple[Tensor, Tensor]
"""The hole score of each observation, and whether it is in a hole."""


@dataclass(frozen=True, eq=False)
class CodeTable:
    """Columns by name, and what must be known to read them."""

    columns: dict[str, np.ndarray]
    metadata: dict[str, Any]

    def __len__(self) -> int:
        return len(self.columns["index"])

    def __repr__(self) -> str:
        return f"CodeTable({len(self):,} observations: {self.column_text})"

    @property
    def column_text(self) -> str:
        """The names of the columns; of many, the first and the last."""
        names = list(self.columns)
        return ", ".join(names if len(names) <= 12 else [*names[:6], "…", *names[-5:]])

    def to_frame(self) -> "pd.DataFrame":
        """The columns as a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("to_frame", "pandas", "frames") from None
        return pd.DataFrame(self.columns)

    def to_bytes(self, suffix: str) -> bytes:
        """The contents of a file with this ending: .csv, or .parquet with the metadata in it."""
        return self._to_parquet() if suffix == ".parquet" else self._to_csv()

    def _to_csv(self) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        # As texts, numbers of single precision keep their few digits.
        writer.writerows(zip(*(map(str, each) for each in self.columns.values()), strict=True))
        return text.getvalue().encode(errors="replace")

    def _to_parquet(self) -> bytes:
        try:
            import pyarrow as pa
            import pyarrow.parquet
        except ImportError:
            raise MissingExtra("export", "pyarrow", "files") from None
        table = pa.table({name: pa.array(column) for name, column in self.columns.items()})
        memory = io.BytesIO()
        about = {"zscope": json.dumps(self.metadata)}
        pyarrow.parquet.write_table(table.replace_schema_metadata(about), memory)
        return memory.getvalue()

    def save(self, path: str | Path) -> list[Path]:
        """Write a .parquet file, or a .csv file and its metadata beside it; returns the files."""
        places = check_table_file(path)
        for extra in places[1:]:
            content = json.dumps(self.metadata, indent=2, ensure_ascii=False) + "\n"
            files.write_whole(extra, content.encode(errors="backslashreplace"))
        files.write_whole(places[0], self.to_bytes(places[0].suffix.lower()))
        return places


def check_table_file(path: str | Path) -> list[Path]:
    """The files of a table of this name; a name that it cannot have is refused."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        near = did_you_mean(suffix, SUFFIXES) if suffix else ""
        near = near if near.startswith("Did") else "Choose a name that ends so."
        raise ConfigError(
            f"export: {path} ends in {suffix or 'nothing'}, and tables of codes are written as "
            f"{' or '.join(SUFFIXES)}. {near}"
        )
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise MissingExtra("export", "pyarrow", "files")
    return [path] if suffix == ".parquet" else [path, path.with_suffix(".metadata.json")]


def code_table(
    recording: Recording,
    rows: Sequence[int] | slice = slice(None),
    *,
    holes: bool | Holes = True,
    labels: Factors | None = None,
) -> CodeTable:
    """The codes of a recording, or of some of its observations, with all that is known of each.

    With `holes`, each code is decoded and encoded once more; or they are the scores of these rows,
    if known already. `labels` are columns of one's own, for all observations of the recording.
    """
    order = np.arange(len(recording))[rows]
    index = order if recording.rows is None else recording.rows.numpy()[order]
    columns: dict[str, np.ndarray] = {"index": index}
    parts = {"code": recording.codes}
    if not recording.posterior.deterministic:
        parts["std"] = recording.posterior.variance.sqrt()
    for name, values in parts.items():
        for j, column in enumerate(values[order].numpy().T):
            columns[f"{name}_{j}"] = np.ascontiguousarray(column)
    about = _metadata(recording, len(order))
    scores, reason = _holes(recording, order, holes)
    if scores is None:
        about["no_hole_score"] = reason
    else:
        columns["hole_score"], columns["in_hole"] = (each.numpy() for each in scores)
        about["hole_score"] = (
            "displacement of the code when it is decoded and encoded again, divided by the median "
            "of posterior samples"
        )
    for kind, table in {"factors": recording.factors, "labels": labels}.items():
        about[kind] = [] if table is None else _add_columns(columns, table.rows(order))
    paths = None if recording.dataset is None else recording.dataset.paths
    columns["path"] = np.full(len(order), "", object) if paths is None else paths[order]
    return CodeTable(columns, plain(about))


def hole_scores(
    reference: HoleReference, codes: Tensor, autoencoder: Autoencoder | None = None
) -> Holes:
    """The hole score of each code, and whether it is in a hole; `autoencoder` is a copy to use."""
    answers = respond(reference.autoencoder if autoencoder is None else autoencoder, codes)
    _, ratio, in_hole = reference.displacements(codes, answers)
    return ratio, in_hole


def _holes(
    recording: Recording, order: np.ndarray, holes: bool | Holes
) -> tuple[Holes | None, str]:
    """The hole scores of some rows, or why there are none."""
    if not isinstance(holes, bool):
        return holes, ""
    if not holes:
        return None, "not asked for"
    if reason := unmet(ENTRY, recording):
        return None, reason
    try:
        reference = hole_reference(recording.autoencoder, recording)
    except Undefined as error:
        return None, str(error)
    return hole_scores(reference, recording.codes[order]), ""


def _metadata(recording: Recording, count: int) -> dict[str, Any]:
    data = recording.dataset
    return {
        "format": FORMAT,
        "zscope": __version__,
        "model": None if recording.model is None else recording.model.title,
        "data": None if data is None else data.name,
        "observations": count,
        "seed": recording.seed,
        "layout": None if recording.layout is None else list(recording.layout.shape),
        "latents": _latents(recording),
    }


def _latents(recording: Recording) -> list[dict[str, Any]]:
    """The type of each latent and whether it is used, in order; of maps, of each channel."""
    if recording.layout is None:
        rows = latent_table(recording, factors=False)
        return sorted(rows, key=lambda row: row["latent"])
    used = set(recording.used)
    channels = range(recording.layout.channels)
    types = None if recording.posterior.deterministic else variable_types(recording).labels
    return [
        {"channel": c, "used": c in used, **({} if types is None else {"type": types[c]})}
        for c in channels
    ]


def _add_columns(columns: dict[str, np.ndarray], table: Factors) -> list[dict[str, Any]]:
    """Add a column for each factor, and return what is known of them."""
    about = []
    for k, (name, kind) in enumerate(zip(table.names, table.kinds, strict=True)):
        words, column = list(map(str, table.labels.get(name, ()))), name
        while column in (*columns, "path"):  # no column hides another
            column = f"factor_{column}"
        columns[column] = _values(table.values[:, k], words)
        about.append({"name": name, "column": column, "kind": kind, "values": words})
    return about


def _values(values: np.ndarray, words: Sequence[str]) -> np.ndarray:
    if words:
        return np.array([words[int(value)] for value in values], dtype=object)
    whole = values.dtype.kind == "f" and bool((values == np.round(values)).all())
    return values.astype(np.int64) if whole else values
