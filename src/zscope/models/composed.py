"""The one class of all models: an encoder, a decoder, and what training minimises.

A model is composed of parts that know nothing of each other:

    encoder -> posterior -> [causal block] -> decoder -> likelihood

and an objective, a function of a `Batch` that gives its losses. A consistency penalty may
be added to any objective.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from zscope.autoencoder import (
    Interventions,
    Losses,
    Posterior,
    Prior,
    Rival,
    Trainable,
    WithCausalBlock,
    WithFeatures,
)
from zscope.errors import InterfaceError
from zscope.layout import Layout
from zscope.models.causal import CausalBlock
from zscope.models.objectives import (
    POSTERIORS,
    Gaussian,
    Likelihood,
    check_observations,
    gaussian_nll,
)
from zscope.randomness import Source
from zscope.types import Codes, Number, PerSample, Scalar

__all__ = ["Batch", "Composed", "Objective", "StatefulObjective"]


class Batch:
    """What an objective can use. Each property is computed when it is first used, once."""

    def __init__(
        self,
        model: "Composed",
        x: Tensor,
        generator: Source,
        *,
        step: int = 0,
        samples: int | None = None,
        factors: Tensor | None = None,
        partner: Tensor | None = None,
        gamma: Number | None = None,
    ) -> None:
        self.model, self.x, self.generator = model, x, generator
        self.step, self.samples = step, samples
        self.factors, self.partner = factors, partner
        self.gamma = gamma  # in place of the γ of the model's likelihood

    @cached_property
    def posterior(self) -> Posterior:
        return self.model.encode(self.x, self.factors)

    @cached_property
    def code(self) -> Codes:
        """One draw of the posterior for each observation."""
        return self.posterior.sample(self.generator)

    @cached_property
    def gates(self) -> Tensor | None:
        """The edges of the causal block in this step: drawn once, the same for all codes."""
        block = self.model.block
        return None if block is None else block.draw_gates(self.step, self.generator)

    def output(self, code: Codes) -> Tensor:
        """The decoder's raw output for some codes, as the likelihood takes it."""
        return self.model.output(code, self.gates)

    def response(self, code: Codes) -> Posterior:
        """The posterior of some codes after decoding and encoding."""
        return self.model.encode(self.model.likelihood.mean(self.output(code)))

    def causes(self, code: Codes) -> Tensor:
        block = self.model.block
        return code if block is None else block(code, self.gates)

    def nll(self, output: Tensor, x: Tensor) -> PerSample:
        """-log p(x | z) of each sample, from the decoder's raw output."""
        if self.gamma is not None:
            return gaussian_nll(output, x, self.gamma)
        return self.model.likelihood.nll(output, x)

    @cached_property
    def reconstruction(self) -> Scalar:
        """-log p(x | z) of the drawn codes, in nats per sample."""
        return self.nll(self.output(self.code), self.x).mean()


Objective = Callable[[Batch], Losses]


def cost_of_edges(batch: Batch) -> Losses:
    """The expected number of open edges of the causal block, each at its cost."""
    block = batch.model.block
    assert block is not None
    edges = block.probabilities().sum()
    return Losses(block.cost * edges, {"edges": edges})


class StatefulObjective:
    """An objective that is more than a function of a batch. It defines what it has."""

    @property
    def numbers(self) -> Mapping[str, float]:
        """The options that are plain numbers; other values may be given with a batch."""
        return {}

    @property
    def rivals(self) -> Mapping[str, Rival]:
        """The parts that are trained against the rest."""
        return {}

    def prior(self, auxiliary: Tensor) -> Posterior | None:
        """The prior of each row of factors; None if it is the same for all."""
        return None

    def check_factors(self, factors: Tensor) -> None:
        """Raise if the objective cannot use such factors."""


