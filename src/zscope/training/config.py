"""The settings of a run: validated, and enough to repeat it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from zscope.documents import FORMAT, verify
from zscope.errors import ConfigError
from zscope.files import open_regular
from zscope.scaling import Scaling

__all__ = [
    "RATE", "DataRecipe", "Half", "ModelRecipe", "Split", "Start", "TrainConfig", "read_config",
    "validate",
]  # fmt: skip

RATE = 1e-4
"""The learning rate of all training, unless another is given."""
Half = Literal["encoder", "decoder"]


def _left_out(written: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Without the named settings that are None: runs from before they existed stay the same."""
    return {k: v for k, v in written.items() if v is not None or k not in names}


class Split(BaseModel):
    """One part of a dataset split at random (`Dataset.split`)."""

    model_config = ConfigDict(extra="forbid")
    fractions: list[float]
    seed: int = 0
    part: int = 0


class DataRecipe(BaseModel):
    """A dataset as `zs.data.from_recipe` builds it."""

    model_config = ConfigDict(extra="forbid")
    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    split: Split | None = None
    leave_out: dict[str, list[Any]] | None = Field(
        None, description="Values of factors whose rows are left out, after the split."
    )

    @model_serializer(mode="wrap")
    def _write(self, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return _left_out(write(self), ("leave_out",))


class ModelRecipe(BaseModel):
    """A model as `zs.models.from_recipe` builds it."""

    model_config = ConfigDict(extra="forbid")
    name: str
    shape: list[int]
    latents: int = Field(ge=1)
    options: dict[str, Any] = Field(default_factory=dict)


class Start(BaseModel):
    """The finished run whose final weights training starts from."""

    model_config = ConfigDict(extra="forbid")
    run: str = Field(description="Its folder; a name alone is a folder next to the run itself.")
    address: str | None = Field(default=None, description="The hash that names it in a sweep.")
    weights: str | None = Field(
        default=None, description="The checksum of its weights, where known."
    )
    about: str | None = Field(default=None, description="How a plan describes it, for tables.")


class TrainConfig(BaseModel):
    """All settings of a run. `model` and `data` are None if they were not built from a recipe."""

    model_config = ConfigDict(extra="forbid")

    model: ModelRecipe | None = None
    data: DataRecipe | None = None
    steps: int = Field(ge=1, description="Number of updates.")
    batch: int = Field(64, ge=1, description="Observations in each update.")
    rate: float = Field(RATE, gt=0, allow_inf_nan=False, description="Learning rate.")
    seed: int = Field(0, ge=0, lt=2**64, description="Seed of batches and noise.")
    optimiser: Literal["adam", "adagrad"] = "adam"
    schedule: Literal["constant", "linear", "cosine", "halving"] = "constant"
    halve_every: int | None = Field(None, ge=1, description="Steps between halvings.")
    warmup: int = Field(0, ge=0, description="Steps over which the rate rises from 0.")
    clip: float | None = Field(None, gt=0, description="Clip gradients to this norm.")
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    device: str = "auto"
    devices: int = Field(1, ge=1, description="Processes that share each batch.")
    log_every: int = Field(100, ge=1, le=100, description="Steps between rows of the history.")
    checkpoint_every: int = Field(1000, ge=1, description="Steps between checkpoints.")
    snapshots: list[int] = Field(
        default_factory=list, description="Steps whose checkpoints are never deleted."
    )
    snapshot_every: int | None = Field(
        None, ge=1, description="Steps between checkpoints that are never deleted."
    )
    scaling: Scaling | None = Field(None, description="The units the model sees features in.")
    freeze: Half | None = Field(None, description="The half whose weights stay as they are.")
    start: Start | None = Field(None, description="The run whose final weights it starts from.")

    @field_validator("freeze", mode="before")
    @classmethod
    def _read_freeze(cls, freeze: Any) -> Any:
        return None if freeze == "none" else freeze  # TOML has no null

    @model_serializer(mode="wrap")
    def _write(self, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return _left_out(write(self), ("freeze", "start"))

    @field_serializer("scaling")
    def _write_scaling(self, scaling: Scaling | None) -> dict[str, Any] | None:
        return None if scaling is None else scaling.to_dict()

    @model_validator(mode="after")
    def _check(self) -> "TrainConfig":
        if (self.schedule == "halving") != (self.halve_every is not None):
            raise ValueError("schedule 'halving' and halve_every must be set together")
        late = [step for step in self.snapshots if not 1 <= step <= self.steps]
        if late:
            raise ValueError(
                f"a snapshot at step {late[0]} would never be taken: steps go from 1 to "
                f"{self.steps}"
            )
        if self.batch % self.devices:
            raise ValueError(
                f"batch {self.batch} cannot be split evenly over {self.devices} devices"
            )
        return self

    def is_snapshot(self, step: int) -> bool:
        """Whether the checkpoint of this step is written and never deleted."""
        every = self.snapshot_every
        return step in self.snapshots or (every is not None and step > 0 and step % every == 0)

    def rate_at(self, step: int) -> float:
        """The learning rate of the update after the first `step` updates."""
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


def validate(who: str, **settings: Any) -> TrainConfig:
    """The configuration, or a ConfigError that names the field and what is wrong with it."""
    try:
        return TrainConfig(**settings)
    except ValidationError as error:
        raise ConfigError(f"{who}: {explain(error)}") from None


def explain(error: ValidationError) -> str:
    parts = []
    for item in error.errors():
        place = ".".join(str(step) for step in item["loc"]) or "the settings"
        message = item["msg"].removeprefix("Value error, ")
        got = "" if item["type"] in ("missing", "value_error") else f" (got {item['input']!r})"
        if item["type"] == "extra_forbidden":
            from zscope.errors import did_you_mean

            message, got = f"no such setting. {did_you_mean(place, TrainConfig.model_fields)}", ""
        parts.append(f"{place}: {message.rstrip('.')}{got}")
    stop = "" if parts[-1].endswith("?") else "."
    return "; ".join(parts) + f"{stop} Correct this and start again."


def read_config(path: str | Path) -> TrainConfig:
    """The configuration in a run.json, or in a file with the settings alone."""
    path = Path(path)
    path = path / "run.json" if path.is_dir() else path
    try:
        with open_regular(path, "config", ConfigError) as file:
            content = json.loads(file.read())
    except OSError as error:
        raise ConfigError(
            f"config: {path} cannot be read ({error.strerror}). Give the run.json of a run, or "
            "the run's folder."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"config: {path} is not JSON ({error}). Was it edited by hand? Compare it with the "
            "run.json of a run."
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(
            f"config: {path} contains a {type(content).__name__}, not settings by name. Compare it "
            "with the run.json of a run."
        )
    if content.get("format", FORMAT) != FORMAT:
        raise ConfigError(
            f"config: {path} has format {content['format']!r}; this zscope reads format {FORMAT}. "
            "Was it written by another version? Update zscope, or write the settings again."
        )
    verify(path, content)
    settings = content.get("config", content)
    if not isinstance(settings, dict):
        raise ConfigError(
            f"config: {path}: 'config' is a {type(settings).__name__}, not a group of settings. "
            "Was it edited by hand? Compare it with the run.json of a run."
        )
    settings = {key: value for key, value in settings.items() if key != "format"}
    return validate(f"config: {path}", **settings)
