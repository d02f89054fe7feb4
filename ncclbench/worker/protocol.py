"""What a worker and its supervisor say to each other.

Messages are plain data over a pipe that only the two of them hold; the supervisor answers each of rank
0's when it has dealt with it, so that the worker can wait for quiet before it starts the clock. Progress goes through shared
memory instead, so that it can be read of a worker that no longer answers.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass, field
from typing import Any

from ncclbench.plan.model import Plan
from ncclbench.store.model import Unit


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """What a worker is forked to do.

    Attributes:
        rank, local_rank, local_ranks: its place; ``local_ranks`` is how many share its host.
        nranks: world size.
        one_host: nobody is elsewhere, so sockets stay on the loopback.
        plan: what to measure; None only describes the environment.
        epochs: the epochs to measure, in order.
        done: units that a former attempt measured: (case key, arm id, epoch).
        batches: case key to k, where a former attempt has fixed it.
        attempt: number of this start of the run.
        timeout_s: seconds that one operation may take.
    """

    rank: int
    local_rank: int
    local_ranks: int
    nranks: int
    one_host: bool
    plan: Plan | None
    epochs: tuple[int, ...]
    done: frozenset[tuple[str, str, int]]
    batches: dict[str, int]
    attempt: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Described:
    """Rank 0: the environment of every rank; the answer is whether to go on."""

    environment: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ArmReady:
    """Rank 0: what an arm really is, or why it is not there."""

    arm: str
    device: str | None
    implementation: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Settled:
    """Rank 0: cases that the arm does not take, by key, with the reason."""

    arm: str
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True)
class Cold:
    """Rank 0: what making a group and its first operation took on each rank, microseconds."""

    arm: str
    epoch: int
    init_us: list[float]
    first_op_us: list[float]


@dataclass(frozen=True, slots=True)
class Measured:
    """Rank 0: a case in an epoch on all its arms."""

    case: str
    epoch: int
    units: list[Unit]


@dataclass(frozen=True, slots=True)
class FenceQuality:
    """Rank 0: how well the fence aligns ranks, microseconds."""

    median_us: float
    p95_us: float
    clock_error_us: float


@dataclass(frozen=True, slots=True)
class Raised:
    """Any rank: an exception ended the worker."""

    text: str
    kind: str
    details: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True)
class Done:
    """Any rank: everything asked for is measured."""


_STEPS, _CASE, _ARM, _EPOCH, _WHEN_NS = range(5)
_FIELDS = 5
NOWHERE = -1


class Board:
    """Progress of one host's workers in memory that supervisor and workers share.

    Made before the fork. Each worker writes its own place only, with plain stores.
    """

    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, slots * _FIELDS * 8)
        self._cells = memoryview(self._memory).cast("q")
        for slot in range(slots):
            self.place(slot).reset()

    def place(self, slot: int) -> Place:
        """The cells of one worker."""
        return Place(self._cells[slot * _FIELDS : (slot + 1) * _FIELDS])


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
