"""The rules: what is worth saying about a latent space, each with its threshold.

`RULES` lists them. A rule is a function of the facts and its threshold that yields what
it found; what it found and when it speaks are both shown on the page.
"""

from zscope.report.findings import DEAD, Rule
from zscope.report.rules import latents, scores, space

RULES = (
    Rule(
        "reconstruction",
        0.5,
        "The decoded observations hold less than {percent:g} % of the variance of the data.",
        latents.reconstruction,
    ),
    Rule(
        "dead latents",
        DEAD,
        "A latent of a variational model is passive (its posterior is the prior: mean variance "
        "within 0.1 of 1 and steady); one of a deterministic model gives back less than "
        "{threshold:g} of a change made to it.",
        latents.dead_latents,
    ),
    Rule(
        "unheard latents",
        DEAD,
        "A latent is not passive, yet gives back less than {threshold:g} of a change made to it.",
        latents.unheard_latents,
    ),
    Rule(
        "holes",
        0.05,
        "{percent:g} % or more of new samples move farther than 99 % of posterior samples do.",
        space.holes,
    ),
    Rule(
        "few samples",
        50,
        "Fewer than {threshold:g} observations for each latent.",
        latents.few_samples,
    ),
    Rule(
        "responding pairs",
        0.3,
        "Two causal latents each move the other by {threshold:g} or more of what it can move.",
        space.responding_pairs,
    ),
    Rule(
        "few dimensions",
        0.5,
        "The intrinsic dimension of the codes is below {threshold:g} times the latents in use (3 "
        "to 20 of them).",
        latents.few_dimensions,
    ),
    Rule(
        "invariance",
        0.7,
        "Mean invariance between latents in use is below {threshold:g}.",
        space.invariance,
    ),
    Rule(
        "unlike the prior",
        0.1,
        "Mean and spread of a latent over all posteriors are more than {threshold:g} nats from "
        "those of the prior.",
        space.unlike_the_prior,
    ),
    Rule(
        "correlated latents",
        0.5,
        "Draws of two latents in use are correlated by {threshold:g} or more.",
        space.correlated_latents,
    ),
    Rule(
        "structure",
        0.02,
        "The structure score is above {threshold:g}, at p ≤ 0.01.",
        space.structure,
    ),
    Rule(
        "mixed latents",
        0.1,
        "The posterior variance of a latent differs between observations (its variance is above "
        "{threshold:g}).",
        latents.mixed_latents,
    ),
    Rule(
        "scores at chance",
        0.02,
        "A score is less than {threshold:g} above the mean of shuffled codes, or less than three "
        "standard deviations of their scores (its interval reaches down to their mean, where "
        "fewer than five shuffles were made); a score that shuffled codes pass with 0.95 says "
        "nothing.",
        scores.at_chance,
    ),
    Rule(
        "factors spread over latents",
        0.2,
        "Explicitness is 0.7 or more and MIG below {threshold:g}.",
        scores.spread_over_latents,
    ),
)
