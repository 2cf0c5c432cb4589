"""Active and passive latents of iVAEs: what do posterior and prior look like?

iVAEs with 12 latents learn sprites of 16 x 16 pixels; their prior depends on the five factors u,
with its mean fixed at 0 or learned. The published ones are convolutional, have 30 latents and train
for 300,000 steps on dSprites; these are perceptrons that train for 4,000. The reconstruction counts
16 times, so that terms balance as at 64 x 64.

The prior variance σ† is not 1, so the usual rule (posterior variance near 1 is passive, near 0 is
active) names the latents of an iVAE wrongly. Types here are relative to the prior: passive if the
mean KL is below .1 nat, active if σ / σ† is below .1. σ is a variance, as in the thesis. A latent
that follows the prior given u is passive even where it encodes u.

Controls: iVAEs whose u belong to other pictures. Their prior cannot follow the single picture.

Bonheme, PhD thesis, Kent 2023: section 5.3; theorem 5.2.1 says that with a learned mean the loss
has no resting point but a plain autoencoder, so σ and σ† are also shown over training.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zscope.assays.regime.types import variable_types
from zscope.experiments.studies.grids.regime import IDENTIFIABLE, IDENTIFIABLE_SHUFFLED
from zscope.experiments.studies.judging import (
    FAILS,
    Claim,
    Control,
    above,
    below,
    claim,
    mean_interval,
    within,
)
from zscope.experiments.studies.rows import Rows, log_ratios, mean_and_sd
from zscope.experiments.studies.shared.polarised import (
    COLOURS,
    apart,
    minus,
    per_seed,
    recorded,
)
from zscope.experiments.studies.study import Figure, Results, Row, Study, Table, each_run
from zscope.experiments.studies.trained import Trained
from zscope.recording import Recording
from zscope.tables.statistics import rank_correlation

__all__ = ["STUDY"]

PARTS = {"M": "μ", "S": "σ", "M†": "μ†", "S†": "σ†"}


def measure(run: Trained) -> dict[str, Any]:
    recording = recorded(run)
    histograms: Any = run.assay("latent-histograms", recording)
    raw = variable_types(recording.posterior.variance)
    values: dict[str, Any] = {
        "types": histograms.labels,
        "raw_types": raw.labels,
        "kl": histograms.kl.tolist(),
        **_moments(recording),
        "most": {
            "mean": float(recording.codes.abs().max()),
            "prior": float(_prior(recording)[1].max()),
        },
    }
    if run.is_first:
        values["shown"] = _shown(histograms)
    return values


def measure_training(run: Trained) -> dict[str, Any]:
    """Geometric means of σ and σ† of the latents that are used at the end, over training."""
    histograms: Any = run.assay("latent-histograms", recorded(run))
    used = [j for j, label in enumerate(histograms.labels) if label != "passive"]
    steps = [step for step in run.stages if step > 0]
    series: dict[str, list[float]] = {"posterior": [], "prior": []}
    for step in steps if used else []:
        recording = recorded(run, run.at(step))
        for name, variance in (("posterior", recording.posterior.variance.numpy()),
                               ("prior", _prior(recording)[1])):  # fmt: skip
            series[name].append(float(np.exp(np.log(variance[:, used] + 1e-12).mean())))
    return {"stages": steps, "over_training": series}


def _prior(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of the prior of each observation."""
    prior = recording.conditional_prior
    assert prior is not None
    return prior.mean.double().numpy(), prior.variance.double().numpy()


def _moments(recording: Recording) -> dict[str, list[float | None]]:
    """For each latent: sizes of means and variances, and how σ† goes with μ²."""
    mean, variance = recording.codes.double().numpy(), recording.posterior.variance.double().numpy()
    prior_mean, prior_variance = _prior(recording)
    squares = np.maximum((mean - prior_mean) ** 2, 1e-12)
    return {
        "size": np.abs(mean).mean(0).tolist(),
        "away": np.abs(mean - prior_mean).mean(0).tolist(),
        "posterior": variance.mean(0).tolist(),
        "prior": prior_variance.mean(0).tolist(),
        "ratio": (variance / prior_variance).mean(0).tolist(),
        "tie": np.log2(np.median(prior_variance / squares, axis=0)).tolist(),
        "agreement": [rank_correlation(a, b) for a, b in zip(prior_variance.T, squares.T,
                                                             strict=True)],
    }  # fmt: skip


