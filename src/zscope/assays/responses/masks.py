"""Masks: which edges of a causal block are open, and what would closing them change?

A causal block computes causes Z from noises N, Z_i = f_i(M_i ⊙ Z_1..Z_{i-1}, N_i). Its gates
M are open or closed when the model is used; while it is trained, edge (p, c) from parent p to
child c is open with probability sigmoid(logit_pc). An open gate says little by itself: with N
the codes of observations x, Z and x̂ what the block and the decoder make of them, and ' for the
same model with one open edge closed,

    error_pc   E ||x - x̂'||² - E ||x - x̂||²           (0 for edges that are closed already)
    causes_pc  ( Var(Z'_c - Z_c) / Var Z_c )^1/2        the child's cause, in its own spread
    SCN_pc     SCN' - SCN                              the change of self-consistency

A constant shift of a cause is no dependence and is left out: where all causes are nearly
constant, as after a collapse, it would be hundreds of their standard deviations.

An edge is *needed* if closing it raises the error by more than `least` of the error, also at
the lower end of the 95 % interval (twice the standard error of the paired difference). "Without
edges" is the model with all of them closed. The codes are those of the model as it is: an edge
that is not needed may still have shaped them in training. SCN is the mean over units of
1 - E|N'_i - N_i| / sigma_i, with N' the decoded codes encoded again and sigma_i the standard
deviation of N'_i (see `interventional_consistency`); units whose N'_i hardly varies are left out.

Shares of open edges are of the n(n - 1)/2 possible ones. The "sparsity" in table 1 of the
paper is of all n² cells: a full triangle has (n - 1)/2n, which are its printed numbers.

"On the interventional consistency of autoencoders", section 2.2, table 1 and figures 30-33.
Closing edges one by one is ours.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import chunk_size, encode_alone, location
from zscope.assays.entry import Entry
from zscope.assays.responses.matrix import NEGLIGIBLE, ResponseMatrix
from zscope.autoencoder import Autoencoder, WithCausalBlock, evaluation
from zscope.errors import ConfigError, Undefined
from zscope.randomness import fresh
from zscope.results import Measure, Scored, listed
from zscope.sampling import recorded_codes
from zscope.types import Codes, Observations, as_tensor

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Masks", "masks"]

Square = Float[Tensor, "parents children"]


@dataclass(frozen=True, eq=False)
class Masks(Scored):
    """Matrices are parents x children, 0 where no edge is possible."""

    why_no_interval = "gates are weights of the model, not estimates from data"
    why_no_chance = "a block that has learned nothing keeps the edges it started with"
    further_plots = ("plot_effects", "plot_graph")

    score: float  # share of the possible edges that are open
    probabilities: Square
    adjacency: Bool[Tensor, "parents children"]
    error: float  # mean ||x - x̂||² with the open edges
    error_rise: Square  # of closing each open edge
    standard_error: Square
    cause_change: Square
    error_without_edges: float
    standard_error_without_edges: float
    standard_error_of_rise: float  # of error_without_edges / error, a ratio (delta method)
    cause_change_without_edges: Float[Tensor, " children"]
    needed: list[tuple[int, int]]  # (parent, child)
    least: float
    samples: int
    responses: list[tuple[int, int, float]] | None = None  # edges of the response graph
    response_pairs: list[tuple[int, int]] = field(default_factory=list)
    self_consistency: float | None = None  # of the codes; None if no unit responds
    self_consistency_change: Square | None = None  # of closing each open edge
    self_consistency_without_edges: float | None = None

    @property
    def edges(self) -> list[tuple[int, int]]:
        """The open edges, (parent, child)."""
        return [(int(p), int(c)) for p, c in self.adjacency.nonzero()]

    @property
    def of_all_cells(self) -> float:
        """Open edges as a share of all n² cells, which the paper calls sparsity."""
        return float(self.adjacency.double().mean())

    @property
    def relative_rise(self) -> Square:
        """The rise of the error by closing each edge, as a share of the error."""
        return self.error_rise / self.error if self.error > 0 else self.error_rise

    def measures(self) -> list[Measure]:
        measures = [self.measure("edges kept", self.score)]
        if self.error > 0:
            rise = self.error_without_edges / self.error - 1
            measures.append(
                self.measure("rise without edges", rise, standard_error=self.standard_error_of_rise)
            )
        if self.self_consistency is not None and self.self_consistency_without_edges is not None:
            change = self.self_consistency_without_edges - self.self_consistency
            reason = "it describes the codes at hand"
            name = "change of self-consistency without edges"
            measures.append(self.measure(name, change, interval=reason))
        return measures

    def summary(self) -> list[tuple[str, str]]:
        count, possible = len(self.edges), len(self.adjacency) * (len(self.adjacency) - 1) // 2
        lines = [
            ("open edges", f"{count} of {possible} ({self.of_all_cells:.1%} of all cells)"),
            ("needed edges", listed([f"{p}→{c}" for p, c in self.needed])),
            ("error", f"{self.error:.4g}; {self.error_without_edges:.4g} without edges"),
        ]
        if self.edges:
            p, c = max(self.edges, key=lambda edge: float(self.error_rise[edge]))
            rise, change = float(self.relative_rise[p, c]), float(self.cause_change[p, c])
            lines.append(("largest effect", f"{p}→{c}: error {rise:+.1%}, cause {change:.2f} sd"))
        if self.self_consistency_change is not None and self.edges:
            changes = self.self_consistency_change
            p, c = max(self.edges, key=lambda edge: float(changes[edge].abs()))
            lines.append(
                ("largest change of self-consistency", f"{p}→{c}: {float(changes[p, c]):+.3f}")
            )
        return lines

    def graph(self) -> "nx.DiGraph":
        """The units and their open edges; `weight` is the change of the child's cause."""
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self.adjacency)))
        for p, c in self.edges:
            graph.add_edge(p, c, weight=float(self.cause_change[p, c]))
        return graph

    def plot(self, ax: Any = None) -> Any:
        """The probability of each edge to be open."""
        from zscope.plots import heatmap

        return heatmap(
            self.probabilities, x="child", y="parent", label="P(gate open)", limit=1.0, ax=ax
        )

    def plot_effects(self, ax: Any = None) -> Any:
        """How far each child's cause moves when one of its open edges is closed."""
        from zscope.plots import heatmap

        label = "change of the child's cause (sd)"
        return heatmap(self.cause_change, x="child", y="parent", label=label, ax=ax)

    def plot_graph(self, ax: Any = None) -> Any:
        """The open edges, with the change of the child's cause when each of them is closed,
        beside the graph of the responses if they were measured."""
        from zscope.plots import causal_graph, causal_graphs

        title = "open edges"
        if ax is not None or self.responses is None:
            return causal_graph(self.graph(), pairs=[], title=title, ax=ax)
        import networkx as nx

        responses = nx.DiGraph()
        responses.add_nodes_from(range(len(self.adjacency)))
        responses.add_weighted_edges_from(self.responses)
        return causal_graphs(
            {title: self.graph(), "responses": responses},
            pairs={title: [], "responses": self.response_pairs},
        )


