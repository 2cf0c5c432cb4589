"""Drift: where do codes end up when they are decoded and encoded again and again?

    z_0 = z,   z_{t+1} = R(z_t),        R(z) = encoder(decoder(z))

Limits that fall together are the fixed points, R(z) = z, and the codes that go to one
make up its basin. A fixed point attracts when its rate, the spectral radius of the
Jacobian of R there, is below 1: one pass leaves that share of a small deviation.

A code counts as converged when what is left of its way, judged by how its last steps
shrank, |step| ratio / (1 - ratio), is within the tolerance times the spread of the codes
and its step within a hundredth of that; slow codes are not mistaken for arrived ones.
Codes that circle, run away (further than 1e6 times the largest code: they are not followed
there) or are still on their way after the last step are listed in `unconverged` and belong
to no basin (-1). Of a continuum of fixed points, such as all codes of an identity
autoencoder, those that lie close together are one set, whose `spread` says how far it
reaches; its rate is 1. Permuting latents permutes everything; the order of the codes does
not matter.

Radhakrishnan et al., "Memorization in overparameterized autoencoders", 2018, show that
trained autoencoders contract towards such attractors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import location, respond
from zscope.assays.entry import Entry
from zscope.assays.responses.maps import Axis, ResponseMap, as_codes, in_plane
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError
from zscope.results import Result
from zscope.sampling import whole
from zscope.types import Codes


@dataclass(frozen=True, eq=False)
class Drift(Result):
    """Codes after many passes. Fixed points are sorted, largest basin first."""

    followed: list[int]  # codes whose trajectories are stored, evenly spaced
    trajectories: Float[Tensor, "kept passes latents"]
    limits: Codes  # the last position of each code
    basin: Int[Tensor, " samples"]  # which fixed point each code goes to; -1: none
    fixed_points: Float[Tensor, "fixed latents"]
    share: Float[Tensor, " fixed"]  # of the codes that go to each fixed point
    rates: Float[Tensor, " fixed"]  # spectral radius of the Jacobian there
    spread: Float[Tensor, " fixed"]  # largest distance of its limits from the fixed point
    passes: Int[Tensor, " samples"]  # until convergence, or until the end
    unconverged: list[int]
    tolerance: float  # in latent units
    dims: tuple[int, int] | None  # the plane, if the codes are those of a map
    axes: tuple[Axis, Axis] | None

    @property
    def attracts(self) -> Bool[Tensor, " fixed"]:
        """Where the rate is below 1, by more than the rounding of differences."""
        return self.rates < 1 - 1e-3

    @property
    def basins(self) -> Int[Tensor, "first second"]:
        """Which fixed point each point of the map goes to; -1 for none."""
        if self.axes is None:
            raise ConfigError(
                "drift: these codes were not taken from a map, so there is no plane to show basins "
                "on. Call drift(response_map(...)); .basin says where each code goes."
            )
        return self.basin.reshape(len(self.axes[0]), len(self.axes[1]))

    def to_dict(self) -> dict[str, Any]:
        """Without the trajectories."""
        values = super().to_dict()
        del values["trajectories"]
        return values

    def summary(self) -> list[tuple[str, str]]:
        attracting = int(self.attracts.sum())
        lines = [
            ("fixed points", f"{len(self.fixed_points)} ({attracting} attracting)"),
            ("not converged", f"{len(self.unconverged)} of {len(self.basin)} codes"),
            ("median number of passes", f"{float(self.passes.double().median()):g}"),
        ]
        if len(self.share):
            lines.insert(1, ("largest basin", f"{100 * float(self.share[0]):.1f} % of the codes"))
            lines.append(("median rate", f"{float(self.rates.median()):.3f} (below 1: attracting)"))
        return lines

    def plot(self, ax: Any = None, *, dims: Sequence[int] | None = None) -> Any:
        """Trajectories and fixed points over two latents, with basins where a map was followed.

        With more than two latents, and no plane asked for, how far each pass moves the codes.
        """
        from zscope.plots import drift_plane, drift_steps

        if self.dims is None and dims is None and self.limits.shape[1] != 2:
            return drift_steps(self, ax=ax)
        return drift_plane(self, dims=dims or (0, 1), ax=ax)


@accepts_recording
def drift(
    subject: Autoencoder | ResponseMap,
    codes: Tensor | np.ndarray | None = None,
    *,
    steps: int = 200,
    tolerance: float = 1e-3,
    grid: int = 40,
    kept: int = 200,
) -> Drift:
    """Follow `codes`, or grid x grid points over the plane of a response map.

    At most `steps` passes. `tolerance` is in units of the codes' spread; limits within 10
    times that of each other are one fixed point. The trajectories of `kept` codes, evenly
    chosen, are returned. A map of several base vectors is followed at the first of them.
    """
    whole("drift", steps=steps, grid=grid)
    whole("drift", 0, kept=kept)
    if steps < 1 or not tolerance > 0 or grid < 2:
        raise ConfigError(
            f"drift: steps={steps}, tolerance={tolerance}, grid={grid}; at least one pass, a "
            "tolerance above 0 and 2 points a side are needed. The defaults are 200, 0.001 and 40."
        )
    dims, axes = None, None
    if isinstance(subject, ResponseMap):
        if codes is not None:
            raise ConfigError(
                "drift: both a map and codes were given. Give the map to follow its grid, or the "
                "autoencoder with codes to follow those."
            )
        dims = subject.dims
        low0, high0, low1, high1 = subject.extent
        axes = (
            torch.linspace(low0, high0, grid, dtype=torch.float64),
            torch.linspace(low1, high1, grid, dtype=torch.float64),
        )
        start = in_plane(subject.base[0], dims, torch.cartesian_prod(*axes))
        autoencoder = subject.autoencoder
    else:
        if codes is None:
            raise ConfigError(
                "drift: no codes to follow. Give codes, for instance zs.record(model, data).codes "
                "or samples of the prior, or a response map to follow its grid."
            )
        start, autoencoder = as_codes(codes, "drift: codes"), subject
    # One code, or a plane through the other latents, has no spread of its own everywhere:
    # the overall root mean square deviation is the scale; 1 if that is 0.
    deviation = (start.double() - start.double().mean(0)).square().sum(1).mean().sqrt().item()
    reach = tolerance * (deviation or 1.0)
    followed = np.unique(np.linspace(0, len(start) - 1, min(kept, len(start))).astype(int)).tolist()
    limits, passes, arrived, trajectories = _follow(autoencoder, start, steps, reach, followed)
    points, basin, spread = _fixed_points(limits, arrived, 10 * reach)
    counts = torch.bincount(basin[basin >= 0], minlength=len(points))
    return Drift(
        followed=followed,
        trajectories=trajectories,
        limits=limits,
        basin=basin,
        fixed_points=points,
        share=counts.double() / len(start),
        rates=_rates(autoencoder, points, 10 * reach),
        spread=spread,
        passes=passes,
        unconverged=(~arrived).nonzero()[:, 0].tolist(),
        tolerance=reach,
        dims=dims,
        axes=axes,
    )


def _follow(
    autoencoder: Autoencoder,
    start: Codes,
    steps: int,
    reach: float,
    followed: list[int],
) -> tuple[Codes, Tensor, Tensor, Tensor]:
    """(limits, passes made, which converged, trajectories of some codes)."""
    here = start.clone()
    unit = torch.finfo(location(autoencoder, start)[1]).eps
    lost = 1e6 * max(1.0, float(start.double().norm(dim=1).max()))
    passes = torch.zeros(len(start), dtype=torch.int64)
    arrived = torch.zeros(len(start), dtype=torch.bool)
    away = torch.zeros(len(start), dtype=torch.bool)
    before = torch.full((len(start),), float("inf"), dtype=torch.float64)
    seen = [start[followed]]
    for _ in range(steps):
        moving = (~arrived & ~away).nonzero()[:, 0]
        if len(moving) == 0:
            break
        there = respond(autoencoder, here[moving])
        step = (there.double() - here[moving].double()).norm(dim=1)
        # Steps that shrink by a constant ratio still have step * ratio / (1 - ratio) to go.
        # The first step has nothing to be compared with, and a growing one has no limit.
        ratio = step / before[moving].clamp_min(torch.finfo(torch.float64).tiny)
        left = torch.where(ratio < 1, step * ratio / (1 - ratio).clamp_min(1e-12), torch.inf)
        # A code first falls fast onto the manifold, then creeps along it; at the turn both its
        # step and its way to go look small, so the step must be smaller still. And one leap
        # may end beside a point that repels: two small steps must follow one another.
        close = (step <= reach / 100) & (left <= reach) & (before[moving] <= reach)
        here[moving] = there
        before[moving] = step
        passes[moving] += 1
        # Where a code rests, rounding may go on for ever and does not shrink.
        rests = step <= 2 * unit * there.double().norm(dim=1)
        arrived[moving[close | rests]] = True
        away[moving[there.double().norm(dim=1) > lost]] = True
        seen.append(here[followed])
    return here, passes, arrived, torch.stack(seen, dim=1)


def _fixed_points(limits: Codes, arrived: Tensor, reach: float) -> tuple[Tensor, Tensor, Tensor]:
    """(fixed points, basin of each code, spread of each fixed point), largest basin first."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    basin = torch.full((len(limits),), -1, dtype=torch.int64)
    if not arrived.any():
        return limits[:0], basin, torch.zeros(0, dtype=torch.float64)
    found = limits[arrived].double()
    # Thousands of codes at one limit would be millions of pairs: one stands for all that
    # share a small box, and boxes within reach of each other are joined.
    box = reach / (2 * found.shape[1] ** 0.5)
    _, first, member = np.unique(
        np.round(found.numpy() / box), axis=0, return_index=True, return_inverse=True
    )
    pairs = KDTree(found.numpy()[first]).query_pairs(reach, output_type="ndarray")
    shape = (len(first), len(first))
    joined = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=shape)
    count, part = connected_components(joined, directed=False)
    label = torch.from_numpy(part[member.reshape(-1)]).long()
    order = torch.bincount(label, minlength=count).argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(count)
    label = rank[label]
    points, spread = [], []
    for k in range(count):
        group = found[label == k]
        # The member nearest to the mean, not the mean: of a ring of fixed points the mean
        # is not one of them.
        chosen = group[(group - group.mean(0)).norm(dim=1).argmin()]
        points.append(chosen)
        spread.append((group - chosen).norm(dim=1).max())
    basin[arrived] = label
    return torch.stack(points).to(limits.dtype), basin, torch.stack(spread)


def _rates(autoencoder: Autoencoder, points: Codes, step: float) -> Tensor:
    """Spectral radius of the Jacobian of R at each point, by central differences.

    Differences rather than gradients: they ask nothing of a foreign model but its responses.
    """
    if len(points) == 0:
        return torch.zeros(0, dtype=torch.float64)
    count, latents = points.shape
    moves = step * torch.eye(latents, dtype=points.dtype)
    moved = torch.stack([points.unsqueeze(1) + moves, points.unsqueeze(1) - moves])
    answer = respond(autoencoder, moved.reshape(-1, latents)).double()
    ahead, behind = answer.reshape(2, count, latents, latents)
    jacobian = (ahead - behind).transpose(1, 2) / (2 * step)
    radius: Tensor = torch.linalg.eigvals(jacobian).abs().amax(dim=1)
    return radius


ENTRY = Entry(
    question="Where do codes end up when they are decoded and encoded again and again?",
    takes=("autoencoder", "some_codes"),
    passes="40 * steps + 4 * latents",
)
