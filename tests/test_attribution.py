"""Who is named for which fault, on clusters whose every rate is known: small ones, where much is alike."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from attributing import tables

from ncclbench.attribution.attribute import attribute
from ncclbench.attribution.model import Attribution, Evidence, LinkSamples, Places, RankSamples
from ncclbench.errors import RequestError

Fault, cluster, table = tables.Fault, tables.cluster, tables.table
QUIET = tables.Noise(within=0.002, between=0.005, far_out=0.0, drift=0.05)
Name = tuple[str, tuple[int, ...], str]


def host(number: int, factor: float, direction: str = "both", first_round: int = 0) -> object:
    return Fault("host", (number,), factor, direction, first_round=first_round)


def pair(one: int, other: int, factor: float, direction: str = "both", first_round: int = 0) -> object:
    return Fault("link", (one, other), factor, direction, of_hosts=True, first_round=first_round)


def answer(where: object, *faults: object, seed: int = 7) -> Attribution:
    return attribute(table(where, list(faults), QUIET, np.random.default_rng(seed)))


def names(found: Attribution) -> set[Name]:
    return {(one.kind, one.ranks, one.direction) for one in found.suspects}


FOUR, THREE, TWO = (cluster(hosts, 1, 5) for hosts in (4, 3, 2))
SCATTERED = cluster(4, 2, 5, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("where", "faults", "expected"),
    [
        (FOUR, [host(2, 4)], {("host", (2,), "both")}),
        (FOUR, [host(2, 1.5)], {("host", (2,), "both")}),
        (FOUR, [host(2, 4, "out")], {("host", (2,), "out")}),
        (FOUR, [host(2, 4, "in")], {("host", (2,), "in")}),
        (FOUR, [pair(0, 3, 5)], {("link", (0, 3), "both")}),
        (FOUR, [pair(3, 1, 4, "one")], {("link", (1, 3), "3>1")}),
        (FOUR, [host(2, 4), pair(0, 3, 5)], {("host", (2,), "both"), ("link", (0, 3), "both")}),
        (FOUR, [host(2, 4), pair(2, 3, 8)], {("host", (2,), "both"), ("link", (2, 3), "both")}),
        (FOUR, [host(1, 4), host(2, 4)], {("host", (1,), "both"), ("host", (2,), "both")}),
        (FOUR, [host(1, 2), host(2, 6)], {("host", (1,), "both"), ("host", (2,), "both")}),
        # 0-3 is healthy, so it cannot be host 0.
        (FOUR, [pair(0, 1, 4), pair(0, 2, 4)], {("link", (0, 1), "both"), ("link", (0, 2), "both")}),
        (THREE, [host(2, 4)], {("host", (2,), "both")}),
        (THREE, [pair(0, 2, 1.5)], {("link", (0, 2), "both")}),
        # Several ranks on a host: what they share, what one has, and what is inside.
        (cluster(3, 4, 5), [host(1, 4)], {("host", (4, 5, 6, 7), "both")}),
        (cluster(3, 4, 5), [Fault("rank", (5,), 4, inside_too=False)], {("rank", (5,), "both")}),
        (cluster(3, 4, 5), [Fault("rank", (5,), 4)], {("rank", (5,), "both")}),
        (cluster(3, 4, 5), [Fault("link", (5, 9), 4)], {("link", (5, 9), "both")}),
        (cluster(3, 4, 5), [pair(0, 2, 4)], {("link", (0, 8), "both")}),
        (cluster(2, 2, 5), [Fault("rank", (1,), 4, inside_too=False)], {("rank", (1,), "both")}),
        (cluster(1, 8, 5), [Fault("rank", (3,), 4)], {("rank", (3,), "both")}),
        (cluster(1, 8, 5), [Fault("link", (3, 6), 4)], {("link", (3, 6), "both")}),
        (SCATTERED, [host(2, 4)], {("host", SCATTERED.places.ranks_on(2), "both")}),
        (FOUR, [Fault("rank", (3,), 1.9, computes="only")], {("rank", (3,), "both")}),
        (FOUR, [Fault("rank", (3,), 2, computes="too")], {("rank", (3,), "both")}),
        (cluster(2, 2, 5), [Fault("rank", (3,), 2, computes="too")], {("rank", (3,), "both")}),
        (cluster(3, 2, 5), [Fault("host", (1,), 2, computes="only")], {("host", (2, 3), "both")}),
        # What is stopped does not send meanwhile either, but no more than that.
        (FOUR, [Fault("rank", (3,), 4, computes="only"), pair(3, 1, 2, "one")], {("rank", (3,), "both")}),
        (
            FOUR,
            [Fault("rank", (3,), 2, computes="only"), pair(3, 1, 4)],
            {("rank", (3,), "both"), ("link", (1, 3), "both")},
        ),
        (FOUR, [], set()),
        (TWO, [], set()),
        (cluster(1, 2, 5), [], set()),
    ],
)
def test_faults_are_named(where: object, faults: list[object], expected: set[Name]) -> None:
    found = answer(where, *faults)
    assert names(found) == expected
    kinds = {kind for kind, _, _ in expected}
    assert found.verdict == ("several" if len(expected) > 1 else next(iter(kinds), "none"))


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        (TWO, pair(0, 1, 4, "one")),  # host 0 sending, host 1 receiving, or the link
        (cluster(2, 2, 5), host(0, 4, "out")),
        (cluster(4, 1, 1), host(2, 4)),  # one round: a disturbance, as likely
    ],
)
def test_what_cannot_be_told_is_not_guessed(where: object, fault: object) -> None:
    found = answer(where, fault)
    assert found.verdict == "unclear"
    assert not found.suspects
    assert found.message.startswith("cannot be told: ")


def test_most_hosts_slow_leaves_no_norm() -> None:
    """Of five hosts three are slow: against the fast pair all three would be named."""
    found = answer(cluster(5, 1, 5), host(0, 2), host(1, 3), host(2, 4))
    assert "host" not in {one.kind for one in found.suspects if one.ranks == (0,)}
    assert found.verdict in ("unclear", "several", "host")
    assert found.unclear or len(found.suspects) < 3


def test_words_and_numbers() -> None:
    found = answer(FOUR, host(2, 4), pair(2, 3, 10))
    link, slow = found.suspects
    assert found.message == (
        "pair 2-3 (node-2, node-3), both directions: 10 % of the median, 2.5x slower than what its slow end "
        "lets through; host node-2: all its links are at 25 % of the median (3 of 3 pairs); "
        "everything else healthy"
    )
    assert slow.ratio == pytest.approx(4, rel=0.02)
    assert link.ratio == pytest.approx(10, rel=0.02)
    assert slow.ci_low is not None
    assert slow.ci_high is not None
    assert slow.ci_low <= slow.ratio <= slow.ci_high
    # Which end of a link to drain would be a guess.
    assert found.drain_hosts == ("node-2",)
    assert answer(cluster(2, 4, 5), Fault("link", (1, 2), 4)).drain_hosts == ("node-0",)


def test_nobody_says_what_would_have_been_found() -> None:
    found = answer(cluster(8, 1, 5))
    assert found.message.startswith("nobody: spread is within noise (largest 1.0")
    assert found.message.endswith("x would have been found)")


@pytest.mark.parametrize("fault", [host(1, 4, first_round=4), pair(1, 2, 1.5, first_round=4)])
def test_what_begins_in_the_middle_is_told_with_its_round(fault: object) -> None:
    (suspect,) = answer(cluster(4, 1, 8), fault).suspects
    assert suspect.evidence.endswith("from round 5 of 8 on")
    assert suspect.ratio == pytest.approx(fault.factor, rel=0.03)  # type: ignore[attr-defined]


@pytest.mark.parametrize("share", [0.4, 0.5, 0.6])
def test_a_rank_stopped_half_of_the_time_is_named(share: float) -> None:
    """Its samples fall to one of two modes, the fast one as fast as others'."""
    generator = np.random.default_rng(5)
    evidence = table(cluster(4, 1, 20), [], QUIET, generator)
    slow = np.where(generator.permutation(20) < 20 * share, 3.0, 1.0)
    ranks = [*evidence.ranks[:3], RankSamples(3, evidence.ranks[3].compute_us * slow)]
    found = attribute(dataclasses.replace(evidence, ranks=ranks))
    assert names(found) == {("rank", (3,), "both")}
    assert found.suspects[0].ratio == pytest.approx(1 + 2 * share, rel=0.1)


