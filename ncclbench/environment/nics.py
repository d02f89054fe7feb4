"""Network ports of this host, from sysfs: what they are, how fast they run, and what they have lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SYS = Path("/sys")

# Under infiniband/<device>/ports/<port>/; each device has only some of them.
_PORT_COUNTERS = (
    "counters/symbol_error",
    "counters/link_error_recovery",
    "counters/link_downed",
    "counters/port_rcv_errors",
    "counters/port_rcv_remote_physical_errors",
    "counters/port_xmit_discards",
    "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/packet_seq_err",
    "hw_counters/rx_drops",
)
# Under net/<interface>/statistics/.
_INTERFACE_COUNTERS = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
_LONGEST_NUMBER = 21
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


def read_nics(sys: Path = SYS) -> list[dict[str, Any]]:
    """RDMA ports, then network interfaces that have a device behind them, or bundle such.

    Returns:
        of each ``name`` (an RDMA port: "mlx5_0/1"), ``rdma``, ``link_layer``, ``state`` ("ACTIVE", "up"),
        ``rate_Gbs`` (gigabits per second), ``driver``, ``firmware``, and ``pci``, ``numa_node``,
        ``pcie_path``, ``pcie_link``, ``pcie_link_max`` as ``pci_place``; of an RDMA port also ``net``, its
        interfaces. What is not known is left out.
    """
    return [_known(nic) for nic in (*_rdma_ports(sys), *_interfaces(sys))]


def read_nic_counters(sys: Path = SYS) -> dict[str, dict[str, int]]:
    """Counters of errors and drops since the host came up, by port or interface."""
    found = {}
    for name, folder in _ports(sys):
        found[name] = _numbers(folder, _PORT_COUNTERS)
    for folder in _interface_folders(sys):
        found[folder.name] = _numbers(folder / "statistics", _INTERFACE_COUNTERS)
    return {name: counters for name, counters in found.items() if counters}


def pci_place(device: Path) -> dict[str, Any]:
    """Where a device sits: ``pci``, ``numa_node``, ``cores``, ``pcie_path``, ``pcie_link`` and its maximum.

    ``pcie_path`` are the bridges above it from the root down; two devices below one switch share their
    beginning. A link is "32.0 GT/s x16"; its maximum is the device's own.
    """
    real = device.resolve()
    path = [part for part in real.parts if _PCI_ADDRESS.fullmatch(part)]
    if not path:
        return {}
    numa = _number(real / "numa_node")
    return _known(
        {
            "pci": path[-1],
            "numa_node": None if numa is None or numa < 0 else numa,
            "cores": text(real / "local_cpulist"),
            "pcie_path": "/".join(path[:-1]) or None,
            "pcie_link": _link(real, "current"),
            "pcie_link_max": _link(real, "max"),
        }
    )


def text(path: Path) -> str | None:
    """A small file's text without blanks around it; None where it cannot be read or is empty."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def _rdma_ports(sys: Path) -> Iterator[dict[str, Any]]:
    for name, port in _ports(sys):
        device = port.parent.parent
        # "400 Gb/sec (4X NDR)", "4: ACTIVE"
        rate = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", text(port / "rate") or "")
        yield {
            "name": name,
            "rdma": True,
            "link_layer": text(port / "link_layer"),
            "state": (text(port / "state") or "").rpartition(" ")[2] or None,
            "rate_Gbs": float(rate[0]) if rate else None,
            "firmware": text(device / "fw_ver"),
            "board": text(device / "board_id"),
            "net": sorted(path.name for path in (device / "device/net").glob("*")) or None,
            "driver": _driver(device / "device"),
            **_without_cores(pci_place(device / "device")),
        }


def _ports(sys: Path) -> Iterator[tuple[str, Path]]:
    for port in sorted(sys.glob("class/infiniband/*/ports/*"), key=lambda path: _natural(str(path))):
        yield f"{port.parent.parent.name}/{port.name}", port


def _interfaces(sys: Path) -> Iterator[dict[str, Any]]:
    for folder in _interface_folders(sys):
        speed = _number(folder / "speed")  # Mb/s; -1, or no answer, where there is none to tell
        yield {
            "name": folder.name,
            "rdma": False,
            "link_layer": "bond" if (folder / "bonding").is_dir() else "Ethernet",
            "state": text(folder / "operstate"),
            "rate_Gbs": speed / 1000 if speed is not None and speed > 0 else None,
            "mtu": _number(folder / "mtu"),
            "driver": _driver(folder / "device"),
            **_without_cores(pci_place(folder / "device") if (folder / "device").exists() else {}),
        }


def _interface_folders(sys: Path) -> list[Path]:
    """Interfaces with a device or bundling such; where there is none (a container), those that are up."""
    folders = sorted((sys / "class/net").glob("*"), key=lambda path: _natural(path.name))
    real = [path for path in folders if (path / "device").exists() or (path / "bonding").is_dir()]
    return real or [path for path in folders if path.name != "lo" and text(path / "operstate") == "up"]


def _driver(device: Path) -> str | None:
    driver = device / "driver"
    return driver.resolve().name if driver.exists() else None


def _link(device: Path, which: str) -> str | None:
    speed, width = text(device / f"{which}_link_speed"), text(device / f"{which}_link_width")
    if speed is None or width is None or speed.startswith("Unknown"):
        return None
    return f"{speed.removesuffix(' PCIe')} x{width}"


def _without_cores(place: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in place.items() if key != "cores"}


def _numbers(folder: Path, names: tuple[str, ...]) -> dict[str, int]:
    found = {name.rpartition("/")[2]: _number(folder / name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _number(path: Path) -> int | None:
    try:
        # Counters have 64 bits; what is longer is none.
        return int((text(path) or "")[:_LONGEST_NUMBER])
    except ValueError:
        return None


def _known(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value is not None}


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts mlx5_10 after mlx5_9."""
    return [
        (int(part), "") if part.isascii() and part.isdecimal() else (-1, part)
        for part in re.split(r"([0-9]{1,18})", name)
    ]
