"""What one rank has otherwise than the rest is told first, with the rank and its host."""

from __future__ import annotations

from typing import Any

import pytest
from test_preflight import Job, check, job, only

from ncclbench.terminal.show import finding_lines

GLOO = ("gloo",)


def with_variables(ranks: Job, rank: int, **values: str) -> Job:
    ranks[rank]["rank"]["variables"] |= values
    return ranks


@pytest.mark.parametrize(
    "name",
    ["NCCL_ALGO", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "LD_PRELOAD"],
)
def test_a_setting_of_one_rank_is_told_with_its_host(name: str) -> None:
    finding = only(check(with_variables(job(2, 2, gpus=False), 3, **{name: "x"}), GLOO))
    assert (finding["severity"], finding["ranks"]) == ("warning", [3])
    assert finding["what"] == f"{name} differs between ranks: x on rank 3 (n1), and not set on the others"
    assert finding["mend"] == f"set {name} alike on all ranks, or unset it"


def test_of_two_ranks_both_are_named_once() -> None:
    """ "not set on the others (rank 1)" says the opposite of what is so."""
    found = check(with_variables(job(1, 2, gpus=False), 1, NCCL_ALGO="Ring"), GLOO)
    (line,) = finding_lines(found, None)
    assert line == (
        "warning: NCCL_ALGO differs between ranks: Ring on rank 1 (n0), and not set on rank 0 (n0): "
        "set NCCL_ALGO alike on all ranks, or unset it"
    )


def test_a_setting_that_one_rank_lacks() -> None:
    ranks = job(2, 4)
    for rank in (*range(5), 6, 7):
        with_variables(ranks, rank, NCCL_PROTO="LL128")
    finding = only(check(ranks))
    assert (
        finding["what"] == "NCCL_PROTO differs between ranks: not set on rank 5 (n1), and LL128 on the others"
    )


@pytest.mark.parametrize(
    "name", ["CUDA_VISIBLE_DEVICES", "SLURM_CPU_BIND", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"]
)
def test_what_launchers_set_differs_rightly(name: str) -> None:
    assert check(with_variables(job(2, 2), 3, **{name: "1"})) == []


@pytest.mark.parametrize(
    "value", ["/opt/lib:/usr/lib:", "/opt/lib:/opt/lib:/usr/lib", ":/opt/lib:/usr/lib:/opt/lib"]
)
def test_paths_that_mean_the_same_are_alike(value: str) -> None:
    ranks = job(2, 2)
    for rank in range(4):
        with_variables(ranks, rank, LD_LIBRARY_PATH=value if rank > 1 else "/opt/lib:/usr/lib")
    assert check(ranks) == []


def test_a_file_for_each_rank_is_meant_so() -> None:
    ranks = job(2, 2)
    for rank in range(4):
        with_variables(ranks, rank, NCCL_DEBUG_FILE=f"log.{rank}")
    assert check(ranks) == []


def test_a_forgotten_file_of_settings_is_not_read_out_whole() -> None:
    settings = {f"NCCL_SETTING_{number:02}": "1" for number in range(40)}
    found = check(with_variables(job(2, 2), 1, **settings))
    assert len(found) == 7
    assert found[-1]["what"] == "34 more variables differ between ranks"


def test_settings_come_before_other_warnings() -> None:
    ranks = with_variables(job(2, 2), 3, NCCL_ALGO="Ring")
    for each in ranks:
        each["host"]["cpu_governor"] = "powersave"
    assert "NCCL_ALGO" in check(ranks)[0]["what"]


def test_another_ncclbench_is_refused() -> None:
    ranks = job(2, 2)
    for rank, each in enumerate(ranks):
        each["rank"]["ncclbench"] = "0.2.0" if rank == 2 else "0.1.0"
    finding = only(check(ranks))
    assert (finding["severity"], finding["ranks"]) == ("error", [2])
    assert finding["what"] == "ncclbench differs between ranks: 0.2.0 on rank 2 (n1), and 0.1.0 on the others"


def clocked(*offsets_s: float, wait_s: float = 0.001) -> Job:
    """A job whose ranks, two on a host, read their clocks before and after one moment."""
    ranks = job(len(offsets_s) // 2, 2, gpus=False)
    for each, offset_s in zip(ranks, offsets_s, strict=True):
        now = 1_796_000_000.0 + offset_s
        each["rank"]["now"]["clock_s"] = [now, now + wait_s]
    return ranks


@pytest.mark.parametrize(
    ("offsets_s", "words", "found"),
    [
        ((0, 0, 3.25, 3.25), "differs from n0's: n1 by 3.2 s ahead", [2, 3]),
        ((0, 0, 0, 0, -7200, -7200), "differs from n0's: n2 by 7200.0 s behind", [4, 5]),
        ((60, 60, 0, 0, 0, 0), "differs from n2's: n0 by 60.0 s ahead", [0, 1]),
    ],
)
def test_a_clock_that_is_off_is_told_with_its_host(
    offsets_s: tuple[float, ...], words: str, found: list[int]
) -> None:
    finding = only(check(clocked(*offsets_s), GLOO))
    assert (finding["severity"], finding["ranks"]) == ("warning", found)
    assert finding["what"] == f"the time of day {words}"


@pytest.mark.parametrize("offsets_s", [(0, 0, 0.9, 0.9), (0, 0.002, -0.9, -0.9)])
def test_clocks_within_a_second_are_alike(offsets_s: tuple[float, ...]) -> None:
    assert check(clocked(*offsets_s), GLOO) == []


def test_what_a_slow_rank_does_not_know_is_not_told() -> None:
    assert check(clocked(0, 0, 3, 3, wait_s=2.5), GLOO) == [], "3 s apart at most, half a second at least"


def test_runs_of_older_versions_tell_no_clock() -> None:
    ranks: list[dict[str, Any]] = clocked(0, 0, 50, 50)
    for each in ranks:
        del each["rank"]["now"]["clock_s"]
    assert check(ranks, GLOO) == []
