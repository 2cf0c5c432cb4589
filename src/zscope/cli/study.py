"""zscope study: reproduce the experiments of a paper and check its claims."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, Typer

from zscope.cli.options import AsJson, Quiet, Root

__all__ = ["app"]

app = Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Reproduce the experiments of a paper and check its claims. Start with: zscope study list",
)


@app.command("list")
def list_() -> None:
    """List the studies and what each one reproduces."""
    from zscope.experiments import studies

    width = max(map(len, studies.names()))
    for name in studies.names():
        print(f"{name:{width}}  {studies.load(name).SUMMARY}")


@app.command()
def run(
    name: Annotated[str, Argument(help="A name from `zscope study list`.")],
    scale: Annotated[
        str, Option(help="small (minutes on two cores) or paper (as published).")
    ] = "small",
    out: Annotated[Path | None, Option(help="Folder for its runs (default studies/NAME).")] = None,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Reproduce the study NAME and print which claims hold.

    Trains and measures the models of the study. The exit code is 1 if a claim does not
    hold.

    Examples:

      zscope study run polarised-regime

      zscope study run polarised-regime --scale paper --out studies/full
    """
    import os
    import sys

    from zscope.cli.outputs import try_folder
    from zscope.errors import ConfigError
    from zscope.experiments import studies

    if scale not in ("small", "paper"):
        raise ConfigError(f"study: --scale {scale}; expected small or paper.")
    study = studies.load(name)
    folder = out or Path("studies") / name
    try_folder("study: --out", folder)
    if root is not None:
        os.environ["ZSCOPE_DATA"] = str(root)

    def print_progress(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    claims = study.run(folder, scale=scale, progress=print_progress)
    if json:
        from dataclasses import asdict
        from json import dumps

        print(dumps({"study": name, "scale": scale, "claims": [asdict(c) for c in claims]}))
    else:
        for claim in claims:
            print(claim)
        holding = sum(claim.holds for claim in claims)
        print(f"{holding} of {len(claims)} claims hold.")
    if not all(claim.holds for claim in claims):
        raise Exit(1)
