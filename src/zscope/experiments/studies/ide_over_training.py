"""Intrinsic dimensions: of data, of means and samples over sizes, and of layers over training.

Maximum likelihood estimates (k = 20) as in the document. Sprites with continuous factors (12,000
pictures, tanh networks of 2 x 128 units, 2,500 steps) and Fashion-MNIST (2 x 128 ReLU, 2,000 steps,
2.4 epochs) take the place of Symsol, dSprites and CelebA.

Beware: an estimate from neighbours needs distinct observations whose factors are not on a grid, so
sprites on a grid are shown only, and equal rows count once. Estimates are too low above about ten
dimensions. A single epoch of 169 steps is a short one next to the published 10,000. Untrained
encoders and Gaussians of a known dimension are the controls.

Bonheme, PhD thesis, Kent 2023: sections 8.5.1 and 8.8.1.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from zscope.assays.dimension.gaps import dimension_gap
from zscope.assays.dimension.intrinsic import intrinsic_dimension
from zscope.assays.neighbours import nearest_neighbours
from zscope.errors import Undefined
from zscope.experiments.over_training import DimensionsOverTraining
from zscope.experiments.studies.grids.fondue import (
    CELEBA_EPOCHS,
    CONTINUOUS_SIZES,
    DIGIT_SIZES,
    DSPRITES_EPOCHS,
    DSPRITES_SIZES,
    FASHION_SIZES,
    FOLLOWED_EPOCHS,
    SPRITE_SIZES,
    SYMSOL_EPOCHS,
    SYMSOL_SIZES,
)
from zscope.experiments.studies.grids.regime import SPRITES_CONTINUOUS
from zscope.experiments.studies.judging import (
    FAILS,
    Claim,
    Control,
    above,
    below,
    claim,
    claim_of_parts,
    mean_interval,
    within,
)
from zscope.experiments.studies.rows import Rows, mean_and_sd, sd
from zscope.experiments.studies.shared.polarised import COLOURS, apart, bounded
from zscope.experiments.studies.shared.sizes import (
    all_data,
    answers,
    ended_well,
    gaps_at,
    measure_data,
    searches,
    start_of,
)
from zscope.experiments.studies.study import (
    Figure,
    Results,
    Row,
    Study,
    Table,
    each_run,
    for_groups,
    once,
)
from zscope.experiments.studies.trained import Trained
from zscope.experiments.training_dynamics import dynamics
from zscope.recording import choose_rows
from zscope.tables.statistics import rank_correlation

__all__ = ["STUDY"]

DATA = {"continuous": "continuous sprites", "fashion": "Fashion-MNIST"}
ALL_DATA = {**DATA, "digits": "digits", "sprites": "sprites on a grid"}
PUBLISHED = {"symsol": "Symsol", "dsprites": "dSprites", "fashion": "CelebA"}
"""The groups at scale paper."""
NEIGHBOURS = (3, 5, 10, 20)
SUBSETS = 6
KNOWN = (2, 5, 10)
FOLLOWED, FEW, MANY = 10, 2, 32
"""Latents of the models that are followed over training; of those with too few; of those of CelebA
with enough, for which 10 are too few."""
EPOCH = {"continuous": 169 / 2_500, "fashion": 844 / 2_000} | {
    f"{name}-epochs": 1 / FOLLOWED_EPOCHS[-1] for name in ("symsol", "dsprites", "celeba")
}
"""The share of the training that is one epoch."""


# Measurements


def _estimates(x: torch.Tensor) -> dict[str, float]:
    near = nearest_neighbours(x, max(NEIGHBOURS))
    curve = intrinsic_dimension(near).curve
    values = {str(k): curve[k] for k in NEIGHBOURS if k in curve}
    return values | {"twonn": intrinsic_dimension(near, method="twonn").dimension}


def measure_observations(runs: Sequence[Trained]) -> dict[str, Any]:
    """Estimates of the dimension of the data, in several random subsets."""
    run = runs[0]
    data = all_data(run)
    count = min(3_000, len(data) * 3 // 4)
    subsets = [choose_rows(len(data), 200 if run.tiny else count, seed) for seed in range(SUBSETS)]
    return {
        "data": run["data"],
        "rows": len(subsets[0]),
        "estimates": [_estimates(data.batch(rows).flatten(1)) for rows in subsets],
    }


def measure_known(runs: Sequence[Trained]) -> dict[str, Any]:
    """Estimates of Gaussian samples of a known dimension, in 30 columns."""
    answer: dict[str, Any] = {}
    for dimension in KNOWN:
        answer[str(dimension)] = []
        for seed in range(SUBSETS):
            generator = torch.Generator().manual_seed(100 * dimension + seed)
            rows = 200 if runs[0].tiny else 3_000
            codes = torch.randn(rows, dimension, generator=generator)
            x = codes @ torch.randn(dimension, 30, generator=generator)
            answer[str(dimension)].append(_estimates(x))
    return answer


def measure_codes(run: Trained) -> dict[str, Any]:
    """Dimensions of means and samples, before and after training; types; gaps for FONDUE."""
    data = all_data(run)
    steps = sorted(run.stages)
    half = min(steps, key=lambda step: abs(step - steps[-1] / 2))
    gaps = gaps_at(run, half, data, ())
    last = gaps_at(run, steps[-1], data, ())
    values: dict[str, Any] = {"at": [half], **{name: [value] for name, value in gaps.items()}}
    for name, step in (("trained", steps[-1]), ("untrained", 0)):
        recording = run.recording(run.at(step), samples=200 if run.tiny else 3_000, data=data)
        try:
            gap = dimension_gap(recording)
        except Undefined:
            continue
        values |= {f"{name}_means": gap.means, f"{name}_samples": gap.sampled}
    counts = {f"final_{kind}": last[kind] for kind in ("active", "mixed", "passive")}
    return values | counts


def measure_layers(run: Trained) -> dict[str, Any]:
    """The dimension of every layer at every snapshot."""
    result = dynamics(run.path, "dimension", all_data(run), samples=200 if run.tiny else 2_000)
    found = result.results["dimension"]
    assert isinstance(found, DimensionsOverTraining)
    epoch = min((step for step in found.steps if step),
                key=lambda step: abs(step - EPOCH[run.group] * found.steps[-1]))  # fmt: skip
    layers = {}
    for name in found.layers:
        values = found.of(name)
        layers[name] = [values.get(step) for step in found.steps]
    return {
        "layer_steps": found.steps, "epoch": epoch, "layers": layers,
        "settled": found.settled_step,
        "after": {name: _change(found, name, epoch) for name in found.layers},
        "before": {name: _change(found, name, 0, epoch) for name in found.layers},
    }  # fmt: skip


def _change(
    found: DimensionsOverTraining, layer: str, since: int, until: int | None = None
) -> float | None:
    try:
        return found.change(layer, since, until)
    except Undefined:
        return None


def _data(results: Results) -> dict[str, str]:
    """The groups with models of every size, and their titles."""
    return PUBLISHED if results.scale == "paper" else DATA


def _all_data(results: Results) -> dict[str, str]:
    return PUBLISHED if results.scale == "paper" else ALL_DATA


def _layer_rows(results: Results, group: str, latents: int) -> Rows:
    """The models that are followed over training."""
    if results.scale == "paper":
        group = f"{'celeba' if group == 'fashion' else group}-epochs"
    return results.rows(group, latents=latents)


def _few_and_many(results: Results) -> tuple[int, int]:
    return (FOLLOWED, MANY) if results.scale == "paper" else (FEW, FOLLOWED)


# Claims


def claims(results: Results) -> Iterator[Claim]:
    yield _neighbourhoods(results)
    yield from _divergence(results)
    yield _types(results)
    yield from _training(results)


def _observed(results: Results, group: str) -> list[Mapping[str, float]]:
    rows = results.rows(group)
    units = results.units("measure_observations").values()
    found = [each["estimates"] for each in units if rows and each["data"] == rows[0]["data"]]
    return list(found[0]) if found else []


def _growth(estimates: Sequence[Mapping[str, float]]) -> dict[int, float]:
    return {number: each["20"] / each["10"] - 1 for number, each in enumerate(estimates)
            if "20" in each and "10" in each}  # fmt: skip


def _neighbourhoods(results: Results) -> Claim:
    known = results.once("measure_known").get("5") or []
    control = {k: each["20"] / 5 - 1 for k, each in enumerate(known) if "20" in each}
    parts = [
        claim(
            "D-F8.4", title, "one dataset", source="figure 8.4", expect=within(0.15),
            statistic="estimate with k = 20 over that with k = 10, minus 1; six random subsets",
            values=_growth(_observed(results, group)),
            controls=[bounded("a Gaussian of dimension 5 is estimated within 10 %", control,
                              within(0.1))],
        )
        for group, title in _all_data(results).items()
        if group != "sprites"
    ]  # fmt: skip
    return claim_of_parts(
        "D-F8.4", "c1", "estimates are stable for k between 10 and 20", parts,
        source="figure 8.4, section 8.5.1",
        published="k = 20: Symsol 4, dSprites 11, CelebA 22",
        chosen="" if results.scale == "paper" else
        "judged on data whose factors are not on a grid",
    )  # fmt: skip


def _gap(row: Mapping[str, Any], when: str = "trained") -> float | None:
    means, samples = row.get(f"{when}_means"), row.get(f"{when}_samples")
    return None if means is None or samples is None else samples - means


def _sizes(rows: Rows, when: str = "trained") -> dict[int, float]:
    """The gap by size, of one seed."""
    gaps = {row["latents"]: _gap(row, when) for row in rows}
    return {n: gap for n, gap in sorted(gaps.items()) if gap is not None}


def _divergence(results: Results) -> Iterator[Claim]:
    equal, grows = [], []
    for group, title in _data(results).items():
        rows = results.rows(group)
        found = searches(rows, start_of(results, rows))
        numbers = answers(found)
        below_n: dict[str, dict[int, float]] = {"trained": {}, "untrained": {}}
        bend: dict[str, dict[int, float]] = {"trained": {}, "untrained": {}}
        for seed, own in rows.by("seed").items():
            for when, similar in below_n.items():
                gaps, number = _sizes(own, when), numbers.get(seed)
                if number is None:
                    continue
                small = [(n, gap) for n, gap in gaps.items() if n <= number]
                large = [(n, gap) for n, gap in gaps.items() if n >= number]
                if small:
                    similar[seed] = max((gap for _, gap in small), key=abs)
                if len(large) > 1 and len(small) > 1:
                    bend[when][seed] = _slope(large) - _slope(small)
        before = mean_interval(list(below_n["untrained"].values()))
        equal.append(claim(
            "D-F8.9", title, "one dataset", source="figure 8.9", expect=within(1),
            statistic="dimension of samples minus means, the largest over sizes up to FONDUE's "
            "answer", values=below_n["trained"],
            controls=[ended_well(found), Control(
                "means and samples of untrained models differ by more than 1 in dimension",
                None if before is None else within(1).verdict(before) == FAILS, str(before))],
        ))  # fmt: skip
        grows.append(claim(
            "D-F8.9", title, "one dataset", source="figure 8.9", expect=above(0.5),
            statistic="slope of the difference over the number of latents: from FONDUE's answer on "
            "minus up to it", values=bend["trained"],
            controls=[ended_well(found),
                      apart("in untrained models the dimensions of means and samples diverge less",
                            bend["trained"], bend["untrained"])],
        ))  # fmt: skip
    source = "figure 8.9, section 8.8.1"
    yield claim_of_parts(
        "D-F8.9", "c1", "up to FONDUE's number of latents, means and samples have the same "
        "intrinsic dimension", equal, source=source,
        needs="where untrained models are as near, sizes above the dimension of the data: below it "
        "equality is no evidence of learning",
    )  # fmt: skip
    yield claim_of_parts(
        "D-F8.9", "c2", "beyond it their dimensions diverge", grows, source=source,
    )  # fmt: skip


def _slope(points: Sequence[tuple[int, float]]) -> float:
    x, y = np.array(points, dtype=float).T
    return float(np.polyfit(x, y, 1)[0])


def _follows_types(rows: Rows, when: str) -> dict[int, float | None]:
    """Correlation over sizes of the difference of dimensions and the number of unused latents."""
    values = {}
    for seed, own in rows.by("seed").items():
        known = [(_gap(row, when), (row.get("final_mixed") or 0) + (row.get("final_passive") or 0))
                 for row in own if _gap(row, when) is not None]  # fmt: skip
        values[seed] = rank_correlation([a for a, _ in known], [b for _, b in known])
    return values


def _types(results: Results) -> Claim:
    parts = []
    for group, title in _data(results).items():
        values, before = (_follows_types(results.rows(group), when)
                          for when in ("trained", "untrained"))  # fmt: skip
        parts.append(claim(
            "D-F8.10", title, "one dataset", source="figure 8.10", expect=above(0.9),
            statistic="Spearman's correlation over sizes of the difference of dimensions and the "
            "number of mixed and passive latents", values=values,
            controls=[apart("in untrained models the difference of dimensions follows the number "
                            "of mixed and passive latents less",
                            *({k: v for k, v in own.items() if v is not None}
                              for own in (values, before)))],
        ))  # fmt: skip
    return claim_of_parts(
        "D-F8.10", "c1", "the difference grows with the number of mixed and passive latents",
        parts, source="figure 8.10, section 8.8.1",
        needs="models of one size that differ in these numbers: over sizes both grow with the "
        "number of latents, before training too",
    )  # fmt: skip


def _mean_change(row: Mapping[str, Any], when: str, early: bool = False) -> float | None:
    """The mean over layers of the largest relative change, or over those before the means.

    Without the input, which stays as it is; with `early` without the last layer before the means
    either, whose size is the number of latents.
    """
    changes = row.get(when) or {}
    names = [name for name in changes if name != "input"]
    if early and "mean" in names:
        names = names[: max(0, names.index("mean") - 1)]
    known = [changes[name] for name in names if changes[name] is not None]
    return float(np.mean(known)) if known else None


def _changes(rows: Rows, when: str, early: bool = False) -> dict[int, float]:
    values = {row["seed"]: _mean_change(row, when, early) for row in rows}
    return {seed: value for seed, value in values.items() if value is not None}


def _training(results: Results) -> Iterator[Claim]:
    parts = []
    source = "figure 8.11, section 8.8.1"
    for group, title in _data(results).items():
        rows = _layer_rows(results, group, FOLLOWED)
        after, before = _changes(rows, "after"), _changes(rows, "before")
        parts.append(claim(
            "D-F8.11", title, "one dataset", source=source, expect=below(0.2),
            statistic="largest relative change of a layer's dimension after the first epoch, mean "
            "over layers; 10 latents", values=after,
            controls=[apart("dimensions of layers change more within the first epoch than after "
                            "it", before, after)],
        ))  # fmt: skip
    yield claim_of_parts(
        "D-F8.11", "c1", "the dimensions of layers do not change much after the first epoch", parts,
        source=source, published="figure only; \"do not change much\"",
        needs="epochs as long as the published ones",
    )  # fmt: skip
    less, more = _few_and_many(results)
    few, many = (_changes(_layer_rows(results, "fashion", size), "after", early=True)
                 for size in (less, more))  # fmt: skip
    yield claim(
        "D-F8.11", "c2", "with too few latents they change more, in the early layers of the "
        "encoder", source=source, expect=above(0),
        statistic=f"the same over the hidden layers of the encoder: {less} minus {more} "
        f"latents, {_data(results)['fashion']}",
        values={seed: few[seed] - many[seed] for seed in few if seed in many},
        published="figure only; CelebA with 10 latents, fewer than its dimension of 22",
    )  # fmt: skip


# Tables and figures


def tables(results: Results) -> Iterator[Table]:
    names = [*(str(k) for k in NEIGHBOURS), "twonn"]
    cells = [["data", *(f"k = {k}" for k in NEIGHBOURS), "TwoNN"]]
    for printed, value in (("Symsol", "4"), ("dSprites", "11"), ("CelebA", "22")):
        cells.append([f"published: {printed}", "", "", "", value, ""])
    for group, title in _all_data(results).items():
        found = _observed(results, group)
        cells.append([title, *(mean_and_sd([each.get(k) for each in found]) for k in names)])
    for dimension, found in results.once("measure_known").items():
        cells.append([f"Gaussian of dimension {dimension}",
                      *(mean_and_sd([each.get(k) for each in found]) for k in names)])  # fmt: skip
    yield Table(
        "figure-8.4", "Intrinsic dimension of the data", cells, row="D-F8.4",
        notes=["Maximum likelihood with k neighbours, and TwoNN; mean ± standard deviation over "
               "six random subsets of at most 3,000 observations, equal ones counted once; they "
               "overlap, so that their spread is too small. The document prints the values at "
               "k = 20 in its text."],
    )  # fmt: skip
    cells = [["data", "latents", "FONDUE", "means", "samples", "untrained: means", "samples",
              "a / m / p"]]  # fmt: skip
    for group, title in _data(results).items():
        rows = results.rows(group)
        answer = mean_and_sd(answers(searches(rows, start_of(results, rows))).values(), 1)
        for size, own in rows.by("latents").items():
            counts = [own.values(f"final_{kind}") for kind in COLOURS][::-1]
            types = " / ".join(f"{np.mean(values):.1f}" if values else "" for values in counts)
            cells.append([title, str(size), answer,
                          *(mean_and_sd(own.values(f"{when}_{what}"))
                            for when in ("trained", "untrained") for what in ("means", "samples")),
                          types])  # fmt: skip
    yield Table("figure-8.9", "Intrinsic dimension of means and samples, and types of latents",
                cells, row="D-F8.9",
                notes=["Mean ± standard deviation over seeds; active, mixed and passive latents. "
                       "The document prints no numbers."])  # fmt: skip
    cells = [["data", "latents", "after the first epoch", "within it", "settled at step"]]
    for group, title in _data(results).items():
        for size in _few_and_many(results):
            own = _layer_rows(results, group, size)
            settled = [row.get("settled") for row in own if row.get("layers")]
            cells.append([
                title, str(size), mean_and_sd(_changes(own, "after").values()),
                mean_and_sd(_changes(own, "before").values()),
                ", ".join("no" if step is None else f"{step:,}" for step in settled),
            ])  # fmt: skip
    yield Table("figure-8.11", "Largest relative change of the dimension of layers", cells,
                row="D-F8.11",
                notes=["Mean over layers, mean ± standard deviation over seeds. Settled: the step "
                       "from which every layer is within 10 % of its last value."])  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    yield plot_data(results)
    yield plot_sizes(results)
    yield plot_types(results)
    yield plot_layers(results)


def plot_data(results: Results) -> Figure:
    from zscope.plots import panel_grid

    places = _all_data(results)
    figure, grid = panel_grid(1, len(places), width=9.0, height=2.6, sharey=True)
    names = [*(str(k) for k in NEIGHBOURS), "twonn"]
    for ax, (group, title) in zip(grid[0], places.items(), strict=True):
        found = _observed(results, group)
        for place, name in enumerate(names):
            values = [each[name] for each in found if name in each]
            if values:
                ax.bar(place, np.mean(values), 0.7, color="#0072B2" if name != "twonn" else
                       "#E69F00")  # fmt: skip
                ax.errorbar(place, np.mean(values), sd(values), color="#222222", linewidth=0.8)
        ax.set_xticks(range(len(names)), ["3", "5", "10", "20", "TwoNN"])
        ax.set_xlabel("neighbours k")
        ax.set_title(title, fontsize=9)
    grid[0][0].set_ylabel("intrinsic dimension")
    return Figure("figure-8.4", "Intrinsic dimension of the data: maximum likelihood with k "
                 "neighbours (blue) and TwoNN (orange); bars are means over six subsets, "
                 "with their standard deviation.", figure, row="D-F8.4")  # fmt: skip


def plot_sizes(results: Results) -> Figure:
    from zscope.plots import legend_below, panel_grid

    places = _data(results)
    figure, grid = panel_grid(1, len(places), width=3.3 * len(places), height=2.8)
    for ax, (group, title) in zip(grid[0], places.items(), strict=True):
        rows = results.rows(group)
        for what, colour in (("means", "#0072B2"), ("samples", "#D55E00")):
            for when, style in (("trained", "-"), ("untrained", ":")):
                points = {n: own.values(f"{when}_{what}") for n, own in rows.by("latents").items()}
                known = {n: values for n, values in points.items() if values}
                ax.plot(list(known), [np.mean(v) for v in known.values()], style, color=colour,
                        label=what if when == "trained" else f"{what}, untrained",
                        linewidth=1.3 if when == "trained" else 0.8)  # fmt: skip
                for n, values in known.items() if when == "trained" else ():
                    ax.scatter([n] * len(values), values, s=6, color=colour, alpha=0.5,
                               linewidths=0)  # fmt: skip
        numbers = list(answers(searches(rows, start_of(results, rows))).values())
        if numbers:
            ax.axvline(np.mean(numbers), color="#222222", linestyle="--", linewidth=0.8,
                       label="FONDUE, mean")  # fmt: skip
        ax.set(xlabel="latents", ylabel="intrinsic dimension")
        ax.set_title(title, fontsize=9)
    legend_below(figure, grid)
    return Figure("figure-8.9", "Intrinsic dimension of means and samples over the number of "
                 "latents: lines are means over seeds, points are seeds. Dotted: untrained models.",
                 figure, row="D-F8.9")  # fmt: skip


def plot_types(results: Results) -> Figure:
    from zscope.plots import legend_below, panel_grid

    places = _data(results)
    figure, grid = panel_grid(1, len(places), width=3.3 * len(places), height=2.8)
    for ax, (group, title) in zip(grid[0], places.items(), strict=True):
        by_size = results.rows(group).by("latents")
        base = np.zeros(len(by_size))
        for kind in ("active", "mixed", "passive"):
            counts = [float(np.mean(own.values(f"final_{kind}") or [0]))
                      for own in by_size.values()]  # fmt: skip
            ax.bar(range(len(by_size)), counts, 0.75, bottom=base, color=COLOURS[kind], label=kind)
            base += np.array(counts)
        ax.set_xticks(range(len(by_size)), [str(n) for n in by_size])
        ax.set(xlabel="latents", ylabel="latents of each type")
        ax.set_title(title, fontsize=9)
    legend_below(figure, grid)
    return Figure("figure-8.10", "Active, mixed and passive latents over the number of latents, "
                 "means over seeds.", figure, row="D-F8.10")  # fmt: skip


def plot_layers(results: Results) -> Figure:
    from zscope.plots import legend_below, panel_grid
    from zscope.plots.theme import categories

    panels = [(group, FOLLOWED) for group in _data(results)]
    panels.append(("fashion", MANY if results.scale == "paper" else FEW))
    figure, grid = panel_grid(1, len(panels), width=3.0 * len(panels), height=3.0)
    for ax, (group, size) in zip(grid[0], panels, strict=True):
        rows = [row for row in _layer_rows(results, group, size) if row.get("layers")]
        if not rows:
            continue
        layers = [name for name in rows[0]["layers"] if name != "input"]  # which stays as it is
        for name, colour in zip(layers, categories(len(layers)), strict=True):
            lines = np.array([[np.nan if v is None else v for v in row["layers"].get(name, [])]
                              for row in rows], dtype=float)  # fmt: skip
            steps = np.maximum(np.array(rows[0]["layer_steps"], dtype=float), 1)
            for line in lines:
                ax.plot(steps, line, color=colour, linewidth=0.4, alpha=0.5)
            ax.plot(steps, lines.mean(0), color=colour, linewidth=1.3, label=name)
        ax.axvline(rows[0]["epoch"], color="#8a8a8a", linewidth=0.8, linestyle=":")
        ax.set(xlabel="step (0 at the left end)", xscale="log")
        ax.set_title(f"{_data(results)[group]}, {size} latents", fontsize=9)
    grid[0][0].set_ylabel("intrinsic dimension")
    legend_below(figure, grid)
    return Figure(
        "figure-8.11", "Intrinsic dimension of every layer over training: thick lines are means "
        "over seeds, thin ones seeds; dotted: the end of the first epoch.", figure, row="D-F8.11",
    )  # fmt: skip


STUDY = Study(
    name="ide-over-training",
    minutes=16,
    own_minutes=5,
    document="D",
    title="What are the intrinsic dimensions of data, codes and layers?",
    rows=(
        Row("D-F8.4", "figure 8.4", "intrinsic dimension of the data by estimator"),
        Row("D-F8.9", "figure 8.9", "of means and samples over the number of latents"),
        Row("D-F8.10", "figure 8.10", "types of latents over the number of latents"),
        Row("D-F8.11", "figure 8.11", "of layers over training, 10 latents"),
    ),
    grids={"continuous": CONTINUOUS_SIZES, "fashion": FASHION_SIZES, "digits": DIGIT_SIZES,
           "sprites": SPRITE_SIZES, "symsol": SYMSOL_SIZES, "dsprites": DSPRITES_SIZES,
           "symsol-epochs": SYMSOL_EPOCHS, "dsprites-epochs": DSPRITES_EPOCHS,
           "celeba-epochs": CELEBA_EPOCHS},
    measures=(
        each_run(measure_codes, *DATA, *PUBLISHED),
        each_run(measure_layers, *DATA, latents=[FEW, FOLLOWED],
                 data=[SPRITES_CONTINUOUS, "fashion-mnist"]),
        each_run(measure_layers, "symsol-epochs", "dsprites-epochs", "celeba-epochs"),
        for_groups(measure_observations, "data"),
        for_groups(measure_data, "data", groups=[*DATA, *PUBLISHED]),
        once(measure_known, "continuous", "symsol"),
    ),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="k = 20 as published; six subsets of the data in place of seeds; margins as written in "
    "the claims. All fixed before the first run that is judged.",
    changed="D-F8.10 c1 had held without the control of untrained models.",
)  # fmt: skip
