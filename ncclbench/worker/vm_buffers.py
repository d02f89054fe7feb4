"""What our own transport registers: tensors, ranges of them, and descriptors by which a peer reaches them."""

from __future__ import annotations

import json
import operator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from ncclbench.tables.transfers import CPU_TRANSPORT
from ncclbench.worker.vm_memory import Identity


def fields_of(data: bytes, kinds: dict[str, type], what: str) -> dict[str, Any]:
    """The fields of a JSON object with just these keys and types; numbers are not negative.

    Raises:
        ValueError: it is something else.
    """
    try:
        found = json.loads(bytes(data).decode("utf-8"))
    except (UnicodeError, ValueError, RecursionError):
        raise ValueError(f"malformed {what}") from None
    if type(found) is not dict or set(found) != set(kinds):
        raise ValueError(f"malformed {what}")
    for name, kind in kinds.items():
        if type(found[name]) is not kind or (kind is int and found[name] < 0):
            raise ValueError(f"malformed {what}: {name}")
    return found


@dataclass(frozen=True, slots=True)
class RemoteMemory:
    """Where registered memory lies, for the peer: plain numbers, which give access to that memory."""

    pid: int
    started: int
    address: int
    nbytes: int

    def serialize(self) -> bytes:
        """For the peer, over whatever both sides talk on."""
        return json.dumps({"transport": CPU_TRANSPORT, **asdict(self)}).encode()

    @classmethod
    def deserialize(cls, data: bytes) -> RemoteMemory:
        """Inverse of ``serialize``.

        Raises:
            ValueError: not such a descriptor.
        """
        kinds = {"transport": str, "pid": int, "started": int, "address": int, "nbytes": int}
        found = fields_of(data, kinds, "descriptor")
        if found.pop("transport") != CPU_TRANSPORT:
            raise ValueError("the descriptor is of another transport")
        return cls(**found)


class CpuMemory:
    """A registered tensor."""

    def __init__(self, tensor: torch.Tensor, owner: object, me: Identity) -> None:
        self.tensor = tensor
        self.owner = owner
        self._me = me
        self.address = tensor.data_ptr()
        self.nbytes = tensor.numel() * tensor.element_size()
        self.active = True

    def ensure_usable(self) -> None:
        """Raises:
        RuntimeError: it was unregistered, or its storage is another one now.
        """
        if not self.active:
            raise RuntimeError("memory has been unregistered")
        if self.tensor.data_ptr() != self.address:
            raise RuntimeError("the registered tensor's storage was replaced")

    def _range(self, offset: int | None, length: int | None) -> tuple[int, int]:
        self.ensure_usable()
        start = 0 if offset is None else operator.index(offset)
        if not 0 <= start <= self.nbytes:
            raise ValueError("offset is outside the registered memory")
        nbytes = self.nbytes - start if length is None else operator.index(length)
        if not 0 <= nbytes <= self.nbytes - start:
            raise ValueError("view exceeds the registered memory")
        return start, nbytes

    def to_view(self, offset: int | None = None, length: int | None = None) -> CpuView:
        """A range of bytes to read from."""
        return CpuView(self, *self._range(offset, length))

    def to_mutable_view(self, offset: int | None = None, length: int | None = None) -> CpuMutableView:
        """A range of bytes to write to."""
        return CpuMutableView(self, *self._range(offset, length))

    def to_remote_buffer(self, *, timeout: float | None = None) -> RemoteMemory:
        """What the peer needs to reach it."""
        self.ensure_usable()
        return RemoteMemory(self._me.pid, self._me.started, self.address, self.nbytes)


class CpuView:
    """A range of registered memory."""

    def __init__(self, memory: CpuMemory, offset: int, nbytes: int) -> None:
        self.memory = memory
        self.address = memory.address + offset
        self.nbytes = nbytes

    def size(self) -> int:
        """In bytes."""
        return self.nbytes


class CpuMutableView(CpuView):
    """One that may be written to."""

    writable: Literal[True] = True
