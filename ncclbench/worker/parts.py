"""The timed loop of overlap: communication, compute, both at once, and one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ncclbench.store.overlaps import PARTS
from ncclbench.tables.collectives import Call, Works
from ncclbench.worker.device import Device, Done, Event

COMM, COMPUTE, TOGETHER, SERIAL = PARTS


@dataclass(slots=True)
class PartTime:
    """One part, once, on one rank, microseconds since its beginning.

    Attributes:
        total_us: until all of it was done.
        comm_done_us, compute_done_us: until that was; None where there is none, or it cannot be seen.
    """

    total_us: float
    comm_done_us: float | None = None
    compute_done_us: float | None = None


def time_part(
    part: str, call: Call, launch: Callable[[], None], device: Device, fence: Callable[[], None]
) -> PartTime:
    """Time one part.

    Together, the collective is issued first and waited for last, the compute launched in between: on CUDA on
    the current stream while the collective has a stream of its own, on a CPU in this thread while the
    library's threads communicate. Serial are the same two calls, with the wait before the launch. On CUDA
    the end event comes behind the wait, which orders the current stream and does not block the host; so the
    part's time ends when both are done, whichever is later. The clock of the host runs past the synchronize.

    Args:
        part: name in PARTS.
        call: issues the collective asynchronously and returns its Works.
        launch: launches the compute.
        fence: returns at the same moment on every rank.
    """
    ((start_event, end_event),) = device.event_pairs(1)
    ((computed_event, _),) = device.event_pairs(1)
    (watch,) = device.watches(1)
    now = device.now_ns
    works: Works = None
    done: Done | None = None
    computed = 0
    fence()
    start_event.record()
    started = now()
    if part != COMPUTE:
        works = call() or ()
        # In every part that communicates: what watching costs must not look like a slowdown of one.
        done = watch(works)
        if part == SERIAL:
            _wait(works)
    if part != COMM:
        launch()
        computed_event.record()
        computed = now()
    if part != SERIAL:
        _wait(works)
    end_event.record()
    device.synchronize()
    ended = now()

    def since(event: Event, at_ns: int) -> float:
        if device.has_device_clock:
            return device.elapsed_us((start_event, event))
        return (at_ns - started) / 1e3

    return PartTime(
        total_us=since(end_event, ended),
        comm_done_us=None if done is None else done.us_since(start_event, started),
        compute_done_us=None if part == COMM else since(computed_event, computed),
    )


def time_replay(replay: Call, device: Device, fence: Callable[[], None]) -> PartTime:
    """Time one replay of a part that was captured; when its pieces were done cannot be seen."""
    ((start_event, end_event),) = device.event_pairs(1)
    fence()
    start_event.record()
    started = device.now_ns()
    replay()
    end_event.record()
    device.synchronize()
    ended = device.now_ns()
    if device.has_device_clock:
        return PartTime(device.elapsed_us((start_event, end_event)))
    return PartTime((ended - started) / 1e3)


def captured(part: str, call: Call, launch: Callable[[], None]) -> Call:
    """A part as one call for ``Device.capture``, which waits for the Works that it returns."""

    def run() -> Works:
        if part == COMPUTE:
            launch()
            return None
        works = call()
        if part == SERIAL:
            _wait(works)
        if part != COMM:
            launch()
        return works if part != SERIAL else None

    return run


def _wait(works: Works) -> None:
    for work in works or ():
        work.wait()
