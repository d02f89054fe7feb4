"""What is recorded of variables and hosts, and how thousands of ranks are put together."""

from __future__ import annotations

import base64
import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from ncclbench.environment.collect import collect, merge, whole_ranks
from ncclbench.environment.host import (
    container,
    cpu_model,
    cpu_quota,
    describe_share,
    format_ranges,
    governors,
    nic_firmware,
    parse_ranges,
    physical_cores,
)
from ncclbench.environment.variables import HIDDEN, is_secret, recorded_variables

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
OTHER_UUID = "GPU-aaaaf937-d72c-4106-c12f-20bd9faed9f6"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# Variables


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_FOO_TOKEN", "x"),
        ("NCCL_API_KEY", "x"),
        ("TORCH_AUTH", "x"),
        ("UCX_PASSWORD", "x"),
        ("NCCL_CREDENTIALS", "x"),
        ("NCCL_PROXY", "http://me:hunter2@proxy:3128"),
        ("NCCL_X", "hf_abcdefghijklmnopqrst"),
        ("NCCL_X", "a=1,ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
        ("NCCL_X", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
        ("NCCL_X", "AKIAIOSFODNN7EXAMPLE"),
        ("NCCL_X", "Bearer abcdefgh12"),
        ("NCCL_X", "https://store/blob?sig=abc"),
    ],
)
def test_secrets_are_known_by_name_or_value(name: str, value: str) -> None:
    assert is_secret(name, value)
    assert recorded_variables({name: value}) == {name: HIDDEN}


