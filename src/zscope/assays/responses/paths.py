"""Manifold path: which path leads from one code to another without leaving the data manifold?

The path z(s), s its arc length, that minimises

    integral of ( C(z) + temperature ) ds

By default, where codes of data are known, C is their sparseness,

    cost="density":   C(z) = d(z)^4,    d(z) the root mean square distance of z from the 5
                      nearest codes, in units of the spacing of codes (the median of their
                      own mean distance)

so that the path keeps to where codes are. (With d(z)^2, a tenth of the paths between codes of
one strand of a helix still cross to the other.) The paper minimises the response field instead,

    cost="field":     C(z) = |F(z)|^2,        F(z) = R(z) - z

which is the default for a map without codes. The field is small where the model is
self-consistent, which also happens far from data, so these paths may cross between separate
parts of the data while their cost falls: see docs/decisions/0010.

The temperature keeps the path short where C vanishes; a high one gives the straight line.
`cost` is the integral of |F|^2 along the path and `straight_cost` the same along the straight
line, both by the same fine quadrature of the true response; where the field is minimised,

    0 <= cost <= straight_cost

For both paths there are also `decoded_length` (of the decoded path), `largest_jump` (between
two of its points), and `code_distance` (from the nearest codes, in units of their spacing, at
each point: d). `warning` says if the path leaves the data: if somewhere it is farther from the
codes than 99 % of them are from each other; or, where no point is farther away than one of its
ends, that this end is an outlier. Codes that fill a ball in many latents have no gaps: a
straight line through their middle is nearer to them than its ends, and nothing warns of it.

In a plane (given a response map) the path is the shortest one on the graph of grid
points, each connected in 32 directions, and is then relaxed under the same cost, which
removes the corners of the grid; codes are projected onto the plane. In all latents (given an
autoencoder) it starts as a shortest path on the graph of nearest neighbours among the codes
and is relaxed likewise. Points and frames are at equal arc length. Exchanging start and end
reverses the path; permuting latents permutes its coordinates.

Leeb et al., "Interventional assays for the latent space of autoencoders", sec. 4.3 (the
planar path, on the squared field); the density and the path in all latents are ours.
"""

import dataclasses
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import decode, encode_alone, respond
from zscope.assays.entry import Entry
from zscope.assays.jacobian import single_precision
from zscope.assays.responses.chains import integral, length, relax_chain, resample, shortest
from zscope.assays.responses.maps import ResponseMap, as_codes, in_plane, planar_field
from zscope.autoencoder import Autoencoder, evaluation
from zscope.errors import ConfigError, InterfaceError, NoGradients
from zscope.randomness import fresh
from zscope.results import Result
from zscope.sampling import whole
from zscope.types import Codes

__all__ = ["ManifoldPath", "manifold_path"]

Cost = Literal["density", "field"]
NEAREST = 5
MOST_FOR_TREE = 16  # with more latents a search tree visits every code anyway, but slowly

# Moves in the 32 nearest directions of a grid, up to sign: with only the 8 nearest a path
# can be 8 % too long, with these 1.3 %, and relaxation removes the rest.
_MOVES = [(1, 0), (0, 1), (1, 1), (1, -1), (2, 1), (2, -1), (1, 2), (1, -2)]
_MOVES += [(3, 1), (3, -1), (1, 3), (1, -3), (3, 2), (3, -2), (2, 3), (2, -3)]


