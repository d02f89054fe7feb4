"""The course of a search, driven by a cluster of known rates: what comes next depends on what was found."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
from fake_cluster import FakeCluster, drive, searched

from ncclbench.attribution.course import Notebook, Search, growing_groups, search_course
from ncclbench.attribution.model import Attribution
from ncclbench.attribution.stages import FEWEST_PASSES, STAGES, Size, compute_turns, pair_passes
from ncclbench.plan.pairs import PairPlan
from ncclbench.store.probes import PairTest, Probe, RankTest, SubsetTest, WaitTest

FOUR = PairPlan((((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))), FEWEST_PASSES, 6, 1.0)


def stages_of(cluster: FakeCluster) -> list[str]:
    return [order["stage"] for order in cluster.orders]


def groups_of(cluster: FakeCluster) -> list[list[int]]:
    return [order["groups"][0] for order in cluster.orders if order.get("op") == "all_reduce"]


def say(verdict: Any) -> Attribution:
    return Attribution(verdict, (), (), "", (), "", "")


# --- the whole of it


def test_a_healthy_cluster_is_gone_through_once() -> None:
    cluster = FakeCluster()
    kept, answer = searched(cluster)
    assert answer.verdict == "none"
    assert Counter(type(test) for test in kept) == {
        PairTest: 12 * FEWEST_PASSES,
        RankTest: 4 * Size().computes * FEWEST_PASSES,
        WaitTest: 4,
        SubsetTest: len([stage for stage in stages_of(cluster) if stage == "subsets"]),
    }
    assert set(stages_of(cluster)) == set(STAGES) - {"opening"}
    assert groups_of(cluster) == [[0, 1], [0, 1, 2, 3]]
    # Ranks alone and pairs in turns, then all together, then groups.
    assert (
        stages_of(cluster)[: (Size().computes + 1) * FEWEST_PASSES]
        == (["compute"] * Size().computes + ["pairs"]) * FEWEST_PASSES
    )
    assert cluster.orders[-1]["op"] == "all_to_all"
    assert cluster.orders[-1]["groups"] == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("faults", "kind", "ranks", "direction"),
    [
        ({"slow_hosts": {2: 4.0}}, "host", (2,), "both"),
        ({"slow_links": {(0, 2): 4.0, (2, 0): 4.0}}, "link", (0, 2), "both"),
        ({"slow_links": {(3, 1): 4.0}}, "link", (1, 3), "3>1"),
        ({"slow_ranks": {1: 1.9}}, "rank", (1,), "both"),
    ],
)
def test_each_fault_is_named(
    faults: dict[str, Any], kind: str, ranks: tuple[int, ...], direction: str
) -> None:
    _, answer = searched(FakeCluster(**faults))
    assert answer.verdict == kind, answer.message
    assert [(one.kind, one.ranks, one.direction) for one in answer.suspects] == [(kind, ranks, direction)]


def test_every_pass_is_numbered_and_in_another_order() -> None:
    cluster = FakeCluster(hosts=8)
    kept, _ = searched(cluster, passes=4)
    pairs = [order for order in cluster.orders if order["stage"] == "pairs"]
    assert [order["turn"] for order in pairs] == [0, 1, 2, 3]
    assert len({str(order["rounds"]) for order in pairs}) == 4
    turns = Counter((test.src, test.dst, test.turn) for test in kept if isinstance(test, PairTest))
    assert set(turns.values()) == {1}
    assert len(turns) == 56 * 4


@pytest.mark.parametrize(("verdict", "passes"), [("unclear", 6), ("none", 3), ("host", 6)])
def test_more_passes_only_where_somebody_is_named_or_it_is_unclear(verdict: str, passes: int) -> None:
    cluster = FakeCluster()
    search = Search(FOUR, 3, Size(), False)
    judged = []

    def judge(probes: Any) -> Attribution:
        judged.append(len(probes))
        return say(verdict)

    drive(search_course(search, cluster.places, lambda tests: None, judge), cluster)
    assert stages_of(cluster).count("pairs") == passes
    assert judged[0] == FEWEST_PASSES * (12 + 4 * Size().computes), (
        "asked once, when the planned passes are done"
    )


def test_no_pass_beyond_the_fewest_begins_after_the_time() -> None:
    cluster = FakeCluster()
    long = replace(FOUR, passes=9)
    drive(pair_passes(long, Size(), lambda tests: None, 0, 9, until_s=time.monotonic() - 1), cluster)
    assert len(cluster.orders) == FEWEST_PASSES
    drive(pair_passes(long, Size(), lambda tests: None, 0, 9, until_s=time.monotonic() + 60), cluster)
    assert len(cluster.orders) == FEWEST_PASSES + 9


# --- what becomes of the arrays


def test_each_end_of_a_pair_tells_of_its_own_way() -> None:
    rates = {(0, 1): 2.0, (1, 0): 4.0}
    cluster = FakeCluster(hosts=2, slow_links=rates, noise=0.0)
    kept: list[Probe] = []
    plan = PairPlan((((0, 1),),), FEWEST_PASSES, 1, 1.0)
    drive(pair_passes(plan, Size(message_bytes=77), kept.extend, 5, 1), cluster)
    one, other = kept
    assert isinstance(one, PairTest)
    assert isinstance(other, PairTest)
    assert (one.turn, one.src, one.dst, one.nbytes) == (5, 0, 1, 77)
    assert (one.alone_GBs, one.both_GBs) == pytest.approx((0.0125, 0.0125))
    assert (other.alone_GBs, other.both_GBs) == pytest.approx((0.00625, 0.00625))
    assert one.latency_us == other.latency_us == pytest.approx(50)
    assert not one.wrong


@pytest.mark.parametrize(
    ("host_of", "on_gpus", "turns"),
    [
        ([0, 0, 1], False, [[0], [1], [2]]),
        ([0, 0, 1], True, [[0, 1, 2]]),
        ([rank // 3 for rank in range(18)], False, [list(range(local, 18, 3)) for local in range(3)]),
        ([0] * 10 + [1] * 7, False, [[local, 10 + local] for local in range(7)] + [[7], [8], [9]]),
    ],
)
def test_who_computes_at_the_same_time(host_of: list[int], on_gpus: bool, turns: list[list[int]]) -> None:
    assert compute_turns(host_of, on_gpus) == turns


# --- groups


def healthy_group(cluster: FakeCluster, suspected: set[str]) -> list[int]:
    """The group that growing ends with."""
    ended: list[list[int]] = []

    def keep_end() -> Generator[dict[str, Any], Any, None]:
        notes = Notebook(lambda tests: None)
        ended.append((yield from growing_groups(cluster.places, suspected, Size(), notes)))

    drive(keep_end(), cluster)
    return ended[0]


@pytest.mark.parametrize("hosts", [4, 5, 8, 13])
def test_a_healthy_group_doubles(hosts: int) -> None:
    cluster = FakeCluster(hosts=hosts)
    assert healthy_group(cluster, set()) == list(range(hosts))
    assert [len(group) for group in groups_of(cluster)] == [
        min(2**power, hosts) for power in range(1, (hosts - 1).bit_length() + 1)
    ]


@pytest.mark.parametrize("bad", [{2}, {7}, {3, 6}, {5, 6}, {2, 3, 9}])
@pytest.mark.parametrize("are_suspected", [True, False])
def test_the_largest_healthy_group_leaves_out_the_bad_alone(bad: set[int], are_suspected: bool) -> None:
    cluster = FakeCluster(hosts=10, slow_hosts=dict.fromkeys(bad, 3.0))
    suspected = {f"node-{host}" for host in bad} if are_suspected else set()
    assert healthy_group(cluster, suspected) == sorted(set(range(10)) - bad)
    assert len(groups_of(cluster)) <= 4 + 5 * len(bad)


def test_a_bad_one_among_the_first_comes_last_where_it_is_suspected() -> None:
    cluster = FakeCluster(hosts=6, slow_hosts={0: 3.0})
    assert healthy_group(cluster, {"node-0"}) == [1, 2, 3, 4, 5]
    assert 0 not in groups_of(cluster)[0]


def test_the_units_of_one_host_are_its_ranks() -> None:
    cluster = FakeCluster(hosts=1, per_host=6, slow_links={(4, 1): 3.0})
    assert healthy_group(cluster, set()) == [0, 1, 2, 3, 5]


def test_hosts_are_taken_whole() -> None:
    cluster = FakeCluster(hosts=3, per_host=2, slow_hosts={1: 3.0})
    assert healthy_group(cluster, {"node-1"}) == [0, 1, 4, 5]
    assert all(group.count(2) == group.count(3) for group in groups_of(cluster))


def test_one_unit_alone_has_no_group() -> None:
    cluster = FakeCluster(hosts=1, per_host=1)
    assert healthy_group(cluster, set()) == []
    assert cluster.orders == []


def test_the_groups_stand_behind_a_name() -> None:
    cluster = FakeCluster(hosts=5, slow_hosts={3: 4.0})
    _, answer = searched(cluster)
    assert "runs at full speed on 4 ranks without it, and not on 5 with it" in answer.message
    assert cluster.orders[-1]["groups"] == [[0, 1, 2, 3, 4], [0, 1, 2, 4]]
