"""Tables and figures of `regime_dynamics`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zscope.assays.similarity.layers import blocks_of
from zscope.experiments.studies.rows import mean_and_sd, sd
from zscope.experiments.studies.shared.dynamics_comparisons import (
    COUNTS,
    FEATURES,
    SHARES,
    STRENGTHS,
    active_counts,
    added,
    all_pairs,
    connected_unit,
    data_of,
    matrix_rows,
    seeds_of,
    titles,
)
from zscope.experiments.studies.shared.maps import block_mean, plot_panel
from zscope.experiments.studies.study import Figure, Results, Table

__all__ = ["plot_figures", "tables"]


def tables(results: Results) -> Iterator[Table]:
    cells = [["model", "step", "encoder", "latents", "decoder", "encoder, added",
              "latents, added", "decoder, added"]]  # fmt: skip
    parts = ("encoder", "latents", "decoder")
    for name, title in titles(results).items():
        values = results.units("measure_training").get(name) or {}
        for number, step in enumerate(values.get("steps") or []):
            seeds = values["seeds"]
            raw = [mean_and_sd([block_mean(own["diagonals"][number], part)
                              for own in seeds.values()]) for part in parts]  # fmt: skip
            gained = [mean_and_sd([added(values, seed, part, step) for seed in seeds])
                     for part in parts]  # fmt: skip
            cells.append([title, f"{step:,}", *raw, *gained])
    yield Table(
        "over-training", "CKA of equal layers with the final model over training", cells, left=2,
        row="D-F7.2",
        notes=["Mean over layers, mean ± standard deviation over seeds; the final model has other "
               "noise. Added: minus that of the untrained model (step 0). The document prints no "
               "numbers."],
    )  # fmt: skip
    cells = [
        [
            "pair",
            "encoder",
            "mean",
            "variance",
            "samples",
            "decoder",
            "encoder, plain CKA",
            "samples of the first and the second's layers",
            "and the other way round",
            "active latents of the second",
        ]
    ]
    paper = results.scale == "paper"
    for name in STRENGTHS:
        if name.startswith("connected") and not paper:
            continue
        seeds = seeds_of(results, "measure_strengths", name)
        cells.append([name, *_diagonal_cells(seeds),
                      *(mean_and_sd((own.get(side) or {}).get("sampled") for own in seeds.values())
                        for side in ("row", "column")),
                      mean_and_sd(active_counts(results, name), 1)])  # fmt: skip
    pairs = data_of(results)
    if paper:
        connected = data_of(results, connected=True)
        pairs = pairs | {name: f"{title}, fully connected" for name, title in connected.items()}
    for name, title in pairs.items():
        unit = results.units("measure_objectives").get(name) or {}
        for words, seeds in (("β-VAE and DIP-VAE-II", unit.get("seeds") or {}),
                             ("untrained pairs", unit.get("untrained") or {})):  # fmt: skip
            cells.append([f"{words}, {title}", *_diagonal_cells(seeds), "", "", ""])
    yield Table(
        "pairs", "CKA of equal layers of pairs of models with different seeds", cells, row="D-F7.4",
        notes=["Mean over layers, mean ± standard deviation over seeds. The document prints no "
               "numbers, but that encoders of fully connected networks have at least .8."],
    )  # fmt: skip


def _diagonal_cells(seeds: Mapping[str, Any]) -> list[str]:
    diagonals = [own.get("diagonal") or {} for own in seeds.values()]
    return [
        mean_and_sd([block_mean(each, "encoder") for each in diagonals]),
        *(mean_and_sd([each.get(name) for each in diagonals])
          for name in ("mean", "variance", "sampled")),
        mean_and_sd([block_mean(each, "decoder") for each in diagonals]),
        mean_and_sd([block_mean(own.get("plain diagonal"), "encoder") for own in seeds.values()]),
    ]  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    yield plot_matrices(results)
    for maker in (plot_early, plot_pairs, plot_both, plot_strips):
        yield from maker(results)
    yield plot_input(results)
    yield plot_losses(results)
    yield plot_counts(results)


def plot_matrices(results: Results) -> Figure:
    from zscope.plots import legend_below, panel_grid

    figure, grid = panel_grid(1, 3, width=8.4, height=2.6, sharey=True)
    for ax, name in zip(grid[0], SHARES, strict=True):
        groups = matrix_rows(results, name).by("n")
        for key, words, colour in (("plain", "CKA", "#0072B2"), ("cka", "CKA, debiased", "#56B4E9"),
                                   ("procrustes", "Procrustes", "#D55E00")):  # fmt: skip
            means = [np.mean(own.values(key)) for own in groups.values()]
            ax.plot(list(groups), means, marker="o", markersize=2.5, color=colour, label=words)
        if SHARES[name]:
            ax.axhline(SHARES[name], color="#222222", linewidth=0.6, linestyle=":")
        elif groups:
            x = np.array(list(groups), dtype=float)
            ax.plot(x, FEATURES / (x + FEATURES), color="#222222", linewidth=0.7, linestyle=":")
            ax.plot(x, 8 / (3 * np.pi) * np.sqrt(FEATURES / x), color="#222222", linewidth=0.7,
                    linestyle="--", label="closed form")  # fmt: skip
        ax.set(xscale="log", xlabel="samples", ylim=(-0.05, 1.05))
        ax.set_xticks(COUNTS, [f"{count:,}" for count in COUNTS], fontsize=7, rotation=45)
        ax.minorticks_off()
        ax.set_title(f"A and {name} ({SHARES[name]:.0%} in common)", fontsize=9)
    grid[0][0].set_ylabel("similarity")
    legend_below(figure, grid)
    return Figure("figure-7.1", "Similarity of Gaussian matrices of 50 features that share some of "
                  "them, over the number of samples; black: the share, or the closed form of "
                  "unrelated matrices.", figure, row="D-F7.1")  # fmt: skip


def _plot_grid(panels: Sequence[Sequence[Any]], **options: Any) -> Any:
    """A grid of maps; None if no map was measured."""
    from zscope.plots import heatmaps

    known = [[panel for panel in line if panel is not None] for line in panels]
    known = [line for line in known if line]
    if not known or not all(line[0].rows for line in known):
        return None
    return heatmaps(known, blocks=blocks_of, **{"label": "CKA", **options})


def plot_early(results: Results) -> Iterator[Figure]:
    def maps(names: Sequence[str], chosen: Callable[[Mapping[str, Any]], list[int]]) -> list[Any]:
        lines = []
        for name in names:
            steps = chosen(results.units("measure_training").get(name) or {})
            lines.append([
                plot_panel(results, "measure_training", name, f"step {step}",
                           "untrained" if step == 0 else f"step {step:,}")
                for step in steps
            ])  # fmt: skip
        return lines

    every = 1 if results.scale == "paper" else 2
    names = ("tc", "dip", "annealed")
    figure = _plot_grid(
        maps(names, lambda v: [0, v["early"], v["steps"][-1]] if v else []),
        x="layers of the final model", y="layers at this step",
        down=[titles(results)[n] for n in names],
    )  # fmt: skip
    if figure is not None:
        yield Figure("figure-7.2", "CKA of the layers early in training, and of the untrained "
                     "model beside them, with those of the final model; at the right the final "
                     "model with other noise. Means over seeds.", figure, row="D-F7.2")  # fmt: skip
    figure = _plot_grid(
        maps(["fashion"],
             lambda v: sorted({0, *v["steps"][1::every], v["steps"][-1]}) if v else []),
        x="layers of the final model", y="layers at this step",
    )  # fmt: skip
    if figure is not None:
        place = "SmallNORB" if results.scale == "paper" else "Fashion-MNIST"
        yield Figure("figure-7.8", f"A fully connected annealed VAE on {place}: CKA of its "
                     "layers over training with those of the final model, means over seeds.",
                     figure, row="D-F7.8")  # fmt: skip


def plot_pairs(results: Results) -> Iterator[Figure]:
    connected = [connected_unit(results, unit) for unit in ("β 1 and 8", "β 1 and 16")]
    for name, row, units, first, second, words in (
        ("figure-7.3", "D-F7.3", ("β 1 and 8", "λ 1 and 20", "β 1 and 128"), "strong", "weak",
         "weakly (rows) and strongly regularised models (columns)"),
        ("figure-7.9", "D-F7.9", (*connected, "convolutions, β 1 and 8"), "strong", "weak",
         "β-VAEs with β 1 (rows) and with larger β (columns)"),
    ):  # fmt: skip
        for part, chosen in enumerate([units] if row == "D-F7.3" else [units[:2], units[2:]]):
            line = [plot_panel(results, "measure_strengths", unit, "cka", unit) for unit in chosen]
            figure = _plot_grid([line], x=f"layers of the {first} model",
                                y=f"layers of the {second} one")  # fmt: skip
            if figure is not None:
                caption = f"CKA of the layers of {words}, mean over pairs of different seeds."
                yield Figure(f"{name}{'-convolutions' if part else ''}", caption, figure, row=row)
    words = "CKA of the layers of β-VAEs and DIP-VAE-II, mean over pairs of different seeds."
    small = (" Sprites stand for dSprites, Fashion-MNIST for SmallNORB, digits for Cars3D. "
             "Networks are fully connected: this is also figure 7.10.")  # fmt: skip
    shown = [("figure-7.4", data_of(results), f"{words}{small}")]
    if results.scale == "paper":
        shown = [("figure-7.4", data_of(results), f"{words} Convolutional networks."),
                 ("figure-7.10", data_of(results, connected=True),
                  f"{words} Fully connected networks.")]  # fmt: skip
    for name, compared, caption in shown:
        line = [plot_panel(results, "measure_objectives", unit, "cka", title.partition(" (")[0])
                for unit, title in compared.items()]  # fmt: skip
        figure = _plot_grid([line], x="layers of DIP-VAE-II (λ 1)", y="layers of a β-VAE (β 1)")
        if figure is not None:
            yield Figure(name, caption, figure, row=f"D-F{name.partition('-')[2]}")


def plot_both(results: Results) -> Iterator[Figure]:
    values = results.units("measure_training").get("tc") or {}
    if values.get("procrustes") is not None:
        unit = {**values, "cka": values[f"step {values['early']}"]}
        values = {"measure_training": {"tc": _with_smaller(unit)}}
        shown = Results("", "", [], values)
        line = [plot_panel(shown, "measure_training", "tc", key, title) for key, title in BOTH]
        yield Figure("figure-7.5", "β-TCVAE, early (rows) and final (columns): CKA, Procrustes and "
                     "the smaller of both, means over seeds.",
                     _plot_grid([line], x="layers of the final model", y="layers early",
                                label="similarity"), row="D-F7.5")  # fmt: skip
    unit_name, place = ("cars3d", "Cars3D") if results.scale == "paper" else ("sprites", "sprites")
    pair = results.units("measure_objectives").get(unit_name) or {}
    if pair.get("procrustes") is not None:
        shown = Results("", "", [], {"measure_objectives": {unit_name: _with_smaller(pair)}})
        line = [plot_panel(shown, "measure_objectives", unit_name, key, title)
                for key, title in BOTH]  # fmt: skip
        yield Figure("figure-7.6", f"β-VAE (rows) and DIP-VAE-II (columns) on {place}: CKA, "
                     "Procrustes and the smaller of both, mean over pairs of different seeds.",
                     _plot_grid([line], x="layers of DIP-VAE-II", y="layers of a β-VAE",
                                label="similarity"), row="D-F7.6")  # fmt: skip


BOTH = (("cka", "CKA"), ("procrustes", "Procrustes"), ("smaller", "smaller of both"))


def _with_smaller(unit: Mapping[str, Any]) -> dict[str, Any]:
    both = [np.asarray(unit[key], dtype=float) for key in ("cka", "procrustes")]
    return {**unit, "smaller": np.minimum(*both)}


def plot_strips(results: Results) -> Iterator[Figure]:
    for row, source, name in (("D-C.2", "figure-C.2", "dip"), ("D-C.3", "figure-C.3", "tc"),
                              ("D-C.4", "figure-C.4", "annealed")):  # fmt: skip
        steps = (results.units("measure_training").get(name) or {}).get("steps") or []
        line = [plot_panel(results, "measure_training", name, f"step {step}", f"step {step:,}")
                for step in steps[1:]]  # fmt: skip
        figure = _plot_grid([line], x="layers of the final model", y="layers at this step")
        if figure is not None:
            yield Figure(source, f"{titles(results)[name]}: CKA of the layers at five snapshots "
                         "with those of the final model, means over seeds.", figure,
                         row=row)  # fmt: skip


def plot_input(results: Results) -> Figure:
    from zscope.plots import legend_below, panel_grid

    figure, grid = panel_grid(1, 4, width=9.0, height=2.5, sharey=True)
    paper = results.scale == "paper"
    panels = [(group, beta) for group in ("conv", "connected" if paper else "beta")
              for beta in (1, 8)]  # fmt: skip
    for ax, (group, beta) in zip(grid[0], panels, strict=True):
        every = results.rows(group, beta=beta)
        every = every.on("cars3d") if paper and group == "conv" else every
        rows = [row for row in every if row.get("input_cka")]
        for key, words, colour in (("input_cka", "CKA", "#0072B2"),
                                   ("input_procrustes", "Procrustes", "#D55E00")):  # fmt: skip
            if rows:
                values = np.array([row[key] for row in rows], dtype=float)
                places = range(1, values.shape[1] + 1)
                spread = [sd(column) for column in values.T]
                ax.errorbar(places, values.mean(0), spread, color=colour, marker="o",
                            markersize=3, linewidth=1.1, label=words)  # fmt: skip
        kind = "convolutions" if group == "conv" else "fully connected"
        ax.set(xlabel="encoder layer", ylim=(0, 1.05))
        ax.locator_params(axis="x", integer=True)
        ax.set_title(f"{kind}, β {beta}", fontsize=9)
    grid[0][0].set_ylabel("similarity to the input")
    legend_below(figure, grid)
    return Figure("figure-7.7", "Similarity of the input and each encoder layer of the same model, "
                  "mean and standard deviation over seeds; 500 observations.", figure,
                  row="D-F7.7")  # fmt: skip


def plot_losses(results: Results) -> Figure:
    from zscope.plots import legend_below, panel_grid

    paper = results.scale == "paper"
    strong = 8 if paper else 16
    lines: Any = (("β-VAE, β 1", "#56B4E9", "beta", {"beta": 1}),
             (f"β-VAE, β {strong}", "#0072B2", "beta", {"beta": strong}),
             ("DIP-VAE-II, λ 1", "#E69F00", "dip", {"offdiagonal": 1}),
             ("DIP-VAE-II, λ 20", "#D55E00", "dip", {"offdiagonal": 20}),
             ("β-TCVAE, β 2", "#009E73", "tc", {"beta": 2}),
             ("annealed VAE, C 5", "#8a8a8a", "annealed", {"capacity": 5}))  # fmt: skip
    places = {"sprites": "sprites"}
    if paper:
        places = {"cars3d": "Cars3D", "dsprites": "dSprites", "smallnorb": "SmallNORB"}
    figure, grid = panel_grid(1, len(places), width=5.4 if not paper else 10.5, height=3.2)
    for ax, (data, place) in zip(grid[0], places.items(), strict=True):
        for title, colour, group, fields in lines:
            rows = [row for row in results.rows(group, **fields).on(data) if row.get("loss")]
            for number, row in enumerate(rows):
                steps, losses = np.array(row["loss"], dtype=float).T
                ax.plot(np.maximum(steps, 1), losses, color=colour, linewidth=0.7, alpha=0.8,
                        label=None if number else title)  # fmt: skip
        ax.set(yscale="log", xlabel="step", ylabel="loss", title=place if paper else "")
    legend_below(figure, grid)
    on = ", ".join(places.values())
    return Figure("figure-C.5", f"Loss over training on {on}, a line for each seed.", figure,
                  row="D-C.5")  # fmt: skip


def plot_counts(results: Results) -> Figure:
    from zscope.plots import panel_grid

    figure, grid = panel_grid(1, 2, width=7.0, height=2.8, sharey=True)
    for ax, place, title in zip(grid[0], (1, 4), ("means", "variances"), strict=True):
        rows = np.array([[row[place], row[2], row[3]] for row in all_pairs(results)
                         if row[place] is not None], dtype=float)  # fmt: skip
        if len(rows):
            shift = np.random.default_rng(0).uniform(-0.15, 0.15, len(rows))
            ax.scatter(rows[:, 0], np.abs(rows[:, 1] - rows[:, 2]) + shift, s=6, color="#0072B2",
                       alpha=0.5, linewidths=0)  # fmt: skip
        ax.set(xlabel=f"CKA of the {title}", xlim=(-0.05, 1.05))
        ax.set_ylim(-0.5, max(1.5, ax.get_ylim()[1]))
        ax.locator_params(axis="y", integer=True)
    grid[0][0].axvline(0.95, color="#222222", linewidth=0.7, linestyle=":")
    grid[0][0].set_ylabel("difference of active latents")
    return Figure("theorem-7.4", "Pairs of models with different seeds: CKA of their means, or of "
                  "their variances, and the difference of their numbers of active latents (points "
                  "are spread a little). Right of the dotted line the claim expects 0; the CKA of "
                  "variances is not judged.", figure, row="D-Th7.4")  # fmt: skip
