"""Where some wait for others, or gave up waiting, and whom they waited for."""

from __future__ import annotations

from collections.abc import Mapping

from ncclbench.flight.agreement import is_synchronising
from ncclbench.flight.cases import Case, camps_of, has_issued, issued_under, knows_how_far, unknown_members
from ncclbench.flight.differing import first_mismatch
from ncclbench.flight.join import Group, Joined, Lane, is_done
from ncclbench.flight.model import Operation
from ncclbench.flight.pace import SPARE_NS, least_ns, standing, timeout_ns

# A rank that is so many operations behind, with nobody waiting for it, may simply have been asked earlier.
FAR_BEHIND = 50


def collective_cases(group: Group, joined: Joined) -> list[Case]:
    """What is wrong with the collectives of a group; what only follows from it there is left out."""
    mismatch = first_mismatch(group)
    stuck = _stuck(group, joined)
    if mismatch is None:
        return [stuck] if stuck is not None else []
    if stuck is None or (not mismatch.is_past and mismatch.sequence <= stuck.sequence):
        return [mismatch]
    return [stuck, mismatch] if mismatch.is_past else [stuck]


def _stuck(group: Group, joined: Joined) -> Case | None:
    """Where some wait, or gave up waiting, for others."""
    last = {rank: lane.last for rank, lane in group.lanes.items() if knows_how_far(lane)}
    if not any(last.values()):
        return None
    behind = min(last.values())
    pending: dict[int, set[int]] = {}
    for rank, lane in group.lanes.items():
        passed = _passed(lane, behind) if lane.pending else 0
        for operation in lane.pending:
            if operation.sequence >= passed:
                pending.setdefault(operation.sequence, set()).add(rank)
    unknown = unknown_members(group)
    waited = min((number for number in pending if number > behind), default=None)
    inside = min((number for number in pending if number <= behind), default=None)
    if inside is not None:
        # The operation that some wait for may be missing because its ranks are still in an earlier one.
        late = {rank for rank, came in last.items() if waited is not None and came < waited}
        is_behind = bool(late) and late <= pending[inside] and not _are_under_way(group, frozenset(late))
        if waited is None or unknown or is_behind or _has_started(group, inside, pending[inside]):
            case = _inside(group, joined, inside, pending[inside], is_behind)
            if case is not None:
                return case
    if waited is not None:
        return _waiting(group, joined, waited, last, frozenset(pending[waited]))
    return _given_up(group, joined, last)


def _passed(lane: Lane, number: int) -> int:
    """The last that the rank is through of those that nobody leaves before all have come; 0 for none.

    What is older is not waited for, though recorders may be late to say so: gloo's marks an operation as
    retired after whoever waited for it has gone on.

    Args:
        number: that all have issued.
    """
    begin = lane.position(number + 1)
    for operation in reversed(lane.operations[max(0, begin - FAR_BEHIND) : begin]):
        if is_done(operation) and is_synchronising(operation.collective):
            return operation.sequence
    return 0


def _has_started(group: Group, number: int, waiting: set[int]) -> bool:
    return any(one.state == "started" for rank, one in issued_under(group, number).items() if rank in waiting)


def _case(
    group: Group, number: int, missing: frozenset[int], waiting: frozenset[int], is_certain: bool
) -> Case:
    issued = issued_under(group, number)
    arrived = frozenset(rank for rank, lane in group.lanes.items() if has_issued(lane, number))
    camps = camps_of(issued)
    later = next(one for lane in group.lanes.values() for one in lane.operations if one.sequence >= number)
    usual = issued[camps[0][0]] if camps else later
    return Case(
        "stuck",
        group,
        number,
        usual,
        issued,
        missing=missing,
        arrived=arrived,
        unknown=unknown_members(group),
        waiting=waiting,
        is_certain=is_certain,
        is_lonely=group.is_short,
    )


def _waiting(
    group: Group, joined: Joined, number: int, last: Mapping[int, int], waiting: frozenset[int]
) -> Case | None:
    """Some wait in an operation that others have not issued: None where they had come only just now."""
    case = _case(group, number, frozenset(rank for rank in last if last[rank] < number), waiting, True)
    stands = standing(joined, case, max)
    if stands == "in flight":
        return None
    # Out of what not all have come to: given up, if the others are one behind only.
    is_given_up = (
        is_synchronising(case.operation.collective)
        and case.waiting < case.arrived
        and all(last[rank] == number - 1 for rank in case.missing)
    )
    case.is_certain = is_given_up or stands == "stuck"
    if case.is_certain:
        case.doubt = None
    elif not any(_was_asked_later(joined, rank, case.issued) for rank in case.missing):
        if stands == "unclear":
            return None
        case.doubt = f"{'its dump was' if len(case.missing) == 1 else 'their dumps were'} taken before that"
    elif stands is None:
        case.is_certain = not _are_under_way(group, case.missing)
    return case


def _are_under_way(group: Group, ranks: frozenset[int]) -> bool:
    """Whether all of these were in an operation that others had already completed.

    Then they were about to come, or were asked before the others: no sign of a hang.
    """
    for rank in ranks:
        lane = group.lanes[rank]
        if not lane.pending or lane.pending[-1] is not lane.operations[-1]:
            return False
        if not is_synchronising(lane.pending[-1].collective):
            return False
        others = (other.at(lane.last) for other in group.lanes.values() if other is not lane)
        if not any(one is not None and is_done(one) for one in others):
            return False
    return True


