"""Studies: a paper's experiment as a short file, with what must hold checked.

    from zscope.experiments import studies

    for claim in studies.load("polarised-regime").run("studies/polarised-regime"):
        print(claim)

One module is one study. It has `NAME`, `SUMMARY` and

    run(out, *, scale="small", progress=print) -> list[Claim]

which trains what it needs, measures, and says for each claim what was published, what was
measured, and whether it holds. `scale` is "small" (minutes on two cores) or "paper".
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from zscope.errors import ConfigError, did_you_mean
from zscope.store import FORMAT, write_whole

if TYPE_CHECKING:
    from zscope.autoencoder import Autoencoder
    from zscope.data.dataset import Dataset

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

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, beside what came out here."""

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
    return list(CATALOGUE)


def load(name: str) -> ModuleType:
    """The module of a study."""
    if name not in CATALOGUE:
        raise ConfigError(
            f"study: no study is called {name!r}. {did_you_mean(name, CATALOGUE)} "
            "See: zscope study list"
        )
    return import_module(f"zscope.experiments.studies.{CATALOGUE[name]}")


def keep(out: str | Path | None, claims: Iterable[Claim]) -> None:
    """Write the claims to OUT/claims.json; nothing without a folder."""
    if out is not None:
        content = {"format": FORMAT, "claims": [asdict(claim) for claim in claims]}
        write_whole(Path(out) / "claims.json", json.dumps(content, indent=1).encode())


def trained(name: str, data: "Dataset", *, steps: int, seed: int, **options: Any) -> "Autoencoder":
    """A model of digits after training: batches of 64, Adam at 1e-3 falling to 0."""
    from zscope import models
    from zscope.training import train

    model = models.build(name, shape=data.shape, seed=seed, **options)
    done = train(
        model, data, steps=steps, batch=64, rate=1e-3, schedule="cosine", seed=seed, progress=False
    )
    assert done.model is not None
    return done.model
