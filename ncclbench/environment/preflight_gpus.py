"""Findings about GPUs: shared, unlike, throttled, set below their default, narrowed, or ill."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ncclbench.environment.collect import Description
from ncclbench.environment.flight import Finding, Flight, as_one, finding, grouped, odd, of_gpu, some

# First NCCL that lets ranks of one communicator share a GPU.
SHARED_GPU_NCCL = (2, 30)

# Clocks and power limits this far below their default are meant, not rounding.
_LOWERED = 0.97
_THROTTLING = {
    "hardware slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
    "software thermal slowdown",
    # Not the software power cap: what ran before may just have touched it. A lowered limit is told below.
    "board limit",
    "reliability",
}


def shared_gpus(flight: Flight) -> Iterator[Finding]:
    """Ranks that use one GPU."""
    if not flight.uses_cuda:
        return
    refused, impossible = [], []
    for name, _, ranks in flight.on_machines():
        on_gpu = [rank for rank in ranks if rank.get("gpu")]
        for gpu, sharing in grouped(on_gpu, _gpu_identity).items():
            if gpu is None or len(sharing) < 2:
                continue
            what = f"{len(sharing)} ranks use one GPU of {name} ({sharing[0]['device']}, {gpu})"
            if not flight.share_gpu:
                mend = "start one rank per GPU, or let them share it with --share-gpu (NCCL 2.30 or later)"
                refused.append(finding("error", sharing, what, mend))
            elif flight.uses_nccl and _too_old(sharing[0].get("nccl")):
                what = f"{what}, which NCCL {sharing[0].get('nccl')} cannot do"
                mend = "use NCCL 2.30 or later, or one rank per GPU"
                impossible.append(finding("error", sharing, what, mend))
    yield from as_one(refused)
    yield from as_one(impossible)


def _gpu_identity(rank: Description) -> Any:
    """What NCCL tells GPUs apart by: the bus, which MIG instances of one GPU share."""
    return of_gpu(rank, "pci_bus_id") or of_gpu(rank, "uuid")


def _too_old(nccl: Any) -> bool:
    match = re.match(r"([0-9]{1,6})\.([0-9]{1,6})", str(nccl))
    return match is None or (int(match[1]), int(match[2])) < SHARED_GPU_NCCL


def clocks(flight: Flight) -> Iterator[Finding]:
    """GPUs that something holds below what they could do."""
    if not flight.uses_cuda:
        return
    throttled = [rank for rank in flight.ranks if _THROTTLING & set(of_gpu(rank, "throttle_reasons") or ())]
    for reasons, ranks in grouped(
        throttled, lambda rank: ", ".join(sorted(_THROTTLING & set(rank["gpu"]["throttle_reasons"])))
    ).items():
        what, mend = f"the GPU is throttled: {reasons}", "look after its cooling and power supply"
        yield finding("warning", ranks, what, mend)
    for now, normal, name, unit, mend in (
        ("sm_clock_set_mhz", "sm_clock_default_mhz", "SM clock is set to", "MHz", "nvidia-smi -rac"),
        ("power_limit_w", "power_limit_default_w", "power limit is", "W", "nvidia-smi -pl"),
    ):
        low = [rank for rank in flight.ranks if _lowered(of_gpu(rank, now), of_gpu(rank, normal))]
        if low:
            gpu = low[0]["gpu"]
            what = f"the GPU's {name} {gpu[now]:g} {unit}, its default is {gpu[normal]:g}"
            yield finding("warning", low, what, f"set it back ({mend}), or compare with GPUs set alike")
    # An idle GPU lowers its clock by itself; one that has work and is held down by a setting does not.
    held = [rank for rank in flight.ranks if _held_down(rank.get("gpu") or {})]
    if held:
        gpu = held[0]["gpu"]
        what = f"the GPU's SM clock is locked at {gpu['sm_clock_mhz']} of {gpu['sm_clock_max_mhz']} MHz"
        yield finding("warning", held, what, "nvidia-smi -rgc, or compare with GPUs set alike")


def _lowered(now: float | None, normal: float | None) -> bool:
    return bool(now and normal and now < _LOWERED * normal)


def _held_down(gpu: Description) -> bool:
    reasons = gpu.get("throttle_reasons") or ()
    by_setting = "applications clocks setting" in reasons and "gpu idle" not in reasons
    # The default of V100 and A100 lies below their maximum: such a GPU reads so when nothing is wrong.
    normal = gpu.get("sm_clock_default_mhz") or gpu.get("sm_clock_max_mhz")
    return by_setting and _lowered(gpu.get("sm_clock_mhz"), normal)


def models(flight: Flight) -> Iterator[Finding]:
    """GPUs of several models in one job."""
    values = grouped(
        [rank for rank in flight.ranks if of_gpu(rank, "name")], lambda rank: of_gpu(rank, "name")
    )
    if flight.uses_cuda and len(values) > 1:
        what = f"the GPU model differs between ranks: {some(values)}"
        yield finding("warning", odd(values), what, "the slowest sets the pace: run on GPUs of one model")


def narrowed(flight: Flight) -> Iterator[Finding]:
    """GPUs with fewer PCIe lanes than GPU and slot have, or fewer NVLinks than their twins of the host."""
    if not flight.uses_cuda:
        return
    lanes, links = [], []
    for host, ranks in flight.on_hosts():
        for rank in ranks:
            now, most = of_gpu(rank, "pcie_width"), of_gpu(rank, "pcie_width_max")
            if now and most and now < most:
                what = f"{_gpu_name(rank, host)} has {now} of {most} PCIe lanes"
                mend = "reseat the GPU or its riser and look at the slot"
                lanes.append(finding("warning", [rank], what, mend))
        for twins in grouped(ranks, lambda rank: of_gpu(rank, "name")).values():
            up = [of_gpu(rank, "nvlinks_up") or 0 for rank in twins]
            for rank, count in zip(twins, up, strict=True):
                if of_gpu(rank, "nvlinks_up") is not None and count < max(up):
                    what = f"{_gpu_name(rank, host)} has {count} NVLinks up, its twins have {max(up)}"
                    mend = "look at nvidia-smi nvlink -s and the fabric manager's log"
                    links.append(finding("warning", [rank], what, mend))
    yield from as_one(lanes)
    yield from as_one(links)


def sick(flight: Flight) -> Iterator[Finding]:
    """GPUs whose memory is failing."""
    if not flight.uses_cuda:
        return
    reset = "drain the host and reset the GPU"
    for key, what, mend in (
        ("ecc_uncorrected", "has uncorrected ECC errors since its driver was loaded", reset),
        ("row_remap_failed", "could not remap a memory row", "have the GPU replaced"),
        ("row_remap_pending", "has memory rows that wait to be remapped", reset),
        ("retired_pages_pending", "has memory pages that wait to be retired", reset),
    ):
        found = [
            finding("warning", [rank], f"{_gpu_name(rank, host)} {what}", mend)
            for host, ranks in flight.on_hosts()
            for rank in ranks
            if of_gpu(rank, key)
        ]
        yield from as_one(found)


def _gpu_name(rank: Description, host: Description) -> str:
    return f"the GPU of rank {rank['rank']} ({host['name']}, {rank['device']})"
