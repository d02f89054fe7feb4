"""What the plan says of memory, against the most that a worker really had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sweeping import SWEEP, Running, alive

from ncclbench.plan import memory
from ncclbench.plan.model import Arm
from ncclbench.store.reader import load_run
from ncclbench.tables.backends import BACKENDS
from ncclbench.tables.collectives import COLLECTIVES

_MIB = 1 << 20
_NBYTES = 64 * _MIB


def test_copies_are_of_operations_that_there_are() -> None:
    for backend in BACKENDS.values():
        assert set(backend.copies) <= set(COLLECTIVES)


def _worker_peak_bytes(op: str, folder: Path) -> tuple[int, int]:
    """The most memory that rank 0's worker has had, and what was planned for it."""
    options = ("--ops", op, "--sizes", str(_NBYTES), "--modes", "isolated", "-n", "3", "--epochs", "1")
    peak = 0
    with Running(*SWEEP, *options, "--backends", "gloo", "--nproc-per-node", "2", "--out", folder) as running:
        (worker,) = running.workers(2)[:1]
        while alive(worker):
            try:
                status = Path(f"/proc/{worker.pid}/status").read_text()
            except OSError:
                break
            found = [line for line in status.splitlines() if line.startswith("VmHWM")]
            peak = max(peak, *(int(line.split()[1]) << 10 for line in found), 0)
        assert running.wait().code == 0
    return peak, load_run(folder).plan.bytes_per_rank


@pytest.mark.full
def test_gloos_copies_are_planned_as_large_as_they_are(tmp_path: Path) -> None:
    # all_reduce takes no copy: what its worker has beside the plan every worker has.
    peak, planned = _worker_peak_bytes("all_reduce", tmp_path / "all_reduce")
    beside = peak - planned
    for op in ("all_gather", "reduce_scatter"):
        peak, planned = _worker_peak_bytes(op, tmp_path / op)
        assert abs(peak - planned - beside) < _NBYTES / 2, op
    plan = load_run(tmp_path / "all_gather").plan
    without = memory.case_bytes(plan.planned[0], plan.rotation_bytes)
    assert plan.bytes_per_rank == without + _NBYTES
    # Buffers of workers are no larger for it, and other backends have no such copy.
    assert memory.pool_bytes(plan) == without - memory.PATTERN_BYTES
    other = replace(plan, arms=(Arm("nccl2", "nccl2"),))
    backends = [BACKENDS[arm.backend] for arm in other.arms]
    assert memory.case_bytes(plan.planned[0], plan.rotation_bytes, backends) == without
