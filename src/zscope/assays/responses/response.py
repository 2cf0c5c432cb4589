"""Response: how does a code change when it is decoded and encoded again?

    R(z) = mean of q(z' | decoder(z)),        z' ~ q(z' | decoder(z))

The first is deterministic, from mean to mean; the second is a draw, and equals the
first if the encoder is deterministic. The displacement R(z) - z is 0 for a self-consistent
code, which need not be like data (see `holes`): everywhere for an identity autoencoder, and for
a linear one with decoder W and encoder W⁺ it is 0 on the row space of W and -z across it.
Permuting the latents permutes the response; shifting or rescaling the observations changes
nothing if the encoder inverts it.

Of latents that are maps, codes are posterior means of pictures, and `by_channel` is the root mean
square of R(z) - z over pictures and places, in units of the standard deviation of the channel over
these pictures: 0 for an identity autoencoder, unchanged by shifting and scaling channels.

Leeb et al., "Interventional assays for the latent space of autoencoders", eq. 2 and 3.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded, base_samples
from zscope.assays.entry import Entry
from zscope.assays.pictures import shared_responses
from zscope.autoencoder import Autoencoder, Posterior
from zscope.layout import Layout
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import Result, listed, name_units
from zscope.sampling import posterior as posterior_samples
from zscope.sampling import recorded_codes, whole
from zscope.types import Codes

__all__ = ["Response", "response"]

_CODES = ("codes", "response", "sampled")


@dataclass(frozen=True, eq=False)
class Response(Result):
    """Codes with their responses: the mean, and one draw."""

    codes: Codes
    response: Codes
    sampled: Codes
    layout: Layout | None = None  # if the latents are maps

    def to_dict(self) -> dict[str, Any]:
        """Of maps without codes, which may be millions of numbers."""
        values = super().to_dict()
        left_out = ("layout",) if self.layout is None else ("layout", *_CODES)
        values = {name: value for name, value in values.items() if name not in left_out}
        if self.by_channel is not None:
            values |= {"distance": self.distance.tolist(), "by_channel": self.by_channel.tolist()}
        return values

    @property
    def by_channel(self) -> Tensor | None:
        """The displacement of each channel, in units of its standard deviation; None of vectors."""
        if self.layout is None:
            return None
        count = len(self.codes) * self.layout.positions
        moved = self.layout.reduce(self.displacement.double()).sum(0) / count
        maps = self.codes.double().reshape(len(self.codes), self.layout.channels, -1)
        scale = maps.std((0, 2), correction=0)
        # A constant channel has no unit; one that stays as it is has not moved.
        unit = torch.where(scale > 0, scale, 1)
        return moved.sqrt() / unit

    @property
    def displacement(self) -> Codes:
        """R(z) - z."""
        return self.response - self.codes

    @property
    def distance(self) -> Tensor:
        """||R(z) - z|| of each code."""
        distance: Tensor = torch.linalg.vector_norm(self.displacement, dim=1)
        return distance

    def summary(self) -> list[tuple[str, str]]:
        spread = self.codes.std(0, correction=0).norm()
        lines = [
            ("codes", str(len(self.codes))),
            ("median displacement", f"{self.distance.median():.4g}"),
            ("largest displacement", f"{self.distance.max():.4g}"),
            ("spread of the codes", f"{spread:.4g}"),
        ]
        if self.by_channel is not None:
            each = listed([f"{float(value):.3g}" for value in self.by_channel])
            lines.append(("displacement of each channel", f"{each} (in standard deviations)"))
        return lines

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import arrows, bars, histograms

        if self.by_channel is not None:
            return bars(self.by_channel, x="channel", y="displacement", ax=ax)
        if self.codes.shape[1] == 1:  # there is no plane
            return histograms(
                {"codes": self.codes, "responses": self.response}, x="latent 0", ax=ax
            )
        # The two latents that respond most: responses of passive ones all point to 0.
        dims = self.response.var(0, correction=0).argsort(descending=True)[:2].sort().values
        return arrows(self.codes, self.response, dims=dims.tolist(), ax=ax)


@accepts_recording
def response(
    autoencoder: Autoencoder,
    codes: Recorded,
    *,
    samples: int = 1024,
    generator: Generator | None = None,
) -> Response:
    """The response to at most `samples` of the codes, or to draws from a `Posterior`."""
    generator = fresh(generator)
    whole("response", 1, samples=samples)
    layout = codes.layout if isinstance(codes, Recording | Posterior) else None
    if layout is not None:
        base = base_samples(codes, samples, "response", generator)
    elif isinstance(codes, Recording):
        base = recorded_codes(codes.base_samples[:samples], "response")
    elif isinstance(codes, Posterior):
        base = posterior_samples(codes, min(samples, len(codes)), generator=generator)
    else:
        base = recorded_codes(codes, "response")
        if samples < len(base):
            base = posterior_samples(Posterior(base), samples, generator=generator)
    posterior = shared_responses(autoencoder, codes, base, "response")
    result = Response(base.detach(), posterior.mean, posterior.sample(generator), layout)
    return result if layout is None else name_units(result, "channel", layout.unit_names())


ENTRY = Entry(
    question="How does a code change when it is decoded and encoded again?",
    meaning=(
        "The response of a code is what comes back when it is decoded and encoded again; the "
        "displacement between the two is 0 for a code that the model reproduces exactly."
    ),
    figure=(
        "Each arrow goes from a code to its response, in the two latents that respond most: short "
        "arrows are codes that the model reproduces."
    ),
    takes=("autoencoder", "recording_or_codes"),
    passes="samples",
    maps="flat",
)
