"""One line of the catalogue: what an assay asks, where it lives, what it takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Entry:
    """An assay that the command line, the report, the explorer and the docs can loop over.

    `takes` names the parts of a recording the function is given, in order: autoencoder,
    posterior, codes, factors, observations, data, or one made of these (variances, base,
    plane, …: `measuring.DERIVED`). A part given by keyword is written "keyword=part".
    `needs` lists what must hold besides (`measuring.NEEDS`); a part that was not recorded
    counts as a need that is not met. `options` are fixed keyword arguments. A function
    with a `generator` parameter gets a seeded one.
    """

    name: str
    question: str
    function: str  # "package.module:attribute"
    takes: tuple[str, ...]
    needs: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attribute(self) -> str:
        """The name of the function in `zscope.assays`."""
        return self.function.split(":")[1]

    def load(self) -> Callable[..., Any]:
        module, attribute = self.function.split(":")
        return getattr(import_module(module), attribute)

    @property
    def cite(self) -> str:
        """The docstring of the module: formula, range, invariances and source."""
        return import_module(self.function.split(":")[0]).__doc__ or ""
