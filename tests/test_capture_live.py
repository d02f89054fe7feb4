"""``--flight-recorder`` over two hosts: each supervisor asks its own ranks, rank 0's tells of all."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from emulated import Cluster
from sweeping import lines, run, wait_until

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]

SWEEP = ("-m", "ncclbench", "sweep", "--ops", "all_reduce", "--sizes", "8,64K", "--modes", "isolated")


def test_a_rank_that_stops_on_another_host_is_told_with_its_host(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kept = ("-n", "100000", "--epochs", "1", "--timeout", "4s", "--flight-recorder", "--out", str(folder))
    with Cluster(2) as cluster:
        job = cluster.start(2, (*SWEEP, *kept))
        wait_until(lambda: lines(folder) >= 4, "the first case")
        stopped = job.processes_of(3)
        for process in stopped:
            process.suspend()
        done = job.wait(100)
    assert done.codes == (3, 3, 3, 3)
    assert "flight recorders: ranks 0-2 issued all_reduce" in done.err
    assert "rank 3 (node-01) left no dump and is the suspect" in done.err
    assert sorted(path.name for path in (folder / "flight").iterdir()) == [
        f"rank{rank}-gloo.json" for rank in (0, 1, 2)
    ]
    answer = json.loads(run(sys.executable, "-m", "ncclbench", "flight", folder, "--json").out)
    assert (answer["nranks"], answer["missing_dumps"]) == (4, [3])
    assert answer["findings"][0]["hosts"] == ["node-01"]
