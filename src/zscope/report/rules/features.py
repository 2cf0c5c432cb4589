"""Rules about the features of vectors."""

from collections.abc import Iterable

from zscope.report.findings import Facts, Finding, latents_text, table

__all__ = ["moved_features"]

MOST = 3  # latents in the sentence; the table of latents has all of them


def moved_features(facts: Facts, threshold: float) -> Iterable[Finding]:
    effects = facts.get("feature-effects")
    if effects is None:
        return
    used = [row["latent"] for row in facts.latents if row["latent"] in set(facts.used)]
    moving = [j for j in used if effects.text(j)]
    still = sorted(j for j in used if j not in moving)
    if moving:
        sentences = [f"latent {j} moves {effects.text(j)}" for j in moving[:MOST]]
        sentences[0] = sentences[0].replace("latent", "Latent", 1)
        more = f"; and {len(moving) - MOST} more latents" if len(moving) > MOST else ""
        yield Finding(
            "; ".join(sentences) + more,
            "From one standard deviation of the latent below its mean to one above, in standard "
            "deviations (sd) of the feature with 95 % intervals, and in its own units.",
            level="note",
            matters=0.45,
            table=table(
                ("latent", "moves"), [(j, effects.text(j, intervals=True)) for j in moving]
            ),
        )
    if still:
        yield Finding(
            f"{latents_text(still)} move{'s' if len(still) == 1 else ''} no feature by "
            f"{threshold:g} standard deviations",
            f"Largest effects: {', '.join(f'{effects.sizes[j].max():.2f} sd' for j in still[:6])}.",
            "train longer, or prune latents that change no feature",
            matters=0.3,
        )
