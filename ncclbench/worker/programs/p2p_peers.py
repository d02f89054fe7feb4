"""Messages from rank 0 to several peers at once, and beside a collective of the same group."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ncclbench.worker.device import Device
from ncclbench.worker.fence import Fence
from ncclbench.worker.patterns import Pattern
from ncclbench.worker.programs.bench import Bench
from ncclbench.worker.programs.p2p_groups import Groups

# What takes turns: all of it at once, what that is held against, and the collective alone.
TOGETHER, AGAINST, BESIDE = range(3)

_SHIFT = 7_919
_WARMUP = 2


class Peers:
    """One rank's part in messages to several peers."""

    def __init__(self, bench: Bench, fence: Fence, groups: Groups, seed: int) -> None:
        self._bench = bench
        self._fence = fence
        self._groups = groups
        self._seed = seed
        self._passes = 0

    def run(self, order: dict[str, Any]) -> tuple[NDArray[np.float64], int] | None:
        """Repetitions of one case, its kinds taking turns.

        Args:
            order: ``arm``: its index; ``nbytes``; ``peers``: ranks that are sent to at the same time;
                ``beside``: whether an all_reduce of as many bytes runs meanwhile; ``iterations``; ``check``:
                passes with checked data before and after.

        Returns:
            on rank 0: shape (3, iterations): the last rank's time of each kind since the fence, microseconds,
            0 for a kind that there is not; and messages and results of the collective that were wrong.
            None elsewhere.
        """
        device = self._bench.device(self._groups.arms[order["arm"]])
        pattern = Pattern("uint8", None, self._bench.nranks, self._seed, device.torch_device)
        case = _Case(self._bench, device, self._groups.get(order["arm"]), pattern, order)
        kinds = (TOGETHER, AGAINST, BESIDE) if order["beside"] else (TOGETHER, AGAINST)
        times = np.zeros((3, order["iterations"]))
        wrong = np.zeros(1)
        for _ in range(order["check"]):
            wrong += self._checked(case)
        for repetition in range(-_WARMUP, order["iterations"]):
            # Another one is first in each repetition: what comes first finds other caches.
            for kind in np.roll(kinds, repetition).tolist():
                self._bench.place.step()
                self._fence()
                took_us = case.run(kind, repetition)
                if repetition >= 0:
                    times[kind, repetition] = took_us
        for _ in range(order["check"]):
            wrong += self._checked(case)
        gathered, wrongs = self._bench.gather(times), self._bench.gather(wrong)
        if gathered is None or wrongs is None:
            return None
        return gathered.max(axis=0), round(float(wrongs.sum()))

    def _checked(self, case: _Case) -> int:
        """All of it at once with fresh data: how much of what arrived here is wrong."""
        self._bench.place.step()
        self._passes += 1
        case.fill(self._passes * _SHIFT)
        self._fence()
        case.run(TOGETHER, 0)
        return case.wrong(self._passes * _SHIFT)


class _Case:
    """One rank's buffers and calls; a rank that has none of a kind is done at once."""

    def __init__(
        self, bench: Bench, device: Device, group: Any, pattern: Pattern, order: dict[str, Any]
    ) -> None:
        nbytes, self._peers = order["nbytes"], list(order["peers"])
        self._rank, self._nranks = bench.rank, bench.nranks
        self._device, self._group, self._pattern = device, group, pattern
        self._beside = bool(order["beside"])
        where = device.torch_device
        rows = len(self._peers) if self._rank == 0 else 1
        self._buffers = torch.empty((rows, nbytes), dtype=torch.uint8, device=where)
        self._reduced = torch.empty(max(1, nbytes // 4), dtype=torch.float32, device=where)
        self.fill(0)

    def fill(self, shift: int) -> None:
        """Fresh data: each peer gets its own."""
        for number, buffer in enumerate(self._buffers):
            if self._rank == 0:
                self._pattern.fill(buffer, self._peers[number], shift)
            else:
                buffer.fill_(0)
        # Each element is the largest on one rank. Their maximum stays what it is, however often it is taken.
        places = torch.arange(self._reduced.numel(), dtype=torch.int32, device=self._reduced.device)
        self._reduced.copy_(places.add_(self._rank).remainder_(self._nranks))
        self._device.synchronize()

    def wrong(self, shift: int) -> int:
        """How many are wrong of the message that arrived here and the result of the collective."""
        wrong = int(self._beside and not bool((self._reduced == self._nranks - 1).all()))
        if self._rank in self._peers:
            wrong += int(self._pattern.count_wrong(self._buffers[0], self._rank, 0, shift) > 0)
        return wrong

    def run(self, kind: int, repetition: int) -> float:
        """Issue it and wait for it; microseconds, 0 where this rank has nothing to do."""
        alone = not self._beside and kind == AGAINST
        peers = [self._peers[repetition % len(self._peers)]] if alone else self._peers
        sends = kind != BESIDE and (self._rank == 0 or self._rank in peers)
        reduces = self._beside and kind != AGAINST
        if not (sends or reduces):
            return 0.0
        began = self._device.now_ns()
        works: list[Any] = []
        if sends:
            works += self._messages(peers)
        if reduces:
            works.append(
                dist.all_reduce(self._reduced, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
            )
        for work in works:
            work.wait()
        self._device.synchronize()
        return (self._device.now_ns() - began) / 1e3

    def _messages(self, peers: list[int]) -> list[Any]:
        if self._rank != 0:
            return [dist.irecv(self._buffers[0], group=self._group, group_src=0)]
        buffers = [self._buffers[self._peers.index(peer)] for peer in peers]
        return [
            dist.isend(buffer, group=self._group, group_dst=peer)
            for buffer, peer in zip(buffers, peers, strict=True)
        ]
