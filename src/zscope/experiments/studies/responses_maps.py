"""Maps of two latents that carry one factor: does the manifold show?

The models of `responses-disentanglement`. A factor qualifies if two latents hold at least .8 of
its row of the conditioned response matrix; the pair with the largest share is mapped, whatever it
looks like. The paper maps floor hue (ten curvature spikes, one a hue) and the camera angle (a path
between views). At this size a factor rarely fills two latents, so expect "undecided": the rule
chooses the pair, not the eye. Maps cover the .5 to 99.5 % range of codes; cells where |F| vanishes
have no curvature and are no spikes.

Leeb et al., arXiv:2106.16091, figures 4, 5 and 12 to 16.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from zscope import data as datasets
from zscope.assays.responses.conditioned import ConditionedResponseMatrix
from zscope.assays.responses.maps import ResponseMap
from zscope.assays.responses.paths import manifold_path
from zscope.errors import ZscopeError
from zscope.experiments.studies.grids.responses import ROOMS
from zscope.experiments.studies.judging import Claim, Control, above, claim, mean_interval, within
from zscope.experiments.studies.responses_disentanglement import GRID, TINY
from zscope.experiments.studies.responses_plane import count_spikes
from zscope.experiments.studies.rows import Rows, differences
from zscope.experiments.studies.study import Figure, Results, Row, Study, Table, each_run
from zscope.experiments.studies.trained import Trained
from zscope.randomness import named_generator

__all__ = ["STUDY"]

SHARE = 0.8
"""Of its row of M*, that two latents must hold for a factor to qualify."""
PATHS = 12


def measure(run: Trained) -> dict[str, Any]:
    grid = datasets.load("rooms", **(TINY if run.tiny else GRID))
    recording, held_out = run.recording(data=grid, samples=4_000), run.recording()
    try:
        matrix = run.assay("conditioned-response-matrix", recording)
    except ZscopeError as error:
        return {"problem": " ".join(str(error).split())[:200]}
    assert isinstance(matrix, ConditionedResponseMatrix)
    rows = matrix.matrix.numpy()
    shares = np.sort(rows, 1)[:, ::-1][:, :2].sum(1) / np.maximum(rows.sum(1), 1e-12)
    best = int(shares.argmax())
    pair = sorted(int(k) for k in np.argsort(rows[best])[::-1][:2])
    answers: dict[str, Any] = {
        "factor": matrix.factor_names[best], "share": float(shares[best]), "pair": pair,
        "values": len(np.unique(held_out.factors.values[:, best])),  # type: ignore[union-attr]
    }  # fmt: skip
    size = 12 if run.tiny else 60
    field = _map(run, held_out, pair, size)
    answers |= _describe(field)
    idle = [k for k in range(run["latents"]) if k not in matrix.causal][:2]
    if len(idle) == 2:
        answers["idle_converging"] = _describe(_map(run, held_out, idle, size))["converging"]
    untrained = run.recording(run.untrained)
    answers["untrained_converging"] = _describe(_map(run, untrained, pair, size))["converging"]
    answers |= _paths(run, field, held_out.codes, 2 if run.tiny else PATHS)
    if run.seed == 20:
        answers["map"] = {
            "axes": [axis[[0, -1]].numpy() for axis in field.axes],
            "divergence": field.divergence.numpy(), "curvature": field.curvature.numpy(),
            "codes": held_out.codes[:500, pair].numpy(), "pictures": _sheet(field),
        }  # fmt: skip
    return answers


def _map(run: Trained, recording: Any, pair: list[int], size: int) -> ResponseMap:
    field = run.assay("response-map", recording, dims=pair, grid=size, decode_grid=10, score_grid=0)
    assert isinstance(field, ResponseMap)
    return field


def _describe(field: ResponseMap) -> dict[str, Any]:
    converging = float((field.divergence < 0).float().mean())
    return {"converging": converging, "spikes": count_spikes(field)}


def _paths(run: Trained, field: ResponseMap, codes: torch.Tensor, count: int) -> dict[str, Any]:
    """Paths and straight lines in the plane: largest step between frames, distance to codes."""
    low, high = (torch.stack([axis[k] for axis in field.axes]) for k in (0, -1))
    plane = codes[:, list(field.dims)]
    inside = ((plane >= low) & (plane <= high)).all(1).nonzero().flatten()
    order = torch.randperm(len(inside), generator=named_generator(run.seed, "paths"))
    found: dict[str, list[float]] = {name: [] for name in ("jump", "line_jump", "far", "line_far")}
    for k in range(min(count, len(inside) // 2)):
        start, end = (codes[inside[order[2 * k + j]]] for j in (0, 1))
        path = manifold_path(field, start, end, codes=codes, cost="field", frames=25)
        found["jump"].append(_largest_step(path.frames))
        found["line_jump"].append(_largest_step(path.straight_frames))
        found["far"].append(_distance(path.points, plane, field.dims))
        found["line_far"].append(_distance(path.straight, plane, field.dims))
    return {name: float(np.mean(values)) for name, values in found.items() if values}


def _largest_step(frames: torch.Tensor) -> float:
    return float((frames[1:] - frames[:-1]).flatten(1).norm(dim=1).max())


def _distance(points: torch.Tensor, codes: torch.Tensor, dims: tuple[int, int]) -> float:
    """The mean distance of the points of a path from the nearest code in the plane."""
    return float(torch.cdist(points[:, list(dims)].float(), codes.float()).amin(1).mean())


def _sheet(field: ResponseMap) -> np.ndarray:
    assert field.decoded is not None
    cells = (255 * field.decoded.clamp(0, 1)).round().byte().numpy()  # first x second x C x H x W
    rows = [np.concatenate(list(cells[:, k]), 2) for k in range(cells.shape[1])]
    return np.concatenate(rows[::-1], 1).transpose(1, 2, 0)


def claims(results: Results) -> Iterator[Claim]:
    rows = results.rows("rooms")
    fit = Rows(row for row in rows if row.get("share") is not None and row["share"] >= SHARE)
    none = "" if len({row["seed"] for row in fit}) >= 4 else (
        f"a factor in two latents: {len(fit)} of {len(rows)} models"
    )  # fmt: skip
    more = [
        Control(f"{text} converges less", bool(gain and gain.low > 0), f"difference {gain}")
        for text, gain in (
            ("a pair of latents that are not causal", _gain(fit, "idle_converging")),
            ("the untrained model", _gain(fit, "untrained_converging")),
        )
    ]
    needs = "models that give a factor two latents of its own (--scale paper)"
    yield claim(
        "A-F4", "c1", "responses converge almost everywhere in the plane of a factor",
        source="figure 4", expect=above(0.5), values=fit.per_seed("converging"),
        statistic="share of cells with negative divergence", controls=more, presupposes=none,
        needs=needs,
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
        "A-F5", "c2", "and stays nearer to codes of data", source="figure 5", expect=above(0),
        values=differences(fit, fit, "line_far", "far"), presupposes=none, needs=needs,
        statistic="mean distance to the nearest code in the plane, straight minus path",
    )  # fmt: skip


def _gain(rows: Rows, key: str) -> Any:
    return mean_interval(list(differences(rows, rows, "converging", key).values()))


def tables(results: Results) -> Iterator[Table]:
    keys = {"share": "share of M*", "converging": "div < 0", "spikes": "spikes", "values": "values",
            "idle_converging": "div < 0, idle pair", "untrained_converging": "div < 0, untrained",
            "jump": "largest step, path", "line_jump": "straight", "far": "distance, path",
            "line_far": "straight"}  # fmt: skip
    cells = [["d", "β", "seed", "factor", "pair", *keys.values()]]
    for row in results.rows("rooms"):
        values = (row.get(key) for key in keys)
        cells.append(
            [str(row["latents"]), f"{row['beta']:g}", str(row["seed"]), row.get("factor", ""),
             ", ".join(map(str, row.get("pair", []))),
             *("" if value is None else f"{value:.3g}" for value in values)]
        )  # fmt: skip
    title = "The factor with most of its responses in two latents, of each model"
    note = f"Judged are models with a share of {SHARE} or more."
    yield Table("pairs", title, cells, left=5, row="A-F4", notes=[note])


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import panel_grid
    from zscope.plots.theme import diverging, symmetric_limit

    for row in results.rows("rooms"):
        if "map" not in row or row["beta"] not in (1, 4):
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
            f"map-{row['latents']}-{row['beta']:g}",
            f"{row['latents']} latents, β {row['beta']:g}, seed 20: the two latents that hold "
            f"{row['share']:.0%} of the responses to {row['factor']}.",
            figure, row="A-F4" if row["latents"] == 24 else "A-F12",
        )  # fmt: skip


STUDY = Study(
    name="responses-maps",
    minutes=2,
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
