"""zscope report: everything that can be measured of a model, on one page."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from zscope.cli.options import AsJson, DataName, DataOption, Quiet, Root, Seed, Weights


def report(
    target: Annotated[str, Argument(help="A run, package.module:attribute, file.py:attribute, …")],
    names: Annotated[
        list[str] | None, Argument(metavar="[ASSAY]...", help="Which; all that apply, if none.")
    ] = None,
    out: Annotated[
        Path, Option("--out", "-o", help="The page; its numbers go beside it, as .json.")
    ] = Path("report.html"),
    data: DataName = None,
    data_option: DataOption = None,
    weights: Weights = None,
    samples: Annotated[int, Option(help="Observations to encode.")] = 5_000,
    resamples: Annotated[int, Option(help="Half-samples for 95 % intervals; 0 for none.")] = 20,
    seed: Seed = 0,
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
    from zscope.cli.assay import data_for
    from zscope.loading import load
    from zscope.recording import record
    from zscope.report.build import build, catalogued, watched

    chosen = catalogued(names)
    with watched(False if quiet or json else None) as say:
        autoencoder = load(target, weights=weights)
        observations = data_for(target, data, data_option, root)
        recording = record(autoencoder, observations, samples=samples, seed=seed)
        made = build(
            recording,
            chosen,
            resamples=resamples,
            seed=seed,
            progress=say,
            title=target,
            command=repeated(target, names, data, data_option, weights, samples, resamples, seed),
            config=config_of(target),
        )
        made.save(out, progress=say)
    if json:
        from json import dumps

        content = {"page": str(out), "numbers": str(out.with_suffix(".json"))}
        found = [finding.to_dict() for finding in made.findings]
        print(dumps({"format": 1, **content, "findings": found, "failed": made.failed}))
        return
    print(made)
    if made.failed:
        print(f"Not measured, the page says why: {', '.join(made.failed)}")
    print(f"{len(made.results)} assays in {out}")


def repeated(
    target: str,
    names: list[str] | None,
    data: str | None,
    data_option: list[str] | None,
    weights: Path | None,
    samples: int,
    resamples: int,
    seed: int,
) -> str:
    """The command that makes the report again."""
    import shlex

    words = ["zscope", "report", target, *(names or [])]
    if data is not None:
        words += ["--data", data]
    for option in data_option or []:
        words += ["--data-option", option]
    if weights is not None:
        words += ["--weights", str(weights)]
    words += ["--samples", str(samples), "--resamples", str(resamples), "--seed", str(seed)]
    return shlex.join(words)


def config_of(target: str) -> dict[str, Any] | None:
    """How a run was trained; None for models of one's own."""
    from zscope import store

    if store.is_run(target):
        return store.open_run(target).config
    return None
