"""Map: the response over a plane of two latents, the codes in it, and paths between points."""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from zscope.assays.parts import PARTS
from zscope.assays.responses.holes import HoleReference
from zscope.assays.responses.maps import ResponseMap, in_plane
from zscope.assays.responses.paths import ManifoldPath, manifold_path
from zscope.errors import ConfigError
from zscope.explorer.session import Session
from zscope.explorer.views.query import CodeQuery, Index, Pair

__all__ = ["Map", "Path", "Plane", "path", "response_plane"]

Layer = Literal["divergence", "curvature", "magnitude", "holes", "from_codes", "from_data", "none"]
POINTS = 2000
"""The largest number of codes to draw."""


class Plane(CodeQuery):
    """A plane of two latents; the latent vector gives the values of the others."""

    first: Index | None = None
    """The latent of the x axis; without either, the pair with the strongest mutual response."""
    second: Index | None = None
    """The latent of the y axis; by default the most important one besides `first`."""
    grid: Annotated[int, Field(ge=4, le=128)] = 48
    """The number of grid points per side."""


class Map(Plane):
    """A plane, the quantity to show, and the factor that colours the codes."""

    layer: Layer = "divergence"
    """The quantity to compute on the grid."""
    factor: Index | None = None
    """The factor whose values are returned with the codes."""


class Path(Plane):
    """A plane, and two of its points."""

    start: Pair
    """The first point, in the two latents of the plane."""
    end: Pair
    """The last point."""
    within: Literal["plane", "all"] = "plane"
    """Whether the path stays in the plane or may use all latents."""
    frames: Annotated[int, Field(ge=2, le=25)] = 9
    """The number of points of each path to decode."""


def response_plane(session: Session, query: Map) -> dict[str, Any]:
    """The codes over two latents, and on a grid the divergence, curvature or magnitude of the
    response, the hole score, or the distance of the codes or of the decoded points from data.

    `unlike` marks the grid points that are far from data, whatever is shown.
    """
    dims, key = _plane(session, query)
    rows = torch.linspace(0, len(session.codes) - 1, min(POINTS, len(session.codes))).long()
    low0, high0, low1, high1 = _extent(session, dims)
    answer: dict[str, Any] = {
        "dims": dims,
        "base": session.code(query.z, query.sample),
        "extent": [low0, high0, low1, high1],
        "layer": query.layer,
        "values": None,
        "unlike": None,
        "samples": rows,
        "codes": session.codes[rows][:, list(dims)],
        "factor": _factor_values(session, query.factor, rows),
    }
    if query.layer == "none":
        return answer
    field = _response_map(session, query, dims, key)
    answer["unlike"] = field.unlike
    if query.layer in ("divergence", "curvature", "magnitude"):
        answer["values"] = getattr(field, query.layer)
    else:
        scores = field.scores
        if scores is None:
            assert not isinstance(session.hole_reference, HoleReference)
            raise session.hole_reference
        values = {
            "holes": scores.ratio,
            "from_codes": scores.code_distance,
            "from_data": scores.data_distance,
        }[query.layer]
        answer["values"] = None if values is None else values.reshape(query.grid, query.grid)
    return {**answer, "undefined": field.undefined if query.layer == "curvature" else None}


def path(session: Session, query: Path) -> dict[str, Any]:
    """The straight line and the manifold path between two points of a plane, decoded."""
    dims, key = _plane(session, query)
    field = _response_map(session, query, dims, key)
    # Whole latent vectors: if the model has two latents, a pair would not tell their order.
    points = torch.tensor([query.start, query.end], dtype=torch.float64)
    start, end = in_plane(field.base[0], dims, points)

    def compute() -> ManifoldPath:
        if query.within == "plane":
            return manifold_path(field, start, end, frames=query.frames)
        result: ManifoldPath = session.measure(
            "manifold-path", start=start, end=end, frames=query.frames
        )
        return result

    name = ("path", query.within, query.frames, *query.start, *query.end, *key)
    result = session.cached(name, compute)
    return {
        "dims": dims,
        "within": query.within,
        "points": result.points[:, list(dims)],
        "straight": result.straight[:, list(dims)],
        "cost": result.cost,
        "straight_cost": result.straight_cost,
        "length": result.length,
        "straight_length": result.straight_length,
        "minimised": result.minimised,
        "decoded_length": result.decoded_length,
        "straight_decoded_length": result.straight_decoded_length,
        "largest_jump": result.largest_jump,
        "straight_largest_jump": result.straight_largest_jump,
        "from_codes": _largest(result.code_distance),
        "straight_from_codes": _largest(result.straight_code_distance),
        "warning": result.warning,
        "profile": result.profile,
        "straight_profile": result.straight_profile,
        "frames": session.renderer.render(result.frames),
        "straight_frames": session.renderer.render(result.straight_frames),
    }


def _largest(values: Tensor | None) -> float | None:
    return None if values is None else float(values.max())


def _plane(session: Session, query: Plane) -> tuple[tuple[int, int], tuple[Any, ...]]:
    """The two latents, and a key for the plane."""
    if session.codes.shape[1] < 2:
        raise ConfigError(
            "map: a map needs two latents, but the model has one. See its traversal in the view "
            "Latents."
        )
    first, second = query.first, query.second
    if first is None and second is None:
        first, second = session.cached("plane", lambda: PARTS["plane"](session.subject.copy))
    ranking = [row["latent"] for row in session.latents]
    first = next(latent for latent in ranking if latent != second) if first is None else first
    second = next(latent for latent in ranking if latent != first) if second is None else second
    session.check_latents(first, second)
    if first == second:
        raise ConfigError(f"map: latent {first} was chosen twice. Choose two different latents.")
    base = tuple(session.code(query.z, query.sample).tolist())
    return (first, second), (first, second, query.grid, base)


def _extent(session: Session, dims: tuple[int, int]) -> list[float]:
    """The range of the central 99 % of the codes, with a margin so that their border is visible."""
    ends: list[float] = []
    for dim in dims:
        values = session.codes[:, dim].double()
        low, high = torch.quantile(values, torch.tensor([0.005, 0.995]).double()).tolist()
        margin = 0.1 * (high - low)
        low, high = low - margin, high + margin
        # The codes of a passive latent are nearly constant: a map that narrow would show
        # rounding errors.
        if session.model.prior is not None:
            low, high = min(low, -2.5), max(high, 2.5)
        elif not low < high:
            low, high = low - 1, high + 1
        ends += [low, high]
    return ends


def _response_map(session: Session, query: Plane, dims: tuple[int, int], key: Any) -> ResponseMap:
    field: ResponseMap = session.cached(
        ("map", *key),
        lambda: session.measure(
            "response-map",
            base=session.code(query.z, query.sample),
            dims=dims,
            grid=query.grid,
            extent=_extent(session, dims),
            decode_grid=0,  # the page decodes the points that the user chooses
            score_grid=query.grid,
        ),
    )
    return field


def _factor_values(session: Session, factor: int | None, rows: Tensor) -> list[float] | None:
    if factor is None:
        return None
    values = session.recording.factors
    count = 0 if values is None else values.shape[1]
    if values is None or factor >= count:
        raise ConfigError(
            f"map: factor {factor}, but the data have {count}. Was the link made for other data?"
        )
    return [float(value) for value in values[rows, factor]]