def _shown(histograms: Any) -> dict[str, Any]:
    """The histograms of the most and of the least used latent of each type."""
    kl = histograms.kl.tolist()
    answer = {}
    for kind, own in (("active", histograms.active or histograms.mixed),
                      ("passive", histograms.passive)):  # fmt: skip
        if own:
            latent = max(own, key=lambda j: kl[j]) if kind == "active" else min(
                own, key=lambda j: kl[j])  # fmt: skip
            answer[kind] = {
                "latent": latent,
                "type": histograms.labels[latent],
                "kl": kl[latent],
                "code_edges": histograms.code_edges[latent].tolist(),
                "variance_edges": histograms.variance_edges[latent].tolist(),
                **{name: histograms.fractions[name][latent].tolist() for name in PARTS},
            }
    return answer


# Claims


def _of_type(row: Mapping[str, Any], key: str, *types: str) -> float | None:
    """The mean of a measurement over the latents of these types; None if there are none."""
    pairs = zip(row.get("types") or [], row.get(key) or [], strict=False)
    values = [value for label, value in pairs if label in types and value is not None]
    return float(np.mean(values)) if values else None


def _with_types(rows: Rows) -> Rows:
    """The runs that were measured: of others it is unknown how many latents of a type they have."""
    return Rows(row for row in rows if row.get("types"))


def _count(rows: Rows, kind: str) -> dict[int, float]:
    return per_seed(_with_types(rows), lambda r: float(r["types"].count(kind)))


def _number(rows: Rows) -> str:
    return f"their number of {rows[0]['latents'] if rows else 12}"


def _misnamed(row: Mapping[str, Any]) -> float | None:
    """The share of passive latents that the rule on raw variances does not call passive."""
    pairs = zip(row.get("types") or [], row.get("raw_types") or [], strict=False)
    raw = [other for label, other in pairs if label == "passive"]
    return float(np.mean([other != "passive" for other in raw])) if raw else None


def claims(results: Results) -> Iterator[Claim]:
    rows = results.rows("ivae")
    fixed, learned = (rows.where(prior_mean=kind) for kind in ("fixed", "learned"))
    shuffled = results.rows("shuffled").where(prior_mean="fixed")
    yield from _passive_claims("D-F5.1", "figure 5.1, proposition 5.2.2", fixed)
    yield from _active_claims(fixed, shuffled)
    yield from _passive_claims("D-F5.3", "figure 5.3, section 5.3.2", learned)
    yield from _learned_claims(fixed, learned)


def _passive_claims(row: str, source: str, rows: Rows) -> Iterator[Claim]:
    yield claim(
        row, "c1", "there are passive latents", source=source, expect=above(0.5),
        statistic=_number(rows), values=_count(rows, "passive"),
    )  # fmt: skip
    published = '"very close to zero"' if row == "D-F5.1" else '"all the values tend to 0"'
    yield claim(
        row, "c2", "their posterior means are close to 0", source=source, published=published,
        expect=below(0.1), statistic="mean |μ| of passive latents",
        values=per_seed(rows, lambda r: _of_type(r, "size", "passive")),
    )  # fmt: skip
    yield claim(
        row, "c3", "their posterior variance is that of the prior", source=source,
        expect=within(0.1), statistic="mean σ / σ† - 1 of passive latents",
        values=per_seed(rows, lambda r: minus(_of_type(r, "ratio", "passive"), 1.0)),
    )  # fmt: skip
    if row == "D-F5.3":
        yield claim(
            row, "c4", "their posterior mean is that of the prior", source=source,
            published='"very close to each other"', expect=below(0.1),
            statistic="mean |μ - μ†| of passive latents",
            values=per_seed(rows, lambda r: _of_type(r, "away", "passive")),
        )  # fmt: skip
    yield claim(
        row, "c5" if row == "D-F5.3" else "c4", "the usual rule, which compares σ with 1, does "
        "not call them passive", source="ours", published="not in the source", ours=True,
        expect=above(0.5), statistic="share of passive latents that it names otherwise",
        values=per_seed(rows, _misnamed),
    )  # fmt: skip


