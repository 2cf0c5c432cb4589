"""Models: `zs.models.names()` lists them, `zs.models.build(name, ...)` makes one.

    model = zs.models.build("beta-vae", shape=data.shape, latents=10, beta=8)
    model = zs.models.build_for("ivae", data, latents=10)

A model combines an objective with networks, a likelihood, and perhaps a structural decoder,
a causal block or a consistency penalty (`parts.py`); names such as `sae-4` or `xcvae-i` fix
some of these (`naming.py`). One file is one objective; `CATALOGUE` says where each lives. A
new one is one module with an `ENTRY`, one test and one line here.

What lists show of a model (`about`) is read from its file without importing it, and `building`
is loaded when it is first used: both need torch, and lists do not.
"""

from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from zscope.declared import declared
from zscope.errors import ConfigError, did_you_mean
from zscope.lazy import load_attribute
from zscope.models.entry import About, Entry, Option
from zscope.models.naming import Name, composed_names, parse, with_variables_of

if TYPE_CHECKING:
    from zscope.autoencoder import Losses
    from zscope.models.building import (
        build,
        build_for,
        from_recipe,
        numbers_of_objective,
        outline,
        recipe_for,
        refuse_arguments,
    )
    from zscope.models.composed import Composed

__all__ = [
    "CATALOGUE", "About", "Composed", "Entry", "Losses", "Option", "about", "build", "build_for",
    "entry", "from_recipe", "names", "numbers_of_objective", "outline", "recipe_for",
    "refuse_arguments",
]  # fmt: skip

# name -> module:attribute of its Entry.
CATALOGUE = {
    "ae": "ae:ENTRY",
    "vae": "vae:ENTRY",
    "beta-vae": "beta_vae:ENTRY",
    "annealed-vae": "annealed_vae:ENTRY",
    "factor-vae": "factor_vae:ENTRY",
    "beta-tcvae": "beta_tcvae:ENTRY",
    "dip-vae-i": "dip_vae:FIRST",
    "dip-vae-ii": "dip_vae:SECOND",
    "wae": "wae:ENTRY",
    "avae": "avae:ENTRY",
    "ivae": "ivae:ENTRY",
    "beta-vae-full": "beta_vae_full:ENTRY",
    "slow-vae": "slow_vae:ENTRY",
    "pcl": "pcl:ENTRY",
    "classifier": "classifier:ENTRY",
}


def names() -> list[str]:
    """Names that `build` knows: all objectives, then one of each composed kind.

    Families of G variables stand with G = 2: `sae-2` for `sae-G`.
    """
    return [*CATALOGUE, *composed_names()]


def about(name: str) -> About:
    """What lists show of a model: title, formula, paper, what it needs. torch is not loaded."""
    if composed := parse(name):
        return _about_composed(name, composed)
    if name not in CATALOGUE:
        word = str(name)
        candidates = [with_variables_of(word, known) for known in names()]
        raise ConfigError(
            f"models: no model is called {name!r}. {did_you_mean(word, candidates)} See: "
            "zscope models list"
        )
    return _read(CATALOGUE[name])


@cache
def _read(place: str) -> About:
    module, attribute = place.split(":")
    wanted = [each.name for each in fields(About)]
    return About(**declared(f"zscope.models.{module}", attribute, wanted))


def entry(name: str) -> Entry:
    """The catalogue entry of a model: title, formula, paper, and all its options."""
    known = about(name)  # an unknown name is refused before torch is loaded
    from zscope.models.building import load_entry

    return load_entry(known)


def _about_composed(name: str, composed: Name) -> About:
    plain = about(composed.objective)
    *others, last = composed.descriptions
    parts = f"{', '.join(others)} and {last}" if others else last
    formula = about("beta-vae").formula if "beta" in composed.defaults else plain.formula
    penalties = {"invariance": " + λ L_INV", "equivariance": " + λ L_EQV"}
    return replace(
        plain,
        name=name,
        title=f"{name.upper()}: {plain.name.upper()} with {parts}",
        formula=formula + penalties.get(composed.parts.get("consistency", ""), ""),
        paper="; ".join([plain.paper, *composed.papers]),
    )


def __getattr__(name: str) -> Any:
    homes = {"Composed": "composed", "Losses": "zscope.autoencoder"}
    return load_attribute(__name__, name, {**dict.fromkeys(__all__, "building"), **homes})


def __dir__() -> list[str]:
    return sorted(__all__)
