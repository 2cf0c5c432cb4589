"""Sample: checked codes and factors of the same rows, ready for a score.

A factor is categorical, ordinal or continuous (`zscope.factors`); kinds that were not stated
are guessed, and a flag says so. Scores that group rows by value never re-bin a discrete
factor; a continuous one is cut into 20 bins with equal counts. Constant factors are skipped,
and a flag names them.

Latents that are left out: constant ones always; with `variances` (posterior variances, samples
x latents) those not in use (`zscope.usage`); without, or if all variances are 0 (a deterministic
encoder), those whose information about every factor stays below a level that a set of noise
codes exceeds in 1 % of cases.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Generator

from zscope.assays.information import (
    Information,
    bins_for,
    information,
    quantile_bins,
    width_bins,
)
from zscope.assays.matrices import Array, as_rows
from zscope.autoencoder import Posterior
from zscope.errors import Undefined
from zscope.factors import Factors, factors_of
from zscope.randomness import fresh
from zscope.results import listed, subject
from zscope.usage import Usage, usage_of_posterior

__all__ = [
    "MIN_SAMPLES", "Sample", "Variances", "all_latents", "has_spread", "numbers_of", "order_of",
    "prepare", "seed_from", "used_latents", "varying_latents",
]  # fmt: skip

MIN_SAMPLES = 20
LARGEST = 1e38


Variances = Array | Usage | None
"""Posterior variances, or the use of latents that a recording finds; None if neither is known."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Codes of some latents and the factors that vary, for the same rows."""

    codes: np.ndarray  # rows x latents
    factors: np.ndarray  # rows x factors, the original values
    labels: np.ndarray  # rows x factors, the index of each value or of its bin
    kinds: tuple[str, ...]
    latents: tuple[int, ...]  # their indices
    columns: tuple[int, ...]  # the indices of the factors
    names: tuple[str, ...] = ()  # of the factors, if known
    split_keys: np.ndarray | None = None  # a random number per row, which decides the split
    origin: "Sample | None" = None  # the same codes and factors, which computes things once

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def discrete(self) -> np.ndarray:
        return np.array([kind != "continuous" for kind in self.kinds])

    @property
    def factor_words(self) -> list[str]:
        """The factors as messages call them: by their names, or by their indices."""
        names = self.names or ("",) * len(self.columns)
        return [factor_word(k, name) for k, name in zip(self.columns, names, strict=True)]

    @cached_property
    def bins(self) -> np.ndarray:
        return self.origin.bins if self.origin else quantile_bins(self.codes, bins_for(len(self)))

    @cached_property
    def information(self) -> Information:
        """Chance-corrected information, from quantile bins."""
        return self.origin.information if self.origin else information(self.bins, self.labels)

    def flag_factors(self, one: str, more: str, texts: Iterable[str]) -> list[str]:
        """Flags from a text for each factor ("" for none); equal texts share a flag.

        `one` and `more` are the verb: "Factor 0 has 2 values", "Factors 0, 2 have 2 values".
        """
        names: dict[str, list[str]] = {}
        for name, text in zip(self.factor_words, texts, strict=True):
            names.setdefault(text, []).append(name)
        return [f"{subject('Factor', names[text], one, more)} {text}" for text in names if text]

    def bin_flags(self) -> list[str]:
        """Flags for factors with more values than a binned latent can distinguish."""
        bins = bins_for(len(self))
        texts = [
            f"{values} values but codes are cut into {bins} bins: a latent can explain at most "
            f"{np.log(bins) / entropy:.2f} of the entropy."
            if entropy > np.log(bins) + 1e-9
            else ""
            for values, entropy in zip(
                self.labels.max(0, initial=0) + 1, self.information.factor_entropy, strict=True
            )
        ]
        return self.flag_factors("has", "have", texts)

    def class_flags(self) -> list[str]:
        """A flag for continuous factors, for flavours that do not bin factors."""
        text = "continuous; this flavour treats each value as a class."
        return self.flag_factors(
            "is", "are", [text if kind == "continuous" else "" for kind in self.kinds]
        )

    @cached_property
    def plain_information(self) -> Information:
        """As in the library of Locatello et al.: 20 equal-width bins, factors not binned."""
        if self.origin:
            return self.origin.plain_information
        return information(width_bins(self.codes), self.values, chance=False)

    @cached_property
    def values(self) -> np.ndarray:
        """The index of each value; continuous factors are not binned either."""
        if self.origin:
            return self.origin.values
        labels = self.labels.copy(order="F")
        for k in np.flatnonzero(~self.discrete):
            labels[:, k] = value_labels(self.factors[:, k])
        return labels

    def with_split_keys(self, generator: np.random.Generator) -> "Sample":
        """With a random number for each row, so that every subset is split in the same way."""
        return replace(self, split_keys=generator.random(len(self)), origin=self)

    def split(self, share: float = 2 / 3) -> tuple[np.ndarray, np.ndarray]:
        """Training rows and test rows (10,000 and 5,000 of 15,000)."""
        order = self._random_order()
        cut = round(share * len(self))
        return order[:cut], order[cut:]

    def folds(self, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Training rows and test rows of several splits, so that every row is tested once."""
        parts = np.array_split(self._random_order(), count)
        return [
            (np.concatenate([*parts[:k], *parts[k + 1 :]]), part) for k, part in enumerate(parts)
        ]

    def _random_order(self) -> np.ndarray:
        if self.split_keys is None:
            raise Undefined(
                "split: these rows have no split keys. Call with_split_keys(generator) first."
            )
        return np.argsort(self.split_keys)

    @cached_property
    def _subsets(self) -> dict[tuple[int, ...], "Sample"]:
        return {}

    def keep(self, latents: list[int]) -> "Sample":
        """Only these latents; the same object each time, so that it computes things once."""
        if latents == list(self.latents):
            return self
        if (subset := self._subsets.get(tuple(latents))) is None:
            places = [self.latents.index(j) for j in latents]
            subset = replace(self, codes=self.codes[:, places], latents=tuple(latents), origin=None)
            if "bins" in self.__dict__:
                subset.__dict__["bins"] = self.bins[:, places]
            self._subsets[tuple(latents)] = subset
        return subset

    def permute(self, rows: np.ndarray) -> "Sample":
        """Pair row i of the factors with row rows[i] of the codes, so that they are unrelated."""
        # np.take is four times as fast as codes[rows].
        shuffled = replace(self, codes=np.take(self.codes, rows, axis=0), origin=None)
        if "bins" in (self.origin or self).__dict__:  # they move with their codes
            shuffled.__dict__["bins"] = np.take(self.bins.T, rows, axis=1).T
        return shuffled

    def take(self, rows: np.ndarray) -> "Sample":
        """Some of the rows, without the factors that do not vary in them."""
        labels = self.labels[rows]
        vary = np.flatnonzero((labels != labels[0]).any(0))
        return Sample(
            self.codes[rows],
            self.factors[np.ix_(rows, vary)],
            np.asfortranarray(labels[:, vary]),
            tuple(self.kinds[k] for k in vary),
            self.latents,
            tuple(self.columns[k] for k in vary),
            tuple(self.names[k] for k in vary) if self.names else (),
            None if self.split_keys is None else self.split_keys[rows],
        )


_PREPARED: WeakKeyDictionary[Factors, tuple[Array, Sample, list[str]]] = WeakKeyDictionary()


def prepare(
    who: str, codes: Array, factors: Array | Factors, kinds: str | Sequence[str] | None
) -> tuple[Sample, list[str]]:
    """The sample with all latents and all factors that vary, and flags about the other factors.

    Made once for the codes and factors of a recording, and shared by all scores.
    """
    if not isinstance(factors, Factors) or kinds is not None:
        return _prepare(who, codes, factors, kinds)
    known = _PREPARED.get(factors)
    if known is None or known[0] is not codes:
        known = _PREPARED[factors] = (codes, *_prepare(who, codes, factors, None))
    return known[1], list(known[2])


def _prepare(
    who: str, codes: Array, factors: Array | Factors, kinds: str | Sequence[str] | None
) -> tuple[Sample, list[str]]:
    rows = numbers_of(codes, who, "codes", least=2)
    values = numbers_of(factors, who, "factors", least=2)
    if len(rows) != len(values):
        raise Undefined(
            f"{who}: {len(rows)} codes but {len(values)} rows of factors; row i of both must be "
            "the same observation. Was one of them shuffled, truncated or transposed? Take both "
            "from one recording, or pass the recording itself."
        )
    if len(rows) < MIN_SAMPLES:
        raise Undefined(
            f"{who}: only {len(rows)} samples; expected at least {MIN_SAMPLES}, and thousands for "
            "a reliable score. Are the arrays transposed (they are {} x {} and {} x {})? Record "
            "more: zs.record(model, data, samples=10_000)".format(*rows.shape, *values.shape)
        )
    table = factors_of(factors if isinstance(factors, Factors) else values, kinds=kinds, who=who)
    table_kinds = table.kinds
    vary = [k for k in range(values.shape[1]) if (values[:, k] != values[0, k]).any()]
    if not vary:
        raise Undefined(
            f"{who}: all {values.shape[1]} factors are constant over {len(values)} samples, so "
            "there is nothing to predict from the codes. Are the rows the first ones of a sorted "
            "dataset? Choose rows at random."
        )
    flags = guess_flags(table)
    if skipped := [factor_word(k, name) for k, name in enumerate(table.names) if k not in vary]:
        flags.append(
            f"{subject('Factor', skipped)} constant over these {len(values)} samples and left out."
        )
    labels = np.empty((len(values), len(vary)), dtype=np.int64, order="F")
    for place, k in enumerate(vary):
        column = values[:, k : k + 1]
        if table_kinds[k] == "continuous":
            labels[:, place] = quantile_bins(column, bins_for(len(values)))[:, 0]
        else:
            labels[:, place] = value_labels(column[:, 0])
    sample = Sample(
        rows,
        values[:, vary],
        labels,
        tuple(table_kinds[k] for k in vary),
        tuple(range(rows.shape[1])),
        tuple(vary),
        tuple(table.names[k] for k in vary) if isinstance(factors, Factors) else (),
    )
    return sample, flags


def factor_word(index: int, name: str) -> str:
    """The name of a factor; its index if the name says no more."""
    return str(index) if name in ("", f"factor{index}") else name


def numbers_of(values: Array, who: str, what: str, *, least: int) -> np.ndarray:
    """The rows of an array, checked to lie within the range of single precision.

    Beyond it the predictors of other libraries fail or do not terminate; far below it the
    standard deviation of values that do vary underflows to 0.
    """
    rows = as_rows(values, who, least=least).cpu().numpy()
    largest = float(max(rows.max(), -rows.min()))
    if largest > LARGEST or 0 < largest < 1 / LARGEST:
        row = int(np.abs(rows).max(1).argmax())
        raise Undefined(
            f"{who}: the {what} go up to {largest:.3g} (row {row}), outside the range of single "
            "precision. Has training diverged or collapsed, or does a number mark a missing "
            "value? Leave such rows out, or scale the numbers."
        )
    return rows


def guess_flags(factors: Factors) -> list[str]:
    """A flag that lists the guessed kinds, if there are any."""
    if not factors.guessed:
        return []
    names: dict[str, list[str]] = {}
    for name, kind in zip(factors.names, factors.kinds, strict=True):
        if name in factors.guessed:
            names.setdefault(kind, []).append(name)
    guesses = ", ".join(f"{kind} ({listed(names[kind])})" for kind in names)
    return [
        f"Kinds of factors were guessed: {guesses}. State them with kinds= (--kinds on the command "
        "line)."
    ]


def value_labels(values: np.ndarray) -> np.ndarray:
    """The rank of each value among the distinct ones, starting at 0."""
    shifted = _small_whole_numbers(values)
    if shifted is None:
        return np.unique(values, return_inverse=True)[1]
    ranks: np.ndarray = np.cumsum(np.bincount(shifted) > 0) - 1
    return np.asarray(ranks[shifted])


def _small_whole_numbers(values: np.ndarray) -> np.ndarray | None:
    """values - minimum as integers small enough to be counted without sorting, else None."""
    low, high = values.min(), values.max()
    if high - low > 4 * len(values):
        return None
    whole = (values - low).astype(np.int64)
    return whole if (whole == values - low).all() and low == np.round(low) else None


def order_of(labels: np.ndarray) -> np.ndarray:
    """The rows in the order of their labels; rows with equal labels keep their order."""
    few = labels.max(initial=0) < 2**15  # 16-bit numbers are sorted by counting
    return np.argsort(labels.astype(np.int16) if few else labels, kind="stable")


def used_latents(
    who: str, sample: Sample, variances: Variances
) -> tuple[list[int], list[int], list[str]]:
    """The latents in use, the passive ones, and flags that say why these are passive.

    Decided once for a sample and its variances, and shared by all scores. A recording gives
    its `Usage`, which says the same as its codes and variances.
    """
    known = sample.__dict__.get("_used")
    if known is None or known[0] is not variances:
        known = sample.__dict__["_used"] = variances, _used_latents(who, sample, variances)
    active, passive, flags = known[1]
    return list(active), list(passive), list(flags)


def _used_latents(
    who: str, sample: Sample, variances: Variances
) -> tuple[list[int], list[int], list[str]]:
    passive = {int(j) for j in np.flatnonzero((sample.codes == sample.codes[0]).all(0))}
    flags = [f"{subject('Latent', sorted(passive))} constant."] if passive else []
    if has_spread(variances, who):
        usage = variances if isinstance(variances, Usage) else _usage(who, sample, variances)
        silent, reason = set(usage.unused), "the posterior tells nothing"
    else:
        silent = {int(j) for j in np.flatnonzero(~sample.information.informative)}
        reason = "no more information about any factor than noise"
    if silent - passive:
        latents = subject("Latent", sorted(silent - passive))
        flags.append(f"{latents} passive ({reason}) and left out.")
    passive |= silent
    active = [j for j in range(sample.codes.shape[1]) if j not in passive]
    return active, sorted(passive), flags


def _usage(who: str, sample: Sample, variances: Any) -> Usage:
    rows = as_rows(variances, who)
    if rows.shape != sample.codes.shape:
        raise Undefined(
            f"{who}: variances of shape {tuple(rows.shape)} for codes of shape "
            f"{sample.codes.shape}. Pass posterior.variance of the same observations."
        )
    return usage_of_posterior(Posterior(torch.from_numpy(sample.codes), rows.sqrt()))


def has_spread(variances: Variances, who: str) -> bool:
    """Whether variances are given and not all 0, as they are for deterministic models."""
    if variances is None or isinstance(variances, Usage):
        return variances is not None
    return bool((as_rows(variances, who) != 0).any())


def varying_latents(sample: Sample) -> tuple[list[int], list[int], list[str]]:
    """As `used_latents`, for scores that uninformative latents do not distort."""
    constant = (sample.codes == sample.codes[0]).all(0)
    passive = [int(j) for j in np.flatnonzero(constant)]
    flags = [f"{subject('Latent', passive)} constant and left out."] if passive else []
    return [int(j) for j in np.flatnonzero(~constant)], passive, flags


def all_latents(sample: Sample) -> tuple[list[int], list[int], list[str]]:
    """As `used_latents`, for flavours that use all latents."""
    return list(sample.latents), [], []


def seed_from(generator: Generator | None) -> int:
    """A seed drawn from the generator, from which all randomness of a score is derived."""
    return int(torch.randint(2**62, (1,), generator=fresh(generator))[0])
