"""Workers of a cluster: of a Dask scheduler that is running, or jobs of SLURM.

Workers need this version of zscope, the folders that the work is written to and the files it
reads. All that are there are checked before anything starts; one that comes later and lacks
something is retired from the scheduler, and others do its work. A worker that is asked to end
(SIGTERM, as before the end of a job's time) lets the runs it is training save and end, and their
items go to others. Start workers with one thread (`dask worker --nthreads 1`): trainings in threads
of one process slow each other down.

Whoever can reach a Dask scheduler can run programs on its workers: keep it within a network that
you trust, or give Dask certificates.
"""

import asyncio
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client, KilledWorker, Status, WorkerPlugin, get_worker
from distributed.protocol.pickle import dumps

from zscope import __version__
from zscope.assays.run import source_hash
from zscope.errors import ConfigError, ResourceError, did_you_mean
from zscope.experiments.workers import Stoppable
from zscope.files import partial_folder
from zscope.interrupts import FAILED, GRACE, stop_tasks

__all__ = [
    "ClusterWorkers",
    "check_options",
    "connect",
    "seconds_to_wait",
    "short",
    "source_of_worker",
    "try_cluster",
]

TIMEOUT = 10.0  # seconds to reach a scheduler
WAIT = {"tcp": 600.0, "slurm": 86_400.0}  # seconds to wait for the first worker
REFUSED = "refused"  # how a task ended that its worker could not do
LOGGERS = (
    "distributed", "distributed.client", "distributed.scheduler", "distributed.worker",
    "dask_jobqueue", "tornado.application", "bokeh",
)  # fmt: skip


@contextmanager
def connect(
    cluster: str,
    options: Mapping[str, Any],
    folders: Sequence[Path] = (),
    files: Sequence[Path] = (),
) -> Iterator["ClusterWorkers"]:
    """The workers of a cluster, until the block ends."""
    options = checked_options(cluster, options)
    places = Places(
        [str(folder.absolute()) for folder in folders], [str(file.absolute()) for file in files]
    )
    with quiet():
        if cluster == "slurm":
            from zscope.experiments.slurm import slurm_client

            with slurm_client(options, folders[0] if folders else None) as client:
                yield checked_workers(client, options, places, "slurm")
        else:
            client = scheduler_client(cluster)
            try:
                yield checked_workers(client, options, places, cluster)
            finally:
                client.close()


def try_cluster(cluster: str, options: Mapping[str, Any]) -> None:
    """Refuse a cluster that does not answer or would not take jobs; nothing is started."""
    options = checked_options(cluster, options)
    with quiet():
        if cluster == "slurm":
            from zscope.experiments.slurm import described_jobs

            with described_jobs(options, None):
                return
        scheduler_client(cluster).close()


