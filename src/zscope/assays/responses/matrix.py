"""Response matrix: which latents matter, and which depend on which?

    M_jk = sqrt( E_{x, z ~ q(z|x), v ~ q_j} [ (R_k(replace(z, j, v)) - R_k(z))^2 ] )

Latent j of each sample z is replaced by that of another sample (the next one in a
random order, so never by itself), and the change of response k is measured: row =
intervened on, column = observed. M_jj is near 0 if the change of latent j is lost, and
sqrt(2) sigma_j if it is fully preserved, with sigma_j the standard deviation of latent j
over the samples. `matrix` is M, as in the paper; `relative` is

    M_jk / (sqrt(2) sigma_k)

and is the identity matrix for an identity autoencoder. Latents are causal when
M_jj >= 0.5 (the paper's rule, for latents of scale 1), or, for models without a prior,
when M_jj >= 0.5 sigma_j. A latent whose standard deviation is below 1e-4 of the largest is
not causal, and its row and column of `relative` are 0, because rounding errors would look
like a response.

Permuting the latents permutes everything; rescaling latent k rescales column k of
`matrix` and does not change `relative`. With `groups`, a group is replaced as a whole and
its response is the Euclidean norm over its members (sigma_k likewise, and the absolute
rule becomes M_jj >= 0.5 sqrt(members)).

Leeb et al., "Interventional assays for the latent space of autoencoders", eq. 5 and
sec. 4.1. Intervals come from resampling blocks of samples (see `resampling`).

Latent k responds to latent j (an edge of the graph) if the entry of `relative` is clearly above
0.15, because a little of every change leaks into all latents, and clearly above the `noise` of
latent k: the standard deviation of its posterior in units of sigma_k, so that a smaller change
is lost among the samples of one posterior. "Clearly" means the lower end of a one-sided 95 %
interval (`relative_low`), which needs no resamples. The paper draws edges from a tenth of the
largest response on, which makes nearly every latent of a model respond to every other.

Of latents that are maps, units are channels (or other `units`): a channel is replaced by that of
the next picture at all places, its response is the Euclidean norm over places, and

    relative = M_jk / A_k,      A_k = sqrt( E ||z'_k - z_k||^2 ),     scale = A_k / sqrt(2)

with A_k the change that was made when unit k was replaced. So the identity autoencoder gives the
identity matrix for any pictures, which sigma_k would only give for many. Units are causal by the
relative rule, whatever the prior: such latents are not of scale 1. With `patch` = (y, x, size) they
are replaced in a square of places alone, with its first place at (y, x); A_k is then that of
these places, and `inside` the share of the squared response there. Permuting, shifting or scaling
channels changes neither `relative` nor `inside`, but for their order. The definition is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import (
    Recorded,
    base_samples,
    posterior_of,
    responses,
)
from zscope.assays.entry import Entry
from zscope.assays.pictures import shared_responses
from zscope.assays.responses.resampling import (
    block_tail,
    block_weights,
    interval,
    resamples_of,
)
from zscope.assays.units import Units, UnitsOption, units_of
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError
from zscope.groups import Groups
from zscope.layout import Layout
from zscope.randomness import fresh
from zscope.results import Result, listed
from zscope.types import Codes, Matrix

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "LEAK", "NEGLIGIBLE", "Changes", "ResponseMatrix", "Rule", "matrix_of", "only_inside",
    "patch_of", "response_matrix", "squared_changes",
]  # fmt: skip

Rule = Literal["absolute", "relative"]
NEGLIGIBLE = 1e-4
LEAK = 0.15
"""Relative responses up to here are leaks, not dependence."""
PARTNER = 0.8
AT_ONCE = 256
"""Posteriors of maps whose variances are in memory at a time."""


@dataclass(frozen=True, eq=False)
class ResponseMatrix(Result):
    """Rows: the group intervened on. Columns: the group observed."""

    further_plots = ("plot_graph",)

    matrix: Matrix  # the paper's M
    relative: Matrix  # M_jk / (sqrt(2) sigma_k)
    scale: Float[Tensor, " columns"]  # sigma_k; of maps A_k / sqrt(2)
    causal: list[int]
    rule: Rule
    threshold: float
    groups: list[list[int]]
    samples: int
    noise: Float[Tensor, " columns"]  # standard deviation of the posterior / sigma_k
    relative_low: Matrix  # `relative` is above it with 95 % confidence
    interval: Float[Tensor, "2 rows columns"] | None = None  # of matrix, 95 %
    relative_interval: Float[Tensor, "2 rows columns"] | None = None
    patch: tuple[int, ...] | None = None  # the only places that were changed: first place, size
    inside: Matrix | None = None  # the share of the squared response at these places

    def to_dict(self) -> dict[str, Any]:
        """Without a patch, if there was none."""
        left_out = ("patch", "inside") if self.patch is None else ()
        return {name: value for name, value in super().to_dict().items() if name not in left_out}

    def edges(self, threshold: float = LEAK) -> list[tuple[int, int]]:
        """(intervened, observed) between different causal groups that clearly respond.

        The lower bound of the relative response is above `threshold` and above the noise of the
        group that responds.
        """
        clear = (self.relative_low > threshold) & (self.relative_low > self.noise)
        return [(j, k) for j in self.causal for k in self.causal if j != k and clear[j, k]]

    def graph(self, threshold: float = LEAK) -> "nx.DiGraph":
        """The causal groups as nodes (`response`), edges with their `weight`; both relative.

        Cycles are common: a variable encoded by two latents is one.
        """
        import networkx as nx

        graph = nx.DiGraph()
        for j in self.causal:
            graph.add_node(j, response=float(self.relative[j, j]), members=self.groups[j])
        for j, k in self.edges(threshold):
            graph.add_edge(j, k, weight=float(self.relative[j, k]))
        return graph

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs that may encode one variable: each responds to the other, above all others.

        There are edges in both directions, the responses are within a factor of two of each other
        (sec. 4.1), and each group is the other's strongest partner (by the weaker of the two
        directions; within a fifth, so that a variable in three latents is three pairs).
        """
        edges = set(self.edges())
        if not edges:
            return []
        weaker = torch.minimum(self.relative, self.relative.T)
        weaker = weaker - weaker.diagonal().diag()
        strongest = PARTNER * weaker[self.causal].amax(0)
        return [
            (j, k)
            for j, k in sorted(edges)
            if j < k
            and (k, j) in edges
            and 0.5 <= float(self.relative[j, k] / self.relative[k, j]) <= 2
            and float(weaker[j, k]) >= max(float(strongest[j]), float(strongest[k]))
        ]

    def summary(self) -> list[tuple[str, str]]:
        diagonal = self.relative.diagonal()
        lines = [
            ("causal latents", f"{len(self.causal)} of {len(self.groups)}: {listed(self.causal)}"),
            ("mean response", f"{float(diagonal.mean()):.2f} (1 = fully preserved)"),
            ("edges", f"{len(self.edges())} (above {LEAK:g} and above the posterior noise)"),
            ("pairs", listed([f"{j}-{k}" for j, k in self.pairs])),
        ]
        if self.inside is not None:
            own = listed([f"{float(share):.2f}" for share in self.inside.diagonal()])
            lines.append(("response inside the patch", f"{own} (1 = all of it)"))
        return lines

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import heatmap

        return heatmap(
            self.relative,
            x="observed latent",
            y="intervened latent",
            label="relative response",
            marks=self.causal,
            ax=ax,
        )

    def plot_graph(self, ax: Any = None, *, threshold: float = LEAK) -> Any:
        """The causal latents as a graph, with the candidate pairs in red."""
        from zscope.plots import causal_graph

        return causal_graph(self.graph(threshold), pairs=self.pairs, ax=ax)


