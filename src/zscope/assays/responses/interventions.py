"""Interventions on every unit: how far responses move that should not, and stray.

The errors behind invariance and equivariance (see `consistency`), all interventions in one
batch of decoding and encoding, chunked to memory. They are kept by blocks of samples, so
that samples can be drawn again without asking the model.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.engine import causes, responses
from zscope.assays.responses.matrix import NEGLIGIBLE
from zscope.autoencoder import Autoencoder
from zscope.groups import membership, sums
from zscope.types import Codes

Flavour = Literal["scale-free", "paper"]
BLOCKS, MANY = 16, 256
FEW = 4  # interventions on each unit from which chance is known well enough


class Errors:
    """Invariance and equivariance errors of all interventions, units x units.

    `unrelated` are both for responses that belong to other latent vectors.
    """

    def __init__(
        self,
        autoencoder: Autoencoder,
        noises: Codes,
        before: Codes,
        values: Float[Tensor, "interventions latents"],
        groups: list[list[int]],
        flavour: Flavour,
    ) -> None:
        units, each = len(groups), len(values)
        count, latents = noises.shape
        member = membership(groups, latents).to(noises.device)
        settled = causes(autoencoder, before)
        # A unit of a causal block may have several causes for its one noise.
        wide = member.repeat_interleave(settled.shape[1] // latents, dim=1)
        # Sums over blocks of samples, so that samples can be drawn again by blocks.
        self.blocks = blocks = min(BLOCKS if units <= MANY else 1, count)
        moved = torch.zeros(blocks * units * each, units, dtype=torch.float64)
        strayed = torch.zeros_like(moved)
        lost = torch.zeros(units * each, units, dtype=torch.float64)
        others, few = settled.roll(1, 0), min(each, FEW)

        chunk: list[Tensor] = []  # of the codes built last, whose responses come next

        def build(start: int, stop: int) -> Tensor:
            """Row by row: the intervention, its unit as a mask, its values, and the sample."""
            place = torch.arange(start, stop, device=noises.device)
            intervention, rows = place // count, place % count
            unit, value = member[intervention // each], values[intervention % each]
            chunk[:] = intervention, rows, unit, value
            return torch.where(unit, value, noises[rows])

        for _, _, posterior in responses(autoencoder, units * each * count, build):
            intervention, rows, unit, value = chunk
            place = (intervention + rows * blocks // count * (units * each)).cpu()
            untouched = before[rows]
            change = norms(posterior.mean - untouched, member)
            moved.index_add_(0, place, change)
            wanted = causes(autoencoder, torch.where(unit, value, untouched))
            away = causes(autoencoder, posterior.mean) - wanted
            strayed.index_add_(0, place, norms(away, wide))
            first = intervention % each < few
            if bool(first.any()):
                gap = others[rows[first]] - wanted[first]
                lost.index_add_(0, intervention[first].cpu(), norms(gap, wide))
        self.spread = spread_of(before, member)
        efforts = torch.cat(
            [
                (noises[:, None, group] - values[:, group]).double().norm(dim=-1).cpu()
                for group in groups
            ],
            dim=1,
        )
        effort = efforts.mean(0)
        unit_size = torch.ones_like(effort)
        if flavour == "scale-free":
            unit_size = self.spread.repeat_interleave(each)
        # 1 / U_I; an intervention that changes nothing makes no error.
        rate = torch.where(effort > 0, unit_size / effort, 0)
        self._parts = [
            _scaled(sums_.unflatten(0, (blocks, -1)), rate, spread).unflatten(1, (units, each))
            for sums_, spread in ((moved, self.spread), (strayed, spread_of(settled, wide)))
        ]
        self.invariance, self.equivariance = (part.sum(0).mean(1) / count for part in self._parts)
        apart = norms(before.roll(1, 0) - before, member).mean(0).expand(units * each, units)
        self.unrelated = [
            _scaled(error, rate, spread).unflatten(0, (units, each))[:, :few].mean(1)
            for error, spread in ((apart, self.spread), (lost / count, spread_of(settled, wide)))
        ]
        self._noted = before, member, settled, wide, efforts
        self._in_spreads = flavour == "scale-free"

    def drawn_again(self, resamples: int, generator: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """(invariance, equivariance), blocks of samples and interventions drawn again."""
        # What the errors are divided by, by blocks: it is drawn again with them.
        before, member, settled, wide, efforts = self._noted
        place = torch.arange(len(before)) * self.blocks // len(before)
        self._sizes = torch.bincount(place).double()
        self._effort = _by_block(efforts, place).unflatten(1, self._parts[0].shape[1:3])
        self._moments = [_Moments(before, member, place), _Moments(settled, wide, place)]
        for _ in range(resamples if self.blocks > 1 else 0):
            blocks = _drawn_again(self.blocks, generator)
            values = _drawn_again(self._parts[0].shape[2], generator)
            count = float(blocks @ self._sizes)
            effort = self._relative(torch.einsum("b,bmv->mv", blocks, self._effort) / count)
            own = self._moments[0].relative(blocks, count)
            rate = (own[:, None] if self._in_spreads else 1) / effort
            invariance, equivariance = (
                torch.einsum("b,bmvi,mv,v->mi", blocks, part, rate, values)
                / (count * values.sum() * moments.relative(blocks, count))
                for part, moments in zip(self._parts, self._moments, strict=True)
            )
            yield 1 - invariance, 1 - equivariance

    def _relative(self, effort: Tensor) -> Tensor:
        whole = self._effort.sum(0) / self._sizes.sum()
        return torch.where(whole * effort > 0, effort / whole, 1)


class _Moments:
    """The spread of each group of columns, for samples that count as often as their block."""

    def __init__(self, codes: Tensor, member: Tensor, place: Tensor) -> None:
        centred = codes.double().cpu() - codes.double().cpu().mean(0)
        self._first, self._second = (_by_block(x, place) for x in (centred, centred.square()))
        self._member = member.cpu()
        self._whole = spread_of(codes, member)

    def relative(self, blocks: Tensor, count: float) -> Tensor:
        """In units of the spread of all samples; 1 where that is 0."""
        variance = blocks @ self._second / count - (blocks @ self._first / count).square()
        spread = sums(variance.clamp_min(0)[None], self._member)[0].sqrt()
        return torch.where(self._whole * spread > 0, spread / self._whole, 1)


def _by_block(values: Tensor, place: Tensor) -> Tensor:
    """Sums of rows over the blocks they belong to."""
    total = torch.zeros(int(place.max()) + 1, values.shape[1], dtype=torch.float64)
    return total.index_add_(0, place, values.double().cpu())


def _drawn_again(count: int, generator: Generator) -> Tensor:
    """How often each of `count` things comes when as many are drawn with replacement."""
    drawn = torch.randint(count, (count,), generator=generator, device=generator.device)
    return torch.bincount(drawn.cpu(), minlength=count).double()


def _scaled(error: Tensor, rate: Tensor, spread: Tensor) -> Tensor:
    """error / (U_I sigma_i) of each intervention; silent units make no error."""
    silent = (spread < NEGLIGIBLE * spread.max()) | (spread == 0)
    return error * rate[:, None] / torch.where(silent, torch.inf, spread)


def norms(codes: Tensor, member: Tensor) -> Tensor:
    """The Euclidean norm of each group of columns, in float64 on the CPU."""
    if member.shape[0] == member.shape[1]:  # single latents: no squares to lose digits in
        return sums(codes.double().abs(), member).cpu()
    return sums(codes.double().square(), member).sqrt().cpu()


def spread_of(codes: Tensor, member: Tensor) -> Tensor:
    """The standard deviation of each group of columns."""
    return sums(codes.double().var(0, correction=0), member).sqrt().cpu()