@dataclass(frozen=True, eq=False)
class ManifoldPath(Result):
    """A path between two codes that keeps to the data, and the straight line."""

    points: Codes  # whole latent vectors, at equal arc length, ends included
    straight: Codes
    cost: float  # integral of |F|^2
    straight_cost: float
    length: float
    straight_length: float
    profile: Float[Tensor, " points"]  # |F|^2 at the points
    straight_profile: Float[Tensor, " points"]
    minimised: Cost
    decoded_length: float
    straight_decoded_length: float
    largest_jump: float  # between decoded points
    straight_largest_jump: float
    code_distance: Float[Tensor, " points"] | None  # from the nearest codes, in their spacing
    straight_code_distance: Float[Tensor, " points"] | None
    code_limit: float | None  # beyond, a point is off the data
    temperature: float
    dims: tuple[int, int] | None  # the plane, or None for a path in all latents
    frames: Tensor  # decoded at equal arc length
    straight_frames: Tensor
    codes: Tensor | None = dataclasses.field(repr=False)
    map: ResponseMap | None = dataclasses.field(repr=False)

    @property
    def warning(self) -> str | None:
        """Whether the path leaves the data; None if it does not, or if no codes are known."""
        if self.code_distance is None or self.code_limit is None:
            return None
        farthest = float(self.code_distance.max())
        if farthest <= self.code_limit:
            return None
        for name, distance in (("start", self.code_distance[0]), ("end", self.code_distance[-1])):
            if float(distance) == farthest:
                return (
                    f"the {name} of the path is far from other codes: {farthest:.1f} times their "
                    f"spacing (up to {self.code_limit:.1f} is usual), and no other point is "
                    "farther. Is it an outlier? Choose another, or sample more codes."
                )
        return (
            f"the path leaves the data: it is up to {farthest:.1f} times the spacing of codes "
            f"away from them (up to {self.code_limit:.1f} is usual). Does the data have separate "
            "parts? Choose ends in one of them, or sample more codes."
        )

    def summary(self) -> list[tuple[str, str]]:
        def both(path: float, straight: float) -> str:
            return f"{path:.4g} (straight line {straight:.4g})"

        rows = [
            ("minimised", self.minimised),
            ("length", both(self.length, self.straight_length)),
            ("integral of |F|^2", both(self.cost, self.straight_cost)),
            ("decoded length", both(self.decoded_length, self.straight_decoded_length)),
            ("largest decoded jump", both(self.largest_jump, self.straight_largest_jump)),
        ]
        if self.code_distance is not None and self.straight_code_distance is not None:
            farthest = self.code_distance.max(), self.straight_code_distance.max()
            rows.append(("farthest from codes", both(*map(float, farthest))))
        return [*rows, ("warning", self.warning)] if self.warning else rows

    def to_dict(self) -> dict[str, Any]:
        """Without the map, the codes and the pictures."""
        left_out = ("map", "codes", "frames", "straight_frames")
        return {name: value for name, value in super().to_dict().items() if name not in left_out}

    def plot(self, ax: Any = None) -> Any:
        """The paths in the plane on `ax`; without it a figure with film strips and costs."""
        from zscope.plots import path_figure, path_plane

        return path_figure(self) if ax is None else path_plane(self, ax=ax)


