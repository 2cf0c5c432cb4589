"""Extrapolation: which half of a model has to learn a new value of a factor?

A model is trained without some values of a factor. Then it goes on from there, on all values, in
four ways: neither half is trained any more, the encoder alone, the decoder alone, or both. The
mean squared error of held-out observations with the left-out values shows what was missing:

    share(half) = (E_neither - E_half) / (E_neither - E_both)

is the share of the gap that training this half alone closes: 1 if it does as well as both, 0 if it
does nothing. It may be negative, or above 1. Unchanged by scaling the observations.

Sham control: as many further steps for both halves on the old values alone. It should stay at
"neither"; what it closes of the gap is due to longer training, not to the new values.

The observations are split first, once for all runs, so that no run has seen those that errors are
measured on. Errors are means over observations and numbers, of the decoded posterior means, in the
units that the model sees.

Leeb et al., "Structure by architecture: structured representations without regularization",
ICLR 2023, section 3.2 and figures 7 and 12. The shares, the sham control and the errors on the
old values are ours.
"""

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from zscope import data as datasets
from zscope import models
from zscope.autoencoder import Autoencoder, evaluation
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, DataError, InterfaceError
from zscope.experiments.planned import Shown, data_of, in_words_of, train_plan
from zscope.experiments.records import Tabular
from zscope.experiments.sweeps import read_plan
from zscope.experiments.sweeps.names import parse_name
from zscope.loading import load
from zscope.recording import SAMPLES, batch_size, record
from zscope.results import counted
from zscope.sampling import whole
from zscope.tables.statistics import Mean, mean_of
from zscope.training.config import RATE, TrainConfig

__all__ = ["BRANCHES", "Extrapolation", "branch_of", "extrapolate", "mean_squared_error"]

BRANCHES = ("neither", "encoder", "decoder", "both", "sham")
"""What is trained further, on all values; "sham" is both, on the old values."""
WORTH = 2.0
"""How many times larger than with both halves the error without any has to be, to tell shares."""
STILL = 0.1
"""The share of the gap up to which the sham control counts as staying where it was."""


@dataclass(frozen=True, eq=False)
class Extrapolation(Tabular):
    """Mean squared errors of held-out observations, for each branch and seed.

    `new` are the errors with the left-out values, `old` those with the others. Shares are means
    over seeds; None if the error of both halves is not below that of neither.
    """

    model: str
    data: str
    left_out: dict[str, list[Any]]
    steps: int
    more: int
    seeds: list[int]
    new: dict[str, list[float]]
    old: dict[str, list[float]]
    decoder_share: float | None
    encoder_share: float | None
    sham_share: float | None
    parameters: dict[str, int]  # of the encoder, the decoder, and what belongs to neither
    samples: dict[str, int]  # new and old
    runs: dict[str, list[str]]
    flags: list[str]

    columns: ClassVar[tuple[str, ...]] = ("branch", "seed", "new", "old", "share", "run")

    def shares(self, branch: str) -> list[float | None]:
        """The share of the gap that a branch closes, for each seed."""
        return _shares(self.new, branch)

    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "branch": branch,
                "seed": seed,
                "new": self.new[branch][k],
                "old": self.old[branch][k],
                "share": self.shares(branch)[k],
                "run": self.runs[branch][k],
            }
            for branch in BRANCHES
            for k, seed in enumerate(self.seeds)
        ]

    def summary(self) -> list[tuple[str, str]]:
        lines = []
        shares = {
            "decoder alone": ("decoder", self.decoder_share),
            "encoder alone": ("encoder", self.encoder_share),
            "sham control": ("sham", self.sham_share),
        }
        for name, (branch, share) in shares.items():
            if share is not None:
                each = ", ".join("-" if s is None else f"{s:.2f}" for s in self.shares(branch))
                several = f" (seeds: {each})" if len(self.seeds) > 1 else ""
                lines.append((f"gap closed by {name}", f"{share:.2f}{several}"))
        counts = ", ".join(f"{part} {count:,}" for part, count in self.parameters.items() if count)
        lines.append(("parameters", counts))
        lines.append(("observations", f"{self.samples['new']:,} new, {self.samples['old']:,} old"))
        return lines

    def _tables(self) -> tuple[list[list[str]], list[list[str]]]:
        kind = ["range" if _mean(self.new["both"]).is_range else "95 % interval"]
        kind = kind if len(self.seeds) > 1 else []
        table = [["trained further", "error, new values", *kind, "error, old values", *kind]]
        for branch in BRANCHES:
            cells = [_cells(_mean(errors[branch])) for errors in (self.new, self.old)]
            name = "both, old values (sham)" if branch == "sham" else branch
            table.append([name, *cells[0], *cells[1]])
        return table, super()._tables()[1]

    def _title(self) -> str:
        left_out = ", ".join(f"{k}={','.join(map(str, v))}" for k, v in self.left_out.items())
        return (
            f"{self.model} on {self.data} without {left_out}: {self.steps:,} steps, then "
            f"{self.more:,} on all values, {counted(len(self.seeds), 'seed')}"
        )

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        means = [_mean(self.new[branch]) for branch in BRANCHES]
        errors = [[m.value - m.low for m in means], [m.high - m.value for m in means]]
        return bars(
            [mean.value for mean in means],
            names=BRANCHES,
            x="trained further",
            y="mean squared error, new values",
            errors=errors if len(self.seeds) > 1 else None,
            marks=range(len(BRANCHES) - 1),
            ax=ax,
        )


