"""Assays: questions about a latent space, each with its answer as a frozen `Result`.

    from zscope import assays

    assays.response_matrix(autoencoder, recording.posterior).plot()
    assays.measure(recording)                       # everything that applies

`CATALOGUE` lists them all, so that command line, report, explorer and docs name none.
A new assay is one module, one test and one `Entry` here. Functions are loaded when they
are first used.
"""

from importlib import import_module
from typing import Any

from zscope.assays.entry import Entry

_ENTRIES = (
    Entry(
        "response",
        "What becomes of a code that is decoded and encoded again?",
        "zscope.assays.responses.response:response",
        takes=("autoencoder", "posterior"),
        options={"samples": 1024},
    ),
    Entry(
        "response-matrix",
        "Which latents matter, and which depend on which?",
        "zscope.assays.responses.matrix:response_matrix",
        takes=("autoencoder", "posterior"),
    ),
    Entry(
        "conditioned-response-matrix",
        "Which latent carries which factor, as the decoder sees it?",
        "zscope.assays.responses.conditioned:conditioned_response_matrix",
        takes=("autoencoder", "data", "posterior=posterior"),
        needs=("factors", "two factors"),
    ),
    Entry(
        "structure-score",
        "Do samples of the prior survive decoding and encoding?",
        "zscope.assays.responses.structure:structure_score",
        takes=("autoencoder", "posterior"),
    ),
    Entry(
        "causal-structure-score",
        "Do samples of the prior survive, seen by the latents that matter alone?",
        "zscope.assays.responses.structure:structure_score",
        takes=("autoencoder", "posterior"),
        options={"only_causal": True},
    ),
    Entry(
        "interventional-consistency",
        "Does a change made to one latent survive, and touch nothing else?",
        "zscope.assays.responses.consistency:interventional_consistency",
        takes=("autoencoder", "posterior"),
    ),
    Entry(
        "traversal-responses",
        "Where along a traversal does the encoder lose track?",
        "zscope.assays.responses.traversal:traversal_responses",
        takes=("autoencoder", "codes"),
    ),
    Entry(
        "hybridisation",
        "What does each latent of one sample do in another?",
        "zscope.assays.responses.hybridisation:hybridisation",
        takes=("autoencoder", "codes"),
    ),
    Entry(
        "independence",
        "Are the latents independent of each other?",
        "zscope.assays.responses.independence:independence",
        takes=("posterior",),
    ),
    Entry(
        "holes",
        "How much of the prior lies in holes, where decoding goes astray?",
        "zscope.assays.responses.holes:holes",
        takes=("autoencoder", "posterior"),
    ),
    Entry(
        "response-map",
        "Where in a plane of latents do codes of data lie, and where are the seams?",
        "zscope.assays.responses.maps:response_map",
        takes=("autoencoder", "base", "plane", "codes=codes"),
        needs=("two latents",),
        options={"decode_grid": 12},
    ),
    Entry(
        "manifold-path",
        "How does one get from one code to another without leaving the manifold?",
        "zscope.assays.responses.paths:manifold_path",
        takes=("autoencoder", "first_code", "last_code", "codes=codes"),
    ),
    Entry(
        "drift",
        "Where do codes end up when they are decoded and encoded again and again?",
        "zscope.assays.responses.drift:drift",
        takes=("autoencoder", "some_codes"),
    ),
    Entry(
        "variable-types",
        "Which latents are used, which are noise, which are now this, now that?",
        "zscope.assays.regime.types:variable_types",
        takes=("variances", "kl=own_divergence"),
        needs=("spread",),
    ),
    Entry(
        "latent-divergence",
        "How many nats does each latent carry about the observation?",
        "zscope.assays.regime.divergence:latent_divergence",
        takes=("relative",),
        needs=("spread",),
    ),
    Entry(
        "rate-distortion",
        "What does the model pay for its latents, and what does it get?",
        "zscope.assays.regime.rate_distortion:rate_distortion",
        takes=("autoencoder", "observations"),
        needs=("spread",),
        options={"samples": 2000},
    ),
    Entry(
        "polarisation",
        "Are latents either fully used or not at all?",
        "zscope.assays.regime.approximation:polarisation",
        takes=("posterior",),
        needs=("spread",),
    ),
    Entry(
        "total-correlation",
        "How many nats do the latents share, were they Gaussian?",
        "zscope.assays.regime.total_correlation:total_correlation",
        takes=("codes",),
        needs=("two latents",),
    ),
    Entry(
        "mutual-information",
        "How much does one latent tell of another, on average?",
        "zscope.assays.regime.mutual_information:mutual_information",
        takes=("codes",),
        needs=("two latents",),
    ),
    Entry(
        "effective-rank",
        "Over how many directions is the variance of the codes spread?",
        "zscope.assays.regime.effective_rank:effective_rank",
        takes=("codes",),
    ),
    Entry(
        "truncation",
        "Which type of latent makes the means differ from the samples?",
        "zscope.assays.regime.truncation:truncation",
        takes=("posterior",),
        needs=("spread", "two latents"),
    ),
    Entry(
        "type-probe",
        "What do the latents of each type tell a linear reader about the factors?",
        "zscope.assays.regime.probe:type_probe",
        takes=("posterior", "factors"),
        needs=("factors",),
        options={"samples": 1500, "penalties": 3, "folds": 2},
    ),
    Entry(
        "correlation-tracking",
        "Do passive latents correlate with others during training?",
        "zscope.assays.regime.tracking:correlation_tracking",
        takes=("codes",),
        needs=("a call",),
    ),
    Entry(
        "predicted-variance",
        "Does the decoder explain how precise the encoder is?",
        "zscope.assays.regime.predicted_variance:predicted_variance",
        takes=("autoencoder", "posterior"),
        needs=("spread",),
        options={"samples": 128},
    ),
    Entry(
        "distance-to-orthogonality",
        "Does the decoder stretch space along its latent axes?",
        "zscope.assays.alignment.distance_to_orthogonality:distance_to_orthogonality",
        takes=("autoencoder", "posterior"),
        needs=("two latents",),
        options={"samples": 256},
    ),
    Entry(
        "alignment-gap",
        "Do different latents change the observation in orthogonal ways?",
        "zscope.assays.alignment.alignment_gap:alignment_gap",
        takes=("autoencoder", "posterior"),
        needs=("two latents",),
        options={"samples": 128},
    ),
    Entry(
        "loss-decomposition",
        "How much of the reconstruction error is paid for noise in the latents?",
        "zscope.assays.alignment.loss_decomposition:loss_decomposition",
        takes=("autoencoder", "observations", "posterior=posterior"),
        needs=("spread",),
        options={"samples": 64},
    ),
    Entry(
        "optimal-noise",
        "Does the model spend its precision where the theory says it should?",
        "zscope.assays.alignment.optimal_noise:optimal_noise",
        takes=("autoencoder", "posterior"),
        needs=("spread", "two latents"),
        options={"samples": 128},
    ),
    Entry(
        "latent-ranking",
        "Which latent matters most, as principal components are ranked?",
        "zscope.assays.alignment.latent_ranking:latent_ranking",
        takes=("posterior",),
        needs=("spread",),
    ),
    Entry(
        "nonlinear-eigenfaces",
        "What do the latents that matter most do to a mean observation?",
        "zscope.assays.alignment.latent_ranking:nonlinear_eigenfaces",
        takes=("autoencoder", "posterior"),
        needs=("spread",),
    ),
    Entry(
        "cartesian-or-polar",
        "Do two latents hold two factors as x and y, or as angle and radius?",
        "zscope.assays.alignment.cartesian_or_polar:cartesian_or_polar",
        takes=("codes", "factors", "variances=variances"),
        needs=("factors", "two factors", "two latents"),
    ),
    Entry(
        "intrinsic-dimension",
        "How many numbers would it take to say where a code lies?",
        "zscope.assays.dimension.intrinsic:intrinsic_dimension",
        takes=("codes",),
    ),
    Entry(
        "sample-quality",
        "How close to the data are reconstructions, samples and traversals?",
        "zscope.assays.generation.quality:sample_quality",
        takes=("autoencoder", "observations", "posterior=posterior"),
    ),
    Entry(
        "frechet-distance",
        "How far apart are two sets of observations, as Gaussians of features?",
        "zscope.assays.generation.frechet:frechet_distance",
        takes=("codes",),
        needs=("a call",),
    ),
    Entry(
        "precision-recall",
        "Are samples like real data, and are all real data like some sample?",
        "zscope.assays.generation.precision_recall:precision_recall",
        takes=("codes",),
        needs=("a call",),
    ),
    Entry(
        "mig",
        "Is each factor found in one code, and in one only?",
        "zscope.assays.disentanglement.mig:mig",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "dci",
        "Is each code about one factor, each factor in one code, and all of it there?",
        "zscope.assays.disentanglement.dci:dci",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "sap",
        "How much better does the best code predict a factor than the second best?",
        "zscope.assays.disentanglement.sap:sap",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "irs",
        "Does a code stay put while its factor is held and everything else changes?",
        "zscope.assays.disentanglement.irs:irs",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "modularity",
        "Does each code depend on a single factor?",
        "zscope.assays.disentanglement.modularity:modularity",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "explicitness",
        "Can the factors be read off the codes by a linear classifier?",
        "zscope.assays.disentanglement.explicitness:explicitness",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "factor-vae-score",
        "If one factor is held, does the steadiest code say which one it was?",
        "zscope.assays.disentanglement.factor_vae:factor_vae_score",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "beta-vae-score",
        "Can a linear classifier see which factor a set of pairs has in common?",
        "zscope.assays.disentanglement.beta_vae:beta_vae_score",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "predictability-gap",
        "How much better than any other does one code predict a factor?",
        "zscope.assays.disentanglement.predictability_gap:predictability_gap",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "mig-sup",
        "Does each code tell about one factor, and about one only?",
        "zscope.assays.disentanglement.mig_sup:mig_sup",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "jemmig",
        "Is each factor told by one code, which tells nothing else?",
        "zscope.assays.disentanglement.jemmig:jemmig",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "dcimig",
        "How much of the factors is told by codes that serve one factor each?",
        "zscope.assays.disentanglement.dcimig:dcimig",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "mcc",
        "Can codes and factors be matched one to one so that each pair is correlated?",
        "zscope.assays.disentanglement.mcc:mcc",
        takes=("codes", "factors", "variances=variances", "kinds=kinds"),
        needs=("factors",),
    ),
    Entry(
        "udr",
        "Do models that differ only in their seed find the same codes?",
        "zscope.assays.disentanglement.udr:udr",
        takes=("codes",),
        needs=("two models",),
    ),
    Entry(
        "trace-gap",
        "How many latents, counted in parts, are noise?",
        "zscope.assays.dimension.gaps:trace_gap",
        takes=("posterior",),
        needs=("spread",),
    ),
    Entry(
        "dimension-gap",
        "How many dimensions do samples have that means do not?",
        "zscope.assays.dimension.gaps:dimension_gap",
        takes=("posterior",),
        needs=("spread",),
    ),
    Entry(
        "fondue",
        "How many latents can a model have before some are of no use?",
        "zscope.assays.dimension.fondue:fondue",
        takes=("codes",),
        needs=("a call",),
    ),
    Entry(
        "cka",
        "Do two representations arrange the same samples alike?",
        "zscope.assays.similarity.cka:cka",
        takes=("codes", "codes"),
        needs=("two models",),
    ),
    Entry(
        "procrustes",
        "How closely can one representation be turned onto the other?",
        "zscope.assays.similarity.procrustes:procrustes",
        takes=("codes", "codes"),
        needs=("two models",),
    ),
    Entry(
        "svcca",
        "Which directions of two representations move together?",
        "zscope.assays.similarity.cca:svcca",
        takes=("codes", "codes"),
        needs=("two models",),
    ),
    Entry(
        "pwcca",
        "Which directions move together, weighted by what they account for?",
        "zscope.assays.similarity.cca:pwcca",
        takes=("codes", "codes"),
        needs=("two models",),
    ),
    Entry(
        "similarity-heatmap",
        "Which layers of two models, or of one model at two times, agree?",
        "zscope.assays.similarity.heatmap:similarity_heatmap",
        takes=("codes", "codes"),
        needs=("two models",),
    ),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}

