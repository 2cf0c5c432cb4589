"""Map: a plane of two latents, where codes lie, and how to get from one to another."""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from zscope.assays import manifold_path, response_map
from zscope.assays.responses.maps import ResponseMap, in_plane
from zscope.errors import ConfigError
from zscope.explorer.session import Session
from zscope.explorer.views.query import Based, Index, Pair

Layer = Literal["divergence", "curvature", "magnitude", "holes", "none"]
POINTS = 2000
"""Codes that are drawn."""
STRAIGHT = 41


class Plane(Based):
    """Two latents, the others held at the base; grid points a side."""

    first: Index | None = None
    second: Index | None = None
    grid: Annotated[int, Field(ge=4, le=128)] = 48


class Map(Plane):
    """`factor` colours the codes."""

    layer: Layer = "divergence"
    factor: Index | None = None


class Path(Plane):
    """`start` and `end` are points of the plane; the path keeps to it, or uses all latents."""

    start: Pair
    end: Pair
    within: Literal["plane", "all"] = "plane"
    frames: Annotated[int, Field(ge=2, le=25)] = 9


def plane(session: Session, query: Map) -> dict[str, Any]:
    """A plane of two latents: divergence, curvature, size or holes of the response, and codes."""
    dims, key = _place(session, query)
    rows = torch.linspace(0, len(session.codes) - 1, min(POINTS, len(session.codes))).long()
    low0, high0, low1, high1 = _extent(session, dims)
    found: dict[str, Any] = {
        "dims": dims,
        "base": session.code(query.z, query.sample),
        "extent": [low0, high0, low1, high1],
        "layer": query.layer,
        "values": None,
        "samples": rows,
        "codes": session.codes[rows][:, list(dims)],
        "factor": _factor(session, query.factor, rows),
    }
    if query.layer == "none":
        return found
    made = _made(session, query, dims, key)
    if query.layer == "holes":
        found["values"] = session.remember(("holes", *key), lambda: _holes(session, made))
    else:
        found["values"] = getattr(made, query.layer)
    return {**found, "undefined": made.undefined if query.layer == "curvature" else None}


def path(session: Session, query: Path) -> dict[str, Any]:
    """The straight line and the manifold path between two points of a map, decoded."""
    dims, key = _place(session, query)
    made = _made(session, query, dims, key)
    # Whole latent vectors: of two latents, two numbers could mean either.
    points = torch.tensor([query.start, query.end], dtype=torch.float64)
    start, end = in_plane(made.base[0], dims, points)

    def work() -> Any:
        if query.within == "plane":
            return manifold_path(made, start, end, frames=query.frames)
        return manifold_path(
            session.subject.study.autoencoder,
            start,
            end,
            codes=session.codes,
            frames=query.frames,
            generator=session.generator(),
        )

    which = ("path", query.within, query.frames, *query.start, *query.end, *key)
    found = session.remember(which, work)
    return {
        "dims": dims,
        "within": query.within,
        "points": found.points[:, list(dims)],
        "straight": found.straight[:, list(dims)],
        "cost": found.cost,
        "straight_cost": found.straight_cost,
        "length": found.length,
        "straight_length": found.straight_length,
        "profile": found.profile,
        "straight_profile": found.straight_profile,
        "frames": session.look.show(found.frames),
        "straight_frames": session.look.show(found.straight_frames),
    }


def _place(session: Session, query: Plane) -> tuple[tuple[int, int], tuple[Any, ...]]:
    """The two latents (the most important ones by default), and what names this plane."""
    if session.codes.shape[1] < 2:
        raise ConfigError(
            "map: a map needs two latents, and the model has one. Its traversal shows all of it: "
            "see the view Latents."
        )
    used = [row["latent"] for row in session.latents]
    first = query.first if query.first is not None else used[0]
    second = query.second
    if second is None:
        second = next(latent for latent in used if latent != first)
    session.latent(first, second)
    if first == second:
        raise ConfigError(f"map: latent {first} was chosen twice; a plane needs two latents.")
    base = tuple(session.code(query.z, query.sample).tolist())
    return (first, second), (first, second, query.grid, base)


def _extent(session: Session, dims: tuple[int, int]) -> list[float]:
    """The central 99 % of the codes of data, widened a little so that the border is seen."""
    ends: list[float] = []
    for dim in dims:
        values = session.codes[:, dim].double()
        low, high = torch.quantile(values, torch.tensor([0.005, 0.995]).double()).tolist()
        # A passive latent's codes are nearly one value, where a map would show rounding.
        room = 0.1 * (high - low)
        low, high = low - room, high + room
        if session.model.prior is not None:
            low, high = min(low, -2.5), max(high, 2.5)
        elif not low < high:
            low, high = low - 1, high + 1
        ends += [low, high]
    return ends


def _made(session: Session, query: Plane, dims: tuple[int, int], key: Any) -> ResponseMap:
    base = session.code(query.z, query.sample)
    return session.remember(
        ("map", *key),
        lambda: response_map(
            session.subject.study.autoencoder,
            base,
            dims,
            codes=session.codes,
            grid=query.grid,
            extent=_extent(session, dims),
        ),
    )


def _holes(session: Session, made: ResponseMap) -> Tensor:
    """|R(z) - z| in all latents at each point, in units of that of posterior samples."""
    from zscope.assays.engine import respond
    from zscope.assays.responses.holes import Known

    if not isinstance(session.known, Known):
        raise session.known
    codes = in_plane(made.base[0], made.dims, torch.cartesian_prod(*made.axes))
    answers = respond(session.subject.study.autoencoder, codes)
    ratio = session.known.score(codes, answers=answers).ratio
    return ratio.reshape(len(made.axes[0]), len(made.axes[1]))


def _factor(session: Session, factor: int | None, rows: Tensor) -> list[float] | None:
    if factor is None:
        return None
    values = session.recording.factors
    count = 0 if values is None else values.shape[1]
    if values is None or factor >= count:
        raise ConfigError(
            f"map: factor {factor}, but the data have {count}. Was the link made for other data?"
        )
    return values[rows, factor].double().tolist()
