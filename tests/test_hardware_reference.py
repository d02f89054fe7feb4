"""Which peak bounds a row and what share of it the row reaches: always said, never clamped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hardware_fixtures import H100, busbw_of, gpu_run, rdma
from report_fixtures import SMALL, make_run

from ncclbench.hardware.machine import machine_of
from ncclbench.hardware.reference import Reference, reference, share, share_text
from ncclbench.stats.rows import run_rows
from ncclbench.store.model import Run

GIB = 1 << 30


def largest(run: Run, op: str = "all_reduce", **changes: Any) -> dict[str, Any]:
    rows = [row for row in run_rows(run) if row["op"] == op and row["mode"] == "back-to-back"]
    return {**max(rows, key=lambda row: int(row["nbytes"])), **changes}


def found(run: Run, op: str = "all_reduce", **changes: Any) -> Reference:
    return reference(largest(run, op, **changes), machine_of(run))


def text(run: Run, op: str = "all_reduce", **changes: Any) -> str:
    said = share_text(largest(run, op, **changes), machine_of(run))
    assert said is not None
    return said


@pytest.mark.parametrize(
    ("gpu", "peak", "link"),
    [
        (H100, 450, "NVLink 4"),
        ("NVIDIA B200", 900, "NVLink 5"),
        ("NVIDIA GB200", 900, "NVLink 5"),
        ("NVIDIA A100-SXM4-80GB", 300, "NVLink 3"),
        ("Tesla V100-SXM2-16GB", 150, "NVLink 2"),
        ("NVIDIA L40S", 32, "PCIe 4.0 x16"),
        ("Tesla T4", 16, "PCIe 3.0 x16"),
    ],
)
def test_one_host_is_bound_by_what_joins_its_gpus(gpu: str, peak: float, link: str) -> None:
    reference = found(gpu_run(gpu, sizes=(GIB,)))
    assert (reference.peak_GBs, reference.link, reference.why_none) == (peak, link, "")
    assert reference.source.startswith("http")


def test_the_share_is_of_one_direction_and_says_of_what() -> None:
    run = gpu_run(sizes=(GIB,))
    assert text(run, busbw_GBs=387.0) == "86 % of the NVLink peak (450 GB/s, NVLink 4)"
    assert text(run, busbw_GBs=4.5) == "1.0 % of the NVLink peak (450 GB/s, NVLink 4)"


def test_more_than_the_peak_is_told_as_it_is() -> None:
    run = gpu_run(sizes=(GIB,), ops=("all_reduce", "all_gather"))
    row = largest(run, busbw_GBs=468.0)
    assert share(row, reference(row, machine_of(run))) == pytest.approx(1.04)
    assert text(run, busbw_GBs=468.0) == (
        "104 % of the NVLink peak (450 GB/s, NVLink 4): in-network reduction likely (NVLS)"
    )
    assert text(run, busbw_GBs=2000.0).startswith("444 % of the NVLink peak")
    # Nothing is reduced in an all_gather, and V100 has nothing that reduces in a switch.
    doubt = "more than its wires carry: check sizes, ranks, and that this link was used"
    assert text(run, "all_gather", busbw_GBs=468.0).endswith(
        "more than its wires carry, and all_gather has nothing to reduce on the way: check sizes, ranks, and "
        "that this link was used"
    )
    assert text(gpu_run("Tesla V100-SXM2-16GB", sizes=(GIB,)), busbw_GBs=156.0).endswith(doubt)
    run.meta["environment"]["common"]["variables"] = {"NCCL_NVLS_ENABLE": "0"}
    assert text(run, busbw_GBs=468.0).endswith(doubt)


def test_a_mesh_has_a_link_for_each_other_gpu() -> None:
    peaks = {n: found(gpu_run("AMD Instinct MI300X", nranks=n, sizes=(GIB,))).peak_GBs for n in (2, 4, 8)}
    assert peaks == {2: 64, 4: 192, 8: 448}
    ring = gpu_run("AMD Instinct MI300X", sizes=(GIB,), ops=("send_recv", "batched_p2p"))
    assert found(ring, "send_recv").peak_GBs == 64, "one neighbour, one link"
    assert found(ring, "batched_p2p").peak_GBs == 128


def several(gpu: str = H100, **settings: Any) -> Run:
    usual: dict[str, Any] = {"nranks": 16, "hosts": 2, "sizes": (GIB,), "nics": rdma(400)}
    return gpu_run(gpu, **usual | settings)


def test_several_hosts_are_bound_by_the_nics_of_one() -> None:
    """busbw is defined so that a ring crosses every link at that rate: the edge of a host over all NICs.

    Maintainers count four 200 Gb/s NICs a host as 96 GB/s of all_reduce, of 100 that the ports have.
    """
    reference = found(several())
    assert (reference.peak_GBs, reference.kind) == (400, "NIC")
    assert text(several(), busbw_GBs=340.0) == (
        "85 % of the NIC peak (400 GB/s, 8 x 400 Gb/s InfiniBand (NDR) a host: mlx5_0/1 to mlx5_7/1, "
        "the fastest of the host)"
    )
    above = text(several(), busbw_GBs=440.0)
    assert above.startswith("110 % of the NIC peak")
    assert "in-network reduction likely (SHARP)" in above
    assert "a ring's limit" in above
    hdr = several("NVIDIA A100-SXM4-40GB", nranks=24, hosts=3, nics=rdma(200, 4))
    assert found(hdr).peak_GBs == 100


def test_links_slower_than_the_nics_decide() -> None:
    assert found(several(nics=rdma(800))).link == "NVLink 4"
    assert found(several("NVIDIA L40S", nics=rdma(400))).link == "PCIe 4.0 x16"
    # One rank a host: nothing crosses a link between GPUs.
    assert found(several("NVIDIA L40S", nranks=2, nics=rdma(400))).peak_GBs == 400


def test_personal_data_goes_over_each_gpus_own_share_of_the_nics() -> None:
    """In an all_to_all of 2 hosts of 8, eight of a rank's 15 parts leave its host, over 50 GB/s."""
    run = several(ops=("all_to_all", "send_recv"))
    assert found(run, "all_to_all").peak_GBs == pytest.approx(50 * 15 / 8)
    assert found(run, "send_recv").peak_GBs == 50
    few = several(ops=("all_to_all", "send_recv"), nics=rdma(400, 2))
    assert found(few, "all_to_all").peak_GBs == pytest.approx(12.5 * 15 / 8)
    assert found(few, "send_recv").peak_GBs == 50, "one port carries what one GPU sends on"


