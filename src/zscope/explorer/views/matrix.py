"""Matrix: which latents are used, depend on each other, and encode which factor."""

from typing import Any, Literal

from zscope.errors import Undefined
from zscope.explorer.session import Session
from zscope.explorer.views.query import Query

__all__ = ["Matrix", "matrix"]

Kind = Literal["response", "relative", "conditioned", "importance", "invariance"]
ASSAYS = {
    "response": "response-matrix",
    "conditioned": "conditioned-response-matrix",
    "importance": "dci",
    "invariance": "interventional-consistency",
}
MOST_LATENTS = 256


class Matrix(Query):
    """Which matrix."""

    kind: Kind = "response"
    """Responses, responses relative to each latent's spread, responses to one varying factor,
    DCI importances, or invariance under interventions."""


def matrix(session: Session, query: Matrix) -> dict[str, Any]:
    """A matrix: the names of its rows and columns, and its values.

    Rows are intervened latents, or factors; columns are latents.
    """
    latents = session.codes.shape[1]
    if latents > MOST_LATENTS:
        raise Undefined(
            f"matrix: the model has {latents} latents, and a matrix of {latents} x {latents} would "
            f"take {latents * latents:,} model passes and be too large to read. It is shown for up "
            f"to {MOST_LATENTS} latents; for some of them call zs.assays.response_matrix(groups=)."
        )
    kind = "response" if query.kind == "relative" else query.kind
    result = session.cached(("assay", ASSAYS[kind]), lambda: session.measure(ASSAYS[kind]))
    names = list(session.recording.data.factor_names)
    every = list(range(latents))
    answer: dict[str, Any] = {"kind": query.kind, "row": "latent", "rows": every, "columns": every}
    if query.kind in ("response", "relative"):
        values = result.matrix if query.kind == "response" else result.relative
        return answer | {"values": values, "causal": result.causal, "samples": result.samples}
    if query.kind == "invariance":
        more = {"collapsed": result.collapsed, "means": result.means, "samples": result.samples}
        return answer | {"values": result.invariance, **more}
    answer["row"] = "factor"
    if query.kind == "conditioned":
        scores = {
            "disentanglement": result.disentanglement,
            "completeness": result.completeness,
            "causal": result.causal,
        }
        return answer | {"rows": result.factor_names, "values": result.matrix, **scores}
    return answer | {
        "rows": [names[k] for k in result.factors],
        "columns": result.active,
        "values": result.matrix.T,
        "disentanglement": result.disentanglement,
        "completeness": result.completeness,
        "informativeness": result.informativeness,
        "samples": result.samples,
    }
