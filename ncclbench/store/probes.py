"""What a search for slow parts keeps: tests of pairs, ranks and subsets, each a line of samples.jsonl."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ncclbench.store.bounds import Count, Index, Rate, Size, Time

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

    turn: Index
    src: Index
    dst: Index
    nbytes: Size
    latency_us: Time
    alone_GBs: Rate
    both_GBs: Rate
    wrong: bool


class RankTest(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="rank"):
    """The compute probe of one rank in one pass.

    Attributes:
        turn: the pass, from 0.
        compute_us: one matrix product.
        to_device_GBs, from_device_GBs: copies of pinned memory; None where there is no device.
    """

    turn: Index
    rank: Index
    compute_us: Time
    to_device_GBs: Rate | None = None
    from_device_GBs: Rate | None = None


class WaitTest(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="wait"):
    """What one rank spent in each operation of a free-running loop, microseconds."""

    turn: Index
    rank: Index
    op: str
    waits_us: _Times


class SubsetTest(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="subset"):
    """An operation on some of the ranks.

    Attributes:
        ranks: the members.
        times_us: by iteration, the slowest member's.
    """

    turn: Index
    op: str
    ranks: _Ranks
    nbytes: Size
    times_us: _Times
    iterations: Count


Probe = PairTest | RankTest | WaitTest | SubsetTest