def test_two_islands_are_one_slow_uplink() -> None:
    slow = [pair(one, other, 4) for one in (0, 2) for other in (1, 3)]
    found = answer(FOUR, *slow)
    assert found.verdict == "link"
    assert "every pair of node-0, node-2 with node-1, node-3" in found.message
    assert found.drain_hosts == ()


# Measured on four emulated hosts, two on each of two switches with an uplink of 50 Mbit/s between them,
# which the two pairs of a round share as they please; Mbit/s, by (src, dst), in order of rounds.
SHARED_UPLINK = {
    (0, 1): [192.3, 190.3, 192.5, 191.2, 190.9],
    (0, 2): [31.9, 48.3, 28.6, 30.6, 24.7],
    (0, 3): [29.5, 39.8, 24.0, 23.6, 25.9],
    (1, 0): [191.3, 189.5, 191.4, 192.6, 189.5],
    (1, 2): [16.5, 23.7, 40.9, 33.7, 24.1],
    (1, 3): [23.3, 29.2, 42.5, 23.5, 30.5],
    (2, 0): [26.9, 37.0, 28.1, 40.2, 25.7],
    (2, 1): [21.8, 21.4, 25.2, 26.4, 23.8],
    (2, 3): [192.5, 191.1, 192.1, 189.6, 188.5],
    (3, 0): [30.2, 28.3, 25.9, 25.2, 26.5],
    (3, 1): [23.1, 23.3, 24.5, 16.9, 21.8],
    (3, 2): [191.7, 188.8, 189.7, 190.5, 189.6],
}


