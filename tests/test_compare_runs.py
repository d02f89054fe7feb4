"""The comparisons of whole runs: which epochs are paired, and what stands beside each verdict."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from report_fixtures import make_run

from ncclbench.compare.doubts import FENCE_BOUND
from ncclbench.compare.paired import CORRELATED, compare_arms, compare_run
from ncclbench.stats.intervals import Floats, Margin
from ncclbench.stats.power import smallest_effect
from ncclbench.store.model import Run, Stop

MARGIN = Margin(0.03, 0.0)

# What ``--json`` promises of a comparison, besides the case's keys; more keys are welcome.
# fmt: off
CONTRACT = {
    "statistic", "base", "new", "ratio", "ci_low", "ci_high", "p_holm", "verdict", "tail", "beyond_margin",
    "epochs", "unit", "base_us", "new_us", "shift", "between_modes", "drift", "drifts", "autocorrelation",
    "correlated", "detectable", "stopped", "half_width", "doubt", "fence_bound",
}
# fmt: on

# Whole runs.


def two_arms(**options: Any) -> Run:
    """A run of two arms, by default the second slower by half; ten epochs, one case per size.

    One in a hundred draws of noise is flagged as correlated; this seed's are not.
    """
    chosen = {"ops": ["all_reduce"], "sizes": [8, 4096], "modes": ["back-to-back"], "arms": ["a", "b"]}
    quietly = {
        "epochs": 10,
        "iters": 200,
        "epoch_spread": 0.002,
        "noise": 0.01,
        "slower": {"b": 1.5},
        "seed": 5,
    }
    return make_run(**(chosen | quietly | options))


def test_rows_of_a_run() -> None:
    run = two_arms(arms=["a", "b", "c"], ops=["all_reduce", "barrier"])
    rows = compare_run(run)
    assert [(row["op"], row["nbytes"], row["new"]) for row in rows] == [
        (op, nbytes, arm) for op in ("all_reduce", "barrier") for nbytes in (8, 4096) for arm in ("b", "c")
    ]
    for row in rows:
        assert row.keys() >= CONTRACT
        slower = row["new"] == "b"
        assert row["verdict"] == ("slower" if slower else "same")
        assert row["beyond_margin"] == slower
        assert row["ci_low"] <= row["ratio"] <= row["ci_high"]
        assert row["ratio"] == pytest.approx(1.5 if slower else 1.0, rel=0.03)
        assert row["fastest_ratio"] == pytest.approx(row["ratio"], rel=0.03)
        assert (row["base"], row["epochs"], row["statistic"], row["clock"]) == ("a", 10, "p25", "total")
    json.dumps(rows, allow_nan=False)


def test_another_base_turns_the_ratios() -> None:
    run = two_arms()
    turned = replace(run, plan=replace(run.plan, base_arm="b"))
    for row, other in zip(compare_run(run), compare_run(turned), strict=True):
        assert (row["verdict"], other["verdict"]) == ("slower", "faster")
        assert row["ratio"] == pytest.approx(1 / other["ratio"])


def test_the_plans_statistic_is_compared() -> None:
    run = two_arms(sizes=[8])
    (case,) = {case for case, _ in run.units}
    # Only the upper half of the new arm's samples is slower.
    run.units[case, "b"] = [
        replace(unit, total_us=np.where(np.arange(20) < 10, 1.0, 1.5) * np.sort(unit.total_us))
        for unit in (replace(one, arm="b") for one in run.units[case, "a"])
    ]
    for statistic, ratio in (("p25", 1.0), ("p75", 1.5)):
        row = compare_run(replace(run, plan=replace(run.plan, statistic=statistic)))[0]
        assert (row["statistic"], row["ratio"]) == (statistic, pytest.approx(ratio, rel=0.02))


def test_only_epochs_measured_side_by_side_are_paired() -> None:
    run = two_arms(sizes=[8])
    (case,) = {case for case, _ in run.units}
    base, new = run.units[case, "a"], run.units[case, "b"]
    run.units[case, "a"] = base[1:]  # epoch 0 was lost
    new[5] = replace(new[5], attempt=1, total_us=new[5].total_us * 50)  # measured hours later
    new[6] = replace(new[6], device_us=new[6].total_us * 50)  # by another clock
    row = compare_run(run)[0]
    assert row["epochs"] == 7
    assert row["ratio"] == pytest.approx(1.5, rel=0.03)


def test_a_fenced_mode_is_held_to_its_skew() -> None:
    run = two_arms(slower={}, sizes=[8], modes=["isolated"])
    told = {}
    for skew_us in (0.5, 5.0):
        for units in run.units.values():
            units[:] = [replace(unit, start_us=np.full((2, 20), [[0.0], [skew_us]])) for unit in units]
        row = compare_run(run)[0]
        told[skew_us] = (row["verdict"], row["doubt"], row["fence_bound"])
    assert told == {0.5: ("same", None, False), 5.0: ("unclear", FENCE_BOUND, True)}


def test_what_could_not_be_measured_is_unclear_and_what_never_could_is_no_row() -> None:
    run = two_arms(sizes=[8, 16, 32, 64, 128])
    keys = [entry.case.key for entry in run.plan.cases]
    del run.units[keys[0], "b"], run.units[keys[1], "b"], run.units[keys[2], "a"]
    run.statuses[keys[0], "b"] = ("skipped", "no fp8 here")
    run.statuses[keys[1], "b"] = ("failed", "rank 1 hung")
    run.units[keys[3], "b"][4] = replace(run.units[keys[3], "b"][4], wrong=(0, 3))
    rows = compare_run(run)
    assert [(row["nbytes"], row["verdict"], row["note"]) for row in rows] == [
        (16, "unclear", "b: rank 1 hung"),
        (32, "unclear", "a: not measured: the run ended before it"),
        (64, "unclear", "b: wrong data, so its times mean nothing"),
        (128, "slower", None),
    ]
    for row in rows[:3]:
        assert row["ratio"] is row["p_holm"] is row["base_us"] is None


def test_one_arm_is_compared_with_nothing() -> None:
    assert compare_run(two_arms(arms=["a"])) == []


# What stands beside the verdict.


def with_ratios(ratios: Floats) -> Run:
    """One case of two arms whose times differ by these factors, epoch by epoch."""
    run = two_arms(sizes=[8], epochs=len(ratios), iters=20 * len(ratios))
    (case,) = {case for case, _ in run.units}
    run.units[case, "b"] = [
        replace(unit, arm="b", total_us=unit.total_us * ratio)
        for unit, ratio in zip(run.units[case, "a"], ratios, strict=True)
    ]
    return run


def test_epochs_that_follow_each_other_make_a_doubt() -> None:
    row = compare_run(with_ratios(1.1 + 0.03 * np.sin(np.arange(40) / 3)))[0]
    assert row["correlated"] is True
    assert (row["verdict"], row["beyond_margin"], row["detectable"]) == ("unclear", False, None)
    assert row["note"] == CORRELATED
    assert row["ratio"] == pytest.approx(1.1, rel=0.02)  # shown all the same


def test_a_doubt_is_told_by_its_own_key() -> None:
    """What else a note says is none: readers tell why a word is unclear from the doubt alone."""
    run = two_arms(slower={}, sizes=[8, 16, 32])
    first, second, _ = (entry.case.key for entry in run.plan.cases)
    run.units.pop((first, "b"))
    run.statuses[first, "b"] = ("failed", "rank 1 hung")
    for arm in ("a", "b"):
        run.units[second, arm] = run.units[second, arm][:4]
    doubts = [(row["verdict"], row["doubt"]) for row in compare_run(run)]
    assert doubts == [
        ("unclear", "b: rank 1 hung"),
        ("unclear", "4 epochs on both arms, a verdict needs 6"),
        ("same", None),
    ]


def test_epochs_of_few_samples_say_nothing_of_tails() -> None:
    row = compare_run(two_arms(sizes=[8], iters=90, slower={}))[0]
    assert (row["verdict"], row["tail"]) == ("same", None)
    assert row["p90_ratio"] is row["p90_ci_low"] is row["p90_ci_high"] is None
    reasons = {entry["quantile"]: entry["reason"] for entry in row["shift"]}
    assert reasons == {
        "p10": "p10 needs 10 samples in every epoch, not 9",
        "p25": None,
        "median": None,
        "p90": "p90 needs 10 samples in every epoch, not 9",
    }
    assert [entry["ratio"] is None for entry in row["shift"]] == [True, False, False, True]
    enough = compare_run(two_arms(sizes=[8], iters=100, slower={}))[0]
    assert None not in (enough["p90_ratio"], *(entry["ratio"] for entry in enough["shift"]))


def test_a_drift_is_a_note_and_no_doubt() -> None:
    jitter = 0.002 * np.random.default_rng(15).normal(size=24)
    row = compare_run(with_ratios(1.2 * np.exp(np.linspace(0, 0.02, 24) + jitter)))[0]
    assert (row["drifts"], row["correlated"], row["verdict"]) == (True, False, "slower")
    assert row["drift"] == pytest.approx(1.02, abs=0.004)
    assert row["note"] == "the ratio drifts: 1.02x from the first to the last epoch"


def test_few_epochs_tell_nothing_of_their_order() -> None:
    row = compare_run(with_ratios(np.full(7, 1.2)))[0]
    assert [row[key] for key in ("drift", "drifts", "autocorrelation", "correlated")] == [None] * 4


def test_the_shift_function_shows_where_arms_differ() -> None:
    """Only the slow fifth of the new arm's samples is slower: its p90, and nothing below."""
    run = two_arms(sizes=[8], noise=0.001)
    (case,) = {case for case, _ in run.units}
    run.units[case, "b"] = [
        replace(unit, arm="b", total_us=np.where(np.arange(20) < 16, 1.0, 1.4) * np.sort(unit.total_us))
        for unit in run.units[case, "a"]
    ]
    shift = {entry["quantile"]: entry for entry in compare_run(run)[0]["shift"]}
    assert list(shift) == ["p10", "p25", "median", "p90"]
    ratios = [entry["ratio"] for entry in shift.values()]
    assert ratios == pytest.approx([1.0, 1.0, 1.0, 1.4], rel=0.01)
    assert all(entry["ci_low"] <= entry["ratio"] <= entry["ci_high"] for entry in shift.values())


