"""From command-line arguments to a recording and its report."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zscope.cli.options import assay_options, settings

if TYPE_CHECKING:
    from zscope.data.dataset import Dataset
    from zscope.recording import Recording
    from zscope.report.build import Report
    from zscope.report.progress import Watch
    from zscope.report.requirements import Requirement

__all__ = [
    "command_line", "config_of", "data_for", "measure_target", "recording_of",
    "recording_of_files", "say_not_kept",
]  # fmt: skip


def measure_target(
    command: str,
    target: str,
    names: list[str] | None,
    *,
    set_: list[str] | None,
    samples: int | None,
    resamples: int | None,
    usual: int = 0,
    seed: int,
    root: Path | None,
    fresh: bool,
    quick: bool,
    progress: "Watch | None",
    brief: bool = False,
    requirements: "Sequence[Requirement]" = (),
    recording: "Recording | None" = None,
    **sources: Any,
) -> "Report":
    """The report of a target; `sources` are the further arguments of `recording_of`.

    `recording` is what that returns, if it is there by now.

    `names` None are all assays, an empty list none. Without `resamples` there are as many as is
    `usual`, and more for scores that are required. Unknown assays and options are refused before a
    model is loaded.
    """
    from zscope.assays.choosing import choose
    from zscope.assays.run import check_options, refuse_unused
    from zscope.kept import results_of
    from zscope.loading import run_history
    from zscope.report.build import build
    from zscope.report.requirements import with_resamples

    options = assay_options(set_)
    check_options(options)
    refuse_unused(options, [entry.name for entry in choose(names)])
    # Without --resamples in a gate, so that the command that is printed measures the same again.
    said = usual if resamples is None and not requirements else resamples
    words = {"set": set_, **sources, "samples": samples, "resamples": said, "seed": seed}
    words |= {"require": [each.text for each in requirements]}
    if resamples is None:
        resamples = usual
        options = with_resamples(requirements, options)
    if recording is None:
        recording = recording_of(
            command, target, samples=samples, seed=seed, root=root, quick=quick, **sources
        )
    line = command_line(command, target, names, words) + " --quick" * quick
    # The scores that are stored with a run are those of the usual samples.
    own_data = sources.get("data") is None
    kept = None if quick else results_of(target, recording.model, fresh=fresh, own_data=own_data)
    report = build(
        recording,
        names,
        options=options,
        resamples=resamples,
        progress=progress,
        kept=kept,
        title=target,
        command=line,
        config=config_of(target),
        history=run_history(target),
        brief=brief,
    )
    say_not_kept(report)
    if requirements:
        report = replace(report, requirements=report.require(*requirements))
    return report


def say_not_kept(report: "Report") -> None:
    """Print on stderr, whatever the format of the output, why results were not kept."""
    import sys

    while report.measurements.warnings:
        print(report.measurements.warnings.pop(0), file=sys.stderr)


def command_line(
    command: str, target: str, names: list[str] | None, options: Mapping[str, object]
) -> str:
    """The command that reproduces the report."""
    import shlex

    words = ["zscope", command, target, *(names or [])]
    for option, value in options.items():
        values = value if isinstance(value, list) else [] if value is None else [value]
        for each in values:
            words += [f"--{option.replace('_', '-')}", str(each)]
    return shlex.join(words)


def recording_of(
    command: str,
    target: str,
    *,
    data: str | None = None,
    data_option: list[str] | None = None,
    weights: Path | None = None,
    factors: Path | None = None,
    variances: Path | None = None,
    kinds: str | None = None,
    samples: int | None,
    seed: int,
    root: Path | None = None,
    quick: bool = False,
) -> "Recording":
    """A model recorded on data, or a file of codes as it is."""
    from zscope.data.columns import SUFFIXES
    from zscope.errors import ConfigError
    from zscope.loading import load
    from zscope.recording import SAMPLES, record

    of_models = {
        "--data": data, "--data-option": data_option, "--weights": weights, "--quick": quick,
    }  # fmt: skip
    of_codes = {"--factors": factors, "--variances": variances, "--kinds": kinds}
    if Path(target).suffix.lower() in SUFFIXES:
        for option, value in of_models.items():
            if value:
                raise ConfigError(
                    f"{command}: {option} is for models, and {target} is a file of codes. Leave it "
                    "out; pass factors with --factors FILE."
                )
        return recording_of_files(
            Path(target), factors, variances=variances, kinds=kinds, samples=samples, seed=seed
        )
    for option, value in of_codes.items():
        if value is not None:
            raise ConfigError(
                f"{command}: {option} is for files of codes, and {target} is a model: its factors "
                "come with the data. See --data and --data-option."
            )
    return record(
        load(target, weights=weights),
        data_for(target, data, data_option, root),
        samples=samples or SAMPLES,
        seed=seed,
        quick=quick,
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
    from zscope.errors import ConfigError, DataError
    from zscope.recording import Recording, choose_rows

    inside = array_names(codes)
    mean = numbers(read_columns(codes, "codes"), codes)
    rows: Any = slice(None) if samples is None else choose_rows(len(mean), samples, seed)

    def check_rows(file: Path, role: str, count: int) -> None:
        if count != len(mean):
            raise DataError(
                f"{file}: {count} rows of {role} for {len(mean)} codes in {codes}; row i of both "
                "must be the same sample. Was one of them truncated?"
            )

    variance_file = variances or (codes if "variances" in inside else None)
    variance = None
    if variance_file is not None:
        variance = numbers(read_columns(variance_file, "variances"), variance_file)
        check_rows(variance_file, "variances", len(variance))
    factor_file = factors or (codes if "factors" in inside else None)
    if factor_file is None:
        if kinds is not None:
            raise ConfigError(
                f"--kinds {kinds}: no factors were given with {codes}. Add the file of factors, or "
                "leave --kinds out."
            )
        return Recording.from_arrays(
            mean[rows], variances=None if variance is None else variance[rows], seed=seed
        )
    table = factor_table(read_columns(factor_file, "factors"), kinds, name=str(factor_file))
    check_rows(factor_file, "factors", len(table.values))
    return Recording.from_arrays(
        mean[rows],
        table.values[rows],
        variances=None if variance is None else variance[rows],
        kinds=table.kinds,
        names=table.names,
        labels=table.categories,
        seed=seed,
    )


def data_for(
    target: str, data: str | None, options: list[str] | None, root: Path | None
) -> "Dataset":
    """The dataset that is named, or the run's own (its held-out part if there is one)."""
    from zscope import data as datasets
    from zscope.errors import ConfigError
    from zscope.loading import run_data, table_options

    if options and data is None:
        raise ConfigError(
            f"--data-option {options[0]} needs --data: the data of a run have the options that it "
            "was trained with. Add --data NAME, or leave --data-option out."
        )
    if data is not None:
        given = {**table_options(target, data), **settings(options, "--data-option")}
        return datasets.load(data, root=root, **given)
    return run_data(target, root=root)


def config_of(target: str) -> dict[str, Any] | None:
    """How a run was trained; None for other targets."""
    from zscope import hub, store

    path = hub.local_path(target)
    return store.open_run(path).config if store.is_run(path) else None
