"""Hole score: is this latent vector on the manifold?

    displacement(z) = || R(z) - z ||

compared with the displacements of posterior samples z ~ q(z|x), which lie where the
model has seen data: `ratio` divides by their median, `percentile` is the share (0 to
100) of them that moved less, and a vector is in a hole if it moved more than 99 % of
them did. `holes` asks this of samples of the prior (of hybrids, where there is none):
an aggregate posterior that fills the prior leaves about 1 % in holes.

A latent that the decoder ignores has no place to be lost: where responses vary by less
than a tenth of what the posterior samples vary, the latent is left out (`ignored`).
For a model without a prior every latent is measured in units of its own spread, so that
rescaling latents changes nothing. Permuting latents never does.

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
from zscope.assays.engine import Recorded, base_responses, base_samples, posterior_of, respond
from zscope.assays.entry import Entry
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, Undefined
from zscope.randomness import fresh
from zscope.results import Scored, listed
from zscope.sampling import hybrid as hybrid_samples
from zscope.sampling import prior as prior_samples
from zscope.sampling import recorded_codes, whole
from zscope.types import Codes

FELT = 0.1


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
    ignored: list[int]  # latents the decoder ignores
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
class Known:
    """How far posterior samples move: what vectors are compared with. Made by `known`."""

    autoencoder: Autoencoder
    reference: Float[Tensor, " samples"]  # displacements, ascending
    limit: float
    floor: float  # rounding is no displacement: an exact autoencoder has no holes
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
        """How far does each code move? `answers` are their responses, where they are known."""
        if codes.shape[1] != len(self.used) + len(self.ignored):
            raise Undefined(
                f"hole_score: codes with {codes.shape[1]} latents against posterior samples with "
                f"{len(self.used) + len(self.ignored)}. Are both of this model?"
            )
        if answers is None:
            answers = respond(self.autoencoder, codes)
        moved = _distance(answers - codes, self.used, self.unit)
        below = torch.searchsorted(self.reference, moved, side="left")
        limit = max(self.limit, self.floor)
        in_hole = moved > limit
        return HoleScore(
            score=float(in_hole.double().mean()),
            displacement=moved,
            ratio=moved / max(float(self.reference.median()), self.floor),
            percentile=100 * below.double() / len(self.reference),
            holes=in_hole.nonzero().flatten().tolist(),
            reference=self.reference,
            limit=limit,
            ignored=self.ignored,
            source=source,
        )


def known(
    autoencoder: Autoencoder,
    posterior: Recorded,
    *,
    samples: int = 2048,
    quantile: float = 0.99,
    generator: Generator | None = None,
) -> Known:
    """Measure `samples` posterior samples once, so that many vectors can be compared with them."""
    if not 0 < quantile < 1:
        raise ConfigError(f"hole_score: quantile={quantile} must lie between 0 and 1.")
    drawn = base_samples(posterior, samples, "hole_score", fresh(generator))
    answers = base_responses(autoencoder, posterior, drawn).mean
    spread, varies = drawn.double().std(0).cpu(), answers.double().std(0).cpu()
    used = (varies > FELT * spread).nonzero().flatten().tolist()
    if not used:
        raise Undefined(
            f"hole_score: none of the {drawn.shape[1]} latents is felt after decoding, so no "
            "vector is nearer to the data than another. Has the posterior collapsed? See: "
            "zscope assay RUN response-matrix"
        )
    unit = spread[used] if autoencoder.prior is None else torch.ones(len(used)).double()
    reference = _distance(answers - drawn, used, unit).sort().values
    return Known(
        autoencoder=autoencoder,
        reference=reference,
        limit=float(torch.quantile(reference, quantile)),
        floor=1e-5 * float((spread[used] / unit).norm()),
        used=used,
        ignored=sorted(set(range(drawn.shape[1])) - set(used)),
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
    """How far does each code move, relative to `samples` posterior samples?"""
    codes = recorded_codes(codes, "hole_score")
    measured = known(
        autoencoder,
        posterior,
        samples=samples,
        quantile=quantile,
        generator=generator,
    )
    return measured.score(codes, source=source)


@accepts_recording
def holes(
    autoencoder: Autoencoder,
    posterior: Recorded,
    *,
    samples: int = 2048,
    quantile: float = 0.99,
    generator: Generator | None = None,
) -> HoleScore:
    """The share of prior samples that lie in holes; of hybrids, for models without a prior."""
    whole("holes", samples=samples)
    generator = fresh(generator)
    if autoencoder.prior is None:
        drawn: Codes = hybrid_samples(
            posterior_of(posterior, "holes"), samples, generator=generator
        )
    else:
        drawn = prior_samples(autoencoder, samples, generator=generator)
    return hole_score(
        autoencoder,
        drawn,
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
