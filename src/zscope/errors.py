"""The few errors zscope raises on purpose.

Every message has four parts: who raises it, what was seen (with numbers), the likely
cause, and the next step. The command line prints the message as one line and exits
with code 1; any other exception there is a bug (code 70).
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

__all__ = [
    "ConfigError", "DataError", "InterfaceError", "Locked", "MissingExtra", "NoGradients",
    "ResourceError", "RunError", "Stopped", "Terminated", "TrainingError", "Undefined",
    "ZscopeError",
]  # fmt: skip


class ZscopeError(Exception):
    """An error that the user can fix; the message says how."""


class Undefined(ZscopeError):
    """A measurement has no answer for this input: raised where a paper would print NaN."""


class InterfaceError(ZscopeError):
    """A model does not behave as an encoder and a decoder must."""


class NoGradients(InterfaceError):
    """A derivative was asked of a model that is not written in torch."""


class DataError(ZscopeError):
    """A dataset is unknown, missing, damaged, or of the wrong form."""


class ConfigError(ZscopeError):
    """An option or a configuration file has an invalid value."""


class RunError(ZscopeError):
    """A run directory is missing, half written, or of another format."""


class Locked(RunError):
    """Another living process writes to the folder."""


class ResourceError(ZscopeError):
    """There is not enough disk or memory for what was asked."""


class TrainingError(ZscopeError):
    """Training could not continue; the last good checkpoint is kept.

    `members` are the errors of the runs of an ensemble that failed, by their names.
    """

    def __init__(self, message: str, members: Mapping[str, "TrainingError"] | None = None):
        super().__init__(message)
        self.members = dict(members or {})


class Stopped(ZscopeError):
    """The measurement was cancelled, because nobody is waiting for it any more."""


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM: as Ctrl-C, with exit code 143."""


class MissingExtra(ZscopeError):
    """A feature needs an optional package that is not installed."""

    def __init__(self, who: str, package: str, extra: str):
        super().__init__(
            f"{who}: the package {package!r} is not installed; it comes with an optional "
            f"part of zscope. Install it with: pip install 'zscope[{extra}]'"
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known ones, or all of them."""
    known = sorted(known)
    near = get_close_matches(name.lower().replace("_", "-"), known, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"Known: {', '.join(known)}."


def listed_names(who: str, option: str, value: object) -> list[str]:
    """A name or several as a list; ConfigError for anything else."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, Sequence) and all(isinstance(name, str) for name in names):
        return [str(name) for name in names]
    raise ConfigError(
        f"{who}: {option}={value!r:.60}; expected a name or a list of names. Put names in quotes."
    )


def __dir__() -> list[str]:
    return sorted(__all__)
