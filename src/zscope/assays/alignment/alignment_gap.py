"""Alignment gap: do different latents change the output in orthogonal directions?

    a(J) = sum_j log |c_j| - sum_k log s_k  >= 0

with c_j the columns and s_k the singular values of the decoder's Jacobian J at a code, over
active latents, averaged over codes. In nats; 0 if and only if the columns are orthogonal.
exp(-a) is the volume spanned by unit steps of all latents, relative to a box with the same
edge lengths.

Unlike the distance to orthogonality it stays continuous where singular values are equal:
an orthogonal decoder with equal singular values has a = 0 although V is arbitrary. Unchanged
by permuting, flipping or scaling latents and by rotating or shifting the decoded observations.
`cosines` shows which latents are not orthogonal. `chance` is the gap of the same decoder with
latents rotated at random at every code: the same singular values, and V uniform.

Zietlow, PhD thesis, Tübingen 2022, eq. 3.23-3.24, propositions 5 and 6. The same quantity
is the contrast of independent mechanism analysis (Gresele et al., NeurIPS 2021), to which
the gap of a VAE's ELBO tends (Reizinger et al., NeurIPS 2022). The name is ours.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

from zscope.assays.active import (
    AtPlace,
    Place,
    Rule,
    Singles,
    check_two_active,
    choose_columns,
    standard_error,
)
from zscope.assays.alignment.column_product import log_column_ratio
from zscope.assays.alignment.distance_to_orthogonality import random_orthogonal
from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import Recorded
from zscope.assays.entry import Entry
from zscope.assays.halves import FEWEST, half_means
from zscope.assays.jacobian import (
    Likelihood,
    Method,
    PerSample,
    Spectra,
    metric_of,
)
from zscope.autoencoder import Autoencoder
from zscope.errors import Undefined
from zscope.results import Scored
from zscope.types import Matrix

__all__ = ["AlignmentGap", "alignment_gap"]

LEFT_OUT = "Left out"


@dataclass(frozen=True, eq=False)
class AlignmentGap(AtPlace, Scored):
    gap: float  # nats
    standard_error: float | None  # None for a single code
    samples: int  # codes
    chance: float  # nats, of randomly rotated latents
    per_latent: float  # gap / active latents, to compare models of different sizes
    active: list[int]
    passive: list[int]
    metric: str  # of the columns: pixels or Fisher information
    method: str
    per_sample: PerSample
    cosines: Matrix  # root mean square cosine between the columns of two latents
    lengths: Spectra  # |c_j| at each code
    flags: list[str]

    why_no_interval = "there is only one code"
    score_fields = ("gap",)
    needs_equal_sizes = True

    def on_halves(self) -> dict[str, list[float]]:
        """None if codes were left out, so that others would be compared with each other."""
        complete = not any(flag.startswith(LEFT_OUT) for flag in self.flags)
        return {"": half_means(self.per_sample)} if complete and self.samples >= FEWEST else {}

    @property
    def score(self) -> float:
        return self.gap

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import heatmap

        names = [str(j) for j in self.active]
        return heatmap(
            self.cosines,
            rows=names,
            columns=names,
            x="latent",
            y="latent",
            title=f"alignment gap {self.gap:.2f} nats ({self.metric}): root mean square cosine",
            ax=ax,
        )


@accepts_recording
def alignment_gap(
    autoencoder: Autoencoder,
    codes: Recorded,
    *,
    active: Rule = "used",
    place: Place = None,
    latents: Singles = None,
    samples: int = 256,
    likelihood: Likelihood = "gaussian",
    method: Method = "auto",
    generator: Generator | None = None,
) -> AlignmentGap:
    """a(J), averaged over at most `samples` of the codes (of a posterior, its means).

    Options as for `distance_to_orthogonality`. Raises `Undefined` where columns are linearly
    dependent at every code: the volume is 0 and the gap infinite.
    """
    who = "alignment_gap"
    columns = choose_columns(
        who,
        autoencoder,
        codes,
        active=active,
        place=place,
        latents=latents,
        samples=samples,
        generator=generator,
    )
    check_two_active(who, columns)
    chosen, unit = columns.active, columns.unit
    local = columns.linearise(likelihood=likelihood, method=method)
    flat = local.spectra[:, -1] <= local.precision * local.spectra[:, 0]
    if flat.all():
        raise Undefined(
            f"alignment_gap: at all {len(flat)} codes the columns of {len(chosen)} {unit}s are "
            f"linearly dependent, so they span no volume. Two {unit}s have the same effect, or one "
            f"has none: see variable_types, or list the {unit}s with active=[…]."
        )
    triangles = local.triangle[~flat]
    flags = list(local.flags)
    if flat.any():
        flags.append(
            f"{LEFT_OUT} {int(flat.sum())} of {len(flat)} codes where columns are linearly "
            "dependent: the gap is infinite there."
        )
    gaps = log_column_ratio(triangles, local.precision)
    units = triangles / triangles.norm(dim=1, keepdim=True).clamp(min=1e-300)
    result = AlignmentGap(
        gap=float(gaps.mean()),
        standard_error=standard_error(gaps),
        samples=len(gaps),
        chance=_chance(local.spectra[~flat]),
        per_latent=float(gaps.mean()) / len(chosen),
        active=chosen,
        passive=columns.passive,
        metric=metric_of(likelihood),
        method=local.method,
        per_sample=gaps,
        cosines=torch.einsum("nij,nik->njk", units, units).square().mean(0).sqrt(),
        lengths=local.lengths[~flat],
        flags=flags,
        place=columns.place,
    )
    return columns.name(result)


def _chance(spectra: Spectra) -> float:
    """The mean gap of S V^T with V from the Haar measure, with several V for each code."""
    repeated = spectra.repeat(-(-20_000 // spectra.numel()), 1)
    gaps, start = [], 0
    for V in random_orthogonal(len(repeated), spectra.shape[1]):
        each = repeated[start : start + len(V)]
        start += len(V)
        # |column j of S V^T|^2 = sum_k s_k^2 V_jk^2
        squares = torch.einsum("njk,nk->nj", V.square(), each.square())
        gaps.append(0.5 * squares.log().sum(1) - each.log().sum(1))
    return float(torch.cat(gaps).mean())


ENTRY = Entry(
    question="Do different latents change the output in orthogonal directions?",
    meaning=(
        "0 nats if different latents change the output in orthogonal directions; larger, the more "
        "their effects overlap."
    ),
    figure=(
        "The cosine between the effects of each pair of latents: faint off the diagonal means that "
        "they change the output in different directions."
    ),
    takes=("decoder", "recording"),
    needs=("two latents",),
    passes="samples * latents",
    most=4_000,
    better="lower",
    maps="place on request",
)
