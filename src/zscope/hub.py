"""Models on the Hugging Face hub: from an address to a folder with their weights and settings.

    hf:org/name                      the main branch
    hf:org/name@v1.0                 a branch, tag or commit (a slash in its name as %2F)
    hf:org/name/vae                  a folder of the repository
    hf:org/name@v1.0/vae             both

The cache of the hub is looked at first: what is there is used as it is. What is not there is
downloaded, if `huggingface_hub` is installed: settings (.json) and weights (.safetensors) of the
three kinds of models that zscope reads, by name. No pickle and no code is ever downloaded.
"""

import errno
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from zscope.errors import ConfigError, InterfaceError, MissingExtra, ZscopeError
from zscope.files import likely_cause
from zscope.results import listed

__all__ = ["PREFIX", "Address", "cache_folder", "find", "is_address", "local_path"]

PREFIX = "hf:"
REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".h5", ".keras")
"""Endings of weights in forms that can run code when they are opened."""
NOT_WRITTEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EEXIST,
               errno.ENOTDIR)  # fmt: skip
"""Errors of a cache that cannot be written to."""
USUAL = "vae"
"""The folder in which pipelines of diffusers have their autoencoder."""


class Kind(NamedTuple):
    """How a saved model is recognised by the names of its files, and which of them are read."""

    settings: str
    weights: str
    others: str = r"(?!)"

    def files(self, names: Collection[str]) -> list[str]:
        """The files to read; none if it is not a model of this kind."""
        weights = [name for name in names if re.fullmatch(self.weights, name)]
        parts = [int(part[1]) for name in weights if (part := re.search(r"-of-(\d+)\.", name))]
        if self.settings not in names or not weights or len(parts) < max(parts, default=0):
            return []
        others = [name for name in names if re.fullmatch(self.others, name)]
        return [self.settings, *sorted(weights), *sorted(others)]


KINDS = (
    Kind("run.json", r"model\.safetensors", r"history\.jsonl"),  # of zscope
    Kind("model_config.json", r"model\.safetensors"),  # of pythae
    Kind(  # of diffusers; large ones are in several files, of which a JSON file is the index
        "config.json",
        r"diffusion_pytorch_model(-\d{5}-of-\d{5})?\.safetensors",
        r"diffusion_pytorch_model\.safetensors\.index\.json",
    ),
)


