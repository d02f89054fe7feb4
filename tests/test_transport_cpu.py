"""Our own transport between two real processes: every byte, partial calls, errors, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transporting import beside_process

pytest.importorskip("torch.distributed._transport", reason="torch < 2.15 has no transports")

from torch.distributed._transport import new_transport, wait_all

from ncclbench.tables.transfers import CPU_TRANSPORT
from ncclbench.worker import vm_memory, vm_transport
from ncclbench.worker.vm_buffers import RemoteMemory
from ncclbench.worker.vm_memory import (
    IOV_MAX,
    Neighbour,
    Part,
    PeerGone,
    advance,
    head,
    identity,
    why_forbidden,
)
from ncclbench.worker.vm_transport import CpuTransport

NBYTES = (1 << 20) + 3


class Peer:
    """The other process with its tensor, which tells its bytes, and this process' endpoint to it."""

    def __init__(self, pipe: Connection, pid: int) -> None:
        self._pipe, self.pid = pipe, pid
        self.endpoint = CpuTransport("cpu", timeout=5.0)
        pipe.send(self.endpoint.bind())
        url, descriptor = pipe.recv()
        self.endpoint.connect(url)
        self.remote = RemoteMemory.deserialize(descriptor)

    def bytes(self) -> bytes:
        self._pipe.send("tell")
        return bytes(self._pipe.recv())


def hold(pipe: Connection) -> None:
    """The other process: a tensor of zeros, and its bytes whenever they are asked for."""
    # Threads of the parent's torch do not outlive the fork.
    torch.set_num_threads(1)
    endpoint = CpuTransport("cpu")
    tensor = torch.zeros(NBYTES, dtype=torch.uint8)
    endpoint.connect(pipe.recv())
    pipe.send((endpoint.bind(), endpoint.register_memory(tensor).to_remote_buffer().serialize()))
    while pipe.recv() == "tell":
        pipe.send(tensor.numpy().tobytes())


@pytest.fixture
def peer() -> Iterator[Peer]:
    with beside_process(hold) as (pipe, pid):
        yield Peer(pipe, pid)


def random_bytes(nbytes: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8))


# --- every byte


def test_a_write_and_a_read_move_every_byte(peer: Peer) -> None:
    sent, back = random_bytes(NBYTES), torch.zeros(NBYTES, dtype=torch.uint8)
    assert peer.endpoint.write(peer.endpoint.register_memory(sent).to_view(), peer.remote) == 0
    assert peer.bytes() == sent.numpy().tobytes()
    assert peer.endpoint.read(peer.endpoint.register_memory(back).to_mutable_view(), peer.remote) == 0
    assert torch.equal(sent, back)


def test_a_range_goes_to_the_beginning_and_the_rest_stays(peer: Peer) -> None:
    sent = random_bytes(1000)
    memory = peer.endpoint.register_memory(sent)
    peer.endpoint.write(memory.to_view(100, 50), peer.remote)
    assert peer.bytes()[:51] == sent.numpy()[100:150].tobytes() + b"\0"


def test_more_works_than_a_call_takes_all_arrive_and_resolve_their_futures(peer: Peer) -> None:
    """Each goes to a place of its own, so that a part too many or too few in a call would be seen."""
    count = IOV_MAX + 77
    sent = random_bytes(count * 8)
    memory = peer.endpoint.register_memory(sent)
    places = [replace(peer.remote, address=peer.remote.address + 8 * place) for place in range(count)]
    works: Any = [
        peer.endpoint.write(memory.to_view(8 * place, 8), places[place], async_op=True)
        for place in range(count)
    ]
    asyncio.run(wait_all(works, timeout=10.0))
    assert all(work.is_completed() and work.is_success() for work in works)
    assert works[-1].get_future().wait() == []
    assert peer.bytes()[: count * 8] == sent.numpy().tobytes()


