"""Maps of layers: the similarity of every two layers, averaged over pairs of models.

A map has three numbers for each cell: CKA, Procrustes, and the smaller of both, which is the one
to quote. Each is the mean over pairs, and the smaller is taken in every pair first. The spread is
the standard deviation over pairs; pairs that share a run are not independent, so that it is no
standard error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from zscope.assays.similarity.layers import MEASURES, PairOfModels, blocks_of
from zscope.errors import Undefined
from zscope.experiments.records import Tabular
from zscope.results import text_table
from zscope.types import Matrix

__all__ = ["TITLES", "LayerMap", "average", "left_out_text", "plot_maps", "steps_table"]

TITLES = {"cka": "CKA", "procrustes": "Procrustes", "smaller": "smaller of both"}
MOST_STEPS = 6
"""Steps of training that are drawn; the numbers of all of them are in the table."""
MOST_GROUPS = 6


@dataclass(frozen=True, eq=False)
class LayerMap(Tabular):
    """Layers of the first (rows) and the second (columns) model of each pair."""

    columns = (
        "group", "step", "pairs", "row", "column",
        *(column for name in MEASURES for column in (name, f"{name} sd")),
    )  # fmt: skip

    group: str  # what tells its runs from those of other maps
    step: int | None  # of training; None for models that are no stages of a run
    row_layers: list[str]
    column_layers: list[str]
    means: dict[str, Matrix]  # by MEASURES: the mean over pairs
    spreads: dict[str, Matrix]  # the standard deviation over pairs; empty for a single pair
    pairs: list[tuple[str, str]]
    latents: list[float]  # for each pair, the smaller similarity of the latent means
    # The first model and an untrained one; its columns are untrained_layers.
    untrained: dict[str, Float[Tensor, "rows others"]] = field(default_factory=dict)
    shuffled: dict[str, Matrix] = field(default_factory=dict)  # the first pair, rows shuffled
    untrained_layers: list[str] = field(default_factory=list)  # columns of `untrained`
    left_out: list[str] = field(default_factory=list)  # layers that not all models have

    @property
    def shared(self) -> list[str]:
        """The layers that both models have."""
        return [name for name in self.row_layers if name in self.column_layers]

    @property
    def controls(self) -> list[str]:
        return [name for name in ("untrained", "shuffled") if getattr(self, name)]

    def cell(self, name: str, measure: str = "smaller") -> float:
        """The similarity of the layer of this name in both models."""
        return self._at(self.means[measure], name)

    def _at(self, matrix: Matrix, name: str, columns: Sequence[str] | None = None) -> float:
        columns = self.column_layers if columns is None else columns
        return float(matrix[self.row_layers.index(name), list(columns).index(name)])

    def records(self) -> list[dict[str, Any]]:
        """A row for each cell."""
        table = []
        for i, row in enumerate(self.row_layers):
            for j, column in enumerate(self.column_layers):
                cell: dict[str, Any] = {
                    "group": self.group, "step": self.step, "pairs": len(self.pairs),
                    "row": row, "column": column,
                }  # fmt: skip
                for name in MEASURES:
                    spread = self.spreads.get(name)
                    cell[name] = float(self.means[name][i, j])
                    cell[f"{name} sd"] = None if spread is None else float(spread[i, j])
                table.append(cell)
        return table

    def plot(self, ax: Any = None) -> Any:
        return plot_maps([self], ax=ax)

    @property
    def unshared(self) -> list[str]:
        """The layers that not all models have, on both sides of the pairs."""
        every = dict.fromkeys([*self.row_layers, *self.column_layers, *self.left_out])
        return [name for name in every if name not in self.shared]

    def __repr__(self) -> str:
        count = f"{len(self.pairs)} pair{'' if len(self.pairs) == 1 else 's'}"
        spread_note = " (mean ± standard deviation over pairs)" if self.spreads else ""
        place = ", ".join(filter(None, [self.group, self._step_text(), f"{count}{spread_note}"]))
        return f"{place}\n{self.text()}"

    def text(self) -> str:
        """The layers that both models have, with the controls."""
        table = [["layer", *TITLES.values(), *self.controls]]
        for name in self.shared:
            cells = [name]
            cells += [self.cell_text(name, measure) for measure in MEASURES]
            table.append([*cells, *self.control_texts(name)])
        return "\n".join([text_table(table), *left_out_text(self.unshared)])

    def cell_text(self, name: str, measure: str = "smaller") -> str:
        """The mean of a cell of the diagonal, with its spread if there is one."""
        spread = self.spreads.get(measure)
        more = "" if spread is None else f" ± {self._at(spread, name):.3f}"
        return f"{self.cell(name, measure):.3f}{more}"

    def control_texts(self, name: str) -> list[str]:
        """The smaller similarity of a layer in each control."""
        cells = []
        if self.untrained:
            known = name in self.untrained_layers
            control = self.untrained["smaller"]
            cells.append(f"{self._at(control, name, self.untrained_layers):.3f}" if known else "")
        if self.shuffled:
            cells.append(f"{self._at(self.shuffled['smaller'], name):.3f}")
        return cells

    def _step_text(self) -> str:
        return "" if self.step is None else "untrained" if self.step == 0 else f"step {self.step:,}"


def average(
    group: str,
    step: int | None,
    pairs: Mapping[tuple[str, str], PairOfModels],
    **controls: Any,
) -> LayerMap:
    """The map of several pairs of models: the layers that all first and all second ones have.

    The names of the others are kept in `left_out`.
    """
    results = list(pairs.values())
    rows = [name for name in results[0].rows if all(name in each.rows for each in results)]
    columns = [name for name in results[0].columns if all(name in each.columns for each in results)]
    if not rows or not columns:
        raise Undefined(
            f"compare: the {len(results)} pairs have no layer in common, so there is nothing to "
            "average. Are the models of different kinds? Compare two of them at a time."
        )
    stacks = {
        name: torch.stack([_part(each, name, rows, columns) for each in results])
        for name in MEASURES
    }
    every_row = dict.fromkeys(name for each in results for name in each.rows)
    every_column = dict.fromkeys(name for each in results for name in each.columns)
    left_out = [name for name in every_row if name not in rows]
    left_out += [name for name in every_column if name not in columns]
    single = len(results) == 1
    with_latents = "mean" in rows and "mean" in columns
    place = (rows.index("mean"), columns.index("mean")) if with_latents else (0, 0)
    return LayerMap(
        group=group,
        step=step,
        row_layers=rows,
        column_layers=columns,
        means={name: stack.mean(0) for name, stack in stacks.items()},
        spreads={} if single else {name: stack.std(0) for name, stack in stacks.items()},
        pairs=list(pairs),
        latents=stacks["smaller"][:, *place].tolist() if with_latents else [],
        left_out=list(dict.fromkeys(left_out)),
        **_controls(rows, columns, **controls),
    )


def _part(pair: PairOfModels, name: str, rows: list[str], columns: list[str]) -> Matrix:
    first = torch.tensor([pair.rows.index(each) for each in rows])
    second = torch.tensor([pair.columns.index(each) for each in columns])
    part: Matrix = pair.values[name][first][:, second]
    return part


def _controls(
    rows: list[str],
    columns: list[str],
    untrained: PairOfModels | None = None,
    shuffled: PairOfModels | None = None,
) -> dict[str, Any]:
    controls: dict[str, Any] = {}
    if untrained is not None:
        own = untrained.columns
        controls["untrained_layers"] = own
        controls["untrained"] = {name: _part(untrained, name, rows, own) for name in MEASURES}
    if shuffled is not None:
        controls["shuffled"] = {name: _part(shuffled, name, rows, columns) for name in MEASURES}
    return controls


def steps_table(maps: Sequence[LayerMap]) -> str:
    """The smaller similarity of each layer, step by step, for the maps of one group.

    The controls are those of the last step.
    """
    layers = [name for name in maps[0].shared if all(name in each.shared for each in maps)]
    table = [["layer", *(f"step {each.step}" for each in maps), *maps[-1].controls]]
    for name in layers:
        cells = [each.cell_text(name) for each in maps]
        table.append([name, *cells, *maps[-1].control_texts(name)])
    every = dict.fromkeys(name for each in maps for name in [*each.shared, *each.unshared])
    rest = [name for name in every if name not in layers]
    return "\n".join([text_table(table), *left_out_text(rest)])


def left_out_text(layers: Sequence[str]) -> list[str]:
    """A line about layers that are not shown, if there are any."""
    if not layers:
        return []
    return [f"left out, because not all runs have them: {', '.join(layers)}"]


def plot_maps(
    maps: Sequence[LayerMap],
    *,
    x: str = "layers of the second model of each pair",
    y: str = "layers of the first model of each pair",
    ax: Any = None,
) -> Any:
    """A grid: measures side by side, or steps side by side with measures or groups below."""
    from zscope.plots import heatmap, heatmaps
    from zscope.plots.matrices import Panel

    if ax is not None:
        last = maps[-1]
        return heatmap(
            last.means["smaller"], rows=last.row_layers, columns=last.column_layers, x=x, y=y,
            label="smaller of CKA and Procrustes", limit=1.0, diverging=False, ax=ax,
        )  # fmt: skip
    groups: dict[str, list[LayerMap]] = {}
    for each in maps:
        groups.setdefault(each.group, []).append(each)
    shown = dict(list(groups.items())[:MOST_GROUPS])
    note = "" if len(shown) == len(groups) else f"{len(shown)} of {len(groups)} groups"

    rest = dict.fromkeys(name for each in maps for name in each.left_out)
    note = ", ".join(filter(None, [note, *left_out_text([*rest])]))

    def panel(each: LayerMap, measure: str, title: str) -> Panel:
        return Panel(each.means[measure], each.row_layers, each.column_layers, title)

    every = [each.step for each in next(iter(groups.values()))]
    steps = _some(every)
    if len(steps) < len(every):
        note = ", ".join(filter(None, [note, f"{len(steps)} of {len(every)} steps"]))
    label = "similarity"
    if len(steps) == 1:
        grid = [[panel(each, m, TITLES[m]) for m in MEASURES] for (each,) in shown.values()]
        down = list(shown)
    else:
        chosen = {g: [each for each in own if each.step in steps] for g, own in shown.items()}
        if len(shown) == 1:
            ((group, own),) = chosen.items()
            grid = [[panel(each, m, each._step_text()) for each in own] for m in MEASURES]
            down = [TITLES[m] for m in MEASURES]
            note = ", ".join(filter(None, [group, note]))
        else:
            grid = [
                [panel(each, "smaller", each._step_text()) for each in own]
                for own in chosen.values()
            ]
            down, label = list(chosen), "smaller of CKA and Procrustes"
    return heatmaps(grid, x=x, y=y, down=down, label=label, blocks=blocks_of, note=note)


def _some(steps: list[int | None]) -> list[int | None]:
    """Up to MOST_STEPS of the steps, evenly chosen, with the first and the last."""
    if len(steps) <= MOST_STEPS:
        return steps
    places = [round(k * (len(steps) - 1) / (MOST_STEPS - 1)) for k in range(MOST_STEPS)]
    return [steps[place] for place in places]
