"""Shared memory of one host: progress that can be read of a worker that no longer answers, and a gate."""

from __future__ import annotations

import mmap
import os
import time

_STEPS, _CASE, _ARM, _EPOCH, _WHEN_NS = range(5)
_FIELDS = 5
NOWHERE = -1


class Board:
    """Memory that a supervisor and the workers it forks share: everybody's progress, and a gate.

    Made before the fork. A worker writes its own cells only; stores of whole cells are not torn.

    Attributes:
        slots: how many workers it is for.
    """

    def __init__(self, slots: int, descriptor: int | None = None) -> None:
        """Of memory behind a descriptor, which it takes over; None makes new memory."""
        self.slots = slots
        nbytes = slots * (_FIELDS + 1) * 8
        is_new = descriptor is None
        self._file = os.fdopen(
            os.memfd_create("ncclbench-board") if descriptor is None else descriptor, "r+b"
        )
        if is_new:
            self._file.truncate(nbytes)
        self._memory = mmap.mmap(self._file.fileno(), nbytes)
        cells = memoryview(self._memory).cast("q")
        self._progress, self._arrivals = cells[slots:], cells[:slots]
        for slot in range(slots) if is_new else ():
            self.place(slot).reset()

    def fileno(self) -> int:
        """Of its memory, for a process that comes by it otherwise than by the fork."""
        return self._file.fileno()

    def place(self, slot: int) -> Place:
        """The progress of one worker."""
        return Place(self._progress[slot * _FIELDS : (slot + 1) * _FIELDS])

    def gate(self, slot: int) -> Gate:
        """One worker's side of the gate."""
        return Gate(self._arrivals, slot)


class Gate:
    """A barrier of all workers of a board that costs no message: they leave it within microseconds.

    Whoever waits reads the others' counters and lets other threads run in between, so that ranks may
    outnumber cores. A rank that never comes is the supervisor's business.
    """

    def __init__(self, arrivals: memoryview, slot: int) -> None:
        self._arrivals = arrivals
        self._slot = slot
        self._others = [other for other in range(len(arrivals)) if other != slot]
        self._times = 0

    def __call__(self) -> None:
        """Return when every worker has called it as often."""
        self._times += 1
        arrivals, times = self._arrivals, self._times
        arrivals[self._slot] = times
        for other in self._others:
            while arrivals[other] < times:
                os.sched_yield()


class Place:
    """Where one worker is: steps taken, and the case, arm and epoch it is at."""

    def __init__(self, cells: memoryview) -> None:
        self._cells = cells

    def reset(self) -> None:
        """Forget a former worker."""
        self._cells[_STEPS] = 0
        self.enter(NOWHERE, NOWHERE, NOWHERE)

    def enter(self, case: int, arm: int, epoch: int) -> None:
        """Begin with a case on an arm, by their places in the plan; NOWHERE outside of any."""
        self._cells[_CASE], self._cells[_ARM], self._cells[_EPOCH] = case, arm, epoch
        self.step()

    def step(self) -> None:
        """Begin with the next operation or batch."""
        self._cells[_STEPS] += 1
        self._cells[_WHEN_NS] = time.monotonic_ns()

    @property
    def steps(self) -> int:
        """How far the worker has come."""
        return int(self._cells[_STEPS])

    @property
    def at(self) -> tuple[int, int, int]:
        """(case, arm, epoch) as given to ``enter``."""
        return int(self._cells[_CASE]), int(self._cells[_ARM]), int(self._cells[_EPOCH])

    @property
    def idle_s(self) -> float:
        """Seconds since the last step."""
        return (time.monotonic_ns() - self._cells[_WHEN_NS]) / 1e9
