"""What every rank says of itself, and all of it put together so that thousands of ranks stay readable."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ncclbench import __version__
from ncclbench.environment import gpu
from ncclbench.environment.host import describe_host, describe_moment, describe_share
from ncclbench.environment.topology import read_topology, topology_facts
from ncclbench.environment.variables import recorded_variables

Description = dict[str, Any]

# Belongs to one rank alone, so that it can be neither common to all nor a difference between them.
_OWN = ("rank", "host", "local_rank", "pid", "device", "now")
# Under these keys stand dictionaries, whose entries are told apart one by one.
_NESTED = ("gpu", "variables")
_OWN_NESTED = {"gpu": (*gpu.IDENTITY, *gpu.MOMENTARY, "missing"), "variables": ()}
# Differ between the ranks of a healthy job: each has a host, cores and maybe a GPU of its own.
_EXPECTED = {"name", "boot_id", "cores", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "SLURM_CPU_BIND"}
# A difference of more values than this is cut off; ``more`` says how many values are left out.
_MOST_VALUES = 16

_DRIVER_VERSION = Path("/proc/driver/nvidia/version")


def collect(rank: int, local_rank: int, device: str) -> Description:
    """This process, to be called in a worker: ``host`` is equal for ranks of one host, ``rank`` its own.

    Only the first rank of a host reads its ``topology``: once is enough, and NVML takes its time.

    Args:
        device: "cpu", or "cuda:N" with torch's number of the device that this worker uses.
    """
    host = describe_host()
    if local_rank == 0:
        host["topology"] = read_topology(uses_gpu=device != "cpu")
    return {
        "host": host,
        "rank": {
            "rank": rank,
            "local_rank": local_rank,
            "pid": os.getpid(),
            "device": device,
            **_software(device),
            **describe_share(),
            "gpu": _gpu(device),
            "variables": recorded_variables(),
            "now": describe_moment(),
        },
    }


def _software(device: str) -> Description:
    """Versions. torch is the worker's: this layer imports none of its own."""
    torch = sys.modules.get("torch")
    return {
        "ncclbench": __version__,
        "python": platform.python_version(),
        "torch": None if torch is None else torch.__version__,
        "torch_git": None if torch is None else torch.version.git_version,
        "cuda": None if torch is None else torch.version.cuda,
        "nccl": None if torch is None else _nccl_version(torch),
    }


def _nccl_version(torch: Any) -> str | None:
    """Of the library that is loaded, which LD_PRELOAD or LD_LIBRARY_PATH may have changed."""
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError, TypeError):  # a torch that was built without NCCL
        return None


def _gpu(device: str) -> Description | None:
    """What NVML knows of the device; what tells it from others comes from torch, which always knows."""
    properties, bus_id = _properties(device), gpu_bus_id(device)
    if properties is None or bus_id is None:
        return None
    found = gpu.read_gpu(bus_id)
    known = {"name": properties.name, "uuid": f"GPU-{properties.uuid}", "pci_bus_id": bus_id}
    known |= {"memory_total_bytes": properties.total_memory, "driver": _driver_version()}
    for key, value in known.items():
        if found[key] is None and value is not None:
            found[key] = value
            found["missing"].pop(key, None)
    return found


def gpu_bus_id(device: str) -> str | None:
    """PCI bus id, as NVML writes it ("00000000:3B:00.0"), of torch's device; None for the CPU."""
    properties = _properties(device)
    return None if properties is None else gpu.bus_id(properties)


def _properties(device: str) -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not device.startswith("cuda"):
        return None
    return torch.cuda.get_device_properties(device)


def _driver_version(path: Path = _DRIVER_VERSION) -> str | None:
    """As the kernel module tells it, where NVML does not: the word after "Module"."""
    try:
        words = path.read_text(errors="replace").splitlines()[0].split()
    except (OSError, IndexError):
        return None
    return next((word for word in words if word.count(".") >= 1 and word[0].isdigit()), None)