@accepts_recording
def masks(
    autoencoder: Autoencoder,
    codes: Codes | np.ndarray,
    observations: Observations | np.ndarray,
    *,
    responses: ResponseMatrix | None = None,
    samples: int = 512,
    least: float = 0.01,
    generator: Generator | None = None,
) -> Masks:
    """The gates of a causal block, and what closing each open edge changes.

    `codes` are the noises of the `observations`, row by row, of which at most `samples` are
    used, drawn at random. `responses` are drawn beside the edges.
    """
    block = _block(autoencoder)
    codes, observations = recorded_codes(codes, "masks"), as_tensor(observations)
    if len(codes) != len(observations):
        raise ConfigError(
            f"masks: {len(codes)} codes and {len(observations)} observations. Give the codes of "
            "these observations, in the same order."
        )
    if least < 0 or samples < 2:
        raise ConfigError(
            f"masks: least={least} and samples={samples}; a share of the error cannot be negative, "
            "and a standard error needs at least 2 samples. Use, for instance, least=0.01."
        )
    if len(codes) < 2:
        raise Undefined(
            f"masks: {len(codes)} observation(s); an effect needs at least 2. Record more data."
        )
    order = torch.randperm(len(codes), generator=fresh(generator))[:samples]
    noises, x = codes[order.to(codes.device)], observations[order.to(observations.device)]
    probabilities = block.edge_probabilities().double().cpu()
    adjacency = probabilities > 0.5
    edges = [(int(p), int(c)) for p, c in adjacency.nonzero()]
    size = chunk_size(autoencoder, noises[:2], len(noises))

    def run(open_edges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The squared error of each sample, the causes by unit, and the responses."""
        device, dtype = location(autoencoder, noises)
        errors, causes, responses = [], [], []
        with evaluation(autoencoder):
            for start in range(0, len(noises), size):
                part = slice(start, start + size)
                made = block.causes(noises[part].to(device, dtype), edges=open_edges)
                decoded = block.decode_causes(made)
                difference = decoded.double().cpu() - x[part].double().cpu()
                errors.append(difference.flatten(1).square().sum(1))
                causes.append(made.double().cpu().unflatten(1, (len(adjacency), -1)))
                if not autoencoder.needs_auxiliary:
                    responses.append(encode_alone(autoencoder, decoded).mean.double().cpu())
        answers = torch.cat(responses) if responses else noises[:0].double().cpu()
        return torch.cat(errors), torch.cat(causes), answers

    errors, causes, answers = run(adjacency)
    consistency = _Consistency(noises, answers)
    spread = causes.var(0, correction=0).sum(1)  # of each unit

    def change(other: Tensor) -> Tensor:
        squares = (other - causes).var(0, correction=0).sum(1)
        return torch.where(spread > 0, squares / spread.clamp_min(1e-300), 0).sqrt()

    rise, standard_error, moved, drift = (torch.zeros_like(probabilities) for _ in range(4))
    for p, c in edges:
        closed = adjacency.clone()
        closed[p, c] = False
        other, other_causes, other_answers = run(closed)
        rise[p, c], standard_error[p, c] = _mean(other - errors)
        moved[p, c] = change(other_causes)[c]
        if consistency.units:
            drift[p, c] = consistency.mean(other_answers) - consistency.mean(answers)
    without, causes_without, answers_without = run(torch.zeros_like(adjacency))
    known = bool(consistency.units)
    error, ratio = errors.mean(), without.mean() / errors.mean()
    lower = rise - 2 * standard_error
    possible = len(adjacency) * (len(adjacency) - 1) // 2
    return Masks(
        score=len(edges) / possible,
        probabilities=probabilities,
        adjacency=adjacency,
        error=float(error),
        error_rise=rise,
        standard_error=standard_error,
        cause_change=moved,
        error_without_edges=float(without.mean()),
        standard_error_without_edges=_mean(without - errors)[1],
        standard_error_of_rise=_mean((without - ratio * errors) / error)[1] if error > 0 else 0.0,
        cause_change_without_edges=change(causes_without),
        needed=[edge for edge in edges if float(lower[edge]) > least * float(error)],
        least=least,
        samples=len(noises),
        responses=None if responses is None else _response_edges(responses),
        response_pairs=[] if responses is None else [(int(j), int(k)) for j, k in responses.pairs],
        self_consistency=consistency.mean(answers) if known else None,
        self_consistency_change=drift if known else None,
        self_consistency_without_edges=consistency.mean(answers_without) if known else None,
    )


class _Consistency:
    """The mean self-consistency of these codes, over the units whose responses vary."""

    def __init__(self, noises: Tensor, answers: Tensor) -> None:
        self.noises = noises.double().cpu()
        spread = answers.std(0, correction=0) if len(answers) else answers.new_zeros(0)
        varying = spread > NEGLIGIBLE * spread.max() if len(spread) else spread > 0
        self.units: list[int] = varying.nonzero().flatten().tolist()

    def mean(self, answers: Tensor) -> float:
        distance = (answers - self.noises).abs().mean(0)
        spread = answers.std(0, correction=0)
        # Without an edge a unit may stop to vary: it is then in units of what it should.
        spread = torch.where(spread > 0, spread, self.noises.std(0, correction=0))
        scores = 1 - torch.where(distance == 0, 0, distance / spread.clamp_min(1e-300))
        return float(scores[self.units].mean())


def _block(autoencoder: Autoencoder) -> WithCausalBlock:
    if not isinstance(autoencoder, WithCausalBlock) or autoencoder.block is None:
        raise Undefined(
            f"masks: {type(autoencoder).__name__} has no causal block, so it has no edges. Build "
            "a model with block='causal', for instance xae or xvae."
        )
    if autoencoder.latents < 2:
        raise Undefined(
            "masks: the causal block has 1 unit, and an edge needs two. Use more latents."
        )
    return autoencoder


def _mean(differences: Tensor) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(differences.mean()), float(differences.std() / len(differences) ** 0.5)


def _response_edges(responses: ResponseMatrix) -> list[tuple[int, int, float]]:
    return [(int(j), int(k), float(w)) for j, k, w in responses.graph().edges(data="weight")]


ENTRY = Entry(
    question="Which edges of the causal block are open, and which are needed?",
    meaning=(
        "How much worse the reconstruction becomes when an edge of the causal block is closed: an "
        "edge is needed if that is clearly above 0."
    ),
    figure=(
        "Rows are parents, columns are children: the probability that the edge between their "
        "causes is open."
    ),
    takes=("decoder", "codes", "observations", "responses=response_matrix"),
    needs=("causal block", "two latents"),
    passes="samples * (latents * (latents - 1) // 2 + 2)",
    uses=("responses=response-matrix",),
    most=7_000,
)
