"""zscope report: everything that can be measured of a model, or a whole sweep, on one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from zscope.cli import completion, gates, options
from zscope.documents import REPORT_FORMAT

if TYPE_CHECKING:
    from zscope.report.build import Report

__all__ = ["report", "show"]


def report(
    target: options.Target,
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="[TARGET]... [ASSAY]...",
            help="Further models to compare it with, and assays or groups (default: all that "
            "apply).",
            autocompletion=completion.assays,
        ),
    ] = None,
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

    Several models are put side by side, measured on the same data: scores with paired intervals of
    their differences, reconstructions, findings, and which one is better beyond chance.

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

      zscope report runs/a runs/b runs/c -o models.html

      zscope report runs/beta -o sweep.html
    """
    requirements = gates.read_requirements("report", require, junit, out)
    if _is_family(target):
        given = {
            "--require": require,
            "--data": data, "--data-option": data_option, "--weights": weights, "--set": set_,
            "--factors": factors, "--kinds": kinds, "--variances": variances,
            "--samples": samples, "--fresh": fresh, "--quick": quick,
        }  # fmt: skip
        _report_family(target, names, out, [key for key in given if given[key]], json=json)
        return None
    others, names = _split(names or [])
    sources: dict[str, Any] = {
        "data": data, "data_option": data_option, "weights": weights, "factors": factors,
        "kinds": kinds, "variances": variances, "samples": samples, "seed": seed, "root": root,
        "quick": quick,
    }  # fmt: skip
    settings: dict[str, Any] = {
        "set_": set_, "resamples": resamples, "usual": 20, "fresh": fresh,
        "requirements": requirements,
    }  # fmt: skip
    wanted = gates.needed_assays(names, requirements) if names else None
    watched = False if quiet or json else None
    if others:
        targets = [target, *others]
        return _report_several(targets, wanted, out, sources, settings, junit, watched, json=json)

    from zscope.cli.assay import finish
    from zscope.cli.outputs import try_file
    from zscope.cli.targets import measure_target
    from zscope.errors import RunError
    from zscope.report.build import files_of
    from zscope.report.progress import show_progress

    for file in files_of(out):
        try_file("report: --out", file)
    unsaved = None
    with show_progress(watched) as watch:
        content = measure_target("report", target, wanted, **sources, **settings, progress=watch)
        try:
            content.save(out, progress=watch)
        except RunError as error:  # the disk is full, say: what was found is still printed
            unsaved = error
    show(content, out, saved=unsaved is None, json=json)
    if unsaved is not None:
        raise unsaved
    if content.requirements is not None:
        gates.end("report", {target: content.requirements}, junit, silent=json)
    finish(content.measurements, names, json=True)
    return None


def show(content: "Report", out: Path, *, saved: bool, json: bool) -> None:
    """Print the findings, or everything short as JSON."""
    from zscope.report.build import round_numbers

    if json:
        from json import dumps

        numbers = out.with_suffix(".json") if out.suffix.lower() == ".html" else out
        findings = [finding.to_dict() for finding in content.findings]
        files: dict[str, object] = {"page": str(out), "numbers": str(numbers)}
        card = {} if content.card is None else {"card": round_numbers(content.card.to_dict())}
        if content.requirements is not None:
            files["requirements"] = content.requirements.to_dict()
        outcome = {**card, "findings": findings, "failed": list(content.failed)}
        print(dumps({"format": REPORT_FORMAT, **files, **outcome}))
    else:
        print("\n".join(content.headlines))
        for name, failure in content.failed.items():
            print(f"{name}: {failure.message}")
        count = len(content.results)
        if saved:
            print(f"{count} assay{'' if count == 1 else 's'} in {out}")
        if content.failed and saved:
            whole = out.suffix.lower() in (".html", ".json")
            place = f"are in {out.with_suffix('.json')}" if whole else "would be in -o report.html"
            print(f"The tracebacks {place}")


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The further models and the assays among the words after the first model.

    A word that is neither is refused before torch is loaded.
    """
    from zscope.assays.choosing import assay_name, choose
    from zscope.errors import ConfigError

    targets, names = [], []
    for word in words:
        try:
            choose([assay_name(word)])
        except ConfigError as error:
            if not (Path(word).exists() or ":" in word or word.endswith(".onnx")):
                reason = str(error).removeprefix("assay: ")
                raise ConfigError(
                    f"report: there is no file or folder {word!r} with a further model, and "
                    f"{reason}"
                ) from None
            targets.append(word)
        else:
            names.append(assay_name(word))
    return targets, names


def _report_several(
    targets: list[str],
    names: list[str] | None,
    out: Path,
    sources: dict[str, Any],
    settings: dict[str, Any],
    junit: Path | None,
    watched: bool | None,
    *,
    json: bool,
) -> None:
    """The page of several models, all measured on the same rows."""
    from zscope.cli.outputs import try_file
    from zscope.cli.targets import command_line, measure_target, recording_of
    from zscope.errors import ConfigError
    from zscope.report.progress import show_progress
    from zscope.report.several import check_rows, compare_reports, files_of_several
    from zscope.report.traces import traces_of

    if sources["weights"] is not None:
        raise ConfigError(
            f"report: --weights {sources['weights']} is for one model, and {len(targets)} were "
            "named. Name functions that load the weights: module.py:first module.py:second"
        )
    for file in files_of_several(out):
        try_file("report: --out", file)
    with show_progress(watched) as watch:
        recordings = [recording_of("report", target, **sources) for target in targets]
        seeds = [recording.seed for recording in recordings]
        check_rows([traces_of(recording) for recording in recordings], seeds, targets)
        reports = [
            measure_target(
                "report", target, names, **sources, **settings, progress=watch, recording=recording
            )
            for target, recording in zip(targets, recordings, strict=True)
        ]
    words = {name: value for name, value in sources.items() if name != "quick"}
    rules = [each.text for each in settings["requirements"]]
    words |= {"set": settings["set_"], "resamples": settings["resamples"], "require": rules}
    line = command_line("report", targets[0], [*targets[1:], *(names or [])], words)
    comparison = compare_reports(reports, command=line + " --quick" * sources["quick"])
    comparison.save(out)
    failed = {
        name: report.failed
        for name, report in zip(comparison.names, reports, strict=True)
        if report.failed
    }
    if json:
        from json import dumps

        places = {"page": str(out), "numbers": str(files_of_several(out)[-1])}
        print(dumps({**comparison.to_dict(), **places, "failed": list(failed)}))
    else:
        print(comparison)
        for target, failures in failed.items():
            for name, failure in failures.items():
                print(f"{target}, {name}: {failure.message}")
        print(f"{len(targets)} models in {out}")
    requirements = {
        name: report.requirements
        for name, report in zip(comparison.names, reports, strict=True)
        if report.requirements is not None
    }
    if requirements:
        gates.end("report", requirements, junit, silent=json)
    if failed:
        raise Exit(1)


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
