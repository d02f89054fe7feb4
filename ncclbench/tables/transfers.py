"""TRANSFERS: the ways in which weights come from a trainer to its generators.

Two-sided ways meet: both sides issue a call, and when it returns each side knows that the data is there.
One-sided ways do not: one side acts on memory that the other has registered, the other takes no part, nothing
orders it with what that side computes, and it learns of the data only by looking at a stamp that is written
after it. The two are not the same operation, and a ratio between them compares a job's two choices, not two
implementations of one thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Under this name our own transport is registered with torch.
CPU_TRANSPORT = "ncclbench-cpu"

Kind = Literal["one-sided", "two-sided"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """One way.

    Attributes:
        name: as typed after ``--ways``.
        verb: what is called, of a process group or of a transport; see ``worker.transfer_ways``.
        description: what that is.
        transport: name in torch's registry of transports; None for the arm's process group.
        package: it needs this one besides torch; None for none.
        mend: how to get the package.
        devices: kinds of memory that it moves.
        one_host: both sides must be on one host.
        has_threads: its endpoints have threads that are busy even when nothing is moved, so that they are
            open during its own visits only.
    """

    name: str
    verb: Literal["broadcast", "broadcast-flat", "send", "write", "read"]
    description: str
    transport: str | None = None
    package: str | None = None
    mend: str | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")
    one_host: bool = False
    has_threads: bool = False

    @property
    def kind(self) -> Kind:
        """Whether both sides take part."""
        return "two-sided" if self.transport is None else "one-sided"


_NIXL = "pip install 'ncclbench[nixl]'"

_ENTRIES = (
    Transfer("broadcast", "broadcast", "a broadcast of each tensor, all issued, then waited for"),
    Transfer(
        "broadcast-flat",
        "broadcast-flat",
        "one broadcast of all tensors, which lie behind one another, so that nothing is packed",
    ),
    Transfer("send-recv", "send", "isend of each tensor to each generator, all issued, then waited for"),
    Transfer(
        "cpu-write",
        "write",
        "the trainer writes into the generators' memory (process_vm_writev), then a stamp",
        transport=CPU_TRANSPORT,
        devices=("cpu",),
        one_host=True,
    ),
    Transfer(
        "cpu-read",
        "read",
        "generators read the trainer's memory (process_vm_readv) once its stamp has changed",
        transport=CPU_TRANSPORT,
        devices=("cpu",),
        one_host=True,
    ),
    Transfer(
        "nixl-write",
        "write",
        "the trainer writes through NIXL (UCX: shared memory, InfiniBand, NVLink), then a stamp",
        transport="nixl",
        package="nixl",
        mend=_NIXL,
        has_threads=True,
    ),
    Transfer(
        "nixl-read",
        "read",
        "generators read through NIXL once the trainer's stamp has changed",
        transport="nixl",
        package="nixl",
        mend=_NIXL,
        has_threads=True,
    ),
)

TRANSFERS: dict[str, Transfer] = {entry.name: entry for entry in _ENTRIES}

# What the others are held against.
BASE_WAY = "broadcast"
