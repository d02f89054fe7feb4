"""What starts ranks in an emulated cluster's hosts: by hand, torchrun, Open MPI or Slurm, as people do.

Their daemons run in the hosts and their files lie in memory that only a host's mount keeps, so that all of
it goes with the hosts, however the test ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from emulated_host import EmulationError, Host, Process
from tools import require_tool

Launcher = Literal["env", "torchrun", "kubeflow", "mpirun", "srun"]

# Variables in which launchers tell a process its rank.
RANK_NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
# Tells the processes of one job from those of another.
JOB_MARK = "NCCLBENCH_TEST_JOB"

# A host, a command and the variables it needs of its own.
Place = tuple[int, Sequence[str], Mapping[str, str]]

_READY_S = 20.0


@dataclass(frozen=True, slots=True)
class Ranks:
    """What is to be started.

    Attributes:
        hosts: names of the hosts.
        nproc: ranks on each.
        argv: what Python is to run.
        env: variables of all ranks.
        master: MASTER_ADDR and MASTER_PORT.
        round_robin: rank 1 is on the second host; else the first host is filled first.
    """

    hosts: Sequence[str]
    nproc: int
    argv: Sequence[str]
    env: Mapping[str, str]
    master: Mapping[str, str]
    round_robin: bool


def by_hand(ranks: Ranks) -> list[Place]:
    """Each rank on its own, with the variables that torch asks for."""
    hosts, nproc = len(ranks.hosts), ranks.nproc
    sizes = {"WORLD_SIZE": str(hosts * nproc), "LOCAL_WORLD_SIZE": str(nproc), **ranks.master}
    places = []
    for rank in range(hosts * nproc):
        local, host = divmod(rank, hosts) if ranks.round_robin else (rank % nproc, rank // nproc)
        own = {"RANK": str(rank), "LOCAL_RANK": str(local)}
        places.append((host, [sys.executable, *ranks.argv], {**ranks.env, **sizes, **own}))
    return places


def by_torchrun(ranks: Ranks) -> list[Place]:
    """torchrun in every host. Its rendezvous numbers the hosts in the order of their names."""
    if ranks.round_robin:
        raise ValueError("torchrun fills one host after the other")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "c10d"]
    endpoint = f"{ranks.master['MASTER_ADDR']}:{ranks.master['MASTER_PORT']}"
    size = ["--nnodes", str(len(ranks.hosts)), "--nproc-per-node", str(ranks.nproc)]
    command = [*torchrun, *size, "--rdzv-endpoint", endpoint, *ranks.argv]
    return [(host, command, ranks.env) for host in range(len(ranks.hosts))]


def by_kubeflow(ranks: Ranks) -> list[Place]:
    """torchrun in every host, told what it needs as Kubeflow's training operator tells it.

    That is pkg/controller.v1/pytorch/envvar.go, of a job with a master and nprocPerNode: RANK and WORLD_SIZE
    are there too and mean nothing to torchrun.
    """
    nodes = len(ranks.hosts)
    job = {f"PET_{name}": value for name, value in ranks.master.items()} | dict(ranks.master)
    job |= {"PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": str(ranks.nproc)}
    job |= {"WORLD_SIZE": str(nodes * ranks.nproc), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", *ranks.argv]
    return [
        (host, command, {**ranks.env, **job, "RANK": str(host), "PET_NODE_RANK": str(host)})
        for host in range(nodes)
    ]


def by_mpirun(ranks: Ranks) -> list[Place]:
    """mpirun in the first host, which reaches the others by ``emulated_rsh``."""
    command = [require_tool("mpirun"), *mpirun_options(ranks.hosts, ranks.nproc, ranks.env)]
    command += ["-np", str(len(ranks.hosts) * ranks.nproc), "--bind-to", "none"]
    command += ["--map-by", "node" if ranks.round_robin else "slot"]
    command += ["-x", "MASTER_ADDR", "-x", "MASTER_PORT"]
    return [(0, [*command, sys.executable, *ranks.argv], {**ranks.env, **ranks.master})]


def mpirun_options(hosts: Sequence[str], nproc: int, exported: Iterable[str]) -> list[str]:
    """What mpirun needs here and nowhere else: root, the way into hosts, and what they are."""
    agent = f"{sys.executable} {Path(__file__).with_name('emulated_rsh.py')}"
    options = ["--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", agent]
    options += ["--mca", "orte_tmpdir_base", _FOLDER]
    for name in ("oob_tcp_if_include", "btl_tcp_if_include"):
        options += ["--mca", name, "eth0"]
    for name in exported:
        options += ["-x", name]
    return [*options, "-H", ",".join(f"{name}:{nproc}" for name in hosts)]


def by_srun(ranks: Ranks) -> list[Place]:
    """srun in the first host; ``Slurm`` must be up."""
    size = [f"--nodes={len(ranks.hosts)}", f"--ntasks-per-node={ranks.nproc}"]
    distribution = f"--distribution={'cyclic' if ranks.round_robin else 'block'}"
    command = [require_tool("srun"), *size, distribution]
    return [(0, [*command, sys.executable, *ranks.argv], {**ranks.env, **SLURM_ENV})]


STARTING: Mapping[Launcher, Callable[[Ranks], list[Place]]] = {
    "env": by_hand,
    "torchrun": by_torchrun,
    "kubeflow": by_kubeflow,
    "mpirun": by_mpirun,
    "srun": by_srun,
}


class Daemons:
    """The daemons that a launcher needs in every host, started when it is first asked for."""

    def __init__(self, hosts: Sequence[Host], addresses: Sequence[str], env: Mapping[str, str]) -> None:
        """None yet. ``env``: the variables that daemons get."""
        self._hosts = hosts
        self._addresses = addresses
        self._env = env
        self._running: dict[str, list[Process]] = {}
        self._has_folders = False

    def require(self, launcher: Launcher) -> None:
        """Let the launcher's daemons run; the calling test is skipped where their programs are missing."""
        start = {"mpirun": self._start_rsh, "srun": self._start_slurm}.get(launcher)
        if start is not None and launcher not in self._running:
            self._make_folders()
            self._running[launcher] = []
            start(self._running[launcher])

    def forget(self) -> None:
        """All of them were killed; returns when they have ended."""
        for processes in self._running.values():
            for process in processes:
                process.reap()
        self._running.clear()

    def _make_folders(self) -> None:
        for host in () if self._has_folders else self._hosts:
            done = host.start(["mount", "-t", "tmpfs", "launchers", _FOLDER], self._env)
            if done.popen.wait(_READY_S) != 0:
                raise EmulationError(f"no files for launchers: {done.texts()[1].strip()}")
        self._has_folders = True

    def _start_rsh(self, running: list[Process]) -> None:
        require_tool("mpirun")
        server = [sys.executable, str(Path(__file__).with_name("emulated_rsh.py")), "--serve"]
        running += [host.start(server, self._env) for host in self._hosts]
        for process in running:
            _await(lambda process=process: "ready" in process.texts()[0], "the rsh server", running)

    def _start_slurm(self, running: list[Process]) -> None:
        munged, slurmctld, slurmd, _ = map(require_tool, ("munged", "slurmctld", "slurmd", "srun"))
        env = {**self._env, **SLURM_ENV}
        nodes = "\n".join(
            f"NodeName={host.name} NodeAddr={address} CPUs=64 RealMemory=1 State=UNKNOWN"
            for host, address in zip(self._hosts, self._addresses, strict=True)
        )
        control, *_ = self._hosts
        config = _SLURM_CONFIG.format(control=control.name, nodes=nodes)
        for host in self._hosts:
            if not _succeeds(host, ["sh", "-ec", _SLURM_FILES, "sh", config], env):
                raise EmulationError(f"no files for Slurm in {host.name}")
            running.append(host.start([munged, *_MUNGE_OPTIONS], env))
        for host in self._hosts:
            _await(lambda host=host: _succeeds(host, ["test", "-S", _MUNGE_SOCKET], env), "munged", running)
        running.append(control.start([slurmctld, "-D", "-i"], env))
        running += [host.start([slurmd, "-D", "-N", host.name], env) for host in self._hosts]
        idle = ["sh", "-c", f'[ "$(sinfo -h -N -t idle -o %N | wc -l)" = {len(self._hosts)} ]']
        _await(lambda: _succeeds(control, idle, env), "Slurm's nodes", running)


