"""zscope report: everything that can be measured of a model, on one page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

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


def report(
    target: Annotated[
        str,
        Argument(help="A run, package.module:attribute, file.py:attribute, or a file of codes."),
    ],
    names: Annotated[
        list[str] | None,
        Argument(metavar="[ASSAY]...", help="Assays or groups; all that apply, if none."),
    ] = None,
    out: Annotated[
        Path,
        Option("--out", "-o", help="The page, .html; or .json, .csv, .parquet, .tex for scores."),
    ] = Path("report.html"),
    data: DataName = None,
    data_option: DataOption = None,
    weights: Weights = None,
    factors: Annotated[
        Path | None, Option(help="For a file of codes: the file of their factors.")
    ] = None,
    samples: Annotated[int, Option(help="Observations to encode.")] = 10_000,
    resamples: Annotated[int, Option(help="Resamples for 95 % intervals; 0 for none.")] = 20,
    set_: AssayOption = None,
    seed: Seed = 0,
    fresh: Fresh = False,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Measure TARGET and write a page with findings, figures and every score.

    The page is a single file that loads nothing: open it from disk, print it, send it.

    Examples:

      zscope report runs/mine -o report.html

      zscope report mymodel.py:load --data images.npy

      zscope report mymodel:VAE --weights vae.pt --data images.npy response-matrix holes
    """
    from zscope.assays.run import check_options, choose
    from zscope.cli.assay import finish
    from zscope.cli.targets import config_of, kept_results, recording_of
    from zscope.report.build import build, check_suffix
    from zscope.report.progress import show_progress

    check_suffix(out)  # what cannot be done is refused before anything is measured
    choose(names or None)
    options = check_options(assay_options(set_))
    with show_progress(False if quiet or json else None) as watch:
        recording = recording_of(
            target,
            data=data,
            data_option=data_option,
            weights=weights,
            factors=factors,
            samples=samples,
            seed=seed,
            root=root,
        )
        made = build(
            recording,
            names or None,
            options=options,
            resamples=resamples,
            progress=watch,
            kept=kept_results(target, recording, fresh=fresh),
            title=target,
            command=command(
                target,
                names,
                set_,
                {
                    "data": data,
                    "data-option": data_option,
                    "weights": weights,
                    "factors": factors,
                    "samples": samples,
                    "resamples": resamples,
                    "seed": seed,
                },
            ),
            config=config_of(target),
        )
        made.save(out, progress=watch)
    if json:
        from json import dumps

        content = {"page": str(out), "numbers": str(out.with_suffix(".json"))}
        found = [finding.to_dict() for finding in made.findings]
        print(dumps({"format": 2, **content, "findings": found, "failed": list(made.failed)}))
    else:
        print("\n".join(map(str, made.findings)))
        for name, failure in made.failed.items():
            print(f"{name}: {failure.message}")
        print(f"{len(made.results)} assays in {out}")
    finish(made, names or [])


def command(
    target: str, names: list[str] | None, set_: list[str] | None, options: Mapping[str, object]
) -> str:
    """The command that makes the report again."""
    import shlex

    words = ["zscope", "report", target, *(names or [])]
    for pair in set_ or []:
        words += ["--set", pair]
    for option, value in options.items():
        values = value if isinstance(value, list) else [] if value is None else [value]
        for each in values:
            words += [f"--{option}", str(each)]
    return shlex.join(words)
