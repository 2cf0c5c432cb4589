"""Can another strength restore what the change has removed? (figures 4.4 to 4.7)

The strength of each VAE is multiplied by .75 to 2, and it is trained on the changed rooms of the
study pca-perturbed-rooms. As in the source, runs with fewer latents in use than there are factors
are left out: they are over-pruned, and their scores cannot be compared.

    β-VAE                        x .75, 1, 1.25, 1.5, 2, on changed and (ours) on original data
    TC-VAE, FactorVAE, SlowVAE   x .75, 1, 2 on changed, x 1 on original data

3 latents, 64-64 units, 3,000 steps, 6 seeds (published: Shapes3D, 6 latents, convolutional,
300,000 steps, 10 restarts, all strengths for all models).

Asked: whether the score at every strength stays below that of the original data at strength 1, and
whether scores recover only with over-pruning. A score that falls with the strength on the original
data too would fall without any change: that is what the β-VAEs on original data control for.

Zietlow, PhD thesis, Tübingen 2022, section 4.3.4.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zscope.experiments.studies.grids.perturbed import (
    ROOM_CHANGED,
    ROOM_MADE,
    ROOM_STRENGTHS,
    ROOM_SWEEP,
)
from zscope.experiments.studies.judging import (
    ENOUGH,
    Claim,
    Control,
    above,
    below,
    claim,
    claim_of_parts,
    mean_interval,
)
from zscope.experiments.studies.rows import Rows, correlation, differences, mean_and_sd
from zscope.experiments.studies.shared.pca import counts
from zscope.experiments.studies.shared.perturbed import (
    MODELS,
    SCORES,
    VAES,
    add_versions,
    measure_scores,
)
from zscope.experiments.studies.study import Figure, Results, Row, Study, Table, each_run

__all__ = ["STUDY"]

FIGURES = {
    "mig": Row("C-F4.4", "figure 4.4", "MIG over scaled strengths, changed Shapes3D"),
    "dci": Row("C-F4.5", "figure 4.5", "DCI over scaled strengths, changed Shapes3D"),
    "factor-vae-score": Row(
        "C-F4.6", "figure 4.6", "FactorVAE score over scaled strengths, changed Shapes3D"
    ),
    "sap": Row("C-F4.7", "figure 4.7", "SAP over scaled strengths, changed Shapes3D"),
}


def strength_of(row: Mapping[str, Any]) -> float:
    """The strength of a run in units of that of table 4.1."""
    model = row["model"]
    own = row["alpha"] if model == "factor-vae" else row["beta"]
    return float(round(own / ROOM_STRENGTHS[model], 3))


def _rows(results: Results) -> Rows:
    """All runs, with strength, and whether they use fewer latents than they have."""
    rows = add_versions(results.rows("sweep"))
    return Rows(
        {**row, "strength": strength_of(row), "pruned": float(row["active"] < row["latents"])}
        for row in rows
        if row.get("active") is not None
    )


def claims(results: Results) -> Iterator[Claim]:
    rows = _rows(results)
    for key, figure_row in FIGURES.items():
        row, source = figure_row.id, figure_row.source
        title = SCORES[key].title
        parts, recovery, left_out = [], [], []
        for model in VAES:
            own = rows.where(model=model)
            reference = own.where(version="original", strength=1.0, pruned=0.0)
            changed = own.where(version="changed")
            for strength, part in changed.by("strength").items():
                kept = part.where(pruned=0.0)
                if len(kept) < ENOUGH:
                    left_out.append(f"{MODELS[model]} × {strength:g}")
                    continue
                parts.append(claim(
                    row, f"{MODELS[model]} × {strength:g}", "stays below the original",
                    source=source, expect=below(0), values=differences(kept, reference, key),
                    statistic=f"{title} on changed minus original data at strength 1, same seed",
                    controls=_controls(own, kept, key, strength),
                ))  # fmt: skip
            pruned = int(sum(changed.values("pruned")))
            recovery.append(claim(
                row, MODELS[model], "over-pruned runs score higher", source="section 4.3.4",
                expect=above(0), values=correlation(changed, key, "pruned"),
                presupposes="" if 0 < pruned < len(changed) else
                f"{pruned} of {len(changed)} runs are over-pruned",
                statistic=f"Spearman correlation of {title} and over-pruning over runs on changed "
                f"data; {pruned} of {len(changed)} over-pruned",
            ))  # fmt: skip
        yield claim_of_parts(
            row, "c1", f"{title} stays below that of the original data at every strength", parts,
            source=f"section 4.3.4, {source}", published="mostly robust, figure only",
            statistic=f"of strengths at which {ENOUGH} runs or more use all latents"
            + (f"; left out: {', '.join(left_out)}" if left_out else ""),
        )  # fmt: skip
        yield claim_of_parts(
            row, "c2", f"on changed data over-pruned runs have a higher {title}", recovery,
            source="section 4.3.4", published="recovery starts only with over-pruning, no numbers",
            needs="strengths at which some runs are over-pruned and others are not",
        )  # fmt: skip


def _controls(own: Rows, kept: Rows, key: str, strength: float) -> list[Control]:
    """For models that have it: on the original data, the score is higher at this strength too."""
    if strength == 1.0 or not own.where(version="original", strength=strength):
        return []
    same = own.where(version="original", strength=strength, pruned=0.0)
    interval = mean_interval(list(differences(kept, same, key).values()))
    return [
        Control(f"{SCORES[key].title} on changed data is lower than on original data at the same "
                "strength", None if interval is None else interval.high < 0, str(interval))
    ]  # fmt: skip


def tables(results: Results) -> Iterator[Table]:
    rows = _rows(results)
    titles = [SCORES[key].title for key in FIGURES]
    cells = [["model", "data", "strength", *titles, "latents in use", "over-pruned",
              "reconstruction"]]  # fmt: skip
    for model in VAES:
        for version in ("original", "changed"):
            own = rows.where(model=model, version=version)
            for strength, part in own.by("strength").items():
                kept = part.where(pruned=0.0)
                cells.append([
                    MODELS[model], version, f"× {strength:g}",
                    *(mean_and_sd(kept.values(key)) for key in FIGURES), counts(part),
                    f"{len(part) - len(kept)} of {len(part)}",
                    mean_and_sd(part.values("reconstruction"), 1),
                ])  # fmt: skip
    yield Table(
        "strengths", "Scores over scaled strengths (figures 4.4 to 4.7)", cells, left=2,
        row="C-F4.4",
        notes=["Mean ± standard deviation over the runs that are not over-pruned; latents in use "
               "and reconstruction loss (last batch, nats; SlowVAE: of a pair) of all runs."],
    )  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import panel_grid
    from zscope.plots.theme import GREY, categories
    from zscope.plots.theme import title as set_title

    rows = _rows(results)
    colours = dict(zip(VAES, categories(len(VAES)), strict=True))
    for key, figure_row in FIGURES.items():
        row, source = figure_row.id, figure_row.source
        title = SCORES[key].title
        figure, grid = panel_grid(
            2, len(VAES), width=7.4, height=3.4, sharey="row", height_ratios=(3, 1)
        )
        for place, model in enumerate(VAES):
            upper, lower = grid[:, place]
            own = rows.where(model=model)
            reference = own.where(version="original", strength=1.0, pruned=0.0).values(key)
            if reference:
                upper.axhline(np.mean(reference), color=GREY, linewidth=0.9, linestyle=(0, (4, 3)),
                              label="original, × 1")  # fmt: skip
            levels = own.where(version="changed").by("strength")
            for number, part in enumerate(levels.values()):
                values = part.where(pruned=0.0).values(key)
                if len(set(values)) > 1:
                    body = upper.violinplot([values], [number], widths=0.75, showextrema=False)
                    for shape in body["bodies"]:
                        shape.set(facecolor=colours[model], alpha=0.3, edgecolor="none")
                upper.scatter([number] * len(values), values, s=8, color=colours[model],
                              linewidths=0, zorder=3)  # fmt: skip
                lower.bar(number, np.mean(part.values("pruned")), 0.6, color=colours[model])
            for ax in (upper, lower):
                ax.set_xlim(-0.6, len(levels) - 0.4)
            upper.set_xticks(range(len(levels)), [])
            lower.set_xticks(range(len(levels)), [f"{s:g}" for s in levels])
            lower.set(ylim=(0, 1), xlabel="strength ×")
            set_title(upper, MODELS[model])
        grid[0][0].set_ylabel(title)
        grid[1][0].set_ylabel("pruned")
        if grid[0][0].get_legend_handles_labels()[0]:
            grid[0][0].legend(fontsize=6, frameon=False)
        yield Figure(
            source.replace(" ", "-"),
            f"{title} of VAEs on changed rooms over scaled strengths, without over-pruned runs; "
            "dashed: mean on the original data at strength 1. Below: share of over-pruned runs.",
            figure, row=row,
        )  # fmt: skip


STUDY = Study(
    name="pca-perturbed-sweep",
    minutes=16,
    own_minutes=12,
    document="C",
    title="Can another strength restore what the change has removed?",
    rows=tuple(FIGURES.values()),
    grids={"sweep": ROOM_SWEEP},
    made={ROOM_MADE: ROOM_CHANGED},
    measures=(each_run(measure_scores),),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="Strengths 1 as in pca-perturbed-rooms; over-pruned as published: fewer latents with a "
    "mean variance below 0.8 than factors.",
)
