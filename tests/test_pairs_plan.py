"""The plan of pairs: everybody meets everybody once, nobody shares what a test needs for itself."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclbench.plan.pairs import AtOnce, Level, PairPlan, pair_rounds, plan_pairs, tournament

# Hosts by rank, in any order: ranks of a host need not be neighbours.
HOSTS_OF_RANKS = st.lists(st.integers(0, 4), min_size=1, max_size=13)


def plan(host_of: list[int], **changes: object) -> PairPlan:
    asked: dict[str, object] = {
        "level": "rank",
        "at_once": "host",
        "passes": 5,
        "fewest_passes": 3,
        "pair_s": 0.49,
        "budget_s": None,
        "seed": 0,
    }
    return plan_pairs(host_of, **{**asked, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("n", range(2, 12))
def test_a_tournament_has_every_pair_once_in_the_fewest_rounds(n: int) -> None:
    rounds = list(tournament(n))
    assert len(rounds) == (n - 1 if n % 2 == 0 else n)
    assert sorted(itertools.chain(*rounds)) == list(itertools.combinations(range(n), 2))
    for each in rounds:
        players = list(itertools.chain(*each))
        assert len(players) == len(set(players)) == 2 * (n // 2)


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
