"""Feature effects: which features does each latent move, and how far?

Latent j is set to one standard deviation below and above its mean, in draws z of the aggregate
posterior whose other latents keep their values, and both are decoded:

    effect_jk = E_z[ x_k(z_j = m_j + s_j) - x_k(z_j = m_j - s_j) ] / sd_k

with m_j, s_j the mean and standard deviation of the draws and sd_k that of feature k in the
data. So +1.2 reads: from one standard deviation below its mean to one above, latent 3 raises
the feature by 1.2 of its standard deviations. For a linear decoder W it is 2 W_kj s_j / sd_k.

A latent may also move a feature up from some codes and down from others, and the mean of that
is 0. The size counts both,

    size_jk^2 = E_z[ (x_k(z) - x_k(z with another draw's z_j))^2 ] / (2 sd_k^2)

the total effect of Sobol (Jansen, Computer Physics Communications 117, 1999, eq. 12), from 0;
for a linear decoder it is half of |effect|. Where |effect| is below the size, the feature moves
both ways and is shown with ±. Shifting or rescaling a feature, or a latent together with its
decoder, changes nothing; passive latents move nothing.

95 % intervals are by the delta method, from the spread of the differences over draws and from
the errors of s_j and sd_k, taken as independent: where codes follow the data, they are wide.
For vectors; what latents do to pictures is seen in traversals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded, base_samples, decode
from zscope.assays.entry import Entry
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError, Undefined
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import Result
from zscope.types import Codes, as_tensor

__all__ = ["FeatureEffects", "feature_effects"]

CELLS = 2**22  # numbers to decode at a time
SILENT = 1e-7  # a feature with a smaller standard deviation, relative to its mean, is constant
DRAWN = 40  # features in the figure


@dataclass(frozen=True, eq=False)
class FeatureEffects(Result):
    """Effects and sizes (latents x features), in standard deviations of the features."""

    names: list[str]
    effects: Tensor
    low: Tensor
    high: Tensor
    sizes: Tensor
    size_errors: Tensor
    changes: Tensor
    """The effects in the original units of the features."""
    least: float
    samples: int

    def moved(self, latent: int) -> list[int]:
        """The features that a latent moves by more than `least` with 95 % confidence.

        Those that it moves most come first.
        """
        amount = self.effects[latent].abs()
        sure = torch.maximum(self.low[latent], -self.high[latent])
        both = self.both_ways[latent]
        amount = torch.where(both, 2 * self.sizes[latent], amount)
        sure = torch.where(both, 2 * self.size_interval[0][latent], sure)
        order = amount.argsort(descending=True, stable=True)
        moved: list[int] = order[sure[order] > self.least].tolist()
        return moved

    @property
    def size_interval(self) -> tuple[Tensor, Tensor]:
        """The 95 % interval of the sizes: of their logarithms, as squares have a long tail."""
        relative = self.size_errors / self.sizes.clamp_min(torch.finfo(self.sizes.dtype).tiny)
        return self.sizes * (-1.96 * relative).exp(), self.sizes * (1.96 * relative).exp()

    @property
    def both_ways(self) -> Tensor:
        """Which features a latent moves up from some codes and down from others."""
        return self.effects.abs() < self.sizes

    def text(self, latent: int, most: int = 3, *, intervals: bool = False) -> str:
        """What a latent moves, as "age +1.2 sd, income +0.8 sd"; "" if nothing."""
        moved = self.moved(latent)
        more = [f"and {len(moved) - most} more"] if len(moved) > most else []
        return ", ".join([*(self._part(latent, k, intervals) for k in moved[:most]), *more])

    def _part(self, latent: int, k: int, intervals: bool) -> str:
        if self.both_ways[latent, k]:
            size = 2 * float(self.sizes[latent, k])
            low, high = (2 * float(end[latent, k]) for end in self.size_interval)
            ends = f" [{low:.2f}, {high:.2f}]"
            return f"{self.names[k]} ±{size:.1f} sd{ends if intervals else ''}"
        effect, change = float(self.effects[latent, k]), float(self.changes[latent, k])
        ends = f" [{self.low[latent, k]:+.2f}, {self.high[latent, k]:+.2f}]"
        return f"{self.names[k]} {effect:+.1f} sd" + (
            f"{ends} ({change:+.3g})" if intervals else ""
        )

    def summary(self) -> list[tuple[str, str]]:
        lines = [
            (f"latent {j} moves", self.text(j, intervals=True) or "nothing")
            for j in range(len(self.effects))
        ]
        return [*lines, ("samples", str(self.samples))]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import heatmap

        largest = self.effects.abs().amax(0).argsort(descending=True)[:DRAWN].sort().values
        return heatmap(
            self.effects[:, largest],
            x="feature",
            y="latent",
            columns=[self.names[k] for k in largest],
            ax=ax,
        )


@accepts_recording
def feature_effects(
    autoencoder: Autoencoder,
    posterior: Recorded,
    observations: Tensor | np.ndarray,
    *,
    names: Sequence[str] = (),
    units: Sequence[float] | None = None,
    samples: int = 64,
    least: float = 0.1,
    generator: Generator | None = None,
) -> FeatureEffects:
    """What each latent moves, from `samples` draws of the posterior (or codes).

    `observations` (samples x features) are those that the model sees, with `names`; `units`
    are what 1 of each feature is in original units, by default 1. Features that move by less
    than `least` standard deviations are not listed.
    """
    who = "feature_effects"
    x = as_tensor(observations, who)
    if x.ndim != 2 or len(x) < 2 or x.is_complex():
        raise Undefined(
            f"{who}: observations of shape {tuple(x.shape)}; expected at least two vectors, "
            "samples x features. Pictures have no features with names: look at traversals."
        )
    if not least >= 0:
        raise ConfigError(f"{who}: least={least}; expected a number of standard deviations from 0.")
    base = base_samples(posterior, samples, who, fresh(generator))
    draws = posterior.base_samples if isinstance(posterior, Recording) else base
    middle, spread, spread_error = _spread(draws)
    centre, deviation, deviation_error = _spread(x)
    silent = deviation <= SILENT * centre.abs()
    deviation = torch.where(silent, torch.inf, deviation)
    plain = decode(autoencoder, base).cpu().flatten(1)
    if plain.shape[1] != x.shape[1]:
        raise Undefined(
            f"{who}: the decoder returns {plain.shape[1]} numbers for observations of {x.shape[1]} "
            "features. Do the data belong to this model?"
        )
    rows: list[tuple[Tensor, ...]] = []
    for j in range(base.shape[1]):
        mean, error, square, square_error = _differences(
            autoencoder, base, plain, j, float(middle[j]), float(spread[j])
        )
        effect = mean / deviation
        relative = spread_error[j] + torch.where(silent, 0, deviation_error)
        half = 1.96 * ((error / deviation).square() + effect.square() * relative).sqrt()
        size = (square / 2).sqrt() / deviation
        # Of a root: half the relative error. 0 where nothing moves.
        part = torch.where(square > 0, square_error / (2 * square), 0).square() + relative
        rows.append((effect, effect - half, effect + half, size, size * part.sqrt()))
    effects, low, high, sizes, size_errors = (torch.stack(part) for part in zip(*rows, strict=True))
    unit = torch.ones(x.shape[1]) if units is None else torch.tensor(list(units))
    changes = effects * torch.where(silent, 0, deviation) * unit.double()
    if not all(part.float().isfinite().all() for part in (low, high, sizes, size_errors, changes)):
        raise Undefined(
            f"{who}: the effects are NaN or infinite. Has training diverged, or are the data or "
            "`units` so large that their squares overflow? Scale them as in training."
        )
    return FeatureEffects(
        names=[str(name) for name in names] or [f"feature {k}" for k in range(x.shape[1])],
        effects=effects.float(),
        low=low.float(),
        high=high.float(),
        sizes=sizes.float(),
        size_errors=size_errors.float(),
        changes=changes.float(),
        least=least,
        samples=len(base),
    )


def _spread(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and standard deviation of each column, and the squared relative error of the latter.

    var(s) / s^2 = (kurtosis - 1) / (4 n)
    """
    parts = rows.split(max(1, CELLS // max(1, rows.shape[1])))  # a copy in double precision of each
    count = len(rows)
    mean = torch.stack([part.double().sum(0) for part in parts]).sum(0) / count
    squares = torch.zeros_like(mean)
    fourth = torch.zeros_like(mean)
    for part in parts:
        square = (part.double() - mean).square()
        squares += square.sum(0)
        fourth += square.square().sum(0)
    variance = squares / count
    kurtosis = fourth / count / variance.square().clamp_min(torch.finfo(variance.dtype).tiny)
    return mean, variance.sqrt(), (kurtosis - 1).clamp_min(0) / (4 * count)


def _differences(
    autoencoder: Autoencoder, base: Codes, plain: Tensor, latent: int, middle: float, spread: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of high - low its mean and standard error; of a random replacement those of its square.

    The replacement is that of the draw before, so that neighbouring squares share a draw: their
    covariance counts twice in the variance of the mean.
    """
    others = base[:, latent].roll(1)
    sums = torch.zeros(5, plain.shape[1], dtype=torch.float64)
    before = torch.zeros(1, plain.shape[1], dtype=torch.float64)
    step = max(1, CELLS // plain.shape[1])
    for start in range(0, len(base), step):
        part = base[start : start + step]
        moved = part.repeat(3, 1)
        count = len(part)
        moved[:count, latent] = middle + spread
        moved[count : 2 * count, latent] = middle - spread
        moved[2 * count :, latent] = others[start : start + step]
        high, low, replaced = decode(autoencoder, moved).cpu().double().flatten(1).chunk(3)
        difference, square = high - low, (plain[start : start + step] - replaced).square()
        products = square * torch.cat([before, square[:-1]])
        before = square[-1:]
        parts = (difference, difference.square(), square, square.square(), products)
        for k, values in enumerate(parts):
            sums[k] += values.sum(0)
    count = len(base)
    mean, second, square, fourth, product = sums / count
    neighbours = (product * count / max(1, count - 1) - square.square()).clamp_min(0)
    error, square_error = (
        variance.clamp_min(0).div(count).sqrt()
        for variance in (second - mean.square(), fourth - square.square() + 2 * neighbours)
    )
    return mean, error, square, square_error


ENTRY = Entry(
    question="Which features does each latent move, and how far?",
    meaning=(
        "By how many standard deviations a feature rises when a latent goes from one standard "
        "deviation below its mean to one above; ± marks features that move both ways."
    ),
    figure=(
        "Rows are latents, columns are features: red features rise and blue ones fall with the "
        "latent, faint ones do not depend on it."
    ),
    takes=(
        "decoder",
        "recording",
        "observations",
        "names=feature_names",
        "units=feature_units",
    ),
    needs=("vectors",),
    passes="samples * (3 * latents + 1)",
    most=6_200,
)
