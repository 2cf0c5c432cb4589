"""Maps of two latents that carry one factor: does the manifold show?

The models of `responses-disentanglement`. A factor qualifies if two causal latents hold at least
.8 of its row of the conditioned response matrix, and the second of them .2; the pair with the
largest share is mapped, whatever it looks like. The paper maps floor hue (ten curvature spikes, one
a hue) and the camera angle (a path between views). At this size a factor rarely fills two latents,
so expect "undecided": the rule chooses the pair, not the eye. Maps cover the .5 to 99.5 % range of
codes; cells where |F| vanishes have no curvature and are no spikes.

Leeb et al., arXiv:2106.16091, figures 4, 5 and 12 to 16.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from zscope.assays.responses.maps import ResponseMap
from zscope.assays.responses.paths import manifold_path
from zscope.errors import Undefined, ZscopeError
from zscope.experiments.studies.grids.responses import ROOMS
from zscope.experiments.studies.judging import Claim, Control, above, claim, mean_interval, within
from zscope.experiments.studies.responses_disentanglement import SAMPLES, complete_grid
from zscope.experiments.studies.responses_helix import share_inside
from zscope.experiments.studies.responses_plane import count_spikes
from zscope.experiments.studies.rows import Rows, data_name, differences
from zscope.experiments.studies.shared.pictures import few_shades
from zscope.experiments.studies.shared.scales import on_shapes, title_of
from zscope.experiments.studies.study import Figure, Results, Row, Study, Table, each_run
from zscope.experiments.studies.trained import Trained
from zscope.randomness import named_generator

__all__ = ["STUDY"]

SHARE, SECOND = 0.8, 0.2
"""Of its row of M*, that two causal latents must hold for a factor to qualify, and the second."""
SHOWN = (1, 4)
"""β of the models whose maps are drawn."""
PATHS = 12


def measure(run: Trained) -> dict[str, Any]:
    recording = run.recording(data=complete_grid(run), samples=4_000)
    held_out = run.recording()
    try:
        matrix = run.assay("conditioned-response-matrix", recording, samples=SAMPLES)
        best, pair, found = choose_pair(matrix.matrix.numpy(), matrix.causal)
        answers: dict[str, Any] = {
            "factor": matrix.factor_names[best], "pair": pair, **found,
            "values": len(np.unique(held_out.factors.values[:, best])),  # type: ignore[union-attr]
        }  # fmt: skip
        size = 12 if run.tiny else 60
        field = _map(run, held_out, pair, size)
        answers |= _describe(field, held_out.codes)
        idle = [k for k in range(run["latents"]) if k not in matrix.causal][:2]
        if len(idle) == 2:
            own = _describe(_map(run, held_out, idle, size), held_out.codes)
            answers |= {"idle_converging": own["converging"], "idle_excess": own["excess"]}
        untrained = run.recording(run.untrained)
        own = _describe(_map(run, untrained, pair, size), untrained.codes)
        answers |= {"untrained_converging": own["converging"], "untrained_excess": own["excess"]}
    except ZscopeError as error:
        return {"problem": " ".join(str(error).split())[:200]}
    paths, shown = _paths(run, field, held_out.codes, 2 if run.tiny else PATHS)
    answers |= paths
    if run.is_first and run["beta"] in SHOWN:
        some = torch.linspace(0, len(held_out) - 1, 300).round().long()  # data are often sorted
        answers["map"] = {
            "axes": [axis[[0, -1]].numpy() for axis in field.axes],
            "divergence": field.divergence[::2, ::2].numpy(),
            "curvature": field.curvature[::2, ::2].numpy(),
            "codes": held_out.codes[some][:, pair].numpy(), "pictures": _sheet(field), **shown,
        }  # fmt: skip
    return answers


def choose_pair(rows: np.ndarray, causal: Sequence[int]) -> tuple[int, list[int], dict[str, Any]]:
    """The factor whose responses two causal latents hold most of, these, and what they hold.

    A factor qualifies if they hold .8 of its row of M* and the second of them .2: one latent that
    holds all would have any other as its partner.
    """
    if len(causal) < 2:
        raise Undefined(f"responses-maps: {len(causal)} causal latents; two are needed for a plane")
    own = rows[:, list(causal)] / np.maximum(rows.sum(1, keepdims=True), 1e-12)
    order = np.argsort(-own, axis=1)[:, :2]
    first, second = np.take_along_axis(own, order, 1).T
    fits = (first + second >= SHARE) & (second >= SECOND)
    best = int(np.where(fits.any() & ~fits, -1, first + second).argmax())
    found = {"share": float((first + second)[best]), "second": float(second[best]),
             "qualifies": bool(fits[best]), "factors": int(fits.sum())}  # fmt: skip
    return best, sorted(int(causal[k]) for k in order[best]), found


def _map(run: Trained, recording: Any, pair: list[int], size: int) -> ResponseMap:
    field = run.assay("response-map", recording, dims=pair, grid=size, decode_grid=10, score_grid=0)
    assert isinstance(field, ResponseMap)
    return field


def _describe(field: ResponseMap, codes: torch.Tensor) -> dict[str, Any]:
    mask = field.divergence.numpy() < 0
    whole = float(mask.mean())
    inside = share_inside(field, mask, codes[:, list(field.dims)])
    return {"converging": whole, "excess": inside - whole, "spikes": count_spikes(field)}


def _paths(
    run: Trained, field: ResponseMap, codes: torch.Tensor, count: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Paths and straight lines in the plane: largest step between frames, distance to codes.

    And the longest of them, to be drawn.
    """
    low, high = (torch.stack([axis[k] for axis in field.axes]) for k in (0, -1))
    plane = codes[:, list(field.dims)]
    inside = ((plane >= low) & (plane <= high)).all(1).nonzero().flatten()
    order = torch.randperm(len(inside), generator=named_generator(run.seed, "paths"))
    found: dict[str, list[float]] = {name: [] for name in ("jump", "line_jump", "far", "line_far")}
    longest, shown = 0.0, {}
    for k in range(min(count, len(inside) // 2)):
        start, end = (codes[inside[order[2 * k + j]]] for j in (0, 1))
        path = manifold_path(field, start, end, codes=codes, cost="field", frames=25)
        found["jump"].append(_largest_step(path.frames))
        found["line_jump"].append(_largest_step(path.straight_frames))
        found["far"].append(_distance(path.points, plane, field.dims))
        found["line_far"].append(_distance(path.straight, plane, field.dims))
        length = float((end - start)[list(field.dims)].norm())
        if length > longest:
            few = torch.linspace(0, len(path.frames) - 1, 8).round().long()
            longest, dims = length, list(field.dims)
            shown = {
                "path": path.points[:, dims].numpy(), "line": path.straight[:, dims].numpy(),
                "film": few_shades(torch.stack([path.straight_frames[few], path.frames[few]])),
            }  # fmt: skip
    return {name: float(np.mean(values)) for name, values in found.items() if values}, shown


def _largest_step(frames: torch.Tensor) -> float:
    return float((frames[1:] - frames[:-1]).flatten(1).norm(dim=1).max())


def _distance(points: torch.Tensor, codes: torch.Tensor, dims: tuple[int, int]) -> float:
    """The mean distance of the points of a path from the nearest code in the plane."""
    return float(torch.cdist(points[:, list(dims)].float(), codes.float()).amin(1).mean())


def _sheet(field: ResponseMap) -> np.ndarray:
    assert field.decoded is not None
    cells = few_shades(field.decoded)  # first x second x C x H x W
    rows = [np.concatenate(list(cells[:, k]), 2) for k in range(cells.shape[1])]
    return np.concatenate(rows[::-1], 1).transpose(1, 2, 0)


def claims(results: Results) -> Iterator[Claim]:
    rows = on_shapes(results, "rooms")
    fit = Rows(row for row in rows if row.get("qualifies"))
    none = "" if len({row["seed"] for row in fit}) >= 4 else (
        f"a factor in two latents: {len(fit)} of {len(rows)} models"
    )  # fmt: skip
    more = [
        Control(f"{text} converges less", gain.low > 0 if gain else None, f"difference {gain}")
        for text, gain in (
            ("a pair of latents that are not causal", _gain(fit, "idle_excess")),
            ("the untrained model", _gain(fit, "untrained_excess")),
        )
    ]
    needs = "models that give a factor two latents of its own (--scale paper)"
    told = mean_interval(list(fit.per_seed("converging").values()))
    yield claim(
        "A-F4", "c1", "in the plane of a factor responses converge where codes are, more than "
        "elsewhere", source="figure 4", expect=above(0), values=fit.per_seed("excess"),
        published="figure only: \"negative divergence almost everywhere\"",
        statistic="share of codes in cells with negative divergence minus the share of such cells; "
        f"the latter {told}", controls=more, presupposes=none, needs=needs,
        chosen="the difference, as in figure 2: a decoder that ignores both latents converges in "
        "every cell, so that the share of cells alone says nothing",
    )  # fmt: skip
    excess = {
        seed: float(np.mean([row["spikes"] - row["values"] for row in own]))
        for seed, own in fit.by("seed").items()
    }
    yield claim(
        "A-F4", "c2", "there is one curvature spike for each value of the factor",
        source="figure 4", published="\"10 points where the curvature spikes\", one a hue",
        expect=within(1), values=excess, statistic="spikes minus values of the factor",
        presupposes=none, needs=needs,
    )  # fmt: skip
    yield claim(
        "A-F5", "c1", "a path that follows the field changes the picture more evenly than the "
        "straight line", source="figure 5", expect=above(0),
        values=differences(fit, fit, "line_jump", "jump"), presupposes=none, needs=needs,
        statistic="largest step between 25 frames at equal arc length, straight minus path",
    )  # fmt: skip
    yield claim(
        "A-F5", "c2", "a path that follows the field stays nearer to codes of data than the "
        "straight line", source="figure 5", expect=above(0),
        values=differences(fit, fit, "line_far", "far"), presupposes=none, needs=needs,
        statistic="mean distance to the nearest code in the plane, straight minus path",
    )  # fmt: skip


def _gain(rows: Rows, key: str) -> Any:
    return mean_interval(list(differences(rows, rows, "excess", key).values()))


def tables(results: Results) -> Iterator[Table]:
    keys = {"share": "share of M*", "second": "of the second", "factors": "factors that qualify",
            "converging": "div < 0", "excess": "codes minus cells", "spikes": "spikes",
            "values": "values",
            "idle_converging": "div < 0, idle pair", "untrained_converging": "div < 0, untrained",
            "jump": "largest step, path", "line_jump": "straight", "far": "distance, path",
            "line_far": "straight"}  # fmt: skip
    published = results.scale == "paper"  # several data sets
    cells = [[*(["data"] if published else []), "d", "β", "seed", "factor", "pair", *keys.values()]]
    for row in results.rows("rooms"):
        values = (row.get(key) for key in keys)
        cells.append(
            [*([title_of(row["data"])] if published else []), str(row["latents"]),
             f"{row['beta']:g}", str(row["seed"]), row.get("factor", ""),
             ", ".join(map(str, row.get("pair", []))),
             *("" if value is None else f"{value:.3g}" for value in values)]
        )  # fmt: skip
    title = "The factor with most of its responses in two latents, of each model"
    note = (f"Judged are models in which two causal latents hold {SHARE:g} of the responses to a "
            f"factor, and the second of them {SECOND:g}.")  # fmt: skip
    yield Table("pairs", title, cells, left=6 if published else 5, row="A-F4", notes=[note])


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import panel_grid
    from zscope.plots.theme import diverging, symmetric_limit

    for row in results.rows("rooms"):
        if "map" not in row:
            continue
        (left, right), (low, high) = row["map"]["axes"]
        box = (left, right, low, high)
        figure, grid = panel_grid(1, 3, height=2.4)
        for ax, key in zip(grid[0], ("divergence", "curvature"), strict=False):
            values = np.asarray(row["map"][key], dtype=float).T
            limit = symmetric_limit(values, 0.98)
            ax.imshow(values, origin="lower", extent=box, aspect="auto", cmap=diverging(),
                      vmin=-limit, vmax=limit)  # fmt: skip
            ax.set(title=key)
        codes = np.asarray(row["map"]["codes"])
        grid[0, 0].scatter(codes[:, 0], codes[:, 1], s=0.8, color="#222222", linewidths=0)
        grid[0, 0].set(xlim=box[:2], ylim=box[2:])
        grid[0, 2].imshow(np.asarray(row["map"]["pictures"]), extent=box, aspect="auto")
        grid[0, 2].set(title="decoded")
        for ax in grid[0]:
            ax.set(xlabel=f"latent {row['pair'][0]}", ylabel=f"latent {row['pair'][1]}")
        yield Figure(
            f"map-{_name(row)}",
            f"{_words(row)}: the two latents that hold "
            f"{row['share']:.0%} of the responses to {row['factor']}.",
            figure, row=_row(row, "A-F4" if row["latents"] == 24 else "A-F12"),
        )  # fmt: skip
        if "film" in row["map"]:
            yield _plot_path(row, box)


def _name(row: Mapping[str, Any]) -> str:
    """Latents and β, after the data set where it is MPI3D."""
    data = f"{data_name(row['data'])}-" if _row(row, "") else ""
    return f"{data}{row['latents']}-{row['beta']:g}"


def _words(row: Mapping[str, Any]) -> str:
    data = f"{title_of(row['data'])}, " if _row(row, "") else ""
    return f"{data}{row['latents']} latents, β {row['beta']:g}, seed {row['seed']}"


def _row(row: Mapping[str, Any], shapes: str) -> str:
    """The row of the study that a figure belongs to: that of 3D Shapes, or that of MPI3D."""
    return "A-F19" if data_name(row["data"]).startswith("mpi3d") else shapes


def _plot_path(row: Mapping[str, Any], box: tuple[float, ...]) -> Figure:
    from zscope.plots import panel_grid
    from zscope.plots.theme import BLUE, GREY, RED

    shown = {key: np.asarray(value) for key, value in row["map"].items() if key != "axes"}
    figure, grid = panel_grid(1, 2, width=8.0, height=2.4, gridspec_kw={"width_ratios": [1, 2.4]})
    ax = grid[0, 0]
    ax.scatter(*shown["codes"].T, s=1.5, color=GREY, linewidths=0)
    ax.plot(*shown["line"].T, color=RED, label="straight")
    ax.plot(*shown["path"].T, color=BLUE, label="path")
    ax.set(xlabel=f"latent {row['pair'][0]}", ylabel=f"latent {row['pair'][1]}", xlim=box[:2],
           ylim=box[2:])  # fmt: skip
    ax.legend(fontsize=7, frameon=False)
    lines = [np.concatenate(list(line), 2).transpose(1, 2, 0) for line in shown["film"]]
    grid[0, 1].imshow(np.concatenate(lines, 0))
    height = lines[0].shape[0]
    grid[0, 1].set(xticks=[], yticks=[height / 2, 1.5 * height], yticklabels=["straight", "path"])
    return Figure(
        f"path-{_name(row)}", f"{_words(row)}: codes of data, the straight line and the path that "
        "follows the field between two of them, and what both decode to.", figure,
        row=_row(row, "A-F5"),
    )  # fmt: skip


STUDY = Study(
    name="responses-maps",
    minutes=15,
    own_minutes=3,
    document="A",
    title="Does the map of two latents that carry a factor show its manifold?",
    rows=(
        Row("A-F4", "figure 4", "map of the latents of floor hue"),
        Row("A-F5", "figure 5", "a path in the latents of the camera angle"),
        Row("A-F12", "figures 12 to 16", "maps of further pairs"),
        Row("A-F19", "figures 19 to 24", "maps on MPI3D", "needs MPI3D"),
    ),
    grids={"rooms": ROOMS},
    measures=(each_run(measure),),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="The rule for a pair (.8 of the row of M*), 12 paths a model, 60 x 60 cells.",
)
