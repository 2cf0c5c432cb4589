"""Codes against PCA: are the latents the principal components of the observations?

With k the number of latents in use, M their codes (posterior means), T the scores of the
observations on their first k principal directions, both centred, and Q an orthonormal basis
of the columns of each:

    space   canonical correlations ρ_i = singular values of Q_M^T Q_T, angles arccos ρ_i
    axes    C_jl = |corr(μ_j, t_l)|; each latent is matched with one component so that the
            matched correlations are largest in sum; their mean is the score
    order   Spearman correlation of the ranks of the latents by mean posterior variance (smallest
            first) and the numbers of their matched components

A linear VAE finds the space, the axes and the order: 1, 1, 1. A linear autoencoder without noise
finds the space only; its axes are arbitrary. `chance` is the score of the right space with axes
that are rotated at random (Haar measure): 2√2/π = 0.900 for two latents, 0.828 for three, 0.729
for five.

All are unchanged by rotating, shifting or uniformly scaling the observations and by permuting,
flipping, shifting or scaling latents. An invertible linear map of the codes leaves the space as
it is, and changes the axes. Where two eigenvalues are (nearly) equal, the components themselves
are arbitrary: this is flagged.

Where latents are maps, the channels at a place are compared with the principal components of the
pixels that belong to it, over pictures (`assays.active` says which place): channels that are the
principal components of patches have 1, 1, 1.

`points` > 0 asks the same of small neighbourhoods: at that many points, among the `neighbours`
observations (50 by default) with the nearest codes, in units of the standard deviation of each
latent. The nearest observations would not do: they fill a ball, which has no principal directions.
Of 50 unrelated rows, canonical correlations are about sqrt(k / 50), not 0.

Rolinek, Zietlow & Martius, "Variational autoencoders pursue PCA directions (by accident)", CVPR
2019; Zietlow, PhD thesis, Tübingen 2022, theorem 2; for the order Lucas et al., "Don't blame the
ELBO!", NeurIPS 2019. The three numbers are ours.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from zscope.assays.active import (
    AtPlace,
    Place,
    Rule,
    check_two_active,
    choose_columns,
    map_layout,
    random_rows,
)
from zscope.assays.alignment.distance_to_orthogonality import random_orthogonal
from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded, posterior_of
from zscope.assays.entry import Entry
from zscope.assays.matrices import Array, as_rows, centre, unit_scale
from zscope.errors import ConfigError, Undefined
from zscope.layout import Layout
from zscope.map_summary import with_channels
from zscope.randomness import fresh
from zscope.recording import Recording
from zscope.results import Measure, Scored
from zscope.types import Codes, Matrix, Spectrum, as_tensor

__all__ = ["CodesAgainstPCA", "codes_against_pca", "matched_chance"]

FLAT = 1e-6  # of the largest singular value: below it there is no direction
EQUAL = 0.01  # relative difference of eigenvalues, below which components are arbitrary
DIRECT = 256  # matrices with fewer rows or columns are decomposed completely
COPY_BYTES = 32 * 2**20
"""Of observations in double precision, of which several copies are made."""
BLOCK_BYTES = 4 * 2**20
PerPoint = Float[Tensor, " points"]
Canonical = Float[Tensor, " shared"]
Rows = Float[Tensor, "samples features"]
Eigenvalues = Float[Tensor, " eigenvalues"]  # one more than there are components


@dataclass(frozen=True, eq=False)
class Local:
    """The three answers around each point; those without an answer are left out."""

    axes: PerPoint
    space: PerPoint  # mean canonical correlation
    order: Float[Tensor, " ordered"]  # may be shorter: posterior variances can be equal
    neighbours: int
    skipped: int  # points where the neighbours vary along too few directions


@dataclass(frozen=True, eq=False)
class CodesAgainstPCA(AtPlace, Scored):
    axes: float  # mean matched correlation
    chance: float  # of the axes
    space: float  # mean canonical correlation
    order: float | None  # None without posterior variances, or if all are equal
    samples: int
    active: list[int]
    passive: list[int]
    matched: list[int]  # the component of each active latent, from 0
    correlations: Matrix  # |corr|: active latents x components
    canonical: Canonical  # largest first
    angles: Canonical  # degrees, smallest first
    eigenvalues: Spectrum  # of the first components
    explained: float  # share of the variance of the observations in them
    spreads: Spectrum  # variance of the codes of each active latent
    variances: Spectrum | None  # mean posterior variance of each active latent
    points: int  # neighbourhoods asked for
    local_axes: PerPoint
    local_space: PerPoint
    local_order: Float[Tensor, " ordered"]
    flags: list[str]

    why_no_interval = "it describes the codes at hand; training with another seed changes far more"
    score_fields = ("axes", "space", "order")

    @property
    def score(self) -> float:
        return self.axes

    def measures(self) -> list[Measure]:
        unrelated = f"about {math.sqrt(len(self.active) / self.samples):.2g} for unrelated codes"
        parts = [
            self.measure("", self.axes),
            self.measure("space", self.space, chance=unrelated),
        ]
        if self.order is not None:
            parts.append(self.measure("order", self.order, chance=0.0))
        if len(self.local_axes):
            count = len(self.local_axes)
            parts.append(self.measure("local axes", float(self.local_axes.mean()), samples=count))
            space, few = float(self.local_space.mean()), "that of few unrelated rows is far above 0"
            parts.append(self.measure("local space", space, chance=few, samples=count))
        if len(self.local_order):
            mean, count = float(self.local_order.mean()), len(self.local_order)
            parts.append(self.measure("local order", mean, chance=0.0, samples=count))
        return parts

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import heatmap

        # Rows in the order of their components, so that aligned latents are a diagonal.
        rows = sorted(range(len(self.active)), key=lambda row: self.matched[row])
        return heatmap(
            self.correlations[rows],
            rows=[str(self.active[row]) for row in rows],
            columns=[str(component + 1) for component in range(len(rows))],
            x="principal component",
            y="latent",
            label="|correlation|",
            title=f"axes {self.axes:.2f} (chance {self.chance:.2f}), space {self.space:.2f}",
            limit=1.0,
            ax=ax,
        )


@accepts_recording
def codes_against_pca(
    observations: Array,
    codes: Recorded,
    *,
    active: Rule = "used",
    place: Place = None,
    samples: int = 2000,
    points: int = 0,
    neighbours: int = 50,
    generator: Generator | None = None,
) -> CodesAgainstPCA:
    """Compare codes with the principal components of at most `samples` observations.

    `codes` are those of the observations, row by row; a posterior also tells the order. `active`
    selects the latents, as in `distance_to_orthogonality`. `points` neighbourhoods of
    `neighbours` observations are compared in the same way. `place` is that of latents that are
    maps. Raises `Undefined` for fewer than
    two active latents, or if the observations vary along fewer directions.
    """
    who = "codes_against_pca"
    posterior = posterior_of(codes, who)
    x = as_tensor(observations, who)
    if x.ndim == 0 or len(x) != len(posterior):
        raise Undefined(
            f"{who}: observations of shape {tuple(x.shape)} and {len(posterior)} codes; row i of "
            "both must belong together. Record the observations: zs.record(model, data)"
        )
    model = codes.model if isinstance(codes, Recording) else None
    generator = fresh(generator)
    columns = choose_columns(
        who, model, codes, active=active, place=place, samples=samples, generator=generator
    )
    check_two_active(who, columns)
    chosen, part = columns.active, columns.posterior
    _check_sizes(who, len(chosen), points, neighbours)
    x = x[columns.rows.to(x.device)]
    layout = map_layout(model, codes, who)
    if layout is not None and not isinstance(columns.latents, list):
        x = _patches(who, x, layout, columns.latents[:, 0] % layout.positions)
    x = _rows_of(who, x, len(chosen) + 2)
    means = as_rows(columns.of(part.mean), who).cpu()
    variances = None if part.deterministic else columns.of(part.variance).double().cpu()
    whole = _compare(who, means, x, variances)
    local = _around_points(who, means, x, variances, points, neighbours, generator)
    result = CodesAgainstPCA(
        axes=whole.axes,
        chance=matched_chance(len(chosen)),
        space=float(whole.canonical.mean()),
        order=whole.order,
        samples=len(x),
        active=chosen,
        passive=columns.passive,
        matched=whole.matched,
        correlations=whole.correlations,
        canonical=whole.canonical,
        angles=whole.angles,
        eigenvalues=whole.eigenvalues[: len(chosen)],
        explained=min(1.0, float(whole.eigenvalues[: len(chosen)].sum()) / whole.total),
        spreads=means.var(0, correction=0),
        variances=None if variances is None else variances.mean(0),
        points=points,
        local_axes=local.axes,
        local_space=local.space,
        local_order=local.order,
        flags=[*_flags(whole, len(chosen)), *_local_flags(local, points)],
        place=columns.place,
    )
    return columns.name(result)


def _patches(who: str, x: Tensor, layout: Layout, place: Tensor) -> Rows:
    """The pixels that belong to a place of each picture, as rows."""
    x = with_channels(x, layout)  # sound may come as rows
    axes, sides = len(layout.places), tuple(x.shape[2:])
    if len(sides) != axes or any(a % b for a, b in zip(sides, layout.places, strict=True)):
        raise Undefined(
            f"{who}: pictures of {' x '.join(map(str, x.shape[1:]))} cannot be divided into "
            f"{' x '.join(map(str, layout.places))} places, so that a place has no pixels of its "
            "own to compare with. Use pictures whose sides are multiples of those of the maps."
        )
    cut = x.reshape(
        *x.shape[:2],
        *(part for a, b in zip(sides, layout.places, strict=True) for part in (b, a // b)),
    )
    first = [2 + 2 * axis for axis in range(axes)]
    by_place = cut.permute(0, *first, 1, *(axis + 1 for axis in first))
    rows: Tensor = by_place.flatten(1, axes)[torch.arange(len(x)), place.to(x.device)]
    return rows.flatten(1)


def _check_sizes(who: str, latents: int, points: int, neighbours: int) -> None:
    if points < 0 or (points and neighbours < latents + 2):
        raise ConfigError(
            f"{who}: points={points}, neighbours={neighbours}; expected points >= 0, and at least "
            f"{latents + 2} neighbours for {latents} latents. The default is 50."
        )


@dataclass(frozen=True, eq=False)
class _Comparison:
    axes: float
    order: float | None
    matched: list[int]
    correlations: Matrix
    canonical: Canonical
    angles: Canonical
    eigenvalues: Eigenvalues
    total: float  # variance of the observations
    dependent: int  # directions of the codes that are missing


def _compare(who: str, means: Codes, x: Rows, variances: Codes | None) -> _Comparison:
    from scipy.optimize import linear_sum_assignment

    latents = means.shape[1]
    codes = centre(means)
    lengths = codes.norm(dim=0)
    if not lengths.all():
        raise Undefined(
            f"{who}: {int((lengths == 0).sum())} of {latents} active latents have the same code in "
            f"all {len(codes)} rows, so they are correlated with nothing. Choose others: active=[…]"
        )
    scores, eigenvalues, total = principal_scores(x, latents)
    rank = int((eigenvalues[:latents] > FLAT**2 * eigenvalues[0]).sum())
    if rank < latents:
        raise Undefined(
            f"{who}: {latents} latents are in use, but {len(x)} observations vary along {rank} "
            "directions only. Record more observations, or choose fewer latents: active=[…]"
        )
    units = codes / lengths
    components = scores / scores.norm(dim=0)  # already orthogonal
    correlations = (units.T @ components).abs().clamp(max=1)
    latent, component = linear_sum_assignment(-correlations.numpy())
    basis, sizes, _ = torch.linalg.svd(units, full_matrices=False)
    basis = basis[:, sizes > 1e-8 * sizes[0]]
    canonical = torch.linalg.svdvals(basis.T @ components).clamp(max=1)
    # The sines, of what is outside of the space, are exact where the cosines are nearly 1.
    outside = torch.linalg.svdvals(basis - components @ (components.T @ basis)).flip(0)
    angles = torch.where(canonical > 0.7, outside.clamp(max=1).arcsin(), canonical.arccos())
    return _Comparison(
        axes=float(correlations[latent, component].mean()),
        order=None if variances is None else _rank_correlation(variances.mean(0), component),
        matched=component.tolist(),
        correlations=correlations,
        canonical=canonical,
        angles=angles.rad2deg(),
        eigenvalues=eigenvalues,
        total=total,
        dependent=latents - basis.shape[1],
    )


def _rows_of(who: str, x: Tensor, least: int) -> Rows:
    """The observations as rows: in double precision only where they are small."""
    if 8 * x.numel() <= COPY_BYTES or x.dtype != torch.float32 or len(x) < least:
        return as_rows(x, who, least=least).cpu()
    rows = x.detach().flatten(1).cpu()
    parts = rows.split(max(1, BLOCK_BYTES // (8 * rows.shape[1])))
    if not all(part.double().sum().isfinite() for part in parts):
        as_rows(rows, who)  # says which rows are NaN or infinite
    return rows


def _no_directions(count: int) -> Undefined:
    return Undefined(
        f"codes_against_pca: all {count} observations are equal, so they have no principal "
        "directions. Record observations that differ."
    )


def principal_scores(
    x: Rows, count: int
) -> tuple[Float[Tensor, "samples components"], Eigenvalues, float]:
    """Scores on the first `count` principal directions, eigenvalues (one more, if there is one)
    and the variance of all features together."""
    if 8 * x.numel() > COPY_BYTES:
        return _scores_of_many(x, count)
    x = x.double()
    centred = centre(x)
    if not centred.any():
        raise _no_directions(len(x))
    scaled = unit_scale(centred)
    unit = float((centred.abs().max() / scaled.abs().max()).square())
    small = min(scaled.shape)
    if small <= DIRECT or count + 1 >= small // 4:
        U, values, _ = torch.linalg.svd(scaled, full_matrices=False)
    else:
        from scipy.sparse.linalg import svds

        start = np.ones(small)
        left, sizes, _ = svds(scaled.numpy(), k=count + 1, v0=start, return_singular_vectors="u")
        order = np.argsort(-sizes)
        U, values = torch.from_numpy(left[:, order].copy()), torch.from_numpy(sizes[order].copy())
    values = torch.nn.functional.pad(values, (0, max(0, count - len(values))))
    scores = U[:, :count] * values[: U.shape[1]][:count] * math.sqrt(unit)
    total = float(scaled.square().sum()) / len(x) * unit
    return scores, values[: count + 1].square() / len(x) * unit, total


def _scores_of_many(
    x: Rows, count: int
) -> tuple[Float[Tensor, "samples components"], Eigenvalues, float]:
    """The same from inner products of the rows, summed over blocks of features.

    Copies of all features in double precision would not fit. Directions whose standard deviations
    are 1e-7 of the largest and less are lost to rounding, as they are in single precision.
    """
    unit = float(torch.stack(torch.aminmax(x)).abs().max())
    gram = torch.zeros(len(x), len(x), dtype=torch.float64)
    for block in x.split(max(1, BLOCK_BYTES // (8 * len(x))), 1):
        part = centre(block.double() / max(unit, 1e-300))
        gram.addmm_(part, part.T)
    total = float(gram.trace())
    if not total > 0:
        raise _no_directions(len(x))
    if count + 1 >= len(x) // 4:
        values, vectors = torch.linalg.eigh(gram)
    else:
        from scipy.sparse.linalg import eigsh

        found, columns = eigsh(gram.numpy(), k=count + 1, v0=np.ones(len(x)))
        order = np.argsort(found)
        values = torch.from_numpy(found[order].copy())
        vectors = torch.from_numpy(columns[:, order].copy())
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    scores = vectors[:, :count] * values[:count].sqrt() * unit
    return scores, values[: count + 1] / len(x) * unit**2, total / len(x) * unit**2


def _rank_correlation(variances: Spectrum, components: Int[np.ndarray, " latents"]) -> float | None:
    """Spearman's correlation; None if all variances are equal."""
    from scipy.stats import spearmanr

    if float(variances.max() - variances.min()) <= 1e-9 * float(variances.max()):
        return None
    return float(spearmanr(variances.numpy(), components).statistic)


