"""Which pairs of ranks are measured when: disjoint pairs at once, everybody with everybody in turn.

Pairs that share a link at the same moment read as slow links. So a round holds pairs that are disjoint: of
hosts, as long as nothing else is known of uplinks; of ranks, where each has a NIC of its own; or one alone.

Of thousands of hosts there are millions of rounds and only a part is ever measured. So rounds are counted by
formula and numbered, numbers are drawn, and only what was drawn is built.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Literal, TypedDict, Unpack

Pair = tuple[int, int]
Round = tuple[Pair, ...]

Level = Literal["rank", "host"]
AtOnce = Literal["host", "rank", "none"]

# A fence and the agreement on how much is sent, in front of each round.
_ROUND_OVERHEAD_S = 0.01

# Of a longer draw, which takes days to measure, pairs are counted as many as there are on average.
_DRAWN_TO_COUNT = 1 << 20


class Limits(TypedDict):
    """What decides how much is measured.

    Attributes:
        level: "rank" for all pairs of ranks, "host" for the first rank of each host with each other.
        at_once: what the pairs of a round have to themselves: a "host" each, a "rank" each, or everything.
        passes: how often all rounds are gone through.
        fewest_passes: without so many there is nothing to tell noise from a fault.
        pair_s: seconds that one pair takes in one pass.
        budget_s: seconds for all, None where there is no limit.
        seed: draws the rounds.
    """

    level: Level
    at_once: AtOnce
    passes: int
    fewest_passes: int
    pair_s: float
    budget_s: float | None
    seed: int


@dataclass(frozen=True, slots=True)
class PairCount:
    """How much would be measured of the links.

    Attributes:
        rounds: pairs of a round run at the same time.
        pairs: pairs that are looked at.
        passes: how often all rounds are gone through.
        pairs_in_all: pairs there are at this level.
        seconds: how long it takes, startup left out.
    """

    rounds: int
    pairs: int
    passes: int
    pairs_in_all: int
    seconds: float

    @property
    def not_looked_at(self) -> str | None:
        """What is left out, in words; None where nothing is."""
        return _left_out(self.pairs, self.pairs_in_all)


@dataclass(frozen=True, slots=True)
class PairPlan:
    """What is measured of the links.

    Attributes:
        rounds: in order; pairs of a round run at the same time, each (a, b) first a to b, then b to a, then
            both at once.
        passes: how often all rounds are gone through.
        pairs_in_all: pairs there are at this level.
        seconds: how long it takes, startup left out.
    """

    rounds: tuple[Round, ...]
    passes: int
    pairs_in_all: int
    seconds: float

    @property
    def pairs(self) -> int:
        """Pairs that are looked at."""
        return sum(len(pairs) for pairs in self.rounds)

    @property
    def not_looked_at(self) -> str | None:
        """What is left out, in words; None where nothing is."""
        return _left_out(self.pairs, self.pairs_in_all)


def tournament(n: int) -> Iterator[Round]:
    """Everybody meets everybody once, in rounds of disjoint pairs: n - 1 rounds, n where n is odd."""
    return (_tournament_round(n, number) for number in range(_tournament_rounds(n)))


def pair_rounds(host_of: Sequence[int], level: Level, at_once: AtOnce) -> list[Round]:
    """Rounds that hold every pair once.

    Args:
        host_of: host by rank.
        level, at_once: as in ``Limits``.
    """
    groups = _groups(host_of)
    numbered = _Numbered([len(group) for group in groups], level, at_once)
    return list(numbered.build(groups, range(len(numbered))))


def plan_pairs(host_of: Sequence[int], **limits: Unpack[Limits]) -> PairPlan:
    """The rounds that fit into the time; where not all do, fewer passes first, then a random part of them.

    A round of the tournament gives everybody one partner, so that a part of the rounds still looks at every
    host equally often.

    Args:
        host_of: host by rank.
        limits: as in ``Limits``.
    """
    groups = _groups(host_of)
    numbered = _Numbered([len(group) for group in groups], limits["level"], limits["at_once"])
    passes, most = _affordable(len(numbered), limits)
    drawn = _drawn(len(numbered), most, limits["seed"])
    rounds = tuple(numbered.build(groups, drawn))
    return PairPlan(rounds, passes, numbered.pairs, most * passes * _round_s(limits))


def count_pairs(sizes: Sequence[int], **limits: Unpack[Limits]) -> PairCount:
    """How much ``plan_pairs`` would plan, without a list of pairs.

    Args:
        sizes: ranks of each host.
        limits: as in ``Limits``.
    """
    numbered = _Numbered(sizes, limits["level"], limits["at_once"])
    passes, most = _affordable(len(numbered), limits)
    if numbered.are_alike or most == len(numbered) or most > _DRAWN_TO_COUNT:
        pairs = numbered.pairs * most // max(1, len(numbered))
    else:
        pairs = numbered.pairs_in(_drawn(len(numbered), most, limits["seed"]))
    return PairCount(most, pairs, passes, numbered.pairs, most * passes * _round_s(limits))


def _round_s(limits: Limits) -> float:
    return limits["pair_s"] + _ROUND_OVERHEAD_S


def _affordable(rounds: int, limits: Limits) -> tuple[int, int]:
    """Passes, and how many of the rounds; never fewer than the fewest passes over one round."""
    passes, budget_s = limits["passes"], limits["budget_s"]
    if budget_s is None or not rounds:
        return passes, rounds
    passes = max(limits["fewest_passes"], min(passes, int(budget_s / (_round_s(limits) * rounds))))
    return passes, min(rounds, max(1, int(budget_s / (_round_s(limits) * passes))))


def _drawn(rounds: int, most: int, seed: int) -> Sequence[int]:
    """Numbers of the rounds that are measured, in order."""
    return range(rounds) if most >= rounds else sorted(random.Random(seed).sample(range(rounds), most))


def _left_out(pairs: int, pairs_in_all: int) -> str | None:
    left = pairs_in_all - pairs
    return f"{left:,} of {pairs_in_all:,} pairs, chosen at random" if left else None


def _groups(host_of: Sequence[int]) -> list[list[int]]:
    """Ranks of each host, hosts in the order of their first ranks."""
    members: dict[int, list[int]] = {}
    for rank, host in enumerate(host_of):
        members.setdefault(host, []).append(rank)
    return list(members.values())


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Successive rounds that hold equally many pairs.

    Attributes:
        inside: pairs inside hosts, one of each host in a round; else pairs of two hosts that meet in a
            tournament, and when two have met all of their ranks have.
        meeting: the first round of that tournament.
        in_meeting: rounds of pairs for each of those.
        first: which of the pairs of a host, or of two that meet, comes first.
        rounds: how many.
        pairs: in each.
    """

    inside: bool
    meeting: int
    in_meeting: int
    first: int
    rounds: int
    pairs: int


