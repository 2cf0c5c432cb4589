"""zscope table: many runs as one table, or as a figure."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from zscope.cli.options import Where
from zscope.errors import ConfigError

if TYPE_CHECKING:
    from zscope.collection import Runs

__all__ = ["table"]


def table(
    runs: Annotated[str, Argument(help="The folder of a sweep, a folder with runs, or a run.")],
    columns: Annotated[
        str | None,
        Option(metavar="NAME,NAME", help="Scores or settings to show (default: all scores)."),
    ] = None,
    by: Annotated[
        str | None,
        Option(
            metavar="NAME,NAME",
            help="A row for each value of these settings (default: all that vary, but seeds).",
        ),
    ] = None,
    paired: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Differences between the values of a setting, of runs that agree in all others.",
        ),
    ] = None,
    where: Where = None,
    format: Annotated[
        str | None,
        Option(help="terminal, csv, parquet, json, md or tex (default: by the ending of FILE)."),
    ] = None,
    plot: Annotated[
        str | None,
        Option(
            metavar="SCORE,SCORE",
            help="Draw these instead: with --against, a panel for each; else their correlations.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        Option(metavar="NAME", help="With --plot: a setting that is a number, or another score."),
    ] = None,
    line: Annotated[
        str | None, Option(metavar="NAME", help="With --against: a line for each of its values.")
    ] = None,
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="FILE", help="Write the table or figure here.")
    ] = None,
) -> None:
    """Average scores over RUNS, with 95 % intervals, in a row for each combination of settings.

    Three or more runs of a row have a t-interval, fewer their range. Settings and scores have
    short names: beta, seed, latents; an assay alone is its first score, and the last part of
    a name is enough if it is unique (passive for variable-types.passive). Lines below the table
    say what else could make its rows differ: versions, threads, options of an assay.

    Examples:

      zscope table runs/beta

      zscope table runs/beta --columns mig,dci,passive --by model,data,beta

      zscope table runs/beta --columns mig --paired model --where beta=1,4

      zscope table runs/beta --by model,beta -o table.tex

      zscope table runs/beta --plot mig,passive --against beta --line model -o beta.pdf

      zscope table runs/beta --plot mig --against dci --line model -o agree.png

      zscope table runs/beta --plot mig,dci,sap -o correlations.pdf
    """
    from zscope.cli.options import runs_where
    from zscope.collection import runs as read_runs
    from zscope.tables import table as make_table

    _check_output(format, plot, against, line, out)
    collection = runs_where("table", read_runs(runs), where)
    if plot is not None and out is not None:
        _draw(collection, _names(plot) or [], against, line, out)
    else:
        result = make_table(collection, _names(columns), _names(by), paired)
        if out is not None:
            result.save(out, format)
        elif format in (None, "terminal"):
            print(result.to_text(_width()))
        else:
            print(result.to_bytes(str(format)).decode(), end="")
    if out is not None:
        print(f"{'figure' if plot else 'table'}: {out}")
    _say_left_out(collection, runs)


def _check_output(
    format: str | None, plot: str | None, against: str | None, line: str | None, out: Path | None
) -> None:
    """Refuse what could not be written, before anything is read."""
    from zscope.cli.outputs import try_file
    from zscope.errors import did_you_mean
    from zscope.tables import FORMATS, format_of

    known = ("terminal", *FORMATS)
    if format is not None and format not in known:
        raise ConfigError(f"table: no format {format!r}. {did_you_mean(format, known)}")
    if format == "parquet" and out is None:
        raise ConfigError(
            "table: Parquet is not text, so it cannot be printed. Name a file: -o table.parquet"
        )
    for option, value, needed in (("--against", against, plot), ("--line", line, against)):
        if value is not None and needed is None:
            missing = "--plot" if option == "--against" else "--against"
            raise ConfigError(
                f"table: {option} {value} says how to draw, and {missing} is missing. For instance:"
                " --plot mig --against beta --line model -o mig.pdf"
            )
    if plot is not None:
        from zscope.plots.theme import check_format

        if out is None or format is not None:
            raise ConfigError(
                "table: a figure goes to a file, in the format of its ending: --plot "
                f"{plot} -o figure.pdf"
            )
        check_format(out)
    elif out is not None and format is None:
        format_of(out)
    if out is not None:
        try_file("table: --out", out)


def _names(text: str | None) -> list[str] | None:
    """Names separated by commas; None of no text."""
    if text is None:
        return None
    return [part.strip() for part in text.split(",") if part.strip()]


def _draw(
    runs: "Runs", scores: list[str], against: str | None, line: str | None, out: Path
) -> None:
    from zscope import plots
    from zscope.plots.families import panels

    if against is not None:
        figure = panels(runs, scores, against, line)
    elif len(scores) == 1:
        raise ConfigError(
            f"table: --plot {scores[0]} needs something to be drawn against, such as --against "
            f"{_numeric(runs)}; or several scores, for their correlations."
        )
    else:
        figure = plots.rank_correlations(runs, scores)
    plots.save(figure, out)


def _numeric(runs: "Runs") -> str:
    from zscope.tables import numbers_of

    names = [name for name in runs.varying() if numbers_of(runs.levels(name))]
    return next((name for name in names if not runs.columns.is_seed(name)), "seed")


def _width() -> int | None:
    """The columns of the terminal; None where the output goes elsewhere."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _say_left_out(runs: "Runs", target: str) -> None:
    """A line on stderr about runs that are not in the table."""
    damaged = sum(row["status"] == "damaged" for row in runs.rows)
    counts = {
        "not finished": len(runs.unfinished), "damaged": damaged, "not begun": len(runs.missing)
    }  # fmt: skip
    parts = [f"{count:,} {what}" for what, count in counts.items() if count]
    if parts:
        more = f"; see: zscope sweep status {target}" if runs.missing or runs.failed else ""
        print(f"table: left out runs: {', '.join(parts)}{more}", file=sys.stderr)
