"""Response map: where in a plane of latents are codes self-consistent and like data?

On a grid over latents i and j, with the other latents fixed at a base vector, the response
field is the change of the two latents when codes are decoded and encoded again,

    F(g) = ( R(z_g) - z_g )_{i, j},            R(z) = encoder(decoder(z))

Its divergence shows where responses converge (negative: towards self-consistent codes) and
where they diverge (positive: a boundary); its mean curvature shows how sharply,

    div F = dF_i/dz_i + dF_j/dz_j,             H = -1/2 div( F / |F| )

so an attracting point, F = -z, has div F = -2 and H = 1/(2r) at distance r. Several base
vectors give the mean field, the average of F over them.

Derivatives are central differences divided by the grid spacing (one-sided at the edges),
so the divergence of a linear field is its trace on any grid, and values converge as the
grid gets finer. Where F is too small to have a direction, H is 0 and `undefined` is True;
no value is NaN. Exchanging the two latents transposes the map.

Self-consistent is not the same as like data: responses may converge to a code that decodes to
an empty picture. So `scores` tells of each point of a coarser grid, at the first base vector,
whether it lies in a hole, how far its code is from codes of data, and how far the decoded
observation is from data (see `holes`). `unlike` are the points that are far; figures hatch them.

Leeb et al., "Interventional assays for the latent space of autoencoders", sec. 4.3,
eqs. 9 and 12. Their code omits the spacing.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import decode, responses
from zscope.assays.entry import Entry
from zscope.assays.responses.holes import HoleReference, HoleScore
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, Undefined
from zscope.results import Result
from zscope.sampling import whole
from zscope.types import Codes, as_tensor

__all__ = [
    "Axis", "ResponseMap", "as_codes", "divergence", "in_plane", "planar_field", "response_map",
]  # fmt: skip

Axis = Float[Tensor, " points"]
Plane = Float[Tensor, "first second"]
Field = Float[Tensor, "first second 2"]


@dataclass(frozen=True, eq=False)
class ResponseMap(Result):
    """The response field over two latents; entry [a, b] is at axes[0][a], axes[1][b]."""

    dims: tuple[int, int]
    axes: tuple[Axis, Axis]
    field: Field
    divergence: Plane
    curvature: Plane  # 0 where undefined
    undefined: Bool[Tensor, "first second"]  # no direction: |F| below the floor here or next to it
    base: Float[Tensor, "bases latents"]
    codes: Float[Tensor, "samples 2"] | None  # the given codes, projected onto the plane
    decoded: Tensor | None  # decode_grid x decode_grid x observation, over the same extent
    scores: HoleScore | None  # of score_grid x score_grid points over the same extent
    autoencoder: Autoencoder = dataclasses.field(repr=False)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Lowest and highest value of the first latent, then of the second."""
        first, second = self.axes
        return first[0].item(), first[-1].item(), second[0].item(), second[-1].item()

    @property
    def magnitude(self) -> Plane:
        """|F|: how far one pass moves a code."""
        magnitude: Tensor = torch.linalg.vector_norm(self.field, dim=-1)
        return magnitude

    @property
    def unlike(self) -> Bool[Tensor, "side side"] | None:
        """Which points of the coarser grid are unlike data; None if they were not compared."""
        return None if self.scores is None else self._on_grid(self.scores.unlike_data)

    @property
    def in_holes(self) -> Bool[Tensor, "side side"] | None:
        """Which points of the coarser grid are not self-consistent."""
        return None if self.scores is None else self._on_grid(self.scores.holes)

    def _on_grid(self, points: list[int]) -> Tensor:
        assert self.scores is not None
        marked = torch.zeros(self.scores.samples, dtype=torch.bool)
        marked[points] = True
        side = math.isqrt(len(marked))
        return marked.reshape(side, side)

    def to_dict(self) -> dict[str, Any]:
        """Without the model and the pictures."""
        values = super().to_dict()
        del values["autoencoder"], values["decoded"]
        return values

    def summary(self) -> list[tuple[str, str]]:
        converging = float((self.divergence < 0).double().mean())
        return [
            ("latents", f"{self.dims[0]} and {self.dims[1]}"),
            ("grid", " x ".join(str(len(axis)) for axis in self.axes)),
            ("base vectors", str(len(self.base))),
            ("mean displacement", f"{float(self.magnitude.mean()):.4g}"),
            ("mean divergence", f"{float(self.divergence.mean()):.4g}"),
            ("responses converge on", f"{100 * converging:.1f} % of the map"),
            *self._shares(),
        ]

    def _shares(self) -> list[tuple[str, str]]:
        """How much of the map is self-consistent, and how much of that is like data."""
        unlike, in_holes = self.unlike, self.in_holes
        if unlike is None or in_holes is None:
            return []
        shares = {
            "self-consistent, like data": ~in_holes & ~unlike,
            "self-consistent, unlike data": ~in_holes & unlike,
            "in holes": in_holes,
        }
        return [
            (name, f"{100 * float(points.double().mean()):.1f} % of the map")
            for name, points in shares.items()
        ]

    def plot(
        self, ax: Any = None, *, factor: Any = None, names: Sequence[str] | None = None
    ) -> Any:
        """The divergence on `ax`; without it a figure with the curvature and decoded grid too.

        `factor` (a value for each of the codes the map was made with) colours the codes.
        """
        from zscope.plots import divergence_map, map_figure

        if ax is not None:
            return divergence_map(self, factor=factor, names=names, ax=ax)
        return map_figure(self, factor=factor, names=names)


