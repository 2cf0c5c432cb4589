"""The rules: what is checked about a latent space, each with its threshold.

`RULES` lists them. A rule is a function of the facts and its threshold that yields findings;
a finding is shown on the page together with what was checked.
"""

from zscope.assays.pictures import NOISE
from zscope.assays.responses.matrix import LEAK
from zscope.determinism import TOLERANCE
from zscope.report.channels import LEAST_IMPORTANCE
from zscope.report.findings import Rule
from zscope.report.rules import diffusion, features, latents, model, scores, space
from zscope.usage import EFFECT, NATS

__all__ = ["RULES"]

RULES = (
    Rule(
        "no numbers",
        0,
        "Of a few codes of the data, {threshold:g} are decoded to NaN or infinite numbers.",
        model.no_numbers,
        of_collapsed=True,
        latents="any",
    ),
    Rule(
        "not a function",
        TOLERANCE,
        "Encoder and decoder give the same results (within {threshold:g} standard deviations) for "
        "the same input, called twice and with one input alone.",
        model.not_a_function,
        of_collapsed=True,
        latents="any",
    ),
    Rule(
        "reconstruction",
        0.5,
        "Reconstructions explain at least {percent:g} % of the variance.",
        latents.reconstruction,
        of_collapsed=True,
        latents="any",
    ),
    Rule(
        "dead latents",
        NATS,
        "Every latent is in use: in a variational model its posterior encodes at least "
        "{threshold:g} nats about the observations, in a deterministic one it changes the decoded "
        f"observation by at least {100 * EFFECT:g} %.",
        latents.dead_latents,
        of_collapsed=True,
    ),
    Rule(
        "ignored latents",
        latents.LOST,
        "Every latent in use has a response of at least {threshold:g}.",
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
        "holes between channels",
        0.05,
        "The share of channel hybrids that move farther than nearly all pictures, when they are "
        "decoded and encoded again, is above that of the pictures by less than {percent:g} %, as "
        "far as its interval tells.",
        space.holes_between_channels,
        latents="maps",
    ),
    Rule(
        "moved features",
        0.1,
        "Of vectors: every latent in use moves at least one feature by {threshold:g} of its "
        "standard deviations.",
        features.moved_features,
    ),
    Rule(
        "unlike data",
        0.05,
        "Fewer than {percent:g} % of new samples decode to observations farther from the data than "
        "their spacing and 99 % of decoded posterior samples.",
        space.unlike_data,
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
        LEAK,
        "No causal latent responds to another: by more than {percent:g} % of a change of its own, "
        "and by more than the noise of its posterior.",
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
        f"Fewer than {100 * scores.MANY_REACH:g} % of shuffled codes reach a score, and it exceeds "
        "the mean of the others (without the largest) by at least {threshold:g} and by "
        f"{scores.DEVIATIONS} standard deviations (with fewer than five shuffles: the code encodes "
        "a factor, and the interval lies above that mean). Gaps between latents are also small "
        "where latents share a factor; they count only if the code encodes no factor. A score "
        "for which shuffled codes get more than 0.95 is uninformative.",
        scores.at_chance,
    ),
    Rule(
        "factors spread over latents",
        0.5,
        "Of each factor that the code encodes, the best latent explains at least "
        f"{100 * scores.LEAST_SHARE:g} %, and every other has less than {{percent:g}} % of its "
        "information.",
        scores.spread_over_latents,
    ),
    Rule(
        "missing factors",
        0.1,
        "Every factor can be predicted from the code by boosted trees, on held-out rows. With a "
        "skill below {threshold:g} (more where few rows make it uncertain) it is not encoded, "
        f"below {scores.PART:g} only in part.",
        scores.missing_factors,
    ),
    Rule(
        "polar pairs",
        scores.RINGS_MARGIN,
        "No angle between two latents explains more of a factor with ordered values, by "
        "{threshold:g} of its entropy, than every straight direction in their plane, and most of "
        "what both explain together, while both have most of the skill of the whole code.",
        scores.polar_pairs,
    ),
    Rule(
        "decoder axes",
        0.8,
        "The distance of the latents from the decoder's orthogonal directions is below {percent:g} "
        f"% of chance (healthy: below {100 * space.ALIGNED:g} %).",
        space.decoder_axes,
    ),
    Rule(
        "dead channel",
        0.1,
        "Every channel carries something: in a variational model its posterior variance, over "
        "pictures and places, is not that of the prior (within {threshold:g} of 1); its response "
        f"is at least {{threshold:g}} or its importance at least {LEAST_IMPORTANCE:g} (or, in a "
        f"variational model, less than {100 * NOISE:g} % of it is noise).",
        diffusion.dead_channels,
        of_collapsed=True,
        latents="maps",
    ),
    Rule(
        "scale off",
        1.5,
        "As the model declares that they are scaled, the latents have a standard deviation between "
        f"1 / {{threshold:g}} and {{threshold:g}} (worth a note: outside 1 / "
        f"{diffusion.CLOSE_SCALE:g} to {diffusion.CLOSE_SCALE:g}).",
        diffusion.scale_off,
        latents="maps",
    ),
    Rule(
        "channels unequal",
        2,
        "Standard deviations of channels differ at most {threshold:g} times, and no mean is more "
        f"than {diffusion.FAR_MEAN:g} standard deviations from 0; as the model declares that "
        "they are scaled.",
        diffusion.channels_unequal,
        latents="maps",
    ),
    Rule(
        "one channel dominates",
        0.9,
        "Of three or more channels, none alone explains more than {percent:g} % of what all "
        "explain.",
        diffusion.one_channel_dominates,
        latents="maps",
    ),
    Rule(
        "heavy tails",
        6,
        "No channel has an excess kurtosis above {threshold:g} or a skewness beyond "
        f"±{diffusion.SKEWED:g}.",
        diffusion.heavy_tails,
        latents="maps",
    ),
    Rule(
        "posterior without noise",
        1e-4,
        "Of a variational model: the posterior variance is at least {threshold:g} of the variance "
        "of some channel.",
        diffusion.posterior_noise,
        latents="maps",
    ),
    Rule(
        "rough spectrum",
        1.5,
        "The share of high frequencies is at most {threshold:g} times that of the pictures at the "
        "same size, and latents without the upper half of their frequencies decode to pictures "
        f"without theirs (error at most {diffusion.UNLIKE:g}).",
        diffusion.rough_spectrum,
        latents="maps",
    ),
    Rule(
        "not equivariant",
        0.25,
        "Transformed pictures have transformed latents: the mean errors of flips, turns, shifts "
        "and scaling, as far as they stay inside the data, are at most {threshold:g}.",
        diffusion.not_equivariant,
        latents="maps",
    ),
    Rule(
        "fragile decoder",
        4,
        "The decoder amplifies small noise on the latents by at most {threshold:g} (as a share of "
        "the variance; 1 for the identity).",
        diffusion.fragile_decoder,
        latents="maps",
    ),
    Rule(
        "not local",
        0.5,
        f"Of maps with at least {diffusion.FEWEST_PLACES} places: at least {{percent:g}} % of the "
        f"response to a change at one place stays within {diffusion.NEAR} places.",
        diffusion.not_local,
        latents="maps",
    ),
    Rule(
        "channels respond together",
        LEAK,
        "No causal channel responds to another: by more than {percent:g} % of a change of its own, "
        "and by more than the noise of its posterior.",
        diffusion.channels_respond,
        latents="maps",
    ),
    Rule(
        "few pictures",
        50,
        "The places of all pictures are worth at least {threshold:g} independent numbers for each "
        "channel.",
        diffusion.few_pictures,
        of_collapsed=True,
        latents="maps",
    ),
)
