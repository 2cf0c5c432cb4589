"""One line of the catalogue: what an assay asks, what it takes, what it costs.

An assay file ends with its entry,

    ENTRY = Entry(
        question="Which latents matter, and which depend on which?",
        takes=("autoencoder", "recording"),
        passes="samples * (latents + 1)",
        most=12_000,
    )

or with `ENTRIES`, a dict from names to entries, if it holds several assays. Entries are plain
literals, read from the source file, so that lists and help need not import torch.
"""

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any

from zscope.declared import declared

__all__ = ["Entry", "read_entry"]

SIZES = frozenset({"latents", "factors", "channels", "pictures", "min"})


@dataclass(frozen=True)
class Entry:
    """An assay that the runner, the command line, the report, the explorer and the docs share.

    `takes` names the parts of a recording that the function is given: recording, autoencoder,
    posterior, codes, factors, observations, data, or one made of these (`parts.PARTS`). An
    assay that decodes but never encodes takes the "decoder", so that it also applies to models
    whose encoder needs the factors of each observation. A part given by keyword is written
    "keyword=part". `needs` lists further conditions (`parts.NEEDS`). `passes` is how many
    codes are decoded and encoded again (or decoded with their derivative by one latent): a
    number, or an expression of latents, factors, channels, pictures (the base pictures of latent
    maps, 16 to 128) and the function's options. `most` is how many
    passes it may take by default: with more latents the default of the option `scales` is
    lowered. `uses` names assays whose default results the function needs: their passes are added
    unless these results exist already, or the option in front of the name is set:
    "causal=response-matrix". `compares` marks assays of two or more recordings, which `zscope
    compare` runs. `on_request` marks assays that cost too much for a report of everything: they
    run only if they are named. `better` is "higher" or "lower" if all its scores are better that
    way, so that models can be ranked by them.

    `maps` says what an assay is given of latents that are maps, with channels and places
    (`assays.views`); without it, it does not apply to them:

        "units"     all of them; it has an option `units`, by default the channels
        "maps"      all of them; its numbers are those of channels
        "flat"      all of them, as a vector
        "places"    a row for each of some places, with a column for each channel
        "every place"  the same of every place of all pictures that were encoded
        "pooled"    the mean of each channel over the places, or what its option `pool` asks for
        "place"     all of them, of which it varies the channels at one place of each picture
        "offsets"   a number for each channel, which is added at all its places

    "place on request": only if it is named. `map_options` are defaults that differ for maps, and
    `map_passes` is their cost where that differs; `latents` in it are the units. `map_question` is
    what is asked of them, where that differs by more than the word channel.

    `meaning` is one sentence in plain words on what the result says and how to read its value,
    `figure` one on how to read its figure; reports and documentation show them.
    """

    question: str
    takes: tuple[str, ...]
    needs: tuple[str, ...] = ()
    passes: int | str = 0
    most: int | None = None
    scales: str = "samples"
    fewest: int = 8  # fewer of them are not worth measuring
    uses: tuple[str, ...] = ()
    compares: bool = False
    on_request: bool = False
    better: str = ""
    maps: str = ""
    map_options: Mapping[str, Any] = field(default_factory=dict)
    map_passes: int | str = ""
    map_question: str = ""
    title: str = ""  # the name as people write it: "MIG"
    meaning: str = ""
    figure: str = ""
    name: str = ""
    module: str = ""  # where the function is

    @property
    def attribute(self) -> str:
        """The name of the function in `zscope.assays`."""
        return self.name.replace("-", "_")

    @property
    def group(self) -> str:
        """The folder the assay lives in."""
        return self.module.rpartition(".")[0].rpartition(".")[2]

    @property
    def map_kind(self) -> str:
        """What the assay is given of maps, the first word of `maps`."""
        return self.maps.partition(" ")[0]

    @property
    def maps_on_request(self) -> bool:
        """Whether it measures maps only if it is named."""
        return self.maps.endswith("on request") or self.map_kind == "offsets"

    def load(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(self.module), self.attribute)
        return function

    @property
    def cite(self) -> str:
        """The docstring of the module: formula, range, invariances and source."""
        return import_module(self.module).__doc__ or ""

    def cost(self, sizes: Mapping[str, Any]) -> int:
        """Passes for these sizes: latents, factors, samples and other options."""
        of_maps = self.map_passes != "" and sizes.get("pictures", 0) > 0
        passes = self.map_passes if of_maps else self.passes
        if isinstance(passes, int):
            return passes
        return int(eval(_compile(passes), {"__builtins__": {"min": min, "max": max}}, dict(sizes)))

    def used_assays(self, options: Mapping[str, Any] | None = None) -> list[str]:
        """The assays whose results are needed with these options."""
        words = [word.rpartition("=") for word in self.uses]
        return [name for option, _, name in words if (options or {}).get(option) is None]

    @property
    def cost_text(self) -> str:
        """The stated cost: "samples passes, at most 12,000, and those of response-matrix"."""
        if not self.passes:
            return ""
        passes = re.sub(r"(?<=\d)_(?=\d)", ",", str(self.passes))
        # "1,450 + (cost == 'field') * (9,000)": more of them with an option
        if found := re.fullmatch(r"(.+) \+ \((\w+) == '(\w+)'\) \* \((.+)\)", passes):
            usual, option, value, more = found.groups()
            passes = f"{usual} (with {option}={value} another {more})"
        if self.map_passes != "":
            passes = f"{passes} (of maps {self.map_passes})"
        parts = [f"{passes} passes"]
        parts += [f"at most {self.most:,}"] if self.most else []
        parts += [f"and those of {name}" for name in self.used_assays()]
        parts += ["only if it is named"] if self.on_request else []
        return ", ".join(parts)

    def is_limited(self, options: Collection[str]) -> bool:
        """Whether the cost is limited: not if the caller set an option that decides it."""
        return self.most is not None and not _names(str(self.passes)) & set(options)

    def affordable(self, sizes: Mapping[str, Any]) -> int:
        """The default of the option `scales`, lowered so that `most` passes are enough.

        0 if fewer than `fewest` would be left.
        """
        default = int(sizes.get(self.scales, 1))
        if self.most is None or self.cost(sizes) <= self.most:
            return default
        one, two = (self.cost({**sizes, self.scales: count}) for count in (1, 2))
        count = 1 + (self.most - one) // (two - one) if two > one else 0
        return min(default, count) if count >= self.fewest else 0


@cache
def _names(expression: str) -> frozenset[str]:
    """The options in a stated cost."""
    tree = ast.walk(ast.parse(expression))
    return frozenset(node.id for node in tree if isinstance(node, ast.Name)) - SIZES


@cache
def _compile(expression: str) -> Any:
    return compile(expression, "passes", "eval")


def read_entry(name: str, module: str) -> Entry:
    """The entry of an assay, read from the source of its module without importing it."""
    try:
        arguments = declared(module, "ENTRY")
    except ImportError:  # of a file with several assays
        arguments = declared(module, "ENTRIES", key=name)
    entry = Entry(**arguments)
    return replace(
        entry,
        name=name,
        module=module,
        title=entry.title or name.replace("-", " ").capitalize(),
    )
