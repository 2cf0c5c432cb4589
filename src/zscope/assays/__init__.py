"""Assays: questions about a latent space, each answered by a frozen `Result`.

    from zscope import assays as a

    a.mig(recording)                        # or a.mig(codes, factors, kinds=...)
    a.response_matrix(recording).plot()
    zs.assay(recording)                     # everything that applies, as a report

`CATALOGUE` lists them all, so that the runner, command line, report, explorer and docs name
none. A new assay is one file (its `ENTRY` at the end), one test and one line here. Functions
are loaded when they are first used.
"""

from importlib import import_module
from typing import Any

from zscope.assays.entry import Entry, read_entry

# assay -> its file; the function is called as the assay, with underscores
_ASSAYS = {
    "response": "responses.response",
    "response-matrix": "responses.matrix",
    "conditioned-response-matrix": "responses.conditioned",
    "structure-panel": "responses.panel",
    "structure-score": "responses.structure",
    "causal-structure-score": "responses.structure",
    "interventional-consistency": "responses.consistency",
    "traversal-responses": "responses.traversal",
    "factor-place": "responses.place",
    "variable-nonlinearity": "responses.nonlinearity",
    "feature-effects": "responses.features",
    "hybridisation": "responses.hybridisation",
    "independence": "responses.independence",
    "masks": "responses.masks",
    "holes": "responses.holes",
    "response-map": "responses.maps",
    "manifold-path": "responses.paths",
    "drift": "responses.drift",
    "variable-types": "regime.types",
    "latent-histograms": "regime.latent_histograms",
    "latent-divergence": "regime.divergence",
    "rate-distortion": "regime.rate_distortion",
    "polarisation": "regime.approximation",
    "total-correlation": "regime.total_correlation",
    "mutual-information": "regime.mutual_information",
    "effective-rank": "regime.effective_rank",
    "truncation": "regime.truncation",
    "type-probe": "regime.probe",
    "predicted-variance": "regime.predicted_variance",
    "distance-to-orthogonality": "alignment.distance_to_orthogonality",
    "alignment-gap": "alignment.alignment_gap",
    "loss-decomposition": "alignment.loss_decomposition",
    "optimal-noise": "alignment.optimal_noise",
    "latent-ranking": "alignment.latent_ranking",
    "nonlinear-eigenfaces": "alignment.latent_ranking",
    "cartesian-or-polar": "alignment.cartesian_or_polar",
    "codes-against-pca": "alignment.codes_against_pca",
    "ima-curve": "alignment.ima_curve",
    "intrinsic-dimension": "dimension.intrinsic",
    "sample-quality": "generation.quality",
    "latent-statistics": "diffusion.statistics",
    "latent-spectrum": "diffusion.spectrum",
    "equivariance": "diffusion.equivariance",
    "noise-robustness": "diffusion.noise",
    "locality": "diffusion.locality",
    "unit-importance": "diffusion.importance",
    "reconstruction-quality": "diffusion.quality",
    "mig": "disentanglement.mig",
    "dci": "disentanglement.dci",
    "sap": "disentanglement.sap",
    "irs": "disentanglement.irs",
    "modularity": "disentanglement.modularity",
    "explicitness": "disentanglement.explicitness",
    "factor-vae-score": "disentanglement.factor_vae",
    "beta-vae-score": "disentanglement.beta_vae",
    "predictability-gap": "disentanglement.predictability_gap",
    "mig-sup": "disentanglement.mig_sup",
    "jemmig": "disentanglement.jemmig",
    "dcimig": "disentanglement.dcimig",
    "mcc": "disentanglement.mcc",
    "udr": "disentanglement.udr",
    "trace-gap": "dimension.gaps",
    "dimension-gap": "dimension.gaps",
    "cka": "similarity.cka",
    "procrustes": "similarity.procrustes",
    "svcca": "similarity.cca",
    "pwcca": "similarity.cca",
    "similarity-heatmap": "similarity.heatmap",
}

# Public functions that are not assays of one recording by themselves.
_FUNCTIONS = {
    "StreamingCKA": "similarity.cka",
    "VarianceMoments": "regime.types",
    "activations": "similarity.activations",
    "area_between": "regime.rate_distortion_curve",
    "binary_fondue": "dimension.fondue",
    "carried_information": "regime.rate_distortion",
    "column_product": "alignment.column_product",
    "correlation_tracking": "regime.tracking",
    "dataset_alignment": "alignment.dataset_alignment",
    "decoder_jacobian": "jacobian",
    "fondue": "dimension.fondue",
    "fondue_beta": "dimension.fondue",
    "fondue_types": "dimension.fondue",
    "frechet_distance": "generation.frechet",
    "gaussian_kl": "regime.divergence",
    "hole_score": "responses.holes",
    "information_gap": "dimension.gaps",
    "mmd": "responses.mmd",
    "nearest_neighbours": "neighbours",
    "nearest_signed_permutation": "alignment.distance_to_orthogonality",
    "pair_traversal": "alignment.cartesian_or_polar",
    "precision_recall": "generation.precision_recall",
    "rate_distortion_curve": "regime.rate_distortion_curve",
    "renyi_entropy": "dimension.renyi",
    "renyi_information": "dimension.renyi",
    "respond": "engine",
    "repeat_fondue": "dimension.repeated_fondue",
    "replay_fondue": "dimension.repeated_fondue",
    "respond_posterior": "engine",
    "rotation_excess": "alignment.column_product",
    "settled_fraction": "regime.approximation",
    "stable_fondue": "dimension.fondue",
    "variable_types_by_kl": "regime.types",
}

CATALOGUE: dict[str, Entry] = {
    name: read_entry(name, f"zscope.assays.{module}") for name, module in _ASSAYS.items()
}

__all__ = ["CATALOGUE", "Entry", "groups"]
__all__ += list(_FUNCTIONS)
__all__ += [entry.attribute for entry in CATALOGUE.values()]


def groups() -> dict[str, list[str]]:
    """The folders of this package, each with the assays of one recording in it.

    Those that are measured on request only are named one by one.
    """
    members: dict[str, list[str]] = {}
    for entry in CATALOGUE.values():
        if not entry.compares and not entry.on_request:
            members.setdefault(entry.group, []).append(entry.name)
    return members


def __getattr__(name: str) -> Any:
    entry = CATALOGUE.get(name.replace("_", "-"))
    if entry is not None and entry.attribute == name:
        value: Any = entry.load()
    elif name in _FUNCTIONS:
        value = getattr(import_module(f"zscope.assays.{_FUNCTIONS[name]}"), name)
        if not isinstance(value, type):
            from zscope.assays.arguments import checked

            value = checked(value)
    else:
        raise AttributeError(f"module 'zscope.assays' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
