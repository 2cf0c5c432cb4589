"""Matrix: which latents are used, depend on each other, and encode which factor."""

from collections.abc import Callable
from typing import Any, Literal

from zscope.assays import (
    conditioned_response_matrix,
    dci,
    interventional_consistency,
    response_matrix,
)
from zscope.errors import Undefined
from zscope.explorer.session import Session
from zscope.explorer.views.query import Query

Kind = Literal["response", "relative", "conditioned", "importance", "invariance"]
RESPONSES = 10_000
"""The approximate number of codes decoded and encoded for one matrix."""
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
    result = session.cached(("matrix", kind), lambda: _COMPUTE[kind](session))
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


def responses(session: Session) -> Any:
    """The response matrix of the model."""
    recording, latents = session.subject.copy, session.codes.shape[1]
    return response_matrix(
        recording.autoencoder,
        recording.posterior,
        samples=max(latents, min(1024, RESPONSES // latents)),
        generator=session.generator(),
    )


def _conditioned(session: Session) -> Any:
    recording, latents = session.subject.copy, session.codes.shape[1]
    if recording.data.factors is None:
        raise Undefined(
            "conditioned response matrix: the data have no factors, so none can vary alone. "
            "Explore the model on data with known factors: zscope explore TARGET --data NAME"
        )
    return conditioned_response_matrix(
        recording.autoencoder,
        recording.data,
        posterior=recording.posterior,
        samples=max(64, min(1024, RESPONSES // latents // recording.data.factors.shape[1])),
        generator=session.generator(),
    )


def _importance(session: Session) -> Any:
    recording = session.recording
    if recording.factors is None:
        raise Undefined(
            "importance: the data have no factors, so there is nothing to predict. "
            "Explore the model on data with known factors: zscope explore TARGET --data NAME"
        )
    return dci(
        recording.codes,
        recording.factors,
        variances=None if recording.posterior.deterministic else recording.posterior.variance,
        kinds=list(recording.data.factor_kinds),
        generator=session.generator(),
    )


def _invariance(session: Session) -> Any:
    recording, latents = session.subject.copy, session.codes.shape[1]
    return interventional_consistency(
        recording.autoencoder,
        recording.posterior,
        interventions=8,
        samples=max(16, min(128, RESPONSES // latents // 8)),
        generator=session.generator(),
    )


_COMPUTE: dict[str, Callable[[Session], Any]] = {
    "response": responses,
    "conditioned": _conditioned,
    "importance": _importance,
    "invariance": _invariance,
}
