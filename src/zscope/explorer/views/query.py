"""What a request may ask for: checked numbers within limits, and nothing else."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LARGEST = 1e6
MOST_LATENTS = 65_536


class Query(BaseModel):
    """The parameters of a request; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class Nothing(Query):
    """No parameters."""


def _listed(value: Any) -> Any:
    """ "1,2,3" of a query string as a list."""
    return value.split(",") if isinstance(value, str) else value


Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Vector = Annotated[list[Number], BeforeValidator(_listed), Field(max_length=MOST_LATENTS)]
Pair = Annotated[list[Number], BeforeValidator(_listed), Field(min_length=2, max_length=2)]
Index = Annotated[int, Field(ge=0, le=2**31)]
Seed = Annotated[int, Field(ge=0, le=2**31)]


class Based(Query):
    """A latent vector: `z` itself, or the code of a recorded `sample`, or of the one nearest
    to the mean of all codes."""

    z: Vector | None = None
    sample: Index | None = None
