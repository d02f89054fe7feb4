"""A one-sided transport of torch.distributed._transport (2.15) between the memories of one host's processes.

It needs no library and no network: the kernel copies (see ``worker.vm_memory``). One endpoint has one peer,
as torch's interface wants it. An operation with ``async_op=True`` is done by a thread of the endpoint, which
puts what waits into as few calls as can be; any other is done by the caller itself.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work
from torch.distributed._transport import Transport, available_transports, register_transport

from ncclbench.tables.transfers import CPU_TRANSPORT
from ncclbench.worker.vm_buffers import CpuMemory, CpuMutableView, CpuView, RemoteMemory, fields_of
from ncclbench.worker.vm_memory import (
    CALL_BYTES,
    IOV_MAX,
    PERMISSION,
    Identity,
    Neighbour,
    Part,
    advance,
    head,
    identity,
)

_DEFAULT_TIMEOUT_S = 30.0


def register() -> None:
    """Tell torch of it; once is enough."""
    if CPU_TRANSPORT not in available_transports():
        register_transport(CPU_TRANSPORT, CpuTransport)


class CpuWork(Work):
    """A transfer that the endpoint's thread does."""

    def __init__(self, part: Part, writes: bool, timeout: float, kept: tuple[Any, ...]) -> None:
        """``kept``: what must live until it is done."""
        super().__init__()
        self.part = part
        self.writes = writes
        self._timeout = timeout
        self._kept: tuple[Any, ...] | None = kept
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._future: torch.futures.Future[Any] = torch.futures.Future()

    def finish(self, error: Exception | None = None) -> None:
        """It is done, or never will be."""
        self._error = error
        self._kept = None
        self._done.set()
        if error is None:
            self._future.set_result([])
        else:
            self._future.set_exception(error)

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return self._done.is_set()

    def is_success(self) -> bool:
        """Whether it is over and went well."""
        return self._done.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """Why it did not go well."""
        return self._error

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return when it is over.

        Raises:
            TimeoutError: it is not over in time, and goes on.
        """
        seconds = timeout.total_seconds() or self._timeout
        if not self._done.wait(seconds):
            raise TimeoutError(f"the transfer is not over after {seconds:g} s and goes on")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """As ``wait``."""
        self.wait()

    def result(self) -> list[torch.Tensor]:
        """Nothing; waits."""
        self.wait()
        return []

    def get_future(self) -> torch.futures.Future[Any]:
        """Done when it is."""
        return self._future


class CpuTransport(Transport):
    """One endpoint; ``timeout`` in seconds is that of operations that name none."""

    def __init__(
        self, device: torch.device | str | None = None, *, timeout: float = _DEFAULT_TIMEOUT_S
    ) -> None:
        super().__init__(device)
        if self.device is not None and self.device.type != "cpu":
            raise ValueError("this transport moves CPU memory only")
        self._me = identity()
        self._default_timeout = timeout
        self._timeout = timeout
        self._peer: Neighbour | None = None
        self._memories: set[CpuMemory] = set()
        self._queue: deque[CpuWork] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._closing = False

    @staticmethod
    def supported() -> bool:
        """Whether the kernel has the calls."""
        import ctypes

        return hasattr(ctypes.CDLL(None), "process_vm_writev")

    def bind(self, *, timeout: float | None = None) -> bytes:
        """Which process this is."""
        self._ensure_open()
        return json.dumps({"transport": CPU_TRANSPORT, **asdict(self._me)}).encode()

    def connect(self, peer_url: bytes, *, timeout: float | None = None) -> int:
        """Find the peer and let it in.

        Raises:
            ConnectionError: it has ended.
            ValueError: no such URL, or the peer is on another host.
        """
        self._ensure_open()
        if self._peer is not None:
            raise RuntimeError("transport is already connected")
        kinds = {"transport": str, "pid": int, "parent": int, "started": int, "host": str}
        found = fields_of(peer_url, kinds, "connection URL")
        if found.pop("transport") != CPU_TRANSPORT:
            raise ValueError("the connection URL is of another transport")
        who = Identity(**found)
        self._peer = Neighbour(who)
        PERMISSION.allow(who)
        return 0

    def connected(self) -> bool:
        """Whether it has a peer."""
        return self._peer is not None and not self._closing

    def register_memory(self, tensor: torch.Tensor, *, timeout: float | None = None) -> CpuMemory:
        """Make a contiguous CPU tensor reachable.

        Raises:
            TypeError, ValueError: it is none.
        """
        self._ensure_open()
        if not isinstance(tensor, torch.Tensor):
            raise TypeError("tensor must be a torch.Tensor")
        if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.numel() == 0:
            raise ValueError("this transport takes contiguous CPU tensors that are not empty")
        memory = CpuMemory(tensor, self, self._me)
        self._memories.add(memory)
        return memory

    def unregister_memory(self, memory: Any, *, timeout: float | None = None) -> None:
        """Forget it; the peer's descriptors must not be used any more.

        Raises:
            TypeError: it is of another endpoint.
        """
        self._ensure_open()
        if not isinstance(memory, CpuMemory) or memory.owner is not self:
            raise TypeError("memory was not registered by this transport")
        memory.active = False
        self._memories.discard(memory)

    def write(
        self, local_buffer: Any, remote_buffer: Any, *, async_op: bool = False, timeout: float | None = None
    ) -> int | Work:
        """Copy a view into the peer's memory."""
        return self._start(local_buffer, remote_buffer, True, async_op, timeout)

    def read(
        self, local_buffer: Any, remote_buffer: Any, *, async_op: bool = False, timeout: float | None = None
    ) -> int | Work:
        """Copy the peer's memory into a view."""
        return self._start(local_buffer, remote_buffer, False, async_op, timeout)

    def _start(
        self, view: Any, remote: Any, writes: bool, async_op: bool, timeout: float | None
    ) -> int | Work:
        self._ensure_open()
        self._check_transfer(view, remote, mutable=not writes)
        timeout = self._timeout if timeout is None else timeout
        if not timeout >= 0:
            raise ValueError("timeout must be finite and nonnegative")
        part = Part(view.address, remote.address, view.nbytes)
        if not async_op:
            if part.nbytes:
                self._move_all([part], writes, time.monotonic() + timeout)
            return 0
        work = CpuWork(part, writes, timeout, (view, remote))
        if part.nbytes == 0:
            work.finish()
            return work
        with self._changed:
            self._ensure_open()
            self._queue.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True, name="ncclbench-cpu")
                self._thread.start()
            self._changed.notify_all()
        return work

    def _check_transfer(self, local_buffer: Any, remote_buffer: Any, *, mutable: bool) -> None:
        kind = CpuMutableView if mutable else CpuView
        if not isinstance(local_buffer, kind) or local_buffer.memory.owner is not self:
            raise TypeError("local_buffer was not registered by this transport")
        if not isinstance(remote_buffer, RemoteMemory):
            raise TypeError("remote_buffer is no descriptor of this transport")
        local_buffer.memory.ensure_usable()
        if self._peer is None:
            raise RuntimeError("transport is not connected")
        who = self._peer.who
        if (remote_buffer.pid, remote_buffer.started) != (who.pid, who.started):
            raise ValueError("remote buffer does not belong to the connected peer")
        if local_buffer.size() > remote_buffer.nbytes:
            raise ValueError("local view does not fit in the remote buffer")

    def _move_all(self, parts: list[Part], writes: bool, deadline_s: float) -> None:
        """All of it, by the caller; at the deadline it stops between two calls."""
        assert self._peer is not None
        first = offset = 0
        while first < len(parts):
            moved = self._peer.move(head(parts, first, offset, CALL_BYTES), writes=writes)
            first, offset = advance(parts, first, offset, moved)
            if first < len(parts) and time.monotonic() > deadline_s:
                raise TimeoutError("the transfer was not over in time and was stopped")

    def _serve(self) -> None:
        """The thread: what waits, in order, as many parts to a call as it takes."""
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    return
                batch = [self._queue.popleft()]
                while self._queue and self._queue[0].writes == batch[0].writes and len(batch) < IOV_MAX:
                    batch.append(self._queue.popleft())
                self._busy = True
            self._move_batch(batch)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _move_batch(self, batch: list[CpuWork]) -> None:
        assert self._peer is not None
        parts = [work.part for work in batch]
        first = offset = 0
        try:
            while first < len(parts):
                moved = self._peer.move(head(parts, first, offset, CALL_BYTES), writes=batch[0].writes)
                done, offset = advance(parts, first, offset, moved)
                for work in batch[first:done]:
                    work.finish()
                first = done
        except Exception as error:
            for work in batch[first:]:
                work.finish(error)

    def close(self, *, timeout: float | None = None) -> None:
        """Wait for what was issued and let go of the peer.

        Raises:
            TimeoutError: it is not over in time; close again later.
        """
        seconds = self._timeout if timeout is None else timeout
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._queue and not self._busy, seconds):
                raise TimeoutError(f"transfers are not over after {seconds:g} s: close again later")
        if self._thread is not None:
            self._thread.join(seconds)
        for memory in self._memories:
            memory.active = False
        self._memories.clear()
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def _ensure_open(self) -> None:
        if self._closing:
            raise RuntimeError("transport is closed")