def _inside(group: Group, joined: Joined, number: int, waiting: set[int], others_wait: bool) -> Case | None:
    """All of whom there is a dump have issued it, and it is not done: None where it surely is in flight."""
    case = _case(group, number, frozenset(), frozenset(waiting), True)
    if len(group.members) == 1 and group.is_known:
        return None
    is_partly_done = is_synchronising(case.operation.collective) and case.waiting < case.arrived
    if case.unknown or case.is_lonely:
        # Of a rank that was killed its neighbours learn at once; but so it is at the end of a healthy run.
        # And whoever is through a later operation may be through this one, if its recorder is late.
        went_on = all(
            joined.newest[rank].created_ns > case.issued[rank].created_ns and is_done(joined.newest[rank])
            for rank in case.waiting
        )
        case.is_certain = not ((is_partly_done or went_on) and case.unknown)
        if case.is_certain and standing(joined, case, max) in ("in flight", "unclear"):
            case.is_certain = False
        return case
    # Whoever came last has waited for nobody.
    stands = standing(joined, case, min)
    if stands is not None:
        case.is_certain = stands == "stuck"
        return case if stands != "in flight" else None
    if is_partly_done:
        # Some have completed it, which they could not before all had come: the others are about to.
        return None
    case.is_certain = others_wait
    return case


def _given_up(group: Group, joined: Joined, last: Mapping[int, int]) -> Case | None:
    """Nobody waits any more: told from what cannot have been completed.

    Where a recorder says "completed", what is retired without it was given up. Where it never does, an
    operation that nobody leaves before all have come was given up if some had not issued it.
    """
    top = max(last.values())
    failed = [
        one.sequence
        for lane in group.lanes.values()
        if lane.tells_completion
        for one in lane.operations
        if one.is_retired and one.state != "completed"
    ]
    if failed:
        number = min(failed)
        missing = frozenset(rank for rank in last if last[rank] < number)
        return _case(group, number, missing, frozenset(), True)
    behind = min(last.values())
    if behind == top:
        return _all_stopped(group, joined, top)
    loose: Case | None = None
    for number in _numbers_after(group, behind):
        issued = issued_under(group, number)
        if any(one.state == "completed" for one in issued.values()):
            continue
        late = frozenset(rank for rank in last if last[rank] < number)
        missing = frozenset(rank for rank in late if _was_asked_later(joined, rank, issued))
        if number == top and _sat_there(joined, issued):
            missing = late
        if not missing:
            if number == top == behind + 1 and is_synchronising(next(iter(issued.values())).collective):
                # Asked before the others came there, and nobody came past it.
                if late <= joined.latest_ns.keys() and _are_under_way(group, late):
                    continue
                return _case(group, number, late, frozenset(), False)
            continue
        # One behind, and the others out of the next: never at one time, but so it is after a timeout.
        is_certain = top == behind + 1 or (top - behind <= FAR_BEHIND and not _are_under_way(group, missing))
        is_certain = is_certain and not _may_wait_for_unknown(group, missing, number)
        case = _case(group, number, missing, frozenset(), is_certain)
        if _is_overdue(joined, case):
            case.is_certain = not _may_wait_for_unknown(group, missing, number)
            return case
        if is_synchronising(case.operation.collective):
            return case
        if loose is None and len(missing) == 1 and len(last) > 2 and set(last) - missing <= case.arrived:
            # Of some ahead of others nothing follows, but here one is behind all.
            loose = case
    return loose


def _may_wait_for_unknown(group: Group, missing: frozenset[int], number: int) -> bool:
    """Whether those who did not come may have been held in the operation before it by ranks without a dump.

    Others may have left that one early, and gone on.
    """
    if not unknown_members(group):
        return False
    before = (group.lanes[rank].at(number - 1) for rank in missing)
    return any(one is not None and not is_synchronising(one.collective) for one in before)


def _all_stopped(group: Group, joined: Joined, number: int) -> Case | None:
    """All that were seen came equally far, and did nothing after it in any group.

    If a member was not seen there, they may have given it up: told only if others wait behind them, or if it
    is known that somebody is lacking.
    """
    if group.is_known and not unknown_members(group):
        return None
    case = _case(group, number, frozenset(), frozenset(), group.is_short and group.size is not None)
    if not is_synchronising(case.operation.collective):
        return None
    stopped = all(joined.newest[rank] is one for rank, one in case.issued.items())
    return case if stopped and case.arrived == frozenset(case.issued) else None


def _numbers_after(group: Group, number: int) -> list[int]:
    """The next numbers of which any rank still has the operation; enough of them to judge by."""
    found: set[int] = set()
    for lane in group.lanes.values():
        begin = lane.position(number + 1)
        found.update(one.sequence for one in lane.operations[begin : begin + FAR_BEHIND])
    return sorted(found)[:FAR_BEHIND]


def _was_asked_later(joined: Joined, rank: int, issued: Mapping[int, Operation]) -> bool:
    """Whether its dump is from well after the others came to the operation, as far as that is known."""
    taken = joined.latest_ns.get(rank)
    return taken is None or taken > max(one.created_ns for one in issued.values()) + SPARE_NS


def _sat_there(joined: Joined, issued: Mapping[int, Operation]) -> bool:
    """Whether any of those who came had issued nothing for long after it, by the time of their dumps."""
    known = ((joined.latest_ns.get(rank), one) for rank, one in issued.items())
    return any(latest is not None and latest - one.created_ns >= least_ns(one) for latest, one in known)


def _is_overdue(joined: Joined, case: Case) -> bool:
    """Whether missing ranks had let the timeout pass, by the time of their dump or of any other event.

    Without a time of the dump it is assumed that all dumps were taken together.
    """
    timeout = timeout_ns(case.operation)
    if timeout is None:
        return False
    newest = max(one.created_ns for one in joined.newest.values())
    times = (joined.taken_ns.get(rank, newest) for rank in case.missing)
    return max(times) - case.first_ns >= 0.9 * timeout
