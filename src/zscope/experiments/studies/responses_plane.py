"""Two latents seen whole: do responses diverge at the boundaries between classes?

A VAE on MNIST and a β-VAE (β 8) on Fashion-MNIST with two latents. The response map over [-2, 2]
and [-4, 4], with decoded pictures and the class that a classifier reads at each cell. The captions
speak of 10 curvature spikes for Fashion-MNIST as for 3D Shapes (copied text), and that of figure 28
says MNIST under the heading Fashion-MNIST.

A classifier is confident on nonsense too, so confidence far out is compared with that on pictures
of an untrained decoder and on pictures with shuffled pixels. With β 8 one of two latents may
collapse: then nothing is judged on Fashion-MNIST. Responses of an untrained model contract too, to
nearly one point. The share of codes in [-2, 2], for which the paper gives no limit, is in the table
and not judged. Pictures are decoded at 10 x 10 and arrows drawn at 14 x 14 places.

Leeb et al., arXiv:2106.16091, appendix, figures 25 to 30.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from zscope.assays.responses.maps import ResponseMap
from zscope.autoencoder import Autoencoder
from zscope.experiments.studies.grids.consistency import PLANE_CLASSIFIER
from zscope.experiments.studies.grids.responses import PLANE
from zscope.experiments.studies.judging import Claim, Control, above, claim, mean_interval
from zscope.experiments.studies.rows import Rows, differences
from zscope.experiments.studies.shared.pictures import few_shades
from zscope.experiments.studies.shared.scales import TITLES, setting, title_of
from zscope.experiments.studies.study import Figure, Results, Row, Study, Table, each_run
from zscope.experiments.studies.trained import Trained
from zscope.randomness import named_generator

__all__ = ["STUDY", "count_spikes"]

FIGURES = {"mnist": ("A-F25", "A-F26", "A-F27"), "fashion-mnist": ("A-F28", "A-F29", "A-F30")}


def measure(run: Trained) -> dict[str, Any]:
    classifier = run.among.select("classifier", data=run["data"])[0]
    grid = 16 if run.tiny else 100
    recording = run.recording()
    codes = recording.codes
    answers: dict[str, Any] = {
        "collapsed": 2 - len(recording.used),
        "accuracy": _accuracy(classifier),
        "inside": float((codes.abs() <= 2).all(1).float().mean()),
    }
    near = _map(run, recording, grid, 2.0)
    classes = _read(classifier, _decode(run.model, _points(near)))[0].reshape(grid, grid)
    answers |= _boundaries(near, classes, np.random.default_rng(run.seed))
    answers["spikes"] = count_spikes(near)
    wide = _map(run, recording, grid, 4.0)
    points = _points(wide)
    far = points[points.abs().amax(1) >= 3]
    shown = _decode(run.model, far)
    mixer = named_generator(run.seed, "pixels")
    order = torch.randperm(shown[0].numel(), generator=mixer)
    shuffled = shown.flatten(1)[:, order].reshape(shown.shape)
    answers |= {
        "confidence": _read(classifier, shown)[1],
        "confidence_untrained": _read(classifier, _decode(run.untrained, far))[1],
        "confidence_shuffled": _read(classifier, shuffled)[1],
        "contraction": _contraction(run.model, far),
        "contraction_untrained": _contraction(run.untrained, far),
    }
    if run.is_first:
        answers["maps"] = {
            name: {
                # Every second cell is enough for a picture of this size.
                "divergence": field.divergence[::2, ::2].numpy(),
                "curvature": field.curvature[::2, ::2].numpy(),
                "codes": codes[:300].numpy(),
                "pictures": _sheet(run.model, extent, 8 if run.tiny else 10),
                "arrows": _arrows(run.model, extent, 4 if run.tiny else 14),
            }
            for name, field, extent in (("near", near, 2.0), ("wide", wide, 4.0))
        }
    return answers


def _map(run: Trained, recording: Any, grid: int, extent: float) -> ResponseMap:
    options = {"grid": grid, "extent": [-extent, extent], "decode_grid": 2, "score_grid": 0}
    field = run.assay("response-map", recording, **options)
    assert isinstance(field, ResponseMap)
    return field


def _points(field: ResponseMap) -> torch.Tensor:
    return torch.cartesian_prod(field.axes[0], field.axes[1]).float()


def _decode(model: Autoencoder, codes: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([model.decode(part).clamp(0, 1) for part in codes.split(500)])


def _read(classifier: Trained, pictures: torch.Tensor) -> tuple[np.ndarray, float]:
    """The class that is read from each picture, and the mean confidence."""
    with torch.no_grad():
        parts = [classifier.model.encode(part).mean.softmax(1) for part in pictures.split(500)]
    confidence, classes = torch.cat(parts).max(1)
    return classes.numpy(), float(confidence.mean())


def _accuracy(classifier: Trained) -> float:
    recording = classifier.recording()
    assert recording.factors is not None
    read = recording.codes.argmax(1).numpy()
    return float((read == recording.factors.values[:, 0]).mean())


def _boundaries(field: ResponseMap, classes: np.ndarray, rng: Any) -> dict[str, Any]:
    """How well the divergence tells cells whose right or lower neighbour is of another class."""
    edge = np.zeros(classes.shape, bool)
    edge[:-1] |= classes[:-1] != classes[1:]
    edge[:, :-1] |= classes[:, :-1] != classes[:, 1:]
    divergence = field.divergence.numpy()
    shifts = rng.integers(1, len(edge), size=(20, 2))
    moved = [_auc(np.roll(divergence, tuple(shift), (0, 1)), edge) for shift in shifts]
    return {"auc": _auc(divergence, edge), "auc_shifted": float(np.mean(moved)),
            "edges": float(edge.mean())}  # fmt: skip


def _auc(values: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive cell has a larger value than another one."""
    from scipy.stats import rankdata

    flags = positive.ravel()
    count, others = flags.sum(), (~flags).sum()
    if not count or not others:
        return 0.5
    ranks = rankdata(values.ravel())
    return float((ranks[flags].sum() - count * (count + 1) / 2) / (count * others))


