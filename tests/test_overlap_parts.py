"""The timed loop of overlap on the fake device: what comes in which order, and what each clock reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fake_device import FakeDevice
from ncclbench.kernels import Kernel, Shape

from ncclbench.plan.build import Method, Selection, build_plan
from ncclbench.plan.model import Arm, Case
from ncclbench.plan.schedule import part_orders
from ncclbench.store.overlaps import PARTS
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.worker.buffers import Pool
from ncclbench.worker.device import CpuDevice
from ncclbench.worker.operation import Operation
from ncclbench.worker.overlapped import Overlapped
from ncclbench.worker.parts import captured, time_part, time_replay
from ncclbench.worker.patterns import Patterns
from ncclbench.worker.programs.overlap import too_long

COMM_NS, COMPUTE_NS, LAUNCH_NS = 400_000, 300_000, 1_000


def nothing(*arguments: Any) -> None:
    pass


def timed(part: str) -> tuple[FakeDevice, Any]:
    """A part with a collective on a stream of its own and a kernel on the current one."""
    device = FakeDevice(LAUNCH_NS)
    comm = device.operation(COMM_NS, asynchronous=True)
    compute = device.operation(COMPUTE_NS, asynchronous=False)
    return device, time_part(part, comm, compute, device, lambda: device.log.append("fence"))


@pytest.mark.parametrize(
    ("part", "order"),
    [
        ("comm", "fence, record start, call, when done, wait, record end, synchronize"),
        ("compute", "fence, record start, call, record start, record end, synchronize"),
        (
            "together",
            "fence, record start, call, when done, call, record start, wait, record end, synchronize",
        ),
        (
            "serial",
            "fence, record start, call, when done, wait, call, record start, record end, synchronize",
        ),
    ],
)
def test_the_end_comes_behind_the_wait_and_the_clock_runs_past_the_synchronize(part: str, order: str) -> None:
    device, _ = timed(part)
    done = [entry for entry in device.log if not entry.startswith("events")]
    assert ", ".join(done) == order


def test_both_at_once_take_as_long_as_the_longer_and_one_after_the_other_the_sum() -> None:
    totals = {part: timed(part)[1].total_us for part in PARTS}
    assert totals["comm"] == 401.0
    assert totals["compute"] == 301.0
    assert totals["together"] == 401.0, "the kernel was launched 1 us later and is the shorter"
    assert totals["serial"] == pytest.approx(701.0)


def test_each_says_when_it_was_done_itself() -> None:
    both = timed("together")[1]
    assert both.comm_done_us == 401.0
    assert both.compute_done_us == pytest.approx(302.0)
    assert timed("comm")[1].compute_done_us is None
    assert timed("compute")[1].comm_done_us is None


def test_a_replay_takes_what_its_part_takes() -> None:
    for part in PARTS:
        device = FakeDevice(LAUNCH_NS)
        comm = device.operation(COMM_NS, asynchronous=True)
        compute = device.operation(COMPUTE_NS, asynchronous=False)
        replay = device.capture([captured(part, comm, compute)])
        found = time_replay(replay, device, nothing)
        assert found.total_us == timed(part)[1].total_us, part
        assert (found.comm_done_us, found.compute_done_us) == (None, None)


class Ended:
    """A Work of gloo: its future calls back when it ends."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[object], None]] = []

    def get_future(self) -> Ended:
        return self

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        self.callbacks.append(callback)

    def end(self) -> None:
        for callback in self.callbacks:
            callback(self)


class Endless:
    """A Work without a future, as gloo's of send and receive."""

    def get_future(self) -> None:
        raise RuntimeError("Work::getFuture not implemented.")


def test_on_a_cpu_the_last_work_tells_when_all_is_done() -> None:
    device = CpuDevice()
    times = iter([5_000, 9_000])
    device.now_ns = lambda: next(times)
    works = [Ended(), Ended()]
    watch, other = device.watches(2)
    done = watch(works)
    start: Any = None
    works[1].end()
    assert done.us_since(start, 1_000) is None, "one of two"
    works[0].end()
    assert done.us_since(start, 1_000) == 8.0
    assert other([Ended(), Endless()]).us_since(start, 0) is None


class LocalControl:
    """The control plane of one rank: it agrees with itself."""

    rank = 0
    nranks = 1

    def maximum(self, *values: int) -> list[int]:
        return list(values)

    def first_reason(self, reason: str | None) -> str | None:
        return reason


class FakeKernel:
    """Takes 10 us a step on the current stream."""

    kind = "fma"

    def __init__(self, device: FakeDevice, length: int = 1, is_right: bool = True) -> None:
        self.shape = Shape(1, 1, length)
        self._device = device
        self._is_right = is_right

    def compile(self) -> None:
        pass

    def launch(self) -> None:
        self._device.log.append("launch")
        self._device.operation(10_000 * self.shape.length, asynchronous=False)()

    def check(self) -> bool:
        return self._is_right

    def flops(self) -> int:
        return 0

    def nbytes(self) -> int:
        return 0

    def with_length(self, length: int) -> Kernel:
        return FakeKernel(self._device, length, self._is_right)


