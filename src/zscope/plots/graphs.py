"""The causal graph: which latent affects which, and how strongly."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch

from zscope.plots import theme

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["causal_graph", "causal_graphs"]

RADIUS = 0.11


@theme.themed
def causal_graph(
    graph: "nx.DiGraph",
    *,
    pairs: Sequence[tuple[Any, Any]] | None = None,
    names: dict[Any, str] | None = None,
    title: str = "",
    numbers: bool | None = None,
    most: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Nodes on a circle, edges as curved arrows from the intervened to the observed latent.

    The width and darkness of an edge follow its `weight`, which is written on it if at most
    16 edges are drawn, and two per node (or if `numbers`). Of a dense graph only the strongest
    edges are drawn, three per node (or `most`), and a note says so. `pairs` are drawn in red; by
    default these are edges of similar weight (ratio 0.5 to 2) in both directions.
    """
    pairs = _pairs(graph) if pairs is None else [tuple(pair) for pair in pairs]
    own = ax is None
    size = float(np.clip(1.6 + 0.2 * graph.number_of_nodes(), 2.4, 5.0))
    ax = theme.axes(ax, size + 0.3, size)
    ax.set_axis_off()
    ax.set_aspect("equal")
    theme.title(ax, title)
    if not graph:
        ax.text(0.5, 0.5, "no causal latents", ha="center", va="center", color=theme.GREY)
        return ax
    places = _places(graph)
    # Strong edges are drawn last, on top of weak ones.
    every = sorted(graph.edges(data=True), key=lambda edge: edge[2].get("weight", 1.0))
    edges = every[-(most or 3 * len(graph)) :]
    largest = max((data.get("weight", 1.0) for _, _, data in edges), default=1.0)
    # In a complete graph edges cross in the middle, and so would their numbers.
    numbers = len(edges) <= min(16, 2 * len(graph)) if numbers is None else numbers
    visible = {(source, target) for source, target, _ in edges}
    joined = {frozenset((a, b)) for a, b in pairs if (a, b) in visible and (b, a) in visible}
    for order, (source, target, data) in enumerate(edges):
        weight = data.get("weight", 1.0)
        share = weight / largest
        is_pair = frozenset((source, target)) in joined
        colour = theme.diverging()(0.5 + 0.5 * (0.35 + 0.65 * share) * (1 if is_pair else -1))
        _edge(ax, places[source], places[target], share, colour, order)
        if numbers:
            _weight(ax, places[source], places[target], weight, colour)
    for node, place in places.items():
        in_pair = any(node in pair for pair in joined)
        ax.add_patch(
            Circle(
                (place[0], place[1]),
                RADIUS,
                facecolor="white",
                edgecolor=theme.diverging()(0.95) if in_pair else theme.INK,
                linewidth=1.2 if in_pair else 0.8,
                zorder=3 + len(edges),
            )
        )
        ax.text(
            place[0],
            place[1],
            str((names or {}).get(node, node)),
            ha="center",
            va="center",
            fontsize=theme.NORMAL,
            zorder=4 + len(edges),
        )
    centres = np.array(list(places.values()))
    margin = RADIUS + (0.3 if len(places) == 2 else 0.12)
    ax.set_xlim(centres[:, 0].min() - margin, centres[:, 0].max() + margin)
    ax.set_ylim(centres[:, 1].min() - margin, centres[:, 1].max() + margin)
    _note(ax, len(edges), len(every), bool(joined))
    if own:
        theme.fit(ax)
    return ax


@theme.themed
def causal_graphs(
    graphs: Mapping[str, "nx.DiGraph"], *, pairs: Mapping[str, Sequence[tuple[Any, Any]]]
) -> Figure:
    """Several graphs side by side, each with its title and its pairs."""
    size = max(float(np.clip(1.6 + 0.2 * len(graph), 2.4, 5.0)) for graph in graphs.values())
    figure, grid = theme.panels(1, len(graphs), (size + 0.3) * len(graphs), size + 0.3)
    for ax, (title, graph) in zip(grid[0], graphs.items(), strict=True):
        causal_graph(graph, pairs=pairs[title], title=title, ax=ax)
    return figure


def _note(ax: Axes, count: int, total: int, pairs: bool) -> None:
    parts = [f"strongest {count} of {total} edges"] if count < total else []
    parts += ["red: similar in both directions"] if pairs else []
    ax.annotate(
        "; ".join(parts),
        (0.5, 0),
        (0, -4),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=theme.SMALL,
        color=theme.GREY,
    )


