"""Checks that no command makes: CUDA events, kernels, graphs, NVML, memory. One per process.

Its verdict is the last line that it prints.

    python -m gpu_check.direct NAME --device cuda --backend nccl2 --nranks 1
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_check.judging import UNAVAILABLE, WORKS, WRONG


class Absent(Exception):
    """This machine has not what the check is about."""


def counting(asked: argparse.Namespace) -> str:
    """GPUs are counted without CUDA, so that workers can be forked afterwards; torch counts as many."""
    import torch

    import ncclbench.supervise.launch  # noqa: F401  what a supervisor imports
    from ncclbench.environment.gpu import count_gpus

    counted = count_gpus()
    if torch.cuda.is_initialized():
        raise AssertionError("CUDA is initialised in the supervisor")
    if os.fork() == 0:
        seen = torch.cuda.device_count() if torch.backends.cuda.is_built() else 0
        if seen:
            torch.ones(1, device="cuda")
        os._exit(min(seen, 100))
    _, status = os.wait()
    if os.waitstatus_to_exitcode(status) != min(counted, 100):
        raise AssertionError(f"{counted} GPUs are counted, and a forked worker has {status >> 8} of them")
    return f"{counted} counted; a worker forked afterwards can use them"


def events(asked: argparse.Namespace) -> str:
    """The order of the timed loop: what the end event sees, and what the host would have seen at wait()."""
    import torch
    import torch.distributed as dist

    from ncclbench.worker.loop import time_samples

    with _Group(asked) as (device, group):
        data = torch.ones(64 << 20, device=device.torch_device)

        def call() -> tuple[Any, ...]:
            return (dist.all_reduce(data, op=dist.ReduceOp.MAX, group=group, async_op=True),)

        for work in call():
            work.wait()
        device.synchronize()
        # Work before it on the stream, so that there is something to wait for at any world size.
        began = device.now_ns()
        device.delay(20_000_000)
        (work,) = call()
        work.wait()
        waited = device.now_ns()
        device.synchronize()
        ended = device.now_ns()
        samples = time_samples(device, [[call]] * 5, lambda: None, lambda index: None)
    wait_ms, end_ms = (waited - began) / 1e6, (ended - began) / 1e6
    if end_ms < 15:
        raise AssertionError(f"20 ms of work on the stream took {end_ms:.1f} ms")
    if samples.device is None or (samples.device <= 0).any():
        raise AssertionError("the events have no time between them")
    if (samples.device > samples.total * 1.05 + 50_000).any():
        raise AssertionError("the events say more than the host's clock around them")
    if wait_ms > end_ms / 2:
        raise AssertionError(f"wait() blocks the host: {wait_ms:.1f} of {end_ms:.1f} ms")
    return f"wait() returned after {wait_ms:.2f} ms, synchronize after {end_ms:.1f} ms"


def kernels(asked: argparse.Namespace) -> str:
    """Each kernel's result, and that a launch is on torch's stream: events around it see it."""
    from ncclbench.kernels import KINDS, make_kernel, why_unavailable

    reason = why_unavailable(asked.device)
    if reason is not None:
        raise Absent(reason)
    told = []
    device = _device(asked)
    for kind in KINDS:
        kernel = make_kernel(kind, asked.device)
        kernel.compile()
        kernel.launch()
        if not kernel.check():
            raise AssertionError(f"{kind}: wrong results")
        if asked.device == "cuda":
            ((start, end),) = device.event_pairs(1)
            device.synchronize()
            start.record()
            kernel.launch()
            end.record()
            device.synchronize()
            us = device.elapsed_us((start, end))
            if us < 5:
                raise AssertionError(
                    f"{kind}: events around a launch see {us:.1f} us: it is on another stream"
                )
            told.append(
                f"{kind} {kernel.flops() / us / 1e6:.1f} TFLOP/s, {kernel.nbytes() / us / 1e3:.0f} GB/s"
            )
        else:
            told.append(kind)
    return ", ".join(told) + _architecture(asked)


def _architecture(asked: argparse.Namespace) -> str:
    if asked.device != "cuda":
        return ""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f" (sm_{major}{minor})"


def graphs(asked: argparse.Namespace) -> str:
    """Capture of sync and async collectives, a replay's result, reset before the group's end."""
    import torch
    import torch.distributed as dist

    with _Group(asked) as (device, group):
        data = torch.ones(1 << 20, device=device.torch_device)
        dist.all_reduce(data, group=group)
        device.synchronize()

        def later() -> tuple[Any, ...]:
            return (dist.all_reduce(data, group=group, async_op=True),)

        replay = device.capture([lambda: dist.all_reduce(data, group=group), later])
        try:
            data.fill_(1.0)
            replay()
            replay()
            device.synchronize()
            if not bool((data == 1.0).all()):
                raise AssertionError("a replay gave a wrong sum over one rank")
        finally:
            replay.reset()
    return "captured with and without async_op, replayed twice, reset, group destroyed"


def nvml(asked: argparse.Namespace) -> str:
    """The GPU that torch has, found by its bus id, and what it does not tell."""
    import pynvml
    import torch

    from ncclbench.environment.counters import read_counters
    from ncclbench.environment.gpu import bus_id, read_gpu
    from ncclbench.environment.nvml import find_handle, opened

    properties = torch.cuda.get_device_properties(0)
    identity = bus_id(properties)
    found = read_gpu(identity)
    if found["name"] is None:
        raise Absent(f"NVML does not answer: {found['missing'].get('name')}")
    if found["name"].replace("NVIDIA ", "") not in properties.name:
        raise AssertionError(f"NVML has {found['name']} at {identity}, torch {properties.name}")
    if found["sm_clock_mhz"] is None or found["memory_total_bytes"] is None:
        raise AssertionError(f"no clock or memory: {found['missing']}")
    counters = read_counters(identity)
    torch.ones(1, device="cuda")
    with opened() as bound:
        processes = bound.nvmlDeviceGetComputeRunningProcesses(find_handle(bound, identity))
    missing = ", ".join(sorted(found["missing"])) or "nothing"
    return (
        f"SM {found['sm_clock_mhz']} of {found['sm_clock_max_mhz']} MHz, throttled by "
        f"{found['throttle_reasons']}, ECC {found['ecc']}, {found['nvlinks_up']} NVLinks up, "
        f"{len(processes)} processes, {len(counters)} counters; not told: {missing} ({pynvml.__name__})"
    )


def memory(asked: argparse.Namespace) -> str:
    """What one communicator takes, and what stays of it."""
    from ncclbench.worker.footprint import footprint, settled

    device = _device(asked)
    before = footprint(device.torch_device)
    with _Group(asked, device) as (_, group):
        backend = group._get_backend(device.torch_device)
        during = footprint(device.torch_device, [backend])
    after = settled(device.torch_device, before)
    key = "device_bytes" if asked.device == "cuda" else "rss_bytes"
    taken, stays = ((one[key] or 0) - (before[key] or 0) for one in (during, after))
    own = during["backend_bytes"]
    return f"{taken >> 20} MiB for a communicator, {stays >> 20} MiB stay; its own count {own}"


def pool(asked: argparse.Namespace) -> str:
    """A pool of NCCL's allocator as a symmetric window of a communicator."""
    from ncclbench.worker.symmetric import SymmetricMemory

    with _Group(asked) as (device, group):
        backend = group._get_backend(device.torch_device)
        if not hasattr(backend, "register_mem_pool"):
            raise Absent(f"{type(backend).__name__} has no register_mem_pool")
        memory_ = SymmetricMemory(backend, 8 << 20, device.torch_device)
        memory_.storage.fill_(1)
        memory_.register(backend)
        device.synchronize()
        memory_.deregister(backend)
    return "8 MiB registered and deregistered"


