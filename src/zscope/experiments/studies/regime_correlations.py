"""Correlations over training: since when do passive latents correlate with others?

A β-VAE with β = 8 is followed over 6,000 steps, every 100 (published: one model, 300,000 steps,
every 1,000). Types are those at the end. Counted is at how many snapshots some correlation of a
latent's means exceeds .2, and how much the correlations vary over time.

Every latent correlates with others before it has a type, because an encoder begins with random
weights. So the variation is compared with that of the same latents before they became passive. An
active latent is counted as well where a passive one correlates with it, so counts of both are high.

Bonheme, PhD thesis, Kent 2023: section 6.5.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zscope.assays.regime.tracking import correlation_tracking
from zscope.assays.regime.types import variable_types
from zscope.experiments.studies.grids.regime import TRACKED
from zscope.experiments.studies.judging import Claim, above, claim
from zscope.experiments.studies.rows import mean_and_sd
from zscope.experiments.studies.shared.polarised import (
    COLOURS,
    apart,
    per_seed,
    recorded,
)
from zscope.experiments.studies.study import Figure, Results, Row, Study, Table, each_run
from zscope.experiments.studies.trained import Trained

__all__ = ["STUDY"]

THRESHOLD = 0.2
FEW = 3
"""Snapshots of which a spread over time is computed at least."""


def measure(run: Trained) -> dict[str, Any]:
    steps = [step for step in run.stages if step > 0]
    codes, passive = [], []
    for step in steps:
        recording = recorded(run, run.at(step))
        codes.append(recording.codes.double())
        passive.append(variable_types(recording.variances).passive)
    types = variable_types(recorded(run).variances)
    tracking = correlation_tracking(codes, threshold=THRESHOLD)
    return {
        "stages": steps,
        "types": types.labels,
        "counts": tracking.counts,
        "since": {str(j): _since(passive, j) for j in types.passive},
        "correlations": tracking.correlations.numpy(),
    }


def _since(passive: list[list[int]], latent: int) -> int:
    """The first snapshot from which on the latent is passive."""
    since = len(passive)
    while since > 0 and latent in passive[since - 1]:
        since -= 1
    return since


# Claims


def claims(results: Results) -> Iterator[Claim]:
    rows = results.rows("tracked")
    yield claim(
        "D-F6.10", "c1", "passive latents correlate with others more often than active ones",
        source="figure 6.10, section 6.5",
        published="passive: latents 1, 4, 6; mixed: 0, 3, 8; counts only in a figure",
        statistic=f"share of snapshots where some |ρ| > {THRESHOLD}: mean of passive minus active "
        "latents, in one model", expect=above(0), values=per_seed(rows, _counts),
    )  # fmt: skip
    effect = per_seed(rows, lambda row: _fluctuation(row, "whole"))
    before = per_seed(rows, lambda row: _fluctuation(row, "before"))
    yield claim(
        "D-F6.11", "c1", "correlations of an active latent with passive ones vary during training, "
        "those with other active ones hardly", source="figure 6.11, section 6.5", expect=above(0),
        statistic="sd over snapshots of ρ between active and passive latents minus between active "
        "ones", values=effect,
        controls=[apart("before passive latents became passive, their correlations with active "
                        "ones vary less", effect, before)],
    )  # fmt: skip
    yield claim(
        "D-F6.11", "c2", "and they still do once the latents are passive", source="ours", ours=True,
        statistic="the same over the snapshots since each latent is passive", expect=above(0),
        published="not in the source", values=per_seed(rows, lambda r: _fluctuation(r, "after")),
    )  # fmt: skip


def _counts(row: Mapping[str, Any]) -> float | None:
    pairs = list(zip(row.get("types") or [], row.get("counts") or [], strict=False))
    means = [[count for label, count in pairs if label == kind] for kind in ("passive", "active")]
    if not all(means):
        return None
    return float((np.mean(means[0]) - np.mean(means[1])) / len(row["stages"]))


def _fluctuation(row: Mapping[str, Any], when: str) -> float | None:
    """sd over time of ρ between active and passive latents minus that between active ones.

    Over the whole training, or for each passive latent before or after it became passive; the
    active ones over the same snapshots.
    """
    labels = row.get("types") or []
    active = [j for j, label in enumerate(labels) if label == "active"]
    if len(active) < 2 or "passive" not in labels:
        return None
    matrix = np.asarray(row["correlations"], dtype=float)
    values = []
    for latent, since in row["since"].items():
        part = {"whole": slice(None), "before": slice(0, since), "after": slice(since, None)}[when]
        if len(matrix[part]) < FEW:
            continue
        spread = matrix[part].std(0)
        among = spread[np.ix_(active, active)][~np.eye(len(active), dtype=bool)]
        values.append(float(spread[active, int(latent)].mean() - among.mean()))
    return float(np.mean(values)) if values else None


# Tables and figures


def _steps(results: Results) -> str:
    return ", ".join(f"{steps:,}" for steps in results.rows("tracked").by("steps"))


def tables(results: Results) -> Iterator[Table]:
    cells = [["seed", "type", "latents", f"share of snapshots with |ρ| > {THRESHOLD}",
              "passive since step"]]  # fmt: skip
    for row in results.rows("tracked"):
        for kind in ("passive", "mixed", "active"):
            own = [j for j, label in enumerate(row.get("types") or []) if label == kind]
            if own:
                since = [row["since"].get(str(j)) for j in own]
                steps = [row["stages"][min(k, len(row["stages"]) - 1)] for k in since
                         if k is not None]  # fmt: skip
                cells.append([
                    str(row["seed"]), kind, ", ".join(map(str, own)),
                    mean_and_sd([row["counts"][j] / len(row["stages"]) for j in own]),
                    ", ".join(f"{step:,}" for step in steps),
                ])  # fmt: skip
    yield Table("correlations", "How often latents correlate with others, by their final type",
                cells, left=3, row="D-F6.10",
                notes=["Mean ± standard deviation over the latents of one model, β = 8, "
                       f"{_steps(results)} steps. The counts of figure 6.10 are not "
                       "printed."])  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import legend_below, panel_grid

    rows = [row for row in results.rows("tracked") if row.get("types")]
    if not rows:
        return
    figure, grid = panel_grid(2, 3, width=8.4, height=4.2, sharey=True)
    for ax, row in zip(grid.flat, rows, strict=False):
        for j, (label, count) in enumerate(zip(row["types"], row["counts"], strict=True)):
            first = row["types"].index(label) == j
            ax.bar(j, count, 0.75, color=COLOURS[label], label=label if first else None)
        ax.set(xlabel="latent", xticks=range(len(row["types"])))
        ax.set_title(f"seed {row['seed']}", fontsize=9)
    for ax in list(grid.flat)[len(rows) :]:
        ax.set_axis_off()
    for line in grid:
        line[0].set_ylabel(f"snapshots with |ρ| > {THRESHOLD}")
    legend_below(figure, grid)
    yield Figure(
        "figure-6.10", f"Of {len(rows[0]['stages'])} snapshots: at how many some correlation of a "
        "latent's means with another exceeds .2. Colours are the types at the end.", figure,
        row="D-F6.10",
    )  # fmt: skip
    able = [row for row in rows if row["types"].count("active") > 1 and "passive" in row["types"]]
    if not able:
        return
    shown = next((row for row in able if "mixed" in row["types"]), able[0])
    kinds = [kind for kind in ("passive", "mixed", "active") if kind in shown["types"]]
    matrix = np.asarray(shown["correlations"], dtype=float)
    chosen = shown["types"].index("active")
    figure, grid = panel_grid(1, len(kinds), width=2.8 * len(kinds), height=2.7, sharey=True)
    for ax, kind in zip(grid[0], kinds, strict=True):
        others = [j for j, label in enumerate(shown["types"]) if label == kind and j != chosen]
        for k, j in enumerate(others):
            ax.plot(shown["stages"], matrix[:, chosen, j], color=COLOURS[kind], linewidth=0.9,
                    alpha=1 - 0.6 * k / max(1, len(others)))  # fmt: skip
        ax.axhline(0, color="#222222", linewidth=0.5)
        ax.set(ylim=(-1, 1), xlabel="step")
        ax.set_title(f"with {len(others)} {kind} latents", fontsize=9)
    grid[0][0].set_ylabel(f"ρ of active latent {chosen}")
    yield Figure(
        "figure-6.11", f"Correlation of the means of one active latent (seed {shown['seed']}: the "
        "first with all types) with all others over training, by the type of the other at the end.",
        figure, row="D-F6.11",
    )  # fmt: skip


STUDY = Study(
    name="regime-correlations",
    document="D",
    title="Since when do passive latents correlate with others?",
    rows=(
        Row("D-F6.10", "figure 6.10", "how often each latent correlates with another"),
        Row("D-F6.11", "figure 6.11", "correlations of one active latent over training"),
    ),
    grids={"tracked": TRACKED},
    measures=(each_run(measure),),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    minutes=1.4,
    chosen="Threshold .2 as published; 60 snapshots instead of 300. A spread over time needs three "
    "snapshots. All fixed before the first run.",
)
