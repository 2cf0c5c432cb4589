"""What trains and measures: comparison, searches, perturbation, and the studies of papers.

Functions are loaded when they are first used. None has the name of a module of this package:
importing that module would hide the function behind it.
"""

from typing import TYPE_CHECKING, Any

from zscope.lazy import load_attribute

if TYPE_CHECKING:
    from zscope.experiments.beta_choice import choice_of_beta
    from zscope.experiments.comparison import compare, correlations_over_training
    from zscope.experiments.comparison_of_runs import compare_runs
    from zscope.experiments.elbows import downstream_accuracy, elbow, similarity_preservation
    from zscope.experiments.extrapolation import extrapolate, mean_squared_error
    from zscope.experiments.fondue_training import fondue
    from zscope.experiments.over_training import fall_step
    from zscope.experiments.perturbation import perturb
    from zscope.experiments.perturbation.evaluation import evaluate_perturbation
    from zscope.experiments.rate_distortion import rate_distortion_curves
    from zscope.experiments.replay import stored_trials
    from zscope.experiments.searches import elbow_curve, search_beta
    from zscope.experiments.selection import select_models
    from zscope.experiments.training_dynamics import dynamics

__all__ = [
    "choice_of_beta",
    "compare",
    "compare_runs",
    "correlations_over_training",
    "downstream_accuracy",
    "dynamics",
    "elbow",
    "elbow_curve",
    "evaluate_perturbation",
    "extrapolate",
    "fall_step",
    "fondue",
    "mean_squared_error",
    "perturb",
    "rate_distortion_curves",
    "search_beta",
    "select_models",
    "similarity_preservation",
    "stored_trials",
]

_HOMES = {
    "choice_of_beta": "beta_choice",
    "compare": "comparison",
    "compare_runs": "comparison_of_runs",
    "correlations_over_training": "comparison",
    "downstream_accuracy": "elbows",
    "dynamics": "training_dynamics",
    "elbow": "elbows",
    "elbow_curve": "searches",
    "evaluate_perturbation": "perturbation.evaluation",
    "extrapolate": "extrapolation",
    "fall_step": "over_training",
    "fondue": "fondue_training",
    "mean_squared_error": "extrapolation",
    "perturb": "perturbation",
    "rate_distortion_curves": "rate_distortion",
    "search_beta": "searches",
    "select_models": "selection",
    "similarity_preservation": "elbows",
    "stored_trials": "replay",
}


def __getattr__(name: str) -> Any:
    return load_attribute(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
