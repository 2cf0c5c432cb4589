"""zscope report: everything that can be measured of a model, or a whole sweep, on one page."""

from pathlib import Path
from typing import Annotated

from typer import Option

from zscope.cli import gates, options

__all__ = ["report"]


def report(
    target: options.Target,
    names: options.AssayNames = None,
    out: Annotated[
        Path,
        Option("--out", "-o", help="The page, .html; or .json, .csv, .parquet, .tex for scores."),
    ] = Path("report.html"),
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
            help="Resamples for 95 % intervals; 0 for none. Default 20; 200 for scores of "
            "--require.",
        ),
    ] = None,
    set_: options.AssayOption = None,
    require: gates.Require = None,
    junit: gates.Junit = None,
    seed: options.Seed = 0,
    fresh: options.Fresh = False,
    quick: options.Quick = False,
    root: options.Root = None,
    quiet: options.Quiet = False,
    json: options.AsJson = False,
) -> None:
    """Measure TARGET and write a page with findings, figures and every score.

    The page is a single file that loads nothing: open it from disk, print it, send it.

    If TARGET is a sweep or a folder of runs, the page has the table of their scores, figures
    and what differs between them; nothing is measured.

    With --require the page begins with the outcome of each rule, and the exit code says whether all
    hold: 0 if they do, 1 if one does not, 3 if one is undecided.

    Examples:

      zscope report runs/mine -o report.html

      zscope report mymodel.py:load --data images.npy

      zscope report mymodel:VAE --weights vae.pt --data images.npy response-matrix holes

      zscope report folder-of-a-diffusers-vae --data pictures/

      zscope report runs/mine --require "passive <= 2" --require "mig > 0.3" --junit gate.xml

      zscope report runs/beta -o sweep.html
    """
    from zscope.assays.choosing import assay_name, choose

    requirements = gates.read_requirements("report", require, junit)
    if _is_family(target):
        given = {
            "--require": require,
            "--data": data, "--data-option": data_option, "--weights": weights, "--set": set_,
            "--factors": factors, "--kinds": kinds, "--variances": variances,
            "--samples": samples, "--fresh": fresh, "--quick": quick,
        }  # fmt: skip
        _report_family(target, names, out, [key for key in given if given[key]], json=json)
        return
    names = [assay_name(name) for name in names or []]
    choose(names)  # an unknown name is refused before torch is loaded

    from zscope.cli.assay import finish
    from zscope.cli.outputs import try_file
    from zscope.cli.targets import measure_target
    from zscope.errors import RunError
    from zscope.report.build import files_of, round_numbers
    from zscope.report.progress import show_progress

    for file in files_of(out):
        try_file("report: --out", file)
    unsaved = None
    with show_progress(False if quiet or json else None) as watch:
        content = measure_target(
            "report",
            target,
            gates.needed(names, requirements) if names else None,
            data=data,
            data_option=data_option,
            weights=weights,
            factors=factors,
            kinds=kinds,
            variances=variances,
            set_=set_,
            samples=samples,
            resamples=resamples,
            usual=20,
            requirements=requirements,
            seed=seed,
            root=root,
            fresh=fresh,
            quick=quick,
            progress=watch,
        )
        try:
            content.save(out, progress=watch)
        except RunError as error:  # the disk is full, say: what was found is still printed
            unsaved = error
    if json:
        from json import dumps

        numbers = out.with_suffix(".json") if out.suffix.lower() == ".html" else out
        findings = [finding.to_dict() for finding in content.findings]
        files: dict[str, object] = {"page": str(out), "numbers": str(numbers)}
        card = {} if content.card is None else {"card": round_numbers(content.card.to_dict())}
        if content.requirements is not None:
            files["requirements"] = content.requirements.to_dict()
        outcome = {**card, "findings": findings, "failed": list(content.failed)}
        print(dumps({"format": 2, **files, **outcome}))
    else:
        print("\n".join(content.headlines))
        for name, failure in content.failed.items():
            print(f"{name}: {failure.message}")
        count = len(content.results)
        if unsaved is None:
            print(f"{count} assay{'' if count == 1 else 's'} in {out}")
        if content.failed and unsaved is None:
            whole = out.suffix.lower() in (".html", ".json")
            place = f"are in {out.with_suffix('.json')}" if whole else "would be in -o report.html"
            print(f"The tracebacks {place}")
    if unsaved is not None:
        raise unsaved
    if content.requirements is not None:
        gates.end("report", {target: content.requirements}, junit, silent=json)
    finish(content.measurements, names, json=True)


def _is_family(target: str) -> bool:
    """Whether the target is a folder of runs; most others can be told without a look inside."""
    if not Path(target).is_dir():
        return False
    from zscope.report.family import has_runs

    return has_runs(target)


def _report_family(
    target: str, columns: list[str] | None, out: Path, given: list[str], *, json: bool
) -> None:
    """The page of a sweep or a folder of runs."""
    import sys

    from zscope.cli.outputs import try_file
    from zscope.cli.targets import command_line
    from zscope.errors import ConfigError
    from zscope.report.family import family_report, files_of_family

    if given:
        raise ConfigError(
            f"report: {given[0]} is for one model, and {target} is a folder of runs, whose scores "
            "have been measured. Leave it out, or name one run."
        )
    files = files_of_family(out)
    for file in files:
        try_file("report: --out", file)
    command = command_line("report", target, columns, {"out": out})
    report = family_report(target, columns, command=command)
    report.save(out)
    if json:
        from json import dumps

        places = {"page": str(out), "numbers": str(files[-1])}
        print(dumps({**places, **report.to_dict()}))
        return
    print(f"{len(report.runs):,} runs in {out}")
    if problems := report.problems:
        print(f"report: {len(problems):,} runs have no scores; the page says why", file=sys.stderr)
