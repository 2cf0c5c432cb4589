"""Holes: how much of the prior falls into holes, and how much of it is unlike data?

    displacement(z) = || R(z) - z ||

is compared with the displacements of posterior samples z ~ q(z|x), which lie where the
model was trained: `ratio` divides by their median, `percentile` is the share (0 to 100) of
them that moved less, and a vector is in a hole if it moved more than 99 % of them did.
`holes` tests samples of the prior (hybrids, if there is none): if the aggregate posterior
fills the prior, about 1 % are in holes.

A vector that does not move is self-consistent, which is not the same as like data: a model
may encode an empty picture as the code that decodes to it. So `code_distance` is the distance
from the nearest codes of data and `data_distance` that of the decoded observation from the
nearest observations, both in units of the spacing of these neighbours (see
`zscope.assays.likeness`). `unlike_data` are the vectors for which one of them is larger than 1
and larger than for 99 % of posterior samples: on a coarse grid of factors, codes between those of
data that decode to something between data are like data.

Only latents that count are measured: those in use (`zscope.usage`) whose responses vary at
least a tenth as much as the posterior samples. The displacement of the others is the noise of
their posteriors, in which holes would drown; `ignored` lists them, and pruning them leaves the
score as it is. For a model without a prior
every latent is measured in units of its standard deviation, so that rescaling latents
changes nothing. Permuting latents never does.

Of latents that are maps, vectors are hybrids of channels (or of other `units`: `units="patch:4"`
takes squares of places from different pictures): samples of the prior would be white maps, which
nobody decodes; `base="prior"` asks for them. They are compared with posterior means of pictures.
The displacement is the norm over all latents of the channels that count, in units of the standard
deviation of each channel, and the limit is the 95 % quantile of fewer than 1,000 pictures. Channels
depend on one another in most models, so that hybrids in holes are a note and no fault. Only the
decoded observations are compared with data (`zscope.assays.likeness`).

Beyond the papers; after Leeb et al., "Interventional assays for the latent space of
autoencoders", eq. 4, where R(z) - z points from z to the manifold.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import (
    Recorded,
    base_samples,
    chunk_size,
    decode,
    decode_and_respond,
    points_of,
    posterior_of,
    used_latents,
)
from zscope.assays.entry import Entry
from zscope.assays.likeness import MANY, Likeness, likeness, likeness_of_maps
from zscope.assays.pictures import channel_scales, shared_responses, summary_of
from zscope.assays.shares import wilson
from zscope.assays.units import UnitsOption, units_of
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, Undefined
from zscope.groups import Groups
from zscope.layout import Layout
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import Scored, listed, name_units
from zscope.sampling import hybrid as hybrid_samples
from zscope.sampling import prior as prior_samples
from zscope.sampling import recorded_codes, whole
from zscope.types import Codes

__all__ = ["HoleReference", "HoleScore", "hole_reference", "hole_score", "holes"]

QUANTILE = 0.99
QUANTILE_OF_FEW = 0.95
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
    source: str  # "given", "prior" or "hybrid"; of maps also "channel hybrid"
    code_distance: Float[Tensor, " vectors"] | None  # from codes of data, in units of their spacing
    code_limit: float | None  # larger is unlike data: at least 1; None of maps
    data_distance: Float[Tensor, " vectors"] | None  # decoded, from data; None without data
    data_limit: float | None

    @property
    def unlike_data(self) -> list[int]:
        """The vectors far from codes of data, or decoded to something far from data."""
        far = torch.zeros(self.samples, dtype=torch.bool)
        for marked in self._far.values():
            far = far | marked
        return far.nonzero().flatten().tolist()

    @property
    def _far(self) -> dict[str, Tensor]:
        """The vectors that are far, by what they are far from, as far as it is known."""
        pairs = {
            "far from codes of data": (self.code_distance, self.code_limit),
            "decoded, far from data": (self.data_distance, self.data_limit),
        }
        return {
            name: distance > limit
            for name, (distance, limit) in pairs.items()
            if distance is not None and limit is not None
        }

    @property
    def samples(self) -> int:
        """How many vectors were tested."""
        return len(self.displacement)

    @property
    def chance(self) -> float:
        """The share of posterior samples beyond the limit: 1 % by definition, of few maps 5 %."""
        return float((self.reference > self.limit).double().mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % for the share of independent draws (Wilson, JASA 22, 1927).

        The limit is estimated from draws too: its error is added in squares.
        """
        centre, reach = wilson(self.score, self.samples)
        off = 1.96 * (self.chance * (1 - self.chance) / len(self.reference)) ** 0.5
        ends = np.clip([1 - self.chance - off, 1 - self.chance + off], 0, 1)
        low, high = np.quantile(self.reference.numpy(), ends)
        between = float(((self.displacement > low) & (self.displacement <= high)).double().mean())
        reach = (reach**2 + (between / 2) ** 2) ** 0.5
        # Without the rounding of what is 0 or 1 exactly.
        low = 0.0 if self.score == 0 else max(0.0, centre - reach)
        return low, 1.0 if self.score == 1 else min(1.0, centre + reach)

    def summary(self) -> list[tuple[str, str]]:
        return [
            ("source of the vectors", self.source),
            (
                "median displacement",
                f"{float(self.ratio.median()):.3g} x that of "
                f"{'posterior samples' if self.unit == 'latent' else 'the pictures'}",
            ),
            ("ignored latents", listed(self.ignored)),
            *self._unlike_summary(),
        ]

    def _unlike_summary(self) -> list[tuple[str, str]]:
        """What is unlike data, of which at most about 1 % is expected."""
        far_from = self._far
        if not far_from:
            return []
        self_consistent = len(set(self.unlike_data) - set(self.holes)) / self.samples
        return [
            *(
                (name, f"{100 * float(far.double().mean()):.1f} %")
                for name, far in far_from.items()
            ),
            ("self-consistent, unlike data", f"{100 * self_consistent:.1f} %"),
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
    used: list[int]  # latents or, of maps, channels
    ignored: list[int]
    unit: Float[Tensor, " used"]
    likeness: Likeness
    layout: Layout | None = None

    @property
    def latents(self) -> int:
        columns = len(self.used) + len(self.ignored)
        return columns if self.layout is None else self.layout.latents

    def displacements(self, codes: Codes, answers: Codes) -> tuple[Tensor, Tensor, Tensor]:
        """How far codes move to their responses: the distance, its ratio to the median of posterior
        samples, and whether that is a hole."""
        displacement = _distance(answers - codes, self.used, self.unit, self.layout)
        ratio = displacement / max(float(self.reference.median()), self.floor)
        return displacement, ratio, displacement > max(self.limit, self.floor)

    def score(
        self,
        codes: Codes,
        *,
        answers: Codes | None = None,
        decoded: Tensor | None = None,
        source: str = "given",
    ) -> HoleScore:
        """Compare codes with data; `answers` are their responses and `decoded` their
        observations, if already known."""
        if codes.shape[1] != self.latents:
            raise Undefined(
                f"hole_score: codes with {codes.shape[1]} latents against posterior samples with "
                f"{self.latents}. Do both come from this model?"
            )
        if answers is None:
            answers, data_distance = self._respond(codes)
        else:
            if decoded is None and self.likeness.observations is not None:
                decoded = decode(self.autoencoder, codes)
            data_distance = None if decoded is None else self.likeness.data_distance(decoded)
        observations = self.likeness.observations
        displacement, ratio, in_hole = self.displacements(codes, answers)
        below = torch.searchsorted(self.reference, displacement, side="left")
        known = self.likeness.codes
        result = HoleScore(
            score=float(in_hole.double().mean()),
            displacement=displacement,
            ratio=ratio,
            percentile=100 * below.double() / len(self.reference),
            holes=in_hole.nonzero().flatten().tolist(),
            reference=self.reference,
            limit=max(self.limit, self.floor),
            ignored=self.ignored,
            source=source,
            code_distance=self.likeness.code_distance(codes),
            code_limit=None if known is None else known.limit,
            data_distance=data_distance,
            data_limit=None if observations is None else observations.limit,
        )
        if self.layout is None:
            return result
        return name_units(result, "channel", self.layout.unit_names())

    def _respond(self, codes: Codes) -> tuple[Codes, Tensor | None]:
        """The responses, and how far the decoded observations are from data, in one pass."""
        size = chunk_size(self.autoencoder, codes[:2], len(codes))
        answers, distances = [], []
        for part in codes.split(size):
            x, posterior = decode_and_respond(self.autoencoder, part)
            answers.append(posterior.mean)
            if (distance := self.likeness.data_distance(x)) is not None:
                distances.append(distance)
        return torch.cat(answers), torch.cat(distances) if distances else None


def hole_reference(
    autoencoder: Autoencoder,
    posterior: Recorded,
    *,
    samples: int = 2048,
    quantile: float | None = None,
    unlike_data: bool = True,
    generator: Generator | None = None,
) -> HoleReference:
    """Displacements of `samples` posterior samples, computed once to compare many vectors with.

    Without `unlike_data` nothing is compared with data.
    """
    if quantile is not None and not 0 < quantile < 1:
        raise ConfigError(f"hole_score: quantile={quantile} must lie between 0 and 1.")
    generator = fresh(generator)
    layout = posterior_of(posterior, "hole_score").layout
    if layout is not None:
        return _reference_of_maps(
            autoencoder, posterior, layout, samples, quantile, unlike_data, generator
        )
    base = base_samples(posterior, samples, "hole_score", generator)
    responses = shared_responses(autoencoder, posterior, base, "hole_score").mean
    spread, response_spread = base.double().std(0).cpu(), responses.double().std(0).cpu()
    used = _used(autoencoder, posterior, spread, response_spread, "latents")
    unit = spread[used] if autoencoder.prior is None else torch.ones(len(used)).double()
    reference = _distance(responses - base, used, unit).sort().values
    return HoleReference(
        autoencoder=autoencoder,
        reference=reference,
        limit=float(torch.quantile(reference, quantile or QUANTILE)),
        floor=1e-5 * float((spread[used] / unit).norm()),
        used=used,
        ignored=sorted(set(range(base.shape[1])) - set(used)),
        unit=unit,
        likeness=likeness(autoencoder, posterior, used, unit, generator)
        if unlike_data
        else Likeness(None, None, used, unit),
    )


def _reference_of_maps(
    autoencoder: Autoencoder,
    maps: Recorded,
    layout: Layout,
    samples: int,
    quantile: float | None,
    unlike_data: bool,
    generator: Generator,
) -> HoleReference:
    """The same of pictures, by channels."""
    who = "hole_score"
    base = base_samples(maps, samples, who, generator)
    known = maps if isinstance(maps, Recording) else posterior_of(maps, who)
    sigma = channel_scales(summary_of(known, who))[1]
    # First, because it decodes and encodes the base pictures, and responses are then known.
    alike = Likeness(None, None, [], sigma[:0])
    if unlike_data:
        alike = likeness_of_maps(autoencoder, maps, [], sigma[:0])
    responses = shared_responses(autoencoder, maps, base, who).mean
    spread, response_spread = (
        layout.sums(each.double().var(0, correction=0)[None])[0].sqrt().cpu()
        for each in (base, responses)
    )
    used = _used(autoencoder, maps, spread, response_spread, "channels")
    reference = _distance(responses - base, used, sigma[used], layout).sort().values
    usual = QUANTILE if len(base) >= MANY else QUANTILE_OF_FEW
    return HoleReference(
        autoencoder=autoencoder,
        reference=reference,
        limit=float(torch.quantile(reference, quantile or usual)),
        floor=1e-5 * float((spread[used] / sigma[used]).norm()),
        used=used,
        ignored=sorted(set(range(layout.channels)) - set(used)),
        unit=sigma[used],
        likeness=alike,
        layout=layout,
    )


def _used(
    autoencoder: Autoencoder, recorded: Recorded, spread: Tensor, response: Tensor, noun: str
) -> list[int]:
    """The latents, or channels, in use whose responses vary; at least one."""
    responsive = response > RESPONSIVE * spread
    used = [j for j in used_latents(autoencoder, recorded, "hole_score") if responsive[j]]
    if not used:
        raise Undefined(
            f"hole_score: none of the {len(spread)} {noun} is in use and survives decoding and "
            "encoding, so no vector is nearer to the data than another. Has the posterior "
            "collapsed? See: zscope assay RUN response-matrix"
        )
    return used


def hole_score(
    autoencoder: Autoencoder,
    codes: Tensor | np.ndarray,
    posterior: Recorded,
    *,
    samples: int = 2048,
    quantile: float | None = None,
    unlike_data: bool = True,
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
        unlike_data=unlike_data,
        generator=generator,
    )
    return reference.score(codes, source=source)


@accepts_recording
def holes(
    autoencoder: Autoencoder,
    posterior: Recorded,
    *,
    samples: int = 2048,
    quantile: float | None = None,
    base: Literal["prior", "hybrid"] | None = None,
    units: UnitsOption = "auto",
    groups: Groups | None = None,
    unlike_data: bool = True,
    generator: Generator | None = None,
) -> HoleScore:
    """The share of prior samples (hybrids, for a model without a prior) that lie in holes.

    `base` is where the vectors come from: by default the prior if there is one, but hybrids of
    maps. `units` are the variables of hybrids: single latents or, of maps, channels; `groups` is
    another name for a partition. `quantile` of the posterior samples are not in holes, by default
    0.99; of fewer than 1,000 maps 0.95. With `unlike_data=False` nothing is said of how like data
    the vectors are, which is cheaper; the score is the same.
    """
    who = "holes"
    whole(who, samples=samples)
    generator = fresh(generator)
    recorded = posterior_of(posterior, who)
    chosen = units_of(who, units, groups, recorded.latents, recorded.layout)
    if base is None:
        of_maps = recorded.layout is not None
        base = "hybrid" if autoencoder.prior is None or of_maps else "prior"
    source: str = base
    if base == "hybrid":
        vectors: Codes = hybrid_samples(
            points_of(posterior, who), samples, groups=chosen.lists, generator=generator
        )
        kind = "single latent" if chosen.unit == "latent" else chosen.unit
        source = f"{kind} hybrid" if chosen.names else base
    else:
        vectors = prior_samples(autoencoder, samples, generator=generator)
    return hole_score(
        autoencoder,
        vectors,
        posterior,
        samples=samples,
        quantile=quantile,
        unlike_data=unlike_data,
        generator=generator,
        source=source,
    )


def _distance(
    change: Tensor, used: list[int], unit: Tensor, layout: Layout | None = None
) -> Tensor:
    if layout is not None:
        squares = layout.sums(change.double().square()).cpu()[:, used] / unit.square()
        return squares.sum(1).sqrt()
    distance: Tensor = (change.double().cpu()[:, used] / unit).norm(dim=1)
    return distance


ENTRY = Entry(
    question="How much of the prior falls into holes, and how much of it is unlike data?",
    meaning=(
        "The share of prior samples that decoding and encoding moves further than 99 % of the "
        "codes of data: about 1 % if the codes fill the prior."
    ),
    figure=(
        "Distances that codes move when decoded and encoded again: the part of the prior's curve "
        "beyond the mark is what lies in holes."
    ),
    map_question="How many hybrids of channels fall into holes, and how many are unlike data?",
    takes=("autoencoder", "recording"),
    passes="2 * samples + 512",
    maps="units",
    map_passes="2 * samples",
)
