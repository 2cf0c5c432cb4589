"""The parts of a recording that assays take, and the conditions they set.

An entry names both (`assays.entry`): `takes` the parts, `needs` the conditions.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from zscope.assays.engine import CONDITIONAL
from zscope.assays.entry import Entry
from zscope.assays.views import is_of_places, rows_together
from zscope.autoencoder import WithCausalBlock
from zscope.errors import Undefined
from zscope.factors import Factors
from zscope.groups import partition
from zscope.recording import Recording
from zscope.usage import Usage

__all__ = ["CHOSEN", "NEEDS", "PARTS", "is_default", "shared_key", "shared_result", "unmet"]

NO_RESPONSE = 1e-3  # relative responses below this are rounding errors

R = TypeVar("R")


# need -> (whether a recording meets it, the message if not, which may be about several assays)
NEEDS: dict[str, tuple[Callable[[Recording], bool], str]] = {
    "two factors": (
        lambda recording: recording.factors is not None and recording.factors.shape[1] >= 2,
        "two factors are needed, and the data have fewer. Give data with more factors",
    ),
    "two latents": (
        lambda recording: recording.variables >= 2,
        "two latents (of maps: channels) are needed, and the model has one. Use a model with more",
    ),
    "causal block": (
        lambda recording: (
            isinstance(recording.autoencoder, WithCausalBlock)
            and recording.autoencoder.block is not None
        ),
        "the model has no causal block. Use a model that has one, such as xae or xvae",
    ),
    "prior": (
        lambda recording: recording.autoencoder.prior is not None,
        "the model has no prior. Wrap it with prior='normal' if its latents should be N(0, I)",
    ),
    "vectors": (
        lambda recording: recording.dataset is not None and len(recording.dataset.shape) == 1,
        "vectors are needed, and the data are pictures. See the traversals instead",
    ),
    "layout": (
        lambda recording: recording.layout is not None,
        "the latents are a vector, without channels and places. Give a layout if they are maps",
    ),
    "variances": (
        lambda recording: not recording.posterior.deterministic,
        "the encoder is deterministic: each posterior is a point. Use a variational model",
    ),
}


ENCODES = {"autoencoder", "conditioned_response_matrix"}
"""Parts for which decoded observations are encoded."""
NEEDS_MODEL = {*ENCODES, "decoder", "observations", "data"}
"""Parts that a recording of arrays does not have."""


def unmet(entry: Entry, recording: Recording) -> str | None:
    """Why an assay does not apply to a recording; None if it does."""
    if entry.compares:
        return "two or more models are needed, and one was given. Use: zscope compare RUN RUN"
    parts = {word.rpartition("=")[2] for word in entry.takes}
    if reason := _unmet_by_model(parts, recording):
        return reason
    if recording.factors is None and ("factors" in parts or "two factors" in entry.needs):
        return "the data come without factors. Give data with known factors"
    if recording.layout is not None and not entry.maps:
        return (
            f"the latents are maps ({recording.layout}), and this assay is for vectors. Wrap the "
            "model with layout=None to treat its latents as one"
        )
    for need in entry.needs:
        is_met, reason = NEEDS[need]
        if not is_met(recording):
            return reason
    return None


def _unmet_by_model(parts: set[str], recording: Recording) -> str | None:
    if not parts & NEEDS_MODEL:
        return None
    if recording.model is None:
        return "a model is needed, and only codes were given. Record a model on data"
    if parts & {*ENCODES, "decoder"} and not recording.model.decodes:
        return "the model has no decoder. Use assays of its codes"
    if parts & ENCODES and recording.model.needs_auxiliary:
        return CONDITIONAL
    return None


def shared_result(function: Callable[..., R], recording: Recording) -> R:
    """The result of another assay with its default options, whether it has intervals or not."""
    key = shared_key(function.__name__.replace("_", "-"), recording)
    return function(recording) if key is None else cast(R, recording.shared[key])


def shared_key(name: str, recording: Recording) -> Any:
    """The key in `recording.shared` of an assay's result with default options; None if none."""
    for key in recording.shared:
        if isinstance(key, tuple) and key[0] == name and is_default(key[1]):
            return key
    return None


def is_default(text: str | None) -> bool:
    """Whether the text of options changes nothing but the intervals."""
    return bool(text and re.fullmatch(r"\[(\('resamples', \d+\))?\]", text))


def _nearest_to_mean(recording: Recording) -> Tensor:
    codes = recording.codes
    return codes[(codes - codes.mean(0)).norm(dim=1).argmin()]


def _plane(recording: Recording) -> tuple[int, int]:
    """The two causal latents with the strongest mutual response.

    Mutual is the weaker of the two relative responses. Where no two latents respond to each
    other, those whose codes vary most: a map of passive latents would show nothing.
    """
    from zscope.assays.responses.matrix import response_matrix

    spread = recording.codes.var(0, correction=0)
    try:
        matrix = shared_result(response_matrix, recording)
    except Undefined:  # too many latents, or too few samples
        first, second = spread.argsort(descending=True, stable=True)[:2].sort().values.tolist()
        return first, second
    mutual = torch.minimum(matrix.relative, matrix.relative.T).triu(1)
    causal = torch.zeros(recording.latents, dtype=torch.bool)
    causal[matrix.causal] = True
    mutual = torch.where(causal & causal[:, None], mutual, 0)
    if float(mutual.max()) > NO_RESPONSE:
        first, second = divmod(int(mutual.argmax()), recording.latents)
        return first, second
    # Causal latents first.
    order = (spread + causal * spread.sum()).argsort(descending=True, stable=True)
    first, second = order[:2].sort().values.tolist()
    return first, second


