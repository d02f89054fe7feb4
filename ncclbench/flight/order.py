"""The root cause first: a rank that waits in one group cannot arrive in another.

Cases are the nodes; one is held by another where a rank that it misses waits there. What nothing holds is a
root. Where all are held, they wait for each other in a circle, which then is the root: groups crossed.
"""

from __future__ import annotations

from collections import defaultdict, deque

from ncclbench.flight.cases import Case
from ncclbench.flight.join import Joined

# More are no help, and with damaged dumps there may be very many.
MOST_SUSPECTS = 10_000
# With more cases than this what follows is counted of roots only.
MOST_COUNTED = 300


def in_order(cases: list[Case], joined: Joined) -> list[Case]:
    """All cases that are certain, or that hold others, roots first; else those that are not certain."""
    stands: dict[int, list[Case]] = defaultdict(list)
    for case in cases:
        for rank in case.arrived:
            if case.stands(rank):
                stands[rank].append(case)
    holders = {id(case): _holders(case, stands) for case in cases}
    held: dict[int, list[Case]] = defaultdict(list)
    for case in cases:
        for holder in holders[id(case)]:
            held[id(holder)].append(case)
    kept = _worth_telling(cases, held)
    ids = {id(case) for case in kept}
    holders = {id(c): [h for h in holders[id(c)] if id(h) in ids] for c in kept}
    held = defaultdict(list, {key: [c for c in each if id(c) in ids] for key, each in held.items()})
    for case in kept:
        case.held_by = {
            rank: holder
            for rank in sorted(case.missing)
            for holder in stands.get(rank, ())
            if holder is not case and id(holder) in ids
        }
        if len(kept) <= MOST_COUNTED or not holders[id(case)]:
            case.causes = _causes(case, held)
        if not case.group.is_known and not case.missing and case.kind == "stuck":
            _name_absent(case, held[id(case)], stands, holders, joined)
    return [case for level in _levels(kept, holders) for case in level]


def _holders(case: Case, stands: dict[int, list[Case]]) -> list[Case]:
    if case.kind == "mismatch":
        return []
    found = {id(one): one for rank in case.missing for one in stands.get(rank, ()) if one is not case}
    return list(found.values())


def _worth_telling(cases: list[Case], held: dict[int, list[Case]]) -> list[Case]:
    """Those that are certain, and those that these cannot be explained without; if there are none, all."""
    certain = [case for case in cases if case.is_certain]
    holding = [case for case in cases if not case.is_certain and held[id(case)]]
    if any(case.is_certain for one in holding for case in held[id(one)]):
        for case in holding:
            case.is_certain = True
    else:
        holding = []
    if certain:
        ids = {id(case) for case in (*certain, *holding)}
        return [case for case in cases if id(case) in ids]
    return cases


def _causes(case: Case, held: dict[int, list[Case]]) -> int:
    seen = {id(case)}
    left = deque([case])
    while left:
        for after in held[id(left.popleft())]:
            if id(after) not in seen:
                seen.add(id(after))
                left.append(after)
    return len(seen) - 1


def _name_absent(
    case: Case,
    held: list[Case],
    stands: dict[int, list[Case]],
    holders: dict[int, list[Case]],
    joined: Joined,
) -> None:
    """Whom the ranks wait for in a group of which not all members are recorded.

    It is told by who else is missing behind it: one that waits nowhere; else one that left no dump; else
    those that wait there for the ranks of this group, and both sides hold each other.
    """
    outside = joined.ranks.difference(case.group.members, case.group.others)
    absent = {rank for after in held for rank in after.missing if rank not in stands} & outside
    if absent:
        case.missing = frozenset(absent)
        return
    silent: frozenset[int] = frozenset()
    if len(joined.missing) <= MOST_SUSPECTS:
        silent = frozenset(joined.missing) - set(case.group.members)
    if silent and case.is_lonely:
        case.unknown |= silent
        return
    crossing = [after for after in held if after.waiting or after.arrived]
    facing = {rank for after in crossing for rank in after.arrived if after.stands(rank)} & outside
    if facing:
        case.missing = frozenset(facing)
        case.held_by = {rank: after for after in crossing for rank in sorted(after.arrived & facing)}
        holders[id(case)] += crossing
    elif case.is_lonely and len(outside) <= MOST_SUSPECTS:
        case.unknown = frozenset(rank for rank in outside if rank not in stands)


def _levels(cases: list[Case], holders: dict[int, list[Case]]) -> list[list[Case]]:
    """Roots, then what only they hold, and so on; a circle where there is no root left."""
    levels: list[list[Case]] = []
    left = {id(case): case for case in cases}
    while left:
        free = [case for key, case in left.items() if not any(id(h) in left for h in holders[key])]
        if not free:
            free = _circle(left, holders)
            for case in free:
                case.crossed = tuple(one for one in free if one is not case)
                case.causes = max(0, case.causes - len(case.crossed))
        levels.append(sorted(free, key=_rank_of))
        for case in free:
            del left[id(case)]
    return levels


def _circle(left: dict[int, Case], holders: dict[int, list[Case]]) -> list[Case]:
    """The shortest circle that is met from the earliest case."""
    start = min(left.values(), key=lambda case: case.first_ns)
    case = start
    way: list[Case] = []
    seen: dict[int, int] = {}
    while id(case) not in seen:
        seen[id(case)] = len(way)
        way.append(case)
        case = min((h for h in holders[id(case)] if id(h) in left), key=lambda one: one.first_ns)
    return way[seen[id(case)] :]


def _rank_of(case: Case) -> tuple[bool, bool, float, int, int]:
    """What is past last, mismatches first, then what causes most, then the earliest.

    Of a circle that which misses the least part: a few that go another way than most are to blame.
    """
    part: float = not case.missing
    if case.crossed:
        part = len(case.missing) / len(case.missing | case.arrived)
    return case.is_past, case.kind != "mismatch", part, -case.causes, case.first_ns
