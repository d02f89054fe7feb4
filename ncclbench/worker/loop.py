"""The timed loop: the only place where the clock runs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncclbench.tables.collectives import Call
from ncclbench.worker.device import Device


@dataclass(slots=True)
class Samples:
    """Times of one block on one rank, nanoseconds, shape (n,).

    Attributes:
        start: host clock at the begin of each sample.
        launch: host time until the call, or the last call of the batch, had returned.
        device: from the start event to the end event, or None without a device clock.
        total: host time with the waiting and the synchronize.
    """

    start: NDArray[np.int64]
    launch: NDArray[np.int64]
    device: NDArray[np.int64] | None
    total: NDArray[np.int64]


def time_samples(
    device: Device,
    batches: Sequence[Sequence[Call]],
    fence: Callable[[], None],
    between: Callable[[int], None],
) -> Samples:
    """Time each batch of calls as one sample.

    Order, per sample: ``between`` and ``fence`` outside the clock, start event, calls, wait for their
    Works, end event, synchronize. The end event comes after wait(): on CUDA wait() orders the current
    stream behind the operation without blocking the host, so an earlier event would time the launch.
    Everything is allocated before the first sample, and nothing is collected, written or printed
    until after the last.

    Args:
        batches: per sample, the calls it makes: one in isolated mode, k back to back, one replay of a graph.
        between: called with the sample's number before its fence.
    """
    count = len(batches)
    events = device.event_pairs(count)
    starts, launched, ends = [0] * count, [0] * count, [0] * count
    pending: list[object] = []
    now, synchronize, on_stream = device.now_ns, device.synchronize, device.has_device_clock
    collecting = gc.isenabled()
    gc.disable()
    try:
        for index, calls in enumerate(batches):
            between(index)
            start_event, end_event = events[index]
            fence()
            start_event.record()
            started = now()
            for call in calls:
                works = call()
                if works is not None:
                    pending.extend(works)
            returned = ended = now()
            if pending or on_stream:
                for work in pending:
                    work.wait()  # type: ignore[attr-defined]
                end_event.record()
                synchronize()
                ended = now()
            # Else the operation was over when its call returned, and nothing more may cost time.
            ends[index] = ended
            starts[index] = started
            launched[index] = returned
            pending.clear()
    finally:
        if collecting:
            gc.enable()
    start = np.array(starts, dtype=np.int64)
    on_device = None
    if device.has_device_clock:
        on_device = np.array([round(device.elapsed_us(pair) * 1e3) for pair in events], dtype=np.int64)
    return Samples(
        start=start,
        launch=np.array(launched, dtype=np.int64) - start,
        device=on_device,
        total=np.array(ends, dtype=np.int64) - start,
    )
