"""FAULTS: what a drill does to its victim, who does it, and what tells of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Cause = Literal["orchestrator", "victim"]
Sign = Literal["death", "silence", "word", "waits"]


class InjectedFault(RuntimeError):
    """What a fault raises in its victim on purpose."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """Where a fault falls.

    Attributes:
        pid: the victim's process.
        rank: the victim; ``step``: its step, from 0.
        compute_s: what a step computes; ``slow_factor``: how many times that a slow rank takes.
    """

    pid: int
    rank: int
    step: int
    compute_s: float
    slow_factor: float


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a rank fails.

    Attributes:
        name: as typed after ``--fault``.
        description: what happens to the victim.
        cause: who does it, and so takes its time: the orchestrator, or the victim itself.
        sign: what the orchestrator sees of it: the process' death, no progress (silence), the victim's own
            word, or the waiting times of the others.
        harm: does it; where the victim is the cause in every step from the fault on, else once.
    """

    name: str
    description: str
    cause: Cause
    sign: Sign
    harm: Callable[[Stroke], object]

    @property
    def ends(self) -> bool:
        """Whether something ends or stands still, so that survivors are told; else all go on, late."""
        return self.sign != "waits"


def _raise(stroke: Stroke) -> None:
    raise InjectedFault(f"rank {stroke.rank} fails on purpose at step {stroke.step}")


def _signal(number: signal.Signals) -> Callable[[Stroke], None]:
    return lambda stroke: os.kill(stroke.pid, number)


_ENTRIES = (
    Fault(
        "kill",
        "SIGKILL: the process and its sockets are gone at once",
        "orchestrator",
        "death",
        _signal(signal.SIGKILL),
    ),
    Fault(
        "hang",
        "SIGSTOP: the process stays, its sockets stay, nothing moves",
        "orchestrator",
        "silence",
        _signal(signal.SIGSTOP),
    ),
    Fault(
        "slow",
        "every step takes the rank many times as long as the others",
        "victim",
        "waits",
        lambda stroke: time.sleep(stroke.compute_s * (stroke.slow_factor - 1)),
    ),
    Fault(
        "exit",
        "os._exit in the middle of a step: no exception, no farewell",
        "victim",
        "death",
        lambda stroke: os._exit(1),
    ),
    Fault("exception", "an exception in a step; the process says so and ends", "victim", "word", _raise),
)

FAULTS: dict[str, Fault] = {entry.name: entry for entry in _ENTRIES}
