"""One run on several devices: processes that share each batch (torch.distributed, DDP).

Process r takes rows r, r + N, r + 2N, … of each batch; gradients are averaged, so N
processes make the update that one process would make on the whole batch. Losses that
compare the rows of a batch with each other (β-TCVAE, WAE, DIP-VAE, FactorVAE's shuffled
codes, the consistency penalty, batch norm) see the rows of their process alone. Noise
comes from (seed, step, process), so a stochastic model sees other draws than on one
device, and the same ones each time it runs on N. On the CPU the processes talk by gloo
over the loopback interface, on CUDA by nccl.
"""

import copy
import os
import signal
import tempfile
import threading
import traceback
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch import multiprocessing as processes
from torch.nn.parallel import DistributedDataParallel

from zscope import data as datasets
from zscope import errors, store
from zscope.autoencoder import Losses, Trainable
from zscope.data.dataset import Dataset
from zscope.errors import ConfigError, TrainingError, ZscopeError
from zscope.randomness import Source
from zscope.training.config import TrainConfig
from zscope.training.keeping import begin, finished_before


class Shared:
    """losses(x, generator, ...) of a model whose gradients are averaged over the processes."""

    def __init__(self, model: Trainable) -> None:
        self._parallel = DistributedDataParallel(_Forward(model))

    def __call__(self, x: Tensor, generator: Source, **extras: Any) -> Losses:
        return self._parallel(x, generator, **extras)


class _Forward(torch.nn.Module):
    """DDP watches `forward`; what is trained is `losses`."""

    def __init__(self, model: Trainable) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, generator: Source, **extras: Any) -> Losses:
        return self.model.losses(x, generator, **extras)


def train_on_many(
    model: Trainable,
    dataset: Dataset,
    config: TrainConfig,
    *,
    out: str | Path | None,
    resume: bool,
    progress: bool | None,
) -> store.Run:
    """Start `config.devices` processes, wait for them, and return the run they made."""
    if torch.cuda.is_available() and config.devices > torch.cuda.device_count():
        raise ConfigError(
            f"train: devices={config.devices}, but this machine has {torch.cuda.device_count()} "
            "accelerators. Ask for at most that many, or say device='cpu'."
        )
    with tempfile.TemporaryDirectory(prefix="zscope-") as folder:
        path = Path(folder) / "run" if out is None else Path(out)
        run = begin(path, config, resume)
        if run.finished:
            return finished_before(run, model)
        _run_processes(model, dataset, config, path, progress, Path(folder) / "meeting")
        run = finished_before(store.open_run(path), model)
        if out is None:
            run._history, run.path = run.history, None
        return run


def _run_processes(
    model: Trainable,
    dataset: Dataset,
    config: TrainConfig,
    path: Path,
    progress: bool | None,
    meeting: Path,
) -> None:
    context = processes.get_context("spawn")
    stop, said = context.Event(), context.Queue()
    # A dataset that can be made again is made again in each process: sending a memory map
    # would copy all of it.
    sent = dataset if dataset.recipe is None else (dataset.recipe, dataset.provenance.get("root"))
    workers = [
        context.Process(
            target=_work,
            args=(rank, model.cpu(), sent, config, path, progress, meeting, stop, said),
            daemon=True,
        )
        for rank in range(config.devices)
    ]
    for worker in workers:
        worker.start()
    waiting: dict[Any, Any] = {worker.sentinel: worker for worker in workers}
    failed = False
    while waiting and not failed:
        try:
            for sentinel in connection.wait(list(waiting), timeout=0.5):
                worker = waiting.pop(sentinel)
                worker.join()  # its exit code is known only after this
                failed = failed or worker.exitcode != 0
        except KeyboardInterrupt:
            stop.set()
    for worker in waiting.values():
        worker.join(timeout=5)  # the others may be about to say the same
        worker.terminate()
    if failed:
        kind, message = said.get(timeout=5) if not said.empty() else ("TrainingError", "")
        if kind == "KeyboardInterrupt":
            raise KeyboardInterrupt(message)
        lost = (
            f"train: one of {config.devices} processes ended without a word (exit codes "
            f"{[worker.exitcode for worker in workers]}). Was it killed for "
            "lack of memory? Use a smaller batch or fewer devices, and go on with --resume."
        )
        raise getattr(errors, kind, TrainingError)(message or lost)


def _work(
    rank: int,
    model: Trainable,
    sent: Any,
    config: TrainConfig,
    path: Path,
    progress: bool | None,
    meeting: Path,
    stop: Any,
    said: Any,
) -> None:
    """One process: meet the others, train, say what went wrong."""
    from zscope.training.loop import run_loop

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and tells all of us
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // config.devices))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    cuda = torch.cuda.is_available() and config.device in ("auto", "cuda")
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=config.devices,
    )
    try:
        dataset = sent if isinstance(sent, Dataset) else datasets.from_recipe(sent[0], root=sent[1])
        # A sent model lives in memory shared by all processes: each trains a copy of its own.
        run_loop(
            copy.deepcopy(model),
            dataset,
            config,
            out=path,
            resume=True,
            progress=progress,
            rank=rank,
            stop=stop,
        )
        distributed.barrier()
    except KeyboardInterrupt as interrupt:
        if rank == 0:
            said.put(("KeyboardInterrupt", str(interrupt)))
        _leave(said, 1)
    except ZscopeError as error:
        said.put((type(error).__name__, str(error)))
        _leave(said, 1)
    except Exception as error:
        traceback.print_exc()  # it would be lost with this process
        lines = str(error).strip().splitlines() or [""]
        message = (
            f"train: process {rank} of {config.devices} raised {type(error).__name__}: "
            f"{lines[0][:200]} (the whole of it stands above). Does the model train with "
            "devices=1? All of its weights must take part in the loss."
        )
        said.put(("TrainingError", message))
        _leave(said, 1)
    distributed.destroy_process_group()


def _leave(said: Any, code: int) -> None:
    said.close()
    said.join_thread()
    os._exit(code)


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def mean_over_processes(numbers: Tensor) -> Tensor:
    distributed.all_reduce(numbers)
    return numbers / distributed.get_world_size()


def gathered(rows: Tensor) -> Tensor:
    """The rows of all processes."""
    parts = [torch.empty_like(rows) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, rows.contiguous())
    return torch.cat(parts)
