"""Chains of points through latent space: shortest on a graph, drawn out, measured."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

FINE = 512
"""Points at which a path is measured."""


def shortest(
    nodes: Tensor,
    edges: tuple[np.ndarray, np.ndarray],
    price: Tensor,
    *,
    source: int = -2,
    target: int = -1,
) -> Tensor:
    """The cheapest chain of nodes, where an edge costs its length times its mean price."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    count = len(nodes)
    source, target = source % count, target % count
    weights = ((nodes[edges[0]] - nodes[edges[1]]).norm(dim=1) * price).numpy()
    graph = coo_array((weights, edges), shape=(count, count)).tocsr()
    _, before = dijkstra(graph, directed=False, indices=source, return_predecessors=True)
    chain = [target]
    while chain[-1] != source:
        chain.append(int(before[chain[-1]]))
    return nodes[chain[::-1]]


def draw_out(
    chain: Tensor,
    squares: Callable[[Tensor], Tensor],
    temperature: float,
    steps: int,
    *,
    pieces: int = 64,
    bounds: Tensor | None = None,
) -> Tensor:
    """The chain moved, ends fixed, to where the integral of |F|^2 + temperature is least.

    `squares` gives |F|^2 with gradients; `bounds` are low and high for each coordinate.
    Coarse chains first, finer ones from there: a fine chain alone moves as slowly as heat
    spreads along it. Pieces of unequal length are penalised, which does not change the
    least cost (any curve can be walked at an even pace) but stops points from sliding
    away from where the field is large.
    """
    from scipy.optimize import minimize

    finest, pieces = pieces, 8
    while pieces <= finest:
        chain = resample(chain, pieces + 1)
        first, inner, last = chain[:1], chain[1:-1], chain[-1:]
        inside = 2 * finest // pieces
        share = (torch.arange(inside, dtype=torch.float64).reshape(-1, 1, 1) + 0.5) / inside

        def bill(
            flat: np.ndarray, first: Tensor, last: Tensor, share: Tensor, unit: float | None
        ) -> tuple[float, np.ndarray]:
            with torch.enable_grad():
                moving = torch.from_numpy(flat).reshape(-1, first.shape[1]).requires_grad_()
                whole = torch.cat([first, moving, last])
                start, step = whole[:-1], whole[1:] - whole[:-1]
                pace = step.norm(dim=1)
                price = squares(start + share * step).mean(0) + temperature
                uneven = (pace * len(pace) / pace.sum() - 1).square().mean()
                spent = (price * pace).sum()
                total = spent if unit is None else spent / unit + uneven
                (slope,) = torch.autograd.grad(total, moving)
            return total.item(), slope.flatten().numpy()

        start = inner.flatten().numpy().copy()
        # In units of what the chain costs now, so that evenness matters alike in every field.
        unit = bill(start, first, last, share, None)[0]
        found = minimize(
            bill,
            start,
            args=(first, last, share, unit),
            jac=True,
            method="L-BFGS-B",
            bounds=None if bounds is None else bounds.repeat(len(inner), 1).tolist(),
            options={"maxiter": steps, "ftol": 1e-9},
        )
        chain = torch.cat([first, torch.from_numpy(found.x).reshape(inner.shape), last])
        pieces *= 2
    return chain


def length(points: Tensor) -> float:
    return float((points[1:] - points[:-1]).norm(dim=1).sum())


def resample(points: Tensor, count: int) -> Tensor:
    """`count` points at equal arc length along the polyline, its ends included."""
    steps = (points[1:] - points[:-1]).norm(dim=1)
    reached = torch.cat([steps.new_zeros(1), steps.cumsum(0)])
    if reached[-1] == 0:
        return points[:1].expand(count, -1).clone()
    wanted = torch.linspace(0, 1, count, dtype=points.dtype) * reached[-1]
    after = torch.searchsorted(reached, wanted).clamp(1, len(points) - 1)
    share = (wanted - reached[after - 1]) / steps[after - 1].clamp_min(1e-300)
    placed = points[after - 1].lerp(points[after], share.clamp(0, 1).unsqueeze(1))
    placed[0], placed[-1] = points[0], points[-1]
    return placed


def integral(points: Tensor, value: Callable[[Tensor], Tensor]) -> float:
    """The integral of `value` over the arc length of a polyline, by the midpoint rule."""
    if (total := length(points)) == 0:
        return 0.0
    middles = resample(points, 2 * FINE + 1)[1::2]
    return total * value(middles).mean().item()