def _active_claims(rows: Rows, shuffled: Rows) -> Iterator[Claim]:
    source = "figure 5.2, proposition 5.2.1"
    yield claim(
        "D-F5.2", "c1", "there are active latents", source=source, expect=above(0.5),
        statistic=_number(rows), values=_count(rows, "active"),
    )  # fmt: skip
    yield claim(
        "D-F5.2", "c2", "their posterior variance is far below that of the prior", source=source,
        expect=below(0.1), statistic="mean σ over mean σ† of active latents (near to what active "
        "means: σ / σ† below .1)",
        values=per_seed(rows, _variance_share),
    )  # fmt: skip
    tie = per_seed(rows, lambda r: _of_type(r, "tie", "active"))
    unrelated = per_seed(shuffled, lambda r: _of_type(r, "tie", "active"))
    elsewhere = mean_interval(list(unrelated.values()))
    agreement = per_seed(rows, lambda r: _of_type(r, "agreement", "active"))
    other = per_seed(shuffled, lambda r: _of_type(r, "agreement", "active"))
    yield claim(
        "D-F5.2", "c3", "the prior variance is the squared posterior mean", source=source,
        published="μ in [-20, 20], the largest σ† about 400", expect=within(1),
        statistic="log2 of the median of σ† / μ² of active latents (within a factor of 2)",
        values=tie,
        controls=[Control("with shuffled u, σ† is not within a factor of 2 of μ²",
                          None if elsewhere is None else within(1).verdict(elsewhere) == FAILS,
                          str(elsewhere))],
        needs="a statistic that the size of μ alone does not fix, as c5",
    )  # fmt: skip
    yield claim(
        "D-F5.2", "c4", "they cost a rate of more than half a nat each", source="ours",
        published="not in the source", ours=True, expect=above(0.5),
        statistic="mean KL of active latents (follows from what active means: at σ / σ† = .1 it is "
        "at least .70)",
        values=per_seed(rows, lambda r: _of_type(r, "kl", "active")),
    )  # fmt: skip
    yield claim(
        "D-F5.2", "c5", "over pictures, the prior variance rises with the squared posterior mean",
        source="ours", published="not in the source", ours=True, expect=above(0),
        statistic="rank correlation of σ† and μ² of active latents", values=agreement,
        controls=[apart("with shuffled u, the prior variance rises less with the squared "
                        "posterior mean", agreement, other)],
    )  # fmt: skip


def _variance_share(row: Mapping[str, Any]) -> float | None:
    posterior, prior = (_of_type(row, key, "active") for key in ("posterior", "prior"))
    return None if posterior is None or not prior else posterior / prior


def _learned_claims(fixed: Rows, learned: Rows) -> Iterator[Claim]:
    source = "figure 5.4, section 5.3.2"
    yield claim(
        "D-F5.4", "c1", "there are active latents when the prior mean is learned", source=source,
        expect=above(0.5), statistic=_number(learned), values=_count(learned, "active"),
        needs="the published network and 300,000 steps: here the prior given all five factors "
        "predicts the means so well that little is left to encode",
    )  # fmt: skip
    sizes = [Rows({**row, "used_prior": _of_type(row, "prior", "active", "mixed")} for row in rows)
             for rows in (learned, fixed)]  # fmt: skip
    yield claim(
        "D-F5.4", "c2", "the prior variance is smaller than with a fixed mean", source=source,
        published='"While the Σ† still has a high variance for passive variables, it is not as '
        'high as in Figure 5.2c"', expect=below(0),
        statistic="log of mean σ† of latents that are not passive: learned minus fixed, same seed",
        values=log_ratios(sizes[0], sizes[1], "used_prior"),
        chosen="latents that are not passive, since a learned mean may leave none active",
    )  # fmt: skip
    yield claim(
        "D-F5.4", "c3", "with a learned mean, σ still falls at the end", source="ours",
        published="theorem 5.2.1: no resting point but a plain autoencoder", ours=True,
        expect=below(0), values=per_seed(learned, _late_change),
        statistic="log2 of the geometric mean of σ of used latents: end minus half of the training",
    )  # fmt: skip


def _late_change(row: Mapping[str, Any]) -> float | None:
    series = (row.get("over_training") or {}).get("posterior") or []
    steps = row.get("stages") or []
    if len(series) < 2:
        return None
    half = min(range(len(series)), key=lambda k: abs(steps[k] - steps[-1] / 2))
    return math.log2(series[-1] / series[half])


# Tables and figures


