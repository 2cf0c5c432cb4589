"""Studies: experiments of papers as short files, with their claims checked.

    from zscope.experiments import studies

    for claim in studies.load("polarised-regime").run("studies/polarised-regime"):
        print(claim)

One module is one study. It has `NAME`, `SUMMARY` and

    run(out, *, scale="small", progress=print) -> list[Claim]

which trains models, measures them, and reports for each claim what was published, what was
measured, and whether the claim holds. `scale` is "small" (minutes on two cores) or "paper".
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from zscope.errors import ConfigError, did_you_mean
from zscope.store import write_json

if TYPE_CHECKING:
    from zscope.autoencoder import Autoencoder
    from zscope.data.dataset import Dataset

__all__ = ["CATALOGUE", "Claim", "Progress", "load", "names", "save_claims", "train_model"]

# name -> module. A new study is one module, one test and one line here.
CATALOGUE = {
    "polarised-regime": "polarised_regime",
    "pca-directions": "pca_directions",
    "pca-directions-degenerate": "pca_directions_degenerate",
    "pca-directions-regime": "pca_directions_regime",
    "pca-directions-perturbed": "pca_directions_perturbed",
    "consistency": "consistency",
    "structural": "structural",
    "hybrid-sampling": "hybrid_sampling",
}

Progress = Callable[[str], None]  # called with one line at a time


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, with the published and the measured numbers."""

    name: str
    claim: str
    published: str
    measured: str
    holds: bool

    def __str__(self) -> str:
        return (
            f"{self.name:5} {'holds' if self.holds else 'DOES NOT HOLD'}: {self.claim}\n"
            f"      published: {self.published}\n      measured:  {self.measured}"
        )


def names() -> list[str]:
    """The names of all studies."""
    return list(CATALOGUE)


def load(name: str) -> ModuleType:
    """The module of a study."""
    if name not in CATALOGUE:
        raise ConfigError(
            f"study: no study is called {name!r}. {did_you_mean(name, CATALOGUE)} "
            "See: zscope study list"
        )
    return import_module(f"zscope.experiments.studies.{CATALOGUE[name]}")


def save_claims(out: str | Path | None, claims: Iterable[Claim]) -> None:
    """Write the claims to OUT/claims.json; does nothing without a folder."""
    if out is not None:
        content = {"claims": [asdict(claim) for claim in claims]}
        write_json(Path(out) / "claims.json", content)


def train_model(
    name: str, data: "Dataset", *, steps: int, seed: int, **options: Any
) -> "Autoencoder":
    """Train a model of digits: batches of 64, Adam with a rate of 1e-3 decaying to 0."""
    from zscope import models
    from zscope.experiments.training import train

    model = models.build(name, shape=data.shape, seed=seed, **options)
    run = train(
        model, data, steps=steps, batch=64, rate=1e-3, schedule="cosine", seed=seed, progress=False
    )
    assert run.model is not None
    return run.model
