"""What a plan will cost and can find, foretold from a calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from calibrating import document_of, entry
from report_fixtures import make_run

from ncclbench.compare.forecast import forecast
from ncclbench.plan.model import Plan, PlannedCase
from ncclbench.stats.power import epochs_needed, smallest_effect

ARMS = ("gloo", "gloo#2")


def plan_of(*sizes: int, arms: Sequence[str] = ARMS, op: str = "all_reduce", **fields: Any) -> Plan:
    run = make_run(ops=[op], sizes=sizes, modes=["isolated"], arms=list(arms), epochs=8, iters=160)
    return replace(run.plan, **fields)


def test_a_calibrated_case_costs_what_it_cost() -> None:
    document = document_of(entry())
    plan = plan_of(65536)
    answer = forecast(plan, document)
    (row,) = answer.rows
    # 20 iterations in each of 8 epochs on two arms, as calibrated: 0.1 s each.
    assert row["seconds"] == pytest.approx(0.8)
    assert answer.seconds == pytest.approx(0.8 + 8 * 2 * 0.01 + 0.5)
    assert row["smallest"] == pytest.approx(smallest_effect(0.04, 8, 1))
    assert (row["margin"], row["epochs"], row["calibrated_nbytes"]) == (0.03, 8, 65536)
    assert (row["resolves"], row["epochs_needed"]) == (False, epochs_needed(0.04, 0.03))
    enough = replace(plan, epochs=row["epochs_needed"], iters=20 * row["epochs_needed"])
    assert forecast(enough, document).rows[0]["resolves"] is True


def test_more_arms_and_cases_are_a_larger_family() -> None:
    document = document_of(entry())
    one = forecast(plan_of(65536), document)
    many = forecast(plan_of(65536, 131072, arms=("gloo", "gloo#2", "gloo#3")), document)
    assert (one.family, many.family) == (1, 4)
    assert many.rows[0]["smallest"] > one.rows[0]["smallest"]
    assert many.rows[0]["seconds"] == pytest.approx(1.5 * one.rows[0]["seconds"])


def test_iterations_scale_their_own_share_of_time_and_spread_only() -> None:
    document = document_of(entry(spread=0.04, spread_iteration=0.02))
    four_times = forecast(plan_of(65536, iters=640), document).rows[0]
    # 0.05 s of an epoch are timed, and half of the ratio's variance is by iterations.
    assert four_times["epoch_s"] == pytest.approx(0.05 + 4 * 0.05)
    assert four_times["smallest"] == pytest.approx(smallest_effect(0.04 * math.sqrt(0.5 + 0.5 / 4), 8))


def test_sizes_between_and_beyond_calibrated_ones() -> None:
    small = entry(nbytes=1024, time_us=100.0, timed_s=0.01, epoch_s=0.02, spread=0.01)
    large = entry(nbytes=4096, time_us=400.0, timed_s=0.04, epoch_s=0.08, spread=0.05)
    rows = forecast(plan_of(8, 1024, 2000, 4096, 40960), document_of(small, large)).rows
    assert [row["epoch_s"] for row in rows] == pytest.approx([0.02, 0.02, 0.02 * 2000 / 1024, 0.08, 0.8])
    assert [row["calibrated_nbytes"] for row in rows] == [1024, 1024, 1024, 4096, 4096]
    assert [row["margin"] for row in rows[:3]] == pytest.approx([0.03, 0.03, 0.03])


def test_microseconds_of_margin_count_for_short_times() -> None:
    row = forecast(plan_of(65536, margin_us=50.0), document_of(entry(time_us=100.0))).rows[0]
    assert row["margin"] == pytest.approx(0.5)
    assert row["resolves"] is True


def test_a_budget_bounds_what_is_unknown_and_cuts_what_is_known() -> None:
    plan = plan_of(65536, epochs=1000, iters=20_000, time_budget_s=5.05)
    known = forecast(plan, document_of(entry()))
    assert (known.rows[0]["epochs"], known.at_most) == (50, False)
    assert known.rows[0]["seconds"] == pytest.approx(5.0)
    unknown = forecast(plan, None)
    assert (unknown.rows[0]["seconds"], unknown.rows[0]["seconds_from"]) == (5.05, "budget")
    assert (unknown.seconds, unknown.at_most) == (5.05, True)


def test_a_precision_ends_a_case_at_the_look_that_reaches_it() -> None:
    plan = plan_of(65536, epochs=10_000, precision=0.02, time_budget_s=60.0)
    row = forecast(plan, document_of(entry())).rows[0]
    # 95 % half-width at 24 epochs: 2.07 * 0.04 / sqrt(24) = 1.7 %, times 1 + 8/24 is above 2 %; at 32 below.
    assert row["epochs"] == 32


def test_without_a_calibration_nothing_is_claimed() -> None:
    answer = forecast(plan_of(65536), None)
    (row,) = answer.rows
    for key in ("seconds", "smallest", "margin", "resolves", "epochs_needed", "calibrated_nbytes"):
        assert row[key] is None, key
    assert answer.seconds is None
    other = forecast(plan_of(65536, op="broadcast"), document_of(entry())).rows[0]
    assert other["smallest"] is None, "another operation says nothing of this one"


def test_skipped_cases_cost_nothing_and_one_arm_is_compared_with_nothing() -> None:
    plan = plan_of(65536, 131072, arms=("gloo",))
    skipped = PlannedCase(plan.cases[1].case, "skipped", "no such form", 0)
    answer = forecast(replace(plan, cases=(plan.cases[0], skipped)), document_of(entry()))
    assert [row["status"] for row in answer.rows] == ["planned", "skipped"]
    assert answer.rows[1]["seconds"] is None
    assert answer.rows[0]["seconds"] == pytest.approx(0.4), "one arm, half of what two take"
    assert (answer.family, answer.rows[0]["smallest"]) == (0, None)


def test_processes_of_their_own_are_paid_for_in_every_epoch() -> None:
    plan = plan_of(65536, epoch_kind="process")
    assert forecast(plan, document_of(entry())).seconds == pytest.approx(0.8 + 8 * (2 * 0.01 + 0.5))
