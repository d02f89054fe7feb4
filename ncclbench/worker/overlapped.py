"""One case of overlap in one epoch on this rank: warm-up, calibration, and the parts in turns.

Every rank takes the same decisions here: they rest on values agreed over the control plane.
"""

from __future__ import annotations

import gc
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncclbench.kernels import Kernel, calibrate
from ncclbench.store.overlaps import PARTS
from ncclbench.tables.collectives import Call
from ncclbench.worker.buffers import Slot
from ncclbench.worker.control import ControlPlane
from ncclbench.worker.device import Device, Replay
from ncclbench.worker.fence import Fence
from ncclbench.worker.operation import Operation, Uses
from ncclbench.worker.parts import COMM, COMPUTE, PartTime, captured, time_part, time_replay
from ncclbench.worker.probe import first_line

# How often communication is timed to know what the compute is to last.
_COMM_SAMPLES = 3
# Launches of a kernel in one round of its calibration: several where they are short.
_SHORT_US = 500_000.0
_SHORT_LAUNCHES = 3
_WARMUPS = 2

# Stands for infinity where only whole numbers are agreed on; in nanoseconds it is 100 years.
_INFINITE = 1 << 62

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Block:
    """What a block of repetitions yields on one rank.

    Attributes:
        times_us: shape (len(PARTS) + 2, repetitions): the parts, then until communication and until compute
            was done in "together"; NaN where that cannot be seen.
        wrong: wrong elements in the checked results.
        compute_wrong: the kernel's result was wrong.
    """

    times_us: Floats
    wrong: int
    compute_wrong: bool


