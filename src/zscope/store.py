"""A run on disk: its configuration, weights, history and results.

    RUN/run.json              the configuration, the status and the environment
    RUN/model.safetensors     the trained weights, once the run has finished
    RUN/history.jsonl         one row for each logged step, written while training
    RUN/checkpoints/          step-0001000.safetensors: weights and optimiser, to resume from
    RUN/assays/               NAME.json for each result (NAME.npz for large arrays)

Weights are stored as safetensors, never pickle. Every file carries a format version and a
checksum, so that damage is noticed when it is read; files of earlier versions have none. Files
are written atomically: to a temporary name, flushed, then renamed. A run has one writer at a
time (`zscope.files.lock`).
"""

import hashlib
import io
import json
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from zscope.documents import (
    CHECKSUM,
    FORMAT,
    Damaged,
    checksum_of,
    damage_text,
    is_run,
    read_json,
    read_run_file,
    verify,
    write_json,
)
from zscope.errors import RunError
from zscope.files import check_memory, open_regular, require_regular, sweep, write_whole
from zscope.results import Result, html_table

if TYPE_CHECKING:
    from zscope.autoencoder import Autoencoder

__all__ = [
    "FORMAT",
    "Damaged",
    "Run",
    "checkpoints",
    "clear_leftovers",
    "fill",
    "is_run",
    "open_run",
    "read_checkpoint",
    "read_history",
    "read_json",
    "read_newest_checkpoint",
    "read_npz",
    "read_tensors",
    "verify",
    "weights_checksum",
    "write_checkpoint",
    "write_json",
    "write_tensors",
]

LARGE = 4096  # numbers; larger arrays of a result go to its .npz
CHECKPOINT = r"step-([0-9]{9,18})"  # the name of its file


