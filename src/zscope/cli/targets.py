"""From the words on the command line to a recording."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zscope.cli.options import settings

if TYPE_CHECKING:
    from zscope.data.dataset import Dataset
    from zscope.kept import KeptResults
    from zscope.recording import Recording

TABLES = (".npy", ".npz", ".csv", ".tsv", ".parquet")


def recording_of(
    target: str,
    *,
    data: str | None = None,
    data_option: list[str] | None = None,
    weights: Path | None = None,
    factors: Path | None = None,
    variances: Path | None = None,
    kinds: str | None = None,
    samples: int,
    seed: int,
    root: Path | None = None,
) -> "Recording":
    """A model recorded on data, or a file of codes as it is."""
    from zscope.errors import ConfigError
    from zscope.loading import load
    from zscope.recording import record

    if Path(target).suffix.lower() in TABLES:
        for option, value in (("--data", data), ("--weights", weights)):
            if value is not None:
                raise ConfigError(
                    f"assay: {target} is a file of codes, and {option} is for models. Leave it "
                    "out; factors go with --factors FILE."
                )
        return recording_of_files(
            Path(target), factors, variances=variances, kinds=kinds, samples=samples, seed=seed
        )
    for option, value in (("--factors", factors), ("--variances", variances), ("--kinds", kinds)):
        if value is not None:
            raise ConfigError(
                f"assay: {option} is for files of codes, and {target} is a model, whose data bring "
                "their own. See --data and --data-option."
            )
    return record(
        load(target, weights=weights),
        data_for(target, data, data_option, root),
        samples=samples,
        seed=seed,
    )


def recording_of_files(
    codes: Path,
    factors: Path | None = None,
    *,
    variances: Path | None = None,
    kinds: str | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> "Recording":
    """Files of codes, factors and variances; an .npz file may hold all three."""
    from zscope.data.columns import array_names, factor_table, numbers, read_columns
    from zscope.recording import Recording, choose_rows

    inside = array_names(codes)
    mean = numbers(read_columns(codes, "codes"), codes)
    spread_file = variances or (codes if "variances" in inside else None)
    spread = None
    if spread_file is not None:
        spread = numbers(read_columns(spread_file, "variances"), spread_file)
    factor_file = factors or (codes if "factors" in inside else None)
    table: Any = None
    if factor_file is not None:
        table = factor_table(read_columns(factor_file, "factors"), kinds, name=str(factor_file))
        if len(table.values) != len(mean):
            from zscope.errors import DataError

            raise DataError(
                f"{factor_file}: {len(table.values)} rows of factors for {len(mean)} codes in "
                f"{codes}; row i of both must be the same sample. Was one of them cut?"
            )
    rows: Any = slice(None)
    if samples is not None:
        rows = choose_rows(len(mean), samples, seed)
    return Recording.from_arrays(
        mean[rows],
        None if table is None else table.values[rows],
        variances=None if spread is None else spread[rows],
        kinds=None if table is None else table.kinds,
        names=None if table is None else table.names,
        labels=None if table is None else table.categories,
        seed=seed,
    )


def data_for(
    target: str, data: str | None, options: list[str] | None, root: Path | None
) -> "Dataset":
    """The observations to encode: those named, or the run's own (held-out ones if it has any)."""
    from zscope import data as datasets
    from zscope.loading import run_data

    if data is not None:
        return datasets.load(data, root=root, **settings(options, "--data-option"))
    return run_data(target, root=root)


def kept_results(target: str, recording: "Recording", *, fresh: bool) -> "KeptResults | None":
    """What was measured of a run before, and where new results go; None for other targets."""
    from zscope import store
    from zscope.kept import KeptResults

    if not store.is_run(target):
        return None
    kept = KeptResults(store.open_run(target), recording.model)
    if fresh:
        kept.get = lambda name, key: None  # type: ignore[method-assign]
    return kept


def config_of(target: str) -> dict[str, Any] | None:
    """How a run was trained; None for models of one's own."""
    from zscope import store

    return store.open_run(target).config if store.is_run(target) else None
