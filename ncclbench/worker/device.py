"""The device interface: where tensors live and how their work is timed. And its CPU implementation.

Everything above this interface is the same for a GPU and a CPU, and is tested without a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from ncclbench.environment.throttle import Glance
from ncclbench.tables.collectives import Call, Works


class Event(Protocol):
    """A point on the device's current stream."""

    def record(self) -> None:
        """Put the point behind everything issued so far."""


EventPair = tuple[Event, Event]


class Done(Protocol):
    """When asynchronous operations were done."""

    def us_since(self, start: Event, start_ns: int) -> float | None:
        """Microseconds since a start that both clocks took, once all is over; None where it cannot be seen.

        Args:
            start: recorded event; ``start_ns``: the host's clock then.
        """


# Begins to watch for the end of what was issued, beside whatever the caller and its stream do meanwhile.
Watch = Callable[[Sequence[Any]], Done]


class Replay(Protocol):
    """Operations captured once and replayed as one."""

    def __call__(self) -> Works:
        """Issue them all; nothing is left to wait for."""

    def reset(self) -> None:
        """Let go of them; must come before their process group goes."""


class Device(Protocol):
    """Where an arm's tensors live.

    Attributes:
        kind: "cpu" or "cuda".
        torch_device: for tensors and groups.
        now_ns: host clock, nanoseconds, monotonic.
        has_device_clock: events measure; without it the host's total time is what counts.
    """

    kind: str
    torch_device: torch.device
    now_ns: Callable[[], int]
    has_device_clock: bool

    def event_pairs(self, count: int) -> list[EventPair]:
        """Start and end events for ``count`` samples, made outside the clock."""

    def enter_thread(self) -> None:
        """Make it the current one of this thread too; the thread that made it has it already."""

    def synchronize(self) -> None:
        """Return when everything issued is done."""

    def watches(self, count: int) -> list[Watch]:
        """So many, for one use each, that do not see each other; made outside the clock, called inside."""

    def delay(self, delay_ns: int) -> None:
        """Be busy for so long, in the order of what was issued: the CPU itself, or the current stream."""

    def elapsed_us(self, pair: EventPair) -> float:
        """Device time between a pair of events that have both passed."""

    def capture(self, calls: Sequence[Call]) -> Replay:
        """Capture the calls, which have run before, into one graph.

        Raises:
            RuntimeError: this device has no graphs, or the operation cannot be captured.
        """

    def read_health(self) -> Glance | None:
        """Whether something holds the device back just now; None where nothing can be read.

        Outside the clock only. It may hang on a sick GPU: the supervisor's watch on progress sees to that.
        """


class _NoEvent:
    """Keeps the timed loop the same where there is no device clock."""

    def record(self) -> None:
        pass


class _HostDone:
    """A callback of each Work takes the time, in the thread that ends it."""

    def __init__(self, works: Sequence[Any], now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._ends_ns: list[int] = []
        self._left = len(works)
        try:
            for work in works:
                work.get_future().add_done_callback(self._one_is_done)
        except RuntimeError:  # a Work that has no future, as gloo's of send and receive
            self._left = -1

    def _one_is_done(self, future: object) -> None:
        self._ends_ns.append(self._now_ns())

    def us_since(self, start: Event, start_ns: int) -> float | None:
        if self._left < 1 or len(self._ends_ns) != self._left:
            return None
        return (max(self._ends_ns) - start_ns) / 1e3


class CpuDevice:
    """Host memory and the host's clock: an operation is done when its call, or wait(), returns."""

    kind = "cpu"
    has_device_clock = False

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        self.now_ns = time.perf_counter_ns

    def event_pairs(self, count: int) -> list[EventPair]:
        pair = (_NoEvent(), _NoEvent())
        return [pair] * count

    def enter_thread(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def watches(self, count: int) -> list[Watch]:
        return [partial(_HostDone, now_ns=self.now_ns)] * count

    def delay(self, delay_ns: int) -> None:
        end_ns = self.now_ns() + delay_ns
        while self.now_ns() < end_ns:
            pass

    def elapsed_us(self, pair: EventPair) -> float:
        raise RuntimeError("the CPU has no device clock")

    def capture(self, calls: Sequence[Call]) -> Replay:
        raise RuntimeError("graph mode needs CUDA")

    def read_health(self) -> None:
        return None
