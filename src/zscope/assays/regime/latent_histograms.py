"""Latent histograms: how are the means, variances and samples of each latent distributed?

For each latent, over at most 10,000 observations,

    M    posterior means              M†   means of the prior, given the factors (iVAE)
    S    posterior variances          S†   its variances
    Z    one sample of each posterior,     S / S†

M, Z and M† have common bins: 60 between the 0.1 and 99.9 % points of all three, the first and
the last bin open to their ends; so have S and S†; so has S / S†. Fractions add up to 1.

A passive latent has M = 0, S = 1 and Z ~ N(0, 1), an active one S near 0, and M and Z alike. A
mixed latent has both: S has one heap near 0 and one near 1, M a spike at 0. For each latent there
are also its type (`variable_types`: against the prior, so by KL and ratio where the prior depends
on the factors), mean KL, mean ratio S / S† (S† = 1 for a fixed prior), sd(M), sd(Z), the excess
kurtosis of M (0 for a Gaussian, above it for a spike), and the Kolmogorov-Smirnov distance of Z,
in units of its prior, from N(0, 1): below 1.36 / sqrt(N) in 95 % of cases if they agree.

Unchanged by the order of the observations; permuting latents permutes the rows, flipping a latent
mirrors its histograms.

Bonheme, "The Polarised Regime of Variational Autoencoders", PhD thesis, University of Kent, 2023:
figures 5.1 and 6.2. Bins, kurtosis and the distance are ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.active import random_rows
from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.matrices import as_rows
from zscope.assays.regime.types import PerLatent, variable_types
from zscope.autoencoder import Posterior
from zscope.errors import ConfigError, Undefined
from zscope.randomness import fresh
from zscope.results import Result
from zscope.sampling import whole

__all__ = ["LatentHistograms", "latent_histograms"]

ENDS = 0.001, 0.999  # the points of the values between which the bins lie
SHOWN = 8  # latents in a figure, if none are chosen
Edges = Float[Tensor, "latents edges"]
Fractions = Float[Tensor, "latents bins"]


@dataclass(frozen=True, eq=False)
class LatentHistograms(Result):
    """Histograms and a few numbers of each latent, in the order of the model."""

    active: list[int]
    mixed: list[int]
    passive: list[int]
    labels: list[str]  # the type of latent 0, 1, 2, …
    samples: int
    kl: PerLatent  # mean divergence from the prior, nats
    ratio: PerLatent  # mean variance in units of the prior's
    mean_of_means: PerLatent
    spread_of_means: PerLatent  # sd(M)
    spread_of_samples: PerLatent  # sd(Z)
    kurtosis: list[float | None]  # of M, in excess of a Gaussian's; None if M is constant
    distance: PerLatent  # Kolmogorov-Smirnov, of Z in units of its prior from N(0, 1)
    fractions: dict[str, Fractions]  # of M, S, Z, and M†, S†, S / S† if the prior has factors
    code_edges: Edges  # of M, Z and M†
    variance_edges: Edges  # of S and S†
    ratio_edges: Edges | None  # of S / S†; None for a fixed prior

    @property
    def latents(self) -> int:
        return len(self.labels)

    @property
    def conditional(self) -> bool:
        """Whether the prior depends on the factors."""
        return self.ratio_edges is not None

    @property
    def limit(self) -> float:
        """The distance that samples of N(0, 1) itself exceed in 5 % of cases."""
        return 1.36 / math.sqrt(self.samples)

    def summary(self) -> list[tuple[str, str]]:
        like_prior = [j for j, each in enumerate(self.distance.tolist()) if each < self.limit]
        lines = dict(super().summary())
        lines["like the prior"] = ", ".join(map(str, like_prior)) or "none"
        return list(lines.items())

    def plot(self, ax: Any = None, *, latents: Sequence[int] | None = None) -> Any:
        """Small multiples, one row for each latent: M, S, Z, and S / S† where there is one.

        `latents` chooses them; by default all, or eight that are spread over their divergences.
        The line on Z is the prior N(0, 1), the dashed lines are where a posterior equals it.
        """
        from zscope.plots import binned_panels
        from zscope.plots.theme import BLUE, GREY, ORANGE

        chosen = self._shown() if latents is None else [int(j) for j in latents]
        unknown = [j for j in chosen if not 0 <= j < self.latents]
        if unknown or not chosen:
            raise ConfigError(
                f"latent_histograms: plot(latents={chosen}); expected some of the latents from 0 "
                f"to {self.latents - 1}."
            )
        colours = {"active": BLUE, "mixed": ORANGE, "passive": GREY}
        few = f"{len(chosen)} of {self.latents} latents, by divergence"
        return binned_panels(
            [self._plot_panels(j) for j in chosen],
            rows=[f"latent {j}: {self.labels[j]}, KL {self.kl[j]:.2f} nats" for j in chosen],
            columns=["mean M", "variance S", "sample Z", "S / S†"],
            colours=[colours[self.labels[j]] for j in chosen],
            title=few if latents is None and len(chosen) < self.latents else "",
            ax=ax,
        )

    def _shown(self) -> list[int]:
        if self.latents <= SHOWN:
            return list(range(self.latents))
        order = self.kl.argsort(descending=True, stable=True)
        return [int(order[k]) for k in np.linspace(0, self.latents - 1, SHOWN).round().astype(int)]

    def _plot_panels(self, latent: int) -> list[Any]:
        from zscope.plots.amounts import Binned

        def parts(*names: str) -> dict[str, Tensor]:
            present = [name for name in names if name in self.fractions]
            return {name: self.fractions[name][latent] for name in present}

        edges = self.code_edges[latent]
        line = None if self.conditional else torch.special.ndtr(edges).diff()
        panels = [
            Binned(parts("M", "M†"), edges),
            Binned(parts("S", "S†"), self.variance_edges[latent], None, self._prior_mark),
            Binned(parts("Z"), edges, line),
        ]
        if self.ratio_edges is not None:
            panels.append(Binned(parts("S / S†"), self.ratio_edges[latent], None, 1.0))
        return panels

    @property
    def _prior_mark(self) -> float | None:
        return None if self.conditional else 1.0


@accepts_recording
def latent_histograms(
    posterior: Posterior,
    *,
    prior: Posterior | None = None,
    bins: int = 60,
    samples: int = 10_000,
    generator: Generator | None = None,
) -> LatentHistograms:
    """Histograms of means, variances and samples of each latent, over at most `samples` rows.

    `prior` has the mean and the std of each observation's prior, where the prior depends on the
    factors; without it the prior is N(0, I). Raises `Undefined` for a deterministic encoder.
    """
    who = "latent_histograms"
    whole(who, bins=bins, samples=samples)
    if bins < 2:
        raise ConfigError(f"{who}: bins={bins}; at least two are needed. The default is 60.")
    if posterior.deterministic or len(posterior) < 2:
        raise Undefined(
            f"{who}: {len(posterior)} posteriors, "
            f"{'without' if posterior.deterministic else 'with'} variances; expected at least two "
            "of a variational model. For codes alone: zs.plots.histogram(codes[:, latent])"
        )
    if prior is not None and (prior.std is None or prior.mean.shape != posterior.mean.shape):
        raise Undefined(
            f"{who}: posteriors of shape {tuple(posterior.mean.shape)}, and a prior of shape "
            f"{tuple(prior.mean.shape)}{'' if prior.std is not None else ' without a std'}; "
            "expected a mean and a std for each. Was it made from the factors of the same rows?"
        )
    generator = fresh(generator)
    rows = random_rows(len(posterior), samples, generator, who).to(posterior.mean.device)
    posterior = posterior[rows].to(torch.float64)
    prior = None if prior is None else prior[rows].to(posterior.mean.device, torch.float64)
    values = {
        "M": as_rows(posterior.mean, who),
        "S": as_rows(posterior.variance, who),
        "Z": posterior.sample(generator),
    }
    relative = posterior if prior is None else posterior.relative_to(prior)
    units = values["Z"]
    if prior is not None and prior.std is not None:
        units = (values["Z"] - prior.mean) / prior.std
        values |= {"M†": as_rows(prior.mean, who), "S†": as_rows(prior.variance, who)}
        values["S / S†"] = as_rows(relative.variance, who)
    kl = relative.kl()
    types = variable_types(relative.variance, kl=None if prior is None else kl)
    columns = {name: each.cpu().numpy() for name, each in values.items()}
    edges = {name: _edges(columns, group, bins) for name, group in GROUPS.items()}
    return LatentHistograms(
        active=types.active,
        mixed=types.mixed,
        passive=types.passive,
        labels=types.labels,
        samples=len(rows),
        kl=kl.mean(0).cpu(),
        ratio=relative.variance.mean(0).cpu(),
        mean_of_means=values["M"].mean(0).cpu(),
        spread_of_means=values["M"].std(0, correction=0).cpu(),
        spread_of_samples=values["Z"].std(0, correction=0).cpu(),
        kurtosis=_kurtosis(columns["M"]),
        distance=_distances(units.cpu().numpy()),
        fractions={
            name: _fractions(columns[name], edges[group])
            for group, names in GROUPS.items()
            for name in names
            if name in columns
        },
        code_edges=torch.from_numpy(edges["codes"]),
        variance_edges=torch.from_numpy(edges["variances"]),
        ratio_edges=None if prior is None else torch.from_numpy(edges["ratios"]),
    )


GROUPS = {"codes": ("M", "Z", "M†"), "variances": ("S", "S†"), "ratios": ("S / S†",)}
"""Values with common bins."""


def _edges(columns: dict[str, np.ndarray], names: Sequence[str], bins: int) -> np.ndarray:
    """Edges of the bins of each latent (latents x edges), for all these values together."""
    present = [columns[name] for name in names if name in columns]
    if not present:
        return np.zeros((0, bins + 1))
    low, high = np.quantile(np.concatenate(present), ENDS, axis=0)
    # Equal values, up to rounding, lie in the middle of bins that are wide enough for them.
    size = np.maximum(np.abs(low), np.abs(high))
    flat = high - low <= 1e-9 * np.maximum(size, 1e-300)
    room = np.where(flat, 0.5 * np.where(size > 0, np.maximum(size, 1.0), 1.0), 0.0)
    edges: np.ndarray = np.linspace(low - room, high + room, bins + 1, axis=1)
    return edges


def _fractions(values: np.ndarray, edges: np.ndarray) -> Fractions:
    """The fraction of each latent's values in its bins; values outside are in the end bins."""
    counts = [
        np.histogram(column.clip(each[0], each[-1]), each)[0]
        for column, each in zip(values.T, edges, strict=True)
    ]
    return torch.from_numpy(np.stack(counts) / len(values))