def dump(asked: argparse.Namespace) -> str:
    """Real dumps: every rank makes some collectives and writes its recorder."""
    import multiprocessing

    folder = Path(asked.out)
    folder.mkdir(parents=True)
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=_dumping, args=(asked, rank)) for rank in range(asked.nranks)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(120)
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        rank.kill()
    if any(codes):
        raise AssertionError(f"ranks ended with {codes}")
    if not list(folder.iterdir()):
        raise Absent("no recorder holds anything")
    return f"{len(list(folder.iterdir()))} dumps"


def _dumping(asked: argparse.Namespace, rank: int) -> None:
    os.environ["TORCH_FR_BUFFER_SIZE"] = os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "100"
    import torch
    import torch.distributed as dist

    from ncclbench.worker import recorder
    from ncclbench.worker.devices import Devices

    device = Devices(rank).get(asked.device)
    with _Group(asked, device, rank) as (_, group):
        data = torch.ones(1024, device=device.torch_device)
        for _ in range(5):
            dist.all_reduce(data, group=group)
        device.synchronize()
        for backend, content in recorder.dumps(rank):
            (Path(asked.out) / f"{backend}_rank_{rank}").write_bytes(content)


def _device(asked: argparse.Namespace) -> Any:
    from ncclbench.worker.devices import Devices

    return Devices(0).get(asked.device)


class _Group:
    """A group of one rank, or of all that write their dumps, on the device."""

    def __init__(self, asked: argparse.Namespace, device: Any = None, rank: int = 0) -> None:
        self._asked, self._device, self._rank = asked, device, rank

    def __enter__(self) -> tuple[Any, Any]:
        import torch.distributed as dist

        from ncclbench.plan.model import Arm
        from ncclbench.worker.groups import close_group, open_group, prepare_environment, why_unavailable

        arm = Arm(self._asked.backend, self._asked.backend)
        reason = why_unavailable(arm)
        if reason is not None:
            raise Absent(reason)
        self._device = self._device or _device(self._asked)
        size = self._asked.nranks if self._asked.check == "dump" else 1
        shares = self._asked.device == "cuda" and size > 1
        prepare_environment(one_host=True, share_gpu=shares, ranks_per_gpu=size)
        store: Any = dist.HashStore() if size == 1 else dist.FileStore(f"{self._asked.out}.store", size)
        dist.init_process_group("gloo", store=store, rank=self._rank, world_size=size)
        self._close, self._opened = close_group, open_group(arm, self._device, 60.0)
        return self._device, self._opened.group

    def __exit__(self, *exc_info: object) -> None:
        import torch.distributed as dist

        self._close(self._opened)
        dist.destroy_process_group()


DIRECT: dict[str, Callable[[argparse.Namespace], str]] = {
    check.__name__: check for check in (counting, events, kernels, graphs, nvml, memory, pool, dump)
}


def main() -> None:
    """Make one check and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("check", choices=sorted(DIRECT))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--backend", default="nccl2")
    parser.add_argument("--nranks", type=int, default=1)
    parser.add_argument("--out")
    asked = parser.parse_args()
    try:
        word, reason = WORKS, DIRECT[asked.check](asked)
    except Absent as absent:
        word, reason = UNAVAILABLE, str(absent)
    except Exception as error:  # whatever is wrong is the answer
        import traceback

        traceback.print_exc()
        word, reason = WRONG, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    print(json.dumps({"verdict": word, "reason": reason}), flush=True)
    sys.exit(int(word == WRONG))


if __name__ == "__main__":
    main()
