"""Conditioned response matrix: which latent carries which factor, as the decoder sees it?

    M*_mj = sqrt( E [ (R_j(replace(z, j, v)) - R_j(z))^2 ] )

where x, z ~ q(z|x) and the replacement v all come from observations in which every true
factor but m has the same value. Row = factor, column = latent. The expectation is over
the squares, and the root is taken last, as the paper writes it. Two scores follow, over
causal latents j alone (d~ of them) and all d* factors:

    CDS = sum_j max_m M*_mj / sum_mj M*_mj    rescaled to (s - 1/d*) / (1 - 1/d*)
    CCS = sum_m max_j M*_mj / sum_mj M*_mj    rescaled to (s - 1/d~) / (1 - 1/d~)

Both lie in [0, 1]. CDS = 1: each latent answers to one factor; CCS = 1: each factor sits
in one latent. Permuting latents or factors permutes the matrix and leaves the scores.

Latents of large scale weigh more in both scores. For a model without a prior, columns
are therefore divided by sqrt(2) sigma_j (`scaled`); then rescaling a latent changes
nothing. For a model with the prior N(0, I) the paper's form is kept by default.

Observations are grouped by the values of the other factors, so that a complete grid is
not needed; a group counts if factor m takes at least two values in it.

Leeb et al., "Interventional assays for the latent space of autoencoders", eq. 6, 7, 13.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording, shared_result
from zscope.assays.engine import encode, respond
from zscope.assays.entry import Entry
from zscope.assays.responses.matrix import Rule, replaced_squares, response_matrix
from zscope.assays.responses.resampling import (
    block_tail,
    block_weights,
    interval,
    resamples_of,
    tail,
)
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, DataError, Undefined
from zscope.groups import Groups, partition
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import NOT_REQUESTED, Measure, Scored
from zscope.sampling import whole
from zscope.types import Matrix

# Of one group of observations at most so many are used: other groups say more.
MOST_OF_A_GROUP = 32


@dataclass(frozen=True, eq=False)
class ConditionedResponseMatrix(Scored):
    """Rows: factors. Columns: latents (or groups of them)."""

    matrix: Float[Tensor, "factors latents"]
    disentanglement: float  # CDS, rescaled
    completeness: float  # CCS, rescaled
    causal: list[int]
    scaled: bool  # columns divided by sqrt(2) sigma_j
    scale: Float[Tensor, " latents"]
    groups: list[list[int]]
    samples: list[int]  # observations used, by factor
    unusable: list[int]  # by factor: observations without one that differs in it alone
    factor_names: list[str]
    interval: Float[Tensor, "2 factors latents"] | None = None
    disentanglement_interval: tuple[float, float] | None = None
    completeness_interval: tuple[float, float] | None = None
    disentanglement_chance: float | None = None  # if all factors vary at once
    completeness_chance: float | None = None

    why_no_interval = NOT_REQUESTED
    why_no_chance = "no chance level was given"

    def measures(self) -> list[Measure]:
        return [
            self.measure(
                name,
                getattr(self, name),
                interval=getattr(self, f"{name}_interval"),
                chance=getattr(self, f"{name}_chance"),
                samples=min(self.samples),
            )
            for name in ("disentanglement", "completeness")
        ]

    def summary(self) -> list[tuple[str, str]]:
        return [
            ("causal latents", f"{len(self.causal)} of {len(self.groups)}"),
            ("samples by factor", ", ".join(map(str, self.samples))),
        ]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import heatmap

        return heatmap(
            self.matrix, x="latent", y="factor", rows=self.factor_names, label="response", ax=ax
        )


@accepts_recording
def conditioned_response_matrix(
    autoencoder: Autoencoder,
    data: Any,
    factors: Tensor | np.ndarray | None = None,
    *,
    posterior: Recording | Posterior | None = None,
    samples: int = 1024,
    groups: Groups | None = None,
    causal: Sequence[int] | None = None,
    threshold: float = 0.5,
    rule: Rule | None = None,
    scaled: bool | None = None,
    resamples: int = 0,
    generator: Generator | None = None,
) -> ConditionedResponseMatrix:
    """How strongly does each latent answer where one factor alone varies?

    `data` is a Dataset with factors, or observations with `factors` beside them (samples x
    factors, discrete). `posterior`, if known, saves encoding them. About `samples`
    observations are used for each factor. The causal latents are found with a response
    matrix of the same data (`threshold` and `rule` as there) unless they are given.
    `resamples` > 0 adds intervals, over groups of observations.
    """
    who = "conditioned_response_matrix"
    whole(who, 2, samples=samples)
    resamples = resamples_of(resamples, who)
    generator = fresh(generator)
    batch, known, names = _observations(data, factors, who)
    recording = posterior if isinstance(posterior, Recording) else None
    if isinstance(posterior, Recording):
        posterior = posterior.posterior
    if posterior is not None and len(posterior) != len(known):
        raise DataError(
            f"{who}: {len(posterior)} posteriors for {len(known)} observations; they must be of "
            "the same rows. Leave posterior= out to encode the data now."
        )
    choices = [Chosen(known, factor, samples, generator, who) for factor in range(len(names))]
    # The causal latents are those of the data as a whole, not of the chosen groups.
    everyone = torch.randperm(len(known), generator=generator, device=generator.device)[:samples]
    rows = np.unique(np.concatenate([*(choice.rows for choice in choices), everyone.cpu().numpy()]))
    if posterior is None:
        posterior = encode(autoencoder, batch, rows)
    else:
        posterior = posterior[torch.from_numpy(rows).to(posterior.mean.device)]
    at = {int(row): index for index, row in enumerate(rows)}
    lists = partition(groups, posterior.latents, who)
    anyone = posterior[[at[int(row)] for row in everyone]]
    if recording is not None and (groups, threshold, rule) == (None, 0.5, None):
        overall = shared_result(response_matrix, recording)
    else:
        overall = response_matrix(
            autoencoder,
            anyone,
            samples=samples,
            groups=lists,
            threshold=threshold,
            rule=rule,
            generator=generator,
        )
    kept = _kept(overall.causal if causal is None else causal, len(lists), who)
    matrices, unconditioned = [], []
    for choice in choices:
        base = posterior[[at[int(row)] for row in choice.rows]].sample(generator)
        weights = choice.weights(resamples, generator)
        donors = base[torch.from_numpy(choice.donor).to(base.device)]
        before = respond(autoencoder, base)
        squares = replaced_squares(autoencoder, base, before, donors, lists, weights)
        matrices.append(squares.diagonal(dim1=1, dim2=2).sqrt())
        # The same for pairs that differ in everything: what there is without conditioning.
        order = torch.randperm(len(anyone), generator=generator, device=generator.device)
        drawn = anyone.sample(generator)[order.to(anyone.mean.device)]
        once = torch.full((1, len(drawn)), 1 / len(drawn), dtype=torch.float64)
        before = respond(autoencoder, drawn)
        squares = replaced_squares(autoencoder, drawn, before, drawn.roll(1, 0), lists, once)
        unconditioned.append(squares.diagonal(dim1=1, dim2=2).sqrt()[0])
    draws = torch.stack(matrices, dim=1)  # resamples x factors x latents
    plain = torch.stack(unconditioned)
    scaled = autoencoder.prior is None if scaled is None else scaled
    if scaled:
        felt = 2**0.5 * overall.scale
        silent = overall.relative.diagonal() == 0
        draws, plain = (
            torch.where(silent, 0, each / torch.where(silent, 1, felt)) for each in (draws, plain)
        )
    chance = _scores(plain[:, kept], who)
    scores = [_scores(matrix[:, kept], who) for matrix in draws]
    both = interval(torch.tensor(scores, dtype=torch.float64), min(c.tail for c in choices))
    entries = [interval(draws[:, k], choice.tail) for k, choice in enumerate(choices)]
    return ConditionedResponseMatrix(
        matrix=draws[0],
        disentanglement=scores[0][0],
        completeness=scores[0][1],
        causal=kept,
        scaled=scaled,
        scale=overall.scale,
        groups=lists,
        samples=[len(choice.rows) for choice in choices],
        unusable=[choice.unusable for choice in choices],
        factor_names=names,
        interval=None if both is None else torch.stack([e for e in entries if e is not None], 1),
        disentanglement_interval=None if both is None else (float(both[0, 0]), float(both[1, 0])),
        completeness_interval=None if both is None else (float(both[0, 1]), float(both[1, 1])),
        disentanglement_chance=chance[0],
        completeness_chance=chance[1],
    )


class Chosen:
    """Observations that agree in all factors but one, and the partner of each.

    `rows` are their numbers in the data, group after group; `donor[i]` is the position in
    `rows` of the next one of the same group, so that none is its own partner.
    """

    def __init__(
        self, factors: np.ndarray, factor: int, samples: int, generator: Generator, who: str
    ) -> None:
        others = np.delete(factors, factor, axis=1)
        _, label = np.unique(others, axis=0, return_inverse=True)
        label = label.reshape(-1)
        shuffled = torch.randperm(len(factors), generator=generator, device=generator.device)
        order = shuffled.cpu().numpy()
        order = order[np.argsort(label[order], kind="stable")]  # groups together, inside at random
        members = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
        usable = [rows for rows in members if np.ptp(factors[rows, factor]) > 0]
        self.unusable = len(factors) - sum(map(len, usable))
        if not usable:
            raise Undefined(
                f"{who}: no two of the {len(factors)} observations agree in every factor but "
                f"factor {factor}, so it cannot vary alone. Are the factors continuous, or the "
                "data a small part of a large grid? Use more of the grid, or round the factors."
            )
        wanted = torch.randperm(len(usable), generator=generator, device=generator.device)
        taken, count = [], 0
        for index in wanted.tolist():
            taken.append(usable[index])
            count += min(len(usable[index]), MOST_OF_A_GROUP) if len(usable) > 1 else samples
            if count >= samples:
                break
        most = MOST_OF_A_GROUP if len(taken) > 1 else max(2, samples)
        parts = [rows[:most] for rows in taken]
        self.rows = np.concatenate(parts)
        starts = np.cumsum([0, *map(len, parts)])[:-1]
        self.donor = np.concatenate(
            [start + np.roll(np.arange(len(p)), -1) for start, p in zip(starts, parts, strict=True)]
        )
        self._sizes = [len(part) for part in parts]
        # A large group of which a part is used stands for all of its observations.
        self._shares = [len(rows) for rows in taken]

    @property
    def tail(self) -> float:
        """What an interval cuts off at each end, with so many groups to draw again."""
        sizes = self._sizes
        return block_tail(sizes[0]) if len(sizes) == 1 else tail(len(sizes))

    def weights(self, resamples: int, generator: Generator) -> Tensor:
        """How much each observation counts: row 0 as they are, then groups drawn again."""
        sizes, shares = torch.tensor(self._sizes), torch.tensor(self._shares, dtype=torch.float64)
        if len(sizes) == 1:
            return block_weights(int(sizes[0]), resamples, generator)
        counts = torch.ones(resamples + 1, len(sizes), dtype=torch.float64)
        for row in counts[1:]:
            drawn = torch.randint(
                len(sizes), (len(sizes),), generator=generator, device=generator.device
            )
            row.copy_(torch.bincount(drawn.cpu(), minlength=len(sizes)))
        each = (counts * shares / sizes).repeat_interleave(sizes, dim=1)
        return each / each.sum(1, keepdim=True)


def _observations(
    data: Any, factors: Tensor | np.ndarray | None, who: str
) -> tuple[Any, np.ndarray, list[str]]:
    """(rows -> observations as a tensor, factors, names) of a Dataset or of plain arrays."""
    names = [str(name) for name in getattr(data, "factor_names", ())]
    factors = getattr(data, "factors", None) if factors is None else factors
    if factors is None:
        raise DataError(
            f"{who}: the data come without factors, so nothing can be held fixed. Give a Dataset "
            "with factors, or factors= (samples x factors) beside the observations."
        )
    known = np.asarray(factors.cpu() if isinstance(factors, Tensor) else factors)
    if hasattr(data, "batch"):
        batch, count = data.batch, len(data)
    else:
        rows = data if isinstance(data, Tensor) else torch.as_tensor(np.asarray(data))
        batch, count = (lambda index: rows[torch.as_tensor(index).to(rows.device)]), len(rows)
    if known.ndim != 2 or len(known) != count:
        raise DataError(
            f"{who}: factors of shape {known.shape} for {count} observations; needed is one row "
            f"for each, ({count}, number of factors)."
        )
    if known.shape[1] < 2:
        raise Undefined(
            f"{who}: {known.shape[1]} factor; whether a latent serves one factor only cannot be "
            "asked of a single one (the rescaled score would be 0/0). Give at least two factors."
        )
    return batch, known, names or [f"factor{k}" for k in range(known.shape[1])]


def _kept(causal: Sequence[int], latents: int, who: str) -> list[int]:
    kept = sorted({int(latent) for latent in causal})
    if kept and not 0 <= kept[0] <= kept[-1] < latents:
        raise ConfigError(f"{who}: causal={kept}, but there are {latents} latents (or groups).")
    if len(kept) < 2:
        which = "none" if not kept else f"only latent {kept[0]}"
        raise Undefined(
            f"{who}: of {latents} latents {which} is causal, so responses cannot be shared out "
            "over latents. Has the posterior collapsed? See: zscope assay RUN response-matrix. "
            "A lower threshold= counts weaker latents."
        )
    return kept


def _scores(matrix: Matrix, who: str) -> tuple[float, float]:
    """(CDS, CCS) of the causal columns."""
    factors, latents = matrix.shape
    total = matrix.sum()
    if total == 0:
        raise Undefined(
            f"{who}: no causal latent answers to any of the {factors} factors when it varies "
            "alone. Do the factors change the observations at all?"
        )
    by_latent, by_factor = matrix.amax(0).sum() / total, matrix.amax(1).sum() / total
    return (
        float((by_latent - 1 / factors) / (1 - 1 / factors)),
        float((by_factor - 1 / latents) / (1 - 1 / latents)),
    )


ENTRY = Entry(
    question="Which latent carries which factor, as the decoder uses it?",
    takes=("autoencoder", "data", "posterior=recording"),
    needs=("two factors",),
    passes="2 * factors * samples * (latents + 1)",
    most=28_000,
)
