"""zscope study: repeat the experiments of a paper and judge its claims."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer

from zscope.cli import completion
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
    help="""Repeat the experiments of a paper and judge its claims.

    A study trains a family of models, measures them, draws the document's tables and figures, and
    says of each claim whether it holds, does not hold or is undecided.

    Start with: zscope study list
    """,
)

Name = Annotated[
    str,
    Argument(
        help="A name from `zscope study list`, a Python file with a STUDY, or all.",
        autocompletion=completion.studies,
    ),
]
Out = Annotated[Path, Option(help="The folder of all studies; results are in OUT/NAME.")]
RunsFolder = Annotated[
    Path | None,
    Option("--runs", help="The folder of trained runs, shared by all studies (default OUT/runs)."),
]
Scale = Annotated[
    str, Option(help="small (minutes on two cores), paper (as published), or tiny (for a test).")
]
Seeds = Annotated[
    int | None, Option(min=1, help="Seeds of each setting (default: as the study says).")
]


@app.command("list")
def list_(
    out: Out = Path("studies"),
    runs: RunsFolder = None,
    json: AsJson = False,
) -> None:
    """List the studies: document, rows, cost at scale small, runs that are there already.

    Minutes are about those on two cores at scale small: if nothing is trained yet, and after the
    other studies, that is if all studies above it were run, whose runs it uses again.

    Examples:

      zscope study list
    """
    from zscope.experiments import studies
    from zscope.experiments.fields import listed_fields
    from zscope.experiments.studies.made import resolve

    folder = out / "runs" if runs is None else runs
    trained = _trained_runs(out, folder)
    rows: list[dict[str, Any]] = []
    for name in studies.names():
        study = studies.outline(name)
        planned = {
            listed_fields(resolve(study.made, run, "small", folder))
            for _, run in study.plan("small")
        }
        own = study.minutes if study.own_minutes is None else study.own_minutes
        rows.append(
            {
                "name": name, "document": study.document, "title": study.title,
                "rows": [row.id for row in study.rows], "minutes": study.minutes,
                "own_minutes": own,
                "runs": len(planned), "there": len(trained.intersection(planned)),
            }
        )  # fmt: skip
    if json:
        from json import dumps

        print(dumps({"studies": rows}))
        return
    from zscope.results import text_table

    header = ["study", "document", "question", "rows", "runs there", "minutes", "after others"]
    table = [
        [
            row["name"], row["document"], row["title"], str(len(row["rows"])),
            f"{row['there']} of {row['runs']}",
            *("?" if value is None else f"{value:g}"
              for value in (row["minutes"], row["own_minutes"])),
        ]
        for row in rows
    ]  # fmt: skip
    print(text_table([header, *table], left=3))


def _trained_runs(out: Path, runs: Path) -> set[str]:
    """The settings of all finished runs that a study in this folder has asked for, as text."""
    from zscope.documents import read_json
    from zscope.errors import ZscopeError

    trained = set()
    for file in sorted(out.glob("*/sweep/sweep.json")):
        try:
            for run in read_json(file)["runs"]:
                if (runs / str(run["name"]) / "model.safetensors").is_file():
                    trained.add(str(run["line"]).partition(": ")[2])
        except (ZscopeError, KeyError, TypeError):
            continue  # of a damaged sweep, which costs nothing but the count
    return trained


@app.command()
def plan(
    name: Name,
    scale: Scale = "small",
    out: Out = Path("studies"),
    runs: RunsFolder = None,
    seeds: Seeds = None,
    timing: Annotated[bool, Option(help="Time a short run of each shape.")] = True,
    jobs: Annotated[int | None, Option(min=1, help="Processes (default: the cores).")] = None,
    root: Root = None,
    json: AsJson = False,
) -> None:
    """Say what a study would train, how long that takes, and for which rows.

    Nothing is written. At scale paper, datasets that are not there are named.

    Examples:

      zscope study plan responses-structure

      zscope study plan responses-structure --scale paper
    """
    from zscope.experiments import studies

    chosen = [studies.load(each) for each in (studies.names() if name == "all" else [name])]

    from zscope.report.studies import describe_plan  # which loads torch, for names that are known

    about: dict[str, Any] = {"scale": scale, "runs": runs, "seeds": seeds, "root": root}
    answers = [describe_plan(study, out, timing=timing, jobs=jobs, **about) for study in chosen]
    if json:
        from json import dumps

        print(dumps({"studies": [answer.to_dict() for answer in answers]}))
    else:
        print("\n\n".join(map(str, answers)))


@app.command()
def run(
    name: Name,
    scale: Scale = "small",
    out: Out = Path("studies"),
    runs: RunsFolder = None,
    jobs: Annotated[
        int | None, Option(min=1, help="Processes on this machine (default: the cores).")
    ] = None,
    cluster: Cluster = None,
    cluster_option: ClusterOption = None,
    seeds: Seeds = None,
    retry_failed: Annotated[
        bool, Option("--retry-failed", help="Try runs again that failed before.")
    ] = False,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Train and measure the study NAME, draw its tables and figures, and judge its claims.

    Runs are shared between studies: what another study has trained is not trained again. Stop it
    with Ctrl-C or kill it: started again, it goes on where it was. The page is OUT/NAME/study.html.
    With NAME all, every study is run, and OUT/reproduction.md has all claims in one table. The exit
    code is 0 whatever the verdicts are, and 1 if a run or a measurement failed. A study that cannot
    be run, for lack of its data, does not stop the others.

    Examples:

      zscope study run responses-helix

      zscope study run all --out studies --jobs 2

      zscope study run responses-structure --scale paper --cluster slurm
    """
    import os
    import sys

    from typer import Exit

    from zscope.cli.outputs import try_folder
    from zscope.errors import ConfigError, ZscopeError
    from zscope.experiments import studies
    from zscope.experiments.studies.grid import SCALES

    if scale not in SCALES:
        raise ConfigError(f"study: --scale {scale}; expected small, paper or tiny.")
    check_cluster("study", jobs, cluster, cluster_option)
    cluster_options = settings(cluster_option, "--cluster-option")
    chosen = [studies.load(each) for each in (studies.names() if name == "all" else [name])]

    from zscope.experiments.workers import try_workers  # torch is loaded for names that are known
    from zscope.report.studies import count_verdicts, write_reproduction, write_study

    try_workers(jobs=jobs, cluster=cluster, options=cluster_options)
    try_folder("study: --out", out)
    if runs is not None:
        try_folder("study: --runs", runs)
    if root is not None:
        os.environ["ZSCOPE_DATA"] = str(root.absolute())

    def print_progress(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    answers, failures = [], 0
    for study in chosen:
        try:
            results = studies.run_study(
                study, out, scale=scale, runs=runs, seeds=seeds, jobs=jobs, cluster=cluster,
                cluster_options=cluster_options, root=root, retry_failed=retry_failed,
                progress=print_progress,
            )  # fmt: skip
            claims = write_study(study, results, out / study.name)
        except ZscopeError as error:
            if len(chosen) == 1:
                raise
            failures += 1  # such as data that are not there, which other studies do not need
            print(f"{study.name} could not be run: {error}", file=sys.stderr)
            continue
        failures += len(results.failed)
        answers.append((study, results, claims))
        if not json:
            for claim in claims:
                print(f"{claim.row:8} {claim.name:4} {claim.verdict_text}: {claim.sentence}")
                print(f"{'':13} published: {claim.published}\n{'':13} measured: {claim.measured}")
            print(f"{count_verdicts(claims)} See {out / study.name / 'study.html'}")
            for unit, reason in results.failed.items():
                print(f"failed: {unit}: {reason}")
    if name == "all":
        write_reproduction(out, out / "reproduction.md")
    if json:
        from json import dumps

        contents = [
            {"study": study.name, "scale": scale, "failed": results.failed,
             "claims": [claim.to_dict() for claim in claims]}
            for study, results, claims in answers
        ]  # fmt: skip
        print(dumps({"studies": contents}))
    if failures:
        raise Exit(1)
