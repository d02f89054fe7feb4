"""The memory that operations work in: one pool per device, cut into slots that take turns."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ncclbench.plan.memory import ALIGNMENT, layout_slot_bytes
from ncclbench.tables.collectives import Collective, Layout
from ncclbench.worker.patterns import Pattern


@dataclass(frozen=True, slots=True)
class Slot:
    """Buffers of one operation: one-dimensional views into the pool."""

    send: torch.Tensor
    recv: torch.Tensor


class Pool:
    """One allocation, shared by all arms on its device.

    Attributes:
        storage: its bytes.
    """

    def __init__(self, nbytes: int, device: torch.device, storage: torch.Tensor | None = None) -> None:
        """``storage``: these bytes instead of new ones from the device's default pool."""
        self.storage = torch.empty(nbytes, dtype=torch.uint8, device=device) if storage is None else storage
        self._held: torch.dtype | None = None
        self._left = 0.0

    def hold(self, dtype: torch.dtype, pattern: Pattern) -> None:
        """See that every byte is part of an ordinary value of ``dtype``: never time zeros or NaN.

        The first time is also what touches every page, outside the clock.
        """
        if self._held != dtype:
            self._fill(dtype, pattern)

    def wear(self, reductions: int, dtype: torch.dtype, pattern: Pattern) -> None:
        """Reckon with so many more in-place sums on any byte, and fill anew before one could overflow."""
        needed = reductions * pattern.growth
        if self._held != dtype or needed > self._left:
            self._fill(dtype, pattern)
        self._left -= needed

    def _fill(self, dtype: torch.dtype, pattern: Pattern) -> None:
        whole = self.storage.numel() // dtype.itemsize * dtype.itemsize
        pattern.fill(self.storage[:whole].view(dtype), 0, 0)
        self._held = dtype
        # As logarithm: groups of other sizes make the same bytes grow by other factors.
        self._left = pattern.room


class SlotRing:
    """The slots of one case in a pool.

    Consecutive operations take consecutive slots, and the turn goes on from block to block, so that
    an operation meets its buffers again only after as many other bytes as the pool holds.

    Attributes:
        count: slots there are.
    """

    def __init__(
        self,
        pool: torch.Tensor,
        entry: Collective,
        layout: Layout,
        dtype: torch.dtype,
        rank: int,
        in_place: bool,
    ) -> None:
        self._pool = pool
        self._layout = layout
        self._dtype = dtype
        self._rank = rank
        self._alias = entry.in_place_alias if in_place else None
        self._stride = max(ALIGNMENT, layout_slot_bytes(layout, dtype.itemsize, in_place))
        self._recv_offset = 0 if in_place else -(-layout.send * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self.count = max(1, pool.numel() // self._stride)
        self._turn = 0

    def take(self) -> Slot:
        """The next slot."""
        index = self._turn % self.count
        self._turn += 1
        return self._slot(index)

    def _view(self, offset: int, elements: int) -> torch.Tensor:
        nbytes = elements * self._dtype.itemsize
        return self._pool[offset : offset + nbytes].view(self._dtype)

    def _slot(self, index: int) -> Slot:
        base = index * self._stride
        layout = self._layout
        if self._alias == "send_in_recv":
            recv = self._view(base, layout.recv)
            own = self._rank * layout.count
            return Slot(recv[own : own + layout.count], recv)
        send = self._view(base, layout.send)
        if self._alias == "recv_in_send":
            own = self._rank * layout.count
            return Slot(send, send[own : own + layout.count])
        return Slot(send, self._view(base + self._recv_offset, layout.recv))
