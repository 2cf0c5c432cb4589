"""Graph: the causal latents, and which affects which."""

from typing import Annotated, Any

from pydantic import Field

from zscope.assays.responses.matrix import LEAK
from zscope.explorer.session import Session
from zscope.explorer.views.matrix import Matrix, matrix
from zscope.explorer.views.query import Query

__all__ = ["Graph", "graph"]


class Graph(Query):
    """Which edges to show."""

    threshold: Annotated[float, Field(ge=0, le=1e6)] = LEAK
    """The smallest relative response that is an edge, if it is also above the noise."""


def graph(session: Session, query: Graph) -> dict[str, Any]:
    """The causal latents as nodes, and the responses between them as edges."""
    matrix(session, Matrix())  # refuses a model with too many latents
    name = "response-matrix"
    response = session.cached(("assay", name), lambda: session.measure(name))
    network = response.graph(query.threshold)
    edges = set(network.edges)
    causal = response.causal
    weights = [float(response.relative[j, k]) for j in causal for k in causal if j != k]
    return {
        "threshold": query.threshold,
        "default": LEAK,
        "largest": max(weights, default=0.0),
        "rule": response.rule,
        "latents": session.codes.shape[1],
        "nodes": [{"latent": j, "response": network.nodes[j]["response"]} for j in network.nodes],
        "edges": [
            {"from": j, "to": k, "weight": weight}
            for j, k, weight in sorted(network.edges(data="weight"), key=lambda edge: -edge[2])
        ],
        # Similar in both directions: the two latents may encode one variable.
        "pairs": [[j, k] for j, k in response.pairs if (j, k) in edges and (k, j) in edges],
        "samples": response.samples,
    }
