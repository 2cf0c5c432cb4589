"""Data that a study makes itself, once, before its runs: changed versions of a dataset.

    CHANGED = MadeData(
        make=make_changed,                              # make_changed(folder, settings, root)
        settings={"small": {"data": "sprites", "epsilon": 0.1}, "paper": {...}},
        versions={"changed": "perturbed.npz", "noise": "noise.npz"},
    )
    Study(..., made={"sprites-changed": CHANGED})

Grids name such data as any other, "sprites-changed/noise". The files lie in RUNS/data-HASH, named
by their settings, so that studies with the same settings share them; those that are there are kept.
`make` is deterministic and goes on with what a killed process left.

A run on files is named by their content, so it has its name only when they are there. Until then a
plan has a stand-in for them: the dataset that they are made from with its factors in another order,
which takes as long to train on.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zscope.errors import ConfigError, RunError, did_you_mean
from zscope.files import lock

__all__ = ["MadeData", "resolve"]

DIGITS = 12

Make = Callable[[Path, Mapping[str, Any], str | None], None]
"""Writes the files into a folder, from the settings and the folder of published datasets."""


@dataclass(frozen=True)
class MadeData:
    """How to make some files of data.

    `settings` are by scale, with the field data: what they are made from. Without some for scale
    tiny, those of small are used.
    """

    make: Make
    settings: Mapping[str, Mapping[str, Any]]
    versions: Mapping[str, str]  # name -> file in the folder

    def _settings(self, scale: str) -> Mapping[str, Any]:
        return self.settings["small" if scale == "tiny" and scale not in self.settings else scale]

    def folder(self, scale: str, runs: Path) -> Path:
        """Where the files lie: RUNS/data-HASH."""
        plain = {"make": self.make.__name__, "settings": self._settings(scale)}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return runs / f"data-{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}"

    def is_made(self, scale: str, runs: Path) -> bool:
        """Whether all files are there."""
        folder = self.folder(scale, runs)
        return all((folder / file).is_file() for file in self.versions.values())

    def make_files(self, scale: str, runs: Path, root: str | None = None) -> None:
        """Make the files that are not there; waits for a process that is doing it."""
        folder = self.folder(scale, runs)
        with lock(folder, "study", wait=True):
            if not self.is_made(scale, runs):
                self.make(folder, self._settings(scale), root)
        if not self.is_made(scale, runs):
            missing = [f for f in self.versions.values() if not (folder / f).is_file()]
            raise RunError(
                f"study: {self.make.__name__} has finished, but {folder / missing[0]} is not "
                "there. It must write every file of `versions`."
            )

    def file(self, version: str, scale: str, runs: Path) -> str:
        """What a plan names a version by: its file, or the stand-in until that is there."""
        if version not in self.versions:
            raise ConfigError(
                f"study: no version {version!r} is made of {self._settings(scale)['data']}. "
                f"{did_you_mean(version, self.versions)}"
            )
        if self.is_made(scale, runs):
            return str((self.folder(scale, runs) / self.versions[version]).absolute())
        original = str(self._settings(scale)["data"])
        number = 1 + list(self.versions).index(version)
        return f"{original}{'&' if '?' in original else '?'}shuffled={number}"


def resolve(
    made: Mapping[str, MadeData], run: Mapping[str, Any], scale: str, runs: Path
) -> dict[str, Any]:
    """A run of a grid as a sweep can read it: with the file in place of NAME/VERSION."""
    name, _, version = str(run.get("data", "")).partition("/")
    if name not in made:
        return dict(run)
    return {**run, "data": made[name].file(version, scale, runs)}
