"""The rules: what is worth saying about a latent space, each with its threshold.

`RULES` lists them. A rule is a function of the facts and its threshold that yields what
it found; what it found and when it speaks are both shown on the page.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from zscope.assays.disentanglement.score import Score
from zscope.report.findings import (
    DEAD,
    NUMBERS,
    Facts,
    Finding,
    Rule,
    is_dead,
    latents_named,
    listed,
    percent,
    sentence,
    short,
    title,
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


def holes(facts: Facts, threshold: float) -> Iterable[Finding]:
    found = facts.get("holes")
    if found is None:
        return
    total, share = len(found.displacement), found.score
    evidence = (
        f"{len(found.holes):,} of {total:,} {found.source} samples move farther than 99 % of the "
        f"posterior samples do when they are decoded and encoded (median "
        f"{float(found.ratio.median()):.2g} times as far); about 1 % is to be expected."
    )
    of_prior = found.source == "prior"
    if share >= threshold:
        yield Finding(
            f"{percent(share)} of {'prior samples' if of_prior else 'hybrids of codes'} fall into "
            "holes",
            evidence,
            "sample with hybrid sampling: zs.sampling.hybrid(recording.posterior, 64)"
            if of_prior
            else "the latents depend on each other; draw codes of data with "
            "zs.sampling.posterior, and walk between them with zs.assays.manifold_path",
            "problem",
            0.5 + 0.4 * share,
        )
    else:
        name = "samples of the prior" if of_prior else "hybrids of codes"
        yield Finding(
            f"New samples land where the data are: {percent(share)} of {name} fall into holes",
            evidence,
            level="healthy",
            matters=0.7,
        )


def responding_pairs(facts: Facts, threshold: float) -> Iterable[Finding]:
    found = facts.get("response-matrix")
    if found is None or len(found.causal) < 2:
        return
    import networkx as nx

    graph = nx.Graph()
    for j in found.causal:
        for k in found.causal:
            both = float(found.relative[j, k]), float(found.relative[k, j])
            if j < k and min(both) >= threshold:
                graph.add_edge(j, k, both=both)
    for members in sorted(map(sorted, nx.connected_components(graph))):
        edges = graph.subgraph(members).edges(data=True)
        told = [
            f"moving latent {min(j, k)} moves latent {max(j, k)} by {edge['both'][0]:.2f} of what "
            f"it can, and {edge['both'][1]:.2f} the other way"
            for j, k, edge in edges
        ]
        size = len(members)
        count = NUMBERS[size] if size < len(NUMBERS) else str(size)
        yield Finding(
            f"{latents_named(members)} respond to {'each other' if size == 2 else 'one another'}",
            f"{sentence(told, 6)}; {found.samples:,} samples.",
            f"treat them as one {count}-dimensional variable, with groups= in the response matrix "
            "and in hybrid sampling",
            "note",
            0.45 + 0.2 * size / len(found.groups),
        )
    if not graph:
        inside = found.relative[found.causal][:, found.causal].clone().fill_diagonal_(0)
        least = float(torch.minimum(inside, inside.T).max())
        yield Finding(
            "No two latents respond to each other",
            f"Of any two in use, one moves the other by at most {least:.2f} of what it can move; "
            f"{found.samples:,} samples.",
            level="healthy",
            matters=0.5,
        )


def invariance(facts: Facts, threshold: float) -> Iterable[Finding]:
    found = facts.get("interventional-consistency")
    if found is None or "invariance" not in found.means:
        return
    value = found.means["invariance"]
    if value < threshold:
        yield Finding(
            "A change made to one latent moves the others too",
            f"Invariance {value:.2f} on average over latents in use (1: nothing else moves); "
            f"{found.interventions} interventions on {found.samples} {found.base} samples each.",
            "do not read single latents as separate causes; see the response matrix for which "
            "belong together",
            "note",
            0.4,
        )


def unlike_the_prior(facts: Facts, threshold: float) -> Iterable[Finding]:
    posterior = facts.recording.posterior
    if facts.recording.autoencoder.prior is None or posterior.deterministic:
        return
    mean = posterior.mean.double().mean(0)
    variance = posterior.mean.double().var(0, correction=0) + posterior.variance.double().mean(0)
    away = 0.5 * (mean.square() + variance - 1 - variance.log())
    far = [j for j in facts.used if float(away[j]) > threshold]
    if far:
        yield Finding(
            f"The codes of {latents_named(far).lower()} are not spread like the prior",
            sentence(
                [
                    f"latent {j}: mean {float(mean[j]):.2f}, standard deviation "
                    f"{float(variance[j]) ** 0.5:.2f}"
                    for j in far
                ]
            )
            + " over all posteriors, where the prior has 0 and 1.",
            "draw new samples from the codes, zs.sampling.hybrid(recording.posterior, 64), not "
            "from the prior",
            "note",
            0.35,
        )


def structure(facts: Facts, threshold: float) -> Iterable[Finding]:
    found = facts.get("structure-score")
    if found is None or found.p_value is None:
        return
    if found.score > threshold and found.p_value <= 0.01:
        name = "the prior" if found.distribution == "prior" else "hybrids of codes"
        yield Finding(
            f"Samples of {name} do not come back as they were after decoding and encoding",
            f"Structure score (squared MMD) {found.score:.3f} ± {found.standard_error:.3f}, "
            f"p = {found.p_value:.2g}, {found.samples:,} samples; 0 if they did.",
            "what the decoder draws covers less than what it is given; see the map and the drift "
            "for where samples go",
            "note",
            0.3,
        )


def correlated_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    posterior, used = facts.recording.posterior, facts.used
    if len(used) < 2 or len(posterior) < 3:
        return
    # Of draws, not means: the means of a passive latent are tiny and correlate with anything.
    covariance = torch.cov(posterior.mean.double().T, correction=0)
    variance = covariance.diagonal() + posterior.variance.double().mean(0)
    scale = variance.clamp_min(1e-30).sqrt()
    correlation = covariance / scale / scale[:, None]
    pairs = [(j, k) for j in used for k in used if j < k and abs(correlation[j, k]) >= threshold]
    pairs.sort(key=lambda pair: -abs(float(correlation[pair])))
    if pairs:
        first = pairs[0]
        more = f", and {len(pairs) - 1} more pairs" if pairs[1:] else ""
        yield Finding(
            f"{latents_named(first)} rise and fall together{more}",
            sentence(
                [f"correlation of {j} and {k} {float(correlation[j, k]):.2f}" for j, k in pairs]
            )
            + f" over draws of {len(posterior):,} posteriors.",
            "moving one alone leaves the data; penalise total correlation, or rotate the latents",
            "note",
            0.35,
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


def at_chance(facts: Facts, threshold: float) -> Iterable[Finding]:
    def near(score: Score) -> bool:
        below = score.interval is not None and score.interval[0] <= score.chance
        return below or score.score - score.chance < threshold

    scores = {name: each for name, each in facts.results.items() if isinstance(each, Score)}
    blunt = {name: each for name, each in scores.items() if each.chance > 0.95}
    chance = {name: each for name, each in scores.items() if name not in blunt and near(each)}
    if chance:
        one = len(chance) == 1
        yield Finding(
            f"{listed([title(name) for name in chance])} {'is' if one else 'are'} at chance",
            "; ".join(
                f"{title(name)} {each.score:.3f}, shuffled codes {each.chance:.3f}"
                for name, each in chance.items()
            )
            + f"; {max(each.samples for each in chance.values()):,} observations.",
            "check that factors and observations are in the same order before blaming the model"
            if len(chance) > (len(scores) - len(blunt)) / 2
            else "here it cannot tell this model from one that knows nothing; compare by others",
            "note",
            0.3 + 0.2 * len(chance) / len(scores),
        )
    if blunt:
        one = len(blunt) == 1
        yield Finding(
            f"{listed([title(name) for name in blunt])} {'says' if one else 'say'} nothing here",
            "Shuffled codes get "
            + "; ".join(f"{each.chance:.2f} in {title(name)}" for name, each in blunt.items())
            + ".",
            "leave it out of any comparison; it needs data with more factors"
            if one
            else "leave them out of any comparison; they need data with more factors",
            "note",
            0.1,
        )


def spread_over_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    read, gap = facts.get("explicitness"), facts.get("mig")
    if read is None or gap is None or read.score < 0.7:
        return
    evidence = (
        f"Explicitness {read.score:.2f} (chance {read.chance:.2f}), MIG {gap.score:.2f} (chance "
        f"{gap.chance:.2f}), {gap.samples:,} observations."
    )
    if gap.score < threshold:
        yield Finding(
            "The factors can be read off the codes, but no latent holds one to itself",
            evidence,
            "read them with a linear map, or train with a larger β or a penalty on total "
            "correlation",
            "note",
            0.35,
        )
    else:
        yield Finding(
            "The factors can be read off the codes, and latents hold them one by one",
            evidence,
            level="healthy",
            matters=0.6,
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


def about(row: Mapping[str, Any]) -> str:
    parts = [f"latent {row['latent']}:"]
    if "variance" in row:
        parts.append(f"mean posterior variance {row['variance']:.2f}, {row['kl']:.2f} nats,")
    if "response" in row:
        parts.append(f"gives back {row['response']:.2f} of a change,")
    return " ".join(parts).rstrip(",")


RULES = (
    Rule(
        "reconstruction",
        0.5,
        "The decoded observations hold less than {percent:g} % of the variance of the data.",
        reconstruction,
    ),
    Rule(
        "dead latents",
        DEAD,
        "A latent of a variational model is passive (its posterior is the prior: mean variance "
        "within 0.1 of 1 and steady); one of a deterministic model gives back less than "
        "{threshold:g} of a change made to it.",
        dead_latents,
    ),
    Rule(
        "unheard latents",
        DEAD,
        "A latent is not passive, yet gives back less than {threshold:g} of a change made to it.",
        unheard_latents,
    ),
    Rule(
        "holes",
        0.05,
        "{percent:g} % or more of new samples move farther than 99 % of posterior samples do.",
        holes,
    ),
    Rule(
        "few samples",
        50,
        "Fewer than {threshold:g} observations for each latent.",
        few_samples,
    ),
    Rule(
        "responding pairs",
        0.3,
        "Two causal latents each move the other by {threshold:g} or more of what it can move.",
        responding_pairs,
    ),
    Rule(
        "few dimensions",
        0.5,
        "The intrinsic dimension of the codes is below {threshold:g} times the latents in use (3 "
        "to 20 of them).",
        few_dimensions,
    ),
    Rule(
        "invariance",
        0.7,
        "Mean invariance between latents in use is below {threshold:g}.",
        invariance,
    ),
    Rule(
        "unlike the prior",
        0.1,
        "Mean and spread of a latent over all posteriors are more than {threshold:g} nats from "
        "those of the prior.",
        unlike_the_prior,
    ),
    Rule(
        "correlated latents",
        0.5,
        "Draws of two latents in use are correlated by {threshold:g} or more.",
        correlated_latents,
    ),
    Rule(
        "structure",
        0.02,
        "The structure score is above {threshold:g}, at p ≤ 0.01.",
        structure,
    ),
    Rule(
        "mixed latents",
        0.1,
        "The posterior variance of a latent differs between observations (its variance is above "
        "{threshold:g}).",
        mixed_latents,
    ),
    Rule(
        "scores at chance",
        0.02,
        "A score is less than {threshold:g} above that of shuffled codes, or its interval reaches "
        "down to it; a score that shuffled codes pass with 0.95 says nothing.",
        at_chance,
    ),
    Rule(
        "factors spread over latents",
        0.2,
        "Explicitness is 0.7 or more and MIG below {threshold:g}.",
        spread_over_latents,
    ),
)
