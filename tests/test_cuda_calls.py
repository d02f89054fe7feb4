"""What is called of torch.cuda, and in which order: on a recorded stand-in, since no GPU is needed for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ncclbench.faults import membership
from ncclbench.worker import cuda, groups
from ncclbench.worker.device import CpuDevice
from ncclbench.worker.parts import time_part


class FakeCuda:
    """torch.cuda as far as CudaDevice uses it: streams by number, events that say when they come to be.

    As torch's own (c10/cuda/CUDAEvent.h) an event is created when it is recorded first.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = 0
        self._streams = 0
        self._events = 0

    def set_device(self, device: torch.device) -> None:
        self.log.append(f"set_device {device.index}")

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(pci_domain_id=0, pci_bus_id=1, pci_device_id=0)

    def synchronize(self, device: Any = None) -> None:
        self.log.append("synchronize")

    def current_stream(self, device: Any = None) -> int:
        return self.current

    def Stream(self, device: Any = None) -> int:
        self._streams += 1
        self.log.append(f"create stream {self._streams}")
        return self._streams

    @contextlib.contextmanager
    def stream(self, stream: int) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def Event(self, enable_timing: bool = False) -> FakeEvent:
        assert enable_timing
        self._events += 1
        return FakeEvent(self, self._events)

    def CUDAGraph(self) -> Any:
        return SimpleNamespace(
            replay=lambda: self.log.append("replay"), reset=lambda: self.log.append("reset graph")
        )

    @contextlib.contextmanager
    def graph(self, graph: Any, capture_error_mode: str = "global") -> Iterator[None]:
        self.log.append(f"capture {capture_error_mode}")
        with self.stream(99):
            yield
        self.log.append("captured")


class FakeEvent:
    def __init__(self, fake: FakeCuda, number: int) -> None:
        self._fake = fake
        self._number = number
        self._is_created = False

    def record(self, stream: int | None = None) -> None:
        if not self._is_created:
            self._is_created = True
            self._fake.log.append("create event")
            return
        on = self._fake.current if stream is None else stream
        self._fake.log.append(f"record on {on}")

    def elapsed_time(self, other: FakeEvent) -> float:
        return 1.0


class FakeWork:
    def __init__(self, fake: FakeCuda) -> None:
        self._fake = fake

    def wait(self) -> None:
        self._fake.log.append(f"wait on {self._fake.current}")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda()
    monkeypatch.setattr(cuda.torch, "cuda", made)
    monkeypatch.setattr(cuda, "open_gauge", lambda identity: None)
    return made


def test_the_current_device_is_set_before_anything_else(fake: FakeCuda) -> None:
    cuda.CudaDevice(3)
    assert fake.log == ["set_device 3"]


