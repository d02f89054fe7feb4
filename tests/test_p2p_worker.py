"""The ways on one rank: what its clock reads, on a device with streams too, and that it sees wrong data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fake_device import FakeDevice

from ncclbench.plan.machine import Machine
from ncclbench.plan.model import Arm
from ncclbench.tables.ways import WAYS, Way, Works
from ncclbench.worker.device import CpuDevice
from ncclbench.worker.patterns import Pattern
from ncclbench.worker.programs import p2p_peers, p2p_ways
from ncclbench.worker.programs.p2p_ways import HOST_US, RECEIVER, SENDER, TOTAL_US, Buffers, Side, Ways


class Alone:
    """A bench of one process that believes it is one of several ranks."""

    def __init__(self, rank: int, device: Any, nranks: int = 2) -> None:
        self.rank, self.nranks = rank, nranks
        self.task = type("Task", (), {"local_ranks": 2})()
        self.place = type("Place", (), {"step": lambda place: None})()
        self._device = device

    def device(self, arm: Arm) -> Any:
        return self._device

    def gather(self, values: Any) -> Any:
        return np.stack([values] * self.nranks)


class OneGroup:
    arms = (Arm("gloo", "gloo"),)

    def get(self, index: int) -> str:
        return "the group"


def ways(rank: int, device: Any, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Ways:
    """The part with one way, called "it", whose calls are made up."""
    monkeypatch.setitem(WAYS, "it", replace(WAYS["isend"], name="it", **changes))
    monkeypatch.setattr(Machine, "rotation_bytes", lambda self, kind, ranks: 1 << 16)
    bench: Any = Alone(rank, device)
    groups: Any = OneGroup()
    return Ways(bench, lambda: None, groups, seed=1)


def order(nbytes: int = 100, **changes: Any) -> dict[str, Any]:
    usual = {"nbytes": nbytes, "visits": [(0, "it", False)], "iterations": 5, "warmup": 1, "check": 1}
    return usual | changes


def test_call_and_completion_on_a_device_with_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call returns after 1 us, the message takes 40 us: wait() does not block, the synchronize does."""
    device = FakeDevice(launch_ns=1_000)
    isend = device.operation(40_000, asynchronous=True)
    found = ways(SENDER, device, monkeypatch, send=lambda end: isend()).run(order(check=0, warmup=0))
    assert found is not None
    times, _ = found
    assert times.shape == (2, 1, 5, 2)
    assert times[0, 0, :, HOST_US].tolist() == [1.0] * 5
    assert times[0, 0, :, TOTAL_US].tolist() == [41.0] * 5
    assert device.log.count("synchronize") >= 5


def test_a_blocking_call_leaves_the_host_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    device = CpuDevice()

    def send(end: Any) -> Works:
        device.delay(2_000_000)
        return ()

    found = ways(SENDER, device, monkeypatch, send=send).run(order(check=0))
    assert found is not None
    host, total = found[0][0, 0, :, HOST_US], found[0][0, 0, :, TOTAL_US]
    assert (host >= 2000).all()
    assert (total - host < 1000).all()


def arriving(rank: int, spoil: bool) -> Any:
    """What a peer's message does to the buffer of this rank: all of it arrives, or one byte is another."""
    pattern = Pattern("uint8", None, 2, 1, torch.device("cpu"))
    shifts = iter(range(1, 100))

    def act(end: Any) -> Works:
        pattern.fill(end.into, 1 - rank, next(shifts) * 7_919)
        if spoil:
            end.into[-1] ^= 1
        return ()

    return act


