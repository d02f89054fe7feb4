"""One visit to an arm: checked pass, warm-up, timed block whose last result is checked.

Every rank takes the same decisions here: they rest on values agreed over the control plane, never on
what one rank alone has seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ncclbench.plan.model import Case, Plan
from ncclbench.tables.collectives import COLLECTIVES, Call, Layout
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.redops import REDOPS
from ncclbench.worker.buffers import Pool, Slot, SlotRing
from ncclbench.worker.compat import CollectiveApi
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.delay import Delay, delayed
from ncclbench.worker.device import Device
from ncclbench.worker.fence import Fence
from ncclbench.worker.loop import Samples, time_samples
from ncclbench.worker.patterns import PERIOD, Pattern

# Without -w: five warm-up operations, fewer where they would take longer than this all together (the
# checked pass before them is a warm-up too).
_USUAL_WARMUPS = 5
_WARMUP_NS = 3_000_000

# A batch lasts at least this long, so that launching and synchronizing once does not show in it.
_BATCH_NS = 2_000_000
_LARGEST_BATCH = 1000
# Short batches are repeated, as long as a block stays within this.
_BLOCK_NS = 10_000_000
_LARGEST_REPEATS = 3

# Enough to say roughly what an operation takes.
_LEVEL_OPERATIONS = 40

# A type has room for in-place sums when it stands this many blocks of them between two fills.
_ROOM = 10

# Shifts the data of each checked pass; any number that is no multiple of PERIOD would do.
_SHIFT = 7_919


@dataclass(slots=True)
class Bound:
    """What an entry of COLLECTIVES binds its call to (``tables.collectives.spec.Binding``)."""

    send: torch.Tensor
    recv: torch.Tensor
    layout: Layout
    group: Any
    rank: int
    nranks: int
    root: int
    redop: Any
    async_op: bool
    in_place: bool
    dist: Any


@dataclass(slots=True)
class Visit:
    """What one visit yields on one rank.

    Attributes:
        samples: the timed block.
        k: operations in each sample.
        wrong: wrong elements of the checked passes; 0 where nothing is checked.
    """

    samples: Samples
    k: int
    wrong: int


class CaseRunner:
    """Measures one case on one device, visit by visit, over all epochs.

    Attributes:
        k: operations per sample, fixed at the first visit for all arms and epochs; None before it.
    """

    def __init__(
        self,
        case: Case,
        plan: Plan,
        control: ControlPlane,
        fence: Fence,
        device: Device,
        pool: Pool,
        patterns: Callable[[bool], Pattern],
        k: int | None,
    ) -> None:
        self._case = case
        self._plan = plan
        self._control = control
        self._fence = fence
        self._device = device
        self._entry = COLLECTIVES[case.op]
        self._dtype: torch.dtype = getattr(torch, case.dtype) if self._entry.has_data else torch.uint8
        self._layout = case_layout(case, plan, control.rank)
        self._patterns = patterns
        self._pool = pool
        self._ring = SlotRing(
            pool.storage, self._entry, self._layout, self._dtype, control.rank, case.in_place
        )
        self._passes = 0
        # With a slot to spare, the block's last operation has one of its own and is checked itself.
        self._checks_last = plan.check > 0 and self._ring.count > 2
        self._turning = self._ring.count - self._checks_last
        reduces = case.redop is not None and (self._entry.result_in_send or case.in_place)
        self._grows = reduces and REDOPS[case.redop or "sum"].grows
        # Sums, and averages that are sums first, wear the pool's data: values grow. Products get data
        # of their own, whose products do not grow.
        self._sums = reduces and case.redop in ("sum", "avg")
        self._fills_slots = reduces and case.redop == "prod"
        self.k = 1 if case.mode == "isolated" else k

    def visit(
        self,
        group: Any,
        operations: int,
        first_in_epoch: bool,
        step: Callable[[], None],
        quiet: Callable[[], None],
        delay: Delay | None = None,
    ) -> Visit:
        """One visit: ``operations`` timed operations on ``group``.

        Args:
            first_in_epoch: the group is new to this case, so it gets the full warm-up.
            step: told before each operation or batch, for the watch on progress.
            quiet: returns when nobody on this host works beside the clock any more.
            delay: added behind each timed operation on this rank.
        """
        if self._entry.has_data:
            self._pool.hold(self._dtype, self._patterns(True))
        elapsed_ns = []
        wrong = 0
        for _ in range(max(1, self._plan.check)):
            step()
            elapsed, bad = self._checked_pass(group, fenced=True)
            elapsed_ns.append(elapsed)
            wrong += bad
        (estimate_ns,) = self._control.maximum(min(elapsed_ns))
        estimate_ns = self._warm_up(group, first_in_epoch, estimate_ns, step)
        if self.k is None:
            self.k = self._batch_size(operations, estimate_ns)
        count = operations if self._case.mode == "isolated" else self._repeats(estimate_ns)
        quiet()
        samples, bad = self._timed(group, count, step, delay)
        wrong += bad
        for _ in range(self._plan.check - self._checks_last):
            step()
            wrong += self._checked_pass(group, fenced=False)[1]
        return Visit(samples, self.k, wrong)

    def level_us(
        self, group: Any, quantile: float, step: Callable[[], None], quiet: Callable[[], None]
    ) -> float:
        """The quantile of the time of one operation, agreed by all ranks; its samples are not kept."""
        visit = self.visit(group, _LEVEL_OPERATIONS, True, step, quiet)
        samples = visit.samples
        times_ns = samples.total if samples.device is None else samples.device
        slowest_ns = self._control.maximum(*(int(time_ns) for time_ns in times_ns))
        return float(np.quantile(slowest_ns, quantile)) / visit.k / 1e3

    def try_once(self, group: Any) -> None:
        """Run the case once, untimed and without the control plane: a rank may raise alone.

        Raises:
            Exception: what the backend raises for an operation that it does not take.
        """
        slot = self._ring.take()
        if self._entry.has_data:
            self._patterns(False).fill(slot.send, self._control.rank, 0)
        for work in self._bind(slot, group)() or ():
            work.wait()
        self._device.synchronize()

    def _bind(self, slot: Slot, group: Any) -> Call:
        case = self._case
        return self._entry.bind(
            Bound(
                send=slot.send,
                recv=slot.recv,
                layout=self._layout,
                group=group,
                rank=self._control.rank,
                nranks=case.nranks,
                root=case.root or 0,
                redop=getattr(dist.ReduceOp, REDOPS[case.redop].torch_name) if case.redop else None,
                async_op=case.async_op,
                in_place=case.in_place,
                dist=CollectiveApi(),
            )
        )

    def _run(self, call: Call) -> int:
        """Run one call to its end, and say how long it took in nanoseconds."""
        before = self._device.now_ns()
        for work in call() or ():
            work.wait()
        self._device.synchronize()
        return self._device.now_ns() - before

    def _checked_pass(self, group: Any, fenced: bool) -> tuple[int, int]:
        """Run once on fresh data: (nanoseconds, wrong elements), both of this rank.

        Args:
            fenced: ranks begin together, so that the time is the operation's.
        """
        slot = self._ring.take()
        shift = self._fresh_data(slot)
        call = self._bind(slot, group)
        self._device.synchronize()
        if fenced:
            self._fence()
        elapsed = self._run(call)
        if not self._plan.check:
            return elapsed, 0
        return elapsed, self._count_wrong(slot, shift)

    def _fresh_data(self, slot: Slot) -> int:
        """Fill the slot with data that no pass has had; returns the shift that ``_count_wrong`` needs."""
        self._passes += 1
        shift = self._passes * _SHIFT % PERIOD
        if self._entry.has_data:
            # All ones is no value that a pattern holds at this place, so what stays is seen.
            slot.recv.view(torch.uint8).fill_(0xFF)
            self._patterns(False).fill(slot.send, self._control.rank, shift)
        return shift

    def _count_wrong(self, slot: Slot, shift: int) -> int:
        case = self._case
        result = slot.send if self._entry.result_in_send else slot.recv
        segments = self._entry.expected(self._layout, self._control.rank, case.nranks, case.root or 0)
        if not segments:
            # What an operation leaves on a rank without a result must not become somebody's input.
            self._fill(slot)
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

    def _warm_up(self, group: Any, first_in_epoch: bool, estimate_ns: int, step: Callable[[], None]) -> int:
        """Untimed operations; returns the agreed nanoseconds of the fastest one where batches need it."""
        asked = self._plan.warmup_iters
        count = min(_USUAL_WARMUPS, _WARMUP_NS // max(1, estimate_ns)) if asked is None else asked
        if not first_in_epoch:
            count = min(count, 1)
        if count == 0:
            return estimate_ns
        slot = self._ring.take()
        call = self._bind(slot, group)
        fastest = estimate_ns
        for _ in range(count):
            step()
            if self._sums or self._fills_slots:
                self._fill(slot)
            fastest = min(fastest, self._run(call))
        return estimate_ns if self._case.mode == "isolated" else self._control.maximum(fastest)[0]

    def _batch_size(self, operations: int, estimate_ns: int) -> int:
        """Operations per sample: long enough for the clock, and no more than keeps sums finite."""
        wanted = max(operations, math.ceil(_BATCH_NS / max(1, estimate_ns)))
        if self._grows:
            wanted = min(wanted, self._turning * self._patterns(True).safe_reductions)
        return max(1, min(wanted, _LARGEST_BATCH))

    def _repeats(self, estimate_ns: int) -> int:
        block_ns = (self.k or 1) * max(1, estimate_ns)
        return max(1, min(_LARGEST_REPEATS, _BLOCK_NS // block_ns))

    def _pool_stands(self, operations: int) -> bool:
        """Whether the block can use the pool's data as it is: filling every slot for it costs more."""
        if not self._sums:
            return True
        pattern = self._patterns(True)
        uses = math.ceil(operations / self._turning) + 1
        if uses * _ROOM > pattern.safe_reductions:
            return False
        self._pool.wear(uses, self._dtype, pattern)
        return True

    def _fill(self, slot: Slot) -> None:
        if self._entry.has_data:
            pattern = self._patterns(True)
            pattern.fill(slot.recv, self._control.rank, 0)
            pattern.fill(slot.send, self._control.rank, 0)

    def _timed(
        self, group: Any, count: int, step: Callable[[], None], delay: Delay | None
    ) -> tuple[Samples, int]:
        """The block, and the wrong elements of its last operation where that is checked.

        It has a slot of its own with fresh data then, so what is checked is a result of the timed block
        itself and not of an operation after it.
        """
        k = self.k or 1
        graph = self._case.mode == "graph"
        slots = [self._ring.take() for _ in range(min(self._turning, k if graph else k * count))]
        calls = [self._bind(slot, group) for slot in slots]
        if self._fills_slots or not self._pool_stands(k * count):
            for slot in slots:
                self._fill(slot)
        batches = [[calls[(i * k + j) % len(calls)] for j in range(k)] for i in range(count)]
        last, shift = None, 0
        if self._checks_last:
            last = self._ring.take()
            shift = self._fresh_data(last)
            batches[0 if graph else -1][-1] = self._bind(last, group)
        if delay is not None:
            # The first call may measure the device's own clock, which a capture forbids.
            self._device.delay(0)
            timed_ns = delay.ns if delay.timed else 0
            batches = [[delayed(call, self._device, timed_ns) for call in batch] for batch in batches]
        limit = self._patterns(True).safe_reductions if self._grows else None
        uses = _Uses(slots, k, graph, limit, self._fill)

        def between(index: int) -> None:
            nonlocal shift
            if delay is not None and not delay.timed and index > 0:
                self._device.delay(k * delay.ns)
            step()
            uses.before(index)
            if last is not None and graph and index == count - 1:
                # Every replay before this one has used the slot too.
                shift = self._fresh_data(last)
            self._device.synchronize()

        if graph:
            samples = self._time_replays(batches[0], count, between)
        else:
            samples = time_samples(self._device, batches, self._fence, between)
        return samples, 0 if last is None else self._count_wrong(last, shift)

    def _time_replays(self, calls: list[Call], count: int, between: Callable[[int], None]) -> Samples:
        replay = self._device.capture(calls)
        try:
            return time_samples(self._device, [(replay,)] * count, self._fence, between)
        finally:
            # Before its group goes: a live graph makes the group's end hang (pytorch#115388).
            replay.reset()


class _Uses:
    """Counts in-place reductions per slot and refills a slot before it could overflow."""

    def __init__(
        self, slots: list[Slot], k: int, graph: bool, limit: int | None, fill: Callable[[Slot], None]
    ) -> None:
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


def case_layout(case: Case, plan: Plan, rank: int) -> Layout:
    """This rank's sizes in a case of the plan.

    Raises:
        ValueError: the plan holds a case that has none.
    """
    elements = case.nbytes // DTYPES[case.dtype].itemsize if COLLECTIVES[case.op].has_data else 0
    layout = COLLECTIVES[case.op].layout(elements, rank, case.nranks, plan.seed)
    if isinstance(layout, str):
        raise ValueError(f"{case.key}: {layout}")
    return layout
