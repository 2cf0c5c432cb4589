"""zscope score: disentanglement scores of a file of codes and a file of factors."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from zscope.cli import completion, options

if TYPE_CHECKING:
    from zscope.assays.run import Measurements
    from zscope.recording import Recording

__all__ = ["score"]


def score(
    codes: Annotated[Path, Argument(help="Codes, a row for each sample: .npy .npz .csv .parquet")],
    factors: Annotated[
        Path | None,
        Argument(help="Factors, a row for each sample (not needed if CODES is .npz with both)."),
    ] = None,
    only: Annotated[
        list[str] | None,
        Option(
            metavar="SCORE",
            help="A score to compute; may be repeated.",
            autocompletion=completion.scores,
        ),
    ] = None,
    flavour: Annotated[
        str | None,
        Option(help="dlib: as in the library of Locatello et al., for scores that have it."),
    ] = None,
    kinds: options.Kinds = None,
    variances: options.Variances = None,
    resamples: options.Resamples = 0,
    set_: options.AssayOption = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    json: options.AsJson = False,
    csv: options.AsCsv = False,
) -> None:
    """Score how well CODES disentangle known FACTORS.

    Tables may have a first line with names; words in factors are categories. An .npz
    file may hold both, as arrays called codes and factors. The scores are those of
    zscope assay CODES disentanglement --factors FACTORS.

    Examples:

      zscope score codes.npy factors.npy

      zscope score codes.csv factors.csv --only mig --only dci --resamples 200

      zscope score both.npz --flavour dlib --json
    """
    from zscope.assays import CATALOGUE, groups
    from zscope.assays.choosing import assay_name
    from zscope.errors import ConfigError, did_you_mean

    options.check_output("score", json=json, csv=csv)
    known = groups()["disentanglement"]
    names = [assay_name(name) for name in only or known]
    for name in names:
        if name in CATALOGUE and CATALOGUE[name].compares:
            raise ConfigError(
                f"score: {name} compares two or more models, and CODES are those of one. Use: "
                "zscope compare RUN RUN"
            )
        if name not in known:
            raise ConfigError(f"score: no score is called {name!r}. {did_you_mean(name, known)}")

    from zscope.assays.run import measure  # which loads torch, for names that are known
    from zscope.cli.assay import finish
    from zscope.cli.targets import recording_of_files
    from zscope.report.progress import show_progress

    settings = with_flavour(flavour, names)
    for name, values in options.assay_options(set_).items():
        settings[name] = {**settings.get(name, {}), **values}
    recording = recording_of_files(codes, factors, variances=variances, kinds=kinds, seed=seed)
    if recording.factors is None:
        raise ConfigError(
            f"score: factors are missing. Give them as a second file: zscope score {codes} "
            "factors.npy, or put both into one .npz as arrays called codes and factors."
        )
    with show_progress(False if quiet or json or csv else None) as watch:
        scores = measure(recording, names, options=settings, resamples=resamples, progress=watch)
    (print_json if json else print_csv if csv else print_tables)(recording, scores)
    finish(scores, names if only else [], json=json, csv=csv)


def with_flavour(flavour: str | None, names: list[str]) -> dict[str, dict[str, Any]]:
    """The flavour for every score that has it; the others keep their own definition."""
    from zscope.assays import CATALOGUE
    from zscope.assays.arguments import choices
    from zscope.errors import ConfigError, did_you_mean

    if flavour is None:
        return {}
    known = {name: choices(CATALOGUE[name].load(), "flavour") for name in names}
    supported = [name for name in names if flavour in known[name]]
    if not supported:
        raise ConfigError(
            f"score: no flavour {flavour!r} of {', '.join(names)}. "
            f"{did_you_mean(flavour, {each for row in known.values() for each in row})}"
        )
    return {name: {"flavour": flavour} for name in supported}


def print_json(recording: "Recording", scores: "Measurements") -> None:
    from json import dumps

    from zscope.documents import REPORT_FORMAT, schema_address

    content = {
        "format": REPORT_FORMAT,
        "schema": schema_address("scores"),
        "samples": len(recording),
        "latents": recording.latents,
        "factors": [] if recording.factors is None else list(recording.factors.names),
        "kinds": [] if recording.factors is None else list(recording.factors.kinds),
        "scores": {name: result.to_dict() for name, result in scores.results.items()},
        "missing": scores.missing,
        "failed": {name: failure.message for name, failure in scores.failed.items()},
        "tracebacks": {name: failure.traceback for name, failure in scores.failed.items()},
    }
    print(dumps(content, indent=2))


def print_csv(_: "Recording", scores: "Measurements") -> None:
    from zscope.report.tables import as_csv, long_rows

    print(as_csv(long_rows(scores.results)).decode(), end="")


def print_tables(recording: "Recording", scores: "Measurements") -> None:
    """The scores, the score of each factor, then flags and what has no score."""
    from zscope.report.tables import flag_lines, names_by_text
    from zscope.results import text_table

    names = () if recording.factors is None else recording.factors.names
    table = [["score", "value", "95 % interval", "chance", "n", "latents", "flavour"]]
    by_factor = [["by factor", *names]]
    results: dict[str, Any] = dict(scores.results)
    for name, result in results.items():
        used = f"{len(result.active)} of {recording.latents}"
        first, *others = result.measures()
        table.append([name, *first.cells(), used, result.flavour])
        table += [[f"  {each.name}", *each.cells(), "", ""] for each in others]
        values = dict(zip(result.factors, result.per_factor, strict=True))
        cells = [f"{values[k]:.3f}" if k in values else "" for k in range(len(names))]
        by_factor.append([name, *cells])
    print(f"{len(recording):,} samples, {recording.latents} latents, {recording.factors!r}")
    if results:
        print(f"\n{text_table(table)}\n\n{text_table(by_factor)}\n")
        print("\n".join(flag_lines(results)))
    reasons = names_by_text(scores.missing.items())
    if results or len(reasons) > 1:  # a single reason is the error message that follows
        for reason, assays in reasons.items():
            print(f"No score of {assays}. {reason}")
    for name, failure in scores.failed.items():
        print(f"{name}: {failure.message}")
