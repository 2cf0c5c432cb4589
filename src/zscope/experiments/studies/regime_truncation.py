"""Truncation: do means and samples agree once passive latents are left out?

Averaged mutual information (MI) and total correlation (TC) of means M and samples Z for all
latents, without the passive ones, and for the active ones alone: MI for DIP-VAE-II, TC for
β-TCVAEs on noisy sprites, both for annealed VAEs. Pictures of 16 x 16, perceptrons, 3,000 steps,
the reconstruction counts 16 times.

Binned MI reads the grid of the factors: means of sprites on a grid lie on few values, samples do
not. So MI is judged on sprites with continuous factors, and only shown for those on the grid.
Leaving out any latents may bring M and Z closer: as many random ones are the control. Subsets of
fewer than two latents have no value and are counted. Mixed latents also differ between M and Z;
where there are many, the claim about passive ones is expected to fail.

Bonheme, PhD thesis, Kent 2023: section 6.4.4 and B.1.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from zscope.assays.regime.types import variable_types
from zscope.experiments.studies.grids.regime import ANNEALED, CONTINUOUS, DIP, NOISY
from zscope.experiments.studies.judging import (
    Claim,
    Control,
    above,
    claim,
    claim_of_parts,
    mean_interval,
    within,
)
from zscope.experiments.studies.rows import Rows, mean_and_sd
from zscope.experiments.studies.shared.polarised import (
    DATA,
    DSPRITES,
    OBJECTIVES,
    above_floor,
    levels,
    minus,
    per_seed,
    recorded,
    shared_nats,
    strength,
)
from zscope.experiments.studies.study import Figure, Results, Row, Study, Table, each_run
from zscope.experiments.studies.trained import Trained

__all__ = ["STUDY"]

SUBSETS = {"full": "all latents", "used": "without passive", "active": "active only"}
DRAWS = 20
"""Random choices of latents to leave out, for the control."""


def measure(run: Trained) -> dict[str, Any]:
    recording = recorded(run)
    types = variable_types(recording.variances)
    mean = recording.codes
    sample = recording.posterior.sample(torch.Generator().manual_seed(0))
    subsets = {"full": range(types.latents), "used": types.not_passive, "active": types.active}

    def pair(columns: list[int]) -> dict[str, Any]:
        return {"M": shared_nats(mean, columns), "Z": shared_nats(sample, columns)}

    rng = np.random.default_rng(0)
    keep, draws = len(types.not_passive), []
    if types.passive and keep >= 2:
        for _ in range(2 if run.tiny else DRAWS):
            columns = rng.choice(types.latents, keep, replace=False)
            draws.append(pair(sorted(map(int, columns))))
    random = {
        name: [gap for draw in draws if (gap := _distance(draw, name)) is not None]
        for name in ("tc", "mi")
    }
    return {
        "strength": strength(run),
        "passive": len(types.passive),
        "mixed": len(types.mixed),
        "active": len(types.active),
        "nats": {name: pair(list(own)) for name, own in subsets.items() if len(own) >= 2},
        "random": {name: float(np.mean(own)) if own else None for name, own in random.items()},
    }


def _nats(row: Mapping[str, Any], subset: str) -> Mapping[str, Any]:
    """What means M and samples Z of a subset share; {} where it has fewer than two latents."""
    return (row.get("nats") or {}).get(subset) or {}


def _distance(pair: Mapping[str, Any], name: str) -> float | None:
    """|TC(M) - TC(Z)| or |MI(M) - MI(Z)|, each above its floor."""
    mean, sample = (above_floor(pair.get(part) or {}, name) for part in ("M", "Z"))
    difference = minus(mean, sample)
    return None if difference is None else abs(difference)


def _gap(row: Mapping[str, Any], name: str, subset: str) -> float | None:
    return _distance(_nats(row, subset), name)


# Claims


def claims(results: Results) -> Iterator[Claim]:
    yield _information(results.rows("continuous"))
    yield from _total_correlation(results.rows("noisy"))
    yield _annealed(results.rows("annealed").on("sprites", "sprites-background"))


def _shrinks(row: Mapping[str, Any], name: str) -> float | None:
    """By how much M and Z come closer without passive latents; None if there are none."""
    return minus(_gap(row, name, "full"), _gap(row, name, "used")) if row.get("passive") else None


def _random(rows: Rows, name: str) -> Control:
    """Leaving out as many random latents brings M and Z less close, in the same model."""

    def beyond(row: Mapping[str, Any]) -> float | None:
        random = minus(_gap(row, name, "full"), (row.get("random") or {}).get(name))
        return minus(_shrinks(row, name), random)

    interval = mean_interval(list(per_seed(rows, beyond).values()))
    return Control(
        "leaving out as many random latents brings means and samples less close",
        None if interval is None else interval.low > 0,
        f"passive minus random {interval}",
    )


def _information(rows: Rows) -> Claim:
    return claim(
        "D-F6.7", "c1", "without passive latents the averaged MI of means and samples is more "
        "similar", source="figure 6.7, section 6.4.4", expect=above(0),
        statistic="|MI(M) - MI(Z)| of all latents minus that without passive ones, above the "
        "floors, mean over λ; continuous sprites",
        values=per_seed(rows, partial(_shrinks, name="mi")),
        controls=[_random(rows, "mi")],
        chosen="judged on sprites with continuous factors, since binned MI reads a grid of factors",
    )  # fmt: skip


def _total_correlation(rows: Rows) -> Iterator[Claim]:
    source = "figure 6.8, section 6.4.4"
    closer, equal, mixed = [], [], []
    for level, own in rows.by("strength").items():
        if level is None:
            continue
        name = f"β = {level:g}"
        none = sum(not row.get("passive") for row in own)
        few = sum(not _nats(row, "used") for row in own)
        alone = sum(not _nats(row, "active") for row in own)
        closer.append(claim(
            "D-F6.8", name, "TC gap", source=source, expect=above(0),
            statistic="|TC(M) - TC(Z)| of all latents minus that without passive ones "
            f"({none} of {len(own)} models have none, {few} fewer than two others)",
            values=per_seed(own, partial(_shrinks, name="tc")), controls=[_random(own, "tc")],
            presupposes="no model has passive latents" if none == len(own) else "",
        ))  # fmt: skip
        equal.append(claim(
            "D-F6.8", name, "TC gap", source=source, expect=within(0.1),
            statistic=f"|TC(M) - TC(Z)| without passive latents ({few} of {len(own)} models have "
            "fewer than two others)", values=per_seed(own, partial(_gap, name="tc", subset="used")),
        ))  # fmt: skip
        mixed.append(claim(
            "D-F6.8", name, "TC gap", source=source, expect=within(0.1),
            statistic="|TC(M) - TC(Z)| without passive latents minus that of active ones alone "
            f"({alone} of {len(own)} models have fewer than two)",
            values=per_seed(own, lambda row: minus(_gap(row, "tc", "used"),
                                                   _gap(row, "tc", "active"))),
        ))  # fmt: skip
    yield claim_of_parts(
        "D-F6.8", "c1", "without passive latents TC of means and samples is more similar", closer,
        source=source,
    )  # fmt: skip
    yield claim_of_parts(
        "D-F6.8", "c2", "and then nearly the same", equal, source=source,
        needs="models without mixed latents: these differ between means and samples, too",
    )  # fmt: skip
    yield claim_of_parts(
        "D-F6.8", "c3", "mixed latents matter little", mixed, source=source,
        published='"to a small extent", figure only',
    )  # fmt: skip


def _annealed(rows: Rows) -> Claim:
    usual = Rows(row for row in rows if (row.get("strength") or 0) > 1)

    def reduction(row: Mapping[str, Any], name: str) -> float | None:
        parts = [above_floor(_nats(row, subset).get("M") or {}, name)
                 for subset in ("full", "active")]  # fmt: skip
        return minus(parts[0], parts[1])

    few = sum(not _nats(row, "active") for row in usual)
    cells = [
        claim(
            "D-B.5", word, "of the means", source="figure B.5", expect=above(0),
            statistic=f"{word}(M) of all latents minus that of active ones, above the floors, mean "
            f"over C ({few} of {len(usual)} models have fewer than two active latents)",
            values=per_seed(usual, partial(reduction, name=name)),
        )
        for name, word in (("tc", "TC"), ("mi", "MI"))
    ]  # fmt: skip
    return claim_of_parts(
        "D-B.5", "c1", "without other latents TC and MI of the means of annealed VAEs are lower",
        cells, source="figure B.5, section B.1",
    )  # fmt: skip


# Tables and figures

GROUPS = ("noisy", "dip", "continuous", "annealed")
CONTINUOUS_TITLE = "continuous sprites"


def _title(group: str, data: str) -> str:
    return CONTINUOUS_TITLE if group == "continuous" else DATA.get(data, data)


def _parts(results: Results) -> Iterator[tuple[str, str, Rows]]:
    """The runs by group and by name of the data."""
    for group in GROUPS:
        for data, rows in results.rows(group).by_data().items():
            yield group, data, rows


def tables(results: Results) -> Iterator[Table]:
    for name, word, row, digits in (
        ("tc", "Total correlation", "D-F6.8", 2),
        ("mi", "Averaged mutual information", "D-F6.7", 3),
    ):
        cells = [["data", "model", "strength", "a / m / p",
                  *(f"{part}, {text}" for text in SUBSETS.values() for part in "MZ"),
                  "gap, random"]]  # fmt: skip
        for group, data, own in _parts(results):
            for (model, level), rows in own.by("model", "strength").items():
                if level is None:
                    continue
                title, _, letter = OBJECTIVES[model]
                counts = " / ".join(f"{np.mean(rows.values(kind)):.1f}"
                                    for kind in ("active", "mixed", "passive"))  # fmt: skip
                cells.append([
                    _title(group, data), title, f"{letter} = {level:g}", counts,
                    *(mean_and_sd([(_nats(r, subset).get(part) or {}).get(name) for r in rows],
                                digits) for subset in SUBSETS for part in "MZ"),
                    mean_and_sd([(r.get("random") or {}).get(name) for r in rows], digits),
                ])  # fmt: skip
        yield Table(
            f"truncation-{name}", f"{word} of means (M) and samples (Z) by subset of latents",
            cells, left=3, row=row,
            notes=["Nats, floors included; mean ± standard deviation over the seeds whose subset "
                   "has two latents. Gap, random: |M - Z| above the floors with as many random "
                   "latents left out as there are passive ones. Numbers of active, mixed and "
                   "passive latents of 10. The document prints no numbers."],
        )  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import legend_below, lines_and_bars, panel_grid

    def draw(ax: Any, rows: Rows, name: str, subset: str, x: str, title: str) -> None:
        def value(row: Mapping[str, Any], part: str) -> float | None:
            return (_nats(row, subset).get(part) or {}).get(name)

        series = {word: levels(rows, partial(value, part=part))
                  for word, part in (("means", "M"), ("samples", "Z"))}  # fmt: skip
        y = {"tc": "TC (nats)", "mi": "averaged MI (nats)"}[name]
        lines_and_bars(series, levels(rows, "passive"), x=x, y=y, bar_label="passive latents",
                       title=title, top=10, ax=ax)  # fmt: skip

    figure, grid = panel_grid(2, 3, width=8.4, height=5.0, sharey="row")
    on_grid = results.rows("dip").on(*DSPRITES)
    both = {CONTINUOUS_TITLE: results.rows("continuous"),
            "dSprites" if results.scale == "paper" else "sprites": on_grid}  # fmt: skip
    for line, (title, own) in zip(grid, both.items(), strict=True):
        for ax, (subset, text) in zip(line, SUBSETS.items(), strict=True):
            draw(ax, own, "mi", subset, "λ", f"{text}, {title}")
    legend_below(figure, grid)
    yield Figure(
        "figure-6.7", "Averaged mutual information of means and samples of DIP-VAE-II: all "
        "latents, without passive ones, active ones only. Above: sprites with continuous factors, "
        "on which the claim is judged; below: on a grid. Bars: passive latents of 10.",
        figure, row="D-F6.7",
    )  # fmt: skip
    figure, grid = panel_grid(1, 3, width=8.4, height=2.8, sharey=True)
    for ax, (subset, text) in zip(grid[0], SUBSETS.items(), strict=True):
        draw(ax, results.rows("noisy"), "tc", subset, "β", text)
    legend_below(figure, grid)
    yield Figure(
        "figure-6.8", "Total correlation of means and samples of β-TCVAEs on noisy sprites: all "
        "latents, without passive ones, active ones only. Bars: passive latents of 10.", figure,
        row="D-F6.8",
    )  # fmt: skip
    figure, grid = panel_grid(2, 2, width=6.6, height=4.8, sharey="col")
    for line, subset in zip(grid, ("full", "active"), strict=True):
        for ax, name in zip(line, ("tc", "mi"), strict=True):
            own = results.rows("annealed").on("sprites", "sprites-background")
            draw(ax, own, name, subset, "C", SUBSETS[subset])
    legend_below(figure, grid)
    yield Figure(
        "figure-B.5", "Total correlation and averaged mutual information of annealed VAEs: all "
        "latents above, active ones only below. Bars: passive latents of 10.", figure, row="D-B.5",
    )  # fmt: skip


STUDY = Study(
    name="regime-truncation",
    minutes=12,
    own_minutes=6,
    document="D",
    title="Do means and samples agree without passive latents?",
    rows=(
        Row("D-F6.7", "figure 6.7", "averaged MI of all, not passive and active latents"),
        Row("D-F6.8", "figure 6.8", "total correlation likewise"),
        Row("D-B.5", "figure B.5", "annealed VAEs: all latents and active ones"),
    ),
    grids={"dip": DIP, "continuous": CONTINUOUS, "noisy": NOISY, "annealed": ANNEALED},
    measures=(each_run(measure),),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="Three of the six published strengths on noisy and continuous sprites; 20 random "
    "choices of latents. Margins as written in the claims, before the first run that is judged. A "
    "pilot on other seeds had warned that means and samples differ without passive latents, too, "
    "where many latents are mixed.",
)  # fmt: skip