def _pairs(graph: "nx.DiGraph") -> list[tuple[Any, Any]]:
    pairs: list[tuple[Any, Any]] = []
    for source, target, data in graph.edges(data=True):
        if graph.has_edge(target, source) and (target, source) not in pairs:
            ratio = data.get("weight", 1.0) / graph[target][source].get("weight", 1.0)
            if source != target and 0.5 <= ratio <= 2:
                pairs.append((source, target))
    return pairs


def _places(graph: "nx.DiGraph") -> dict[Any, np.ndarray]:
    """Connected latents on a circle, ordered so that strong edges are short.

    On a circle, nodes and curved edges do not overlap; force-directed layouts fail for graphs
    as dense and cyclic as these. Latents without edges are placed in a row below.
    """
    import networkx as nx

    linked = [node for node in graph if graph.degree(node) > 0]
    isolated = [node for node in graph if graph.degree(node) == 0]
    places: dict[Any, np.ndarray] = {}
    if linked:
        ordered = _circular_order(graph.subgraph(linked))
        radius = max(0.55, 0.16 * len(ordered)) if len(ordered) > 2 else 0.45
        ring = nx.circular_layout(ordered, scale=radius)
        # From the top, clockwise.
        places = {node: np.array([y, x]) for node, (x, y) in ring.items()}
    height = min((p[1] - 4.5 * RADIUS for p in places.values()), default=0.0)
    for k, node in enumerate(isolated):
        offset = (k - (len(isolated) - 1) / 2) * 3.2 * RADIUS
        places[node] = np.array([offset, height])
    return places


def _circular_order(graph: "nx.DiGraph") -> list[Any]:
    """The nodes in spectral order: neighbours are strongly connected."""
    nodes = sorted(graph.nodes, key=str)
    if len(nodes) <= 3:
        return nodes
    weights = np.zeros((len(nodes), len(nodes)))
    index = {node: k for k, node in enumerate(nodes)}
    for source, target, data in graph.edges(data=True):
        if source != target:
            weights[index[source], index[target]] += data.get("weight", 1.0)
    weights = weights + weights.T
    _, vectors = np.linalg.eigh(np.diag(weights.sum(1)) - weights)
    # The first two non-constant eigenvectors of a ring are a sine and a cosine.
    angle = np.arctan2(vectors[:, 2], vectors[:, 1])
    return [nodes[k] for k in np.argsort(angle, kind="stable")]


def _bend(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The control point of the curve: opposite edges bend to different sides."""
    step = target - source
    control: np.ndarray = (source + target) / 2 + 0.22 * np.array([step[1], -step[0]])
    return control


def _edge(
    ax: Axes, source: np.ndarray, target: np.ndarray, share: float, colour: Any, order: int
) -> None:
    if np.array_equal(source, target):
        return
    bend = _bend(source, target)
    start = source + RADIUS * (bend - source) / np.linalg.norm(bend - source)
    stop = target + 1.12 * RADIUS * (bend - target) / np.linalg.norm(bend - target)
    from matplotlib.path import Path

    curve = Path([start, bend, stop], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    head = 3.2 + 2.6 * share
    ax.add_patch(
        FancyArrowPatch(
            path=curve,
            arrowstyle=f"-|>,head_length={head / 10:.2f},head_width={head / 22:.2f}",
            mutation_scale=10,
            linewidth=0.5 + 1.9 * share,
            color=colour,
            capstyle="butt",
            joinstyle="miter",
            shrinkA=0,
            shrinkB=0,
            zorder=2 + order,
        )
    )


def _weight(ax: Axes, source: np.ndarray, target: np.ndarray, weight: float, colour: Any) -> None:
    bend = _bend(source, target)
    # Nearer to the start of the arrow, so that the numbers of opposite edges do not overlap.
    t = 0.42
    place = (1 - t) ** 2 * source + 2 * t * (1 - t) * bend + t**2 * target
    ax.text(
        place[0],
        place[1],
        theme.number(weight),
        ha="center",
        va="center",
        fontsize=theme.SMALL,
        color=colour if theme.is_dark(colour) else theme.INK,
        bbox={"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"},
        zorder=2000,
    )