class _Numbered:
    """All rounds by number; each can be built alone.

    Args:
        sizes: ranks of each host.
        level, at_once: as in ``Limits``.
    """

    def __init__(self, sizes: Sequence[int], level: Level, at_once: AtOnce) -> None:
        self._level: Level = level
        self._at_once: AtOnce = at_once
        sizes = [1] * len(sizes) if level == "host" else sizes
        found = [_even_across(sum(sizes), 1)] if at_once == "rank" else _stretches(sizes)
        self._stretches = [stretch for stretch in found if stretch.rounds and stretch.pairs]
        # The number after the last of each.
        self._ends = list(accumulate(self._length(stretch) for stretch in self._stretches))
        self.pairs = sum(stretch.rounds * stretch.pairs for stretch in self._stretches)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def are_alike(self) -> bool:
        """Whether all rounds hold equally many pairs."""
        return self._at_once == "none" or len({stretch.pairs for stretch in self._stretches}) <= 1

    def pairs_in(self, numbers: Sequence[int]) -> int:
        """Pairs in these rounds; the numbers ascend."""
        total, before = 0, 0
        for stretch, end in zip(self._stretches, self._ends, strict=True):
            until = bisect_left(numbers, end, before)
            total += (until - before) * (1 if self._at_once == "none" else stretch.pairs)
            before = until
        return total

    def build(self, groups: Sequence[Sequence[int]], numbers: Iterable[int]) -> Iterator[Round]:
        """These rounds, ``groups`` being the ranks of each host."""
        groups = [group[:1] for group in groups] if self._level == "host" else groups
        if self._at_once == "rank":
            groups = [[rank] for rank in sorted(rank for group in groups for rank in group)]
        last: tuple[int, int] | None = None
        pairs: Round = ()
        for number in numbers:
            index = bisect_right(self._ends, number)
            stretch = self._stretches[index]
            offset = number - self._ends[index] + self._length(stretch)
            offset, place = divmod(offset, stretch.pairs) if self._at_once == "none" else (offset, None)
            # Where each pair is a round of its own, many in a row are of the same one.
            if last != (index, offset):
                last, pairs = (index, offset), _round_of(stretch, groups, offset)
            yield pairs if place is None else (pairs[place],)

    def _length(self, stretch: _Stretch) -> int:
        return stretch.rounds * (stretch.pairs if self._at_once == "none" else 1)


