"""Programs that tests start and stop: a Dask scheduler with workers, a SLURM of one node."""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


def python_path(*folders: Path) -> str:
    """These folders before those that this process was given."""
    return os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])


ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": python_path(SOURCE, HERE),
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def wait_until(condition, seconds=60.0):
    """What the condition returns, as soon as it is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)
    return value


class DaskCluster:
    """A scheduler and workers on this machine, each a program of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workers, self._started = folder, [], []
        file = folder / "scheduler.json"
        # Only workers need zscope: the scheduler could not import it.
        without = folder / "without"
        (without / "zscope").mkdir(parents=True)
        (without / "zscope" / "__init__.py").write_text("raise ImportError('not here')")
        self.scheduler = self._start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", file,
            "--no-dashboard", PYTHONPATH=python_path(without),
        )  # fmt: skip
        self.address = wait_until(lambda: file.exists() and read_json(file)).get("address")

    def add_worker(
        self, *options: str, inside: str | None = None, **environment: str
    ) -> subprocess.Popen:
        """One more worker; with `inside`, a shell command, in a view of files of its own."""
        worker = self._start(
            "dask_worker", self.address, "--host", "127.0.0.1", "--nthreads", "1",
            "--no-dashboard", *options or ["--no-nanny"], inside=inside, **environment,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def _start(
        self, name: str, *options: object, inside: str | None = None, **environment: str
    ) -> subprocess.Popen:
        log = (self.folder / f"{name}-{len(self._started)}.log").open("wb")
        command = [sys.executable, "-m", f"distributed.cli.{name}", *map(str, options)]
        if inside is not None:
            command = ["unshare", "-m", "sh", "-c", f'{inside} && exec "$@"', "sh", *command]
        program = subprocess.Popen(
            command,
            env=ENVIRONMENT | environment,
            stdout=log,
            stderr=log,
            cwd=self.folder,
            start_new_session=True,
        )
        log.close()
        self._started.append(program)
        return program

    def stop(self) -> None:
        for program in self._started:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def read_json(file: Path) -> dict | None:
    """None as long as it is being written."""
    with suppress(json.JSONDecodeError):
        return json.loads(file.read_text())
    return None


@contextmanager
def dask_cluster(folder: Path) -> Iterator[DaskCluster]:
    cluster = DaskCluster(folder)
    try:
        yield cluster
    finally:
        cluster.stop()


SLURM_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={worker_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
KillWait=30
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory}
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def why_no_slurm() -> str:
    """Why a SLURM cannot be started here; nothing if it can."""
    for program in ("munged", "slurmctld", "slurmd", "sbatch", "scancel"):
        if shutil.which(program) is None:
            return f"needs the packages slurm-wlm and munge: there is no {program}"
    if os.getuid() != 0:
        return "slurmd needs to be root"
    with suppress(KeyError):
        pwd.getpwnam("munge")
        return ""
    return "there is no user munge"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def slurm(folder: Path) -> Iterator[Path]:
    """A SLURM of this machine alone; yields its configuration, for SLURM_CONF."""
    host = socket.gethostname().partition(".")[0]
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir()
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    configuration = folder / "slurm.conf"
    configuration.write_text(
        SLURM_CONF.format(
            host=host,
            folder=folder,
            port=free_port(),
            worker_port=free_port(),
            cores=os.cpu_count(),
            memory=min(16_000, total // 2**20 * 9 // 10),
        )
    )
    environment = ENVIRONMENT | {"SLURM_CONF": str(configuration)}
    try:
        start_munge(folder / "munge")
        for command in (["slurmctld"], ["slurmd", "-N", host]):
            subprocess.run(command, env=environment, check=True, capture_output=True)
        wait_until(lambda: "idle" in output("sinfo", "-h", "-o", "%T", env=environment))
        try:
            yield configuration
        finally:  # without its daemons, nobody would end a job
            subprocess.run(["scancel", "-u", "root"], env=environment, check=False, timeout=30)
            wait_until(lambda: not output("squeue", "-h", env=environment).strip())
    finally:
        for file in ("slurmd.pid", "slurmctld.pid", "munge/pid"):
            stop_by_file(folder / file)


def start_munge(folder: Path) -> None:
    """munged, as the user munge, who must own its folders and be able to reach them."""
    user = pwd.getpwnam("munge")
    key = folder / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    for path in (folder, key):
        os.chown(path, user.pw_uid, user.pw_gid)
    folder.chmod(0o755)
    options = {
        "key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log",
        "seed-file": "seed",
    }  # fmt: skip
    files = [f"--{option}={folder / name}" for option, name in options.items()]
    subprocess.run(
        ["munged", *files, "--force"], user=user.pw_uid, group=user.pw_gid, check=True,
        capture_output=True,
    )  # fmt: skip


def stop_by_file(file: Path) -> None:
    """Stop a daemon by the file with its number."""
    with suppress(FileNotFoundError, ValueError, ProcessLookupError):
        process = int(file.read_text())
        os.kill(process, signal.SIGTERM)
        for _ in range(100):
            os.kill(process, 0)
            time.sleep(0.1)
        os.kill(process, signal.SIGKILL)


def output(*command: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr
