"""Matrix: which latents matter, depend on each other, and carry which factor."""

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
"""Codes decoded and encoded for one matrix, about."""
MOST = 256


class Matrix(Query):
    kind: Kind = "response"


def matrix(session: Session, query: Matrix) -> dict[str, Any]:
    """Which latents matter, depend on each other, carry which factor: rows, columns, values.

    Rows are latents that were intervened on, or factors; columns are latents.
    """
    latents = session.codes.shape[1]
    if latents > MOST:
        raise Undefined(
            f"matrix: the model has {latents} latents, and a matrix of {latents} x {latents} would "
            f"take {latents * latents:,} answers of the model and could not be read. It is shown "
            f"for up to {MOST} latents; for some of them call zs.assays.response_matrix(groups=)."
        )
    kind = "response" if query.kind == "relative" else query.kind
    found = session.remember(("matrix", kind), lambda: _WORK[kind](session))
    every = list(range(latents))
    names = list(session.recording.data.factor_names)
    plain: dict[str, Any] = {"kind": query.kind, "row": "latent", "rows": every, "columns": every}
    if query.kind in ("response", "relative"):
        values = found.matrix if query.kind == "response" else found.relative
        return plain | {"values": values, "causal": found.causal, "samples": found.samples}
    if query.kind == "invariance":
        more = {"collapsed": found.collapsed, "means": found.means, "samples": found.samples}
        return plain | {"values": found.invariance, **more}
    plain["row"] = "factor"
    if query.kind == "conditioned":
        scores = {
            "disentanglement": found.disentanglement,
            "completeness": found.completeness,
            "causal": found.causal,
        }
        return plain | {"rows": found.factor_names, "values": found.matrix, **scores}
    return plain | {
        "rows": [names[k] for k in found.factors],
        "columns": found.active,
        "values": found.matrix.T,
        "disentanglement": found.disentanglement,
        "completeness": found.completeness,
        "informativeness": found.informativeness,
        "samples": found.samples,
    }


def responses(session: Session) -> Any:
    """The response matrix, worked out once."""
    study, latents = session.subject.study, session.codes.shape[1]
    return response_matrix(
        study.autoencoder,
        study.posterior,
        samples=max(latents, min(1024, RESPONSES // latents)),
        generator=session.generator(),
    )


def _conditioned(session: Session) -> Any:
    study, latents = session.subject.study, session.codes.shape[1]
    if study.data.factors is None:
        raise Undefined(
            "conditioned response matrix: the data come without factors, so none can vary alone. "
            "Explore the model on data with known factors: zscope explore TARGET --data NAME"
        )
    return conditioned_response_matrix(
        study.autoencoder,
        study.data,
        posterior=study.posterior,
        samples=max(64, min(1024, RESPONSES // latents // study.data.factors.shape[1])),
        generator=session.generator(),
    )


def _importance(session: Session) -> Any:
    recording = session.recording
    if recording.factors is None:
        raise Undefined(
            "importance: the data come without factors, so there is nothing to predict. "
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
    study, latents = session.subject.study, session.codes.shape[1]
    return interventional_consistency(
        study.autoencoder,
        study.posterior,
        interventions=8,
        samples=max(16, min(128, RESPONSES // latents // 8)),
        generator=session.generator(),
    )


_WORK = {
    "response": responses,
    "conditioned": _conditioned,
    "importance": _importance,
    "invariance": _invariance,
}
