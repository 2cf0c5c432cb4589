"""A run on disk: its configuration, weights, history and results.

    RUN/run.json              the configuration, the status and the environment
    RUN/model.safetensors     the trained weights, once the run has finished
    RUN/history.jsonl         one row for each logged step, written while training
    RUN/checkpoints/          step-0001000.safetensors: weights and optimiser, to resume from
    RUN/assays/               NAME.json for each result (NAME.npz for large arrays)

Weights are stored as safetensors, never pickle. Every file carries a format version. Files are
written atomically: to a temporary name, flushed, then renamed.
"""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from zscope.errors import RunError
from zscope.files import sweep, write_whole
from zscope.results import Result, html_table

if TYPE_CHECKING:
    from zscope.autoencoder import Autoencoder

__all__ = [
    "FORMAT",
    "Run",
    "checkpoints",
    "clear_leftovers",
    "fill",
    "is_run",
    "open_run",
    "read_checkpoint",
    "read_history",
    "read_json",
    "read_tensors",
    "write_checkpoint",
    "write_tensors",
]

FORMAT = 1
LARGE = 4096  # numbers; larger arrays of a result go to its .npz


@dataclass
class Run:
    """One training run. `path` is None for a run kept only in memory."""

    path: Path | None
    config: dict[str, Any]
    status: str = "running"  # running, finished, interrupted or failed
    step: int = 0
    model: "Autoencoder | None" = None
    environment: dict[str, Any] = field(default_factory=dict)
    _history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def history(self) -> list[dict[str, Any]]:
        """The logged steps: dicts with step, loss and the terms of the loss."""
        return self._history if self.path is None else list(read_history(self.path))

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

    def save(self) -> None:
        """Write run.json; does nothing for a run in memory."""
        if self.path is not None:
            content = {
                "format": FORMAT,
                "status": self.status,
                "step": self.step,
                "config": self.config,
                "environment": self.environment,
            }
            write_whole(self.path / "run.json", json.dumps(content, indent=2).encode())

    def save_result(self, name: str, result: Result) -> Path:
        """Save the result of an assay with the run, as assays/NAME.json."""
        if self.path is None:
            raise RunError(
                f"store: the result {name!r} cannot be saved: this run is only in memory. "
                "Train with out=FOLDER, or save result.to_dict() yourself."
            )
        target = self.path / "assays" / f"{name}.json"
        arrays: dict[str, np.ndarray] = {}
        content = {
            "format": FORMAT,
            "assay": name,
            "step": self.step,
            "result": _extract_arrays(result.to_dict(), "", arrays),
        }
        if arrays:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, format=np.array(FORMAT), **arrays)  # type: ignore[arg-type]
            write_whole(target.with_suffix(".npz"), buffer.getvalue())
        else:
            target.with_suffix(".npz").unlink(missing_ok=True)
        write_whole(target, json.dumps(content).encode())
        return target

    def results(self) -> dict[str, dict[str, Any]]:
        """The saved results, by the name of the assay; large parts are arrays."""
        if self.path is None:
            return {}
        results = {}
        for file in sorted((self.path / "assays").glob("*.json")):
            arrays = {}
            if file.with_suffix(".npz").is_file():
                with np.load(file.with_suffix(".npz")) as archive:
                    arrays = dict(archive)
            results[file.stem] = _insert_arrays(read_json(file)["result"], arrays)
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
        if set(value) == {"array"} and value["array"] in arrays:
            return arrays[value["array"]]
        return {key: _insert_arrays(item, arrays) for key, item in value.items()}
    return [_insert_arrays(item, arrays) for item in value] if isinstance(value, list) else value


def is_run(path: str | Path) -> bool:
    """Whether this folder is a run of zscope."""
    return (Path(path) / "run.json").is_file()


