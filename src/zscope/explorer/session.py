"""An explorer session: a model, its recording, and cached results."""

import copy
import dataclasses
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from zscope.assays.engine import decode_and_respond
from zscope.assays.pictures import channel_scales
from zscope.assays.responses.holes import HoleReference, HoleScore, hole_reference
from zscope.assays.responses.matrix import ResponseMatrix
from zscope.assays.run import measure
from zscope.autoencoder import Autoencoder
from zscope.data.dataset import Dataset, as_dataset
from zscope.errors import ConfigError, InterfaceError, Undefined, ZscopeError
from zscope.explorer.embedding import Umap
from zscope.explorer.labels import labels_of
from zscope.explorer.lanes import Lane, interruptible
from zscope.explorer.rendering import Renderer
from zscope.factors import Factors
from zscope.layout import Layout
from zscope.randomness import named_generator
from zscope.recording import Recording, record
from zscope.report.codes import Holes, hole_scores
from zscope.report.latents import latent_table

__all__ = ["Session", "Subject"]

T = TypeVar("T")

CACHE_SIZE = 48
MEASURED_LATENTS = 64
"""Responses order the latents of a deterministic model, unless it has more than these."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A named model, recorded; `copy` is the recording with the slow lane's copy of the model."""

    name: str
    recording: Recording
    copy: Recording


@dataclass(frozen=True, eq=False)
class MapFacts:
    """What the explorer knows of latent maps: means and standard deviations, as in assays."""

    layout: Layout
    mean: Tensor  # of each channel, over pictures and places
    sigma: Tensor
    mean_map: Tensor  # of each latent, over pictures
    order: list[int]  # channels, those whose means vary most first

    @classmethod
    def of(cls, recording: Recording) -> "MapFacts":
        summary = recording.map_summary
        mean, sigma = channel_scales(summary)
        mean_map = summary.place_sums[0] / summary.pictures + summary.centre[:, None]
        moments = summary.moments()
        spread = moments["m2"] - moments["m"].square()  # of means: noise tells nothing
        return cls(
            summary.layout,
            mean,
            sigma,
            mean_map.flatten(),
            spread.argsort(descending=True).tolist(),
        )

    def scaled(self, values: Tensor) -> Tensor:
        """Differences of latents in units of their channel; 0 if the channel is constant."""
        unit = torch.where(self.sigma > 0, self.sigma, torch.inf)
        return values.double() / unit.repeat_interleave(self.layout.positions)

    def to_dict(self) -> dict[str, Any]:
        return {
            "channels": self.layout.channels,
            "places": list(self.layout.places),
            "names": list(self.layout.names),
            "mean": self.mean,
            "std": self.sigma,
            "order": self.order,
        }


SAMPLES = 4000
"""Observations that the explorer encodes by default."""
PICTURES = 512
"""The same where latents are maps: models of such are slow, and each picture has many places."""
RECONSTRUCTIONS = 16
"""Pictures whose reconstructions are kept."""
MOST_AXES = 3
"""Of places: time, height and width."""


