"""Which numbers will an assay have? Trials before anything is trained.

An assay says what it measures by its result, so it is tried on a few observations. That takes a
second where a wrong name would be found out after hours of training.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from zscope.assays import CATALOGUE
from zscope.assays.parts import unmet
from zscope.assays.run import measure
from zscope.autoencoder import Autoencoder, Posterior
from zscope.collection.columns import score_name
from zscope.data.dataset import Dataset
from zscope.recording import Recording, record

__all__ = ["columns_of_assay", "trial_recordings"]

TRIAL = 256
"""Observations of a trial."""


def trial_recordings(model: Autoencoder, data: Dataset) -> list[Recording]:
    """What an untrained model makes of data, and what a good one might: codes that are factors.

    Some measures exist only if latents are in use and say something about the factors.
    """
    recording = record(model, data, samples=min(TRIAL, len(data)))
    before, factors = recording.posterior, recording.factors
    if factors is None:
        return [recording]
    values = torch.from_numpy(np.asarray(factors.values, float))
    values = values[:, (values != values[0]).any(0)]
    if not values.shape[1]:
        return [recording]
    values = (values - values.mean(0)) / values.std(0)
    mean = values[:, torch.arange(before.latents) % values.shape[1]].to(before.mean)
    std = None if before.std is None else torch.full_like(mean, 0.01)
    return [recording, replace(recording, posterior=Posterior(mean, std), shared={})]


def columns_of_assay(assay: str, trials: Sequence[Recording]) -> list[str] | str | None:
    """The columns an assay has, by trials; why it has none, or None if they cannot tell."""
    needs = [unmet(CATALOGUE[assay], trial) for trial in trials]
    if all(needs):
        return str(needs[0])
    outcomes = [measure(t, [assay]) for t, need in zip(trials, needs, strict=True) if not need]
    results = [outcome.results[assay] for outcome in outcomes if assay in outcome.results]
    if not results:
        return None
    names = dict.fromkeys(each.name for result in results for each in result.measures())
    if not names:
        return f"{assay} has no single number, only tables or figures"
    return [score_name(assay, name) for name in names]
