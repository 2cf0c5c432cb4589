"""What the studies of interventional consistency measure of a run, and the controls they share.

Scores are those of `interventional-consistency` with 16 interventions on 256 vectors. Collapsed
units score high for doing nothing, so each mean is taken twice: over the units that respond
("hybrid"), which is judged, and over all units ("all hybrid"), as in the paper.

"On the interventional consistency of autoencoders", ICLR 2021 submission.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from zscope.assays.engine import decode
from zscope.errors import Undefined
from zscope.experiments.studies.judging import Control, mean_interval
from zscope.experiments.studies.rows import Rows
from zscope.experiments.studies.study import Results
from zscope.experiments.studies.trained import Trained
from zscope.recording import Recording
from zscope.results import counted

__all__ = ["NAMES", "PUBLISHED_WEIGHT", "collapse_control", "controls", "is_first", "label",
           "lines_of", "mean_and_interval", "measure_scores", "measure_traversals",
           "measure_untrained", "models", "of_size", "pictures", "weight"]  # fmt: skip

PUBLISHED_WEIGHT = 4.0
STANDARD = "consistency-2021"
NAMES = {"vae": "VAE", "avae": "AVAE", "sae-6": "SAE", "xsae-6": "XSAE", "xcsae-6-i": "XCSAE-I",
         "xcsae-6-e": "XCSAE-E", "sae-12": "SAE", "xsae-12": "XSAE", "xcsae-12-i": "XCSAE-I",
         "xcsae-12-e": "XCSAE-E"}  # fmt: skip
"""SAEs have a variable for each latent: 6 of size S, 12 of size Standard."""


def measure_scores(run: Trained) -> dict[str, Any]:
    """All scores of the trained model, with their chance levels, and the error of its pictures."""
    result: Any = run.assay("interventional-consistency", **_amount(run))
    recording = run.recording()
    decoded = decode(run.model, recording.codes)
    scores = result.self_consistency
    return {
        **_means(result.means),
        **{f"all {key}": value for key, value in _means(result.means_with_collapsed).items()},
        **{f"chance {key}": value for key, value in _means(result.chance).items()},
        "collapsed": len(result.collapsed),
        "error": float((decoded - recording.observations).square().mean()),
        "units": {name: levels[-1].tolist() for name, levels in scores.items()},
        "invariances": result.invariance.tolist(),
        "unresponsive": list(result.collapsed),
    }


def measure_untrained(run: Trained) -> dict[str, Any]:
    """The same scores before training, over units that respond: doing nothing is invariant."""
    recording = run.recording(run.untrained, samples=1_000)
    try:
        result: Any = run.assay("interventional-consistency", recording, **_amount(run))
    except Undefined:
        return {}
    responding = len(result.groups) - len(result.collapsed)
    means = _means(result.means)
    return {"responding": responding} | {f"untrained {key}": v for key, v in means.items()}


def measure_traversals(run: Trained) -> dict[str, Any]:
    """Errors along traversals of the means of 12 digits, over the whole range of the codes.

    Means, because a draw of a collapsed latent is an error of its own, which the paper's figures
    do not show: there it is 0 unless that latent is moved.
    """
    count, steps = (4, 5) if run.tiny else (12, 11)

    def traverse(recording: Recording) -> Any:
        base = recording.codes[:count]
        return run.assay("traversal-responses", recording, range=1.0, base=base, steps=steps)

    recording = run.recording()
    result = traverse(recording)
    before = traverse(run.recording(run.untrained, samples=1_000))
    values: dict[str, Any] = {
        "untouched": _off_diagonal(result.relative_error),
        "moved": float(result.relative_error.diagonal().mean()),
        "absolute untouched": result.untouched,
        "absolute moved": result.moved,
        "untrained untouched": _off_diagonal(before.relative_error),
        "untrained moved": float(before.relative_error.diagonal().mean()),
    }
    if is_first(run):
        # In standard deviations of the observed latent, one byte a number: figures need no more.
        relative = result.error / result.scale.clamp_min(1e-9)
        largest = relative.abs().amax((0, 1, 2)).clamp_min(1e-9)
        last = recording.latents - 1
        codes = result.base[:4, None].repeat(1, result.values.shape[1], 1)
        codes[:, :, last] = result.values[last]
        film = decode(run.model, codes.flatten(0, 1)).unflatten(0, codes.shape[:2])
        values |= {
            "lines": (relative / largest * 127).round().to(torch.int8).numpy(),
            "unit": (largest / 127).tolist(),
            "values": result.values.tolist(),
            "film": pictures(film),
        }
    return values


def _amount(run: Trained) -> dict[str, Any]:
    if run.tiny:
        return {"interventions": 2, "samples": 24}
    return {"interventions": 16, "samples": 256}


def _means(means: dict[str, float]) -> dict[str, float]:
    """Short names: "hybrid" for "self-consistency (hybrid)"."""
    return {key.removeprefix("self-consistency (").rstrip(")"): v for key, v in means.items()}


def _off_diagonal(matrix: torch.Tensor) -> float:
    count = len(matrix) * (len(matrix) - 1)
    return float((matrix.sum() - matrix.trace()) / count)


def pictures(values: torch.Tensor) -> np.ndarray:
    """Pictures of values from 0 to 1 with 10 levels a channel, which make small files.

    Grey ones have no axis for their channel.
    """
    levels = (values.clamp(0, 1) * 9).round() * 28
    return levels.to(torch.uint8).squeeze(-3).cpu().numpy()


def is_first(run: Trained) -> bool:
    """Whether the run has the first seed, whose figures are shown."""
    return run.seed == min(other.seed for other in run.among.select(model=run["model"]))


def weight(row: Any) -> float | None:
    """The weight of the penalty; None of a model without one."""
    name = str(row["model"])
    if not name.removeprefix("x").startswith("c"):
        return None
    return float(row.get("consistency_weight") or PUBLISHED_WEIGHT)


def label(row: Any) -> str:
    """The name of the model as the paper writes it, with the weight of its penalty."""
    name, factor = str(row["model"]), weight(row)
    name = NAMES.get(name, name.upper())
    return name if factor is None else f"{name} λ={factor:g}"


def of_size(results: Results, *groups: str, standard: bool = False) -> Rows:
    """Runs of size S (at scale small: the only ones) or Standard, with `label` and `weight`."""
    rows = Rows()
    for row in results.rows(*groups):
        if (row.get("preset") == STANDARD) == standard:
            rows.append({**row, "label": label(row), "weight": weight(row)})
    return rows


def models(rows: Rows) -> dict[str, Rows]:
    """The rows of each model, in the order in which they were planned."""
    return {name: rows.where(label=name) for name in dict.fromkeys(row["label"] for row in rows)}


def lines_of(rows: Rows) -> dict[str, Any] | None:
    """The stored traversals of the first seed: values, errors (in sd) and pictures."""
    for row in rows:
        if row.get("lines") is not None:
            errors = np.asarray(row["lines"], dtype=float) * np.asarray(row["unit"])
            own = {"values": np.asarray(row["values"]), "errors": errors, "seed": row["seed"]}
            return own if "film" not in row else own | {"film": np.asarray(row["film"]) / 255}
    return None


def controls(treated: Rows, plain: Rows, key: str, names: tuple[str, str]) -> list[Control]:
    """A rise of a score counts only above untrained and unrelated codes, and without collapse.

    `names` are what the two models that are compared are called.
    """
    own = mean_interval(treated.values(key))
    score = key if key.endswith("variance") else f"self-consistency ({key})"
    answer = []
    kinds = (("untrained", "the untrained model, if that has one"),
             ("chance", "responses of other codes"))  # fmt: skip
    for kind, words in kinds:
        other = mean_interval(treated.values(f"{kind} {key}"))
        passed = None if own is None or other is None else own.low > other.high
        measured = f"{own}; {other}"
        if kind == "untrained" and other is None and treated.values("responding"):
            # Its score is undefined: there is nothing that training could have inherited.
            passed, measured = True, "before training fewer than two units respond"
        sentence = f"the {score} of the {names[0]} is above that of {words}"
        answer.append(Control(sentence, passed, measured))
    return [*answer, collapse_control(treated, plain, names)]


def collapse_control(
    first: Rows, second: Rows, names: tuple[str, str], equal: bool = False
) -> Control:
    """That no more units collapse in the first (or `equal`: as many), in the seeds of both."""
    sentence = f"no more units collapse in the {names[0]} than in the {names[1]}"
    if equal:
        sentence = f"as many units collapse in the {names[0]} as in the {names[1]}"
    one, two = first.per_seed("collapsed"), second.per_seed("collapsed")
    seeds = one.keys() & two.keys()
    if not seeds:
        return Control(sentence, None)
    own, other = (round(sum(each[seed] for seed in seeds)) for each in (one, two))
    passed = own == other if equal else own <= other
    return Control(sentence, passed, f"{own} and {other} in the same {counted(len(seeds), 'seed')}")


def mean_and_interval(values: Sequence[float] | Iterable[float], digits: int = 3) -> str:
    """The mean over seeds with its 95 % interval."""
    interval = mean_interval(list(values))
    if interval is None:
        return ""
    if interval.n == 1:
        return f"{interval.value:.{digits}f}"
    half = max(interval.high - interval.value, interval.value - interval.low)
    return f"{interval.value:.{digits}f} ± {half:.{digits}f}"