@accepts_recording
def response_map(
    autoencoder: Autoencoder,
    base: Tensor | np.ndarray,
    dims: Sequence[int] = (0, 1),
    *,
    codes: Tensor | np.ndarray | None = None,
    grid: int = 100,
    extent: float | Sequence[Any] | Tensor | np.ndarray | None = None,
    decode_grid: int = 12,
    score_grid: int = 33,
    reference: HoleReference | None = None,
    floor: float = 1e-5,
) -> ResponseMap:
    """The response field over latents `dims`, with the others fixed at `base`.

    `base` is one latent vector, or several for their mean field. The map covers the 0.5 to
    99.5 % range of `codes`, or `extent`: (low, high) for both latents, (low, high, low, high),
    or 2 for (-2, 2). `decode_grid=12` also decodes 12 x 12 points of the map (at the first base
    vector), and `score_grid=33` compares 33 x 33 with data, given what `hole_reference` returns.
    Where |F| is below `floor` times the map's diagonal, it has no direction.
    """
    vectors = as_codes(base, "response_map: base")
    latents = vectors.shape[1]
    pair = _latent_pair(dims, latents)
    whole("response_map", grid=grid)
    whole("response_map", 0, decode_grid=decode_grid, score_grid=score_grid)
    if not floor >= 0:
        raise ConfigError(
            f"response_map: floor={floor}; it is a share of the map and must be >= 0."
        )
    if grid < 2:
        raise ConfigError(
            f"response_map: grid={grid}; derivatives need at least 2 points per side. The default "
            "of 100 shows the structure of most models."
        )
    plane_codes = None
    if codes is not None:
        plane_codes = as_codes(codes, "response_map: codes")
        if plane_codes.shape[1] != latents:
            raise ConfigError(
                f"response_map: codes with {plane_codes.shape[1]} latents, but the base vector has "
                f"{latents}. Do both come from this model? Give zs.record(model, data).codes."
            )
        plane_codes = plane_codes[:, list(pair)].double()
    lows, highs = _ranges(extent, plane_codes, pair)
    # The axes are rounded to the dtype of the codes, in which the model is evaluated.
    first, second = (
        torch.linspace(low, high, grid, dtype=torch.float64).to(vectors.dtype).double()
        for low, high in zip(lows, highs, strict=True)
    )
    axes = first, second
    points = torch.cartesian_prod(first, second)
    field = planar_field(autoencoder, vectors, pair, points).reshape(grid, grid, 2)
    curvature, undefined = mean_curvature(field, axes, floor=floor)
    return ResponseMap(
        dims=pair,
        axes=axes,
        field=field,
        divergence=divergence(field, axes),
        curvature=curvature,
        undefined=undefined,
        base=vectors,
        codes=plane_codes,
        decoded=_decoded_tiles(autoencoder, vectors, pair, axes, decode_grid),
        scores=_scores(autoencoder, reference, vectors, pair, axes, score_grid),
        autoencoder=autoencoder,
    )


