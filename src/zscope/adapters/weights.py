"""Weights that were saved by others: state dicts, read without running any code."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from zscope import files
from zscope.errors import InterfaceError

__all__ = ["load_weights"]


def load_weights(module: nn.Module, file: str | Path) -> None:
    """Fill a module with a state dict from a `.safetensors`, `.pt` or `.pth` file, safely."""
    path = Path(file)
    files.require_regular(path, "load", InterfaceError)
    if not path.is_file():
        raise InterfaceError(f"load: there is no file {path}. Is the path of the weights right?")
    files.check_memory("load", path.stat().st_size, str(path))
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(str(path))
        else:
            _check_archive(path)
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InterfaceError(
            f"load: {path} could not be read as a state dict ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}). Is it complete? "
            "Only tensors are read, never code: save the weights with torch.save("
            "model.state_dict(), file) or as safetensors."
        ) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise InterfaceError(
            f"load: {path} contains a {type(state).__name__}, not a state dict (names and tensors)."
            " Save model.state_dict() alone."
        )
    try:
        module.load_state_dict(state)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InterfaceError(
            f"load: the weights in {path} do not fit {type(module).__name__}: {reason[:400]}. "
            "Are the class and its sizes those that were trained?"
        ) from error


def _check_archive(path: Path) -> None:
    """Compare the checksums of an archive that torch.save wrote; torch.load does not."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if (member := archive.testzip()) is not None:
                raise ValueError(f"{member} has another checksum than when it was written")
