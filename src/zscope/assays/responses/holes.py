"""Holes: how much of the prior falls into holes, far from the codes of any data?

    displacement(z) = || R(z) - z ||

is compared with the displacements of posterior samples z ~ q(z|x), which lie where the
model was trained: `ratio` divides by their median, `percentile` is the share (0 to 100) of
them that moved less, and a vector is in a hole if it moved more than 99 % of them did.
`holes` tests samples of the prior (hybrids, if there is none): if the aggregate posterior
fills the prior, about 1 % are in holes.

Only latents that count are measured: those in use (`zscope.usage`) whose responses vary at
least a tenth as much as the posterior samples. The displacement of the others is the noise of
their posteriors, in which holes would drown; `ignored` lists them, and pruning them leaves the
score as it is. For a model without a prior
every latent is measured in units of its standard deviation, so that rescaling latents
changes nothing. Permuting latents never does.

Beyond the papers; after Leeb et al., "Interventional assays for the latent space of
autoencoders", eq. 4, where R(z) - z points from z to the manifold.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import (
    Recorded,
    base_responses,
    base_samples,
    posterior_of,
    respond,
    used_latents,
)
from zscope.assays.entry import Entry
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, Undefined
from zscope.randomness import fresh
from zscope.results import Scored, listed
from zscope.sampling import hybrid as hybrid_samples
from zscope.sampling import prior as prior_samples
from zscope.sampling import recorded_codes, whole
from zscope.types import Codes

__all__ = ["HoleReference", "HoleScore", "hole_reference", "hole_score", "holes"]

RESPONSIVE = 0.1  # least spread of the responses, in units of that of the samples


@dataclass(frozen=True, eq=False)
class HoleScore(Scored):
    """How far each vector moves when it is decoded and encoded, against posterior samples."""

    score: float  # the share of the vectors that lie in holes
    displacement: Float[Tensor, " vectors"]
    ratio: Float[Tensor, " vectors"]
    percentile: Float[Tensor, " vectors"]
    holes: list[int]
    reference: Float[Tensor, " samples"]  # displacements of posterior samples, ascending
    limit: float  # a larger displacement is a hole
    ignored: list[int]  # latents that do not count
    source: str  # "given", "prior" or "hybrid"

    @property
    def samples(self) -> int:
        """How many vectors were tested."""
        return len(self.displacement)

    @property
    def chance(self) -> float:
        """The share of posterior samples beyond the limit: 1 % by its definition."""
        return float((self.reference > self.limit).double().mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % for the share of independent draws (Wilson, JASA 22, 1927).

        The limit is estimated from draws too: its error is added in squares.
        """
        n, z = self.samples, 1.96
        centre = (self.score + z**2 / (2 * n)) / (1 + z**2 / n)
        reach = z / (1 + z**2 / n) * (self.score * (1 - self.score) / n + (z / (2 * n)) ** 2) ** 0.5
        off = z * (self.chance * (1 - self.chance) / len(self.reference)) ** 0.5
        ends = np.clip([1 - self.chance - off, 1 - self.chance + off], 0, 1)
        low, high = np.quantile(self.reference.numpy(), ends)
        between = float(((self.displacement > low) & (self.displacement <= high)).double().mean())
        reach = (reach**2 + (between / 2) ** 2) ** 0.5
        return max(0.0, centre - reach), min(1.0, centre + reach)

    def summary(self) -> list[tuple[str, str]]:
        return [
            ("source of the vectors", self.source),
            (
                "median displacement",
                f"{float(self.ratio.median()):.3g} x that of posterior samples",
            ),
            ("ignored latents", listed(self.ignored)),
        ]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import histograms

        samples = {"posterior samples": self.reference, f"{self.source} vectors": self.displacement}
        named: dict[str, Any] = {"mark": self.limit, "marked": "beyond: in a hole"}
        return histograms(samples, x="displacement", **named, ax=ax)