def merge(descriptions: Sequence[Description]) -> Description:
    """The environment of a run, of what ``collect`` gave on every rank, in any order.

    Returns:
        ``hosts``: each host once, in the order of their first ranks. ``common``: what all ranks have
        alike. ``ranks``: by rank, with ``host`` (index into ``hosts``), what the rank alone has and what
        is not common. ``differences``: ``what``, and ``values`` with the ``ranks`` that have each.
    """
    hosts: list[Description] = []
    known: dict[tuple[str, str | None], int] = {}
    whole: list[Description] = []
    for description in sorted(descriptions, key=lambda each: int(each["rank"]["rank"])):
        host = description["host"]
        key = (host["name"], host["boot_id"])
        if key not in known:
            known[key] = len(hosts)
            hosts.append({**host})
        elif "topology" in host:
            hosts[known[key]].setdefault("topology", host["topology"])
        whole.append({"host": known[key], **description["rank"]})
    common = _common(whole)
    return {
        "hosts": hosts,
        "common": common,
        "ranks": [_without(rank, common) for rank in whole],
        "differences": _differences(hosts, whole),
    }


def whole_ranks(environment: Mapping[str, Any]) -> list[Description]:
    """Every rank's whole description again: what is common put back into each."""
    common = environment.get("common") or {}
    return [_joined(common, rank) for rank in environment["ranks"]]


def _common(ranks: Sequence[Description]) -> Description:
    first, others = ranks[0], ranks[1:]
    found: Description = {}
    for key, value in first.items():
        if key in _NESTED and all(isinstance(rank.get(key), dict) for rank in ranks):
            found[key] = {
                name: each
                for name, each in value.items()
                if name not in _OWN_NESTED[key]
                and all(name in rank[key] and rank[key][name] == each for rank in others)
            }
        elif key not in _OWN and all(key in rank and rank[key] == value for rank in others):
            found[key] = value
    return found


def _without(rank: Description, common: Description) -> Description:
    left: Description = {}
    for key, value in rank.items():
        if key not in common:
            left[key] = value
        elif key in _NESTED and isinstance(value, dict):
            own = {name: each for name, each in value.items() if name not in common[key]}
            if own:
                left[key] = own
    return left


def _joined(common: Mapping[str, Any], rank: Mapping[str, Any]) -> Description:
    whole = {**common, **rank}
    for key in _NESTED:
        if isinstance(common.get(key), dict) and isinstance(rank.get(key), dict):
            whole[key] = {**common[key], **rank[key]}
    return whole


def _differences(hosts: Sequence[Description], ranks: Sequence[Description]) -> list[Description]:
    """What ranks do not have alike, of themselves and of their hosts; null: not set, or not there."""
    facts = [dict(_facts(hosts[rank["host"]], rank)) for rank in ranks]
    found = []
    for what in dict.fromkeys(name for fact in facts for name in fact if name not in _EXPECTED):
        holders: dict[str, list[int]] = {}
        for rank, fact in zip(ranks, facts, strict=True):
            holders.setdefault(json.dumps(fact.get(what), sort_keys=True), []).append(rank["rank"])
        if len(holders) > 1:
            values = [{"value": json.loads(text), "ranks": members} for text, members in holders.items()]
            entry: Description = {"what": what, "values": values[:_MOST_VALUES]}
            if len(values) > _MOST_VALUES:
                entry["more"] = len(values) - _MOST_VALUES
            found.append(entry)
    return found


def _facts(host: Description, rank: Description) -> Iterator[tuple[str, Any]]:
    """What should be alike on all ranks, by name: variables under their own, a GPU's as "gpu.name"."""
    device, variables = rank.get("gpu") or {}, rank.get("variables") or {}
    yield from ((key, value) for key, value in rank.items() if key not in (*_OWN, *_NESTED))
    yield from ((f"gpu.{key}", value) for key, value in device.items() if key not in _OWN_NESTED["gpu"])
    yield from variables.items()
    yield from ((key, value) for key, value in host.items() if key != "topology")
    yield from topology_facts(host).items()