def extrapolate(
    model: str,
    data: str | Path | Dataset,
    *,
    leave_out: Mapping[str, Any],
    steps: int,
    more: int,
    out: str | Path,
    latents: int = 10,
    options: Mapping[str, Any] | None = None,
    seeds: int = 3,
    seed: int = 0,
    batch: int = 64,
    rate: float = RATE,
    schedule: str = "constant",
    held_out: float = 0.2,
    samples: int = SAMPLES,
    root: str | Path | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    cluster_options: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    progress: Shown = None,
) -> Extrapolation:
    """Train without some values of factors, then further with them, by the halves of the model.

    `leave_out` names the values by factor, for instance {"shape": "sphere"} (see
    `Dataset.leave_out`). Every seed is trained for `steps` steps without them, and from there
    for `more` steps on all values: the encoder alone, the decoder alone, and both; and both on
    the old values (the sham control). The share `held_out` of the data is kept for the errors,
    which are measured on up to `samples` observations with the left-out values and as many
    others. `data` is a name, with options as in "rooms?resolution=16", a path or a Dataset that
    was loaded. `out` is the folder of the sweep, and the work goes to the same places as that of
    `zs.sweep`.
    """
    who = "extrapolate"
    whole(who, seed=seed)
    whole(who, 1, seeds=seeds, steps=steps, more=more, latents=latents, samples=samples)
    if not 0 < held_out < 1:
        raise ConfigError(f"{who}: held_out={held_out}; expected a share of the data, such as 0.2.")
    if not models.entry(model).decodes:
        raise ConfigError(f"{who}: {model} has no decoder. Choose a model with two halves, as ae.")
    name, root = data_of(who, data, root)
    split = [1 - held_out, held_out]
    new, old, chosen = _held_out(who, name, split, leave_out, samples, root)
    own = {f"options.{key}": value for key, value in (options or {}).items()}
    plan = {
        "train": {
            "model": model, "data": name, "latents": latents, "batch": batch, "rate": rate,
            "schedule": schedule, "split": split, **own,
        },
        "run": [
            {"seed": each, **fields}
            for each in range(seed, seed + seeds)
            for fields in _branches(chosen, steps, more)
        ],
    }  # fmt: skip
    where = {"jobs": jobs, "cluster": cluster, "cluster_options": cluster_options}
    runs = train_plan(who, plan, out, root=root, executor=executor, progress=progress, **where)
    with in_words_of(who):
        planned = read_plan(plan, root=root).runs
    places = {(branch_of(run.config), run.config.seed): run.name for run in planned}
    every = list(range(seed, seed + seeds))
    names = {branch: [places[branch, each] for each in every] for branch in BRANCHES}
    errors: dict[str, dict[str, list[float]]] = {"new": {}, "old": {}}
    for branch in BRANCHES:
        trained = [load(runs.folder / run) for run in names[branch]]
        errors["new"][branch] = [mean_squared_error(each, new) for each in trained]
        errors["old"][branch] = [mean_squared_error(each, old) for each in trained]
    shares = {branch: _mean_share(errors["new"], branch) for branch in BRANCHES}
    recipe = planned[0].config.model
    assert recipe is not None
    return Extrapolation(
        model=model,
        data=name,
        left_out=_in_words(new, chosen),
        steps=steps,
        more=more,
        seeds=every,
        new=errors["new"],
        old=errors["old"],
        decoder_share=shares["decoder"],
        encoder_share=shares["encoder"],
        sham_share=shares["sham"],
        parameters=_parameters(recipe.model_dump()),
        samples={"new": len(new), "old": len(old)},
        runs=names,
        flags=_flags(errors["new"], shares["sham"]),
    )


def _branches(chosen: Mapping[str, Any], steps: int, more: int) -> list[dict[str, Any]]:
    """The fields of the runs of one seed: the first, and what goes on from it."""
    first = {"steps": steps, "leave_out": chosen}
    branch = {"steps": more, "start": first}
    return [
        first,
        {**branch, "freeze": "decoder"},
        {**branch, "freeze": "encoder"},
        branch,
        {**branch, "leave_out": chosen},
    ]


