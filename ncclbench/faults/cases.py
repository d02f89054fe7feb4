"""The contract cases: what may happen when membership changes, and what a user may count on then."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which a change of membership may go wrong.

    Attributes:
        name: as ``drill --contract`` takes it.
        words: what is done.
        expected: what the documentation of torch.distributed, or else common sense, promises.
        nranks: how many ranks it takes, those that are killed included.
    """

    name: str
    words: str
    expected: str
    nranks: int


ORCHESTRATOR_KILLED = "orchestrator-killed"

_ALL = (
    Case(
        "reused-uuid",
        "all ranks reconfigure with a uuid that an earlier reconfigure has used",
        "every rank is refused, since each reconfigure needs a fresh uuid",
        3,
    ),
    Case(
        "absent-member",
        "a listed member is dead",
        "every rank that is left is told so within the timeout it gave",
        3,
    ),
    Case(
        "stale-handle",
        "the list holds a rank's handle from before the last reconfigure",
        "every rank is refused, and the group they have goes on",
        3,
    ),
    Case(
        "set-of-handles",
        "12 members are given as a list, then as a set",
        "a list gives ranks by position; of a set the backend chooses them, the same on every rank",
        12,
    ),
    Case(
        "late-victim",
        "a stopped rank is detached, the others go on, and it wakes up",
        "it is told at once that it is out, the others notice nothing, and it can be taken in again",
        4,
    ),
    Case(
        "two-faults",
        "two ranks are killed at once while the others are in an operation",
        "every survivor is told within the timeout, and one reconfigure detaches both",
        5,
    ),
    Case(
        "fault-during-recovery",
        "a second rank is killed inside the reconfigure that detaches the first",
        "every survivor is told within the timeout it gave",
        5,
    ),
    Case(
        ORCHESTRATOR_KILLED,
        "the orchestrator, which holds the store, is killed while ranks run",
        "every rank ends by itself within 2 s",
        3,
    ),
)

CASES: dict[str, Case] = {case.name: case for case in _ALL}
