"""The ways of sending between ranks 0 and 1: how long each holds the host, and until when it is done."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ncclbench.plan.memory import ALIGNMENT, rotation_bytes, slot_count
from ncclbench.tables.ways import WAYS, Act, Works
from ncclbench.worker.device import Device
from ncclbench.worker.fence import Fence
from ncclbench.worker.patterns import Pattern
from ncclbench.worker.programs.bench import Bench
from ncclbench.worker.programs.p2p_groups import Groups

# Of each repetition: until the calls returned, and until all was done.
HOST_US, TOTAL_US = range(2)

# The two ranks between which every way is timed.
SENDER, RECEIVER = 0, 1

# Shifts the data of each checked pass, as in a sweep.
_SHIFT = 7_919


@dataclass(slots=True)
class Side:
    """One end of the pair, as the entries of WAYS take it (``tables.ways.End``)."""

    out: torch.Tensor
    into: torch.Tensor
    peer: int
    group: Any
    dist: Any


class Buffers:
    """Pairs of an outgoing and an incoming buffer that take turns, so that none is found in the cache."""

    def __init__(self, nbytes: int, device: Device, local_ranks: int, pattern: Pattern, rank: int) -> None:
        stride = -(-nbytes // ALIGNMENT) * ALIGNMENT
        rotation = rotation_bytes("cuda" if device.kind == "cuda" else "cpu", local_ranks)
        self.count = slot_count(2 * stride, rotation)
        self._pool = torch.empty(2 * stride * self.count, dtype=torch.uint8, device=device.torch_device)
        # Never zeros: they may travel faster than data does. And every page is touched outside the clock.
        pattern.fill(self._pool, rank, 0)
        self._stride, self._nbytes = stride, nbytes
        self._turn = 0

    def take(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next pair."""
        at = 2 * self._stride * (self._turn % self.count)
        self._turn += 1
        out, into = self._pool[at:], self._pool[at + self._stride :]
        return out[: self._nbytes], into[: self._nbytes]


class Ways:
    """One rank's part in the ways."""

    def __init__(self, bench: Bench, fence: Fence, groups: Groups, seed: int) -> None:
        self._bench = bench
        self._fence = fence
        self._groups = groups
        self._seed = seed
        self._patterns: dict[str, Pattern] = {}
        self._passes = 0

    def run(self, order: dict[str, Any]) -> tuple[NDArray[np.float64], list[int]] | None:
        """Visit after visit on one size, the epoch's groups taken as they are.

        Args:
            order: ``nbytes``; ``visits``: (index of the arm, name in WAYS, whether as much goes each way) in
                the order of visiting; ``iterations`` of each visit, ``warmup`` before them, and ``check``:
                passes with checked data before and after.

        Returns:
            on rank 0: shape (2, visits, iterations, 2): the times of ranks 0 and 1; and by visit the
            messages that arrived wrong. None elsewhere.
        """
        found = np.zeros((len(order["visits"]), order["iterations"], 2))
        wrong = np.zeros(len(order["visits"]))
        buffers: dict[str, Buffers] = {}
        for number, (arm, way, both) in enumerate(order["visits"]):
            device = self._bench.device(self._groups.arms[arm])
            if device.kind not in buffers:
                buffers[device.kind] = self._buffers(order["nbytes"], device)
            visit = Visit(self, buffers[device.kind], device, self._groups.get(arm), way, both)
            for _ in range(order["check"]):
                wrong[number] += visit.checked()
            for _ in range(order["warmup"]):
                visit.once()
            found[number] = visit.times(order["iterations"])
            for _ in range(order["check"]):
                wrong[number] += visit.checked()
        times = self._bench.gather(found)
        wrongs = self._bench.gather(wrong)
        if times is None or wrongs is None:
            return None
        return times[: RECEIVER + 1], [round(each) for each in wrongs.sum(axis=0)]

    def _buffers(self, nbytes: int, device: Device) -> Buffers:
        return Buffers(nbytes, device, self._bench.task.local_ranks, self.pattern(device), self._bench.rank)

    @property
    def rank(self) -> int:
        """This worker's rank."""
        return self._bench.rank

    def pattern(self, device: Device) -> Pattern:
        """What ranks send: random bytes, which every rank can make for every other."""
        if device.kind not in self._patterns:
            nranks = self._bench.nranks
            self._patterns[device.kind] = Pattern("uint8", None, nranks, self._seed, device.torch_device)
        return self._patterns[device.kind]

    def next_shift(self) -> int:
        """For the data of the next checked pass, the same on every rank."""
        self._passes += 1
        return self._passes * _SHIFT

    def align(self) -> None:
        """Return at nearly the same moment on every rank."""
        self._bench.place.step()
        self._fence()


class Visit:
    """One way, between the two ranks or on a rank that only keeps step."""

    def __init__(
        self, ways: Ways, buffers: Buffers, device: Device, group: Any, name: str, both: bool
    ) -> None:
        way = WAYS[name]
        self._ways = ways
        self._buffers = buffers
        self._device = device
        self._group = group
        self._rank = ways.rank
        self._takes_part = self._rank in (SENDER, RECEIVER)
        self._peer = RECEIVER if self._rank == SENDER else SENDER
        act = way.exchange if both else way.send if self._rank == SENDER else way.recv
        if act is None:
            raise ValueError(f"{name} has no form in which both send at once")
        self._act: Act = act
        # Whose message ends here: on the sender only what comes back, or crosses.
        self._source = self._peer if both or self._rank == RECEIVER else SENDER if way.round_trip else None

    def _side(self) -> Side:
        out, into = self._buffers.take()
        return Side(out, into, self._peer, self._group, dist)

    def once(self) -> None:
        """One untimed repetition."""
        self._ways.align()
        if self._takes_part:
            _finish(self._act(self._side()), self._device)

    def checked(self) -> int:
        """One repetition with fresh data: 1 where what arrived here is wrong."""
        self._ways.align()
        shift = self._ways.next_shift()
        if not self._takes_part:
            return 0
        side, pattern = self._side(), self._ways.pattern(self._device)
        pattern.fill(side.out, self._rank, shift)
        # Neither what was there before nor what comes: a message that never arrives is seen.
        side.into.fill_(0)
        self._device.synchronize()
        _finish(self._act(side), self._device)
        if self._source is None:
            return 0
        return int(pattern.count_wrong(side.into, self._source, 0, shift) > 0)

    def times(self, iterations: int) -> NDArray[np.float64]:
        """Shape (iterations, 2): host and total time of each repetition, microseconds."""
        sides = [self._side() for _ in range(min(iterations, self._buffers.count))]
        times = np.zeros((iterations, 2))
        now, device, act = self._device.now_ns, self._device, self._act
        collecting = gc.isenabled()
        gc.disable()
        try:
            for index in range(iterations):
                side = sides[index % len(sides)]
                self._ways.align()
                if not self._takes_part:
                    continue
                began = now()
                works = act(side)
                returned = now()
                _finish(works, device)
                ended = now()
                times[index] = (returned - began) / 1e3, (ended - began) / 1e3
                del works
        finally:
            if collecting:
                gc.enable()
        return times


def _finish(works: Works, device: Device) -> None:
    for work in works:
        work.wait()
    device.synchronize()
