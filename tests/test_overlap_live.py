"""Overlap on emulated clusters of known truth: over a shaped link communication needs little processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from emulated import GOODPUT, Cluster

# Two cores carry every host: nothing may run beside these.
pytestmark = pytest.mark.live

# So slow that what the processors do for 1 MiB takes no time beside it: both hosts' kernels share the two
# cores with gloo's threads, whose turn comes some milliseconds late.
RATE = 10.0
NBYTES = 1 << 20
LIMIT_S = 115.0


def overlap(cluster: Cluster, folder: Path, nproc: int, *options: str) -> dict[str, Any]:
    words = ("-m", "ncclbench", "overlap", "--sizes", str(NBYTES), *options, "--json", "--out", str(folder))
    done = cluster.launch(nproc, words, LIMIT_S)
    assert done.codes == (0,) * (2 * nproc), done.err
    return done.document


@pytest.mark.parametrize("compute", ["fma", "triad", "gemm"])
def test_over_a_shaped_link_it_hides_and_the_serial_control_does_not(compute: str, tmp_path: Path) -> None:
    with Cluster(2, RATE) as cluster:
        document = overlap(cluster, tmp_path / "run", 1, "--compute", compute, "--epochs", "3", "-n", "6")
    together, serial = document["rows"]
    assert together["efficiency"] >= 0.9, document["message"]
    assert serial["efficiency"] < 0.1, document["message"]
    # Nothing speaks against the place; only a machine that is not idle can.
    noise = ("serial control", "by noise")
    reason = together["reason"]
    assert reason is None or any(words in reason for words in noise), document["message"]
    assert together["meaningful"] == (reason is None), document["message"]
    assert document["message"].startswith("gloo over eth0: ")
    # What it is held against is the link's own time.
    assert together["comm_us"] == pytest.approx(8 * NBYTES / (GOODPUT * RATE), rel=0.1)
    assert together["comm_slowdown"] == pytest.approx(1, abs=0.2)


def test_ranks_without_a_core_for_each_of_the_two_read_no_figure(tmp_path: Path) -> None:
    with Cluster(2, 4 * RATE) as cluster:
        options = ("--compute", "triad", "--epochs", "1", "-n", "1")
        document = overlap(cluster, tmp_path / "run", 2, *options)
    assert not any(row["meaningful"] for row in document["rows"])
    assert "rank 0's host has 2 cores for 2 ranks: each needs 2" in document["message"]