def divergence(field: Field, axes: tuple[Axis, Axis]) -> Plane:
    """dF_0/dz_0 + dF_1/dz_1 by central differences with the spacing of `axes`."""
    (first,) = torch.gradient(field[..., 0], spacing=(axes[0],), dim=0)
    (second,) = torch.gradient(field[..., 1], spacing=(axes[1],), dim=1)
    return first + second


def mean_curvature(
    field: Field, axes: tuple[Axis, Axis], *, floor: float = 1e-5
) -> tuple[Plane, Bool[Tensor, "first second"]]:
    """H = -1/2 div(F / |F|), and where it is undefined (H is 0 there)."""
    size = field.norm(dim=-1, keepdim=True)
    diagonal = torch.stack([axis[-1] - axis[0] for axis in axes]).norm()
    small = size[..., 0] <= floor * diagonal
    direction = field / size.clamp_min(torch.finfo(field.dtype).tiny)
    # A difference is undefined if either of its two points is.
    undefined = small.clone()
    undefined[1:] |= small[:-1]
    undefined[:-1] |= small[1:]
    undefined[:, 1:] |= small[:, :-1]
    undefined[:, :-1] |= small[:, 1:]
    curvature = -0.5 * divergence(direction, axes)
    return curvature.masked_fill(undefined, 0.0), undefined


def in_plane(base: Tensor, dims: tuple[int, int], points: Float[Tensor, "samples 2"]) -> Codes:
    """Whole latent vectors: `points` in the latents `dims`, the rest from a base vector."""
    codes = base.expand(len(points), -1).clone()
    codes[:, list(dims)] = points.to(codes)
    return codes


def as_codes(values: Tensor | np.ndarray, who: str) -> Codes:
    """One latent vector or several, as finite rows on the CPU, with their floating dtype."""
    rows = as_tensor(values, who).detach().cpu()
    if rows.is_complex():
        raise ConfigError(f"{who} has complex numbers; expected real ones.")
    rows = rows if rows.is_floating_point() else rows.to(torch.get_default_dtype())
    rows = rows.unsqueeze(0) if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.numel() == 0:
        raise ConfigError(
            f"{who} has shape {tuple(rows.shape)}; expected one latent vector, "
            "or one row of latents for each sample."
        )
    if not rows.isfinite().all():
        raise Undefined(
            f"{who} contains NaN or infinite numbers in {int((~rows.isfinite().all(1)).sum())} of "
            f"{len(rows)} rows. Has the encoder diverged? Check the weights and the data's scale."
        )
    return rows


