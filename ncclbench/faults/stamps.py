"""Shared memory of one trial: when each rank came to what, readable also of a rank that is gone.

It is a memfd and not a name in /dev/shm: it goes with the last process that holds it, and a replacement
that is a fresh interpreter gets it by its descriptor.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Mapping, Sequence

# What a rank stamps, nanoseconds of CLOCK_MONOTONIC, 0 where it has not come to it.
MARKS = ("fault", "notice", "detach", "first_good_n_minus_1", "ready", "rejoin", "first_good_n")
_STEPS, _BEAT, _WRONG = range(3)
_FIRST_MARK = 3
_FIRST_WAIT = _FIRST_MARK + len(MARKS)
# Waits of so many newest steps are kept.
KEPT_WAITS = 64
_CELLS = _FIRST_WAIT + KEPT_WAITS


class Seat:
    """One rank's cells. It alone writes them; stores of whole cells are not torn."""

    def __init__(self, cells: memoryview) -> None:
        self._cells = cells

    def beat(self) -> None:
        """Say that this rank moves: at every step, and while it waits for an operation."""
        self._cells[_BEAT] = time.monotonic_ns()

    def stepped(self, wait_ns: int) -> None:
        """One more step is done; in its operation it was so long."""
        steps = self._cells[_STEPS]
        self._cells[_FIRST_WAIT + steps % KEPT_WAITS] = wait_ns
        self._cells[_STEPS] = steps + 1
        self.beat()

    def mark(self, name: str) -> None:
        """Stamp ``name`` with the time, unless it has its stamp."""
        cell = _FIRST_MARK + MARKS.index(name)
        if not self._cells[cell]:
            self._cells[cell] = time.monotonic_ns()

    def wrong(self) -> None:
        """Count an operation with wrong sums."""
        self._cells[_WRONG] += 1

    @property
    def steps(self) -> int:
        """Steps done."""
        return int(self._cells[_STEPS])

    @property
    def silent_s(self) -> float:
        """Seconds since it last moved."""
        return (time.monotonic_ns() - self._cells[_BEAT]) / 1e9

    @property
    def wrong_count(self) -> int:
        """Operations with wrong sums."""
        return int(self._cells[_WRONG])

    def at_ns(self, name: str) -> int | None:
        """When it came to that; None where it did not."""
        return int(self._cells[_FIRST_MARK + MARKS.index(name)]) or None

    def waits_us(self, start: int, end: int) -> list[float]:
        """What it was in the operations of these of its newest steps, microseconds."""
        return [self._cells[_FIRST_WAIT + step % KEPT_WAITS] / 1e3 for step in range(start, end)]


class Stamps:
    """All seats of a trial: one for each rank, by number, and the last for the replacement.

    Attributes:
        descriptor: of the memory, closed on exec unless made inheritable.
    """

    def __init__(self, seats: int, descriptor: int | None = None) -> None:
        """Make the memory, or open the one that somebody else has made.

        Args:
            seats: how many, the replacement's included.
            descriptor: of memory that is there.
        """
        size = seats * _CELLS * 8
        if descriptor is None:
            descriptor = os.memfd_create("ncclbench-drill")
            os.ftruncate(descriptor, size)
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, size)
        self._cells = memoryview(self._memory).cast("q")
        self._seats = [Seat(self._cells[at * _CELLS : (at + 1) * _CELLS]) for at in range(seats)]

    def seat(self, number: int) -> Seat:
        """One rank's cells."""
        return self._seats[number]

    def close(self) -> None:
        """Let go of the memory; the seats are of no use afterwards."""
        for seat in self._seats:
            seat._cells.release()
        self._cells.release()
        self._memory.close()
        os.close(self.descriptor)


def common_waits_us(seats: Mapping[int, Seat], since: int = 0) -> Mapping[int, Sequence[float]]:
    """By rank, the waits of the newest steps from ``since`` on that all have done, the oldest first."""
    end = min(seat.steps for seat in seats.values())
    most = max(seat.steps for seat in seats.values())
    # A rank that is ahead has begun to overwrite its oldest.
    start = min(end, max(since, most + 1 - KEPT_WAITS))
    return {rank: seat.waits_us(start, end) for rank, seat in seats.items()}
