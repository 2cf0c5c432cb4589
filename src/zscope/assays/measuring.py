"""Run assays from the catalogue on what was recorded of a model."""

import inspect
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from zscope.assays import CATALOGUE, GROUPS, Entry
from zscope.autoencoder import Autoencoder, Posterior
from zscope.errors import ConfigError, Undefined, ZscopeError, did_you_mean
from zscope.randomness import seed_of
from zscope.results import Result


@runtime_checkable
class Recorded(Protocol):
    """What an assay may be given; a `Recording` has all of it."""

    @property
    def autoencoder(self) -> Autoencoder: ...
    @property
    def posterior(self) -> Posterior: ...
    @property
    def codes(self) -> Tensor: ...
    @property
    def factors(self) -> Tensor | None: ...
    @property
    def observations(self) -> Tensor: ...
    @property
    def data(self) -> Any: ...


def _columns(recording: Any) -> int:
    factors = recording.factors
    return 0 if factors is None or factors.ndim < 2 else factors.shape[1]


# need -> (is it met, what to say if not)
NEEDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "factors": (
        lambda recording: recording.factors is not None,
        "the data come without factors. Give data with known factors",
    ),
    "two factors": (
        lambda recording: _columns(recording) >= 2,
        "it compares factors, and the data have fewer than two. Give data with more factors",
    ),
    "two latents": (
        lambda recording: recording.posterior.latents >= 2,
        "it compares latents, and the model has one. Use a model with more latents",
    ),
    "prior": (
        lambda recording: recording.autoencoder.prior is not None,
        "the model has no prior. Wrap it with prior='normal' if its latents should be N(0, I)",
    ),
    "spread": (
        lambda recording: not recording.posterior.deterministic,
        "the encoder gives no spread: each posterior is a point. It applies to variational models",
    ),
    "two models": (
        lambda recording: False,
        "it compares two representations. Call the function with both, or use: zscope compare",
    ),
    "a call": (
        lambda recording: False,
        "it needs arguments that no recording holds. Call the function itself",
    ),
}


def measure(
    recording: Recorded,
    names: Iterable[str] | None = None,
    *,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Result | ZscopeError]:
    """The named assays of a recording, or all of the catalogue; `GROUPS` names sets of them.

    Asked for all or for a group, an assay that does not apply or has no answer leaves the
    error that says why; asked for by name, it raises. Each assay draws from its own generator, made
    of the seed and its name, so that its answer does not depend on which others are run.
    `progress(name, done, total)` is called before each.
    """
    asked = list(CATALOGUE) if names is None else list(names)
    chosen = list(dict.fromkeys(member for name in asked for member in GROUPS.get(name, (name,))))
    for name in chosen:
        if name not in CATALOGUE:
            raise ConfigError(
                f"measure: no assay is called {name!r}. {did_you_mean(name, [*CATALOGUE, *GROUPS])}"
            )
    results: dict[str, Result | ZscopeError] = {}
    for done, name in enumerate(chosen):
        if progress is not None:
            progress(name, done, len(chosen))
        try:
            results[name] = run(CATALOGUE[name], recording, seed=seed)
        except ZscopeError as error:
            if names is not None and name in asked:
                raise
            results[name] = error
    return results


def run(entry: Entry, recording: Recorded, *, seed: int = 0) -> Result:
    """One assay of the catalogue on a recording; `Undefined` if it does not apply."""
    if reason := unmet(entry, recording):
        raise Undefined(f"{entry.name}: {reason}.")
    positional: list[Any] = []
    keywords: dict[str, Any] = dict(entry.options)
    for taken in entry.takes:
        keyword, _, part = taken.rpartition("=")
        if keyword:
            keywords[keyword] = _part(recording, part)
        else:
            positional.append(_part(recording, part))
    function = entry.load()
    if "generator" in inspect.signature(function).parameters:
        own = seed_of(seed, zlib.crc32(entry.name.encode()))
        keywords["generator"] = torch.Generator().manual_seed(own)
    return _told_names(function(*positional, **keywords), recording)


def _told_names(result: Result, recording: Recorded) -> Result:
    """A score of arrays knows its factors by number; the data know what they are called."""
    from zscope.assays.disentanglement.score import Score

    if not isinstance(result, Score):
        return result
    names = recording.data.factor_names
    return replace(result, factor_names=[names[k] for k in result.factors])


def unmet(entry: Entry, recording: Recorded) -> str | None:
    """Why an assay does not apply to a recording; None if it does."""
    for need in entry.needs:
        met, reason = NEEDS[need]
        if not met(recording):
            return reason
    for taken in entry.takes:
        part = taken.rpartition("=")[2]
        if part not in MAY_BE_ABSENT and _part(recording, part) is None:
            return f"no {part} were recorded. Record the model with data that have them"
    return None


def _part(recording: Recorded, name: str) -> Any:
    return DERIVED[name](recording) if name in DERIVED else getattr(recording, name)


def _nearest_to_the_mean(recording: Recorded) -> Tensor:
    codes = recording.codes
    return codes[(codes - codes.mean(0)).norm(dim=1).argmin()]


def _widest_plane(recording: Recorded) -> tuple[int, int]:
    """The two latents whose codes vary most: a map of passive latents would show nothing."""
    spread = recording.codes.var(0, correction=0)
    first, second = spread.argsort(descending=True, stable=True)[:2].sort().values.tolist()
    return first, second


def _some_codes(recording: Recorded) -> Tensor:
    rows = torch.linspace(0, len(recording.codes) - 1, min(256, len(recording.codes)))
    return recording.codes[rows.round().long()]


def _kinds(recording: Recorded) -> list[str]:
    """What the data say their factors are; guessed by the scores where they do not say."""
    from zscope.assays.sample import guessed_kind

    factors, data = recording.factors, recording.data
    if factors is None:
        return []
    told = dict(zip(data.factor_names, data.factor_kinds, strict=True))
    for name in data.provenance.get("guessed_kinds", ()):
        del told[name]
    return [
        told.get(name) or guessed_kind(factors[:, k].numpy())
        for k, name in enumerate(data.factor_names)
    ]


def _relative(recording: Recorded) -> Posterior:
    """The posterior in units of the prior; the same for the prior N(0, I)."""
    return getattr(recording, "relative", recording.posterior)


def _own_divergence(recording: Recorded) -> Tensor | None:
    """Nats of each latent, for models whose prior depends on the factors; None for others."""
    relative = _relative(recording)
    return None if relative is recording.posterior else relative.kl()


# Parts that are not recorded but made of what is.
DERIVED: dict[str, Callable[[Recorded], Any]] = {
    "variances": lambda recording: _relative(recording).variance,
    "relative": _relative,
    "own_divergence": _own_divergence,
    "base": _nearest_to_the_mean,
    "plane": _widest_plane,
    "some_codes": _some_codes,
    "kinds": _kinds,
    "first_code": lambda recording: recording.codes[0],
    "last_code": lambda recording: recording.codes[-1],
}
MAY_BE_ABSENT = {"own_divergence"}  # given by keyword, and None says something too
