"""The table of an evaluation: scores by model and version of the data, over seeds."""

import csv
import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zscope import store
from zscope.files import write_whole
from zscope.results import Result, text_table
from zscope.tables.statistics import mean_of

__all__ = ["Cell", "Row", "ScoreTable", "summarise"]


@dataclass(frozen=True)
class Cell:
    """A mean over seeds; its interval is a t-interval for three values or more, else the range."""

    mean: float
    low: float
    high: float
    count: int
    interval: str  # what low and high are

    def text(self, runs: int) -> str:
        """The mean and the interval, with the number of runs where some are missing."""
        some = f" of {self.count}" if self.count < runs else ""
        if self.count == 1:
            return f"{self.mean:.2f}{some}"
        return f"{self.mean:.2f} ({self.low:.2f} to {self.high:.2f}){some}"


def summarise(values: list[float]) -> Cell | None:
    """The mean of some values with its interval; None without values."""
    mean = mean_of(values)
    if mean is None:
        return None
    kinds = {1: "one run", 2: "range"}
    return Cell(mean.value, mean.low, mean.high, mean.n, kinds.get(mean.n, "95 % t-interval"))


@dataclass(frozen=True)
class Row:
    """One model on one version of the data: the values of all seeds."""

    model: str
    version: str
    runs: int  # how many were asked for
    scores: dict[str, list[float]]  # by column; a run without the score is left out
    active: list[float]  # latents in use, of each run
    pruned: int  # runs that use fewer latents than there are factors, or than they have


@dataclass(frozen=True, eq=False)
class ScoreTable(Result):
    """Scores of models trained on the original, the changed and the control data."""

    columns: list[str]
    rows: list[Row]
    sizes: dict[str, dict[str, Any]]  # of the change in each version but the original
    distances: dict[str, float]  # of each version's factors to its principal directions
    factors: int  # that vary
    failed: dict[str, str]  # run -> why it has no scores
    flags: list[str]
    chance: float | None = None  # the distance of random directions
    latents: int | None = None  # of the models; None: as many as there are factors, or more

    def cell(self, model: str, version: str, column: str) -> Cell | None:
        """The mean and interval of a score, or of "active"; None if no run has it."""
        (row,) = (r for r in self.rows if (r.model, r.version) == (model, version))
        return summarise(row.active if column == "active" else row.scores[column])

    def cells(self) -> list[list[str]]:
        """The table as text, with a header."""
        header = ["model", "data", *self.columns, "latents in use", "pruned runs"]
        lines = [header]
        for row in self.rows:
            values = [*(row.scores[column] for column in self.columns), row.active]
            cells = [summarise(each) for each in values]
            texts = ["none" if cell is None else cell.text(row.runs) for cell in cells]
            lines.append([row.model, row.version, *texts, f"{row.pruned} of {row.runs}"])
        return lines

    def caption(self) -> str:
        """What the numbers are."""
        runs = max(row.runs for row in self.rows)
        interval = "95 % t-interval" if runs >= 3 else "range: fewer than 3 seeds have no interval"
        over = "one seed, no interval" if runs == 1 else f"mean over {runs} seeds ({interval})"
        return f"{over}; pruned: fewer latents in use than the {self._needed()}"

    def _needed(self) -> str:
        if self.latents is not None and self.latents < self.factors:
            return f"{self.latents} that there are"
        return f"{self.factors} factors"

    def versions_caption(self) -> str:
        """What the sizes are."""
        chance = "" if self.chance is None else f"; distance: 0 aligned, {self.chance:.2f} random"
        return (
            "variance of the change: of x' - x, in units of that of the data; variance of data: by "
            "how much it changes; noise, untrained (evaluate/noise.npz, evaluate/untrained.npz): "
            f"of the variance of the change, not its ε{chance}"
        )

    def versions(self) -> list[list[str]]:
        """The size of the change in each version as text, with a header."""
        header = ["data", "largest change", "root mean square", "variance of the change",
                  "in one direction", "variance of data", "distance to directions"]  # fmt: skip
        lines = [header]
        for name in dict.fromkeys(row.version for row in self.rows):
            size, distance = self.sizes.get(name), self.distances.get(name)
            numbers = ["", "", "", "", ""]
            if size is not None:
                signs = {"relative_variance": "", "first_direction": "", "added_variance": "+"}
                numbers = [f"{size[key]:.4f}" for key in ("largest", "rms")]
                numbers += [
                    "none" if size[key] is None else f"{100 * size[key]:{sign}.1f} %"
                    for key, sign in signs.items()
                ]
            lines.append([name, *numbers, "none" if distance is None else f"{distance:.2f}"])
        return lines

    def text(self) -> str:
        """The table as the command prints it."""
        parts = [text_table(self.cells(), left=2), self.caption(), ""]
        parts += [text_table(self.versions()), self.versions_caption(), *self.flags]
        parts += [f"failed: {run}: {reason}" for run, reason in self.failed.items()]
        return "\n".join(parts)

    def __repr__(self) -> str:
        return self.text()

    def summary(self) -> list[tuple[str, str]]:
        return [(f"{row[0]}, {row[1]}", ", ".join(row[2:])) for row in self.cells()[1:]]

    def to_dict(self) -> dict[str, Any]:
        rows = []
        for row in self.rows:
            values = {**row.scores, "active": row.active}
            cells = {name: summarise(each) for name, each in values.items()}
            plain = {name: None if c is None else asdict(c) for name, c in cells.items()}
            rows.append({**asdict(row), "summary": plain})
        return {
            "kind": type(self).__name__,
            "caption": self.caption(),
            "columns": self.columns,
            "rows": rows,
            "sizes": self.sizes,
            "distances": self.distances,
            "distance_of_chance": self.chance,
            "factors": self.factors,
            "latents": self.latents,
            "failed": self.failed,
            "flags": self.flags,
        }

    def save(self, folder: Path) -> None:
        """Write table.csv, table.json and table.md."""
        store.write_json(folder / "table.json", self.to_dict())
        write_whole(folder / "table.csv", self._csv().encode())
        write_whole(folder / "table.md", self._markdown().encode())

    def _csv(self) -> str:
        """One line for each model and version, with mean, ends of the interval and count."""
        names = [*self.columns, "active"]
        ends = [f"{name}{end}" for name in names for end in ("", "_low", "_high", "_n")]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", "data", "runs", "pruned", "interval", *ends])
        for row in self.rows:
            cells = [summarise({**row.scores, "active": row.active}[name]) for name in names]
            numbers = [
                number
                for c in cells
                for number in (("", "", "", 0) if c is None else (c.mean, c.low, c.high, c.count))
            ]
            kinds = {c.interval for c in cells if c is not None}
            kind = " or ".join(sorted(kinds))
            writer.writerow([row.model, row.version, row.runs, row.pruned, kind, *numbers])
        return file.getvalue()

    def _markdown(self) -> str:
        parts = []
        for cells in (self.cells(), self.versions()):
            lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]  # fmt: skip  # noqa: E501
            parts += [lines[0], "|" + "---|" * len(cells[0]), *lines[1:], ""]
            parts += [self.caption() if cells[0][0] == "model" else self.versions_caption(), ""]
        parts += [f"- {flag}" for flag in self.flags]
        parts += [f"- failed: {run}: {reason}" for run, reason in self.failed.items()]
        return "\n".join(parts).rstrip() + "\n"