def domain(number: int) -> Callable[[int], dict[str, Any]]:
    """The hosts belong to so many NVLink domains."""
    return lambda host: {"state": "completed", "cluster": "ab" * 16, "clique": host % number}


def test_hosts_that_nvlink_may_join_have_a_peak_only_where_that_is_known() -> None:
    settings: dict[str, Any] = {"nranks": 16, "hosts": 4, "sizes": (GIB,), "nics": rdma(400, 4)}
    unknown = "NVLink may join the hosts (up to 72 GPUs), and whether it does is unknown"
    assert found(gpu_run("NVIDIA GB200", **settings)).why_none == unknown
    joined = found(gpu_run("NVIDIA GB200", fabric=domain(1), **settings))
    assert (joined.peak_GBs, joined.link) == (900, "NVLink 5")
    apart = found(gpu_run("NVIDIA GB200", fabric=domain(2), **settings))
    assert apart.why_none == "the hosts make 2 NVLink domains, and what joins these is unknown"
    alone = found(gpu_run("NVIDIA GB200", fabric=domain(4), **settings))
    assert (alone.peak_GBs, alone.kind) == (200, "NIC")
    nowhere = {"state": "completed", "cluster": "00" * 16, "clique": 0}
    assert found(gpu_run("NVIDIA GB200", fabric=lambda host: nowhere, **settings)).why_none == unknown


def test_without_a_reference_it_says_why() -> None:
    assert text(several(nics=())) == "no reference: NIC rate unknown"
    assert text(gpu_run("NVIDIA Z900", sizes=(GIB,))) == (
        "no reference: no entry in the table of parts is called NVIDIA Z900"
    )
    assert text(gpu_run("NVIDIA H100 NVL", nranks=2, sizes=(GIB,))) == (
        "no reference: H100 NVL cards are joined by bridges or by PCIe, and which is unknown"
    )
    assert text(gpu_run("AMD Instinct MI250X", sizes=(GIB,))).startswith(
        "no reference: no figure for the links of MI250X (a rank is one of the two dies"
    )
    assert text(make_run(sizes=SMALL)) == "no reference: measured on the CPU"
    run = gpu_run(sizes=(GIB,))
    assert text(run, topology="hosts") == "no reference: groups of a part of the ranks"
    assert text(run, nranks=None) == "no reference: the number of ranks is unknown"
    for op, name in (("hypercube", "hypercube"), (None, "an unknown operation")):
        assert share_text(largest(run) | {"op": op}, machine_of(run)) == f"no reference: no rule for {name}"
    run.meta["environment"]["hosts"] = []
    assert text(run) == "no reference: the number of hosts is unknown"


def test_one_rank_has_no_bus() -> None:
    assert text(gpu_run(nranks=1, sizes=(GIB,))) == "1 rank: bus bandwidth is 0 by definition"


def test_ranks_that_share_a_gpu_have_no_bandwidth_at_all() -> None:
    run = gpu_run(nranks=2, sizes=(GIB,))
    row = largest(run, busbw_GBs=None, shared_gpu=True)
    assert reference(row, machine_of(run)).why_none == "ranks share a GPU"
    assert share_text(row, machine_of(run)) is None


def test_what_maintainers_state_stands_beside_the_peak() -> None:
    run = gpu_run(sizes=(1 << 20, 8 * GIB), ops=("all_reduce", "all_gather"))
    stated = found(run).expected
    assert stated is not None
    assert (stated.busbw_GBs, stated.text) == (480, "480 GB/s stated by NCCL maintainers")
    gathered = found(run, "all_gather").expected
    assert gathered is not None
    assert gathered.busbw_GBs == 370
    assert found(run, nbytes=1 << 20).expected is None, "256 MiB are too small for it"
    assert found(gpu_run(nranks=4, sizes=(8 * GIB,))).expected is None, "stated of 8 GPUs"
    run.meta["environment"]["common"]["variables"] = {"NCCL_ALGO": "RING"}
    ring = found(run).expected
    assert ring is not None
    assert ring.busbw_GBs == 370


def test_what_a_cloud_has_published_is_of_its_size_only() -> None:
    run = gpu_run("NVIDIA B300 SXM6 AC", sizes=(8 * GIB,), time_us=busbw_of(830))
    published = found(run).expected
    assert published is not None
    assert published.text == "834.8 GB/s published by Oracle Cloud"
    assert found(run, nbytes=4 * GIB).expected is None
