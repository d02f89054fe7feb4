"""What a point-to-point run keeps, each a line of samples.jsonl."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ncclbench.store.bounds import Count, Index, Rate, Size, Time, Word

_Times = Annotated[list[Time], msgspec.Meta(min_length=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_Text = Annotated[str, msgspec.Meta(max_length=2000)]


class ArmFound(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="arm"):
    """What an arm really is, or why it is not there.

    Attributes:
        arm: id of the arm in the plan.
        implementation: class and backend name of its process group; None where it cannot be had.
        device: where its tensors live, "cpu" or "cuda"; None likewise.
        reason: why it cannot be had; None where it can.
    """

    arm: Word
    implementation: _Text | None
    device: Word | None
    reason: _Text | None

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        told = (self.implementation is None) != (self.reason is None)
        return None if told else "an arm has either an implementation or a reason why it is not there"


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="left-out"):
    """A part that was asked for and not made; ``arm`` is None where it concerns all."""

    part: Word
    arm: Word | None
    reason: _Text

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


class WayTimes(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="p2p"):
    """One way of sending between ranks 0 and 1, one size, one epoch.

    Attributes:
        way: name in tables.ways.WAYS.
        arm: id of the arm; ``nbytes``: of a message.
        both: whether as much goes the other way at the same time.
        epoch: from 0.
        messages: that go each way in one repetition.
        host_us: by repetition, until the calls returned on rank 0's host.
        total_us: until rank 0 knew that its buffers are free, on a device with its synchronize.
        free_us: in between: how long rank 0's host could have done something else.
        there_us: until everything was there, on rank 1 by its own clock since the fence; of ``both`` the
            later of the two ranks, of a way that comes back rank 0, which has it again.
        wrong: messages that arrived wrong, of those that were checked.
    """

    way: Word
    arm: Word
    nbytes: Size
    both: bool
    epoch: Index
    messages: Count
    host_us: _Times
    total_us: _Times
    free_us: _Times
    there_us: _Times
    wrong: Index

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        same = len({len(each) for each in (self.host_us, self.total_us, self.free_us, self.there_us)}) == 1
        return None if same else "host_us, total_us, free_us and there_us are of different lengths"


class FirstCalls(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="first"):
    """What the first message to one peer took in a fresh group, against later ones, microseconds.

    Attributes:
        init_us: what making the group took on rank ``src``; the same for all peers of an epoch.
        first_us: send of the first message, with its synchronize; ``later_us``: of later ones.
    """

    arm: Word
    epoch: Index
    src: Index
    dst: Index
    nbytes: Size
    init_us: Time
    first_us: Time
    later_us: _Times

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        return f"rank {self.src} sends to itself" if self.src == self.dst else None


class OrderingCell(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ordering"):
    """What became of two ranks that call in one order, in processes of their own.

    Attributes:
        order: name in tables.orderings.ORDERINGS.
        arm: id of the arm; ``nbytes``: of each message.
        outcome: what was seen before the deadline.
        said: by rank, where it stood or what it raised, in words.
        seconds: until the outcome was known.
        wrong: ranks whose message arrived wrong.
        leftover_processes: of the cell, alive after it though they should not be.
    """

    order: Word
    arm: Word
    nbytes: Size
    outcome: Literal["completed", "deadlocked", "raised"]
    said: dict[str, _Text]
    seconds: _Seconds
    wrong: Index = 0
    leftover_processes: Index = 0

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        strange = [rank for rank in self.said if not (rank.isascii() and rank.isdigit())]
        return f"said: {strange[0]!r} is no rank" if strange else None


class PeerTimes(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="peers"):
    """Messages from rank 0 to several peers at once, or beside a collective of the same group.

    Attributes:
        beside: name of the collective that runs meanwhile; None for none.
        peers: to how many ranks at the same time.
        total_us: by repetition, until all were there, the last rank's time since the fence.
        one_us: what that is held against, in turns: a single message of the same size; with ``beside`` the
            same messages without the collective.
        beside_us: the collective alone; None without one.
        wrong: messages and results of the collective that were wrong, of those that were checked.
    """

    arm: Word
    epoch: Index
    nbytes: Size
    peers: Count
    beside: Word | None
    total_us: _Times
    one_us: _Times
    beside_us: _Times | None = None
    wrong: Index = 0

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        if (self.beside is None) != (self.beside_us is None):
            return "beside and beside_us go together"
        lengths = {len(times) for times in (self.total_us, self.one_us, self.beside_us) if times is not None}
        return None if len(lengths) == 1 else "total_us, one_us and beside_us are of different lengths"


class SemanticsCheck(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="semantics"):
    """One question of the self-test: what does this torch really do?

    Attributes:
        check: name in tables.semantics.SEMANTICS; ``arm``: id of the arm.
        outcome: "as-documented" or "otherwise"; "not-here" where the device or backend has nothing of it;
            "unanswered" where a rank was killed or stopped from outside, or still at work at the end.
        said: what was seen, in one sentence with its numbers.
        value: the number itself (a factor, a share, microseconds or bytes), where there is one.
        leftover_processes: as in ``OrderingCell``.
    """

    check: Word
    arm: Word
    outcome: Literal["as-documented", "otherwise", "not-here", "unanswered"]
    said: _Text
    value: Rate | None = None
    leftover_processes: Index = 0

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


def stranger(line: P2pResult, nranks: int) -> str | None:
    """The rank in a line that a run of so many has not, in words; None where all are of it."""
    highest = int(isinstance(line, WayTimes))
    if isinstance(line, FirstCalls):
        highest = max(line.src, line.dst)
    elif isinstance(line, PeerTimes):
        highest = line.peers
    return f"rank {highest} of {nranks}" if highest >= nranks else None


P2pResult = ArmFound | LeftOut | WayTimes | FirstCalls | OrderingCell | PeerTimes | SemanticsCheck
P2P_LINES = (ArmFound, LeftOut, WayTimes, FirstCalls, OrderingCell, PeerTimes, SemanticsCheck)
