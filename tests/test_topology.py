"""Topology: GPU links as NVML tells them, near NICs, job, container, plugin, and where it all shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pynvml
import pytest
from fake_nvml import BLACKWELL, HOPPER, FakeNvml, install, machine
from fake_sysfs import make_sys, write
from report_fixtures import make_run

from ncclbench.environment import topology
from ncclbench.environment.against import changes
from ncclbench.environment.collect import collect, merge
from ncclbench.environment.gpu_links import link_text, read_gpus
from ncclbench.environment.job import read_container, read_job, read_net_plugin
from ncclbench.environment.nics import read_nics
from ncclbench.environment.topology import near_nics, read_topology, topology_facts, topology_lines
from ncclbench.report.build import report_of
from ncclbench.report.panels.environment import build

# GPUs


def test_eight_gpus_behind_switches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, *machine(HOPPER, 8))
    found = read_gpus(make_sys(tmp_path))
    assert found["gpu_links"][1] == "NV18 X NV18 NV18 NV18 NV18 NV18 NV18"
    assert link_text(found["gpu_links"]) == "NV18"
    first = found["gpus"][0]
    assert first == {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-0",
        "serial": "1654922000000",
        "nvlinks_up": 18,
        "remote": "NVSwitch",
        "pci": "0000:19:00.0",
        "numa_node": 0,
        "cores": "0-47",
        "pcie_path": "0000:15:01.0/0000:16:00.0/0000:17:00.0",
    }
    assert fake.open == 0
    assert len(json.dumps(found)) < 3000


def test_an_nvlink_domain_that_spans_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, {**BLACKWELL, "fabric": {"clique": 3, "cluster": tuple(range(16))}})
    (gpu,) = read_gpus(tmp_path)["gpus"]
    assert gpu["fabric"] == {"state": "completed", "clique": 3, "cluster": bytes(range(16)).hex()}


def test_gpus_linked_in_pairs_and_by_pcie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def remote(index: int) -> Any:
        peer = machine(HOPPER, 4)[index ^ 1]["nvmlDeviceGetPciInfo"]
        return lambda device, link: peer

    bridged = [
        {
            **gpu,
            "nvmlDeviceGetNvLinkState": lambda handle, link: int(link < 4),
            "nvmlDeviceGetNvLinkRemoteDeviceType": pynvml.NVML_NVLINK_DEVICE_TYPE_GPU,
            "nvmlDeviceGetNvLinkRemotePciInfo": remote(index),
            "nvmlDeviceGetTopologyCommonAncestor": pynvml.NVML_TOPOLOGY_SYSTEM,
        }
        for index, gpu in enumerate(machine(HOPPER, 4))
    ]
    install(monkeypatch, *bridged)
    found = read_gpus(tmp_path)
    assert found["gpu_links"] == ["X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X"]
    assert link_text(found["gpu_links"]) == "SYS x4, NV4 x2"


@pytest.mark.parametrize(
    ("level", "word"),
    [
        (pynvml.NVML_TOPOLOGY_INTERNAL, "PSB"),
        (pynvml.NVML_TOPOLOGY_SINGLE, "PIX"),
        (pynvml.NVML_TOPOLOGY_MULTIPLE, "PXB"),
        (pynvml.NVML_TOPOLOGY_HOSTBRIDGE, "PHB"),
        (pynvml.NVML_TOPOLOGY_NODE, "NODE"),
        (pynvml.NVML_TOPOLOGY_SYSTEM, "SYS"),
        (None, "?"),
    ],
)
def test_without_nvlink_the_common_ancestor_counts(
    level: int | None, word: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = {**HOPPER, "fields": {}, "nvmlDeviceGetTopologyCommonAncestor": level}
    install(monkeypatch, *machine(plain, 2))
    assert read_gpus(tmp_path)["gpu_links"] == [f"X {word}", f"{word} X"]


def test_switches_that_do_not_join_two_gpus_are_no_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apart = {**HOPPER, "nvmlDeviceGetP2PStatus": pynvml.NVML_P2P_STATUS_NOT_SUPPORTED}
    install(monkeypatch, *machine(apart, 2))
    assert read_gpus(tmp_path)["gpu_links"] == ["X NODE", "NODE X"]


def test_why_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    fake = install(monkeypatch, HOPPER)
    monkeypatch.setattr(FakeNvml, "nvmlInit", fail)
    assert read_gpus() == {"gpus_missing": "Driver Not Loaded"}
    monkeypatch.setattr(topology, "count_gpus", lambda: 0)
    assert read_topology(uses_gpu=False)["gpus_missing"] == "no NVIDIA GPU"
    monkeypatch.setattr(topology, "count_gpus", lambda: 8)
    assert read_topology(uses_gpu=False)["gpus_missing"] == "the run uses no GPU"
    assert fake.open == 0


def test_each_gpu_knows_its_near_nics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = make_sys(tmp_path)
    install(monkeypatch, *machine(HOPPER, 1))
    nics = read_nics(root)
    (gpu,) = read_gpus(root)["gpus"]
    assert near_nics(gpu, nics) == ["mlx5_0/1"]
    assert near_nics({"pcie_path": "0000:ff:01.0"}, nics) == []
    assert near_nics({}, nics) == []


# Job, container, plugin


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "4711"}, {"scheduler": "slurm", "id": "4711"}),
        ({"PBS_JOBID": "12.head"}, {"scheduler": "pbs", "id": "12.head"}),
        ({"LSB_JOBID": "9"}, {"scheduler": "lsf", "id": "9"}),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "bench-0"},
            {"scheduler": "kubernetes", "id": "bench-0"},
        ),
    ],
)
def test_the_job(environ: dict[str, str], job: dict[str, str] | None, tmp_path: Path) -> None:
    assert read_job(environ, tmp_path) == job


def test_the_container(tmp_path: Path) -> None:
    assert read_container({}, tmp_path) is None
    name = "d2c9f0a1" * 8
    write(tmp_path / "proc/self/cgroup", "0::/")
    write(
        tmp_path / "proc/self/mountinfo",
        f"812 801 8:1 /var/lib/docker/containers/{name}/hostname /etc/hostname rw",
    )
    image = {"APPTAINER_CONTAINER": "/images/pytorch.sif"}
    assert read_container(image, tmp_path) == {
        "id": "d2c9f0a1d2c9",
        "image": "APPTAINER_CONTAINER=/images/pytorch.sif",
    }


def test_the_plugin_and_its_version(tmp_path: Path) -> None:
    assert read_net_plugin({}, tmp_path) is None
    folder = tmp_path / "opt/amazon/ofi-nccl/lib"
    write(folder / "libnccl-net-ofi.so", "\x7fELF NET/OFI Initializing aws-ofi-nccl 1.14.0 \0")
    (folder / "libnccl-net.so").symlink_to("libnccl-net-ofi.so")
    found = read_net_plugin({"NCCL_NET_PLUGIN": "ofi"}, tmp_path)
    assert found == {
        "asked": "ofi",
        "found": [str(folder / "libnccl-net-ofi.so")],
        "version": "aws-ofi-nccl 1.14.0",
    }


def test_a_plugin_on_the_library_path_comes_first_and_its_name_may_tell(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "usr/local/lib"
    write(mine / "libnccl-net.so.0.2.1", "\x7fELF")
    (mine / "libnccl-net.so").symlink_to("libnccl-net.so.0.2.1")
    write(theirs / "libnccl-net.so", "\x7fELF")
    found = read_net_plugin({"LD_LIBRARY_PATH": f":{mine}"}, tmp_path)
    assert found is not None
    assert found["found"] == [str(mine / "libnccl-net.so"), str(theirs / "libnccl-net.so")]
    assert found["version"] == "0.2.1"
    maps = f"7f00-7f01 r-xp 00000000 08:01 42 {theirs}/libnccl-net.so\n7f02-7f03 r--p 0 0:0 0 /lib/libc.so.6"
    write(tmp_path / "proc/self/maps", maps)
    again = read_net_plugin({"LD_LIBRARY_PATH": str(mine)}, tmp_path)
    assert again is not None
    assert again["loaded"] == f"{theirs}/libnccl-net.so"
    assert "version" not in again


@pytest.mark.parametrize("asked", ["none", "/no/such/file.so", "ofi"])
def test_a_plugin_that_is_not_there_is_only_asked_for(asked: str, tmp_path: Path) -> None:
    assert read_net_plugin({"NCCL_NET_PLUGIN": asked}, tmp_path) == {"asked": asked}


# In the environment of a run

HOST = {"name": "n0", "boot_id": "b0", "cpu": "EPYC"}


def described(rank: int, local: int, host: dict[str, Any]) -> dict[str, Any]:
    mine = {"rank": rank, "local_rank": local, "pid": rank, "device": "cpu", "torch": "2.15.0"}
    return {"host": host, "rank": {**mine, "gpu": None, "variables": {}, "now": {}}}


def some_topology(rate: float = 400.0, links: int = 18) -> dict[str, Any]:
    return {
        "gpus": [{"index": index, "serial": f"s{index}", "near": [f"mlx5_{index}/1"]} for index in range(2)],
        "gpu_links": [f"X NV{links}", f"NV{links} X"],
        "nics": [
            {
                "name": f"mlx5_{n}/1",
                "rdma": True,
                "link_layer": "InfiniBand",
                "state": "ACTIVE",
                "rate_Gbs": rate,
            }
            for n in range(2)
        ],
        "job": {"scheduler": "slurm", "id": "17"},
        "container": {"id": "abc"},
        "net_plugin": {"asked": "ofi", "found": ["/x/libnccl-net-ofi.so"], "version": "aws-ofi-nccl 1.14.0"},
    }


def merged(*topologies: dict[str, Any]) -> dict[str, Any]:
    """Two ranks on each host; only the first tells the topology."""
    ranks = []
    for number, found in enumerate(topologies):
        host = {**HOST, "name": f"n{number}", "boot_id": f"b{number}"}
        ranks += [described(2 * number, 0, {**host, "topology": found}), described(2 * number + 1, 1, host)]
    return merge(ranks)


def test_only_the_first_rank_of_a_host_reads_its_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "topology" in collect(0, 0, "cpu")["host"]
    monkeypatch.setattr("ncclbench.environment.collect.read_topology", lambda **_: pytest.fail("read again"))
    assert "topology" not in collect(1, 1, "cpu")["host"]


def test_the_topology_is_kept_whichever_rank_of_the_host_comes_first() -> None:
    host = {**HOST, "topology": some_topology()}
    environment = merge([described(0, 1, HOST), described(1, 0, host)])
    assert len(environment["hosts"]) == 1
    assert environment["hosts"][0]["topology"]["job"]["id"] == "17"


def test_hosts_differ_by_their_links_and_rates_and_not_by_serials_or_jobs() -> None:
    other = some_topology()
    other["gpus"][0]["serial"] = "another"
    other["job"]["id"] = other["container"]["id"] = "other"
    assert merged(some_topology(), other)["differences"] == []
    slow = merged(some_topology(), some_topology(rate=200.0, links=16))["differences"]
    assert {entry["what"]: [value["value"] for value in entry["values"]] for entry in slow} == {
        "gpu_links": ["NV18", "NV16"],
        "nics": ["2 x 400 Gb/s InfiniBand", "2 x 200 Gb/s InfiniBand"],
    }


def test_runs_differ_by_their_links_and_rates_and_not_by_serials_or_jobs() -> None:
    base, new = merged(some_topology()), merged(some_topology())
    new["hosts"][0]["topology"]["job"]["id"] = "18"
    new["hosts"][0]["topology"]["gpus"][1]["serial"] = "another"
    assert changes(base, new) == []
    new["hosts"][0]["topology"] = some_topology(rate=200.0)
    new["hosts"][0]["topology"]["net_plugin"]["version"] = "aws-ofi-nccl 1.15.0"
    assert [change["what"] for change in changes(base, new)] == ["nics", "net_plugin"]


def test_what_an_older_run_did_not_record_is_no_change() -> None:
    base, new = merged(some_topology()), merged(some_topology())
    del base["hosts"][0]["topology"]
    gpu = {"name": "H200", "driver": "580"}
    base["common"]["gpu"], new["common"]["gpu"] = {**gpu}, {**gpu, "nvlinks_up": 18, "pcie_width": 16}
    assert changes(base, new) == []
    new["common"]["gpu"]["driver"] = "590"
    assert [change["what"] for change in changes(base, new)] == ["gpu.driver"]


@pytest.mark.parametrize(
    "what", [None, 3, "text", [], {"nics": 7, "gpu_links": "X", "gpus": 1, "job": []}, {"gpus": [1]}]
)
def test_a_file_with_something_else_in_its_place_is_no_crash(what: Any) -> None:
    host = {**HOST, "topology": what}
    assert set(topology_facts(host).values()) <= {None}
    assert topology_lines(host) == []


def test_the_topology_in_words() -> None:
    assert topology_lines({"topology": some_topology()}) == [
        ("GPU links", "NV18"),
        ("NICs", "2 x 400 Gb/s InfiniBand"),
        ("NICs near GPUs", "GPU 0: mlx5_0/1; GPU 1: mlx5_1/1"),
        ("NCCL net plugin", "aws-ofi-nccl 1.14.0"),
        ("job", "slurm 17"),
        ("container", "abc"),
    ]


def test_the_report_shows_it_and_what_rose() -> None:
    run = make_run(ops=["all_reduce"], sizes=[8], modes=["isolated"], arms=["gloo"], epochs=2)
    run.meta["environment"]["hosts"][0]["topology"] = some_topology()
    run.meta["health"] = [{"attempt": 0, "problems": ["rank 1 (n0, GPU 1): PCIe replays rose by 4"]}]
    content = build(report_of([run]))
    assert content is not None
    (block,) = content["runs"]
    shown = dict(block["alike"]) | dict(block["facts"])
    assert shown["NICs"] == "2 x 400 Gb/s InfiniBand"
    assert shown["during the run"] == "rank 1 (n0, GPU 1): PCIe replays rose by 4"
    assert not [key for key in shown if key.startswith("topology")]
