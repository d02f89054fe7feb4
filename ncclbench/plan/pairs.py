"""Which pairs of ranks are measured when: disjoint pairs at once, everybody with everybody in turn.

Pairs that share a link at the same moment read as slow links. So a round holds pairs that are disjoint: of
hosts, as long as nothing else is known of uplinks; of ranks, where each has a NIC of its own; or one alone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Pair = tuple[int, int]
Round = tuple[Pair, ...]

Level = Literal["rank", "host"]
AtOnce = Literal["host", "rank", "none"]

# A fence and the agreement on how much is sent, in front of each round.
_ROUND_OVERHEAD_S = 0.01


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
        left = self.pairs_in_all - self.pairs
        return f"{left:,} of {self.pairs_in_all:,} pairs, chosen at random" if left else None


def tournament(n: int) -> Iterator[Round]:
    """Everybody meets everybody once, in rounds of disjoint pairs: n - 1 rounds, n where n is odd.

    The circle method (Kirkman 1847): one stays, the others go round; with an odd number one sits out.
    """
    seats = list(range(n + n % 2))
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        met = zip(seats[:half], reversed(seats[half:]), strict=True)
        yield tuple((min(pair), max(pair)) for pair in met if max(pair) < n)
        seats[1:] = [seats[-1], *seats[1:-1]]


def pair_rounds(host_of: Sequence[int], level: Level, at_once: AtOnce) -> list[Round]:
    """Rounds that hold every pair once.

    Args:
        host_of: host by rank.
        level: "rank" for all pairs of ranks, "host" for the first rank of each host with each other.
        at_once: what the pairs of a round have to themselves: a "host" each, a "rank" each, or everything.
    """
    members: dict[int, list[int]] = {}
    for rank, host in enumerate(host_of):
        members.setdefault(host, []).append(rank)
    groups = [ranks[:1] if level == "host" else ranks for ranks in members.values()]
    if at_once == "rank":
        ranks = sorted(rank for group in groups for rank in group)
        rounds = [tuple((ranks[a], ranks[b]) for a, b in each) for each in tournament(len(ranks))]
    else:
        rounds = [*_inside(groups), *_across(groups)]
    if at_once == "none":
        rounds = [(pair,) for each in rounds for pair in each]
    return [each for each in rounds if each]


def plan_pairs(
    host_of: Sequence[int],
    *,
    level: Level,
    at_once: AtOnce,
    passes: int,
    fewest_passes: int,
    pair_s: float,
    budget_s: float | None,
    seed: int,
) -> PairPlan:
    """The rounds that fit into the time; where not all do, fewer passes first, then a random part of them.

    A round of the tournament gives everybody one partner, so that a part of the rounds still looks at every
    host equally often.

    Args:
        pair_s: seconds that one pair takes in one pass.
        fewest_passes: without so many there is nothing to tell noise from a fault.
    """
    rounds = pair_rounds(host_of, level, at_once)
    in_all = sum(len(each) for each in rounds)
    round_s = pair_s + _ROUND_OVERHEAD_S
    if budget_s is not None and rounds:
        affordable = int(budget_s / (round_s * len(rounds)))
        passes = max(fewest_passes, min(passes, affordable))
        most = max(1, int(budget_s / (round_s * passes)))
        if most < len(rounds):
            chosen = sorted(random.Random(seed).sample(range(len(rounds)), most))
            rounds = [rounds[index] for index in chosen]
    return PairPlan(tuple(rounds), passes, in_all, len(rounds) * passes * round_s)


def _inside(groups: Sequence[Sequence[int]]) -> Iterator[Round]:
    """Pairs within hosts: every host one at a time, all hosts at once."""
    per_host = [list(itertools.combinations(group, 2)) for group in groups]
    for pairs in itertools.zip_longest(*per_host):
        yield tuple(pair for pair in pairs if pair is not None)


def _across(groups: Sequence[Sequence[int]]) -> Iterator[Round]:
    """Pairs between hosts: hosts meet in a tournament, and when two have met all of their ranks have."""
    for hosts in tournament(len(groups)):
        per_hosts = [list(itertools.product(groups[a], groups[b])) for a, b in hosts]
        for pairs in itertools.zip_longest(*per_hosts):
            yield tuple((min(pair), max(pair)) for pair in pairs if pair is not None)
