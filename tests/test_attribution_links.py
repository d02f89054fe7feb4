"""Rows of links, plans with holes, and evidence that supports."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from attributing import tables

from ncclbench.attribution.attribute import attribute
from ncclbench.attribution.links import class_of, link_rows
from ncclbench.attribution.model import Arrivals, Evidence, GroupSamples, LinkSamples, Places

Fault, cluster, table = tables.Fault, tables.cluster, tables.table
QUIET = tables.Noise(within=0.002, between=0.005, far_out=0.0, drift=0.0)


def measured(where: object, *faults: object, noise: object = QUIET) -> Evidence:
    evidence: Evidence = table(where, list(faults), noise, np.random.default_rng(11))
    return evidence


def test_rows_hold_rates_against_their_class() -> None:
    evidence = measured(cluster(2, 3, 5), Fault("link", (0, 4), 2))
    rows = {(row["src"], row["dst"]): row for row in link_rows(evidence)}
    assert len(rows) == 30
    assert {pair for pair, row in rows.items() if row["odd"]} == {(0, 4), (4, 0)}
    slow, inside = rows[0, 4], rows[0, 1]
    assert (slow["class"], inside["class"], slow["rounds"]) == ("across", "same host", 5)
    assert slow["bandwidth_GBs"] == pytest.approx(tables.ACROSS_GBs / 2, rel=0.03)
    across = [row["bandwidth_GBs"] for row in rows.values() if row["class"] == "across"]
    assert slow["ratio_to_class_median"] == pytest.approx(slow["bandwidth_GBs"] / np.median(across))
    assert slow["ratio_ci_low"] < slow["ratio_to_class_median"] < slow["ratio_ci_high"]
    assert slow["slower"] == pytest.approx(2, rel=0.03)
    assert inside["ratio_to_class_median"] == pytest.approx(1, rel=0.03)


def test_the_level_is_the_healthy_one_where_half_of_the_links_are_slow() -> None:
    rows = link_rows(measured(cluster(4, 1, 5), Fault("host", (2,), 4)))
    assert {(row["src"], row["dst"]) for row in rows if row["odd"]} == {
        (row["src"], row["dst"]) for row in rows if 2 in (row["src"], row["dst"])
    }
    assert [row["class_level_GBs"] for row in rows] == pytest.approx([tables.ACROSS_GBs] * 12, rel=0.02)


def test_a_faster_link_is_odd_too_and_no_suspect() -> None:
    evidence = measured(cluster(5, 1, 5))
    links = [
        dataclasses.replace(
            link, bandwidth_GBs=link.bandwidth_GBs * (2 if (link.src, link.dst) == (0, 1) else 1)
        )
        for link in evidence.links
    ]
    fast = dataclasses.replace(evidence, links=links)
    assert [(row["src"], row["dst"]) for row in link_rows(fast) if row["odd"]] == [(0, 1)]
    assert not attribute(fast).suspects


def test_classes_follow_hosts_and_switches() -> None:
    places = Places((0, 1, 0, 2), ("a", "b", "c"), ("s", "s", "t"))
    assert [class_of(places, 0, other) for other in (2, 1, 3)] == ["same host", "same switch", "across"]
    assert class_of(dataclasses.replace(places, switch_of=None), 0, 1) == "across"


def test_rounds_that_failed_are_left_out() -> None:
    evidence = measured(cluster(4, 1, 6), Fault("host", (2,), 4))
    for number, link in enumerate(evidence.links):
        link.bandwidth_GBs[number % 6] = np.nan
        link.bandwidth_GBs[(number + 3) % 6] = 0.0
    assert [(one.kind, one.ranks) for one in attribute(evidence).suspects] == [("host", (2,))]
    assert {row["rounds"] for row in link_rows(evidence)} == {4}


def test_a_link_that_was_never_read_has_an_empty_row() -> None:
    evidence = measured(cluster(3, 1, 4))
    evidence.links[0].bandwidth_GBs[:] = np.nan
    row = link_rows(evidence)[0]
    assert (row["bandwidth_GBs"], row["slower"], row["rounds"], row["odd"]) == (None, None, 0, False)
    assert attribute(evidence).verdict == "none"


def test_sampled_plans_name_hosts_and_say_what_was_not_looked_at() -> None:
    generator = np.random.default_rng(2)
    where = tables.sampled(cluster(60, 1, 5), 4, generator)
    noise = tables.Noise(within=0.01, between=0.02)
    evidence = table(where, [Fault("host", (17,), 1.5)], noise, generator)
    found = attribute(evidence)
    assert [(one.kind, one.ranks) for one in found.suspects] == [("host", (17,))]
    assert f"{60 * 59 - len(where.pairs)} of 3540 ordered pairs" in found.not_looked_at


def test_a_host_with_one_link_cannot_be_told_from_it() -> None:
    whole = cluster(6, 1, 5)
    where = tables.Cluster(whole.places, 5, [pair for pair in whole.pairs if 5 not in pair or 0 in pair])
    found = attribute(measured(where, Fault("host", (5,), 4)))
    assert (found.verdict, found.suspects) == ("unclear", ())
    assert "node-5, node-0 or the link of node-5" in found.message


@pytest.mark.parametrize(
    "where",
    [
        cluster(8, 8, 5),
        tables.sampled(cluster(250, 1, 5), 8, np.random.default_rng(0)),
    ],
    ids=["64 ranks", "250 hosts"],
)
def test_thousands_of_links_take_seconds(where: object) -> None:
    noise = tables.Noise(within=0.01, between=0.02)
    evidence = measured(where, Fault("host", (3,), 1.5), noise=noise)
    assert len(evidence.links) > 3900
    begun = time.process_time()
    found = attribute(evidence)
    rows = link_rows(evidence)
    assert time.process_time() - begun < 4  # 0.4 s on an idle core
    assert [one.hosts for one in found.suspects] == [("node-3",)]
    assert len(rows) == len(evidence.links)


def late(nranks: int, rank: int, times: int, iterations: int, by_us: float) -> Arrivals:
    last = [(iterations - times) // (nranks - 1)] * nranks
    last[rank] = times
    lateness_us = np.zeros(nranks)
    lateness_us[rank] = by_us
    return Arrivals("all_reduce", 1 << 20, tuple(last), iterations, lateness_us)


def test_arrivals_support_what_is_named() -> None:
    evidence = measured(cluster(4, 1, 5), Fault("rank", (3,), 2, computes="only"))
    found = attribute(dataclasses.replace(evidence, arrivals=[late(4, 3, 34, 40, 900.0)]))
    assert [one.ranks for one in found.suspects] == [(3,)]
    assert "computes 2.0x slower; arrives last in 34 of 40 iterations (70% to 94%)" in found.message


def test_arrivals_alone_name_who_is_nearly_always_last() -> None:
    evidence = measured(cluster(4, 1, 5))
    always = attribute(dataclasses.replace(evidence, arrivals=[late(4, 3, 36, 40, tables.COMPUTE_US)]))
    assert [(one.kind, one.ranks) for one in always.suspects] == [("rank", (3,))]
    assert always.suspects[0].ratio == pytest.approx(2, rel=0.02)
    assert always.suspects[0].ci_low is None
    # Half of the time is far from chance as well, but others have their turn.
    often = attribute(dataclasses.replace(evidence, arrivals=[late(4, 3, 22, 40, tables.COMPUTE_US)]))
    assert often.verdict == "none"
    # Late by less than the margin.
    barely = attribute(dataclasses.replace(evidence, arrivals=[late(4, 3, 36, 40, 30.0)]))
    assert barely.verdict == "none"


def test_arrivals_without_any_time_of_work_are_unclear() -> None:
    evidence = dataclasses.replace(measured(cluster(4, 1, 5)), ranks=[], arrivals=[late(4, 3, 36, 40, 500.0)])
    found = attribute(evidence)
    assert (found.verdict, found.suspects) == ("unclear", ())
    assert "no probe tells why" in found.message


def test_the_largest_healthy_group_is_told() -> None:
    evidence = measured(cluster(4, 1, 5), Fault("host", (2,), 4))
    nbytes = 1 << 22
    # busbw 15 GB/s without host 2, 4 GB/s with it; factors 2(n-1)/n.
    groups = [
        GroupSamples((0, 1, 3), "all_reduce", nbytes, np.full(3, nbytes * 4 / 3 / 15e3)),
        GroupSamples((0, 1), "all_reduce", nbytes, np.full(3, nbytes / 15e3)),
        GroupSamples((0, 1, 2, 3), "all_reduce", nbytes, np.full(3, nbytes * 3 / 2 / 4e3)),
    ]
    found = attribute(dataclasses.replace(evidence, groups=groups))
    assert "all_reduce runs at full speed on 3 ranks without it, and not on 4 with it" in found.message


def test_unequal_numbers_of_rounds_are_taken_as_they_are() -> None:
    evidence = measured(cluster(3, 1, 5), Fault("link", (0, 1), 3))
    short = [
        LinkSamples(link.src, link.dst, link.bandwidth_GBs[: 3 + at % 3], link.latency_us)
        for at, link in enumerate(evidence.links)
    ]
    found = attribute(dataclasses.replace(evidence, links=short))
    assert [(one.kind, one.ranks) for one in found.suspects] == [("link", (0, 1))]
