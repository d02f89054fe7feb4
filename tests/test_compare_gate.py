"""The gate: what it is shown to be slower, what it cannot tell, and what it does not see at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from launching import BEFORE, SIZE, compared, launch, launches, with_plan
from report_fixtures import make_run, skip

from ncclbench.compare.doubts import FENCE_BOUND
from ncclbench.compare.gate import Gate, GateResult, judge_gate
from ncclbench.compare.launches import Comparison, compare_sides
from ncclbench.compare.sides import Side
from ncclbench.store.model import Run
from ncclbench.terminal.comparison import gate_line

FAIL, PASS = Gate(1.6, "fail"), Gate(1.6, "pass")


def row(low: float | None, high: float | None, **fields: Any) -> dict[str, Any]:
    """What a gate looks at in a row."""
    interval = {"simultaneous_low": low, "simultaneous_high": high}
    return {**interval, "doubt": None, "fence_bound": False, **fields}


def judged(comparison: Comparison, gate: Gate = FAIL) -> GateResult:
    return judge_gate(comparison.rows, gate, comparison.unpaired)


# Rows.


@pytest.mark.parametrize(
    ("fields", "counts_as"),
    [
        (row(1.01, 1.04), "fine"),
        (row(1.01, 1.7), "unclear"),
        (row(1.61, 1.7), "slower"),
        (row(None, None), "unclear"),
        (row(1.61, 1.7, doubt="2 against 2 launches"), "unclear"),
        (row(1.01, 1.04, doubt="2 against 2 launches"), "unclear"),
        (row(1.01, 1.04, fence_bound=True), "unclear"),
        (row(1.01, 1.04, fence_bound=True, doubt=FENCE_BOUND), "unclear"),
        (row(1.61, 1.7, fence_bound=True), "slower"),
        (row(1.61, 1.7, fence_bound=True, doubt=FENCE_BOUND), "slower"),
    ],
)
def test_a_row_is_fine_slower_or_unclear(fields: dict[str, Any], counts_as: str) -> None:
    result = judge_gate([fields], FAIL)
    assert (result.slower, result.unclear) == (
        [fields] * (counts_as == "slower"),
        [fields] * (counts_as == "unclear"),
    )
    assert result.answer == ("pass" if counts_as == "fine" else "fail")
    assert judge_gate([fields], PASS).answer == ("fail" if counts_as == "slower" else "pass")


def skewed(run: Run, skew_us: float) -> Run:
    """The second rank starts so much later than the first."""
    for units in run.units.values():
        units[:] = [
            replace(unit, start_us=np.tile([[0.0], [skew_us]], unit.total_us.shape[1])) for unit in units
        ]
    return run


@pytest.mark.parametrize(("skew_us", "answer"), [(0.5, "pass"), (5.0, "fail")])
def test_a_fence_as_skewed_as_the_margin_shows_no_case_to_be_fast(skew_us: float, answer: str) -> None:
    """Of launches and of arms of one job alike: the skew may hide what is asked for."""
    settings: dict[str, Any] = {"modes": ("isolated",)}
    sides = [[skewed(run, skew_us) for run in launches(BEFORE, first, **settings)] for first in (0, 50)]
    run = skewed(launch(5, arms=("a", "b"), epochs=10, iters=200, **settings), skew_us)
    one_job = compare_sides(Side([run], "a", "a"), Side([run], "b", "b"))
    for comparison in (compared(*sides), one_job):
        assert [each["fence_bound"] for each in comparison.rows] == [answer == "fail"]
        assert judged(comparison).answer == answer
        assert judged(comparison, PASS).answer == "pass"


# What has no row.


def sides(base_sizes: tuple[int, ...], new_sizes: tuple[int, ...]) -> tuple[list[Run], list[Run]]:
    return launches(BEFORE, sizes=base_sizes), launches(BEFORE, 50, sizes=new_sizes)


def test_a_case_that_the_new_side_lacks_is_unclear() -> None:
    result = judged(compared(*sides((SIZE, 64), (SIZE,))))
    assert (result.answer, result.slower, result.unclear) == ("fail", [], [])
    (entry,) = result.unseen
    assert entry["reason"] == "NEW has no all_reduce of 64 bytes"
    line = gate_line(result, FAIL)
    assert line.startswith("gate FAIL: 1 not compared (which counts as fail), the first: ")
    assert entry["case"] in line
    assert line.endswith(entry["reason"])
    assert judged(compared(*sides((SIZE, 64), (SIZE,))), PASS).answer == "pass"


def test_a_case_that_only_the_new_side_has_is_no_failure() -> None:
    comparison = compared(*sides((SIZE,), (SIZE, 64)))
    assert [entry["side"] for entry in comparison.unpaired] == ["new"]
    assert judged(comparison).answer == "pass"


def skipped(runs: list[Run], index: int) -> list[Run]:
    for run in runs:
        skip(run, index, "no fp8 here")
    return runs


@pytest.mark.parametrize(
    ("on_base", "on_new", "side", "answer"),
    [(False, True, "base", "fail"), (True, False, "new", "pass"), (True, True, "neither", "pass")],
)
def test_a_skipped_case_fails_where_the_base_was_to_run_it(
    on_base: bool, on_new: bool, side: str, answer: str
) -> None:
    base, new = sides((SIZE, 64), (SIZE, 64))
    comparison = compared(skipped(base, 1) if on_base else base, skipped(new, 1) if on_new else new)
    assert [entry["side"] for entry in comparison.unpaired] == [side]
    assert judged(comparison).answer == answer


def test_a_case_that_the_base_skipped_is_missed_by_nobody() -> None:
    base, new = sides((SIZE, 64), (SIZE,))
    comparison = compared(skipped(base, 1), new)
    assert [entry["side"] for entry in comparison.unpaired] == ["neither"]
    assert judged(comparison).answer == "pass"


def test_other_splits_are_unclear() -> None:
    settings: dict[str, Any] = {"ops": ("all_reduce", "all_to_allv")}
    base, new = launches(BEFORE, **settings), launches(BEFORE, 50, **settings)
    comparison = compared(base, [with_plan(seed=99)(run) for run in new])
    assert [entry["side"] for entry in comparison.unpaired] == ["both"]
    assert judged(comparison).answer == "fail"


def test_an_arm_that_is_gone_is_unclear() -> None:
    base = launches(BEFORE, arms=("gloo", "gloo#2"))
    result = judged(compared(base, launches(BEFORE, 50)))
    assert result.answer == "fail"
    assert gate_line(result, FAIL).endswith("the first: arm gloo#2 is in BASE only")


@pytest.mark.parametrize(("arm", "side", "answer"), [("b", "base", "fail"), ("a", "new", "pass")])
def test_arms_of_one_job_are_missed_likewise(arm: str, side: str, answer: str) -> None:
    run = make_run(
        ops=("all_reduce",),
        sizes=(64, SIZE),
        modes=("back-to-back",),
        arms=("a", "b"),
        epochs=10,
        iters=200,
        epoch_spread=0.002,
        noise=0.01,
        seed=5,
    )
    key = run.plan.cases[0].case.key
    del run.units[key, arm]
    run.statuses[key, arm] = ("unavailable", "no such device")
    comparison = compare_sides(Side([run], "a", "a"), Side([run], "b", "b"))
    assert [entry["side"] for entry in comparison.unpaired] == [side]
    assert judged(comparison).answer == answer


def test_wrong_data_fail_whatever_else_is_told() -> None:
    assert judge_gate([row(1.0, 1.01)], PASS, wrong=True).answer == "fail"