@accepts_recording
def response_matrix(
    autoencoder: Autoencoder,
    posterior: Recorded,
    *,
    samples: int = 1024,
    units: UnitsOption = "auto",
    groups: Groups | None = None,
    patch: Sequence[int] | None = None,
    threshold: float = 0.5,
    rule: Rule | None = None,
    resamples: int = 0,
    generator: Generator | None = None,
) -> ResponseMatrix:
    """How strongly each latent responds when another one is replaced.

    `samples` base samples are drawn from the posteriors (each observation at most once).
    `rule=None` means the absolute rule for a model with the prior N(0, I), else the relative
    one. `resamples` > 0 adds an interval for every entry. `units` are what is replaced as a
    whole (`assays.units`): single latents or, of maps, channels; `groups` is another name for a
    partition. `patch` = (y, x, size) changes maps only there: the first place along each axis,
    then the number of places along all of them.
    """
    if rule not in (None, "absolute", "relative"):
        raise ConfigError(
            f"response_matrix: rule={rule!r}; use 'absolute' (M_jj >= threshold) or "
            "'relative' (M_jj >= threshold sigma_j)."
        )
    who = "response_matrix"
    resamples = resamples_of(resamples, who)
    generator = fresh(generator)
    base = base_samples(posterior, samples, who, generator)
    recorded = posterior_of(posterior, who)
    chosen = units_of(who, units, groups, base.shape[1], recorded.layout, rounds=len(base))
    chosen.enough(who, len(recorded))
    return matrix_of(
        who,
        autoencoder,
        posterior,
        base,
        chosen,
        patch=patch,
        threshold=threshold,
        rule=rule,
        weights=block_weights(len(base), resamples, generator),
    )