def branch_of(config: TrainConfig) -> str:
    """Which of the BRANCHES a run is: what was trained further in it."""
    if config.start is None:
        return "neither"
    if config.freeze is not None:
        return "encoder" if config.freeze == "decoder" else "decoder"
    assert config.data is not None
    return "both" if config.data.leave_out is None else "sham"


def mean_squared_error(
    autoencoder: Autoencoder, data: Any, *, samples: int = SAMPLES, seed: int = 0
) -> float:
    """The error of reconstructions, per observation and number, in the units the model sees.

    Posterior means are decoded, of up to `samples` observations.
    """
    recording = record(autoencoder, data, samples=samples, seed=seed)
    device, dtype = autoencoder.place
    size, total, numbers = batch_size(recording.data.shape), 0.0, 0
    with evaluation(autoencoder):
        for start in range(0, len(recording), size):
            x = recording.data.batch(slice(start, start + size)).double()
            codes = recording.codes[start : start + size].to(device, dtype)
            decoded = autoencoder.decode(codes).double().cpu()
            if decoded.numel() != x.numel():
                raise InterfaceError(
                    f"mean_squared_error: {autoencoder.title} decodes {tuple(decoded.shape)} for "
                    f"observations of {tuple(x.shape)}. Was it made for other data?"
                )
            total += float((x - decoded.reshape(x.shape)).square().sum())
            numbers += x.numel()
    return total / numbers


def _held_out(
    who: str,
    name: str,
    split: list[float],
    leave_out: Mapping[str, Any],
    samples: int,
    root: str | Path | None,
) -> tuple[Dataset, Dataset, dict[str, list[Any]]]:
    """Held-out observations with and without the left-out values, and these as numbers."""
    text, options = parse_name(name)
    parts = datasets.load(text, root=root, **options).split(split)
    chosen = {}
    for part in parts:  # both must have all of the values
        factors = part.factors_with_kinds
        if factors is None:
            raise DataError(
                f"{who}: {name} has no factors whose values could be left out. Use data with "
                "factors, or name those of your own file: --data-option factors=…"
            )
        chosen = factors.choose(leave_out, who)
        rows = factors.rows_with(chosen)
        if rows.all():
            raise DataError(
                f"{who}: all {len(part):,} observations have a left-out value, so nothing is left "
                "to train on. Leave out fewer values."
            )
    generator = np.random.default_rng(0)
    new, old = (
        parts[1].subset(np.sort(generator.permutation(np.flatnonzero(mask))[:samples]))
        for mask in (rows, ~rows)
    )
    return new, old, chosen


def _in_words(data: Dataset, chosen: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Values of factors by their labels, where they have any."""
    labels = data.factor_labels
    return {k: [labels[k][v] if k in labels else v for v in each] for k, each in chosen.items()}


def _parameters(recipe: dict[str, Any]) -> dict[str, int]:
    """How many weights each half of a model has, and what belongs to neither."""
    built = models.outline(recipe)
    counts = {
        half: sum(p.numel() for module in modules for p in module.parameters())
        for half, modules in built.halves.items()
    }
    return {**counts, "neither": sum(p.numel() for p in built.parameters()) - sum(counts.values())}


def _shares(errors: Mapping[str, list[float]], branch: str) -> list[float | None]:
    return [
        (neither - error) / (neither - both) if neither > both else None
        for neither, error, both in zip(
            errors["neither"], errors[branch], errors["both"], strict=True
        )
    ]


def _mean_share(errors: Mapping[str, list[float]], branch: str) -> float | None:
    """The mean over seeds; None if one of them has no gap to close."""
    shares = [share for share in _shares(errors, branch) if share is not None]
    return sum(shares) / len(shares) if len(shares) == len(errors[branch]) else None


def _flags(errors: Mapping[str, list[float]], sham: float | None) -> list[str]:
    neither, both = _mean(errors["neither"]).value, _mean(errors["both"]).value
    flags = []
    if sham is None:
        flags.append(
            "In some seed the error is no smaller after further training of both halves, so there "
            "is no gap to share out. Train longer with --more, or leave out other values."
        )
    elif neither < WORTH * both:
        flags.append(
            f"The error without the values is only {neither / both:.2g} times that of both halves "
            f"(below {WORTH:g}): leaving them out did little harm, and shares of it mean little."
        )
    if sham is not None and abs(sham) > STILL:
        flags.append(
            f"The sham control, further training on the old values, moved by {sham:.2f} of the "
            "gap: that much is due to more steps. Train longer before the values are added."
        )
    return flags


def _mean(values: list[float]) -> Mean:
    mean = mean_of(values)
    assert mean is not None
    return mean


def _cells(mean: Mean) -> list[str]:
    spread = [f"{mean.low:.3g} to {mean.high:.3g}"] if mean.n > 1 else []
    return [f"{mean.value:.4g}", *spread]
