"""The stages of a run: its model before training, at each checkpoint, and at the end."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from zscope import models, store
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, RunError
from zscope.loading import load
from zscope.scaling import Scaling

__all__ = ["run_folder", "stages_of"]

Load = Callable[[], Autoencoder]


def run_folder(who: str, run: Any) -> Path:
    """The folder of a run, which alone has checkpoints."""
    folder = run.path if isinstance(run, store.Run) else run
    if not isinstance(folder, str | Path) or Path(folder).suffix == ".safetensors":
        seen = "a run in memory" if folder is None else f"a {type(run).__name__} ({run!r:.60})"
        raise ConfigError(
            f"{who}: got {seen}; expected the folder of a run, which has checkpoints. Train with "
            "out=FOLDER and snapshot_every=STEPS."
        )
    return Path(folder)


def stages_of(who: str, folder: Path, *, untrained: bool = True) -> dict[int, Load]:
    """By step, how to load the model: one at a time, so that memory holds no more.

    Step 0 is the untrained model, where the run says how to build it. The last one is the
    final model of a finished run, and otherwise the last checkpoint.
    """
    run = store.open_run(folder)
    saved = store.checkpoints(folder)
    if not saved:
        raise RunError(
            f"{who}: {folder} has 0 checkpoints ({run.status}, step {run.step}): they are deleted "
            "when a run is finished, unless some are to be kept. Train with --snapshot-every "
            "STEPS, or with --snapshot STEP (several times)."
        )
    stages: dict[int, Load] = {}
    recipe = run.config.get("model")
    if untrained and recipe is not None:
        stages[0] = partial(_untrained, recipe, run.config.get("scaling"))
    stages |= {step: partial(load, file) for step, file in saved}
    if run.finished:
        stages[run.step] = partial(load, folder)
    return stages


def _untrained(recipe: dict[str, Any], scaling: dict[str, Any] | None) -> Autoencoder:
    """The model with the weights that training began with."""
    model = models.from_recipe(recipe)
    if scaling is not None:
        model.scaling = Scaling(**scaling)
    return model.eval()
