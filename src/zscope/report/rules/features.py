"""Rules about the features of vectors."""

from collections.abc import Iterable

from zscope.report.findings import Facts, Finding, latents_text, table

__all__ = ["moved_features"]


def moved_features(facts: Facts, threshold: float) -> Iterable[Finding]:
    effects = facts.get("feature-effects")
    if effects is None:
        return
    used = [row["latent"] for row in facts.latents if row["latent"] in set(facts.used)]
    moving = [j for j in used if effects.text(j)]
    still = sorted(j for j in used if j not in moving)
    if moving:
        parts = [(j, effects.text(j, intervals=True)) for j in moving]
        others = len(moving) - 1
        more = f", and {others} other latent{'s move' if others > 1 else ' moves'} features too"
        both_ways = " ±: up from some codes and down from others." * any("±" in t for _, t in parts)
        yield Finding(
            f"Latent {moving[0]} moves {effects.text(moving[0], most=2)}{more if others else ''}",
            "From one standard deviation of the latent below its mean to one above, in standard "
            f"deviations (sd) of the feature with 95 % intervals, and in its own units.{both_ways}",
            level="note",
            matters=0.45,
            table=table(("latent", "moves"), parts),
        )
    if still:
        yield Finding(
            f"{latents_text(still)} move{'s' if len(still) == 1 else ''} no feature by "
            f"{threshold:g} standard deviations",
            "The largest effect of each on a feature, in standard deviations of the feature.",
            "train longer, or prune latents that change no feature",
            matters=0.3,
            table=table(
                ("latent", "largest effect, sd", "expected"),
                [(j, float(effects.sizes[j].max()), f"at least {threshold:g}") for j in still],
            ),
        )
