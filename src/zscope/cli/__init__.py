"""The command line: each command parses, calls the library and prints.

An error that the user can fix is one line and exit code 1; a traceback means a bug.
"""

import os
import sys

import typer

from zscope.cli import (
    assay,
    compare,
    data,
    demo,
    explore,
    fondue,
    models,
    report,
    score,
    study,
    train,
)
from zscope.errors import ZscopeError

__all__ = ["app", "main"]

app = typer.Typer(
    name="zscope",
    help="Train autoencoders and assay their latent spaces. Start with: zscope demo",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo.demo)
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.command()(train.train)
app.command()(assay.assay)
app.command()(report.report)
app.command()(explore.explore)
app.command()(score.score)
app.command()(compare.compare)
app.command()(fondue.fondue)
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
    try:
        app()
    except SystemExit as end:
        # Typer turns an interrupt into exit code 130 and drops its message, which may say how
        # to resume.
        cause: BaseException | None = end
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__context__
        if cause is not None:
            print(str(cause) or "zscope: stopped.", file=sys.stderr)
        raise
    except ZscopeError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        print(str(interrupt) or "zscope: stopped.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader (head, less) has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
