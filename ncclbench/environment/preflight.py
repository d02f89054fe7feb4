"""What would spoil a measurement, found before it begins: settings, versions, and what shares a machine."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ncclbench.environment.collect import Description, whole_ranks
from ncclbench.environment.host import parse_ranges
from ncclbench.errors import RequestError
from ncclbench.tables.backends import find_backend

Finding = dict[str, Any]

# First NCCL that lets ranks of one communicator share a GPU.
SHARED_GPU_NCCL = (2, 30)

# torch's own reading of a switch (torch/csrc/distributed/c10d/Utils.hpp, getCvarBool).
_TRUE = ("y", "yes", "1", "t", "true")

# Load of the last minute that is not the ranks' own starting, as a share of the host's processors.
# A rank that starts counts as one; background services of an idle machine stay far below.
_BUSY_SHARE = 0.25
_BUSY_LEAST = 1.0

# Of a host's memory: below the first it will swap or kill, below the second with swap in use it swaps.
_SHORT_OF_MEMORY = 0.05
_SWAPPING = 0.10

# Clocks and power limits this far below their default are meant, not rounding.
_LOWERED = 0.97
_THROTTLING = {
    "hardware slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
    "software thermal slowdown",
}


@dataclass(frozen=True, slots=True)
class _Flight:
    """What is checked: every rank's whole description, and what is asked of them."""

    hosts: Sequence[Description]
    ranks: Sequence[Description]
    nranks: int
    backends: Sequence[str]
    share_gpu: bool
    uses_cuda: bool
    uses_nccl: bool

    def on_hosts(self) -> list[tuple[Description, list[Description]]]:
        """Each host with its ranks."""
        members = _grouped(self.ranks, lambda rank: rank["host"])
        return [(host, members[index]) for index, host in enumerate(self.hosts) if index in members]

    def on_machines(self) -> list[tuple[str, Description, list[Description]]]:
        """Each machine by name, with a host of it and its ranks: containers may be hosts of one machine."""
        boots = [host.get("boot_id") or index for index, host in enumerate(self.hosts)]
        machines = []
        for ranks in _grouped(self.ranks, lambda rank: boots[rank["host"]]).values():
            names = [self.hosts[index]["name"] for index in _grouped(ranks, lambda rank: rank["host"])]
            name = names[0] if len(names) == 1 else f"the machine of {_some(names)}"
            machines.append((name, self.hosts[ranks[0]["host"]], ranks))
        return machines


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
    flight = _Flight(
        hosts=environment["hosts"],
        ranks=ranks,
        nranks=nranks,
        backends=backends,
        share_gpu=share_gpu,
        uses_cuda=uses_cuda,
        uses_nccl=any(name.startswith("nccl") for name in backends),
    )
    found = [finding for check in _CHECKS for finding in check(flight)]
    return sorted(found, key=lambda finding: finding["severity"] != "error")


def _device(backend: str) -> str:
    try:
        return find_backend(backend).device
    except RequestError:  # a run of another machine may name what is not installed here
        return "any"


def _finding(severity: str, ranks: Sequence[Description], what: str, mend: str) -> Finding:
    return {"severity": severity, "ranks": [rank["rank"] for rank in ranks], "what": what, "mend": mend}


def _as_one(found: Sequence[Finding]) -> list[Finding]:
    """Findings of one kind as a single one: the words of the first, and everybody's ranks."""
    if len(found) < 2:
        return [*found]
    ranks = sorted({rank for finding in found for rank in finding["ranks"]})
    what = f"{found[0]['what']} (and {len(found) - 1} more like it)"
    return [{**found[0], "ranks": ranks, "what": what}]


def _grouped(
    ranks: Sequence[Description], key: Callable[[Description], Hashable]
) -> dict[Any, list[Description]]:
    """Ranks by what ``key`` says of them, in order of first appearance."""
    groups: dict[Any, list[Description]] = defaultdict(list)
    for rank in ranks:
        groups[key(rank)].append(rank)
    return groups


def _variable(rank: Description, name: str) -> str:
    return str((rank.get("variables") or {}).get(name, ""))


def _world(flight: _Flight) -> Iterator[Finding]:
    mend = "start all ranks with one launcher and leave its variables as it sets them"
    numbers = [rank["rank"] for rank in flight.ranks]
    if sorted(numbers) != list(range(flight.nranks)):
        what = f"{flight.nranks} ranks were launched but ranks {_some(numbers)} answer"
        yield _finding("error", flight.ranks, what, mend)
    for size, ranks in _grouped(flight.ranks, lambda rank: _variable(rank, "WORLD_SIZE")).items():
        if size and size != str(flight.nranks):
            yield _finding("error", ranks, f"WORLD_SIZE={size} but {flight.nranks} ranks were launched", mend)