def _succeeds(host: Host, argv: Sequence[str], env: Mapping[str, str]) -> bool:
    return host.start(argv, env).popen.wait(_READY_S) == 0


def _await(condition: Callable[[], bool], what: str, running: Sequence[Process]) -> None:
    deadline = time.monotonic() + _READY_S
    while not condition():
        ended = [process for process in running if process.popen.poll() is not None]
        if ended or time.monotonic() > deadline:
            said = "\n".join(process.texts()[1].strip() for process in ended or running)
            raise RuntimeError(f"{what} did not come:\n{said}")
        time.sleep(0.05)


# The daemons' own folder in every host, in place of one that is empty on any machine.
_FOLDER = "/mnt"
_MUNGE_SOCKET = f"{_FOLDER}/munge.socket"
SLURM_ENV = {"SLURM_CONF": f"{_FOLDER}/slurm.conf"}
# The key is a secret of nothing but these hosts: the same in all, so that they believe each other.
_SLURM_FILES = f"""
cd {_FOLDER}
rm -rf state spool munge.*
mkdir state spool
echo "$1" > slurm.conf
printf '%1024s' | tr ' ' k > munge.key
chmod 700 . munge.key
"""
_MUNGE_OPTIONS = (
    "--foreground",
    "--force",
    f"--socket={_MUNGE_SOCKET}",
    f"--key-file={_FOLDER}/munge.key",
    f"--pid-file={_FOLDER}/munged.pid",
    f"--log-file={_FOLDER}/munged.log",
    f"--seed-file={_FOLDER}/munged.seed",
)
_SLURM_CONFIG = f"""
ClusterName=emulated
SlurmctldHost={{control}}
AuthType=auth/munge
AuthInfo=socket={_MUNGE_SOCKET}
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={_FOLDER}/state
SlurmdSpoolDir={_FOLDER}/spool
SlurmctldPidFile={_FOLDER}/slurmctld.pid
SlurmdPidFile={_FOLDER}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/linear
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
{{nodes}}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
