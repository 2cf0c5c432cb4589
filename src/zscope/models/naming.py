"""What a name means: an objective, and the parts that the name fixes.

    sae-G  adaae-G  vlae-G     G variables enter a structural, adaptive or ladder decoder
    x…                         with the explicit causal block:     xae, xvae, xsae-4
    c…-i  c…-e                 with a consistency penalty:         cae-i, cvae-e
    xc…-i  xc…-e               with both:                          xcae-i, xcsae-4-e
    spatial-vae                latents that are maps, channels x places

The prefixes and suffixes go with ae, vae and sae-G. The options decoder, variables, block
and consistency give any other combination.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from zscope.errors import ConfigError

__all__ = ["Name", "composed_names", "parse", "with_variables_of"]

FAMILIES = {
    "sae": ("ae", "structural"),
    "adaae": ("ae", "adaptive"),
    "vlae": ("vae", "ladder"),
}
_NAME = re.compile(r"(x?)(c?)(ae|vae|sae-(\d+)|adaae-(\d+)|vlae-(\d+))(?:-([ie]))?")
SPATIAL = "spatial-vae"
_SUFFIXES = {"i": "invariance", "e": "equivariance"}
EXAMPLE = 2  # variables of the names that stand for a family


@dataclass(frozen=True)
class Name:
    """The objective a name stands for, the parts it fixes, their descriptions and their modules.

    `defaults` are those of options, where they differ from the objective's; with one for "beta",
    the divergence of the objective, a VAE, has a weight as an option.
    """

    objective: str
    parts: dict[str, Any]
    descriptions: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    papers: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)


def parse(name: str) -> Name | None:
    """What a composed name means; None if it is not one."""
    if name == SPATIAL:
        return Name(
            "vae",
            {"backbone": "spatial"},
            ("latents that are maps, channels x places",),
            ("spatial",),
            ("maps as in Rombach et al., CVPR 2022, arXiv:2112.10752",),
            {"beta": 0.003, "likelihood": "mse"},
        )
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        return None
    block, penalised, base, *counts, suffix = match.groups()
    plain = base in ("ae", "vae")
    family = base.split("-")[0]
    if bool(penalised) != bool(suffix) or (family in ("adaae", "vlae") and (block or suffix)):
        return None
    if plain and not block and not suffix:
        return None
    parts: dict[str, Any] = {}
    descriptions, modules, papers = [], [], []
    objective = base
    if not plain:
        variables = int(next(count for count in counts if count))
        if variables == 0:
            raise ConfigError(f"models: {name}: 0 variables. Use at least 1, for instance sae-4.")
        objective, decoder = FAMILIES[family]
        parts |= {"decoder": decoder, "variables": variables}
        article = "an" if decoder == "adaptive" else "a"
        descriptions.append(f"{article} {decoder} decoder of {variables} variables")
        modules.append("structural")
        papers.append("Leeb et al., ICLR 2023")
    if block:
        parts["block"] = "causal"
        descriptions.append("an explicit causal block")
        modules.append("causal")
    if suffix:
        parts["consistency"] = _SUFFIXES[suffix]
        descriptions.append(f"an {_SUFFIXES[suffix]} penalty")
        modules.append("consistency")
    if block or suffix:
        papers.append("On the interventional consistency of autoencoders, 2021")
    defaults = {"beta": 1.0} if family == "vlae" else {}
    return Name(objective, parts, tuple(descriptions), tuple(modules), tuple(papers), defaults)


def composed_names() -> list[str]:
    """One name of each kind; families of G variables stand with G = 2."""
    sae = f"sae-{EXAMPLE}"
    names = [f"{family}-{EXAMPLE}" for family in FAMILIES]
    names += [f"x{base}" for base in ("ae", "vae", sae)]
    for prefix in ("c", "xc"):
        names += [f"{prefix}{base}-{end}" for base in ("ae", "vae", sae) for end in "ie"]
    return [*names, SPATIAL]


def with_variables_of(name: str, known: str) -> str:
    """A known name with the number of variables of a mistyped one."""
    number = re.search(r"-(\d+)", name)
    return known.replace(f"-{EXAMPLE}", f"-{number[1]}") if number else known
