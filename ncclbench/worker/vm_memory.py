"""Reading and writing another process' memory on this host: process_vm_readv and process_vm_writev(2).

Linux only. The kernel copies from one process to the other, once, in the caller; the other takes no part and
is not told. Allowed is what ptrace allows: the same user, and what kernel.yama.ptrace_scope says.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# uio(7): the most parts that one call takes; the kernel's own limit, which sysconf tells too.
IOV_MAX = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 1024
# One call moves up to so much, so that a deadline and a dead peer are noticed between calls.
CALL_BYTES = 32 << 20

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1).value
_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Part(NamedTuple):
    """A piece of a transfer: where it lies here and there, and how many bytes it has."""

    local: int
    remote: int
    nbytes: int


class PeerGone(ConnectionError):
    """The process whose memory it was has ended."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which process it is, so that no other one's memory is ever touched.

    Attributes:
        pid: in its namespace; ``parent``: its parent's.
        started: when, in clock ticks since boot: what tells it from a later process with its pid.
        host: the kernel's boot id and the namespace of its pids.
    """

    pid: int
    parent: int
    started: int
    host: str


def identity() -> Identity:
    """Of this process."""
    return Identity(os.getpid(), os.getppid(), _started(os.getpid()), _host())


def _host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _started(pid: int) -> int:
    # The name before it may hold anything, parentheses and spaces included: proc(5).
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class Neighbour:
    """Another process of this host whose memory this one may reach. Close it when done."""

    def __init__(self, who: Identity) -> None:
        """Find the process.

        Raises:
            PeerGone: it has ended.
            ValueError: it is on another host, or in another namespace of pids.
        """
        if who.host != _host():
            raise ValueError("the peer is on another host, or its container has pids of its own")
        self.who = who
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._calls = {}
        for writes, name in ((True, "process_vm_writev"), (False, "process_vm_readv")):
            call = getattr(self._libc, name)
            call.restype = ctypes.c_ssize_t
            vector = ctypes.POINTER(_Iovec)
            number = ctypes.c_ulong
            call.argtypes = [ctypes.c_int, vector, number, vector, number, number]
            self._calls[writes] = call
        try:
            self._pidfd = os.pidfd_open(who.pid)
        except ProcessLookupError:
            raise PeerGone(f"process {who.pid} has ended") from None
        # Only now: what has the pid now keeps it as long as it lives, which the descriptor tells.
        self._ended = select.poll()
        self._ended.register(self._pidfd, select.POLLIN)
        try:
            is_same = _started(who.pid) == who.started
        except OSError:
            is_same = False
        if not is_same:
            self.close()
            raise PeerGone(f"process {who.pid} has ended")

    def close(self) -> None:
        """Let go of it."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def move(self, parts: Sequence[Part], *, writes: bool) -> int:
        """One call of the kernel: the first bytes of the parts, at least one and maybe not all.

        Args:
            parts: up to ``IOV_MAX``, of at least one byte each.

        Returns:
            how many bytes were moved, over the parts in their order.

        Raises:
            PeerGone: the process has ended.
            PermissionError: the kernel forbids it; the text says how to mend that.
            OSError: the memory is not mapped there (EFAULT) or another fault.
        """
        if self._ended.poll(0):
            raise PeerGone(f"process {self.who.pid} has ended")
        count = len(parts)
        local, remote = (_Iovec * count)(), (_Iovec * count)()
        for index, part in enumerate(parts):
            local[index].base, local[index].length = part.local, part.nbytes
            remote[index].base, remote[index].length = part.remote, part.nbytes
        moved = int(self._calls[writes](self.who.pid, local, count, remote, count, 0))
        if moved > 0:
            return moved
        code = ctypes.get_errno()
        if moved < 0 and code in (errno.EPERM, errno.ENOSYS):
            raise PermissionError(why_forbidden(self._calls[writes].__name__))
        if (moved < 0 and code == errno.ESRCH) or self._ended.poll(0):
            raise PeerGone(f"process {self.who.pid} has ended")
        # Memory of a process that is ending goes before the process does.
        said = os.strerror(code) if moved < 0 else "nothing was moved"
        raise OSError(code if moved < 0 else errno.EIO, f"{self._calls[writes].__name__}: {said}")


def why_forbidden(call: str, scope_file: Path = _SCOPE) -> str:
    """What may keep a process from another's memory, in one line that says how to mend it."""
    try:
        scope = int(scope_file.read_text())
    except (OSError, ValueError):
        scope = 0
    if scope >= 2:
        return f"{call} is forbidden by kernel.yama.ptrace_scope={scope}: set it to 1 or 0 (sysctl, as root)"
    if scope == 1:
        return (
            f"{call} is forbidden by kernel.yama.ptrace_scope=1, which lets a process name one other "
            "(PR_SET_PTRACER): start both as one user, or set it to 0 (sysctl, as root)"
        )
    return f"{call} is forbidden: start both sides as one user; in a container add --cap-add SYS_PTRACE"


def head(parts: Sequence[Part], first: int, offset: int, most_bytes: int) -> list[Part]:
    """What one call takes, from byte ``offset`` of part ``first`` on: so many parts and bytes as it may."""
    taken: list[Part] = []
    left = most_bytes
    for index in range(first, min(len(parts), first + IOV_MAX)):
        skip = offset if index == first else 0
        part = parts[index]
        nbytes = min(part.nbytes - skip, left)
        taken.append(Part(part.local + skip, part.remote + skip, nbytes))
        left -= nbytes
        if left == 0:
            break
    return taken


def advance(parts: Sequence[Part], first: int, offset: int, moved: int) -> tuple[int, int]:
    """Where the next call begins after so many bytes from byte ``offset`` of part ``first``."""
    offset += moved
    while first < len(parts) and offset >= parts[first].nbytes:
        offset -= parts[first].nbytes
        first += 1
    return first, offset


class Permission:
    """Lets peers reach this process' memory where kernel.yama.ptrace_scope is 1 (PR_SET_PTRACER, prctl(2)).

    A process can name one other, whose descendants are allowed too. Workers of one supervisor name that; a
    peer with another parent is named itself; of several such peers none can be named alone, and every process
    of the user is allowed until this one ends. Without Yama nothing is needed, and nothing is done.
    """

    def __init__(self) -> None:
        self._named: int | None = None

    def allow(self, peer: Identity) -> None:
        """Let the peer in."""
        wanted = peer.parent if peer.parent == os.getppid() else peer.pid
        if self._named not in (None, wanted):
            wanted = _PR_SET_PTRACER_ANY
        self._named = wanted
        # EINVAL tells that there is no Yama.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PTRACER, ctypes.c_ulong(wanted), 0, 0, 0)


# Of this process: it can name one other in all.
PERMISSION = Permission()
