"""zscope data perturb: change a dataset slightly so that VAEs no longer disentangle it."""

import sys
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
    Quiet,
    Root,
    Seed,
    check_cluster,
    refuse_unknown_names,
    settings,
)
from zscope.errors import ConfigError

__all__ = ["perturb"]


def perturb(
    dataset: Annotated[
        str,
        Argument(
            help="A name from `zscope data list`, or a path; with factors.",
            autocompletion=completion.datasets,
        ),
    ],
    epsilon: Annotated[float, Option(help="Largest change of a pixel on the scale 0 to 1.")],
    out: Annotated[
        Path | None, Option(help="Output folder (default perturbed/DATASET-EPSILON).")
    ] = None,
    restarts: Annotated[int, Option(help="Models to train, with different seeds.")] = 10,
    pairs: Annotated[int, Option(help="Number of most and of least entangled models.")] = 1,
    model: Annotated[
        str, Option(help="The model to train.", autocompletion=completion.models)
    ] = "beta-vae",
    latents: Annotated[int | None, Option(help="Its latents (default: one per factor).")] = None,
    set_: ModelOption = None,
    data_option: DataOption = None,
    steps: Annotated[int, Option(help="Training steps of each model.")] = 30_000,
    rate: Annotated[float, Option(help="Learning rate of the models.")] = 1e-4,
    batch: Annotated[int, Option(help="Batch size.")] = 64,
    rounds: Annotated[
        int, Option(help="Largest number of training rounds of the modifier.")
    ] = 10_000,
    modifier_rate: Annotated[float, Option(help="Learning rate of modifier and decoders.")] = 1e-4,
    control: Annotated[
        bool, Option(help="Also write a copy with uniform noise, for comparison.")
    ] = True,
    evaluate: Annotated[
        str | None,
        Option(metavar="MODELS", help="Then train these on the data and on controls: a,b?beta=4."),
    ] = None,
    scores: Annotated[
        str | None,
        Option(help="With --evaluate: assays to compare (default: those of the source)."),
    ] = None,
    evaluate_seeds: Annotated[
        int | None, Option(min=1, help="With --evaluate: seeds of each model (default 3).")
    ] = None,
    jobs: Annotated[
        int | None,
        Option(min=1, help="With --evaluate: processes on this machine (default: the cores)."),
    ] = None,
    runs: Annotated[
        Path | None,
        Option(help="With --evaluate: the folder of the runs (default OUT/evaluate/runs)."),
    ] = None,
    cluster: Cluster = None,
    cluster_option: ClusterOption = None,
    seed: Seed = 0,
    resume: Annotated[
        bool, Option("--resume", help="Continue an interrupted run in --out.")
    ] = False,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Change every pixel by at most EPSILON so that VAEs entangle the factors.

    Trains several β-VAEs, selects the most and the least entangled, and learns a small
    change of the pictures under which the entangled one reconstructs better. Writes
    perturbed.npz, and noise.npz with random changes of the same size as a control. Both
    can be used like any other dataset. examples.png shows some observations and their changes.

    Says whether it worked: afterwards the entangled model must be cheaper than the other one,
    and cheaper than after the same training without a change.

    --evaluate trains models on the original data, on the changed data, and on two controls whose
    change has the same variance: noise, and an untrained change. It prints their scores and
    numbers of latents in use, and writes them to OUT/evaluate/table.csv, .json and .md.
    OUT/evaluate is the folder of a sweep: `zscope table` and `zscope sweep status` read it, sweeps
    may share its runs (--runs), and what is finished is never trained again.

    Examples:

      zscope data perturb sprites --epsilon 0.1 --set beta=8

      zscope data perturb sprites --epsilon 0.1 --evaluate beta-vae,ae --evaluate-seeds 5

      zscope train beta-vae perturbed/sprites-0.1/perturbed.npz --set beta=8
    """
    refuse_unknown_names(dataset, model)
    from zscope import experiments
    from zscope.cli.outputs import try_folder
    from zscope.data import load
    from zscope.experiments.perturbation.evaluation import (
        SCORES,
        check_evaluation,
        evaluation_work,
    )
    from zscope.experiments.perturbation.restarts import count_factors, few_latents
    from zscope.experiments.whole import Whole
    from zscope.experiments.workers import try_workers
    from zscope.plots import save

    check_cluster("perturb", jobs, cluster, cluster_option)
    only = {"--scores": scores, "--evaluate-seeds": evaluate_seeds, "--jobs": jobs, "--runs": runs,
            "--cluster": cluster}  # fmt: skip
    given = [f"{name} {value}" for name, value in only.items() if value is not None]
    if evaluate is None and given:
        raise ConfigError(
            f"perturb: {given[0]} is about models that are trained on the changed data, and has no "
            "effect without --evaluate. Add --evaluate MODELS, or leave it out."
        )
    seeds = 3 if evaluate_seeds is None else evaluate_seeds
    place: dict[str, Any] = {"jobs": jobs, "cluster": cluster}
    cluster_options = settings(cluster_option, "--cluster-option")
    folder = out or Path("perturbed") / f"{Path(dataset).stem}-{epsilon:g}"
    try_folder("perturb: --out", folder)
    if runs is not None:
        try_folder("perturb: --runs", runs)
    loaded = load(dataset, root=root, **settings(data_option, "--data-option"))
    options = settings(set_, "--set")
    factors = count_factors(loaded)
    if latents is not None and latents < factors and not quiet:
        print(few_latents(latents, factors), file=sys.stderr)
    whole, table, columns = Whole(not quiet), None, scores or SCORES
    if evaluate is not None:
        try_workers(**place, options=cluster_options)
        chosen, _ = check_evaluation(
            loaded,
            evaluate,
            columns,
            seeds,
            out=folder,
            latents=latents,
            options=options,
        )
        whole.expect("evaluation", evaluation_work(len(chosen), seeds, steps))
    result = experiments.perturb(
        loaded,
        epsilon=epsilon,
        out=folder,
        model=model,
        latents=latents,
        options=options,
        restarts=restarts,
        steps=steps,
        rate=rate,
        batch=batch,
        pairs=pairs,
        rounds=rounds,
        modifier_rate=modifier_rate,
        control=control,
        seed=seed,
        resume=resume,
        progress=whole,
    )
    save(result.plot(), folder / "examples.png")
    if evaluate is not None:
        table = experiments.evaluate_perturbation(
            folder,
            evaluate,
            scores=columns,
            seeds=seeds,
            data=loaded,
            runs=runs,
            **place,
            cluster_options=cluster_options,
            progress=whole,
        )
    print_result(result, table, folder, model=model, quiet=quiet, json=json)
    if table is not None and table.failed:
        raise Exit(1)


def print_result(
    result: Any, table: Any, folder: Path, *, model: str, quiet: bool, json: bool
) -> None:
    """Print what was done, or all of it as JSON."""
    if json:
        from json import dumps

        evaluation = {} if table is None else {"evaluation": table.to_dict()}
        print(dumps({**result.to_dict(), **evaluation, "figure": str(folder / "examples.png")}))
        return
    if not quiet:
        print_change(result, folder, model)
    elif not result.verdict.worked:
        print(result.verdict.sentence, file=sys.stderr)
    if table is not None:
        print(table.text())
        print(f"Table: {folder / 'evaluate' / 'table.md'} (.csv, .json)")


def print_change(result: Any, folder: Path, model: str) -> None:
    from zscope.experiments.perturbation import NOISE, alignment_lines, size_text

    scores = ", ".join(f"{score:.2f}" for score in result.scores)
    before, after = result.gap
    print(f"MIG of {len(result.scores)} models: {scores}")
    print(f"latents in use: {', '.join(map(str, result.active))}")
    print(f"entangled: {_models(result.entangled)}; disentangled: {_models(result.disentangled)}")
    print(
        f"loss of the entangled minus loss of the disentangled: {before:+.2f} before, "
        f"{after:+.2f} after {len(result.history)} rounds, {result.unchanged_gap:+.2f} after as "
        "many without a change"
    )
    print(f"largest change of a pixel: {result.largest:.4f}; {size_text(result.size)}")
    for line in alignment_lines(result.alignment):
        print(line)
    if result.verdict.worked:
        print(result.verdict.sentence)
    for flag in result.flags:
        print(flag)
    print(f"Examples: {folder / 'examples.png'}")
    print(f"Use it: zscope train {model} {folder / 'perturbed.npz'}")
    if result.control is not None:
        print(f"Control, uniform {NOISE}: {folder / 'noise.npz'}")


def _models(numbers: list[int]) -> str:
    return ", ".join(f"model {number}" for number in numbers)
