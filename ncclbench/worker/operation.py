"""One operation on one rank: the memory it works in, the call that is timed, its data and their check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ncclbench.plan.model import Case
from ncclbench.tables.collectives import COLLECTIVES, Call, Layout
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.redops import REDOPS
from ncclbench.worker.bound import Bound
from ncclbench.worker.buffers import Pool, Slot, SlotRing
from ncclbench.worker.compat import CollectiveApi
from ncclbench.worker.device import Device
from ncclbench.worker.hierarchical import Tiers
from ncclbench.worker.patterns import PERIOD, Pattern

# A type has room for in-place sums when it stands this many blocks of them between two fills.
_ROOM = 10

# Shifts the data of each checked pass; any number that is no multiple of PERIOD would do.
_SHIFT = 7_919
# Between the data of groups that run at once, likewise.
_GROUP_SHIFT = 31


def _nothing() -> None:
    """The call of a rank without a group."""


class Operation:
    """One case's operation on one rank: slots in a pool, filled, used and checked.

    Attributes:
        ring: its slots.
        fills_slots: a slot must be filled before each block, as its data may not be any that a pool holds.
    """

    def __init__(
        self,
        case: Case,
        seed: int,
        rank: int,
        device: Device,
        pool: Pool,
        patterns: Callable[[bool], Pattern],
        group_number: int | None = 0,
    ) -> None:
        """An operation that has not run.

        Args:
            seed: of uneven splits.
            rank: in the group.
            patterns: data for the clock (True), or for the check.
            group_number: of the rank's group among those that run at once, so that each checks other data;
                None where the rank is in none: it calls nothing.
        """
        self._group_number = group_number
        self._case = case
        self._rank = rank
        self._device = device
        self._pool = pool
        self._patterns = patterns
        self._entry = COLLECTIVES[case.op]
        self._dtype: torch.dtype = getattr(torch, case.dtype) if self._entry.has_data else torch.uint8
        self._layout = case_layout(case, seed, rank)
        self.ring = SlotRing(pool.storage, self._entry, self._layout, self._dtype, rank, case.in_place)
        self._passes = 0
        reduces = case.redop is not None and (self._entry.result_in_send or case.in_place)
        self._grows = reduces and REDOPS[case.redop or "sum"].grows
        # Sums, and averages that are sums first, wear the pool's data: values grow. Products get data
        # of their own, whose products do not grow.
        self._sums = reduces and REDOPS[case.redop or "sum"].data == "terms"
        self.fills_slots = reduces and REDOPS[case.redop or "sum"].data == "factors"

    @property
    def limit(self) -> int | None:
        """How often a slot may be used between two fills; None for any number."""
        return self._patterns(True).safe_reductions if self._grows else None

    def hold(self) -> None:
        """See that the pool holds ordinary values of the operation's type."""
        if self._entry.has_data:
            self._pool.hold(self._dtype, self._patterns(True))

    def bind(self, slot: Slot, group: Any) -> Call:
        """The call on a slot, everything prepared."""
        if self._group_number is None:
            return _nothing
        case = self._case
        bound = Bound(
            send=slot.send,
            recv=slot.recv,
            layout=self._layout,
            group=group,
            rank=self._rank,
            nranks=case.nranks,
            root=case.root or 0,
            redop=getattr(dist.ReduceOp, REDOPS[case.redop].torch_name) if case.redop else None,
            async_op=case.async_op,
            in_place=case.in_place,
            dist=CollectiveApi(),
        )
        return group.bind(case.op, bound) if isinstance(group, Tiers) else self._entry.bind(bound)

    def run(self, call: Call) -> int:
        """Run one call to its end, and say how long it took in nanoseconds."""
        before = self._device.now_ns()
        for work in call() or ():
            work.wait()
        self._device.synchronize()
        return self._device.now_ns() - before

    def try_once(self, group: Any) -> None:
        """Run once, untimed and without the control plane: a rank may raise alone.

        Raises:
            Exception: what the backend raises for an operation that it does not take.
        """
        slot = self.ring.take()
        if self._entry.has_data:
            self._patterns(False).fill(slot.send, self._rank, 0)
        self.run(self.bind(slot, group))

    def fresh_data(self, slot: Slot) -> int:
        """Fill the slot with data that no pass has had; returns the shift that ``count_wrong`` needs."""
        self._passes += 1
        shift = (self._passes * _SHIFT + (self._group_number or 0) * _GROUP_SHIFT) % PERIOD
        if self._entry.has_data:
            # All ones is no value that a pattern holds at this place, so what stays is seen.
            slot.recv.view(torch.uint8).fill_(0xFF)
            self._patterns(False).fill(slot.send, self._rank, shift)
        return shift

    def count_wrong(self, slot: Slot, shift: int) -> int:
        """Elements of the slot's result that are not what its pass must give."""
        if self._group_number is None:
            return 0
        case = self._case
        result = slot.send if self._entry.result_in_send else slot.recv
        segments = self._entry.expected(self._layout, self._rank, case.nranks, case.root or 0)
        if not segments:
            # What an operation leaves on a rank without a result must not become somebody's input.
            self.fill(slot)
            return 0
        pattern = self._patterns(False)
        return sum(
            pattern.count_wrong(
                result[segment.offset : segment.offset + segment.length],
                segment.source,
                segment.source_offset,
                shift,
            )
            for segment in segments
        )

    def fill(self, slot: Slot) -> None:
        """Data for the clock."""
        if self._entry.has_data:
            pattern = self._patterns(True)
            pattern.fill(slot.recv, self._rank, 0)
            pattern.fill(slot.send, self._rank, 0)

    def fill_where_worn(self, slot: Slot) -> None:
        """Before an operation that nobody times: data whose reduction cannot have grown."""
        if self._sums or self.fills_slots:
            self.fill(slot)

    def pool_stands(self, uses: int) -> bool:
        """Whether a block that uses each slot so often can have the pool's data: filling each costs more."""
        if not self._sums:
            return True
        pattern = self._patterns(True)
        if (uses + 1) * _ROOM > pattern.safe_reductions:
            return False
        self._pool.wear(uses + 1, self._dtype, pattern)
        return True


class Uses:
    """Counts in-place reductions per slot and refills a slot before it could overflow."""

    def __init__(
        self, slots: list[Slot], k: int, graph: bool, limit: int | None, fill: Callable[[Slot], None]
    ) -> None:
        """``k``: operations in a sample; ``graph``: every sample is the same replay."""
        self._slots = slots
        self._k = k
        self._graph = graph
        self._limit = limit
        self._fill = fill
        self._counts: NDArray[np.int64] = np.zeros(len(slots), dtype=np.int64)

    def before(self, index: int) -> None:
        """Refill what sample ``index`` would use once too often."""
        if self._limit is None:
            return
        first = 0 if self._graph else index * self._k
        uses = np.bincount((first + np.arange(self._k)) % len(self._slots), minlength=len(self._slots))
        for slot in np.flatnonzero((uses > 0) & (self._counts + uses > self._limit)):
            self._fill(self._slots[slot])
            self._counts[slot] = 0
        self._counts += uses


def case_layout(case: Case, seed: int, rank: int) -> Layout:
    """This rank's sizes in a case.

    Raises:
        ValueError: the case has none.
    """
    elements = case.nbytes // DTYPES[case.dtype].itemsize if COLLECTIVES[case.op].has_data else 0
    layout = COLLECTIVES[case.op].layout(elements, rank, case.nranks, seed)
    if isinstance(layout, str):
        raise ValueError(f"{case.key}: {layout}")
    return layout
