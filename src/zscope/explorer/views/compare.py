"""Compare: two models on the same observations."""

import re
from typing import Any, Literal

import torch

from zscope.assays.engine import decode_and_respond
from zscope.assays.similarity.activations import activations
from zscope.assays.similarity.heatmap import similarity_heatmap
from zscope.errors import ConfigError
from zscope.explorer.session import Session, Subject
from zscope.explorer.showing import LARGE
from zscope.explorer.views.latents import Sample, sample
from zscope.explorer.views.query import Index, Query

OBSERVATIONS = 512


class Compare(Query):
    sample: Index | None = None


class Similarity(Query):
    """CKA between layers, or the absolute correlation between latents."""

    of: Literal["layers", "latents"] = "layers"


def compare(session: Session, query: Compare) -> dict[str, Any]:
    """The same observation through two models."""
    other = _other(session)
    index = session.row(query.sample)
    x = session.recording.data.batch([index])
    return {
        "sample": sample(session, Sample(index=index)),
        "models": [_through(session, one, x, index) for one in (session.subject, other)],
    }


def similarity(session: Session, query: Similarity) -> dict[str, Any]:
    """Which layers, or which latents, of two models agree."""
    other = _other(session)
    if query.of == "latents":
        # Sampled codes: the means of a passive latent are tiny and yet may be correlated
        # with anything; with its noise they are what the decoder sees.
        first, second = (
            one.recording.posterior.sample(session.generator()) for one in (session.subject, other)
        )
        return {
            "of": query.of,
            "rows": [str(j) for j in range(first.shape[1])],
            "columns": [str(k) for k in range(second.shape[1])],
            "values": _correlations(first, second),
            "samples": len(first),
        }
    found = session.remember(("similarity",), lambda: _layers(session, other))
    return {
        "of": query.of,
        "rows": [_layer(name) for name in found.rows],
        "columns": [_layer(name) for name in found.columns],
        "values": found.matrix.clamp(min=0),
        "samples": found.samples,
    }


def _other(session: Session) -> Subject:
    if session.other is None:
        raise ConfigError(
            "compare: only one model is explored, so there is nothing to compare it with. Start "
            "with both: zscope explore TARGET --compare OTHER"
        )
    return session.other


def _through(session: Session, one: Subject, x: torch.Tensor, index: int) -> dict[str, Any]:
    code = one.recording.codes[[index]]
    decoded, _ = decode_and_respond(one.recording.autoencoder, code)
    error = (decoded.cpu().float() - x).square().sum()
    return {
        "name": one.name,
        "z": code[0],
        "decoded": session.look.show(decoded, most=LARGE)[0],
        "error": float(error),
    }


def _layers(session: Session, other: Subject) -> Any:
    data = session.recording.data
    rows = torch.linspace(0, len(data) - 1, min(OBSERVATIONS, len(data))).long().tolist()
    x = data.batch(rows)
    both = [activations(one.study.autoencoder, x) for one in (session.subject, other)]
    return similarity_heatmap(*both)


def _layer(name: str) -> str:
    """A layer as its owner calls it, without what `wrap` put around the model."""
    return re.sub(r"^owners\.\d+\.", "", name)


def _correlations(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """|correlation| of every latent of one model with every latent of the other.

    0 for a latent whose codes are all but the same: its correlation would be that of rounding.
    """
    scaled = []
    for codes in (first.double(), second.double()):
        centred = codes - codes.mean(0)
        spread = centred.norm(dim=0)
        passive = spread <= 1e-4 * spread.max()
        scaled.append(centred / spread.masked_fill(passive, torch.inf))
    return (scaled[0].T @ scaled[1]).abs().clamp(max=1)
