"""What is explored: a model, what was recorded of it, and what has been worked out so far."""

import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.assays import response_matrix
from zscope.assays.engine import decode_and_respond
from zscope.assays.responses.holes import HoleScore, Known, known
from zscope.autoencoder import Autoencoder
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, InterfaceError, Undefined, ZscopeError
from zscope.explorer.lanes import Lane, interruptible
from zscope.explorer.showing import Look
from zscope.recording import Recording, as_dataset, record
from zscope.report.latents import latent_table

REMEMBERED = 48
MANY = 64
"""More latents than this are ordered by what costs nothing to know."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model under its name, recorded; `study` is the same with a copy for long answers."""

    name: str
    recording: Recording
    study: Recording


class Session:
    """One model (and perhaps another to compare it with) on one set of observations."""

    def __init__(
        self,
        autoencoder: Autoencoder,
        data: Any,
        *,
        name: str,
        samples: int = 4000,
        seed: int = 0,
        other: Autoencoder | None = None,
        other_name: str = "other",
    ) -> None:
        dataset = as_dataset(data)
        self.seed = seed
        self.live = Lane("live")
        self.slow = Lane("study")
        self._remembered: OrderedDict[Any, Any] = OrderedDict()
        self.subject = self._subject(name, _recorded(name, autoencoder, dataset, samples, seed))
        self.other = None
        if other is not None:
            recording = _recorded(other_name, other, dataset, samples, seed)
            self.other = self._subject(other_name, recording)
        self.look = Look(self.recording.data)
        codes = self.codes
        self.start = int((codes - codes.mean(0)).norm(dim=1).argmin())
        self.latents = self._table()
        self.known = self._known()

    @property
    def recording(self) -> Recording:
        return self.subject.recording

    @property
    def codes(self) -> Tensor:
        return self.recording.codes

    @property
    def model(self) -> Autoencoder:
        """For short answers, in the live lane."""
        return self.recording.autoencoder

    def close(self) -> bool:
        """End the threads; whether they have ended."""
        return all([self.live.close(), self.slow.close()])

    def remember(self, key: Any, work: Callable[[], Any]) -> Any:
        """What `work` returned for this key; worked out at the first time only.

        Called from the study lane alone, so that nothing is worked out twice at once.
        """
        if key not in self._remembered:
            self._remembered[key] = work()
            if len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)
        self._remembered.move_to_end(key)
        return self._remembered[key]

    def generator(self, seed: int | None = None) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed if seed is None else seed)

    def code(self, z: list[float] | None, sample: int | None) -> Tensor:
        """The latent vector that a request names: its numbers, a sample's, or the start's."""
        if z is None:
            return self.codes[self.row(sample)].clone()
        if len(z) != self.codes.shape[1]:
            raise ConfigError(
                f"explorer: a latent vector of {len(z)} numbers, but the model has "
                f"{self.codes.shape[1]} latents. Was the link made for another model? Leave z out "
                "to start from a sample."
            )
        return torch.tensor(z, dtype=torch.float64).to(self.codes.dtype)

    def row(self, sample: int | None) -> int:
        """The number of a recorded sample; the one nearest to the mean by default."""
        if sample is None:
            return self.start
        if not 0 <= sample < len(self.recording):
            raise ConfigError(
                f"explorer: sample {sample}, but {len(self.recording)} were recorded (0 to "
                f"{len(self.recording) - 1}). Start with more: zscope explore TARGET --samples N"
            )
        return sample

    def latent(self, *latents: int) -> None:
        """Refuse the number of a latent that the model has not."""
        for latent in latents:
            if not 0 <= latent < self.codes.shape[1]:
                raise ConfigError(
                    f"explorer: latent {latent} of a model with {self.codes.shape[1]} latents (0 "
                    f"to {self.codes.shape[1] - 1}). Was the link made for another model?"
                )

    def factor(self, row: int) -> list[float]:
        factors = self.recording.data.factors
        return [] if factors is None else [float(value) for value in factors[row]]

    def answer(self, codes: Tensor) -> tuple[Tensor, Tensor, HoleScore | None]:
        """(decoded, response, hole score) of a few codes, in one pass of the model."""
        x, posterior = decode_and_respond(self.model, codes)
        if not isinstance(self.known, Known):
            return x, posterior.mean, None
        return x, posterior.mean, self.known.score(codes, answers=posterior.mean)

    def to_dict(self) -> dict[str, Any]:
        """What the page needs to know before anything is asked."""
        data = self.recording.data
        categories = data.provenance.get("categories", {})
        factors = [
            {"name": name, "kind": kind, "size": size, "values": list(categories.get(name, []))}
            for name, kind, size in zip(
                data.factor_names, data.factor_kinds, data.factor_sizes, strict=True
            )
        ]
        return {
            "name": self.subject.name,
            "model": _kind(self.model),
            "data": data.name,
            "samples": len(self.recording),
            "seed": self.seed,
            "prior": self.model.prior,
            "observation": self.look.to_dict(),
            "latents": self.latents,
            "factors": factors,
            "start": self.start,
            "holes": None if isinstance(self.known, Known) else str(self.known),
            "compare": None if self.other is None else self.other.name,
        }

    def _subject(self, name: str, recording: Recording) -> Subject:
        try:
            twin = copy.deepcopy(recording.autoencoder)
        except Exception:
            # A model that cannot be copied gets one lane for everything.
            self.slow = self.live
            return Subject(name, recording, recording)
        twin = interruptible(twin, self.slow.check)
        return Subject(name, recording, dataclasses.replace(recording, autoencoder=twin))

    def _table(self) -> list[dict[str, Any]]:
        """One row for each latent, the most important first, with the range of its slider."""
        codes, count = self.codes.double().numpy(), self.codes.shape[1]
        responses = None
        if self.recording.posterior.deterministic and count <= MANY:
            samples = max(count, min(256, 4096 // count))
            try:
                matrix = response_matrix(
                    self.model,
                    self.recording.posterior,
                    samples=samples,
                    generator=self.generator(),
                )
                responses = matrix.relative.diagonal().tolist()
            except Undefined:  # fewer samples than latents: ordered by spread
                responses = None
        rows = latent_table(self.recording, responses)
        low, high = np.quantile(codes, [0.001, 0.999], axis=0)
        middle, half = (low + high) / 2, (high - low) / 2
        for row in rows:
            j = row["latent"]
            reach = half[j] * 1.25 or 1.0
            if self.model.prior is None:
                row["low"], row["high"] = middle[j] - reach, middle[j] + reach
            else:
                row["low"], row["high"] = min(-3.0, low[j]), max(3.0, high[j])
        return rows

    def _known(self) -> Known | ZscopeError:
        try:
            return known(
                self.model,
                self.recording.posterior,
                samples=max(512, self.codes.shape[1]),
                generator=self.generator(),
            )
        except Undefined as error:
            return error


def _recorded(
    name: str, autoencoder: Autoencoder, data: Dataset, samples: int, seed: int
) -> Recording:
    """The recording, once the model is known to take these data and to give them back."""
    try:
        recording = record(autoencoder, data, samples=samples, seed=seed)
        x, _ = decode_and_respond(autoencoder, recording.codes[:1])
    except ZscopeError:
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or ["(no text)"])[0][:300]
        raise InterfaceError(
            f"explore: {name} raised {type(error).__name__} on observations of shape {data.shape} "
            f"from {data.name}: {said}. Are these the data it was trained on, in size and scale? "
            "Name others with --data."
        ) from error
    if tuple(x.shape[1:]) != data.shape:
        raise InterfaceError(
            f"explore: {name} decodes observations of shape {tuple(x.shape[1:])}, but the data "
            f"have {data.shape}. Is the decoder that of another model, or does it leave its output "
            "flat? Reshape it in a small function around the decoder."
        )
    return recording


def _kind(model: Autoencoder) -> str:
    """beta-vae for one of ours, the name of its class for any other."""
    return str((model.recipe or {}).get("name", type(model).__name__))
