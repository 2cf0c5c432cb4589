"""Sample quality: how close to the data are reconstructions, samples and traversals?

Observations are compared with equally many

    reconstructions   decoded means of the observations
    prior             decoded samples of N(0, I), if the model has this prior
    hybrid            decoded codes whose variables come from different observations
    traversals        decoded means with one random latent set to a random value between the
                      extremes of its recorded values

by Fréchet distance, precision and recall, on the features of `extractor`. By default this is a
network with fixed random weights, which is the same for every model of the same data, so that
models can be compared; a classifier of the data is better. The model's own encoder
(`extractor="own"`) does not see what the model loses, and gives each model a scale of its own.
Of latents that are maps there are reconstructions and hybrids, which exchange whole channels: a
white map is nothing that anyone decodes.

The result names the extractor. `floor` is the distance of equally many other
observations, that is, of real data. Leeb et al., "Structure by architecture", ICLR
2023, sections 2.2 and 4.1, for hybrid samples; "On the interventional consistency of
autoencoders", fig. 5a, for traversals.
"""

from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from zscope.assays.arguments import accepts_recording
from zscope.assays.engine import decode
from zscope.assays.entry import Entry
from zscope.assays.generation.extractors import Extractor, extract, name_of
from zscope.assays.generation.frechet import FrechetDistance, frechet_distance
from zscope.assays.generation.precision_recall import precision_recall
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import Undefined
from zscope.groups import Groups
from zscope.randomness import fresh
from zscope.results import Measure, Scored
from zscope.sampling import hybrid, prior, whole
from zscope.types import Codes, Observations, as_tensor

__all__ = ["SampleQuality", "sample_quality"]


@dataclass(frozen=True, eq=False)
class SampleQuality(Scored):
    """By kind of sample: Fréchet distance to the observations, precision and recall."""

    distances: dict[str, float]
    precision: dict[str, float]
    recall: dict[str, float]
    floor: float
    extractor: str
    samples: int

    why_no_interval = FrechetDistance.why_no_interval
    why_no_chance = (
        "it compares distributions, not codes with their observations; compare with the distance "
        "of other real data"
    )

    def measures(self) -> list[Measure]:
        return [
            self.measure(f"Fréchet distance, {kind}", value)
            for kind, value in self.distances.items()
        ]

    def summary(self) -> list[tuple[str, str]]:
        floor = f"{self.floor:.4g}"
        return [("Fréchet distance of other real data", floor), ("extractor", self.extractor)]

    def plot(self, ax: Any = None) -> Any:
        from zscope.plots import bars

        kinds = list(self.distances)
        values = torch.tensor([*self.distances.values(), self.floor])
        return bars(
            values,
            names=[*kinds, "real data"],
            marks=range(len(kinds)),
            x="\n".join(wrap(f"features: {self.extractor}", 30)),
            y="Fréchet distance",
            ax=ax,
        )


@accepts_recording
def sample_quality(
    autoencoder: Autoencoder,
    observations: Observations | np.ndarray,
    *,
    posterior: Posterior,
    extractor: Extractor = "random",
    groups: Groups | None = None,
    store: int | None = None,
    samples: int = 800,
    neighbours: int = 3,
    generator: Generator | None = None,
) -> SampleQuality:
    """Quality of up to `samples` observations of each kind, at most half of all observations.

    `posterior` is the posterior of the observations (`recording.posterior`). `groups` are the
    groups of latents that hybrids exchange as a whole; by default those of a structural model,
    else single latents. Hybrids are drawn from `store` codes, by default from all (the paper: 128).
    """
    whole("sample_quality", 8, samples=samples)
    generator = fresh(generator)
    observations = as_tensor(observations)
    count = min(samples, len(observations) // 2)
    if count < 8 or len(posterior) != len(observations):
        raise Undefined(
            f"sample_quality: {len(observations)} observations and {len(posterior)} posteriors; "
            "expected at least 16, with a posterior each. Record the model: zs.record(...)."
        )
    order = torch.randperm(len(observations), generator=generator)
    rows, others = order[:count], order[count : 2 * count]
    codes = posterior.mean[rows]
    groups = autoencoder.groups if groups is None else groups
    layout = posterior.layout
    if groups is None and layout is not None:
        groups = [range(*layout.ends(channel)) for channel in range(layout.channels)]
    network: Extractor = autoencoder if extractor == "own" else extractor
    real = extract(observations[rows], network, "sample_quality")

    kinds = {"reconstructions": codes}
    if autoencoder.prior is not None and layout is None:
        kinds["prior"] = prior(autoencoder, count, generator=generator).to(codes)
    options: dict[str, Any] = {"groups": groups, "store": store, "generator": generator}
    kinds["hybrid"] = hybrid(posterior, count, **options).to(codes)
    if layout is None:
        kinds["traversals"] = traverse(codes, generator)
    features = {
        kind: extract(decode(autoencoder, z), network, "sample_quality")
        for kind, z in kinds.items()
    }
    overlaps = {k: precision_recall(real, x, neighbours=neighbours) for k, x in features.items()}
    return SampleQuality(
        distances={kind: frechet_distance(real, x).distance for kind, x in features.items()},
        precision={kind: overlap.precision for kind, overlap in overlaps.items()},
        recall={kind: overlap.recall for kind, overlap in overlaps.items()},
        floor=frechet_distance(
            real, extract(observations[others], network, "sample_quality")
        ).distance,
        extractor=name_of(network),
        samples=count,
    )


def traverse(codes: Codes, generator: Generator) -> Codes:
    """The codes with one random latent of each set to a random value within its range."""
    count, latents = codes.shape
    low, high = codes.amin(0), codes.amax(0)
    which = torch.randint(latents, (count,), generator=generator)
    share: Tensor = torch.rand(count, generator=generator, dtype=codes.dtype)
    moved = codes.clone()
    place = torch.arange(count)
    moved[place, which] = low[which] + share * (high - low)[which]
    return moved


ENTRY = Entry(
    question="How close to the data are reconstructions, samples and traversals?",
    meaning=(
        "The Fréchet distance between real and decoded observations, lower is better; the floor is "
        "the distance of equally many other real observations."
    ),
    figure=(
        "One bar for each way to make observations: reconstructions show what decoding loses; the "
        "last bar is what other real data have."
    ),
    takes=("autoencoder", "observations", "posterior=posterior"),
    passes="4 * samples",
    most=5_000,
    better="lower",
    maps="flat on request",
)
