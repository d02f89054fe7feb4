"""The compute probe: the same matrix products on every rank, and copies to and from the device."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ncclbench.worker.device import Device
from ncclbench.worker.programs.bench import Bench

# Side and type of the square matrices: half a millisecond on a core, some tens of microseconds on a GPU.
_MATRIX = {"cpu": (256, torch.float32), "cuda": (4096, torch.bfloat16)}
_COPY_BYTES = 64 << 20
_COPIES = 4

_SCHEDSTAT = Path("/proc/thread-self/schedstat")

# What a rank reports: one product, and the copies in GB/s (NaN where there is no device to copy to).
COMPUTE_US, TO_DEVICE_GBS, FROM_DEVICE_GBS = range(3)


class Compute:
    """One rank's part in the compute probe."""

    def __init__(self, bench: Bench, device: Device, request: dict[str, Any]) -> None:
        """A slowdown on purpose: ``request["slowed"]`` has by rank the factor on its compute."""
        self._bench = bench
        self._device = device
        self._factor = float(request.get("slowed", {}).get(str(bench.rank), 1.0))
        side, dtype = _MATRIX[device.kind]
        random = torch.Generator().manual_seed(int(request["seed"]))
        # Random data: zeros run faster than real ones.
        self._a = torch.rand(side, side, generator=random).to(device.torch_device, dtype)
        self._b = torch.rand(side, side, generator=random).to(device.torch_device, dtype)
        self._c = torch.empty_like(self._a)
        self._fastest_us: float | None = None
        if device.kind == "cpu":
            # One core of each rank is enough to tell which is slow, and more may be shared with others.
            torch.set_num_threads(1)

    def run(self, order: dict[str, Any]) -> NDArray[np.float64] | None:
        """One pass: the ranks of each turn at the same time, turn after turn.

        Args:
            order: ``turns``: lists of ranks; ``target_s``: how long the work of each should take.

        Returns:
            on rank 0, shape (nranks, 3); None elsewhere.
        """
        products = self.products(order["target_s"])
        found = np.full(3, np.nan)
        for ranks in order["turns"]:
            self._bench.place.step()
            self._bench.control.maximum(0)
            if self._bench.rank in ranks:
                found[COMPUTE_US] = self.multiply(products) / products
                if self._device.kind == "cuda":
                    found[TO_DEVICE_GBS], found[FROM_DEVICE_GBS] = self._copy()
        self._bench.control.maximum(0)
        return self._bench.gather(found)

    def products(self, target_s: float) -> int:
        """How many products take so long on the fastest rank: all ranks do the same work."""
        if self._fastest_us is None:
            self.multiply(4)
            one_us = min(self.multiply(4) for _ in range(3)) / 4 / self._factor
            # The minimum is the negative of the maximum of negatives.
            (negative_ns,) = self._bench.control.maximum(-round(one_us * 1e3))
            self._fastest_us = max(1, -negative_ns) / 1e3
        return max(1, round(target_s * 1e6 / self._fastest_us))

    def multiply(self, products: int) -> float:
        """So many products one after the other; microseconds, less what the thread waited for a core.

        Whoever shares a core with others' work is no slow rank for that; a stopped process waits for none.
        """
        self._device.synchronize()
        # The clock is the outer of the two readings, so that no wait is taken off that it does not hold.
        began = time.perf_counter_ns() - _waited_ns()
        for _ in range(products):
            torch.mm(self._a, self._b, out=self._c)
        self._device.synchronize()
        taken_ns = -_waited_ns() + time.perf_counter_ns() - began
        if self._factor > 1:
            time.sleep(taken_ns * (self._factor - 1) / 1e9)
        return (-_waited_ns() + time.perf_counter_ns() - began) / 1e3

    def _copy(self) -> tuple[float, float]:
        """To the device and back, pinned memory, GB/s."""
        host = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
        there = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=self._device.torch_device)
        rates = []
        for target, source in ((there, host), (host, there)):
            target.copy_(source, non_blocking=True)
            self._device.synchronize()
            began = time.perf_counter_ns()
            for _ in range(_COPIES):
                target.copy_(source, non_blocking=True)
            self._device.synchronize()
            rates.append(_COPIES * _COPY_BYTES / (time.perf_counter_ns() - began))
        return rates[0], rates[1]


def _waited_ns() -> int:
    """How long this thread has been ready to run and had no core; 0 where the kernel does not tell.

    The second number of /proc/PID/schedstat (Documentation/scheduler/sched-stats.rst of Linux).
    """
    try:
        return int(_SCHEDSTAT.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
