"""Arrivals: work, then an operation in which all wait for all; with no fence, who waits least came last."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ncclbench.worker.device import Device
from ncclbench.worker.programs.bench import Bench
from ncclbench.worker.programs.compute import Compute

# Small enough that the operation itself takes no time beside the waiting.
_ELEMENTS = 256
_WARMUP = 3


class Arrivals:
    """One rank's part in the free-running loop."""

    def __init__(self, bench: Bench, device: Device, group: Any, compute: Compute) -> None:
        self._bench = bench
        self._device = device
        self._group = group
        self._compute = compute

    def run(self, order: dict[str, Any]) -> NDArray[np.float64] | None:
        """The loop.

        Args:
            order: ``iterations``, and ``work_s``: how long the work of each takes on the fastest rank.

        Returns:
            on rank 0, shape (nranks, iterations): microseconds spent in the operation; None elsewhere.
        """
        products = self._compute.products(order["work_s"])
        tensor = torch.ones(_ELEMENTS, device=self._device.torch_device)
        waits = np.zeros(_WARMUP + order["iterations"])
        for number in range(len(waits)):
            self._bench.place.step()
            self._compute.multiply(products)
            began = time.perf_counter_ns()
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._group)
            self._device.synchronize()
            waits[number] = (time.perf_counter_ns() - began) / 1e3
        return self._bench.gather(waits[_WARMUP:].copy())