@dataclass
class Run:
    """One training run. `path` is None for a run kept only in memory."""

    path: Path | None
    config: dict[str, Any]
    status: str = "running"  # running, finished, interrupted or failed
    step: int = 0
    model: "Autoencoder | None" = None
    environment: dict[str, Any] = field(default_factory=dict)
    # The length and the checksum of the part of the history that is known to be on disk.
    history_check: dict[str, Any] | None = None
    _history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def history(self) -> list[dict[str, Any]]:
        """The logged steps: dicts with step, loss and the terms of the loss."""
        if self.path is None:
            return self._history
        return list(read_history(self.path, self.history_check))

    @property
    def name(self) -> str:
        return "run" if self.path is None else self.path.name

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else str(self.path)
        model = self.config.get("model")
        lines = [("Run", f"{self.status}, {self.step:,} steps")]
        if isinstance(model, dict) and "name" in model:
            lines.append(("model", str(model["name"])))
        return "\n".join(f"{name:10}  {text}" for name, text in [*lines, ("path", place)])

    def _repr_html_(self) -> str:
        place = "in memory" if self.path is None else str(self.path)
        cells = [self.name, self.status, str(self.step), place]
        return html_table([["run", "status", "step", "path"], cells], left=2)

    def plot(self) -> Any:
        """The history as curves: types of latents, rate and distortion; a matplotlib figure."""
        from zscope.plots import training_curves

        return training_curves(self.history, title=self.name)

    def save(self) -> None:
        """Write run.json; does nothing for a run in memory."""
        if self.path is not None:
            content = {
                "status": self.status,
                "step": self.step,
                "config": self.config,
                "environment": self.environment,
                "history": self.history_check,
            }
            write_json(self.path / "run.json", content)

    def save_result(self, name: str, result: Result) -> Path:
        """Save the result of an assay with the run, as assays/NAME.json."""
        if self.path is None:
            raise RunError(
                f"store: the result {name!r} cannot be saved: this run is only in memory. "
                "Train with out=FOLDER, or save result.to_dict() yourself."
            )
        target = self.path / "assays" / f"{name}.json"
        arrays: dict[str, np.ndarray] = {}
        content: dict[str, Any] = {
            "assay": name,
            "step": self.step,
            "result": _extract_arrays(result.to_dict(), "", arrays),
        }
        if arrays:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, format=np.array(FORMAT), **arrays)  # type: ignore[arg-type]
            content["arrays"] = hashlib.sha256(buffer.getvalue()).hexdigest()
            # An earlier result goes first: killed between the two, it would have other arrays.
            target.unlink(missing_ok=True)
            write_whole(target.with_suffix(".npz"), buffer.getvalue())
        write_json(target, content, indent=None)
        if not arrays:
            target.with_suffix(".npz").unlink(missing_ok=True)
        return target

    def save_for_hub(
        self,
        folder: str | Path,
        *,
        repository: str | None = None,
        report: Any = None,
        license: str | None = None,
    ) -> Path:
        """Write what `push_to_hub` uploads to a new folder: weights, settings and model card.

        Files that the run was trained on are named without their folders. `report` is the one on
        the card; by default everything that applies is measured on the run's own data, or reused
        where that was done before. `license` is its name on the hub, such as "apache-2.0".
        """
        from zscope.report import publishing

        about: dict[str, Any] = {"repository": repository, "report": report, "license": license}
        return publishing.save_for_hub(self, folder, **about)

    def push_to_hub(
        self,
        repository: str,
        *,
        report: Any = None,
        license: str | None = None,
        private: bool = False,
        token: str | None = None,
    ) -> str:
        """Upload the run with a model card to "org/name" on the Hugging Face hub; its address.

        The repository is created if need be. Anyone can load it again: zs.load("hf:org/name").
        `report` and `license` as in `save_for_hub`; `token` by default the one of hf auth login.
        """
        from zscope.report import publishing

        about: dict[str, Any] = {"report": report, "license": license, "private": private}
        return publishing.push_to_hub(self, repository, token=token, **about)

    def results(self) -> dict[str, dict[str, Any]]:
        """The saved results, by the name of the assay; large parts are arrays."""
        if self.path is None:
            return {}
        results = {}
        for file in sorted((self.path / "assays").glob("*.json")):
            if file.name.startswith("."):  # a partial file, of a process that writes or is dead
                continue
            content = read_json(file)
            if "result" not in content or content.get("assay") != file.stem:
                seen = f"it has no result of {file.stem}, but of {content.get('assay')!r:.60}"
                raise Damaged(damage_text(file, seen))
            arrays = {}
            if file.with_suffix(".npz").exists():
                arrays = read_npz(file.with_suffix(".npz"), content.get("arrays"))
            elif "arrays" in content:
                raise Damaged(damage_text(file.with_suffix(".npz"), "it is missing"))
            results[file.stem] = _insert_arrays(content["result"], arrays)
        return results


def _extract_arrays(value: Any, place: str, arrays: dict[str, np.ndarray]) -> Any:
    """`value` with every large array replaced by {"array": its key in `arrays`}."""
    if isinstance(value, dict):
        return {key: _extract_arrays(item, f"{place}/{key}", arrays) for key, item in value.items()}
    if isinstance(value, list):
        try:
            block = np.asarray(value)
        except ValueError:  # rows of different lengths
            block = np.asarray(None)
        if block.dtype.kind in "bif" and block.size > LARGE:
            arrays[place.lstrip("/")] = (
                block.astype(np.float32) if block.dtype.kind == "f" else block
            )
            return {"array": place.lstrip("/")}
        return [_extract_arrays(item, f"{place}/{k}", arrays) for k, item in enumerate(value)]
    return value


def _insert_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"array"} and str(value["array"]) in arrays:
            return arrays[str(value["array"])]
        return {key: _insert_arrays(item, arrays) for key, item in value.items()}
    return [_insert_arrays(item, arrays) for item in value] if isinstance(value, list) else value


def open_run(path: str | Path) -> Run:
    """Read a run directory; raises RunError if it is incomplete or damaged."""
    path = Path(path)
    content = read_run_file(path)
    run = Run(
        path=path,
        config=content["config"],
        status=content["status"],
        step=content["step"],
        environment=content["environment"],
        history_check=content["history"],
    )
    require_regular(path / "model.safetensors", "store", RunError)
    if run.finished and not (path / "model.safetensors").is_file():
        raise RunError(
            f"store: {path} is marked as finished, but model.safetensors is missing. Was it moved "
            "or deleted? Restore it, or repeat the run in a new folder: zscope train --config "
            f"{path / 'run.json'} --out NEW"
        )
    return run


