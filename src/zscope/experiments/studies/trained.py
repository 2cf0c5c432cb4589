"""A trained run in the hands of a study: its models, its data, and its measurements."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from zscope import models, store
from zscope.assays.run import measure
from zscope.autoencoder import Autoencoder
from zscope.data.dataset import Dataset
from zscope.errors import Undefined
from zscope.experiments.stages import stages_of
from zscope.kept import KeptResults, scores_of
from zscope.loading import load, run_data
from zscope.recording import Recording, record
from zscope.scaling import Scaling

__all__ = ["Trained", "TrainedRuns"]


class TrainedRuns:
    """All runs of a study, by grid and settings."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        folder: Path,
        *,
        scale: str,
        root: str | Path | None = None,
        made: Mapping[str, Path] | None = None,
    ) -> None:
        self.scale, self.folder, self.root = scale, folder, root
        self.made = dict(made or {})  # folders of data that the study has made, by name
        self._runs = [Trained(self, row) for row in rows]  # one in two grids stands twice

    def __getitem__(self, name: str) -> "Trained":
        return next(run for run in self._runs if run.name == name)

    def select(self, *groups: str, **fields: Any) -> "list[Trained]":
        """The runs of these grids with these settings."""
        return [
            run
            for run in self._runs
            if (not groups or run.group in groups)
            and all(run.fields.get(key) == value for key, value in fields.items())
        ]


class Trained:
    """One run: `fields` are its settings by their short names."""

    def __init__(self, among: TrainedRuns, fields: Mapping[str, Any]) -> None:
        self.among, self.fields = among, dict(fields)

    @property
    def name(self) -> str:
        return str(self.fields["run"])

    @property
    def group(self) -> str:
        return str(self.fields["group"])

    @property
    def seed(self) -> int:
        return int(self.fields["seed"])

    @property
    def is_first(self) -> bool:
        """Whether it has the first seed of its grid, of which figures are made."""
        return self.seed == min(each.seed for each in self.among.select(self.group))

    @property
    def path(self) -> Path:
        return self.among.folder / self.name

    @property
    def tiny(self) -> bool:
        """Whether this only shows that everything works."""
        return self.among.scale == "tiny"

    def __getitem__(self, field: str) -> Any:
        return self.fields[field]

    @cached_property
    def run(self) -> store.Run:
        return store.open_run(self.path)

    @cached_property
    def model(self) -> Autoencoder:
        return load(self.path)

    @cached_property
    def untrained(self) -> Autoencoder:
        """The model with the weights that its training began with."""
        model = models.from_recipe(self.run.config["model"])
        if self.run.config.get("scaling") is not None:
            model.scaling = Scaling(**self.run.config["scaling"])
        return model.eval()

    @cached_property
    def stages(self) -> dict[int, Any]:
        """How to load the model at step 0, at each snapshot and at the end, by step."""
        if not store.checkpoints(self.path):  # a run without snapshots
            return {0: lambda: self.untrained, self.run.step: lambda: self.model}
        return dict(stages_of("study", self.path))

    def at(self, step: int) -> Autoencoder:
        """The model at a snapshot; 0 is the untrained one."""
        model: Autoencoder = self.stages[step]()
        return model

    @cached_property
    def data(self) -> Dataset:
        """The held-out data, or all of them if they were not split."""
        return run_data(self.path, root=self.among.root)

    def recording(
        self, model: Autoencoder | None = None, *, samples: int = 3_000, data: Any = None
    ) -> Recording:
        """What the model (default: the trained one) makes of held-out data."""
        chosen = self.model if model is None else model
        return record(chosen, self.data if data is None else data, samples=samples, seed=0)

    @cached_property
    def _recording(self) -> Recording:
        return self.recording()

    def assay(
        self,
        name: str,
        recording: Recording | None = None,
        **options: Any,
    ) -> Any:
        """The result of an assay through the runner; Undefined with the reason if it has none."""
        own = recording is None
        recorded = self._recording if recording is None else recording
        kept = KeptResults(self.run, self.model, own_data=True) if own else None
        chosen = {name: options} if options else None
        outcome = measure(recorded, [name], options=chosen, kept=kept)
        if name in outcome.failed:
            raise outcome.failed[name].error
        if name not in outcome.results:
            raise Undefined(f"study: {self.name}: {name}: {outcome.missing.get(name)}")
        return outcome.results[name]

    def scores(
        self, *names: str, recording: Recording | None = None, **options: Any
    ) -> dict[str, float | None]:
        """The scores of assays by name ("dci", "dci.completeness"); None without an answer."""
        answer: dict[str, float | None] = {}
        for name in names:
            try:
                result = self.assay(name, recording, **options)
            except Undefined:
                answer[name] = None
                continue
            values, _ = scores_of(result)
            answer |= {f"{name}.{key}" if key else name: value for key, value in values.items()}
        return answer