@accepts_recording
def manifold_path(
    subject: ResponseMap | Autoencoder,
    start: Tensor | np.ndarray,
    end: Tensor | np.ndarray,
    *,
    codes: Tensor | np.ndarray | None = None,
    cost: Cost | None = None,
    temperature: float | None = None,
    points: int = 101,
    frames: int = 9,
    samples: int = 400,
    neighbours: int = 10,
    relax: int | None = None,
    generator: Generator | None = None,
) -> ManifoldPath:
    """The path from `start` to `end` in the plane of a response map, or in all latents.

    In a plane the ends are two numbers or whole latent vectors (of which the two latents
    of the map are used). In all latents `codes` show where the manifold is; `samples` of them
    are connected to their `neighbours` nearest, or to more if the graph is disconnected; the
    density is that of all of them.
    `cost` is what the path minimises, by default the density where codes are known.
    `temperature` is by default a tenth of the median cost over the codes (for a map without
    codes, over the fifth of the map with the smallest |F|). `relax` is the largest
    number of relaxation steps (by default 100 in a plane and 20 in all latents, where each
    step runs the model); 0 leaves the path on its graph, for models without gradients.
    """
    whole("manifold_path", points=points, frames=frames)
    whole("manifold_path", 1, samples=samples, neighbours=neighbours)
    if relax is not None:
        whole("manifold_path", 0, relax=relax)
    if points < 2 or frames < 2:
        raise ConfigError(
            f"manifold_path: points={points}, frames={frames}; a path has at least its two ends."
        )
    if temperature is not None and not 0 < temperature < float("inf"):
        raise ConfigError(
            f"manifold_path: temperature={temperature}; it must be a number above 0, or the path "
            "could wander for free where the field vanishes. Leave it out for a default."
        )
    plane = subject if isinstance(subject, ResponseMap) else None
    space: _Plane | _AllLatents
    if isinstance(subject, ResponseMap):
        space = _Plane(subject)
    else:
        space = _AllLatents(subject, codes, samples, generator)
    space.choose(cost)
    ends = torch.stack([space.end(start, "start"), space.end(end, "end")])
    if temperature is None:
        # Where the field nearly vanishes, paths would follow its rounding errors.
        temperature = max(space.temperature(), (1e-4 * length(ends)) ** 2) or 1.0
    straight = resample(ends, points)
    candidates = [straight]
    if not torch.equal(ends[0], ends[1]):
        starts = [straight, space.graph_path(ends, temperature, neighbours)]
        relax = space.relax if relax is None else relax
        if relax > 0:
            options: dict[str, Any] = {"pieces": space.pieces, "bounds": space.bounds}
            starts += [relax_chain(c, space.smooth, temperature, relax, **options) for c in starts]
        candidates += [resample(chain, points) for chain in starts[1:]]
    # Relaxation finds the nearest minimum, which need not be the lowest: all candidates are
    # compared by the same fine quadrature. The straight line wins unless another is better.
    totals = [integral(c, space.exact) + temperature * length(c) for c in candidates]
    best = candidates[0 if totals[0] <= min(totals) * (1 + 1e-6) else totals.index(min(totals))]
    model = space.autoencoder
    decoded, straight_decoded = (_steps(decode(model, space.whole(c))) for c in (best, straight))
    return ManifoldPath(
        points=space.whole(best),
        straight=space.whole(straight),
        cost=integral(best, space.measure),
        straight_cost=integral(straight, space.measure),
        length=length(best),
        straight_length=length(straight),
        profile=space.measure(best),
        straight_profile=space.measure(straight),
        minimised=space.minimised,
        decoded_length=float(decoded.sum()),
        straight_decoded_length=float(straight_decoded.sum()),
        largest_jump=float(decoded.max()),
        straight_largest_jump=float(straight_decoded.max()),
        code_distance=None if space.density is None else space.density(best).sqrt(),
        straight_code_distance=None if space.density is None else space.density(straight).sqrt(),
        code_limit=None if space.density is None else space.density.limit,
        temperature=temperature,
        dims=None if plane is None else plane.dims,
        frames=decode(model, space.whole(resample(best, frames))).cpu(),
        straight_frames=decode(model, space.whole(resample(straight, frames))).cpu(),
        codes=space.codes,
        map=plane,
    )


