"""Which ports and which NVLinks a peak is of: those recorded, those asked for, or those of every board."""

from __future__ import annotations

from typing import Any

import pytest
from hardware_fixtures import gpu_run, rdma
from report_fixtures import SMALL

from ncclbench.hardware.machine import machine_of
from ncclbench.hardware.reference import Reference, reference, share_text
from ncclbench.stats.rows import run_rows
from ncclbench.store.model import Run

GIB = 1 << 30
V100, A100, GH200 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB", "NVIDIA GH200 120GB"


def largest(run: Run, op: str = "all_reduce") -> dict[str, Any]:
    rows = [row for row in run_rows(run) if row["op"] == op and row["mode"] == "back-to-back"]
    return max(rows, key=lambda row: int(row["nbytes"]))


def found(run: Run, op: str = "all_reduce") -> Reference:
    return reference(largest(run, op), machine_of(run))


# Ports


def several(**settings: Any) -> Run:
    return gpu_run(nranks=16, hosts=2, sizes=(GIB,), **settings)


def with_variables(run: Run, **variables: str) -> Run:
    run.meta["environment"]["common"]["variables"] = variables
    return run


# Eight ports for the GPUs, two as fast for storage, one down, and a slow one for management.
HOST = [
    *rdma(400, 8),
    *rdma(400, 2, first=8),
    *rdma(400, 1, "DOWN", first=10),
    *rdma(100, 1, first=11),
    {"name": "eth0", "rdma": False, "link_layer": "Ethernet", "state": "up", "rate_Gbs": 100.0},
    {"name": "eth1", "rdma": False, "link_layer": "Ethernet", "state": "up", "rate_Gbs": 25.0},
]


