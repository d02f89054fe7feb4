"""From the times of overlap to its figures: the formula, intervals, what is void and what is no figure."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from overlap_fixtures import make_overlap, make_place, make_skip, make_times, over_epochs

from ncclbench.stats.overlap import (
    efficiency,
    mean_over_epochs,
    overlap_rows,
    ratio_over_epochs,
    slowdown,
)
from ncclbench.stats.overlap_place import carrier, why_no_figure
from ncclbench.stats.overlap_words import sentences


def rows_of(*lines: Any, **meta: Any) -> list[dict[str, Any]]:
    return overlap_rows(make_overlap(list(lines), **meta))


# --- the formula


@pytest.mark.parametrize(
    ("comm", "compute", "together", "hidden"),
    [
        (100.0, 100.0, 100.0, 1.0),
        (100.0, 100.0, 200.0, 0.0),
        (100.0, 40.0, 100.0, 1.0),
        (100.0, 40.0, 120.0, 0.5),
        (40.0, 100.0, 110.0, 0.75),
        (100.0, 100.0, 250.0, -0.5),
        (100.0, 100.0, 90.0, 1.1),
    ],
)
def test_what_is_hidden_is_a_part_of_the_shorter_and_never_clipped(
    comm: float, compute: float, together: float, hidden: float
) -> None:
    line = make_times(comm_us=comm, compute_us=compute, repetitions=1)
    line.times_us["together"][0][0] = together
    line.times_us["together"][1][0] = 0.5 * together
    assert efficiency(line) == pytest.approx([hidden])


def test_repetitions_are_paired_and_each_counts_its_slowest_rank() -> None:
    line = make_times(repetitions=3)
    line.times_us.update(
        comm=[[100.0, 200.0, 100.0], [90.0, 90.0, 300.0]],
        compute=[[100.0, 200.0, 300.0], [100.0, 100.0, 100.0]],
        together=[[100.0, 400.0, 100.0], [100.0, 100.0, 450.0]],
    )
    assert efficiency(line).tolist() == [1.0, 0.0, 0.5]


def test_a_clock_too_coarse_says_nothing() -> None:
    line = make_times(comm_us=0.0)
    assert np.isnan(efficiency(line)).all()
    for row in rows_of(line):
        assert row["efficiency"] is None
        assert row["meaningful"] is False
        assert "below what the clock can tell" in row["reason"]
    json.dumps(rows_of(line), allow_nan=False)


def test_slowdown_is_over_the_time_alone() -> None:
    line = make_times()
    comm = slowdown(line, "comm")
    compute = slowdown(line, "compute")
    assert comm is not None
    assert compute is not None
    assert comm == pytest.approx([1.1] * 4)
    assert compute == pytest.approx([1.2] * 4)
    assert slowdown(make_times(comm_done_us=None), "comm") is None


def test_intervals_are_students_over_epochs() -> None:
    found = mean_over_epochs([0.9, 1.0, 0.8, float("nan")])
    assert found is not None
    # Standard error 0.1 / sqrt(3), t(0.975; 2) = 4.30265.
    assert found.value == pytest.approx(0.9)
    assert found.low == pytest.approx(0.9 - 4.30265 * 0.1 / 3**0.5, rel=1e-5)
    assert found.high == pytest.approx(0.9 + 4.30265 * 0.1 / 3**0.5, rel=1e-5)
    one = mean_over_epochs([-0.25])
    assert one is not None
    assert (one.value, one.low, one.high) == (-0.25, None, None)
    assert mean_over_epochs([]) is None
    ratio = ratio_over_epochs([2.0, 8.0])
    assert ratio is not None
    assert ratio.value == pytest.approx(4.0)
    assert ratio_over_epochs([0.0]) is None


# --- rows


def test_a_row_for_both_at_once_and_one_for_the_control() -> None:
    together, serial = overlap_rows(make_overlap())
    assert (together["arm"], serial["arm"]) == ("together", "serial")
    assert together["efficiency"] == pytest.approx(0.97, abs=0.03)
    assert together["ci_low"] < together["efficiency"] < together["ci_high"]
    assert serial["efficiency"] == pytest.approx(0.0, abs=1e-9)
    assert (together["comm_us"], together["compute_us"]) == (1000.0, 1000.0)
    assert together["together_us"] == pytest.approx(1030.0, abs=30)
    assert serial["together_us"] == pytest.approx(2000.0)
    assert together["exposed_us"] == pytest.approx(together["together_us"] - 1000.0)
    assert together["comm_slowdown"] == pytest.approx(1.1)
    assert together["compute_slowdown"] == pytest.approx(1.2)
    assert serial["comm_slowdown"] is None
    assert (together["n"], together["epochs"], together["nranks"]) == (24, 6, 2)
    assert (together["backend"], together["implementation"]) == ("gloo", "ProcessGroupGloo (gloo)")
    assert together["meaningful"] is True
    assert (together["status"], together["reason"]) == ("ok", None)


def test_wrong_data_voids_the_row() -> None:
    for changes, said in (
        ({"wrong": 3}, "3 elements"),
        ({"compute_wrong": 1}, "wrong results on 1"),
    ):
        for row in rows_of(*over_epochs(epochs=2), make_times(epoch=2, **changes)):
            assert row["status"] == "wrong"
            assert row["efficiency"] is None
            assert row["meaningful"] is False
            assert said in row["reason"]


def test_a_control_that_is_not_near_zero_makes_no_figure() -> None:
    together, serial = rows_of(*over_epochs(control=0.3))
    assert together["meaningful"] is serial["meaningful"] is False
    assert "the serial control reads 0.30 where nothing can hide" in together["reason"]
    assert all(row["meaningful"] for row in rows_of(*over_epochs(control=-0.05)))
    assert not any(row["meaningful"] for row in rows_of(*over_epochs(control=-0.2)))


def test_more_than_all_of_the_shorter_cannot_hide() -> None:
    together, serial = rows_of(*over_epochs(1.3))
    assert together["meaningful"] is serial["meaningful"] is False
    assert "where no more than 1 can hide" in together["reason"]
    assert together["efficiency"] == pytest.approx(1.3, abs=0.03), "read, and never clipped"
    assert all(row["meaningful"] for row in rows_of(*over_epochs(1.05)))


def test_a_case_that_fails_in_a_later_epoch_says_so_beside_what_was_measured() -> None:
    failed = make_skip("capture failed", mode="eager", status="failed")
    for row in rows_of(*over_epochs(epochs=2), failed):
        assert (row["status"], row["reason"]) == ("failed", "in epoch 3: capture failed")
        assert (row["epochs"], row["meaningful"]) == (2, False)
        assert row["comm_us"] == 1000.0


def test_what_was_not_measured_has_rows_with_its_reason() -> None:
    rows = rows_of(*over_epochs(epochs=2), make_skip(), make_skip("capture failed", mode="eager"))
    assert [row["status"] for row in rows] == ["ok", "ok", "skipped", "skipped"], "eager was measured"
    assert rows[2]["reason"] == "graph needs CUDA"
    assert rows[2]["mode"] == "graph"
    assert set(rows[0]) == set(rows[2])


def test_cases_arms_and_kernels_are_kept_apart() -> None:
    rows = rows_of(
        make_times(0.9),
        make_times(0.8, compute="triad"),
        make_times(0.7, arm="gloo#2"),
        make_times(0.6, nbytes=4096),
        arms=("gloo", "gloo#2"),
    )
    found = [
        (row["compute"], row["backend"], row["nbytes"], round(row["efficiency"], 3)) for row in rows[::2]
    ]
    assert found == [
        ("fma", "gloo", 1 << 20, 0.9),
        ("triad", "gloo", 1 << 20, 0.8),
        ("fma", "gloo#2", 1 << 20, 0.7),
        ("fma", "gloo", 4096, 0.6),
    ]


# --- where it ran


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (make_place((0, 1)), None),
        (make_place((0, 0)), "both ranks are on one host, where communication is copying by the 4 cores"),
        (make_place((0, 0, 0)), "all 3 ranks are on one host"),
        (make_place((0, 1), cores="0"), "rank 0's host has 1 cores for 1 ranks: each needs 2"),
        (make_place((0, 0, 1), cores="0-2"), "rank 0's host has 3 cores for 2 ranks"),
        (make_place((0, 0, 1), cores="0-3"), None),
        (make_place((0, 0), device="cuda:{}"), None),
        (make_place((0, 0), device="cuda:0"), "2 ranks share 1 GPUs"),
        (None, "does not say where it ran"),
        (make_place((0, 1), cores="many"), "does not say how many cores"),
        (make_place((0, 1), cores="0-999999999999"), "does not say how many cores"),
    ],
)
def test_it_is_a_figure_where_the_two_do_not_contend(place: Any, said: str | None) -> None:
    reason = why_no_figure(make_overlap(environment=place))
    if said is None:
        assert reason is None
    else:
        assert reason is not None
        assert said in reason


def test_a_rank_that_is_bound_to_one_core_contends_with_itself() -> None:
    place = make_place((0, 0, 1))
    for rank, cores in zip(place["ranks"], ("0", "1-7", "0-7"), strict=True):
        rank["cores"] = cores
    assert "rank 0's host has 2 cores for 2 ranks" in str(why_no_figure(make_overlap(environment=place)))
    place = make_place((0, 1), cores="0-7")
    place["common"]["cpu_quota_cores"] = 1.5
    assert "has 1.5 cores for 1 ranks" in str(why_no_figure(make_overlap(environment=place)))


def test_a_gpu_is_told_by_its_own_number_where_each_rank_sees_only_one() -> None:
    place = make_place((0, 0), device="cuda:0")
    for rank in place["ranks"]:
        rank["gpu"] = {"uuid": f"GPU-{rank['rank']}"}
    assert why_no_figure(make_overlap(environment=place)) is None
    place["ranks"][1]["gpu"] = {"uuid": "GPU-0"}
    assert why_no_figure(make_overlap(environment=place)) == "2 ranks share 1 GPUs"


@pytest.mark.parametrize(
    ("name", "value", "blocks"),
    [
        ("TORCH_NCCL_BLOCKING_WAIT", "1", True),
        ("TORCH_NCCL_BLOCKING_WAIT", "False", False),
        ("CUDA_LAUNCH_BLOCKING", "1", True),
        ("CUDA_LAUNCH_BLOCKING", "0", False),
    ],
)
def test_a_host_that_waits_before_it_issues_both_reads_no_figure(name: str, value: str, blocks: bool) -> None:
    place = make_place((0, 0), device="cuda:{}")
    place["ranks"][1]["variables"] = {name: value}
    reason = why_no_figure(make_overlap(environment=place))
    said = f"{name}={value} makes the host wait before it issues both: unset it"
    assert reason == (said if blocks else None)


def test_what_carries_it_in_words() -> None:
    assert carrier(make_overlap(), "gloo") == "gloo over eth0"
    place = make_place()
    del place["common"]["variables"]
    assert carrier(make_overlap(environment=place), "gloo") == "gloo between 2 hosts"
    assert carrier(make_overlap(arms=("ucc",)), "ucc") == "ucc between 2 hosts"
    gpus = make_place((0, 0), device="cuda:{}")
    assert carrier(make_overlap(arms=("nccl2",), environment=gpus), "nccl2") == "nccl2 on 2 GPUs"


# --- in sentences


def test_one_case_is_told_with_its_interval_and_the_control() -> None:
    (said,) = sentences(make_overlap())
    assert said.startswith("gloo over eth0: 0.9")
    assert " of the shorter hidden (all_reduce of 1M beside fma; 0.9" in said
    assert said.endswith(", serial control 0.00")


def test_of_several_the_least_and_the_most_are_told() -> None:
    lines = [*over_epochs(0.6, compute="triad"), *over_epochs(0.95), *over_epochs(0.5, nbytes=64, control=1)]
    (said,) = sentences(make_overlap(lines))
    assert "(all_reduce 1M beside triad) to 0.9" in said
    assert "(all_reduce 1M beside fma) of the shorter hidden" in said
    assert said.endswith("; 1 of 3 cases are no overlap figure")


def test_below_0_is_put_into_words() -> None:
    (said,) = sentences(make_overlap(over_epochs(-0.5)))
    assert said.endswith("; below 0 both at once take longer than one after the other")


def test_on_one_host_it_is_said_that_this_is_no_figure() -> None:
    (said,) = sentences(make_overlap(environment=make_place((0, 0), cores="0-1")))
    assert said == (
        "gloo over eth0: no overlap figure: both ranks are on one host, where communication is copying by "
        "the 2 cores that compute, so the two contend"
    )


def test_each_backend_and_mode_has_a_sentence() -> None:
    lines = [*over_epochs(0.9), *over_epochs(0.8, arm="gloo#2"), make_skip()]
    said = sentences(make_overlap(lines, arms=("gloo", "gloo#2")))
    assert [each.split(":")[0] for each in said] == [
        "gloo over eth0",
        "gloo#2 over eth0",
        "gloo over eth0 in a CUDA graph",
    ]
    assert said[2].endswith("no overlap figure: graph needs CUDA")
