"""zscope score: disentanglement scores for people who only have arrays."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from zscope.cli.options import AsJson, Seed

if TYPE_CHECKING:
    import numpy as np

SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".parquet")
ROLES = ("codes", "factors", "variances")
UNKNOWN = ("", "na", "n/a", "null", "none", "?", "-")  # among numbers


def score(
    codes: Annotated[Path, Argument(help="Codes, a row for each sample: .npy .npz .csv .parquet")],
    factors: Annotated[
        Path | None,
        Argument(help="Factors, a row for each sample (not needed if CODES is .npz with both)."),
    ] = None,
    only: Annotated[
        list[str] | None, Option(metavar="SCORE", help="A score to work out; may be repeated.")
    ] = None,
    flavour: Annotated[
        str, Option(help="zscope, or dlib for the definitions of older tables.")
    ] = "zscope",
    kinds: Annotated[
        str | None,
        Option(help="categorical, ordinal or continuous: one for all, or a,b,c for each factor."),
    ] = None,
    variances: Annotated[
        Path | None, Option(help="Posterior variances, to tell passive latents by their type.")
    ] = None,
    resamples: Annotated[int, Option(help="Half-samples for 95 % intervals, e.g. 200.")] = 0,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Score how well CODES disentangle known FACTORS.

    Tables may have a first line with names; words in factors are categories. An .npz
    file may hold both, as arrays called codes and factors.

    Examples:

      zscope score codes.npy factors.npy

      zscope score codes.csv factors.csv --only mig --only dci --resamples 200

      zscope score both.npz --flavour dlib --json
    """
    import torch

    from zscope.assays.disentanglement.scores import disentanglement_scores

    numbers, names, values, guessed = _read(codes, factors)
    try:
        found = disentanglement_scores(
            numbers,
            values,
            names=only,
            flavour=flavour,
            variances=None if variances is None else _numbers(_table(variances), variances),
            resamples=resamples,
            kinds=guessed if kinds is None else _listed(kinds),
            generator=torch.Generator().manual_seed(seed),
            progress=_say,
        )
    finally:
        _say("")  # or an error would stand behind the name of the score
    if json:
        _print_json(numbers, names, found)
    else:
        _print_table(numbers, names, found)


def _read(
    codes: Path, factors: Path | None
) -> tuple["np.ndarray", list[str], "np.ndarray", list[str]]:
    """Codes, the names, values and kinds of the factors."""
    from zscope.errors import ConfigError

    table = _table(codes, "codes")
    if factors is not None:
        columns = _table(factors, "factors")
    elif codes.suffix.lower() == ".npz" and _holds_factors(codes):
        columns = _table(codes, "factors")
    else:
        raise ConfigError(
            f"score: factors are missing. Give them as a second file: zscope score {codes} "
            "factors.npy, or put both into one .npz as arrays called codes and factors."
        )
    values, kinds = _factor_values(columns, factors or codes)
    return _numbers(table, codes), list(columns), values, kinds


def _holds_factors(path: Path) -> bool:
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        return "factors" in arrays.files


def _table(path: Path, wanted: str = "variances") -> dict[str, "np.ndarray"]:
    """The columns of a file by name; an array without names calls them 0, 1, 2, …"""
    from zipfile import BadZipFile

    import numpy as np

    from zscope.errors import DataError

    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in SUFFIXES:
        problem = "is no file" if not path.is_file() else f"ends in {suffix or 'nothing'}"
        raise DataError(
            f"score: {path} {problem}; {wanted} are read from {', '.join(SUFFIXES)} files. Is the "
            f"path right (it is looked for in {Path.cwd()})? Save arrays with np.save."
        )
    try:
        if suffix in (".csv", ".tsv", ".parquet"):
            return _columns(path)
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if suffix == ".npz":
                return _member(dict(loaded), path, wanted)
            return _named(loaded, path)
    except (ValueError, OSError, EOFError, KeyError, BadZipFile) as error:
        raise DataError(
            f"score: {path} cannot be read ({type(error).__name__}: {error}). Is it complete, and "
            "what its name says? Save it again with np.save or np.savez."
        ) from error


def _columns(path: Path) -> dict[str, "np.ndarray"]:
    import numpy as np

    from zscope.data.tables import CsvTable, ParquetTable
    from zscope.errors import DataError

    table = ParquetTable(path) if path.suffix.lower() == ".parquet" else CsvTable(path)
    parts = [part.factors for part in table.parts([], table.columns)]
    if not parts:
        raise DataError(f"score: {path} names {len(table.columns)} columns but has no rows.")
    return {column: np.concatenate([part[column] for part in parts]) for column in table.columns}


def _member(arrays: Mapping[str, "np.ndarray"], path: Path, wanted: str) -> dict[str, "np.ndarray"]:
    """The wanted array of an .npz file, or its only one if that is called nothing else."""
    from zscope.errors import DataError

    others = [name for name in arrays if name not in ROLES]
    if wanted not in arrays and (len(arrays) != 1 or not others):
        raise DataError(
            f"score: {path} holds {', '.join(arrays) or 'no array'}, and which are the {wanted} is "
            f"not clear. Save it with np.savez(path, {wanted}=...)."
        )
    name = wanted if wanted in arrays else others[0]
    named = arrays.get("factor_names") if wanted == "factors" else None
    return _named(arrays[name], path, None if named is None else [str(each) for each in named])


