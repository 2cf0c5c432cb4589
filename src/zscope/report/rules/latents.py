"""Rules about which latents carry information, and how many are needed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zscope.report.findings import (
    Facts,
    Finding,
    Table,
    index_list,
    latents_text,
    measures,
    percent,
    table,
)
from zscope.report.latents import informativeness

__all__ = [
    "dead_latents",
    "few_dimensions",
    "few_samples",
    "ignored_latents",
    "mixed_latents",
    "reconstruction",
]

MEAN_ALONE = 0.1
"""Explained variances nearer to 0 are those of a decoder that returns the mean of the data."""


LOST = 0.1
"""A latent with a smaller response does not survive decoding and encoding again."""


def reconstruction(facts: Facts, threshold: float) -> Iterable[Finding]:
    share = facts.explained
    if share is None or (facts.collapsed and abs(share) < MEAN_ALONE):
        return  # a collapsed model decodes everything to the mean of the data
    evidence = "1 − |x − decoded|² / |x − mean|², decoding the posterior mean of each observation."
    numbers = measures(("explained variance", share, f"at least {threshold:g}", ""))
    if share < 0:
        yield Finding(
            "Reconstructions are worse than the mean of the data",
            evidence,
            "check that the decoder returns data on the scale that the encoder takes (a missing "
            "sigmoid? pixels from 0 to 255? the wrong weights?)",
            "problem",
            0.98,
            table=numbers,
        )
    elif share < threshold:
        yield Finding(
            f"Reconstructions explain only {percent(share)} of the variance",
            evidence,
            "train longer or with more capacity before interpreting the latents",
            "problem",
            0.95 - 0.3 * share,
            table=numbers,
        )
    else:
        yield Finding(
            f"Reconstructions explain {percent(share)} of the variance",
            evidence,
            level="healthy",
            matters=0.9,
            table=numbers,
        )


def dead_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    rows = facts.rows
    if not rows or facts.recording.usage.measure == "spread":
        return  # of codes alone, nothing is known but that they vary
    dead = [row for row in rows if not row["used"]]
    total, used = len(rows), len(rows) - len(dead)
    samples = f"{len(facts.recording):,} observations"
    if not dead and any(row.get("response", 1.0) < LOST for row in rows):
        return  # that is a finding of its own
    if not dead:
        least = min(rows, key=informativeness)
        yield Finding(
            f"All {total} latents carry information"
            if total > 1
            else "The only latent carries information",
            f"The least informative is latent {least['latent']}; {samples}.",
            level="healthy",
            matters=0.8,
            table=latent_rows([least]),
        )
        return
    prior = ", relative to a prior of variance 1" if "type" in rows[0] else ""
    if "information" in rows[0]:
        prior = "; variance and KL relative to the prior given the factors"
    evidence = f"Measured on {samples}{prior}."
    if not used:
        yield Finding(
            f"None of the {total} latents carries information"
            if total > 1
            else "The only latent carries no information",
            evidence,
            "the posterior has collapsed; train with a smaller β, with KL annealing, or with a "
            "weaker decoder"
            if "type" in rows[0]
            else "the decoder ignores them all; check that encoder and decoder belong together",
            "problem",
            1.0,
            table=latent_rows(dead),
        )
        return
    keep = [row["latent"] for row in rows if row not in dead]
    one = "s" if len(dead) == 1 else ""
    yield Finding(
        f"{len(dead)} of {total} latents hardly change{one} the decoded observation"
        if facts.recording.usage.measure == "effect"
        else f"{len(dead)} of {total} latents {'carries' if one else 'carry'} no information",
        evidence,
        f"harmless; to remove {'it' if one else 'them'}, train with {used}, or prune "
        f"with zs.prune(autoencoder, {index_list(keep)})",
        "note",
        0.3 + 0.2 * len(dead) / total,
        table=latent_rows(dead),
    )


def ignored_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    rows = [row for row in facts.rows if row["used"] and row.get("response", 1.0) < threshold]
    if rows:
        names = latents_text([row["latent"] for row in rows])
        one = len(rows) == 1
        variational = "kl" in rows[0]
        yield Finding(
            f"{names} {'is' if one else 'are'} encoded but ignored by the decoder"
            if variational
            else f"{names} {'is' if one else 'are'} lost when decoded and encoded again",
            f"Responses below {threshold:g}; 1 means fully preserved.",
            f"{'it adds' if one else 'they add'} to the KL divergence without changing the output; "
            "train longer, or with a larger β"
            if variational
            else "the encoder does not recover what the decoder shows; check that they belong "
            "together, or train longer",
            "problem",
            0.55,
            table=latent_rows(rows),
        )


def mixed_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    types = facts.get("variable-types")
    if types is None:
        return
    # By definition "mixed" includes constant variances between 0 and 1, which are no mixture.
    mixtures = [
        j
        for j in facts.used
        if j in types.mixed and float(types.variance_of_variance[j]) > threshold
    ]
    if mixtures:
        one = len(mixtures) == 1
        yield Finding(
            f"{latents_text(mixtures)} {'is' if one else 'are'} used only for some observations",
            f"The posterior variance differs between {types.samples:,} observations.",
            "use posterior samples instead of means in downstream models: where the latent is "
            "noise, its mean does not show it",
            "note",
            0.25,
            table=table(
                ("latent", "mean posterior variance", "standard deviation"),
                [
                    (j, float(types.mean_variance[j]), float(types.variance_of_variance[j]) ** 0.5)
                    for j in mixtures
                ],
            ),
        )


def few_samples(facts: Facts, threshold: float) -> Iterable[Finding]:
    count, latents = len(facts.recording), facts.recording.posterior.latents
    if count < threshold * latents:
        yield Finding(
            f"Only {count:,} observations were encoded for {latents} "
            f"latent{'' if latents == 1 else 's'}",
            "Most scores need several observations for each latent.",
            "the numbers are rough; use more data if you can",
            "note",
            0.5,
            table=measures(
                (
                    "observations per latent",
                    f"{count / latents:.0f}",
                    f"at least {threshold:g}",
                    f"{count:,} for {latents}",
                )
            ),
        )


def few_dimensions(facts: Facts, threshold: float) -> Iterable[Finding]:
    estimate, used = facts.get("intrinsic-dimension"), len(facts.used)
    # With more than 20 latents the estimate itself is too low.
    if estimate is None or not 3 <= used <= 20:
        return
    if estimate.dimension < threshold * used:
        yield Finding(
            f"The codes of {used} latents have an intrinsic dimension of about "
            f"{max(1, round(estimate.dimension))}",
            f"Estimated from {estimate.neighbours} neighbours ({estimate.method}).",
            "fewer latents may be enough; search for the number with zs.fondue",
            "note",
            0.4,
            table=measures(
                (
                    "intrinsic dimension",
                    f"{estimate.dimension:.1f}",
                    f"at least {threshold * used:g}",
                    f"{estimate.samples:,} codes",
                )
            ),
        )


def latent_rows(rows: Sequence[Mapping[str, Any]]) -> Table:
    """What was measured of these latents."""
    columns = {
        "latent": "latent",
        "variance": "mean posterior variance",
        "kl": "KL, nats",
        "information": "information, nats",
        "effect": "effect on the decoded observation",
        "response": "response",
    }
    known = [key for key in columns if key in rows[0]]
    return table([columns[key] for key in known], [[row[key] for key in known] for row in rows])