@dataclass(frozen=True)
class Address:
    """A repository on the hub, one of its revisions, and a folder in it."""

    repository: str
    revision: str = "main"
    subfolder: str = ""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The parts of hf:org/name[@revision][/subfolder]; ConfigError for anything else."""
        pattern = rf"{PREFIX}(?://)?({REPOSITORY})(?:@([^/@]+))?(?:/([^@]*))?"
        match = re.fullmatch(pattern, text)
        if match is None or not _is_safe(match[1], unquote(match[2] or "main"), match[3] or ""):
            raise ConfigError(
                f"load: {text} is not an address on the Hugging Face hub; expected "
                "hf:org/name[@revision][/subfolder], for instance hf:stabilityai/sd-vae-ft-mse"
            )
        subfolder = "/".join(part for part in (match[3] or "").split("/") if part not in ("", "."))
        return cls(match[1], unquote(match[2] or "main"), subfolder)

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision.replace('/', '%2F')}"
        subfolder = f"/{self.subfolder}" if self.subfolder else ""
        return f"{PREFIX}{self.repository}{revision}{subfolder}"


def _is_safe(repository: str, revision: str, subfolder: str) -> bool:
    """Whether no part of an address leads out of its folder of the cache, and the hub can have it.

    Names on the hub have neither ".." nor "--"; revisions are names of branches, as in git.
    """
    if ".." in repository or "--" in repository or len(repository) > 96:
        return False
    text = f"{revision}/{subfolder}"
    if "\\" in text or not text.isprintable() or revision.startswith("/"):
        return False
    parts = unquote(text).split("/")
    return ".." not in parts and max(map(len, parts)) < 256


def is_address(target: Any) -> bool:
    """Whether a target is an address on the hub (which may be misspelt)."""
    return isinstance(target, str) and target.startswith(PREFIX)


def local_path(target: str | Path) -> Path:
    """Where a target is on this machine: models on the hub are downloaded.

    A plain org/name that is no path here, but is in the cache of the hub, is that model.
    """
    text = str(target)
    if is_address(text):
        return find(Address.parse(text))
    if re.fullmatch(REPOSITORY, text) and not os.path.lexists(text):
        return in_cache(Address(text)) or Path(target)
    return Path(target)


def hint(target: str | Path) -> str:
    """What to add to an error about a path that does not exist, but may be a name on the hub."""
    text = str(target)
    if not re.fullmatch(REPOSITORY, text) or os.path.lexists(text):
        return ""
    return f". If it is a repository on the Hugging Face hub, load it as {PREFIX}{text}"


def cache_folder() -> Path:
    """The folder in which huggingface_hub keeps what it has downloaded."""
    own = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    return Path(os.path.expandvars(own or f"{home}/hub")).expanduser()


def in_cache(address: Address) -> Path | None:
    """The folder of a model in the cache of the hub; None if it is not there, or not whole."""
    snapshot = _snapshot(address)
    if snapshot is None:
        return None
    folder = snapshot / address.subfolder
    for each in (folder, folder / USUAL):
        if _model_files(_names(each)):
            return each
    return None


def find(address: Address) -> Path:
    """The folder of a model: in the cache of the hub, or downloaded to it."""
    if (folder := in_cache(address)) is not None:
        return folder
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")
    snapshot = _snapshot(address)
    if offline:
        if snapshot is not None:
            choose(address, _tree(snapshot))  # says what is wrong with what is there
        raise InterfaceError(
            f"load: {address} is not in the cache of the hub ({cache_folder()}), and HF_HUB_OFFLINE"
            " forbids asking the hub. Is the name right? Download it once without that setting."
        )
    try:
        import huggingface_hub
    except ImportError:
        if snapshot is not None:
            choose(address, _tree(snapshot))
        who = f"load: {address} is not in the cache of the hub ({cache_folder()})"
        raise MissingExtra(who, "huggingface-hub", "hub") from None
    try:
        about = huggingface_hub.HfApi().model_info(address.repository, revision=address.revision)
        names = [file.rfilename for file in about.siblings or ()]
        folder_name, files = choose(address, names)
        place = huggingface_hub.snapshot_download(
            address.repository,
            revision=address.revision,
            cache_dir=cache_folder(),
            allow_patterns=[re.sub(r"([*?\[])", r"[\1]", file) for file in files],
        )
    except ZscopeError:
        raise
    except Exception as error:
        raise InterfaceError(_refusal(address, error)) from error
    return Path(place) / folder_name


def choose(address: Address, names: Iterable[str]) -> tuple[str, list[str]]:
    """The folder of the model among the files of a repository, and which files to download.

    InterfaceError, with the reason, for a repository without a model that zscope reads.
    """
    folders: dict[str, list[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        folders.setdefault(folder, []).append(file)
    models = {folder: files for folder, own in folders.items() if (files := _model_files(own))}
    wanted = address.subfolder
    for folder in (wanted, f"{wanted}/{USUAL}".lstrip("/")):
        if folder in models:
            return folder, [f"{folder}/{file}".lstrip("/") for file in models[folder]]
    start = f"load: {address} has no model that zscope can read"
    below = [folder for folder in sorted(models) if folder.startswith(f"{wanted}/".lstrip("/"))]
    if below:
        others = [Address(address.repository, address.revision, folder) for folder in below]
        raise InterfaceError(
            f"{start} in this folder, but in others. Name one of them: {listed(others)}"
        )
    here = sorted(folders.get(wanted, []))
    if not here:
        place = wanted or "this repository"
        first = sorted({folder.partition("/")[0] for folder in folders if folder})
        remedy = f"Its folders: {listed(first)}" if first else "Is the name right?"
        raise InterfaceError(f"load: {address}: there are no files in {place}. {remedy}")
    if code := _code(here):
        raise InterfaceError(
            f"{start}: it comes with code of its own ({listed(code)}), and no code from the hub is "
            "ever run. If you trust it, download it, build the model in Python and pass it: "
            "zs.load(model), or zs.wrap(encoder, decoder)."
        )
    pickles = [name for name in here if name.lower().endswith(PICKLES)]
    safe = [name for name in here if name.endswith(".safetensors")]
    if pickles and (not safe or "model_config.json" in here):
        raise InterfaceError(
            f"{start}: its weights are only there in a form that can run code when it is opened "
            f"({listed(pickles)}). Only safetensors are downloaded: ask its owner for them, or, if "
            "you trust it, download it and load it with the library that it is from."
        )
    raise InterfaceError(
        f"{start}: among its {len(here)} files ({listed(here)}) are neither a run of zscope "
        "(run.json, model.safetensors) nor a model of diffusers (config.json, "
        "diffusion_pytorch_model.safetensors). For a module of your own, download the weights: "
        "zs.load('package.module:name', weights='model.safetensors')"
    )


def _model_files(names: Collection[str]) -> list[str]:
    """The files of the model that a folder has; none if there is no model that zscope reads."""
    for kind in KINDS:
        if files := kind.files(names):
            # pythae saves networks of one's own as pickles and source. What has its settings is
            # read by it, so weights for another library do not make it a model that is safe.
            unsafe = kind.settings != "run.json" and "model_config.json" in names
            if kind.settings == "model_config.json":
                unsafe = bool(_code(names))
            return [] if unsafe else files
    return []


def _code(names: Iterable[str]) -> list[str]:
    """Files that run when a model is built or opened with them."""
    return [name for name in names if name.endswith((".py", ".pkl"))]


def _snapshot(address: Address) -> Path | None:
    """The folder of a revision in the cache, whole or not."""
    place = cache_folder() / f"models--{address.repository.replace('/', '--')}"
    commit = address.revision
    try:
        if (place / "refs" / address.revision).is_file():
            commit = (place / "refs" / address.revision).read_text().strip()
        snapshot = place / "snapshots" / commit
        return snapshot if snapshot.is_dir() else None
    except (OSError, ValueError):
        return None


def _names(folder: Path) -> list[str]:
    """The files right in a folder; links to files that are gone do not count."""
    return [file.name for file in folder.iterdir() if file.is_file()] if folder.is_dir() else []


def _tree(folder: Path) -> list[str]:
    """All files below a folder, as a repository lists them."""
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def _refusal(address: Address, error: Exception) -> str:
    """Why the hub did not give the model, and what to do."""
    kind, detail = type(error).__name__, " ".join(str(error).split())[:200]
    start = f"load: {address} could not be downloaded"
    if kind == "GatedRepoError":
        return (
            f"{start}: the repository is gated. Accept its conditions on its page on the hub, log "
            "in with: hf auth login"
        )
    if kind == "RepositoryNotFoundError":
        return (
            f"{start}: the hub has no repository {address.repository} that you may see. Is the name"
            " right? For a private one log in with: hf auth login"
        )
    if kind in ("RevisionNotFoundError", "RemoteEntryNotFoundError"):
        return (
            f"{start}: the repository has no revision {address.revision}. Name a branch, a tag or "
            "a whole commit, or leave it out for the main branch."
        )
    if isinstance(error, OSError) and error.errno in NOT_WRITTEN:
        return (
            f"{start}: {cache_folder()} cannot be written to ({error.strerror}). "
            f"{likely_cause(error)} HF_HUB_CACHE names the folder."
        )
    return (
        f"{start} ({kind}: {detail}). Is this machine connected to the hub? What is in the cache "
        f"({cache_folder()}) is used without a connection."
    )
