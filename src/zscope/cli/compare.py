"""zscope compare: which layers of two models, or of many runs, agree?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from zscope.cli.options import AsJson, AssayOption, DataName, DataOption, Root, Seed

if TYPE_CHECKING:
    from zscope.results import Result

__all__ = ["compare"]


def compare(
    targets: Annotated[
        list[str],
        Argument(
            metavar="TARGET",
            help="A run, a checkpoint file, or package.module:attribute; two or more of them. One "
            "run alone: its checkpoints. With --by: a folder of runs, or several runs.",
        ),
    ],
    by: Annotated[
        str | None,
        Option(
            metavar="FIELDS",
            help="Compare the runs that differ in these fields of their configuration and in "
            "nothing else: seed, beta, or several, such as beta,seed.",
        ),
    ] = None,
    checkpoints: Annotated[
        bool, Option("--checkpoints", help="Also at every checkpoint that all runs have.")
    ] = False,
    data: DataName = None,
    data_option: DataOption = None,
    samples: Annotated[
        int | None, Option(help="Observations to compare on (default 2,000).")
    ] = None,
    plain: Annotated[
        bool, Option("--plain", help="Plain CKA, biased upwards with few samples.")
    ] = False,
    control: Annotated[
        bool, Option(help="Also compare with an untrained model, and with shuffled samples.")
    ] = True,
    extractor: Annotated[
        str,
        Option(
            help="Features to judge samples of two models by: random, inception, none, or a run "
            "(preferably a classifier of the data)."
        ),
    ] = "random",
    set_: AssayOption = None,
    seed: Seed = 0,
    figure: Annotated[Path | None, Option(help="Save the heatmaps to this file.")] = None,
    root: Root = None,
    json: AsJson = False,
) -> None:
    """Compare models layer by layer: two of them, many runs, or the checkpoints of one run.

    Layers are compared by CKA, by Procrustes and by the smaller of both. Of more than two runs, or
    runs chosen with --by, every two are compared: the mean over pairs with its standard deviation.
    With --checkpoints there is a map for each step.

    Of two models, latents and samples are compared too: samples with the data by Fréchet distance,
    with the same features for both.

    With a single run, its checkpoints are compared with its final model, which shows when
    each layer settled; zscope train --snapshot-every keeps checkpoints.

    Examples:

      zscope compare runs/a runs/b --figure heatmap.png

      zscope compare runs/a runs/b --extractor runs/classifier

      zscope compare runs/a runs/b --set cka.debiased=false

      zscope compare runs/a

      zscope compare --by seed runs --figure maps.png

      zscope compare --by beta,seed runs --checkpoints
    """
    from zscope.assays.run import check_options
    from zscope.cli.options import assay_options
    from zscope.cli.outputs import print_with_figure, try_figure
    from zscope.experiments.comparison import SAMPLES

    try_figure("compare: --figure", figure)
    options = check_options(assay_options(set_))
    settings = {"samples": SAMPLES if samples is None else samples, "seed": seed}
    sources = (data, data_option, root)
    if by is None:
        _refuse_folders_of_runs(targets)
    if by is None and len(targets) == 1:
        _refuse_for_one_run({
            "--plain": plain and checkpoints, "--no-control": not control,
            "--extractor": extractor not in ("random", "none"),
        })  # fmt: skip
    if by is None and not checkpoints and len(targets) <= 2:
        more = {"debiased": not plain, "control": control, "options": options,
                "extractor": None if extractor == "none" else extractor}  # fmt: skip
        result = _two(targets, sources, {**settings, **more})
    else:
        _refuse_options_of_two(set_, extractor)
        more = {"debiased": not plain, "control": control}
        result = _many(targets, by, checkpoints, sources, settings, more)
    print_with_figure(result, figure, json=json)
    if getattr(result, "failed", None):
        raise Exit(1)


def _two(targets: list[str], sources: tuple[Any, Any, Any], settings: dict[str, Any]) -> "Result":
    """Two models, or one run and its own past."""
    from zscope import experiments
    from zscope.cli.targets import data_for
    from zscope.loading import load

    first, *others = targets
    load(first)  # before its data, so that a missing run is reported first
    return experiments.compare(
        first, others[0] if others else None, data_for(first, *sources), **settings
    )


def _many(
    targets: list[str],
    by: str | None,
    checkpoints: bool,
    sources: tuple[Any, Any, Any],
    settings: dict[str, Any],
    more: dict[str, Any],
) -> "Result":
    """Pairs of runs; of one run with its checkpoints, each of them and the end."""
    from zscope import experiments
    from zscope.cli.targets import data_for
    from zscope.report.progress import show_progress

    data, options, root = sources
    with show_progress(None) as progress:
        if by is None and len(targets) == 1:
            named = data is not None or options or root is not None
            observed = data_for(targets[0], *sources) if named else None
            return experiments.dynamics(
                targets[0], "similarity", observed, **settings, progress=progress
            )
        return experiments.compare_runs(
            targets,
            data_for(_first_run(targets), *sources) if data is not None or options else None,
            root=root,
            by=by,
            checkpoints=checkpoints,
            progress=progress,
            **settings,
            **more,
        )


def _first_run(targets: list[str]) -> str:
    """A run whose options another table is read with."""
    from zscope.experiments.families import find_members
    from zscope.store import is_run

    if is_run(targets[0]) or not Path(targets[0]).is_dir():
        return targets[0]
    return str(find_members("compare", targets)[0][0].path)


def _refuse_folders_of_runs(targets: list[str]) -> None:
    from zscope.errors import ConfigError
    from zscope.store import is_run

    for target in map(Path, targets):
        if target.is_dir() and not is_run(target) and (count := len([*target.glob("*/run.json")])):
            raise ConfigError(
                f"compare: {target} is a folder of {count} runs, not a run. Name single runs, or "
                f"say what the runs to compare may differ in: zscope compare --by seed {target}"
            )


def _refuse_for_one_run(options: dict[str, bool]) -> None:
    """Of a single run with its checkpoints there are no controls, no samples and no plain maps."""
    from zscope.errors import ConfigError

    for option, is_given in options.items():
        if is_given:
            raise ConfigError(
                f"compare: {option} has no effect on the checkpoints of one run. Leave it out, or "
                "name further runs."
            )


def _refuse_options_of_two(set_: list[str] | None, extractor: str) -> None:
    from zscope.errors import ConfigError

    for option, is_given in (
        ("--set", bool(set_)),
        ("--extractor", extractor not in ("random", "none")),
    ):
        if is_given:
            raise ConfigError(
                f"compare: {option} is for the comparison of two models; many runs are compared "
                "by their layers alone. Leave it out, or name two runs without --by and "
                "--checkpoints."
            )
