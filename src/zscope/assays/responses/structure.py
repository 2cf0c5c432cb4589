"""Structure score: do prior samples survive decoding and encoding?

    SS = MMD^2(p, r),   r the distribution of z' ~ q(z' | decoder(z)),  z ~ p

Near 0 when the responses to prior samples are distributed like the prior itself; large
when the decoder and encoder pull prior samples onto a more structured set. It is the squared
MMD with the kernels of Wasserstein autoencoders (see `mmd`). The two clouds are independent
draws from the prior, and the responses are posterior *samples* (eq. 3): with mean responses
a collapsed latent would become a point, and collapse would look like structure.
`response="mean"` uses mean responses, and the result says so. Unchanged by permuting or
(given a rotated model) rotating the latents.

With `only_causal` the non-causal latents are set to 0 in both clouds (the causal
structure score). For a model without a prior, hybrids of its own codes replace the prior
samples, and the width of the kernels follows the mean variance of the codes; `distribution`
says which was used.

Of latents that are maps, hybrids of channels are the default for any prior, whose samples would be
white maps; `base="prior"` asks for these. Compared are vectors of channels at 4 random places of
each picture, in units of the standard deviation of each channel; the standard error and the p-value
are over whole pictures. `cloud="picture"` compares whole maps (see `clouds`).

Leeb et al., "Interventional assays for the latent space of autoencoders", eq. 8, sec. 4.2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded, posterior_of, respond_posterior
from zscope.assays.entry import Entry
from zscope.assays.parts import shared_result
from zscope.assays.pictures import channel_scales, summary_of
from zscope.assays.responses.clouds import Cloud, check_cloud, cloud_of, rows_of_each
from zscope.assays.responses.matrix import response_matrix
from zscope.assays.responses.mmd import mmd
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

Base = Literal["prior", "hybrid"]
PICTURES_TO_MIX = 4
"""Recorded pictures for each hybrid, of which its channels are drawn."""

__all__ = ["StructureScore", "causal_structure_score", "structure_score"]


@dataclass(frozen=True, eq=False)
class StructureScore(Scored):
    """MMD^2 between latent vectors and the responses to other such vectors."""

    score: float
    standard_error: float
    interval: tuple[float, float]
    p_value: float | None  # of "the responses are distributed like the latent vectors themselves"
    distribution: Literal["prior", "hybrid"]
    response: Literal["sampled", "mean"]
    statistic: Literal["unbiased", "biased"]
    causal: list[int] | None  # the only latents compared; None: all of them
    samples: int
    latents: int
    drawn: Codes
    responses: Codes
    chance: float = 0.0  # of responses distributed like the latent vectors
    places: int | None = None  # of each picture, whose channels are compared; None of vectors

    def summary(self) -> list[tuple[str, str]]:
        lines = [
            ("p-value", "not requested" if self.p_value is None else f"{self.p_value:.3g}"),
            ("distribution", self.distribution),
            ("response", self.response),
            ("latents compared", "all" if self.causal is None else listed(self.causal)),
        ]
        if self.places is not None:
            lines.append(("places of each picture", str(self.places)))
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Without `drawn` and `responses`."""
        left_out = ("drawn", "responses", *(("places",) if self.places is None else ()))
        return {name: value for name, value in super().to_dict().items() if name not in left_out}

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import clouds, histograms

        both = {self.distribution: self.drawn, "responses": self.responses}
        if self.latents == 1:  # there is no plane
            return histograms(both, x="latent 0", ax=ax)
        # The two latents that differ most in spread.
        change = (self.responses.var(0, correction=0) - self.drawn.var(0, correction=0)).abs()
        dims = change.argsort(descending=True)[:2].sort().values.tolist()
        return clouds(both, dims=dims, ax=ax)


