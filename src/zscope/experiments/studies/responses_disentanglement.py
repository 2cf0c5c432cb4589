"""Disentanglement against β: does the conditioned response matrix see what other scores see?

β-VAEs on rooms with 12 latents (β 1, 2, 4, 8) and with 24 (β 4). The causal disentanglement score
CDS is that of the conditioned response matrix M*, on a complete grid of 3,840 pictures, since M*
compares pictures that differ in one factor; DCI, IRS and MIG are measured on 3,000 held-out ones.

Beware of collapse: few causal latents make CDS rise by themselves, and none leaves it undefined.
Claims about β are judged only where models use their latents: at least 5 causal ones at β 1 and 2
at β 8, a criterion that does not look at any score. Rows of M* for a factor with n values are
larger by sqrt(n / (n - 1)) in the authors' script; the default here corrects for it, and both are
in the table. DCI grows with the number of rows, which is the same for all runs. At scale paper the
grid has some values of each factor of the run's own data, and MPI3D has tables of its own.

Leeb et al., arXiv:2106.16091, section 6.3, table 1, figures 6, 10 and 11.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from zscope import data as datasets
from zscope.assays.disentanglement.dci import dci
from zscope.assays.responses.panel import StructurePanel, structure_panel
from zscope.data.dataset import Dataset
from zscope.errors import Undefined, ZscopeError
from zscope.experiments.studies.grid import FIRST_SEED
from zscope.experiments.studies.grids.responses import ROOMS
from zscope.experiments.studies.judging import (
    Claim,
    Control,
    above,
    claim,
    claim_of_parts,
    mean_interval,
)
from zscope.experiments.studies.rows import Rows, correlation, differences, slopes
from zscope.experiments.studies.shared.scales import TITLES, on_shapes, setting
from zscope.experiments.studies.shared.sizes import all_data
from zscope.experiments.studies.study import Figure, Results, Row, Study, Table, each_run, once
from zscope.experiments.studies.trained import Trained

__all__ = ["SAMPLES", "STUDY", "coarse_grid", "complete_grid"]

SAMPLES = 256
"""Observations for each factor from which M* is measured."""

GRID = {"resolution": 16, "floor_hue": 4, "wall_hue": 4, "object_hue": 4, "scale": 3,
        "orientation": 5}  # fmt: skip
"""A complete grid of factor values: 3,840 pictures."""
TINY = {"resolution": 16, "floor_hue": 2, "wall_hue": 2, "object_hue": 2, "scale": 2,
        "shape": "cube,sphere", "orientation": 2}  # fmt: skip
MATRICES = (("responses", "response"), ("conditioned", "M*"), ("importance", "importance"))
SCORES = {"cds": "CDS", "dci": "DCI-D", "irs": "IRS", "mig": "MIG"}
PUBLISHED = {
    (12, 1): (0.44, 0.3, 0.44, 0.07), (12, 2): (0.49, 0.36, 0.46, 0.09),
    (12, 4): (0.58, 0.46, 0.51, 0.16), (12, 8): (0.71, 0.66, 0.63, 0.21),
    (24, 1): (0.52, 0.49, 0.48, 0.09), (24, 2): (0.61, 0.58, 0.52, 0.15),
    (24, 4): (0.72, 0.67, 0.57, 0.17), (24, 8): (0.78, 0.73, 0.64, 0.2),
}  # fmt: skip
"""Table 1, 3D Shapes: CDS, DCI-D, IRS, MIG by latents and β; means of 2 seeds."""
MPI3D = {
    "mpi3d-toy": {
        (12, 1): (0.69, 0.33, 0.58, 0.32), (12, 2): (0.86, 0.17, 0.59, 0.14),
        (12, 4): (0.66, 0.11, 0.61, 0.05), (12, 8): (1.0, 0.13, 0.79, 0.1),
    },
    "mpi3d-real": {
        (12, 1): (0.61, 0.24, 0.51, 0.07), (12, 2): (0.69, 0.26, 0.72, 0.24),
        (12, 4): (0.4, 0.09, 0.75, 0.04), (12, 8): (0.7, 0.08, 0.71, 0.04),
    },
}  # fmt: skip
"""The same of table 3; its structure scores are in the study responses-structure."""


def complete_grid(run: Trained) -> Dataset:
    """Pictures of a complete grid of factor values: rooms, or at scale paper the run's own data."""
    if run.among.scale == "paper":
        return coarse_grid(all_data(run))
    return datasets.load("rooms", **(TINY if run.tiny else GRID))


