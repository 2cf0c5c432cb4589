"""A cache of the Hugging Face hub, filled without a hub."""

import hashlib
import shutil
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def keep(cache: Path, repository: str, folder: Path, *, revision: str = "main") -> Path:
    """A folder in the cache, in the layout of huggingface_hub: links to files named by content."""
    place = cache / f"models--{repository.replace('/', '--')}"
    for file in filter(Path.is_file, folder.rglob("*")):
        blob = place / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        link = place / "snapshots" / COMMIT / file.relative_to(folder)
        blob.parent.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, blob)
        link.symlink_to(blob)
    (place / "refs" / revision).parent.mkdir(parents=True, exist_ok=True)
    (place / "refs" / revision).write_text(COMMIT)
    return place / "snapshots" / COMMIT
