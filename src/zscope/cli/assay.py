"""zscope assay: measure the latent space of a model, or codes alone."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

from zscope.cli import gates, options

if TYPE_CHECKING:
    from zscope.assays.run import Measurements
    from zscope.errors import RunError
    from zscope.report.build import Report

__all__ = ["assay"]


def assay(
    target: options.Target = "",
    names: options.AssayNames = None,
    data: options.DataName = None,
    data_option: options.DataOption = None,
    weights: options.Weights = None,
    factors: options.FactorsFile = None,
    kinds: options.Kinds = None,
    variances: options.Variances = None,
    samples: options.Samples = None,
    resamples: Annotated[
        int | None,
        Option(
            min=0,
            help="Resamples for 95 % intervals, e.g. 200; 0 for none. Default 0; 200 for scores "
            "of --require.",
        ),
    ] = None,
    set_: options.AssayOption = None,
    seed: options.Seed = 0,
    require: gates.Require = None,
    junit: gates.Junit = None,
    figures: Annotated[Path | None, Option(help="Save the figures in this folder.")] = None,
    format_: Annotated[
        str, Option("--format", help="Format of the figures: png, pdf or svg.")
    ] = "png",
    all_: Annotated[
        bool, Option("--all", help="Details of every assay, and why some were not measured.")
    ] = False,
    fresh: options.Fresh = False,
    quick: options.Quick = False,
    root: options.Root = None,
    list_: Annotated[
        bool, Option("--list", help="List the assays with their costs, and stop.")
    ] = False,
    quiet: options.Quiet = False,
    json: options.AsJson = False,
    csv: options.AsCsv = False,
) -> None:
    """Measure the latent space of TARGET: findings first, then one table of scores.

    Assays that are named are also printed in detail. Results of a run are stored in RUN/assays
    and reused the next time, as long as nothing they depend on has changed. Of latents that are
    maps, with channels and places, the card "Ready for diffusion?" comes first.

    With --require it is a quick gate: without names, only what the rules need is measured.

    Examples:

      zscope assay runs/mine

      zscope assay runs/mine response-matrix disentanglement --resamples 200

      zscope assay runs/mine response-map --set response-map.dims=3,5 --figures figures

      zscope assay mymodel:load --data images.npy --json

      zscope assay folder-of-a-diffusers-vae diffusion --data pictures/

      zscope assay embeddings.npy --factors labels.csv

      zscope assay runs/mine --require "passive <= 2" --require "mig > 0.3" --junit gate.xml
    """
    from zscope.cli.outputs import try_folder
    from zscope.errors import ConfigError

    if list_:
        return print_catalogue()
    if not target:
        raise ConfigError(
            "assay: TARGET is missing: a run folder, package.module:attribute, or a file of codes. "
            "To list the assays: zscope assay --list"
        )
    options.check_output("assay", json=json, csv=csv)
    check_format(format_)
    requirements = gates.read_requirements("assay", require, junit)
    if figures is not None:
        try_folder("assay: --figures", figures)
    from zscope.assays.choosing import assay_name, choose

    names = [assay_name(name) for name in names or []]
    choose(names)  # an unknown name is refused before torch is loaded

    from zscope.cli.targets import measure_target
    from zscope.report.progress import show_progress

    with show_progress(False if quiet or json or csv else None) as watch:
        report = measure_target(
            "assay",
            target,
            gates.needed_assays(names, requirements),
            data=data,
            data_option=data_option,
            weights=weights,
            factors=factors,
            kinds=kinds,
            variances=variances,
            set_=set_,
            samples=samples,
            resamples=resamples,
            seed=seed,
            root=root,
            fresh=fresh,
            quick=quick,
            progress=watch,
            brief=not json,
            requirements=requirements,
        )
    files, unsaved = ({}, None) if figures is None else draw(report, figures, format_)
    show(report, names, files, everything=all_, json=json, csv=csv)
    if unsaved is not None:
        raise unsaved
    if report.requirements is not None:
        gates.end("assay", {target: report.requirements}, junit, silent=json or csv)
    finish(report.measurements, names, json=json, csv=csv)
    return None


def check_format(name: str) -> None:
    """Refuse an unknown format of figures before anything is measured."""
    from zscope.errors import ConfigError, did_you_mean

    known = ("png", "pdf", "svg")
    if name not in known:
        raise ConfigError(f"assay: --format {name}. {did_you_mean(name, known)}")


def draw(report: "Report", folder: Path, suffix: str) -> tuple[dict[str, str], "RunError | None"]:
    """Draw every result that has a figure: the file of each, and why one could not be saved."""
    import matplotlib.pyplot as plt

    from zscope.assays.run import isolate
    from zscope.errors import RunError, Undefined
    from zscope.plots import save

    files: dict[str, str] = {}
    for name, result in report.results.items():
        draws = {name: result.plot}
        for further in result.further_plots:
            draws[f"{name}-{further.removeprefix('plot_')}"] = getattr(result, further)
        for title, plot in draws.items():
            # An Undefined says that there is no figure.
            with isolate(f"figure of {title}", report.failed), suppress(Undefined):
                drawing = plot()
                figure = drawing if hasattr(drawing, "savefig") else drawing.get_figure()
                try:
                    files[title] = str(save(figure, folder / f"{title}.{suffix}", dpi="figure"))
                except RunError as error:  # the disk is full, say, and will be for the next ones
                    return files, error
                finally:
                    plt.close(figure)
    return files, None


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

        print(dumps({**report.to_dict(pictures=False), "figures": files}))
        return
    if csv:
        from zscope.report.tables import as_csv

        print(as_csv(report.rows()).decode(), end="")
        return
    print(report)
    detailed = report.results if everything else [n for n in names if n in report.results]
    for name in detailed:
        _, _, body = repr(report.results[name]).partition("\n")  # without its own title
        print(f"\n{name}\n{body}")
        if note := report.measurements.notes.get(name):
            print(note)
    if everything:
        for name, reason in report.missing.items():
            print(f"\n{name}: {reason}")
    if files:
        count = f"{len(files)} figure{'s' if len(files) > 1 else ''}"
        print(f"\n{count} in {Path(next(iter(files.values()))).parent}")


def finish(
    measurements: "Measurements", names: list[str], *, json: bool = False, csv: bool = False
) -> None:
    """Exit with code 1 if an assay failed, or if one that was named has no result.

    A failure goes to stderr with CSV, which has no place for it; JSON has its traceback.
    """
    from zscope.errors import Undefined
    from zscope.report.tables import names_by_text

    if measurements.failed:
        for name, failure in measurements.failed.items() if csv else ():
            print(f"{name}: {failure.message}", file=sys.stderr)
        if not json:
            print("For the traceback, run it again with --json.", file=sys.stderr)
        raise Exit(1)
    missing = measurements.missing
    # Where nothing was measured: an assay that was tried says more than one that does not apply.
    tried = sorted(missing, key=lambda name: missing[name].startswith("Not applicable"))
    wanted = [name for name in names if name in missing]
    if not wanted and not measurements.results:
        wanted = [name for name in tried if missing[name] == missing[tried[0]]]
    reasons = names_by_text((name, missing[name]) for name in wanted)
    if reasons:
        raise Undefined("\n".join(f"{assays}: {reason}" for reason, assays in reasons.items()))


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
            cost = "use: zscope compare RUN RUN" if entry.compares else entry.cost_text
            cost = f"  [{cost}]" if cost else ""
            print(f"  {entry.name:{width}}  {entry.question}{cost}")
        print()
    print(
        "The name of a group selects all its assays. A pass decodes one code and encodes the "
        "result\nagain; the brackets show the default cost, which grows with the number of latents "
        "up to the\nlimit. Options: zscope assay RUN ASSAY --set ASSAY.OPTION=VALUE; "
        "help(zs.assays.FUNCTION) lists them."
    )
