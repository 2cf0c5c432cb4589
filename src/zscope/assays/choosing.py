"""Which assays are meant: those that are named, alone or by their groups, or all."""

from collections.abc import Iterable
from typing import cast

from zscope.assays import CATALOGUE, groups
from zscope.assays.entry import Entry
from zscope.errors import ConfigError, did_you_mean

__all__ = ["assay_name", "choose"]


def assay_name(text: str) -> str:
    """The name of an assay or group as the catalogue has it: factor_vae_score is accepted too."""
    return text.replace("_", "-")


def choose(names: Iterable[str] | str | None) -> list[Entry]:
    """The entries of the named assays and groups; None: all assays of one recording.

    Those that are measured on request only must be named themselves.
    """
    if names is None:
        usual = (entry for entry in CATALOGUE.values() if not entry.on_request)
        return [entry for entry in usual if not entry.compares]
    single = isinstance(names, str | bytes) or not isinstance(names, Iterable)
    names = [cast(str, names)] if single else list(names)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"assay: names={names!r}; expected names of assays or groups, such as "
            "['mig', 'responses']. See: zscope assay --list"
        )
    names = [assay_name(name) for name in names]
    known = groups()
    for entry in CATALOGUE.values():  # folders of assays that `zscope compare` runs
        if entry.compares and entry.group not in known:
            known[entry.group] = [e.name for e in CATALOGUE.values() if e.group == entry.group]
    for name in names:
        if name not in CATALOGUE and name not in known:
            raise ConfigError(
                f"assay: no assay is called {name!r}. {did_you_mean(name, [*CATALOGUE, *known])} "
                "See: zscope assay --list"
            )
    members = dict.fromkeys(member for name in names for member in known.get(name, [name]))
    return [CATALOGUE[name] for name in members]
