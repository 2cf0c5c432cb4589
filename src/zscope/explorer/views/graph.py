"""Graph: the causal latents, and which acts on which."""

from typing import Annotated, Any

from pydantic import Field

from zscope.explorer.session import Session
from zscope.explorer.views.matrix import Matrix, matrix, responses
from zscope.explorer.views.query import Query


class Graph(Query):
    """Weaker edges than the threshold are left out; by default a tenth of the strongest."""

    threshold: Annotated[float, Field(ge=0, le=1e6)] | None = None


def graph(session: Session, query: Graph) -> dict[str, Any]:
    """The causal latents, and which acts on which."""
    matrix(session, Matrix())  # refuses what is too large
    found = session.remember(("matrix", "response"), lambda: responses(session))
    made = found.graph(query.threshold)
    kept = set(made.edges)
    between = [float(found.strength[j, k]) for j in found.causal for k in found.causal if j != k]
    return {
        "threshold": found.edge_threshold() if query.threshold is None else query.threshold,
        "default": found.edge_threshold(),
        "largest": max(between, default=0.0),
        "rule": found.rule,
        "latents": session.codes.shape[1],
        "nodes": [{"latent": j, "response": made.nodes[j]["response"]} for j in made.nodes],
        "edges": [
            {"from": j, "to": k, "weight": weight}
            for j, k, weight in sorted(made.edges(data="weight"), key=lambda edge: -edge[2])
        ],
        # Alike in both directions: perhaps one variable in two parts.
        "pairs": [[j, k] for j, k in found.pairs if (j, k) in kept and (k, j) in kept],
        "samples": found.samples,
    }
