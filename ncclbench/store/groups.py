"""What a run of ``ncclbench groups`` keeps, each a line of samples.jsonl."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

import msgspec

from ncclbench.store.bounds import Count, Index, Size, Time, Word
from ncclbench.store.p2p import ArmFound, LeftOut
from ncclbench.tables.groups import MOMENTS

_Times = Annotated[list[Time], msgspec.Meta(min_length=1)]
_ByRank = Annotated[list[Size], msgspec.Meta(min_length=1)]
_Ranks = Annotated[list[Index], msgspec.Meta(min_length=1)]
_Text = Annotated[str, msgspec.Meta(max_length=2000)]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of all ranks hold at one moment, by rank.

    Attributes:
        rss_bytes: resident; ``peak_bytes``: the most since the beginning; ``shared_bytes``: that is shared.
        files: open file descriptors, sockets among them; ``connections``: TCP that is established.
        threads: of the process.
        device_bytes: in use on the rank's GPU, whoever uses it; None on a CPU.
        backend_bytes: what the backend says its communicators hold; None where it says nothing.
    """

    rss_bytes: _ByRank
    peak_bytes: _ByRank
    shared_bytes: _ByRank
    files: _ByRank
    sockets: _ByRank
    connections: _ByRank
    threads: _ByRank
    device_bytes: _ByRank | None = None
    backend_bytes: _ByRank | None = None

    @property
    def nranks(self) -> int | None:
        """Ranks that it is of; None where its lists are of different lengths."""
        lists = [getattr(self, name) for name in self.__struct_fields__]
        lengths = {len(each) for each in lists if each is not None}
        return lengths.pop() if len(lengths) == 1 else None


class GroupCosts(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="group-costs"):
    """So many groups made, used and destroyed in fresh processes, once.

    Times are by group, in the order of making, each of the slowest rank, microseconds.

    Attributes:
        arm: id of the arm; ``implementation``: class and backend name of its groups.
        way: name in tables.groups.MAKINGS.
        kind: the cut that the groups are; ``groups``: that each rank is in; ``group_size``: ranks in each.
        epoch: from 0.
        peers: to how many others in a group each rank sent a first message, or got one, at most.
        new_us: making it; ``first_us``, ``later_us``: its first and its second collective.
        p2p_us: the first messages between its ranks, one peer after the other; 0 where it has no two.
        destroy_us: ending it.
        suspend_us, resume_us: giving up the memory of its communicators and taking it again; None where the
            backend has nothing of it.
        readings: by name of MOMENTS.
        communicators: by rank, how many there were after all that; None where nothing tells it.
        counted: how, in words; or why not.
    """

    arm: Word
    implementation: _Text
    way: Word
    kind: Word
    groups: Count
    group_size: Count
    epoch: Index
    peers: Index
    new_us: _Times
    first_us: _Times
    later_us: _Times
    p2p_us: _Times
    destroy_us: _Times
    readings: dict[str, Reading]
    communicators: list[Index] | None
    counted: _Text
    suspend_us: _Times | None = None
    resume_us: _Times | None = None

    @property
    def nranks(self) -> int:
        """Ranks that it has readings of."""
        return self.readings[MOMENTS[0]].nranks or 0

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        times = [self.new_us, self.first_us, self.later_us, self.p2p_us, self.destroy_us]
        times += [each for each in (self.suspend_us, self.resume_us) if each is not None]
        if any(len(each) != self.groups for each in times):
            return f"not all its times are of {self.groups} groups"
        if set(self.readings) != set(MOMENTS):
            return f"readings has {sorted(self.readings)} and not {sorted(MOMENTS)}"
        lengths = {reading.nranks for reading in self.readings.values()}
        if self.communicators is not None:
            lengths.add(len(self.communicators))
        if len(lengths) != 1 or None in lengths:
            return "not all its readings are of the same ranks"
        return None


class GroupTimes(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="groups-at-once"):
    """A collective in one group, alone and while others run theirs, in one epoch, paired by repetition.

    Attributes:
        op: name in COLLECTIVES; ``nbytes``: as in a sweep; ``arm``: id of the arm.
        topology: the cut that the group is of; ``number``: of the group in it; ``ranks``: global ranks.
        at_once: groups that ran at the same time, this one included.
        alone_us, together_us: by repetition, until its slowest rank was done, since the fence. Alone is None
            where there are so many groups that this one was not timed so.
        wrong: wrong elements in checked results.
    """

    op: Word
    nbytes: Size
    arm: Word
    epoch: Index
    topology: Word
    number: Index
    ranks: _Ranks
    at_once: Count
    together_us: _Times
    alone_us: _Times | None = None
    wrong: Index = 0

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        if len(set(self.ranks)) != len(self.ranks):
            return "a rank is in it twice"
        same = self.alone_us is None or len(self.alone_us) == len(self.together_us)
        return None if same else "alone_us and together_us are of different lengths"