@pytest.mark.parametrize(
    ("asked", "ports"),
    [
        ("mlx5_0", [0]),
        ("mlx5", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11]),
        ("mlx5_1", [1, 11]),
        ("=mlx5_1", [1]),
        ("=mlx5_0:1,mlx5_3:1", [0, 3]),
        ("mlx5_0:2", []),
        ("^mlx5_8,mlx5_9,mlx5_11", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("^=mlx5_1,mlx5_11", [0, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("=mlx5_10", []),
        ("rocep", []),
    ],
)
def test_the_setting_that_names_ports_is_taken_as_nccl_takes_it(asked: str, ports: list[int]) -> None:
    machine = machine_of(with_variables(several(nics=HOST), NCCL_IB_HCA=asked))
    assert machine.ports.names == tuple(f"mlx5_{index}/1" for index in ports)
    assert machine.ports.chosen == "by NCCL_IB_HCA"
    rate = {11: 100}
    assert machine.ports.GBs == sum(rate.get(index, 400) for index in ports) / 8


def test_each_rank_may_have_its_own_port() -> None:
    run = several(nics=HOST)
    for rank in run.meta["environment"]["ranks"]:
        rank["variables"] = {"NCCL_IB_HCA": f"=mlx5_{rank['local_rank']}"}
    assert machine_of(run).ports.GBs == 400


def test_ports_for_storage_are_not_counted_where_those_near_the_gpus_are_known() -> None:
    run = several(nics=HOST)
    assert machine_of(run).ports.rates_gbps == (400.0,) * 10
    assert machine_of(run).ports.chosen == "the fastest of the host"
    for host in run.meta["environment"]["hosts"]:
        for gpu in host["topology"]["gpus"]:
            gpu["near"] = [f"mlx5_{gpu['index']}/1"]
    assert machine_of(run).ports.names == tuple(f"mlx5_{index}/1" for index in range(8))
    row = {**largest(run), "busbw_GBs": 340.0}
    assert share_text(row, machine_of(run)) == (
        "85 % of the NIC peak (400 GB/s, 8 x 400 Gb/s InfiniBand (NDR) a host: mlx5_0/1 to mlx5_7/1, "
        "near the GPUs)"
    )


def test_without_rdma_the_interfaces_that_sockets_may_use_count() -> None:
    run = with_variables(several(nics=HOST), NCCL_IB_DISABLE="1")
    assert machine_of(run).ports.names == ("eth0",)
    run = with_variables(several(nics=HOST), NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME="=eth1")
    assert machine_of(run).ports.GBs == 25 / 8


def test_only_infiniband_has_the_names_of_infiniband() -> None:
    ethernet = found(several(nics=rdma(400, layer="Ethernet")))
    assert ethernet.link == "8 x 400 Gb/s Ethernet a host"
    assert ethernet.in_network is None, "SHARP is InfiniBand's"
    unknown = found(several(nics=[port | {"link_layer": None} for port in rdma(400)]))
    assert unknown.link == "8 x 400 Gb/s a host"
    assert found(several(nics=rdma(200))).link == "8 x 200 Gb/s InfiniBand (HDR) a host"


# NVLink without switches


def linked(run: Run, *lines: str, remote: str = "GPU") -> Run:
    """The run on hosts whose GPUs were recorded with these links."""
    for host in run.meta["environment"]["hosts"]:
        gpus = [{"index": index, "remote": remote} for index in range(len(lines))]
        host["topology"] |= {"gpu_links": list(lines), "gpus": gpus}
    return run


def mesh(gpus: int, word: str) -> list[str]:
    return [" ".join("X" if at == to else word for to in range(gpus)) for at in range(gpus)]


def on(gpu: str, nranks: int, **settings: Any) -> Run:
    return gpu_run(gpu, nranks=nranks, sizes=(GIB,), **settings)


def test_where_each_two_gpus_are_joined_fewer_have_fewer_links() -> None:
    """Four A100 with four links between every two; four GH200 with six."""
    for gpu, word, peaks in ((A100, "NV4", (100, 200, 300)), (GH200, "NV6", (150, 300, 450))):
        for nranks, peak in zip((2, 3, 4), peaks, strict=True):
            assert found(linked(on(gpu, nranks), *mesh(4, word))).peak_GBs == peak
    ring = on(A100, 4, ops=("send_recv", "batched_p2p"))
    assert found(linked(ring, *mesh(4, "NV4")), "send_recv").peak_GBs == 100, "one neighbour"
    pair = linked(on("NVIDIA A800-SXM4-80GB", 2), *mesh(4, "NV4"))
    assert found(pair).peak_GBs == pytest.approx(200 / 3), "a third of all, whatever one link carries"


def test_over_switches_two_gpus_have_all_links() -> None:
    run = linked(on(A100, 2), *mesh(8, "NV12"), remote="NVSwitch")
    assert found(run).peak_GBs == 300


def test_uneven_links_give_a_peak_to_all_gpus_only() -> None:
    """A V100 in a cube mesh has one or two links to some of the others, and none to the rest."""
    lines = ["X NV1 NV2 SYS", "NV1 X SYS NV2", "NV2 SYS X NV1", "SYS NV2 NV1 X"]
    assert found(linked(on(V100, 4), *lines)).peak_GBs == 150
    assert found(linked(on(V100, 2), *lines)).why_none == (
        "the GPUs are linked unevenly, and which links 2 of 4 have is unknown"
    )
    none = found(linked(on(A100, 4), *mesh(4, "SYS"))).why_none
    assert none == "the GPUs were recorded without NVLink between them, which A100 SXM has"


@pytest.mark.parametrize(
    ("gpu", "known", "unknown"),
    [(V100, (8,), (2, 4)), (A100, (4, 8), (2, 3)), (GH200, (4,), (2,)), ("NVIDIA B200", (2, 4, 8), ())],
)
def test_what_was_not_recorded_has_a_peak_where_every_board_has_it(
    gpu: str, known: tuple[int, ...], unknown: tuple[int, ...]
) -> None:
    assert all(found(on(gpu, nranks)).peak_GBs for nranks in known)
    for nranks in unknown:
        assert (
            f"give {nranks} GPUs fewer links, and this one's were not recorded"
            in found(on(gpu, nranks)).why_none
        )


def test_nothing_reduces_where_there_is_no_switch() -> None:
    assert found(on(GH200, 4)).in_network is None
    assert found(linked(on(GH200, 4), *mesh(4, "NV6"))).in_network is None
    h100 = gpu_run(nranks=4, sizes=(GIB,))
    assert found(h100).in_network == "NVLS"
    assert found(linked(h100, *mesh(4, "NV6"))).in_network is None
    assert found(linked(h100, *mesh(4, "NV18"), remote="NVSwitch")).in_network == "NVLS"


# Settings


@pytest.mark.parametrize(
    ("algorithms", "off"),
    [
        ("Ring", True),
        ("ring,tree", True),
        ("allreduce:ring", True),
        ("AllReduce:Ring,Tree;Broadcast:Ring", True),
        ("broadcast:ring", False),
        ("allreduce:nvls;ring", False),
        ("broadcast:nvls;ring", True),
        ("^NVLS,NVLSTREE", True),
        ("allreduce:^nvls,nvlstree", True),
        ("^NVLS", False),
        ("^ring", False),
        ("NVLS,Ring", False),
        ("", False),
    ],
)
def test_lists_of_algorithms_without_nvls_rule_it_out(algorithms: str, off: bool) -> None:
    run = with_variables(gpu_run(nranks=2, sizes=SMALL), NCCL_ALGO=algorithms)
    assert machine_of(run).nvls_off is off