def test_what_the_kernel_moves_in_part_is_gone_on_with(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that takes 1,000 bytes a call, as a busy one might: nothing is lost or doubled."""
    whole, calls = Neighbour.move, []

    def partly(self: Neighbour, parts: list[Part], *, writes: bool) -> int:
        calls.append(len(parts))
        return whole(self, head(parts, 0, 0, 1000), writes=writes)

    monkeypatch.setattr(Neighbour, "move", partly)
    sent = random_bytes(10_001)
    memory = peer.endpoint.register_memory(sent)
    places = [replace(peer.remote, address=peer.remote.address + place) for place in (0, 2500, 7001)]
    views = [memory.to_view(0, 2500), memory.to_view(2500, 4501), memory.to_view(7001)]
    works: Any = [
        peer.endpoint.write(view, place, async_op=True) for view, place in zip(views, places, strict=True)
    ]
    for work in works:
        assert work.wait()
    assert len(calls) >= 11
    assert peer.bytes()[:10_001] == sent.numpy().tobytes()


def test_parts_of_a_call_and_where_the_next_begins() -> None:
    parts = [Part(0, 100, 10), Part(10, 300, 5), Part(15, 500, 20)]
    assert head(parts, 0, 4, 100) == [Part(4, 104, 6), Part(10, 300, 5), Part(15, 500, 20)]
    assert head(parts, 0, 0, 12) == [Part(0, 100, 10), Part(10, 300, 2)]
    assert advance(parts, 0, 4, 6) == (1, 0)
    assert advance(parts, 0, 0, 12) == (1, 2)
    assert advance(parts, 1, 2, 23) == (3, 0)
    assert len(head([Part(n, n, 1) for n in range(3 * IOV_MAX)], 5, 0, 1 << 30)) == IOV_MAX


# --- a peer that is not there


def test_a_dead_peer_is_told_at_once_by_both_forms(peer: Peer) -> None:
    view = peer.endpoint.register_memory(random_bytes(100)).to_view()
    os.kill(peer.pid, signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises(PeerGone, match=f"process {peer.pid} has ended"):
        peer.endpoint.write(view, peer.remote)
    work: Any = peer.endpoint.write(view, peer.remote, async_op=True)
    with pytest.raises(PeerGone):
        work.wait(timedelta(seconds=5))
    assert work.is_completed()
    assert not work.is_success()
    with pytest.raises(PeerGone):
        asyncio.run(peer.endpoint.write_async(view, peer.remote, timeout=5.0))


def test_a_stopped_peer_is_not_noticed(peer: Peer) -> None:
    sent = random_bytes(NBYTES)
    view = peer.endpoint.register_memory(sent).to_view()
    os.kill(peer.pid, signal.SIGSTOP)
    assert peer.endpoint.write(view, peer.remote) == 0
    os.kill(peer.pid, signal.SIGCONT)
    assert peer.bytes() == sent.numpy().tobytes()


def test_another_process_with_the_peers_pid_is_never_touched() -> None:
    """As after a peer has died and its pid was given to somebody else: told by when it was started."""
    me = identity()
    with pytest.raises(PeerGone):
        Neighbour(replace(me, started=me.started + 1))
    with pytest.raises(ValueError, match="another host"):
        Neighbour(replace(me, host="elsewhere"))


def test_memory_that_is_not_mapped_is_an_error_with_the_calls_name(peer: Peer) -> None:
    view = peer.endpoint.register_memory(random_bytes(64)).to_view()
    with pytest.raises(OSError, match="process_vm_writev: Bad address"):
        peer.endpoint.write(view, replace(peer.remote, address=8))


def test_a_timeout_bounds_the_wait_and_not_the_transfer(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Neighbour.move

    def slowly(self: Neighbour, parts: list[Part], *, writes: bool) -> int:
        time.sleep(0.3)
        return whole(self, parts, writes=writes)

    monkeypatch.setattr(Neighbour, "move", slowly)
    view = peer.endpoint.register_memory(random_bytes(64)).to_view()
    work: Any = peer.endpoint.write(view, peer.remote, async_op=True, timeout=0.05)
    with pytest.raises(TimeoutError, match="goes on"):
        work.wait()
    with pytest.raises(TimeoutError, match="close again later"):
        peer.endpoint.close(timeout=0.01)
    assert work.wait(timedelta(seconds=5))
    peer.endpoint.close()
    assert peer.bytes()[:64] == view.memory.tensor.numpy().tobytes()


def test_a_call_that_is_not_over_in_time_stops_between_two_pieces(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm_transport, "CALL_BYTES", 1000)
    view = peer.endpoint.register_memory(random_bytes(NBYTES)).to_view()
    with pytest.raises(TimeoutError, match="was stopped"):
        peer.endpoint.write(view, peer.remote, timeout=0.0)


# --- what it refuses


def test_forbidden_calls_say_how_to_mend_it(
    peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = tmp_path / "ptrace_scope"
    told = {}
    for value in ("0", "1", "2"):
        scope.write_text(f"{value}\n")
        told[value] = why_forbidden("process_vm_readv", scope)
    assert "--cap-add SYS_PTRACE" in told["0"]
    assert "PR_SET_PTRACER" in told["1"]
    assert "set it to 1 or 0" in told["2"]
    assert "--cap-add SYS_PTRACE" in why_forbidden("process_vm_readv", tmp_path / "nothing")

    def forbid(*arguments: Any) -> int:
        vm_memory.ctypes.set_errno(1)
        return -1

    forbid.__name__ = "process_vm_writev"
    neighbour = peer.endpoint._peer
    assert neighbour is not None
    monkeypatch.setitem(neighbour._calls, True, forbid)
    view = peer.endpoint.register_memory(random_bytes(64)).to_view()
    with pytest.raises(PermissionError, match="process_vm_writev is forbidden"):
        peer.endpoint.write(view, peer.remote)


def test_peers_of_one_parent_are_let_in_by_it_and_others_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PR_SET_PTRACER takes one process: the common parent, one peer, or in the end anybody of this user."""
    named: list[int] = []

    class Libc:
        def prctl(self, option: int, value: Any, *rest: int) -> int:
            named.append(value.value)
            return 0

    monkeypatch.setattr(vm_memory.ctypes, "CDLL", lambda *arguments, **settings: Libc())
    me, permission = identity(), vm_memory.Permission()
    permission.allow(replace(me, pid=11))
    permission.allow(replace(me, pid=12))
    assert named == [os.getppid(), os.getppid()]
    permission.allow(replace(me, pid=13, parent=2))
    other = vm_memory.Permission()
    other.allow(replace(me, pid=13, parent=2))
    assert named[2:] == [vm_memory._PR_SET_PTRACER_ANY, 13]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"transport":"ncclbench-cpu","pid":1,"started":1,"address":-1,"nbytes":1}',
        b'{"transport":"ncclbench-cpu","pid":true,"started":1,"address":1,"nbytes":1}',
        b'{"transport":"nixl","pid":1,"started":1,"address":1,"nbytes":1}',
        b'{"transport":"ncclbench-cpu","pid":1,"started":1,"address":1,"nbytes":1,"more":1}',
        b"[" * 100_000,
    ],
)
def test_descriptors_from_elsewhere_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="descriptor"):
        RemoteMemory.deserialize(data)
    with pytest.raises(ValueError, match="URL"):
        CpuTransport().connect(data)


