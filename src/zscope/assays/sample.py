"""Codes and factors of the same rows: checked, typed, and without what cannot be measured.

A factor is categorical, ordinal or continuous (`zscope.factors`); kinds that nobody stated
are guessed and named in the flags. Scores that group rows by value never re-bin a discrete
factor; a continuous one is cut into 20 equally filled bins. Constant factors are skipped and
named in the flags.

Passive latents: constant ones always; with `variances` (posterior variances, samples x
latents) those of the type "passive"; without, or if all variances are 0 (a deterministic
encoder), those whose information about every factor is no more than a set of noise codes
would show in 1 % of cases.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
from zscope.errors import ConfigError, Undefined
from zscope.factors import Factors, factors_of
from zscope.randomness import fresh

FEWEST = 20
LARGEST = 1e38
CACHED = ("bins", "information", "plain_information", "values")


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows ready to be measured: codes of the latents in use, factors that vary."""

    codes: np.ndarray  # rows x latents
    factors: np.ndarray  # rows x factors, the numbers as they were given
    labels: np.ndarray  # rows x factors, the index of each value, or of its bin
    kinds: tuple[str, ...]
    latents: tuple[int, ...]  # which latents these are
    columns: tuple[int, ...]  # which factors these are
    names: tuple[str, ...] = ()  # of the factors, where they are known
    lots: np.ndarray | None = None  # a random number for each row: who learns, who is tested

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def discrete(self) -> np.ndarray:
        return np.array([kind != "continuous" for kind in self.kinds])

    @cached_property
    def bins(self) -> np.ndarray:
        return quantile_bins(self.codes, bins_for(len(self)))

    @cached_property
    def information(self) -> Information:
        """Chance-corrected, from quantile bins."""
        return information(self.bins, self.labels)

    def limits(self) -> list[str]:
        """A flag for each factor with more values than a binned code can tell apart."""
        bins = bins_for(len(self))
        return [
            f"Factor {k} has {values} values and codes are cut into {bins} bins: a code can tell "
            f"at most {np.log(bins) / entropy:.2f} of its entropy."
            for k, values, entropy in zip(
                self.columns,
                self.labels.max(0, initial=0) + 1,
                self.information.factor_entropy,
                strict=True,
            )
            if entropy > np.log(bins) + 1e-9
        ]

    def unbinned(self) -> list[str]:
        """A flag for each continuous factor that a flavour takes as it is."""
        return [
            f"Factor {k} is continuous, and this flavour takes each of its values for a class."
            for k, kind in zip(self.columns, self.kinds, strict=True)
            if kind == "continuous"
        ]

    @cached_property
    def plain_information(self) -> Information:
        """As in the library of Locatello et al.: 20 equal-width bins, factors as they are."""
        return information(width_bins(self.codes), self.values, chance=False)

    @cached_property
    def values(self) -> np.ndarray:
        """The index of each value, continuous factors not binned either."""
        labels = self.labels.copy(order="F")
        for k in np.flatnonzero(~self.discrete):
            labels[:, k] = value_labels(self.factors[:, k])
        return labels

    def with_lots(self, rng: np.random.Generator) -> "Sample":
        """With a lot drawn for each row, which it keeps in every part that is taken."""
        drawn = replace(self, lots=rng.random(len(self)))
        drawn.__dict__.update({k: v for k, v in self.__dict__.items() if k in CACHED})
        return drawn

    def split(self, share: float = 2 / 3) -> tuple[np.ndarray, np.ndarray]:
        """Rows to learn from and rows to test on (10,000 and 5,000 of 15,000)."""
        if self.lots is None:
            raise Undefined("split: no lots were drawn for these rows. Call with_lots(rng) first.")
        order = np.argsort(self.lots)
        cut = round(share * len(self))
        return order[:cut], order[cut:]

    def keep(self, latents: list[int]) -> "Sample":
        """With these latents alone."""
        if latents == list(self.latents):
            return self
        places = [self.latents.index(j) for j in latents]
        kept = replace(self, codes=self.codes[:, places], latents=tuple(latents))
        if "bins" in self.__dict__:
            kept.__dict__["bins"] = self.bins[:, places]
        return kept

    def permuted(self, rows: np.ndarray) -> "Sample":
        """Row i of the factors with row rows[i] of the codes: no code knows its factors."""
        shuffled = replace(self, codes=self.codes[rows])
        if "bins" in self.__dict__:  # a permutation leaves every code in its bin
            shuffled.__dict__["bins"] = np.asfortranarray(self.bins[rows])
        return shuffled

    def take(self, rows: np.ndarray) -> "Sample":
        """Some of the rows; factors that no longer vary there are left out."""
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
            None if self.lots is None else self.lots[rows],
        )


