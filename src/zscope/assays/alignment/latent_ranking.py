"""Latent ranking: which latent matters most, as principal components are ranked?

Latents in the order of their posterior variance, averaged over the data: the smallest
first. In a VAE the variance of a latent is inverse to how much the decoder moves with it
(σ_j^2 λ_j = const for a linear one), so this is the order of the variance explained, the
first latent being the first "principal component". Permuting the latents permutes the
order; nothing else changes it but the model.

"Nonlinear eigenfaces" show what they mean: with the mean code z̄ of 300 observations,

    decode(z̄ - 2.5 e_j),  decode(z̄),  decode(z̄ + 2.5 e_j)

for the five latents that rank first. Classical eigenfaces do the same with the directions
of PCA. z̄ is the mean of the codes, not the code of the mean picture, which looks like no
picture the encoder has seen.

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
from zscope.results import Result


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
    """The latents by ascending mean posterior variance."""
    if posterior.deterministic:
        raise Undefined(
            f"latent_ranking: the {len(posterior)} posteriors have no variance to rank by. For a "
            "deterministic model rank by the effect on what is decoded: response_matrix(…).scale."
        )
    variances = posterior.variance.detach().double().mean(0).cpu()
    return LatentRanking(
        order=[int(j) for j in variances.argsort(stable=True)],
        variances=variances,
        spreads=posterior.mean.detach().double().var(0, correction=0).cpu(),
    )


@dataclass(frozen=True, eq=False)
class NonlinearEigenfaces(Result):
    latents: list[int]  # one row of pictures each, most important first
    variances: Float[Tensor, " shown"]
    reach: float
    centre: Float[Tensor, " latents"]
    images: Float[Tensor, "shown three *shape"]  # below, at and above the centre

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import image_grid

        rows = [
            f"latent {j}, σ² {variance:.3f}"
            for j, variance in zip(self.latents, self.variances.tolist(), strict=True)
        ]
        columns = [f"−{self.reach:g}", "z̄", f"+{self.reach:g}"]
        return image_grid(self.images, rows=rows, columns=columns, size=0.7, ax=ax)


@accepts_recording
def nonlinear_eigenfaces(
    autoencoder: Autoencoder,
    posterior: Posterior,
    *,
    count: int = 5,
    reach: float = 2.5,
    samples: int = 300,
    generator: Generator | None = None,
) -> NonlinearEigenfaces:
    """What the `count` most important latents do to the mean code of `samples` observations."""
    ranking = latent_ranking(posterior)
    if count < 1 or not reach > 0:
        raise ConfigError(
            f"nonlinear_eigenfaces: count={count}, reach={reach}; at least one latent must be "
            "moved, by more than 0."
        )
    shown = ranking.order[:count]
    rows = random_rows(len(posterior), samples, generator, "nonlinear_eigenfaces")
    centre = posterior.mean.detach().cpu()[rows].mean(0)
    codes = centre.repeat(len(shown), 3, 1)
    for place, j in enumerate(shown):
        codes[place, :, j] += torch.tensor([-reach, 0.0, reach]).to(codes)
    images = decode(autoencoder, codes.flatten(0, 1))
    return NonlinearEigenfaces(
        latents=shown,
        variances=ranking.variances[shown],
        reach=reach,
        centre=centre,
        images=images.unflatten(0, (len(shown), 3)),
    )


ENTRIES = {
    "latent-ranking": Entry(
        question="Which latent matters most, in the order of principal components?",
        takes=("posterior",),
        needs=("variances",),
    ),
    "nonlinear-eigenfaces": Entry(
        question="What do the most important latents do to an average observation?",
        takes=("autoencoder", "posterior"),
        needs=("variances",),
        passes="samples + 3 * count",
    ),
}
