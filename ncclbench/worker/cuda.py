"""The CUDA implementation of the device interface: streams, events, graphs. Thin on purpose."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ncclbench.environment.gpu import bus_id
from ncclbench.environment.throttle import Gauge, Glance, open_gauge
from ncclbench.tables.collectives import Call
from ncclbench.worker.device import Done, Event, EventPair, Replay, Watch


class CudaDevice:
    """One GPU, on its current stream.

    The end event is recorded after ``work.wait()``: wait() orders the current stream behind the
    operation's own stream and does not block the host, so the event, not the host, sees its end.
    """

    kind = "cuda"
    has_device_clock = True

    def __init__(self, index: int) -> None:
        self.torch_device = torch.device("cuda", index)
        self.enter_thread()
        self.now_ns = time.perf_counter_ns
        self._cycles_per_ns: float | None = None
        self._beside: list[torch.cuda.Stream] = []
        self._gauge: Gauge | None = open_gauge(bus_id(torch.cuda.get_device_properties(index)))

    def read_health(self) -> Glance | None:
        return None if self._gauge is None else self._gauge.read()

    def event_pairs(self, count: int) -> list[EventPair]:
        return [(self._event(), self._event()) for _ in range(count)]

    def _event(self) -> torch.cuda.Event:
        """An event that is there: torch creates CUDA's own only when it is first recorded (CUDAEvent.h)."""
        event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.torch_device))
        return event

    def enter_thread(self) -> None:
        torch.cuda.set_device(self.torch_device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def watches(self, count: int) -> list[Watch]:
        # A stream for each: on one stream the second would see the end of whichever is later.
        while len(self._beside) < count:
            self._beside.append(torch.cuda.Stream(self.torch_device))  # type: ignore[no-untyped-call]
        return [partial(self._when_done, beside, self._event()) for beside in self._beside[:count]]

    @staticmethod
    def _when_done(beside: torch.cuda.Stream, event: torch.cuda.Event, works: Sequence[Any]) -> Done:
        # wait() orders the stream that is current behind the operation: here one that has nothing else to do.
        with torch.cuda.stream(beside):
            for work in works:
                work.wait()
            event.record()
        return _CudaDone(event)

    def delay(self, delay_ns: int) -> None:
        if self._cycles_per_ns is None:
            self._cycles_per_ns = self._measure_cycles()
        torch.cuda._sleep(round(delay_ns * self._cycles_per_ns))  # type: ignore[no-untyped-call]

    def _measure_cycles(self, cycles: int = 2_000_000) -> float:
        """Cycles of the sleep kernel per nanosecond: its clock is the GPU's own, which nothing tells."""
        (pair,) = self.event_pairs(1)
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        pair[0].record()
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        pair[1].record()
        self.synchronize()
        return cycles / (self.elapsed_us(pair) * 1e3)

    def elapsed_us(self, pair: EventPair) -> float:
        start, end = pair
        milliseconds: float = start.elapsed_time(end)  # type: ignore[attr-defined]
        return milliseconds * 1e3

    def capture(self, calls: Sequence[Call]) -> Replay:
        graph = torch.cuda.CUDAGraph()
        # thread_local: the watchdog of the process group makes CUDA calls of its own on another
        # thread, which the default mode would turn into a capture error.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for call in calls:
                for work in call() or ():
                    work.wait()
        return _CudaReplay(graph)


class _CudaDone:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def us_since(self, start: Event, start_ns: int) -> float:
        milliseconds: float = start.elapsed_time(self._event)  # type: ignore[attr-defined]
        return milliseconds * 1e3


class _CudaReplay:
    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self._graph = graph

    def __call__(self) -> None:
        self._graph.replay()

    def reset(self) -> None:
        self._graph.reset()
