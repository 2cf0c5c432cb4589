"""What trains and measures: comparison, searches, perturbation, and the studies of papers.

The functions are imported here at once rather than when first used: some have the name of
their module, and importing that module later would hide the function behind it.
"""

from zscope.experiments.choice_of_beta import choice_of_beta
from zscope.experiments.comparison import compare, correlations_over_training
from zscope.experiments.comparison_of_runs import compare_runs
from zscope.experiments.dynamics import dynamics
from zscope.experiments.elbow import downstream_accuracy, elbow, similarity_preservation
from zscope.experiments.extrapolation import extrapolate, mean_squared_error
from zscope.experiments.fondue import fondue
from zscope.experiments.over_training import fall_step
from zscope.experiments.perturbation import perturb
from zscope.experiments.perturbation.evaluation import evaluate_perturbation
from zscope.experiments.rate_distortion import rate_distortion_curves
from zscope.experiments.replay import stored_trials
from zscope.experiments.searches import elbow_curve, search_beta
from zscope.experiments.selection import select_models

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


def __dir__() -> list[str]:
    return sorted(__all__)
