"""A recording, the argument of every assay: some data, as a model encodes them.

    recording = zs.record(autoencoder, data)                    # encodes the data once
    recording = zs.Recording.from_arrays(codes, factors)        # codes or embeddings alone

A recording holds codes and their spreads, the factors with their kinds and names, the model
and the data if there are any, and the seed from which every assay derives its random numbers.
What several assays need (base samples, their responses, whole results) is computed once for a
recording and shared. Devices, batches and seeds are dealt with here and nowhere else.
"""

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope.autoencoder import Autoencoder, Posterior, evaluation
from zscope.data.dataset import Dataset, as_dataset
from zscope.determinism import FEW, notes_on
from zscope.errors import ConfigError, DataError, InterfaceError, Undefined
from zscope.factors import Factors, Kinds, factors_of
from zscope.layout import Layout, no_layout
from zscope.map_summary import MapSummary, RunningSummary
from zscope.randomness import named_generator
from zscope.sampling import whole
from zscope.seeds import seed_of
from zscope.types import Codes, as_tensor
from zscope.usage import (
    Usage,
    usage_of_codes,
    usage_of_decoder,
    usage_of_maps,
    usage_of_posterior,
)

__all__ = ["Recording", "record"]

BATCH_BYTES, MOST_BATCH_BYTES = 2**20, 32 * 2**20
"""Observations that are encoded at once: the first, or the second if that is fewer than eight.

More take up to twice as long: the layers of a network are many times larger than its input, and
the C library returns the memory of large tensors to the system, so that every batch waits for new
pages.
"""
SAMPLES = 10_000
"""Observations to encode by default."""
KEPT_BYTES = 256 * 2**20
"""Of codes with channels and places, no more are kept."""
FEWEST_KEPT = 8
FEW_MAPS = 16
"""Pictures to encode at once, if their latents are maps: larger layers do not fit the caches."""


