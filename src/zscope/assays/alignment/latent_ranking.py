"""Latent ranking: which latents matter most, ranked like principal components?

Latents are sorted by their posterior variance, averaged over the data, smallest first. In a
VAE the variance of a latent is inversely related to its effect on the decoder (σ_j^2 λ_j =
const for a linear one), so this is the order of explained variance, the first latent being
the first "principal component". Permuting the latents permutes the order.

"Nonlinear eigenfaces" show what they encode: with the mean code z̄ of 300 observations,

    decode(z̄ - 2.5 e_j),  decode(z̄),  decode(z̄ + 2.5 e_j)

for the five latents that rank first. Classical eigenfaces do the same with the directions
of PCA. z̄ is the mean of the codes, not the code of the mean image, which is unlike any
image the encoder was trained on.

Where latents are maps, channels are ranked by their variance over pictures and places, and moved
at all places at once, by 2.5 standard deviations of the channel: maps are not of scale 1.

Zietlow, PhD thesis, Tübingen 2022, eq. 4.7-4.8 and section 3.3.5.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.active import random_rows
from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.jacobian import decode
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, Undefined
from zscope.layout import Layout
from zscope.results import R, Result, name_units

__all__ = ["LatentRanking", "NonlinearEigenfaces", "latent_ranking", "nonlinear_eigenfaces"]


@dataclass(frozen=True, eq=False)
class LatentRanking(Result):
    order: list[int]  # most important first
    variances: Float[Tensor, " latents"]  # mean posterior variance, in the order of the model
    spreads: Float[Tensor, " latents"]  # variance of the means

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        return bars(
            self.variances[self.order],
            names=self.order,
            x="latent, most important first",
            y="mean variance",
            line=1.0,
            ax=ax,
        )


@accepts_recording
def latent_ranking(posterior: Posterior) -> LatentRanking:
    """The latents in ascending order of their mean posterior variance."""
    if posterior.deterministic:
        raise Undefined(
            f"latent_ranking: the {len(posterior)} posteriors have no variance to rank by. For a "
            "deterministic model rank by the effect of decoding: response_matrix(…).scale."
        )
    if len(posterior) == 0:
        raise Undefined(
            "latent_ranking: got 0 posteriors; expected at least one. Record some data."
        )
    posterior, layout = posterior.detach(), posterior.layout
    if layout is None:
        variances = posterior.variance.double().mean(0).cpu()
        spreads = posterior.mean.double().var(0, correction=0).cpu()
    else:
        parts = [slice(*layout.ends(k)) for k in range(layout.channels)]
        variance, mean = posterior.variance.cpu(), posterior.mean.cpu()
        variances = torch.stack([variance[:, part].double().mean() for part in parts])
        spreads = torch.stack([mean[:, part].double().var(correction=0) for part in parts])
    if not (variances.isfinite() & spreads.isfinite()).all():
        raise Undefined(
            f"latent_ranking: of {len(posterior)} posteriors, means or variances are NaN or "
            "infinite. Has training diverged, or were the data not scaled as in training?"
        )
    result = LatentRanking(
        order=[int(j) for j in variances.argsort(stable=True)],
        variances=variances,
        spreads=spreads,
    )
    return _of_channels(result, layout)


def _of_channels(result: R, layout: Layout | None) -> R:
    """The same result, which knows that its numbers are those of channels, if they are."""
    return result if layout is None else name_units(result, "channel", layout.unit_names())


@dataclass(frozen=True, eq=False)
class NonlinearEigenfaces(Result):
    latents: list[int]  # one row of pictures each, most important first
    variances: Float[Tensor, " shown"]
    reach: float  # of channels, in units of their standard deviation
    centre: Float[Tensor, " latents"]
    images: Float[Tensor, "shown three *shape"]  # below, at and above the centre

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import image_grid

        rows = [
            f"{self.unit} {j}, σ² {variance:.3f}"
            for j, variance in zip(self.latents, self.variances.tolist(), strict=True)
        ]
        unit = "" if self.unit == "latent" else " std"
        columns = [f"−{self.reach:g}{unit}", "z̄", f"+{self.reach:g}{unit}"]
        return image_grid(self.images, rows=rows, columns=columns, size=0.7, ax=ax)


@accepts_recording
def nonlinear_eigenfaces(
    autoencoder: Autoencoder,
    posterior: Posterior,
    *,
    shown: int = 5,
    reach: float = 2.5,
    samples: int = 300,
    generator: Generator | None = None,
) -> NonlinearEigenfaces:
    """Decode the mean code of `samples` observations, moved along the `shown` top latents."""
    ranking = latent_ranking(posterior)
    if shown < 1 or not reach > 0:
        raise ConfigError(
            f"nonlinear_eigenfaces: shown={shown}, reach={reach}; at least one latent must be "
            "moved, by more than 0."
        )
    layout = posterior.layout
    top = ranking.order[:shown]
    rows = random_rows(len(posterior), samples, generator, "nonlinear_eigenfaces")
    centre = posterior.mean.detach().cpu()[rows].mean(0)
    codes = centre.repeat(len(top), 3, 1)
    steps = torch.tensor([-reach, 0.0, reach]).to(codes)
    for row, j in enumerate(top):
        if layout is None:
            codes[row, :, j] += steps
        else:
            spread = float(ranking.spreads[j] + ranking.variances[j]) ** 0.5
            codes[row, :, slice(*layout.ends(j))] += spread * steps[:, None]
    images = decode(autoencoder, codes.flatten(0, 1))
    result = NonlinearEigenfaces(
        latents=top,
        variances=ranking.variances[top],
        reach=reach,
        centre=centre,
        images=images.unflatten(0, (len(top), 3)),
    )
    return _of_channels(result, layout)


ENTRIES = {
    "latent-ranking": Entry(
        question="Which latents matter most, ranked like principal components?",
        meaning=(
            "Latents sorted by how precisely they are encoded: in a VAE this is the order of how "
            "much of the data they explain, as of principal components."
        ),
        figure=(
            "The mean variance of each latent, most important first: short bars are precise and "
            "matter, bars at 1 carry nothing."
        ),
        takes=("posterior",),
        needs=("variances",),
        maps="maps",
    ),
    "nonlinear-eigenfaces": Entry(
        question="What do the most important latents do to an average observation?",
        meaning=(
            "What the most important latents do to an average observation: the counterpart of the "
            "principal components of pictures."
        ),
        figure=(
            "One row for each latent: the average picture in the middle, and the latent moved to "
            "both sides."
        ),
        takes=("decoder", "posterior"),
        needs=("variances",),
        passes="3 * shown",
        maps="maps",
    ),
}
