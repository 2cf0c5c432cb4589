"""zscope fondue: how many latents do these data need?"""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from zscope.cli.options import AsJson, DataOption, ModelOption, Root, Seed, settings


def fondue(
    dataset: Annotated[str, Argument(help="A name from `zscope data list`, or a file.")],
    model: Annotated[
        str, Option(help="The model to size; a variational one (with --search beta: beta-vae).")
    ] = "vae",
    criterion: Annotated[
        str, Option(help="trace, sampled, dimension, information or types.")
    ] = "trace",
    threshold: Annotated[
        float | None, Option(help="The gap put up with; below 1: every latent active.")
    ] = None,
    search: Annotated[str, Option(help="fondue, binary, or beta (with --latents).")] = "fondue",
    latents: Annotated[int | None, Option(help="For --search beta: the fixed size.")] = None,
    start: Annotated[
        float | None, Option(help="Where to begin; the data's intrinsic dimension.")
    ] = None,
    limit: Annotated[int, Option(help="The most latents to try.")] = 512,
    steps: Annotated[int, Option(help="Updates of each model.")] = 2000,
    stable: Annotated[
        bool, Option("--stable", help="Train twice as long until the answer repeats.")
    ] = False,
    batch: Annotated[int, Option(help="Observations in each update.")] = 64,
    rate: Annotated[float, Option(help="Learning rate.")] = 1e-3,
    samples: Annotated[int, Option(help="Held-out observations to measure on.")] = 10_000,
    seed: Seed = 0,
    set_: ModelOption = None,
    data_option: DataOption = None,
    out: Annotated[
        Path | None, Option(help="Where trials are kept (default runs/fondue-MODEL-DATASET-SEED).")
    ] = None,
    root: Root = None,
    quiet: Annotated[bool, Option("--quiet", help="No trace of the trials.")] = False,
    json: AsJson = False,
) -> None:
    """Find how many latents DATASET needs, by training models of growing size for a while.

    A search that was stopped goes on where it was when started again. The figure of the
    gap against the number of latents (or β) is OUT/fondue.png.

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
    tell(result, folder, figure, json=json)


class Trace:
    """A line for each model: what is being trained, then what came of it."""

    def __init__(self) -> None:
        import time

        self.clock = time.monotonic
        self.began = self.clock()

    def __call__(self, report: Any) -> None:
        import sys

        size = counted(report.latents)
        size = size if report.beta is None else f"{size}, β = {report.beta:.3g}"
        live = sys.stderr.isatty()
        if report.value is None:
            self.began = self.clock()
            if live and not report.remembered:
                print(f"{size:>16}: training {report.steps} steps …", end="\r", file=sys.stderr)
            return
        fits = report.value <= report.threshold
        verdict = "fits" if fits else "too many" if report.beta is None else "too strong"
        said = "kept from before" if report.remembered else f"{self.clock() - self.began:.0f} s"
        line = (
            f"{size:>16}: gap {report.value:.3f} {'≤' if fits else '>'} {report.threshold:g}  "
            f"{verdict}  ({said})"
        )
        print(line.ljust(60) if live else line, file=sys.stderr, flush=True)


def counted(latents: int) -> str:
    return f"{latents} latent" if latents == 1 else f"{latents} latents"


def draw(result: Any, folder: Path) -> Path:
    """The gap against the number of latents, or against β, with the answer marked."""
    from zscope.plots import save

    file = folder / "fondue.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    save(result.plot(), file)
    return file


def tell(result: Any, folder: Path, figure: Path, *, json: bool) -> None:
    """The answer in one line, or as JSON; kept in OUT/fondue.json either way."""
    from json import dumps

    from zscope.store import FORMAT, write_whole

    content = {"format": FORMAT, **result.to_dict()}
    write_whole(folder / "fondue.json", dumps(content, indent=1).encode())
    if json:
        print(dumps({**content, "figure": str(figure)}))
        return
    beta = getattr(result, "beta", None)
    answer = counted(result.latents) if beta is None else f"β = {beta:.3g}"
    status = result.status if getattr(result, "stable", True) else "restless"
    notes = {
        "found": "",
        "limit": " or more: the limit was reached with all of use (raise --limit)",
        "collapsed": ": not even the smallest is of use. Lower β, train longer (--steps)",
        "restless": ", but still changing with training: more --steps are needed",
    }
    print(f"{answer}{notes[status]}")
    for flag in result.flags:
        print(flag)
    print(f"trials in {folder}, figure {figure}")
