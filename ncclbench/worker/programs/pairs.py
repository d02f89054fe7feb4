"""Pairs of ranks: latency, bandwidth each way alone, and both ways at once."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ncclbench.worker.device import Device
from ncclbench.worker.programs.bench import Bench

# What a rank reports of a pair: half a round trip, its own way alone, the way to it beside its own, and
# whether what it received was wrong.
LATENCY_US, OUT_GBS, BOTH_IN_GBS, WRONG = range(4)
_FIELDS = 4

_PINGS = 12
_WARM_PINGS = 3

# No test is longer than this many messages, however fast the link.
_MOST_MESSAGES = 1024

# A test is cut into so many pieces where it has the messages, and the fastest counts: a process that has to
# wait for its core makes a link look slower and never faster than it is.
_PIECES = 16
_MOST_AT_ONCE = 16


@dataclass(slots=True)
class _Way:
    """One direction of a pair as its sender knows it: bytes per second, from the test before."""

    rate: float | None = None


class Pairs:
    """One rank's part in the pair tests."""

    def __init__(self, bench: Bench, device: Device, group: Any, seed: int) -> None:
        self._bench = bench
        self._device = device
        self._group = group
        self._seed = seed
        self._ways: dict[int, _Way] = {}
        self._out = self._in = torch.empty(0)
        self._word = torch.zeros(1, dtype=torch.int64, device=device.torch_device)

    def run(self, order: dict[str, Any]) -> NDArray[np.float64] | None:
        """One pass over all rounds.

        Args:
            order: ``rounds``: lists of (a, b); ``message_bytes``; ``target_s``: how long a test should take.

        Returns:
            on rank 0, shape (nranks, rounds, 4): what each rank has of its pair in each round, NaN where it
            had none; None elsewhere.
        """
        self._make_buffers(order["message_bytes"])
        found = np.full((len(order["rounds"]), _FIELDS), np.nan)
        for number, pairs in enumerate(order["rounds"]):
            self._fence()
            for a, b in pairs:
                if self._bench.rank in (a, b):
                    found[number] = self._pair(a, b, order["target_s"])
        self._fence()
        return self._bench.gather(found)

    def _make_buffers(self, nbytes: int) -> None:
        if self._out.numel() == nbytes:
            return
        self._out = self._pattern(self._bench.rank, nbytes)
        self._in = torch.empty_like(self._out)

    def _pattern(self, rank: int, nbytes: int) -> torch.Tensor:
        """What a rank sends: random bytes, which every other rank can make as well."""
        random = np.random.default_rng((self._seed, rank))
        return torch.from_numpy(random.integers(0, 256, nbytes, dtype=np.uint8)).to(self._device.torch_device)

    def _fence(self) -> None:
        self._bench.place.step()
        self._bench.control.maximum(0)

    def _pair(self, a: int, b: int, target_s: float) -> list[float]:
        """All tests of a pair; both call it, and each returns what it knows of its own way."""
        mine, peer = self._bench.rank, b if self._bench.rank == a else a
        latency_us = self._ping(peer, first=mine == a)
        wrong = 0.0
        alone_GBs = math.nan
        for source in (a, b):
            if source == mine:
                alone_GBs = self._send(peer, target_s)
            else:
                wrong += self._receive(peer)
            self._bench.place.step()
        both_GBs = self._exchange(peer, target_s)
        self._bench.place.step()
        return [latency_us, alone_GBs, both_GBs, wrong]

    def _ping(self, peer: int, first: bool) -> float:
        """Half of the median round trip of 8 bytes, microseconds; the clock is the first one's."""
        ball = torch.zeros(1, dtype=torch.int64, device=self._device.torch_device)
        trips = []
        for _ in range(_PINGS):
            began = time.perf_counter_ns()
            if first:
                dist.send(ball, peer, group=self._group)
                dist.recv(ball, peer, group=self._group)
            else:
                dist.recv(ball, peer, group=self._group)
                dist.send(ball, peer, group=self._group)
            self._device.synchronize()
            trips.append(time.perf_counter_ns() - began)
        return float(np.median(trips[_WARM_PINGS:])) / 2e3

    def _send(self, peer: int, target_s: float) -> float:
        """This way alone, GB/s: the fastest piece, from its first byte until the peer says it holds it."""
        way = self._ways.setdefault(peer, _Way())
        if way.rate is None:
            way.rate = self._timed(peer, 1)
        messages = self._messages(way.rate, target_s)
        pieces = min(_PIECES, messages)
        rates = [self._timed(peer, messages // pieces) for _ in range(pieces)]
        # How long the next test takes is a matter of all pieces.
        way.rate = statistics.harmonic_mean(rates)
        self._tell_count(peer, 0)
        return max(rates) / 1e9

    def _receive(self, peer: int) -> float:
        """The other side of ``_send``; 1 where what came last is not what was sent."""
        self._in.zero_()
        while messages := self._hear_count(peer):
            for _ in range(messages):
                dist.recv(self._in, peer, group=self._group)
            self._device.synchronize()
            self._acknowledge(peer, giving=True)
        return float(not torch.equal(self._in, self._pattern(peer, self._in.numel())))

    def _exchange(self, peer: int, target_s: float) -> float:
        """Both ways at once; the rate of what comes in, GB/s, by the clock of the one who gets it."""
        mine = self._messages(self._ways[peer].rate or math.inf, target_s)
        messages = min(mine, self._swap_counts(peer, mine))
        pieces = min(_PIECES, messages)
        # All of a piece are issued at once, and each takes memory in the library.
        return max(self._cross(peer, min(messages // pieces, _MOST_AT_ONCE)) for _ in range(pieces))

    def _cross(self, peer: int, messages: int) -> float:
        """One piece of it.

        Neither sends before the clock of the other runs: each waits for a word that the other has sent after
        reading its clock. A clock that starts late would make what comes in look faster than it is.
        """
        self._swap_counts(peer, 0)
        self._device.synchronize()
        began = time.perf_counter_ns()
        for work in self._both(peer, torch.zeros_like(self._word), self._word, 1):
            work.wait()
        self._device.synchronize()
        works = self._both(peer, self._in, self._out, messages)
        # One work for all, or one for each in the order given: those that bring something first.
        for work in works[:messages]:
            work.wait()
        self._device.synchronize()
        taken_ns = time.perf_counter_ns() - began
        for work in works[messages:]:
            work.wait()
        self._device.synchronize()
        return messages * self._in.numel() / taken_ns

    def _both(self, peer: int, taken: torch.Tensor, sent: torch.Tensor, messages: int) -> list[Any]:
        """So many messages each way, issued at once; the works that bring something come first."""
        ways = [
            dist.P2POp(dist.irecv, taken, peer, group=self._group),
            dist.P2POp(dist.isend, sent, peer, group=self._group),
        ]
        works: list[Any] = dist.batch_isend_irecv([way for way in ways for _ in range(messages)])
        return works

    def _timed(self, peer: int, messages: int) -> float:
        """Bytes per second of so many messages."""
        self._tell_count(peer, messages)
        self._device.synchronize()
        began = time.perf_counter_ns()
        for _ in range(messages):
            dist.send(self._out, peer, group=self._group)
        self._acknowledge(peer, giving=False)
        taken_ns = time.perf_counter_ns() - began
        return messages * self._out.numel() / (taken_ns / 1e9)

    def _messages(self, rate: float, target_s: float) -> int:
        return max(1, min(_MOST_MESSAGES, round(rate * target_s / self._out.numel())))

    def _tell_count(self, peer: int, count: int) -> None:
        told = torch.tensor([count], dtype=torch.int64, device=self._device.torch_device)
        dist.send(told, peer, group=self._group)

    def _hear_count(self, peer: int) -> int:
        heard = torch.zeros(1, dtype=torch.int64, device=self._device.torch_device)
        dist.recv(heard, peer, group=self._group)
        return int(heard)

    def _swap_counts(self, peer: int, count: int) -> int:
        """Tell and hear; the lower rank speaks first."""
        if self._bench.rank < peer:
            self._tell_count(peer, count)
            return self._hear_count(peer)
        heard = self._hear_count(peer)
        self._tell_count(peer, count)
        return heard

    def _acknowledge(self, peer: int, giving: bool) -> None:
        if giving:
            dist.send(self._word, peer, group=self._group)
        else:
            dist.recv(self._word, peer, group=self._group)
        self._device.synchronize()
