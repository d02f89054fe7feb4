"""What would spoil timing is named, with the ranks and the way out; a healthy job is left in peace."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ncclbench.environment.collect import merge
from ncclbench.environment.preflight import findings

HOST = {
    "name": "n0",
    "boot_id": "b0",
    "kernel": "6.8.0",
    "cpu_governor": "performance",
    "logical_cores": 192,
    "memory_bytes": 2 << 40,
}
GPU = {
    "name": "NVIDIA H100 80GB HBM3",
    "driver": "580.95.05",
    "sm_clock_mhz": 345,
    "sm_clock_max_mhz": 1980,
    "sm_clock_set_mhz": 1980,
    "sm_clock_default_mhz": 1980,
    "power_limit_w": 700.0,
    "power_limit_default_w": 700.0,
    "throttle_reasons": ["gpu idle"],
}
CUDA = ("nccl2", "nccl-legacy")
Job = list[dict[str, Any]]


def job(nhosts: int = 1, per_host: int = 2, gpus: bool = True) -> Job:
    """A healthy job just after its start, as every rank describes itself."""
    found = []
    for rank in range(nhosts * per_host):
        host, local = divmod(rank, per_host)
        gpu = {**GPU, "uuid": f"GPU-{rank}", "pci_bus_id": f"00000000:{local:02X}:00.0"}
        mine = {
            "rank": rank,
            "local_rank": local,
            "device": f"cuda:{local}" if gpus else "cpu",
            "torch": "2.15.0",
            "torch_git": "d0f2af8",
            "nccl": "2.30.7",
            "cores": "0-191",
            "usable_cores": 192,
            "cpu_quota_cores": None,
            "gpu": gpu if gpus else None,
            "variables": {"WORLD_SIZE": str(nhosts * per_host), "NCCL_DEBUG": "WARN"},
            "now": {"load_1min": 9.5, "available_bytes": 1 << 40, "swap_used_bytes": 0},
        }
        found.append({"host": {**HOST, "name": f"n{host}", "boot_id": f"b{host}"}, "rank": mine})
    return copy.deepcopy(found)


def check(
    ranks: Job, backends: tuple[str, ...] = CUDA, share_gpu: bool = False, nranks: int | None = None
) -> list[dict[str, Any]]:
    return findings(merge(ranks), nranks=nranks or len(ranks), backends=backends, share_gpu=share_gpu)


def only(found: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(found) == 1, found
    assert all("\n" not in found[0][key] and found[0][key] for key in ("what", "mend"))
    return found[0]


@pytest.mark.parametrize(("nhosts", "per_host"), [(1, 1), (1, 8), (2, 8), (16, 8)])
@pytest.mark.parametrize("gpus", [True, False])
def test_a_healthy_job_has_no_findings(nhosts: int, per_host: int, gpus: bool) -> None:
    assert check(job(nhosts, per_host, gpus), CUDA if gpus else ("gloo",)) == []


def test_a_small_idle_machine_has_no_findings() -> None:
    ranks = job(gpus=False)
    for each in ranks:
        each["host"] |= {"logical_cores": 2, "memory_bytes": 4 << 30}
        each["rank"] |= {"cores": "0-1", "usable_cores": 2}
        each["rank"]["now"] = {"load_1min": 2.4, "available_bytes": 3 << 30, "swap_used_bytes": 0}
    assert check(ranks, ("gloo", "gloo")) == []


@pytest.mark.parametrize(
    ("name", "value", "backends"),
    [
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", ("gloo",)),
        ("TORCH_DISTRIBUTED_DEBUG", "detail", CUDA),
        ("CUDA_LAUNCH_BLOCKING", "1", CUDA),
        ("TORCH_NCCL_BLOCKING_WAIT", "true", CUDA),
        ("TORCH_NCCL_NAN_CHECK", "1", CUDA),
        ("TORCH_DIST_NAN_CHECK", "1", ("gloo",)),
        ("NCCL_DEBUG", "INFO", ("gloo", "nccl")),
        ("NCCL_DEBUG", "trace", CUDA),
    ],
)
def test_settings_that_spoil_timing(name: str, value: str, backends: tuple[str, ...]) -> None:
    ranks = job()
    for each in ranks:
        each["rank"]["variables"][name] = value
    finding = only(check(ranks, backends))
    assert finding["severity"] == "warning"
    assert finding["ranks"] == [0, 1]
    assert f"{name}={value}" in finding["what"]
    assert finding["mend"] == f"unset {name}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_DISTRIBUTED_DEBUG", "INFO"),
        ("CUDA_LAUNCH_BLOCKING", "0"),
        ("TORCH_NCCL_BLOCKING_WAIT", "0"),
        ("TORCH_NCCL_NAN_CHECK", "false"),
        ("NCCL_DEBUG", "WARN"),
        ("NCCL_DEBUG", "VERSION"),
    ],
)
def test_settings_that_do_not(name: str, value: str) -> None:
    ranks = job()
    for each in ranks:
        each["rank"]["variables"][name] = value
    assert check(ranks) == []


def test_a_gloo_run_hears_nothing_of_cuda() -> None:
    ranks = job()
    for each in ranks:
        each["rank"]["variables"] |= {
            "CUDA_LAUNCH_BLOCKING": "1",
            "NCCL_DEBUG": "INFO",
            "TORCH_NCCL_NAN_CHECK": "1",
            "TORCH_DIST_USE_NCCL2": "0",
        }
        each["rank"]["gpu"] |= {"pci_bus_id": "00000000:00:00.0", "throttle_reasons": ["hardware slowdown"]}
    ranks[1]["rank"]["nccl"] = "2.27.3"
    assert check(ranks, ("gloo",)) == []


def test_detail_on_some_ranks_only_would_hang() -> None:
    ranks = job()
    ranks[1]["rank"]["variables"]["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    finding = only(check(ranks, ("gloo",)))
    assert (finding["severity"], finding["ranks"]) == ("error", [1])


def test_fewer_cores_than_ranks_by_affinity() -> None:
    ranks = job(2, 4)
    for each in ranks[4:]:
        each["rank"] |= {"cores": "0-1,7", "usable_cores": 3}
    finding = only(check(ranks))
    assert (finding["severity"], finding["ranks"]) == ("warning", [4, 5, 6, 7])
    assert "4 ranks on n1 share 3 usable cores" in finding["what"]


def on_one_machine(load: float = 1.0) -> Job:
    """Four hosts that are containers of one machine, a rank in each."""
    ranks = job(4, 1, gpus=False)
    for each in ranks:
        each["host"] |= {"boot_id": "b0", "logical_cores": 4}
        each["rank"] |= {"cores": "0-3", "now": {**each["rank"]["now"], "load_1min": load}}
    return ranks


def test_containers_of_one_machine_share_its_cores_load_and_gpus() -> None:
    assert check(on_one_machine(load=4.5), ("gloo",)) == [], "the load is that of the job's own ranks"
    crowded = on_one_machine()
    for each in crowded:
        each["rank"]["cores"] = "0-1"
    finding = only(check(crowded, ("gloo",)))
    assert finding["ranks"] == [0, 1, 2, 3]
    assert "4 ranks on the machine of n0, n1, n2, n3 share 2 usable cores" in finding["what"]
    on_gpu = job(2, 1)
    for each in on_gpu:
        each["host"]["boot_id"] = "b0"
    assert "2 ranks use one GPU of the machine of n0, n1" in only(check(on_gpu))["what"]


def test_hosts_that_do_not_tell_when_they_booted_are_machines_of_their_own() -> None:
    ranks = job(2, 4)
    for each in ranks:
        each["host"]["boot_id"] = None
        each["rank"]["cores"] = "0-3"
    assert check(ranks) == []


def test_what_is_wrong_on_many_hosts_is_said_once() -> None:
    ranks = job(250, 8)
    for each in ranks:
        each["host"]["cpu_governor"] = "powersave"
    finding = only(check(ranks))
    assert finding["ranks"] == list(range(2000))
    assert finding["what"] == "the CPU frequency governor of n0 is powersave (and 249 more like it)"


def test_ranks_bound_to_a_core_each_have_enough() -> None:
    ranks = job(1, 4)
    for each in ranks:
        each["rank"] |= {"cores": str(each["rank"]["rank"]), "usable_cores": 1}
    assert check(ranks) == []


def test_fewer_cores_than_ranks_by_quota() -> None:
    ranks = job(1, 4)
    for each in ranks:
        each["rank"] |= {"cpu_quota_cores": 2.5, "usable_cores": 2.5}
    finding = only(check(ranks))
    assert "2.5 usable cores (by its CPU quota)" in finding["what"]
    assert "CPU limit" in finding["mend"]


def on_one_gpu(nccl: str = "2.30.7") -> Job:
    ranks = job(1, 3)
    for each in ranks:
        each["rank"]["nccl"] = nccl
    # Two instances of one GPU have UUIDs of their own, and NCCL takes them for one.
    ranks[2]["rank"]["gpu"]["pci_bus_id"] = ranks[1]["rank"]["gpu"]["pci_bus_id"]
    return ranks


def test_two_ranks_on_one_gpu_are_refused() -> None:
    finding = only(check(on_one_gpu()))
    assert (finding["severity"], finding["ranks"]) == ("error", [1, 2])
    assert "00000000:01:00.0" in finding["what"]
    assert "--share-gpu" in finding["mend"]


def test_two_ranks_on_one_gpu_may_share_it_from_nccl_2_30() -> None:
    assert check(on_one_gpu(), share_gpu=True) == []
    finding = only(check(on_one_gpu("2.29.9"), share_gpu=True))
    assert (finding["severity"], finding["ranks"]) == ("error", [1, 2])
    assert "NCCL 2.29.9" in finding["what"]


def test_the_same_bus_on_two_hosts_is_two_gpus() -> None:
    assert check(job(2, 1)) == []


def test_gpus_known_by_uuid_alone() -> None:
    ranks = job()
    for each in ranks:
        each["rank"]["gpu"] |= {"pci_bus_id": None, "uuid": "GPU-same"}
    assert only(check(ranks))["ranks"] == [0, 1]


def test_another_world_size_than_was_launched() -> None:
    finding = check(job(), nranks=4)[0]
    assert finding["severity"] == "error"
    assert "4 ranks were launched but ranks 0, 1 answer" in finding["what"]
    ranks = job(1, 4)
    ranks[3]["rank"]["variables"]["WORLD_SIZE"] = "8"
    finding = only(check(ranks))
    assert (finding["severity"], finding["ranks"]) == ("error", [3])
    assert "WORLD_SIZE=8 but 4 ranks" in finding["what"]


@pytest.mark.parametrize(("key", "name"), [("torch", "torch"), ("torch_git", "build"), ("nccl", "NCCL")])
def test_different_versions_are_refused(key: str, name: str) -> None:
    ranks = job(1, 4)
    ranks[2]["rank"][key] = "2.13.0"
    finding = only(check(ranks))
    assert (finding["severity"], finding["ranks"]) == ("error", [2])
    assert name in finding["what"]
    assert "2.13.0" in finding["what"]


def test_different_kernels_and_drivers_are_only_told() -> None:
    ranks = job(2, 2)
    for each in ranks[2:]:
        each["host"]["kernel"] = "5.15"
        each["rank"]["gpu"]["driver"] = "535.1"
    found = check(ranks)
    assert [(finding["severity"], finding["ranks"]) for finding in found] == [("warning", [2, 3])] * 2
    assert ["kernel" in found[0]["what"], "driver" in found[1]["what"]] == [True, True]


def test_what_nccl_means_here() -> None:
    ranks = job()
    for each in ranks:
        each["rank"]["variables"]["TORCH_DIST_USE_NCCL2"] = "0"
    assert check(ranks) == []  # both arms are named by what they are
    assert "nccl is nccl-legacy" in only(check(ranks, ("nccl",)))["what"]
    ranks[0]["rank"]["variables"]["TORCH_DIST_USE_NCCL2"] = "1"
    finding = only(check(ranks, ("nccl",)))
    assert (finding["severity"], finding["ranks"]) == ("error", [1])
    ranks[1]["rank"]["variables"]["TORCH_DIST_USE_NCCL2"] = "false"  # only "0" means the old one
    assert "nccl is nccl2" in only(check(ranks, ("nccl",)))["what"]


def test_powersave_governor() -> None:
    ranks = job(2, 1)
    ranks[1]["host"]["cpu_governor"] = "performance, powersave"
    finding = only(check(ranks))
    assert finding["ranks"] == [1]
    assert "n1" in finding["what"]


def test_others_on_the_machine() -> None:
    ranks = job(1, 8)
    for each in ranks:
        each["rank"]["now"]["load_1min"] = 70.0
    assert "load of 70.0 as 8 ranks start" in only(check(ranks))["what"]


@pytest.mark.parametrize(
    ("available", "swap", "words"),
    [(0.04, 0, "short of memory"), (0.09, 1 << 30, "swapping"), (0.09, 0, None), (0.5, 1 << 30, None)],
)
def test_memory(available: float, swap: int, words: str | None) -> None:
    ranks = job()
    for each in ranks:
        each["rank"]["now"] |= {"available_bytes": int(available * (2 << 40)), "swap_used_bytes": swap}
    found = check(ranks)
    assert found == [] if words is None else words in only(found)["what"]


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ({"throttle_reasons": ["hardware thermal slowdown"]}, "throttled: hardware thermal slowdown"),
        ({"sm_clock_set_mhz": 1200}, "SM clock is set to 1200 MHz, its default is 1980"),
        ({"power_limit_w": 500.0}, "power limit is 500 W, its default is 700"),
        (
            {"throttle_reasons": ["applications clocks setting"], "sm_clock_mhz": 1005},
            "locked at 1005 of 1980",
        ),
        (  # A V100 at work with its default settings.
            {
                "throttle_reasons": ["applications clocks setting"],
                "sm_clock_mhz": 1312,
                "sm_clock_max_mhz": 1530,
                "sm_clock_set_mhz": 1312,
                "sm_clock_default_mhz": 1312,
            },
            None,
        ),
        ({"throttle_reasons": ["software power cap"]}, None),
        ({"throttle_reasons": None, "sm_clock_set_mhz": None, "power_limit_default_w": None}, None),
    ],
)
def test_gpu_held_down(gpu: dict[str, Any], words: str | None) -> None:
    ranks = job(1, 4)
    ranks[3]["rank"]["gpu"] |= gpu
    found = check(ranks)
    if words is None:
        assert found == []
    else:
        assert (only(found)["ranks"], words in only(found)["what"]) == ([3], True)


def test_errors_come_first() -> None:
    ranks = on_one_gpu()
    ranks[0]["host"]["cpu_governor"] = "powersave"
    assert [finding["severity"] for finding in check(ranks)] == ["error", "warning"]
