"""Structure score: do samples of the prior survive decoding and encoding?

    SS = MMD^2(p, r),   r the law of z' ~ q(z' | decoder(z)),  z ~ p

Near 0 when the responses to prior samples are spread like the prior itself; large when
the decoder and encoder pull the prior's samples onto a more structured set. The squared
MMD with the kernels of Wasserstein autoencoders (see `mmd`), no root; the two clouds use
independent draws of the prior, and the responses are posterior *samples* (eq. 3): with
mean responses a collapsed latent would become a point, and collapse would look like
structure. `response="mean"` gives that other quantity, and the result says so.
Unchanged by permuting or (given a rotated model) rotating the latents.

With `only_causal` the non-causal latents are set to 0 in both clouds (the causal
structure score). A model without a prior is compared with hybrids of its own codes
instead of prior samples, in kernels as wide as those codes are spread on average;
`distribution` says which it was.

Leeb et al., "Interventional assays for the latent space of autoencoders", eq. 8, sec. 4.2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Generator

from zscope.assays.arguments import accepts_recording, shared_result
from zscope.assays.engine import Recorded, posterior_of, respond_posterior
from zscope.assays.entry import Entry
from zscope.assays.responses.matrix import response_matrix
from zscope.assays.responses.mmd import mmd
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, Undefined
from zscope.groups import Groups
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import Scored, listed
from zscope.sampling import hybrid as hybrid_samples
from zscope.sampling import prior as prior_samples
from zscope.sampling import recorded_codes, whole
from zscope.types import Codes


@dataclass(frozen=True, eq=False)
class StructureScore(Scored):
    """MMD^2 between latent vectors and the responses to other such vectors."""

    score: float
    standard_error: float
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

    def summary(self) -> list[tuple[str, str]]:
        return [
            ("p-value", "not requested" if self.p_value is None else f"{self.p_value:.3g}"),
            ("distribution", self.distribution),
            ("response", self.response),
            ("latents compared", "all" if self.causal is None else listed(self.causal)),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Without `drawn` and `responses`."""
        values = super().to_dict()
        return {name: value for name, value in values.items() if name not in ("drawn", "responses")}

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
    groups: Groups | None = None,
    permutations: int = 200,
    generator: Generator | None = None,
) -> StructureScore:
    """How far is the law of the responses from that of the vectors responded to?

    `posterior` (or codes) is needed for models without a prior, whose hybrids are used;
    `groups` are the variables of those hybrids. `causal` names the latents to keep with
    `only_causal`; otherwise they are found with a response matrix.
    """
    generator = fresh(generator)
    _check(response, statistic, samples, permutations)
    if autoencoder.prior is None:
        codes = _codes_for_hybrids(posterior, generator)
        draw: Callable[[], Codes] = partial(
            hybrid_samples, codes, samples, groups=groups, generator=generator
        )
        variance = float(codes.double().var(0, correction=0).mean())
    else:
        draw = partial(prior_samples, autoencoder, samples, generator=generator)
        variance = 1.0
    drawn, asked = draw(), draw()
    answer = respond_posterior(autoencoder, asked)
    responses = answer.sample(generator) if response == "sampled" else answer.mean
    kept = None
    if only_causal:
        kept = _causal(autoencoder, posterior, asked, causal, generator)
        drawn, responses = _only(drawn, kept), _only(responses, kept)
    found = mmd(
        drawn,
        responses,
        variance=variance,
        biased=statistic == "biased",
        permutations=permutations,
        generator=generator,
    )
    return StructureScore(
        score=found.value,
        standard_error=found.standard_error,
        p_value=found.p_value,
        distribution="hybrid" if autoencoder.prior is None else "prior",
        response=response,
        statistic=statistic,
        causal=kept,
        samples=samples,
        latents=drawn.shape[1],
        drawn=drawn,
        responses=responses,
        chance=found.chance,
    )


@accepts_recording
def causal_structure_score(
    autoencoder: Autoencoder,
    posterior: Recorded | None = None,
    *,
    samples: int = 2048,
    causal: Sequence[int] | None = None,
    response: Literal["sampled", "mean"] = "sampled",
    statistic: Literal["unbiased", "biased"] = "unbiased",
    groups: Groups | None = None,
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
        groups=groups,
        permutations=permutations,
        generator=generator,
    )


def _causal(
    autoencoder: Autoencoder,
    posterior: Recorded | None,
    asked: Codes,
    causal: Sequence[int] | None,
    generator: Generator,
) -> list[int]:
    """The given latents, or those of a response matrix (over the drawn codes without data)."""
    if causal is None:
        if isinstance(posterior, Recording):
            causal = shared_result(response_matrix, posterior).causal
        else:
            source = asked[:1024] if posterior is None else posterior
            causal = response_matrix(autoencoder, source, generator=generator).causal
    kept = sorted({int(latent) for latent in causal})
    if not kept:
        raise Undefined(
            f"structure_score: none of the {asked.shape[1]} latents is causal, so the causal "
            "structure score compares nothing with nothing. Has the posterior collapsed? See: "
            "zscope assay RUN response-matrix"
        )
    if kept[0] < 0 or kept[-1] >= asked.shape[1]:
        raise ConfigError(
            f"structure_score: causal={kept}, but the model has {asked.shape[1]} latents "
            f"(0 to {asked.shape[1] - 1})."
        )
    return kept


def _only(codes: Codes, kept: list[int]) -> Codes:
    only = torch.zeros_like(codes)
    only[:, kept] = codes[:, kept]
    return only


def _codes_for_hybrids(posterior: Recorded | None, generator: Generator) -> Codes:
    if posterior is None:
        raise Undefined(
            "structure_score: the model has no prior and no codes were given to make hybrids of. "
            "Pass a recording's posterior: structure_score(autoencoder, recording.posterior)"
        )
    return recorded_codes(posterior_of(posterior, "structure_score"), "structure_score", generator)


def _check(response: str, statistic: str, samples: int, permutations: int) -> None:
    whole("structure_score", samples=samples)
    whole("structure_score", 0, permutations=permutations)
    if response not in ("sampled", "mean") or statistic not in ("unbiased", "biased"):
        raise ConfigError(
            f"structure_score: response={response!r}, statistic={statistic!r}; known are "
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
        takes=("autoencoder", "recording"),
        passes="samples",
    ),
    "causal-structure-score": Entry(
        question="Do prior samples survive, seen only through the latents that matter?",
        takes=("autoencoder", "recording"),
        passes="samples",
    ),
}
