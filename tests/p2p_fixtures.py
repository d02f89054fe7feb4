"""Point-to-point runs made of numbers, for tests of what is shown of them: no message was sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from report_fixtures import make_host

from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.store.model import Result, Run
from ncclbench.store.p2p import (
    ArmFound,
    FirstCalls,
    LeftOut,
    OrderingCell,
    PeerTimes,
    SemanticsCheck,
    WayTimes,
)
from ncclbench.tables.ways import WAYS

SIZES = (8, 4096, 1 << 20)
_EPOCHS = 3


def make_way(way: str = "isend", epoch: int = 0, **changes: Any) -> WayTimes:
    """Two repetitions: the call takes 10 us, all of it 40 and 42, until the message is there 50 and 54."""
    fields: dict[str, Any] = {
        "way": way,
        "arm": "gloo",
        "nbytes": 4096,
        "both": False,
        "epoch": epoch,
        "messages": WAYS[way].messages if way in WAYS else 1,
        "host_us": [10.0, 10.0],
        "total_us": [40.0, 42.0],
        "free_us": [30.0, 32.0],
        "there_us": [50.0, 54.0],
        "wrong": 0,
    }
    return WayTimes(**{**fields, **changes})


def make_ways(arm: str = "gloo", sizes: Sequence[int] = SIZES) -> list[WayTimes]:
    """Every way over sizes, slower with the size and a little from epoch to epoch."""
    generator = np.random.default_rng(3)
    lines = []
    for number, (name, way) in enumerate(WAYS.items()):
        for both in (False, True) if way.exchange else (False,):
            for nbytes in sizes:
                for epoch in range(_EPOCHS):
                    total = (20 + 5 * number + nbytes / 2000) * float(np.exp(generator.normal(0, 0.05)))
                    host = total if name in ("send", "ping-pong") else 10.0
                    lines.append(
                        make_way(
                            name,
                            epoch,
                            arm=arm,
                            nbytes=nbytes,
                            both=both,
                            host_us=[host] * 2,
                            total_us=[total] * 2,
                            free_us=[total - host] * 2,
                            there_us=[1.1 * total] * 2,
                        )
                    )
    return lines


def make_first(dst: int = 1, epoch: int = 0, **changes: Any) -> FirstCalls:
    """A first message of 900 us and later ones of 30."""
    fields: dict[str, Any] = {
        "arm": "gloo",
        "epoch": epoch,
        "src": 0,
        "dst": dst,
        "nbytes": 8,
        "init_us": 3000.0,
        "first_us": 900.0,
        "later_us": [30.0, 29.0, 31.0],
    }
    return FirstCalls(**{**fields, **changes})


def make_cell(
    order: str = "send-send", nbytes: int = 8, outcome: str = "deadlocked", **changes: Any
) -> OrderingCell:
    """A cell of two ranks."""
    said = {"completed": "done", "deadlocked": "in send", "raised": "send: RuntimeError: no"}[outcome]
    fields: dict[str, Any] = {
        "order": order,
        "arm": "gloo",
        "nbytes": nbytes,
        "outcome": outcome,
        "said": {"0": said, "1": said},
        "seconds": 3.0 if outcome == "deadlocked" else 0.004,
    }
    return OrderingCell(**{**fields, **changes})


def make_peers(epoch: int = 0, **changes: Any) -> PeerTimes:
    """Two messages at once take 60 us, one alone 40."""
    fields: dict[str, Any] = {
        "arm": "gloo",
        "epoch": epoch,
        "nbytes": 4096,
        "peers": 2,
        "beside": None,
        "total_us": [60.0, 60.0],
        "one_us": [40.0, 40.0],
    }
    return PeerTimes(**{**fields, **changes})


def make_check(check: str = "is-completed", outcome: str = "otherwise", **changes: Any) -> SemanticsCheck:
    """An answer of the self-test."""
    fields: dict[str, Any] = {
        "check": check,
        "arm": "gloo",
        "outcome": outcome,
        "said": "it said False, and the message was there",
        "value": 0.0,
    }
    return SemanticsCheck(**{**fields, **changes})


def make_results() -> list[Result]:
    """Something of every part."""
    return [
        ArmFound(arm="gloo", implementation="ProcessGroupGloo (gloo)", device="cpu", reason=None),
        *make_ways(),
        *(make_first(dst, epoch) for dst in (1, 2) for epoch in range(_EPOCHS)),
        *(make_peers(epoch) for epoch in range(_EPOCHS)),
        *(
            make_peers(epoch, beside="all_reduce", beside_us=[100.0, 100.0], total_us=[110.0, 112.0])
            for epoch in range(_EPOCHS)
        ),
        make_cell(),
        make_cell("batched", 8, "completed"),
        make_cell("batched", 1 << 20, "completed"),
        make_cell("isend-recv", 8, "completed"),
        make_cell("isend-recv", 1 << 20, "raised"),
        make_cell("isend-recv", 4096, "completed"),
        make_check(),
        make_check("call-time", "as-documented", said="wrong by a factor of 156", value=156.0),
        make_check("wait", "not-here", said="tensors are on the CPU", value=None),
        LeftOut(part="semantics", arm="nccl2", reason="its cells take 2 GPUs"),
    ]


def make_p2p(
    folder: Path = Path("results/p2p"),
    results: Sequence[Result] | None = None,
    label: str | None = None,
    **meta: Any,
) -> Run:
    """A complete run of three ranks."""
    plan = unplanned((Arm("gloo", "gloo"),), 3)
    return Run(
        folder=folder,
        meta={
            "schema": 1,
            "kind": "p2p",
            "ncclbench": "0.1.0",
            "label": label,
            "created": "2026-11-29T15:50:00Z",
            "command": ["ncclbench", "p2p"],
            "plan": plan.to_json(),
            "asked": {"parts": "ways,first,ordering", "sizes": "8,4K,1M", "epochs": 3},
            "status": "complete",
            "message": None,
            "environment": {
                "hosts": [make_host(0)],
                "ranks": [{"rank": rank, "host": 0, "local_rank": rank} for rank in range(3)],
            },
            "preflight": [],
            "attempts": [],
            **meta,
        },
        plan=plan,
        results=list(make_results() if results is None else results),
    )


def written(path: Path, run: Run) -> Path:
    """The run's folder, through the real writer."""
    with RunFolder.create(path) as opened:
        opened.write_meta(run.meta)
        with opened.samples() as samples:
            samples.append(b"".join(map(encode_line, run.results)))
    return path
