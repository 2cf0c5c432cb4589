"""A grid of runs: what a study trains, at each scale.

    RM = Grid(
        small=runs(model="beta-vae", data=["mnist", "fashion-mnist"], beta=[1, 2, 4, 8], seeds=4,
                   latents=12, steps=3_000, batch=128, rate=1e-3, backbone="mlp"),
        paper=runs(...),
    )

Fields are those of a sweep plan (`zscope.experiments.sweeps.plan`); every other word is an option
of the model ("options.start" where a field of the plan has the same name). Lists are varied, all
against all; a tuple is one value. `seeds=4` are the seeds 20, 21, 22, 23: earlier ones were used to
choose recipes. Runs of equal configuration are one run, whichever studies ask for it.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zscope.errors import ConfigError
from zscope.experiments.fields import OWN, SETTINGS
from zscope.presets import preset

__all__ = ["FIRST_SEED", "SCALES", "Block", "Grid", "runs", "settings_of", "short_name"]

FIRST_SEED = 20
"""Smaller seeds were used to choose recipes, so no claim is judged on them."""
SCALES = ("tiny", "small", "paper")
TINY_STEPS, TINY_SEEDS = 12, 2

Block = Mapping[str, Any]


def runs(**fields: Any) -> tuple[Block, ...]:
    """The runs of one product of lists. Add several with `+`."""
    return (fields,)


@dataclass(frozen=True)
class Grid:
    """Runs at scale `small` and at scale `paper`.

    `paper_only` says why there are no small ones, `small_only` why there are no others. `notes`
    hold at every scale, `small_notes` for the small runs alone.
    """

    small: Sequence[Block] = ()
    paper: Sequence[Block] = ()
    paper_only: str = ""
    small_only: str = ""
    notes: str = ""
    small_notes: str = ""
    tiny: Mapping[str, Any] = field(default_factory=dict)  # what differs at scale tiny

    def expand(self, scale: str, seeds: int | None = None) -> list[dict[str, Any]]:
        """One run each, as the tables [[run]] of a sweep plan; `seeds` overrides how many."""
        if scale not in SCALES:
            raise ConfigError(f"study: scale {scale!r}; expected small, paper or tiny.")
        blocks = self.paper if scale == "paper" else self.small
        if scale == "tiny":
            seeds = TINY_SEEDS if seeds is None else seeds
            blocks = [self._shorten(block) for block in blocks]
        return [run for block in blocks for run in _product(block, seeds)]

    def describe(self, scale: str) -> str:
        """What is to be said of the runs at this scale, or why there are none."""
        if scale == "paper":
            parts = [self.notes if self.paper else self.small_only or "At scale small only."]
        else:
            parts = [self.notes, self.small_notes] if self.small else [self.paper_only]
        return " ".join(filter(None, parts))

    def _shorten(self, block: Block) -> dict[str, Any]:
        """The block with few steps: it shows that everything works, and measures nothing."""
        short = {**block, **self.tiny}
        steps = self.tiny.get("steps", TINY_STEPS)
        length = int(block.get("steps", steps))
        short["steps"] = min(steps, length)
        ratio = short["steps"] / length
        if "snapshots" in block:
            kept = {max(1, round(step * ratio)) for step in block["snapshots"] if step}
            short["snapshots"] = tuple(sorted(kept))
        if "snapshot_every" in block:
            short["snapshot_every"] = max(1, round(block["snapshot_every"] * ratio))
        if "steps" in block.get("start", {}):  # the run that a branch starts from
            short["start"] = {**block["start"], "steps": min(steps, block["start"]["steps"])}
        return short


def _product(block: Block, seeds: int | None) -> Iterator[dict[str, Any]]:
    fields = dict(block)
    count = fields.pop("seeds", None)
    if isinstance(count, int):
        first = FIRST_SEED
        fields["seed"] = [first + k for k in range(count if seeds is None else seeds)]
    elif count is not None:  # those that a paper prints
        fields["seed"] = list(count)[: seeds or None]
    varied = {
        _plan_field(key): [_plain(each) for each in (value if isinstance(value, list) else [value])]
        for key, value in fields.items()
    }
    for values in itertools.product(*varied.values()):
        yield dict(zip(varied, values, strict=True))


def settings_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a planned run by their short names, with those of its preset."""
    own = {short_name(key): value for key, value in run.items()}
    if "preset" not in own:
        return own
    chosen = preset(own["preset"], "study")
    network = chosen.options(own.get("model", ""))
    more = {"latents": chosen.latents, "split": chosen.split, **network, **chosen.settings({
        key: own[key] for key in ("steps", "epochs", "schedule", "halve_every") if key in own
    })}  # fmt: skip
    return {**own, **{key: _plain(value) for key, value in more.items()
                      if key not in own and value is not None}}  # fmt: skip


def _plan_field(key: str) -> str:
    return key if _is_field(key) or key.startswith("options.") else f"options.{key}"


def short_name(key: str) -> str:
    """The name of a field in rows: beta for options.beta, but options.start, which is not start."""
    short = key.removeprefix("options.")
    return key if _is_field(short) else short


def _is_field(key: str) -> bool:
    return key in OWN or key in SETTINGS


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
