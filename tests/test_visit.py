"""One visit to an arm on the fake device: checks, warm-up, block, and the life of a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from fake_device import FakeDevice

from ncclbench.plan.build import Method, Selection, build_plan
from ncclbench.plan.model import Arm, Case, Plan
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.topologies import WORLD
from ncclbench.worker.buffers import Pool, SlotRing
from ncclbench.worker.cuts import place_in
from ncclbench.worker.operation import case_layout
from ncclbench.worker.patterns import Pattern
from ncclbench.worker.visit import CaseRunner


def nothing(*arguments: Any) -> None:
    pass


class LocalControl:
    """The control plane of one rank: it agrees with itself."""

    rank = 0
    nranks = 1

    def maximum(self, *values: int) -> list[int]:
        return list(values)


class LocalFence:
    """A fence that one rank passes after a while."""

    kind = "local"

    def __init__(self, device: FakeDevice) -> None:
        self._device = device

    def __call__(self) -> None:
        self._device.log.append("fence")
        self._device.host_ns += 100_000


def make_plan(**method: Any) -> Plan:
    return build_plan(
        Selection(sizes=(4096,)),
        [Arm("a", "gloo")],
        nranks=1,
        local_ranks=1,
        device="cpu",
        method=Method(**method),
    )


def make_runner(
    monkeypatch: pytest.MonkeyPatch,
    device: FakeDevice,
    operation_ns: int,
    plan: Plan,
    case: Case,
    pool_bytes: int = 1 << 20,
    effect: Callable[[Any], None] = nothing,
) -> CaseRunner:
    """A runner whose collective takes ``operation_ns`` on the fake device and does ``effect``."""

    def bind(bound: Any) -> Callable[[], Any]:
        operation = device.operation(operation_ns, bound.async_op)

        def call() -> Any:
            effect(bound)
            return operation()

        return call

    monkeypatch.setitem(COLLECTIVES, case.op, replace(COLLECTIVES[case.op], bind=bind))

    def patterns(timed: bool) -> Pattern:
        return Pattern(case.dtype, case.redop, case.nranks, plan.seed, device.torch_device, timed)

    control: Any = LocalControl()
    fence: Any = LocalFence(device)
    pool = Pool(pool_bytes, device.torch_device)
    part = place_in(WORLD.name, (), 0, case.nranks)
    return CaseRunner(case, plan, control, fence, device, pool, patterns, None, part)


def case_of(plan: Plan, **changes: Any) -> Case:
    return replace(plan.planned[0], **changes)


@pytest.mark.parametrize(("slots", "after"), [(2, 1), (3, 0)])
def test_a_block_follows_a_checked_pass_and_its_last_result_or_a_pass_after_it_is_checked(
    monkeypatch: pytest.MonkeyPatch, slots: int, after: int
) -> None:
    device = FakeDevice()
    plan = make_plan(warmup_iters=2)
    runner = make_runner(
        monkeypatch, device, 10_000, plan, case_of(plan, mode="isolated"), pool_bytes=slots * 4096
    )
    visit = runner.visit(None, 5, True, nothing, nothing)
    assert device.log.count("call") == 1 + 2 + 5 + after
    assert len(visit.samples.total) == 5
    assert visit.samples.total.tolist() == [11_000] * 5
    assert visit.wrong == 0
    assert visit.k == 1


@pytest.mark.parametrize("slots", [2, 3, 100])
@pytest.mark.parametrize("mode", ["isolated", "back-to-back", "graph"])
def test_wrong_elements_are_counted_before_the_block_and_at_its_end(
    monkeypatch: pytest.MonkeyPatch, slots: int, mode: str
) -> None:
    plan = make_plan(warmup_iters=0)

    def spoil(bound: Any) -> None:
        bound.send[3] += 1

    runner = make_runner(
        monkeypatch,
        FakeDevice(),
        30_000_000,
        plan,
        case_of(plan, mode=mode),
        pool_bytes=slots * 4096,
        effect=spoil,
    )
    assert runner.visit(None, 4, True, nothing, nothing).wrong == 2


@pytest.mark.parametrize("mode", ["isolated", "back-to-back", "graph"])
def test_an_error_of_the_last_timed_operation_alone_is_seen(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    plan = make_plan(warmup_iters=0)
    calls = []
    # One untimed pass, of a graph one untimed replay too, then four operations, at once or one by one.
    last = 9 if mode == "graph" else 5

    def spoil_the_last(bound: Any) -> None:
        calls.append(1)
        if len(calls) == last:
            bound.send[3] += 1

    runner = make_runner(
        monkeypatch, FakeDevice(), 30_000_000, plan, case_of(plan, mode=mode), effect=spoil_the_last
    )
    assert runner.visit(None, 4, True, nothing, nothing).wrong == 1


def test_no_check_means_no_count_and_still_one_untimed_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    plan = make_plan(warmup_iters=0, check=0)
    runner = make_runner(monkeypatch, device, 10_000, plan, case_of(plan, mode="isolated"))
    runner.visit(None, 4, True, nothing, nothing)
    assert device.log.count("call") == 1 + 4


def test_the_usual_warm_up_stops_where_operations_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    for operation_ns, warmups in ((10_000, 5), (1_000_000, 2), (60_000_000, 0)):
        device = FakeDevice()
        plan = make_plan()
        runner = make_runner(monkeypatch, device, operation_ns, plan, case_of(plan, mode="isolated"))
        runner.visit(None, 3, True, nothing, nothing)
        assert device.log.count("call") == 1 + warmups + 3


def test_batches_of_fast_operations_are_long_enough_for_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(launch_ns=1_000)
    plan = make_plan()
    runner = make_runner(monkeypatch, device, 19_000, plan, case_of(plan, mode="back-to-back"))
    visit = runner.visit(None, 7, True, nothing, nothing)
    assert visit.k == 100
    assert len(visit.samples.total) == 3
    # Operations queue behind each other: the launch of all but the first is hidden.
    assert visit.samples.total.tolist() == [1_000 + 100 * 19_000] * 3


def test_slow_operations_make_one_batch_of_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan()
    runner = make_runner(monkeypatch, FakeDevice(), 30_000_000, plan, case_of(plan, mode="back-to-back"))
    visit = runner.visit(None, 7, True, nothing, nothing)
    assert (visit.k, len(visit.samples.total)) == (7, 1)


def test_the_batch_size_is_fixed_at_the_first_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan()
    runner = make_runner(monkeypatch, FakeDevice(), 20_000, plan, case_of(plan, mode="back-to-back"))
    first = runner.visit(None, 7, True, nothing, nothing)
    assert runner.visit(None, 300, False, nothing, nothing).k == first.k


def test_a_graph_is_warmed_captured_replayed_and_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    plan = make_plan(warmup_iters=1)
    runner = make_runner(monkeypatch, device, 1_000_000, plan, case_of(plan, mode="graph"))
    visit = runner.visit(None, 4, True, nothing, nothing)
    order = [entry for entry in device.log if entry.startswith(("call", "capture", "replay", "reset"))]
    captured = order.index("capture 4")
    assert order[:captured] == ["call", "call"], "every operation has run before it is captured"
    assert order.count("replay") == 1 + len(visit.samples.total), "the first launch of a graph is no sample"
    replays = [entry for entry in device.log if entry.startswith(("replay", "record", "synchronize"))]
    first = replays.index("replay")
    assert replays[first : first + 2] == ["replay", "synchronize"], "it has no events"
    assert order.index("reset") > max(i for i, entry in enumerate(order) if entry == "replay")
    assert device.live_graphs == 0


def test_a_graph_is_reset_when_its_replay_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    plan = make_plan(warmup_iters=0)
    calls = []

    def fail_later(bound: Any) -> None:
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("peer gone")

    runner = make_runner(
        monkeypatch, device, 30_000_000, plan, case_of(plan, mode="graph"), effect=fail_later
    )
    with pytest.raises(RuntimeError, match="peer gone"):
        runner.visit(None, 2, True, nothing, nothing)
    assert device.live_graphs == 0


def test_repeated_sums_are_refilled_before_they_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-precision sums over two ranks on two slots: real additions, and never an infinity."""
    plan = make_plan(warmup_iters=0, check=0)
    case = case_of(plan, dtype="float16", nranks=2, mode="isolated")
    seen = []

    def add(bound: Any) -> None:
        bound.send.add_(bound.send.clone())
        seen.append(bool(torch.isfinite(bound.send).all()))

    runner = make_runner(monkeypatch, FakeDevice(), 10_000, plan, case, pool_bytes=2 * 4096, effect=add)
    runner.visit(None, 200, True, nothing, nothing)
    assert len(seen) == 201
    assert all(seen)


