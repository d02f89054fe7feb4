"""Operations of all dumps, joined over ranks: who issued what in which group, and how far each came.

Numbers count per group and per recorder, so a group that two backends serve is two groups here. Point-to-
point operations have numbers of their own on each rank and are kept apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ncclbench.flight.members import Membership, memberships
from ncclbench.flight.model import Dump, Evidence, Operation

# Times of files are as coarse as the kernel's clock.
CLOCK_NS = 20_000_000


def is_done(operation: Operation) -> bool:
    """Whether nobody waits in it any more: completed, or given up."""
    return operation.is_retired or operation.state == "completed"


class Lane:
    """What one rank issued in one group, by number.

    Attributes:
        rank: global rank.
        operations: one per number, ascending. Of coalesced operations, which share a number, the last: it
            stands for all of them.
        coalesced: those for which another one stands.
        is_whole: nothing older was overwritten.
        pending: those that were not done.
        tells_completion: the recorder says "completed", so what is retired without it was given up.
    """

    __slots__ = ("coalesced", "is_whole", "operations", "pending", "rank", "tells_completion")

    def __init__(self, rank: int, operations: Iterable[Operation], is_whole: bool) -> None:
        self.rank = rank
        self.is_whole = is_whole
        self.operations: list[Operation] = []
        self.coalesced: list[Operation] = []
        kept = self.operations
        is_sorted = True
        for operation in operations:
            if kept and operation.sequence <= kept[-1].sequence:
                if operation.sequence == kept[-1].sequence:
                    self.coalesced.append(kept[-1])
                    kept[-1] = operation
                    continue
                is_sorted = False
            kept.append(operation)
        if not is_sorted:
            by_number = {one.sequence: one for one in kept}
            self.operations = [by_number[number] for number in sorted(by_number)]
        self.pending = [one for one in self.operations if not is_done(one)]
        self.tells_completion = any(one.state == "completed" for one in self.operations)

    @property
    def first(self) -> int:
        """The oldest number still there; 1 where there is none."""
        return self.operations[0].sequence if self.operations else 1

    @property
    def last(self) -> int:
        """The newest number; 0 where there is none."""
        return self.operations[-1].sequence if self.operations else 0

    def position(self, number: int) -> int:
        """Where that number is, or the next greater one."""
        operations = self.operations
        if not operations:
            return 0
        index = number - operations[0].sequence
        if 0 <= index < len(operations) and operations[index].sequence == number:
            return index
        return bisect_left(operations, number, key=lambda one: one.sequence)

    def at(self, number: int) -> Operation | None:
        """The operation of that number; None where it was not issued, or is no longer there."""
        index = self.position(number)
        if index < len(self.operations) and self.operations[index].sequence == number:
            return self.operations[index]
        return None


@dataclass(slots=True)
class Group:
    """A process group as one backend served it.

    Attributes:
        backend, name, words: what it is called.
        members: global ranks, ascending; where ``is_known`` is False only those that were seen in it.
        size: how many there are; None where that is not known.
        others: ranks that surely are no members; all that are neither in ``members`` nor here may be.
        lanes: collectives of each rank that has a dump and is a member.
        pairs: point-to-point operations of each rank, in the order of their issue.
    """

    backend: str
    name: str
    words: str
    members: tuple[int, ...]
    is_known: bool
    size: int | None
    others: frozenset[int]
    lanes: dict[int, Lane]
    pairs: dict[int, list[Operation]]

    @property
    def is_short(self) -> bool:
        """Whether somebody is a member who was not seen in it: no group is made for one rank."""
        return not self.is_known and len(self.members) < (self.size or 2)


@dataclass(frozen=True, slots=True)
class Joined:
    """All of it.

    Attributes:
        groups: in the order of their first operation.
        ranks: those with a dump.
        missing: ranks of the world, or of any group, without one.
        wrapped: ranks of which a ring had wrapped.
        taken_ns: when each rank's dump was taken, where it tells.
        latest_ns: when it was taken at the latest: as it tells, or when its file was written.
        newest: each rank's last operation in all its groups.
    """

    groups: tuple[Group, ...]
    ranks: frozenset[int]
    missing: tuple[int, ...]
    wrapped: frozenset[int]
    taken_ns: dict[int, int]
    latest_ns: dict[int, int]
    newest: dict[int, Operation]


@dataclass(slots=True)
class _Recorder:
    """What one backend's recorder of one rank held, from all dumps of it."""

    operations: tuple[Operation, ...]
    is_wrapped: bool


def join(evidence: Evidence) -> Joined:
    """Operations of all dumps by group and rank; dumps whose rank is unknown are left out."""
    # A recorder that was off, or another backend's, holds nothing and names no group: that is no dump.
    dumps = [one for one in evidence.dumps if one.rank is not None and (one.operations or one.groups)]
    ranks = frozenset(dump.rank for dump in dumps if dump.rank is not None)
    recorders = _recorders(dumps)
    by_group: dict[tuple[str, str], dict[int, list[Operation]]] = defaultdict(dict)
    newest: dict[int, Operation] = {}
    wrapped = frozenset(rank for (rank, _), recorder in recorders.items() if recorder.is_wrapped)
    for (rank, backend), recorder in recorders.items():
        mine: dict[str, list[Operation]] = defaultdict(list)
        for operation in recorder.operations:
            mine[operation.group].append(operation)
        for name, operations in mine.items():
            by_group[backend, name][rank] = operations
        last = recorder.operations[-1] if recorder.operations else None
        if last is not None and (rank not in newest or newest[rank].created_ns < last.created_ns):
            newest[rank] = last
    by_group = {key: _current(seen) for key, seen in by_group.items()}
    nranks = evidence.nranks or (max(ranks) + 1 if ranks else 0)
    whole = ranks - wrapped
    groups = [
        _group(key, membership, seen, sorted(ranks.intersection(membership.ranks)), recorders, whole)
        for key, found in memberships(by_group, dumps, wrapped, nranks).items()
        for seen in (by_group[key],)
        for membership in found
    ]
    taken = {
        dump.rank: dump.taken_ns for dump in dumps if dump.rank is not None and dump.taken_ns is not None
    }
    latest = {rank: _latest_ns(dumps_of, newest.get(rank)) for rank, dumps_of in _by_rank(dumps).items()}
    known = {rank: moment for rank, moment in latest.items() if moment is not None}
    world = set(range(nranks)).union(*(group.members for group in groups))
    return Joined(tuple(groups), ranks, tuple(sorted(world - ranks)), wrapped, taken, known | taken, newest)