def _hole_reference(recording: Recording) -> Any:
    """What tells whether codes are self-consistent and like data; None if no latent counts."""
    from zscope.assays.responses.holes import hole_reference

    def find() -> Any:
        try:
            return hole_reference(recording.autoencoder, recording)
        except Undefined:
            return None

    return recording.share("hole reference", find)


def _far_codes(recording: Recording) -> tuple[Tensor, Tensor]:
    """Two codes farther apart than 99 % of pairs; the farthest two may be outliers."""

    def find() -> tuple[Tensor, Tensor]:
        rows = torch.linspace(0, len(recording) - 1, min(500, len(recording))).round().long()
        codes = recording.codes[rows]
        distances = torch.pdist(codes.double())
        if not len(distances):
            return codes[0], codes[0]
        pair = int(distances.argsort()[min(int(0.99 * len(distances)), len(distances) - 1)])
        first, second = torch.triu_indices(len(codes), len(codes), 1)[:, pair].tolist()
        return codes[first], codes[second]

    ends: tuple[Tensor, Tensor] = recording.share("far codes", find)
    return ends


def _some_codes(recording: Recording) -> Tensor:
    """Thirty codes, evenly spread over the data, which are often sorted."""
    rows = torch.linspace(0, len(recording) - 1, min(30, len(recording)))
    return recording.codes[rows.round().long()]


def _conditional_kl(recording: Recording) -> Tensor | None:
    """KL of each latent for models whose prior depends on the factors; None for others."""
    relative = recording.relative
    return None if relative is recording.posterior else relative.kl()


def _types(recording: Recording) -> Any:
    """The types of the latents against their prior; None for a deterministic encoder."""
    from zscope.assays.regime.types import variable_types

    deterministic = recording.posterior.deterministic
    return None if deterministic else shared_result(variable_types, recording)


def _response_matrix(recording: Recording) -> Any:
    """The response matrix; None for a conditional encoder, which has no responses."""
    from zscope.assays.responses.matrix import response_matrix

    conditional = recording.autoencoder.needs_auxiliary
    return None if conditional else shared_result(response_matrix, recording)


def _conditioned(recording: Recording) -> Any:
    from zscope.assays.responses.conditioned import conditioned_response_matrix

    return shared_result(conditioned_response_matrix, recording)


def _dci(recording: Recording) -> Any:
    from zscope.assays.disentanglement.dci import dci

    return shared_result(dci, recording)


def _usage(recording: Recording) -> Usage | None:
    """What the posteriors say about the use of latents, in place of variances, for scores.

    None for a deterministic encoder: whether a decoder uses a latent does not matter to a score.
    """
    return None if recording.posterior.deterministic else recording.usage


def _model_groups(recording: Recording) -> list[list[int]] | None:
    """The variables of the model, single latents if it has no others; None without a model."""
    if recording.model is None:
        return None
    return partition(recording.model.groups, recording.latents, "groups")


def _factors(recording: Recording) -> Factors | None:
    return recording.factors


def _read_observations(recording: Recording) -> Callable[[], Tensor] | None:
    """How to read the observations, for assays that seldom need them; None if there are none."""
    return None if recording.dataset is None else lambda: recording.observations


def _feature_units(recording: Recording) -> Sequence[float] | None:
    """What 1 of each feature, as the model sees it, is in original units; None: the same."""
    scaling = recording.data.scaling
    return None if scaling is None else scaling.scale


CHOSEN = {
    "base", "plane", "start_code", "end_code", "types", "response_matrix",
    "conditioned_response_matrix", "dci",
}  # fmt: skip
"""Parts that are only a default: the caller may choose others."""

# What an entry's `takes` may name, and how to get it from a recording.
PARTS: dict[str, Callable[[Recording], Any]] = {
    "recording": lambda recording: recording,
    "recording_or_codes": lambda recording: recording,  # plain codes are used in their order
    "maps": lambda recording: recording,  # with a layout; also if the caller draws
    "together": rows_together,
    "autoencoder": lambda recording: recording.autoencoder,
    "decoder": lambda recording: recording.autoencoder,  # of which the assay only decodes
    "posterior": lambda recording: recording.posterior,
    "relative": lambda recording: recording.relative,
    "codes": lambda recording: recording.codes,
    "variances": lambda recording: recording.variances,
    "variances_or_summary": lambda recording: (
        recording.variances if recording.layout is None else recording.map_summary
    ),
    "relative_or_recording": lambda recording: (
        recording.relative if recording.layout is None else recording
    ),
    "usage": _usage,
    # Rows of places do not say what all pictures have in common.
    "usage_of_places": lambda recording: recording.usage if is_of_places(recording) else None,
    "factors": _factors,
    "model_groups": _model_groups,
    "observations": lambda recording: recording.observations,
    "read_observations": _read_observations,
    "data": lambda recording: recording.data,
    "feature_names": lambda recording: recording.feature_names,
    "feature_units": _feature_units,
    "conditional_kl": _conditional_kl,
    "conditional_prior": lambda recording: recording.conditional_prior,
    "types": _types,
    "response_matrix": _response_matrix,
    "conditioned_response_matrix": _conditioned,
    "dci": _dci,
    "base": _nearest_to_mean,
    "plane": _plane,
    "hole_reference": _hole_reference,
    "some_codes": _some_codes,
    "start_code": lambda recording: _far_codes(recording)[0],
    "end_code": lambda recording: _far_codes(recording)[1],
}
