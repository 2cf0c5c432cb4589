"""Chains of points in latent space: the shortest on a graph, relaxation, arc length."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

__all__ = ["integral", "length", "relax_chain", "resample", "shortest"]

FINE = 512
"""Points at which the cost of a path is evaluated."""


def shortest(
    nodes: Tensor,
    edges: tuple[np.ndarray, np.ndarray],
    costs: Tensor,
    *,
    source: int = -2,
    target: int = -1,
) -> Tensor:
    """The cheapest chain of nodes; an edge costs its length times its entry in `costs`."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    count = len(nodes)
    source, target = source % count, target % count
    weights = ((nodes[edges[0]] - nodes[edges[1]]).norm(dim=1) * costs).numpy()
    graph = coo_array((weights, edges), shape=(count, count)).tocsr()
    _, previous = dijkstra(graph, directed=False, indices=source, return_predecessors=True)
    chain = [target]
    while chain[-1] != source:
        chain.append(int(previous[chain[-1]]))
    return nodes[chain[::-1]]


def relax_chain(
    chain: Tensor,
    squares: Callable[[Tensor], Tensor],
    temperature: float,
    steps: int,
    *,
    pieces: int = 64,
    bounds: Tensor | None = None,
) -> Tensor:
    """Move the chain, with fixed ends, to minimise the integral of |F|^2 + temperature.

    `squares` returns |F|^2 with gradients; `bounds` are low and high for each coordinate.
    Coarse chains are relaxed first and then refined: a fine chain alone converges as slowly
    as heat diffuses along it. Pieces of unequal length are penalised, which does not change
    the minimum (any curve can be parametrised evenly) but keeps points from sliding away
    from where the field is large.
    """
    from scipy.optimize import minimize

    finest, pieces = pieces, 8
    while pieces <= finest:
        chain = resample(chain, pieces + 1)
        first, inner, last = chain[:1], chain[1:-1], chain[-1:]
        inside = 2 * finest // pieces
        share = (torch.arange(inside, dtype=torch.float64).reshape(-1, 1, 1) + 0.5) / inside

        def cost(
            flat: np.ndarray, first: Tensor, last: Tensor, share: Tensor, unit: float | None
        ) -> tuple[float, np.ndarray]:
            with torch.enable_grad():
                moving = torch.from_numpy(flat).reshape(-1, first.shape[1]).requires_grad_()
                whole = torch.cat([first, moving, last])
                start, step = whole[:-1], whole[1:] - whole[:-1]
                lengths = step.norm(dim=1)
                density = squares(start + share * step).mean(0) + temperature
                uneven = (lengths * len(lengths) / lengths.sum() - 1).square().mean()
                integral = (density * lengths).sum()
                total = integral if unit is None else integral / unit + uneven
                (gradient,) = torch.autograd.grad(total, moving)
            return total.item(), gradient.flatten().numpy()

        start = inner.flatten().numpy().copy()
        # In units of the chain's present cost, so that evenness has the same weight in any field.
        unit = cost(start, first, last, share, None)[0]
        solution = minimize(
            cost,
            start,
            args=(first, last, share, unit),
            jac=True,
            method="L-BFGS-B",
            bounds=None if bounds is None else bounds.repeat(len(inner), 1).tolist(),
            options={"maxiter": steps, "maxfun": steps + steps // 4, "ftol": 1e-9},
        )
        chain = torch.cat([first, torch.from_numpy(solution.x).reshape(inner.shape), last])
        pieces *= 2
    return chain


def length(points: Tensor) -> float:
    return float((points[1:] - points[:-1]).norm(dim=1).sum())


def resample(points: Tensor, count: int) -> Tensor:
    """`count` points at equal arc length along the polyline, including its ends."""
    steps = (points[1:] - points[:-1]).norm(dim=1)
    arc_length = torch.cat([steps.new_zeros(1), steps.cumsum(0)])
    if arc_length[-1] == 0:
        return points[:1].expand(count, -1).clone()
    targets = torch.linspace(0, 1, count, dtype=points.dtype) * arc_length[-1]
    after = torch.searchsorted(arc_length, targets).clamp(1, len(points) - 1)
    share = (targets - arc_length[after - 1]) / steps[after - 1].clamp_min(1e-300)
    resampled = points[after - 1].lerp(points[after], share.clamp(0, 1).unsqueeze(1))
    resampled[0], resampled[-1] = points[0], points[-1]
    return resampled


def integral(points: Tensor, value: Callable[[Tensor], Tensor]) -> float:
    """The integral of `value` over the arc length of a polyline, by the midpoint rule."""
    if (total := length(points)) == 0:
        return 0.0
    middles = resample(points, 2 * FINE + 1)[1::2]
    return total * value(middles).mean().item()
