"""Why VAEs pursue PCA directions: the degenerate case (table 3.4).

A rectangle with sides ρ and 1, rotated in space, learned by a linear β-VAE. Its principal
directions are its sides while ρ differs from 1; at ρ = 1 every rotation is as good, and
there is nothing to align with. Trained as the linear data of table 3.3 (`pca_directions`).

Between the two, the alignment depends on the training time: the optimum has DtO = 0 for every
ρ but 1, and the force towards it vanishes as ρ approaches 1. So ρ = 1.2 is also trained three
times as long, and the order of the table is claimed only where ρ = 2 has converged and no
latent is unused, since that would look aligned. At ρ = 1 V is arbitrary: the claim is about
singular values and the alignment gap instead.

Zietlow, PhD thesis, Tübingen 2022, section 3.3.4.
"""

from pathlib import Path

import numpy as np

import zscope as zs
from zscope.experiments.studies import Claim, Progress, save_claims
from zscope.experiments.studies.pca_directions import Cell, Setup, measure, setups, train_models

__all__ = ["NAME", "SUMMARY", "run"]

NAME = "pca-directions-degenerate"
SUMMARY = "With equal variances there are no directions to pursue (table 3.4)."

SIDES = (1.0, 1.2, 1.5, 2.0)


def run(
    out: str | Path | None = None, *, scale: str = "small", progress: Progress = print
) -> list[Claim]:
    """Train, measure and judge the claims, which are also written to OUT/claims.json."""
    setup = setups(scale)["linear"]
    steps = setup.training["steps"]
    cells = {side: train_cell(setup, side, steps, progress) for side in SIDES}
    longer = train_cell(setup, 1.2, 3 * steps, progress)
    claims = claims_of(cells, longer, steps)
    save_claims(out, claims)
    return claims


def train_cell(setup: Setup, side: float, steps: int, progress: Progress) -> Cell:
    """All seeds at one ρ."""
    progress(f"ρ = {side:g}: {setup.seeds} seeds, {steps} steps")
    training, _, test = zs.data.load("square-linear", rho=side).split((0.8, 0.1, 0.1))
    return measure(train_models(setup, training, "beta-vae", steps=steps), test, setup)


def claims_of(cells: dict[float, Cell], longer: Cell, steps: int) -> list[Claim]:
    distance = {side: float(np.mean(each.distances)) for side, each in cells.items()}
    score = {side: float(np.mean(each.scores)) for side, each in cells.items()}
    converged = distance[2.0] < 0.05 and all(each.whole for each in cells.values())
    square = cells[1.0]
    after = float(np.mean(longer.distances))
    return [
        Claim(
            "D1",
            "alignment is lost as the sides become equal (DtO at ρ = 1, 1.2, 1.5), once ρ = 2 "
            "has converged",
            ".49±.32, .20±.24, .01±.06",
            ", ".join(cells[side].distance for side in SIDES[:3])
            + f"; ρ = 2: {cells[2.0].distance}",
            converged and distance[1.0] > distance[1.2] > distance[1.5],
        ),
        Claim(
            "D2",
            "and with it the factors (DS)",
            ".51±.28, .76±.25, .98±.06",
            f"{', '.join(cells[side].score for side in SIDES[:3])}; ρ = 2: {cells[2.0].score}",
            score[1.0] < score[1.2] < score[1.5],
        ),
        Claim(
            "D3",
            "at ρ = 1 the columns are orthogonal and equally long, so V is arbitrary",
            "any rotation is a solution (section 3.3.4)",
            f"alignment gap {np.mean(square.gaps):.4f}, smaller over larger singular value "
            f"{np.mean(square.ratios):.3f}, DS between {min(square.scores):.2f} and "
            f"{max(square.scores):.2f}",
            float(np.mean(square.gaps)) < 0.01
            and float(np.mean(square.ratios)) > 0.97
            and max(square.scores) - min(square.scores) > 0.3,
        ),
        Claim(
            "D4",
            "in between, training time decides: ρ = 1.2 moves towards 0 (DtO after 1x and 3x)",
            "not in the source; the optimum is 0 for every ρ but 1",
            f"{cells[1.2].distance} after {steps} steps, {longer.distance} after {3 * steps}",
            after < 0.5 * distance[1.2],
        ),
    ]
