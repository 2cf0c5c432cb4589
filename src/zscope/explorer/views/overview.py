"""Codes: all recorded codes in a plane, what colours them, and tables of some of them."""

from base64 import b64encode
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from zscope.errors import ConfigError, Undefined
from zscope.explorer.embedding import principal_components
from zscope.explorer.session import Session
from zscope.explorer.views.query import Index, Query
from zscope.factors import Factors
from zscope.report.codes import CodeTable, code_table

__all__ = [
    "Colours", "Export", "Overview", "Pictures", "Selection", "colours", "export", "overview",
    "pictures", "selection",
]  # fmt: skip

Samples = Annotated[list[Index], Field(min_length=1, max_length=1_000_000)]
ROWS = 100
"""Rows of a table on the page; a file has all of them."""
PRECISE = 0.1
"""The posterior variance, in units of the prior's, up to which a latent is active for a sample: the
limit of `variable_types`."""
BINS = 60
"""Of a single latent, whose codes are stacked."""
MEDIA_TYPES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


class Overview(Query):
    """The axes of the plane."""

    method: Literal["pca", "umap", "latents"] = "pca"
    """Principal components of the codes, a UMAP of them, or two latents."""
    first: Index | None = None
    """The component or latent of the x axis; by default the first, or most important, one."""
    second: Index | None = None
    """The component or latent of the y axis."""


class Colours(Query):
    """What colours the codes."""

    of: Literal["factor", "label", "holes", "latent", "spread", "precise"] = "latent"
    """A factor, a label of one's own, the hole score, the value or the posterior standard deviation
    of a latent, or how many latents are active for the sample."""
    index: Index = 0
    """Which factor, label or latent."""


class Pictures(Query):
    """Recorded observations, small."""

    samples: Annotated[list[Index], Field(min_length=1, max_length=256)]
    """Their numbers."""
    side: Annotated[int, Field(ge=8, le=128)] = 40
    """The largest side in pixels."""


class Selection(Query):
    """Some of the codes."""

    samples: Samples
    """The numbers of the recorded samples."""


class Export(Query):
    """A file of codes."""

    samples: Samples | None = None
    """The numbers of the recorded samples; by default all."""
    format: Literal["csv", "parquet"] = "csv"
    """The format of the file."""


def overview(session: Session, query: Overview) -> dict[str, Any]:
    """Where the codes lie in a plane, as base64 of 32-bit numbers, and the names of its axes. With
    the same latent or component on both, they are `stacked` instead: y counts the codes of a bin.

    A UMAP is computed in the background: until it is there, `ready` is false, and `seconds` says
    how long it has taken so far.
    """
    answer: dict[str, Any] = {"method": query.method, "ready": True, "seconds": 0.0, "shares": []}
    if query.method == "umap":
        umap = session.umap()
        if umap.error is not None:
            raise Undefined(
                f"explore: UMAP failed on {len(session.codes):,} codes "
                f"({type(umap.error).__name__}: {str(umap.error)[:200]}). Are many codes equal? "
                "Look at the principal components instead."
            ) from umap.error
        if umap.points is None:
            return {**answer, "ready": False, "seconds": umap.seconds}
        return {**answer, **_plane(torch.from_numpy(umap.points), (0, 1), ["UMAP 1", "UMAP 2"])}
    if query.method == "pca":
        points, shares = session.cached("components", lambda: principal_components(session.codes))
        names = [f"component {k + 1} ({100 * share:.0f} %)" for k, share in enumerate(shares)]
        axes = _axes(query, list(range(points.shape[1])), "component")
        return {**answer, **_plane(points, axes, names), "shares": shares}
    if session.maps is not None:
        raise ConfigError(
            "overview: the latents of this model are maps, so that there is no plane of two "
            "numbers. Ask for method=pca."
        )
    ranking = [row["latent"] for row in session.latents]
    for latent in (query.first, query.second):
        session.check_latents(*([] if latent is None else [latent]))
    names = [f"z{j}" for j in range(session.codes.shape[1])]
    return {**answer, **_plane(session.codes, _axes(query, ranking, "latent"), names)}


def _axes(query: Overview, ranking: list[int], noun: str) -> tuple[int, int]:
    """The columns of the two axes; of a model with one latent twice the same."""
    first, second = query.first, query.second
    for each in (first, second):
        if each is not None and each not in ranking:
            raise ConfigError(
                f"overview: there is no {noun} {each}: there are {len(ranking)} (0 to "
                f"{len(ranking) - 1}). Was the link made for another model?"
            )
    if first is None:
        first = next((each for each in ranking if each != second), ranking[0])
    if second is None:
        second = next((each for each in ranking if each != first), first)
    return first, second


