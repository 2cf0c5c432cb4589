"""How fast is distance to orthogonality, compared with two ways to compute it with PyTorch?

500 codes through the 64 x 64 decoder of Locatello et al. with 10 latents, one thread:

    ours          zs.assays.distance_to_orthogonality
    slow          torch.autograd.functional.jacobian code by code (reverse mode), SVD, and the
                  paper's mixed-integer program (scipy.optimize.milp); timed on a few codes
    forward       torch.autograd.functional.jacobian(vectorize=True, strategy="forward-mode")
                  code by code, SVD, linear assignment

All three on the same codes, in turn. Required: at least 50 times faster than the slow way, no
slower than the forward one, equal values.

    python benchmarks/alignment.py [--turns 3]
"""

import argparse
import sys

import numpy as np
import torch
from ratios import Ratio, agreement, finish, released, turns
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp
from torch.autograd.functional import jacobian

import zscope as zs

LATENTS, CODES, SLOW_CODES, FORWARD_CODES = 10, 500, 2, 50
SPEEDUP, TOLERANCE = 50, 2e-3


def by_program(V: np.ndarray) -> float:
    """|V - P|_F with P from the mixed-integer program of the paper."""
    d = len(V)
    n = d * d
    eye, none = np.eye(n), np.zeros((d, n))
    rows, columns = np.kron(np.eye(d), np.ones(d)), np.kron(np.ones(d), np.eye(d))
    flat = V.reshape(-1)
    constraints = [
        LinearConstraint(np.hstack([eye, -eye, -eye]), ub=flat),
        LinearConstraint(np.hstack([-eye, eye, -eye]), ub=-flat),
        LinearConstraint(np.hstack([rows, rows, none]), 1, 1),
        LinearConstraint(np.hstack([columns, columns, none]), 1, 1),
    ]
    cost = np.concatenate([np.zeros(2 * n), np.ones(n)])
    integer = np.concatenate([np.ones(2 * n), np.zeros(n)])
    upper = np.concatenate([np.ones(2 * n), np.full(n, np.inf)])
    solution = milp(cost, constraints=constraints, integrality=integer, bounds=Bounds(0, upper))
    P = (solution.x[:n] - solution.x[n : 2 * n]).round().reshape(d, d)
    return float(np.linalg.norm(V - P))


def by_assignment(V: np.ndarray) -> float:
    rows, columns = linear_sum_assignment(-np.abs(V))
    return float(np.sqrt(max(0, 2 * len(V) - 2 * np.abs(V[rows, columns]).sum())))


def code_by_code(decode, codes, nearest, **mode) -> list[float]:
    distances = []
    for code in codes:
        J = jacobian(lambda z: decode(z[None]).flatten(), code, **mode)
        V = torch.linalg.svd(J.double(), full_matrices=False)[2].T.numpy()
        distances.append(nearest(V))
    return distances


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = zs.models.build("vae", shape=(1, 64, 64), latents=LATENTS, backbone="locatello").eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        parameter.mul_(2)  # larger weights, so that the decoder is not almost constant
    codes = torch.randn(CODES, LATENTS, generator=torch.Generator().manual_seed(0))

    def ours():
        measured = zs.assays.distance_to_orthogonality(model, codes, active="all", samples=CODES)
        return measured.per_sample.tolist()

    def slow():
        return code_by_code(model.decode, codes[:SLOW_CODES], by_program)

    def forward():
        mode = {"vectorize": True, "strategy": "forward-mode"}
        return code_by_code(model.decode, codes[:FORWARD_CODES], by_assignment, **mode)

    ways = {
        "ours": (ours, CODES),
        "slow": (slow, SLOW_CODES),
        "forward": (forward, FORWARD_CODES),
    }
    values = {name: way() for name, (way, _) in ways.items()}
    seconds = turns({name: way for name, (way, _) in ways.items()}, options.turns, warm=False)
    per_code = {name: [s / ways[name][1] for s in seconds[name]] for name in ways}
    texts = {
        "slow": ("reverse mode code by code, and a mixed-integer program", 1 / SPEEDUP),
        "forward": ("forward mode code by code, and an assignment", 1.0),
    }
    return finish(
        "alignment",
        [
            Ratio(
                f"distance to orthogonality, against {name} Jacobians", "passes",
                per_code["ours"], per_code[name],
                baseline=text, version=released("torch", "scipy"), at_most=limit,
                agreement=agreement(
                    f"distances of {len(values[name])} codes",
                    values["ours"][: len(values[name])], values[name], TOLERANCE,
                ),
            )
            for name, (text, limit) in texts.items()
        ],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
