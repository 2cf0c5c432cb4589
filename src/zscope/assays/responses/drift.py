"""Drift: where do codes end up after repeated decoding and encoding?

    z_0 = z,   z_{t+1} = R(z_t),        R(z) = encoder(decoder(z))

Limits that coincide are the fixed points, R(z) = z, and the codes that converge to one form
its basin. A fixed point is attracting when its rate, the spectral radius of the Jacobian of
R there, is below 1: one pass reduces a small deviation to that share.

A code has converged when the remaining distance, extrapolated from how its last steps
shrank, |step| ratio / (1 - ratio), is within the tolerance times the spread of the codes
and its step within a hundredth of that; so slow codes are not mistaken for converged ones.
Codes that cycle, escape (further than 1e6 times the largest code, where they are no longer
followed) or are still moving after the last step are listed in `unconverged` and belong to
no basin (-1). In a continuum of fixed points, such as all codes of an identity autoencoder,
those that lie close together count as one set, whose `spread` is its radius; its rate is 1.
Permuting latents permutes everything; the order of the codes does not matter.

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

__all__ = ["Drift", "drift"]


@dataclass(frozen=True, eq=False)
class Drift(Result):
    """Codes after many passes. Fixed points are sorted, largest basin first."""

    followed: list[int]  # codes whose trajectories are stored, evenly spaced
    trajectories: Float[Tensor, "followed passes latents"]
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
        """Where the rate is below 1 by more than rounding errors of the differences."""
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
        """Trajectories and fixed points over two latents, with basins if a map was followed.

        With more than two latents and no given plane, how far each pass moves the codes.
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
    trajectories: int = 200,
) -> Drift:
    """Follow `codes`, or grid x grid points over the plane of a response map.

    At most `steps` passes. `tolerance` is in units of the codes' spread; limits within 10
    times that of each other are one fixed point. The result has the
    paths of `trajectories` evenly spaced codes. A map of several base vectors is followed at the
    first of them.
    """
    whole("drift", steps=steps, grid=grid)
    whole("drift", 0, trajectories=trajectories)
    if steps < 1 or not tolerance > 0 or grid < 2:
        raise ConfigError(
            f"drift: steps={steps}, tolerance={tolerance}, grid={grid}; at least one pass, a "
            "tolerance above 0 and 2 points per side are needed. Defaults: 200, 0.001 and 40."
        )
    dims, axes = None, None
    if isinstance(subject, ResponseMap):
        if codes is not None:
            raise ConfigError(
                "drift: both a map and codes were given. Give the map to follow its grid, or the "
                "autoencoder with codes to follow the codes."
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
    # A single code, or a plane, does not vary in all latents: the scale is the overall root
    # mean square deviation, or 1 if that is 0.
    deviation = (start.double() - start.double().mean(0)).square().sum(1).mean().sqrt().item()
    reach = tolerance * (deviation or 1.0)
    rows = np.linspace(0, len(start) - 1, min(trajectories, len(start)))
    followed = np.unique(rows.astype(int)).tolist()
    limits, passes, converged, positions = _follow(autoencoder, start, steps, reach, followed)
    points, basin, spread = _fixed_points(limits, converged, 10 * reach)
    counts = torch.bincount(basin[basin >= 0], minlength=len(points))
    return Drift(
        followed=followed,
        trajectories=positions,
        limits=limits,
        basin=basin,
        fixed_points=points,
        share=counts.double() / len(start),
        rates=_rates(autoencoder, points, 10 * reach),
        spread=spread,
        passes=passes,
        unconverged=(~converged).nonzero()[:, 0].tolist(),
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
    """(limits, number of passes, which converged, trajectories of some codes)."""
    codes = start.clone()
    unit = torch.finfo(location(autoencoder, start)[1]).eps
    escape = 1e6 * max(1.0, float(start.double().norm(dim=1).max()))
    passes = torch.zeros(len(start), dtype=torch.int64)
    converged = torch.zeros(len(start), dtype=torch.bool)
    escaped = torch.zeros(len(start), dtype=torch.bool)
    last_step = torch.full((len(start),), float("inf"), dtype=torch.float64)
    positions = [start[followed]]
    for _ in range(steps):
        moving = (~converged & ~escaped).nonzero()[:, 0]
        if len(moving) == 0:
            break
        response = respond(autoencoder, codes[moving])
        step = (response.double() - codes[moving].double()).norm(dim=1)
        # Steps that shrink by a constant ratio still have step * ratio / (1 - ratio) to go.
        # The first step cannot be compared with another, and growing steps have no limit.
        ratio = step / last_step[moving].clamp_min(torch.finfo(torch.float64).tiny)
        remaining = torch.where(ratio < 1, step * ratio / (1 - ratio).clamp_min(1e-12), torch.inf)
        # A code first moves fast to nearly self-consistent codes, then slowly along them: there its
        # step and its remaining distance look small, so the step must be smaller still. And one
        # large step may end next to a repelling point, so two small steps in a row are required.
        close = (step <= reach / 100) & (remaining <= reach) & (last_step[moving] <= reach)
        codes[moving] = response
        last_step[moving] = step
        passes[moving] += 1
        # At a fixed point, rounding errors may continue for ever and do not shrink.
        resting = step <= 2 * unit * response.double().norm(dim=1)
        converged[moving[close | resting]] = True
        escaped[moving[response.double().norm(dim=1) > escape]] = True
        positions.append(codes[followed])
    return codes, passes, converged, torch.stack(positions, dim=1)


def _fixed_points(limits: Codes, converged: Tensor, reach: float) -> tuple[Tensor, Tensor, Tensor]:
    """(fixed points, basin of each code, spread of each fixed point), largest basin first."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    basin = torch.full((len(limits),), -1, dtype=torch.int64)
    if not converged.any():
        return limits[:0], basin, torch.zeros(0, dtype=torch.float64)
    ends = limits[converged].double()
    # Thousands of codes at one limit would be millions of pairs: one code represents all in
    # the same small box, and boxes within reach of each other are joined.
    box = reach / (2 * ends.shape[1] ** 0.5)
    _, first, member = np.unique(
        np.round(ends.numpy() / box), axis=0, return_index=True, return_inverse=True
    )
    pairs = KDTree(ends.numpy()[first]).query_pairs(reach, output_type="ndarray")
    shape = (len(first), len(first))
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=shape)
    count, part = connected_components(graph, directed=False)
    label = torch.from_numpy(part[member.reshape(-1)]).long()
    order = torch.bincount(label, minlength=count).argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(count)
    label = rank[label]
    points, spread = [], []
    for k in range(count):
        group = ends[label == k]
        # The member nearest to the mean rather than the mean, which is not a fixed point if
        # they form a ring.
        centre = group[(group - group.mean(0)).norm(dim=1).argmin()]
        points.append(centre)
        spread.append((group - centre).norm(dim=1).max())
    basin[converged] = label
    return torch.stack(points).to(limits.dtype), basin, torch.stack(spread)


def _rates(autoencoder: Autoencoder, points: Codes, step: float) -> Tensor:
    """Spectral radius of the Jacobian of R at each point, by central differences.

    Differences rather than gradients, because they work with any model.
    """
    if len(points) == 0:
        return torch.zeros(0, dtype=torch.float64)
    count, latents = points.shape
    moves = step * torch.eye(latents, dtype=points.dtype)
    neighbours = torch.stack([points.unsqueeze(1) + moves, points.unsqueeze(1) - moves])
    response = respond(autoencoder, neighbours.reshape(-1, latents)).double()
    ahead, behind = response.reshape(2, count, latents, latents)
    jacobian = (ahead - behind).transpose(1, 2) / (2 * step)
    radius: Tensor = torch.linalg.eigvals(jacobian).abs().amax(dim=1)
    return radius


ENTRY = Entry(
    question="Where do codes end up after repeated decoding and encoding?",
    meaning=(
        "Codes that are decoded and encoded again and again end at fixed points; few fixed points "
        "mean that the model remembers a few pictures, many or a continuum that it keeps what it "
        "is given."
    ),
    figure=(
        "How far each further pass moves the codes, or for two latents their way: lines that fall "
        "have reached a fixed point."
    ),
    takes=("autoencoder", "some_codes"),
    passes="30 * steps + 4 * latents",
    maps="offsets",
)
