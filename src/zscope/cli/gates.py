"""Requirements on the command line: --require and --junit of `zscope report` and `zscope assay`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from zscope.errors import ConfigError

if TYPE_CHECKING:
    from zscope.report.requirements import Requirement, Requirements

__all__ = ["Junit", "Require", "end", "needed_assays", "read_requirements"]

Require = Annotated[
    list[str] | None,
    Option(
        metavar="RULE",
        help="What must hold, e.g. 'passive <= 2' or 'mig > 0.3'; may be repeated. Judged by the "
        "95 % interval: exit code 0 if all hold, 1 if one does not, 3 if one is undecided.",
    ),
]
Junit = Annotated[
    Path | None, Option(help="Write the outcome of each --require to this file, as JUnit XML.")
]


def read_requirements(
    command: str, texts: list[str] | None, file: Path | None, out: Path | None = None
) -> "list[Requirement]":
    """The rules; the process ends with exit code 2 if one cannot be read, or FILE is for none.

    FILE is refused where it would replace what is written to `out`.
    """
    from zscope.cli.outputs import try_file
    from zscope.report.requirements import parse_all

    try:
        if file is not None and not texts:
            raise ConfigError(
                f"{command}: --junit {file} has nothing to say without a requirement. Add one: "
                "--require 'passive <= 2'"
            )
        if file is not None:
            try_file(f"{command}: --junit", file)
        written = [] if out is None else [out]
        if out is not None and out.suffix.lower() == ".html":
            written.append(out.with_suffix(".json"))
        if file is not None and file.resolve() in [each.resolve() for each in written]:
            raise ConfigError(
                f"{command}: --junit {file} is a file of the report itself, which would be lost. "
                "Choose another name, such as: --junit gate.xml"
            )
        return parse_all(texts or [])
    except ConfigError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        raise Exit(2) from None


def needed_assays(names: list[str], requirements: "Sequence[Requirement]") -> list[str] | None:
    """The assays that are named and those that requirements are about; None for all of them.

    Findings are counted after all assays, also where some are named: after a few there are fewer.
    """
    needs = [each.needs for each in requirements]
    if None in needs:
        return None
    if not requirements:
        return names or None
    return list(dict.fromkeys([*names, *(name for each in needs for name in each or [])]))


def end(
    command: str, requirements: "Mapping[str, Requirements]", file: Path | None, *, silent: bool
) -> None:
    """Print the outcomes, write them to the file, and end with the exit code that they have."""
    from zscope.report.junit import junit

    if file is not None:
        from zscope.report.build import write_all

        write_all({file: junit(requirements)})
    if not silent:
        for target, each in requirements.items():
            print(f"\n{target}: {each}" if len(requirements) > 1 else f"\n{each}")
    raise Exit(max((each.exit_code for each in requirements.values()), key=[0, 3, 1].index))
