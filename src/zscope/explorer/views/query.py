"""The parameters of requests: validated numbers within limits."""

import json
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["CodeQuery", "Index", "NoParameters", "Number", "Pair", "Query", "Seed", "Vector"]

LARGEST = 1e6
MOST_LATENTS = 65_536


class Query(BaseModel):
    """The parameters of a request. Unknown parameters and other types are refused.

    Each field is documented by the string below it; /api shows it.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        frozen=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def from_texts(cls, items: Iterable[tuple[str, str]]) -> "Query":
        """Of a query string: numbers and "true" as in JSON, lists as "1,2,3"."""
        properties = cls.model_json_schema().get("properties", {})
        values: dict[str, Any] = {}
        for name, text in items:
            # A parameter that is given twice has no value that is valid.
            values[name] = {} if name in values else _value(text, properties.get(name, {}))
        return cls.model_validate(values)


def _value(text: str, schema: dict[str, Any]) -> Any:
    types = {each.get("type") for each in schema.get("anyOf", [schema])}
    if "string" in types or text != text.strip():
        return text
    try:
        value = json.loads(f"[{text}]" if "array" in types else text)
    except (ValueError, RecursionError):
        return text
    return text if value is None else value


class NoParameters(Query):
    """No parameters."""


Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Vector = Annotated[list[Number], Field(max_length=MOST_LATENTS)]
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]
Index = Annotated[int, Field(ge=0, le=2**31)]
Seed = Annotated[int, Field(ge=0, le=2**31)]


class CodeQuery(Query):
    """A latent vector: `z`, or the code of a recorded `sample`.

    Without either, the code of the sample nearest to the mean of all codes.
    """

    z: Vector | None = None
    """The latent vector itself, one number per latent."""
    sample: Index | None = None
    """The number of a recorded sample."""