def _versions(flight: _Flight) -> Iterator[Finding]:
    for key, name in (("torch", "torch"), ("torch_git", "torch's build"), ("nccl", "NCCL")):
        values = _grouped(flight.ranks, itemgetter(key))
        if len(values) > 1 and (key != "nccl" or flight.uses_nccl):
            what = f"{name} differs between ranks: {_some(values)}"
            yield _finding("error", _odd(values), what, "install one version on all hosts")
            return  # one wrong installation is one finding


def _systems(flight: _Flight) -> Iterator[Finding]:
    kernels = _grouped(flight.ranks, lambda rank: flight.hosts[rank["host"]].get("kernel"))
    drivers = _grouped(flight.ranks, lambda rank: _of_gpu(rank, "driver"))
    for name, values, matters in (("kernel", kernels, True), ("GPU driver", drivers, flight.uses_cuda)):
        if matters and len(values) > 1:
            what = f"the {name} differs between ranks: {_some(values)}"
            yield _finding("warning", _odd(values), what, "compare hosts with care, or make them alike")


def _settings(flight: _Flight) -> Iterator[Finding]:
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
        ranks = [rank for rank in flight.ranks if matters and bad(_variable(rank, name))]
        if not ranks:
            continue
        what = f"{name}={_variable(ranks[0], name)} {effect}"
        # The group that does the checking needs all ranks, so that the others would wait for ever.
        alone = name == "TORCH_DISTRIBUTED_DEBUG" and len(ranks) < len(flight.ranks)
        if alone:
            yield _finding("error", ranks, f"{what}, on some ranks only", f"unset {name} or set it on all")
        else:
            yield _finding("warning", ranks, what, f"unset {name}")


def _meaning_of_nccl(flight: _Flight) -> Iterator[Finding]:
    """TORCH_DIST_USE_NCCL2 decides what "nccl" is; exactly "0" means the old one."""
    name = "TORCH_DIST_USE_NCCL2"
    if "nccl" not in flight.backends:
        return
    ranks = [rank for rank in flight.ranks if _variable(rank, name)]
    legacy = [rank for rank in ranks if _variable(rank, name) == "0"]
    if legacy and len(legacy) < len(flight.ranks):
        what = f"{name}=0 on some ranks only: nccl would be two implementations that cannot talk"
        yield _finding("error", legacy, what, f"set {name} alike on all ranks, or unset it")
    elif ranks:
        value, meaning = _variable(ranks[0], name), "nccl-legacy" if legacy else "nccl2"
        what = f"{name}={value}: the arm nccl is {meaning} here"
        yield _finding("warning", ranks, what, f"unset it and name {meaning} itself")


def _cores(flight: _Flight) -> Iterator[Finding]:
    by_affinity, by_quota = [], []
    for name, _, ranks in flight.on_machines():
        usable = set[int]().union(*(parse_ranges(rank.get("cores") or "") for rank in ranks))
        if 0 < len(usable) < len(ranks):
            what = f"{len(ranks)} ranks on {name} share {len(usable)} usable cores (by CPU affinity)"
            mend = "give every rank a core of its own, or start fewer ranks"
            by_affinity.append(_finding("warning", ranks, what, mend))
    for host, ranks in flight.on_hosts():
        quota = min((rank["cpu_quota_cores"] for rank in ranks if rank.get("cpu_quota_cores")), default=None)
        if quota is not None and quota < len(ranks):
            what = f"{len(ranks)} ranks on {host['name']} share {quota:g} usable cores (by its CPU quota)"
            mend = "raise the container's CPU limit, or start fewer ranks"
            by_quota.append(_finding("warning", ranks, what, mend))
    yield from _as_one(by_affinity)
    yield from _as_one(by_quota)


def _shared_gpus(flight: _Flight) -> Iterator[Finding]:
    if not flight.uses_cuda:
        return
    refused, impossible = [], []
    for name, _, ranks in flight.on_machines():
        on_gpu = [rank for rank in ranks if rank.get("gpu")]
        for gpu, sharing in _grouped(on_gpu, _gpu_identity).items():
            if gpu is None or len(sharing) < 2:
                continue
            what = f"{len(sharing)} ranks use one GPU of {name} ({sharing[0]['device']}, {gpu})"
            if not flight.share_gpu:
                mend = "start one rank per GPU, or let them share it with --share-gpu (NCCL 2.30 or later)"
                refused.append(_finding("error", sharing, what, mend))
            elif flight.uses_nccl and _too_old(sharing[0].get("nccl")):
                what = f"{what}, which NCCL {sharing[0].get('nccl')} cannot do"
                mend = "use NCCL 2.30 or later, or one rank per GPU"
                impossible.append(_finding("error", sharing, what, mend))
    yield from _as_one(refused)
    yield from _as_one(impossible)


def _gpu_identity(rank: Description) -> Any:
    """What NCCL tells GPUs apart by: the bus, which MIG instances of one GPU share."""
    return _of_gpu(rank, "pci_bus_id") or _of_gpu(rank, "uuid")


def _too_old(nccl: Any) -> bool:
    match = re.match(r"(\d+)\.(\d+)", str(nccl))
    return match is None or (int(match[1]), int(match[2])) < SHARED_GPU_NCCL


