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

from ncclbench.plan.model import Case, Plan
from ncclbench.tables.collectives import Call
from ncclbench.worker.buffers import Pool
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.cuts import Part
from ncclbench.worker.delay import Delay, delayed
from ncclbench.worker.device import Device
from ncclbench.worker.fence import Fence
from ncclbench.worker.loop import Samples, time_samples
from ncclbench.worker.operation import Operation, Uses
from ncclbench.worker.patterns import Pattern

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
        part: Part,
    ) -> None:
        """``part``: of this rank in the case's topology."""
        self._case = case
        self._plan = plan
        self._control = control
        self._fence = fence
        self._device = device
        self._operation = Operation(case, plan.seed, part.rank, device, pool, patterns, part.number)
        self._ring = self._operation.ring
        # With a slot to spare, the block's last operation has one of its own and is checked itself.
        self._checks_last = plan.check > 0 and self._ring.count > 2
        self._turning = self._ring.count - self._checks_last
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
        self._operation.hold()
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
        self._operation.try_once(group)

    def _checked_pass(self, group: Any, fenced: bool) -> tuple[int, int]:
        """Run once on fresh data: (nanoseconds, wrong elements), both of this rank.

        Args:
            fenced: ranks begin together, so that the time is the operation's.
        """
        slot = self._ring.take()
        shift = self._operation.fresh_data(slot)
        call = self._operation.bind(slot, group)
        self._device.synchronize()
        if fenced:
            self._fence()
        elapsed = self._operation.run(call)
        if not self._plan.check:
            return elapsed, 0
        return elapsed, self._operation.count_wrong(slot, shift)

    def _warm_up(self, group: Any, first_in_epoch: bool, estimate_ns: int, step: Callable[[], None]) -> int:
        """Untimed operations; returns the agreed nanoseconds of the fastest one where batches need it."""
        asked = self._plan.warmup_iters
        count = min(_USUAL_WARMUPS, _WARMUP_NS // max(1, estimate_ns)) if asked is None else asked
        if not first_in_epoch:
            count = min(count, 1)
        if count == 0:
            return estimate_ns
        slot = self._ring.take()
        call = self._operation.bind(slot, group)
        fastest = estimate_ns
        for _ in range(count):
            step()
            self._operation.fill_where_worn(slot)
            fastest = min(fastest, self._operation.run(call))
        return estimate_ns if self._case.mode == "isolated" else self._control.maximum(fastest)[0]

    def _batch_size(self, operations: int, estimate_ns: int) -> int:
        """Operations per sample: long enough for the clock, and no more than keeps sums finite."""
        wanted = max(operations, math.ceil(_BATCH_NS / max(1, estimate_ns)))
        if self._operation.limit is not None:
            wanted = min(wanted, self._turning * self._operation.limit)
        return max(1, min(wanted, _LARGEST_BATCH))

    def _repeats(self, estimate_ns: int) -> int:
        block_ns = (self.k or 1) * max(1, estimate_ns)
        return max(1, min(_LARGEST_REPEATS, _BLOCK_NS // block_ns))

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
        operation = self._operation
        calls = [operation.bind(slot, group) for slot in slots]
        if operation.fills_slots or not operation.pool_stands(math.ceil(k * (count + graph) / self._turning)):
            for slot in slots:
                operation.fill(slot)
        batches = [[calls[(i * k + j) % len(calls)] for j in range(k)] for i in range(count)]
        last, shift = None, 0
        if self._checks_last:
            last = self._ring.take()
            shift = operation.fresh_data(last)
            batches[0 if graph else -1][-1] = operation.bind(last, group)
        if delay is not None:
            # The first call may measure the device's own clock, which a capture forbids.
            self._device.delay(0)
            timed_ns = delay.ns if delay.timed else 0
            batches = [[delayed(call, self._device, timed_ns) for call in batch] for batch in batches]
        uses = Uses(slots, k, graph, operation.limit, operation.fill)

        def between(index: int) -> None:
            nonlocal shift
            if delay is not None and not delay.timed and index > 0:
                self._device.delay(k * delay.ns)
            step()
            uses.before(index)
            if last is not None and graph and index == count - 1:
                # Every replay before this one has used the slot too.
                shift = operation.fresh_data(last)
            self._device.synchronize()

        if graph:
            samples = self._time_replays(batches[0], count, between, lambda: uses.before(0))
        else:
            samples = time_samples(self._device, batches, self._fence, between)
        return samples, 0 if last is None else operation.count_wrong(last, shift)

    def _time_replays(
        self, calls: list[Call], count: int, between: Callable[[int], None], refill: Callable[[], None]
    ) -> Samples:
        replay = self._device.capture(calls)
        try:
            # The first launch of a graph also brings it to the GPU, which no later one does.
            refill()
            self._device.synchronize()
            replay()
            self._device.synchronize()
            return time_samples(self._device, [(replay,)] * count, self._fence, between)
        finally:
            # Before its group goes: a live graph makes the group's end hang (pytorch#115388).
            replay.reset()
