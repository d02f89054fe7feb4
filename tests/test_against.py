"""What changed between two environments: told most telling first, counted, and nothing made up."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ncclbench.environment.against import changes, changes_between, side_text


def environment(nranks: int = 4, host: str = "node-00") -> dict[str, Any]:
    """Ranks with a GPU each, as ``environment.collect.merge`` puts them together."""
    return {
        "hosts": [{"name": host, "boot_id": "boot-1", "kernel": "6.8.0", "cpu": "EPYC 9554"}],
        "common": {
            "torch": "2.15.0",
            "nccl": "2.30.7",
            "gpu": {
                "name": "H200",
                "driver": "580.12",
                "sm_clock_mhz": 345,
                "throttle_reasons": ["gpu idle"],
            },
            "variables": {"NCCL_DEBUG": "WARN", "MASTER_PORT": "29500"},
        },
        "ranks": [
            {"rank": rank, "host": 0, "local_rank": rank, "pid": 100 + rank, "gpu": {"uuid": f"GPU-{rank}"}}
            for rank in range(nranks)
        ],
        "differences": [],
    }


def names(found: list[dict[str, Any]]) -> list[str]:
    return [change["what"] for change in found]


def test_equal_environments_have_no_changes() -> None:
    assert changes(environment(), environment()) == []


def test_the_most_telling_comes_first() -> None:
    new = environment()
    new["hosts"][0] |= {"cpu": "EPYC 9654", "kernel": "6.9.1"}
    new["common"] |= {"torch": "2.16.0", "nccl": "2.31.0"}
    new["common"]["variables"]["NCCL_ALGO"] = "Ring"
    new["common"]["gpu"] |= {"driver": "590.44", "name": "B200"}
    assert names(changes(environment(), new)) == [
        "gpu.name",
        "gpu.driver",
        "nccl",
        "torch",
        "kernel",
        "NCCL_ALGO",
        "cpu",
    ]


def test_each_value_comes_with_how_many_ranks_have_it() -> None:
    new = environment()
    del new["common"]["gpu"]["driver"]
    for rank, driver in enumerate(("580.12", "580.12", "580.12", "590.44")):
        new["ranks"][rank]["gpu"]["driver"] = driver
    assert changes(environment(), new) == [
        {
            "what": "gpu.driver",
            "base": [{"value": "580.12", "ranks": 4}],
            "new": [{"value": "580.12", "ranks": 3}, {"value": "590.44", "ranks": 1}],
        }
    ]


def test_a_variable_that_is_not_set_is_null() -> None:
    new = environment()
    del new["common"]["variables"]["NCCL_DEBUG"]
    (change,) = changes(environment(), new)
    assert (change["what"], change["base"][0]["value"], change["new"]) == (
        "NCCL_DEBUG",
        "WARN",
        [{"value": None, "ranks": 4}],
    )


def test_what_a_launch_or_a_moment_alone_has_is_no_change() -> None:
    new = environment()
    new["common"]["variables"]["MASTER_PORT"] = "31000"
    new["common"]["gpu"] |= {"sm_clock_mhz": 1980}
    for rank in new["ranks"]:
        rank["pid"] += 1000
        rank["now"] = {"load_1min": 7.0}
    assert changes(environment(), new) == []


def test_a_throttled_gpu_is_a_change_and_an_idle_one_is_none() -> None:
    new = environment()
    new["common"]["gpu"]["throttle_reasons"] = ["gpu idle", "hardware thermal slowdown"]
    (change,) = changes(environment(), new)
    assert change["what"] == "gpu.throttled"
    assert side_text(change, "new") == '["hardware thermal slowdown"]'
    assert side_text(change, "base") == "(none)"


def test_a_reboot_and_an_exchanged_gpu_count_on_the_same_host_only() -> None:
    new = environment()
    new["hosts"][0]["boot_id"] = "boot-2"
    new["ranks"][3]["gpu"]["uuid"] = "GPU-99"
    assert names(changes(environment(), new)) == ["gpu.uuid", "boot_id"]
    new["hosts"][0]["name"] = "node-07"
    assert names(changes(environment(), new)) == ["host"]


def test_more_ranks_alike_are_one_change() -> None:
    found = changes(environment(2), environment(4))
    assert names(found) == ["gpu.uuid", "ranks"]
    assert (side_text(found[1], "base"), side_text(found[1], "new")) == ("2", "4")


def test_runs_of_a_side_are_counted_together() -> None:
    changed = environment()
    changed["common"]["nccl"] = "2.31.0"
    assert changes_between([environment(), environment()], [environment()]) == []
    (change,) = changes_between([environment()], [environment(), changed])
    assert change["new"] == [{"value": "2.30.7", "ranks": 4}, {"value": "2.31.0", "ranks": 4}]
    assert side_text(change, "new") == "2.30.7 on 4 ranks, 2.31.0 on 4 ranks"


def test_swapped_sides_tell_the_same() -> None:
    new = environment()
    new["common"]["torch"] = "2.16.0"
    (there,), (back,) = changes(environment(), new), changes(new, environment())
    assert (there["base"], there["new"]) == (back["new"], back["base"])


def test_very_many_values_are_cut_off_and_counted() -> None:
    new = environment(40)
    for rank in new["ranks"]:
        rank["cores"] = str(rank["rank"])
    (change,) = changes(environment(40), new)
    assert len(change["new"]) == 16
    assert change["new_more"] == 24
    assert side_text(change, "new").endswith("and 36 more values")


@pytest.mark.parametrize("key", ["common", "gpu", "variables"])
@pytest.mark.parametrize("value", [None, "text", 3, ["a"]])
def test_a_file_with_something_else_in_a_place_is_no_crash(key: str, value: Any) -> None:
    damaged = copy.deepcopy(environment())
    if key == "common":
        damaged["common"] = value
    else:
        damaged["common"][key] = value
        damaged["ranks"][0][key] = value
    assert changes(damaged, damaged) == []
    assert changes(environment(), damaged)
    assert changes({"hosts": [], "ranks": []}, environment())
    assert changes({}, environment())


def test_a_value_that_was_hidden_on_both_sides_is_not_known_to_be_alike() -> None:
    base, new = environment(), environment()
    for each in (base, new):
        each["common"]["variables"]["NCCL_NETDEVS_POLICY"] = "(not recorded)"
    (change,) = changes(base, new)
    assert change["what"] == "NCCL_NETDEVS_POLICY"
    assert side_text(change, "base") == side_text(change, "new") == "(not recorded)"
