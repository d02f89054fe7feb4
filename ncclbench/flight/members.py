"""Who is a member of a group, from what dumps say of it and from who was seen in it.

NCCL's recorder has the members of each group by name. Gloo's has one entry for all groups, under the name "",
which the last group that the rank made has overwritten, and in it the members' numbers in that group instead
of the world's: only how many they are can be used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ncclbench.flight.agreement import is_synchronising
from ncclbench.flight.model import Dump, Operation

_DEFAULT_GROUP = "default_pg"
_ALL_GROUPS = ""

Seen = Mapping[int, list[Operation]]
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Membership:
    """Of one group.

    Attributes:
        ranks: members, ascending; where ``is_known`` is False only those that were seen in it.
        size: how many there are; None where that is not known.
        others: ranks that surely are no members; all that are neither in ``ranks`` nor here may be.
    """

    ranks: tuple[int, ...]
    is_known: bool
    size: int | None = None
    others: frozenset[int] = frozenset()


def memberships(
    by_group: Mapping[Name, Seen], dumps: Collection[Dump], wrapped: Collection[int], nranks: int
) -> dict[Name, list[Membership]]:
    """The groups that go by each backend and name: several where groups were split off under one name.

    Args:
        by_group: operations of each rank, by backend and name of the group.
        wrapped: ranks of which a ring had wrapped.
        nranks: world size.
    """
    claims = _claims(dumps)
    found: dict[Name, list[Membership]] = {}
    for (backend, name), seen in by_group.items():
        words = next(iter(seen.values()))[0].group_words
        found[backend, name] = list(_claimed(seen, claims.get(name, {}), _is_default(name, words), nranks))
    ranks = {dump.rank for dump in dumps if dump.rank is not None}
    _infer(found, by_group, _sizes(dumps), ranks, wrapped, nranks)
    return found


def _is_default(name: str, words: str) -> bool:
    return words == _DEFAULT_GROUP or name in ("0", _DEFAULT_GROUP)


def _claims(dumps: Iterable[Dump]) -> dict[str, dict[int, tuple[int, ...]]]:
    """Members of each group as each rank's dump has them, where it counts itself among them."""
    claims: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
    for dump in dumps:
        for name, status in dump.groups.items():
            if name != _ALL_GROUPS and status.ranks and dump.rank in status.ranks:
                claims[name][dump.rank] = tuple(sorted(set(status.ranks)))
    return claims


def _sizes(dumps: Iterable[Dump]) -> dict[int, int]:
    """By rank the size of the group that it made last, where that is all that is said."""
    statuses = ((dump.rank, dump.groups.get(_ALL_GROUPS)) for dump in dumps)
    return {
        rank: len(status.ranks)
        for rank, status in statuses
        if rank is not None and status is not None and status.ranks
    }


def _claimed(
    seen: Iterable[int], claims: Mapping[int, tuple[int, ...]], is_default: bool, nranks: int
) -> Iterator[Membership]:
    """Sets of members that do not overlap and hold all that were seen; those seen where there are none."""
    left = set(seen)
    votes: dict[tuple[int, ...], int] = defaultdict(int)
    for members in claims.values():
        votes[members] += 1
    chosen: list[tuple[int, ...]] = []
    for members in sorted(votes, key=lambda one: (-votes[one], -len(one), one)):
        if left.intersection(members) and not any(set(one).intersection(members) for one in chosen):
            left.difference_update(members)
            chosen.append(members)
    if chosen and not left:
        yield from (Membership(members, True, len(members)) for members in chosen)
    elif is_default:
        world = tuple(sorted(set(seen).union(range(nranks))))
        yield Membership(world, True, len(world))
    else:
        yield Membership(tuple(sorted(seen)), False)


def _infer(
    found: dict[Name, list[Membership]],
    by_group: Mapping[Name, Seen],
    sizes: Mapping[int, int],
    ranks: Collection[int],
    wrapped: Collection[int],
    nranks: int,
) -> None:
    """Complete what no dump tells, from sizes and from operations that were completed.

    Groups are numbered as they are made, the same on all ranks, so a rank's size is that of the group with
    the greatest number that it is in.
    """
    open_names = [key for key, each in found.items() if not each[0].is_known]
    greatest: dict[int, int] = {}
    for key in open_names:
        for rank in by_group[key]:
            greatest[rank] = max(greatest.get(rank, -1), _number(key[1]))
    is_ambiguous = False
    for key in sorted(open_names, key=lambda one: -_number(one[1])):
        seen = by_group[key]
        told = {sizes[rank] for rank in seen if rank in sizes and greatest[rank] == _number(key[1]) >= 0}
        size = told.pop() if len(told) == 1 else None
        members = set(seen)
        if size is not None and size > len(seen) and not is_ambiguous:
            silent = {rank for rank in ranks if rank not in greatest and sizes.get(rank) == size}
            if size == nranks:
                members.update(range(nranks))
            elif len(silent) == size - len(seen):
                members |= silent
                greatest.update(dict.fromkeys(silent, _number(key[1])))
        elif size is not None and size > len(seen):
            # It may be the size of one of those groups of which it is open whether the rank is in them.
            size = None
        is_known = size == len(members) or _was_completed(seen, ranks, wrapped)
        is_ambiguous = is_ambiguous or not is_known
        # A rank that made no such group has the world's size, or that of another group.
        others = {
            rank
            for rank in ranks
            if size is not None and rank not in greatest and sizes.get(rank, size) != size
        }
        size = len(members) if is_known else size
        found[key] = [Membership(tuple(sorted(members)), is_known, size, frozenset(others) - members)]


def _number(name: str) -> int:
    return int(name) if name.isascii() and name.isdigit() else -1


def _was_completed(seen: Seen, ranks: Collection[int], wrapped: Collection[int]) -> bool:
    """Whether an operation was completed for which all members must have come, so that all were seen."""
    if any(rank not in seen for rank in wrapped) or len(seen) < 2:
        return False
    first = [operations[0] for operations in seen.values()]
    numbers = {one.sequence for one in first}
    return (
        len(numbers) == 1
        and all(one.is_retired and is_synchronising(one.collective) for one in first)
        and all(operations[-1].sequence > operations[0].sequence for operations in seen.values())
    )
