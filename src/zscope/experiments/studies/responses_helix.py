"""Latent responses on the double helix: do codes lie where responses converge, and do paths stay?

A β-VAE with two latents on 1,024 points of a double helix (figures 2 and 3). Its response field
F(z) = R(z) - z has a divergence and a mean curvature; the paper says that almost all codes lie
where the divergence is negative. A path that keeps to small |F| should follow one strand where the
straight line between the same codes hops to the other.

Whether paths stay depends on the seed, so there are eight seeds, a table by seed, and a weaker
recipe as a control. A low cost of a path is no evidence that it stays: a path that hops can be
cheaper than the true strand. The paper minimises |F|²; zscope's default, the density of codes, is
beside it. With β = 1 the model collapses onto a line.

Leeb et al., arXiv:2106.16091, sections 4.3 and 6.1, figures 2 and 3.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from zscope.assays.responses.maps import ResponseMap
from zscope.assays.responses.paths import manifold_path
from zscope.data.helix import follow_strands
from zscope.experiments.studies.grids.responses import HELIX, HELIX_COLLAPSED, HELIX_WEAK
from zscope.experiments.studies.judging import Claim, Control, above, claim, mean_interval
from zscope.experiments.studies.rows import Rows, differences
from zscope.experiments.studies.study import Figure, Results, Row, Study, Table, each_run
from zscope.experiments.studies.trained import Trained
from zscope.randomness import named_generator
from zscope.recording import Recording

__all__ = ["STUDY", "share_inside"]

PAIRS, ENDS = 8, 0.4
"""Paths of each seed, between codes with t below -ENDS and above ENDS."""


def measure_map(run: Trained) -> dict[str, Any]:
    """Where codes lie in the response map, compared with the whole map and with shuffled codes."""
    grid = 12 if run.tiny else 100
    answers: dict[str, Any] = {}
    for name, model in (("", None), ("untrained_", run.untrained)):
        recording = run.recording(model, samples=1_024)
        field = run.assay("response-map", recording, grid=grid, decode_grid=2, score_grid=0)
        assert isinstance(field, ResponseMap)
        codes = recording.codes
        order = [torch.randperm(len(codes), generator=named_generator(0, f"hybrid {k}"))
                 for k in range(2)]  # fmt: skip
        hybrids = torch.stack([codes[rows, k] for k, rows in enumerate(order)], 1)
        for kind, mask in _regions(field).items():
            whole = float(mask.mean())
            answers[f"{name}{kind}_excess"] = share_inside(field, mask, codes) - whole
            answers[f"{name}{kind}_hybrid_excess"] = share_inside(field, mask, hybrids) - whole
            answers[f"{name}{kind}_share"] = share_inside(field, mask, codes)
            answers[f"{name}{kind}_map"] = whole
        if not name and run.is_first:
            answers["panels"] = {
                "axes": [axis[[0, -1]].numpy() for axis in field.axes],
                "magnitude": field.field.norm(dim=-1).numpy(),
                "divergence": field.divergence.numpy(),
                "curvature": field.curvature.numpy(),
                "codes": codes.numpy(),
            }
    return answers


def _regions(field: ResponseMap) -> dict[str, np.ndarray]:
    defined = ~field.undefined.numpy()
    return {
        "converging": field.divergence.numpy() < 0,
        "curved": (field.curvature.numpy() > 0) & defined,
    }


def share_inside(field: ResponseMap, mask: np.ndarray, codes: torch.Tensor) -> float:
    """The share of the codes on the map whose cell is in the mask."""
    cells = []
    for axis, values in zip(field.axes, codes.T, strict=True):
        place = (values - axis[0]) / (axis[1] - axis[0])
        cells.append(place.round().long().numpy())
    inside = np.all([(c >= 0) & (c < n) for c, n in zip(cells, mask.shape, strict=True)], axis=0)
    return float(mask[cells[0][inside], cells[1][inside]].mean()) if inside.any() else 0.0


def measure_paths(run: Trained) -> dict[str, Any]:
    """Paths between codes of one strand, and of both: do they change strand?"""
    recording = run.recording(samples=1_024)
    field = _whole_map(run, recording)
    t, strand = recording.factors.values.T  # type: ignore[union-attr]
    rng = np.random.default_rng(run.seed)
    count = 2 if run.tiny else PAIRS
    answers: dict[str, Any] = {}
    for name, crossing in (("same", False), ("other", True)):
        paths: dict[str, list[np.ndarray]] = {"straight": [], "field": [], "density": []}
        strands, shown = [], None
        for k in range(count if not crossing else 2):
            first = k % 2
            start = rng.choice(np.flatnonzero((t < -ENDS) & (strand == first)))
            end = rng.choice(
                np.flatnonzero((t > ENDS) & (strand == (1 - first if crossing else first)))
            )
            ends = recording.codes[start], recording.codes[end]
            strands.append(first)
            for cost in ("field", "density"):
                path = manifold_path(field, *ends, cost=cost, codes=recording.codes, points=101)
                paths[cost].append(_decode(run, path.points))
                if cost == "field":
                    paths["straight"].append(_decode(run, path.straight))
                    shown = shown or {"path": path.points.numpy(), "line": path.straight.numpy()}
        for kind, decoded in paths.items():
            followed = follow_strands(np.stack(decoded), np.array(strands))
            answers[f"{name}_{kind}_hops"] = followed.share_changed
            answers[f"{name}_{kind}_farthest"] = float(followed.farthest.mean())
        if run.is_first and not crossing and run.group == "helix":
            answers["example"] = {**(shown or {}), "decoded": paths["field"][0],
                                  "straight": paths["straight"][0],
                                  "data": recording.observations[:300].numpy()}  # fmt: skip
    return answers


def _whole_map(run: Trained, recording: Recording) -> ResponseMap:
    """The response map over all codes, so that every one of them can be the end of a path."""
    low, high = recording.codes.amin(0), recording.codes.amax(0)
    room = 0.02 * (high - low)
    extent = torch.stack([low - room, high + room], 1).flatten().tolist()
    grid = 12 if run.tiny else 100
    field = run.assay("response-map", recording, grid=grid, extent=extent, decode_grid=2,
                      score_grid=0)  # fmt: skip
    assert isinstance(field, ResponseMap)
    return field


def _decode(run: Trained, codes: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return run.model.decode(codes.float()).numpy()


def claims(results: Results) -> Iterator[Claim]:
    rows, weak = results.rows("helix"), results.rows("weak")
    sentences = {
        "converging": ("more codes than cells of the map lie ", "where the divergence is negative"),
        "curved": ("and ", "where the mean curvature is positive"),
    }
    for number, (kind, (start, where)) in enumerate(sentences.items(), 1):
        excess = f"{kind}_excess"
        hybrids = mean_interval(
            list(differences(rows, rows, excess, f"{kind}_hybrid_excess").values())
        )
        trained = mean_interval(
            list(differences(rows, rows, excess, f"untrained_{excess}").values())
        )
        yield claim(
            "A-F2", f"c{number}", start + where, source="figure 2, section 6.1", expect=above(0),
            published="figure only: \"almost all the density of the posterior is in regions that "
            "have negative divergence, and consequently positive curvature\"",
            values=rows.per_seed(excess),
            statistic="share of codes in such cells minus the share of such cells in the map",
            controls=[
                Control(f"the excess of codes {where} is smaller if they are shuffled per latent",
                        None if hybrids is None else hybrids.low > 0,
                        f"codes minus shuffled: {hybrids}"),
                Control(f"the excess of codes {where} is smaller in the untrained model",
                        None if trained is None else trained.low > 0,
                        f"trained minus untrained: {trained}"),
            ],
        )  # fmt: skip
    crossing = [row["other_field_hops"] for row in rows if row.get("other_field_hops") is not None]
    must_cross = Control(
        "paths between different strands change strand",
        min(crossing) == 1 if crossing else None,
        f"share that changes: {np.mean(crossing):.2f}" if crossing else "",
    )
    weak_hops = mean_interval(weak.values("same_field_hops"))
    differ = Control(
        "most paths of the weak recipe change strand",
        None if weak_hops is None else weak_hops.value > 0.5,
        f"share of its paths that change strand: {weak_hops}",
    )
    yield claim(
        "A-F3", "c1", "the path that follows the field changes strand less often than the straight "
        "line", source="figure 3", expect=above(0),
        published="figure only: \"the shortest (euclidean) path hops between strands twice\"",
        values=differences(rows, rows, "same_straight_hops", "same_field_hops"),
        statistic=f"share of {PAIRS} paths that change strand, straight minus path, per seed",
        controls=[must_cross, differ],
        needs="a training recipe under which strands are apart in the latent plane for every seed",
    )  # fmt: skip
    yield claim(
        "A-F3", "c2", "and stays nearer to the true strand", source="figure 3", expect=above(0),
        values=differences(rows, rows, "same_straight_farthest", "same_field_farthest"),
        statistic="largest distance of the decoded path from the strand, straight minus path",
        controls=[must_cross],
    )  # fmt: skip
    yield claim(
        "A-F3", "c3", "most paths of a seed stay on their strand", source="figure 3",
        expect=above(0.5), values={s: 1 - v for s, v in rows.per_seed("same_field_hops").items()},
        statistic="share of the paths of a seed that stay",
        controls=[must_cross],
    )  # fmt: skip


def tables(results: Results) -> Iterator[Table]:
    header = ["recipe", "seed", "codes, div < 0", "map, div < 0", "codes, H > 0",
              "straight hops", "path hops", "path hops (density)", "straight, farthest",
              "path, farthest"]  # fmt: skip
    keys = ["converging_share", "converging_map", "curved_share", "same_straight_hops",
            "same_field_hops", "same_density_hops", "same_straight_farthest",
            "same_field_farthest"]  # fmt: skip
    cells = [header]
    for row in Rows(results.rows("helix", "weak", "beta 1")):
        values = [row.get(key) for key in keys]
        cells.append([row["group"], str(row["seed"]),
                      *("" if v is None else f"{v:.2f}" for v in values)])  # fmt: skip
    yield Table(
        "by-seed", "Codes and paths by seed", cells, left=2, row="A-F3",
        notes=["Hops: share of 8 paths between codes of one strand that change strand. The path "
               "minimises |F|² (as published); beside it the one that keeps to the density of "
               "codes. Nothing is published in numbers."],
    )  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import panel_grid
    from zscope.plots.theme import diverging, sequential, symmetric_limit

    first = next((row for row in results.rows("helix") if "panels" in row), None)
    panels = None if first is None else first["panels"]
    if first is not None and panels is not None:
        (left, right), (low, high) = panels["axes"]
        figure, grid = panel_grid(1, 4, height=2.1)
        for ax, name in zip(grid[0], ("magnitude", "divergence", "curvature"), strict=False):
            values = np.asarray(panels[name], dtype=float).T
            signed = name != "magnitude"
            limit = symmetric_limit(values, 0.98) if signed else None
            ax.imshow(values, origin="lower", extent=(left, right, low, high), aspect="auto",
                      cmap=diverging() if signed else sequential(),
                      vmin=-limit if limit else 0, vmax=limit)  # fmt: skip
            ax.set(title={"magnitude": "|F|"}.get(name, name), xlabel="z1", ylabel="z2")
        codes = np.asarray(panels["codes"])
        grid[0, 3].scatter(codes[:, 0], codes[:, 1], s=1.5, linewidths=0, color="#222222")
        grid[0, 3].set(
            title="codes", xlabel="z1", ylabel="z2", xlim=(left, right), ylim=(low, high)
        )
        yield Figure(
            "map", f"Response map of one seed ({first['seed']}): size of the field, its divergence "
            "(blue: converging), its mean curvature (red: positive), and the codes of the data.",
            figure, row="A-F2",
        )  # fmt: skip
    other = next((row for row in results.rows("helix") if "example" in row), None)
    if other is not None and panels is not None:
        yield Figure(
            "path", "Left: codes (grey), the straight line (orange) and the path that keeps to "
            f"small |F| (blue), seed {other['seed']}. Right: both decoded, with the data.",
            _plot_path(other["example"], panels), row="A-F3",
        )  # fmt: skip


def _plot_path(example: dict[str, Any], panels: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    from zscope.plots.theme import BLUE, FAINT, GREY, RED, axes, theme

    with theme():
        figure = plt.figure(figsize=(7.0, 3.0), layout="constrained")
        plane = axes(figure.add_subplot(1, 2, 1))
        codes = np.asarray(panels["codes"])
        plane.scatter(codes[:, 0], codes[:, 1], s=2, color=FAINT, linewidths=0)
        plane.plot(*np.asarray(example["line"]).T, color=RED, label="straight")
        plane.plot(*np.asarray(example["path"]).T, color=BLUE, label="path")
        plane.set(xlabel="z1", ylabel="z2")
        plane.legend()
        space = figure.add_subplot(1, 2, 2, projection="3d")
        space.scatter(*np.asarray(example["data"]).T, s=2, color=GREY, linewidths=0)
        space.plot(*np.asarray(example["straight"]).T, color=RED)
        space.plot(*np.asarray(example["decoded"]).T, color=BLUE)
        space.set(xticklabels=[], yticklabels=[], zticklabels=[])
    return figure


STUDY = Study(
    name="responses-helix",
    minutes=4,
    document="A",
    title="Do codes lie where responses converge, and do paths stay on the manifold?",
    rows=(
        Row("A-F2", "figure 2", "divergence, curvature, field and posterior on the double helix"),
        Row("A-F3", "figure 3", "a path along one strand"),
    ),
    grids={"helix": HELIX, "weak": HELIX_WEAK, "beta 1": HELIX_COLLAPSED},
    measures=(each_run(measure_map), each_run(measure_paths)),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="β .02, rate, batch and length were chosen on seeds 0 and 1, where 0 and 6 of 8 paths "
    "changed strand; the paper prints none of them.",
)
