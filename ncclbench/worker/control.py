"""The control plane: a gloo group on the CPU that agrees and gathers; never used inside the clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed import DebugLevel, get_debug_level, set_debug_level  # type: ignore[attr-defined]

from ncclbench.environ import set_variables, unset, variable

# Of so many ranks on gloo connects only those that have something to say to each other.
LAZY_FROM = 128
_LAZY = "TORCH_GLOO_LAZY_INIT"


@contextlib.contextmanager
def _few_connections(nranks: int) -> Iterator[None]:
    """Let gloo connect many ranks only as they first talk, as long as the context is open.

    Otherwise each connects to every other one and reads from the store where each of them is, in an
    entry that is as long as there are ranks: 16 ranks make 256 reads of 282 bytes (torch 2.15), lazily 32 of
    154. The arms get what is set.
    """
    if nranks < LAZY_FROM or variable(_LAZY) is not None:
        yield
        return
    set_variables({_LAZY: "1"})
    try:
        yield
    finally:
        unset(_LAZY)


class ControlPlane:
    """The default process group, and what the ranks agree on over it.

    Attributes:
        rank, nranks: this worker's place.
        clock_offset_ns: add to this rank's clock to read rank 0's; 0 where ranks share a host.
        clock_error_ns: how wrong that may be.
        shared_clock: all ranks read one clock.
    """

    def __init__(self, store: Any, rank: int, nranks: int, timeout_s: float) -> None:
        self.rank = rank
        self.nranks = nranks
        self.clock_offset_ns = 0
        self.clock_error_ns = 0
        self.shared_clock = True
        # TORCH_DISTRIBUTED_DEBUG=DETAIL makes a group check itself through the store, which hangs where
        # only some ranks have it set. The arms get what is set; this group finds out and says so.
        asked = get_debug_level()
        set_debug_level(DebugLevel.OFF)
        with _few_connections(nranks):
            dist.init_process_group(
                "gloo", store=store, rank=rank, world_size=nranks, timeout=timedelta(seconds=timeout_s)
            )
        set_debug_level(asked)

    def close(self) -> None:
        """End the default group."""
        dist.destroy_process_group()

    def gather(self, thing: Any) -> list[Any] | None:
        """Every rank's plain data, in rank order, on rank 0; None elsewhere."""
        everybody: list[Any] | None = [None] * self.nranks if self.rank == 0 else None
        dist.gather_object(thing, everybody, dst=0)
        return everybody

    def share(self, thing: Any) -> Any:
        """Rank 0's plain data, on every rank."""
        box = [thing if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def maximum(self, *values: int) -> list[int]:
        """Elementwise maximum over ranks."""
        tensor = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return [int(value) for value in tensor]

    def first_reason(self, reason: str | None) -> str | None:
        """The reason of the first rank that has one, None where none has; the same on every rank."""
        (found,) = self.maximum(int(reason is not None))
        if not found:
            return None
        reasons = self.gather(reason)
        return str(self.share(next(text for text in reasons if text) if reasons else None))

    def gather_array(self, array: NDArray[np.int64]) -> list[NDArray[np.int64]] | None:
        """Arrays of one shape, in rank order, on rank 0; None elsewhere."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self.rank != 0:
            dist.gather(tensor, dst=0)
            return None
        parts = [torch.empty_like(tensor) for _ in range(self.nranks)]
        dist.gather(tensor, parts, dst=0)
        return [part.numpy() for part in parts]

    def times_of_day(self) -> list[float]:
        """Seconds since 1970 on this rank's clock, before and after one moment that is the same for all."""
        dist.barrier()  # else whoever comes early to the second has waited in it for long
        before_s = time.time()
        dist.barrier()
        return [round(before_s, 6), round(time.time(), 6)]

    def synchronise_clocks(self, hosts: Sequence[int]) -> None:
        """Learn how this rank's clock differs from rank 0's.

        Args:
            hosts: per rank, a number that is equal for ranks that share a clock (one booted kernel).

        The first rank of every other host exchanges messages with rank 0; half the shortest round
        trip bounds the error (Cristian 1989). Ranks of one host share CLOCK_MONOTONIC exactly.
        """
        self.shared_clock = len(set(hosts)) == 1
        if self.shared_clock:
            return
        leaders = {host: rank for rank, host in reversed(list(enumerate(hosts)))}
        offsets = torch.zeros(2 * self.nranks, dtype=torch.int64)
        told: dict[int, tuple[int, int]] = {}
        for host, leader in sorted(leaders.items(), key=itemgetter(1)):
            if leader == 0:
                continue
            if self.rank == 0:
                told[host] = self._ask(leader)
            elif self.rank == leader:
                self._answer()
        if self.rank == 0:
            for rank, host in enumerate(hosts):
                offset, error = told.get(host, (0, 0))
                offsets[2 * rank], offsets[2 * rank + 1] = -offset, error
        dist.broadcast(offsets, src=0)
        self.clock_offset_ns = int(offsets[2 * self.rank])
        self.clock_error_ns = int(offsets[1::2].max())

    def _ask(self, peer: int, exchanges: int = 12) -> tuple[int, int]:
        """(peer's clock minus ours, largest error) in nanoseconds."""
        message = torch.zeros(1, dtype=torch.int64)
        best = (0, 1 << 62)
        for _ in range(exchanges):
            sent = time.perf_counter_ns()
            dist.send(message, dst=peer)
            dist.recv(message, src=peer)
            received = time.perf_counter_ns()
            half = (received - sent) // 2
            if half < best[1]:
                best = (int(message[0]) - (sent + half), half)
        return best

    def _answer(self, exchanges: int = 12) -> None:
        message = torch.zeros(1, dtype=torch.int64)
        for _ in range(exchanges):
            dist.recv(message, src=0)
            message[0] = time.perf_counter_ns()
            dist.send(message, dst=0)