class Composed(Trainable, WithCausalBlock, WithFeatures):
    """`encoder` gives what `posterior` ("point", "gaussian" or "full") reads, `decoder` what
    `likelihood` reads; `objective` gives the losses of a batch. In their total, the term
    "reconstruction" is multiplied by `reconstruction_weight`.

    `decoder` is None for models that only encode. `groups` are the variables of a
    structural decoder; `layout` has the channels and places of latents that are maps. The encoder
    of a `conditional` model is given the factors too.
    """

    safe_inputs = True
    block: CausalBlock | None
    observation_shape: tuple[int, ...]

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module | None,
        *,
        shape: tuple[int, ...],
        latents: int,
        likelihood: Likelihood,
        objective: Objective,
        posterior: str = "gaussian",
        prior: Prior = "normal",
        block: CausalBlock | None = None,
        penalty: Objective | None = None,
        groups: list[list[int]] | None = None,
        layout: Layout | None = None,
        needs: frozenset[str] = frozenset(),
        conditional: bool = False,
        reconstruction_weight: float = 1.0,
        divergence_weight: float | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.likelihood = encoder, decoder, likelihood
        self.block, self.objective, self.penalty = block, objective, penalty
        self.observation_shape, self.latents = shape, latents
        self.prior, self.groups, self.layout = prior, groups, layout
        self.needs = needs | ({"step"} if block is not None else set())
        self.needs_auxiliary = conditional
        self.decodes = decoder is not None
        self.likelihood_name = type(likelihood).__name__
        self.reconstruction_weight = reconstruction_weight
        if divergence_weight is not None:  # that of the loss divided by the other weight
            self.divergence_weight = divergence_weight / reconstruction_weight
        self._read = POSTERIORS[posterior].read

    @property
    def _stateful(self) -> StatefulObjective:
        objective = self.objective
        return objective if isinstance(objective, StatefulObjective) else StatefulObjective()

    @property
    def likelihood_variance(self) -> float | None:
        if not isinstance(self.likelihood, Gaussian):
            return None
        return torch.as_tensor(self.likelihood.gamma).item()

    @property
    def rivals(self) -> Mapping[str, Rival]:
        return self._stateful.rivals

    @property
    def halves(self) -> Mapping[str, tuple[nn.Module, ...]]:
        """A learned variance of the likelihood is a part of the decoder."""
        halves = dict(super().halves)
        if self.decodes and isinstance(self.likelihood, nn.Module):
            halves["decoder"] = (*halves["decoder"], self.likelihood)
        return halves

    @property
    def numbers(self) -> dict[str, float]:
        """The options of objective, penalty and likelihood that are plain numbers."""
        numbers = {**_numbers(self.objective), **_numbers(self.penalty)}
        if self.decodes:
            numbers["reconstruction_weight"] = self.reconstruction_weight
        if isinstance(self.likelihood, Gaussian) and isinstance(self.likelihood.gamma, float):
            numbers["gamma"] = self.likelihood.gamma
        return numbers

    def encode(self, x: Tensor, auxiliary: Tensor | None = None) -> Posterior:
        if self.needs_auxiliary:
            return self._read(self.encoder(x, auxiliary), x)
        posterior = self._read(self.encoder(x), x)
        if self.layout is None:
            return posterior
        return Posterior(posterior.mean, posterior.std, layout=self.layout)

    def decode(self, z: Codes) -> Tensor:
        return self.likelihood.mean(self.output(z))

    def encode_any_size(self, x: Tensor) -> Tensor:
        if self.layout is None:
            return super().encode_any_size(x)
        encoder: Any = self.encoder
        means: Tensor = encoder.maps(x)[:, : self.layout.channels]  # before log-variances
        return means.to(x.dtype)

    def decode_any_size(self, maps: Tensor) -> Tensor:
        if self.layout is None:
            return super().decode_any_size(maps)
        decoder: Any = self.decoder
        return self.likelihood.mean(decoder.maps(maps))

    def output(self, z: Codes, gates: Tensor | None = None) -> Tensor:
        """The decoder's raw output, as the likelihood takes it."""
        if self.decoder is None:
            raise InterfaceError(
                f"decode: {(self.recipe or {}).get('name', 'this model')} has an encoder only, so "
                "nothing can be decoded. Use assays of codes, or another model."
            )
        output: Tensor = self.decoder(z if self.block is None else self.block(z, gates))
        return output

    def causes(
        self,
        noise: Codes,
        *,
        fixed: Interventions = None,
        edges: Tensor | None = None,
    ) -> Tensor:
        if self.block is None:
            return noise
        gates = None if edges is None else self.block.gates_of(edges).to(noise)
        causes: Tensor = self.block(noise, gates, fixed=fixed)
        return causes

    def edge_probabilities(self) -> Tensor:
        if self.block is None:
            return super().edge_probabilities()  # raises: there are no edges
        return self.block.matrix(self.block.probabilities())

    def decode_causes(self, causes: Tensor) -> Tensor:
        if self.decoder is None:
            return self.decode(causes)  # raises: there is no decoder
        return self.likelihood.mean(self.decoder(causes))

    def prior_given(self, auxiliary: Tensor) -> Posterior | None:
        return self._stateful.prior(auxiliary)

    def negative_log_likelihood(self, z: Codes, x: Tensor) -> PerSample:
        # From the decoder's raw output: exact where probabilities round to 0 or 1.
        return self.likelihood.nll(self.output(z), x)

    def features(self, x: Tensor) -> Tensor:
        encoder: Any = self.encoder
        features: Tensor = encoder.features(x)
        return features

    def losses(
        self,
        x: Tensor,
        generator: Source = None,
        *,
        numbers: Mapping[str, Number] | None = None,
        **extras: Any,
    ) -> Losses:
        numbers = numbers or {}
        batch = Batch(self, x, generator, gamma=numbers.get("gamma"), **extras)
        losses = _with(self.objective, numbers)(batch)
        weight = numbers.get("reconstruction_weight", self.reconstruction_weight)
        if isinstance(weight, Tensor) or weight != 1:
            losses = _reweighted(losses, weight)
        edges = cost_of_edges if self.block is not None and self.block.cost > 0 else None
        for penalty in filter(None, (self.penalty, edges)):
            extra = _with(penalty, numbers)(batch)
            losses = replace(
                losses, total=losses.total + extra.total, terms={**losses.terms, **extra.terms}
            )
        return losses

    def check_observations(self, x: Tensor) -> None:
        check_observations(x, self.observation_shape, self.likelihood)

    def check_factors(self, factors: Tensor) -> None:
        self._stateful.check_factors(factors)


def _reweighted(losses: Losses, weight: Number) -> Losses:
    """The losses with a weight of the reconstruction in their total; the term itself stays."""
    if "reconstruction" not in losses.terms:
        raise InterfaceError(
            f"models: reconstruction_weight={weight}, but this objective has no term called "
            f"reconstruction, only {', '.join(losses.terms) or 'none'}. Add it to the terms of "
            "its Losses, or leave the weight at 1."
        )
    return replace(losses, total=losses.total + (weight - 1) * losses.terms["reconstruction"])


def _numbers(part: Objective | None) -> dict[str, float]:
    """The options of an objective or a penalty that are plain numbers."""
    if isinstance(part, StatefulObjective):
        return dict(part.numbers)
    options = part.keywords if isinstance(part, partial) else {}
    return {key: value for key, value in options.items() if isinstance(value, float)}


def _with(part: Objective, numbers: Mapping[str, Number]) -> Objective:
    """The objective or penalty with other values of its options."""
    own = {key: numbers[key] for key in _numbers(part) if key in numbers} if numbers else {}
    return partial(part, **own) if own else part