def coarse_grid(data: Dataset, most: int = 4_000) -> Dataset:
    """All combinations of some values of each factor, evenly spaced; at most so many pictures."""
    factors = np.asarray(data.factors)
    values = [np.unique(column) for column in factors.T]
    counts = [len(each) for each in values]
    while np.prod(counts) > most:
        counts[int(np.argmax(counts))] -= 1
    rows = np.ones(len(factors), bool)
    for column, own, count in zip(factors.T, values, counts, strict=True):
        rows &= np.isin(column, own[np.linspace(0, len(own) - 1, count).round().astype(int)])
    return data.subset(rows)


def measure(run: Trained) -> dict[str, Any]:
    grid = complete_grid(run)
    recording, held_out = run.recording(data=grid, samples=4_000), run.recording()
    responses = run.assay("response-matrix", held_out)
    untrained = run.recording(run.untrained)
    answers: dict[str, Any] = {
        "causal": len(responses.causal),
        "untrained_causal": len(run.assay("response-matrix", untrained).causal),
        "diagonal": responses.relative.diagonal().tolist(),
        **_scores(run, recording, held_out, ""),
        **_scores(run, run.recording(run.untrained, data=grid, samples=4_000), untrained,
                  "untrained_"),
        **_other_flavours(run, recording, held_out),
    }  # fmt: skip
    try:
        conditioned = run.assay("conditioned-response-matrix", recording, samples=SAMPLES)
        importance = run.assay("dci", recording)
        panel = structure_panel(run.assay("response-matrix", recording), conditioned, importance)
    except ZscopeError:
        return answers
    assert isinstance(panel, StructurePanel)
    answers |= {
        "agreement": panel.score, "agreement_chance": panel.chance, "bimodal": panel.bimodal,
        "edges": len(panel.edges),
    }  # fmt: skip
    if run.is_first:
        answers["panel"] = {
            "responses": panel.responses.relative.numpy(),
            "conditioned": panel.conditioned.matrix.numpy(),
            "importance": panel.importance,
            "causal": panel.responses.causal,
            "edges": [list(edge) for edge in panel.edges],
            "factors": panel.factor_names,
        }
    return answers


def _scores(run: Trained, grid: Any, held_out: Any, prefix: str) -> dict[str, Any]:
    """Each score, and what it is by chance; CDS with equally many observations for all models."""
    answers: dict[str, Any] = {}
    with suppress(Undefined):
        own = run.assay("conditioned-response-matrix", grid, samples=SAMPLES)
        answers |= {
            "cds": own.disentanglement,
            "ccs": own.completeness,
            "cds_chance": own.chance["disentanglement"],
            "rows": min(own.samples),
        }
    for name in ("dci", "irs", "mig"):
        with suppress(Undefined):
            result = run.assay(name, held_out)
            answers |= {name: result.score, f"{name}_chance": result.chance}
    return {f"{prefix}{key}": value for key, value in answers.items()}


def _other_flavours(run: Trained, grid: Any, held_out: Any) -> dict[str, Any]:
    theirs = run.scores("conditioned-response-matrix", recording=grid, flavour="authors",
                        samples=SAMPLES)  # fmt: skip
    dlib = run.scores("mig", recording=held_out, flavour="dlib")
    if run.among.scale != "small" or run.seed == FIRST_SEED:  # boosted trees take minutes
        dlib |= run.scores("dci", recording=held_out, flavour="dlib")
    return {
        "cds_authors": theirs.get("conditioned-response-matrix.disentanglement"),
        "dci_dlib": dlib.get("dci"),
        "mig_dlib": dlib.get("mig"),
    }


def measure_ends(runs: list[Trained]) -> dict[str, Any]:
    """DCI of the factors themselves, and of the factors turned: the ends of the scale."""
    if not runs:
        return {}
    data = runs[0].recording().factors
    assert data is not None
    values = (data.values - data.values.mean(0)) / data.values.std(0)
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(values.shape[1],) * 2))[0]
    noisy = values + 0.01 * rng.normal(size=values.shape)
    permuted = rng.permutation(data.values)
    return {
        "exact": dci(noisy, data.values, kinds=data.kinds).disentanglement,
        "turned": dci(noisy @ rotation, data.values, kinds=data.kinds).disentanglement,
        "permuted": dci(noisy, permuted, kinds=data.kinds).disentanglement,
    }