def matrix_of(
    who: str,
    autoencoder: Autoencoder,
    posterior: Recorded,
    base: Codes,
    chosen: Units,
    *,
    patch: Sequence[int] | None,
    threshold: float,
    rule: Rule | None,
    weights: Tensor,
) -> ResponseMatrix:
    """The response matrix of these base samples of the posteriors, under each weighting."""
    recorded = posterior_of(posterior, who)
    inside = patch_of(patch, recorded.layout, chosen, who)
    before = shared_responses(autoencoder, posterior, base, who).mean
    donors = only_inside(base.roll(-1, 0), base, inside)
    changes = squared_changes(autoencoder, base, before, donors, chosen, weights, inside)
    matrices = changes.squares.sqrt()
    if recorded.layout is None:
        scales = spreads(base, weights, chosen)
    else:
        made = chosen.sums((donors - base).double().square()).cpu()
        scales = (weights @ made / 2).sqrt()
    unit = 2**0.5 * scales.unsqueeze(1)
    negligible = scales < NEGLIGIBLE * scales.amax(1, keepdim=True)
    silent = negligible.unsqueeze(1) | negligible.unsqueeze(2) | (unit == 0)
    unit = unit.clamp_min(torch.finfo(unit.dtype).tiny)
    relatives = torch.where(silent, 0, matrices / unit)
    low = _lower_bound(changes.squares[0], changes.fourths, len(base)).sqrt()
    deviation = chosen.sums(_mean_variance(recorded, inside)).sqrt()
    cut = block_tail(len(base))
    absolute = autoencoder.prior is not None and recorded.layout is None
    rule = rule or ("absolute" if absolute else "relative")
    return chosen.name(
        ResponseMatrix(
            matrix=matrices[0],
            relative=relatives[0],
            scale=scales[0],
            causal=_causal(
                matrices[0].diagonal(), scales[0], negligible[0], chosen, rule, threshold
            ),
            rule=rule,
            threshold=threshold,
            groups=chosen.lists,
            samples=len(base),
            noise=torch.where(negligible[0], 0, deviation / (unit[0, 0] / 2**0.5)),
            relative_low=torch.where(silent[0], 0, low / unit[0]),
            interval=interval(matrices, cut),
            relative_interval=interval(relatives, cut),
            patch=None if patch is None else tuple(int(each) for each in patch),
            inside=None if inside is None else changes.share_inside,
        )
    )


@dataclass(frozen=True, eq=False)
class Changes:
    """Mean squared changes of responses: intervened x observed."""

    squares: Float[Tensor, "resamples intervened observed"]
    fourths: Matrix  # mean fourth powers under the first weighting
    inside: Matrix | None  # mean squares at some latents alone, under the first weighting

    @property
    def share_inside(self) -> Matrix | None:
        """The share of the squares at these latents; 0 without any change."""
        if self.inside is None:
            return None
        whole = self.squares[0]
        return torch.where(whole > 0, self.inside / whole.clamp_min(1e-300), 0)


