"""zscope fondue: find how many latents a dataset needs."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from zscope.cli import completion
from zscope.cli.options import (
    AsJson,
    Cluster,
    ClusterOption,
    DataOption,
    ModelOption,
    Root,
    Seed,
    check_cluster,
    refuse_unknown_names,
    settings,
)

__all__ = ["Trace", "fondue"]


def fondue(
    dataset: Annotated[
        str,
        Argument(
            help="A name from `zscope data list`, or a file.", autocompletion=completion.datasets
        ),
    ],
    model: Annotated[
        str,
        Option(
            help="The variational model to size (with --search beta: beta-vae).",
            autocompletion=completion.models,
        ),
    ] = "vae",
    criterion: Annotated[
        str, Option(help="What to compare: trace, sampled, dimension, information or types.")
    ] = "trace",
    threshold: Annotated[
        float | None,
        Option(
            help="Largest acceptable gap, about the number of passive latents to tolerate. "
            "Default: 1 (trace, sampled, dimension) or -0.01 (information)."
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        Option(help="With --criterion information: silverman (as published) or median."),
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
    steps: Annotated[int, Option(help="Training steps of each model.")] = 10_000,
    stable: Annotated[
        bool, Option("--stable", help="Double --steps until the answer no longer changes.")
    ] = False,
    batch: Annotated[int, Option(help="Batch size.")] = 64,
    rate: Annotated[float, Option(help="Learning rate.")] = 1e-4,
    samples: Annotated[
        int | None, Option(help="Held-out observations to measure on (default 10,000).")
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[
        int, Option(min=1, help="How many times to search, with seeds from --seed on.")
    ] = 3,
    set_: ModelOption = None,
    data_option: DataOption = None,
    out: Annotated[
        Path | None, Option(help="Folder for the trials (default runs/fondue-MODEL-DATASET-SEED).")
    ] = None,
    jobs: Annotated[
        int | None,
        Option(min=1, help="Searches at the same time (default: the cores, at most --seeds)."),
    ] = None,
    cluster: Cluster = None,
    cluster_option: ClusterOption = None,
    root: Root = None,
    quiet: Annotated[bool, Option("--quiet", help="Print the answer only.")] = False,
    json: AsJson = False,
) -> None:
    """Find how many latents DATASET needs by training models of different sizes briefly.

    FONDUE compares mean and sampled codes: the gap between them grows when there are more
    latents than the model uses. The answer is the largest number of latents whose gap is
    acceptable, as mean ± standard deviation over --seeds searches. Each search trains about
    five models for --steps steps; several searches run at the same time. Everything is saved
    in OUT, with the gaps drawn in fondue.png; what was interrupted or killed continues when the
    command is repeated.

    Each trial is printed with the types of its latents and its KL. A passive latent adds about
    1 to the gap, one that is used for a share w of the data adds 1 - w: a threshold below 1 does
    not mean that all latents are active (erratum: theorem 8.3.3 of the thesis against its own
    proposition 8.3.3). A model that uses no latent is never an answer.

    Examples:

      zscope fondue digits --seeds 1 --steps 2000 --rate 1e-3

      zscope fondue sprites --steps 20000

      zscope fondue sprites --model beta-vae --set beta=4 --stable

      zscope fondue mnist --criterion dimension

      zscope fondue sprites --search beta --latents 6

      zscope fondue sprites --seeds 10 --cluster tcp://host:8786
    """
    refuse_unknown_names(dataset, model)
    from zscope import data, experiments
    from zscope.cli.outputs import try_folder
    from zscope.experiments.fondue_training import GAPS
    from zscope.experiments.workers import check_jobs
    from zscope.recording import SAMPLES

    check_cluster("fondue", jobs, cluster, cluster_option)
    processes = None if cluster is not None else min(check_jobs(jobs), seeds)

    name = "beta-vae" if search == "beta" and model == "vae" else model
    folder = out or Path("runs") / f"fondue-{name}-{Path(dataset).stem}-{seed}"
    try_folder("fondue: --out", folder)
    loaded = data.load(dataset, root=root, **settings(data_option, "--data-option"))
    result = experiments.fondue(
        loaded,
        search=search,
        latents=latents,
        model=name,
        options=settings(set_, "--set"),
        criterion=criterion,
        threshold=threshold,
        bandwidth=bandwidth,
        start=start,
        limit=limit,
        stable=stable,
        steps=steps,
        batch=batch,
        rate=rate,
        samples=SAMPLES if samples is None else samples,
        seed=seed,
        seeds=seeds,
        out=folder,
        jobs=processes,
        cluster=cluster,
        cluster_options=settings(cluster_option, "--cluster-option"),
        progress=None if quiet or json else Trace(GAPS.get(criterion), at_once=processes != 1),
    )
    figure = draw(result, folder)
    print_result(result, folder, figure, json=json)
    if not result.answers:
        raise Exit(1)


class Trace:
    """Prints a line for each model: while it trains, then its gap and the use of its latents.

    `meaning` says what the gap is; it is printed first. Of searches that run at the same time,
    every line says to which of them it belongs.
    """

    def __init__(self, meaning: str | None = None, *, at_once: bool = False) -> None:
        import time

        self.meaning, self.at_once = meaning, at_once
        self.clock = time.monotonic
        self.start = self.clock()
        self.seed: int | None = None

    def __call__(self, report: Any) -> None:
        import sys

        from zscope.assays.dimension.fondue import latents_text
        from zscope.results import duration

        size = latents_text(report.latents)
        size = size if report.beta is None else f"{size}, β = {report.beta:.3g}"
        live = sys.stderr.isatty()
        if self.seed is None and self.meaning is not None:
            print(f"gap: {self.meaning}; acceptable up to {report.threshold:g}", file=sys.stderr)
        if report.seed != self.seed and not self.at_once:
            print(f"seed {report.seed}", file=sys.stderr)
        self.seed = report.seed
        if report.value is None:
            self.start = self.clock()
            if live and not report.remembered:
                print(f"{size:>16}: training {report.steps} steps …", end="\r", file=sys.stderr)
            return
        fits = report.value <= report.threshold
        verdict = "fits" if fits else "too many" if report.beta is None else "too strong"
        verdict = "collapsed" if report.use.collapsed else verdict
        notes = ["cached"] if report.remembered else []
        if not report.remembered and not self.at_once:
            notes.append(f"{self.clock() - self.start:.0f} s")
        if report.left:
            notes.append(f"about {duration(report.left)} left")
        where = f"seed {report.seed}, " if self.at_once else ""
        limit = f"{'≤' if fits else '>'} {report.threshold:g}"
        line = f"{where}{size:>16}: gap {report.value:.3f} {limit}  {verdict:9}  {report.use}"
        line += f"  ({', '.join(notes)})" if notes else ""
        print(line.ljust(60) if live else line, file=sys.stderr, flush=True)


def answer_text(result: Any) -> str:
    """The mean answer, with its standard deviation and the answers behind it."""
    from zscope.assays.dimension.fondue import latents_text

    of_beta = result.quantity == "beta"
    if result.sd is None:
        return f"β = {result.mean:.3g}" if of_beta else latents_text(result.mean)
    answers = ", ".join(f"{answer:.3g}" for answer in result.answers)
    spread = f"{result.mean:.3g} ± {result.sd:.2g}"
    answer = f"β = {spread}" if of_beta else f"{spread} latents"
    return f"{answer} ({len(result.answers)} seeds: {answers})"


def seed_lines(result: Any) -> list[str]:
    """The status of each seed, the use of the latents at its answer, and how many were trained."""
    lines = []
    for seed, search in result.searches.items():
        last = getattr(search, "last", search)
        answers = [trial for trial in last.trials if trial[0] == last.score and trial.use]
        use = f"{last.score:.3g}: {answers[0].use}, " if answers else ""
        models = f"{search.samples} model{'' if search.samples == 1 else 's'} trained"
        lines.append(f"seed {seed}  {search.status}, {use}{models}")
    return lines


def draw(result: Any, folder: Path) -> Path:
    """Draw the gap against the number of latents, or against β, with the answer marked."""
    from zscope.plots import save

    file = folder / "fondue.png"
    save(result.plot(), file)
    return file


def print_result(result: Any, folder: Path, figure: Path, *, json: bool) -> None:
    """Print the answer in one line or as JSON, and write it to OUT/fondue.json."""
    from json import dumps

    from zscope.store import FORMAT, write_json

    content = {"format": FORMAT, **result.to_dict()}
    write_json(folder / "fondue.json", content)
    if json:
        print(dumps({**content, "figure": str(figure)}))
        return
    status = result.status if result.stable else "unstable"
    notes = {
        "found": "",
        "limit": " or more: the gap is acceptable up to the limit (raise --limit)",
        "collapsed": "no answer (collapsed): no model uses its latents and has an acceptable "
        "gap. Lower β, raise --steps, or choose another backbone (--set backbone=NAME)",
        "unstable": ", but the answer still changes with training: raise --steps",
    }
    print(f"{answer_text(result) if result.answers else ''}{notes[status]}")
    for line in seed_lines(result):
        print(line)
    for flag in result.flags:
        print(flag)
    print(f"trials in {folder}, figure {figure}")