def test_a_batch_is_no_longer_than_its_slots_can_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(warmup_iters=0, check=0)
    case = case_of(plan, dtype="float16", nranks=2, mode="back-to-back")
    seen = []

    def add(bound: Any) -> None:
        bound.send.add_(bound.send.clone())
        seen.append(bool(torch.isfinite(bound.send).all()))

    runner = make_runner(monkeypatch, FakeDevice(), 1_000, plan, case, pool_bytes=2 * 4096, effect=add)
    visit = runner.visit(None, 200, True, nothing, nothing)
    pattern = Pattern("float16", "sum", 2, plan.seed, torch.device("cpu"))
    assert visit.k == 2 * pattern.safe_reductions
    assert all(seen)


def test_progress_is_told_before_every_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    plan = make_plan(warmup_iters=2)
    runner = make_runner(monkeypatch, FakeDevice(), 10_000, plan, case_of(plan, mode="isolated"))
    runner.visit(None, 5, True, lambda: steps.append(1), nothing)
    assert len(steps) == 1 + 2 + 5


@pytest.mark.parametrize("op", [name for name, entry in COLLECTIVES.items() if entry.has_data])
@pytest.mark.parametrize("rank", [0, 2])
def test_slots_never_overlap_and_stay_inside_the_pool(op: str, rank: int) -> None:
    entry = COLLECTIVES[op]
    plan = build_plan(
        Selection(sizes=(4800,), ops=(op,), in_place=entry.in_place_forms),
        [Arm("a", "gloo")],
        nranks=3,
        local_ranks=3,
        device="cpu",
    )
    for case in plan.planned:
        layout = case_layout(case, plan.seed, rank)
        pool = torch.zeros(1 << 16, dtype=torch.uint8)
        ring = SlotRing(pool, entry, layout, torch.float32, rank, case.in_place)
        assert ring.count >= 2
        touched = torch.zeros(1 << 16, dtype=torch.int32)
        base = pool.data_ptr()
        for _ in range(ring.count):
            slot = ring.take()
            spans = [(t.data_ptr() - base, t.numel() * 4) for t in (slot.send, slot.recv) if t.numel()]
            assert all(begin >= 0 and begin + length <= 1 << 16 for begin, length in spans)
            if case.in_place:
                spans = [max(spans, key=lambda span: span[1])]
            for begin, length in spans:
                touched[begin : begin + length] += 1
        assert int(touched.max()) == 1
