"""Members that issued different things under one number: the first number where they do, and who differs."""

from __future__ import annotations

from collections import Counter

from ncclbench.flight.agreement import difference, elements, family, is_root, look_alike, totals_fit
from ncclbench.flight.cases import Case, camps_of, has_issued, issued_under, knows_how_far, unknown_members
from ncclbench.flight.join import Group, is_done
from ncclbench.flight.model import Operation

# Numbers that agree again after one that does not: the programs did not part there.
AGREE_AGAIN = 3


def first_mismatch(group: Group) -> Case | None:
    """The first number under which members issued what does not fit together."""
    usual: dict[int, Operation] = {}
    doubtful: set[int] = set()
    for lane in group.lanes.values():
        for operation in lane.operations:
            first = usual.setdefault(operation.sequence, operation)
            if first is operation:
                # Where nobody is the root, all records look alike.
                if is_root(operation) is not None:
                    doubtful.add(operation.sequence)
            elif not look_alike(first, operation):
                doubtful.add(operation.sequence)
    for number in sorted(doubtful):
        issued = issued_under(group, number)
        case = _disagreement(group, number, issued)
        if case is not None:
            case.is_past = _agree_again(group, number)
            return case
    return None


def _disagreement(group: Group, number: int, issued: dict[int, Operation]) -> Case | None:
    camps = camps_of(issued)
    if len(camps) > 1:
        most = len(camps[0])
        is_tie = len(camps[1]) == most
        mismatched = frozenset(issued) if is_tie else frozenset(issued) - set(camps[0])
        usual = issued[camps[0][0]]
        differs = difference(usual, issued[camps[1][0]]) or "size"
        return _mismatch_case(group, number, issued, usual, mismatched, differs)
    usual = next(iter(issued.values()))
    if family(usual.collective) == "all_to_all":
        return _uneven(group, number, issued)
    if is_root(usual) is None or len(issued) < len(group.members) or not group.is_known:
        return None
    roots = [rank for rank, one in issued.items() if is_root(one)]
    if len(roots) == 1:
        return None
    before = _root_before(group, number, usual)
    if roots:
        mismatched = frozenset(roots) - {before}
    else:
        mismatched = frozenset({before} if before is not None else issued)
    return _mismatch_case(group, number, issued, usual, mismatched, "root")


def _uneven(group: Group, number: int, issued: dict[int, Operation]) -> Case | None:
    """An all_to_all whose splits cannot be.

    Not all that is sent is received; or, of one that nobody came past, every rank sends as much as it
    receives, as without splits, but not the same as the others.
    """
    is_whole = len(issued) == len(group.members) and group.is_known
    is_balanced = all(elements(one.input_sizes) == elements(one.output_sizes) for one in issued.values())
    is_last = all(lane.last <= number for lane in group.lanes.values())
    alike = Counter((one.input_sizes, one.output_sizes) for one in issued.values())
    (most_common, most), *others = alike.most_common()
    is_tie = bool(others) and others[0][1] == most
    if not (is_whole and not totals_fit(issued)) and not (is_balanced and is_last and others and not is_tie):
        return None
    odd = {rank for rank, one in issued.items() if (one.input_sizes, one.output_sizes) != most_common}
    usual = next(one for rank, one in issued.items() if rank not in odd)
    mismatched = frozenset(issued if is_tie else odd)
    case = _mismatch_case(group, number, issued, usual, mismatched, "splits")
    case.is_certain = bool(case.waiting or case.unknown) or not totals_fit(issued)
    return case


def _root_before(group: Group, number: int, like: Operation) -> int | None:
    """The one root that earlier operations of this kind had; None where it changed or there are too few."""
    roots: set[int] = set()
    seen = 0
    numbers = [one.sequence for one in next(iter(group.lanes.values())).operations if one.sequence < number]
    for earlier in reversed(numbers[-200:]):
        issued = issued_under(group, earlier)
        if not issued or family(next(iter(issued.values())).collective) != family(like.collective):
            continue
        found = [rank for rank, one in issued.items() if is_root(one)]
        if len(found) != 1:
            return None
        roots.update(found)
        seen += 1
    return roots.pop() if len(roots) == 1 and seen >= 2 else None


def _mismatch_case(
    group: Group,
    number: int,
    issued: dict[int, Operation],
    usual: Operation,
    mismatched: frozenset[int],
    differs: str,
) -> Case:
    arrived = {rank for rank, lane in group.lanes.items() if has_issued(lane, number)}
    known = {rank for rank, lane in group.lanes.items() if knows_how_far(lane)}
    lost = arrived - set(issued)
    return Case(
        "mismatch",
        group,
        number,
        usual,
        issued,
        missing=frozenset(known - arrived),
        arrived=frozenset(arrived),
        mismatched=mismatched,
        unknown=unknown_members(group) | lost,
        waiting=frozenset(rank for rank, one in issued.items() if not is_done(one)),
        differs=differs,
    )


def _agree_again(group: Group, number: int) -> bool:
    """Whether all went on after it, together and with the same operations."""
    if any(lane.last < number + AGREE_AGAIN for lane in group.lanes.values() if knows_how_far(lane)):
        return False
    return all(len(camps_of(issued_under(group, number + later))) <= 1 for later in range(1, AGREE_AGAIN + 1))