def open_run(path: str | Path) -> Run:
    """Read a run directory; raises RunError if it is incomplete or damaged."""
    path = Path(path)
    if not is_run(path):
        if path.is_dir() and any(path.iterdir()):
            raise RunError(
                f"store: {path} contains no run.json. It is not a run, or one that was stopped "
                f"before training began. Start it again: zscope train ... --out {path}"
            )
        raise RunError(
            f"store: there is no run at {path}. Train one with: zscope train MODEL DATASET "
            f"--out {path}"
        )
    content = read_json(path / "run.json")
    missing = [key for key in ("status", "step", "config") if key not in content]
    if missing:
        raise RunError(
            f"store: {path / 'run.json'} lacks {', '.join(missing)}. It was edited, or written "
            "by another program. Restore it, or train again."
        )
    kinds = {"status": str, "step": int, "config": dict}
    wrong = [key for key, kind in kinds.items() if not isinstance(content[key], kind)]
    if wrong:
        raise RunError(
            f"store: {path / 'run.json'} has {wrong[0]}={content[wrong[0]]!r}; expected "
            f"{kinds[wrong[0]].__name__}. Was it edited? Restore it, or train again."
        )
    run = Run(
        path=path,
        config=content["config"],
        status=content["status"],
        step=content["step"],
        environment=content.get("environment", {}),
    )
    if run.finished and not (path / "model.safetensors").is_file():
        raise RunError(
            f"store: {path} is marked as finished, but model.safetensors is missing. Was it moved "
            "or deleted? Restore it, or repeat the run in a new folder: zscope train --config "
            f"{path / 'run.json'} --out NEW"
        )
    return run


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file of zscope; raises RunError if it is damaged or too new."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, OSError) as error:
        raise RunError(
            f"store: {path} cannot be read ({error}). It is damaged or truncated; restore it "
            "from a copy, or create it again."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        version = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise RunError(
            f"store: {path} has format {version!r}; this zscope reads format {FORMAT}. Was it "
            "written by another version, or by hand? Update zscope, or create the file again."
        )
    return content


def read_history(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of history.jsonl; an incomplete last line after a crash is left out."""
    file = path / "history.jsonl"
    if not file.is_file():
        return
    with file.open("rb") as lines:
        for line in lines:
            try:
                row = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                row = None
            if row is None:
                return
            yield row


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write tensors with some metadata as one safetensors file, atomically."""
    from safetensors.torch import save

    # A single entry: safetensors writes several in arbitrary order, and the same run must
    # give the same bytes.
    metadata = {"zscope": json.dumps({"format": FORMAT, **about})}
    # A contiguous copy: tied or channels-last weights cannot be stored as they are.
    copies = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    write_whole(path, save(copies, metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the metadata of a file written by `write_tensors`."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("zscope", "{}"))
            if about.get("format") != FORMAT:
                raise RunError(
                    f"store: {path} has format {about.get('format')!r}; this zscope reads "
                    f"format {FORMAT}. For weights of your own module use zs.load(..., weights=)."
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise RunError(
            f"store: {path} cannot be read ({error}). It is damaged, truncated or missing; use an "
            "earlier checkpoint or train again."
        ) from error
    return tensors, about


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
        for name, tensor in tensors.items():
            if name.startswith(prefix):
                index, key = name.removeprefix(prefix).split(".", 1)
                # Moments get the memory layout of their parameter; step counts are scalars.
                like = torch.empty_like(parameters[int(index)])
                state.setdefault(int(index), {})[key] = (
                    like.copy_(tensor) if tensor.ndim else tensor
                )
        content = optimiser.state_dict()
        optimiser.load_state_dict({**content, "state": state})
    return int(about["step"])


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
    """(step, file) of each complete checkpoint, oldest first."""
    files = sorted((path / "checkpoints").glob("step-*.safetensors"))
    return [(int(file.stem.removeprefix("step-")), file) for file in files]


def clear_leftovers(path: Path) -> None:
    """Delete partial files of dead processes."""
    for folder in (path, path / "checkpoints", path / "assays"):
        sweep(folder)


def __dir__() -> list[str]:
    return sorted(__all__)
