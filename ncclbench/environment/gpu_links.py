"""How the GPUs of a host are linked: NVLink, NVSwitch and PCIe between each two, as NVML tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from ctypes import byref
from pathlib import Path
from typing import Any

from ncclbench.environment import nvml as nvml_calls
from ncclbench.environment.nics import SYS, pci_place

# What nvidia-smi topo -m calls them: the closest thing that two GPUs have in common.
_ANCESTORS = {
    "NVML_TOPOLOGY_INTERNAL": "PSB",
    "NVML_TOPOLOGY_SINGLE": "PIX",
    "NVML_TOPOLOGY_MULTIPLE": "PXB",
    "NVML_TOPOLOGY_HOSTBRIDGE": "PHB",
    "NVML_TOPOLOGY_NODE": "NODE",
    "NVML_TOPOLOGY_SYSTEM": "SYS",
}
_REMOTES = {
    "NVML_NVLINK_DEVICE_TYPE_GPU": "GPU",
    "NVML_NVLINK_DEVICE_TYPE_SWITCH": "NVSwitch",
    "NVML_NVLINK_DEVICE_TYPE_IBMNPU": "CPU",
}
_FABRIC_STATES = {
    "NVML_GPU_FABRIC_STATE_NOT_STARTED": "not started",
    "NVML_GPU_FABRIC_STATE_IN_PROGRESS": "in progress",
    "NVML_GPU_FABRIC_STATE_COMPLETED": "completed",
}


def read_gpus(sys: Path = SYS) -> dict[str, Any]:
    """All GPUs that NVML shows of this host. For workers only: it initialises NVML.

    Returns:
        ``gpus``: of each ``index``, ``name``, ``uuid``, ``serial``, ``nvlinks_up``, ``remote`` (what its
        NVLinks lead to), ``fabric``, and its place as ``pci_place`` has it. ``gpu_links``: a line per GPU
        with its link to each as nvidia-smi writes them: "X" itself, "NV18" 18 NVLinks, "PIX" one PCIe
        switch, "PXB" several, "PHB" a host bridge, "NODE" a NUMA node, "SYS" between nodes, "?" not told.
        Where NVML cannot be used both are left out and ``gpus_missing`` says why.
    """
    try:
        with nvml_calls.opened() as nvml:
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            links = [_Links(nvml, handle) for handle in handles]
            return {
                "gpus": [_gpu(nvml, index, each, sys) for index, each in enumerate(links)],
                "gpu_links": [" ".join(_between(nvml, one, other) for other in links) for one in links],
            }
    except Exception as error:  # no driver, no library, no permission: each binding says it in its own way
        return {"gpus_missing": str(error) or type(error).__name__}


class _Links:
    """The NVLinks of one GPU.

    Attributes:
        up: numbers of those that are up; None for a GPU without NVLink.
        peers: how many lead to each GPU, by PCI bus id.
        kinds: how many lead to a GPU, an NVSwitch, a CPU.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.handle = handle
        self.bus_id = _bus_id(nvml.nvmlDeviceGetPciInfo(handle))
        self.up = nvml_calls.active_links(nvml, handle)
        self.peers: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        for link in self.up or ():
            kind = _word(nvml, _REMOTES, _asked(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link))
            self.kinds[kind or "unknown"] += 1
            if kind != "NVSwitch":
                remote = _asked(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
                if remote is not None:
                    self.peers[_bus_id(remote)] += 1


def _gpu(nvml: Any, index: int, links: _Links, sys: Path) -> dict[str, Any]:
    handle = links.handle
    # sysfs writes the domain with four digits, NVML with eight.
    place = pci_place(sys / "bus/pci/devices" / links.bus_id.lower()[-12:])
    found = {
        "index": index,
        "name": _asked(nvml, nvml.nvmlDeviceGetName, handle),
        "uuid": _asked(nvml, nvml.nvmlDeviceGetUUID, handle),
        "serial": _asked(nvml, nvml.nvmlDeviceGetSerial, handle),
        "nvlinks_up": None if links.up is None else len(links.up),
        "remote": ", ".join(sorted(links.kinds)) or None,
        "fabric": _fabric(nvml, handle),
        "pci": links.bus_id,
        **place,
    }
    return {key: value for key, value in found.items() if value is not None}


def _between(nvml: Any, one: _Links, other: _Links) -> str:
    """The link of two GPUs in the words of nvidia-smi."""
    if one is other:
        return "X"
    direct = one.peers[other.bus_id]
    switched = min(one.kinds["NVSwitch"], other.kinds["NVSwitch"])
    if direct:
        return f"NV{direct}"
    if switched and _over_nvlink(nvml, one, other):
        return f"NV{switched}"
    level = _asked(nvml, nvml.nvmlDeviceGetTopologyCommonAncestor, one.handle, other.handle)
    return _word(nvml, _ANCESTORS, level) or "?"


def _over_nvlink(nvml: Any, one: _Links, other: _Links) -> bool:
    """Whether the two reach each other through switches; where NVML does not tell, that is taken to be so."""
    status = _asked(
        nvml, nvml.nvmlDeviceGetP2PStatus, one.handle, other.handle, nvml.NVML_P2P_CAPS_INDEX_NVLINK
    )
    return status is None or status == nvml.NVML_P2P_STATUS_OK


def _fabric(nvml: Any, handle: Any) -> dict[str, Any] | None:
    """The NVLink domain that the GPU belongs to, which may span hosts; None outside of any."""
    try:
        info = nvml.c_nvmlGpuFabricInfo_v2_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
    except (nvml.NVMLError, AttributeError):
        return None
    state = _word(nvml, _FABRIC_STATES, info.state)
    if state is None:
        return None
    return {"state": state, "cluster": bytes(info.clusterUuid).hex(), "clique": int(info.cliqueId)}


def _asked(nvml: Any, call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _word(nvml: Any, words: dict[str, str], value: int | None) -> str | None:
    """The word for a constant of NVML, found by the constant's name."""
    if value is None:
        return None
    return next((word for name, word in words.items() if getattr(nvml, name, None) == value), None)


def _bus_id(info: Any) -> str:
    return nvml_calls.text(info.busId)


def link_text(lines: Sequence[str]) -> str | None:
    """``gpu_links`` in a few words: "NV18", or "NV4 x12, SYS x16" with how many pairs have each."""
    pairs: Counter[str] = Counter()
    for row, line in enumerate(lines):
        pairs.update(line.split()[row + 1 :])
    if not pairs:
        return None
    if len(pairs) == 1:
        return next(iter(pairs))
    return ", ".join(f"{word} x{count}" for word, count in pairs.most_common())