# Names that stand for several assays at once.
GROUPS = {
    "disentanglement": (
        "mig",
        "dci",
        "sap",
        "irs",
        "modularity",
        "explicitness",
        "factor-vae-score",
        "beta-vae-score",
        "predictability-gap",
        "mig-sup",
        "jemmig",
        "dcimig",
        "mcc",
    ),
}

# Public functions that answer no catalogued question by themselves.
_FURTHER = {
    "binary_fondue": "zscope.assays.dimension.fondue",
    "column_product": "zscope.assays.alignment.column_product",
    "decoder_jacobian": "zscope.assays.jacobian",
    "fondue_beta": "zscope.assays.dimension.fondue",
    "fondue_types": "zscope.assays.dimension.fondue",
    "information_gap": "zscope.assays.dimension.gaps",
    "nearest_signed_permutation": "zscope.assays.alignment.distance_to_orthogonality",
    "pair_traversal": "zscope.assays.alignment.cartesian_or_polar",
    "rotation_excess": "zscope.assays.alignment.column_product",
    "renyi_entropy": "zscope.assays.dimension.renyi",
    "renyi_information": "zscope.assays.dimension.renyi",
    "stable_fondue": "zscope.assays.dimension.fondue",
    "StreamingCKA": "zscope.assays.similarity.cka",
    "activations": "zscope.assays.similarity.activations",
    "disentanglement_scores": "zscope.assays.disentanglement.scores",
    "carried_information": "zscope.assays.regime.rate_distortion",
    "gaussian_kl": "zscope.assays.regime.divergence",
    "nearest_neighbours": "zscope.assays.neighbours",
    "settled_fraction": "zscope.assays.regime.approximation",
    "variable_types_by_kl": "zscope.assays.regime.types",
    "VarianceMoments": "zscope.assays.regime.types",
    "hole_score": "zscope.assays.responses.holes",
    "measure": "zscope.assays.measuring",
    "mmd": "zscope.assays.responses.mmd",
    "respond": "zscope.assays.engine",
    "respond_posterior": "zscope.assays.engine",
}
_HOMES = {entry.attribute: entry.function.split(":")[0] for entry in _ENTRIES} | _FURTHER

__all__ = ["CATALOGUE", "GROUPS", "Entry"]
__all__ += list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zscope.assays' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
