"""Transport runs made of numbers, for tests of what is shown of them: no byte was moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from report_fixtures import make_host

from ncclbench.plan.model import Arm, unplanned
from ncclbench.store.folder import RunFolder
from ncclbench.store.lines import encode_line
from ncclbench.store.model import Run
from ncclbench.store.transfers import (
    TransferFault,
    TransferLatency,
    TransferResult,
    TransferStatus,
    TransferTimes,
)

NBYTES, TENSORS = 1 << 30, 83
# Microseconds until all hold the weights, the trainer is held up, its weights frozen, a generator held up.
USUAL: dict[str, tuple[float, float, float, float]] = {
    "broadcast": (900e3, 890e3, 890e3, 895e3),
    "send-recv": (850e3, 840e3, 840e3, 845e3),
    "cpu-write": (300e3, 300e3, 300e3, 4.0),
    "cpu-read": (290e3, 2.0, 295e3, 288e3),
}
TWO_SIDED = ("broadcast", "send-recv")


def make_times(way: str = "cpu-write", epoch: int = 0, factor: float = 1.0, **changes: Any) -> TransferTimes:
    """One visit, every time ``factor`` times as long as usual."""
    total, trainer, frozen, generator = (time * factor for time in USUAL.get(way, USUAL["cpu-write"]))
    two_sided = way in TWO_SIDED
    fields: dict[str, Any] = {
        "way": way,
        "arm": "gloo" if two_sided else None,
        "nbytes": NBYTES,
        "tensors": TENSORS,
        "generators": 2,
        "epoch": epoch,
        "total_us": [total, total * 1.01],
        "trainer_us": [trainer, trainer],
        "frozen_us": [frozen, frozen],
        "generator_us": [generator, generator],
        "stale_us": None if two_sided else [total * 1.2, total * 1.3],
        "slowdown": None if two_sided else 1.4,
        "steps": 0 if two_sided else 200,
        "torn": 90 if way == "cpu-write" else 0,
        "wrong": 0,
    }
    return TransferTimes(**{**fields, **changes})


def make_results(
    epochs: int = 6, ways: tuple[str, ...] = tuple(USUAL), spread: float = 0.002
) -> list[TransferResult]:
    """Every way in every epoch, some percent apart; small messages, a fault and a way that is missing."""
    generator = np.random.default_rng(7)
    results: list[TransferResult] = [
        TransferStatus(way="nixl-write", arm=None, status="unavailable", reason="needs the package nixl")
    ]
    for epoch in range(epochs):
        for way in ways:
            results.append(make_times(way, epoch, float(np.exp(generator.normal(0, spread)))))
            for size in (8, 4096):
                times = [10.0 + size / 500, 11.0]
                arm = "gloo" if way in TWO_SIDED else None
                results.append(TransferLatency(way=way, arm=arm, nbytes=size, epoch=epoch, total_us=times))
    results.append(
        TransferFault(
            way="cpu-write", fault="peer-dies", outcome="raised", said="process 12 has ended", seconds=0.004
        )
    )
    results.append(
        TransferFault(way="broadcast", fault="timeout", outcome="hung", said="no answer", seconds=15.0)
    )
    return results


def make_transport(
    folder: Path = Path("results/transport"),
    *,
    results: list[TransferResult] | None = None,
    label: str | None = None,
    **meta: Any,
) -> Run:
    """A complete run."""
    plan = unplanned((Arm("gloo", "gloo"),), 3)
    return Run(
        folder=folder,
        meta={
            "schema": 1,
            "kind": "transport",
            "ncclbench": "0.1.0",
            "label": label,
            "created": "2026-11-29T15:50:00Z",
            "command": ["ncclbench", "transport"],
            "plan": plan.to_json(),
            "asked": {"nbytes": NBYTES, "tensors": TENSORS, "generators": 2, "faults": True},
            "status": "complete",
            "message": None,
            "environment": {
                "hosts": [make_host(0)],
                "common": {"usable_cores": 2},
                "ranks": [{"rank": rank, "host": 0, "local_rank": rank} for rank in range(3)],
            },
            "preflight": [],
            "attempts": [],
            **meta,
        },
        plan=plan,
        results=[*(make_results() if results is None else results)],
    )


def written(path: Path, run: Run) -> Path:
    """The run's folder, through the real writer."""
    with RunFolder.create(path) as opened:
        opened.write_meta(run.meta)
        with opened.samples() as samples:
            samples.append(b"".join(map(encode_line, run.results)))
    return path