class Overlapped:
    """A collective on a group, and a device that computes meanwhile."""

    def __init__(
        self,
        operation: Operation,
        group: Any,
        device: Device,
        fence: Fence,
        control: ControlPlane,
        step: Callable[[], None],
    ) -> None:
        """``step``: told before whatever may hang, for the watch on progress."""
        self._operation = operation
        self._group = group
        self._device = device
        self._fence = fence
        self._control = control
        self._step = step

    def warm_up(self) -> int:
        """A pass on fresh data, then untimed ones; the wrong elements of the first."""
        operation = self._operation
        operation.hold()
        slot = operation.ring.take()
        shift = operation.fresh_data(slot)
        call = operation.bind(slot, self._group)
        self._step()
        operation.run(call)
        wrong = operation.count_wrong(slot, shift)
        for _ in range(_WARMUPS):
            self._step()
            operation.fill(slot)
            operation.run(call)
        return wrong

    def comm_us(self) -> float:
        """How long the communication takes alone, agreed by all ranks."""
        slot = self._operation.ring.take()
        call = self._operation.bind(slot, self._group)
        times = []
        for _ in range(_COMM_SAMPLES):
            self._operation.fill(slot)
            self._device.synchronize()
            times.append(self._agreed(self._time(COMM, call, _nothing).total_us))
        return statistics.median(times)

    def calibrated(self, kernel: Kernel, target_us: float) -> Kernel:
        """The kernel so long that a launch takes that time on the slowest rank; see ``calibrate``."""
        launches = _SHORT_LAUNCHES if target_us < _SHORT_US else 1

        def measure(trial: Kernel) -> float:
            return statistics.median(
                self._time(COMPUTE, _no_call, trial.launch).total_us for _ in range(launches)
            )

        return calibrate(kernel, target_us, measure, self._agreed)

    def eager(self, kernel: Kernel, order: Sequence[str]) -> Block:
        """The parts in this order, each repetition once through all of them.

        In the last repetition each result of the collective is checked.
        """
        operation, repetitions = self._operation, len(order) // len(PARTS)
        communicating = repetitions * (len(PARTS) - 1)
        slots = [operation.ring.take() for _ in range(min(operation.ring.count, communicating))]
        calls = [operation.bind(slot, self._group) for slot in slots]
        uses = self._prepared(slots, communicating)
        number = itertools.count()

        def one(part: str, is_checked: bool) -> tuple[PartTime, int]:
            if part == COMPUTE:
                return self._time(part, _no_call, kernel.launch), 0
            index = next(number)
            slot, call = slots[index % len(slots)], calls[index % len(slots)]
            uses.before(index)
            shift = operation.fresh_data(slot) if is_checked else 0
            self._device.synchronize()
            found = self._time(part, call, kernel.launch)
            return found, operation.count_wrong(slot, shift) if is_checked else 0

        return self._block(order, one, kernel)

    def graph(self, kernel: Kernel, order: Sequence[str]) -> Block | str:
        """The same with every part captured into a CUDA graph of its own and replayed.

        Returns:
            why a part cannot be captured on some rank, the same on every rank, where that is so.
        """
        operation = self._operation
        communicating = [part for part in PARTS if part != COMPUTE]
        # A part keeps the slot that it was captured with; of few slots several parts may have the same.
        slots = [operation.ring.take() for _ in range(min(operation.ring.count, len(communicating)))]
        slot_of = {part: slots[index % len(slots)] for index, part in enumerate(communicating)}
        uses = self._prepared(slots, (1 + len(order) // len(PARTS)) * len(communicating))
        replays: dict[str, Replay] = {}
        try:
            reason = None
            try:
                for part in PARTS:
                    call = operation.bind(slot_of[part], self._group) if part in slot_of else _no_call
                    replays[part] = self._device.capture([captured(part, call, kernel.launch)])
            except RuntimeError as error:
                reason = first_line(error)
            reason = self._control.first_reason(reason)
            if reason is not None:
                return reason
            # The first launch of a graph also brings it to the GPU, which no later one does.
            for part in PARTS:
                if part in slot_of:
                    uses.before(communicating.index(part))
                self._device.synchronize()
                self._step()
                replays[part]()
                self._device.synchronize()

            def one(part: str, is_checked: bool) -> tuple[PartTime, int]:
                slot = slot_of.get(part)
                shift = 0
                if slot is not None:
                    uses.before(communicating.index(part))
                    shift = operation.fresh_data(slot) if is_checked else 0
                self._device.synchronize()
                self._step()
                found = time_replay(replays[part], self._device, self._fence)
                return found, operation.count_wrong(slot, shift) if is_checked and slot is not None else 0

            return self._block(order, one, kernel)
        finally:
            # Before its group goes: a live graph makes the group's end hang (pytorch#115388).
            for replay in replays.values():
                replay.reset()

    def _block(
        self, order: Sequence[str], one: Callable[[str, bool], tuple[PartTime, int]], kernel: Kernel
    ) -> Block:
        repetitions = len(order) // len(PARTS)
        times = np.full((len(PARTS) + 2, repetitions), np.nan)
        wrong = 0
        collecting = gc.isenabled()
        gc.disable()
        try:
            for turn, part in enumerate(order):
                repetition = turn // len(PARTS)
                found, bad = one(part, repetition == repetitions - 1)
                wrong += bad
                times[PARTS.index(part), repetition] = found.total_us
                if part == "together":
                    times[-2, repetition] = _or_nan(found.comm_done_us)
                    times[-1, repetition] = _or_nan(found.compute_done_us)
        finally:
            if collecting:
                gc.enable()
        self._step()
        return Block(times, wrong, not kernel.check())

    def _prepared(self, slots: list[Slot], operations: int) -> Uses:
        """Slots with data for the clock, and what refills them before values overflow."""
        operation = self._operation
        if operation.fills_slots or not operation.pool_stands(math.ceil(operations / len(slots))):
            for slot in slots:
                operation.fill(slot)
        return Uses(slots, 1, False, operation.limit, operation.fill)

    def _time(self, part: str, call: Call, launch: Callable[[], None]) -> PartTime:
        self._step()
        return time_part(part, call, launch, self._device, self._fence)

    def _agreed(self, time_us: float) -> float:
        """The maximum over all ranks; infinite where one is."""
        mine = round(time_us * 1e3) if math.isfinite(time_us) else _INFINITE
        (most,) = self._control.maximum(mine)
        return math.inf if most == _INFINITE else most / 1e3


def _nothing() -> None:
    """What is computed beside communication alone."""


def _no_call() -> None:
    """What is communicated beside compute alone."""


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
