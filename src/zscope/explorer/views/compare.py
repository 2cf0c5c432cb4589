"""Compare: two models on the same observations."""

import re
from typing import Any, Literal

import torch

from zscope.assays.engine import decode_and_respond
from zscope.assays.similarity.heatmap import SimilarityHeatmap
from zscope.errors import ConfigError
from zscope.experiments.comparison import SAMPLES, layer_heatmap
from zscope.experiments.observed import check_shape, choose_observations
from zscope.explorer.rendering import LARGE
from zscope.explorer.session import Session, Subject
from zscope.explorer.views.latents import Sample, sample
from zscope.explorer.views.query import Index, Query

__all__ = ["Compare", "Similarity", "compare", "similarity"]


class Compare(Query):
    """A sample to encode and decode with both models."""

    sample: Index | None = None
    """Its number; by default the sample nearest to the mean of all codes."""


class Similarity(Query):
    """What to compare."""

    of: Literal["layers", "latents"] = "layers"
    """CKA between layers, or the absolute correlation between latents."""


def compare(session: Session, query: Compare) -> dict[str, Any]:
    """One observation, encoded and decoded by both models."""
    other = _other(session)
    index = session.row(query.sample)
    x = session.recording.data.batch([index])
    return {
        "sample": sample(session, Sample(index=index)),
        "models": [_reconstruction(session, one, x, index) for one in (session.subject, other)],
    }


def similarity(session: Session, query: Similarity) -> dict[str, Any]:
    """The similarity between the layers, or between the latents, of both models."""
    other = _other(session)
    if query.of not in session.similarities:
        raise ConfigError(
            "similarity: the latents of one of these models are maps, whose single numbers "
            "correspond to nothing in another model. Compare the layers: of=layers"
        )
    if query.of == "latents":
        # Sampled codes rather than means: the means of a passive latent are tiny and may
        # correlate with anything, while with its noise the latent is what the decoder gets.
        # One generator for both: with the same noise, passive latents would correlate.
        generator = session.generator()
        first, second = (
            one.recording.posterior.sample(generator) for one in (session.subject, other)
        )
        return {
            "of": query.of,
            "rows": [str(j) for j in range(first.shape[1])],
            "columns": [str(k) for k in range(second.shape[1])],
            "values": _correlations(first, second),
            "samples": len(first),
        }
    layers = session.cached(("similarity",), lambda: _layer_similarity(session, other))
    return {
        "of": query.of,
        "rows": [_layer_name(name) for name in layers.rows],
        "columns": [_layer_name(name) for name in layers.columns],
        "values": layers.matrix.clamp(min=0),
        "samples": layers.samples,
    }


def _other(session: Session) -> Subject:
    if session.other is None:
        raise ConfigError(
            "compare: the explorer was started with one model, so there is nothing to compare it "
            "with. Start it with two: zscope explore TARGET --compare OTHER"
        )
    return session.other


def _reconstruction(
    session: Session, subject: Subject, x: torch.Tensor, index: int
) -> dict[str, Any]:
    code = subject.recording.codes[[index]]
    decoded, _ = decode_and_respond(subject.recording.autoencoder, code)
    # Both models are shown in the units of the first, which may have been trained in others.
    own = subject.recording.data.original(decoded.cpu().float())
    scaling = session.recording.data.scaling
    decoded = own if scaling is None else torch.from_numpy(scaling.apply(own.numpy()))
    error = (decoded - x).square().sum()
    return {
        "name": subject.name,
        "z": code[0] if subject.recording.layout is None else None,
        "decoded": session.renderer.render(decoded, most=LARGE)[0],
        "error": float(error),
    }


def _layer_similarity(session: Session, other: Subject) -> SimilarityHeatmap:
    """The CKA of `zs.compare` of the two models on the same data."""
    first, second = (one.copy.autoencoder for one in (session.subject, other))
    for number, model in (("first", first), ("second", second)):
        check_shape(f"the {number} model", model.observation_shape, session.dataset)
    observed = choose_observations(session.dataset, SAMPLES, session.seed)
    return layer_heatmap(first, second, observed)


def _layer_name(name: str) -> str:
    """The name of a layer in its own module, without the prefix that `wrap` adds."""
    return re.sub(r"^owners\.\d+\.", "", name)


def _correlations(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """|correlation| of every latent of one model with every latent of the other.

    0 for a latent whose codes hardly vary: its correlation would be that of rounding errors.
    """
    scaled = []
    for codes in (first.double(), second.double()):
        centred = codes - codes.mean(0)
        spread = centred.norm(dim=0)
        constant = spread <= 1e-4 * spread.max()
        scaled.append(centred / spread.masked_fill(constant, torch.inf))
    correlations: torch.Tensor = scaled[0].T @ scaled[1]
    return correlations.abs().clamp(max=1)