def squared_changes(
    autoencoder: Autoencoder,
    base: Codes,
    before: Codes,
    donors: Codes,
    units: Units,
    weights: Tensor,
    inside: Tensor | None = None,
) -> Changes:
    """E[ ||R_K(replace(z, J, donor)) - R_K(z)||^2 ] for all units J, K and each weighting.

    Also the mean fourth powers under the first weighting, which say how certain that is.
    `before` are the responses R(z) to the base samples. The codes of the (units x samples)
    interventions are built one chunk at a time. `inside` marks latents whose squares are wanted
    separately.
    """
    count = len(base)
    number = units.number.to(base.device)
    squares = torch.zeros(len(weights), len(units), len(units), dtype=torch.float64)
    fourths = torch.zeros_like(squares[0])
    within = None if inside is None else torch.zeros_like(fourths)

    def build(start: int, stop: int) -> Tensor:
        rows = torch.arange(start, stop, device=base.device)
        sample = rows % count
        return torch.where(number == (rows // count)[:, None], donors[sample], base[sample])

    for start, stop, posterior in responses(autoencoder, count * len(units), build):
        row = start
        while row < stop:  # the part of this chunk that belongs to one unit
            unit, sample = divmod(row, count)
            end = min(stop, (unit + 1) * count)
            change = posterior.mean[row - start : end - start] - before[sample : sample + end - row]
            each = change.double().square()
            change_squares = units.sums(each).cpu()
            part = weights[:, sample : sample + end - row]
            squares[:, unit] += part @ change_squares
            fourths[unit] += part[0] @ change_squares.square()
            if within is not None and inside is not None:
                within[unit] += part[0] @ units.sums(each * inside.to(each)).cpu()
            row = end
    return Changes(squares, fourths, within)


def _lower_bound(squares: Tensor, fourths: Tensor, samples: int) -> Tensor:
    """The lower end of a one-sided 95 % interval for the mean squares.

    A square shares a sample with the next one alone. The correlation of neighbours in such a
    sequence is at most 1/2, so the variance of the mean is at most twice that of independent ones.
    """
    variance = 2 * (fourths - squares.square()).clamp_min(0) / samples
    return (squares - 1.645 * variance.sqrt()).clamp_min(0)


def spreads(base: Codes, weights: Tensor, units: Units) -> Float[Tensor, "resamples units"]:
    """The standard deviation of each unit, under each weighting."""
    centred = base.double().cpu() - base.double().cpu().mean(0)
    variance = weights @ centred.square() - (weights @ centred).square()
    return units.sums(variance.clamp_min(0)).sqrt()


def _mean_variance(posterior: Posterior, inside: Tensor | None) -> Tensor:
    """The mean posterior variance of each latent; 0 where they are not of interest."""
    if posterior.layout is None:
        return posterior.variance.double().cpu().mean(0)
    total = torch.zeros(posterior.latents, dtype=torch.float64)
    for start in range(0, 0 if posterior.deterministic else len(posterior), AT_ONCE):
        total += posterior[start : start + AT_ONCE].variance.double().cpu().sum(0)
    mean = total / len(posterior)
    return mean if inside is None else mean * inside


def patch_of(
    patch: Sequence[int] | None, layout: Layout | None, units: Units, who: str
) -> Tensor | None:
    """Which latents lie in a patch of places; None if there is none."""
    if patch is None:
        return None
    if layout is None or units.unit not in ("channel", "group"):
        of = "a vector, without places" if layout is None else f"changed by units={units.unit!r}"
        raise ConfigError(
            f"{who}: patch={tuple(patch)}, but the latents are {of}. A patch is a part of the "
            "channels of maps: leave it out, or use units='channel'."
        )
    *first, size = map(int, patch)
    places = " x ".join(map(str, layout.places))
    fits = len(first) == len(layout.places) and size > 0
    if not fits or any(
        at < 0 or at + size > length for at, length in zip(first, layout.places, strict=True)
    ):
        example = (*(length // 4 for length in layout.places), max(1, min(layout.places) // 2))
        raise ConfigError(
            f"{who}: patch={tuple(patch)} in maps of {places} places; expected the first place "
            f"along each axis and then the size, all within the map, for instance patch={example}."
        )
    marked = torch.zeros(layout.shape, dtype=torch.bool)
    marked[(slice(None), *(slice(at, at + size) for at in first))] = True
    return layout.flat(marked)


def only_inside(donors: Codes, base: Codes, inside: Tensor | None) -> Codes:
    """The donors of a patch, and the base samples themselves at all other places."""
    return donors if inside is None else torch.where(inside.to(base.device), donors, base)


def _causal(
    diagonal: Tensor,
    scale: Tensor,
    negligible: Tensor,
    units: Units,
    rule: Rule,
    threshold: float,
) -> list[int]:
    size = torch.tensor([len(group) for group in units.lists], dtype=diagonal.dtype).sqrt()
    unit = size if rule == "absolute" else scale
    causal = (diagonal >= threshold * unit) & ~negligible & (scale > 0)
    return causal.nonzero().flatten().tolist()


ENTRY = Entry(
    question="Which latents matter, and which depend on which?",
    meaning=(
        "A latent whose own response is near 1 keeps a change that is made to it, one near 0 loses "
        "it; other entries of its row say which latents change along with it."
    ),
    figure=(
        "Rows are the latents that were changed, columns those that were observed: a strong "
        "diagonal means that changes survive, a strong cell off it that the column's latent "
        "depends on the row's."
    ),
    takes=("autoencoder", "recording"),
    passes="samples * (latents + 1)",
    most=12_000,
    maps="units",
)
