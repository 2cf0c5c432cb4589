"""The parameters of requests: validated numbers within limits."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["CodeQuery", "Index", "NoParameters", "Number", "Pair", "Query", "Seed", "Vector"]

LARGEST = 1e6
MOST_LATENTS = 65_536


class Query(BaseModel):
    """The parameters of a request. Unknown parameters are refused.

    Each field is documented by the string below it; /api shows it.
    """

    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, frozen=True, use_attribute_docstrings=True
    )


class NoParameters(Query):
    """No parameters."""


def _split(value: Any) -> Any:
    """The list in "1,2,3" of a query string."""
    return value.split(",") if isinstance(value, str) else value


Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Vector = Annotated[list[Number], BeforeValidator(_split), Field(max_length=MOST_LATENTS)]
Pair = Annotated[list[Number], BeforeValidator(_split), Field(min_length=2, max_length=2)]
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