@accepts_recording
def structure_score(
    autoencoder: Autoencoder,
    posterior: Recorded | None = None,
    *,
    samples: int = 2048,
    only_causal: bool = False,
    causal: Sequence[int] | None = None,
    response: Literal["sampled", "mean"] = "sampled",
    statistic: Literal["unbiased", "biased"] = "unbiased",
    base: Base | None = None,
    units: UnitsOption = "auto",
    groups: Groups | None = None,
    cloud: Cloud = "place",
    permutations: int = 200,
    generator: Generator | None = None,
) -> StructureScore:
    """MMD^2 between the distributions of latent vectors and of their responses.

    `posterior` (or codes) is needed for models without a prior, to make hybrids; `units` (or
    `groups`) are the variables of those hybrids. `base` is where the vectors come from: by default
    the prior if there is one, but hybrids of maps. `causal` lists the latents to use with
    `only_causal`; by default they come from a response matrix. `cloud` is what is compared of maps.
    """
    who = "structure_score"
    generator = fresh(generator)
    _check(response, statistic, samples, permutations)
    recorded = None if posterior is None else posterior_of(posterior, who)
    layout = None if recorded is None else recorded.layout
    check_cloud(who, cloud, layout, samples)
    if base is None:
        base = "hybrid" if autoencoder.prior is None or layout is not None else "prior"
    sampled, variance = response == "sampled", 1.0
    if base == "hybrid":
        codes = _codes_for_hybrids(posterior, samples, sampled, generator)
        chosen = units_of(who, units, groups, codes.shape[1], layout)
        draw: Callable[[], Codes] = partial(
            hybrid_samples, codes, samples, groups=chosen.lists, generator=generator
        )
        if layout is None:
            variance = float(codes.double().var(0, correction=0).mean())
    else:
        draw = partial(prior_samples, autoencoder, samples, generator=generator)
    samples_compared, samples_decoded = draw(), draw()
    response_posterior = respond_posterior(autoencoder, samples_decoded)
    responses = response_posterior.sample(generator) if sampled else response_posterior.mean
    used = None
    if only_causal:
        used = _causal(autoencoder, posterior, samples_decoded, causal, layout, generator)
        columns = used if layout is None else _latents_of(used, layout)
        samples_compared = _zero_others(samples_compared, columns)
        responses = _zero_others(responses, columns)
    together, places = 1, None
    if layout is not None and posterior is not None:
        known = posterior if isinstance(posterior, Recording) else posterior_of(posterior, who)
        scale = channel_scales(summary_of(known, who))[1]
        samples_compared, responses = (
            cloud_of(each, layout, scale, cloud, generator)
            for each in (samples_compared, responses)
        )
        together = rows_of_each(cloud, layout)
        places = together if cloud == "place" else layout.positions
    discrepancy = mmd(
        samples_compared,
        responses,
        variance=variance,
        biased=statistic == "biased",
        permutations=permutations,
        together=together,
        generator=generator,
    )
    result = StructureScore(
        score=discrepancy.value,
        standard_error=discrepancy.standard_error,
        interval=discrepancy.interval,
        p_value=discrepancy.p_value,
        distribution=base,
        response=response,
        statistic=statistic,
        causal=used,
        samples=samples,
        latents=samples_compared.shape[1],
        drawn=samples_compared,
        responses=responses,
        chance=discrepancy.chance,
        places=places,
    )
    return result if layout is None else name_units(result, "channel", layout.unit_names())


@accepts_recording
def causal_structure_score(
    autoencoder: Autoencoder,
    posterior: Recorded | None = None,
    *,
    samples: int = 2048,
    causal: Sequence[int] | None = None,
    response: Literal["sampled", "mean"] = "sampled",
    statistic: Literal["unbiased", "biased"] = "unbiased",
    base: Base | None = None,
    units: UnitsOption = "auto",
    groups: Groups | None = None,
    cloud: Cloud = "place",
    permutations: int = 200,
    generator: Generator | None = None,
) -> StructureScore:
    """The structure score of the causal latents alone: `structure_score(only_causal=True)`."""
    return structure_score(
        autoencoder,
        posterior,
        samples=samples,
        only_causal=True,
        causal=causal,
        response=response,
        statistic=statistic,
        base=base,
        units=units,
        groups=groups,
        cloud=cloud,
        permutations=permutations,
        generator=generator,
    )


