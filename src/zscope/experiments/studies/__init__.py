"""Studies: the experiments of papers as short files, with their claims judged.

    from zscope.experiments import studies

    results = studies.run_study(studies.load("responses-helix"), "studies")

One module is one study: a grid of runs, what is measured of them, and the tables, figures and
claims that follow from the measurements (`study.py`). A new one is one module and one line here.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zscope.declared import declared
from zscope.errors import ConfigError, did_you_mean
from zscope.lazy import load_attribute

if TYPE_CHECKING:
    from zscope.experiments.studies.study import Study

__all__ = ["CATALOGUE", "address", "load", "names", "outline", "prepare_study",
           "run_study"]  # fmt: skip

# name -> module.
CATALOGUE: dict[str, str] = {
    "responses-helix": "responses_helix",
    "responses-structure": "responses_structure",
    "responses-disentanglement": "responses_disentanglement",
    "responses-maps": "responses_maps",
    "responses-plane": "responses_plane",
    "consistency": "consistency",
    "consistency-families": "consistency_families",
    "consistency-masks": "consistency_masks",
    "pca-alignment": "pca_alignment",
    "pca-degenerate": "pca_degenerate",
    "pca-regime": "pca_regime",
    "pca-restarts": "pca_restarts",
    "pca-perturbed": "pca_perturbed",
    "pca-perturbed-rooms": "pca_perturbed_rooms",
    "pca-perturbed-sweep": "pca_perturbed_sweep",
    "pca-beta-search": "pca_beta_search",
    "ima": "ima",
    "ivae-histograms": "ivae_histograms",
    "regime-types": "regime_types",
    "regime-mean-sampled": "regime_mean_sampled",
    "regime-truncation": "regime_truncation",
    "regime-correlations": "regime_correlations",
    "regime-dynamics": "regime_dynamics",
    "regime-classifier": "regime_classifier",
    "fondue": "fondue",
    "fondue-pressure": "fondue_pressure",
    "fondue-elbows": "fondue_elbows",
    "ide-over-training": "ide_over_training",
    "structural-scores": "structural_scores",
    "structural-order": "structural_order",
    "hybrid-sampling": "hybrid_sampling",
    "extrapolation": "extrapolation",
}

LISTED = ("name", "document", "title", "rows", "grids", "minutes", "own_minutes", "made")
"""What lists show of a study. It is read from the file of the study without running it."""


def names() -> list[str]:
    """The names of all studies."""
    return list(CATALOGUE)


def outline(name: str) -> "Study":
    """The study of that name without its measures and claims, which need torch: what lists show."""
    if name.endswith(".py"):
        return load(name)
    from zscope.experiments.studies.study import Study

    return Study(**declared(_module(name), "STUDY", LISTED), measures=(), claims=lambda results: ())


def load(name: str) -> "Study":
    """The study of that name, or the one in a Python file of one's own."""
    if name.endswith(".py"):
        return _load_file(Path(name))
    study: Study = import_module(_module(name)).STUDY
    return study


def _module(name: str) -> str:
    if name not in CATALOGUE:
        raise ConfigError(
            f"study: no study is called {name!r}. {did_you_mean(name, CATALOGUE)} "
            "See: zscope study list"
        )
    return f"zscope.experiments.studies.{CATALOGUE[name]}"


def _load_file(file: Path) -> "Study":
    from zscope.experiments.studies.study import Study
    from zscope.loading import import_object

    if not file.is_file():
        raise ConfigError(
            f"study: there is no file {file}. Give a Python file with a STUDY, or a name from: "
            "zscope study list"
        )
    study = import_object(f"{file}:STUDY")
    if not isinstance(study, Study):
        raise ConfigError(
            f"study: STUDY in {file} is a {type(study).__name__}; expected a Study. See "
            "CONTRIBUTING.md for an example."
        )
    object.__setattr__(study, "file", str(file.absolute()))
    return study


def address(study: "Study") -> str:
    """What `load` finds the study by, also in another process."""
    return study.file or study.name


def __getattr__(name: str) -> Any:
    return load_attribute(
        __name__, name, dict.fromkeys(("prepare_study", "run_study"), "execution")
    )