def count_spikes(field: ResponseMap) -> int:
    """Local maxima of the curvature above the 99 % point of its absolute value."""
    curvature = field.curvature.numpy()
    middle = curvature[1:-1, 1:-1]
    highest = np.ones(middle.shape, bool)
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            rows = slice(1 + down, curvature.shape[0] - 1 + down)
            columns = slice(1 + right, curvature.shape[1] - 1 + right)
            highest &= middle >= curvature[rows, columns]
    defined = ~field.undefined.numpy()[1:-1, 1:-1]
    return int((highest & defined & (middle > np.quantile(np.abs(curvature), 0.99))).sum())


def _contraction(model: Autoencoder, codes: torch.Tensor) -> float:
    """Mean length of the responses minus mean length of the codes."""
    with torch.no_grad():
        responses = torch.cat([model.encode(model.decode(part)).mean for part in codes.split(500)])
    return float(responses.norm(dim=1).mean() - codes.norm(dim=1).mean())


def _sheet(model: Autoencoder, extent: float, count: int) -> np.ndarray:
    side = torch.linspace(-extent, extent, count)
    pictures = _decode(model, torch.cartesian_prod(side, side))[:, 0]
    cells = few_shades(pictures).reshape(count, count, *pictures.shape[1:])
    # Latent 0 to the right, latent 1 upwards.
    return np.concatenate([np.concatenate(list(cells[:, k]), 1) for k in range(count)][::-1], 0)


def _arrows(model: Autoencoder, extent: float, count: int) -> dict[str, np.ndarray]:
    side = torch.linspace(-extent, extent, count)
    codes = torch.cartesian_prod(side, side)
    with torch.no_grad():
        responses = model.encode(model.decode(codes)).mean
    return {"from": codes.numpy(), "to": responses.numpy()}


