"""FAULTS: what a drill does to its victim, who does it, and what tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal["orchestrator", "victim"]
Sign = Literal["death", "silence", "word", "waits"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a rank fails.

    Attributes:
        name: as typed after ``--fault``.
        description: what happens to the victim.
        cause: who does it, and so takes its time: the orchestrator, or the victim itself.
        sign: what the orchestrator sees of it: the process' death, no progress (silence), the victim's own
            word, or the waiting times of the others.
    """

    name: str
    description: str
    cause: Cause
    sign: Sign


_ENTRIES = (
    Fault("kill", "SIGKILL: the process and its sockets are gone at once", "orchestrator", "death"),
    Fault("hang", "SIGSTOP: the process stays, its sockets stay, nothing moves", "orchestrator", "silence"),
    Fault("slow", "every step takes the rank many times as long as the others", "victim", "waits"),
    Fault("exit", "os._exit in the middle of a step: no exception, no farewell", "victim", "death"),
    Fault("exception", "an exception in a step; the process says so and ends", "victim", "word"),
)

FAULTS: dict[str, Fault] = {entry.name: entry for entry in _ENTRIES}
