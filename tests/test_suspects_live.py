"""Suspects and matrix on emulated clusters of known truth: who is slow is named, and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulated import GOODPUT, Cluster, Job
from searching import acting_at, lines_of_passes

# Two cores carry every host: nothing may run beside these.
pytestmark = pytest.mark.live

RATE = 200.0
LIMIT_S = 110.0

Name = tuple[str, tuple[int, ...], str]


def suspects(cluster: Cluster, folder: Path, *options: str, nproc: int = 1) -> Job:
    """The command on every rank, started."""
    return cluster.start(nproc, ("-m", "ncclbench", "suspects", *options, "--json", "--out", str(folder)))


def names(answer: dict[str, Any]) -> set[Name]:
    return {(one["kind"], tuple(one["ranks"]), one["direction"]) for one in answer["suspects"]}


def _host_and_pair(cluster: Cluster) -> None:
    cluster.set_host(3, 50)
    cluster.set_pair(0, 1, 50)


FAULTS: dict[str, tuple[Callable[[Cluster], None], set[Name]]] = {
    "healthy": (lambda c: None, set()),
    "slow host": (lambda c: c.set_host(2, 50), {("host", (2,), "both")}),
    "slow distant pair": (lambda c: c.set_pair(0, 2, 50), {("link", (0, 2), "both")}),
    "one direction": (lambda c: c.set_direction(3, 1, 50), {("link", (1, 3), "3>1")}),
    "slow neighbours": (lambda c: c.set_pair(1, 2, 50), {("link", (1, 2), "both")}),
    "pair and host": (_host_and_pair, {("link", (0, 1), "both"), ("host", (3,), "both")}),
    "host at two thirds": (lambda c: c.set_host(0, RATE / 1.5), {("host", (0,), "both")}),
    "pair at two thirds": (lambda c: c.set_pair(1, 3, RATE / 1.5), {("link", (1, 3), "both")}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_slow_is_named_and_nobody_else(name: str, tmp_path: Path) -> None:
    make_slow, truth = FAULTS[name]
    with Cluster(4, RATE) as cluster:
        make_slow(cluster)
        done = suspects(cluster, tmp_path / "run", "--quick").wait(LIMIT_S)
    answer = done.document
    assert names(answer) == truth, answer["message"]
    assert done.codes == ((1 if truth else 0),) * 4, done.err
    hosts = [cluster.names[ranks[0]] for kind, ranks, _ in truth if kind == "host"]
    assert answer["drain_hosts"] == hosts, "a link between two hosts does not say which of them to drain"


def test_a_slow_rank_is_no_slow_host(tmp_path: Path) -> None:
    with Cluster(3, RATE) as cluster:
        done = suspects(cluster, tmp_path / "run", "--quick", "--slow-rank", "1:4").wait(LIMIT_S)
    assert names(done.document) == {("rank", (1,), "both")}, done.document["message"]
    assert "computes" in done.document["message"]


def test_a_rank_that_is_stopped_half_of_the_time_is_named(tmp_path: Path) -> None:
    with Cluster(4, RATE) as cluster:
        job = suspects(cluster, tmp_path / "run")
        with job.slowed(2, factor=3):
            done = job.wait(LIMIT_S)
    assert names(done.document) == {("rank", (2,), "both")}, done.document["message"]


def test_a_host_that_becomes_slow_is_named_with_when(tmp_path: Path) -> None:
    with Cluster(4, RATE) as cluster:
        job = suspects(cluster, tmp_path / "run")
        with acting_at(lines_of_passes(3, 4), tmp_path / "run", lambda: cluster.set_host(1, 50)):
            done = job.wait(LIMIT_S)
    (suspect,) = done.document["suspects"]
    assert (suspect["kind"], suspect["ranks"]) == ("host", [1]), done.document["message"]
    assert suspect["ratio"] == pytest.approx(4, rel=0.2), "since then, not over all rounds"
    assert ", from round " in suspect["evidence"]


def test_with_two_hosts_nobody_is_guessed(tmp_path: Path) -> None:
    with Cluster(2, RATE) as cluster:
        cluster.set_host(1, 50)
        done = suspects(cluster, tmp_path / "run", "--quick", nproc=2).wait(LIMIT_S)
    answer = done.document
    assert [one for one in answer["suspects"] if one["kind"] == "host"] == [], answer["message"]
    assert "there is nothing to compare it with" in answer["not_looked_at"]


def test_a_slow_uplink_between_switches_is_no_slow_host(tmp_path: Path) -> None:
    with Cluster(6, RATE, switches=((0, 1, 2), (3, 4, 5))) as cluster:
        cluster.set_uplink(1, 50)
        done = suspects(cluster, tmp_path / "run", "--quick", "--at-once", "none").wait(LIMIT_S)
    answer = done.document
    assert answer["verdict"] in ("link", "unclear"), answer["message"]
    assert [one for one in answer["suspects"] if one["kind"] != "link"] == []


def test_matrix_reads_every_link_near_to_its_rate(tmp_path: Path) -> None:
    with Cluster(4, RATE) as cluster:
        cluster.set_host(2, 50)
        done = cluster.launch(1, ("-m", "ncclbench", "matrix", "--json", "--out", f"{tmp_path}/run"), LIMIT_S)
    assert done.codes == (0, 0, 0, 0)
    for link in done.document["links"]:
        mbit = 50 if 2 in (link["src"], link["dst"]) else RATE
        assert link["bandwidth_GBs"] == pytest.approx(GOODPUT * mbit / 8000, rel=0.03)
    assert {(link["src"], link["dst"]) for link in done.document["links"] if link["odd"]} == {
        pair for other in (0, 1, 3) for pair in ((2, other), (other, 2))
    }
