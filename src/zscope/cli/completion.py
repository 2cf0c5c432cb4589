"""What shells complete besides commands and options: names, each with what it stands for.

The catalogues are read without loading torch, so that Tab answers at once.
"""

from collections.abc import Iterable, Iterator

from zscope.presets import PRESETS

__all__ = ["assays", "datasets", "models", "presets", "scores", "studies"]

Items = Iterator[tuple[str, str]]


def datasets(incomplete: str) -> Items:
    from zscope import data

    for name in _matching(data.names(), incomplete):
        yield name, data.source(name).title


def models(incomplete: str) -> Items:
    from zscope.models import about, names

    for name in _matching(names(), incomplete):
        yield name, about(name).title.partition(": ")[2]


def assays(incomplete: str) -> Items:
    """The assays of one recording, and their groups."""
    from zscope.assays import CATALOGUE, groups

    members = groups()
    known = [name for name, entry in CATALOGUE.items() if not entry.compares]
    for name in _matching([*known, *members], incomplete):
        yield name, CATALOGUE[name].question if name in known else f"all assays of {name}"


def scores(incomplete: str) -> Items:
    """The assays that need factors."""
    from zscope.assays import CATALOGUE, groups

    for name in _matching(groups()["disentanglement"], incomplete):
        yield name, CATALOGUE[name].question


def studies(incomplete: str) -> Items:
    from zscope.experiments import studies

    for name in _matching([*studies.names(), "all"], incomplete):
        yield name, "every study" if name == "all" else studies.outline(name).title


def presets(incomplete: str) -> Items:
    for name in _matching(PRESETS, incomplete):
        yield name, PRESETS[name].paper


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