def _by_rank(dumps: Iterable[Dump]) -> dict[int, list[Dump]]:
    found: dict[int, list[Dump]] = defaultdict(list)
    for dump in dumps:
        if dump.rank is not None:
            found[dump.rank].append(dump)
    return found


def _latest_ns(dumps: Iterable[Dump], newest: Operation | None) -> int | None:
    """When a rank's dumps were taken at the latest; None where that is not known.

    A file that is older than what is in it is of another clock.
    """
    written = [dump.written_ns for dump in dumps if dump.written_ns is not None]
    if not written or newest is None or max(written) < newest.created_ns - CLOCK_NS:
        return None
    return max(*written, newest.created_ns)


def _current(seen: dict[int, list[Operation]]) -> dict[int, list[Operation]]:
    """What was issued since the group was made anew under its name, where it was.

    Numbers then start again. A rank that did not take part, as one that was detached, is left out.
    """
    starts = {rank: found for rank, operations in seen.items() if (found := _restarts(operations))}
    if not starts:
        return seen
    most = max(map(len, starts.values()))
    begin = min(seen[rank][found[-1]].created_ns for rank, found in starts.items() if len(found) == most)
    return {
        rank: operations[starts[rank][-1] :] if rank in starts else operations
        for rank, operations in seen.items()
        if len(starts.get(rank, ())) == most or operations[-1].created_ns >= begin
    }


def _restarts(operations: list[Operation]) -> list[int]:
    """Where numbers start again; two threads of a rank may swap neighbours, which is no start."""
    found = []
    before = 0
    for index, operation in enumerate(operations):
        if operation.is_p2p:
            continue
        if operation.sequence < before and (operation.sequence == 1 or operation.sequence + 8 < before):
            found.append(index)
        before = operation.sequence
    return found


def _recorders(dumps: Iterable[Dump]) -> dict[tuple[int, str], _Recorder]:
    """By rank and backend; several dumps of one recorder become one."""
    found: dict[tuple[int, str], list[Dump]] = defaultdict(list)
    for dump in dumps:
        if dump.rank is None or not dump.operations:
            continue
        backends = {dump.operations[0].backend, dump.operations[-1].backend}
        if len(backends) > 1 or any(one.backend not in backends for one in dump.operations):
            backends = {one.backend for one in dump.operations}
        for backend in backends:
            part = dump
            if len(backends) > 1:
                part = replace(dump, operations=tuple(o for o in dump.operations if o.backend == backend))
            found[dump.rank, backend].append(part)
    return {key: _merged(parts) for key, parts in found.items()}


def _merged(dumps: list[Dump]) -> _Recorder:
    """What several dumps of one recorder tell together: the latest state, and frames from wherever they are.

    Where a rank was started again, its recorders number from 0 again: only the newest is kept.
    """
    if len(dumps) == 1:
        return _Recorder(dumps[0].operations, dumps[0].is_wrapped)
    # A later dump knows more numbers, or of the same more that are retired.
    dumps = sorted(dumps, key=lambda one: (one.operations[-1].created_ns, sum(map(is_done, one.operations))))
    latest = {one.record: one for one in dumps[-1].operations}
    is_wrapped = dumps[-1].is_wrapped
    for dump in reversed(dumps[:-1]):
        shared = [one for one in dump.operations if one.record in latest]
        if any(latest[one.record].created_ns != one.created_ns for one in shared):
            continue
        for one in dump.operations:
            known = latest.get(one.record)
            if known is None:
                latest[one.record] = one
            elif one.frames and not known.frames:
                latest[one.record] = replace(known, frames=one.frames)
        is_wrapped = is_wrapped and dump.is_wrapped
    return _Recorder(tuple(latest[record] for record in sorted(latest)), is_wrapped)


def _group(
    key: tuple[str, str],
    membership: Membership,
    seen: dict[int, list[Operation]],
    inside: list[int],
    recorders: dict[tuple[int, str], _Recorder],
    whole: frozenset[int],
) -> Group:
    backend, name = key
    lanes: dict[int, Lane] = {}
    pairs: dict[int, list[Operation]] = {}
    for rank in inside:
        operations = seen.get(rank, [])
        recorder = recorders.get((rank, backend))
        is_whole = not recorder.is_wrapped if recorder is not None else rank in whole
        apart = [one for one in operations if one.is_p2p]
        together = [one for one in operations if not one.is_p2p] if apart else operations
        lanes[rank] = Lane(rank, together, is_whole)
        if apart:
            pairs[rank] = apart
    words = next(iter(seen.values()))[0].group_words
    return Group(
        backend,
        name,
        words,
        membership.ranks,
        membership.is_known,
        membership.size,
        membership.others,
        lanes,
        pairs,
    )