def checked_options(cluster: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options by the names that the code uses; refuses a cluster that cannot be one."""
    options = {name.replace("-", "_"): value for name, value in options.items()}
    if cluster == "slurm":
        return options  # checked where the jobs are described
    if "://" not in cluster:
        raise ConfigError(
            f"workers: the cluster {cluster!r} is neither an address nor a kind of cluster. "
            "Expected slurm, or the address of a Dask scheduler such as tcp://host:8786."
        )
    check_options(options, {"wait"})
    seconds_to_wait(options, WAIT["tcp"])
    return options


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what Dask logs about itself from the terminal."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="distributed")
        warnings.filterwarnings("ignore", module="dask_jobqueue")
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


def check_options(options: Mapping[str, Any], known: set[str]) -> None:
    for name in options:
        if name not in known:
            raise ConfigError(
                f"workers: this cluster has no option {name!r}. "
                f"{did_you_mean(name.replace('_', '-'), [n.replace('_', '-') for n in known])}"
            )


def seconds_to_wait(options: Mapping[str, Any], default: float) -> float:
    try:
        seconds = float(options.get("wait", default))
        if seconds > 0:
            return seconds
    except (TypeError, ValueError):
        pass
    raise ConfigError(
        f"workers: wait={options['wait']!r}; expected a number of seconds above 0 to wait for the "
        "first worker."
    )


def scheduler_client(address: str) -> Client:
    try:
        return Client(address, timeout=TIMEOUT, set_as_default=False, name="zscope")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"workers: no Dask scheduler answers at {address} ({short(error)}). Is it running, "
            "and can this machine reach it? Start one with: dask scheduler"
        ) from error


def checked_workers(
    client: Client, options: Mapping[str, Any], places: "Places", cluster: str
) -> "ClusterWorkers":
    """The workers of a client, once there is one, and all that are there can do the work."""
    if client.dashboard_link:
        _say(f"dashboard: {client.dashboard_link}")
    limit = seconds_to_wait(options, WAIT.get(cluster, WAIT["tcp"]))
    if not client.scheduler_info()["workers"]:
        _say(f"waiting for the first worker of {cluster}, up to {limit:.0f} s")
        try:
            client.wait_for_workers(1, timeout=limit)
        except OSError as error:
            raise ResourceError(
                f"workers: {cluster} has had no worker for {limit:.0f} s. Are its jobs waiting in "
                "a queue? Start workers (dask worker ADDRESS --nthreads 1), or wait longer with "
                "the cluster option wait=SECONDS."
            ) from error
    check_versions(client)
    for folder in places.folders:
        with partial_folder(Path(folder)) as probe:
            check_place(client, view_of_folder, str(probe), f"{folder}, where the runs go")
    for file in places.files:
        check_place(client, view_of_file, file, f"{file}, which has the data")
    return ClusterWorkers(client, places)


def source_of_worker() -> tuple[str, str]:
    """The version of zscope in this process, and a hash of its source."""
    return __version__, source_hash()


def check_versions(client: Client) -> None:
    here = source_of_worker()
    for worker, there in client.run(source_of_worker, on_error="return").items():
        if there == here:
            continue
        if isinstance(there, tuple):
            what = other_version(there, here)
        else:
            what = f"cannot import this zscope ({short(there)}), but {this_program(here)}"
        raise ConfigError(
            f"workers: the worker at {worker} {what}. Its results would not be comparable: install "
            "the same version there, and start the worker again."
        )


def other_version(there: tuple[str, str], here: tuple[str, str]) -> str:
    return f"has zscope {there[0]}, source {there[1][:8]}, but {this_program(here)}"


def this_program(source: tuple[str, str]) -> str:
    return f"this program is zscope {source[0]}, source {source[1][:8]}"


def check_place(
    client: Client, view: Callable[[str], str | None], path: str, described: str
) -> None:
    """Refuse workers that do not see a folder or a file, or may not use it."""
    end = time.monotonic() + 5  # network file systems take a moment
    while True:
        views = client.run(view, path, on_error="return")
        bad = {worker: each for worker, each in views.items() if each is not None}
        if not bad or time.monotonic() > end:
            break
        time.sleep(0.5)
    for worker, each in bad.items():
        raise ConfigError(
            f"workers: the worker at {worker} {each} {described}. Is it on a disk that only this "
            "machine has? Choose a place that all machines share, under the same path."
        )


def view_of_folder(path: str) -> str | None:
    """What a worker cannot do with a folder that it writes to."""
    if not os.path.isdir(path):
        return "does not see"
    return None if os.access(path, os.W_OK | os.X_OK) else "may not write to"


def view_of_file(path: str) -> str | None:
    """What a worker cannot do with a file or a folder that it reads."""
    if not os.path.exists(path):
        return "does not see"
    return None if os.access(path, os.R_OK) else "may not read"


@dataclass(frozen=True)
class Places:
    """The folders that workers write to, and the files that they read."""

    folders: Sequence[str] = ()
    files: Sequence[str] = ()

    def unseen(self) -> str | None:
        """What this process cannot do with one of them."""
        for view, paths in ((view_of_folder, self.folders), (view_of_file, self.files)):
            for path in paths:
                if (what := view(path)) is not None:
                    return f"{what} {path}"
        return None


class ClusterWorkers(Stoppable):
    """The workers of a Dask client.

    Dask's own executor (`Client.get_executor`) takes a result for an error if the worker that
    had it leaves at that moment.
    """

    def __init__(self, client: Client, places: Places | None = None) -> None:
        self._client, self._places = client, places or Places()
        self._source = source_of_worker()
        self._tasks: set[Any] = set()  # Dask forgets what nobody holds
        self._retired: set[str] = set()  # addresses
        self._reasons: set[str] = set()  # why, as it was said
        name = f"zscope-{self._source[0]}-{self._source[1][:12]}"
        client.register_plugin(SaveAtTheEnd(), name=name)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        outcome: Future[Any] = Future()
        call = dumps(_Call(self._source, self._places, partial(fn, *args, **kwargs)))
        assert self._client.loop is not None  # it is as long as the client is open
        self._client.loop.add_callback(self._pass_on, call, self._send(call), outcome)
        return outcome

    def _send(self, call: bytes) -> Any:
        # The scheduler unpickles what it passes on, and would need zscope for that. So it gets
        # bytes, and the call is made where those are unpickled. Not pure: a second try would be
        # answered with the result of the first.
        task = self._client.submit(pickle.loads, call, pure=False)
        self._tasks.add(task)
        return task

    async def _pass_on(self, call: bytes, task: Any, outcome: "Future[Any]") -> None:
        """Give a future what becomes of a task, which another worker gets if one refuses it."""
        result = await self._result(task)
        while isinstance(result, tuple) and result[0] == REFUSED:
            result = await self._retire(*result[1:]) or await self._result(self._send(call))
        if outcome.set_running_or_notify_cancel():
            if isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

    async def _result(self, task: Any) -> Any:
        """What a task returns, or the exception that stands for it."""
        try:
            return await self._client.gather(task, asynchronous=True)
        except (CancelledError, asyncio.CancelledError) as error:
            return ResourceError(
                f"workers: the connection to the scheduler was lost ({short(error)}). Was it "
                "stopped? What was done so far is kept: start the scheduler, and then the same "
                "again."
            )
        except KilledWorker as error:
            line = (
                f"workers: given up: every worker that had it died ({short(error)}). Were they "
                "killed for lack of memory? Use workers with more, a smaller batch or smaller data."
            )
            return FAILED, line, line
        except Exception as error:
            return error
        finally:
            self._tasks.discard(task)

    async def _retire(self, address: str, host: str, reason: str) -> Exception | None:
        """Retire a worker that cannot do the work; the error if no other one is left."""
        worker = f"the worker on {host} {reason}"
        self._retired.add(address)
        scheduler = self._client.scheduler
        assert scheduler is not None  # as long as the client is open
        try:
            others = set(await scheduler.ncores()) - self._retired
            if not others:
                return ResourceError(
                    f"workers: no worker is left that can do the work: {worker}. Correct that and "
                    "start workers again, then the same again: what was done so far is kept."
                )
            if worker not in self._reasons:
                self._reasons.add(worker)
                _say(f"{worker}. It is retired, and others do its work.")
            await scheduler.retire_workers(workers=[address], close_workers=True)
        except OSError as error:
            return ResourceError(
                f"workers: the scheduler does not answer ({short(error)}). Was it stopped? What "
                "was done so far is kept: start the scheduler, and then the same again."
            )
        return None

    def stop(self, owner: str | None = None) -> None:
        """Ask the tasks of an owner to save and end, and wait for them."""
        end = time.monotonic() + GRACE
        with suppress(OSError, ValueError, RuntimeError):
            running = self._client.run(stop_tasks, owner, on_error="ignore")
            self._client.cancel(list(self._tasks))
            while any(running.values()) and time.monotonic() < end:
                time.sleep(0.2)
                running = self._client.run(stop_tasks, owner, on_error="ignore")


class _Call:
    """Becomes the result of `call_if_fit` when it is unpickled."""

    def __init__(self, source: tuple[str, str], places: Places, call: Callable[[], Any]) -> None:
        # In bytes: another version may not have what these are made of.
        self._arguments = source, dumps((places, call))

    def __reduce__(self) -> tuple[Any, ...]:
        return call_if_fit, self._arguments


def call_if_fit(source: tuple[str, str], task: bytes) -> Any:
    """Do a task, or say why not, on a worker that may have come after the others were checked."""
    reason, here = None, source_of_worker()
    if here != source:
        reason = other_version(here, source)
    else:
        places, call = pickle.loads(task)
        reason = places.unseen()
    if reason is None:
        return call()
    return REFUSED, get_worker().address, socket.gethostname(), reason


class SaveAtTheEnd(WorkerPlugin):
    """Lets the tasks of a worker save and end before it ends itself.

    Tasks run in threads, where no signal arrives. With SIGTERM, they end first and their results
    (that they ended) are sent, so that nobody takes the worker for one that they have killed.
    """

    idempotent = True  # or a second program on the same workers would tear it down
    own_process = False

    def setup(self, worker: Any) -> None:
        self.own_process = threading.current_thread() is threading.main_thread()
        if self.own_process:
            signal.signal(signal.SIGTERM, partial(self._handle, worker))
        # Takes seconds. With Dask's handler, a worker that is asked to end in them and loses its
        # scheduler too, as a job at the end of its program, would close only half and stay.
        import torch

        torch.set_num_threads(1)

    def _handle(self, worker: Any, number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)
        threading.Thread(target=self._end, args=[worker], daemon=True).start()

    def _end(self, worker: Any) -> None:
        stop_tasks(None, GRACE)
        time.sleep(1.0)  # until the results are fetched
        worker.loop.add_callback(worker.close, nanny=False, reason="SIGTERM")

    async def teardown(self, worker: Any) -> None:
        if self.own_process and worker.status in (Status.closing, Status.closed):
            await asyncio.to_thread(stop_tasks, None, GRACE)


def _say(text: str) -> None:
    print(f"workers: {text}", file=sys.stderr)


def short(error: Any, limit: int = 200) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def __dir__() -> list[str]:
    return sorted(__all__)