def _stretches(sizes: Sequence[int]) -> Iterator[_Stretch]:
    """First inside all hosts at once, then host with host."""
    for first, rounds, pairs in _layers(Counter(math.comb(size, 2) for size in sizes)):
        yield _Stretch(True, 0, rounds, first, rounds, pairs)
    if len(set(sizes)) == 1:
        yield _even_across(len(sizes), sizes[0])
        return
    for meeting in range(_tournament_rounds(len(sizes))):
        met = Counter(sizes[a] * sizes[b] for a, b in _tournament_round(len(sizes), meeting))
        for first, rounds, pairs in _layers(met):
            yield _Stretch(False, meeting, rounds, first, rounds, pairs)


def _even_across(n: int, size: int) -> _Stretch:
    """Host with host, where each of the ``n`` has ``size`` ranks."""
    return _Stretch(False, 0, size**2, 0, _tournament_rounds(n) * size**2, n // 2)


def _layers(holders: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    """Rounds of one pair from each that has any left: first round, how many rounds, pairs in each.

    Args:
        holders: how many have so many pairs, by that number.
    """
    first, left = 0, sum(holders.values())
    for end in sorted(holders):
        yield first, end - first, left
        first, left = end, left - holders[end]


def _round_of(stretch: _Stretch, groups: Sequence[Sequence[int]], offset: int) -> Round:
    """A round of a stretch, ``offset`` from its first."""
    if stretch.inside:
        found = ((group, _combination(len(group), stretch.first + offset)) for group in groups)
        return tuple((group[pair[0]], group[pair[1]]) for group, pair in found if pair is not None)
    meeting, which = divmod(offset, stretch.in_meeting)
    which += stretch.first
    met = (
        (groups[a][which // len(groups[b])], groups[b][which % len(groups[b])])
        for a, b in _tournament_round(len(groups), stretch.meeting + meeting)
        if which < len(groups[a]) * len(groups[b])
    )
    return tuple((a, b) if a < b else (b, a) for a, b in met)


def _tournament_rounds(n: int) -> int:
    return max(0, n + n % 2 - 1)


# Rounds are asked for in order, and many in a row can be of the same meeting.
@lru_cache(maxsize=1)
def _tournament_round(n: int, number: int) -> Round:
    """Round ``number`` of a tournament of ``n``.

    The circle method (Kirkman 1847): one stays, the others go round; with an odd number one sits out.
    """
    others = n + n % 2 - 1
    seats = [0, *(1 + (seat - number) % others for seat in range(others))]
    half = len(seats) // 2
    met = zip(seats[:half], reversed(seats[half:]), strict=True)
    return tuple((a, b) if a < b else (b, a) for a, b in met if a < n and b < n)


def _combination(n: int, number: int) -> Pair | None:
    """Pair ``number`` of those of ``n`` in the order of itertools.combinations; None where it has fewer."""
    last = math.comb(n, 2) - 1 - number
    if last < 0:
        return None
    # Counted from the end, pairs with the same first one are a triangle's rows.
    row = (math.isqrt(8 * last + 1) - 1) // 2
    return n - 2 - row, n - 1 - (last - row * (row + 1) // 2)
