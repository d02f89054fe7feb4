"""A /sys of a GPU node in a folder: PCIe switches, GPUs, InfiniBand and RoCE ports, interfaces."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


# Two PCIe switches below two roots, each with a GPU and an InfiniBand port; a RoCE port beside them.
SWITCHES = (
    "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0",
    "pci0000:a0/0000:a0:01.0/0000:a1:00.0/0000:a2:00.0",
)
GPUS = ("0000:19:00.0", "0000:a9:00.0")


def make_sys(root: Path) -> Path:
    """A /sys with what a GPU node has, as the kernel lays it out."""
    for number, switch in enumerate(SWITCHES):
        gpu = root / f"devices/{switch}/{GPUS[number]}"
        write(gpu / "numa_node", str(number))
        write(gpu / "local_cpulist", ("0-47", "48-95")[number])
        link(root / f"bus/pci/devices/{GPUS[number]}", gpu)
        nic = root / f"devices/{switch.rpartition('/')[0]}/0000:{'1a' if number == 0 else 'aa'}:00.0"
        make_port(root, f"mlx5_{number}", nic, numa=number, net=f"ib{number}")
    bluefield = root / "devices/pci0000:50/0000:50:01.0/0000:51:00.0"
    make_port(root, "mlx5_10", bluefield, numa=0, net="eth1", layer="Ethernet", rate="100 Gb/sec (2X HDR)")
    for name, speed in (("eth1", "100000"), ("ib0", "-1"), ("ib1", "-1")):
        device = {"eth1": bluefield}.get(name, root / f"class/infiniband/mlx5_{name[2:]}/device")
        make_interface(root, name, device.resolve(), speed=speed)
    for name in ("lo", "docker0", "veth12"):
        make_interface(root, name, None)
    (root / "class/net/bonding_masters").touch()
    return root


def make_port(
    root: Path,
    name: str,
    device: Path,
    *,
    numa: int,
    net: str,
    layer: str = "InfiniBand",
    rate: str = "400 Gb/sec (4X NDR)",
    state: str = "4: ACTIVE",
) -> None:
    write(device / "numa_node", str(numa))
    write(device / "current_link_speed", "32.0 GT/s PCIe")
    write(device / "current_link_width", "16")
    write(device / "max_link_speed", "32.0 GT/s PCIe")
    write(device / "max_link_width", "16")
    (device / "net" / net).mkdir(parents=True)
    link(device / "driver", root / "bus/pci/drivers/mlx5_core")
    folder = root / f"class/infiniband/{name}"
    write(folder / "fw_ver", "28.39.1002")
    write(folder / "board_id", "MT_0000000838")
    write(folder / "ports/1/state", state)
    write(folder / "ports/1/rate", rate)
    write(folder / "ports/1/link_layer", layer)
    for counter in ("symbol_error", "link_downed", "port_rcv_errors", "port_xmit_discards"):
        write(folder / f"ports/1/counters/{counter}", "0")
    link(folder / "device", device)


def make_interface(root: Path, name: str, device: Path | None, speed: str = "10000") -> None:
    folder = root / f"class/net/{name}"
    write(folder / "operstate", "up")
    write(folder / "speed", speed)
    write(folder / "mtu", "9000")
    for counter in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"):
        write(folder / f"statistics/{counter}", "0")
    if device is not None:
        link(folder / "device", device)