def claims(results: Results) -> Iterator[Claim]:
    rows = on_shapes(results, "rooms", latents=12)
    used = {beta: own.values("causal") for beta, own in rows.by("beta").items()}
    few = [
        f"β {beta}: {min(used[beta]):g} causal latents, {least} are needed"
        for beta, least in ((1, 5), (8, 2))
        if used.get(beta) and min(used[beta]) < least
    ]
    collapsed = "; ".join(few)
    needs = "longer training at 64 x 64 pixels, where all factors are encoded (--scale paper)"
    for number, (key, name) in enumerate(SCORES.items(), 1):
        printed = [f"{PUBLISHED[12, beta][number - 1]:g}" for beta in (1, 2, 4, 8)]
        yield claim(
            "A-T1", "c1" if number == 1 else f"c2.{number - 1}", f"{name} rises with β",
            source="table 1", published=f"d = 12, β 1 2 4 8: {' '.join(printed)}", expect=above(0),
            values=slopes(rows, key, "beta"), statistic=f"slope of {name} on log2 β per seed",
            controls=_controls(rows, key, name), presupposes=collapsed, needs=needs,
        )  # fmt: skip
    ends = results.once("measure_ends")
    scale = Control(
        "the factors themselves score above .9, turned ones below .5, permuted ones below .1",
        ends["exact"] > 0.9 and ends["turned"] < 0.5 and ends["permuted"] < 0.1 if ends else None,
        ", ".join(f"{key} {value:.2f}" for key, value in ends.items()),
    )
    yield claim(
        "A-T1", "c3", "CDS is above DCI-D in the same run", source="table 1", expect=above(0),
        published="in all 8 printed rows", values=_same_run(rows, "cds", "dci"),
        statistic="CDS minus DCI-D of the same run, mean over β, per seed", controls=[scale],
        presupposes=collapsed, needs=needs,
    )  # fmt: skip
    for number, key in enumerate(("dci", "irs", "mig"), 1):
        yield claim(
            "A-T1", f"c4.{number}", f"CDS and {SCORES[key]} rank runs alike", source="table 1",
            published="both rise with β in every column", expect=above(0),
            values=correlation(rows, "cds", key), controls=[scale],
            statistic="Spearman's correlation over all runs with 12 latents",
            presupposes=collapsed, needs=needs,
        )  # fmt: skip
    wide, narrow = on_shapes(results, "rooms", latents=24, beta=4), rows.where(beta=4)
    rises = {key: differences(wide, narrow, key) for key in SCORES}
    for number, key in enumerate(("cds", "irs", "mig"), 1):
        extra = {s: v - rises[key][s] for s, v in rises["dci"].items() if s in rises[key]}
        about: Any = {"source": "table 1", "expect": above(0), "presupposes": collapsed,
                      "published": "β 4: DCI-D +.21, CDS +.14, IRS +.06, MIG +.01"}  # fmt: skip
        yield claim_of_parts(
            "A-T1", f"c5.{number}", f"from 12 to 24 latents DCI-D rises, by more than "
            f"{SCORES[key]}", [
                claim("A-T1", "rises", "DCI-D rises", values=rises["dci"],
                      statistic="DCI-D with 24 minus with 12 latents, β 4", **about),
                claim("A-T1", "by more", f"by more than {SCORES[key]}", values=extra,
                      statistic="rise of DCI-D minus rise of the other, β 4", **about),
            ], source="table 1", published=about["published"], needs=needs,
        )  # fmt: skip
    every = on_shapes(results, "rooms")
    yield claim(
        "A-F6", "c1", "M* and DCI's importance agree on which latent carries which factor",
        source="figures 6 and 11", expect=above(0),
        values=differences(every, every, "agreement", "agreement_chance"),
        statistic="Spearman's correlation over entries, minus that with latents permuted",
    )  # fmt: skip
    apart = {
        seed: float(np.mean([separation(row["diagonal"]) for row in own if row.get("diagonal")]))
        for seed, own in every.by("seed").items()
        if any(row.get("diagonal") for row in own)
    }
    categorical = [bool(row["bimodal"]) for row in every if row.get("bimodal") is not None]
    share = f"{np.mean(categorical):.0%}" if categorical else "none"
    yield claim(
        "A-F6", "c2", "the diagonal of M is categorical: near 0 or near 1", source="figure 11",
        published="figure only: \"categorical\"", expect=above(0), values=apart,
        statistic="the gap between neighbouring values of the diagonal that contains .5 minus the "
        f"largest other gap, mean over models; positive in {share} of the models",
    )  # fmt: skip