def prepared(
    who: str, codes: Array, factors: Array, kinds: str | Sequence[str] | None
) -> tuple[Sample, list[str]]:
    """All latents that have codes and all factors that vary, with flags about the others."""
    rows = numbers_of(codes, who, "codes", least=2)
    values = numbers_of(factors, who, "factors", least=2)
    if len(rows) != len(values):
        raise Undefined(
            f"{who}: {len(rows)} codes but {len(values)} rows of factors; row i of both must be "
            "the same observation. Was one of them shuffled, cut or transposed? Take both from "
            "one recording, or pass the recording itself."
        )
    if len(rows) < FEWEST:
        raise Undefined(
            f"{who}: only {len(rows)} samples; at least {FEWEST} are needed, and some thousands "
            "for a number worth printing. Are the arrays transposed (they are {} x {} and {} x "
            "{})? Record more: zs.record(model, data, samples=10_000)".format(
                *rows.shape, *values.shape
            )
        )
    table = factors_of(factors if isinstance(factors, Factors) else values, kinds=kinds, who=who)
    named = table.kinds
    vary = [k for k in range(values.shape[1]) if (values[:, k] != values[0, k]).any()]
    if not vary:
        raise Undefined(
            f"{who}: all {values.shape[1]} factors are constant over {len(values)} samples, so "
            "there is nothing to find in the codes. Were the rows cut from the start of a sorted "
            "dataset? Take rows at random."
        )
    flags = guess_flags(table) + [
        f"Factor {k} is constant over these {len(values)} samples and was skipped."
        for k in range(values.shape[1])
        if k not in vary
    ]
    labels = np.empty((len(values), len(vary)), dtype=np.int64, order="F")
    for place, k in enumerate(vary):
        column = values[:, k : k + 1]
        if named[k] == "continuous":
            labels[:, place] = quantile_bins(column, bins_for(len(values)))[:, 0]
        else:
            labels[:, place] = value_labels(column[:, 0])
    sample = Sample(
        rows,
        values[:, vary],
        labels,
        tuple(named[k] for k in vary),
        tuple(range(rows.shape[1])),
        tuple(vary),
        tuple(table.names[k] for k in vary) if isinstance(factors, Factors) else (),
    )
    return sample, flags


def numbers_of(values: Array, who: str, what: str, *, least: int) -> np.ndarray:
    """The rows of an array, whose numbers must have squares that can be summed.

    Beyond single precision the predictors of other libraries fail, or never end; far below
    it the spread of numbers that do vary comes out as 0.
    """
    rows = as_rows(values, who, least=least).cpu().numpy()
    largest = float(max(rows.max(), -rows.min()))
    if largest > LARGEST or 0 < largest < 1 / LARGEST:
        row = int(np.abs(rows).max(1).argmax())
        raise Undefined(
            f"{who}: the {what} go up to {largest:.3g} (row {row}), outside the range of single "
            "precision. Has training diverged or died out, or does a number stand for a missing "
            "value? Leave such rows out, or scale the numbers."
        )
    return rows


def guess_flags(factors: Factors) -> list[str]:
    """A flag that names the kinds that were guessed."""
    if not factors.guessed:
        return []
    kinds = dict(zip(factors.names, factors.kinds, strict=True))
    guesses = ", ".join(f"{name} {kinds[name]}" for name in factors.guessed)
    return [f"Kinds of factors were guessed: {guesses}. State them with kinds=."]


def value_labels(values: np.ndarray) -> np.ndarray:
    """The rank of each value among the different ones, from 0 on."""
    shifted = _small_whole_numbers(values)
    if shifted is None:
        return np.unique(values, return_inverse=True)[1]
    ranks: np.ndarray = np.cumsum(np.bincount(shifted) > 0) - 1
    return np.asarray(ranks[shifted])


def _small_whole_numbers(values: np.ndarray) -> np.ndarray | None:
    """values - minimum as integers that can be counted without sorting, if they are such."""
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
    who: str, sample: Sample, variances: Array | None
) -> tuple[list[int], list[int], list[str]]:
    """The latents in use, the passive ones, and a flag that says how these were found."""
    passive = {int(j) for j in np.flatnonzero((sample.codes == sample.codes[0]).all(0))}
    flags = [f"Latent {j} is constant." for j in sorted(passive)]
    if variances is not None and by_type(variances, who):
        from zscope.assays.regime.types import variable_types

        types = variable_types(variances)
        if types.latents != sample.codes.shape[1]:
            raise Undefined(
                f"{who}: variances of {types.latents} latents for codes of "
                f"{sample.codes.shape[1]}. Pass posterior.variance of the same model."
            )
        found, reason = set(types.passive), "their posterior is the prior"
    else:
        found = {int(j) for j in np.flatnonzero(~sample.information.informative)}
        reason = "they tell no more about any factor than noise would"
    if found - passive:
        flags.append(f"Latents {sorted(found - passive)} are passive ({reason}) and were left out.")
    passive |= found
    active = [j for j in range(sample.codes.shape[1]) if j not in passive]
    return active, sorted(passive), flags


def by_type(variances: Array | None, who: str) -> bool:
    """Whether latents in use are told by their posteriors; those of deterministic models have
    no spread, and what their codes tell decides."""
    return variances is not None and bool((as_rows(variances, who) != 0).any())


def not_constant(sample: Sample) -> tuple[list[int], list[int], list[str]]:
    """As `used_latents`, for scores that latents without information do not distort."""
    constant = (sample.codes == sample.codes[0]).all(0)
    passive = [int(j) for j in np.flatnonzero(constant)]
    flags = [f"Latent {j} is constant and was left out." for j in passive]
    return [int(j) for j in np.flatnonzero(~constant)], passive, flags


def everything(sample: Sample) -> tuple[list[int], list[int], list[str]]:
    """As `used_latents`, for flavours that take every latent as it comes."""
    return list(sample.latents), [], []


def seed_from(generator: Generator | None) -> int:
    """One number drawn from the generator; all randomness of a score follows from it."""
    return int(torch.randint(2**62, (1,), generator=fresh(generator))[0])


def chosen(who: str, name: str, value: str, known: Sequence[str]) -> None:
    """Refuse a word that is not one of the known ones."""
    if value not in known:
        raise ConfigError(
            f"{who}: {name}={value!r} is not known. Use one of: {', '.join(known)}. What each "
            f"means is said in the help of zscope.assays.{who}."
        )
