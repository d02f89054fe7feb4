"""Which rank this process is: the variables of torchrun, srun and mpirun, read without torch.

Where launchers are nested the innermost counts: torchrun under srun is torchrun, mpirun in a Slurm job
is mpirun (it starts its daemons with srun, so that their step variables reach the ranks). No launcher
means that the command itself supervises every slot of this machine.
"""

from __future__ import annotations

import re
import socket
import subprocess
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ncclbench.errors import RequestError
from ncclbench.flight.hosts import expand

Launcher = Literal["none", "torchrun", "srun", "mpirun", "env"]
Variables = Mapping[str, str]

# Set for a step of a preset under a launcher: its ranks meet in their parents' store, under this prefix.
STEP_VARIABLE = "NCCLBENCH_STEP"

LOOPBACK = "127.0.0.1"
# torch's own default, for launchers that give a job no name to derive a port from.
DEFAULT_PORT = 29500
# slurm.h, SLURM_MAX_NORMAL_STEP_ID: batch scripts, interactive shells (salloc) and the external step
# have numbers above it, though they carry all of a step's variables.
LAST_NORMAL_STEP = 0xFFFFFFF0


@dataclass(frozen=True, slots=True)
class Seat:
    """The place that a launcher gave this process.

    Attributes:
        rank: in the job, from 0.
        world_size: ranks in the job.
        local_rank: among the ranks of this host, from 0.
        local_size: ranks on this host.
        launcher: which one placed it; "env" where RANK and the rest were set by hand.
        master_addr: where rank 0's store can be reached.
        master_port: its port.
        node_rank: number of this host, where the launcher tells.
        uses_agent_store: torchrun already serves the store at that address.
        attempt: how often torchrun has started the job again; keys of earlier starts stay in its store.
    """

    rank: int
    world_size: int
    local_rank: int
    local_size: int
    launcher: Launcher
    master_addr: str
    master_port: int
    node_rank: int | None = None
    uses_agent_store: bool = False
    attempt: int = 0


def find_seat(environ: Variables, nproc_per_node: int | None) -> Seat | None:
    """This process's seat, or None where no launcher started it.

    ``nproc_per_node`` is what was asked for on the command line, None where nothing was.

    Raises:
        RequestError: the launcher's variables are incomplete or contradict each other or the flag.
    """
    seat = (
        _torchrun(environ)
        or _open_mpi(environ)
        or _hydra(environ)
        or _srun(environ)
        or _by_hand(environ, nproc_per_node)
    )
    if seat is not None:
        _check(seat, environ, nproc_per_node)
    return seat


def expand_nodelist(text: str) -> list[str]:
    """Host names of a Slurm node list: ``n[0-1,7],m1`` is n0, n1, n7, m1.

    Raises:
        RequestError: not a node list.
    """
    try:
        hosts = expand(text)
    except RequestError:
        hosts = []
    if not hosts:
        raise RequestError(f"srun's node list {text!r} is not understood: export MASTER_ADDR before srun")
    return hosts


def _tasks_on_node(text: str, node: int) -> int | None:
    """The entry of node number ``node`` in Slurm's ``2(x3),1``: 2, 2, 2, 1; None where there is none."""
    for match in re.finditer(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", text):
        node -= int(match[2] or 1)
        if node < 0:
            return int(match[1])
    return None


def _torchrun(environ: Variables) -> Seat | None:
    if "TORCHELASTIC_RUN_ID" not in environ:
        return None
    read = _Reader(environ, "torchrun", "unset TORCHELASTIC_RUN_ID")
    return Seat(
        rank=read.number("RANK"),
        world_size=read.number("WORLD_SIZE"),
        local_rank=read.number("LOCAL_RANK"),
        local_size=read.number("LOCAL_WORLD_SIZE"),
        launcher="torchrun",
        master_addr=read.text("MASTER_ADDR"),
        master_port=read.port(),
        node_rank=read.number("GROUP_RANK", 0),
        # As torch writes and reads it (torch/distributed/rendezvous.py).
        uses_agent_store=environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True),
        attempt=read.number("TORCHELASTIC_RESTART_COUNT", 0),
    )


