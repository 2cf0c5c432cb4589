"""What a run is asked to do: checked on the way in, enough to repeat the run."""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from zscope.errors import ConfigError
from zscope.store import FORMAT

Fraction = float


class Split(BaseModel):
    """One part of a dataset split at random (`Dataset.split`)."""

    model_config = ConfigDict(extra="forbid")
    fractions: list[float]
    seed: int = 0
    part: int = 0


class DataRecipe(BaseModel):
    """A dataset as `zs.data.from_recipe` makes it."""

    model_config = ConfigDict(extra="forbid")
    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    split: Split | None = None


class ModelRecipe(BaseModel):
    """A model as `zs.models.from_recipe` makes it."""

    model_config = ConfigDict(extra="forbid")
    name: str
    shape: list[int]
    latents: int = Field(ge=1)
    options: dict[str, Any] = Field(default_factory=dict)


class TrainConfig(BaseModel):
    """All settings of a run. `model` and `data` are None for objects of one's own."""

    model_config = ConfigDict(extra="forbid")

    model: ModelRecipe | None = None
    data: DataRecipe | None = None
    steps: int = Field(ge=1, description="Updates to make.")
    batch: int = Field(64, ge=1, description="Observations in each update.")
    rate: float = Field(1e-4, gt=0, allow_inf_nan=False, description="Learning rate.")
    seed: int = Field(0, ge=0, lt=2**64, description="Decides batches and noise.")
    optimiser: Literal["adam", "adagrad"] = "adam"
    schedule: Literal["constant", "linear", "cosine", "halving"] = "constant"
    halve_every: int | None = Field(None, ge=1, description="Steps between halvings.")
    warmup: int = Field(0, ge=0, description="Steps over which the rate rises from 0.")
    clip: float | None = Field(None, gt=0, description="Largest norm of the gradient.")
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    device: str = "auto"
    devices: int = Field(1, ge=1, description="Processes that share each batch.")
    log_every: int = Field(100, ge=1, le=100, description="Steps between rows of the history.")
    checkpoint_every: int = Field(1000, ge=1, description="Steps between checkpoints.")
    snapshots: list[int] = Field(
        default_factory=list, description="Steps whose checkpoints are kept for good."
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> "TrainConfig":
        if (self.schedule == "halving") != (self.halve_every is not None):
            raise ValueError("schedule 'halving' and halve_every go together")
        late = [step for step in self.snapshots if not 1 <= step <= self.steps]
        if late:
            raise ValueError(
                f"a snapshot at step {late[0]} would never be taken: steps run from 1 to "
                f"{self.steps}"
            )
        if self.batch % self.devices:
            raise ValueError(
                f"batch {self.batch} cannot be shared evenly by {self.devices} devices"
            )
        return self

    def rate_at(self, step: int) -> float:
        """The learning rate of the update that follows `step` updates."""
        import math

        rate = self.rate
        done = step / self.steps
        if self.schedule == "linear":
            rate *= 1 - done
        elif self.schedule == "cosine":
            rate *= 0.5 * (1 + math.cos(math.pi * done))
        elif self.schedule == "halving" and self.halve_every is not None:
            rate *= 0.5 ** (step // self.halve_every)
        if step < self.warmup:
            rate *= (step + 1) / self.warmup
        return rate


def checked(who: str, **settings: Any) -> TrainConfig:
    """A configuration, or a ConfigError that names the field and what was wrong with it."""
    try:
        return TrainConfig(**settings)
    except ValidationError as error:
        raise ConfigError(f"{who}: {explain(error)}") from None


def explain(error: ValidationError) -> str:
    parts = []
    for item in error.errors():
        place = ".".join(str(step) for step in item["loc"]) or "the settings"
        said = item["msg"].removeprefix("Value error, ")
        given = "" if item["type"] in ("missing", "value_error") else f" (found {item['input']!r})"
        if item["type"] == "extra_forbidden":
            from zscope.errors import did_you_mean

            said, given = f"no such setting. {did_you_mean(place, TrainConfig.model_fields)}", ""
        parts.append(f"{place}: {said.rstrip('.')}{given}")
    ended = "" if parts[-1].endswith("?") else "."
    return "; ".join(parts) + f"{ended} Correct this and start again."


def read_config(path: str | Path) -> TrainConfig:
    """The configuration in a run.json, or in a file with the settings alone."""
    path = Path(path)
    path = path / "run.json" if path.is_dir() else path
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"config: {path} cannot be read ({error.strerror}). Give the run.json of a run, or "
            "the run's folder."
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"config: {path} is not JSON ({error}). Was it edited by hand? Take the run.json of "
            "a run as a pattern."
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(
            f"config: {path} holds a {type(content).__name__}, not settings by name. Take the "
            "run.json of a run as a pattern."
        )
    if content.get("format", FORMAT) != FORMAT:
        raise ConfigError(
            f"config: {path} has format {content['format']!r}; this zscope reads format {FORMAT}. "
            "Was it written by another version? Update zscope, or write the settings anew."
        )
    settings = content.get("config", content)
    if not isinstance(settings, dict):
        raise ConfigError(
            f"config: {path}: 'config' is a {type(settings).__name__}, not a group of settings. "
            "Was it edited by hand? Take the run.json of a run as a pattern."
        )
    settings = {key: value for key, value in settings.items() if key != "format"}
    return checked(f"config: {path}", **settings)
