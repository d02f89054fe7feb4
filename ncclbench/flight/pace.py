"""How long ranks had waited when their dumps were taken, and whether that is longer than they are used to.

In a job that runs well there are ranks that wait at any moment: for the one whose batch was longer, for what
is in flight. So a wait says nothing by itself. It is held against half a second, and against the waits that
the same ranks had before in the same group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from ncclbench.flight.cases import Case
from ncclbench.flight.join import Group, Joined
from ncclbench.flight.model import Operation

# Who waits longer than this, or than a tenth of the timeout, does not only wait for what is in flight.
WAITS_NS = 500_000_000
# What a busy machine may take a process away for.
SPARE_NS = 100_000_000
# Operations before it that are looked at; as long as the third longest of their waits is usual.
_LOOKED_AT = 32
_LONGEST = 3

Standing = Literal["in flight", "unclear", "stuck"]


def timeout_ns(operation: Operation) -> int | None:
    return operation.timeout_ms * 1_000_000 if operation.timeout_ms else None


def least_ns(operation: Operation) -> int:
    """How long a wait must be to say anything."""
    timeout = timeout_ns(operation)
    return WAITS_NS if timeout is None else min(WAITS_NS, timeout // 10)


def standing(joined: Joined, case: Case, of_many: Callable[[list[int]], int]) -> Standing | None:
    """What the waits of a case say; None where too little is known of when the dumps were taken.

    Args:
        of_many: which wait counts: ``max``, or ``min`` where whoever came last has waited for nobody.
    """
    least = least_ns(case.operation)
    ages = list(_ages_ns(joined, case, least))
    most = [
        joined.latest_ns[rank] - case.issued[rank].created_ns
        for rank in case.waiting
        if rank in joined.latest_ns
    ]
    if ages:
        age = of_many(ages)
    elif most and len(most) == len(case.waiting):
        age = of_many(most)
    else:
        return None
    usual = usual_wait_ns(case.group, case.sequence, case.waiting)
    if age < least:
        is_usual = age <= 2 * usual + SPARE_NS
        case.doubt = None if is_usual else "too short a wait to tell it from work in flight"
        return "in flight" if is_usual else "unclear"
    if age <= usual:
        case.doubt = "they waited as long before, so it may be in flight"
        return "unclear"
    # A file may be copied long after the dump in it was taken: then its time says nothing.
    return "stuck" if ages else None


def _ages_ns(joined: Joined, case: Case, least: int) -> Iterator[int]:
    """How long ranks had waited at least when their dumps were taken, each by its own clock, if known."""
    for rank in case.waiting:
        created = case.issued[rank].created_ns
        taken = joined.taken_ns.get(rank)
        if taken is not None:
            yield taken - created
        elif joined.newest[rank].created_ns - created >= least:
            # It issued something so much later that this cannot be in flight only.
            yield joined.newest[rank].created_ns - created


def usual_wait_ns(group: Group, number: int, ranks: frozenset[int]) -> int:
    """As long as these ranks waited in the operations before that one, now and then; 0 where not known.

    An operation that is known to be completed took what it took. Of others a rank waited no longer than until
    the last one came, and no longer than until it issued the next itself; clocks of hosts may differ, so the
    shorter of the two counts.
    """
    waits: list[int] = []
    for before in range(number - 1, max(0, number - 1 - _LOOKED_AT), -1):
        held = {rank: lane.at(before) for rank, lane in group.lanes.items()}
        last = max((one.created_ns for one in held.values() if one is not None), default=0)
        longest = 0
        for rank in ranks:
            operation = held.get(rank)
            if operation is None:
                continue
            if operation.completed_ns is not None:
                longest = max(longest, operation.completed_ns - operation.created_ns)
                continue
            following = group.lanes[rank].at(before + 1)
            if following is not None:
                longest = max(longest, min(last, following.created_ns) - operation.created_ns)
        waits.append(longest)
    return sorted(waits, reverse=True)[_LONGEST - 1] if len(waits) >= _LONGEST else 0