def _around_points(
    who: str,
    means: Codes,
    x: Rows,
    variances: Codes | None,
    points: int,
    neighbours: int,
    generator: Generator,
) -> Local:
    axes, space, order, skipped = [], [], [], 0
    if points and len(x) < neighbours:
        raise Undefined(
            f"{who}: {len(x)} observations, and neighbourhoods of {neighbours}. Record more, raise "
            "samples, or ask for fewer neighbours."
        )
    chosen = random_rows(len(x), points, generator, who) if points else torch.arange(0)
    units = means / means.std(0)
    for row in chosen.tolist():
        near = (units - units[row]).square().sum(1).topk(neighbours, largest=False).indices
        spread = None if variances is None else variances[near]
        try:
            each = _compare(who, means[near], x[near], spread)
        except Undefined:
            skipped += 1
            continue
        axes.append(each.axes)
        space.append(float(each.canonical.mean()))
        order += [] if each.order is None else [each.order]
    if skipped and not axes:
        raise Undefined(
            f"{who}: around all {points} points the {neighbours} nearest codes, or their "
            "observations, vary along too few directions. Are many observations equal? Ask for "
            "more neighbours."
        )
    return Local(
        axes=torch.tensor(axes, dtype=torch.float64),
        space=torch.tensor(space, dtype=torch.float64),
        order=torch.tensor(order, dtype=torch.float64),
        neighbours=neighbours,
        skipped=skipped,
    )


