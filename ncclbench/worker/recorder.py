"""This process' flight recorders: read here, or by the supervisor while the main thread hangs.

torch keeps one recorder per kind of backend: gloo's own, one of every backend that a hook records (nccl2,
nccl-lazy and what other packages bring; torch 2.15), and that of the legacy NCCL process group. Which is read
is said by name, and a name that nothing was recorded under gives a dump without entries and no error.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import torch.distributed.distributed_c10d as c10d
from torch._C import _distributed_c10d as native

from ncclbench.tables.backends import BACKENDS

LEGACY = "nccl-legacy"
# Under which hooks and gloo record.
RECORDED = tuple(dict.fromkeys(entry.torch_name for entry in BACKENDS.values() if entry.torch_name != LEGACY))


# A server that does not run by then is left to the process' end.
_RUNNING_S = 1.0
# Servers that cannot be ended: collecting one would wait for it.
_never_ended: list[Any] = []


def holds_entries(content: bytes) -> bool:
    """Whether anything was recorded: a dump of nothing has no such key, in a few hundred bytes."""
    return b'"entries"' in content


def stamped(content: bytes, rank: int) -> bytes:
    """A dump with what torch's JSON does not tell: whose it is, and when it was taken (UNIX nanoseconds)."""
    return b'{"rank":%d,"taken_ns":%d,' % (rank, time.time_ns()) + content.lstrip()[1:]


def dumps(rank: int) -> list[tuple[str, bytes]]:
    """(backend, JSON) of the recorders of this process, which is ``rank``, that hold entries; ``stamped``.

    Takes no lock that a collective holds while it waits, so that a thread may ask while another hangs.
    """
    found: list[tuple[str, bytes]] = []
    for backend in dict.fromkeys([*RECORDED, *_group_backends()]):
        content = _dump(backend)
        # Before 2.15 there is one recorder beside the legacy one, whatever name is asked for.
        if content is not None and holds_entries(content) and content not in [other for _, other in found]:
            found.append((backend, content))
    legacy = getattr(native, "_dump_nccl_trace_json", None)
    if legacy is not None:
        content = bytes(legacy())
        if holds_entries(content):
            found.append((LEGACY, content))
    return [(backend, stamped(content, rank)) for backend, content in found]


def _group_backends() -> list[str]:
    """Names of the backends of the groups there are, those of other packages among them."""
    configured = [str(name) for name, _ in c10d._world.pg_map.values()]
    pieces = [piece.rpartition(":")[2] for name in configured for piece in name.split(",")]
    return [piece for piece in pieces if piece != LEGACY]


def _dump(backend: str) -> bytes | None:
    ask: Any = getattr(native, "_dump_fr_trace_json", None)
    if ask is None:
        return None
    try:
        return bytes(ask(backend=backend))
    except TypeError:  # before 2.15 it takes no name
        return bytes(ask())


@contextlib.contextmanager
def answering(line: socket.socket, rank: int) -> Iterator[None]:
    """Let the supervisor at the other end of ``line`` ask for the recorders as long as the context is open.

    torch's own server answers on a thread that needs no Python, so also while the main thread holds the
    interpreter. It listens on a socket in a folder of this user alone; what the supervisor gets is the opened
    socket, and folder and name are gone before anything else happens: however the processes end, nothing
    is left. Where this cannot be had, the log says why and the run goes on without it.
    """
    served: tuple[Any, int] | None = None
    try:
        served = _served(line, rank)
    except (AttributeError, OSError, RuntimeError) as error:
        print(f"rank {rank}: its flight recorder cannot be asked: {error}", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if served is not None:
            _end(*served)


def post(opened: int, path: str, timeout_s: float) -> bytes | None:
    """What a server answers to a request; None where it refuses.

    Args:
        opened: descriptor of its socket, whose name may be gone.
        path: "/handler/" and the handler's name.

    Raises:
        OSError, HTTPException: nobody is there, or does not answer in time.
    """
    if timeout_s <= 0:
        raise TimeoutError
    connection = HTTPConnection("localhost", timeout=timeout_s)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.closing(connection):
        connection.sock.settimeout(timeout_s)
        connection.sock.connect(f"/proc/self/fd/{opened}")
        connection.request("POST", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        content = answer.read()
        return content if answer.status == 200 else None


def _end(server: Any, opened: int) -> None:
    """Shut the server down. Before it runs that would wait for ever (torch 2.15), so it is asked first."""
    try:
        post(opened, "/handler/ping", _RUNNING_S)
    except (OSError, HTTPException):
        _never_ended.append(server)
        return
    finally:
        os.close(opened)
    with _unannounced():
        server.shutdown()


@contextlib.contextmanager
def _unannounced() -> Iterator[None]:
    """Without the warnings in which torch's server says that it starts and ends.

    They are no news, and what a worker has written last is shown where it dies.
    """
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _served(line: socket.socket, rank: int) -> tuple[Any, int]:
    """A server that the other end of the line can ask, and a descriptor of its socket."""
    folder = Path(tempfile.mkdtemp(prefix="ncclbench-"))
    path = folder / "socket"
    place = os.open(folder, os.O_PATH)
    try:
        # By way of the descriptor: a socket's address holds 108 bytes (unix(7)), a folder's name any number.
        with _unannounced():
            server = native._WorkerServer(f"/proc/self/fd/{place}/{path.name}")
        opened = os.open(path, os.O_PATH)
        _never_ended.append(server)  # until it is known to run
        socket.send_fds(line, [str(rank).encode()], [opened], socket.MSG_DONTWAIT)
        _never_ended.remove(server)
    finally:
        os.close(place)
        path.unlink(missing_ok=True)
        folder.rmdir()
    return server, opened
