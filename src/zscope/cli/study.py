"""zscope study: repeat a paper's experiment and check what it claims."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option, Typer

from zscope.cli.options import AsJson, Quiet, Root

app = Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="A paper's experiment, with what must hold checked.",
)


@app.command("list")
def list_() -> None:
    """The studies, and what each one repeats."""
    from zscope.experiments import studies

    width = max(map(len, studies.names()))
    for name in studies.names():
        print(f"{name:{width}}  {studies.load(name).SUMMARY}")


@app.command()
def run(
    name: Annotated[str, Argument(help="A name from `zscope study list`.")],
    scale: Annotated[str, Option(help="small (minutes on two cores) or paper.")] = "small",
    out: Annotated[Path | None, Option(help="Where its runs go (default studies/NAME).")] = None,
    root: Root = None,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Repeat the study NAME; exit code 1 if a claim does not hold.

    Example:

      zscope study run polarised-regime
    """
    import os
    import sys

    from zscope.errors import ConfigError
    from zscope.experiments import studies

    if scale not in ("small", "paper"):
        raise ConfigError(f"study: scale {scale!r} is not known. Use small or paper.")
    study = studies.load(name)
    if root is not None:
        os.environ["ZSCOPE_DATA"] = str(root)

    def tell(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    claims = study.run(out or Path("studies") / name, scale=scale, progress=tell)
    if json:
        from dataclasses import asdict
        from json import dumps

        print(dumps({"study": name, "scale": scale, "claims": [asdict(c) for c in claims]}))
    else:
        for claim in claims:
            print(claim)
        held = sum(claim.holds for claim in claims)
        print(f"{held} of {len(claims)} claims hold.")
    if not all(claim.holds for claim in claims):
        raise Exit(1)
