"""The topology of a host: GPUs and their links, NICs and what they are near to, plugin, container, job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from ncclbench.environment.gpu import count_gpus
from ncclbench.environment.gpu_links import link_text, read_gpus
from ncclbench.environment.job import read_container, read_job, read_net_plugin
from ncclbench.environment.nics import read_nics

Topology = dict[str, Any]

_UP = ("ACTIVE", "up")


def read_topology(uses_gpu: bool) -> Topology:
    """The topology of this host, for one worker of it to read.

    Args:
        uses_gpu: ask NVML too; without it ``gpus_missing`` says why there are no GPUs.

    Returns:
        what ``read_gpus`` returns, ``nics`` as ``read_nics`` has them, ``net_plugin``, ``container``,
        ``job``; each GPU with the NICs it is ``near`` to. What is not there is left out.
    """
    found = {
        **(read_gpus() if uses_gpu else {"gpus_missing": why_no_gpu()}),
        "nics": read_nics(),
        "net_plugin": read_net_plugin(),
        "container": read_container(),
        "job": read_job(),
    }
    for gpu in found.get("gpus", ()):
        if near := near_nics(gpu, found["nics"]):
            gpu["near"] = near
    return {key: value for key, value in found.items() if value is not None}


def why_no_gpu() -> str:
    """Why nothing of GPUs is told."""
    return "the run uses no GPU" if count_gpus() else "no NVIDIA GPU"


def near_nics(gpu: Mapping[str, Any], nics: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the NICs that share the most PCIe bridges with a GPU, at least one.

    Where there are RDMA ports, only they count.
    """
    ports = [nic for nic in nics if nic["rdma"]] or nics
    shared = {nic["name"]: _shared(gpu.get("pcie_path"), nic.get("pcie_path")) for nic in ports}
    most = max(shared.values(), default=0)
    return [name for name, count in shared.items() if count == most] if most else []


def topology_facts(host: Mapping[str, Any]) -> dict[str, Any]:
    """What of a topology ought to be alike on equal hosts, in few words: no serials, ids or counters."""
    topology = _mapping(host.get("topology"))
    if not topology:
        return {}
    return {
        "gpu_links": link_text(_texts(topology.get("gpu_links"))),
        "nics": nics_text(topology.get("nics")),
        "net_plugin": _plugin_text(_mapping(topology.get("net_plugin"))),
    }


def topology_lines(host: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The topology for people: names and texts."""
    topology = _mapping(host.get("topology"))
    gpus = _mappings(topology.get("gpus"))
    near = [f"GPU {gpu.get('index')}: {', '.join(_texts(gpu['near']))}" for gpu in gpus if gpu.get("near")]
    remotes = sorted({str(gpu["remote"]) for gpu in gpus if gpu.get("remote")})
    links = link_text(_texts(topology.get("gpu_links")))
    job, container = _mapping(topology.get("job")), _mapping(topology.get("container"))
    lines = [
        ("GPU links", f"{links}, NVLink to {', '.join(remotes)}" if links and remotes else links),
        ("GPUs not read", topology.get("gpus_missing")),
        ("NICs", nics_text(topology.get("nics"))),
        ("NICs near GPUs", "; ".join(near)),
        ("NCCL net plugin", _plugin_text(_mapping(topology.get("net_plugin")))),
        ("job", " ".join(str(value) for value in job.values())),
        ("container", ", ".join(str(value) for value in container.values())),
    ]
    return [(name, str(text)) for name, text in lines if text]


def nics_text(nics: Any) -> str | None:
    """NICs in a few words: "8 x 400 Gb/s InfiniBand, 1 x 100 Gb/s Ethernet, 1 down".

    Interfaces of an RDMA port are not counted beside it.
    """
    known = _mappings(nics)
    of_ports = {name for nic in known for name in _texts(nic.get("net"))}
    counted = [nic for nic in known if nic.get("name") not in of_ports]
    kinds = Counter(_kind(nic) for nic in counted if nic.get("state") in _UP)
    down = sum(nic.get("state") not in _UP for nic in counted)
    words = [f"{count} x {kind}" for kind, count in sorted(kinds.items(), key=_most_first)]
    return ", ".join(words + ([f"{down} down"] if down else [])) or None


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    kind, count = counted
    return -count, kind


def _kind(nic: Mapping[str, Any]) -> str:
    rate = nic.get("rate_Gbs")
    layer = str(nic.get("link_layer") or "link")
    what = f"RoCE {layer}" if nic.get("rdma") and layer == "Ethernet" else layer
    return f"{rate:g} Gb/s {what}" if isinstance(rate, int | float) else f"{what} of unknown rate"


def _plugin_text(plugin: Mapping[str, Any]) -> str | None:
    """The plugin by its version, or by its file, or by what was asked for."""
    files = _texts(plugin.get("found"))
    file = plugin.get("loaded") or (files[0] if files else None)
    told = plugin.get("version") or (PurePath(str(file)).name if file else plugin.get("asked"))
    return str(told) if told else None


def _shared(one: Any, other: Any) -> int:
    """How many bridges two paths have in common, from the root down."""
    count = 0
    for mine, yours in zip(str(one or "").split("/"), str(other or "").split("/"), strict=False):
        if not mine or mine != yours:
            break
        count += 1
    return count


def _mapping(value: Any) -> Mapping[str, Any]:
    """The value, or nothing where a file holds something else in its place."""
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