def read_npz(path: Path, checksum: str | None = None) -> dict[str, np.ndarray]:
    """The arrays of an .npz file; RunError if it is damaged or larger than the memory."""
    try:
        with open_regular(path, "store", RunError) as file:
            content = file.read()
        if checksum is not None and hashlib.sha256(content).hexdigest() != checksum:
            raise Damaged(damage_text(path, "its checksum is another"))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            total = sum(member.file_size for member in archive.infolist())
        check_memory("store", total, str(path))
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    except RunError:
        raise
    # Whatever the readers of zip and npy raise for content that is not theirs.
    except (OSError, ValueError, EOFError, KeyError, TypeError, RuntimeError, SyntaxError,
            MemoryError, OverflowError, NotImplementedError, zipfile.BadZipFile,
            zlib.error) as error:  # fmt: skip
        raise Damaged(damage_text(path, f"{type(error).__name__}: {error}")) from error


def read_history(
    path: Path, check: dict[str, Any] | None = None, key: str = "step"
) -> Iterator[dict[str, Any]]:
    """The rows of history.jsonl; an incomplete last line after a crash is left out.

    `check` is the length and the checksum of the part that was complete when it was written.
    Every row has a number under `key`.
    """
    file = path / "history.jsonl"
    for line in _history_lines(file, check):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        number = row.get(key) if isinstance(row, dict) else None
        if not isinstance(number, int) or isinstance(number, bool):
            raise Damaged(damage_text(file, f"the row {line[:60]!r} has no {key}"))
        yield row


def _history_lines(file: Path, check: dict[str, Any] | None) -> list[bytes]:
    """The complete lines of a history."""
    if not file.exists():
        content = b""
    else:
        with open_regular(file, "store", RunError) as stream:
            content = stream.read()
    if check is not None:
        length = max(0, check["bytes"])
        if hashlib.sha256(content[:length]).hexdigest() != check["sha256"]:
            seen = f"its first {length:,} bytes have another checksum than when they were written"
            raise Damaged(damage_text(file, seen))
    return content[: content.rfind(b"\n") + 1].splitlines(keepends=True)


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors with some metadata as one safetensors file, atomically."""
    from safetensors.torch import save

    # A contiguous copy: tied or channels-last weights cannot be stored as they are.
    copies = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    # A single entry: safetensors writes several in arbitrary order, and the same run must
    # give the same bytes.
    about = {"format": FORMAT, **about}
    metadata = {"zscope": json.dumps({**about, CHECKSUM: _tensor_checksum(copies, about)})}
    write_whole(path, save(copies, metadata))


def _tensor_checksum(tensors: dict[str, Tensor], about: dict[str, Any]) -> str:
    """The checksum of names, types, shapes and values of tensors, and what is said about them."""
    digest = hashlib.sha256(checksum_of(about).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the metadata of a file written by `write_tensors`."""
    from safetensors import SafetensorError, safe_open

    require_regular(path, "store", RunError)
    try:
        with safe_open(str(path), framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("zscope", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RecursionError, RuntimeError) as error:
        raise Damaged(
            f"store: {path} cannot be read ({error}). It is damaged, truncated or missing; use an "
            "earlier checkpoint or train again."
        ) from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        version = about.get("format") if isinstance(about, dict) else type(about).__name__
        raise RunError(
            f"store: {path} has format {version!r}; this zscope reads format {FORMAT}. For weights "
            "of your own module use zs.load(..., weights=)."
        )
    checksum = about.pop(CHECKSUM, None)
    if checksum is not None and checksum != _tensor_checksum(tensors, about):
        raise Damaged(
            f"store: {path} does not agree with its own checksum, so its weights are not those "
            "that were written. Restore it from a copy, use an earlier checkpoint or train again."
        )
    return tensors, about


def weights_checksum(path: Path) -> str | None:
    """The checksum that a file of `write_tensors` states in its header; None if it has none."""
    try:
        with open_regular(path, "store", RunError) as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, 2**24)))
        checksum = json.loads(header["__metadata__"]["zscope"]).get(CHECKSUM)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return checksum if isinstance(checksum, str) else None


