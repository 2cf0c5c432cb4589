"""Rules about the latent space: where its holes are, and which latents depend on each other."""

from collections.abc import Iterable

import torch

from zscope.report.findings import (
    Facts,
    Finding,
    count_word,
    latents_text,
    measures,
    percent,
    table,
)

__all__ = [
    "correlated_latents",
    "decoder_axes",
    "holes",
    "holes_between_channels",
    "invariance",
    "responding_pairs",
    "structure",
    "unlike_data",
    "unlike_the_prior",
]


ALIGNED = 0.3
"""Latents at a smaller distance, in units of chance, are aligned."""


def holes(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("holes")
    if result is None:
        return
    total, share = len(result.displacement), result.score
    evidence = (
        f"A hole: decoding and encoding again moves {result.source} samples farther than 99 % of "
        "posterior samples."
    )
    numbers = measures(
        ("samples in holes", percent(share), "about 1 %", f"{len(result.holes):,} of {total:,}"),
        ("median displacement, relative", f"{float(result.ratio.median()):.2g} ×", "1 ×", ""),
    )
    of_prior = result.source == "prior"
    name = "prior samples" if of_prior else "hybrid samples"
    if share >= threshold:
        yield Finding(
            f"{percent(share)} of {name} fall into holes",
            evidence,
            'ask whether hybrids do better, zs.assays.holes(recording, base="hybrid"); if so, draw '
            "them: zs.sampling.hybrid(recording.posterior, 64)"
            if of_prior
            else "the latents depend on each other; sample codes with zs.sampling.posterior, and "
            "interpolate between them with zs.assays.manifold_path",
            "problem",
            0.5 + 0.4 * share,
            table=numbers,
        )
    else:
        yield Finding(
            f"New samples are self-consistent: {percent(share)} of {name} fall into holes",
            evidence,
            level="healthy",
            matters=0.7,
            table=numbers,
        )


def holes_between_channels(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("holes")
    if result is None:
        return
    name, chance = f"{result.source} samples", result.chance
    evidence = (
        f"A hole: decoding and encoding again moves {name} farther than {percent(1 - chance)} of "
        f"{len(result.reference):,} pictures."
    )
    count = f"{len(result.holes):,} of {result.samples:,}"
    numbers = measures(
        ("samples in holes", percent(result.score), f"about {percent(chance)}", count),
        ("median displacement, relative", f"{float(result.ratio.median()):.2g} ×", "1 ×", ""),
    )
    if result.interval[0] > chance + threshold:
        yield Finding(
            f"{percent(result.score)} of {name} fall into holes",
            evidence,
            "no harm to diffusion, which learns how channels and places depend on each other; when "
            "you edit latents, change them together",
            "note",
            0.2,
            table=numbers,
        )
    else:
        yield Finding(
            f"{percent(result.score)} of {name} fall into holes ({percent(chance)} is expected)",
            evidence,
            level="healthy",
            matters=0.7,
            table=numbers,
        )


def unlike_data(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("holes")
    if result is None or result.data_distance is None:
        return
    total, far = len(result.displacement), result.data_distance > result.data_limit
    share = float(far.double().mean())
    consistent = int(far.sum()) - int(far[result.holes].sum())
    name = f"{result.source} samples"
    count = {0: "None", int(far.sum()): "All"}.get(consistent, f"{consistent:,}")
    also = f" {count} of them are self-consistent: decoding and encoding does not move them."
    also = also if far.any() else ""
    evidence = (
        "Unlike the data: its distance from the nearest observation is more than "
        f"{result.data_limit:.2g} × their spacing.{also}"
    )
    numbers = measures(
        ("unlike the data", percent(share), "at most 1 %", f"{int(far.sum()):,} of {total:,}"),
    )
    if share >= threshold:
        yield Finding(
            f"{percent(share)} of {name} decode to observations unlike the data",
            evidence,
            "look at them in the view Samples of zscope explore, which sorts by distance from the "
            "data; zs.sampling.posterior draws codes of observations like the data",
            "problem",
            0.45 + 0.4 * share,
            table=numbers,
        )
    else:
        yield Finding(
            f"New samples look like the data: {percent(share)} of {name} decode to observations "
            "unlike it",
            evidence,
            level="healthy",
            matters=0.6,
            table=numbers,
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
            f"{latents_text(far)} {'does' if len(far) == 1 else 'do'} not match the prior",
            "Over all posteriors; the prior has mean 0 and standard deviation 1.",
            "sample with zs.sampling.hybrid(recording.posterior, 64) instead of the prior",
            "note",
            0.35,
            table=table(
                ("latent", "mean", "standard deviation"),
                [(j, float(mean[j]), float(variance[j]) ** 0.5) for j in far],
            ),
        )


def structure(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("structure-score")
    if result is None or result.p_value is None:
        return
    if result.score > threshold and result.p_value <= 0.01:
        yield Finding(
            f"Decoding and encoding changes the distribution of {result.distribution} samples",
            "The structure score is a squared MMD; 0 means no change.",
            "the response map and the drift show where samples move",
            "note",
            0.3,
            table=measures(
                (
                    "structure score",
                    f"{result.score:.3f} ± {result.standard_error:.3f}",
                    "0",
                    f"{result.samples:,} samples",
                ),
                ("p", f"{result.p_value:.2g}", "above 0.01", ""),
            ),
        )


def responding_pairs(facts: Facts, threshold: float) -> Iterable[Finding]:
    matrix = facts.get("response-matrix")
    if matrix is None or len(matrix.causal) < 2:
        return
    import networkx as nx

    relative, causal = matrix.relative, matrix.causal
    edges, pairs = matrix.edges(), matrix.pairs
    evidence = f"Relative responses (1: as strongly as to itself), {matrix.samples:,} samples."
    for members in sorted(map(sorted, nx.connected_components(nx.Graph(pairs)))):
        rows = [
            (f"{j} and {k}", float(relative[j, k]), float(relative[k, j]))
            for j, k in pairs
            if j in members
        ]
        size = len(members)
        yield Finding(
            f"{latents_text(members)} respond to {'each other' if size == 2 else 'one another'}",
            evidence,
            f"treat them as one {count_word(size)}-dimensional variable, with groups= in the "
            "response matrix and in hybrid sampling",
            "note",
            0.45 + 0.2 * size / len(matrix.groups),
            table=table(("latents", "second to first", "first to second"), rows),
        )
    between = [(j, k) for j in causal for k in causal if j != k]
    between.sort(key=lambda edge: -float(relative[edge]))
    joined = {*pairs, *((k, j) for j, k in pairs)}
    others = [edge for edge in between if edge in {*edges} - joined]
    if others:
        one_way = not any((k, j) in edges for j, k in others)
        kind = "one-way " if one_way else "other " if pairs else ""
        if 2 * len(edges) > len(between) > 2:
            text = f"Most latents respond to most others: {len(edges)} of {len(between)} responses"
        elif len(others) == 1:
            text = f"Latent {others[0][1]} responds to latent {others[0][0]}"
        else:
            text = f"{len(others)} {kind}responses between latents"
        yield Finding(
            text,
            evidence,
            "a change of one latent moves the other too; the response graph shows them",
            "note",
            0.3 + 0.2 * len(edges) / len(between),
            table=table(
                ("changed latent", "responding latent", "response"),
                [(j, k, float(relative[j, k])) for j, k in others],
            ),
        )
    largest = float(relative[between[0]])
    if not edges and largest <= threshold:
        yield Finding(
            "No latent responds to another",
            "Relative responses: 1 is as strongly as to itself.",
            level="healthy",
            matters=0.5,
            table=measures(
                (
                    "largest response between different latents",
                    largest,
                    f"at most {threshold:g}",
                    f"{matrix.samples:,} samples",
                )
            ),
        )
    elif not edges:
        yield Finding(
            f"Latents respond to each other by up to {largest:.2f}, but no response stands out",
            f"{evidence} None is clearly above both {threshold:g} and the noise: the posterior "
            "standard deviation of the responding latent, relative to its spread.",
            "interpret strong changes of these latents with care: they move others a little too",
            "note",
            0.2,
            table=table(
                ("changed latent", "responding latent", "response", "noise"),
                [
                    (j, k, float(relative[j, k]), float(matrix.noise[k]))
                    for j, k in between
                    if float(relative[j, k]) > threshold
                ],
            ),
        )


def invariance(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("interventional-consistency")
    if result is None or "invariance" not in result.means:
        return
    value = result.means["invariance"]
    if value < threshold:
        yield Finding(
            "Intervening on one latent also moves others",
            f"Invariance 1: nothing else moves. {result.interventions} interventions on each of "
            f"{result.samples} {result.base} samples.",
            "do not interpret single latents as separate causes; the response matrix shows which "
            "belong together",
            "note",
            0.4,
            table=measures(("mean invariance", f"{value:.3f}", f"at least {threshold:g}", "")),
        )


def correlated_latents(facts: Facts, threshold: float) -> Iterable[Finding]:
    posterior, used = facts.recording.posterior, facts.used
    if len(used) < 2 or len(posterior) < 3:
        return
    # Of samples, not means: the means of a passive latent are tiny and correlate with anything.
    covariance = torch.cov(posterior.mean.double().T, correction=0)
    variance = covariance.diagonal() + posterior.variance.double().mean(0)
    scale = variance.clamp_min(1e-30).sqrt()
    correlation = covariance / scale / scale[:, None]
    size = correlation[used][:, used].abs().triu(1)
    pairs = [(used[a], used[b]) for a, b in (size >= threshold).nonzero().tolist()]
    pairs.sort(key=lambda pair: -abs(float(correlation[pair])))
    if pairs:
        count = len(pairs) - 1
        more = f", and so are {count} other pair{'s' * (count > 1)}" if count else ""
        yield Finding(
            f"{latents_text(pairs[0])} are correlated{more}",
            f"Over posterior samples of {len(posterior):,} observations.",
            "changing only one of them leads away from the data; penalise total correlation, or "
            "rotate the latents",
            "note",
            0.35,
            table=table(
                ("latents", "correlation"),
                [(f"{j} and {k}", float(correlation[j, k])) for j, k in pairs],
            ),
        )


def decoder_axes(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("distance-to-orthogonality")
    if result is None or 2 * result.degenerate > result.samples:
        return
    evidence = (
        "The distance of the latents from directions that change the output independently; 0 is "
        f"aligned. {len(result.active)} latents in use."
    )
    numbers = measures(
        ("distance", float(result.distance), "0", f"{result.samples:,} codes"),
        ("of random axes", float(result.chance), "", ""),
    )
    if result.relative >= threshold:
        yield Finding(
            f"The decoder's axes are no better than random (distance {result.distance:.2f}, chance "
            f"{result.chance:.2f})",
            evidence,
            "do not interpret single latents; other directions vary the output more independently",
            "note",
            0.33,
            table=numbers,
        )
    elif result.relative <= ALIGNED:
        yield Finding(
            "The latents are aligned with the decoder's axes",
            evidence,
            level="healthy",
            matters=0.4,
            table=numbers,
        )
