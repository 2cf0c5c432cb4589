"""Latents: move one, see what it does, and what the encoder makes of it."""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from zscope import sampling
from zscope.assays.engine import decode_and_respond
from zscope.errors import ConfigError, Undefined
from zscope.explorer.session import Session
from zscope.explorer.showing import LARGE, SMALL
from zscope.explorer.views.query import Based, Index, Query, Seed, Vector

Source = Literal["prior", "posterior", "hybrid", "uniform"]
ARRIVED = 1e-3
"""A pass that moves a code by less than this share of the codes' spread is the last."""
FRAMES = 16


class Place(Based):
    """Which latent vector; `exact` gives decoded numbers instead of pictures."""

    exact: bool = False


class Batch(Query):
    codes: Annotated[list[Vector], Field(min_length=1, max_length=256)]
    exact: bool = False


class Sample(Query):
    index: Index | None = None
    exact: bool = False


class Draw(Query):
    source: Source = "prior"
    seed: Seed = 0


class Project(Based):
    passes: Annotated[int, Field(ge=1, le=100)] = 50


class Traversal(Based):
    latent: Index
    steps: Annotated[int, Field(ge=2, le=41)] = 11


def latents(session: Session, query: Place) -> dict[str, Any]:
    """A latent vector: decoded, its response R(z), that decoded, and how far it moves."""
    z = session.code(query.z, query.sample)
    x, response, score = session.answer(z[None])
    again, _ = decode_and_respond(session.model, response)
    shown, back = session.look.show(torch.cat([x, again]), most=LARGE, exact=query.exact)
    return {
        "z": z,
        "response": response[0],
        "moved": moved(score)[0] if score is not None else None,
        "decoded": shown,
        "again": back,
        "sample": sample(session, Sample(index=query.sample, exact=query.exact))
        if query.sample is not None
        else None,
    }


def decode(session: Session, query: Batch) -> dict[str, Any]:
    """Several latent vectors: decoded, their responses, and how far each moves."""
    codes = torch.stack([session.code(z, None) for z in query.codes])
    x, response, score = session.answer(codes)
    return {
        "response": response,
        "moved": moved(score) if score is not None else None,
        "decoded": session.look.show(x, exact=query.exact),
    }


def moved(score: Any) -> list[dict[str, Any]]:
    """How far each vector moves: |R(z) - z|, and how that compares with posterior samples."""
    holes = set(score.holes)
    rows = zip(score.displacement.tolist(), score.percentile.tolist(), strict=True)
    return [
        {"distance": distance, "percentile": percentile, "hole": k in holes}
        for k, (distance, percentile) in enumerate(rows)
    ]


def sample(session: Session, query: Sample) -> dict[str, Any]:
    """A recorded observation, the posterior of its code, and its factors."""
    index = session.row(query.index)
    posterior = session.recording.posterior[[index]]
    shown = session.look.show(session.recording.data.batch([index]), most=LARGE, exact=query.exact)
    return {
        "index": index,
        "row": int(session.recording.rows[index]),
        "z": posterior.mean[0],
        "std": posterior.variance[0].sqrt(),
        "factors": session.factor(index),
        "observation": shown[0],
    }


def draw(session: Session, query: Draw) -> dict[str, Any]:
    """A latent vector drawn at random."""
    return {"z": drawn(session, query.source, 1, query.seed)[0]}


def drawn(session: Session, source: Source, count: int, seed: int) -> Tensor:
    generator = session.generator(seed)
    if source == "prior":
        return sampling.prior(session.model, count, generator=generator).to(session.codes)
    if source == "posterior":
        return sampling.posterior(session.recording.posterior, count, generator=generator)
    kind = sampling.hybrid if source == "hybrid" else sampling.uniform
    return kind(session.recording.posterior, count, generator=generator)


def project(session: Session, query: Project) -> dict[str, Any]:
    """Onto the manifold: z, R(z), R(R(z)), … until a pass hardly moves it."""
    way = [session.code(query.z, query.sample)[None]]
    spread = float((session.codes - session.codes.mean(0)).norm(dim=1).square().mean().sqrt())
    steps: list[float] = []
    pictures: list[Tensor] = []
    for _ in range(query.passes):
        x, posterior = decode_and_respond(session.model, way[-1])
        pictures.append(x)
        way.append(posterior.mean)
        steps.append(float((way[-1] - way[-2]).norm()))
        if steps[-1] <= ARRIVED * spread:
            break
    pictures.append(decode_and_respond(session.model, way[-1])[0])
    shown = torch.linspace(0, len(way) - 1, min(FRAMES, len(way))).round().int().tolist()
    return {
        "way": torch.cat(way),
        "steps": steps,
        "arrived": steps[-1] <= ARRIVED * spread,
        "frames": [{"pass": k, "decoded": session.look.show(pictures[k])[0]} for k in shown],
    }


def traversal(session: Session, query: Traversal) -> dict[str, Any]:
    """One latent moved over the range of its slider: decoded, and the response of all."""
    session.latent(query.latent)
    if query.steps * session.codes.shape[1] > 1_000_000:
        raise ConfigError(
            f"explorer: {query.steps} steps of {session.codes.shape[1]} latents are too many "
            "numbers for one answer. Ask for fewer steps."
        )
    base = session.code(query.z, query.sample)
    row = next(row for row in session.latents if row["latent"] == query.latent)
    values = torch.linspace(row["low"], row["high"], query.steps, dtype=torch.float64)
    codes = base.repeat(query.steps, 1)
    codes[:, query.latent] = values.to(codes)
    x, response, score = session.answer(codes)
    if not response.isfinite().all():
        raise Undefined("explorer: a response along the traversal is not finite.")
    return {
        "latent": query.latent,
        "base": base,
        "values": values,
        "response": response,
        "moved": moved(score) if score is not None else None,
        "decoded": session.look.show(x, most=SMALL),
    }
