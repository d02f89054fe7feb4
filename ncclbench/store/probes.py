"""What a search for slow parts keeps: tests of pairs, ranks and subsets, each a line of samples.jsonl."""

from __future__ import annotations

import itertools
from typing import Annotated

import msgspec

from ncclbench.store.bounds import Count, Index, Rate, Size, Time, Word

# The longest search has 2,000 passes, each with three compute probes: what lies beyond was never measured.
_Turn = Annotated[int, msgspec.Meta(ge=0, lt=10_000)]
_Ranks = Annotated[list[Index], msgspec.Meta(min_length=1)]
_Times = Annotated[list[Time], msgspec.Meta(min_length=1)]


class PairTest(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="pair"):
    """One direction of a pair in one pass.

    Attributes:
        turn: the pass, from 0.
        src, dst: ranks.
        nbytes: of a message.
        latency_us: half a round trip of 8 bytes.
        alone_GBs: while nothing went the other way; ``both_GBs``: while as much did.
        wrong: what arrived was not what was sent.
    """

    turn: _Turn
    src: Index
    dst: Index
    nbytes: Size
    latency_us: Time
    alone_GBs: Rate
    both_GBs: Rate
    wrong: bool

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that it tells of."""
        return self.src, self.dst

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        return f"it tests rank {self.src} with itself" if self.src == self.dst else None


class RankTest(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="rank"):
    """The compute probe of one rank in one pass.

    Attributes:
        turn: the pass, from 0.
        compute_us: one matrix product.
        to_device_GBs, from_device_GBs: copies of pinned memory; None where there is no device.
    """

    turn: _Turn
    rank: Index
    compute_us: Time
    to_device_GBs: Rate | None = None
    from_device_GBs: Rate | None = None

    @property
    def members(self) -> tuple[int, ...]:
        """The rank that it tells of."""
        return (self.rank,)

    def impossible(self) -> str | None:
        """Nothing beyond what the types say."""
        return None


class WaitTest(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="wait"):
    """What one rank spent in each operation of a free-running loop, microseconds."""

    turn: _Turn
    rank: Index
    op: Word
    waits_us: _Times

    @property
    def members(self) -> tuple[int, ...]:
        """The rank that it tells of."""
        return (self.rank,)

    def impossible(self) -> str | None:
        """Nothing beyond what the types say; that all ranks looped as often is for the reader to see."""
        return None


class SubsetTest(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="subset"):
    """An operation on some of the ranks.

    Attributes:
        ranks: the members, ascending.
        times_us: by iteration, the slowest member's.
    """

    turn: _Turn
    op: Word
    ranks: _Ranks
    nbytes: Size
    times_us: _Times
    iterations: Count

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that it tells of."""
        return tuple(self.ranks)

    def impossible(self) -> str | None:
        """What cannot be in it; None where nothing is wrong."""
        if any(after <= before for before, after in itertools.pairwise(self.ranks)):
            return "its ranks do not ascend, each once"
        if len(self.times_us) != self.iterations:
            return f"it holds {len(self.times_us)} times of {self.iterations} iterations"
        return None


Probe = PairTest | RankTest | WaitTest | SubsetTest
