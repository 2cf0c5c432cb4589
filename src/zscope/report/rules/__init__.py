"""The rules: what is checked about a latent space, each with its threshold.

`RULES` lists them. A rule is a function of the facts and its threshold that yields findings;
a finding is shown on the page together with what was checked.
"""

from zscope.report.findings import DEAD, Rule
from zscope.report.rules import latents, scores, space

__all__ = ["RULES"]

RULES = (
    Rule(
        "reconstruction",
        0.5,
        "Reconstructions explain at least {percent:g} % of the variance.",
        latents.reconstruction,
        of_collapsed=True,
    ),
    Rule(
        "dead latents",
        DEAD,
        "Every latent is in use: in a variational model it is not passive (mean posterior variance "
        "within 0.1 of the prior's, and nearly constant), in a deterministic one its response is "
        "at least {threshold:g}.",
        latents.dead_latents,
        of_collapsed=True,
    ),
    Rule(
        "ignored latents",
        DEAD,
        "Every latent that is not passive has a response of at least {threshold:g}.",
        latents.ignored_latents,
    ),
    Rule(
        "holes",
        0.05,
        "Fewer than {percent:g} % of new samples move farther than 99 % of posterior samples when "
        "they are decoded and encoded again.",
        space.holes,
    ),
    Rule(
        "few samples",
        50,
        "There are at least {threshold:g} observations per latent.",
        latents.few_samples,
        of_collapsed=True,
    ),
    Rule(
        "responding pairs",
        0.3,
        "No two causal latents respond to each other by {threshold:g} or more (relative response, "
        "in both directions).",
        space.responding_pairs,
    ),
    Rule(
        "few dimensions",
        0.5,
        "The intrinsic dimension of the codes is at least {threshold:g} times the number of "
        "latents in use (where 3 to 20 are).",
        latents.few_dimensions,
    ),
    Rule(
        "invariance",
        0.7,
        "Mean invariance between latents in use is at least {threshold:g}.",
        space.invariance,
    ),
    Rule(
        "unlike the prior",
        0.1,
        "Mean and variance of every latent, over all posteriors, are within {threshold:g} nats of "
        "the prior.",
        space.unlike_the_prior,
    ),
    Rule(
        "correlated latents",
        0.5,
        "Posterior samples of any two latents in use are correlated by less than {threshold:g}.",
        space.correlated_latents,
    ),
    Rule(
        "structure",
        0.02,
        "The structure score is at most {threshold:g}, or p is above 0.01.",
        space.structure,
    ),
    Rule(
        "mixed latents",
        0.1,
        "The posterior variance of every latent is similar for all observations (its variance is "
        "at most {threshold:g}).",
        latents.mixed_latents,
    ),
    Rule(
        "scores at chance",
        0.02,
        "Every score exceeds the mean score of shuffled codes by at least {threshold:g} and by "
        "three standard deviations (with fewer than five shuffles: its interval lies above that "
        "mean). A score for which shuffled codes get more than 0.95 is uninformative.",
        scores.at_chance,
    ),
    Rule(
        "factors spread over latents",
        0.2,
        "Where explicitness is 0.7 or more, MIG is at least {threshold:g}.",
        scores.spread_over_latents,
    ),
)
