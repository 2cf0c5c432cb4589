"""Linear models against PCA: part of the study `pca-alignment`.

Theorem 2: the codes of the optimal linear β-VAE are the principal components, one to a latent and
in their order. A linear autoencoder finds their plane, and any axes in it.

Zietlow, PhD thesis, Tübingen 2022, section 2.2, theorem 2.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from zscope.assays.alignment.codes_against_pca import codes_against_pca, principal_scores
from zscope.autoencoder import Autoencoder
from zscope.derived import rotate_latents
from zscope.experiments.studies.judging import Claim, Control, above, below, claim, mean_interval
from zscope.experiments.studies.rows import Rows, differences
from zscope.experiments.studies.shared.pca import measure_alignment
from zscope.experiments.studies.study import Figure
from zscope.experiments.studies.trained import Trained
from zscope.theory import fit_linear_vae

__all__ = ["closed_form", "measure_axes", "plot_theorem", "theorem_claims"]

SEEN = 300
"""Codes in a figure of points."""


def measure_axes(run: Trained) -> dict[str, Any]:
    """Codes against principal components; a β-VAE also with its latents rotated by 45 degrees."""
    recording = run.recording(samples=400 if run.tiny else 5_000)
    if len(recording.used) < 2:
        return {}
    result: Any = run.assay("codes-against-pca", recording)
    answer = {
        "axes": result.axes,
        "space": result.space,
        "angle": float(result.angles.max()),
        "plane": _decoder_angle(run.model, recording.observations),
        "plane_untrained": _decoder_angle(run.untrained, recording.observations),
        "order": result.order,
        "correlations": result.correlations.tolist(),
    }
    if run["model"] == "beta-vae":
        turned = rotate_latents(run.model, _turn(45))
        answer["turned"] = measure_alignment(run, turned)["dto"]
    if run.is_first and recording.factors is not None:
        answer["codes"] = recording.codes[:SEEN].numpy()
        answer["factor"] = recording.factors.values[:SEEN, 0]
    return answer


def _decoder_angle(model: Autoencoder, x: torch.Tensor) -> float:
    """The largest angle between the plane of a linear decoder and that of the data, in degrees."""
    with torch.no_grad():
        points = torch.cat([torch.zeros(1, 2), torch.eye(2)]).to(model.place[1])
        decoded = model.decode(points).double().flatten(1)
    columns = torch.linalg.qr((decoded[1:] - decoded[0]).T)[0]
    rows = x.double().flatten(1)
    axes = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)[2][:2]
    cosine = torch.linalg.svdvals(axes @ columns).min().clamp(0, 1)
    return math.degrees(math.acos(float(cosine)))


def _turn(degrees: float) -> torch.Tensor:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, -s], [s, c]])


def closed_form(runs: Sequence[Trained]) -> dict[str, Any]:
    """Codes of the linear β-VAE in closed form against principal components."""
    run = next(run for run in runs if run["model"] == "beta-vae")
    beta = float(run["beta"])
    x = torch.from_numpy(np.asarray(run.data.images[:5_000]))
    model = fit_linear_vae(x, latents=2, gamma=0.5, beta=beta)  # squared error has γ = 1/2
    result = codes_against_pca(x, model.posterior(x), active="all")
    scores, values, _ = principal_scores(x.double(), 2)
    return {
        "axes": result.axes,
        "angle": float(result.angles.max()),
        "order": result.order,
        "collapse": (2 * values[:2]).tolist(),  # β at which each latent is pruned
        "pca": scores[:SEEN].numpy(),
        "factor": np.asarray(run.data.factors)[:SEEN, 0],
    }


def theorem_claims(rows: Mapping[str, Rows], theory: Mapping[str, Any]) -> Iterator[Claim]:
    """What theorem 2 says of the linear models in `rows`, by name; `theory` is the closed form."""
    aligned, plain, full = (rows.get(name, Rows()) for name in ("β-VAE", "AE", "Σ"))
    exact = Control(
        "the closed form itself has axes 1, angle 0 and order 1",
        bool(theory["axes"] > 0.999 and theory["angle"] < 0.1 and theory["order"] > 0.999)
        if theory.get("order") is not None else None,
        f"axes {theory.get('axes')}, angle {theory.get('angle')}°, order {theory.get('order')}",
    )  # fmt: skip
    for number, (other, own) in enumerate((("AE", plain), ("Σ", full)), 1):
        yield claim(
            "C-Th2", f"c{number}", f"codes of the linear β-VAE are principal components, those of "
            f"{other} are not", source="theorem 2", published="theorem, no numbers",
            expect=above(0), values=differences(aligned, own, "axes"),
            statistic=f"mean matched correlation of the β-VAE minus that of {other}, same seed",
            controls=[exact],
        )  # fmt: skip
    yield claim(
        "C-Th2", "c3", "and to the full extent: each latent is one component", source="theorem 2",
        published="theorem, no numbers", expect=above(0.99), values=aligned.per_seed("axes"),
        statistic="mean matched correlation of the β-VAE (chance .900)", controls=[exact],
    )  # fmt: skip
    before = mean_interval(plain.values("plane_untrained"))
    yield claim(
        "C-Th2", "c4", "the decoder of the AE spans the plane of the first components",
        source="section 2.2", published="no numbers", expect=below(2),
        values=plain.per_seed("plane"),
        statistic="largest angle between the columns of the decoder and the components, in degrees",
        controls=[Control("the untrained decoder of the AE does not span the plane of the first "
                          "components (above 2°)", None if before is None else before.low > 2,
                          f"{before}")],
    )  # fmt: skip
    yield claim(
        "C-Th2", "c5", "and its axes are no nearer to the components than random ones",
        source="section 2.2", published="no numbers", expect=below(0.05), ours=True,
        statistic="mean matched correlation of the AE minus that of random rotations (.900)",
        values={seed: axes - 2 * math.sqrt(2) / math.pi
                for seed, axes in plain.per_seed("axes").items()},
    )  # fmt: skip


def plot_theorem(named: Mapping[str, Rows], theory: Mapping[str, Any]) -> Iterator[Figure]:
    """Codes and their correlations with principal components, a column for each model."""
    from zscope.plots import heatmap, panel_grid
    from zscope.plots.theme import title

    shown = {
        name: row for name, rows in named.items() for row in rows if row.get("codes") is not None
    }
    if not shown or theory.get("pca") is None:
        return
    figure, grid = panel_grid(2, len(shown) + 1, height=4.0)
    pca = np.asarray(theory["pca"])
    for place, (name, row) in enumerate(shown.items()):
        codes = np.asarray(row["codes"])
        ax = grid[0][place]
        ax.scatter(codes[:, 0], codes[:, 1], c=np.asarray(row["factor"]), s=3, linewidths=0)
        title(ax, f"{name}, seed {row['seed']}")
        ax.set(xlabel="latent 0", ylabel="latent 1")
        ax.set_aspect("equal", adjustable="datalim")
        heatmap(row["correlations"], rows=["0", "1"], columns=["1", "2"], x="component",
                y="latent", limit=1.0, bar=False, ax=grid[1][place])  # fmt: skip
    ax = grid[0][-1]
    colours = np.asarray(theory["factor"])
    ax.scatter(pca[:, 0], pca[:, 1], c=colours, s=3, linewidths=0)
    title(ax, "PCA")
    ax.set(xlabel="component 1", ylabel="component 2")
    ax.set_aspect("equal", adjustable="datalim")
    grid[1][-1].axis("off")
    yield Figure(
        "theorem-2", "Above: codes of the same points, coloured by the first factor. Below: "
        "absolute correlations of latents and principal components. The β-VAE has the axes of PCA, "
        "the others have its plane only.", figure, row="C-Th2",
    )  # fmt: skip