def separation(diagonal: Sequence[float]) -> float:
    """The gap between neighbouring values that contains .5 (or 0) minus the largest other gap."""
    values = sorted(diagonal)
    gaps = [(b - a, a < 0.5 <= b) for a, b in pairwise(values)]
    inside = max((gap for gap, contains in gaps if contains), default=0.0)
    return inside - max((gap for gap, contains in gaps if not contains), default=0.0)


def _same_run(rows: Rows, first: str, second: str) -> dict[int, float]:
    """First minus second in each run that has both, mean over the runs of a seed."""
    answer = {}
    for seed, own in rows.by("seed").items():
        known = [row[first] - row[second] for row in own
                 if None not in (row.get(first), row.get(second))]  # fmt: skip
        if known:
            answer[seed] = float(np.mean(known))
    return answer


def _controls(rows: Rows, key: str, name: str) -> list[Control]:
    """The score is above that of the untrained model, and above what chance gives."""
    controls = []
    for other, words in (
        (f"untrained_{key}", "the untrained model is lower, or undefined"),
        (f"{key}_chance", "chance is lower"),
    ):
        gain = mean_interval(list(_same_run(rows, key, other).values()))
        passed = None if gain is None else gain.low > 0
        text = f"difference {gain}"
        inert = all(row.get("untrained_causal", 9) < 2 for row in rows)
        if gain is None and other.startswith("untrained") and rows and inert:
            passed, text = True, "the untrained model has no two causal latents, so no score"
        controls.append(Control(f"{name} of {words}", passed, text))
    return controls


def tables(results: Results) -> Iterator[Table]:
    few = setting(results, "Small: rooms at 16 x 16, reconstruction x 256, convolutions, 4,000 "
                  "steps; published: 3D Shapes at 64 x 64, 100,000 steps, 2 seeds.")  # fmt: skip
    grid = "" if results.scale == "paper" else " of 3,840 pictures"
    note = (f"{few} CDS and CCS with {SAMPLES} observations for each factor of a grid{grid}, the "
            "others on 3,000 held-out ones. In brackets: how many seeds have a score."
            + ("" if results.scale == "paper" else " DCI-D (dlib): of one seed."))  # fmt: skip
    yield Table(
        "table-1", "Disentanglement by β (table 1)",
        _cells(on_shapes(results, "rooms"), PUBLISHED), left=2, row="A-T1", notes=[note],
    )  # fmt: skip
    for data, published in MPI3D.items():
        if rows := results.rows("rooms").on(data):
            yield Table(
                f"table-3-{data}", f"Disentanglement by β on {TITLES[data]} (table 3)",
                _cells(rows, published), left=2, row="A-F17", notes=[note],
            )  # fmt: skip


def _cells(
    every: Rows, published: Mapping[tuple[int, int], tuple[float, ...]]
) -> list[list[str]]:  # fmt: skip
    """A line for each number of latents and β."""
    header = ["d", "β", "causal"]
    for name in SCORES.values():
        header += [name, "published"]
    header += ["CCS", "CDS (authors)", "DCI-D (dlib)", "MIG (dlib)", "untrained CDS",
               "untrained DCI-D", "seeds"]  # fmt: skip
    cells = [header]
    for (latents, beta), rows in every.by("latents", "beta").items():
        line = [str(latents), f"{beta:g}", _mean(rows, "causal", 1)]
        for k, key in enumerate(SCORES):
            line += [_mean(rows, key), f"{published[latents, int(beta)][k]:g}"]
        keys = ("ccs", "cds_authors", "dci_dlib", "mig_dlib", "untrained_cds", "untrained_dci")
        cells.append([*line, *(_mean(rows, key) for key in keys), str(len(rows))])
    return cells