def tables(results: Results) -> Iterator[Table]:
    cells = [["u", "prior mean", "type", "latents", "called passive by raw rule", "KL", "|μ|",
              "|μ - μ†|", "σ", "σ†", "σ / σ†", "rank ρ(σ†, (μ - μ†)²)"]]  # fmt: skip
    for group, word in (("ivae", "fits"), ("shuffled", "shuffled")):
        for kind, every in results.rows(group).by("prior_mean").items():
            rows = _with_types(every)
            for name in ("active", "mixed", "passive"):
                counts = [r["types"].count(name) for r in rows]
                raw = [
                    sum(label == name and other == "passive"
                        for label, other in zip(r["types"], r["raw_types"], strict=True))
                    for r in rows
                ]  # fmt: skip
                cells.append([
                    word, kind, name, mean_and_sd(counts, 1), mean_and_sd(raw, 1),
                    *(mean_and_sd([_of_type(r, key, name) for r in rows])
                      for key in ("kl", "size", "away", "posterior", "prior", "ratio",
                                  "agreement")),
                ])  # fmt: skip
    yield Table("types", "Latents of iVAEs by type relative to the prior", cells, left=3,
                row="D-F5.1",
                notes=["Means over the latents of a type; mean ± standard deviation over seeds. σ "
                       "are variances. The figures print no numbers."])  # fmt: skip
    cells = [["prior mean", "largest |μ|", "published", "largest σ†", "published"]]
    for kind, rows in results.rows("ivae").by("prior_mean").items():
        printed = ("20", "≈ 400") if kind == "fixed" else ("", "")
        most = [[(r.get("most") or {}).get(key) for r in rows] for key in ("mean", "prior")]
        cells.append([str(kind), mean_and_sd(most[0], 1), printed[0], mean_and_sd(most[1], 0),
                      printed[1]])  # fmt: skip
    yield Table("ranges", "Largest posterior mean and prior variance (figure 5.2)", cells,
                row="D-F5.2", notes=["Of all latents and pictures."])  # fmt: skip


def plot_figures(results: Results) -> Iterator[Figure]:
    from zscope.plots import counted_histogram, lines_over, panel_grid

    rows = results.rows("ivae")
    for row, kind, mean in (
        ("D-F5.1", "passive", "fixed"), ("D-F5.2", "active", "fixed"),
        ("D-F5.3", "passive", "learned"), ("D-F5.4", "active", "learned"),
    ):  # fmt: skip
        models = rows.where(prior_mean=mean)
        shown = next((r["shown"].get(kind) for r in models if r.get("shown")), None)
        if shown is None:
            continue
        names = [name for name in PARTS if mean == "learned" or name != "M†"]
        figure, grid = panel_grid(1, len(names), width=2.2 * len(names), height=2.1)
        for ax, name in zip(grid[0], names, strict=True):
            edges = shown["code_edges" if name.startswith("M") else "variance_edges"]
            counted_histogram(shown[name], edges, x=PARTS[name], colour=COLOURS[shown["type"]],
                              ax=ax)  # fmt: skip
            if ax is not grid[0][0]:
                ax.set_ylabel("")
        yield Figure(
            f"figure-{row[3:]}", f"Posterior mean μ and variance σ, and prior variance σ†, of one "
            f"{shown['type']} latent (number {shown['latent']}, KL {shown['kl']:.2f} nats) of an "
            f"iVAE with a {mean} prior mean"
            + (" μ†." if mean == "learned" else ".")
            + (" No latent was active, so the one with the largest KL is shown."
               if kind == "active" and shown["type"] != "active" else "")
            + " σ and σ† have the same axis"
            + (", and so have μ and μ†." if mean == "learned" else "."), figure, row=row,
        )  # fmt: skip
    series: dict[str, dict[float, list[float]]] = {}
    for mean, own in rows.by("prior_mean").items():
        for part, word in (("posterior", "σ"), ("prior", "σ†")):
            for run in own:
                values = (run.get("over_training") or {}).get(part) or []
                for step, value in zip(run.get("stages") or [], values, strict=False):
                    series.setdefault(f"{word}, {mean} μ†", {}).setdefault(step, []).append(value)
    if series:
        ax = lines_over(series, x="step", y="geometric mean of the variance")
        ax.set_yscale("log")
        yield Figure(
            "training", "Posterior and prior variance of the latents that are not passive at the "
            "end, over training. A line that still falls at the end has no resting point yet.", ax,
            row="D-F5.4",
        )  # fmt: skip


STUDY = Study(
    name="ivae-histograms",
    minutes=3,
    document="D",
    title="Do iVAEs have active and passive latents?",
    rows=(
        Row("D-F5.1", "figure 5.1", "a passive latent, prior mean fixed"),
        Row("D-F5.2", "figure 5.2", "an active latent, prior mean fixed"),
        Row("D-F5.3", "figure 5.3", "a passive latent, prior mean learned"),
        Row("D-F5.4", "figure 5.4", "an active latent, prior mean learned"),
    ),
    grids={"ivae": IDENTIFIABLE, "shuffled": IDENTIFIABLE_SHUFFLED},
    measures=(each_run(measure), each_run(measure_training, "ivae")),
    tables=tables,
    figures=plot_figures,
    claims=claims,
    chosen="The weight 16 of the reconstruction, on seed 0: with weight 1 and a fixed mean no "
    "latent was active. Margins as written in the claims, before the first run that is judged.",
    changed="D-F5.2 c3 had held with a control of another statistic, which is now c5; with "
    "shuffled u the ratio is within a factor of 2 as well.",
)
