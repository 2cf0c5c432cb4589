"""Truncation: which type of latent makes the means differ from the samples?

Total correlation and averaged mutual information of the means and of the sampled codes,
for all latents and for the columns of each type alone; the effective rank for all
latents. Columns are selected without fitting anything again; subsets with fewer than two
columns are left out.

In the polarised regime the means of passive latents are tiny but correlated, while their
samples are pure noise: the two representations differ over all latents, and agree once
the passive ones are left out. So drop the passive columns of the means before training a
downstream model that is sensitive to collinear or near-constant features.

Bonheme 2023, section 6.4.4, figures 6.4 to 6.8; corollary 6.3.1.
"""

from dataclasses import dataclass, field
from typing import Any

from torch import Generator

from zscope.assays.arguments import accepts_recording
from zscope.assays.entry import Entry
from zscope.assays.regime.effective_rank import effective_rank
from zscope.assays.regime.mutual_information import mutual_information
from zscope.assays.regime.total_correlation import total_correlation
from zscope.assays.regime.types import VariableTypes, variable_types
from zscope.autoencoder import Posterior
from zscope.errors import Undefined
from zscope.randomness import fresh
from zscope.results import Result

__all__ = ["Truncation", "truncation", "type_subsets"]

MEASURES = ("total correlation", "mutual information", "effective rank")


@dataclass(frozen=True, eq=False)
class Truncation(Result):
    """`table[measure][subset]` is the pair (of the means, of the samples)."""

    table: dict[str, dict[str, tuple[float, float]]]
    subsets: dict[str, list[int]]
    samples: int
    floors: dict[str, dict[str, float]] = field(default_factory=dict)  # of independent columns
    flags: list[str] = field(default_factory=list)  # why a subset is missing from the table

    def summary(self) -> list[tuple[str, str]]:
        lines = []
        for measure, row in self.table.items():
            for subset, (mean, sampled) in row.items():
                floor = self.floors.get(measure, {}).get(subset)
                note = "" if floor is None else f" (independent {floor:.3g})"
                value = f"mean {mean:.4g}, sampled {sampled:.4g}{note}"
                lines.append((f"{measure}, {subset}", value))
        return [*lines, ("samples", str(self.samples))]

    def plot(self, ax: Any = None) -> Any:
        """Total correlation and mutual information of means and samples, by subset.

        With `ax`, the total correlation alone. Dashes are what independent columns would have.
        """
        from zscope.plots import paired_bars

        tables = {measure: self.table[measure] for measure in MEASURES[:2] if self.table[measure]}
        if not tables:
            raise Undefined(
                f"truncation: no two of the {len(self.subsets['full'])} latents share a finite "
                "amount, so there are no bars to draw. The values are in .table."
            )
        floors = {measure: self.floors.get(measure, {}) for measure in tables}
        return paired_bars(tables, names=("mean", "sampled"), y="nats shared", floors=floors, ax=ax)


def type_subsets(types: VariableTypes) -> dict[str, list[int]]:
    """The columns of each type and of each pair of types, without duplicates.

    "active+mixed", the representation without its passive latents, is there whenever it
    has a column; other pairs only when both their types occur.
    """
    parts = {"active": types.active, "mixed": types.mixed, "passive": types.passive}
    subsets = {"full": list(range(types.latents)), **parts, "active+mixed": types.not_passive}
    for kind in ("active", "mixed"):
        if parts[kind] and types.passive:
            subsets[f"{kind}+passive"] = sorted(parts[kind] + types.passive)
    return {name: columns for name, columns in subsets.items() if columns}


@accepts_recording
def truncation(
    posterior: Posterior,
    *,
    types: VariableTypes | None = None,
    generator: Generator | None = None,
) -> Truncation:
    """The table for a posterior; types are determined from its variances unless given.

    "active+mixed" is the representation without its passive latents.
    """
    if posterior.deterministic:
        raise Undefined(
            f"truncation: the {len(posterior)} posteriors have no variance, so means and samples "
            "are the same. It compares the two, and applies to variational models."
        )
    types = variable_types(posterior.variance) if types is None else types
    mean, sampled = posterior.mean.double(), posterior.sample(fresh(generator)).double()
    table: dict[str, dict[str, tuple[float, float]]] = {measure: {} for measure in MEASURES}
    floors: dict[str, dict[str, float]] = {measure: {} for measure in MEASURES[:2]}
    subsets, flags = type_subsets(types), []
    for name, columns in subsets.items():
        if len(columns) < 2:
            continue
        for measure, of in (
            ("total correlation", total_correlation),
            ("mutual information", mutual_information),
        ):
            try:
                of_means, of_samples = of(mean, columns=columns), of(sampled, columns=columns)
            except Undefined as reason:
                flags.append(f"No {measure} of the subset {name}: {reason}")
                continue
            table[measure][name] = of_means.score, of_samples.score
            floors[measure][name] = of_samples.floor
    table["effective rank"]["full"] = (effective_rank(mean).score, effective_rank(sampled).score)
    return Truncation(
        table=table, subsets=subsets, samples=len(posterior), floors=floors, flags=flags
    )


ENTRY = Entry(
    question="Which type of latent makes the means differ from the samples?",
    meaning=(
        "How correlated the latents of each type are, for means and for samples: passive latents "
        "make the means look correlated while their samples are noise."
    ),
    figure=(
        "Pairs of bars for means and samples, for all latents and for each type alone: where the "
        "two differ, the type is to blame."
    ),
    takes=("posterior", "types=types"),
    needs=("variances", "two latents"),
)
