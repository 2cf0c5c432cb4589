"""Experiments that train their models by a sweep: data by name, and errors in their own words."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zscope.collection import Runs
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, RunError
from zscope.experiments.sweeps import sweep
from zscope.experiments.sweeps.names import data_text

__all__ = ["Shown", "data_of", "in_words_of", "train_plan"]

Shown = Callable[[Any, Any], None] | bool | None
"""What shows the progress of a sweep; see `zs.sweep`."""


def data_of(who: str, data: Any, root: str | Path | None) -> tuple[str, str | Path | None]:
    """The text that names the data in a plan, and where they are kept."""
    if isinstance(data, str | Path):
        return str(data), root
    if not isinstance(data, Dataset) or data.recipe is None or data.scaling is not None:
        what = f"a {type(data).__name__}"
        raise ConfigError(
            f"{who}: the data are {what} that cannot be loaded again by name, which the processes "
            "that train must do. Save it as a file (numpy.save) and give its path, or a dataset "
            "of zs.data.load."
        )
    return data_text(data.recipe), root or data.provenance.get("root")


@contextmanager
def in_words_of(who: str) -> Iterator[None]:
    """Errors of a plan for those who wrote none."""
    try:
        yield
    except ConfigError as error:
        text = re.sub(r"^sweep: (\[(grid|assay)\] )?", "", str(error))
        raise ConfigError(f"{who}: {text}") from None


def train_plan(who: str, plan: Mapping[str, Any], out: str | Path, **options: Any) -> Runs:
    """The runs of the plan, all of them finished."""
    try:
        with in_words_of(who):
            runs = sweep(plan, out, retry_failed=True, **options)
    except KeyboardInterrupt as interrupt:
        raise type(interrupt)(
            f"{who}: stopped. Everything is saved in {out}: run the same command again to continue."
        ) from None
    if runs.failed:
        name, reason = next(iter(runs.failed.items()))
        raise RunError(
            f"{who}: {len(runs.failed)} of {len(runs)} runs failed; {name}: {reason} The others "
            f"are saved. See {Path(out) / 'failed'}; the same command tries them again."
        )
    return runs
