"""The first message to a peer against later ones, in a group that has sent none yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ncclbench.worker.fence import Fence
from ncclbench.worker.groups import close_group
from ncclbench.worker.programs.bench import Bench
from ncclbench.worker.programs.p2p_groups import Groups


class First:
    """One rank's part in the first messages."""

    def __init__(self, bench: Bench, fence: Fence, groups: Groups) -> None:
        self._bench = bench
        self._fence = fence
        self._groups = groups

    def run(self, order: dict[str, Any]) -> tuple[float, NDArray[np.float64]]:
        """One fresh group; peer after peer gets its first message and some more.

        Args:
            order: ``arm``: its index; ``peers``: of rank 0, in the order of their turns; ``nbytes``;
                ``later``: messages after the first.

        Returns:
            what making the group took on rank 0, and, shape (peers, 1 + later), rank 0's time of each
            message, microseconds; on other ranks nothing of use.
        """
        device = self._bench.device(self._groups.arms[order["arm"]])
        group = self._groups.make(order["arm"], measure_first=False)
        message = torch.zeros(order["nbytes"], dtype=torch.uint8, device=device.torch_device)
        times = np.zeros((len(order["peers"]), 1 + order["later"]))
        for number, peer in enumerate(order["peers"]):
            for repetition in range(times.shape[1]):
                self._bench.place.step()
                self._fence()
                began = device.now_ns()
                if self._bench.rank == 0:
                    dist.send(message, group=group.group, group_dst=peer)
                elif self._bench.rank == peer:
                    dist.recv(message, group=group.group, group_src=0)
                device.synchronize()
                times[number, repetition] = (device.now_ns() - began) / 1e3
        close_group(group)
        return group.init_us, times