@pytest.mark.parametrize("spoil", [False, True])
def test_one_wrong_byte_of_a_checked_message_is_counted(spoil: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    part = ways(RECEIVER, CpuDevice(), monkeypatch, recv=arriving(RECEIVER, spoil))
    visit = p2p_ways.Visit(part, _buffers(part), CpuDevice(), None, "it", both=False)
    assert [visit.checked() for _ in range(3)] == [int(spoil)] * 3


def test_a_message_that_never_comes_is_wrong_and_not_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    part = ways(RECEIVER, CpuDevice(), monkeypatch, recv=lambda end: ())
    visit = p2p_ways.Visit(part, _buffers(part), CpuDevice(), None, "it", both=False)
    assert [visit.checked() for _ in range(5)] == [1] * 5


def test_what_comes_back_is_checked_on_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    def echo(end: Any) -> Works:
        end.into.copy_(end.out)
        return ()

    part = ways(SENDER, CpuDevice(), monkeypatch, send=echo, round_trip=True)
    visit = p2p_ways.Visit(part, _buffers(part), CpuDevice(), None, "it", both=False)
    assert visit.checked() == 0
    monkeypatch.setitem(WAYS, "it", replace(WAYS["it"], send=lambda end: ()))
    assert p2p_ways.Visit(part, _buffers(part), CpuDevice(), None, "it", both=False).checked() == 1


def test_ranks_beyond_the_pair_only_keep_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(end: Any) -> Works:
        raise AssertionError("it sends nothing")

    found = ways(2, CpuDevice(), monkeypatch, send=never, recv=never).run(order())
    assert found is not None
    assert not found[0].any()
    assert found[1] == [0]


def test_a_way_without_two_directions_refuses_both(monkeypatch: pytest.MonkeyPatch) -> None:
    part = ways(SENDER, CpuDevice(), monkeypatch, exchange=None)
    with pytest.raises(ValueError, match="no form in which both send at once"):
        p2p_ways.Visit(part, _buffers(part), CpuDevice(), None, "it", both=True)


def test_buffers_take_turns_past_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    part = ways(SENDER, CpuDevice(), monkeypatch)
    buffers = _buffers(part, 1000)
    first = {buffers.take()[0].data_ptr() for _ in range(buffers.count)}
    assert len(first) == buffers.count == (1 << 16) // (2 * 1024)
    assert buffers.take()[0].data_ptr() in first
    out, into = buffers.take()
    assert (out.numel(), into.numel()) == (1000, 1000)
    assert out.data_ptr() != into.data_ptr()
    assert bool(out.any()), "zeros may travel faster than data"


def _buffers(part: Ways, nbytes: int = 100) -> Buffers:
    return Buffers(nbytes, CpuDevice(), 2, part.pattern(CpuDevice()), part.rank)


class Silent:
    """torch.distributed that moves nothing and says that all is done."""

    ReduceOp = torch.distributed.ReduceOp

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: type("Work", (), {"wait": lambda work: None})()


def peers_of(rank: int, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[Any, int]:
    """What the part finds of two ranks between which nothing moves."""
    monkeypatch.setattr(p2p_peers, "dist", Silent())
    bench: Any = Alone(rank, CpuDevice())
    groups: Any = OneGroup()
    usual = {"arm": 0, "nbytes": 64, "peers": [1], "beside": True, "iterations": 2, "check": 1}
    found = p2p_peers.Peers(bench, lambda: None, groups, seed=1).run(usual | changes)
    assert found is not None
    return found


def test_messages_and_the_collective_beside_them_are_checked_before_and_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two passes, and each rank of the two is given the same: a message and a sum that did not come."""
    times, wrong = peers_of(RECEIVER, monkeypatch)
    assert times.shape == (3, 2)
    assert wrong == 2 * 2 * 2
    assert peers_of(RECEIVER, monkeypatch, beside=False)[1] == 2 * 2
    assert peers_of(SENDER, monkeypatch, beside=False)[1] == 0
    assert peers_of(RECEIVER, monkeypatch, check=0)[1] == 0


class Recorder:
    """torch.distributed as far as the ways go: it keeps what is called with which peer and buffer."""

    isend, irecv = "isend", "irecv"

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, str]] = []

    def _call(self, name: str, buffer: str, peer: int) -> str:
        self.calls.append((name, peer, buffer))
        return name

    def __getattribute__(self, name: str) -> Any:
        if name in ("send", "recv") or (name in ("isend", "irecv") and not self.batching):
            return lambda buffer, group, group_dst=None, group_src=None: self._call(
                name, buffer, group_src if group_dst is None else group_dst
            )
        return super().__getattribute__(name)

    batching = False

    def P2POp(self, name: str, buffer: str, group: str, group_peer: int) -> tuple[str, int, str]:
        return name, group_peer, buffer

    def batch_isend_irecv(self, operations: list[tuple[str, int, str]]) -> list[str]:
        self.calls += operations
        return ["batch"]


def made(way: Way, act: str) -> tuple[list[tuple[str, int, str]], int]:
    """What a form of a way calls, and how many Works it leaves."""
    recorder = Recorder()
    recorder.batching = way.name == "batched"
    side: Any = Side("out", "into", 1, "the group", recorder)  # type: ignore[arg-type]
    works = getattr(way, act)(side)
    return recorder.calls, len(works)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_one_side_sends_the_other_receives(way: Way) -> None:
    forms = [("send", "recv")] + ([("exchange", "exchange")] if way.exchange else [])
    for mine, other in forms:
        (sent, _), (received, _) = made(way, mine), made(way, other)
        count = [sum(name.endswith("send") for name, _, _ in calls) for calls in (sent, received)]
        taken = [sum(name.endswith("recv") for name, _, _ in calls) for calls in (sent, received)]
        assert count == taken[::-1]
        assert count[0] == way.messages
        assert all(peer == 1 for _, peer, _ in (*sent, *received))


def test_calls_that_do_not_block_leave_their_works() -> None:
    assert made(WAYS["send"], "send") == ([("send", 1, "out")], 0)
    assert made(WAYS["isend"], "send") == ([("isend", 1, "out")], 1)
    assert made(WAYS["isend"], "exchange") == ([("irecv", 1, "into"), ("isend", 1, "out")], 2)
    assert made(WAYS["window"], "send")[1] == 16
    assert made(WAYS["ping-pong"], "recv")[0] == [("recv", 1, "into"), ("send", 1, "into")]
