"""What a point-to-point run keeps, each a line of samples.jsonl."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ncclbench.store.bounds import Count, Index, Size, Time, Word

_Times = Annotated[list[Time], msgspec.Meta(min_length=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class WayTimes(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="p2p"):
    """One way of sending between ranks 0 and 1, one size, one epoch.

    Attributes:
        way: name in tables.ways.WAYS.
        arm: id of the arm; ``nbytes``: of a message.
        both: whether as much goes the other way at the same time.
        epoch: from 0.
        host_us: by repetition, until the call returned on the sender's host.
        total_us: until the sender knew that its buffer is free, on a device with its synchronize.
        free_us: how long the sender's host was free to do something else in between.
        wrong: messages that arrived wrong.
    """

    way: Word
    arm: Word
    nbytes: Size
    both: bool
    epoch: Index
    host_us: _Times
    total_us: _Times
    free_us: _Times
    wrong: Index

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        same = len(self.host_us) == len(self.total_us) == len(self.free_us)
        return None if same else "host_us, total_us and free_us are of different lengths"


class FirstCalls(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="first"):
    """What the first messages to one peer took, against later ones, microseconds."""

    arm: Word
    epoch: Index
    src: Index
    dst: Index
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
    """

    order: Word
    arm: Word
    nbytes: Size
    outcome: Literal["completed", "deadlocked", "raised"]
    said: dict[str, str]
    seconds: _Seconds

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


class PeerTimes(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="peers"):
    """Messages from rank 0 to several peers at once, or beside a collective of the same group.

    Attributes:
        beside: name of the collective that runs meanwhile; None for none.
        peers: to how many ranks at the same time.
        total_us: by repetition, until all were there; ``one_us``: of a single one, the same size, in turns.
    """

    arm: Word
    epoch: Index
    nbytes: Size
    peers: Count
    beside: Word | None
    total_us: _Times
    one_us: _Times

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


class SemanticsCheck(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="semantics"):
    """One question of the self-test: what does this torch really do?

    Attributes:
        check: name in tables.semantics.SEMANTICS; ``arm``: id of the arm.
        outcome: "as-documented" or "otherwise"; "not-here" where the device or backend has nothing of it.
        said: what was seen, in one sentence with its numbers.
        value: the number itself (a factor, or bytes), where there is one.
    """

    check: Word
    arm: Word
    outcome: Literal["as-documented", "otherwise", "not-here"]
    said: str
    value: Annotated[float, msgspec.Meta(ge=0)] | None = None

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


P2pResult = WayTimes | FirstCalls | OrderingCell | PeerTimes | SemanticsCheck
P2P_LINES = (WayTimes, FirstCalls, OrderingCell, PeerTimes, SemanticsCheck)
