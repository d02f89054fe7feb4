"""The plan of pairs: everybody meets everybody once, nobody shares what a test needs for itself."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclbench.plan.pairs import (
    AtOnce,
    Level,
    PairCount,
    PairPlan,
    count_pairs,
    pair_rounds,
    plan_pairs,
    tournament,
)

# Hosts by rank, in any order: ranks of a host need not be neighbours.
HOSTS_OF_RANKS = st.lists(st.integers(0, 4), min_size=1, max_size=13)


ASKED: dict[str, object] = {
    "level": "rank",
    "at_once": "host",
    "passes": 5,
    "fewest_passes": 3,
    "pair_s": 0.49,
    "budget_s": None,
    "seed": 0,
}


def plan(host_of: list[int], **changes: object) -> PairPlan:
    return plan_pairs(host_of, **{**ASKED, **changes})  # type: ignore[arg-type]


def count(sizes: list[int], **changes: object) -> PairCount:
    return count_pairs(sizes, **{**ASKED, **changes})  # type: ignore[arg-type]


def circle(n: int) -> list[list[tuple[int, int]]]:
    """The circle method round after round, as it is told: seats that are turned by one each time."""
    seats = list(range(n + n % 2))
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        met = zip(seats[:half], seats[: half - 1 : -1], strict=True)
        rounds.append([(min(pair), max(pair)) for pair in met if max(pair) < n])
        seats[1:] = [seats[-1], *seats[1:-1]]
    return rounds


@pytest.mark.parametrize("n", range(2, 12))
def test_a_tournament_has_every_pair_once_in_the_fewest_rounds(n: int) -> None:
    rounds = list(tournament(n))
    assert len(rounds) == (n - 1 if n % 2 == 0 else n)
    assert sorted(itertools.chain(*rounds)) == list(itertools.combinations(range(n), 2))
    for each in rounds:
        players = list(itertools.chain(*each))
        assert len(players) == len(set(players)) == 2 * (n // 2)


@pytest.mark.parametrize("n", range(20))
def test_a_round_that_is_computed_alone_is_that_of_the_whole_circle(n: int) -> None:
    assert [list(each) for each in tournament(n)] == circle(n)


@given(
    HOSTS_OF_RANKS,
    st.sampled_from(["rank", "host"]),
    st.sampled_from(["host", "rank", "none"]),
    st.sampled_from([None, 0.001, 2.0, 9.0, 40.0]),
    st.integers(0, 5),
)
@settings(max_examples=150, deadline=None)
def test_pairs_are_counted_as_they_are_planned(
    host_of: list[int], level: Level, at_once: AtOnce, budget_s: float | None, seed: int
) -> None:
    changes = {"level": level, "at_once": at_once, "budget_s": budget_s, "seed": seed}
    found = plan(host_of, **changes)
    told = count(list(Counter(host_of).values()), **changes)
    assert (told.rounds, told.pairs, told.passes) == (len(found.rounds), found.pairs, found.passes)
    assert (told.pairs_in_all, told.not_looked_at) == (found.pairs_in_all, found.not_looked_at)
    assert told.seconds == found.seconds
    # What was drawn is a part of all that there is, in its order.
    whole = iter(pair_rounds(host_of, level, at_once))
    assert all(each in whole for each in found.rounds)


@given(HOSTS_OF_RANKS, st.sampled_from(["host", "rank", "none"]))
@settings(max_examples=150, deadline=None)
def test_every_pair_of_ranks_is_there_once_and_shares_nothing(host_of: list[int], at_once: AtOnce) -> None:
    rounds = pair_rounds(host_of, "rank", at_once)
    pairs = Counter(itertools.chain(*rounds))
    assert pairs == Counter(itertools.combinations(range(len(host_of)), 2))
    for each in rounds:
        if at_once == "none":
            assert len(each) == 1
        elif at_once == "rank":
            assert all(count == 1 for count in Counter(itertools.chain(*each)).values())
        else:
            # A pair inside a host has it for itself as well.
            hosts = Counter(host for pair in each for host in {host_of[rank] for rank in pair})
            assert all(count == 1 for count in hosts.values())


@given(HOSTS_OF_RANKS, st.sampled_from(["host", "rank", "none"]))
@settings(max_examples=80, deadline=None)
def test_at_the_level_of_hosts_one_rank_speaks_for_each(host_of: list[int], at_once: AtOnce) -> None:
    first = sorted(host_of.index(host) for host in set(host_of))
    pairs = list(itertools.chain(*pair_rounds(host_of, "host", at_once)))
    assert sorted(pairs) == list(itertools.combinations(first, 2))


def test_a_host_alone_and_a_rank_alone() -> None:
    assert sorted(itertools.chain(*pair_rounds([0, 0, 0], "rank", "host"))) == [(0, 1), (0, 2), (1, 2)]
    assert pair_rounds([0], "rank", "host") == []
    assert pair_rounds([0, 0, 0], "host", "host") == []


@pytest.mark.parametrize(("level", "rounds"), [("rank", 28 + 7 * 64), ("host", 7)])
def test_sixty_four_ranks_on_eight_hosts_in_minutes(level: Level, rounds: int) -> None:
    found = plan([rank // 8 for rank in range(64)], level=level, pair_s=0.15)
    assert len(found.rounds) == rounds
    assert found.pairs == found.pairs_in_all == (64 * 63 // 2 if level == "rank" else 28)
    assert found.not_looked_at is None
    assert found.seconds < 10 * 60


def test_250_hosts_in_15_minutes_are_planned_at_once() -> None:
    host_of = [rank // 8 for rank in range(2000)]
    began = time.perf_counter()
    found = plan(host_of, level="host", budget_s=900.0)
    assert time.perf_counter() - began < 0.5
    assert found.pairs_in_all == 250 * 249 // 2
    assert found.passes >= 3
    assert found.seconds <= 900


@pytest.mark.parametrize("level", ["rank", "host"])
@pytest.mark.parametrize("at_once", ["host", "rank", "none"])
@pytest.mark.parametrize("budget_s", [0.001, 900.0, 1e8, None])
def test_however_many_hosts_are_counted_at_once(
    level: Level, at_once: AtOnce, budget_s: float | None
) -> None:
    began = time.perf_counter()
    found = count([8] * 16384, level=level, at_once=at_once, budget_s=budget_s)
    assert time.perf_counter() - began < 2.0
    n = 16384 * (8 if level == "rank" else 1)
    assert found.pairs_in_all == n * (n - 1) // 2
    assert 0 < found.pairs <= found.pairs_in_all
    if budget_s is None:
        assert found.pairs == found.pairs_in_all


def test_hosts_that_are_not_alike_are_counted_too() -> None:
    # Two hosts of 3 ranks and one of 2: 3 rounds inside, of them 1 with the pair of the small host; across
    # 9 rounds of the large ones, and twice 6 with the small one.
    found = count([3, 3, 2])
    assert (found.rounds, found.pairs, found.pairs_in_all) == (3 + 9 + 6 + 6, 28, 28)


def test_a_budget_builds_only_what_it_draws() -> None:
    began = time.perf_counter()
    found = plan([rank // 8 for rank in range(4096 * 8)], level="host", budget_s=15.0)
    assert time.perf_counter() - began < 5.0
    assert len(found.rounds) == 10
    assert found.pairs == 10 * 2048


def test_a_budget_takes_passes_first_and_then_pairs_at_random() -> None:
    host_of = list(range(20))
    whole = plan(host_of)
    assert (len(whole.rounds), whole.passes) == (19, 5)
    assert whole.seconds == pytest.approx(19 * 5 * 0.5)
    fewer = plan(host_of, budget_s=19 * 4 * 0.5 + 0.1)
    assert (fewer.pairs, fewer.passes, fewer.not_looked_at) == (190, 4, None)
    some = plan(host_of, budget_s=6 * 3 * 0.5 + 0.1)
    assert (len(some.rounds), some.passes) == (6, 3)
    assert some.not_looked_at == "130 of 190 pairs, chosen at random"
    assert some.seconds <= 6 * 3 * 0.5 + 0.1
    # Every host is looked at equally often.
    assert set(Counter(itertools.chain(*itertools.chain(*some.rounds))).values()) == {6}
    assert set(some.rounds) <= set(whole.rounds)
    assert plan(host_of, budget_s=9.1, seed=1).rounds != some.rounds
    assert plan(host_of, budget_s=9.1).rounds == some.rounds


def test_however_short_the_time_something_is_looked_at() -> None:
    found = plan([0, 1, 2, 3], budget_s=0.001)
    assert (len(found.rounds), found.passes) == (1, 3)
    assert found.not_looked_at == "4 of 6 pairs, chosen at random"
