"""The command line: each command parses, calls the library and prints.

How they end, and with which exit code: `zscope.cli.ending`.
"""

import sys

import typer

from zscope.cli import (
    assay,
    compare,
    data,
    demo,
    dynamics,
    ending,
    explore,
    export,
    extrapolate,
    fondue,
    models,
    rate_distortion,
    report,
    schema,
    score,
    searches,
    select,
    study,
    sweep,
    table,
    train,
)

__all__ = ["app", "main"]

app = typer.Typer(
    name="zscope",
    help="Train autoencoders and assay their latent spaces. Start with: zscope demo",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo.demo)
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.command()(train.train)
app.command()(assay.assay)
app.command()(report.report)
app.command()(explore.explore)
app.command()(export.export)
app.command()(score.score)
app.command()(schema.schema)
app.command()(compare.compare)
app.command()(dynamics.dynamics)
app.command()(rate_distortion.rate_distortion)
app.command()(select.select)
app.command()(fondue.fondue)
app.command()(searches.elbow)
app.command()(searches.beta)
app.command()(extrapolate.extrapolate)
app.add_typer(sweep.app, name="sweep")
app.command()(table.table)
app.add_typer(study.app, name="study")


@app.callback(invoke_without_command=True)
def version(
    show: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    if show:
        from zscope import __version__

        print(f"zscope {__version__}")
        raise typer.Exit()


def main() -> None:
    """Run a command; errors become one line and an exit code."""
    sys.exit(ending.run(app))
