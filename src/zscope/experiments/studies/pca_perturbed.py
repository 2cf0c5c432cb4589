"""Does a change that nobody sees remove the disentanglement? Sprites (tables 4.2 to 4.5)

If a VAE disentangles because the factors happen to be the directions in which data vary most
locally, then a small change of the data that turns those directions must remove it. The source
trains a network against a pair of β-VAEs, one that disentangles and one that does not: it moves
every pixel by at most ε = 0.1 such that the entangled one becomes cheaper. Then all models are
trained again on the changed data.

    data      384 pictures of 16 x 16 pixels, 3 factors (published: dSprites, 64 x 64, 5 factors)
    models    3 latents, 64-64 units, 3,000 steps, 8 seeds (published: 5 latents, convolutional,
              300,000 steps, 10 seeds)
    change    10 restarts, one pair, 1,500 rounds with rate 1e-3

The source compares with noise of equal ε, whose variance differs from that of the change. Ours are
four more controls: noise of equal variance, the network before it is trained, a background that
follows one factor (a change of equal variance that turns nothing), and a background that turns the
directions by construction. If a background that turns nothing lowers the scores as much as the
change, the change is no evidence for turned directions (P4).

Figure 4.1 needs no training: a plane with ripples has turned directions although they add almost no
variance.

Beware: runs that leave latents unused score low (or high) for that reason alone, so comparisons
with noise are of pairs with equally many in use. One game makes one change: its interval is over
rounds, not over games. The weakly supervised GAN is not in zscope.

Zietlow, PhD thesis, Tübingen 2022, chapter 4; Zietlow, Rolinek & Martius, ICML 2021.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zscope import data as datasets
from zscope.assays.alignment.dataset_alignment import dataset_alignment
from zscope.data.square import wave, wave_jacobian
from zscope.experiments.studies.grids.perturbed import (
    SPRITE_CHANGED,
    SPRITE_MADE,
    SPRITES,
    SPRITES_WEAKER,
)
from zscope.experiments.studies.judging import (
    Claim,
    Control,
    Interval,
    above,
    claim,
    claim_of_parts,
)
from zscope.experiments.studies.shared.perturbed import (
    World,
    describe_versions,
    judge_change,
    judge_scores,
    measure_scores,
    plot_change,
    plot_scores,
    tabulate_change,
    tabulate_scores,
)
from zscope.experiments.studies.study import Figure, Results, Row, Study, Table, each_run, once
from zscope.experiments.studies.trained import Trained

__all__ = ["STUDY"]

WORLD = World("sprites", "dSprites", 3)
WAVES = ((0.0, 10), (0.1, 10), (0.1, 40), (0.05, 80))
"""ε and k of x = (2 w1, w2, ε sin k (w1 + w2))."""
CLOSE = 0.02  # DtO of the data and in closed form: the grid has finite steps
SMALL_SHARE = 0.02  # of the variance
SHOWN = 9


def measure_waves(_: Sequence[Trained]) -> dict[str, Any]:
    """DtO of the rippled plane: from its points, and from its derivatives in closed form."""
    w = np.random.default_rng(0).random((4000, 2))
    waves = []
    for epsilon, k in WAVES:
        x = wave(w, epsilon=epsilon, wave_number=k)
        slopes = (epsilon * k * np.cos(k * w.sum(1))) ** 2
        angle = np.arctan(2 * slopes / 3) / 2
        data = datasets.load("square-wave", epsilon=epsilon, wave_number=k, grid=401)
        waves.append({
            "epsilon": epsilon,
            "k": k,
            "closed_form": float(np.mean(2 * math.sqrt(2) * np.sin(angle / 2))),
            "dto": dataset_alignment(data.images, data.factors_with_kinds).distance,
            "added": float(x[:, 2].var() / x[:, :2].var(0).sum()),
        })  # fmt: skip
    return {"waves": waves, "points": len(w)}


def claims(results: Results) -> Iterator[Claim]:
    yield from judge_change(results, WORLD)
    yield _wave_claim(results)
    yield from judge_scores(results, WORLD)


def _wave_claim(results: Results) -> Claim:
    measured = results.once("measure_waves")
    parts = []
    for each in (measured.get("waves") or [])[1:]:
        flat = measured["waves"][0]["dto"]
        share = each["added"]
        parts.append(claim(
            "C-F4.1", f"ε {each['epsilon']:g}, k {each['k']}", "directions are turned",
            source="figure 4.1", expect=above(flat + 0.1), statistic="DtO of the data",
            values=_exact(each["dto"], measured["points"]),
            controls=[
                Control(f"the ripples add less than {SMALL_SHARE:.0%} of the variance",
                        share < SMALL_SHARE, f"{share:.2%}"),
                Control(f"DtO of the data is that of the closed form, within {CLOSE}",
                        abs(each["dto"] - each["closed_form"]) < CLOSE,
                        f"{each['closed_form']:.3f}"),
                Control(f"without ripples DtO of the data is below {CLOSE}", flat < CLOSE,
                        f"{flat:.3f}"),
            ],
        ))  # fmt: skip
    return claim_of_parts(
        "C-F4.1", "c1", "ripples that add almost no variance turn the local principal directions",
        parts, source="figure 4.1", published="schematic, no numbers",
    )  # fmt: skip


def _exact(value: float, points: int) -> Interval:
    return Interval(value, value, value, points)


def tables(results: Results) -> Iterator[Table]:
    yield from tabulate_scores(results, WORLD)
    yield from tabulate_change(results, WORLD)
    cells = [["ε", "k", "DtO of the data", "closed form", "variance added"]]
    for each in results.once("measure_waves").get("waves") or []:
        cells.append([f"{each['epsilon']:g}", str(each["k"]), f"{each['dto']:.2f}",
                      f"{each['closed_form']:.2f}", f"{each['added']:.1%}"])  # fmt: skip
    yield Table("waves", "A plane with ripples, (2 w1, w2, ε sin k (w1 + w2)) (figure 4.1)", cells,
                row="C-F4.1", notes=["Ours. DtO of random directions is 0.55."])  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    yield from plot_scores(results, WORLD)
    yield from plot_change(results, WORLD)
    yield plot_waves()


def plot_waves() -> Figure:
    from zscope.plots import panel_grid
    from zscope.plots.theme import categories, diverging
    from zscope.plots.theme import title as set_title

    figure, grid = panel_grid(1, 3, width=7.2, height=3.0, sharey=True)
    first, second = categories(2)
    side = np.linspace(0.06, 0.94, SHOWN)
    points = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    fine = np.linspace(0, 1, 200)
    square = np.stack(np.meshgrid(fine, fine), -1).reshape(-1, 2)
    for ax, (epsilon, k) in zip(grid[0], WAVES[:3], strict=True):
        x = wave(square, epsilon=epsilon, wave_number=k)
        ax.imshow(x[:, 2].reshape(200, 200), origin="lower", extent=(0, 1, 0, 1), alpha=0.35,
                  cmap=diverging(), vmin=-0.2, vmax=0.2)  # fmt: skip
        _, _, turned = np.linalg.svd(wave_jacobian(points, epsilon=epsilon, wave_number=k))
        for number, colour in enumerate((first, second)):
            step = 0.038 * turned[:, number]
            ax.plot([points[:, 0] - step[:, 0], points[:, 0] + step[:, 0]],
                    [points[:, 1] - step[:, 1], points[:, 1] + step[:, 1]], color=colour,
                    linewidth=1.1)  # fmt: skip
        set_title(ax, "no ripples" if not epsilon else f"ε = {epsilon:g}, k = {k}")
        ax.set(xlabel="w1", ylabel="w2" if ax is grid[0][0] else "", xticks=[0, 1], yticks=[0, 1])
    return Figure(
        "figure-4.1",
        "Local principal directions of the plane (2 w1, w2, ε sin k (w1 + w2)): the first in one "
        "colour, the second in the other. Shading: the third coordinate, whose variance is at most "
        "1.2 % of the others'. Without ripples the directions are the factors.",
        figure, row="C-F4.1",
    )  # fmt: skip


STUDY = Study(
    name="pca-perturbed",
    minutes=15,
    document="C",
    title="Does a small change of sprites remove the disentanglement?",
    rows=(
        Row("C-T4.2", "table 4.2", "MIG on original, changed and noisy data: dSprites"),
        Row("C-T4.3", "table 4.3", "DCI, the same"),
        Row("C-T4.4", "table 4.4", "FactorVAE score, the same"),
        Row("C-T4.5", "table 4.5", "SAP, the same"),
        Row("C-F4.3", "figure 4.3, top", "example perturbations of dSprites"),
        Row("C-F4.1", "figure 4.1", "small global, large local change"),
    ),
    grids={"versions": SPRITES, "weaker": SPRITES_WEAKER},
    made={SPRITE_MADE: SPRITE_CHANGED},
    measures=(
        each_run(measure_scores),
        once(describe_versions),
        once(measure_waves),
    ),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="β 2 and the rounds and rate of the game come from an earlier version of this study, "
    "with seeds 0 to 7; ε is the published one. The other strengths are the published ones in the "
    "same ratio to β, and were not tried. Latents in use: mean variance below 0.8, as published. "
    "PCL and AE count as unchanged within ±0.1.",
    changed="After the first results: on changed and noisy sprites most β-VAEs left one of three "
    "latents unused, so that P3 could not be judged. β-VAEs with a quarter of the β were added, "
    "chosen on seeds 0 and 1 by the latents in use alone. And P7 is undecided where the score on "
    "original data is below its margin of 0.1, as that of the AE often is: such a score cannot "
    "fall by more.",
)