@dataclass(frozen=True, eq=False)
class HoleReference:
    """Displacements of posterior samples, with which other vectors are compared."""

    autoencoder: Autoencoder
    reference: Float[Tensor, " samples"]  # displacements, ascending
    limit: float
    floor: float  # smaller displacements are rounding errors: an exact autoencoder has no holes
    used: list[int]
    ignored: list[int]
    unit: Float[Tensor, " used"]

    def score(
        self,
        codes: Codes,
        *,
        answers: Codes | None = None,
        source: str = "given",
    ) -> HoleScore:
        """Compare the displacements of codes; `answers` are their responses, if already known."""
        if codes.shape[1] != len(self.used) + len(self.ignored):
            raise Undefined(
                f"hole_score: codes with {codes.shape[1]} latents against posterior samples with "
                f"{len(self.used) + len(self.ignored)}. Do both come from this model?"
            )
        if answers is None:
            answers = respond(self.autoencoder, codes)
        displacement = _distance(answers - codes, self.used, self.unit)
        below = torch.searchsorted(self.reference, displacement, side="left")
        limit = max(self.limit, self.floor)
        in_hole = displacement > limit
        return HoleScore(
            score=float(in_hole.double().mean()),
            displacement=displacement,
            ratio=displacement / max(float(self.reference.median()), self.floor),
            percentile=100 * below.double() / len(self.reference),
            holes=in_hole.nonzero().flatten().tolist(),
            reference=self.reference,
            limit=limit,
            ignored=self.ignored,
            source=source,
        )


def hole_reference(
    autoencoder: Autoencoder,
    posterior: Recorded,
    *,
    samples: int = 2048,
    quantile: float = 0.99,
    generator: Generator | None = None,
) -> HoleReference:
    """Displacements of `samples` posterior samples, computed once to compare many vectors with."""
    if not 0 < quantile < 1:
        raise ConfigError(f"hole_score: quantile={quantile} must lie between 0 and 1.")
    base = base_samples(posterior, samples, "hole_score", fresh(generator))
    responses = base_responses(autoencoder, posterior, base).mean
    spread, response_spread = base.double().std(0).cpu(), responses.double().std(0).cpu()
    responsive = response_spread > RESPONSIVE * spread
    used = [j for j in used_latents(autoencoder, posterior, "hole_score") if responsive[j]]
    if not used:
        raise Undefined(
            f"hole_score: none of the {base.shape[1]} latents is in use and survives decoding and "
            "encoding, so no vector is nearer to the data than another. Has the posterior "
            "collapsed? See: zscope assay RUN response-matrix"
        )
    unit = spread[used] if autoencoder.prior is None else torch.ones(len(used)).double()
    reference = _distance(responses - base, used, unit).sort().values
    return HoleReference(
        autoencoder=autoencoder,
        reference=reference,
        limit=float(torch.quantile(reference, quantile)),
        floor=1e-5 * float((spread[used] / unit).norm()),
        used=used,
        ignored=sorted(set(range(base.shape[1])) - set(used)),
        unit=unit,
    )


def hole_score(
    autoencoder: Autoencoder,
    codes: Tensor | np.ndarray,
    posterior: Recorded,
    *,
    samples: int = 2048,
    quantile: float = 0.99,
    generator: Generator | None = None,
    source: str = "given",
) -> HoleScore:
    """How far each code moves when decoded and encoded, relative to posterior samples."""
    codes = recorded_codes(codes, "hole_score")
    reference = hole_reference(
        autoencoder,
        posterior,
        samples=samples,
        quantile=quantile,
        generator=generator,
    )
    return reference.score(codes, source=source)


@accepts_recording
def holes(
    autoencoder: Autoencoder,
    posterior: Recorded,
    *,
    samples: int = 2048,
    quantile: float = 0.99,
    generator: Generator | None = None,
) -> HoleScore:
    """The share of prior samples (hybrids, for a model without a prior) that lie in holes."""
    whole("holes", samples=samples)
    generator = fresh(generator)
    if autoencoder.prior is None:
        vectors: Codes = hybrid_samples(
            posterior_of(posterior, "holes"), samples, generator=generator
        )
    else:
        vectors = prior_samples(autoencoder, samples, generator=generator)
    return hole_score(
        autoencoder,
        vectors,
        posterior,
        samples=samples,
        quantile=quantile,
        generator=generator,
        source="hybrid" if autoencoder.prior is None else "prior",
    )


def _distance(change: Tensor, used: list[int], unit: Tensor) -> Tensor:
    distance: Tensor = (change.double().cpu()[:, used] / unit).norm(dim=1)
    return distance


ENTRY = Entry(
    question="How much of the prior falls into holes, far from the codes of any data?",
    takes=("autoencoder", "recording"),
    passes="2 * samples",
)
