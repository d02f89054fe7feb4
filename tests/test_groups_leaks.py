"""Groups of gloo made, used and destroyed over and over: nothing of them stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ncclbench.cells.cell import run_cell
from ncclbench.cells.rank import CellRank, CellTask
from ncclbench.faults.leftover import children
from ncclbench.plan.model import Arm
from ncclbench.supervise.signals import EndSignals
from ncclbench.worker.footprint import footprint, raise_open_files, settled
from ncclbench.worker.groups import close_group, open_group

GLOO = Arm("gloo", "gloo")
SHARED = Path("/dev/shm")
# torch keeps names and records of groups that have ended, the C library a little more. A group that lives
# holds ten times as much.
KEPT_BYTES_OF_GROUP = 8 << 10


def rounds(groups: int, times: int, rank: CellRank) -> list[dict[str, Any]]:
    """What a rank holds before, and after each round of making so many groups, using and ending them."""
    raise_open_files()
    before = footprint(rank.device.torch_device)
    found = [before]
    for _ in range(times):
        opened = [open_group(GLOO, rank.device, 60.0) for _ in range(groups)]
        message = torch.ones(1)
        for group in opened:
            if rank.rank == 0:
                dist.send(message, group=group.group, group_dst=1)
            else:
                dist.recv(message, group=group.group, group_src=0)
        held = footprint(rank.device.torch_device)
        assert (held["files"] or 0) >= (before["files"] or 0) + 2 * groups, (
            "groups hold files while they live"
        )
        for group in opened:
            close_group(group)
        # gloo closes its files when the last object of the group goes, and not when the group is destroyed.
        del opened, group
        rank.meet()
        found.append(settled(rank.device.torch_device, before))
    return found


@pytest.mark.parametrize(
    ("groups", "times"),
    [pytest.param(10, 4, id="small"), pytest.param(100, 20, marks=pytest.mark.full, id="bar")],
)
def test_groups_that_have_ended_leave_nothing(groups: int, times: int) -> None:
    shared, files = set(os.listdir(SHARED)), len(os.listdir("/proc/self/fd"))
    with EndSignals() as signals:
        result = run_cell(
            CellTask(GLOO, 2, 60.0, False), lambda rank: rounds(groups, times, rank), 300.0, signals
        )
    assert (result.outcome, result.errors) == ("completed", {})
    assert result.leftover_processes == 0
    assert not children()
    assert len(os.listdir("/proc/self/fd")) == files
    assert {name for name in set(os.listdir(SHARED)) - shared if "torch" in name or "gloo" in name} == set()
    for readings in result.values.values():
        before, first, *_, last = readings
        for name in ("files", "sockets", "connections", "threads"):
            assert [reading[name] for reading in readings] == [before[name]] * (times + 1), name
        assert last["shared_bytes"] <= before["shared_bytes"]
        allowed = max(1 << 20, groups * (times - 1) * KEPT_BYTES_OF_GROUP)
        assert last["rss_bytes"] - first["rss_bytes"] < allowed
