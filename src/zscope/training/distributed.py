"""One run on several devices: processes that share each batch (torch.distributed, DDP).

Process r takes rows r, r + N, r + 2N, … of each batch; gradients are averaged, so N
processes make the update that one process would make on the whole batch. Losses that
compare the rows of a batch with each other (β-TCVAE, WAE, DIP-VAE, FactorVAE's shuffled
codes, the consistency penalty, batch norm) use the rows of their process alone. Noise
depends on (seed, step, process), so a stochastic model gets other draws than on one
device, and the same ones each time it runs on N. On the CPU the processes communicate by
gloo over the loopback interface, on CUDA by nccl.
"""

import copy
import os
import signal
import sys
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
from zscope.interrupts import watch_interrupts
from zscope.randomness import Source
from zscope.training.config import TrainConfig
from zscope.training.keeping import begin, load_finished

__all__ = ["Shared", "gather", "mean_over_processes", "train_on_many"]


class Shared:
    """losses(x, generator, ...) of a model whose gradients are averaged over the processes."""

    def __init__(self, model: Trainable) -> None:
        self._parallel = DistributedDataParallel(_Forward(model))

    def __call__(self, x: Tensor, generator: Source, **extras: Any) -> Losses:
        losses: Losses = self._parallel(x, generator, **extras)
        return losses


class _Forward(torch.nn.Module):
    """DDP synchronises `forward`, whereas training calls `losses`."""

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
    monitor: Any,
    log: Any,
) -> store.Run:
    """Start `config.devices` processes, wait for them, and return their run."""
    if torch.cuda.is_available() and config.devices > torch.cuda.device_count():
        raise ConfigError(
            f"train: devices={config.devices}, but this machine has {torch.cuda.device_count()} "
            "accelerators. Use at most that many, or device='cpu'."
        )
    with tempfile.TemporaryDirectory(prefix="zscope-") as folder:
        path = Path(folder) / "run" if out is None else Path(out)
        run = begin(path, config, resume)
        if run.finished:
            return load_finished(run, model, config)
        meeting = Path(folder) / "meeting"
        _run_processes(model, dataset, config, path, progress, monitor, log, meeting)
        run = load_finished(store.open_run(path), model, config)
        if out is None:
            run._history, run.path = run.history, None
        return run


def _run_processes(
    model: Trainable,
    dataset: Dataset,
    config: TrainConfig,
    path: Path,
    progress: bool | None,
    monitor: Any,
    log: Any,
    meeting: Path,
) -> None:
    context = processes.get_context("spawn")
    stop, messages = context.Event(), context.Queue()
    # A dataset with a recipe is loaded again in each process: sending a memory map would copy
    # all of it.
    sent = dataset if dataset.recipe is None else (dataset.recipe, dataset.provenance.get("root"))
    workers = [
        context.Process(
            target=_work,
            args=(
                rank,
                model.cpu(),
                sent,
                config,
                path,
                progress,
                monitor,
                log,
                meeting,
                stop,
                messages,
            ),
            daemon=True,
        )
        for rank in range(config.devices)
    ]
    for worker in workers:
        worker.start()
    waiting: dict[Any, Any] = {worker.sentinel: worker for worker in workers}
    failed = False
    with watch_interrupts() as interrupted:
        while waiting and not failed:
            for sentinel in connection.wait(list(waiting), timeout=0.5):
                worker = waiting.pop(sentinel)
                worker.join()  # its exit code is known only after this
                failed = failed or worker.exitcode != 0
            if interrupted.is_set():
                stop.set()
    for worker in waiting.values():
        worker.join(timeout=5)  # the others may be about to fail too
        worker.kill()
    if failed:
        kind, message = messages.get(timeout=5) if not messages.empty() else ("TrainingError", "")
        if kind == "KeyboardInterrupt":
            raise interrupted.error(message)
        unexplained = (
            f"train: one of {config.devices} processes ended without an error message (exit codes "
            f"{[worker.exitcode for worker in workers]}). Was it killed for "
            "lack of memory? Use a smaller batch or fewer devices, and resume with --resume."
        )
        raise getattr(errors, kind, TrainingError)(message or unexplained)


def _work(
    rank: int,
    model: Trainable,
    sent: Any,
    config: TrainConfig,
    path: Path,
    progress: bool | None,
    monitor: Any,
    log: Any,
    meeting: Path,
    stop: Any,
    messages: Any,
) -> None:
    """One process: join the others, train, report errors."""
    from zscope.training.loop import run_loop

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the parent handles them for all workers
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
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
        # The model is in memory shared by all processes: each trains a copy of its own.
        run_loop(
            copy.deepcopy(model),
            dataset,
            config,
            out=path,
            resume=True,
            progress=progress,
            monitor=monitor,
            log=log,
            rank=rank,
            stop=stop,
        )
        distributed.barrier()
    except KeyboardInterrupt as interrupt:
        if rank == 0:
            messages.put(("KeyboardInterrupt", str(interrupt)))
        _leave(messages, 1)
    except ZscopeError as error:
        messages.put((type(error).__name__, str(error)))
        _leave(messages, 1)
    except Exception as error:
        traceback.print_exc()  # it would be lost with this process
        lines = str(error).strip().splitlines() or [""]
        message = (
            f"train: process {rank} of {config.devices} raised {type(error).__name__}: "
            f"{lines[0][:200]} (see the traceback above). Does the model train with devices=1? "
            "The loss must depend on all of its weights."
        )
        messages.put(("TrainingError", message))
        _leave(messages, 1)
    distributed.destroy_process_group()
    # Not by way of the interpreter's shutdown, where threads of the library may still be
    # running: it then aborts, rarely, after the work is done.
    _leave(messages, 0)


def _leave(messages: Any, code: int) -> None:
    messages.close()
    messages.join_thread()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def mean_over_processes(numbers: Tensor) -> Tensor:
    distributed.all_reduce(numbers)
    return numbers / distributed.get_world_size()


def gather(rows: Tensor) -> Tensor:
    """The rows of all processes."""
    parts = [torch.empty_like(rows) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, rows.contiguous())
    return torch.cat(parts)
