"""zscope schema: the JSON schemas of what zscope writes for other programs."""

from typing import Annotated

from typer import Argument

from zscope.cli import completion

__all__ = ["schema"]


def schema(
    name: Annotated[
        str, Argument(metavar="[report|comparison|scores|result]", help="Default: list them.")
    ] = "",
    assay: Annotated[
        str,
        Argument(
            metavar="[ASSAY]", help="Of a result: its assay.", autocompletion=completion.assays
        ),
    ] = "",
) -> None:
    """Print the JSON schema of a report, of models side by side, of scores, or of a result.

    Files name their schema and its version: "schema" and "format". Schemas follow draft 2020-12.

    Examples:

      zscope schema

      zscope schema report > report.schema.json

      zscope schema result mig
    """
    if not name:
        return _list()
    from json import dumps

    from zscope.assays.choosing import assay_name
    from zscope.errors import ConfigError
    from zscope.report.schema import schema_of

    if assay and name != "result":
        raise ConfigError(
            f"schema: got {name} and {assay}, and only results are those of an assay. Leave it "
            f"out, or use: zscope schema result {assay}"
        )
    print(dumps(schema_of(name, assay_name(assay)), indent=2, ensure_ascii=False))
    return None


def _list() -> None:
    """The schemas with their addresses and what is written in them."""
    from zscope.documents import schema_address

    about = {
        "report": "report.json, zscope assay --json",
        "comparison": "several models side by side: zscope report A B -o page.json",
        "scores": "zscope score --json",
        "result ASSAY": "the result of an assay, in a report or from result.to_dict()",
    }
    for name, text in about.items():
        print(f"{name:14}{schema_address(name.replace(' ', ':')):36}{text}")
