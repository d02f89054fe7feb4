"""What would spoil a measurement, found before it begins: settings, versions, and what shares a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ncclbench.environment.collect import whole_ranks
from ncclbench.environment.flight import (
    Finding,
    Flight,
    as_one,
    finding,
    grouped,
    some,
    variable,
)
from ncclbench.environment.host import parse_ranges
from ncclbench.environment.preflight_alike import clocks_apart, settings, systems, versions
from ncclbench.environment.preflight_gpus import clocks, models, narrowed, shared_gpus, sick
from ncclbench.errors import RequestError
from ncclbench.tables.backends import find_backend
from ncclbench.units import format_memory

# torch's own reading of a switch (torch/csrc/distributed/c10d/Utils.hpp, getCvarBool).
_TRUE = ("y", "yes", "1", "t", "true")

# Load of the last minute that is not the ranks' own starting, as a share of the host's processors.
# A rank that starts counts as one; background services of an idle machine stay far below.
_BUSY_SHARE = 0.25
_BUSY_LEAST = 1.0

# Of a host's memory: below the first it will swap or kill, below the second with swap in use it swaps.
_SHORT_OF_MEMORY = 0.05
_SWAPPING = 0.10


def findings(
    environment: Mapping[str, Any], *, nranks: int, backends: Sequence[str], share_gpu: bool
) -> list[Finding]:
    """What is wrong with the environment for these backends, errors first.

    Args:
        environment: as ``merge`` makes it.
        nranks: ranks that were launched.
        backends: of the arms, by name; what concerns none of them is not mentioned.
        share_gpu: ranks may share a GPU.

    Returns:
        ``severity`` ("error": the run would fail or be void; "warning": its times would be off),
        ``ranks`` it is about, ``what`` and ``mend``, a line each.
    """
    ranks = whole_ranks(environment)
    devices = [_device(name) for name in backends]
    on_gpus = any(rank["device"] != "cpu" for rank in ranks)
    uses_cuda = "cuda" in devices or ("any" in devices and on_gpus)
    flight = Flight(
        hosts=environment["hosts"],
        ranks=ranks,
        nranks=nranks,
        backends=backends,
        share_gpu=share_gpu,
        uses_cuda=uses_cuda,
        uses_nccl=any(name.startswith("nccl") for name in backends),
    )
    found = [each for check in _CHECKS for each in check(flight)]
    return sorted(found, key=lambda each: each["severity"] != "error")


def _device(backend: str) -> str:
    try:
        return find_backend(backend).device
    except RequestError:  # a run of another machine may name what is not installed here
        return "any"


def _world(flight: Flight) -> Iterator[Finding]:
    mend = "start all ranks with one launcher and leave its variables as it sets them"
    numbers = [rank["rank"] for rank in flight.ranks]
    if sorted(numbers) != list(range(flight.nranks)):
        what = f"{flight.nranks} ranks were launched but ranks {some(numbers)} answer"
        yield finding("error", flight.ranks, what, mend)
    for size, ranks in grouped(flight.ranks, lambda rank: variable(rank, "WORLD_SIZE")).items():
        if size and size != str(flight.nranks):
            yield finding("error", ranks, f"WORLD_SIZE={size} but {flight.nranks} ranks were launched", mend)


def _settings(flight: Flight) -> Iterator[Finding]:
    """Variables that slow everything down."""

    def on(*values: str) -> Callable[[str], bool]:
        return lambda value: value.strip().lower() in values

    nccl, cuda = flight.uses_nccl, flight.uses_cuda
    spoilers = (
        (True, "TORCH_DISTRIBUTED_DEBUG", on("detail"), "checks every collective with one of its own"),
        (cuda, "CUDA_LAUNCH_BLOCKING", lambda value: value not in ("", "0"), "waits after every kernel"),
        (nccl, "TORCH_NCCL_BLOCKING_WAIT", on(*_TRUE), "blocks the host in every wait()"),
        (nccl, "TORCH_NCCL_NAN_CHECK", on(*_TRUE), "looks at every buffer before it is sent"),
        (True, "TORCH_DIST_NAN_CHECK", on("1"), "looks at every buffer before it is sent"),
        (nccl, "NCCL_DEBUG", on("info", "trace"), "writes lines while timing"),
    )
    for matters, name, bad, effect in spoilers:
        ranks = [rank for rank in flight.ranks if matters and bad(variable(rank, name))]
        if not ranks:
            continue
        what = f"{name}={variable(ranks[0], name)} {effect}"
        # The group that does the checking needs all ranks, so that the others would wait for ever.
        alone = name == "TORCH_DISTRIBUTED_DEBUG" and len(ranks) < len(flight.ranks)
        if alone:
            yield finding("error", ranks, f"{what}, on some ranks only", f"unset {name} or set it on all")
        else:
            yield finding("warning", ranks, what, f"unset {name}")


def _meaning_of_nccl(flight: Flight) -> Iterator[Finding]:
    """TORCH_DIST_USE_NCCL2 decides what "nccl" is; exactly "0" means the old one."""
    name = "TORCH_DIST_USE_NCCL2"
    if "nccl" not in flight.backends:
        return
    ranks = [rank for rank in flight.ranks if variable(rank, name)]
    legacy = [rank for rank in ranks if variable(rank, name) == "0"]
    if legacy and len(legacy) < len(flight.ranks):
        what = f"{name}=0 on some ranks only: nccl would be two implementations that cannot talk"
        yield finding("error", legacy, what, f"set {name} alike on all ranks, or unset it")
    elif ranks:
        value, meaning = variable(ranks[0], name), "nccl-legacy" if legacy else "nccl2"
        what = f"{name}={value}: the arm nccl is {meaning} here"
        yield finding("warning", ranks, what, f"unset it and name {meaning} itself")


def _cores(flight: Flight) -> Iterator[Finding]:
    by_affinity, by_quota = [], []
    for name, _, ranks in flight.on_machines():
        usable = set[int]().union(*(parse_ranges(rank.get("cores") or "") for rank in ranks))
        if 0 < len(usable) < len(ranks):
            what = f"{len(ranks)} ranks on {name} share {len(usable)} usable cores (by CPU affinity)"
            mend = "give every rank a core of its own, or start fewer ranks"
            by_affinity.append(finding("warning", ranks, what, mend))
    for host, ranks in flight.on_hosts():
        quota = min((rank["cpu_quota_cores"] for rank in ranks if rank.get("cpu_quota_cores")), default=None)
        if quota is not None and quota < len(ranks):
            what = f"{len(ranks)} ranks on {host['name']} share {quota:g} usable cores (by its CPU quota)"
            mend = "raise the container's CPU limit, or start fewer ranks"
            by_quota.append(finding("warning", ranks, what, mend))
    yield from as_one(by_affinity)
    yield from as_one(by_quota)


def _governors(flight: Flight) -> Iterator[Finding]:
    yield from as_one(
        [
            finding(
                "warning",
                ranks,
                f"the CPU frequency governor of {host['name']} is {host['cpu_governor']}",
                "cpupower frequency-set -g performance",
            )
            for host, ranks in flight.on_hosts()
            if "powersave" in (host.get("cpu_governor") or "")
        ]
    )


def _load(flight: Flight) -> Iterator[Finding]:
    busy = []
    for name, host, ranks in flight.on_machines():
        loads = [rank["now"]["load_1min"] for rank in ranks if rank.get("now")]
        # The least of what the ranks read one after another: the others they add to it themselves.
        load = min(loads, default=0.0)
        if load - len(ranks) > max(_BUSY_LEAST, _BUSY_SHARE * (host.get("logical_cores") or 1)):
            what = f"others use {name}: a load of {load:.1f} as {len(ranks)} ranks start"
            mend = "wait until the machine is idle, or take it for yourself"
            busy.append(finding("warning", ranks, what, mend))
    yield from as_one(busy)


def _memory(flight: Flight) -> Iterator[Finding]:
    short = []
    for name, host, ranks in flight.on_machines():
        now = [rank["now"] for rank in ranks if rank.get("now")]
        total = host.get("memory_bytes") or 0
        available = min((each["available_bytes"] for each in now), default=total)
        swaps = any(each["swap_used_bytes"] > 0 for each in now)
        if available < total * (_SWAPPING if swaps else _SHORT_OF_MEMORY):
            state = "is swapping" if swaps else "is short of memory"
            what = f"{name} {state}: {format_memory(available)} of {format_memory(total)} available"
            mend = "end what uses the memory, or measure smaller sizes"
            short.append(finding("warning", ranks, what, mend))
    yield from as_one(short)


_CHECKS: tuple[Callable[[Flight], Iterator[Finding]], ...] = (
    _world,
    versions,
    shared_gpus,
    _meaning_of_nccl,
    settings,
    clocks_apart,
    _settings,
    _cores,
    sick,
    narrowed,
    clocks,
    _governors,
    _load,
    _memory,
    models,
    systems,
)
