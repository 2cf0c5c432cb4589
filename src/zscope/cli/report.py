"""zscope report: everything that can be measured of a model, on one page."""

from pathlib import Path
from typing import Annotated

from typer import Option

from zscope.cli import options

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
    resamples: options.Resamples = 20,
    set_: options.AssayOption = None,
    seed: options.Seed = 0,
    fresh: options.Fresh = False,
    root: options.Root = None,
    quiet: options.Quiet = False,
    json: options.AsJson = False,
) -> None:
    """Measure TARGET and write a page with findings, figures and every score.

    The page is a single file that loads nothing: open it from disk, print it, send it.

    Examples:

      zscope report runs/mine -o report.html

      zscope report mymodel.py:load --data images.npy

      zscope report mymodel:VAE --weights vae.pt --data images.npy response-matrix holes
    """
    from zscope.assays.run import assay_name
    from zscope.cli.assay import finish
    from zscope.cli.outputs import try_file
    from zscope.cli.targets import measure_target
    from zscope.errors import RunError
    from zscope.report.build import files_of
    from zscope.report.progress import show_progress

    names = [assay_name(name) for name in names or []]
    for file in files_of(out):
        try_file("report: --out", file)
    unsaved = None
    with show_progress(False if quiet or json else None) as watch:
        content = measure_target(
            "report",
            target,
            names,
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
        files = {"page": str(out), "numbers": str(numbers)}
        print(dumps({"format": 2, **files, "findings": findings, "failed": list(content.failed)}))
    else:
        print("\n".join(map(str, content.findings)))
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
    finish(content.measurements, names, json=True)
