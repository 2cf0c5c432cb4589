"""Samples: sheets of observations and of decoded draws, with their distance from data."""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from zscope.assays.engine import decode, respond
from zscope.assays.responses.holes import HoleReference
from zscope.explorer.session import Session
from zscope.explorer.views.latents import displacements, draw_codes
from zscope.explorer.views.query import Query, Seed

__all__ = ["Samples", "samples"]


class Samples(Query):
    """A sheet of samples."""

    source: Literal["data", "prior", "posterior", "hybrid", "uniform"] = "prior"
    """The distribution of the codes; `data` are recorded observations, scored by their codes."""
    count: Annotated[int, Field(ge=1, le=200)] = 48
    """The number of samples."""
    seed: Seed = 0
    """The seed of the draw."""


def samples(session: Session, query: Samples) -> dict[str, Any]:
    """A sheet of samples: codes, observations (decoded, or recorded ones), hole scores, and
    distances from data."""
    model = session.subject.copy.autoencoder
    rows: list[int] = []
    if query.source == "data":
        order = torch.randperm(len(session.codes), generator=session.generator(query.seed))
        rows = order[: query.count].sort().values.tolist()
        codes, x = session.codes[rows], session.recording.data.batch(rows)
        decoded = decode(model, codes)
    else:
        codes = draw_codes(session, query.source, query.count, query.seed)
        x = decoded = decode(model, codes)
    holes = None
    if isinstance(session.hole_reference, HoleReference):
        answers = respond(model, codes)
        holes = session.hole_reference.score(codes, answers=answers, decoded=decoded)
    return {
        "source": query.source,
        "seed": query.seed,
        "samples": rows,
        "codes": codes,
        "displacement": None if holes is None else displacements(holes),
        "holes": None if holes is None else holes.score,
        "unlike": None if holes is None else len(holes.unlike_data) / holes.samples,
        "observations": session.renderer.render(x),
    }
