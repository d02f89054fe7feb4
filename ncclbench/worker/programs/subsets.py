"""Operations on subsets of the ranks: what is as fast without somebody as it should be with them."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ncclbench.plan.model import Arm
from ncclbench.tables.backends import find_backend
from ncclbench.worker.compat import backend_name
from ncclbench.worker.device import Device
from ncclbench.worker.programs.bench import Bench


class Subsets:
    """One rank's part in operations on some of the ranks."""

    def __init__(self, bench: Bench, device: Device, arm: Arm) -> None:
        self._bench = bench
        self._device = device
        self._backend = find_backend(arm.backend)

    def run(self, order: dict[str, Any]) -> NDArray[np.float64] | None:
        """One group after the other.

        Args:
            order: ``groups``: lists of ranks; ``op``: "all_reduce" or "all_to_all"; ``nbytes``: the larger of
                send and receive bytes; ``iterations`` in each group.

        Returns:
            on rank 0, shape (nranks, groups, iterations): microseconds, NaN where a rank is no member; None
            elsewhere.
        """
        found = np.full((len(order["groups"]), order["iterations"]), np.nan)
        for number, ranks in enumerate(order["groups"]):
            self._bench.place.step()
            # Every rank calls it, members or not: that is new_group's rule.
            group = dist.new_group(
                ranks,
                backend=backend_name(self._backend),
                timeout=timedelta(seconds=self._bench.timeout_s),
                group_desc="ncclbench:subset",
            )
            if self._bench.rank in ranks:
                found[number] = self._times(group, len(ranks), order)
                dist.destroy_process_group(group)
        self._bench.control.maximum(0)
        return self._bench.gather(found)

    def _times(self, group: Any, members: int, order: dict[str, Any]) -> NDArray[np.float64]:
        elements = max(members, order["nbytes"] // 4 // members * members)
        send = torch.ones(elements, device=self._device.torch_device)
        recv = torch.empty_like(send)
        times = np.zeros(1 + order["iterations"])
        for number in range(len(times)):
            self._bench.place.step()
            began = time.perf_counter_ns()
            if order["op"] == "all_to_all":
                dist.all_to_all_single(recv, send, group=group)
            else:
                dist.all_reduce(send, op=dist.ReduceOp.MAX, group=group)
            self._device.synchronize()
            times[number] = (time.perf_counter_ns() - began) / 1e3
        return times[1:].copy()