class CrossedCell(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="crossed"):
    """What became of ranks that are in two groups and called in one order, in processes of their own.

    Attributes:
        order: name in tables.groups.ISSUE_ORDERS.
        arm: id of the arm; ``topologies``: the cuts, in the usual order of calling; ``nbytes``: of each call.
        crossing: ranks that began with the other group.
        cannot_end: calls that block could not end in this order, whatever the backend.
        outcome, said, seconds, wrong, leftover_processes: as in ``store.p2p.OrderingCell``.
    """

    order: Word
    arm: Word
    topologies: Annotated[list[Word], msgspec.Meta(min_length=1)]
    nbytes: Size
    crossing: list[Index]
    cannot_end: bool
    outcome: Literal["completed", "deadlocked", "raised"]
    said: dict[str, _Text]
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    wrong: Index = 0
    leftover_processes: Index = 0

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        # Nor one of thousands of digits, which no number is made of.
        strange = [
            rank[:40] for rank in self.said if not (rank.isascii() and rank.isdigit() and len(rank) < 13)
        ]
        return f"said: {strange[0]!r} is no rank" if strange else None


class GroupsCheck:
    """Whether the lines of a run can stand beside each other: each was measured once, in the same groups."""

    def __init__(self, nranks: int, arms: Collection[str]) -> None:
        """``nranks``: of the run; ``arms``: ids of its plan's."""
        self._nranks = nranks
        self._arms = arms
        self._seen: set[tuple[object, ...]] = set()
        # Of each cut: the ranks of a group by its number, and the number of its group by rank.
        self._ranks: dict[str, dict[int, list[int]]] = {}
        self._number: dict[str, dict[int, int]] = {}

    def refusal(self, line: GroupsResult) -> str | None:
        """Why the line cannot be of the run, in words; None where it can."""
        if line.arm is not None and line.arm not in self._arms:
            return f"arm {line.arm} is not in the plan"
        if isinstance(line, ArmFound | LeftOut):
            return None
        if isinstance(line, GroupCosts) and line.nranks != self._nranks:
            return f"it has readings of {line.nranks} ranks of {self._nranks}"
        highest = max(_ranks_in(line), default=-1)
        if highest >= self._nranks:
            return f"rank {highest} of {self._nranks}"
        key = _measured(line)
        if key in self._seen:
            return f"{' '.join(map(str, key))} is there twice"
        self._seen.add(key)
        return self._regrouped(line) if isinstance(line, GroupTimes) else None

    def _regrouped(self, line: GroupTimes) -> str | None:
        """Whether its group has other ranks than in an earlier line, or one of a neighbour's."""
        if self._ranks.setdefault(line.topology, {}).setdefault(line.number, line.ranks) != line.ranks:
            return f"group {line.number} of {line.topology} has other ranks than before"
        numbers = self._number.setdefault(line.topology, {})
        for rank in line.ranks:
            if numbers.setdefault(rank, line.number) != line.number:
                return f"rank {rank} is in two groups of {line.topology}"
        return None


def _ranks_in(line: GroupsResult) -> list[int]:
    if isinstance(line, GroupTimes):
        return line.ranks
    return [*line.crossing, *map(int, line.said)] if isinstance(line, CrossedCell) else []


def _measured(line: GroupCosts | GroupTimes | CrossedCell) -> tuple[object, ...]:
    """What is measured once in a run."""
    tag = str(line.__struct_config__.tag)
    if isinstance(line, GroupCosts):
        return tag, line.kind, line.groups, line.way, line.arm, line.epoch
    if isinstance(line, GroupTimes):
        return tag, line.arm, line.nbytes, line.topology, line.number, line.epoch
    return tag, line.order, line.arm, line.nbytes


GroupsResult = ArmFound | LeftOut | GroupCosts | GroupTimes | CrossedCell
GROUPS_LINES = (ArmFound, LeftOut, GroupCosts, GroupTimes, CrossedCell)