def test_random_values_are_taken_for_secrets() -> None:
    """But for those in which chance put letters alone: names of types look like them."""
    chance = random.Random(7)
    keys = [chance.randbytes(32) for _ in range(10_000)]
    assert all(is_secret("NCCL_X", f"a:{key.hex()}") for key in keys)
    texts = [base64.urlsafe_b64encode(key).decode().rstrip("=") for key in keys]
    missed = [text for text in texts if not is_secret("NCCL_X", f"a:{text}")]
    assert len(missed) <= 5
    assert all(text.isalpha() for text in missed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_SOCKET_IFNAME", "=eth0,ib0"),
        ("NCCL_IB_HCA", "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_10:1,mlx5_11:1"),
        ("NCCL_IB_PKEY", "32769"),
        ("NCCL_TOPO_FILE", "/opt/microsoft/ndv5-topo.xml"),
        ("NCCL_NET_PLUGIN", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so"),
        ("CUDA_VISIBLE_DEVICES", f"{UUID},{OTHER_UUID}"),
        ("CUDA_VISIBLE_DEVICES", "MIG-b3a5d3ee-c2a6-5ac8-9d8b-7a3c62a1f9a1"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512"),
        ("SLURM_CPU_BIND", "quiet,mask_cpu:0x00000000FFFFFFFF00000000FFFFFFFF"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda-13.2/lib64:/opt/hpcx/nccl_rdma_sharp_plugin/lib"),
        ("MASTER_ADDR", "ip-10-0-131-17.us-west-2.compute.internal"),
        ("UCX_TLS", "rc,cuda_copy,cuda_ipc,gdr_copy"),
    ],
)
def test_settings_are_no_secrets(name: str, value: str) -> None:
    assert recorded_variables({name: value}) == {name: value}


def test_only_variables_that_matter_are_kept() -> None:
    kept = recorded_variables({"HF_TOKEN": "x", "HOME": "/root", "NCCL_ALGO": "Ring", "RANK": "1"})
    assert kept == {"NCCL_ALGO": "Ring"}


# The host


def test_quota_of_cgroup_v2_is_the_least_up_to_the_root(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/pod/box\n")
    write(tmp_path / "cg/pod/cpu.max", "150000 100000\n")
    write(tmp_path / "cg/pod/box/cpu.max", "max 100000\n")
    assert cpu_quota(tmp_path / "proc", tmp_path / "cg") == 1.5


def test_quota_of_cgroup_v1_where_the_path_is_the_hosts(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "9:cpuset:/\n4:cpu,cpuacct:/docker/8f3a\n0::/\n")
    write(tmp_path / "cg/cpu,cpuacct/cpu.cfs_quota_us", "400000")
    write(tmp_path / "cg/cpu,cpuacct/cpu.cfs_period_us", "100000")
    assert cpu_quota(tmp_path / "proc", tmp_path / "cg") == 4
    write(tmp_path / "cg/cpu,cpuacct/cpu.cfs_quota_us", "-1")
    assert cpu_quota(tmp_path / "proc", tmp_path / "cg") is None


def test_cores_by_affinity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 9})
    monkeypatch.setattr("ncclbench.environment.host.cpu_quota", lambda: 2.5)
    share = describe_share()
    assert (share["cores"], share["usable_cores"], share["cpu_quota_cores"]) == ("0-2,9", 2.5, 2.5)
    for core, siblings in ((0, "0,2"), (2, "0,2"), (1, "1,3")):
        write(tmp_path / f"cpu{core}/topology/thread_siblings_list", siblings)
    assert physical_cores({0, 1, 2}, tmp_path) == 2
    assert physical_cores({7, 8}, tmp_path) == 2


def test_governors_model_and_container(tmp_path: Path) -> None:
    assert governors(tmp_path) is None
    for core, governor in enumerate(("performance", "powersave", "performance")):
        write(tmp_path / f"cpu{core}/cpufreq/scaling_governor", governor + "\n")
    assert governors(tmp_path) == "performance, powersave"
    write(tmp_path / "cpuinfo", "processor\t: 0\nmodel name\t: Grace A02\n")
    assert cpu_model(tmp_path / "cpuinfo") == "Grace A02"
    assert container(tmp_path) is None
    write(tmp_path / "run/.containerenv", "")
    assert container(tmp_path) == "podman"


def test_firmware_of_network_cards(tmp_path: Path) -> None:
    assert nic_firmware(tmp_path) is None
    write(tmp_path / "mlx5_1/fw_ver", "28.39.1002\n")
    write(tmp_path / "mlx5_0/fw_ver", "28.43.2026\n")
    write(tmp_path / "mlx5_2/fw_ver", "\n")
    assert nic_firmware(tmp_path) == "mlx5_0 28.43.2026, mlx5_1 28.39.1002"


@pytest.mark.parametrize(("numbers", "text"), [(set(), ""), ({3}, "3"), ({0, 1, 2, 5, 7, 8}, "0-2,5,7-8")])
def test_ranges(numbers: set[int], text: str) -> None:
    assert format_ranges(numbers) == text
    assert parse_ranges(text) == numbers


# All ranks together


def job(nhosts: int, per_host: int) -> list[dict[str, Any]]:
    """Descriptions of a job on equal hosts, made of this process's own."""
    mine = collect(0, 0, "cpu")
    found = []
    for rank in range(nhosts * per_host):
        each = copy.deepcopy(mine)
        each["host"]["name"] = f"n{rank // per_host}"
        each["rank"] |= {"rank": rank, "local_rank": rank % per_host, "pid": 1000 + rank}
        each["rank"]["variables"] = {"NCCL_ALGO": "Ring"}
        found.append(each)
    return found


def test_equal_ranks_have_no_differences_and_each_fact_once() -> None:
    environment = merge(job(2, 2))
    assert [host["name"] for host in environment["hosts"]] == ["n0", "n1"]
    assert [rank["host"] for rank in environment["ranks"]] == [0, 0, 1, 1]
    assert environment["differences"] == []
    assert environment["common"]["variables"] == {"NCCL_ALGO": "Ring"}
    assert set(environment["ranks"][3]) == {"rank", "host", "local_rank", "pid", "device", "now"}


def test_what_is_merged_can_be_had_again_whole() -> None:
    descriptions = job(2, 2)
    descriptions[1]["rank"]["variables"]["NCCL_DEBUG"] = "INFO"
    descriptions[2]["rank"]["torch"] = "2.13.0"
    environment = json.loads(json.dumps(merge(descriptions[::-1])))
    whole = whole_ranks(environment)
    assert [{key: rank[key] for key in rank if key != "host"} for rank in whole] == [
        each["rank"] for each in descriptions
    ]


def test_differences_name_the_ranks_of_each_value() -> None:
    descriptions = job(2, 2)
    descriptions[1]["rank"]["variables"]["NCCL_DEBUG"] = "INFO"
    for each in descriptions[2:]:
        each["host"]["kernel"] = "6.1"
    kernel = descriptions[0]["host"]["kernel"]
    kernels = [{"value": kernel, "ranks": [0, 1]}, {"value": "6.1", "ranks": [2, 3]}]
    levels = [{"value": None, "ranks": [0, 2, 3]}, {"value": "INFO", "ranks": [1]}]
    differences = {entry["what"]: entry["values"] for entry in merge(descriptions)["differences"]}
    assert differences == {"kernel": kernels, "NCCL_DEBUG": levels}


def test_ranks_of_one_name_on_two_machines_are_two_hosts() -> None:
    descriptions = job(1, 2)
    descriptions[1]["host"]["boot_id"] = "another"
    environment = merge(descriptions)
    assert [rank["host"] for rank in environment["ranks"]] == [0, 1]
    assert environment["differences"] == []


def test_thousands_of_ranks_stay_small() -> None:
    descriptions = job(256, 8)
    for rank, each in enumerate(descriptions):
        each["rank"]["variables"]["NCCL_DEBUG_FILE"] = f"/tmp/{rank}"
    environment = merge(descriptions)
    assert len(json.dumps(environment)) < 1_000_000
    (difference,) = environment["differences"]
    assert (len(difference["values"]), difference["more"]) == (16, 2032)


def test_a_worker_tells_the_versions_of_its_torch() -> None:
    torch = pytest.importorskip("torch")
    mine = collect(3, 1, "cpu")["rank"]
    assert (mine["rank"], mine["local_rank"], mine["pid"]) == (3, 1, os.getpid())
    assert (mine["torch"], mine["torch_git"]) == (torch.__version__, torch.version.git_version)
    assert mine["gpu"] is None
