"""The timed loop on a device with scripted times: what is recorded, in which order, and what it says."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from fake_device import FakeDevice

from ncclbench.worker.device import CpuDevice
from ncclbench.worker.loop import time_samples


def nothing(index: int = 0) -> None:
    pass


def sample_log(device: FakeDevice, calls: int, asynchronous: bool) -> list[str]:
    device.log.clear()
    time_samples(device, [[device.operation(50_000, asynchronous)] * calls], nothing, nothing)
    return device.log


def test_a_synchronous_sample_goes_start_call_end_synchronize() -> None:
    assert sample_log(FakeDevice(), 1, False) == [
        "events 1",
        "record start",
        "call",
        "record end",
        "synchronize",
    ]


def test_an_asynchronous_batch_waits_for_all_its_works_before_the_end_event() -> None:
    assert sample_log(FakeDevice(), 3, True) == [
        "events 1",
        "record start",
        *["call"] * 3,
        *["wait"] * 3,
        "record end",
        "synchronize",
    ]


def test_launch_device_and_total_are_three_different_times() -> None:
    device = FakeDevice(launch_ns=2_000)
    samples = time_samples(device, [[device.operation(50_000, True)]] * 4, nothing, nothing)
    assert samples.launch.tolist() == [2_000] * 4
    assert samples.device is not None
    # The operation begins when it is launched, so its launch lies inside the events too.
    assert samples.device.tolist() == [52_000] * 4
    assert samples.total.tolist() == [52_000] * 4


def test_an_end_event_before_wait_would_have_timed_the_launch_only() -> None:
    """What the order of wait and end event is worth: the fake shows the wrong order to be wrong."""
    device = FakeDevice(launch_ns=2_000)
    start, end = device.event_pairs(1)[0]
    start.record()
    works = device.operation(50_000, True)()
    end.record()
    for work in works:
        work.wait()
    device.synchronize()
    assert device.elapsed_us((start, end)) == 2.0


def test_the_fence_and_the_refill_stay_outside_the_clock() -> None:
    device = FakeDevice()

    def fence() -> None:
        device.log.append("fence")
        device.host_ns += 1_000_000

    def between(index: int) -> None:
        device.log.append(f"between {index}")
        device.host_ns += 5_000_000

    samples = time_samples(device, [[device.operation(10_000, False)]] * 2, fence, between)
    assert samples.total.tolist() == [11_000] * 2
    assert device.log[1:4] == ["between 0", "fence", "record start"]
    assert np.diff(samples.start).tolist() == [6_011_000]


def test_a_batch_is_one_sample_with_one_synchronize() -> None:
    device = FakeDevice(launch_ns=1_000)
    samples = time_samples(device, [[device.operation(10_000, False)] * 5], nothing, nothing)
    assert device.log.count("synchronize") == 1
    # Launches hide behind the stream: five operations and the first launch.
    assert samples.total.tolist() == [51_000]


def test_the_cpu_has_no_device_clock_and_total_holds_the_wait() -> None:
    import time

    class Sleeping:
        def wait(self) -> None:
            time.sleep(0.002)

    samples = time_samples(CpuDevice(), [[lambda: (Sleeping(),)]] * 3, nothing, nothing)
    assert samples.device is None
    assert (samples.total >= 2_000_000).all()
    assert (samples.launch < 1_000_000).all()


def test_garbage_is_not_collected_inside_and_collecting_comes_back() -> None:
    seen = []
    time_samples(CpuDevice(), [[lambda: seen.append(gc.isenabled())]], nothing, nothing)  # type: ignore[func-returns-value,list-item]
    assert seen == [False]
    assert gc.isenabled()


def test_collecting_comes_back_after_an_operation_raises() -> None:
    def broken() -> None:
        raise RuntimeError("peer gone")

    with pytest.raises(RuntimeError, match="peer gone"):
        time_samples(CpuDevice(), [[broken]], nothing, nothing)
    assert gc.isenabled()
