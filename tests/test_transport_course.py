"""The course of a transport run without processes: orders in, arrays out, and what lines they become."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from ncclbench.errors import RequestError
from ncclbench.store.transfers import TransferLatency, TransferResult, TransferStatus, TransferTimes
from ncclbench.supervise.transferring import LATENCY_BYTES, Had, TransferPlan, transfer_orders
from ncclbench.worker import two_sided
from ncclbench.worker.device import CpuDevice
from ncclbench.worker.transfer_ways import Given, Shared, Taken
from ncclbench.worker.weights import Weights

PLAN = TransferPlan(
    arms=("gloo",),
    ways=("broadcast", "cpu-write", "cpu-read", "nixl-read"),
    sizes=(1000, 24),
    generators=2,
    epochs=4,
    iters=10,
    warmup=1,
    seed=3,
)
REFUSED = [
    ("broadcast", "gloo", None),
    ("cpu-write", None, None),
    ("cpu-read", None, None),
    ("nixl-read", None, "needs the package nixl"),
]
MS = 1e6


def seen_in(order: dict[str, Any]) -> dict[str, Any]:
    """What three ranks gather of a visit, in nanoseconds: the second generator is always the later one."""
    count, nan = order["repetitions"], np.nan
    one_sided = order["arm"] is None
    still = np.array([[100, 150, 180, nan, nan, nan], [110, 200, *[nan] * 4], [120, 230, *[nan] * 4]]) * MS
    computing = np.array(
        [[100, 150, 180, nan, nan, nan], [199, 200, 1e-6, 2e-6, 50, 3], [290, 300, 1e-6, nan, 60, 0]]
    )
    computing[:, :4] *= MS
    pings = order["pings"]
    messages = np.full((3, len(LATENCY_BYTES), pings, 6), nan)
    messages[0, ..., 0], messages[1, ..., 0], messages[1, ..., 1] = 1_000, 4_000, 9_000
    return {
        "still": np.repeat(still[:, None], count, axis=1),
        "computing": np.repeat(computing[:, None], count, axis=1) if one_sided else None,
        "wrong": 0,
        "messages": messages,
    }


def play(plan: TransferPlan = PLAN) -> tuple[list[dict[str, Any]], list[TransferResult], Had]:
    """Every order, every line, and what the course returned."""
    orders: list[dict[str, Any]] = []
    kept: list[TransferResult] = []
    course = transfer_orders(plan, kept.extend, lambda words: None)
    order = next(course)
    while True:
        orders.append(order)
        answer: Any = None
        if order["stage"] == "opening":
            answer = {"device": "cpu", "refused": REFUSED, "clock_error_us": 0.0}
        elif order["stage"] == "moving":
            answer = seen_in(order)
        try:
            order = course.send(answer)
        except StopIteration as end:
            return orders, kept, end.value


def test_every_epoch_has_fresh_groups_and_visits_every_way_once_in_an_order_that_is_balanced() -> None:
    orders, _, had = play()
    assert had == Had((("broadcast", "gloo"), ("cpu-write", None), ("cpu-read", None)), "cpu")
    assert [order["stage"] for order in orders] == ["opening", *(["groups", *["moving"] * 3] * 4)]
    visits = [order for order in orders if order["stage"] == "moving"]
    for epoch in range(4):
        assert {order["way"] for order in visits if order["turn"] == epoch} == {
            "broadcast",
            "cpu-write",
            "cpu-read",
        }
    assert Counter(order["way"] for order in visits[:9:3]) == dict.fromkeys(
        ("broadcast", "cpu-write", "cpu-read"), 1
    )
    assert sum(order["repetitions"] for order in visits if order["way"] == "broadcast") == 10


def test_times_are_those_of_the_generator_that_waits_longest() -> None:
    _, kept, _ = play()
    of_way = {line.way: line for line in kept if isinstance(line, TransferTimes) and line.epoch == 0}
    broadcast, write = of_way["broadcast"], of_way["cpu-write"]
    assert set(broadcast.total_us) == {130e3}
    assert (set(broadcast.trainer_us), set(broadcast.frozen_us)) == ({50e3}, {80e3})
    assert set(broadcast.generator_us) == {110e3}
    assert (broadcast.stale_us, broadcast.slowdown, broadcast.steps) == (None, None, 0)
    # Where generators compute, how long they are held up is of the repetitions in which they did.
    assert set(write.generator_us) == {10e3}
    assert write.stale_us is not None
    assert set(write.stale_us) == {200e3}
    # The other generator made no whole step meanwhile.
    assert write.slowdown == 2.0
    repetitions = len(write.total_us)
    assert (write.steps, write.torn) == (110 * repetitions, 3 * repetitions)
    assert (write.nbytes, write.tensors, write.generators, write.arm) == (1024, 2, 2, None)


def test_a_read_is_timed_by_the_reader_and_a_message_by_both_ends() -> None:
    _, kept, _ = play()
    latency = {(line.way, line.nbytes): line for line in kept if isinstance(line, TransferLatency)}
    assert {nbytes for _, nbytes in latency} == set(LATENCY_BYTES)
    assert set(latency["cpu-read", 8].total_us) == {5.0}
    assert set(latency["cpu-write", 8].total_us) == {8.0}
    (status,) = [line for line in kept if isinstance(line, TransferStatus)]
    assert (status.way, status.reason) == ("nixl-read", "needs the package nixl")


def test_where_nothing_can_be_had_it_says_why() -> None:
    course = transfer_orders(PLAN, lambda lines: None, lambda words: None)
    next(course)
    with pytest.raises(RequestError, match="no way can be had here: broadcast: no gloo; cpu-read: no Linux"):
        course.send(
            {"device": "cpu", "refused": [("broadcast", "gloo", "no gloo"), ("cpu-read", None, "no Linux")]}
        )


# --- a device on which wait() does not wait


class LazyDevice(CpuDevice):
    """As CUDA: a work's wait() returns at once, and only synchronize() takes the time that it took."""

    def __init__(self) -> None:
        super().__init__()
        self.clock_ns = 0
        self.issued = 0
        self.now_ns = lambda: self.clock_ns

    def synchronize(self) -> None:
        self.clock_ns += 1000 * self.issued
        self.issued = 0


@pytest.mark.parametrize(("verb", "works"), [("broadcast", 3), ("broadcast-flat", 1), ("send", 6)])
def test_a_two_sided_way_is_over_when_the_device_is_done_and_not_when_wait_returns(
    verb: str, works: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = LazyDevice()
    moved: list[tuple[int, int]] = []

    class Work:
        def wait(self) -> None:
            pass

    def issue(tensor: torch.Tensor, peer: int, **settings: Any) -> Work:
        device.issued += 1
        moved.append((tensor.numel(), peer))
        return Work()

    for name in ("broadcast", "isend", "irecv"):
        monkeypatch.setattr(two_sided.dist, name, issue)
    weights = Weights([40, 8, 80], 0, CpuDevice(), lambda: None)
    trainer = Shared(verb, None, weights, device, 0, 3)
    assert trainer.give(1) == Given(0, 1000 * works, 1000 * works)
    assert sum(size for size, _ in moved) == (256 if verb == "send" else 128)
    generator = Shared(verb, None, weights, device, 2, 3)
    began = device.clock_ns
    taken = generator.take(1)
    assert isinstance(taken, Taken)
    assert taken.done_ns - began == 1000 * (1 if verb == "broadcast-flat" else 3)
    assert {peer for _, peer in moved[works:]} == {0}
