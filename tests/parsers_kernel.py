"""PARSERS of what the kernel tells: files of /proc and /sys, all laid out in a folder of our own."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fake_sysfs import make_sys
from parsing import Parser

from ncclbench.environment import collect, gpu_links, host, nics, nvml
from ncclbench.environment import job as batch
from ncclbench.plan import machine

FOLDER = Path(tempfile.mkdtemp(prefix="ncclbench-parsers-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def _kernel(name: str, read: Callable[[Path], Any], files: Sequence[str], *seeds: bytes) -> Parser:
    """Files of /proc and /sys, laid out in a folder of our own, all with the same content."""

    def call(content: bytes) -> Any:
        root = FOLDER / "kernel"
        for file in files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_bytes(content)
        return json.dumps(read(root), allow_nan=False)

    return Parser(name, call, seeds, refuses=False)


def _sysfs(content: bytes) -> Any:
    root = FOLDER / "sys"
    if not root.exists():
        make_sys(root)
    for file in root.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.write_bytes(content)
    for device in (root / "bus/pci/devices").iterdir():
        nics.pci_place(device)
    return json.dumps([nics.read_nics(root), nics.read_nic_counters(root)], allow_nan=False)


KERNEL = (
    Parser(
        "sysfs of NICs", _sysfs, (b"400 Gb/sec (4X NDR)\n", b"-1\n", b"4: ACTIVE\n", b"12\n"), False, True
    ),
    _kernel(
        "cgroup of version 2",
        lambda root: host.cpu_quota(root / "v2", root / "groups"),
        ("v2/self/cgroup", "groups/cpu.max"),
        b"0::/\n",
        b"150000 100000\n",
        b"max 100000\n",
    ),
    _kernel(
        "quota of a cgroup",
        lambda root: [
            host._quota_v2(root / "quota"),
            host._quota_v1(root / "quota"),
        ],
        ("quota/cpu.max", "quota/cpu.cfs_quota_us", "quota/cpu.cfs_period_us"),
        b"150000 100000\n",
        b"100000\n",
    ),
    _kernel(
        "memory and caches",
        lambda root: [
            machine.available_bytes(root / "meminfo", root / "meminfo"),
            machine.last_level_cache_bytes(root),
        ],
        ("meminfo", "index3/size"),
        b"MemTotal: 9 kB\nMemAvailable:  1024 kB\n",
        b"32768K\n",
        b"max\n",
    ),
    _kernel(
        "processor, governor, driver",
        lambda root: [
            host.cpu_model(root / "cpuinfo"),
            host.governors(root),
            host.nic_firmware(root),
            collect._driver_version(root / "version"),
            host.physical_cores([0, 1], root),
        ],
        ("cpuinfo", "version", "cpu0/cpufreq/scaling_governor", "mlx5_0/fw_ver"),
        b"model name : Xeon\n",
        b"NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15\n",
        b"performance\n",
    ),
    _kernel(
        "job, container, plugin",
        lambda root: [
            batch.read_job({}, root),
            batch.read_container({}, root),
            batch.read_net_plugin({"NCCL_NET_PLUGIN": "none"}, root),
        ],
        ("proc/self/cgroup", "proc/self/mountinfo", "proc/self/maps", "usr/lib/libnccl-net.so"),
        b"0::/docker/" + b"ab" * 32 + b"\n",
        b"7f00-7f01 r-xp 00000000 00:00 0   /usr/lib/libnccl-net.so\n",
        b"\x7fELF..aws-ofi-nccl 1.9.2-aws\0",
    ),
    Parser("string of NVML", lambda content: nvml.text(content), (b"00000000:3B:00.0",), refuses=False),
    Parser(
        "links of GPUs",
        lambda content: gpu_links.link_text(content.decode("utf-8", "replace").split("\n")),
        (b"X NV18\nNV18 X", b"X"),
        refuses=False,
    ),
)
