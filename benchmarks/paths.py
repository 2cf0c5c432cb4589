"""Which cost keeps a manifold path on its strand of a double helix?

Two recipes (the ordinary and the careful one of docs/decisions/0010), four seeds
and 14 paths each, between codes of one strand. A path changes strand if any decoded point of
it is nearer to the other strand. Some minutes of one core, half of it training.

    python benchmarks/paths.py [--recipe careful]
"""

import argparse
import sys
from typing import Any

import numpy as np
import torch
from ratios import Agreement, Ratio, finish, released

import zscope as zs
from zscope.data.helix import strand

SEEDS = (10, 11, 12, 13)
PATHS = 14
RECIPES: dict[str, dict[str, Any]] = {
    "ordinary": {"steps": 4000, "batch": 64, "rate": 1e-3},
    "careful": {"steps": 5000, "batch": 128, "rate": 3e-3, "schedule": "cosine"},
}
STRANDS = [torch.from_numpy(strand(np.linspace(-1.15, 1.15, 2001), n)).float() for n in (0, 1)]


def changes_strand(decoded: torch.Tensor, own: int) -> bool:
    here, there = (torch.cdist(decoded, STRANDS[n]).amin(1) for n in (own, 1 - own))
    return bool((there < here).any())


def compare(recipe: dict[str, Any], seed: int) -> dict[str, Any]:
    """For each cost, of each path: whether it changes strand, and whether it warns.

    And how far the ends of any path are from the codes asked for.
    """
    data = zs.data.load("helix", seed=seed)
    model = zs.models.build(
        "beta-vae",
        shape=data.shape,
        latents=2,
        beta=0.02,
        likelihood="mse",
        hidden=(32,) * 4,
        activation="elu",
        seed=seed,
    )
    zs.train(model, data, seed=seed, progress=False, **recipe)
    codes = zs.record(model, data).codes
    (low0, low1), (high0, high1) = (codes.amin(0) - 0.1).tolist(), (codes.amax(0) + 0.1).tolist()
    plane = zs.assays.response_map(
        model, codes[0], (0, 1), codes=codes, extent=(low0, high0, low1, high1), grid=60
    )
    position, side = data.factors.T
    rng = np.random.default_rng(seed)
    outcomes: dict[str, list[tuple[bool, bool]]] = {"field": [], "density": []}
    ends = 0.0
    for k in range(PATHS):
        own = k % 2
        start = rng.choice(np.flatnonzero((side == own) & (position < -0.4)))
        end = rng.choice(np.flatnonzero((side == own) & (position > 0.4)))
        for cost, rows in outcomes.items():
            path = zs.assays.manifold_path(plane, codes[start], codes[end], cost=cost, relax=20)
            with torch.no_grad():
                decoded = model.decode(path.points)
            gap = path.points[[0, -1]] - codes[[start, end]]
            ends = max(ends, float(gap.abs().max()))
            rows.append((changes_strand(decoded, own), path.warning is not None))
    return {**outcomes, "ends": ends}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", choices=RECIPES, action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ratios = []
    for name in options.recipe or RECIPES:
        parts = [compare(RECIPES[name], seed) for seed in SEEDS]
        for cost in ("field", "density"):
            table = np.array([row for part in parts for row in part[cost]])
            by_seed = [sum(row[0] for row in part[cost]) for part in parts]
            print(
                f"{name:9} {cost:8} changes strand {table[:, 0].sum():2} of {len(table)}, "
                f"warns {table[:, 1].sum():2}, by seed {by_seed}"
            )
        # How many paths there are for one that keeps to its strand; none at all counts as half.
        tries = {
            cost: [PATHS / max(0.5, sum(not row[0] for row in part[cost])) for part in parts]
            for cost in ("density", "field")
        }
        ends = max(part["ends"] for part in parts)
        ratios.append(
            Ratio(
                f"paths for one that keeps to its strand, {name} recipe",
                "choices",
                tries["density"],
                tries["field"],
                baseline="paths that minimise the response field",
                version=released("zscope"),
                at_most=1,
                unit="paths",
                agreement=Agreement("ends of paths, farthest from the codes asked for", ends, 1e-5),
            )
        )
    return finish("paths", ratios)


if __name__ == "__main__":
    sys.exit(main())
