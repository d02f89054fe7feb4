"""What this process holds: memory, open files, connections, threads, and what its GPU says."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

_PROC = Path("/proc/self")
# Of /proc/net/tcp: the state of a connection that stands.
_ESTABLISHED = "01"
# Threads of a group that has ended may take a moment to be gone.
_SETTLE_S = 1.0

Footprint = dict[str, int | None]


def footprint(device: torch.device, backends: Iterable[Any] = ()) -> Footprint:
    """The fields of ``store.groups.Reading`` of this process.

    Args:
        backends: of torch's groups that are there, for what they say of their own memory.
    """
    status = dict(
        line.split(":", 1) for line in (_PROC / "status").read_text().splitlines() if line.count(":") == 1
    )
    sockets = _sockets()
    return {
        "rss_bytes": _kib(status, "VmRSS"),
        "peak_bytes": _kib(status, "VmHWM"),
        "shared_bytes": _kib(status, "RssShmem"),
        # Less the one that lists them.
        "files": len(os.listdir(_PROC / "fd")) - 1,
        "sockets": len(sockets),
        "connections": _connections(sockets),
        "threads": int(status["Threads"]),
        "device_bytes": _device_bytes(device),
        "backend_bytes": _backend_bytes(backends),
    }


def begin_peak() -> None:
    """Let the peak of this process's memory begin anew, where the system lets it."""
    with contextlib.suppress(OSError):
        # proc(5), clear_refs: 5 resets VmHWM to what is resident now.
        (_PROC / "clear_refs").write_text("5")


def settled(device: torch.device, before: Footprint) -> Footprint:
    """The footprint once files and threads are what they were before, or after a second."""
    until = time.monotonic() + _SETTLE_S
    while True:
        now = footprint(device)
        if all((now[name] or 0) <= (before[name] or 0) for name in ("files", "threads")):
            return now
        if time.monotonic() > until:
            return now
        time.sleep(0.02)


def raise_open_files() -> None:
    """Let this process open as many files as the system allows at all: a group takes several."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _kib(status: dict[str, str], name: str) -> int:
    return 1024 * int(status.get(name, "0 kB").split()[0])


def _sockets() -> set[str]:
    """Inodes of the sockets that this process has open."""
    found = set()
    for entry in os.listdir(_PROC / "fd"):
        with contextlib.suppress(OSError):  # gone meanwhile, as the one that lists them
            target = os.readlink(_PROC / "fd" / entry)
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def _connections(inodes: set[str]) -> int:
    """How many of the sockets are TCP connections that stand."""
    count = 0
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                count += fields[3] == _ESTABLISHED and fields[9] in inodes
    return count


def _device_bytes(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return int(total - free)


def _backend_bytes(backends: Iterable[Any]) -> int | None:
    """What communicators hold, as ``memory_stats`` of their backends says; None where one says nothing."""
    total = None
    for backend in backends:
        try:
            stats = backend.memory_stats()
        except (AttributeError, RuntimeError):  # an older torch, NCCL before 2.29.7, or a backend without
            return None
        # NCCL gives a total beside its parts.
        total = (total or 0) + int(stats.get("total", sum(stats.values())))
    return total
