"""zscope: train autoencoders and assay their latent spaces.

    import zscope as zs

    autoencoder = zs.wrap(my_encoder, my_decoder, example=x[:8])
    recording = zs.record(autoencoder, x)
    zs.assay(autoencoder, x).save("report.html")

Names are loaded when they are first used, so that `import zscope` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Autoencoder": "zscope.autoencoder",
    "Layout": "zscope.layout",
    "Posterior": "zscope.autoencoder",
    "Losses": "zscope.autoencoder",
    "Trainable": "zscope.autoencoder",
    "wrap": "zscope.wrapping",
    "load": "zscope.loading",
    "Recording": "zscope.recording",
    "record": "zscope.recording",
    "Monitor": "zscope.monitor",
    "Dataset": "zscope.data.dataset",
    "Run": "zscope.store",
    "Runs": "zscope.collection",
    "runs": "zscope.collection",
    "Report": "zscope.report.build",
    "assay": "zscope.report.build",
    "code_table": "zscope.report.codes",
    "prune": "zscope.derived",
    "rotate_latents": "zscope.derived",
    "compare": "zscope.experiments",
    "compare_runs": "zscope.experiments",
    "dynamics": "zscope.experiments",
    "extrapolate": "zscope.experiments",
    "fondue": "zscope.experiments",
    "perturb": "zscope.experiments",
    "sweep": "zscope.experiments.sweeps",
    "select_models": "zscope.experiments",
    "explore": "zscope.explorer",
    "train": "zscope.experiments.training",
    "train_ensemble": "zscope.experiments.training",
    "ZscopeError": "zscope.errors",
    "Undefined": "zscope.errors",
}
_MODULES = (
    "adapters",
    "assays",
    "data",
    "errors",
    "experiments",
    "models",
    "plots",
    "sampling",
    "store",
    "tables",
    "theory",
    "training",
)

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(f"zscope.{name}")
    else:
        raise AttributeError(f"module 'zscope' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from zscope import (
        adapters,
        assays,
        data,
        errors,
        experiments,
        models,
        plots,
        sampling,
        store,
        tables,
        theory,
        training,
    )
    from zscope.autoencoder import Autoencoder, Losses, Posterior, Trainable
    from zscope.collection import Runs, runs
    from zscope.data.dataset import Dataset
    from zscope.derived import prune, rotate_latents
    from zscope.errors import Undefined, ZscopeError
    from zscope.experiments.comparison import compare
    from zscope.experiments.comparison_of_runs import compare_runs
    from zscope.experiments.extrapolation import extrapolate
    from zscope.experiments.fondue_training import fondue
    from zscope.experiments.perturbation import perturb
    from zscope.experiments.selection import select_models
    from zscope.experiments.sweeps import sweep
    from zscope.experiments.training import train, train_ensemble
    from zscope.experiments.training_dynamics import dynamics
    from zscope.explorer import explore
    from zscope.layout import Layout
    from zscope.loading import load
    from zscope.monitor import Monitor
    from zscope.recording import Recording, record
    from zscope.report.build import Report, assay
    from zscope.report.codes import code_table
    from zscope.store import Run
    from zscope.wrapping import wrap
