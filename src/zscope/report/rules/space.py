"""Rules about the space they span: where data are in it, and what moves with what."""

from collections.abc import Iterable

import torch

from zscope.report.findings import NUMBERS, Facts, Finding, latents_named, percent, sentence


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


def unlike_the_prior(facts: Facts, threshold: float) -> Iterable[Finding]:
    posterior = facts.recording.posterior
    model = facts.recording.model
    if model is None or model.prior is None or posterior.deterministic:
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