@cache
def matched_chance(latents: int) -> float:
    """The mean matched correlation of components that are rotated at random (Haar measure).

    For two latents exactly 2√2/π = 0.900; for more the mean of seeded draws, within 0.001.
    """
    if latents == 1:
        return 1.0
    if latents == 2:
        return 2 * math.sqrt(2) / math.pi
    from scipy.optimize import linear_sum_assignment

    draws = max(40, min(20_000, 8_000_000 // latents**2))
    return float(
        np.mean(
            [
                each[linear_sum_assignment(-each)].mean()
                for part in random_orthogonal(draws, latents, seed=latents)
                for each in part.abs().numpy()
            ]
        )
    )


def _flags(whole: _Comparison, latents: int) -> list[str]:
    flags = []
    values = whole.eigenvalues
    gaps = (values[:-1] - values[1:]) / values[:-1].clamp(min=1e-300)
    equal = [k + 1 for k, gap in enumerate(gaps[:latents].tolist()) if gap < EQUAL]
    if equal:
        pairs = ", ".join(f"{k} and {k + 1}" for k in equal)
        flags.append(
            f"Principal components {pairs} have eigenvalues that differ by less than {EQUAL:.0%}: "
            "their directions are arbitrary, and correlations with them have little meaning."
        )
    if whole.dependent:
        flags.append(
            f"The codes of {latents} latents span {latents - whole.dependent} directions only: "
            "some latents are linear functions of others."
        )
    return flags


def _local_flags(local: Local, points: int) -> list[str]:
    if not local.skipped:
        return []
    return [
        f"Left out {local.skipped} of {points} points: their {local.neighbours} nearest "
        "codes, or the observations of these, vary along too few directions."
    ]


ENTRY = Entry(
    question="Are the latents the principal components of the observations?",
    meaning=(
        "1 if the latents are the principal components of the data, one for one; compare with "
        "chance, which is what randomly rotated axes in the right space would have."
    ),
    figure=(
        "Correlation of each latent (row) with each principal component (column): a strong "
        "diagonal means that the latents are principal components in their order."
    ),
    takes=("observations", "recording"),
    needs=("two latents",),
    better="higher",
    maps="place",
    map_options={"samples": 2000},
)