class _Density:
    """How far points are from the nearest codes: mean squares, in units of their spacing."""

    def __init__(self, codes: Tensor) -> None:
        # Repeated codes would have no distance from each other.
        self.codes = codes.detach().double().cpu().unique(dim=0)
        self.count = min(NEAREST, len(self.codes))
        self.tree = None
        if codes.shape[1] <= MOST_FOR_TREE:
            from scipy.spatial import KDTree

            self.tree = KDTree(self.codes.numpy())
        # From each other, not from themselves; the last code may have one neighbour less.
        near, _ = self._nearest(self.codes, min(self.count + 1, len(self.codes)))
        distances = torch.zeros(len(self.codes), self.count, dtype=torch.float64)
        distances[:, : near.shape[1] - 1] = near[:, 1:]
        self.spacing = float(distances.mean(1).median()) or 1.0
        own = distances.square().mean(1).sqrt() / self.spacing
        self.limit = float(np.quantile(own.numpy(), 0.99))

    def __call__(self, points: Tensor) -> Tensor:
        """For points of any leading shape, with gradients."""
        flat = points.double().reshape(-1, points.shape[-1])
        _, index = self._nearest(flat.detach(), self.count)
        squares = (flat[:, None] - self.codes[index]).square().sum(-1)
        density: Tensor = squares.mean(1).reshape(points.shape[:-1]) / self.spacing**2
        return density

    def _nearest(self, points: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Distances and indices of the nearest codes, the nearest first."""
        if self.tree is not None:
            near, index = self.tree.query(points.numpy(), k=list(range(1, count + 1)))
            return torch.from_numpy(near), torch.from_numpy(index)
        parts = [
            torch.cdist(part, self.codes).topk(count, largest=False) for part in points.split(1024)
        ]
        return torch.cat([part.values for part in parts]), torch.cat(
            [part.indices for part in parts]
        )


class _Space:
    """What a path minimises: `smooth` with gradients, `exact` where it is compared."""

    density: _Density | None
    minimised: Cost

    def choose(self, cost: Cost | None) -> None:
        if cost == "density" and self.density is None:
            raise ConfigError(
                "manifold_path: cost='density' needs codes of data, and the map has none. Give "
                "response_map(..., codes=zs.record(model, data).codes), or use cost='field'."
            )
        self.minimised = cost or ("field" if self.density is None else "density")

    def smooth(self, points: Tensor) -> Tensor:
        if self.minimised == "density" and self.density is not None:
            return self.density(points).square()
        return self.squares(points)

    def exact(self, points: Tensor) -> Tensor:
        if self.minimised == "density" and self.density is not None:
            return self.density(points).square()
        return self.measure(points)

    def squares(self, points: Tensor) -> Tensor:
        raise NotImplementedError

    def measure(self, points: Tensor) -> Tensor:
        raise NotImplementedError


class _Plane(_Space):
    """Paths over two latents: relaxed on the grid of the map, measured by the true response."""

    relax, pieces = 100, 64

    def __init__(self, plane: ResponseMap) -> None:
        self.map, self.autoencoder = plane, plane.autoencoder
        self.codes = plane.codes
        low0, high0, low1, high1 = plane.extent
        self.bounds = torch.tensor([[low0, high0], [low1, high1]], dtype=torch.float64)
        self.density = None if self.codes is None else _Density(self.codes)

    def end(self, value: Tensor | np.ndarray, name: str) -> Tensor:
        # Rounded like the edges of the map, so that a code on an edge is inside.
        vector = as_codes(value, f"manifold_path: {name}")[0].to(self.map.base.dtype).double()
        if len(vector) == self.map.base.shape[1]:
            vector = vector[list(self.map.dims)]
        if len(vector) != 2:
            raise ConfigError(
                f"manifold_path: {name} has {len(vector)} numbers; in a plane give 2, or a whole "
                f"latent vector of {self.map.base.shape[1]}."
            )
        if (vector < self.bounds[:, 0]).any() or (vector > self.bounds[:, 1]).any():
            (a, b), (c, d) = self.bounds.tolist()
            raise ConfigError(
                f"manifold_path: {name} ({vector[0]:.4g}, {vector[1]:.4g}) lies off the map, which "
                f"covers {a:.4g} to {b:.4g} and {c:.4g} to {d:.4g}. Is it an outlier? Make the map "
                "wider: response_map(..., extent=(low, high, low, high))."
            )
        return vector

    def whole(self, points: Tensor) -> Codes:
        return in_plane(self.map.base[0], self.map.dims, points)

    def temperature(self) -> float:
        if self.codes is not None:
            inside = ((self.codes >= self.bounds[:, 0]) & (self.codes <= self.bounds[:, 1])).all(1)
            if inside.any():
                return _default_temperature(self.smooth(self.codes[inside]))
        squares = self.map.field.square().sum(-1).flatten()
        return _default_temperature(squares.sort().values[: max(1, len(squares) // 5)])

    def squares(self, points: Tensor) -> Tensor:
        """|F|^2 with F interpolated bilinearly between grid points."""
        low, high = self.bounds.T
        # grid_sample wants -1 to 1 and the fastest axis first.
        where = (2 * (points - low) / (high - low) - 1).flip(-1).reshape(1, 1, -1, 2)
        image = self.map.field.permute(2, 0, 1).unsqueeze(0)
        value = torch.nn.functional.grid_sample(
            image, where, mode="bilinear", padding_mode="border", align_corners=True
        )
        return value.square().sum(1).reshape(points.shape[:-1])

    def measure(self, points: Tensor) -> Tensor:
        base, dims = self.map.base, self.map.dims
        field = planar_field(self.autoencoder, base, dims, points)
        return field.square().sum(1)

    def graph_path(self, ends: Tensor, temperature: float, neighbours: int) -> Tensor:
        shape = tuple(len(axis) for axis in self.map.axes)
        nodes = torch.cartesian_prod(*self.map.axes)
        number = np.arange(len(nodes)).reshape(shape)
        sources, targets = [], []
        for across, up in _MOVES:
            if across >= shape[0] or abs(up) >= shape[1]:
                continue
            here = number[: shape[0] - across]
            there = number[across:]
            sources.append(here[:, max(0, -up) : shape[1] - max(0, up)].ravel())
            targets.append(there[:, max(0, up) : shape[1] + min(0, up)].ravel())
        # The ends lie between grid points: each is connected to those of the cells around it.
        spacing = (self.bounds[:, 1] - self.bounds[:, 0]) / (torch.tensor(shape) - 1)
        for k in (0, 1):
            near = ((nodes - ends[k]).abs() <= 2 * spacing).all(1).nonzero()[:, 0].numpy()
            sources.append(np.full(len(near), len(nodes) + k))
            targets.append(near)
        nodes = torch.cat([nodes, ends])
        edges = np.concatenate(sources), np.concatenate(targets)
        if self.minimised == "density":  # the search for neighbours is slow
            sparse = self.exact(nodes)
            return shortest(nodes, edges, (sparse[edges[0]] + sparse[edges[1]]) / 2 + temperature)
        share = torch.linspace(0, 1, 7, dtype=torch.float64)[1::2]
        first, second = nodes[edges[0]], nodes[edges[1]]
        costs = torch.stack([self.smooth(first.lerp(second, s)) for s in share]).mean(0)
        return shortest(nodes, edges, costs + temperature)


class _AllLatents(_Space):
    """Paths over all latents: they start on the nearest-neighbour graph of the codes."""

    bounds = None
    relax, pieces = 20, 32

    def __init__(
        self,
        autoencoder: Autoencoder,
        codes: Tensor | np.ndarray | None,
        samples: int,
        generator: Generator | None,
    ) -> None:
        if codes is None:
            raise ConfigError(
                "manifold_path: a path in all latents needs codes that show where the manifold "
                "is. Give codes=zs.record(model, data).codes, or a response map for a planar path."
            )
        codes = as_codes(codes, "manifold_path: codes")
        # Of all codes: among a few hundred, gaps are hardly wider than their spacing.
        self.density = _Density(codes)
        if len(codes) > samples:
            order = torch.randperm(len(codes), generator=fresh(generator))
            codes = codes[order[:samples].sort().values]
        self.autoencoder, self.codes = single_precision(autoencoder), codes

    def end(self, value: Tensor | np.ndarray, name: str) -> Tensor:
        vector = as_codes(value, f"manifold_path: {name}")[0].double()
        if len(vector) != self.codes.shape[1]:
            raise ConfigError(
                f"manifold_path: {name} has {len(vector)} numbers, but the codes have "
                f"{self.codes.shape[1]} latents. Give a whole latent vector."
            )
        return vector

    def whole(self, points: Tensor) -> Codes:
        return points.to(self.codes.dtype)

    def temperature(self) -> float:
        return _default_temperature(self.exact(self.codes))

    def measure(self, points: Tensor) -> Tensor:
        points = points.to(self.codes.dtype)
        response = respond(self.autoencoder, points)
        return (response.double() - points.double()).square().sum(1)

    def squares(self, points: Tensor) -> Tensor:
        codes = self.whole(points.reshape(-1, points.shape[-1]))
        device, dtype = self.autoencoder.place
        if not any(True for _ in self.autoencoder.parameters()):
            dtype = codes.dtype
        response = None
        with evaluation(self.autoencoder, gradients=True), suppress(NoGradients):
            decoded = self.autoencoder.decode(codes.to(device, dtype))
            response = encode_alone(self.autoencoder, decoded).mean
        if response is None or not response.requires_grad:
            raise InterfaceError(
                "manifold_path: the model's response has no gradient with respect to the codes, "
                "so the path cannot be relaxed. Does it leave torch or switch gradients off? "
                "Call with relax=0 for the path on the graph of codes."
            )
        return (response.to(codes) - codes).double().square().sum(1).reshape(points.shape[:-1])

    def graph_path(self, ends: Tensor, temperature: float, neighbours: int) -> Tensor:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components
        from scipy.spatial import KDTree

        # Duplicate codes would only be neighbours of each other.
        nodes = torch.cat([ends, self.codes.double().unique(dim=0)])
        tree, count = KDTree(nodes.numpy()), len(nodes)
        neighbours = max(1, min(neighbours, count - 1))
        while True:
            _, near = tree.query(nodes.numpy(), k=neighbours + 1)
            sources, targets = np.repeat(np.arange(count), neighbours + 1), near.ravel()
            graph = coo_array((np.ones(len(sources)), (sources, targets)), shape=(count, count))
            _, part = connected_components(graph, directed=False)
            if part[0] == part[1]:
                break
            neighbours = min(2 * neighbours, count - 1)
        pairs = np.unique(np.sort(np.stack([sources, targets]), axis=0), axis=1)
        edges = pairs[:, pairs[0] != pairs[1]]
        at_nodes = self.exact(nodes)
        middle = self.exact((nodes[edges[0]] + nodes[edges[1]]) / 2)
        costs = (at_nodes[edges[0]] + at_nodes[edges[1]] + 4 * middle) / 6
        return shortest(nodes, (edges[0], edges[1]), costs + temperature, source=0, target=1)


def _steps(decoded: Tensor) -> Tensor:
    """The distances between consecutive decoded points."""
    steps: Tensor = decoded.cpu().flatten(1).double().diff(dim=0).norm(dim=1)
    return steps


def _default_temperature(squares: Tensor) -> float:
    """A tenth of the median: to stay near codes, paths may be about ten times longer."""
    return squares.median().item() / 10


ENTRY = Entry(
    question="Which path leads from one code to another without leaving the data manifold?",
    meaning=(
        "The path between two codes that stays near codes of data; its cost is compared with that "
        "of the straight line, which may cross a hole."
    ),
    figure=(
        "The path and the straight line in the plane of the latents, how far codes on both move "
        "when decoded and encoded again, and the pictures along the way: a straight line through a "
        "hole moves further and decodes to pictures unlike the data."
    ),
    takes=("autoencoder", "start_code", "end_code", "codes=codes"),
    # To evaluate the path; the field also has to be measured on the graph and while relaxing.
    passes="1_450 + (cost == 'field') * (samples * (neighbours + 2) + 9_000)",
    maps="offsets",
)
