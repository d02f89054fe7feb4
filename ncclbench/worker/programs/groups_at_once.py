"""A collective in several groups at the same time, and in each of them while the others are idle."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.plan.memory import pool_bytes
from ncclbench.plan.model import Plan
from ncclbench.worker.buffers import Pool
from ncclbench.worker.cuts import part_of
from ncclbench.worker.device import Device
from ncclbench.worker.fence import Fence
from ncclbench.worker.groups import ArmGroup, close_group, kind_of, open_topologies, why_unavailable
from ncclbench.worker.operation import Operation, Uses
from ncclbench.worker.patterns import Patterns
from ncclbench.worker.probe import first_line
from ncclbench.worker.programs.bench import Bench

# Instead of the number of a group: all of them.
ALL = -1


class AtOnce:
    """One rank's part in it."""

    def __init__(self, bench: Bench, fence: Fence, plan: Plan) -> None:
        self._bench = bench
        self._fence = fence
        self._plan = plan
        self._parts = {
            name: part_of(plan, name, bench.rank)
            for name in dict.fromkeys(case.topology for case in plan.planned)
        }
        self._patterns = Patterns(plan.seed)
        self._pools: dict[tuple[str, str], Pool] = {}
        self._groups: dict[int, dict[str, ArmGroup]] = {}

    def open(self, order: dict[str, Any]) -> dict[int, list[str | None]]:
        """Fresh groups for an epoch.

        Args:
            order: ``arms``: indices, in the order of making their groups.

        Returns:
            by index: implementation, kind of device, and why the arm cannot be had.
        """
        self.close()
        return {index: self._open(index) for index in order["arms"]}

    def _open(self, index: int) -> list[str | None]:
        bench, arm = self._bench, self._plan.arms[index]
        opened: dict[str, ArmGroup] = {}
        reason = why_unavailable(arm)
        if reason is None:
            try:
                opened = open_topologies(arm, bench.device(arm), bench.timeout_s, self._parts)
            except Exception as error:  # which types a missing backend raises differs by version
                reason = first_line(error)
            bench.place.step()
        reason = bench.control.first_reason(reason)
        if reason is not None:
            return [None, None, reason]
        self._groups[index] = opened
        return [next(iter(opened.values())).implementation, kind_of(arm), None]

    def close(self) -> None:
        """End all groups, in the same order on every rank."""
        for index in sorted(self._groups):
            for group in self._groups.pop(index).values():
                self._bench.place.step()
                close_group(group)

    def run(self, order: dict[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """One size on one arm, kinds taking turns within each repetition.

        Args:
            order: ``arm``: its index; ``cases``: indices of planned cases, one per cut, in the order of
                calling; ``kinds``: what is run, in the order of the answer's rows: (index into ``cases``,
                number of the group), the number ALL for all of them; ``iterations``, ``warmup``, ``check``.

        Returns:
            on rank 0: shape (nranks, kinds, cases, iterations): until the rank's group of that cut was done,
            microseconds since the fence, 0 where it did nothing; and shape (nranks, cases): wrong elements.
            None elsewhere.
        """
        bench, plan = self._bench, self._plan
        device = bench.device(plan.arms[order["arm"]])
        sides = [self._side(order["arm"], number, device) for number in order["cases"]]
        kinds = [tuple(kind) for kind in order["kinds"]]
        iterations = order["iterations"]
        times = np.zeros((len(kinds), len(sides), iterations))
        wrong = np.zeros(len(sides))
        for _ in range(order["check"]):
            wrong += self._checked(sides, device)
        for _ in range(order["warmup"]):
            self._once(sides, [True] * len(sides), device)
        collecting = gc.isenabled()
        gc.disable()
        try:
            for repetition in range(iterations):
                # Another one is first in each repetition: what comes first finds other caches.
                for kind in np.roll(np.arange(len(kinds)), repetition).tolist():
                    index, group = kinds[kind]
                    runs = [
                        group == ALL or (at == index and side.runs(group)) for at, side in enumerate(sides)
                    ]
                    times[kind, :, repetition] = self._once(sides, runs, device)
        finally:
            if collecting:
                gc.enable()
        for _ in range(order["check"]):
            wrong += self._checked(sides, device)
        gathered, wrongs = bench.gather(times), bench.gather(wrong)
        return None if gathered is None or wrongs is None else (gathered, wrongs)

    def _side(self, arm: int, number: int, device: Device) -> _Side:
        case = self._plan.planned[number]
        part = self._parts[case.topology]
        # Of its own for each cut: both work at the same time.
        key = (device.kind, case.topology)
        if key not in self._pools:
            nbytes = pool_bytes(self._plan)
            self._pools[key] = Pool(nbytes, device.torch_device)
        patterns = self._patterns.of(case, device.torch_device)
        operation = Operation(
            case, self._plan.seed, part.rank, device, self._pools[key], patterns, part.number
        )
        operation.hold()
        return _Side(operation, self._groups[arm][case.topology].group, part.number)

    def _once(self, sides: list[_Side], runs: list[bool], device: Device) -> NDArray[np.float64]:
        """Issue what runs, in order, and wait for it in order; by cut, when it was done on this rank."""
        taken = [side.prepared() if run else None for side, run in zip(sides, runs, strict=True)]
        device.synchronize()
        ((start, _),) = device.event_pairs(1)
        watches = device.watches(len(taken))
        self._bench.place.step()
        self._fence()
        start.record()
        started = device.now_ns()
        issued = []
        for call, watch in zip(taken, watches, strict=True):
            works = () if call is None else call() or ()
            issued.append((works, watch(works) if works else None))
        ends = []
        for works, _ in issued:
            for work in works:
                work.wait()
            ends.append(device.now_ns())
        device.synchronize()
        times = np.zeros(len(sides))
        for at, ((works, done), end) in enumerate(zip(issued, ends, strict=True)):
            if works:
                seen = None if done is None else done.us_since(start, started)
                times[at] = (end - started) / 1e3 if seen is None else seen
        return times

    def _checked(self, sides: list[_Side], device: Device) -> NDArray[np.float64]:
        """All at once on fresh data: by cut, wrong elements here."""
        slots = [side.operation.ring.take() for side in sides]
        shifts = [side.operation.fresh_data(slot) for side, slot in zip(sides, slots, strict=True)]
        calls = [side.operation.bind(slot, side.group) for side, slot in zip(sides, slots, strict=True)]
        device.synchronize()
        self._bench.place.step()
        self._fence()
        works = [work for call in calls for work in call() or ()]
        for work in works:
            work.wait()
        device.synchronize()
        found = [
            side.operation.count_wrong(slot, shift)
            for side, slot, shift in zip(sides, slots, shifts, strict=True)
        ]
        return np.array(found, dtype=np.float64)


class _Side:
    """One rank's part in one cut: its operation, and the slots that take turns."""

    def __init__(self, operation: Operation, group: Any, number: int | None) -> None:
        self.operation = operation
        self.group = group
        self._number = number
        self._slots = [operation.ring.take() for _ in range(min(operation.ring.count, _MOST_SLOTS))]
        self._calls = [operation.bind(slot, group) for slot in self._slots]
        for slot in self._slots:
            operation.fill(slot)
        self._uses = Uses(self._slots, 1, False, operation.limit, operation.fill)
        self._turn = 0

    def runs(self, group: int) -> bool:
        """Whether this rank is in the group of that number."""
        return self._number == group

    def prepared(self) -> Any:
        """The next call, its data fit for one more reduction."""
        self._uses.before(self._turn)
        call = self._calls[self._turn % len(self._calls)]
        self._turn += 1
        return call


# Slots of one operation that take turns; more cost more to fill than a cache that is met again.
_MOST_SLOTS = 64