def overlapped(
    monkeypatch: pytest.MonkeyPatch,
    device: FakeDevice,
    *,
    dtype: str = "float32",
    pool_bytes: int = 1 << 16,
    effect: Callable[[Any], None] = nothing,
) -> Overlapped:
    """A case whose collective takes 400 us on the fake device and does ``effect`` to its buffers."""
    plan = build_plan(
        Selection(sizes=(4096,), dtypes=(dtype,), async_op=(True,)),
        [Arm("a", "gloo")],
        nranks=1,
        local_ranks=1,
        device="cpu",
        method=Method(),
    )
    case: Case = plan.planned[0]

    def bind(bound: Any) -> Callable[[], Any]:
        operation = device.operation(COMM_NS, bound.async_op)

        def call() -> Any:
            effect(bound)
            return operation()

        return call

    monkeypatch.setitem(COLLECTIVES, case.op, replace(COLLECTIVES[case.op], bind=bind))
    patterns = Patterns(plan.seed).of(case, device.torch_device)
    operation = Operation(case, plan.seed, 0, device, Pool(pool_bytes, device.torch_device), patterns)
    control: Any = LocalControl()
    fence: Any = lambda: None  # noqa: E731
    return Overlapped(operation, None, device, fence, control, nothing)


ORDER = part_orders(PARTS, 0, 0, "case", 4)


def test_parts_come_in_the_order_given_and_each_is_timed_once_a_repetition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = FakeDevice(LAUNCH_NS)
    side = overlapped(monkeypatch, device)
    assert side.warm_up() == 0
    device.log.clear()
    block = side.eager(FakeKernel(device, 30), ORDER)
    assert (block.wrong, block.compute_wrong) == (0, False)
    assert block.times_us.shape == (6, 4)
    assert block.times_us[0].tolist() == [401.0] * 4
    assert block.times_us[1].tolist() == [301.0] * 4
    assert block.times_us[2].tolist() == [401.0] * 4
    assert block.times_us[3].tolist() == [701.0] * 4
    assert block.times_us[4].tolist() == [401.0] * 4
    told = [entry for entry in device.log if entry in ("when done", "launch", "wait", "record end")]
    what = {
        "when done, wait": "comm",
        "launch": "compute",
        "when done, launch, wait": "together",
        "when done, wait, launch": "serial",
    }
    parts = ", ".join(told).removesuffix(", record end").split(", record end, ")
    assert [what[part] for part in parts] == ORDER


def test_compute_is_made_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(LAUNCH_NS)
    side = overlapped(monkeypatch, device)
    side.warm_up()
    assert side.comm_us() == 401.0
    assert side.calibrated(FakeKernel(device), 401.0).shape.length == 40
    assert side.calibrated(FakeKernel(device), 0.5 * 401.0).shape.length == 20


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_wrong_results_of_the_last_repetition_are_counted(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    device = FakeDevice(LAUNCH_NS)

    def spoil(bound: Any) -> None:
        bound.send[3] += 1

    side = overlapped(monkeypatch, device, effect=spoil)
    assert side.warm_up() == 1
    block = (side.eager if mode == "eager" else side.graph)(FakeKernel(device, is_right=False), ORDER)
    assert not isinstance(block, str)
    assert block.wrong == 3, "alone, together and serial"
    assert block.compute_wrong


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_values_that_grow_are_refilled_before_they_overflow(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    device = FakeDevice(LAUNCH_NS)
    largest = []

    def double(bound: Any) -> None:
        largest.append(float(bound.send.abs().max()))
        bound.send.mul_(2)

    # Two slots of float16, which stands few sums of two ranks.
    side = overlapped(monkeypatch, device, dtype="float16", pool_bytes=8192, effect=double)
    monkeypatch.setattr(Operation, "limit", property(lambda self: 3))
    (side.eager if mode == "eager" else side.graph)(FakeKernel(device), part_orders(PARTS, 0, 0, "long", 20))
    assert len(largest) >= 60
    assert max(largest) <= 1000 * 2**3


def test_parts_that_would_be_taken_for_a_hang_are_not_begun() -> None:
    assert too_long(10e6, 19.9e6, 60.0) is None
    assert too_long(20e6, 40e6, 60.0) == (
        "communication takes 20.0 s and compute would take 40.0 s, too near to --timeout 60.0 s: give "
        "--timeout 240s, a smaller --compute-ratio or smaller sizes"
    )


def test_graphs_are_let_go_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(LAUNCH_NS)
    side = overlapped(monkeypatch, device)
    assert not isinstance(side.graph(FakeKernel(device), ORDER), str)
    assert device.live_graphs == 0
    assert device.log.count("reset") == len(PARTS)

    capture = device.capture

    def refuses(calls: Any) -> Any:
        if device.live_graphs == 2:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        return capture(calls)

    monkeypatch.setattr(device, "capture", refuses)
    reason = side.graph(FakeKernel(device), ORDER)
    assert reason == "operation not permitted when stream is capturing"
    assert device.live_graphs == 0


def test_order_is_balanced_the_same_on_every_rank_and_new_in_every_epoch() -> None:
    order = part_orders(PARTS, 7, 0, "case", 6)
    rows = [order[first : first + 4] for first in range(0, 24, 4)]
    assert all(sorted(row) == sorted(PARTS) for row in rows)
    assert [row[::-1] for row in rows[::2]] == rows[1::2]
    for part in PARTS:
        assert sum(row.index(part) for row in rows) == 6 * 1.5
    assert order == part_orders(PARTS, 7, 0, "case", 6)
    assert order != part_orders(PARTS, 7, 1, "case", 6)
    assert order[:20] == part_orders(PARTS, 7, 0, "case", 5)