def test_views_memory_and_peers_that_do_not_belong_together_are_refused(peer: Peer) -> None:
    own, other = peer.endpoint, CpuTransport("cpu")
    memory = own.register_memory(random_bytes(100))
    with pytest.raises(TypeError, match="not registered by this transport"):
        own.write(other.register_memory(random_bytes(8)).to_view(), peer.remote)
    with pytest.raises(TypeError, match="not registered"):
        own.read(memory.to_view(), peer.remote)
    with pytest.raises(ValueError, match="connected peer"):
        own.write(memory.to_view(), replace(peer.remote, pid=1))
    with pytest.raises(ValueError, match="does not fit"):
        own.write(memory.to_view(), replace(peer.remote, nbytes=99))
    with pytest.raises(ValueError, match="exceeds"):
        memory.to_view(50, 51)
    with pytest.raises(RuntimeError, match="not connected"):
        other.write(other.register_memory(random_bytes(8)).to_view(), peer.remote)
    with pytest.raises(ValueError, match="contiguous"):
        own.register_memory(random_bytes(100)[::2])
    with pytest.raises(RuntimeError, match="already connected"):
        own.connect(json.dumps({}).encode())
    view = memory.to_view()
    own.unregister_memory(memory)
    own.unregister_memory(memory)
    with pytest.raises(RuntimeError, match="unregistered"):
        own.write(view, peer.remote)
    own.close()
    with pytest.raises(RuntimeError, match="closed"):
        own.register_memory(random_bytes(8))


def test_torch_finds_it_by_name_and_it_moves_cpu_memory_only() -> None:
    vm_transport.register()
    vm_transport.register()
    with new_transport(CPU_TRANSPORT, "cpu") as found:
        assert isinstance(found, CpuTransport)
    with pytest.raises(RuntimeError, match="failed to create transport"):
        new_transport(CPU_TRANSPORT, "cuda")
