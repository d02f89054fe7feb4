"""NICs of a host, from a tree like /sys and from the real one."""

from __future__ import annotations

from pathlib import Path

import psutil
from fake_sysfs import make_interface, make_sys, write

from ncclbench.environment.nics import pci_place, read_nic_counters, read_nics
from ncclbench.environment.topology import nics_text


def test_rdma_ports_with_rate_place_and_firmware(tmp_path: Path) -> None:
    first = read_nics(make_sys(tmp_path))[0]
    assert first == {
        "name": "mlx5_0/1",
        "rdma": True,
        "link_layer": "InfiniBand",
        "state": "ACTIVE",
        "rate_Gbs": 400.0,
        "firmware": "28.39.1002",
        "board": "MT_0000000838",
        "net": ["ib0"],
        "driver": "mlx5_core",
        "pci": "0000:1a:00.0",
        "numa_node": 0,
        "pcie_path": "0000:15:01.0/0000:16:00.0",
        "pcie_link": "32.0 GT/s x16",
        "pcie_link_max": "32.0 GT/s x16",
    }


def test_ports_stand_in_order_and_virtual_interfaces_are_left_out(tmp_path: Path) -> None:
    nics = read_nics(make_sys(tmp_path))
    assert [nic["name"] for nic in nics] == ["mlx5_0/1", "mlx5_1/1", "mlx5_10/1", "eth1", "ib0", "ib1"]
    interfaces = {nic["name"]: nic for nic in nics if not nic["rdma"]}
    assert interfaces["eth1"]["rate_Gbs"] == 100.0
    assert "rate_Gbs" not in interfaces["ib0"]
    assert nics_text(nics) == "2 x 400 Gb/s InfiniBand, 1 x 100 Gb/s RoCE Ethernet"


def test_a_port_that_is_down_is_told_apart(tmp_path: Path) -> None:
    root = make_sys(tmp_path)
    write(root / "class/infiniband/mlx5_1/ports/1/state", "1: DOWN")
    assert nics_text(read_nics(root)) == "1 x 100 Gb/s RoCE Ethernet, 1 x 400 Gb/s InfiniBand, 1 down"


def test_in_a_container_the_interfaces_that_are_up_count(tmp_path: Path) -> None:
    for name, state in (("lo", "unknown"), ("eth0", "up"), ("eth1", "down")):
        make_interface(tmp_path, name, None)
        write(tmp_path / f"class/net/{name}/operstate", state)
    assert [nic["name"] for nic in read_nics(tmp_path)] == ["eth0"]


def test_a_bond_counts_as_a_nic(tmp_path: Path) -> None:
    root = make_sys(tmp_path)
    make_interface(root, "bond0", None, speed="200000")
    (root / "class/net/bond0/bonding").mkdir()
    bond = next(nic for nic in read_nics(root) if nic["name"] == "bond0")
    assert (bond["link_layer"], bond["rate_Gbs"]) == ("bond", 200.0)


def test_counters_of_ports_and_interfaces(tmp_path: Path) -> None:
    root = make_sys(tmp_path)
    write(root / "class/infiniband/mlx5_1/ports/1/counters/symbol_error", "17")
    write(root / "class/infiniband/mlx5_1/ports/1/hw_counters/packet_seq_err", "3")
    found = read_nic_counters(root)
    assert found["mlx5_1/1"]["symbol_error"] == 17
    assert found["mlx5_1/1"]["packet_seq_err"] == 3
    assert found["eth1"] == {"rx_errors": 0, "tx_errors": 0, "rx_dropped": 0, "tx_dropped": 0}


def test_unreadable_and_odd_files_are_left_out(tmp_path: Path) -> None:
    root = make_sys(tmp_path)
    write(root / "class/infiniband/mlx5_0/ports/1/rate", "")
    write(root / "class/infiniband/mlx5_0/ports/1/counters/symbol_error", "N/A")
    (root / "class/infiniband/mlx5_0/fw_ver").unlink()
    first = read_nics(root)[0]
    assert not {"rate_Gbs", "firmware"} & set(first)
    assert "symbol_error" not in read_nic_counters(root)["mlx5_0/1"]


def test_nothing_is_there(tmp_path: Path) -> None:
    assert read_nics(tmp_path) == []
    assert read_nic_counters(tmp_path) == {}
    assert pci_place(tmp_path / "none") == {}
    assert nics_text([]) is None


def test_this_machines_nics_are_those_that_psutil_sees() -> None:
    names = {nic["name"] for nic in read_nics() if not nic["rdma"]}
    assert names <= {*psutil.net_if_stats()}
    assert "lo" not in names
    counters = read_nic_counters()
    assert names <= {*counters}
    assert all(count >= 0 for port in counters.values() for count in port.values())