def _named(
    values: "np.ndarray", path: Path, names: list[str] | None = None
) -> dict[str, "np.ndarray"]:
    from zscope.errors import DataError

    if values.dtype.names or values.dtype.kind == "c":
        raise DataError(
            f"score: {path} holds values of type {values.dtype}, which are not single numbers or "
            "words. Save a plain array: samples x columns."
        )
    values = values.reshape(-1, 1) if values.ndim == 1 else values
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(
            f"score: {path} holds an array of shape {values.shape}; samples x columns are needed. "
            "Flatten it: array.reshape(len(array), -1)"
        )
    names = names or [str(k) for k in range(values.shape[1])]
    if len(names) != values.shape[1]:
        raise DataError(
            f"score: {path} has {len(names)} factor_names for {values.shape[1]} columns. Give one "
            "for each."
        )
    if len(set(names)) < len(names):
        raise DataError(
            f"score: {path} has the factor_names {', '.join(names)}, some of them twice. Give each "
            "factor its own name."
        )
    return {name: values[:, k] for k, name in enumerate(names)}


def _numbers(columns: Mapping[str, "np.ndarray"], path: Path) -> "np.ndarray":
    import numpy as np

    from zscope.errors import DataError

    try:
        return np.column_stack([column.astype(np.float64) for column in columns.values()])
    except ValueError as error:
        raise DataError(
            f"score: {path} holds something that is not a number ({error}). Is this the file of "
            "the factors? Codes come first: zscope score CODES FACTORS"
        ) from error


def _factor_values(
    columns: Mapping[str, "np.ndarray"], path: Path
) -> tuple["np.ndarray", list[str]]:
    """Factors as numbers; words are numbered and categorical, other kinds are guessed."""
    import numpy as np

    from zscope.assays.sample import guessed_kind
    from zscope.errors import DataError

    values, kinds = [], []
    for name, column in columns.items():
        missing = _missing(column)
        if len(missing):
            raise DataError(
                f"score: {path} has no value of {name} in row {int(missing[0])} (counting from 0). "
                "Leave out rows whose factors are not known, from both files."
            )
        try:
            numbers = column.astype(np.float64)
        except ValueError:
            values.append(np.unique(column.astype(str), return_inverse=True)[1].astype(np.float64))
            kinds.append("categorical")
            continue
        unknown = np.flatnonzero(~np.isfinite(numbers))
        if len(unknown):
            raise DataError(
                f"score: {path} has {numbers[unknown[0]]} for {name} in row {int(unknown[0])} "
                "(counting from 0). Leave out rows whose factors are not known, from both files."
            )
        values.append(numbers)
        kinds.append(guessed_kind(numbers))
    return np.column_stack(values), kinds


def _missing(column: "np.ndarray") -> "np.ndarray":
    """The rows without a value: empty cells, and NA and the like where all others are numbers."""
    import numpy as np

    if column.dtype.kind in "biuf":
        return np.zeros(0, dtype=np.int64)
    cells = column.astype(str)
    unknown = np.isin(np.char.lower(np.char.strip(cells)), UNKNOWN)
    try:
        cells[~unknown].astype(np.float64)
    except ValueError:  # words, of which "none" may be one
        unknown = cells == ""
    return np.flatnonzero(unknown)


def _listed(kinds: str) -> str | list[str]:
    parts = [part.strip() for part in kinds.split(",")]
    return parts[0] if len(parts) == 1 else parts


def _say(name: str) -> None:
    """What is being worked out, on a terminal only."""
    import sys

    if sys.stderr.isatty():
        print(f"\r\033[K{name}", end="", file=sys.stderr, flush=True)


def _print_json(codes: "np.ndarray", names: list[str], found: Any) -> None:
    import json

    plain = found.to_dict()
    print(
        json.dumps(
            {
                "samples": len(codes),
                "latents": codes.shape[1],
                "factors": names,
                "scores": plain["scores"],
                "skipped": plain["skipped"],
            },
            indent=2,
            ensure_ascii=False,
        )
    )


def _print_table(codes: "np.ndarray", names: list[str], found: Any) -> None:
    print(f"{len(codes):,} samples, {codes.shape[1]} latents, factors: {', '.join(names)}\n")
    rows = [("score", "value", "chance", "95 %", "latents", "flavour")]
    for name, each in found.scores.items():
        used = f"{len(each.active)} of {codes.shape[1]}"
        rows.append((name, *_told(each.score, each.chance, each.interval), used, each.flavour))
        rows += [
            (f"  {part}", *_told(getattr(each, part), *beside), "", "")
            for part, beside in each.more.items()
        ]
    _print_columns(rows)
    print("\nby factor")
    measured = sorted({k for each in found.scores.values() for k in each.factors})
    by_factor = [("score", *(names[k] for k in measured))]
    for name, each in found.scores.items():
        values = dict(zip(each.factors, each.per_factor, strict=True))
        by_factor.append((name, *(f"{values[k]:.3f}" if k in values else "" for k in measured)))
    _print_columns(by_factor)
    notes: dict[str, list[str]] = {}
    for name, each in found.scores.items():
        for flag in each.flags:
            notes.setdefault(flag, []).append(name)
    if notes or found.skipped:
        print("\nnotes")
    for flag, where in notes.items():
        everywhere = len(where) == len(found.scores)
        print(f"  {flag}{'' if everywhere else ' (' + ', '.join(where) + ')'}")
    for name, reason in found.skipped.items():
        print(f"  {name} is missing. {reason}")


def _told(
    value: float, chance: float, interval: tuple[float, float] | None
) -> tuple[str, str, str]:
    ends = "" if interval is None else "{:.3f} to {:.3f}".format(*interval)
    return f"{value:.3f}", f"{chance:.3f}", ends


def _print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())
