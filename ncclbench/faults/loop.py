"""A rank's operations: all_reduce with checked data, waited for so that word of a fault gets through."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from ncclbench.faults.stamps import Seat
from ncclbench.faults.talk import Fail, Form, Order, Pause
from ncclbench.worker.device import Device

_SHORTEST_LOOK_S = 20e-6
_LONGEST_LOOK_S = 1e-3
# Of a bandwidth: operations that are not counted, then those that are.
_WARMUP = 3
_TIMED = 12
# Sums of such values over any number of ranks that a host takes are exact in float32.
_PATTERN = 11
_VALUES = 7


class Told(Exception):
    """The orchestrator says that somebody has failed."""


class Loop:
    """The operations of one rank in the group it is in.

    In every all_reduce each member sends a pattern plus a value of its own for that step, and the sum shows
    whether exactly the members have taken part. The first element is 0, or 1 where rank 0 wants a pause.
    """

    def __init__(
        self, rank: int, nbytes: int, device: Device, pipe: Connection, seat: Seat, blocking: bool
    ) -> None:
        """``rank``: the number it is known by; ``blocking``: wait as torch does, deaf to everybody."""
        self._rank = rank
        self._device = device
        self._pipe = pipe
        self._seat = seat
        self._blocking = blocking
        count = max(2, nbytes // 4)
        pattern = torch.arange(count, dtype=torch.float32, device=device.torch_device) % _PATTERN
        self._pattern = pattern
        self._buffer = torch.empty_like(pattern)
        self._members: tuple[int, ...] = ()
        self._is_first = False
        self._turn = 0
        self._wants_pause = False

    def enter(self, order: Form) -> None:
        """The group is another one; all its members begin to count anew."""
        self._members = order.members
        self._is_first = order.members[0] == self._rank
        self._turn = 0
        self._wants_pause = False

    def checked(self) -> tuple[bool, bool]:
        """One all_reduce, checked: whether the sums are right, and whether it asked for a pause.

        Raises:
            Told: while it waited.
            RuntimeError: from torch.
        """
        turn = self._turn
        self._turn += 1
        self._fill(self._rank, turn)
        self._buffer[0] = 1.0 if self._wants_pause and self._is_first else 0.0
        before = time.monotonic_ns()
        self._reduce()
        self._seat.stepped(time.monotonic_ns() - before)
        pauses = bool(self._buffer[0] > 0.5)
        values = sum(_value(member, turn) for member in self._members)
        expected = self._pattern[1:] * len(self._members) + values
        correct = torch.equal(self._buffer[1:], expected)
        if not correct:
            self._seat.wrong()
        return correct, pauses

    def burst(self) -> float:
        """Seconds of one all_reduce where one follows the other.

        Raises:
            Told, RuntimeError: as ``checked``.
        """
        self._buffer.zero_()
        for _ in range(_WARMUP):
            self._reduce()
        before = time.monotonic_ns()
        for _ in range(_TIMED):
            self._reduce()
        return (time.monotonic_ns() - before) / 1e9 / _TIMED

    def _fill(self, rank: int, turn: int) -> None:
        torch.add(self._pattern, _value(rank, turn), out=self._buffer)

    def _reduce(self) -> None:
        work = dist.all_reduce(self._buffer, async_op=True)
        if not self._blocking:
            self._watch(work)
        work.wait()
        self._device.synchronize()
        self._seat.beat()

    def _watch(self, work: Any) -> None:
        """Return when the operation is over, well or not."""
        look_s = _SHORTEST_LOOK_S
        while not work.is_completed():
            if self._pipe.poll(look_s):
                self.hear(self._pipe.recv())
            self._seat.beat()
            look_s = min(look_s * 1.5, _LONGEST_LOOK_S)

    def hear(self, order: Order) -> None:
        """Take an order that came while stepping.

        Raises:
            Told: it is that somebody has failed.
        """
        if isinstance(order, Fail):
            raise Told(f"rank {order.rank} has failed")
        if isinstance(order, Pause):
            self._wants_pause = True

    def listen(self) -> None:
        """Take what has come, without waiting.

        Raises:
            Told: as ``hear``.
        """
        while self._pipe.poll(0):
            self.hear(self._pipe.recv())


def _value(rank: int, turn: int) -> int:
    return rank + 1 + turn % _VALUES
