"""The fence: what aligns ranks before a timed operation, one for all arms of a run."""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist

from ncclbench.worker.board import Gate
from ncclbench.worker.control import ControlPlane

# Calls from which the spin is calibrated, and its bounds: long enough that nearly everybody has left
# the control plane's exchange, short enough to cost little.
_CALIBRATION_CALLS = 30
_LEAST_SPIN_NS = 30_000
_LARGEST_SPIN_NS = 5_000_000


class Fence(Protocol):
    """Returns at nearly the same moment on every rank.

    Attributes:
        kind: its name in run.json.
    """

    kind: str

    def __call__(self) -> None: ...


class GateFence:
    """Where one supervisor has forked all ranks: a gate in memory they share.

    It wakes no thread and sends no message, so nothing of it is still going on when the clock starts.
    """

    kind = "shared memory"

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __call__(self) -> None:
        self._gate()


class ControlPlaneFence:
    """Between supervisors: one exchange on the control plane tells that everybody has come, then all spin.

    Where they share a clock they spin to one agreed moment, elsewhere for one agreed time.
    """

    kind = "control plane"

    def __init__(self, control: ControlPlane) -> None:
        """Collective: calibrates the spin, the same on every rank."""
        self._shared_clock = control.shared_clock
        self._moment = torch.zeros(1, dtype=torch.int64)
        self._moment_view = self._moment.numpy()
        self._spin_ns = _LEAST_SPIN_NS
        durations = []
        for _ in range(_CALIBRATION_CALLS):
            before = time.perf_counter_ns()
            dist.all_reduce(self._moment, op=dist.ReduceOp.MAX)
            durations.append(time.perf_counter_ns() - before)
        (usual,) = control.maximum(int(np.quantile(durations, 0.8)))
        self._spin_ns = min(max(usual, _LEAST_SPIN_NS), _LARGEST_SPIN_NS)

    def __call__(self) -> None:
        now = time.perf_counter_ns
        self._moment_view[0] = now() + self._spin_ns
        dist.all_reduce(self._moment, op=dist.ReduceOp.MAX)
        until = int(self._moment_view[0]) if self._shared_clock else now() + self._spin_ns
        while now() < until:
            pass


def make_fence(gate: Gate | None, control: ControlPlane) -> Fence:
    """The fence of a run; every rank gets one of the same kind."""
    return ControlPlaneFence(control) if gate is None else GateFence(gate)
