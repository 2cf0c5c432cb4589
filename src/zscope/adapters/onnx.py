"""ONNX: an encoder and a decoder as two files, run by onnxruntime.

The encoder has one output (codes), or two of one shape: means and log-variances, or means
and standard deviations where the name of the second says so (std, sigma, stddev, scale).
Files with a fixed batch size get batches of that size. There are no gradients.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zscope import files
from zscope.adapters import MissingPackage
from zscope.autoencoder import Autoencoder
from zscope.errors import InterfaceError
from zscope.types import array_of
from zscope.wrapping import wrap

__all__ = ["from_onnx"]

DEVIATIONS = ("std", "sigma", "scale", "deviation")
TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


def from_onnx(
    encoder: str | Path,
    decoder: str | Path,
    *,
    prior: str | None = "auto",
    providers: tuple[str, ...] = ("CPUExecutionProvider",),
) -> Autoencoder:
    """Two ONNX files as an autoencoder; `providers` are those of onnxruntime."""
    first, second = (_Session(Path(path), list(providers)) for path in (encoder, decoder))
    if len(first.outputs) > 2 or len(second.outputs) != 1:
        raise InterfaceError(
            f"from_onnx: {encoder} gives {len(first.outputs)} outputs ({', '.join(first.outputs)}) "
            f"and {decoder} {len(second.outputs)} ({', '.join(second.outputs)}); expected one or "
            "two from the encoder and one from the decoder. Export the parts alone."
        )

    def encode(x: Tensor) -> Any:
        outputs = first(x)
        if len(outputs) == 2 and any(word in first.outputs[1].lower() for word in DEVIATIONS):
            return outputs[0], 2 * outputs[1].log()
        return tuple(outputs) if len(outputs) == 2 else outputs[0]

    def decode(z: Tensor) -> Tensor:
        return second(z)[0]

    autoencoder = wrap(encode, decode, prior=prior)
    autoencoder.name = Path(encoder).name
    return autoencoder


class _Session:
    """One file, called with a batch of any size."""

    def __init__(self, path: Path, providers: list[str]) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise MissingPackage("from_onnx", "onnxruntime") from None
        files.require_regular(path, "from_onnx", InterfaceError)
        if not path.is_file():
            raise InterfaceError(f"from_onnx: there is no file {path}. Is the path right?")
        _check_files(path)
        try:
            self._session = onnxruntime.InferenceSession(str(path), providers=providers)
        except Exception as error:
            raise InterfaceError(
                f"from_onnx: {path} could not be read ({' '.join(str(error).split())[:200]}). Is "
                "it a complete ONNX file, of a version that this onnxruntime supports?"
            ) from error
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise InterfaceError(
                f"from_onnx: {path} takes {len(inputs)} inputs "
                f"({', '.join(each.name for each in inputs)}); expected one: observations for the "
                "encoder, latents for the decoder. Export the parts alone."
            )
        self._input, self._path = inputs[0], path
        self.outputs = [each.name for each in self._session.get_outputs()]

    def __call__(self, batch: Tensor) -> list[Tensor]:
        who = f"from_onnx: {self._path.name}"
        values = array_of(batch, who).astype(TYPES.get(self._input.type, np.float32), copy=False)
        fixed = self._input.shape[0] if self._input.shape else None
        size = fixed if isinstance(fixed, int) else len(values)
        parts = [self._run(values[k : k + size], size) for k in range(0, len(values), size)]
        return [
            torch.from_numpy(np.concatenate(columns)).to(batch.dtype)
            for columns in zip(*parts, strict=True)
        ]

    def _run(self, values: np.ndarray, size: int) -> list[np.ndarray]:
        """One batch; a last one that is too small is padded, and the padding removed again."""
        count = len(values)
        if count < size:
            values = np.concatenate([values, np.repeat(values[-1:], size - count, axis=0)])
        return [output[:count] for output in self._session.run(None, {self._input.name: values})]


def _check_files(path: Path) -> None:
    """Refuse weights in other files unless these are files in the same folder, with room."""
    content = path.read_bytes()
    size = len(content)
    for location in _locations(content):
        other = path.parent / location
        files.require_regular(other, "from_onnx", InterfaceError)
        if not other.resolve().is_relative_to(path.parent.resolve()) or not other.is_file():
            raise InterfaceError(
                f"from_onnx: {path} has weights in {location}, which is not a file in its folder. "
                "Copy it there, or export the model as one file."
            )
        size += other.stat().st_size
    files.check_memory("from_onnx", size, str(path))


def _locations(model: bytes) -> set[str]:
    """The names of the files with weights that a model refers to.

    In the protocol buffers of ONNX: graph (7), initializer (5), external_data (13), whose
    entries are a key (1) and a value (2). A damaged file is left to onnxruntime.
    """
    names: set[str] = set()
    for graph in _fields(model, 7):
        for tensor in _fields(graph, 5):
            for entry in _fields(tensor, 13):
                if b"location" in _fields(entry, 1):
                    names.update(value.decode(errors="replace") for value in _fields(entry, 2))
    return names


def _fields(message: bytes, wanted: int) -> list[bytes]:
    """The fields of a protocol buffer with this number that are bytes."""
    return [value for number, value in _walk(message) if number == wanted]


def _walk(message: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 == 0:
            _, place = _varint(message, place)
        elif key & 7 == 2:
            size, place = _varint(message, place)
            yield key >> 3, message[place : place + size]
            place += size
        else:
            place += {1: 8, 5: 4}.get(key & 7, len(message))


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, the last of which is below 128, and where it ends."""
    number = shift = 0
    for byte in message[place : place + 10]:
        place += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, place
    return 0, len(message)