def test_an_uplink_that_pairs_share_is_found_though_its_links_are_unsteady() -> None:
    links = [
        LinkSamples(src, dst, np.array(rates) / 8000, np.full(5, 100.0), np.array(rates)[::-1] / 8000)
        for (src, dst), rates in SHARED_UPLINK.items()
    ]
    found = attribute(Evidence(Places((0, 1, 2, 3), ("a", "b", "c", "d")), links))
    (suspect,) = found.suspects
    assert (suspect.kind, suspect.direction) == ("link", "both")
    assert "as is every pair of a, b with c, d: a slow uplink" in suspect.evidence


def test_switches_have_uplinks_and_classes_are_never_mixed() -> None:
    whole = cluster(8, 1, 5)
    places = Places(whole.places.host_of, whole.places.hosts, tuple("aabbccdd"))
    known = tables.Cluster(places, 5, whole.pairs)
    assert answer(known).verdict == "none"  # though links across are a quarter slower than under a switch
    assert names(answer(known, host(3, 4))) == {("host", (3,), "both")}
    assert names(answer(known, pair(2, 3, 2))) == {("link", (2, 3), "both")}
    uplink = [pair(one, other, 3) for one in (2, 3) for other in (0, 1, 4, 5, 6, 7)]
    found = answer(known, *uplink)
    assert found.verdict == "link"
    assert "uplink of switch b" in found.message


def test_both_directions_at_once_may_tell_of_somebody_else() -> None:
    """One direction at a time is healthy, both at once are not: a half-duplex port."""
    evidence = table(FOUR, [], QUIET, np.random.default_rng(3))
    links = [
        dataclasses.replace(link, both_GBs=link.bandwidth_GBs / (2 if 1 in (link.src, link.dst) else 1))
        for link in evidence.links
    ]
    found = attribute(dataclasses.replace(evidence, links=links))
    assert names(found) == {("host", (1,), "both")}
    assert "both directions at once" in found.message


def test_copies_to_a_device_are_compared() -> None:
    evidence = table(cluster(1, 8, 6), [], QUIET, np.random.default_rng(3))
    ranks = [
        dataclasses.replace(
            one, h2d_GBs=np.full(6, 20.0 if one.rank == 5 else 50.0), d2h_GBs=np.full(6, 50.0)
        )
        for one in evidence.ranks
    ]
    found = attribute(dataclasses.replace(evidence, ranks=ranks))
    assert names(found) == {("rank", (5,), "both")}
    assert "host-to-device copies are at 40 % of the median" in found.message


def test_broken_evidence_is_refused_in_words() -> None:
    row = np.ones(3)
    with pytest.raises(RequestError, match="samples of rank 7, but there are 2 ranks"):
        Evidence(Places((0, 1), ("a", "b")), [LinkSamples(0, 7, row, row)])
    with pytest.raises(RequestError, match="none of the hosts"):
        Places((0, 2), ("a", "b"))
    with pytest.raises(RequestError, match="name one for each"):
        Places((0, 1), ("a", "b"), ("s",))


def test_nothing_measured_is_no_name() -> None:
    found = attribute(Evidence(Places((0, 1), ("a", "b")), []))
    assert (found.verdict, found.suspects, found.drain_hosts) == ("unclear", (), ())
    assert found.would_find is None
