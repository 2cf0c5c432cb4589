"""Conditioned response matrix: which latent carries which factor, as the decoder uses it?

    M*_mj = sqrt( E [ (R_j(replace(z, j, v)) - R_j(z))^2 ] )

where x, z ~ q(z|x) and the replacement v all come from observations in which every true
factor but m has the same value. Row = factor, column = latent. The root is taken of the
expected square, as in the paper. Two scores are computed over the causal latents j (d~ of
them) and all d* factors:

    CDS = sum_j max_m M*_mj / sum_mj M*_mj    rescaled to (s - 1/d*) / (1 - 1/d*)
    CCS = sum_m max_j M*_mj / sum_mj M*_mj    rescaled to (s - 1/d~) / (1 - 1/d~)

Both lie in [0, 1]. CDS = 1: each latent responds to one factor; CCS = 1: each factor is
carried by one latent. Permuting latents or factors permutes the matrix and does not change
the scores.

Latents of large scale have more weight in both scores. For a model without a prior, columns
are therefore divided by sqrt(2) sigma_j (`scaled`); then rescaling a latent changes
nothing. For a model with the prior N(0, I) the paper's form is the default.

Observations are grouped by the values of the other factors, so that a complete grid is
not needed; a group counts if factor m takes at least two values in it.

`flavour="zscope"`: x and the observation that v comes from are drawn independently, as in
eq. 6, so in a group of n observations v comes from x itself (as another draw from its
posterior) one time in n. A latent that keeps its changes then has M*_mj = sqrt(2) sigma_j,
with sigma_j its standard deviation within groups, and rows of factors with few and with many
values can be compared. `flavour="authors"`: v always comes from another observation, as in the
authors' script, which multiplies the row of a factor with n values by sqrt(n / (n - 1)): 1.41
for two values, 1.05 for ten. (Their script also averages roots over groups; here squares are
averaged in both flavours.)

Of latents that are maps, columns are channels (or other `units`), whose response is the Euclidean
norm over places, of posterior means, and `scaled` is the default: columns are divided by the
change A_j that replacing the channel makes if all factors vary (see `response_matrix`). With
`patch` = (y, x, size) channels are replaced in a square of places alone, A_j is that of these
places, and `inside` the share of the squared response there.

Leeb et al., "Interventional assays for the latent space of autoencoders", eq. 6, 7, 13.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import base_samples, encode, points_of, respond
from zscope.assays.entry import Entry
from zscope.assays.parts import shared_result
from zscope.assays.responses.matrix import (
    Changes,
    Rule,
    matrix_of,
    only_inside,
    patch_of,
    response_matrix,
    squared_changes,
)
from zscope.assays.responses.resampling import (
    block_tail,
    block_weights,
    interval,
    resamples_of,
    tail,
)
from zscope.assays.units import Units, UnitsOption, units_of
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, DataError, Undefined
from zscope.groups import Groups
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import NOT_REQUESTED, Measure, Scored
from zscope.sampling import whole
from zscope.types import Codes, Matrix, as_tensor

__all__ = ["ConditionedResponseMatrix", "FactorPairs", "conditioned_response_matrix"]

Flavour = Literal["zscope", "authors"]

# Observations used of one group at most: more groups are more informative.
MOST_PER_GROUP = 32
# Of fewer groups, observations are resampled within each. Resampled as wholes, the mean of n groups
# stays between the smallest and the largest of them, which both lie on one side of the truth
# once in 2^(n-1) times.
FEW_GROUPS = 8


@dataclass(frozen=True, eq=False)
class ConditionedResponseMatrix(Scored):
    """Rows: factors. Columns: latents (or groups of them)."""

    matrix: Float[Tensor, "factors latents"]
    disentanglement: float  # CDS, rescaled
    completeness: float  # CCS, rescaled
    causal: list[int]
    flavour: Flavour
    scaled: bool  # columns divided by sqrt(2) sigma_j
    scale: Float[Tensor, " latents"]
    groups: list[list[int]]
    samples: list[int]  # observations used, by factor
    unusable: list[int]  # by factor: observations without one that differs in it alone
    factor_names: list[str]
    chance: dict[str, float]  # of both scores, if all factors vary at once
    interval: Float[Tensor, "2 factors latents"] | None = None
    disentanglement_interval: tuple[float, float] | None = None
    completeness_interval: tuple[float, float] | None = None
    patch: tuple[int, ...] | None = None  # the only places that were changed: first place, size
    inside: Float[Tensor, "factors latents"] | None = None  # the share of the response there

    def to_dict(self) -> dict[str, Any]:
        """Without a patch, if there was none."""
        left_out = ("patch", "inside") if self.patch is None else ()
        return {name: value for name, value in super().to_dict().items() if name not in left_out}

    why_no_interval = NOT_REQUESTED

    def measures(self) -> list[Measure]:
        return [
            self.measure(
                name,
                getattr(self, name),
                interval=getattr(self, f"{name}_interval"),
                chance=self.chance[name],
                samples=min(self.samples),
            )
            for name in ("disentanglement", "completeness")
        ]

    def summary(self) -> list[tuple[str, str]]:
        return [
            ("causal latents", f"{len(self.causal)} of {len(self.groups)}"),
            ("samples by factor", ", ".join(map(str, self.samples))),
            ("flavour", self.flavour),
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
    flavour: Flavour = "zscope",
    samples: int = 1024,
    units: UnitsOption = "auto",
    groups: Groups | None = None,
    patch: Sequence[int] | None = None,
    causal: Sequence[int] | None = None,
    threshold: float = 0.5,
    rule: Rule | None = None,
    scaled: bool | None = None,
    resamples: int = 0,
    generator: Generator | None = None,
) -> ConditionedResponseMatrix:
    """How strongly each latent responds when a single factor varies.

    `data` is a Dataset with factors, or observations with their `factors` (samples x factors,
    discrete). If `posterior` is given, the data are not encoded again. About `samples`
    observations are used for each factor. Unless given, the causal latents are those of a
    response matrix of the same data (`threshold` and `rule` as there). `resamples` > 0 adds
    intervals, over groups of observations, or over observations where groups are few. `units`
    are the columns: single latents or, of maps, channels; `groups` is another name for a partition.
    `patch` = (y, x, size) changes maps only there, as in a response matrix.
    """
    who = "conditioned_response_matrix"
    whole(who, 2, samples=samples)
    resamples = resamples_of(resamples, who)
    generator = fresh(generator)
    batch, values, names = _observations(data, factors, who)
    recording = posterior if isinstance(posterior, Recording) else None
    posterior = posterior.posterior if isinstance(posterior, Recording) else posterior
    if posterior is not None and len(posterior) != len(values):
        raise DataError(
            f"{who}: {len(posterior)} posteriors for {len(values)} observations; they must be of "
            "the same rows. Leave posterior= out to encode the data now."
        )
    pairings = [
        FactorPairs(values, factor, samples, generator, who, flavour)
        for factor in range(len(names))
    ]
    # The causal latents are those of the data as a whole, not of the selected groups.
    subset = _some(len(values), samples, generator)
    unrelated = [_some(len(values), len(pairs.rows), generator) for pairs in pairings]
    # A generator of its own for the response matrix, which is not always computed here.
    separate = torch.Generator().manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
    rows = np.unique(np.concatenate([*(pairs.rows for pairs in pairings), subset, *unrelated]))
    if posterior is None:
        posterior = encode(autoencoder, batch, rows)
    else:
        posterior = posterior[torch.from_numpy(rows).to(posterior.mean.device)]
    position = {int(row): index for index, row in enumerate(rows)}
    layout = posterior.layout
    rounds = 2 * len(names) * samples
    chosen = units_of(who, units, groups, posterior.latents, layout, rounds=rounds)
    chosen.enough(who, len(values), len(subset))
    inside = patch_of(patch, layout, chosen, who)
    posterior = points_of(posterior, who)
    usual = isinstance(units, str) and units == "auto" and groups is None and patch is None
    if recording is not None and usual and (threshold, rule) == (0.5, None):
        overall = shared_result(response_matrix, recording)
    else:
        some = posterior[[position[int(row)] for row in subset]].detach()
        some = some.to(torch.promote_types(some.mean.dtype, torch.float32))
        base = base_samples(some, samples, who, separate)
        overall = matrix_of(
            who,
            autoencoder,
            some,
            base,
            chosen,
            patch=patch,
            threshold=threshold,
            rule=rule,
            weights=block_weights(len(base), 0, separate),
        )
    used = _causal_latents(overall.causal if causal is None else causal, len(chosen), who)
    codes = [
        pairs.draw(posterior[[position[int(row)] for row in pairs.rows]], generator)
        for pairs in pairings
    ]
    unrelated_codes = [
        posterior[[position[int(row)] for row in others]].sample(generator) for others in unrelated
    ]
    draws, chance_matrix, shares = _measure(
        autoencoder, pairings, codes, unrelated_codes, chosen, inside, resamples, generator
    )
    if scaled is None:
        scaled = autoencoder.prior is None or layout is not None
    if scaled:
        unit = 2**0.5 * overall.scale
        silent = overall.relative.diagonal() == 0
        draws, chance_matrix = (
            torch.where(silent, 0, each / torch.where(silent, 1, unit))
            for each in (draws, chance_matrix)
        )
    chance = _scores(chance_matrix[:, used], who)
    scores = [_scores(matrix[:, used], who) for matrix in draws]
    both = interval(torch.tensor(scores, dtype=torch.float64), min(p.tail for p in pairings))
    entries = [interval(draws[:, k], pairs.tail) for k, pairs in enumerate(pairings)]
    result = ConditionedResponseMatrix(
        matrix=draws[0],
        disentanglement=scores[0][0],
        completeness=scores[0][1],
        causal=used,
        flavour=flavour,
        scaled=scaled,
        scale=overall.scale,
        groups=chosen.lists,
        samples=[len(pairs.rows) for pairs in pairings],
        unusable=[pairs.unusable for pairs in pairings],
        factor_names=names,
        chance=dict(zip(("disentanglement", "completeness"), chance, strict=True)),
        interval=None if both is None else torch.stack([e for e in entries if e is not None], 1),
        disentanglement_interval=None if both is None else (float(both[0, 0]), float(both[1, 0])),
        completeness_interval=None if both is None else (float(both[0, 1]), float(both[1, 1])),
        patch=overall.patch,
        inside=shares,
    )
    return chosen.name(result)


def _measure(
    autoencoder: Autoencoder,
    pairings: list["FactorPairs"],
    codes: list[tuple[Tensor, Tensor]],
    unrelated: list[Tensor],
    units: Units,
    inside: Tensor | None,
    resamples: int,
    generator: Generator,
) -> tuple[
    Float[Tensor, "resamples factors units"],
    Float[Tensor, "factors units"],
    Float[Tensor, "factors units"] | None,
]:
    """M* under each weighting, the same without conditioning, and the share inside of a patch."""

    def change(base: Tensor, donors: Tensor, weights: Tensor) -> Changes:
        before, donors = respond(autoencoder, base), only_inside(donors, base, inside)
        return squared_changes(autoencoder, base, before, donors, units, weights, inside)

    def diagonal(changes: Changes) -> Tensor:
        return changes.squares.diagonal(dim1=1, dim2=2).sqrt()

    matrices, unconditioned, shares = [], [], []
    for pairs, (base, donors), others in zip(pairings, codes, unrelated, strict=True):
        # Resampled after all codes have been drawn: intervals do not change the scores.
        conditioned = change(base, donors, pairs.weights(resamples, generator))
        matrices.append(diagonal(conditioned))
        if conditioned.share_inside is not None:
            shares.append(conditioned.share_inside.diagonal())
        # The chance level: the same without conditioning, for pairs that differ in everything.
        equal = torch.full((1, len(others)), 1 / len(others), dtype=torch.float64)
        unconditioned.append(diagonal(change(others, others.roll(1, 0), equal))[0])
    within = torch.stack(shares) if shares else None
    return torch.stack(matrices, dim=1), torch.stack(unconditioned), within


class FactorPairs:
    """Pairs of observations that agree in all factors but one.

    `rows` are the rows of the data, group after group; `donor[i]` is the position in `rows`
    of the observation whose latent replaces that of row i. In the authors' flavour it is the
    next of the same group; otherwise one of the n observations of a group (`own`) is its own
    partner, as one in n would be by independent draws.
    """

    def __init__(
        self,
        factors: np.ndarray,
        factor: int,
        samples: int,
        generator: Generator,
        who: str,
        flavour: Flavour = "zscope",
    ) -> None:
        others = np.delete(factors, factor, axis=1)
        _, label = np.unique(others, axis=0, return_inverse=True)
        label = label.reshape(-1)
        shuffled = torch.randperm(len(factors), generator=generator, device=generator.device)
        order = shuffled.cpu().numpy()
        order = order[
            np.argsort(label[order], kind="stable")
        ]  # groups together, each in random order
        members = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
        usable = [rows for rows in members if np.ptp(factors[rows, factor]) > 0]
        self.unusable = len(factors) - sum(map(len, usable))
        if not usable:
            raise Undefined(
                f"{who}: no two of the {len(factors)} observations agree in every factor but "
                f"factor {factor}, so it cannot vary alone. Are the factors continuous, or the "
                "data a small part of a large grid? Use more of the grid, or round the factors."
            )
        group_order = torch.randperm(len(usable), generator=generator, device=generator.device)
        selected, count = [], 0
        for index in group_order.tolist():
            selected.append(usable[index])
            count += min(len(usable[index]), MOST_PER_GROUP) if len(usable) > 1 else samples
            if count >= samples:
                break
        most = MOST_PER_GROUP if len(selected) > 1 else max(2, samples)
        parts = [rows[:most] for rows in selected]
        self.rows = np.concatenate(parts)
        starts = np.cumsum([0, *map(len, parts)])[:-1]
        self.donor = np.concatenate(
            [start + np.roll(np.arange(len(p)), -1) for start, p in zip(starts, parts, strict=True)]
        )
        self._sizes = [len(part) for part in parts]
        # The used part of a large group represents all of its observations.
        self._shares = [len(rows) for rows in selected]
        self.own = np.zeros(len(self.rows), dtype=bool)
        if flavour == "zscope":
            # Systematic sampling: each row with probability 1/n, one for each whole group.
            start = torch.rand(1, generator=generator, device=generator.device).item()
            chances = np.repeat(1 / np.array(self._shares), self._sizes)
            self.own = np.diff(np.floor(start + np.cumsum(chances) + 1e-9), prepend=0) > 0
            self.donor = np.where(self.own, np.arange(len(self.rows)), self.donor)

    def draw(self, posterior: Posterior, generator: Generator) -> tuple[Codes, Codes]:
        """A code for each of `rows`, given their posterior, and the code that replaces it."""
        base = posterior.sample(generator)
        donors = base[torch.from_numpy(self.donor).to(base.device)]
        if not self.own.any():
            return base, donors
        own = torch.from_numpy(self.own).to(base.device).unsqueeze(1)
        return base, torch.where(own, posterior.sample(generator), donors)

    @property
    def tail(self) -> float:
        """The share that an interval cuts off at each end, for what is resampled."""
        groups = len(self._sizes)
        if groups < FEW_GROUPS:
            return block_tail(len(self.rows) // groups, groups=groups)
        return tail(groups)

    def weights(self, resamples: int, generator: Generator) -> Tensor:
        """The weight of each observation: row 0 as they are, then with groups resampled, or
        with blocks of observations resampled in each of a few groups."""
        sizes, shares = torch.tensor(self._sizes), torch.tensor(self._shares, dtype=torch.float64)
        if len(sizes) < FEW_GROUPS:
            inside = [block_weights(size, resamples, generator) for size in self._sizes]
            parts = [
                part * share for part, share in zip(inside, shares / shares.sum(), strict=True)
            ]
            return torch.cat(parts, dim=1)
        counts = torch.ones(resamples + 1, len(sizes), dtype=torch.float64)
        for row in counts[1:]:
            groups = torch.randint(
                len(sizes), (len(sizes),), generator=generator, device=generator.device
            )
            row.copy_(torch.bincount(groups.cpu(), minlength=len(sizes)))
        each = (counts * shares / sizes).repeat_interleave(sizes, dim=1)
        return each / each.sum(1, keepdim=True)


def _observations(
    data: Any, factors: Tensor | np.ndarray | None, who: str
) -> tuple[Any, np.ndarray, list[str]]:
    """(function from rows to observations, factors, names) of a Dataset or of plain arrays."""
    names = [str(name) for name in getattr(data, "factor_names", ())]
    factors = getattr(data, "factors", None) if factors is None else factors
    if factors is None:
        raise DataError(
            f"{who}: the data come without factors, so no factor can be held fixed. Give a Dataset "
            "with factors, or observations with factors= (samples x factors)."
        )
    values = np.asarray(factors.cpu() if isinstance(factors, Tensor) else factors)
    if hasattr(data, "batch"):
        batch, count = data.batch, len(data)
    else:
        rows = as_tensor(data, who)
        batch, count = (lambda index: rows[torch.as_tensor(index).to(rows.device)]), len(rows)
    if values.ndim != 2 or len(values) != count:
        raise DataError(
            f"{who}: factors of shape {values.shape} for {count} observations; expected one row "
            f"for each: ({count}, number of factors)."
        )
    if values.shape[1] < 2:
        raise Undefined(
            f"{who}: {values.shape[1]} factor; with a single one, whether a latent carries only "
            "one factor is undefined (the rescaled score would be 0/0). Give at least two factors."
        )
    return batch, values, names or [f"factor{k}" for k in range(values.shape[1])]


def _some(count: int, most: int, generator: Generator) -> np.ndarray:
    """At most `most` of `count` rows, in random order."""
    order = torch.randperm(count, generator=generator, device=generator.device)
    rows: np.ndarray = order[:most].cpu().numpy()
    return rows


def _causal_latents(causal: Sequence[int], latents: int, who: str) -> list[int]:
    used = sorted({int(latent) for latent in causal})
    if used and not 0 <= used[0] <= used[-1] < latents:
        raise ConfigError(f"{who}: causal={used}, but there are {latents} latents (or groups).")
    if len(used) < 2:
        which = "none" if not used else f"only latent {used[0]}"
        raise Undefined(
            f"{who}: of {latents} latents {which} is causal, so there are no latents to "
            "distribute responses over. Has the posterior collapsed? See: "
            "zscope assay RUN response-matrix. A lower threshold= counts weaker latents."
        )
    return used


def _scores(matrix: Matrix, who: str) -> tuple[float, float]:
    """(CDS, CCS) of the causal columns."""
    factors, latents = matrix.shape
    total = matrix.sum()
    if total == 0:
        raise Undefined(
            f"{who}: no causal latent responds to any of the {factors} factors when it varies "
            "alone. Do the factors change the observations at all?"
        )
    by_latent, by_factor = matrix.amax(0).sum() / total, matrix.amax(1).sum() / total
    return (
        float((by_latent - 1 / factors) / (1 - 1 / factors)),
        float((by_factor - 1 / latents) / (1 - 1 / latents)),
    )


ENTRY = Entry(
    question="Which latent carries which factor, as the decoder uses it?",
    meaning=(
        "CDS is 1 if each latent responds to one factor only, CCS is 1 if each factor is carried "
        "by one latent only, as the decoder uses them."
    ),
    figure=(
        "Rows are factors, columns are latents: a strong cell is a latent that responds when only "
        "this factor varies, and one strong cell in each row and column is full disentanglement."
    ),
    takes=("autoencoder", "data", "posterior=recording"),
    needs=("two factors",),
    passes="2 * factors * samples * (latents + 1)",
    most=22_000,
    fewest=4,  # the chance level and the intervals tell how uncertain that is
    uses=("response-matrix",),
    maps="units on request",
    map_options={"samples": 32},
)
