"""Latents: move one, and see what it decodes to and how the encoder responds."""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from zscope import sampling
from zscope.assays.engine import decode_and_respond
from zscope.assays.responses.holes import HoleScore
from zscope.errors import ConfigError, Undefined
from zscope.explorer.rendering import LARGE, SMALL
from zscope.explorer.session import Session
from zscope.explorer.views.query import CodeQuery, Index, Query, Seed, Vector

__all__ = [
    "Decode", "Draw", "Latents", "Project", "Sample", "Traversal", "decode", "displacements",
    "draw", "draw_codes", "latents", "project", "sample", "traversal",
]  # fmt: skip

Source = Literal["prior", "posterior", "hybrid", "uniform"]
TOLERANCE = 1e-3
"""A code has converged when a pass moves it by less than this fraction of the codes' spread."""
FRAMES = 16


class Latents(CodeQuery):
    """A latent vector to decode and encode again."""

    exact: bool = False
    """Return the decoded numbers instead of pictures."""


class Decode(Query):
    """Several latent vectors."""

    codes: Annotated[list[Vector], Field(min_length=1, max_length=256)]
    """The latent vectors."""
    exact: bool = False
    """Return the decoded numbers instead of pictures."""


class Sample(Query):
    """A recorded sample."""

    index: Index | None = None
    """Its number; by default the sample nearest to the mean of all codes."""
    exact: bool = False
    """Return the observed numbers instead of pictures."""
    frame: Index = 0
    """The frame of a video to show."""


class Draw(Query):
    """A random latent vector."""

    source: Source = "prior"
    """The distribution to draw from."""
    seed: Seed = 0
    """The seed of the draw."""


class Project(CodeQuery):
    """A latent vector to decode and encode until it is self-consistent."""

    passes: Annotated[int, Field(ge=1, le=100)] = 50
    """The largest number of passes."""


class Traversal(CodeQuery):
    """A latent to move; the latent vector gives the values of the others."""

    latent: Index
    """The latent to move."""
    steps: Annotated[int, Field(ge=2, le=41)] = 11
    """The number of values, evenly spaced over the range of the latent's slider."""


def latents(session: Session, query: Latents) -> dict[str, Any]:
    """A latent vector z, decoded; its response R(z), decoded; and the distance between them."""
    z = session.code(query.z, query.sample)
    x, response, holes = session.decode_and_score(z[None])
    again, _ = decode_and_respond(session.model, response)
    pictures = session.renderer.render(torch.cat([x, again]), most=LARGE, exact=query.exact)
    return {
        "z": z,
        "response": response[0],
        "displacement": None if holes is None else displacements(holes)[0],
        "decoded": pictures[0],
        "decoded_response": pictures[1],
        "sample": sample(session, Sample(index=query.sample, exact=query.exact))
        if query.sample is not None
        else None,
    }


def decode(session: Session, query: Decode) -> dict[str, Any]:
    """Several latent vectors: decoded, their responses, and their displacements."""
    codes = torch.stack([session.code(z, None) for z in query.codes])
    x, response, holes = session.decode_and_score(codes)
    return {
        "response": response,
        "displacement": None if holes is None else displacements(holes),
        "decoded": session.renderer.render(x, exact=query.exact),
    }


def displacements(score: HoleScore) -> list[dict[str, Any]]:
    """For each vector |R(z) - z|, the percentage of posterior samples that move less, and how far
    the code and the decoded observation are from those of data, in units of their spacing."""
    holes, unlike = set(score.holes), set(score.unlike_data)
    assert score.code_distance is not None  # only latents that are maps have none
    return [
        {
            "distance": float(score.displacement[k]),
            "ratio": float(score.ratio[k]),
            "percentile": float(score.percentile[k]),
            "hole": k in holes,
            "from_codes": float(score.code_distance[k]),
            "from_data": None if score.data_distance is None else float(score.data_distance[k]),
            "unlike": k in unlike,
        }
        for k in range(score.samples)
    ]


def sample(session: Session, query: Sample) -> dict[str, Any]:
    """A recorded observation, its posterior (unless the latents are maps), and its factors."""
    index = session.row(query.index)
    posterior = session.recording.posterior[[index]]
    x = session.recording.data.batch([index])
    rows = session.recording.rows
    maps = session.maps is not None  # which the view Channels has, with far fewer digits
    code = {} if maps else {"z": posterior.mean[0], "std": posterior.variance[0].sqrt()}
    frame = session.renderer.frame(query.frame)
    picture = session.renderer.render(x, most=LARGE, exact=query.exact, frame=frame, long=not maps)[
        0
    ]
    return {
        "index": index,
        "row": index if rows is None else int(rows[index]),
        **code,
        "factors": session.factors(index),
        "observation": picture,
    }


def draw(session: Session, query: Draw) -> dict[str, Any]:
    """A random latent vector."""
    return {"z": draw_codes(session, query.source, 1, query.seed)[0]}


def draw_codes(session: Session, source: Source, count: int, seed: int) -> Tensor:
    generator = session.generator(seed)
    if source == "prior":
        return sampling.prior(session.model, count, generator=generator).to(session.codes)
    if source == "posterior":
        return sampling.posterior(session.recording.posterior, count, generator=generator)
    sampler = sampling.hybrid if source == "hybrid" else sampling.uniform
    return sampler(session.recording.posterior, count, generator=generator)


def project(session: Session, query: Project) -> dict[str, Any]:
    """The sequence z, R(z), R(R(z)), … until it converges, with some of its decoded frames.

    The last code is self-consistent; `displacement` says how far it is from data.
    """
    codes = [session.code(query.z, query.sample)[None]]
    spread = float((session.codes - session.codes.mean(0)).norm(dim=1).square().mean().sqrt())
    steps: list[float] = []
    decoded: list[Tensor] = []
    for _ in range(query.passes):
        x, posterior = decode_and_respond(session.model, codes[-1])
        decoded.append(x)
        codes.append(posterior.mean)
        steps.append(float((codes[-1] - codes[-2]).norm()))
        if steps[-1] <= TOLERANCE * spread:
            break
    x, _, holes = session.decode_and_score(codes[-1])
    decoded.append(x)
    frames = torch.linspace(0, len(codes) - 1, min(FRAMES, len(codes))).round().int().tolist()
    return {
        "codes": torch.cat(codes),
        "steps": steps,
        "converged": steps[-1] <= TOLERANCE * spread,
        "displacement": None if holes is None else displacements(holes)[0],
        "frames": [{"pass": k, "decoded": session.renderer.render(decoded[k])[0]} for k in frames],
    }


def traversal(session: Session, query: Traversal) -> dict[str, Any]:
    """One latent moved over the range of its slider: decoded, and the responses of all latents."""
    session.check_latents(query.latent)
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
    x, response, holes = session.decode_and_score(codes)
    if not response.isfinite().all():
        raise Undefined(
            f"explorer: the response along the traversal of latent {query.latent} is not finite. "
            "Does the model diverge at the ends of its range? Move the slider to smaller values."
        )
    return {
        "latent": query.latent,
        "base": base,
        "values": values,
        "response": response,
        "displacement": None if holes is None else displacements(holes),
        "decoded": session.renderer.render(x, most=SMALL),
    }
