"""Classifiers that read pictures for a study: one feature extractor for all models compared.

    readers = Readers(run.among.select("classifiers"))
    frechet_distance(real, generated, extractor=readers.features)

With a classifier for each factor, the features are the last hidden layers of all of them, side by
side, each divided by the root of its total variance over held-out pictures, so that every factor
counts the same. Distances by them are not FIDs, and can only be compared with each other.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from zscope.autoencoder import WithFeatures, evaluation
from zscope.experiments.studies.judging import Control
from zscope.experiments.studies.trained import Trained
from zscope.store import weights_checksum

__all__ = ["ACCURATE", "Readers", "accuracy_control"]

ACCURATE = 0.9
"""The held-out accuracy that a classifier needs, if claims are to rest on it."""
PART = 500  # pictures at a time


class Readers:
    """Trained classifiers of the same pictures, a factor each."""

    def __init__(self, classifiers: Sequence[Trained]) -> None:
        self.classifiers = list(classifiers)

    @cached_property
    def accuracies(self) -> dict[str, float]:
        """The share of held-out pictures whose value is read correctly, by factor."""
        answer = {}
        for each in self.classifiers:
            recording, column = each.recording(), int(each.fields.get("factor", 0))
            assert recording.factors is not None
            right = recording.codes.argmax(1).numpy() == recording.factors.values[:, column]
            answer[recording.factors.names[column]] = float(right.mean())
        return answer

    def features(self, pictures: Tensor) -> Tensor:
        """Their last hidden layers, in units of their spread over held-out pictures."""
        return torch.cat([_features(each, pictures) / _unit(each) for each in self.classifiers], 1)

    def features_of_held_out(self, run: Trained) -> Tensor:
        """The same of the pictures of `run.recording()`."""
        data = run.run.config["data"]
        if any(each.run.config["data"] != data for each in self.classifiers):  # other splits
            return self.features(run.recording().observations)
        return torch.cat([_of_held_out(each) / _unit(each) for each in self.classifiers], 1)

    def read(self, pictures: Tensor) -> Tensor:
        """The value that each classifier reads, pictures x factors."""
        columns = []
        for each in self.classifiers:
            with evaluation(each.model):
                parts = [each.model.encode(part).mean for part in pictures.split(PART)]
            columns.append(torch.cat(parts).argmax(1))
        return torch.stack(columns, 1)


_held_out: dict[tuple[str, str | None], Tensor] = {}


def _of_held_out(classifier: Trained) -> Tensor:
    """Its features of held-out pictures; a process that measures many models finds them once."""
    key = str(classifier.path), weights_checksum(classifier.path / "model.safetensors")
    if key not in _held_out:
        _held_out[key] = _features(classifier, classifier.recording().observations)
    return _held_out[key]


def _unit(classifier: Trained) -> float:
    return float(_of_held_out(classifier).var(0).sum().sqrt()) or 1.0


def _features(classifier: Trained, pictures: Tensor) -> Tensor:
    model = classifier.model
    assert isinstance(model, WithFeatures)
    with evaluation(model):
        return torch.cat([model.features(part) for part in pictures.split(PART)]).double()


def accuracy_control(accuracies: dict[str, float] | None) -> Control:
    """That every classifier can read its factor."""
    known = accuracies or {}
    return Control(
        f"the classifiers read more than {ACCURATE:g} of held-out pictures correctly",
        min(known.values()) > ACCURATE if known else None,
        ", ".join(f"{name} {value:.3f}" for name, value in known.items()),
    )