def _causal(
    autoencoder: Autoencoder,
    posterior: Recorded | None,
    codes: Codes,
    causal: Sequence[int] | None,
    layout: Layout | None,
    generator: Generator,
) -> list[int]:
    """The given latents, or those of a response matrix (of `codes`, without a posterior).

    Of maps, channels.
    """
    count, noun = codes.shape[1], "latents"
    if layout is not None:
        count, noun = layout.channels, "channels"
    if causal is None:
        if isinstance(posterior, Recording):
            causal = shared_result(response_matrix, posterior).causal
        else:
            source = codes[:1024] if posterior is None else posterior
            causal = response_matrix(autoencoder, source, generator=generator).causal
    used = sorted({int(latent) for latent in causal})
    if not used:
        raise Undefined(
            f"structure_score: none of the {count} {noun} is causal, so there is "
            "nothing to compare. Has the posterior collapsed? See: "
            "zscope assay RUN response-matrix"
        )
    if used[0] < 0 or used[-1] >= count:
        raise ConfigError(
            f"structure_score: causal={used}, but the model has {count} {noun} (0 to {count - 1})."
        )
    return used


def _latents_of(channels: list[int], layout: Layout) -> list[int]:
    return [latent for channel in channels for latent in range(*layout.ends(channel))]


def _zero_others(codes: Codes, latents: list[int]) -> Codes:
    """The codes with all other latents set to 0."""
    only = torch.zeros_like(codes)
    only[:, latents] = codes[:, latents]
    return only


def _codes_for_hybrids(
    posterior: Recorded | None, samples: int, sampled: bool, generator: Generator
) -> Codes:
    """Codes whose variables are mixed: draws; means of maps, if responses are means.

    Of maps only as many pictures as are needed, since draws of all would fill the memory.
    """
    if posterior is None:
        raise Undefined(
            "structure_score: the model has no prior and no codes were given to make hybrids of. "
            "Pass a recording's posterior: structure_score(autoencoder, recording.posterior)"
        )
    recorded = posterior_of(posterior, "structure_score")
    if recorded.layout is not None:
        count = len(recorded)
        order = torch.randperm(count, generator=generator, device=generator.device)
        recorded = recorded[order[: PICTURES_TO_MIX * samples].to(recorded.mean.device)]
        if not sampled:
            return recorded_codes(recorded.mean, "structure_score")
    return recorded_codes(recorded, "structure_score", generator)


def _check(response: str, statistic: str, samples: int, permutations: int) -> None:
    whole("structure_score", samples=samples)
    whole("structure_score", 0, permutations=permutations)
    if response not in ("sampled", "mean") or statistic not in ("unbiased", "biased"):
        raise ConfigError(
            f"structure_score: response={response!r}, statistic={statistic!r}; use "
            "response='sampled' or 'mean', and statistic='unbiased' or 'biased'."
        )
    if samples < 4:
        raise Undefined(
            f"structure_score: {samples} samples cannot tell two distributions apart; "
            "a thousand or more are usual (samples=2048 by default)."
        )


ENTRIES = {
    "structure-score": Entry(
        question="Do prior samples survive decoding and encoding?",
        meaning=(
            "Near 0, samples of the prior come back from decoding and encoding distributed as they "
            "went in; a large value means that the model pulls them onto a smaller set of codes."
        ),
        figure=(
            "Samples of the prior and their responses in the two latents whose spread differs "
            "most: the clouds cover each other if the model has no holes."
        ),
        map_question="Do hybrids of channels survive decoding and encoding?",
        takes=("autoencoder", "recording"),
        passes="samples",
        maps="units",
    ),
    "causal-structure-score": Entry(
        question="Do the causal latents of prior samples survive decoding and encoding?",
        meaning=(
            "The structure score of the latents that the decoder uses, the others set to 0: near "
            "0, their prior samples survive decoding and encoding."
        ),
        figure=(
            "Samples of the prior and their responses in the two causal latents whose spread "
            "differs most: the clouds cover each other if the model has no holes."
        ),
        map_question="Do the causal channels of hybrids survive decoding and encoding?",
        takes=("autoencoder", "recording"),
        passes="samples",
        uses=("causal=response-matrix",),
        maps="units",
    ),
}