def _open_mpi(environ: Variables) -> Seat | None:
    if not any(name in environ for name in ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")):
        return None
    read = _Reader(environ, "mpirun", "unset OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE")
    # Open MPI up to 4, then 5 (PRRTE): the same on all hosts of a job.
    job = environ.get("OMPI_MCA_ess_base_jobid") or environ.get("PMIX_NAMESPACE")
    return _mpi_seat(
        read,
        rank=read.number("OMPI_COMM_WORLD_RANK"),
        world_size=read.number("OMPI_COMM_WORLD_SIZE"),
        local_rank=read.number("OMPI_COMM_WORLD_LOCAL_RANK"),
        local_size=read.number("OMPI_COMM_WORLD_LOCAL_SIZE"),
        port=DEFAULT_PORT if job is None else _derived_port(job),
        how="mpirun -x MASTER_ADDR=... -x MASTER_PORT=...",
    )


def _hydra(environ: Variables) -> Seat | None:
    """MPICH, Intel MPI (hydra) and Cray PALS. srun --mpi=pmi2 sets PMI_RANK too, but no local rank."""
    local = next((name for name in ("MPI_LOCALRANKID", "PMI_LOCAL_RANK") if name in environ), None)
    if local is None and ("PMI_RANK" not in environ or _is_step(environ)):
        return None
    read = _Reader(environ, "mpirun", "unset PMI_RANK and PMI_SIZE")
    return _mpi_seat(
        read,
        rank=read.number("PMI_RANK"),
        world_size=read.number("PMI_SIZE"),
        local_rank=read.number(local or "MPI_LOCALRANKID"),
        local_size=read.number("PMI_LOCAL_SIZE" if local == "PMI_LOCAL_RANK" else "MPI_LOCALNRANKS"),
        port=DEFAULT_PORT,
        how="mpirun -genv MASTER_ADDR ... -genv MASTER_PORT ...",
    )


def _mpi_seat(
    read: _Reader, *, rank: int, world_size: int, local_rank: int, local_size: int, port: int, how: str
) -> Seat:
    address = read.environ.get("MASTER_ADDR")
    if address is None:
        if local_size != world_size:
            raise RequestError(f"mpirun tells no rank where rank 0 is: start with {how} (rank 0's host)")
        address = LOOPBACK
    port = read.port(port)
    return Seat(rank, world_size, local_rank, local_size, "mpirun", address, port)


def _is_step(environ: Variables) -> bool:
    """Whether srun started this process, which sbatch scripts and salloc shells only look like."""
    step = environ.get("SLURM_STEP_ID", "")
    return re.fullmatch(r"[0-9]{1,10}", step) is not None and int(step) < LAST_NORMAL_STEP


def _srun(environ: Variables) -> Seat | None:
    if not _is_step(environ):
        return None
    if "SLURM_PTY_PORT" in environ and environ.get("SLURM_STEP_NUM_TASKS") == "1":
        return None  # srun --pty: somebody's shell, in which the command is typed as on any machine
    read = _Reader(environ, "srun", "unset SLURM_STEP_ID")
    world_size = read.number("SLURM_STEP_NUM_TASKS")
    node = read.number("SLURM_NODEID")
    local_size = _tasks_on_node(read.text("SLURM_STEP_TASKS_PER_NODE"), node)
    if local_size is None:
        raise RequestError(
            f"srun's variables contradict each other: SLURM_NODEID={node}, "
            f"SLURM_STEP_TASKS_PER_NODE={environ['SLURM_STEP_TASKS_PER_NODE']}: "
            "leave them as srun sets them"
        )
    address = environ.get("MASTER_ADDR")
    if address is None and local_size == world_size:
        address = LOOPBACK
    elif address is None:
        address = _node_address(expand_nodelist(read.text("SLURM_STEP_NODELIST"))[0])
    job = f"{read.text('SLURM_JOB_ID')}.{environ['SLURM_STEP_ID']}"
    return Seat(
        rank=read.number("SLURM_PROCID"),
        world_size=world_size,
        local_rank=read.number("SLURM_LOCALID"),
        local_size=local_size,
        launcher="srun",
        master_addr=address,
        master_port=read.port(_derived_port(job)),
        node_rank=node,
    )


def _by_hand(environ: Variables, nproc_per_node: int | None) -> Seat | None:
    if "RANK" not in environ and "WORLD_SIZE" not in environ:
        return None
    read = _Reader(environ, "a job (RANK, WORLD_SIZE)", "unset RANK and WORLD_SIZE")
    rank, world_size = read.number("RANK"), read.number("WORLD_SIZE")
    address, port = read.text("MASTER_ADDR"), read.port()
    if "LOCAL_RANK" in environ or "LOCAL_WORLD_SIZE" in environ:
        local_rank, local_size = read.number("LOCAL_RANK"), read.number("LOCAL_WORLD_SIZE")
    elif address in (LOOPBACK, "localhost", "::1"):
        local_rank, local_size = rank, world_size
    elif nproc_per_node is not None:
        local_rank, local_size = rank % nproc_per_node, nproc_per_node
    else:
        raise RequestError(
            "RANK and WORLD_SIZE are set but not which ranks share a host: "
            "set LOCAL_RANK and LOCAL_WORLD_SIZE, or give --nproc-per-node"
        )
    return Seat(rank, world_size, local_rank, local_size, "env", address, port)


def _check(seat: Seat, environ: Variables, nproc_per_node: int | None) -> None:
    for rank, size, rank_name, size_name in (
        (seat.rank, seat.world_size, "rank", "world size"),
        (seat.local_rank, seat.local_size, "local rank", "local world size"),
    ):
        if rank >= size:
            raise RequestError(
                f"{_source(seat)} says {rank_name} {rank} of {size_name} {size}: "
                f"ranks count from 0 and stay below the {size_name}"
            )
    if seat.local_size > seat.world_size:
        raise RequestError(
            f"{_source(seat)} says {seat.local_size} ranks on this host but {seat.world_size} in all: "
            "start all ranks with one launcher"
        )
    if seat.launcher in ("srun", "mpirun"):
        for name, value in (("RANK", seat.rank), ("WORLD_SIZE", seat.world_size)):
            if environ.get(name, str(value)) != str(value):
                raise RequestError(
                    f"{name}={environ[name]} in the environment but {seat.launcher} says {value}: "
                    f"unset {name}, or start one {seat.launcher} task per rank"
                )
    if nproc_per_node is not None and nproc_per_node != seat.local_size:
        raise RequestError(
            f"--nproc-per-node {nproc_per_node} but {_source(seat)} placed {seat.local_size} on this host: "
            "leave the flag out, the launcher decides"
        )


def _source(seat: Seat) -> str:
    return "the environment" if seat.launcher == "env" else seat.launcher


def _derived_port(job: str) -> int:
    """A port in 20000 to 29999, below what Linux hands out by itself; the same on every rank of a job."""
    return 20000 + zlib.crc32(job.encode("utf-8", "surrogateescape")) % 10000


def _node_address(node: str) -> str:
    """The node's name where it resolves, else the address that Slurm has for it.

    Raises:
        RequestError: neither is known.
    """
    try:
        socket.getaddrinfo(node, None)
        return node
    except OSError:
        pass
    try:
        command = ["scontrol", "show", "node", node, "--oneliner"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        shown = ""
    match = re.search(r"\bNodeAddr=(\S+)", shown)
    if match is None:
        raise RequestError(
            f"no address is known for srun's first node {node!r}: export MASTER_ADDR=... first"
        )
    return match[1]


class _Reader:
    """Reads one launcher's variables; what is missing or no number ends in one line."""

    def __init__(self, environ: Variables, launcher: str, otherwise: str) -> None:
        self.environ = environ
        self._launcher = launcher
        self._otherwise = otherwise

    def text(self, name: str) -> str:
        """The variable's value, which must not be empty."""
        value = self.environ.get(name, "").strip()
        if not value:
            raise RequestError(
                f"{name} is not set, though other variables of {self._launcher} are: "
                f"set it, or {self._otherwise} to use this machine alone"
            )
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """The variable as a whole number from 0; ``default`` where it is not set."""
        if default is not None and name not in self.environ:
            return default
        value = self.text(name)
        if not re.fullmatch(r"[0-9]{1,10}", value):
            raise RequestError(f"{name}={value!r} ({self._launcher}) is not a whole number: set it anew")
        return int(value)

    def port(self, default: int | None = None) -> int:
        """MASTER_PORT, checked."""
        value = self.number("MASTER_PORT", default)
        if not 0 < value < 65536:
            raise RequestError(f"MASTER_PORT={value} is not a port: set one between 1024 and 65535")
        return value
