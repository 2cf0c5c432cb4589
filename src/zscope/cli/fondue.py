"""zscope fondue: find how many latents a dataset needs."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from zscope.cli.options import AsJson, DataOption, ModelOption, Root, Seed, settings

__all__ = ["Trace", "fondue"]


def fondue(
    dataset: Annotated[str, Argument(help="A name from `zscope data list`, or a file.")],
    model: Annotated[
        str, Option(help="The variational model to size (with --search beta: beta-vae).")
    ] = "vae",
    criterion: Annotated[
        str, Option(help="What to compare: trace, sampled, dimension, information or types.")
    ] = "trace",
    threshold: Annotated[
        float | None, Option(help="Largest acceptable gap; below 1 all latents are active.")
    ] = None,
    search: Annotated[
        str, Option(help="fondue or binary: search for latents; beta: for β (with --latents).")
    ] = "fondue",
    latents: Annotated[
        int | None, Option(help="With --search beta: the fixed number of latents.")
    ] = None,
    start: Annotated[
        float | None,
        Option(help="Latents to start from (default: intrinsic dimension of the data)."),
    ] = None,
    limit: Annotated[int, Option(help="Largest number of latents to try.")] = 512,
    steps: Annotated[int, Option(help="Training steps of each model.")] = 2000,
    stable: Annotated[
        bool, Option("--stable", help="Double --steps until the answer no longer changes.")
    ] = False,
    batch: Annotated[int, Option(help="Batch size.")] = 64,
    rate: Annotated[float, Option(help="Learning rate.")] = 1e-3,
    samples: Annotated[int, Option(help="Held-out observations to measure on.")] = 10_000,
    seed: Seed = 0,
    set_: ModelOption = None,
    data_option: DataOption = None,
    out: Annotated[
        Path | None, Option(help="Folder for the trials (default runs/fondue-MODEL-DATASET-SEED).")
    ] = None,
    root: Root = None,
    quiet: Annotated[bool, Option("--quiet", help="Print the answer only.")] = False,
    json: AsJson = False,
) -> None:
    """Find how many latents DATASET needs by training models of different sizes briefly.

    FONDUE compares mean and sampled codes: the gap between them grows when there are more
    latents than the model uses. The answer is the largest number of latents whose gap is
    acceptable. The gap against the number of latents (or β) is drawn in OUT/fondue.png.
    An interrupted search continues when the command is repeated.

    Examples:

      zscope fondue sprites --steps 4000

      zscope fondue sprites --model beta-vae --set beta=4 --stable

      zscope fondue mnist --criterion dimension

      zscope fondue sprites --search beta --latents 6
    """
    from zscope import data, experiments

    name = "beta-vae" if search == "beta" and model == "vae" else model
    folder = out or Path("runs") / f"fondue-{name}-{Path(dataset).stem}-{seed}"
    loaded = data.load(dataset, root=root, **settings(data_option, "--data-option"))
    result = experiments.fondue(
        loaded,
        search=search,
        latents=latents,
        model=name,
        options=settings(set_, "--set"),
        criterion=criterion,
        threshold=threshold,
        start=start,
        limit=limit,
        stable=stable,
        steps=steps,
        batch=batch,
        rate=rate,
        samples=samples,
        seed=seed,
        out=folder,
        watch=None if quiet or json else Trace(),
    )
    figure = draw(result, folder)
    print_result(result, folder, figure, json=json)


class Trace:
    """Prints a line for each model: while it trains, then its gap."""

    def __init__(self) -> None:
        import time

        self.clock = time.monotonic
        self.start = self.clock()

    def __call__(self, report: Any) -> None:
        import sys

        size = latents_text(report.latents)
        size = size if report.beta is None else f"{size}, β = {report.beta:.3g}"
        live = sys.stderr.isatty()
        if report.value is None:
            self.start = self.clock()
            if live and not report.remembered:
                print(f"{size:>16}: training {report.steps} steps …", end="\r", file=sys.stderr)
            return
        fits = report.value <= report.threshold
        verdict = "fits" if fits else "too many" if report.beta is None else "too strong"
        duration = "cached" if report.remembered else f"{self.clock() - self.start:.0f} s"
        line = (
            f"{size:>16}: gap {report.value:.3f} {'≤' if fits else '>'} {report.threshold:g}  "
            f"{verdict}  ({duration})"
        )
        print(line.ljust(60) if live else line, file=sys.stderr, flush=True)


def latents_text(latents: int) -> str:
    return f"{latents} latent" if latents == 1 else f"{latents} latents"


def draw(result: Any, folder: Path) -> Path:
    """Draw the gap against the number of latents, or against β, with the answer marked."""
    from zscope.plots import save

    file = folder / "fondue.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    save(result.plot(), file)
    return file


def print_result(result: Any, folder: Path, figure: Path, *, json: bool) -> None:
    """Print the answer in one line or as JSON, and write it to OUT/fondue.json."""
    from json import dumps

    from zscope.store import FORMAT, write_whole

    content = {"format": FORMAT, **result.to_dict()}
    write_whole(folder / "fondue.json", dumps(content, indent=1).encode())
    if json:
        print(dumps({**content, "figure": str(figure)}))
        return
    beta = getattr(result, "beta", None)
    answer = latents_text(result.latents) if beta is None else f"β = {beta:.3g}"
    status = result.status if getattr(result, "stable", True) else "unstable"
    notes = {
        "found": "",
        "limit": " or more: the gap is acceptable up to the limit (raise --limit)",
        "collapsed": ": even the smallest model has too large a gap. Lower β or raise --steps",
        "unstable": ", but the answer still changes with training: raise --steps",
    }
    print(f"{answer}{notes[status]}")
    for flag in result.flags:
        print(flag)
    print(f"trials in {folder}, figure {figure}")
