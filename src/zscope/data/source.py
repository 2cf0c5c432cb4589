"""Where a dataset comes from: built in, or from its publisher's own files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from zscope.data.dataset import Dataset


@dataclass(frozen=True)
class File:
    """One of the publisher's files.

    `url`, `size` and the hashes are given only where a public source confirms them;
    `check` looks at the structure of the file (names, shapes, types, counts) and raises
    `DataError` if it is not what the publisher describes.
    """

    name: str
    check: Callable[[Path], None]
    url: str | None = None
    size: int | None = None
    md5: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """One entry of the catalogue of datasets. `load(folder, **options)` makes the Dataset.

    For built-in data `files` is empty and the folder is a cache; for the rest the folder
    holds the publisher's files. `options` maps the name of each option to a line of help.
    """

    name: str
    title: str
    summary: str
    cite: str
    load: Callable[..., Dataset]
    licence: str = "Apache-2.0 (part of zscope)"
    files: tuple[File, ...] = ()
    homepage: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def built_in(self) -> bool:
        return not self.files
