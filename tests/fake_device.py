"""A device with scripted times: a host clock, a stream that runs behind it, events, Works and graphs.

It keeps a log of what was done in which order, so that the logic of timing is tested without a GPU.
Times are nanoseconds of a clock that moves only when something here moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ncclbench.environment.throttle import Glance


class FakeDevice:
    """Launching costs the host ``launch_ns``; the operation then takes its time on its own stream.

    ``wait()`` makes the current stream wait for that stream, and the host does not block, as on CUDA.
    """

    kind = "cuda"
    has_device_clock = True

    def __init__(self, launch_ns: int = 1_000) -> None:
        self.torch_device = torch.device("cpu")
        self.launch_ns = launch_ns
        self.host_ns = 0
        self.current_stream_ns = 0
        self.log: list[str] = []
        self.live_graphs = 0
        self.glances: list[Glance | None] = []
        self.read_ns = 0

    def read_health(self) -> Glance | None:
        """The next scripted reading, each of which takes ``read_ns``; None when there are no more."""
        self.log.append("read health")
        self.host_ns += self.read_ns
        return self.glances.pop(0) if self.glances else None

    def now_ns(self) -> int:
        return self.host_ns

    def event_pairs(self, count: int) -> list[tuple[FakeEvent, FakeEvent]]:
        self.log.append(f"events {count}")
        return [(FakeEvent(self, "start"), FakeEvent(self, "end")) for _ in range(count)]

    def enter_thread(self) -> None:
        self.log.append("enter thread")

    def synchronize(self) -> None:
        self.log.append("synchronize")
        self.host_ns = max(self.host_ns, self.current_stream_ns)

    def watches(self, count: int) -> list[Callable[[Sequence[Any]], FakeDone]]:
        return [self._when_done] * count

    def _when_done(self, works: Sequence[Any]) -> FakeDone:
        """A stream of its own waits for the works: neither the host nor the current stream does."""
        self.log.append("when done")
        return FakeDone(self, max([self.host_ns, *(work.done_ns for work in works)]))

    def delay(self, delay_ns: int) -> None:
        self.log.append(f"delay {delay_ns}")
        self.current_stream_ns = max(self.host_ns, self.current_stream_ns) + delay_ns

    def elapsed_us(self, pair: tuple[FakeEvent, FakeEvent]) -> float:
        start, end = pair
        assert start.at_ns is not None, "the start event was never recorded"
        assert end.at_ns is not None, "the end event was never recorded"
        assert end.at_ns <= self.host_ns, "an event is read before it has passed"
        return (end.at_ns - start.at_ns) / 1e3

    def capture(self, calls: Sequence[Callable[[], Any]]) -> FakeReplay:
        self.log.append(f"capture {len(calls)}")
        self.live_graphs += 1
        return FakeReplay(self, calls)

    def operation(self, duration_ns: int, asynchronous: bool) -> Callable[[], Any]:
        """A call like a collective's: on the current stream, or on its own stream with a Work."""

        def call() -> Any:
            self.log.append("call")
            self.host_ns += self.launch_ns
            begin = max(self.host_ns, self.current_stream_ns)
            if asynchronous:
                return (FakeWork(self, begin + duration_ns),)
            self.current_stream_ns = begin + duration_ns
            return None

        return call


class FakeEvent:
    def __init__(self, device: FakeDevice, name: str) -> None:
        self._device = device
        self._name = name
        self.at_ns: int | None = None

    def record(self) -> None:
        self._device.log.append(f"record {self._name}")
        self.at_ns = max(self._device.host_ns, self._device.current_stream_ns)


class FakeDone:
    def __init__(self, device: FakeDevice, at_ns: int) -> None:
        self._device = device
        self._at_ns = at_ns

    def us_since(self, start: FakeEvent, start_ns: int) -> float:
        assert start.at_ns is not None, "the start event was never recorded"
        assert self._at_ns <= self._device.host_ns, "an event is read before it has passed"
        return (self._at_ns - start.at_ns) / 1e3


class FakeWork:
    def __init__(self, device: FakeDevice, done_ns: int) -> None:
        self._device = device
        self.done_ns = done_ns

    def wait(self) -> None:
        self._device.log.append("wait")
        self._device.current_stream_ns = max(self._device.current_stream_ns, self.done_ns)


class FakeReplay:
    def __init__(self, device: FakeDevice, calls: Sequence[Callable[[], Any]]) -> None:
        self._device = device
        self._calls = calls

    def __call__(self) -> None:
        self._device.log.append("replay")
        for call in self._calls:
            for work in call() or ():
                work.wait()

    def reset(self) -> None:
        self._device.log.append("reset")
        self._device.live_graphs -= 1
