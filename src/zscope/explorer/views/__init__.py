"""The answers the page asks for. Every view is one file, and its answer plain JSON.

`ENDPOINTS` lists them: /api/NAME answers to GET with a query string and to POST with a
JSON object, of the same parameters. A new answer is one function and one line here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from zscope.explorer.session import Session
from zscope.explorer.views import compare, graph, latents, maps, matrix, samples
from zscope.explorer.views.query import Nothing, Query


@dataclass(frozen=True)
class Endpoint:
    """One kind of answer: what may be asked, who answers, and in which lane."""

    name: str
    query: type[Query]
    answer: Callable[[Session, Any], dict[str, Any]]
    lane: Literal["live", "slow"] = "live"

    def to_dict(self) -> dict[str, Any]:
        """The address, what it tells, and the JSON schema of its parameters."""
        return {
            "path": f"/api/{self.name}",
            "methods": ["GET", "POST"],
            "tells": " ".join((self.answer.__doc__ or "").split()),
            "parameters": self.query.model_json_schema(),
        }


def session(session: Session, query: Nothing) -> dict[str, Any]:
    """What is explored: the model, its latents (most important first), data and factors."""
    return session.to_dict()


_ENDPOINTS = (
    Endpoint("session", Nothing, session),
    Endpoint("latents", latents.Place, latents.latents),
    Endpoint("decode", latents.Batch, latents.decode),
    Endpoint("sample", latents.Sample, latents.sample),
    Endpoint("draw", latents.Draw, latents.draw),
    Endpoint("project", latents.Project, latents.project),
    Endpoint("traversal", latents.Traversal, latents.traversal),
    Endpoint("map", maps.Map, maps.plane, "slow"),
    Endpoint("path", maps.Path, maps.path, "slow"),
    Endpoint("matrix", matrix.Matrix, matrix.matrix, "slow"),
    Endpoint("graph", graph.Graph, graph.graph, "slow"),
    Endpoint("samples", samples.Samples, samples.samples, "slow"),
    Endpoint("compare", compare.Compare, compare.compare),
    Endpoint("similarity", compare.Similarity, compare.similarity, "slow"),
)

ENDPOINTS = {endpoint.name: endpoint for endpoint in _ENDPOINTS}
