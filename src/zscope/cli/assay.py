"""zscope assay: measure the latent space of a model."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from zscope.cli.options import AsJson, DataName, DataOption, Quiet, Root, Seed, Weights, settings


def assay(
    target: Annotated[
        str | None, Argument(help="A run, or package.module:attribute, or file.py:attribute.")
    ] = None,
    names: Annotated[
        list[str] | None, Argument(metavar="[ASSAY]...", help="Which; all that apply, if none.")
    ] = None,
    data: DataName = None,
    data_option: DataOption = None,
    weights: Weights = None,
    samples: Annotated[int, Option(help="Observations to encode.")] = 10_000,
    seed: Seed = 0,
    figures: Annotated[Path | None, Option(help="Draw each result into this folder.")] = None,
    root: Root = None,
    list_: Annotated[bool, Option("--list", help="List the assays and stop.")] = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Measure the latent space of TARGET with the named assays, or with all that apply.

    Results of a run are kept with it, in RUN/assays.

    Examples:

      zscope assay runs/mine

      zscope assay runs/mine response-matrix disentanglement --figures figures

      zscope assay mymodel:load --data images.npy --json
    """
    from zscope.errors import ConfigError

    if list_:
        return print_catalogue()
    if target is None:
        raise ConfigError(
            "assay: TARGET is needed: a run folder, or package.module:attribute. The assays are "
            "listed by: zscope assay --list"
        )
    check_names(names)
    from zscope.loading import load
    from zscope.recording import record

    autoencoder = load(target, weights=weights)
    observations = data_for(target, data, data_option, root)
    recording = record(autoencoder, observations, samples=samples, seed=seed)
    results = measured(recording, names, seed=seed, quiet=quiet or json)
    keep(target, results)
    drawn = {} if figures is None else draw(results, figures)
    show(results, drawn, json=json)
    return None


def check_names(names: list[str] | None) -> None:
    """Say at once that a name is unknown, before a model is loaded."""
    from zscope.assays import CATALOGUE, GROUPS
    from zscope.errors import ConfigError, did_you_mean

    known = [*CATALOGUE, *GROUPS]
    for name in names or []:
        if name not in known:
            raise ConfigError(
                f"assay: no assay is called {name!r}. {did_you_mean(name, known)} "
                "See: zscope assay --list"
            )


def data_for(target: str, data: str | None, options: list[str] | None, root: Path | None) -> Any:
    """The observations to encode: those named, or the run's own (held-out ones if it has any)."""
    from zscope import data as datasets
    from zscope.loading import own_data

    if data is not None:
        return datasets.load(data, root=root, **settings(options, "--data-option"))
    return own_data(target, root=root)


def measured(recording: Any, names: list[str] | None, *, seed: int, quiet: bool) -> dict[str, Any]:
    """The results by name, with a line of progress for each assay where a person can see it."""
    import sys

    from zscope.assays.measuring import measure

    if quiet or not sys.stderr.isatty():
        return measure(recording, names or None, seed=seed)
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("recording") as status:
        return measure(
            recording,
            names or None,
            seed=seed,
            progress=lambda name, done, total: status.update(f"{name}  ({done + 1} of {total})"),
        )


def keep(target: str, results: dict[str, Any]) -> None:
    """Store the results of a run with it."""
    from zscope import store
    from zscope.results import Result

    if store.is_run(target):
        run = store.open_run(target)
        for name, result in results.items():
            if isinstance(result, Result):
                run.save_result(name, result)


def draw(results: dict[str, Any], folder: Path) -> dict[str, str]:
    """Draw what can be drawn; returns the file of each figure."""
    from zscope.errors import Undefined
    from zscope.results import Result

    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, result in results.items():
        if not isinstance(result, Result):
            continue
        try:
            drawing = result.plot()
        except Undefined:  # a result that has no figure
            continue
        import matplotlib.pyplot as plt

        figure = drawing if hasattr(drawing, "savefig") else drawing.get_figure()
        file = folder / f"{name}.png"
        figure.savefig(file)
        plt.close(figure)
        files[name] = str(file)
    return files


def show(results: dict[str, Any], drawn: dict[str, str], *, json: bool) -> None:
    from zscope.results import Result

    if json:
        from json import dumps

        content = {
            name: result.to_dict() if isinstance(result, Result) else {"undefined": str(result)}
            for name, result in results.items()
        }
        print(dumps({"format": 1, "assays": content, "figures": drawn}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(
        show_header=True, title_justify="left", show_lines=False, box=None, pad_edge=False
    )
    for column in ("assay", "measured", ""):
        table.add_column(column, overflow="fold")
    missing: dict[str, list[str]] = {}
    for name, result in results.items():
        if not isinstance(result, Result):
            missing.setdefault(str(result).removeprefix(name + ": "), []).append(name)
            continue
        lines = [line for line in result.summary() if line[0] != "flags"]
        for row, (quantity, value) in enumerate(lines):
            table.add_row(name if row == 0 else "", quantity, value)
    console = Console(highlight=False)
    console.print(table)
    for name, result in results.items():
        for flag in getattr(result, "flags", []):
            console.print(f"{name}: {flag}", markup=False)
    for reason, names in missing.items():
        console.print(f"Not measured ({', '.join(names)}): {reason}", markup=False)
    if drawn:
        console.print(f"{len(drawn)} figures in {Path(next(iter(drawn.values()))).parent}")


def print_catalogue() -> None:
    from zscope.assays import CATALOGUE, GROUPS

    width = max(map(len, CATALOGUE))
    for entry in CATALOGUE.values():
        print(f"{entry.name:{width}}  {entry.question}")
    for name, members in GROUPS.items():
        print(f"{name:{width}}  All of: {', '.join(members)}")
