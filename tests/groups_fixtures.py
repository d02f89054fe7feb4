"""Runs of ``groups`` made of numbers, for tests of what is shown of them: no group was made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from p2p_fixtures import written
from report_fixtures import make_host

from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.groups import CrossedCell, GroupCosts, GroupTimes, Reading
from ncclbench.store.model import Result, Run
from ncclbench.store.p2p import ArmFound, LeftOut
from ncclbench.tables.groups import MOMENTS
from ncclbench.worker.communicators import BY_CONNECTIONS

__all__ = ["make_cell", "make_costs", "make_groups", "make_reading", "make_results", "make_times", "written"]

MIB = 1 << 20
NRANKS = 4


def make_reading(groups: int = 0, nranks: int = NRANKS, **changes: Any) -> Reading:
    """What each rank holds with so many groups: 5 files, 3 threads and 1 MiB for each."""
    fields: dict[str, Any] = {
        "rss_bytes": 100 * MIB + groups * MIB,
        "peak_bytes": 100 * MIB + groups * 2 * MIB,
        "shared_bytes": 4096,
        "files": 20 + 5 * groups,
        "sockets": 5 + 2 * groups,
        "connections": 4 + groups,
        "threads": 6 + 3 * groups,
        "device_bytes": None,
        "backend_bytes": None,
        **changes,
    }
    return Reading(**{name: None if value is None else [value] * nranks for name, value in fields.items()})


def make_costs(groups: int = 8, epoch: int = 0, slower: float = 1.0, **changes: Any) -> GroupCosts:
    """Each group takes 1 ms to make, 2 ms for its first collective, 0.5 ms for its first messages."""
    fields: dict[str, Any] = {
        "arm": "gloo",
        "implementation": "ProcessGroupGloo (gloo)",
        "way": "new_group",
        "kind": "world",
        "groups": groups,
        "group_size": NRANKS,
        "epoch": epoch,
        "peers": 3,
        "new_us": [1000.0 * slower] * groups,
        "first_us": [2000.0 * slower] * groups,
        "later_us": [100.0] * groups,
        "p2p_us": [500.0 * slower] * groups,
        "destroy_us": [50.0] * groups,
        "readings": {moment: make_reading(groups if moment in ("made", "used") else 0) for moment in MOMENTS},
        "communicators": [groups] * NRANKS,
        "counted": BY_CONNECTIONS,
    }
    return GroupCosts(**{**fields, **changes})


def make_times(number: int = 0, epoch: int = 0, **changes: Any) -> GroupTimes:
    """A group whose collective takes 100 us alone and 150 at once."""
    fields: dict[str, Any] = {
        "op": "all_reduce",
        "nbytes": 65536,
        "arm": "gloo",
        "epoch": epoch,
        "topology": "halves",
        "number": number,
        "ranks": [2 * number, 2 * number + 1],
        "at_once": 2,
        "alone_us": [100.0, 100.0],
        "together_us": [150.0 + epoch, 150.0],
    }
    return GroupTimes(**{**fields, **changes})


def make_cell(order: str = "crossed", outcome: str = "deadlocked", **changes: Any) -> CrossedCell:
    """A cell of four ranks."""
    fields: dict[str, Any] = {
        "order": order,
        "arm": "gloo",
        "topologies": ["mesh:dp=2,tp=2@dp", "mesh:dp=2,tp=2@tp"],
        "nbytes": 65536,
        "crossing": [1, 2] if "crossed" in order else [],
        "cannot_end": order == "crossed",
        "outcome": outcome,
        "said": dict.fromkeys("0123", "done" if outcome == "completed" else "in all_reduce"),
        "seconds": 0.01 if outcome == "completed" else 3.0,
    }
    return CrossedCell(**{**fields, **changes})


def make_results() -> list[Result]:
    """Something of every part."""
    return [
        ArmFound(arm="gloo", implementation="ProcessGroupGloo (gloo)", device="cpu", reason=None),
        ArmFound(arm="nccl2", implementation=None, device=None, reason="needs a CUDA device"),
        *(make_costs(groups, epoch) for groups in (1, 8, 32) for epoch in range(3)),
        *(make_costs(8, epoch, slower=2.0 + 0.1 * epoch, arm="gloo#2") for epoch in range(3)),
        *(make_times(number, epoch) for number in (0, 1) for epoch in range(3)),
        make_cell("same", "completed"),
        make_cell("crossed", "deadlocked"),
        make_cell("crossed-async", "completed"),
        make_cell("crossed-async", "raised", nbytes=4 * MIB),
        LeftOut(part="costs", arm="gloo#2", reason="split_group: it cannot split"),
    ]


def make_groups(
    folder: Path = Path("results/groups"),
    results: Sequence[Result] | None = None,
    label: str | None = None,
    **meta: Any,
) -> Run:
    """A complete run of four ranks."""
    plan = unplanned((Arm("gloo", "gloo"), Arm("gloo#2", "gloo"), Arm("nccl2", "nccl2")), NRANKS)
    return Run(
        folder=folder,
        meta={
            "schema": 1,
            "kind": "groups",
            "ncclbench": "0.1.0",
            "label": label,
            "created": "2026-11-29T15:50:00Z",
            "command": ["ncclbench", "groups"],
            "plan": plan.to_json(),
            "asked": {"parts": "costs,together,crossed", "counts": "1,8,32", "epochs": 3},
            "status": "complete",
            "message": None,
            "environment": {
                "hosts": [make_host(0)],
                "ranks": [{"rank": rank, "host": 0, "local_rank": rank} for rank in range(NRANKS)],
            },
            "preflight": [],
            "attempts": [],
            **meta,
        },
        plan=plan,
        results=list(make_results() if results is None else results),
    )
