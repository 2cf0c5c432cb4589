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
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import (
    Recorded,
    base_responses,
    base_samples,
    posterior_of,
    responses,
)
from zscope.assays.entry import Entry
from zscope.assays.responses.resampling import (
    block_tail,
    block_weights,
    interval,
    resamples_of,
)
from zscope.autoencoder import Autoencoder
from zscope.errors import ConfigError
from zscope.groups import Groups, membership, partition, sums
from zscope.randomness import fresh
from zscope.results import Result, listed
from zscope.types import Codes, Matrix

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["LEAK", "NEGLIGIBLE", "ResponseMatrix", "Rule", "response_matrix", "squared_changes"]

Rule = Literal["absolute", "relative"]
NEGLIGIBLE = 1e-4
LEAK = 0.15
"""Relative responses up to here are leaks, not dependence."""
PARTNER = 0.8


@dataclass(frozen=True, eq=False)
class ResponseMatrix(Result):
    """Rows: the group intervened on. Columns: the group observed."""

    further_plots = ("plot_graph",)

    matrix: Matrix  # the paper's M
    relative: Matrix  # M_jk / (sqrt(2) sigma_k)
    scale: Float[Tensor, " columns"]  # sigma_k
    causal: list[int]
    rule: Rule
    threshold: float
    groups: list[list[int]]
    samples: int
    noise: Float[Tensor, " columns"]  # standard deviation of the posterior / sigma_k
    relative_low: Matrix  # `relative` is above it with 95 % confidence
    interval: Float[Tensor, "2 rows columns"] | None = None  # of matrix, 95 %
    relative_interval: Float[Tensor, "2 rows columns"] | None = None

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
        return [
            ("causal latents", f"{len(self.causal)} of {len(self.groups)}: {listed(self.causal)}"),
            ("mean response", f"{float(diagonal.mean()):.2f} (1 = fully preserved)"),
            ("edges", f"{len(self.edges())} (above {LEAK:g} and above the posterior noise)"),
            ("pairs", listed([f"{j}-{k}" for j, k in self.pairs])),
        ]

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
    groups: Groups | None = None,
    threshold: float = 0.5,
    rule: Rule | None = None,
    resamples: int = 0,
    generator: Generator | None = None,
) -> ResponseMatrix:
    """How strongly each latent responds when another one is replaced.

    `samples` base samples are drawn from the posteriors (each observation at most once).
    `rule=None` means the absolute rule for a model with the prior N(0, I), else the relative
    one. `resamples` > 0 adds an interval for every entry.
    """
    if rule not in (None, "absolute", "relative"):
        raise ConfigError(
            f"response_matrix: rule={rule!r}; use 'absolute' (M_jj >= threshold) or "
            "'relative' (M_jj >= threshold sigma_j)."
        )
    resamples = resamples_of(resamples, "response_matrix")
    generator = fresh(generator)
    base = base_samples(posterior, samples, "response_matrix", generator)
    before = base_responses(autoencoder, posterior, base).mean
    lists = partition(groups, base.shape[1], "response_matrix")
    weights = block_weights(len(base), resamples, generator)
    squares, fourths = squared_changes(autoencoder, base, before, base.roll(-1, 0), lists, weights)
    matrices = squares.sqrt()
    scales = spreads(base, weights, lists)
    unit = 2**0.5 * scales.unsqueeze(1)
    negligible = scales < NEGLIGIBLE * scales.amax(1, keepdim=True)
    silent = negligible.unsqueeze(1) | negligible.unsqueeze(2) | (unit == 0)
    unit = unit.clamp_min(torch.finfo(unit.dtype).tiny)
    relatives = torch.where(silent, 0, matrices / unit)
    low = _lower_bound(squares[0], fourths, len(base)).sqrt()
    variance = posterior_of(posterior, "response_matrix").variance.double().cpu().mean(0)
    deviation = sums(variance, membership(lists, base.shape[1])).sqrt()
    cut = block_tail(len(base))
    rule = rule or ("relative" if autoencoder.prior is None else "absolute")
    return ResponseMatrix(
        matrix=matrices[0],
        relative=relatives[0],
        scale=scales[0],
        causal=_causal(matrices[0].diagonal(), scales[0], negligible[0], lists, rule, threshold),
        rule=rule,
        threshold=threshold,
        groups=lists,
        samples=len(base),
        noise=torch.where(negligible[0], 0, deviation / (unit[0, 0] / 2**0.5)),
        relative_low=torch.where(silent[0], 0, low / unit[0]),
        interval=interval(matrices, cut),
        relative_interval=interval(relatives, cut),
    )


def squared_changes(
    autoencoder: Autoencoder,
    base: Codes,
    before: Codes,
    donors: Codes,
    groups: list[list[int]],
    weights: Tensor,
) -> tuple[Float[Tensor, "resamples intervened observed"], Matrix]:
    """E[ ||R_K(replace(z, J, donor)) - R_K(z)||^2 ] for all groups J, K and each weighting.

    Also the mean fourth powers under the first weighting, which say how certain that is.
    `before` are the responses R(z) to the base samples. The codes of the (groups x samples)
    interventions are built one chunk at a time.
    """
    count = len(base)
    member = membership(groups, base.shape[1]).to(base.device)
    squares = torch.zeros(len(weights), len(groups), len(groups), dtype=torch.float64)
    fourths = torch.zeros_like(squares[0])

    def build(start: int, stop: int) -> Tensor:
        rows = torch.arange(start, stop, device=base.device)
        sample = rows % count
        return torch.where(member[rows // count], donors[sample], base[sample])

    for start, stop, posterior in responses(autoencoder, count * len(groups), build):
        row = start
        while row < stop:  # the part of this chunk that belongs to one group
            group, sample = divmod(row, count)
            end = min(stop, (group + 1) * count)
            change = posterior.mean[row - start : end - start] - before[sample : sample + end - row]
            change_squares = sums(change.double().square(), member).cpu()
            part = weights[:, sample : sample + end - row]
            squares[:, group] += part @ change_squares
            fourths[group] += part[0] @ change_squares.square()
            row = end
    return squares, fourths


def _lower_bound(squares: Tensor, fourths: Tensor, samples: int) -> Tensor:
    """The lower end of a one-sided 95 % interval for the mean squares.

    A square shares a sample with the next one alone. The correlation of neighbours in such a
    sequence is at most 1/2, so the variance of the mean is at most twice that of independent ones.
    """
    variance = 2 * (fourths - squares.square()).clamp_min(0) / samples
    return (squares - 1.645 * variance.sqrt()).clamp_min(0)


def spreads(
    base: Codes, weights: Tensor, groups: list[list[int]]
) -> Float[Tensor, "resamples groups"]:
    """The standard deviation of each group of latents, under each weighting."""
    centred = base.double().cpu() - base.double().cpu().mean(0)
    variance = weights @ centred.square() - (weights @ centred).square()
    return sums(variance.clamp_min(0), membership(groups, base.shape[1])).sqrt()


def _causal(
    diagonal: Tensor,
    scale: Tensor,
    negligible: Tensor,
    groups: list[list[int]],
    rule: Rule,
    threshold: float,
) -> list[int]:
    size = torch.tensor([len(group) for group in groups], dtype=diagonal.dtype).sqrt()
    unit = size if rule == "absolute" else scale
    causal = (diagonal >= threshold * unit) & ~negligible & (scale > 0)
    return causal.nonzero().flatten().tolist()


ENTRY = Entry(
    question="Which latents matter, and which depend on which?",
    takes=("autoencoder", "recording"),
    passes="samples * (latents + 1)",
    most=12_000,
)
