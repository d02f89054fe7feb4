"""What a plan will cost and can find, foretold from a calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from calibrating import document_of, entry, quiet_environment
from report_fixtures import make_run

from ncclbench.compare.calibration import Measured, calibration
from ncclbench.compare.forecast import forecast
from ncclbench.plan.model import Plan, PlannedCase
from ncclbench.stats.power import epochs_needed, smallest_effect

ARMS = ("gloo", "gloo#2")


def plan_of(
    *sizes: int, arms: Sequence[str] = ARMS, op: str = "all_reduce", mode: str = "isolated", **fields: Any
) -> Plan:
    run = make_run(ops=[op], sizes=sizes, modes=[mode], arms=arms, epochs=8, iters=160)
    return replace(run.plan, **fields)


def test_a_calibrated_case_costs_what_it_cost() -> None:
    document = document_of(entry())
    plan = plan_of(65536)
    answer = forecast(plan, document)
    (row,) = answer.rows
    # 20 iterations in each of 8 epochs on two arms, as calibrated: 0.1 s each, and 0.02 s for two groups.
    assert (row["epoch_s"], row["overhead_s"]) == (pytest.approx(0.1), pytest.approx(0.02))
    assert row["seconds"] == pytest.approx(8 * 0.12)
    assert answer.seconds == pytest.approx(8 * 0.12 + 0.5)
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
    # As many operations on each of three arms, in three visits to each instead of two.
    assert many.rows[0]["epoch_s"] == pytest.approx(0.05 * 3 / 2 + 0.05 * 9 / 4)
    assert [row["overhead_s"] for row in many.rows] == pytest.approx([0.015, 0.015])


BATCHED = pytest.mark.parametrize("mode", ["back-to-back", "graph"])


@pytest.mark.parametrize(("mode", "samples"), [("isolated", 20), ("back-to-back", 2), ("graph", 6)])
def test_a_calibration_foretells_itself(mode: str, samples: int) -> None:
    """From the run of the calibration to its document and back to what that run was."""
    run = make_run(ops=["all_reduce"], sizes=[65536], modes=[mode], arms=ARMS, epochs=16, iters=16 * samples)
    run.meta["environment"] = quiet_environment()
    run.plan = replace(run.plan, iters=16 * 20)
    (case,) = run.plan.planned
    document = calibration(Measured(run, [], [], {case.key: 0.3}, 0.01, 0.4), budget_s=10.0)
    (known,) = document["resolution"]
    answer = forecast(run.plan, document)
    (row,) = answer.rows
    assert known["epoch_s"] == 0.3
    assert row["epoch_s"] == pytest.approx(0.3)
    assert row["smallest"] == pytest.approx(smallest_effect(known["spread"], 16))
    assert answer.seconds == pytest.approx(16 * (0.3 + 2 * 0.01) + 0.4)
    budgeted = replace(run.plan, time_budget_s=10.0, epochs=1000, iters=20_000)
    (row,) = forecast(budgeted, document).rows
    assert row["epochs"] == known["epochs"] == int(10 / 0.32)
    assert row["smallest"] == pytest.approx(known["smallest"])


@BATCHED
def test_batches_are_as_long_as_the_clock_needs_whatever_the_operations(mode: str) -> None:
    # 20 operations of 10 us are 0.4 ms on two arms; the batches took 50 ms.
    document = document_of(entry(mode=mode, time_us=10.0, spread_iteration=0.02))
    plan = plan_of(65536, mode=mode)
    few, some, many = (forecast(replace(plan, iters=iters), document).rows[0] for iters in (8, 1600, 10**6))
    for row in (few, some):
        assert row["epoch_s"] == pytest.approx(0.1)
        assert row["smallest"] == pytest.approx(smallest_effect(0.04, 8))
    # 125,000 operations in an epoch are longer than the clock needs.
    assert many["epoch_s"] == pytest.approx(0.05 + 2 * 125_000 * 10e-6)


@BATCHED
def test_batches_come_with_visits(mode: str) -> None:
    document = document_of(entry(mode=mode, time_us=10.0))
    alone = forecast(plan_of(65536, mode=mode, arms=("gloo",)), document).rows[0]
    assert alone["epoch_s"] == pytest.approx(0.1 / 4), "one visit to one arm instead of two to each of two"


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
    plan = plan_of(65536, epochs=1000, iters=20_000, time_budget_s=6.05)
    known = forecast(plan, document_of(entry()))
    # An epoch costs 0.12 s, its groups included.
    assert (known.rows[0]["epochs"], known.at_most) == (50, False)
    assert known.rows[0]["seconds"] == pytest.approx(6.0)
    assert known.seconds == pytest.approx(6.5), "groups are in the budget, processes are not"
    unknown = forecast(plan, None)
    assert (unknown.rows[0]["seconds"], unknown.rows[0]["seconds_from"]) == (6.05, "budget")
    assert unknown.rows[0]["epochs"] is None, "1,000, or as many as fit"
    assert (unknown.seconds, unknown.at_most) == (6.05, True)


def test_an_epoch_longer_than_the_budget_is_measured_once() -> None:
    answer = forecast(plan_of(65536, time_budget_s=0.01), document_of(entry()))
    assert answer.rows[0]["epochs"] == 1
    assert answer.seconds == pytest.approx(0.12 + 0.5)


def test_groups_are_made_once_for_all_cases_of_an_epoch() -> None:
    document = document_of(entry(), entry(nbytes=131072), group_s=1.0, process_s=0.0)
    for budget_s in (None, 60.0):
        answer = forecast(plan_of(65536, 131072, time_budget_s=budget_s), document)
        assert [row["seconds"] for row in answer.rows] == pytest.approx([8 * 1.1, 8 * 1.1])
        assert answer.seconds == pytest.approx(2 * 8 * 0.1 + 8 * 2 * 1.0)


def test_a_case_that_ends_early_leaves_its_share_of_the_groups_to_the_others() -> None:
    document = document_of(entry(spread=0.001), entry(nbytes=131072), group_s=0.05, process_s=0.0)
    answer = forecast(plan_of(65536, 131072, epochs=10_000, precision=0.02, time_budget_s=60.0), document)
    assert [row["epochs"] for row in answer.rows] == [8, 32]
    assert answer.seconds == pytest.approx((8 + 32) * 0.1 + 32 * 2 * 0.05)


def test_what_is_left_to_the_others_is_in_their_budget_too() -> None:
    document = document_of(entry(epoch_s=1.2), entry(nbytes=131072), group_s=0.1, process_s=0.0)
    plan = plan_of(65536, 131072, epochs=1000, iters=20_000, time_budget_s=6.7)
    answer = forecast(plan, document)
    assert [row["epochs"] for row in answer.rows] == [5, 33]
    assert answer.seconds == pytest.approx(2 * 6.7)


def test_a_precision_ends_a_case_at_the_look_that_reaches_it() -> None:
    plan = plan_of(65536, epochs=10_000, precision=0.02, time_budget_s=60.0)
    answer = forecast(plan, document_of(entry()))
    # 95 % half-width at 24 epochs: 2.07 * 0.04 / sqrt(24) = 1.7 %, times 1 + 8/24 is above 2 %; at 32 below.
    assert answer.rows[0]["epochs"] == 32
    assert (answer.seconds, answer.at_most) == (pytest.approx(32 * 0.12 + 0.5), False)


def test_one_arm_with_a_precision_is_bounded_by_its_budget() -> None:
    """The spread that a calibration knows is of a ratio, and one arm has none."""
    plan = plan_of(65536, arms=("gloo",), epochs=10_000, precision=0.02, time_budget_s=60.0)
    answer = forecast(plan, document_of(entry()))
    (row,) = answer.rows
    assert (row["epochs"], row["seconds"], row["seconds_from"]) == (None, 60.0, "budget")
    assert row["epoch_s"] > 0
    assert (answer.seconds, answer.at_most) == (60.5, True)


def test_a_spread_that_is_not_known_leaves_the_end_open() -> None:
    plan = plan_of(65536, epochs=10_000, precision=0.02, time_budget_s=60.0)
    (row,) = forecast(plan, document_of(entry(spread=None))).rows
    assert (row["epochs"], row["seconds_from"], row["resolves"]) == (None, "budget", None)


def test_what_is_not_calibrated_does_not_make_groups_for_hours() -> None:
    """It may have 10,000 epochs, and they end with its budget."""
    fields: dict[str, Any] = {"epochs": 10_000, "precision": 0.02, "time_budget_s": 60.0}
    known, unknown = plan_of(65536, **fields), plan_of(65536, op="broadcast", **fields)
    answer = forecast(replace(known, cases=known.cases + unknown.cases), document_of(entry(), group_s=1.0))
    assert [row["epochs"] for row in answer.rows][1] is None
    assert [row["seconds"] for row in answer.rows][1] == 60.0
    assert answer.at_most
    assert answer.seconds == pytest.approx(answer.rows[0]["seconds"] + 60.0 + 0.5)


def test_a_sweep_that_chooses_its_iterations_does_so_as_steering_does() -> None:
    plan = plan_of(65536, epochs=10_000, precision=0.0001, time_budget_s=6.0, adapts=True)
    known = entry(timed_s=0.052, spread=0.04, spread_iteration=0.02)
    row = forecast(plan, document_of(known)).rows[0]
    # Visits of 12 ms and 1.3 ms for an operation get 19 operations, and 4 visits to each of two arms fill a
    # 24th of the budget less the groups.
    assert row["epoch_s"] == pytest.approx(4 * 2 * (0.012 + 19 * 0.0013))
    assert row["epochs"] == int(6.0 / (row["epoch_s"] + 0.02)) == 19
    # 76 operations instead of 20, and half of the variance is theirs.
    assert row["smallest"] == pytest.approx(smallest_effect(0.04 * math.sqrt(0.5 + 0.5 * 20 / 76), 19))


def test_costly_groups_make_a_sweep_choose_longer_epochs() -> None:
    plan = plan_of(65536, epochs=10_000, precision=0.0001, time_budget_s=60.0, adapts=True)
    cheap, costly = (forecast(plan, document_of(entry(), group_s=each)).rows[0] for each in (0.01, 0.5))
    # Half a second is the longest that pays for itself, unless groups are more than a fifth of it.
    assert cheap["epoch_s"] + 0.02 == pytest.approx(0.5, rel=0.2)
    assert costly["epoch_s"] + 1.0 == pytest.approx(5.0, rel=0.1)


@BATCHED
def test_a_sweep_that_chooses_its_visits_fills_an_epoch_with_batches(mode: str) -> None:
    plan = plan_of(65536, mode=mode, epochs=10_000, precision=0.0001, time_budget_s=6.0, adapts=True)
    known = entry(mode=mode, time_us=10.0, spread=0.04, spread_iteration=0.02)
    row = forecast(plan, document_of(known)).rows[0]
    # A round of both arms takes 50 ms; 0.23 s hold 4 of them, twice what is calibrated.
    assert row["epoch_s"] == pytest.approx(4 * 0.05)
    assert row["smallest"] == pytest.approx(smallest_effect(0.04 * math.sqrt(0.5 + 0.5 / 2), row["epochs"]))


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
    # One visit to one arm, with as many operations as two visits have otherwise.
    assert answer.rows[0]["epoch_s"] == pytest.approx(0.05 / 2 + 0.05 / 4)
    assert (answer.family, answer.rows[0]["smallest"]) == (0, None)


def test_processes_of_their_own_are_paid_for_in_every_epoch() -> None:
    plan = plan_of(65536, epoch_kind="process")
    assert forecast(plan, document_of(entry())).seconds == pytest.approx(8 * (0.1 + 2 * 0.01 + 0.5))
    budgeted = forecast(replace(plan, time_budget_s=2.5), document_of(entry()))
    assert budgeted.rows[0]["epochs"] == 4
    assert budgeted.seconds == pytest.approx(4 * 0.62)
