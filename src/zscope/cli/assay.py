"""zscope assay: measure the latent space of a model, or codes alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from zscope.cli.options import (
    AsJson,
    AssayOption,
    DataName,
    DataOption,
    Fresh,
    Quiet,
    Root,
    Seed,
    Weights,
    assay_options,
)

if TYPE_CHECKING:
    from zscope.report.build import Report


def assay(
    target: Annotated[
        str | None,
        Argument(help="A run, package.module:attribute, file.py:attribute, or a file of codes."),
    ] = None,
    names: Annotated[
        list[str] | None,
        Argument(metavar="[ASSAY]...", help="Assays or groups; all that apply, if none."),
    ] = None,
    data: DataName = None,
    data_option: DataOption = None,
    weights: Weights = None,
    factors: Annotated[
        Path | None, Option(help="For a file of codes: the file of their factors.")
    ] = None,
    kinds: Annotated[
        str | None,
        Option(help="Of these factors: categorical, ordinal or continuous; one for all, or a,b,c."),
    ] = None,
    variances: Annotated[
        Path | None, Option(help="For a file of codes: the file of posterior variances.")
    ] = None,
    samples: Annotated[int, Option(help="Observations to encode.")] = 10_000,
    resamples: Annotated[
        int, Option(help="Resamples for 95 % intervals, e.g. 200; 0 for none.")
    ] = 0,
    set_: AssayOption = None,
    seed: Seed = 0,
    figures: Annotated[Path | None, Option(help="Draw each result into this folder.")] = None,
    format_: Annotated[
        str, Option("--format", help="Format of the figures: png, pdf or svg.")
    ] = "png",
    all_: Annotated[
        bool, Option("--all", help="Details of every assay, and why some were not measured.")
    ] = False,
    fresh: Fresh = False,
    root: Root = None,
    list_: Annotated[
        bool, Option("--list", help="List the assays with their costs, and stop.")
    ] = False,
    quiet: Quiet = False,
    json: AsJson = False,
    csv: Annotated[bool, Option("--csv", help="Print the scores as CSV.")] = False,
) -> None:
    """Measure the latent space of TARGET: findings first, then one table of scores.

    Assays that are named are also printed in detail. Results of a run are kept with it, in
    RUN/assays, and taken over the next time if nothing they depend on has changed.

    Examples:

      zscope assay runs/mine

      zscope assay runs/mine response-matrix disentanglement --resamples 200

      zscope assay runs/mine response-map --set response-map.dims=3,5 --figures figures

      zscope assay mymodel:load --data images.npy --json

      zscope assay embeddings.npy --factors labels.csv
    """
    from zscope.errors import ConfigError

    if list_:
        return print_catalogue()
    if target is None:
        raise ConfigError(
            "assay: TARGET is missing: a run folder, package.module:attribute, or a file of codes. "
            "The assays are listed by: zscope assay --list"
        )
    check_format(format_)
    from zscope.assays.run import check_options, choose
    from zscope.cli.targets import config_of, kept_results, recording_of
    from zscope.report.build import build
    from zscope.report.progress import show_progress

    choose(names or None)  # an unknown name or option is refused before a model is loaded
    options = check_options(assay_options(set_))
    with show_progress(False if quiet or json or csv else None) as watch:
        recording = recording_of(
            target,
            data=data,
            data_option=data_option,
            weights=weights,
            factors=factors,
            variances=variances,
            kinds=kinds,
            samples=samples,
            seed=seed,
            root=root,
        )
        report = build(
            recording,
            names or None,
            options=options,
            resamples=resamples,
            progress=watch,
            kept=kept_results(target, recording, fresh=fresh),
            title=target,
            config=config_of(target),
        )
    files = {} if figures is None else draw(report, figures, format_)
    show(report, names or [], files, everything=all_, json=json, csv=csv)
    finish(report, names or [])
    return None


def check_format(name: str) -> None:
    """Refuse figures in a format that is not offered, before anything is measured."""
    from zscope.errors import ConfigError, did_you_mean

    known = ("png", "pdf", "svg")
    if name not in known:
        raise ConfigError(f"assay: --format {name}. {did_you_mean(name, known)}")


def draw(report: "Report", folder: Path, suffix: str) -> dict[str, str]:
    """Draw what can be drawn; returns the file of each figure."""
    import matplotlib.pyplot as plt

    from zscope.errors import Undefined

    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, result in report.results.items():
        try:
            drawing = result.plot()
        except Undefined:  # a result that has no figure
            continue
        figure = drawing if hasattr(drawing, "savefig") else drawing.get_figure()
        file = folder / f"{name}.{suffix}"
        figure.savefig(file)
        plt.close(figure)
        files[name] = str(file)
    return files


def show(
    report: "Report",
    names: list[str],
    files: dict[str, str],
    *,
    everything: bool,
    json: bool,
    csv: bool,
) -> None:
    """Print the report: as JSON, as CSV, or for people."""
    if json:
        from json import dumps

        print(dumps({**report.to_dict(pictures=False), "figures": files}, ensure_ascii=False))
        return
    if csv:
        from zscope.report.tables import as_csv

        print(as_csv(report.rows()).decode(), end="")
        return
    print(report)
    detailed = report.results if everything else [n for n in names if n in report.results]
    for name in detailed:
        print(f"\n{name}\n{report.results[name]!r}")
        if note := report.measurements.notes.get(name):
            print(note)
    if everything:
        for name, reason in report.missing.items():
            print(f"\n{name}: {reason}")
    if files:
        print(f"\n{len(files)} figures in {Path(next(iter(files.values()))).parent}")


def finish(report: "Report", names: list[str]) -> None:
    """Exit with code 1 if an assay failed, or one that was named could not be measured."""
    from zscope.errors import Undefined

    if report.failed:
        raise Exit(1)
    for name in names:
        if name in report.missing:
            raise Undefined(f"{name}: {report.missing[name]}")


def print_catalogue() -> None:
    """Every assay with its question and its cost, group by group."""
    from zscope.assays import CATALOGUE

    width = max(map(len, CATALOGUE))
    groups: dict[str, list[Any]] = {}
    for entry in CATALOGUE.values():
        groups.setdefault(entry.group, []).append(entry)
    for group, entries in groups.items():
        print(f"{group}")
        for entry in entries:
            passes = entry.passes if isinstance(entry.passes, str) else ""
            cost = f"  [{passes} passes]" if passes else ""
            cost = f"  [{passes} passes, at most {entry.most:,}]" if entry.most else cost
            cost = "  [zscope compare]" if entry.compares else cost
            print(f"  {entry.name:{width}}  {entry.question}{cost}")
        print()
    print(
        "A group stands for all its assays. A pass decodes one code and encodes the result again; "
        "the\nnumber in brackets is the default cost, which more latents raise only up to the "
        "limit given.\nOptions: zscope assay RUN ASSAY --set ASSAY.OPTION=VALUE; "
        "help(zs.assays.FUNCTION) lists them."
    )
