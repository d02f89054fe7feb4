"""The host a rank runs on, what the rank may use of it, and how busy it is now. Files and psutil only.

psutil is imported by what uses it: ``--help`` of commands that only read environments need not pay for it.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ncclbench.plan.machine import last_level_cache_bytes
from ncclbench.units import runs_of

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_DMI = Path("/sys/class/dmi/id")
_NICS = Path("/sys/class/infiniband")

_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
# Linux knows some thousand.
_MOST_CORES = 1 << 17


def host_identity() -> tuple[str, str | None]:
    """What tells this host from others: its name, and which boot of it."""
    return socket.gethostname(), _text(_PROC / "sys/kernel/random/boot_id")


def describe_host() -> dict[str, Any]:
    """What stays the same as long as the host is up, equal for all of its ranks. Sizes in bytes."""
    name, boot_id = host_identity()
    import psutil

    return {
        "name": name,
        "boot_id": boot_id,
        "os": _os_name(),
        "kernel": platform.release(),
        "bios": _text(_DMI / "bios_version") or None,
        "nic_firmware": nic_firmware(),
        "container": container(),
        "cpu": cpu_model(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "numa_nodes": max(1, len(list(_NODES.glob("node[0-9]*")))),
        "cpu_governor": governors(),
        "last_level_cache_bytes": last_level_cache_bytes(),
        "memory_bytes": psutil.virtual_memory().total,
        "swap_bytes": psutil.swap_memory().total,
    }


def describe_share() -> dict[str, Any]:
    """What this process may use of the host: cores by affinity and cgroup, and limits of its own.

    ``cores`` are processor numbers, "0-3,8"; ``usable_cores`` is their number or the cgroup's CPU quota
    (in cores, maybe a fraction), whichever is less. A limit of None is none at all.
    """
    cores = os.sched_getaffinity(0)
    quota = cpu_quota()
    return {
        "cores": format_ranges(cores),
        "usable_cores": len(cores) if quota is None else min(len(cores), quota),
        "usable_physical_cores": physical_cores(cores),
        "cpu_quota_cores": quota,
        "memlock_bytes": _limit(resource.RLIMIT_MEMLOCK),
        "open_files": _limit(resource.RLIMIT_NOFILE),
    }


def describe_moment() -> dict[str, Any]:
    """How busy the host is now: the load of the last minute, memory available, swap in use."""
    import psutil

    return {
        "load_1min": os.getloadavg()[0],
        "available_bytes": psutil.virtual_memory().available,
        "swap_used_bytes": psutil.swap_memory().used,
    }


def cpu_model(cpuinfo: Path = _PROC / "cpuinfo") -> str:
    """The processor's name; its architecture where the kernel gives no name, as on ARM."""
    for line in (_text(cpuinfo) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def governors(cpus: Path = _CPUS) -> str | None:
    """The frequency governors in use, "performance" or "performance, powersave"; None where none tells."""
    files = cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")
    return ", ".join(sorted({text for path in files if (text := _text(path))})) or None


def nic_firmware(nics: Path = _NICS) -> str | None:
    """The firmware of each RDMA device, "mlx5_0 28.39.1002, mlx5_1 28.39.1002"; None where there is none."""
    found = [(file.parent.name, _text(file)) for file in sorted(nics.glob("*/fw_ver"))]
    return ", ".join(f"{name} {version}" for name, version in found if version) or None


def container(root: Path = Path("/")) -> str | None:
    """What kind of container this process runs in, where one can be told."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".singularity.d").exists():
        return "apptainer"
    return "kubernetes" if (root / "var/run/secrets/kubernetes.io").exists() else None


def cpu_quota(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> float | None:
    """Cores that the cgroups of this process may use together (version 1 or 2); None without a limit.

    A cgroup is bound by those above it too, so that the least of all counts. Within a container the
    path that the kernel tells may not exist; its parents then end at the container's own cgroup.
    """
    quotas: list[float] = []
    for line in (_text(proc / "self/cgroup") or "").splitlines():
        _, _, of_number = line.partition(":")
        controllers, colon, path = of_number.partition(":")
        if not colon:
            continue
        if controllers == "":
            read, roots = _quota_v2, [cgroups, cgroups / "unified"]
        elif "cpu" in controllers.split(","):
            read, roots = _quota_v1, [cgroups / controllers, cgroups / "cpu"]
        else:
            continue
        for root in roots:
            group = root / path.lstrip("/")
            for folder in [group, *group.parents]:
                quotas += read(folder)
                if folder == root:
                    break
    return min(quotas, default=None)


def _quota_v2(folder: Path) -> list[float]:
    with suppress(ValueError):  # not there, or "max": no limit
        quota, period = (_text(folder / "cpu.max") or "").split()
        return _cores(int(quota), int(period))
    return []


def _quota_v1(folder: Path) -> list[float]:
    with suppress(ValueError):
        quota = int(_text(folder / "cpu.cfs_quota_us") or "")
        period = int(_text(folder / "cpu.cfs_period_us") or "")
        return _cores(quota, period)
    return []


def _cores(quota_us: int, period_us: int) -> list[float]:
    """As many as a quota allows; none where there is no such limit."""
    return [quota_us / period_us] if 0 < quota_us < 1 << 63 and 0 < period_us < 1 << 63 else []


def physical_cores(cores: Iterable[int], cpus: Path = _CPUS) -> int:
    """How many physical cores the processors make; each counts as one where the kernel does not tell."""
    return len({_text(cpus / f"cpu{core}/topology/thread_siblings_list") or str(core) for core in cores})


def format_ranges(numbers: Iterable[int]) -> str:
    """Numbers as the kernel lists processors: 0, 1, 2, 8 is "0-2,8"."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs_of(numbers))


def parse_ranges(text: str) -> set[int]:
    """Inverse of ``format_ranges``; empty for what is no such list, or names more than any machine has."""
    numbers: set[int] = set()
    left = _MOST_CORES
    for part in filter(None, text.split(",")):
        found = _RANGE.fullmatch(part)
        if found is None:
            return set()
        listed = range(int(found[1]), int(found[2] or found[1]) + 1)
        left -= len(listed)
        if left < 0:
            return set()
        numbers |= set(listed)
    return numbers


def _limit(which: int) -> int | None:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _os_name() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return platform.system()


def _text(path: Path) -> str | None:
    """A small file's text without blanks around it; None where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