def write_checkpoint(
    path: Path, step: int, model: torch.nn.Module, optimisers: dict[str, torch.optim.Optimizer]
) -> Path:
    """Save everything needed to resume from `step` bit for bit."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for role, optimiser in optimisers.items():
        for index, state in optimiser.state_dict()["state"].items():
            for key, value in state.items():
                tensors[f"optimiser.{role}.{index}.{key}"] = torch.as_tensor(value)
    target = path / "checkpoints" / f"step-{step:09d}.safetensors"
    write_tensors(target, tensors, {"step": step})
    return target


def read_checkpoint(
    file: Path, model: torch.nn.Module, optimisers: dict[str, torch.optim.Optimizer] | None = None
) -> int:
    """Load a checkpoint into a model and its optimisers; returns its step."""
    tensors, about = read_tensors(file)
    step = about.get("step")
    named = re.fullmatch(CHECKPOINT, file.stem)
    if not isinstance(step, int) or step < 0 or (named and step != int(named[1])):
        raise Damaged(damage_text(file, f"it is the checkpoint of step {step!r:.60}"))
    weights = {
        name.removeprefix("model."): tensor
        for name, tensor in tensors.items()
        if name.startswith("model.")
    }
    fill(model, weights, file)
    for role, optimiser in (optimisers or {}).items():
        prefix = f"optimiser.{role}."
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        content = optimiser.state_dict()
        try:
            for name, tensor in tensors.items():
                if name.startswith(prefix):
                    index, key = name.removeprefix(prefix).split(".", 1)
                    # Moments get the memory layout of their parameter; step counts are scalars.
                    like = torch.empty_like(parameters[int(index)])
                    state.setdefault(int(index), {})[key] = (
                        like.copy_(tensor) if tensor.ndim else tensor
                    )
            optimiser.load_state_dict({**content, "state": state})
        except (ValueError, IndexError, KeyError, RuntimeError) as error:
            raise RunError(
                f"store: the state of the optimiser in {file} does not fit the model ({error}). Was"
                " it written by another program? Delete this checkpoint to resume from the one "
                "before it."
            ) from error
    return step


def read_newest_checkpoint(
    path: Path, model: torch.nn.Module, optimisers: dict[str, torch.optim.Optimizer]
) -> int:
    """Load the newest checkpoint that is not damaged; returns its step, 0 if there is none.

    A line on stderr tells of each that is damaged. Steps are repeated exactly, so an earlier
    checkpoint, or none, costs only time.
    """
    for _, file in reversed(checkpoints(path)):
        try:
            return read_checkpoint(file, model, optimisers)
        except Damaged as error:
            print(f"{error} Trying the checkpoint before it.", file=sys.stderr)
    return 0


def fill(model: torch.nn.Module, weights: dict[str, Tensor], file: Path) -> None:
    """Load weights into a model; raises RunError if they do not fit."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise RunError(
            f"store: the weights in {file} do not fit the model: {reason[:300]}. Was the model "
            "built with other options than the run? Use the options in its run.json."
        ) from error


def checkpoints(path: Path) -> list[tuple[int, Path]]:
    """(step, file) of each complete checkpoint, oldest first; other files are ignored."""
    files = (path / "checkpoints").glob("step-*.safetensors")
    names = [(re.fullmatch(CHECKPOINT, file.stem), file) for file in files]
    return sorted((int(name[1]), file) for name, file in names if name)


def clear_leftovers(path: Path) -> None:
    """Delete partial files of dead processes."""
    for folder in (path, path / "checkpoints", path / "assays"):
        sweep(folder)


def __dir__() -> list[str]:
    return sorted(__all__)