def _kurtosis(means: np.ndarray) -> list[float | None]:
    """Excess kurtosis of each column; None if it is constant up to rounding."""
    centred = means - means.mean(0)
    spread = np.abs(centred).max(0)
    constant = spread <= 1e-9 * np.abs(means).max(0)
    unit = centred / np.where(constant, 1.0, spread)
    values = (unit**4).mean(0) / np.maximum((unit**2).mean(0) ** 2, 1e-300) - 3
    return [
        None if is_constant else float(value)
        for value, is_constant in zip(values, constant, strict=True)
    ]


def _distances(samples: np.ndarray) -> PerLatent:
    """sup |F_n - Φ| of each column."""
    from scipy.special import ndtr

    ordered = ndtr(np.sort(samples, axis=0))
    steps = np.arange(len(samples) + 1)[:, None] / len(samples)
    distances = np.maximum(ordered - steps[:-1], steps[1:] - ordered).max(0)
    return torch.from_numpy(distances)


ENTRY = Entry(
    question="How are the means, variances and samples of each latent distributed?",
    meaning=(
        "How means, variances and samples of a latent are distributed tells its type: a used "
        "latent has variances near 0, a passive one has them near 1 and all its means at 0."
    ),
    figure=(
        "One row for each latent: its means, variances and samples; two heaps of variances, near 0 "
        "and near 1, mark a latent that is used for some inputs only."
    ),
    takes=("posterior", "prior=conditional_prior"),
    needs=("variances",),
    maps="places on request",
)