def claims(results: Results) -> Iterator[Claim]:
    for data, (near, wide, arrows) in FIGURES.items():
        rows = results.rows("plane").on(data)
        collapsed = sum(row.get("collapsed", 0) for row in rows)
        name, figure = TITLES[data], {r: r.removeprefix("A-F") for r in (near, wide, arrows)}
        lost = f"{collapsed} of {2 * len(rows)} latents collapsed" if collapsed else ""
        accuracy = mean_interval(rows.values("accuracy"))
        reads = Control(
            "the classifier reads held-out pictures (above .9; Fashion-MNIST above .8)",
            None if accuracy is None else accuracy.value > (0.9 if data == "mnist" else 0.8),
            f"accuracy {accuracy.value:.3f}" if accuracy else "",
        )
        yield claim(
            near, "c1", f"responses diverge at boundaries between classes of {name}",
            source=f"figure {figure[near]}",
            published="figure only: \"high divergence (red) regions correspond to boundaries "
            "between significantly different samples\"",
            expect=above(0), values=differences(rows, rows, "auc", "auc_shifted"),
            statistic="AUC of the divergence for cells next to another class, minus the mean AUC "
            "of the map shifted at random",
            controls=[reads], presupposes=lost,
        )  # fmt: skip
        others = [
            _more_confident(rows, "pictures of an untrained decoder", "confidence_untrained"),
            _more_confident(rows, "pictures with shuffled pixels", "confidence_shuffled"),
        ]
        yield claim(
            wide, "c1", f"pictures decoded far out are still recognisable ({name})",
            source=f"figure {figure[wide]}", expect=above(0),
            published="figure only: reconstructions far out \"still look recognizable\"",
            values=differences(rows, rows, "confidence", "confidence_untrained"),
            statistic="classifier's confidence at max(|z1|, |z2|) in [3, 4], trained minus "
            "untrained decoder",
            controls=[reads, *others], presupposes=lost,
            needs="a measure of recognisability that is not high on nonsense: the classifier is as "
            "confident on pictures of an untrained decoder",
        )  # fmt: skip
        yield claim(
            arrows, "c1", f"responses contract far out ({name})", source=f"figure {figure[arrows]}",
            expect=above(0), values={s: -v for s, v in rows.per_seed("contraction").items()},
            statistic="mean |z| minus mean |R(z)| on cells with max(|z1|, |z2|) in [3, 4]",
            presupposes=lost, controls=[_less_contracted(rows)],
            needs="a measure of contraction that is small where the encoder maps everything to one "
            "point, as it does before training",
        )  # fmt: skip


def _more_confident(rows: Rows, text: str, key: str) -> Control:
    interval = mean_interval(list(differences(rows, rows, "confidence", key).values()))
    passed = None if interval is None else interval.low > 0
    return Control(f"confidence is above that on {text}", passed, f"difference {interval}")


def _less_contracted(rows: Rows) -> Control:
    more = mean_interval(
        list(differences(rows, rows, "contraction_untrained", "contraction").values())
    )
    passed = None if more is None else more.low > 0
    return Control("responses of the untrained model contract less", passed, f"by {more}")


