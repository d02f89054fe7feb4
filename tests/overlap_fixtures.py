"""Overlap runs made of numbers, for tests of what is made of them: nothing was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from report_fixtures import make_host

from ncclbench.plan.model import Arm, unplanned
from ncclbench.plan.schedule import part_orders
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.store.model import Run
from ncclbench.store.overlaps import PARTS, OverlapResult, OverlapSkip, OverlapTimes

NRANKS = 2


def make_times(
    hidden: float = 0.97,
    *,
    comm_us: float = 1000.0,
    compute_us: float = 1000.0,
    control: float = 0.0,
    epoch: int = 0,
    repetitions: int = 4,
    nranks: int = NRANKS,
    **changes: Any,
) -> OverlapTimes:
    """A line in which so much of the shorter is hidden, and ``control`` of it one after the other."""
    shorter = min(comm_us, compute_us)
    totals = {
        "comm": comm_us,
        "compute": compute_us,
        "together": comm_us + compute_us - hidden * shorter,
        "serial": comm_us + compute_us - control * shorter,
    }

    def times(time_us: float) -> list[list[float]]:
        # The other ranks are faster: only the slowest counts.
        return [[time_us * (1.0 if rank == 0 else 0.5)] * repetitions for rank in range(nranks)]

    fields: dict[str, Any] = {
        "op": "all_reduce",
        "dtype": "float32",
        "redop": "sum",
        "nbytes": 1 << 20,
        "arm": "gloo",
        "compute": "fma",
        "free_sms": None,
        "mode": "eager",
        "implementation": "ProcessGroupGloo (gloo)",
        "length": 1234,
        "epoch": epoch,
        "order": part_orders(PARTS, 0, epoch, "case", repetitions),
        "times_us": {part: times(total) for part, total in totals.items()},
        "comm_done_us": times(1.1 * comm_us),
        "compute_done_us": times(1.2 * compute_us),
        "wrong": 0,
        "compute_wrong": 0,
    }
    return OverlapTimes(**{**fields, **changes})


def make_skip(reason: str = "graph needs CUDA", **changes: Any) -> OverlapSkip:
    """A case that was not measured."""
    line = make_times()
    names = ("op", "dtype", "redop", "nbytes", "arm", "compute", "free_sms")
    fields = {name: getattr(line, name) for name in names} | {"mode": "graph", "status": "skipped"}
    return OverlapSkip(**{**fields, "reason": reason, **changes})


def over_epochs(
    hidden: float = 0.97, epochs: int = 6, spread: float = 0.02, **changes: Any
) -> list[OverlapResult]:
    """A case in several epochs that scatter."""
    generator = np.random.default_rng(epochs)
    return [
        make_times(hidden + float(generator.normal(0, spread)), epoch=epoch, **changes)
        for epoch in range(epochs)
    ]


def make_place(hosts: Sequence[int] = (0, 1), cores: str = "0-3", device: str = "cpu") -> dict[str, Any]:
    """An environment: the host of each rank, and the cores that each may use."""
    return {
        "hosts": [make_host(host) for host in sorted(set(hosts))],
        "common": {"cores": cores, "variables": {"GLOO_SOCKET_IFNAME": "eth0"}},
        "ranks": [
            {"rank": rank, "host": host, "local_rank": rank, "device": device.format(rank)}
            for rank, host in enumerate(hosts)
        ],
    }


def make_overlap(
    results: Sequence[OverlapResult] | None = None,
    folder: Path = Path("results/overlap"),
    *,
    arms: Sequence[str] = ("gloo",),
    nranks: int = NRANKS,
    **meta: Any,
) -> Run:
    """A complete run on two hosts with cores enough, where a figure is one."""
    plan = unplanned(tuple(Arm(name, name.partition("#")[0]) for name in arms), nranks)
    return Run(
        folder=folder,
        meta={
            "schema": 1,
            "kind": "overlap",
            "ncclbench": "0.1.0",
            "label": None,
            "created": "2026-11-29T15:50:00Z",
            "command": ["ncclbench", "overlap"],
            "plan": plan.to_json(),
            "asked": {"ops": ["all_reduce"], "compute_ratio": 1.0, "epochs": 6},
            "status": "complete",
            "message": None,
            "environment": make_place(),
            "preflight": [],
            "attempts": [],
            **meta,
        },
        plan=plan,
        results=list(over_epochs() if results is None else results),
    )


def written(path: Path, run: Run) -> Path:
    """The run's folder, through the real writer."""
    with RunFolder.create(path) as opened:
        opened.write_meta(run.meta)
        with opened.samples() as samples:
            samples.append(b"".join(map(encode_line, run.results)))
    return path
