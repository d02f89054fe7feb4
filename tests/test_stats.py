"""How a number is made: rows from samples, intervals, effective sizes and modes."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fixtures import make_case, make_run, make_unit

from ncclbench.compare.paired import compare_run
from ncclbench.plan.model import Arm, Plan
from ncclbench.stats.intervals import Margin, log_mean
from ncclbench.stats.rows import NOT_MEASURED, run_rows, write_summary_csv
from ncclbench.stats.summary import summary_row
from ncclbench.store.model import Unit

# What ``--json`` promises of a row; more keys are welcome.
# fmt: off
CONTRACT = {
    "op", "arm", "implementation", "dtype", "redop", "root", "nbytes", "count", "topology", "mode", "async",
    "in_place", "nranks", "n", "epochs", "clock", "p25_us", "median_us", "ci_low_us", "ci_high_us",
    "p25_ci_low_us", "p25_ci_high_us", "p95_us", "p99_us", "fastest_us", "mean_rank_us", "launch_us",
    "skew_us", "algbw_GBs", "busbw_GBs", "wrong", "status", "reason", "drift", "drifts", "autocorrelation",
    "correlated", "warming", "warming_ratio", "stopped", "half_width",
}
# fmt: on

GLOO = Arm("gloo", "gloo")
CASE = make_case("all_reduce", 6000, mode="back-to-back", nranks=3)

times = st.floats(1e-3, 1e9)


def unit(epoch: int, total_us: list[list[float]], **fields: object) -> Unit:
    """A unit of batches of two; rank r starts r microseconds late and launches for 10 (r + 1)."""
    total = np.array(total_us, dtype=np.float64)
    late = np.arange(len(total), dtype=np.float64)[:, None]
    values: dict[str, object] = {
        "case": CASE.key,
        "arm": "gloo",
        "epoch": epoch,
        "attempt": 0,
        "k": 2,
        "start_us": np.zeros_like(total) + late,
        "launch_us": np.zeros_like(total) + 10 * (late + 1),
        "device_us": None,
        "total_us": total,
        "visits": (total.shape[1],),
        "turns": (0,),
        "wrong": (0,) * len(total),
    }
    return Unit(**(values | fields))


def row_of(units: list[Unit], **options: object) -> dict[str, object]:
    return summary_row(CASE, GLOO, units, implementation="Gloo", statistic="p25", **options)


# The row.


def test_row_by_hand() -> None:
    """Two epochs, three ranks, two batches of two operations: small enough to add up on paper."""
    first = unit(0, [[20, 60], [40, 44], [30, 50]])  # slowest per operation: 20, 30; fastest: 10, 22
    second = unit(1, [[100, 60], [80, 64], [90, 62]])  # slowest: 50, 32; fastest: 40, 30
    row = row_of([first, second])
    expected = {
        "n": 4,
        "epochs": 2,
        "clock": "total",
        "p25_us": (22.5 + 36.5) / 2,
        "median_us": (25 + 41) / 2,
        "p95_us": 32 + 0.85 * 18,
        "p99_us": None,
        "fastest_us": (16 + 35) / 2,
        "mean_rank_us": (20 + 60 + 40 + 44 + 30 + 50 + 100 + 60 + 80 + 64 + 90 + 62) / 24,
        "launch_us": 15,
        "skew_us": 2,
        "algbw_GBs": 6000 / 33e-6 / 1e9,
        "busbw_GBs": 6000 / 33e-6 / 1e9 * 4 / 3,
        "wrong": 0,
        "k": 2,
        "epoch_spread": math.log(41 / 25) / math.sqrt(2),
        "status": "ok",
        "reason": None,
    }
    assert {key: row[key] for key in expected} == pytest.approx(expected)
    assert row.keys() >= CONTRACT
    assert row | CASE.to_json() == row
    json.dumps(row, allow_nan=False)


def test_device_time_counts_where_there_is_one() -> None:
    on_device = unit(0, [[200, 200]] * 3, device_us=np.array([[20.0, 40], [30, 10], [10, 10]]))
    row = row_of([on_device])
    assert row["clock"] == "device"
    assert row["median_us"] == pytest.approx((15 + 20) / 2)


def test_one_epoch_has_no_interval() -> None:
    row = row_of([unit(0, [[20, 60]] * 3)])
    intervals = [key for key in row if "ci_" in key] + ["epoch_spread"]
    assert [row[key] for key in intervals] == [None] * 5


@pytest.mark.parametrize(("n", "told"), [(99, False), (100, True)])
def test_p99_needs_a_sample_above_it(n: int, told: bool) -> None:
    row = row_of([unit(0, [list(range(1, n + 1))] * 3)])
    assert (row["p99_us"] is not None) == told
    assert row["p99_reason"] == (None if told else "needs 100 samples, has 99")


def test_wrong_data_voids_the_bandwidth() -> None:
    row = row_of([unit(0, [[20, 60]] * 3, wrong=(0, 2, 5)), unit(1, [[20, 60]] * 3, wrong=(1, 0, 0))])
    assert (row["wrong"], row["status"], row["reason"]) == (8, "wrong", "8 wrong elements")
    assert row["algbw_GBs"] is row["busbw_GBs"] is None


def test_unchecked_data_is_not_called_right() -> None:
    assert row_of([unit(0, [[20, 60]] * 3, wrong=None)])["wrong"] is None


def test_no_bandwidth_where_bytes_over_time_is_none() -> None:
    assert row_of([unit(0, [[20, 60]] * 3)], share_gpu=True)["busbw_GBs"] is None
    barrier = make_case("barrier", 0)
    row = summary_row(barrier, GLOO, [unit(0, [[20, 60]] * 2)], implementation=None, statistic="p25")
    assert row["algbw_GBs"] is row["busbw_GBs"] is None
    assert row["median_us"] == 20


def test_fence_bound_only_where_there_is_a_fence() -> None:
    units = [unit(0, [[20, 60]] * 3)]  # ranks start 2 us apart, an operation takes 20
    isolated = replace(CASE, mode="isolated")
    told = {
        (case.mode, ratio): summary_row(
            case, GLOO, units, implementation=None, statistic="p25", margin=Margin(ratio, 0.0)
        )["fence_bound"]
        for case in (isolated, CASE)
        for ratio in (0.03, 0.5)
    }
    assert told == {
        ("isolated", 0.03): True,
        ("isolated", 0.5): False,
        ("back-to-back", 0.03): False,
        ("back-to-back", 0.5): False,
    }


def test_nothing_measured_is_a_full_row_of_nulls() -> None:
    row = row_of([], status="skipped", reason="below one element per rank")
    assert row.keys() >= CONTRACT
    assert row.keys() == row_of([unit(0, [[20, 60]] * 3)]).keys()
    assert (row["n"], row["median_us"], row["wrong"], row["status"]) == (0, None, None, "skipped")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(times, min_size=1, max_size=9), min_size=2, max_size=9))
def test_intervals_hold_their_estimates(epochs: list[list[float]]) -> None:
    row = row_of([unit(number, [samples] * 3) for number, samples in enumerate(epochs)])
    assert row["ci_low_us"] <= row["median_us"] <= row["ci_high_us"]
    assert row["p25_ci_low_us"] <= row["p25_us"] <= row["p25_ci_high_us"]
    json.dumps(row, allow_nan=False)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_another_unit_of_time_scales_times_and_nothing_else(seed: int, factor: float) -> None:
    generator = np.random.default_rng(seed)
    units = [make_unit(generator, CASE, "gloo", epoch, 2, 100.0, 40, 3) for epoch in range(4)]
    scaled = [
        replace(one, **{name: getattr(one, name) * factor for name in ("start_us", "launch_us", "total_us")})
        for one in units
    ]
    row, other = row_of(units), row_of(scaled)
    for key, value in row.items():
        if isinstance(value, float):
            power = 1 if key.endswith("_us") else -1 if key.endswith("_GBs") else 0
            assert other[key] == pytest.approx(value * factor**power), key
        else:
            assert other[key] == value, key


# All rows of a run.


def test_rows_follow_the_plan_and_say_why_not(tmp_path: Path) -> None:
    run = make_run(ops=["broadcast"], sizes=[8, 16, 32, 64], modes=["isolated"], arms=["a", "b"])
    keys = [entry.case.key for entry in run.plan.cases]
    skipped = replace(run.plan.cases[0], status="skipped", reason="below one element per rank")
    run.plan = replace(run.plan, cases=(skipped, *run.plan.cases[1:]))
    del run.units[keys[0], "a"], run.units[keys[0], "b"]
    del run.units[keys[1], "b"], run.units[keys[2], "a"], run.units[keys[3], "b"]
    run.statuses[keys[2], "a"] = ("failed", "rank 1 died")
    run.statuses[keys[1], "b"] = ("skipped", "no fp8 here")
    run.statuses[keys[2], "b"] = ("unavailable", "its second start found no GPU")
    rows = run_rows(run)
    told = [(row["nbytes"], row["arm"], row["status"], row["reason"]) for row in rows]
    assert told == [
        (8, "a", "skipped", "below one element per rank"),
        (8, "b", "skipped", "below one element per rank"),
        (16, "a", "ok", None),
        (16, "b", "skipped", "no fp8 here"),
        (32, "a", "failed", "rank 1 died"),
        (32, "b", "ok", None),  # measured before it went
        (64, "a", "ok", None),
        (64, "b", "failed", NOT_MEASURED),
    ]
    run.meta["arms"]["b"] |= {"status": "unavailable", "reason": "needs torch >= 2.15"}
    assert run_rows(run)[7]["reason"] == "needs torch >= 2.15"
    assert rows[2]["implementation"] == "ProcessGroupA, a"

    write_summary_csv(rows, tmp_path / "summary.csv")
    with (tmp_path / "summary.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["status"] for line in lines] == [row["status"] for row in rows]
    assert (lines[0]["root"], lines[0]["median_us"], lines[0]["n"]) == ("0", "", "0")
    assert float(lines[2]["median_us"]) == rows[2]["median_us"]


def test_the_statistic_suits_the_clock() -> None:
    run = make_run(ops=["all_reduce"], sizes=[8], modes=["isolated"])
    key = next(iter(run.units))
    assert run_rows(run)[0]["statistic"] == "p25"
    run.units[key] = [replace(one, device_us=one.total_us) for one in run.units[key]]
    assert run_rows(run)[0]["statistic"] == "median"
    run.plan = replace(run.plan, statistic="p10")
    assert run_rows(run)[0]["statistic"] == "p10"


def test_shared_gpus_are_marked() -> None:
    run = make_run(ops=["all_reduce"], sizes=[8], modes=["isolated"])
    plan: Plan = replace(run.plan, share_gpu=True)
    row = run_rows(replace(run, plan=plan))[0]
    assert (row["shared_gpu"], row["busbw_GBs"]) == (True, None)


def test_every_key_is_documented() -> None:
    """In docs/results-format.md, between backticks; the case's keys stand there as a range."""
    text = (Path(__file__).parent.parent / "docs" / "results-format.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(\w+)`", text)) | CASE.to_json().keys()
    run = make_run(ops=["all_reduce"], sizes=[8], modes=["isolated"], arms=["a", "b"])
    written = {key for rows in (run_rows(run), compare_run(run)) for row in rows for key in row}
    assert written <= documented


def test_flags_are_on_the_row() -> None:
    """Twelve epochs that rise by a half and begin with a slow sample in ten."""
    generator = np.random.default_rng(9)
    start = np.array([2.0] + [1.0] * 9)
    units = [
        unit(epoch, [start * (20 + epoch) * factor for factor in generator.lognormal(0, 0.01, (3, 1))])
        for epoch in range(12)
    ]
    row = row_of(units, stopped="budget")
    assert (row["drifts"], row["warming"], row["stopped"]) == (True, True, "budget")
    assert row["drift"] == pytest.approx(31 / 20, rel=0.05)
    assert row["warming_ratio"] == pytest.approx(2.0)
    p25s = log_mean([float(np.quantile(one.time_us, 0.25)) for one in units])
    assert p25s is not None
    low, high = p25s.interval()
    assert row["half_width"] == pytest.approx(math.sqrt(high / low) - 1)


def test_modes_are_marked_on_the_row() -> None:
    row = row_of([unit(0, [[20.0, 200.0] * 10] * 3), unit(1, [[20.2, 202.0] * 10] * 3)])
    assert row["bimodal"] is True
    assert (row["mode_low_us"], row["mode_high_us"]) == pytest.approx((10, 100), rel=0.02)