@pytest.mark.parametrize(
    ("statistic", "share", "between"),
    [("median", 0.5, True), ("p25", 0.5, False), ("median", 0.2, False), ("p90", 0.5, False)],
)
def test_a_statistic_between_two_modes_is_marked(statistic: str, share: float, between: bool) -> None:
    run = two_arms(sizes=[8], epochs=10, iters=800)
    generator = np.random.default_rng(16)
    for units in run.units.values():
        units[:] = [
            replace(unit, total_us=np.tile(300.0 * np.where(generator.random(80) < share, 10, 1), (2, 1)))
            for unit in units
        ]
        units[:] = [replace(u, total_us=u.total_us * generator.lognormal(0, 0.05, (1, 80))) for u in units]
    row = compare_run(replace(run, plan=replace(run.plan, statistic=statistic)))[0]
    assert row["between_modes"] is between


def test_detectable_is_what_the_spread_and_the_family_allow() -> None:
    rows = compare_run(two_arms(sizes=[8, 4096, 65536], slower={}, seed=7))
    for row in rows:
        spread = math.log(1 + row["half_width"]) / 2.262157 * math.sqrt(10)  # t of 9 degrees of freedom
        assert row["detectable"] == pytest.approx(smallest_effect(spread, 10, family=3), rel=1e-4)


