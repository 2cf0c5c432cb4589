"""zscope sweep: train and measure many runs from one file."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option, Typer

from zscope.cli.options import (
    AsJson,
    Cluster,
    ClusterOption,
    Quiet,
    Root,
    check_cluster,
    settings,
)

__all__ = ["app"]

app = Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="""Train and measure many runs from one file.

    A file such as this describes a sweep (TOML or JSON):

    \b
      [train]                     # shared by all runs: settings of zscope train
      steps = 2000
      rate = 1e-3
    \b
      [grid]                      # all combinations of these lists
      model = ["beta-vae", "beta-tcvae"]
      data = ["digits"]
      "options.beta" = [1, 4, 8]
      seed = [0, 1, 2]
    \b
      [[run]]                     # and single ones
      model = "ae"
    \b
      [assay]                     # measured on every finished run
      names = ["variable-types", "mig", "dci"]
      samples = 5000

    Then: zscope sweep run beta.toml --out runs/beta, and zscope table runs/beta
    """,
)

File = Annotated[Path, Argument(help="The file that describes the sweep (.toml or .json).")]
Out = Annotated[Path, Option(help="The folder of the sweep.")]
RunsFolder = Annotated[
    Path | None,
    Option("--runs", help="The folder of the runs (default OUT/runs). Sweeps may share one."),
]
Jobs = Annotated[int | None, Option(min=1, help="Processes on this machine (default: the cores).")]
Ensemble = Annotated[
    bool,
    Option(help="Train small networks of one shape together: faster, with other rounding."),
]


@app.command()
def plan(
    file: File,
    out: Out,
    runs: RunsFolder = None,
    jobs: Jobs = None,
    ensemble: Ensemble = True,
    timing: Annotated[bool, Option(help="Time a short run of each shape.")] = True,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Check FILE and say what a sweep would do: runs, how many are done, hours, disk.

    One short run of each shape is timed; nothing is written to OUT.

    Examples:

      zscope sweep plan beta.toml --out runs/beta

      zscope sweep plan beta.toml --out runs/beta --no-timing
    """
    import sys

    from zscope.experiments.sweeps import prepare
    from zscope.experiments.sweeps.estimate import estimate

    def print_progress(line: str) -> None:
        if not quiet and sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)

    checked, state = prepare(file, out, runs=runs, root=root, ensemble=ensemble)
    answer = estimate(checked, state, jobs=jobs, timing=timing, progress=print_progress)
    if json:
        from json import dumps

        print(dumps(answer.to_dict()))
    else:
        print(answer)


@app.command()
def run(
    file: File,
    out: Out,
    runs: RunsFolder = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    cluster_option: ClusterOption = None,
    ensemble: Ensemble = True,
    retry_failed: Annotated[
        bool, Option("--retry-failed", help="Try runs again that failed before.")
    ] = False,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Train and measure all runs of FILE that are not finished.

    Stop it with Ctrl-C or kill it: started again, it goes on where it was. The same sweep may
    be started several times, also on several machines that share the folder: nothing is done
    twice. A run that fails is recorded and does not stop the others; the exit code is 1 then.

    Examples:

      zscope sweep run beta.toml --out runs/beta

      zscope sweep run beta.toml --out runs/beta --jobs 8

      zscope sweep run beta.toml --out runs/beta --cluster tcp://host:8786

      zscope sweep run beta.toml --out runs/beta --cluster slurm --cluster-option queue=gpu
      --cluster-option jobs=50
    """
    from zscope.cli.outputs import try_folder
    from zscope.experiments.sweeps import status as status_of
    from zscope.experiments.sweeps import sweep

    check_cluster("sweep", jobs, cluster, cluster_option)
    try_folder("sweep: --out", out)
    if runs is not None:
        try_folder("sweep: --runs", runs)
    sweep(
        file,
        out,
        runs=runs,
        jobs=jobs,
        cluster=cluster,
        cluster_options=settings(cluster_option, "--cluster-option"),
        ensemble=ensemble,
        retry_failed=retry_failed,
        root=root,
        progress=not quiet,
    )
    print_status(status_of(out), json=json, quiet=quiet, out=out)


@app.command()
def status(
    out: Annotated[Path, Argument(help="The folder of the sweep.")],
    json: AsJson = False,
) -> None:
    """Say how far a sweep is: done, running, waiting, failed (with why), time left.

    Examples:

      zscope sweep status runs/beta
    """
    from zscope.experiments.sweeps import status as status_of

    state = status_of(out)
    if json:
        from json import dumps

        print(dumps(state.to_dict()))
    else:
        print(state)


def print_status(state: Any, *, json: bool, quiet: bool, out: Path) -> None:
    """Print how a sweep ended; exit code 1 if a run failed."""
    if json:
        from json import dumps

        print(dumps(state.to_dict()))
    else:
        for line in state.reasons():
            print(f"failed: {line}")
        if not quiet:
            print(f"{state.counts()}.")
            if state.done:
                print(f"Table: zscope table {out}")
        if state.failed:
            print(f"See {out / 'failed'}; try again with --retry-failed.")
    if state.waiting and not quiet and not json:
        print(f"{len(state.waiting)} runs are not done: start the same sweep again.")
    if state.failed or state.waiting:
        raise Exit(1)
