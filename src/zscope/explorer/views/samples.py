"""Samples: sheets of observations and of decoded draws, each with its hole score."""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from zscope.assays.engine import decode, respond
from zscope.assays.responses.holes import Known
from zscope.explorer.session import Session
from zscope.explorer.views.latents import drawn, moved
from zscope.explorer.views.query import Query, Seed


class Samples(Query):
    """`data` are recorded observations themselves, scored by their codes."""

    source: Literal["data", "prior", "posterior", "hybrid", "uniform"] = "prior"
    count: Annotated[int, Field(ge=1, le=200)] = 48
    seed: Seed = 0


def samples(session: Session, query: Samples) -> dict[str, Any]:
    """A sheet of samples, decoded, with their hole scores."""
    model = session.subject.study.autoencoder
    rows: list[int] = []
    if query.source == "data":
        order = torch.randperm(len(session.codes), generator=session.generator(query.seed))
        rows = order[: query.count].sort().values.tolist()
        codes, x = session.codes[rows], session.recording.data.batch(rows)
    else:
        codes = drawn(session, query.source, query.count, query.seed)
        x = decode(model, codes)
    score = None
    if isinstance(session.known, Known):
        score = session.known.score(codes, answers=respond(model, codes))
    return {
        "source": query.source,
        "seed": query.seed,
        "samples": rows,
        "codes": codes,
        "moved": None if score is None else moved(score),
        "holes": None if score is None else score.score,
        "observations": session.look.show(x),
    }