@dataclass(frozen=True, eq=False)
class Recording:
    """One posterior for each observation, on the CPU, with what is known about them."""

    model: Autoencoder | None
    posterior: Posterior
    dataset: Dataset | None = None  # the observations that were encoded, row by row
    rows: Tensor | None = None  # which rows of the data these are, ascending
    seed: int = 0
    factors: Factors | None = None
    shared: dict[Any, Any] = field(default_factory=dict, repr=False)  # see `share`
    notes: tuple[str, ...] = ()  # what keeps the model from being a function of numbers
    asked: int | None = None  # for how many samples `record` was asked; there may be fewer
    summary: MapSummary | None = None  # of all maps that were encoded, more than are kept
    quick: bool = False  # whether assays take a quarter of their usual samples

    @classmethod
    def from_arrays(
        cls,
        codes: Any,
        factors: Any = None,
        *,
        variances: Any = None,
        kinds: Kinds = None,
        names: Sequence[str] | None = None,
        labels: Mapping[str, Sequence[Any]] | None = None,
        layout: Layout | None = None,
        seed: int = 0,
    ) -> "Recording":
        """A recording of arrays: codes or embeddings, samples x latents, without a model.

        `factors` (samples x factors) have `kinds` (categorical, ordinal or continuous; one for
        all or one for each; guessed and flagged if left out), `names` (by default the columns
        of a data frame), and `labels` of their values. `variances` are the posterior
        variances, if the codes are the means of a variational encoder. Codes that are maps, with
        a `layout`, may have its axes.
        """
        if layout is not None and not isinstance(layout, Layout):
            raise ConfigError(no_layout("from_arrays", layout))
        mean = _matrix(codes, "codes", layout)
        spread = None if variances is None else _matrix(variances, "variances", layout)
        if spread is not None and (spread.shape != mean.shape or bool((spread < 0).any())):
            raise DataError(
                f"from_arrays: variances of shape {tuple(spread.shape)}, smallest "
                f"{float(spread.min()):.3g}, for codes of shape {tuple(mean.shape)}; expected one "
                "variance of 0 or more for each code. Are these log-variances? Pass their exp."
            )
        if spread is not None and not bool(spread.any()):
            spread = None  # a deterministic encoder
        table = None
        about = {"kinds": kinds, "names": names, "labels": labels}
        words = [f"{word}={value!r}" for word, value in about.items() if value is not None]
        if factors is None and words:
            raise ConfigError(
                f"from_arrays: {', '.join(words)}, but no factors. Give the values of the factors "
                "that this describes, one row for each sample, or leave it out."
            )
        if factors is not None:
            table = factors_of(factors, kinds=kinds, names=names, labels=labels, who="from_arrays")
            if len(table) != len(mean):
                raise DataError(
                    f"from_arrays: {len(mean)} codes but {len(table)} rows of factors; row i of "
                    "both must describe the same sample. Was one of them truncated or transposed?"
                )
        posterior = Posterior(mean, None if spread is None else spread.sqrt(), layout=layout)
        return cls(None, posterior, None, torch.arange(len(mean)), seed, table)

    @property
    def autoencoder(self) -> Autoencoder:
        """The model; `Undefined` for a recording of arrays alone."""
        if self.model is None:
            raise Undefined(
                f"recording: these are {len(self)} codes without a model, so nothing can be "
                "decoded. Record a model on data: zs.record(autoencoder, data)"
            )
        return self.model

    @property
    def data(self) -> Dataset:
        """The encoded observations; `Undefined` for a recording of arrays alone."""
        if self.dataset is None:
            raise Undefined(
                f"recording: these are {len(self)} codes without observations. Record a model on "
                "data: zs.record(autoencoder, data)"
            )
        return self.dataset

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features of the observations, where the data have any."""
        return () if self.dataset is None else self.dataset.feature_names

    @property
    def codes(self) -> Codes:
        """The posterior means."""
        return self.posterior.mean

    @cached_property
    def variances(self) -> Codes:
        """The posterior variances, in units of the prior's; 0 for a deterministic encoder."""
        return self.relative.variance

    @property
    def latents(self) -> int:
        return self.posterior.latents

    @property
    def layout(self) -> Layout | None:
        """Channels and places, if the latents are maps."""
        return self.posterior.layout

    @property
    def variables(self) -> int:
        """How many variables there are to ask about: latents or, of maps, channels."""
        return self.latents if self.layout is None else self.layout.channels

    @cached_property
    def map_summary(self) -> MapSummary:
        """What statistics need of all maps that were encoded; `Undefined` without a layout."""
        if self.layout is None:
            raise Undefined(
                f"recording: the {self.latents} latents have no channels and places. If they are "
                "maps, say so: zs.wrap(encoder, decoder, layout=zs.Layout(channels, places))"
            )
        if self.summary is not None:
            return self.summary
        return MapSummary.of(self.posterior, None if self.dataset is None else self.observations)

    @cached_property
    def conditional_prior(self) -> Posterior | None:
        """The prior of each observation given its factors (as in an iVAE).

        None if it is the same for all.
        """
        if self.model is None or self.factors is None:
            return None
        device, dtype = self.model.place
        with evaluation(self.model):
            values = torch.from_numpy(np.ascontiguousarray(self.factors.values))
            prior = self.model.prior_given(values.to(device, dtype))
        return None if prior is None else prior.detach().to("cpu", self.posterior.mean.dtype)

    @cached_property
    def relative(self) -> Posterior:
        """The posterior in units of the prior: one that equals its prior is N(0, 1).

        The posterior itself, unless the prior depends on the factors (as in an iVAE).
        """
        prior = self.conditional_prior
        if prior is None or self.posterior.deterministic:
            return self.posterior
        return self.posterior.relative_to(prior)

    @cached_property
    def usage(self) -> Usage:
        """Which latents count, or which channels of maps, and by which measure (`zscope.usage`)."""
        model = self.model
        if not self.posterior.deterministic:
            if self.layout is not None:
                return usage_of_maps(self.map_summary)
            return usage_of_posterior(self.posterior)
        if model is None or not model.decodes:
            if self.layout is not None:
                return usage_of_maps(self.map_summary)
            return usage_of_codes(self.codes)
        device, dtype = model.place

        def decode(codes: Codes) -> Tensor:
            return model.decode(codes.to(device, dtype)).float().cpu()

        def decode_few(codes: Codes) -> Tensor:
            return torch.cat([decode(part) for part in codes.split(FEW_MAPS)])

        with evaluation(model):
            if self.layout is not None:
                first = self.codes[self.picture_order[: base_count(self)]]
                base = self.shared.get("base pictures")  # if an assay has decoded them by now
                known = None if base is None else base.decoded.float()
                return usage_of_decoder(first, decode_few, self.layout, known)
            return usage_of_decoder(self.base_samples, decode)

    @property
    def used(self) -> list[int]:
        """The latents, or channels, that count: the one answer for assays, findings and counts."""
        return self.usage.used

    @cached_property
    def picture_order(self) -> Tensor:
        """The rows in random order: assays that change maps start from the first of these."""
        generator = named_generator(self.seed, "base pictures")
        return torch.randperm(len(self), generator=generator)

    @cached_property
    def observations(self) -> Tensor:
        """The encoded observations themselves, as float32; read from the data when first used."""
        return self.data.batch(slice(None))

    @cached_property
    def base_samples(self) -> Codes:
        """One draw from each posterior, in random order.

        Every response assay starts from the first rows of these, so that their answers are
        about the same codes.
        """
        return base_samples(self.posterior, named_generator(self.seed, "base samples"))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the codes, the factors and the weights of the model."""
        digest = hashlib.sha256(f"{self.seed} {len(self)}{' quick' * self.quick}".encode())
        parts = [self.posterior.mean, self.posterior.variance]
        if self.model is not None:
            parts += list(self.model.state_dict().values())
        for part in parts:
            plain = part.detach().cpu().contiguous()
            digest.update(plain.flatten().view(torch.uint8).numpy().tobytes())
        if self.factors is not None:
            digest.update(np.ascontiguousarray(self.factors.values).tobytes())
            about = self.factors.names, self.factors.kinds, self.factors.guessed
            digest.update(repr((about, self.factors.labels)).encode())
        if self.dataset is not None:  # some assays look at the observations themselves
            some = self.dataset.batch(slice(0, 64)).contiguous().numpy()
            digest.update(self.dataset.name.encode() + some.tobytes())
        return digest.hexdigest()

    def share(self, key: Any, work: Callable[[], Any]) -> Any:
        """The result of `work` for this key, computed once."""
        if key not in self.shared:
            self.shared[key] = work()
        return self.shared[key]

    def __len__(self) -> int:
        return len(self.posterior)

    def __repr__(self) -> str:
        return "\n".join(f"{name:10}  {text}" for name, text in self._lines())

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self._lines()
        )
        return f"<table>{rows}</table>"

    def _lines(self) -> list[tuple[str, str]]:
        kind = "points" if self.posterior.deterministic else "Gaussian posteriors"
        lines = [("Recording", f"{len(self):,} samples x {self.latents} latents, {kind}")]
        if self.layout is not None:
            lines.append(("layout", f"{self.layout} (channels x {' x '.join(self.layout.names)})"))
        if self.summary is not None and self.summary.pictures > len(self):
            kept = f"{len(self):,} of {self.summary.pictures:,} encoded samples"
            lines.append(("kept", f"{kept}; statistics are of all of them"))
        if self.model is not None:
            lines.append(("model", self.model.title))
        if self.dataset is not None:
            shape = " x ".join(map(str, self.dataset.shape))
            lines.append(("data", f"{self.dataset.name} ({shape})"))
        if self.factors is not None:
            lines.append(("factors", repr(self.factors).partition(": ")[2].removesuffix(")")))
        return [*lines, ("seed", str(self.seed)), *(("note", note) for note in self.notes)]


def base_samples(posterior: Posterior, generator: torch.Generator) -> Codes:
    """One draw from each posterior, in random order."""
    order = torch.randperm(len(posterior), generator=generator, device=generator.device)
    return posterior[order.to(posterior.mean.device)].sample(generator)


def base_count(recording: Recording) -> int:
    """How many pictures assays of maps start from: fewer for more channels; 0 for vectors."""
    if recording.layout is None:
        return 0
    count = most_pictures(recording.layout)
    return min(len(recording), max(8, count // 4) if recording.quick else count)


def most_pictures(layout: Layout) -> int:
    """How many pictures assays of maps start from, where as many were recorded."""
    return min(max(1024 // layout.channels, 16), 128)


def weights_hash(model: Autoencoder) -> str:
    """A hash of the weights of a model."""
    digest = hashlib.sha256()
    for name, part in model.state_dict().items():
        plain = part.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(plain.shape)}".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _matrix(values: Any, what: str, layout: Layout | None = None) -> Tensor:
    """Samples x latents as a tensor of real numbers, at least in single precision."""
    try:
        rows = as_tensor(values).detach().cpu()
    except (TypeError, ValueError, DataError) as error:
        raise DataError(
            f"from_arrays: the {what} cannot be read as an array of numbers ({error}). Give one "
            "row of numbers for each sample."
        ) from error
    if rows.is_complex():
        raise DataError(
            f"from_arrays: the {what} are complex numbers ({rows.dtype}); expected real ones. Do "
            "they come from a Fourier transform? Give both parts as columns: "
            "np.hstack([codes.real, codes.imag])"
        )
    rows = rows.reshape(-1, 1) if rows.ndim == 1 else rows
    if layout is not None and tuple(rows.shape[1:]) == layout.shape:
        rows = layout.flat(rows)
    if layout is not None and (rows.ndim != 2 or rows.shape[1] != layout.latents):
        raise DataError(
            f"from_arrays: {what} of shape {tuple(rows.shape)}, and layout={layout}; expected "
            f"samples x {layout}, or samples x {layout.latents:,}. Are channels first, and are "
            "channels and places those of these latents?"
        )
    if rows.ndim != 2 or 0 in rows.shape:
        raise DataError(
            f"from_arrays: {what} of shape {tuple(rows.shape)}; expected samples x latents. "
            "Flatten further axes: array.reshape(len(array), -1). If these are maps, say so: "
            "layout=zs.Layout(channels, places)"
        )
    rows = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    bad = ~rows.isfinite().all(1)
    if bad.any():
        row = int(bad.nonzero()[0, 0])
        where = ""
        if layout is not None and layout.latents == rows.shape[1]:
            where = f", in {layout.first(~rows[row].isfinite())}"
        raise DataError(
            f"from_arrays: {int(bad.sum())} of {len(rows)} rows of the {what} hold NaN or infinite "
            f"numbers, the first is row {row}{where}. Leave those rows out."
        )
    return rows


def record(
    autoencoder: Autoencoder,
    data: Any,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    quick: bool = False,
) -> Recording:
    """Encode up to `samples` observations, chosen at random without repeats.

    `data` is a Dataset, an array or a tensor, in original units: a model that was trained on
    standardised features (`model.scaling`) sees them scaled as in its training. The model is
    put in evaluation mode on its own device, then put back into its previous mode; no gradients
    are tracked. The chosen rows depend on the seed and the size of the data alone, so that two
    models recorded with one seed have seen the same observations in the same order.

    A few observations are encoded and decoded twice, and one alone. A model that is not a
    function (noise or state of its own, batch norm in training mode) gives a warning, which
    stays in the `notes` of the recording. With `quick`, assays that run the model take a quarter of
    their usual samples.
    """
    whole("record", samples=samples, seed=seed)
    if samples < 1:
        raise DataError(f"record: samples={samples}; at least one observation must be encoded.")
    dataset = as_dataset(data).in_units(autoencoder.scaling)
    rows = choose_rows(len(dataset), samples, seed)
    chosen = dataset if len(rows) == len(dataset) else dataset.subset(rows)
    size = batch_size(dataset.shape)
    size = size if autoencoder.layout is None else min(size, FEW_MAPS)
    device, dtype = autoencoder.place
    kept = np.arange(len(chosen))
    codes, summary = _Codes(len(chosen)), RunningSummary(len(chosen))
    with evaluation(autoencoder):
        start = 0
        while start < len(chosen):
            x = chosen.batch(slice(start, start + size), device).to(dtype)
            auxiliary = auxiliary_of(autoencoder, chosen, slice(start, start + size), x)
            posterior = _checked(
                autoencoder.encode(x) if auxiliary is None else autoencoder.encode(x, auxiliary),
                autoencoder,
                len(x),
            )
            bad = ~posterior.mean.isfinite().all(1) | ~posterior.variance.isfinite().all(1)
            if bad.any():
                first = int(bad.nonzero()[0, 0])
                row, where = int(rows[start + first]), where_of(posterior[first : first + 1])
                raise InterfaceError(
                    f"record: the encoder gave NaN or infinite numbers for {int(bad.sum())} of "
                    f"{len(x)} observations, the first at row {row} of {dataset.name}{where}. Are "
                    "the data scaled as in training, and are the weights finite?"
                )
            # Assays decompose and difference codes, which half precision is too coarse for.
            exact = torch.promote_types(posterior.mean.dtype, torch.float32)
            posterior = posterior.to("cpu", exact)
            if posterior.layout is not None:
                if start == 0:
                    kept = choose_rows(len(chosen), _most_kept(posterior), seed)
                    codes = _Codes(len(kept))
                summary.add(MapSummary.of(posterior, x.detach().cpu(), centre=summary.centre))
                inside = kept[(kept >= start) & (kept < start + len(x))] - start
                posterior = posterior[torch.from_numpy(inside)]
                size = min(size, FEW_MAPS)
            codes.add(posterior)
            start += len(x)
        few = slice(0, FEW)
        x = chosen.batch(few, device).to(dtype)
        notes = notes_on(autoencoder, x, auxiliary_of(autoencoder, chosen, few, x))
    for note in notes:
        warnings.warn(f"record: {note}", stacklevel=2)
    chosen = chosen if len(kept) == len(chosen) else chosen.subset(kept)
    return Recording(
        autoencoder,
        codes.whole(),
        chosen,
        torch.from_numpy(rows[kept]),
        seed,
        chosen.factors_with_kinds,
        notes=notes,
        asked=samples,
        summary=None if summary.centre is None else summary.whole(),
        quick=quick,
    )


class _Codes:
    """Posteriors that come in batches, in memory that is taken once: joining takes it twice."""

    def __init__(self, rows: int) -> None:
        self._rows, self._filled = rows, 0
        self._parts: dict[str, Tensor] = {}
        self._layout: Layout | None = None

    def add(self, batch: Posterior) -> None:
        named = {"mean": batch.mean, "std": batch.std, "scale_tril": batch.scale_tril}
        parts = {name: part for name, part in named.items() if part is not None}
        if not self._parts:
            self._layout = batch.layout
            self._parts = {
                name: part.new_empty(self._rows, *part.shape[1:]) for name, part in parts.items()
            }
        if parts.keys() != self._parts.keys():
            raise InterfaceError(
                f"record: encode returned {' and '.join(self._parts)} for the first batch, and "
                f"{' and '.join(parts)} for one of {len(batch)} observations. Return the same for "
                "every batch."
            )
        for name, part in parts.items():
            self._parts[name][self._filled : self._filled + len(batch)] = part
        self._filled += len(batch)

    def whole(self) -> Posterior:
        return Posterior(**self._parts, layout=self._layout)


def _most_kept(posterior: Posterior) -> int:
    """How many samples fit the memory for codes."""
    parts = 1 if posterior.deterministic else 2
    return max(FEWEST_KEPT, KEPT_BYTES // (posterior.mean[0].nbytes * parts))


def where_of(posterior: Posterior) -> str:
    """The channel and place of the first number of one sample that is not finite.

    Nothing without a layout.
    """
    if posterior.layout is None:
        return ""
    bad = ~(posterior.mean.isfinite() & posterior.variance.isfinite())
    return f", in {posterior.layout.first(bad[0])}"


def _checked(posterior: Posterior, autoencoder: Autoencoder, count: int) -> Posterior:
    """What an encoder returned, if it has the right size and no negative std."""
    expected, shape = (count, autoencoder.latents), tuple(posterior.mean.shape)
    if shape != expected:
        raise InterfaceError(
            f"record: encode of {autoencoder.title} returned means of shape {shape}; expected "
            f"{expected}, a row for each observation. Is `latents` of the model right, and does "
            "it keep the batch?"
        )
    if posterior.std is not None and bool((posterior.std < 0).any()):
        raise InterfaceError(
            f"record: encode of {autoencoder.title} returned a std of "
            f"{float(posterior.std.min()):.3g}; expected 0 or more. Is it a log-variance? Give "
            "exp(log_variance / 2)."
        )
    return with_layout(posterior, autoencoder, "record").detach()


def with_layout(posterior: Posterior, autoencoder: Autoencoder, who: str) -> Posterior:
    """A posterior with the layout of its model; either of the two may leave it to the other."""
    own, stated = posterior.layout, autoencoder.layout
    if stated is None or (own is not None and own.shape == stated.shape):
        return posterior
    if own is not None:
        raise InterfaceError(
            f"{who}: encode of {autoencoder.title} returned a Posterior with the layout {own}, and "
            f"`layout` of the model is {stated}. Set both to the same, or leave one of them out."
        )
    return Posterior(posterior.mean, posterior.std, scale_tril=posterior.scale_tril, layout=stated)


def auxiliary_of(
    autoencoder: Autoencoder, data: Dataset, rows: slice, like: Tensor
) -> Tensor | None:
    """The factors, for a model whose encoder needs them."""
    if not autoencoder.needs_auxiliary:
        return None
    if data.factors is None:
        raise DataError(
            f"record: this model encodes an observation together with its factors, and {data.name} "
            "has none. Give the data it was trained on, or others with the same factors."
        )
    return torch.from_numpy(np.ascontiguousarray(data.factors[rows])).to(like)


def choose_rows(available: int, samples: int, seed: int) -> np.ndarray:
    """At most `samples` of `available` rows, without repeats, in ascending order."""
    if samples < 1:
        raise DataError(f"record: samples={samples}; at least one observation must be encoded.")
    if samples >= available:
        return np.arange(available)
    generator = np.random.default_rng(seed_of(seed, 2))
    return np.sort(generator.choice(available, size=samples, replace=False))


def batch_size(shape: tuple[int, ...], budget: int | None = None) -> int:
    """How many float32 observations of this shape fit the budget; at least 1, at most 1024.

    Without a budget, how many to encode at once.
    """
    if budget is None:
        few = min(8, batch_size(shape, MOST_BATCH_BYTES))
        return max(few, batch_size(shape, BATCH_BYTES))
    return max(1, min(1024, budget // (4 * int(np.prod(shape)))))


def join_posteriors(parts: list[Posterior]) -> Posterior:
    """Posteriors of several batches as one."""

    def concatenate(tensors: list[Tensor | None]) -> Tensor | None:
        return None if tensors[0] is None else torch.cat([t for t in tensors if t is not None])

    return Posterior(
        torch.cat([part.mean for part in parts]),
        concatenate([part.std for part in parts]),
        scale_tril=concatenate([part.scale_tril for part in parts]),
        layout=parts[0].layout,
    )
