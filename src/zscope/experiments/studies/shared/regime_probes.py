"""Linear probes of the latents of each type: part of the study `regime-types`.

Logistic regressions predict the factors from the means or the samples of all latents and of each
type. Controls of the means of passive latents: shuffled factors, noise of the same variance, and
all latents of the untrained encoder.

Bonheme, PhD thesis, Kent 2023: section 6.4.1, figure 6.4.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from zscope.assays.regime.types import variable_types
from zscope.errors import Undefined
from zscope.experiments.studies.judging import Claim, above, claim, within
from zscope.experiments.studies.rows import Rows, kendall, mean_and_sd
from zscope.experiments.studies.shared.polarised import (
    apart,
    bounded,
    levels,
    minus,
    noise_like,
    per_seed,
    recorded,
)
from zscope.experiments.studies.study import Figure, Table
from zscope.experiments.studies.trained import Trained
from zscope.recording import Recording

__all__ = ["measure_probes", "plot_probes", "probe_claims", "tabulate_probes"]

SUBSETS = ("full", "active", "mixed", "passive", "active+mixed", "active+passive")


def measure_probes(run: Trained) -> dict[str, Any]:
    """Accuracy of linear probes of each type, and of the controls of passive means."""
    recording = recorded(run)
    options = {"samples": 300 if run.tiny else 3_000, "penalties": 3, "folds": 2}
    probe: Any = run.assay("type-probe", recording, **options)
    passive = variable_types(recording.variances).passive
    factors = recording.factors
    order = np.random.default_rng(0).permutation(len(recording))

    def accuracy(codes: Any, values: Any) -> float | None:
        if codes.shape[1] == 0:
            return None
        try:
            arrays = Recording.from_arrays(codes, values, variances=torch.ones_like(codes),
                                           kinds="ordinal")  # fmt: skip
            result: Any = run.assay("type-probe", arrays, **options)
        except Undefined:
            return None
        return float(result.accuracy["mean"]["full"])

    means = recording.codes[:, passive]
    untrained = recorded(run, run.untrained).codes
    rows = None if factors is None else factors.values
    return {
        "chance": probe.chance,
        "probes": {
            kind: {name: probe.accuracy[kind].get(name) for name in SUBSETS}
            for kind in ("mean", "sampled")
        },
        "passive_shuffled": None if rows is None else accuracy(means, rows[order]),
        "passive_noise": None if rows is None else accuracy(noise_like(means), rows),
        "untrained": None if rows is None else accuracy(untrained, rows),
    }


def _accuracy(row: Mapping[str, Any], kind: str, subset: str) -> float | None:
    """The accuracy of a probe; None if there is no latent of that type."""
    return ((row.get("probes") or {}).get(kind) or {}).get(subset)


def _probe(row: Mapping[str, Any], kind: str, subset: str, beyond: str = "chance") -> float | None:
    """The accuracy of a probe above chance, or above that of another subset."""
    chance = beyond == "chance"
    other = row.get("chance") if chance else _accuracy(row, kind, beyond)
    return minus(_accuracy(row, kind, subset), other)


def probe_claims(rows: Rows) -> Iterator[Claim]:
    def above_chance(key: str) -> dict[int, float]:
        return per_seed(rows, lambda r: minus(r.get(key), r.get("chance")))

    shuffled = bounded("means of passive latents predict shuffled factors at chance (±.03)",
                       above_chance("passive_shuffled"), within(0.03))  # fmt: skip
    noise = bounded("noise of the variance of passive latents predicts factors at chance (±.03)",
                    above_chance("passive_noise"), within(0.03))  # fmt: skip
    source = "figure 6.4, section 6.4.1"
    yield claim(
        "D-F6.4", "c1", "samples of passive latents predict nothing", source=source,
        statistic="accuracy minus chance, mean over β", expect=within(0.03),
        values=per_seed(rows, lambda r: _probe(r, "sampled", "passive")),
    )  # fmt: skip
    yield claim(
        "D-F6.4", "c2", "samples without passive latents predict as well as all", source=source,
        statistic="accuracy of active+mixed minus full, mean over β", expect=within(0.03),
        values=per_seed(rows, lambda r: _probe(r, "sampled", "active+mixed", "full")),
    )  # fmt: skip
    informed = per_seed(rows, lambda r: _probe(r, "mean", "passive"))
    untrained = apart("all latents of an untrained encoder predict factors less well than "
                      "passive ones of a trained one (intervals do not overlap)",
                      informed, above_chance("untrained"))  # fmt: skip
    yield claim(
        "D-F6.4", "c3", "means of passive latents are informative", source=source,
        statistic="accuracy minus chance, mean over β", expect=above(0), values=informed,
        controls=[shuffled, noise, untrained],
    )  # fmt: skip
    filled = Rows({**row, "_value": _probe(row, "mean", "passive")} for row in rows)
    yield claim(
        "D-F6.4", "c4", "and more so the larger β is", source=source, expect=above(0),
        statistic="Kendall's τ of the accuracy of passive means and β, per seed",
        values=kendall(filled, "_value", "beta"), controls=[shuffled, noise],
    )  # fmt: skip


def tabulate_probes(rows: Rows) -> Table:
    """Accuracy by β, representation and subset of latents."""
    cells = [["β", "representation", *SUBSETS, "chance", "untrained encoder"]]
    for beta, own in rows.by("beta").items():
        for kind, word in (("mean", "M"), ("sampled", "Z")):
            cells.append([
                f"{beta:g}", word,
                *(mean_and_sd([_accuracy(row, kind, name) for row in own]) for name in SUBSETS),
                mean_and_sd(own.values("chance")),
                mean_and_sd(own.values("untrained")) if kind == "mean" else "",
            ])  # fmt: skip
    note = (
        "Mean accuracy over the five factors of logistic regressions on standardised latents; "
        "2,000 rows train, 1,000 test, 3 penalties, 2 folds (published: 10,000, 5,000, 10, 5). "
        "Empty: no latent of that type."
    )
    return Table("probes", "Accuracy of linear probes by type (figure 6.4)", cells, left=2,
                notes=[note], row="D-F6.4")  # fmt: skip


def plot_probes(rows: Rows) -> Figure:
    from zscope.plots import legend_below, lines_over, panel_grid

    figure, grid = panel_grid(1, 2, width=7.4, height=3.0, sharey=True)
    for ax, kind, title in zip(grid[0], ("mean", "sampled"), ("means", "samples"), strict=True):
        series = {subset: levels(rows, partial(_accuracy, kind=kind, subset=subset), "beta")
                  for subset in SUBSETS}  # fmt: skip
        series["chance"] = levels(rows, "chance", "beta")
        # Nothing in the second panel, where it only keeps the colours the same.
        series["untrained"] = levels(rows, "untrained", "beta") if kind == "mean" else {}
        lines_over(series, x="β", y="accuracy" if kind == "mean" else "", title=title, log=True,
                   ax=ax)  # fmt: skip
    legend_below(figure, grid)
    return Figure(
        "figure-6.4", "Accuracy of linear probes of the factors from the latents of each type, "
        "against β; bars are 95 % intervals over seeds. Samples of passive latents are at chance; "
        "compare their means with an untrained encoder.", figure, row="D-F6.4",
    )  # fmt: skip
