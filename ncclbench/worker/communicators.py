"""How many communicators a process has made, and how that is known."""

from __future__ import annotations

import os
from typing import Any

from ncclbench.environ import set_variables, variables
from ncclbench.worker.footprint import Footprint

# NCCL writes this of each communicator that it has made, also of a split (init.cc).
_MADE = b"Init COMPLETE"

BY_CONNECTIONS = "TCP connections to other ranks, counted in /proc"
BY_LOG = "lines 'Init COMPLETE' of NCCL's own log"
BY_CLASS = "not counted: as the class makes them (NCCL_DEBUG is set by the user)"
UNKNOWN = "not counted: nothing tells it of this backend"


class NcclLog:
    """NCCL's log of this process, in memory that no file stands for: nothing is left of it.

    To be made before NCCL is used for the first time, which is when it reads its variables.
    """

    def __init__(self, subsystems: str = "INIT") -> None:
        """``subsystems``: of NCCL, that write into it."""
        self._file: int | None = None
        if any(name in variables() for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")):
            return
        self._file = os.memfd_create("nccl-log", 0)
        set_variables(
            {
                "NCCL_DEBUG": "INFO",
                "NCCL_DEBUG_SUBSYS": subsystems,
                "NCCL_DEBUG_FILE": f"/proc/self/fd/{self._file}",
            }
        )

    def made(self) -> int | None:
        """Communicators made up to now; None where the user's own settings stand."""
        return None if self._file is None else self._content().count(_MADE)

    def text(self) -> str:
        """What it holds; empty where the user's own settings stand."""
        return self._content().decode(errors="replace")

    def _content(self) -> bytes:
        return b"" if self._file is None else os.pread(self._file, os.fstat(self._file).st_size, 0)


def communicators(
    backends: list[Any], made: tuple[int | None, int | None], readings: tuple[Footprint, Footprint], met: int
) -> tuple[int | None, str]:
    """How many there are, and how that is known.

    Args:
        backends: of the groups.
        made: by NCCL's log, before and after; None where there is none.
        readings: before the groups and once they were used.
        met: peers to which this rank sent a message in each group, or got one from.
    """
    if not backends:
        return 0, BY_CONNECTIONS
    name = type(backends[0]).__name__
    if "Gloo" in name:
        before, after = (reading["connections"] or 0 for reading in readings)
        return max(0, after - before), BY_CONNECTIONS
    if "NCCL" not in name:
        return None, UNKNOWN
    before_log, after_log = made
    if before_log is not None and after_log is not None and after_log > before_log:
        return after_log - before_log, BY_LOG
    return sum(_by_class(backend, met) for backend in backends), BY_CLASS


def _by_class(backend: Any, met: int) -> int:
    """One per group; a lazy one has one more per pair of ranks that sent each other messages unbatched."""
    channels = getattr(backend, "_num_active_channels", None)
    if channels is not None:  # nccl-lazy
        return 1 + int(channels())
    is_legacy = type(backend).__name__ == "ProcessGroupNCCL" and hasattr(backend, "comm_split_count")
    return 1 + met if is_legacy and backend.bound_device_id is None else 1