def test_a_thread_that_ends_a_group_is_on_the_ranks_gpu(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = cuda.CudaDevice(3)
    fake.log.clear()
    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", lambda: fake.log.append("abort"))
    thread = threading.Thread(target=membership._destroy, args=(device,))
    thread.start()
    thread.join()
    assert fake.log == ["set_device 3", "abort"]


def test_no_event_and_no_stream_is_created_inside_the_clock(fake: FakeCuda) -> None:
    device = cuda.CudaDevice(0)
    fake.log.clear()

    def call() -> list[FakeWork]:
        fake.log.append("call")
        return [FakeWork(fake)]

    time_part("together", call, lambda: fake.log.append("launch"), device, lambda: fake.log.append("fence"))
    fence = fake.log.index("fence")
    assert sorted(fake.log[:fence]) == ["create event"] * 5 + ["create stream 1"]
    # Beside, the end of the operation is seen; the current stream waits for it only after the compute.
    assert fake.log[fence + 1 :] == [
        "record on 0",
        "call",
        "wait on 1",
        "record on 1",
        "launch",
        "record on 0",
        "wait on 0",
        "record on 0",
        "synchronize",
    ]


def test_each_of_several_ends_is_watched_on_a_stream_of_its_own(fake: FakeCuda) -> None:
    """On one stream the end that comes first would be seen where the later one is."""
    device = cuda.CudaDevice(0)
    watches = device.watches(2)
    fake.log.clear()
    for watch in watches:
        watch([FakeWork(fake)])
    assert fake.log == ["wait on 1", "record on 1", "wait on 2", "record on 2"]
    device.watches(2)
    assert not [entry for entry in fake.log if entry.startswith("create stream")], "streams are kept"


def test_a_capture_waits_for_its_works_and_leaves_other_threads_alone(fake: FakeCuda) -> None:
    device = cuda.CudaDevice(0)
    fake.log.clear()
    replay = device.capture([lambda: [FakeWork(fake)], lambda: None])
    replay()
    replay.reset()
    assert fake.log == ["capture thread_local", "wait on 99", "captured", "replay", "reset graph"]


@pytest.mark.parametrize("stream", [0, 4096])
def test_kernels_go_to_torchs_stream_also_where_0_means_the_threads_own(
    monkeypatch: pytest.MonkeyPatch, stream: int
) -> None:
    from ncclbench.kernels.cuda import CudaEngine
    from ncclbench.kernels.kind import Shape

    launched: list[Any] = []

    class Dispatcher:
        def __getitem__(self, configuration: Any) -> Any:
            return lambda *arguments: launched.append(configuration)

    engine: Any = CudaEngine.__new__(CudaEngine)
    current = SimpleNamespace(cuda_stream=stream)
    engine._torch = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda index: current))
    engine._cuda = SimpleNamespace(external_stream=lambda handle: ("stream", handle))
    engine._index, engine._launchers, engine._grid = 0, {}, (132, 1024)
    engine._function, engine._arrays = Dispatcher(), ()
    engine.launch(Shape(132, 1024, 1), ())
    engine.launch(Shape(132, 1024, 1), ())
    # 1 is CU_STREAM_LEGACY, which torch's 0 is.
    assert launched == [(132, 1024, ("stream", stream or 1))] * 2
    assert len(engine._launchers) == 1


def test_groups_of_a_mesh_get_this_workers_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made without a device_id, and new_group takes the default group's then."""
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        seen: list[Any] = []
        real = dist.distributed_c10d._new_process_group_helper

        def helper(*arguments: Any, **named: Any) -> Any:
            seen.append(named.get("device_id"))
            return real(*arguments, **(named | {"device_id": None}))

        monkeypatch.setattr(dist.distributed_c10d, "_new_process_group_helper", helper)
        device = torch.device("cuda", 1)
        default: Any = dist.group.WORLD
        with groups._default_device(device):
            dist.new_group([0], backend="gloo")
        assert default.bound_device_id is None
        dist.new_group([0], backend="gloo")
        assert seen == [device, None]
    finally:
        dist.destroy_process_group()


def test_a_mesh_binds_only_arms_that_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    from ncclbench.plan.model import Arm
    from ncclbench.worker.cuts import Part

    bound: list[Any] = []

    @contextlib.contextmanager
    def default_device(device: Any) -> Iterator[None]:
        bound.append(device)
        yield

    def mesh(*arguments: Any, **named: Any) -> Any:
        return SimpleNamespace(get_group=lambda dimension: dimension)

    monkeypatch.setattr(groups, "_default_device", default_device)
    monkeypatch.setattr(groups, "init_device_mesh", mesh)
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: (0,))
    monkeypatch.setattr(groups, "_opened", lambda *arguments, **named: None)
    monkeypatch.setattr(groups, "register_third_party", lambda backend: None)
    part = Part("mesh:dp=1@dp", ((0,),), 0, (0,), 0, mesh=(("dp", 1),))
    gpu: Any = SimpleNamespace(kind="cuda", torch_device=torch.device("cuda", 1))
    for backend, device in (("nccl2", gpu), ("nccl-legacy", gpu), ("nccl-legacy-eager", gpu)):
        groups._open_mesh(Arm(backend, backend), device, 1.0, [part])
    groups._open_mesh(Arm("gloo", "gloo"), CpuDevice(), 1.0, [part])
    assert bound == [gpu.torch_device, None, gpu.torch_device, None]