def tables(results: Results) -> Iterator[Table]:
    keys = {"auc": "AUC", "auc_shifted": "AUC, shifted", "spikes": "curvature spikes",
            "inside": "codes in [-2, 2]²", "confidence": "confidence far out",
            "confidence_untrained": "untrained", "confidence_shuffled": "shuffled pixels",
            "contraction": "|R| - |z|", "contraction_untrained": "the same, untrained",
            "collapsed": "collapsed"}  # fmt: skip
    cells = [["data", "seed", *keys.values()]]
    for row in Rows(results.rows("plane")):
        values = (row.get(key) for key in keys)
        cells.append([title_of(row["data"]), str(row["seed"]),
                      *("" if value is None else f"{value:.3g}" for value in values)])  # fmt: skip
    yield Table(
        "by-seed", "Divergence at class boundaries, and pictures far out", cells, left=2,
        row="A-F25", notes=["The captions speak of 10 curvature spikes; nothing else is published "
                            f"in numbers. {setting(results, 'Perceptrons, 3,000 steps.')}"],
    )  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import panel_grid
    from zscope.plots.theme import BLUE, RED, diverging, symmetric_limit

    for data, ids in FIGURES.items():
        first = next((r for r in results.rows("plane").on(data) if "maps" in r), None)
        maps = None if first is None else first["maps"]
        shown = "" if first is None else f"{TITLES[data]}, seed {first['seed']}"
        for name, row in zip(("near", "wide"), ids[:2], strict=True):
            if maps is None:
                continue
            extent = {"near": 2.0, "wide": 4.0}[name]
            figure, grid = panel_grid(1, 3, height=2.5)
            box = (-extent, extent, -extent, extent)
            for ax, key in zip(grid[0], ("divergence", "curvature"), strict=False):
                values = np.asarray(maps[name][key], dtype=float).T
                limit = symmetric_limit(values, 0.98)
                ax.imshow(values, origin="lower", extent=box, cmap=diverging(), vmin=-limit,
                          vmax=limit)  # fmt: skip
                ax.set(title=key, xlabel="z1", ylabel="z2")
            codes = np.asarray(maps[name]["codes"])
            grid[0, 0].scatter(codes[:, 0], codes[:, 1], s=0.6, color="#222222", linewidths=0)
            grid[0, 0].set(xlim=box[:2], ylim=box[2:])
            grid[0, 2].imshow(np.asarray(maps[name]["pictures"]), cmap="gray", extent=box)
            grid[0, 2].set(title="decoded", xlabel="z1", ylabel="z2")
            yield Figure(
                f"{data}-{name}", f"{shown}, z in [-{extent:g}, {extent:g}]²: "
                "divergence of the responses with codes (red: diverging), mean curvature, decoded "
                "pictures.", figure, row=row,
            )  # fmt: skip
        if maps is not None:
            figure, grid = panel_grid(1, 2, height=3.4)
            for ax, name in zip(grid[0], ("near", "wide"), strict=True):
                arrows = {k: np.asarray(v) for k, v in maps[name]["arrows"].items()}
                start, end = arrows["from"], arrows["to"]
                ax.quiver(*start.T, *(end - start).T, angles="xy", scale_units="xy", scale=1,
                          width=0.002, color="#222222", alpha=0.6)  # fmt: skip
                ax.scatter(*start.T, s=3, color=BLUE, linewidths=0)
                ax.scatter(*end.T, s=3, color=RED, linewidths=0)
                ax.set(xlabel="z1", ylabel="z2", aspect="equal")
            yield Figure(
                f"{data}-arrows", f"{shown}: from each code (blue) to its response (orange).",
                figure, row=ids[2],
            )  # fmt: skip


STUDY = Study(
    name="responses-plane",
    minutes=3,
    document="A",
    title="Do responses diverge at the boundaries between classes?",
    rows=(
        Row("A-F25", "figure 25", "MNIST VAE, whole plane [-2, 2]"),
        Row("A-F26", "figure 26", "the same, [-4, 4]"),
        Row("A-F27", "figure 27", "arrows from codes to responses"),
        Row("A-F28", "figure 28", "Fashion-MNIST 8-VAE, whole plane [-2, 2]"),
        Row("A-F29", "figure 29", "the same, [-4, 4]"),
        Row("A-F30", "figure 30", "arrows from codes to responses"),
    ),
    grids={"plane": PLANE, "classifier": PLANE_CLASSIFIER},
    measures=(each_run(measure, "plane"),),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="Perceptrons and 3,000 steps; the accuracies that a classifier must have (.9, for "
    "Fashion-MNIST .8).",
    changed="A-F27 and A-F30 c1 had held without the control of the untrained model.",
)
