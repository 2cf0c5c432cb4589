"""Rules about latents that are maps: is this latent space ready for diffusion?

Each is a line of the card (`zscope.report.card`), healthy or not. A rule speaks only if the nearer
end of the interval over pictures is beyond its threshold. The thresholds are ours: none that has
been published predicts how well a diffusion model will do.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from zscope.layout import LatentScaling
from zscope.report.channels import channel_matrix
from zscope.report.findings import Check, Facts, Finding, and_list, percent, table

__all__ = [
    "channels_respond", "channels_unequal", "dead_channels", "few_pictures", "fragile_decoder",
    "heavy_tails", "not_equivariant", "not_local",
    "one_channel_dominates", "posterior_noise", "rough_spectrum", "scale_off",
]  # fmt: skip

FAR_MEAN = 0.5
"""Means of channels farther from 0, in standard deviations, are worth removing."""
CLOSE_SCALE = 1.2
"""Standard deviations within this factor of 1 need no remark."""
SKEWED = 1.0
UNLIKE = 0.5
"""Of the correspondence of smoothed latents and pictures."""
NEAR = 2
"""Places within which most of a local change stays."""
EXACT = 1e-10
"""Reconstructions that lose no more of the variance are exact."""
FEWEST_PLACES = 64
"""A smaller map has no places far from another."""
CONCENTRATED = 2.0
"""Standard deviation of a place, in units of that of its channel, at which outliers are there."""

Ends = tuple[float, float] | None


def times(ratio: float) -> str:
    """A ratio with two digits: 1.0×, 1.6×, 120×."""
    if 0 < ratio < 0.01:
        return "under 0.01×"
    return f"{ratio:.1f}×" if ratio < 9.95 else f"{float(f'{ratio:.2g}'):g}×"


def channels_text(channels: Sequence[int]) -> str:
    """The channels as in a sentence; of many, the first ten."""
    if len(channels) > 12:
        return f"Channels {', '.join(map(str, channels[:10]))} and {len(channels) - 10} others"
    return f"Channel{'' if len(channels) == 1 else 's'} {and_list(channels)}"


def near_end(value: float, ends: Ends, *, above: bool = True) -> float:
    """The end of the interval that is nearer to a threshold; without one the value itself."""
    if ends is None:
        return value
    return min(value, ends[0]) if above else max(value, ends[1])


def undecided(text: str, evidence: str, value: float, ends: Ends) -> Check:
    """What a number says, but not all of its interval: no finding, and not healthy either."""
    return Check(
        f"Perhaps: {text}",
        f"{evidence} The interval includes the threshold.",
        "use more pictures to decide",
        "note",
        0.2,
        value=value,
        interval=ends,
    )


def between(ends: Ends, form: str = ".2f") -> str:
    """The interval in words, or nothing."""
    return "" if ends is None else f" (95 % interval {ends[0]:{form}} to {ends[1]:{form}})"


def uncapitalise(text: str) -> str:
    return text[0].lower() + text[1:]


def pair(ends: Any) -> Ends:
    """A row of a tensor of intervals as two numbers."""
    return None if ends is None else (float(ends[0]), float(ends[1]))


def alive(facts: Facts) -> list[int]:
    """The channels that carry something; a dead one is a finding of its own."""
    dead = {row["channel"] for row in facts.channels if row["dead"]}
    count = 0 if facts.layout is None else facts.layout.channels
    return [k for k in range(count) if k not in dead]


def in_order(facts: Facts) -> list[Mapping[str, Any]]:
    return sorted(facts.channels, key=lambda row: row["channel"])


def dead_channels(facts: Facts, threshold: float) -> Iterable[Finding]:
    rows = in_order(facts)
    if not rows or rows[0]["dead"] is None:
        return
    dead, total = [row for row in rows if row["dead"]], len(rows)
    kinds = {row.get("type", "") for row in dead}
    sources = []
    if "type" in rows[0]:
        pictures = facts.recording.map_summary.pictures
        sources.append(f"posterior variances of {pictures:,} pictures and all places")
    if "importance" in rows[0]:
        sources.append("responses and importances over the base pictures")
    evidence = f"{', '.join(sources).capitalize()}."
    columns = {
        "channel": "channel", "kl": "KL of a picture, nats", "response": "response",
        "gain": "gain at a place", "importance": "importance",
    }  # fmt: skip
    known = [key for key in columns if key in rows[0]]
    if not dead:
        yield Check(
            f"All {total} channels carry information"
            if total > 1
            else "The only channel carries information",
            evidence,
            level="healthy",
            matters=0.8,
            value=0.0,
        )
        return
    numbers = [row["channel"] for row in dead]
    left = total - len(dead)
    it = "it" if len(dead) == 1 else "them"
    if left:
        fewer = f"train with {left} channel{'' if left == 1 else 's'}"
        if kinds == {""}:  # deterministic
            advice = f"check the decoder, which ignores {it}, or {fewer}"
        elif "passive" in kinds:
            advice = f"lower the KL weight, or {fewer}"
        else:
            advice = f"{fewer}; the encoder does not use {it}"
    elif "passive" in kinds:
        advice = "the posterior has collapsed; lower the KL weight, or increase it only gradually"
    else:
        advice = "check that encoder and decoder belong together"
    yield Check(
        f"{channels_text(numbers)} of {total} {'carries' if len(dead) == 1 else 'carry'} nothing"
        if left
        else f"None of the {total} channels carries anything",
        evidence,
        advice,
        "problem",
        0.9 if left else 1.0,
        table=table([columns[key] for key in known], [[row[key] for key in known] for row in dead]),
        value=float(len(dead)),
    )


def scale_off(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("latent-statistics")
    if result is None:
        return
    by_channel = result.declared is not None and declares_channels(result.declared)
    lines = result.paste(channels=by_channel).replace("\n", " ")
    pictures = f"{result.samples:,} pictures"
    if result.declared_std is None:
        yield Check(
            f"Scale for diffusion: scaling_factor {result.score:.4g}",
            f"1 / the standard deviation of all numbers{between(result.interval, '.4g')}, "
            f"{pictures}. The model declares no scaling.",
            f"put it into the config.json of the model: {lines}",
            "note",
            0.5,
            value=result.score,
            interval=result.interval,
        )
        return
    # Beside latents_std, scaling_factor is the std that is wanted.
    declared = result.declared
    target = abs((declared["latents_std"] and declared["scaling_factor"]) or 1.0)
    if target != 1:
        lines = lines.replace('"scaling_factor": 1.0', f'"scaling_factor": {target:g}')
    value, ends = result.declared_std, declared_interval(result)
    name = declared_name(result.declared)
    evidence = f"Standard deviation{between(ends)} of the latents as scaled; {pictures}."
    high, low = (near_end(value, ends, above=each) / target for each in (True, False))
    off = max(high, 1 / max(low, 1e-30))
    wanted = "" if target == 1 else f", as scaling_factor {target:g} asks"
    if off <= CLOSE_SCALE:
        yield Check(
            f"With {name} these latents have std {value:.2f}{wanted}",
            evidence,
            level="healthy",
            matters=0.7,
            value=value,
            interval=ends,
        )
        return
    yield Check(
        f"With {name} these latents have std {value:.2f}, not {target:g}",
        evidence,
        f"in config.json, set {lines}",
        "problem" if off > threshold else "note",
        0.85,
        value=value,
        interval=ends,
    )


def declares_channels(declared: Mapping[str, Any]) -> bool:
    """Whether a configuration has a scale for each channel, which then counts."""
    return declared.get("latents_std") is not None or declared.get("latents_mean") is not None


def declared_name(declared: Mapping[str, Any]) -> str:
    """The scaling that the configuration of a model declares, as in a sentence."""
    if declared.get("latents_std") is not None:
        some = [name for name in ("latents_mean", "latents_std") if declared.get(name) is not None]
        return f"the declared {and_list(some)}"
    if declares_channels(declared):
        factor = declared["scaling_factor"]
        also = "" if factor is None else f" and scaling_factor {factor:g}"
        return f"the declared latents_mean{also}"
    return f"scaling_factor {declared['scaling_factor']:g}"


def declared_interval(result: Any) -> Ends:
    """The interval of the std under the declared scaling."""
    if not declares_channels(result.declared):
        if result.interval is None:
            return None
        low, high = result.interval  # of the inverse of the std
        scaled = result.declared_std * result.score
        return scaled / high, scaled / low if low > 0 else math.inf
    if result.std_interval is None:
        return None
    factor = result.declared_channel_std / result.std.clamp_min(1e-30)
    rest = result.declared_std**2 - float(result.declared_channel_std.square().mean())
    low, high = (
        math.sqrt(max(0.0, float((ends.clamp_min(0) * factor).square().mean()) + rest))
        for ends in result.std_interval.unbind(1)
    )
    return low, high


def channels_unequal(facts: Facts, threshold: float) -> Iterable[Finding]:
    result, channels = facts.get("latent-statistics"), alive(facts)
    if result is None or not channels:
        return
    shift, factor = declared_scaling(facts)
    factor = factor / factor.mean()  # one for all changes nothing here
    mean, std = ((result.mean - shift) * factor)[channels], (result.std * factor)[channels]
    if not bool((std > 0).all()):
        return
    widest, narrowest = int(std.argmax()), int(std.argmin())
    ratio = float(std[widest] / std[narrowest])
    away = mean.abs() / std
    farthest = int(away.argmax())
    ratio_ends: Ends = None
    far_ends: Ends = None
    if result.std_interval is not None:
        low, high = (
            (ends * factor)[channels] for ends in result.std_interval.clamp_min(0).unbind(1)
        )
        top = float(high[widest] / low[narrowest]) if float(low[narrowest]) > 0 else math.inf
        ratio_ends = float(low[widest] / high[narrowest]), top
        half = (result.mean_interval.diff(dim=1)[:, 0] * factor)[channels] / std / 2
        far_ends = (
            max(0.0, float(away[farthest] - half[farthest])),
            float(away[farthest] + half[farthest]),
        )
    scale = near_end(ratio, ratio_ends) > threshold
    shifted = near_end(float(away[farthest]), far_ends) > FAR_MEAN
    other = f", channel {channels[narrowest]} {float(std[narrowest]):.3g}"
    evidence = (
        f"Channel {channels[widest]} has std {float(std[widest]):.3g}"
        f"{other if len(channels) > 1 else ''}; the mean of channel "
        f"{channels[farthest]} is {float(away[farthest]):.2f} standard deviations from 0. "
        f"{result.samples:,} pictures."
    )
    if not (scale or shifted) and len(channels) > 1:
        yield Check(
            f"Channels differ {times(ratio)} in scale",
            evidence,
            level="healthy",
            matters=0.6,
            value=ratio,
            interval=finite(ratio_ends),
        )
    if not (scale or shifted):
        return
    text = (
        f"Channels differ {times(ratio)} in scale"
        if scale
        else f"The mean of channel {channels[farthest]} is {float(away[farthest]):.2f} standard "
        "deviations from 0"
    )
    yield Check(
        text,
        evidence,
        "scale each channel by its own latents_mean and latents_std",
        "note",
        0.5,
        table=table(
            ("channel", "mean", "standard deviation"),
            [(k, float(result.mean[k]), float(result.std[k])) for k in channels],
        ),
        value=ratio if scale else float(away[farthest]),
        interval=finite(ratio_ends if scale else far_ends),
    )


def declared_scaling(facts: Facts) -> tuple[Tensor, Tensor]:
    """What the model declares to be subtracted from each channel, and to be multiplied with."""
    model, layout = facts.recording.model, facts.layout
    assert layout is not None
    scaling = LatentScaling() if model is None else model.latent_scaling or LatentScaling()
    return scaling.affine(layout.channels)


def finite(ends: Ends) -> Ends:
    """The interval, unless one of its ends is infinite."""
    return None if ends is None or math.isinf(ends[1]) else ends


def one_channel_dominates(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("unit-importance")
    if result is None or len(result.alone) < 3 or result.explained <= 0:
        return
    best = int(result.alone.argmax())
    share = float(result.alone[best]) / result.explained
    ends = None if result.share_interval is None else pair(result.share_interval[best])
    evidence = (
        f"Channel {best} alone explains {percent(max(0.0, float(result.alone[best])))} of the "
        f"variance of the pictures, all {len(result.alone)} channels {percent(result.explained)}: "
        f"a share of {share:.2f}{between(ends)}; {result.samples:,} base pictures."
    )
    text = f"Channel {best} alone explains {percent(share)} of what all channels explain"
    if near_end(share, ends) > threshold:
        yield Check(
            text, evidence, "fewer channels may be enough", "note", 0.45, value=share, interval=ends
        )
    elif share > threshold:
        yield undecided(text, evidence, share, ends)
    else:
        yield Check(
            f"No channel does it alone: channel {best} explains {percent(max(0.0, share))} of what "
            "all explain",
            evidence,
            level="healthy",
            matters=0.4,
            value=share,
            interval=ends,
        )


def heavy_tails(facts: Facts, threshold: float) -> Iterable[Finding]:
    result, channels = facts.get("latent-statistics"), alive(facts)
    if result is None or not channels:
        return
    kurtosis, skew = result.kurtosis, result.skewness.abs()

    def beyond(kurtosis: Tensor, skew: Tensor) -> list[int]:
        return [k for k in channels if float(kurtosis[k]) > threshold or float(skew[k]) > SKEWED]

    outlying = perhaps = beyond(kurtosis, skew)
    if result.kurtosis_interval is not None:  # the ends nearer to a Gaussian
        sides = result.skewness_interval
        least = torch.where(sides.prod(1) <= 0, 0, sides.abs().amin(1))
        outlying = beyond(result.kurtosis_interval[:, 0], least)
    worst = max(outlying or perhaps or channels, key=lambda k: float(result.kurtosis[k]))
    value, side = float(result.kurtosis[worst]), float(result.skewness[worst])
    size = f"{value:.2g}" if abs(value) < 100 else f"{value:,.0f}"
    numbers = f"excess kurtosis {size}, skewness {side:.2g}"
    evidence = f"Excess kurtosis and skewness (both 0 for a Gaussian), {result.samples:,} pictures."
    if not perhaps:
        yield Check(
            f"No channel has outliers (largest excess kurtosis {value:.2g}, channel {worst})",
            evidence,
            level="healthy",
            matters=0.4,
            value=value,
        )
        return
    if not outlying:
        if value <= threshold:  # so that its skewness is the larger
            worst = max(perhaps, key=lambda k: float(result.skewness[k].abs()))
            side, ends = float(result.skewness[worst]), pair(result.skewness_interval[worst])
            text = f"channel {worst} has outliers on one side (skewness {side:.2g})"
            yield undecided(text, evidence, side, ends)
            return
        ends = pair(result.kurtosis_interval[worst])
        yield undecided(f"channel {worst} has outliers ({numbers})", evidence, value, ends)
        return
    std_map = result.std_map[worst].flatten()
    place = int(std_map.argmax())
    where = ""
    if float(std_map[place]) > CONCENTRATED * float(result.std[worst]):
        where = f", mostly at place {place_text(facts, place)}"
    yield Check(
        f"Channel {worst} has outliers ({numbers}{where})",
        evidence,
        "look at its map; a diffusion model sees numbers far outside ±3",
        "note",
        0.45,
        table=table(
            ("channel", "excess kurtosis", "skewness"),
            [(k, float(result.kurtosis[k]), float(result.skewness[k])) for k in outlying],
        ),
        value=value,
    )


def place_text(facts: Facts, place: int) -> str:
    """The coordinates of a place."""
    assert facts.layout is not None
    where = torch.unravel_index(torch.tensor(place), facts.layout.places)
    return ", ".join(str(int(each)) for each in where)


def posterior_noise(facts: Facts, threshold: float) -> Iterable[Finding]:
    result, channels = facts.get("latent-statistics"), alive(facts)
    if result is None or facts.recording.posterior.deterministic or not channels:
        return
    share = result.noise_share[channels]
    least, most = float(share.min()), float(share.max())
    top = most
    if result.noise_interval is not None:
        top = max(most, float(result.noise_interval[channels, 1].max()))
    evidence = (
        f"Mean posterior variance over the variance of a channel, {result.samples:,} pictures; "
        f"channel {channels[int(share.argmax())]} has most."
    )
    if top < threshold:
        yield Check(
            "The posterior is effectively deterministic: the KL term smooths nothing",
            f"At most {most:.1g} of a channel is noise. {evidence}",
            "add noise to the latents in training, or use a larger KL weight",
            "note",
            0.45,
            value=most,
        )
        return
    texts = [percent(each) for each in (least, most)]
    yield Check(
        f"Posterior noise is {' to '.join(dict.fromkeys(texts))} of the variance of a channel",
        evidence,
        level="healthy",
        matters=0.3,
        value=most,
    )


def rough_spectrum(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("latent-spectrum")
    if result is None:
        return
    advice = (
        "fine-tune with scale equivariance: downsampled latents must decode to downsampled pictures"
    )
    for axes, value in result.excess.items():
        ends = pair(result.excess_interval.get(axes))
        where = "" if axes == "space" else f" along {axes}"
        rough = near_end(value, ends) > threshold
        yield Check(
            f"Latents have {times(value)} the high-frequency energy{where} of the pictures at the "
            "same size",
            f"High frequencies hold {percent(result.spectra[axes].high)} of the energy of latents "
            f"and {percent(result.picture_spectra[axes].high)} of that of pictures (white noise: "
            f"{percent(result.spectra[axes].chance)}); {result.samples:,} pictures"
            f"{between(ends)}.",
            advice if rough else "",
            "note" if rough else "healthy",
            0.5,
            value=value,
            interval=ends,
        )
    half = "1/2"
    if half in result.correspondence:
        value, ends = result.correspondence[half], pair(result.correspondence_interval.get(half))
        text = f"Smoothed latents do not decode to smoothed pictures (error {value:.2g})"
        evidence = (
            "Latents and pictures without the upper half of their frequencies; the error is "
            f"relative to the variance of smoothed pictures{between(ends)}."
        )
        if near_end(value, ends) > UNLIKE:
            yield Check(text, evidence, advice, "note", 0.5, value=value, interval=ends)
        elif value > UNLIKE:
            yield undecided(uncapitalise(text), evidence, value, ends)
        else:
            yield Check(
                f"Smoothed latents decode to smoothed pictures (error {value:.2g})",
                evidence,
                level="healthy",
                matters=0.5,
                value=value,
                interval=ends,
            )


WORDS = {
    "flips": "Flipping the picture does not flip the latents",
    "reversal of time": "Reversing time does not reverse the latents",
    "turns": "Turning the picture does not turn the latents",
    "shifts": "Shifting the picture does not shift the latents",
    "scaling": "Scaling the picture does not scale the latents",
}


def not_equivariant(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("equivariance")
    if result is None or not result.kinds:
        return
    kinds, limits = result.kinds, result.kind_intervals
    surest = {name: near_end(error, pair(limits.get(name))) for name, error in kinds.items()}
    by = surest if max(surest.values()) > threshold else kinds
    kind = max(kinds, key=lambda name: by[name])
    value, ends = kinds[kind], pair(limits.get(kind))
    inside = {name: each for name, each in result.transformations.items() if each.inside}
    outside = len(result.transformations) - len(inside)
    means = ", ".join(
        f"{name} {error:.2f}{between(ends) if name == kind else ''}"
        for name, error in kinds.items()
    )
    evidence = f"Mean errors: {means}; {result.samples:,} base pictures."
    if outside:
        words = "leaves the data and does" if outside == 1 else "leave the data and do"
        evidence += f" {outside} transformation{'' if outside == 1 else 's'} {words} not count."
    rows = table(
        ("transformation", "encoder", "decoder"),
        [(name, each.encoder, each.decoder) for name, each in inside.items()],
    )
    text = f"{WORDS[kind]} (error {value:.2f}; 1 = unrelated)"
    if near_end(value, ends) > threshold:
        yield Check(
            text,
            evidence,
            "fine-tune with an equivariance loss (EQ-VAE)",
            "note",
            0.45,
            table=rows,
            value=value,
            interval=ends,
        )
    elif value > threshold:
        yield undecided(uncapitalise(text), evidence, value, ends)
    else:
        yield Check(
            f"Latents follow {and_list(list(kinds))} of the picture (error at most "
            f"{value:.2f}; 1 = unrelated)",
            evidence,
            level="healthy",
            matters=0.5,
            table=rows,
            value=value,
            interval=ends,
        )


def fragile_decoder(facts: Facts, threshold: float) -> Iterable[Finding]:
    result = facts.get("noise-robustness")
    if result is None:
        return
    fragile = near_end(result.score, result.interval) > threshold
    exact = result.reconstruction <= EXACT
    tolerance = (
        "reconstructions are exact"
        if exact
        else f"even noise of {result.levels[-1]:g} std costs less than the reconstruction itself"
        if result.tolerance is None
        else f"noise of {result.tolerance:.2g} std costs as much as the reconstruction itself"
    )
    yield Check(
        f"Noise of 0.1 std costs {percent(0.01 * result.score)} of the variance",
        f"Gain {result.score:.2f}{between(result.interval)}; {tolerance}; "
        f"{result.samples:,} base pictures.",
        "train the decoder with noise on its latents" if fragile else "",
        "problem" if fragile else "healthy",
        0.7,
        value=result.score,
        interval=result.interval,
    )


def not_local(facts: Facts, threshold: float) -> Iterable[Finding]:
    result, layout = facts.get("locality"), facts.layout
    if result is None or layout is None or layout.positions < FEWEST_PLACES:
        return
    near = min(NEAR, len(result.within) - 1)
    value = float(result.within[near])
    ends = None if result.within_interval is None else pair(result.within_interval[near])
    text = (
        f"A change at one place moves the whole map ({percent(value)} stays within {near} places)"
    )
    evidence = (
        f"Of the squared response to a change of one channel at one place{between(ends)}; 90 % "
        f"within {result.reach} place{'' if result.reach == 1 else 's'}; {result.samples:,} base "
        "pictures."
    )
    if near_end(value, ends, above=False) < threshold:
        advice = "do not inpaint or tile in latent space"
        yield Check(text, evidence, advice, "note", 0.4, value=value, interval=ends)
    elif value < threshold:
        yield undecided(uncapitalise(text), evidence, value, ends)
    else:
        yield Check(
            f"A change at one place stays there ({percent(value)} within {near} places)",
            evidence,
            level="healthy",
            matters=0.4,
            value=value,
            interval=ends,
        )


def channels_respond(facts: Facts, threshold: float) -> Iterable[Finding]:
    layout = facts.layout
    matrix = None if layout is None else channel_matrix(facts.results, layout.channels)
    if matrix is None or len(matrix.causal) < 2:
        return
    edges, relative = matrix.edges(threshold), matrix.relative
    evidence = f"Relative responses (1: as strongly as to itself), {matrix.samples:,} pictures."
    causal = matrix.causal
    largest = max(float(relative[j, k]) for j in causal for k in causal if j != k)
    if not edges and largest <= threshold:
        yield Check(
            f"No channel responds to another (at most {largest:.2f}; 1 = as to itself)",
            evidence,
            level="healthy",
            matters=0.5,
            value=largest,
        )
        return
    if not edges:
        yield Check(
            f"Channels respond to each other by up to {largest:.2f}, but no response stands out",
            f"{evidence} None is clearly above both {threshold:g} and the noise of the posterior.",
            "interpret strong changes of one channel with care: they may move others too",
            "note",
            0.2,
            value=largest,
        )
        return
    edges.sort(key=lambda edge: -float(relative[edge]))
    joined = sorted({k for edge in edges for k in edge})
    mutual = all((k, j) in set(edges) for j, k in edges)
    if mutual:
        each = "each other" if len(joined) == 2 else "one another"
        text = f"{channels_text(joined)} respond to {each}"
    elif len(edges) == 1:
        text = f"Channel {edges[0][1]} responds to channel {edges[0][0]}"
    else:
        text = f"{len(edges)} responses between {channels_text(joined).lower()}"
    yield Check(
        f"{text} (up to {largest:.2f}; 1 = as to itself)",
        evidence,
        "edit them together: a change of one moves the other"
        f"{' too' if len(joined) == 2 else 's too'}",
        "note",
        0.4,
        table=table(
            ("changed channel", "responding channel", "response"),
            [(j, k, float(relative[j, k])) for j, k in edges],
        ),
        value=largest,
    )


def few_pictures(facts: Facts, threshold: float) -> Iterable[Finding]:
    result, channels = facts.get("latent-statistics"), alive(facts)
    if result is None or not channels:
        return
    worth = result.samples * result.independent_places[channels]
    least, total = int(worth.argmin()), len(result.mean)
    if float(worth[least]) < threshold * total:
        yield Finding(
            f"Only {result.samples:,} pictures were encoded for {total} channels",
            f"Their places are worth about {float(worth[least]):,.0f} independent numbers in "
            f"channel {channels[least]}.",
            "the numbers are rough; use more pictures if you can",
            "note",
            0.5,
        )
