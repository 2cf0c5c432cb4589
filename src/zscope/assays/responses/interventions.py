"""Interventions on every unit: how far do responses move that should not?

The errors behind invariance and equivariance (see `consistency`): all interventions are
decoded and encoded together, in chunks that fit memory. The errors are summed over blocks of
samples, so that samples can be resampled without running the model again.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.engine import causes, responses
from zscope.assays.responses.matrix import NEGLIGIBLE
from zscope.assays.units import Units
from zscope.autoencoder import Autoencoder
from zscope.types import Codes

__all__ = ["MOST_UNITS", "Errors", "Flavour", "norms", "spread_of"]

Flavour = Literal["scale-free", "paper"]
BLOCKS = 16  # of samples, for resampling
MOST_UNITS = 256  # with more units there is a single block and no resampling
AT_ONCE = 32  # resampled draws
FOR_CHANCE = 4  # interventions on each unit, enough to estimate the chance level


class Errors:
    """Invariance and equivariance errors of all interventions, `changed` units x all units.

    `unrelated` is the pair of errors of responses that belong to other latent vectors.
    """

    def __init__(
        self,
        autoencoder: Autoencoder,
        noises: Codes,
        before: Codes,
        values: Float[Tensor, "interventions latents"],
        units: Units,
        changed: list[int],
        flavour: Flavour,
    ) -> None:
        each, rows_of = len(values), len(changed)
        count, latents = noises.shape
        number, numbers = units.number.to(noises.device), torch.tensor(changed).to(noises.device)
        effects = causes(autoencoder, before)
        # A unit of a causal block may have several causes for its one noise.
        wide = units.widened(effects.shape[1] // latents)
        self.blocks = blocks = min(BLOCKS if len(units) <= MOST_UNITS else 1, count)
        moved = torch.zeros(blocks * rows_of * each, len(units), dtype=torch.float64)
        deviation = torch.zeros_like(moved)
        other_deviation = torch.zeros(rows_of * each, len(units), dtype=torch.float64)
        others, few = effects.roll(1, 0), min(each, FOR_CHANCE)

        chunk: list[Tensor] = []  # describes the last codes built, whose responses come next

        def build(start: int, stop: int) -> Tensor:
            """Codes after intervention; `chunk` gets intervention, sample, unit mask and values."""
            place = torch.arange(start, stop, device=noises.device)
            intervention, rows = place // count, place % count
            unit = number == numbers[intervention // each][:, None]
            value = values[intervention % each]
            chunk[:] = intervention, rows, unit, value
            return torch.where(unit, value, noises[rows])

        for _, _, posterior in responses(autoencoder, rows_of * each * count, build):
            intervention, rows, unit, value = chunk
            place = (intervention + rows * blocks // count * (rows_of * each)).cpu()
            untouched = before[rows]
            change = norms(posterior.mean - untouched, units)
            moved.index_add_(0, place, change)
            expected = causes(autoencoder, torch.where(unit, value, untouched))
            error = causes(autoencoder, posterior.mean) - expected
            deviation.index_add_(0, place, norms(error, wide))
            first = intervention % each < few
            if bool(first.any()):
                error = others[rows[first]] - expected[first]
                other_deviation.index_add_(0, intervention[first].cpu(), norms(error, wide))
        self.spread = spread_of(before, units)
        sizes = torch.cat(
            [
                (noises[:, None, group] - values[:, group]).double().norm(dim=-1).cpu()
                for group in (units.lists[unit] for unit in changed)
            ],
            dim=1,
        )
        size = sizes.mean(0)
        unit_size = torch.ones_like(size)
        if flavour == "scale-free":
            unit_size = self.spread[changed].repeat_interleave(each)
        # 1 / U_I; an intervention that changes nothing makes no error.
        rate = torch.where(size > 0, unit_size / size, 0)
        self._parts = [
            _relative_error(total.unflatten(0, (blocks, -1)), rate, spread).unflatten(
                1, (rows_of, each)
            )
            for total, spread in ((moved, self.spread), (deviation, spread_of(effects, wide)))
        ]
        self.invariance, self.equivariance = (part.sum(0).mean(1) / count for part in self._parts)
        other_moved = norms(before.roll(1, 0) - before, units).mean(0)
        other_moved = other_moved.expand(rows_of * each, len(units))
        self.unrelated = [
            _relative_error(error, rate, spread).unflatten(0, (rows_of, each))[:, :few].mean(1)
            for error, spread in (
                (other_moved, self.spread),
                (other_deviation / count, spread_of(effects, wide)),
            )
        ]
        self._for_resampling = before, units, effects, wide, sizes
        self._changed = changed
        self._scale_free = flavour == "scale-free"

    def resample(self, resamples: int, generator: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """(invariance, equivariance) for resampled blocks of samples and interventions."""
        # The denominators of the errors are resampled with them, by blocks.
        before, units, effects, wide, sizes = self._for_resampling
        place = torch.arange(len(before)) * self.blocks // len(before)
        self._block_sizes = torch.bincount(place).double()
        self._size_sums = _block_sums(sizes, place).unflatten(1, self._parts[0].shape[1:3])
        self._moments = [_Moments(before, units, place), _Moments(effects, wide, place)]
        # Errors by units that are changed, and then by all else at once: for a few draws together
        # they are a product of matrices, which reads the errors once.
        errors = [part.transpose(0, 1).flatten(1, 2).contiguous() for part in self._parts]
        for start in range(0, resamples if self.blocks > 1 else 0, AT_ONCE):
            weights, scales = [], []
            for _ in range(start, min(start + AT_ONCE, resamples)):
                blocks = _bootstrap_counts(self.blocks, generator)
                values = _bootstrap_counts(self._parts[0].shape[2], generator)
                count = float(blocks @ self._block_sizes)
                sizes = torch.einsum("b,bmv->mv", blocks, self._size_sums) / count
                own = self._moments[0].relative(blocks, count)[self._changed]
                rate = (own[:, None] if self._scale_free else 1) / self._relative_size(sizes)
                weights.append(torch.einsum("b,mv,v->mbv", blocks, rate, values).flatten(1))
                total = count * values.sum()
                scales.append(
                    [total * moments.relative(blocks, count) for moments in self._moments]
                )
            together = torch.stack(weights, 1)  # units x draws x (blocks, values)
            sums_by_draw = [torch.bmm(together, part).transpose(0, 1) for part in errors]
            for k, (moved, deviation) in enumerate(scales):
                yield 1 - sums_by_draw[0][k] / moved, 1 - sums_by_draw[1][k] / deviation

    def _relative_size(self, size: Tensor) -> Tensor:
        whole = self._size_sums.sum(0) / self._block_sizes.sum()
        return torch.where(whole * size > 0, size / whole, 1)


class _Moments:
    """The standard deviation of each group of columns, with weighted blocks of samples."""

    def __init__(self, codes: Tensor, units: Units, place: Tensor) -> None:
        centred = codes.double().cpu() - codes.double().cpu().mean(0)
        self._first, self._second = (_block_sums(x, place) for x in (centred, centred.square()))
        self._units = units
        self._whole = spread_of(codes, units)

    def relative(self, blocks: Tensor, count: float) -> Tensor:
        """In units of the standard deviation over all samples; 1 where that is 0."""
        variance = blocks @ self._second / count - (blocks @ self._first / count).square()
        spread = self._units.sums(variance.clamp_min(0)[None])[0].sqrt()
        return torch.where(self._whole * spread > 0, spread / self._whole, 1)


def _block_sums(values: Tensor, place: Tensor) -> Tensor:
    """Sums of the rows of each block."""
    total = torch.zeros(int(place.max()) + 1, values.shape[1], dtype=torch.float64)
    return total.index_add_(0, place, values.double().cpu())


def _bootstrap_counts(count: int, generator: Generator) -> Tensor:
    """How often each of `count` items occurs among as many draws with replacement."""
    draws = torch.randint(count, (count,), generator=generator, device=generator.device)
    return torch.bincount(draws.cpu(), minlength=count).double()


def _relative_error(error: Tensor, rate: Tensor, spread: Tensor) -> Tensor:
    """error / (U_I sigma_i) of each intervention; 0 for units that do not vary."""
    silent = (spread < NEGLIGIBLE * spread.max()) | (spread == 0)
    return error * rate[:, None] / torch.where(silent, torch.inf, spread)


def norms(codes: Tensor, units: Units) -> Tensor:
    """The Euclidean norm of each unit, in float64 on the CPU."""
    if len(units) == units.latents:  # single latents: squaring would lose digits
        return units.sums(codes.double().abs()).cpu()
    return units.sums(codes.double().square()).sqrt().cpu()


def spread_of(codes: Tensor, units: Units) -> Tensor:
    """The standard deviation of each unit."""
    return units.sums(codes.double().var(0, correction=0)).sqrt().cpu()