def planar_field(
    autoencoder: Autoencoder,
    base: Codes,
    dims: tuple[int, int],
    points: Float[Tensor, "points 2"],
) -> Float[Tensor, "points 2"]:
    """F at points of the plane, averaged over the base vectors, chunk by chunk."""
    count, columns = len(points), list(dims)
    # Points are rounded to the dtype of the codes before anything is subtracted from them:
    # otherwise the rounding itself would look like a small response.
    points = points.to(base.dtype)

    def build(start: int, stop: int) -> Tensor:
        rows = torch.arange(start, stop)
        codes = base[rows // count]
        codes[:, columns] = points[rows % count]
        return codes

    total = torch.zeros(count, 2, dtype=torch.float64)
    for start, stop, posterior in responses(autoencoder, count * len(base), build):
        rows = torch.arange(start, stop) % count
        total.index_add_(0, rows, posterior.mean[:, columns].double())
    return total / len(base) - points.double()


def _decoded_tiles(
    autoencoder: Autoencoder,
    base: Codes,
    dims: tuple[int, int],
    axes: tuple[Axis, Axis],
    count: int,
) -> Tensor | None:
    """Observations at the centres of count x count tiles of the map."""
    if count < 1:
        return None
    centres = [
        axis[0] + (axis[-1] - axis[0]) * (torch.arange(count) + 0.5) / count for axis in axes
    ]
    codes = in_plane(base[0], dims, torch.cartesian_prod(*centres))
    images = decode(autoencoder, codes)
    return images.cpu().reshape(count, count, *images.shape[1:])


def _scores(
    autoencoder: Autoencoder,
    reference: HoleReference | None,
    base: Codes,
    dims: tuple[int, int],
    axes: tuple[Axis, Axis],
    count: int,
) -> HoleScore | None:
    """How self-consistent and how like data count x count points of the map are."""
    if reference is None or count < 2:
        return None
    points = [torch.linspace(float(a[0]), float(a[-1]), count, dtype=torch.float64) for a in axes]
    codes = in_plane(base[0], dims, torch.cartesian_prod(*points))
    # The map may be of a copy of the model.
    return dataclasses.replace(reference, autoencoder=autoencoder).score(codes)


def _latent_pair(dims: Sequence[int], latents: int) -> tuple[int, int]:
    for dim in dims:
        whole("response_map", dims=dim)
    if len(dims) != 2 or dims[0] == dims[1] or not all(0 <= dim < latents for dim in dims):
        raise ConfigError(
            f"response_map: dims={tuple(dims)} of a model with {latents} latents; a map needs two "
            f"different latents from 0 to {latents - 1}. Which two share structure? See the "
            "response matrix."
        )
    return int(dims[0]), int(dims[1])


def _ranges(
    extent: Any, codes: Tensor | None, dims: tuple[int, int]
) -> tuple[list[float], list[float]]:
    if extent is not None:
        try:
            numbers = np.asarray(extent, dtype=np.float64).flatten()
        except (TypeError, ValueError):
            numbers = np.empty(0)
        if len(numbers) == 1:
            numbers = np.array([-numbers[0], numbers[0]])
        if len(numbers) == 2:
            numbers = np.tile(numbers, 2)
        if len(numbers) != 4 or not np.isfinite(numbers).all():
            raise ConfigError(
                f"response_map: extent={extent!r}; give (low, high) for both latents, or (low, "
                "high, low, high)."
            )
        lows, highs = numbers.reshape(2, 2).T.tolist()
    elif codes is not None:
        # torch.quantile refuses more than 16 million numbers; numpy does not.
        lows, highs = np.quantile(codes.numpy(), [0.005, 0.995], axis=0).tolist()
    else:
        raise ConfigError(
            "response_map: neither codes nor an extent were given, so the range of the map is not "
            "known. Give codes=zs.record(model, data).codes, or extent=(-3, 3)."
        )
    for dim, low, high in zip(dims, lows, highs, strict=True):
        if not low < high:
            raise Undefined(
                f"response_map: latent {dim} runs from {low:.4g} to {high:.4g}, which leaves "
                "nothing to map. Has this latent collapsed to one value? Choose another latent, "
                "or give extent=(low, high)."
            )
    return lows, highs


ENTRY = Entry(
    question="Where in a plane of latents are codes self-consistent and like data?",
    meaning=(
        "Where responses converge (negative divergence) codes are drawn together; where they "
        "diverge there is a boundary, which a path between codes should not cross."
    ),
    figure=(
        "Responses converge where the plane is blue and diverge where it is red, a boundary that a "
        "path should not cross; dots are codes of data, hatched codes are unlike data."
    ),
    takes=("autoencoder", "base", "plane", "codes=codes", "reference=hole_reference"),
    needs=("two latents",),
    passes="grid * grid + decode_grid * decode_grid + score_grid * score_grid + 2048",
    uses=("dims=response-matrix",),
    maps="offsets",
)