def _gpu_clocks(flight: _Flight) -> Iterator[Finding]:
    if not flight.uses_cuda:
        return
    throttled = [rank for rank in flight.ranks if _THROTTLING & set(_of_gpu(rank, "throttle_reasons") or ())]
    for reasons, ranks in _grouped(
        throttled, lambda rank: ", ".join(sorted(_THROTTLING & set(rank["gpu"]["throttle_reasons"])))
    ).items():
        what, mend = f"the GPU is throttled: {reasons}", "look after its cooling and power supply"
        yield _finding("warning", ranks, what, mend)
    for now, normal, name, unit, mend in (
        ("sm_clock_set_mhz", "sm_clock_default_mhz", "SM clock is set to", "MHz", "nvidia-smi -rac"),
        ("power_limit_w", "power_limit_default_w", "power limit is", "W", "nvidia-smi -pl"),
    ):
        low = [rank for rank in flight.ranks if _lowered(_of_gpu(rank, now), _of_gpu(rank, normal))]
        if low:
            gpu = low[0]["gpu"]
            what = f"the GPU's {name} {gpu[now]:g} {unit}, its default is {gpu[normal]:g}"
            yield _finding("warning", low, what, f"set it back ({mend}), or compare with GPUs set alike")
    # An idle GPU lowers its clock by itself; one that has work and is held down by a setting does not.
    held = [rank for rank in flight.ranks if _held_down(rank.get("gpu") or {})]
    if held:
        gpu = held[0]["gpu"]
        what = f"the GPU's SM clock is locked at {gpu['sm_clock_mhz']} of {gpu['sm_clock_max_mhz']} MHz"
        yield _finding("warning", held, what, "nvidia-smi -rgc, or compare with GPUs set alike")


def _of_gpu(rank: Description, key: str) -> Any:
    return (rank.get("gpu") or {}).get(key)


def _lowered(now: float | None, normal: float | None) -> bool:
    return bool(now and normal and now < _LOWERED * normal)


def _held_down(gpu: Description) -> bool:
    reasons = gpu.get("throttle_reasons") or ()
    by_setting = "applications clocks setting" in reasons and "gpu idle" not in reasons
    # The default of V100 and A100 lies below their maximum: such a GPU reads so when nothing is wrong.
    normal = gpu.get("sm_clock_default_mhz") or gpu.get("sm_clock_max_mhz")
    return by_setting and _lowered(gpu.get("sm_clock_mhz"), normal)


def _governors(flight: _Flight) -> Iterator[Finding]:
    yield from _as_one(
        [
            _finding(
                "warning",
                ranks,
                f"the CPU frequency governor of {host['name']} is {host['cpu_governor']}",
                "cpupower frequency-set -g performance",
            )
            for host, ranks in flight.on_hosts()
            if "powersave" in (host.get("cpu_governor") or "")
        ]
    )


def _load(flight: _Flight) -> Iterator[Finding]:
    busy = []
    for name, host, ranks in flight.on_machines():
        loads = [rank["now"]["load_1min"] for rank in ranks if rank.get("now")]
        # The least of what the ranks read one after another: the others they add to it themselves.
        load = min(loads, default=0.0)
        if load - len(ranks) > max(_BUSY_LEAST, _BUSY_SHARE * (host.get("logical_cores") or 1)):
            what = f"others use {name}: a load of {load:.1f} as {len(ranks)} ranks start"
            mend = "wait until the machine is idle, or take it for yourself"
            busy.append(_finding("warning", ranks, what, mend))
    yield from _as_one(busy)


def _memory(flight: _Flight) -> Iterator[Finding]:
    short = []
    for name, host, ranks in flight.on_machines():
        now = [rank["now"] for rank in ranks if rank.get("now")]
        total = host.get("memory_bytes") or 0
        available = min((each["available_bytes"] for each in now), default=total)
        swaps = any(each["swap_used_bytes"] > 0 for each in now)
        if available < total * (_SWAPPING if swaps else _SHORT_OF_MEMORY):
            state = "is swapping" if swaps else "is short of memory"
            what = f"{name} {state}: {available / 2**30:.1f} of {total / 2**30:.1f} GiB available"
            mend = "end what uses the memory, or measure smaller sizes"
            short.append(_finding("warning", ranks, what, mend))
    yield from _as_one(short)


def _odd(values: Mapping[Any, list[Description]]) -> list[Description]:
    """The ranks that do not have what most have."""
    most = max(values, key=lambda value: len(values[value]))
    return [rank for value, ranks in values.items() if value != most for rank in ranks]


def _some(values: Iterable[Any], most: int = 4) -> str:
    texts = [str(value) for value in values]
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


_CHECKS: tuple[Callable[[_Flight], Iterator[Finding]], ...] = (
    _world,
    _versions,
    _shared_gpus,
    _meaning_of_nccl,
    _settings,
    _cores,
    _gpu_clocks,
    _governors,
    _load,
    _memory,
    _systems,
)