class Session:
    """One model, perhaps with a second one to compare it with, on one dataset."""

    def __init__(
        self,
        autoencoder: Autoencoder,
        data: Any,
        *,
        name: str,
        samples: int | None = None,
        seed: int = 0,
        other: Autoencoder | None = None,
        other_name: str = "other",
        labels: Any = None,
    ) -> None:
        self.dataset = dataset = as_dataset(data)
        self.seed = seed
        every = None if labels is None else labels_of(labels, len(dataset))
        self.live = Lane("live")
        self.slow = Lane("slow")
        self._cache: OrderedDict[Any, Any] = OrderedDict()
        self._reconstructions: OrderedDict[int, tuple[Tensor, Tensor]] = OrderedDict()
        self._umap: Umap | None = None
        self.subject = self._subject(name, _record(name, autoencoder, dataset, samples, seed))
        rows = self.recording.rows
        self.labels = every if every is None or rows is None else every.rows(rows.numpy())
        self.other = None
        if other is not None:
            recording = _record(other_name, other, dataset, samples, seed)
            self.other = self._subject(other_name, recording)
        layout = self.recording.layout
        if layout is not None and len(layout.places) > MOST_AXES:
            raise InterfaceError(
                f"explore: the latents of {name} are maps of {layout}, with {len(layout.places)} "
                f"axes of places; the explorer shows up to {MOST_AXES}. Join some of them: "
                "zs.wrap(encoder, decoder, layout=zs.Layout(channels, places))"
            )
        self.maps = None if layout is None else MapFacts.of(self.recording)
        self.renderer = Renderer(self.recording.data, layout)
        codes = self.codes
        self.start = int((codes - codes.mean(0)).norm(dim=1).argmin())
        self.latents = self._latent_table() if self.maps is None else []
        self.hole_reference = self._hole_reference()

    @property
    def recording(self) -> Recording:
        return self.subject.recording

    @property
    def codes(self) -> Tensor:
        return self.recording.codes

    @property
    def model(self) -> Autoencoder:
        """The model of the live lane."""
        return self.recording.autoencoder

    def close(self) -> bool:
        """Stop the threads, and return whether they have stopped."""
        stopped = [self.live.close(), self.slow.close()]
        return all(stopped) and (self._umap is None or not self._umap.thread.is_alive())

    def cached(self, key: Any, compute: Callable[[], T]) -> T:
        """The result of `compute` for this key, computed once.

        Call it from the slow lane only, so that nothing is computed twice at the same time.
        """
        if key not in self._cache:
            self._cache[key] = compute()
            if len(self._cache) > CACHE_SIZE:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        result: T = self._cache[key]
        return result

    def measure(self, name: str, **options: Any) -> Any:
        """The result of an assay, by the runner and with the numbers of a report."""
        outcome = measure(self.subject.copy, name, options={name: options})
        if name in outcome.failed:
            raise outcome.failed[name].error
        if name in outcome.missing:
            raise Undefined(f"{name}: {outcome.missing[name]}")
        return outcome.results[name]

    def generator(self, seed: int | None = None) -> torch.Generator:
        """For draws of the explorer alone; assays have their own."""
        return named_generator(self.seed if seed is None else seed, "explorer")

    def code(self, z: list[float] | None, sample: int | None) -> Tensor:
        """The latent vector `z`, or the code of a sample (see `row`)."""
        if z is None:
            return self.codes[self.row(sample)].clone()
        if len(z) != self.codes.shape[1]:
            raise ConfigError(
                f"explorer: z has {len(z)} numbers, but the model has {self.codes.shape[1]} "
                "latents. Was the link made for another model? Leave z out to start from a sample."
            )
        return torch.tensor(z, dtype=torch.float64).to(self.codes.dtype)

    def row(self, sample: int | None) -> int:
        """The number of a recorded sample; by default the one nearest to the mean of all codes."""
        if sample is None:
            return self.start
        if not 0 <= sample < len(self.recording):
            raise ConfigError(
                f"explorer: there is no sample {sample}: {len(self.recording)} were recorded (0 to "
                f"{len(self.recording) - 1}). Record more: zscope explore TARGET --samples N"
            )
        return sample

    def check_latents(self, *latents: int) -> None:
        """Raise ConfigError for the number of a latent that the model does not have."""
        for latent in latents:
            if not 0 <= latent < self.codes.shape[1]:
                raise ConfigError(
                    f"explorer: there is no latent {latent}: the model has {self.codes.shape[1]} "
                    f"latents (0 to {self.codes.shape[1] - 1}). Was the link made for another "
                    "model?"
                )

    def factors(self, row: int) -> list[float]:
        factors = self.recording.data.factors
        return [] if factors is None else [float(value) for value in factors[row]]

    def decode_and_score(self, codes: Tensor) -> tuple[Tensor, Tensor, HoleScore | None]:
        """(decoded, response, hole score) of a few codes, in one model pass."""
        x, posterior = decode_and_respond(self.model, codes)
        if not isinstance(self.hole_reference, HoleReference):
            return x, posterior.mean, None
        score = self.hole_reference.score(codes, answers=posterior.mean, decoded=x)
        return x, posterior.mean, score

    @property
    def has_hole_scores(self) -> bool:
        return isinstance(self.hole_reference, HoleReference)

    def hole_scores(self, rows: list[int] | None = None) -> Holes:
        """The hole scores of recorded codes, by default of all; call it from the slow lane only."""
        reference = self.hole_reference
        if not isinstance(reference, HoleReference):
            raise reference
        model = self.subject.copy.autoencoder
        if rows is None:
            return self.cached("holes", lambda: hole_scores(reference, self.codes, model))
        if "holes" in self._cache:
            ratio, in_hole = self._cache["holes"]
            return ratio[rows], in_hole[rows]
        return hole_scores(reference, self.codes[rows], model)

    def umap(self) -> Umap:
        """A UMAP of the codes, which begins when it is first asked for."""
        if self._umap is None:
            self._umap = Umap(self.codes, self.seed)
        return self._umap

    def reconstruction(self, row: int) -> tuple[Tensor, Tensor]:
        """(decoded, response) of a recorded sample; call it from the live lane only."""
        if row not in self._reconstructions:
            x, posterior = decode_and_respond(self.model, self.codes[[row]])
            self._reconstructions[row] = x, posterior.mean
            if len(self._reconstructions) > RECONSTRUCTIONS:
                self._reconstructions.popitem(last=False)
        self._reconstructions.move_to_end(row)
        return self._reconstructions[row]

    @property
    def similarities(self) -> list[str]:
        """What of the two models can be compared."""
        both = [one.recording.layout for one in (self.subject, self.other) if one is not None]
        return ["layers", "latents"] if both == [None, None] else ["layers"]

    def to_dict(self) -> dict[str, Any]:
        """The facts that the page starts with."""
        data = self.recording.data
        factors = [
            {**column, "size": size}
            for column, size in zip(
                columns_of(self.recording.factors), data.factor_sizes, strict=True
            )
        ]
        return {
            "name": self.subject.name,
            "model": self.model.title,
            "data": data.name,
            "samples": len(self.recording),
            "seed": self.seed,
            "prior": self.model.prior,
            "observation": self.renderer.to_dict(),
            "latents": self.latents,
            "layout": None
            if self.maps is None
            else {**self.maps.to_dict(), "note": self.model.layout_note},
            "factors": factors,
            "labels": columns_of(self.labels),
            "spreads": not self.recording.posterior.deterministic,
            "files": ["csv"] if find_spec("pyarrow") is None else ["csv", "parquet"],
            "start": self.start,
            "no_hole_scores": None if self.has_hole_scores else str(self.hole_reference),
            "compare": None if self.other is None else self.other.name,
            "similarities": self.similarities,
        }

    def _subject(self, name: str, recording: Recording) -> Subject:
        try:
            model = copy.deepcopy(recording.autoencoder)
        except Exception:
            # A model that cannot be copied gets a single lane.
            self.slow = self.live
            return Subject(name, recording, recording)
        model = interruptible(model, self.slow.check)
        return Subject(name, recording, dataclasses.replace(recording, model=model))

    def _latent_table(self) -> list[dict[str, Any]]:
        """One row per latent, the most important first, with the range of its slider."""
        codes, count = self.codes.double().numpy(), self.codes.shape[1]
        responses = None
        if self.recording.posterior.deterministic and count <= MEASURED_LATENTS:
            few = {"response-matrix": {"samples": max(8, min(256, 4096 // count))}}
            outcome = measure(self.recording, "response-matrix", options=few)
            matrix = outcome.results.get("response-matrix")
            if isinstance(matrix, ResponseMatrix):  # else they are ordered by spread
                responses = matrix.relative.diagonal().tolist()
        rows = latent_table(self.recording, responses)
        low, high = np.quantile(codes, [0.001, 0.999], axis=0)
        middle, half = (low + high) / 2, (high - low) / 2
        for row in rows:
            j = row["latent"]
            margin = half[j] * 1.25 or 1.0
            if self.model.prior is None:
                row["low"], row["high"] = middle[j] - margin, middle[j] + margin
            else:
                row["low"], row["high"] = min(-3.0, low[j]), max(3.0, high[j])
        return rows

    def _hole_reference(self) -> HoleReference | ZscopeError:
        """The displacements of posterior samples, as in a report, or why there are none."""
        if self.maps is not None:
            return Undefined("explorer: latent maps are shown without hole scores.")
        try:
            return hole_reference(self.model, self.recording)
        except Undefined as error:
            return error


def columns_of(table: Factors | None) -> list[dict[str, Any]]:
    """Name, kind and words of each factor."""
    if table is None:
        return []
    return [
        {"name": name, "kind": kind, "values": list(table.labels.get(name, ()))}
        for name, kind in zip(table.names, table.kinds, strict=True)
    ]


def _record(
    name: str, autoencoder: Autoencoder, data: Dataset, samples: int | None, seed: int
) -> Recording:
    """Record the model, and check that it encodes and decodes these data."""
    if autoencoder.needs_auxiliary:
        raise InterfaceError(
            f"explore: the encoder of {name} needs the factors of each observation (the model is "
            "conditional), and what is decoded in the explorer has none. Measure the model "
            "instead: zs.assay(autoencoder, data), or zscope report RUN"
        )
    try:
        samples = _default_samples(autoencoder, data, seed) if samples is None else samples
        recording = record(autoencoder, data, samples=samples, seed=seed)
        x, _ = decode_and_respond(autoencoder, recording.codes[:1])
    except Exception as failure:
        error: BaseException = failure
        if isinstance(failure, ZscopeError):
            if not isinstance(failure, InterfaceError) or failure.__cause__ is None:
                raise
            error = failure.__cause__  # what the model's own code raised
        message = (str(error).strip().splitlines() or ["(no message)"])[0][:300]
        raise InterfaceError(
            f"explore: {name} raised {type(error).__name__} on observations of shape {data.shape} "
            f"from {data.name}: {message}. Do these data have the shape and scale that it was "
            "trained on? Choose other data with --data."
        ) from error
    if tuple(x.shape[1:]) != recording.data.shape:
        raise InterfaceError(
            f"explore: {name} decodes observations of shape {tuple(x.shape[1:])}, but the data "
            f"have shape {recording.data.shape}. Does the decoder belong to another model, or is "
            "its output flat? Wrap the decoder in a function that reshapes its output."
        )
    return recording


def _default_samples(autoencoder: Autoencoder, data: Dataset, seed: int) -> int:
    """How many to encode; of a wrapped model, only an observation tells if latents are maps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `record` will say it again
        first = record(autoencoder, data, samples=1, seed=seed)
    return SAMPLES if first.layout is None else PICTURES