def test_two_arms_of_several_by_name_with_another_margin_and_statistic() -> None:
    run = two_arms(arms=["a", "b", "c"], slower={"b": 1.5, "c": 1.2})
    rows = compare_arms(run, "c", "b")
    assert [(row["base"], row["new"]) for row in rows] == [("c", "b")] * 2
    assert [row["ratio"] for row in rows] == pytest.approx([1.25] * 2, rel=0.02)
    loose = compare_arms(run, "c", "b", statistic="p75", margin=Margin(0.4, 0.0))
    assert [(row["statistic"], row["margin"], row["verdict"]) for row in loose] == [("p75", 0.4, "same")] * 2
    # Two cases instead of four comparisons: the family is smaller, and so is the correction.
    alone, among = compare_arms(run, "a", "b")[0], compare_run(run)[0]
    assert alone["ratio"] == among["ratio"]
    assert alone["detectable"] < among["detectable"]


def test_why_measuring_stopped_is_told() -> None:
    run = two_arms()
    run.stops[run.plan.cases[0].case.key] = Stop(10, "precision", 0.004)
    first, second = compare_run(run)
    assert (first["stopped"], second["stopped"]) == ("precision", None)
    assert first["half_width"] == pytest.approx(math.sqrt(first["ci_high"] / first["ci_low"]) - 1)
