"""zscope score: disentanglement scores for people who have arrays alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from zscope.cli.options import AsJson, AssayOption, Quiet, Seed, assay_options

if TYPE_CHECKING:
    from zscope.assays.run import Measurements
    from zscope.recording import Recording

GROUP = "disentanglement"


def score(
    codes: Annotated[Path, Argument(help="Codes, a row for each sample: .npy .npz .csv .parquet")],
    factors: Annotated[
        Path | None,
        Argument(help="Factors, a row for each sample (not needed if CODES is .npz with both)."),
    ] = None,
    only: Annotated[
        list[str] | None, Option(metavar="SCORE", help="A score to compute; may be repeated.")
    ] = None,
    flavour: Annotated[
        str | None, Option(help="dlib for the definitions of older tables, where a score has it.")
    ] = None,
    kinds: Annotated[
        str | None,
        Option(help="categorical, ordinal or continuous: one for all, or a,b,c for each factor."),
    ] = None,
    variances: Annotated[
        Path | None, Option(help="Posterior variances, to recognise passive latents.")
    ] = None,
    resamples: Annotated[int, Option(help="Resamples for 95 % intervals, e.g. 200.")] = 0,
    set_: AssayOption = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: AsJson = False,
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
    from zscope.assays import groups
    from zscope.assays.run import measure
    from zscope.cli.targets import recording_of_files
    from zscope.errors import ConfigError, did_you_mean
    from zscope.report.progress import show_progress

    known = groups()[GROUP]
    names = [name.replace("_", "-") for name in only or known]
    for name in names:
        if name not in known:
            raise ConfigError(f"score: no score is called {name!r}. {did_you_mean(name, known)}")
    options = assay_options(set_)
    if flavour is not None:
        options = {**with_flavour(flavour, names), **options}
    recording = recording_of_files(codes, factors, variances=variances, kinds=kinds, seed=seed)
    if recording.factors is None:
        raise ConfigError(
            f"score: factors are missing. Give them as a second file: zscope score {codes} "
            "factors.npy, or put both into one .npz as arrays called codes and factors."
        )
    with show_progress(False if quiet or json else None) as watch:
        scores = measure(recording, names, options=options, resamples=resamples, progress=watch)
    if json:
        print_json(recording, scores)
    else:
        print_tables(recording, scores)
    finish(scores, only)


def with_flavour(flavour: str, names: list[str]) -> dict[str, dict[str, str]]:
    """The flavour for every score that has it; others are measured in their own."""
    from zscope.assays import CATALOGUE
    from zscope.errors import ConfigError

    able = [name for name in names if f'flavour="{flavour}"' in CATALOGUE[name].cite]
    if not able:
        raise ConfigError(
            f"score: flavour={flavour!r} is not known to {', '.join(names)}. Use zscope or dlib; "
            "the help of each function names its own."
        )
    return {name: {"flavour": flavour} for name in able}


def print_json(recording: "Recording", scores: "Measurements") -> None:
    from json import dumps

    factors = recording.factors
    content = {
        "format": 2,
        "samples": len(recording),
        "latents": recording.latents,
        "factors": list(factors.names) if factors is not None else [],
        "kinds": list(factors.kinds) if factors is not None else [],
        "scores": {name: result.to_dict() for name, result in scores.results.items()},
        "missing": scores.missing,
        "failed": {name: failure.message for name, failure in scores.failed.items()},
    }
    print(dumps(content, indent=2, ensure_ascii=False))


def print_tables(recording: "Recording", scores: "Measurements") -> None:
    """The scores, then each factor's share in them, then what must be known to read them."""
    from zscope.assays.disentanglement.score import Score
    from zscope.results import text_table

    print(f"{len(recording):,} samples, {recording.latents} latents, {recording.factors!r}\n")
    table = [["score", "value", "95 %", "chance", "n", "latents", "flavour"]]
    names = recording.factors.names if recording.factors is not None else ()
    by_factor = [["by factor", *names]]
    notes: dict[str, list[str]] = {}
    for name, result in scores.results.items():
        if not isinstance(result, Score):
            continue
        used = f"{len(result.active)} of {recording.latents}"
        for each in result.measures():
            own = (used, result.flavour) if not each.name else ("", "")
            table.append([f"  {each.name}" if each.name else name, *each.cells(), *own])
        shares = dict(zip(result.factors, result.per_factor, strict=True))
        cells = [f"{shares[k]:.3f}" if k in shares else "" for k in range(len(names))]
        by_factor.append([name, *cells])
        for flag in result.flags:
            notes.setdefault(flag, []).append(name)
    print(text_table(table))
    print(f"\n{text_table(by_factor)}")
    for flag, where in notes.items():
        everywhere = len(where) == len(scores.results)
        print(f"\n{flag}{'' if everywhere else ' (' + ', '.join(where) + ')'}", end="")
    for name, reason in scores.missing.items():
        print(f"\n{name} is missing. {reason}", end="")
    print()


def finish(scores: "Measurements", only: list[str] | None) -> None:
    """Exit with code 1 if a score failed, or one that was asked for is missing."""
    from typer import Exit

    from zscope.errors import Undefined

    for name, failure in scores.failed.items():
        print(f"{name}: {failure.message}")
    if scores.failed:
        raise Exit(1)
    if scores.missing and (only or not scores.results):
        name, reason = next(iter(scores.missing.items()))
        raise Undefined(f"{name}: {reason}")