def _plane(points: Tensor, axes: tuple[int, int], names: list[str]) -> dict[str, Any]:
    x, name = points[:, axes[0]], names[axes[0]]
    if axes[0] == axes[1]:  # twice the same would be a diagonal, which hides how many there are
        return {"axes": axes, "names": [name, "codes"], "x": _floats(x), "y": _floats(_stack(x)),
                "stacked": True}  # fmt: skip
    y = points[:, axes[1]]
    return {"axes": axes, "names": [name, names[axes[1]]], "x": _floats(x), "y": _floats(y),
            "stacked": False}  # fmt: skip


def _stack(values: Tensor) -> Tensor:
    """Numbers from 1 up for the values in each of some bins, as in a histogram made of dots."""
    low, width = values.min(), (values.max() - values.min()) / BINS
    bins = ((values - low) / width.clamp_min(1e-300)).long().clamp(max=BINS - 1)
    order = bins.argsort(stable=True)
    _, counts = bins[order].unique_consecutive(return_counts=True)
    before = (counts.cumsum(0) - counts).repeat_interleave(counts)
    heights = torch.empty(len(values))
    heights[order] = (torch.arange(len(values)) - before + 1).float()
    return heights


def _floats(values: Tensor) -> dict[str, Any]:
    """Numbers as base64 of little-endian 32-bit ones: a tenth of their size as text."""
    numbers = values.detach().cpu().float().numpy().astype("<f4")
    return {"count": len(numbers), "floats": b64encode(numbers.tobytes()).decode()}


def colours(session: Session, query: Colours) -> dict[str, Any]:
    """A number for each code, as base64 of 32-bit numbers, with its name, kind, and the words that
    it stands for."""
    answer: dict[str, Any] = {"of": query.of, "index": query.index, "words": []}
    if query.of in ("factor", "label"):
        table = session.recording.factors if query.of == "factor" else session.labels
        return {**answer, **_column(table, query)}
    if query.of == "holes":
        values, name = session.hole_scores()[0], "hole score"
    elif query.of == "precise":
        values = (_variances(session) <= PRECISE).sum(1).double()
        return {**answer, "name": "active latents", "kind": "ordinal", "values": _floats(values)}
    else:
        session.check_latents(query.index)
        of_value = query.of == "latent"
        source = session.codes if of_value else _variances(session).sqrt()
        values = source[:, query.index]
        name = f"z{query.index}" if of_value else f"posterior std of z{query.index}"
    return {**answer, "name": name, "kind": "continuous", "values": _floats(values)}


def _variances(session: Session) -> Tensor:
    if session.recording.posterior.deterministic:
        raise ConfigError(
            f"colours: the encoder of {session.subject.name} is deterministic, so that its codes "
            "have no posterior variance. Colour them by the value of a latent."
        )
    return session.recording.variances


def _column(table: Factors | None, query: Colours) -> dict[str, Any]:
    names = () if table is None else table.names
    if table is None or query.index >= len(names):
        hint = " Give your own with --labels FILE." if query.of == "label" else ""
        raise ConfigError(
            f"colours: there is no {query.of} {query.index}: there are {len(names)}. Was the link "
            f"made for other data?{hint}"
        )
    name = names[query.index]
    return {
        "name": name,
        "kind": table.kinds[query.index],
        "words": [str(word) for word in table.labels.get(name, ())],
        "values": _floats(torch.from_numpy(np.ascontiguousarray(table.values[:, query.index]))),
    }


def pictures(session: Session, query: Pictures) -> dict[str, Any]:
    """Some recorded observations, small."""
    rows = [session.row(sample) for sample in query.samples]
    x = session.recording.data.batch(rows)
    return {"samples": rows, "observations": session.renderer.render(x, most=query.side)}


def selection(session: Session, query: Selection) -> dict[str, Any]:
    """How many samples were chosen, and a table of the first: rows of the data, hole scores,
    factors and labels, and paths of pictures."""
    rows = sorted({session.row(sample) for sample in query.samples})
    table = _table(session, rows[:ROWS])
    hidden = {f"{part}_{j}" for part in ("code", "std") for j in range(session.codes.shape[1])}
    columns = {
        name: values.tolist()
        for name, values in table.columns.items()
        if name not in hidden and (name != "path" or values[0])
    }
    return {
        "count": len(rows),
        "samples": rows[:ROWS],
        "columns": list(columns),
        "rows": [list(row) for row in zip(*columns.values(), strict=True)],
    }


def export(session: Session, query: Export) -> dict[str, Any]:
    """A file with the table of some codes, or of all, as base64; see `zscope export`."""
    samples = range(len(session.codes)) if query.samples is None else query.samples
    rows = sorted({session.row(sample) for sample in samples})
    content = _table(session, rows).to_bytes(f".{query.format}")
    return {
        "name": f"codes.{query.format}",
        "type": MEDIA_TYPES[query.format],
        "rows": len(rows),
        "base64": b64encode(content).decode(),
    }


def _table(session: Session, rows: list[int]) -> CodeTable:
    holes = session.hole_scores(rows) if session.has_hole_scores else False
    return code_table(session.recording, rows, holes=holes, labels=session.labels)
