"""Rules about what the latents carry, and how many there are."""

from collections.abc import Iterable, Mapping
from typing import Any

from zscope.report.findings import (
    Facts,
    Finding,
    is_dead,
    latents_named,
    percent,
    sentence,
    short,
)


def reconstruction(facts: Facts, threshold: float) -> Iterable[Finding]:
    share = facts.explained
    if share is None:
        return
    evidence = (
        f"1 − |x − decoded|² / |x − mean|² = {share:.2f}, each observation decoded from the mean "
        "of its posterior."
    )
    if share < 0:
        yield Finding(
            "Decoded observations are farther from the data than the average observation is",
            evidence,
            "check that the decoder returns what the encoder takes (a sigmoid left out? pixels "
            "from 0 to 255? the right weights?)",
            "problem",
            0.98,
        )
    elif share < threshold:
        yield Finding(
            f"Reconstructions hold only {percent(share)} of the variance of the data",
            evidence,
            "train longer or with more capacity before reading much into the latents",
            "problem",
            0.95 - 0.3 * share,
        )
    else:
        yield Finding(
            f"Reconstructions hold {percent(share)} of the variance of the data",
            evidence,
            level="healthy",
            matters=0.9,
        )


def dead_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    rows = facts.rows
    if not any("type" in row or "response" in row for row in rows):
        return
    dead = [row for row in rows if is_dead(row, threshold)]
    total, left = len(rows), len(rows) - len(dead)
    samples = f"{len(facts.recording):,} observations"
    if not dead and all(row.get("response", 1.0) >= threshold for row in rows):
        least = min(rows, key=lambda row: row.get("response", row.get("kl", 0)))
        yield Finding(
            f"All {total} latents carry something" if total > 1 else "The one latent is in use",
            f"Least used is {about(least)}; {samples}.",
            level="healthy",
            matters=0.8,
        )
    if not dead:
        return
    evidence = f"{sentence([about(row) for row in dead])}; {samples}"
    evidence += ". A posterior variance of 1 is that of the prior." if "type" in rows[0] else "."
    if not left:
        yield Finding(
            f"None of the {total} latents carries anything"
            if total > 1
            else "The latent is unused",
            evidence,
            "the posterior has collapsed; train with a smaller β, with the divergence faded in, or "
            "with a weaker decoder"
            if "type" in rows[0]
            else "the encoder does not see what the decoder does; check that both belong together",
            "problem",
            1.0,
        )
        return
    keep = [row["latent"] for row in rows if row not in dead]
    yield Finding(
        f"{len(dead)} of {total} latents {'carries' if len(dead) == 1 else 'carry'} nothing",
        evidence,
        f"train with {left}, or prune with zs.prune(autoencoder, {short(keep)})",
        "problem",
        0.6 + 0.3 * len(dead) / total,
    )


def unheard_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    rows = [
        row
        for row in facts.rows
        if row.get("type") in ("active", "mixed") and row.get("response", 1.0) < threshold
    ]
    if rows:
        names = latents_named([row["latent"] for row in rows])
        one = len(rows) == 1
        yield Finding(
            f"{names} {'is' if one else 'are'} encoded but not heard by the decoder",
            sentence([about(row) for row in rows]) + ".",
            f"{'it costs' if one else 'they cost'} nats and {'does' if one else 'do'} nothing; "
            "train longer, or with a larger β",
            "problem",
            0.55,
        )


def mixed_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    types = facts.get("variable-types")
    if types is None:
        return
    # Steady values between 0 and 1 count as mixed by the definition; they are no mixture.
    mixtures = [j for j in types.mixed if float(types.variance_of_variance[j]) > threshold]
    if mixtures:
        one = len(mixtures) == 1
        yield Finding(
            f"{latents_named(mixtures)} {'is' if one else 'are'} used for some observations only",
            sentence(
                [
                    f"latent {j}: posterior variance {float(types.mean_variance[j]):.2f} on "
                    f"average, varying by {float(types.variance_of_variance[j]) ** 0.5:.2f}"
                    for j in mixtures
                ]
            )
            + f"; {types.samples:,} observations.",
            "give draws of the posterior, not means, to what comes after: where the latent is "
            "noise, its mean is not",
            "note",
            0.25,
        )


def few_samples(facts: Facts, threshold: float) -> Iterable[Finding]:
    count, latents = len(facts.recording), facts.recording.posterior.latents
    if count < threshold * latents:
        yield Finding(
            f"Only {count:,} observations were encoded for {latents} "
            f"latent{'' if latents == 1 else 's'}",
            f"{count / latents:.0f} for each latent.",
            "numbers on this page are rough; give more data if there are any",
            "note",
            0.5,
        )


def few_dimensions(facts: Facts, threshold: float) -> Iterable[Finding]:
    found, used = facts.get("intrinsic-dimension"), len(facts.used)
    # Beyond 20 latents the estimate itself falls short.
    if found is None or not 3 <= used <= 20:
        return
    if found.dimension < threshold * used:
        filled = max(1, round(found.dimension))
        yield Finding(
            f"The codes fill about {filled} dimension{'s' * (filled > 1)} of {used} latents",
            f"Intrinsic dimension {found.dimension:.1f} ({found.method}, {found.neighbours} "
            f"neighbours, {found.samples:,} codes).",
            "fewer latents may do; find out with zs.assays.fondue",
            "note",
            0.4,
        )


def about(row: Mapping[str, Any]) -> str:
    parts = [f"latent {row['latent']}:"]
    if "variance" in row:
        parts.append(f"mean posterior variance {row['variance']:.2f}, {row['kl']:.2f} nats,")
    if "response" in row:
        parts.append(f"gives back {row['response']:.2f} of a change,")
    return " ".join(parts).rstrip(",")