def _mean(rows: Rows, key: str, digits: int = 2) -> str:
    values = rows.values(key)
    if not values:
        return "undefined"
    text = f"{np.mean(values):.{digits}f}"
    return text if len(values) == len(rows) else f"{text} ({len(values)} of {len(rows)})"


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import causal_graph, heatmap, lines_over, panel_grid

    rows = on_shapes(results, "rooms", latents=12)
    series = {
        name: {beta: own.values(key) for beta, own in rows.by("beta").items()}
        for key, name in SCORES.items()
    }
    yield Figure(
        "scores", "Scores against β with 12 latents: a point for each seed, 95 % bars.",
        lines_over(series, x="β", y="score", log=True), row="A-T1",
    )  # fmt: skip
    yield from _plot_matrices(rows, "matrices", "", "A-F10")
    for data in MPI3D:
        own = results.rows("rooms").on(data)
        yield from _plot_matrices(own, f"matrices-{data}", f"{TITLES[data]}: ", "A-F17")
    for row in on_shapes(results, "rooms", latents=24, beta=4):
        if "panel" in row:
            panel = row["panel"]
            figure, grid = panel_grid(2, 2, width=7.4, height=5.6)
            for ax, (key, label) in zip(grid.flat, MATRICES, strict=False):
                heatmap(np.asarray(panel[key]), label=label, ax=ax, numbered=0, x="latent",
                        rows=None if key == "responses" else panel["factors"])  # fmt: skip
                _thin_out(ax, rows=key == "responses", named=True)
            causal_graph(_graph(panel), ax=grid[1, 1])
            yield Figure(
                "panel-24",
                f"A model with 24 latents (β {row['beta']:g}, seed {row['seed']}): response "
                "matrix M, conditioned matrix M*, importance of DCI, and the graph of the causal "
                "latents.",
                figure, row="A-F6",
            )  # fmt: skip


def _plot_matrices(rows: Rows, name: str, words: str, row: str) -> Iterator[Figure]:
    """The matrices of the models that have them, side by side by β."""
    from zscope.plots import heatmap, panel_grid

    shown = [each for each in rows if "panel" in each]
    if not shown:
        return
    figure, grid = panel_grid(3, len(shown), height=4.4, gridspec_kw={"height_ratios": [2, 1, 1]})
    for line, (key, label) in zip(grid, MATRICES, strict=True):
        limit = max(float(np.max(each["panel"][key])) for each in shown)
        for ax, each in zip(line, shown, strict=True):
            names = each["panel"]["factors"] if key != "responses" else None
            title = f"β {each['beta']:g}" if key == "responses" else ""
            heatmap(np.asarray(each["panel"][key]), label=label, ax=ax, numbered=0, title=title,
                    rows=names, limit=limit, bar=each is shown[-1],
                    x="latent" if key == MATRICES[-1][0] else "")  # fmt: skip
            _thin_out(ax, rows=names is None, named=each is shown[0])
    yield Figure(
        name, f"{words}Response matrix M (relative), conditioned matrix M* and DCI importance by "
        f"β, 12 latents, seed {shown[0]['seed']}.", figure, row=row,
    )  # fmt: skip


def _thin_out(ax: Any, *, rows: bool, named: bool) -> None:
    """Number every third latent, and name the rows if they are to be named."""
    ax.set_xticks(range(0, round(ax.get_xlim()[1] + 0.5), 3))
    if rows:
        ax.set_yticks(range(0, round(ax.get_ylim()[0] + 0.5), 3))
    if not named:
        ax.set_yticklabels([])


def _graph(panel: Mapping[str, Any]) -> Any:
    """The causal latents of a panel, and the edges between them."""
    import networkx as nx

    graph, weights = nx.DiGraph(), np.asarray(panel["responses"])
    for j in panel["causal"]:
        graph.add_node(j, response=float(weights[j, j]), members=[j])
    for j, k in panel["edges"]:
        graph.add_edge(j, k, weight=float(weights[j, k]))
    return graph


STUDY = Study(
    name="responses-disentanglement",
    minutes=16,
    document="A",
    title="Does the conditioned response matrix see what other scores see?",
    rows=(
        Row("A-T1", "table 1", "disentanglement scores against β"),
        Row("A-F6", "figures 6 and 11", "matrices and graph of a model with 24 latents"),
        Row("A-F10", "figure 10", "matrices with 12 latents for each β"),
        Row("A-F17", "figures 17 and 18", "the same on MPI3D, with the scores of table 3",
            "needs MPI3D; see A-F10"),
    ),
    grids={"rooms": ROOMS},
    measures=(each_run(measure), once(measure_ends)),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="16 x 16 pixels, 4,000 steps, and reconstruction x 256: the least weight of 16 (the "
    "ratio of the pixels), 64 and 256 that leaves at least 5 causal latents at β 1 and 2 at β 8 "
    "(seeds 0 to 3: 8, 5, 7, 6 and 6, 4, 4, 4; with 16: 2, 3 and 1, 1). No score was looked at.",
)  # fmt: skip
