"""How does alignment depend on β, and which β is right? (figure 3.7, section 3.3.6)

β-VAEs with a range of β: on the linear square (9 values), on the bent square (7), and on sprites of
16 x 16 pixels with 3 factors (7; published: dSprites). Too small a β aligns nothing, too large a β
prunes latents, one after the other; in between the disentanglement score (DS) has a plateau.

On the linear square the optimum is known: latent j is pruned at β = 2 λ_j, twice the variance of
the data along its direction, 1/6 and 2/3 here, and below that the optimum is aligned for every β.
So what small β lack is training time, not regularisation: the three smallest are also trained three
times as long. The published choice there, 1e-4, needs the published 600 epochs.

The source's tip: raise β until the mean variance of some latent is about 1 (here: .95); the best β
is of that order of magnitude. On a plateau the best β is arbitrary, so the distance of that β is
taken from the nearest β whose DS is within .01 of the best.

Zietlow, PhD thesis, Tübingen 2022, section 3.3.6.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zscope.errors import Undefined
from zscope.experiments.beta_choice import Trial, choice_of_beta
from zscope.experiments.studies.grids.pca import (
    BETA_LINEAR,
    BETA_LINEAR_LONGER,
    BETA_NONLINEAR,
    BETA_SPRITES,
)
from zscope.experiments.studies.judging import (
    Claim,
    Control,
    above,
    below,
    claim,
    claim_of_parts,
    mean_interval,
)
from zscope.experiments.studies.rows import Rows, differences, mean_and_sd
from zscope.experiments.studies.shared.pca import DS_NOTE, counts, measure_alignment
from zscope.experiments.studies.study import (
    Figure,
    Results,
    Row,
    Study,
    Table,
    each_run,
    for_groups,
)
from zscope.experiments.studies.trained import Trained

__all__ = ["STUDY"]

PLACES = {"sprites": "sprites", "linear": "linear square", "nonlinear": "bent square"}
CHOSEN = {"sprites": 4.0, "linear": 1e-4, "nonlinear": 1e-3}
"""β of the dashed lines of figure 3.7."""
COLLAPSE = (1 / 6, 2 / 3)
"""β at which the latents of the linear square are pruned: twice the variances 1/12 and 4/12."""
SMALLER = 16
"""At scale small sums over 16 x 16 pixels weigh a sixteenth of those over 64 x 64."""
PRUNED = 0.8  # mean variance from which on a latent is not active, as in chapter 4


def chosen_beta(results: Results, place: str) -> float | None:
    """The β that the source chose, for the size of the pictures."""
    beta = CHOSEN.get(place)
    small = place == "sprites" and results.scale != "paper"
    return beta / SMALLER if beta is not None and small else beta


def measure(run: Trained) -> dict[str, Any]:
    own = measure_alignment(run, scores=["predictability-gap"])
    own["ds"] = own.pop("predictability-gap")
    own["count"] = sum(each < PRUNED for each in own["variances"])
    return own


def search(runs: Sequence[Trained]) -> dict[str, Any]:
    """The rule of the source for one seed: raise β until a latent is no longer used."""
    by_beta = {float(run["beta"]): run for run in runs}

    def evaluate(beta: float) -> Trial:
        run = by_beta[beta]
        recording = run.recording(samples=400 if run.tiny else 5_000)
        score = run.scores("predictability-gap", recording=recording)["predictability-gap"]
        return Trial(recording.posterior, score=score or 0.0)

    answer: dict[str, Any] = {"group": runs[0].group, "seed": runs[0].seed}
    try:
        result = choice_of_beta(evaluate, list(by_beta), needed=1, beyond=len(by_beta))
    except Undefined:
        return answer
    scores = result.scores or []
    best = [b for b, score in zip(result.betas, scores, strict=True) if score > max(scores) - 0.01]
    apart = None
    if result.onset is not None and best:
        apart = min(abs(math.log10(result.onset / beta)) for beta in best)
    return {**answer, "onset": result.onset, "best": best, "apart": apart}


def claims(results: Results) -> Iterator[Claim]:
    linear, longer = results.rows("linear"), results.rows("longer")
    plateau = {
        seed: float(sum(row["ds"] > 0.95 for row in rows if row.get("ds") is not None))
        for seed, rows in linear.by("seed").items()
        if any(row.get("ds") is not None for row in rows)
    }
    yield claim(
        "C-F3.7", "c1", "on the linear square DS has a plateau near 1", source="section 3.3.6",
        published="reaches almost 1.0 and forms a plateau, figure only", expect=above(1.5),
        values=plateau, statistic="number of β with a DS above .95, per seed (2 are asked for)",
    )  # fmt: skip
    known = Rows(row for row in linear if row.get("count") is not None)
    yield claim(
        "C-F3.7", "c2", "beyond it the latent space collapses in discrete stages",
        source="section 3.3.6", published="in discrete stages, figure only", expect=above(0.99),
        values={
            seed: float(np.mean([row["count"] == _remaining(row["beta"]) for row in rows]))
            for seed, rows in known.by("seed").items()
        },
        statistic="share of β with as many active latents as the closed form: 2 below 1/6, 1 below "
        "2/3, none above",
    )  # fmt: skip
    parts = []
    units = [unit for unit in results.units("search").values() if unit]
    for place, title in PLACES.items():
        own = [unit for unit in units if unit.get("group") == place]
        onsets = sorted({unit["onset"] for unit in own if unit.get("onset") is not None})
        parts.append(claim(
            "C-F3.7", title, f"on the {title}", source="section 3.3.6", expect=below(1),
            published="likely in that order of magnitude",
            values={unit["seed"]: unit.get("apart") for unit in own},
            statistic="decades between the first β with a mean variance of .95 (over seeds: "
            + (", ".join(f"{onset:g}" for onset in onsets) or "none") + ") and the nearest β "
            "whose DS is within .01 of the best",
        ))  # fmt: skip
    yield claim_of_parts(
        "C-F3.7", "c3", "the β at which the first latent is pruned is within a decade of the best",
        parts, source="section 3.3.6", published="likely in that order of magnitude, no numbers",
    )  # fmt: skip
    weak = sorted({row["beta"] for row in longer})
    short = linear.where(beta=weak)
    start = mean_interval(short.where(beta=weak[:1]).values("dto")) if weak else None
    yield claim(
        "C-F3.7", "c4", "small β lack training time, not regularisation: DtO falls with three "
        "times the steps", source="ours", ours=True,
        published="for too small β the effect of the KL term is negligible", expect=below(0),
        values=differences(longer, short, "dto"),
        presupposes="longer runs are made at scale small only" if results.scale == "paper" else "",
        statistic="DtO after 36,000 steps minus DtO after 12,000, mean over β "
        + ", ".join(f"{beta:g}" for beta in weak),
        controls=[Control("at the smallest β 12,000 steps leave something to align (DtO above .05)",
                          None if start is None else start.low > 0.05, f"DtO {start}")],
    )  # fmt: skip


def _remaining(beta: float) -> int:
    """How many latents the closed form keeps on the linear square."""
    return int(sum(limit > beta for limit in COLLAPSE))


def tables(results: Results) -> Iterator[Table]:
    header = ["data", "β", "steps", "DS", "DtO", "active latents", "largest mean variance", "seeds"]
    cells = [header]
    for place, title in {**PLACES, "longer": "linear square, longer"}.items():
        for beta, rows in results.rows(place).by("beta").items():
            largest = [max(row["variances"]) for row in rows if row.get("variances")]
            marked = f"{beta:g}" + (" (published)" if chosen_beta(results, place) == beta else "")
            length = f"{rows[0]['steps']:,}" if "steps" in rows[0] else (
                f"{rows[0]['epochs']} epochs")  # fmt: skip
            cells.append([
                title, marked, length, mean_and_sd(rows.values("ds")),
                mean_and_sd(rows.values("dto")), counts(rows, "count"), mean_and_sd(largest),
                str(len(rows)),
            ])  # fmt: skip
    yield Table(
        "figure-3.7", "DS and DtO over β (figure 3.7)", cells, left=2, row="C-F3.7",
        notes=["Mean ± standard deviation over seeds. Active: mean variance below .8. DtO needs "
               "two latents in use. Published: chosen for the experiments"
               + ("" if results.scale == "paper" else "; for sprites divided by 16, as dSprites "
                  "of the source have 16 times the pixels") + ". " + DS_NOTE],
    )  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import lines_over, panel_grid
    from zscope.plots.theme import GREY

    figure, grid = panel_grid(3, 3, height=6.0, sharex="col")
    for column, (place, title) in enumerate(PLACES.items()):
        rows, longer = results.rows(place), results.rows("longer")
        for line, (key, name) in enumerate((("ds", "DS"), ("dto", "DtO"), ("count", "latents"))):
            ax = grid[line][column]
            series = {"": {beta: own.values(key) for beta, own in rows.by("beta").items()}}
            if place == "linear" and key != "count" and longer:
                series = {"12,000 steps": series[""]}
                series["36,000 steps"] = {
                    b: own.values(key) for b, own in longer.by("beta").items()
                }
            lines_over(series, x="β" if line == 2 else "", y=name if column == 0 else "",
                       title=title if line == 0 else "", ax=ax)  # fmt: skip
            ax.set_xscale("log")
            ax.axvline(
                chosen_beta(results, place),
                color=GREY,
                linewidth=0.8,
                linestyle=(0, (4, 3)),
                zorder=1,
            )
            if place == "linear" and key == "count":
                at = np.logspace(-4, 0.1, 300)
                ax.plot(at, [_remaining(beta) for beta in at], color=GREY, linewidth=1, zorder=1)
            if key == "count":
                most = max((row.get("latents") or 0 for row in rows), default=2)
                ax.set_yticks(range(most + 1))
            if key == "ds" and ax.get_legend() is not None:
                ax.get_legend().remove()  # it covers the line, and the panel below has it
            low = -0.1 if key == "count" else 0
            ax.set_ylim(low, 1.02 if key == "ds" else None)
    yield Figure(
        "figure-3.7", "Disentanglement score, distance to orthogonality and active latents over β: "
        "mean and a point for each seed. Dashed: the β chosen in the source"
        + ("" if results.scale == "paper" else ", for sprites divided by 16, as they have a "
           "sixteenth of the pixels") + ". Grey: the closed form of the linear square.",
        figure, row="C-F3.7",
    )  # fmt: skip


STUDY = Study(
    name="pca-beta-search",
    minutes=6,
    own_minutes=5,
    document="C",
    title="How does alignment depend on β, and which β is right?",
    rows=(Row("C-F3.7", "figure 3.7", "DS and DtO over β"),),
    grids={
        "sprites": BETA_SPRITES, "linear": BETA_LINEAR, "nonlinear": BETA_NONLINEAR,
        "longer": BETA_LINEAR_LONGER,
    },
    measures=(
        each_run(measure),
        for_groups(search, "data", "seed", groups=("sprites", "linear", "nonlinear")),
    ),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="The β, the margin of .01 and the limits .95 for DS and for the mean variance.",
)  # fmt: skip
