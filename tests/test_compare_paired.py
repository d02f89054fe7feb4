"""Verdicts that can be believed: error rates, invariants, and what stands in the way of a verdict."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fixtures import make_run

from ncclbench.compare.paired import CORRELATED, compare_arms, compare_run
from ncclbench.compare.verdict import FENCE_BOUND, Question, Verdict, judge, paired, verdict
from ncclbench.stats.intervals import Floats, Margin, log_ratio_of_two
from ncclbench.stats.power import smallest_effect
from ncclbench.store.model import Run, Stop

MARGIN = Margin(0.03, 0.0)
TRIALS = 2000

# What ``--json`` promises of a comparison, besides the case's keys; more keys are welcome.
# fmt: off
CONTRACT = {
    "statistic", "base", "new", "ratio", "ci_low", "ci_high", "p_holm", "verdict", "tail", "beyond_margin",
    "epochs", "unit", "base_us", "new_us", "shift", "between_modes", "drift", "drifts", "autocorrelation",
    "correlated", "detectable", "stopped", "half_width",
}
# fmt: on

NOISES = {
    "normal": lambda generator, sd, shape: 1 + sd * generator.normal(size=shape),
    "log-normal": lambda generator, sd, shape: generator.lognormal(0, sd, shape),
    "heavy tail": lambda generator, sd, shape: np.exp(sd * generator.standard_t(3, shape)),
}

epoch_times = st.lists(st.floats(1.0, 1e6), min_size=2, max_size=16)


def times(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def words(noise: str, sd: float, ratio: float, epochs: int = 8) -> list[str]:
    """The verdicts of many trials with a known truth; the machine's level drifts from epoch to epoch."""
    generator = np.random.default_rng(11)
    level = 100 * generator.lognormal(0, 0.1, (TRIALS, epochs))
    base = level * NOISES[noise](generator, sd, (TRIALS, epochs))
    new = ratio * level * NOISES[noise](generator, sd, (TRIALS, epochs))
    return [verdict(one, other, MARGIN).word for one, other in zip(base, new, strict=True)]


# Error rates. Two thousand trials at a true 5 % give 4 to 6 % in 95 of 100 seeds.


@pytest.mark.parametrize("sd", [0.01, 0.05])
@pytest.mark.parametrize("noise", NOISES)
def test_equal_arms_are_called_different_in_at_most_one_of_twenty(noise: str, sd: float) -> None:
    told = words(noise, sd, 1.0)
    assert told.count("faster") + told.count("slower") <= 0.06 * TRIALS


@pytest.mark.parametrize("ratio", [1.03, 1 / 1.03])
@pytest.mark.parametrize("sd", [0.005, 0.02])
@pytest.mark.parametrize("noise", NOISES)
def test_arms_a_margin_apart_are_called_the_same_in_at_most_one_of_twenty(
    noise: str, sd: float, ratio: float
) -> None:
    assert words(noise, sd, ratio).count("same") <= 0.05 * TRIALS


def test_verdicts_are_found_where_there_is_one() -> None:
    assert words("log-normal", 0.01, 1.0).count("same") >= 0.98 * TRIALS
    assert words("log-normal", 0.03, 1.10).count("slower") >= 0.98 * TRIALS
    assert words("log-normal", 0.03, 1 / 1.10).count("faster") >= 0.98 * TRIALS


def test_more_epochs_narrow_the_interval() -> None:
    generator = np.random.default_rng(12)

    def width(epochs: int) -> float:
        ratios = generator.lognormal(0, 0.05, (500, epochs))
        effects = [verdict(np.ones(epochs), one, MARGIN).effect for one in ratios]
        return float(np.mean([math.log(high / low) for low, high in (e.interval() for e in effects if e)]))

    widths = [width(epochs) for epochs in (2, 4, 8, 16, 32)]
    assert widths == sorted(widths, reverse=True)


def test_a_family_is_judged_harder_than_one() -> None:
    """Twenty comparisons of equal arms: any false word among them in at most 5 % of families."""
    generator = np.random.default_rng(13)
    false = 0
    for _ in range(400):
        sets = generator.lognormal(0, 0.05, (20, 2, 8))
        family = judge([paired(base, new, MARGIN) for base, new in sets])
        false += any(one.word in ("faster", "slower") for one in family)
    assert false <= 0.075 * 400  # 97.5 % of seeds at a true 5 %


def test_arms_that_share_a_base_are_judged_as_one_family() -> None:
    """Four arms against one base: its noise is in all four ratios, and false words stay at 5 % of runs."""
    generator = np.random.default_rng(14)
    false = 0
    for _ in range(1000):
        base, *others = 100 * generator.lognormal(0, 0.05, (5, 8))
        family = judge([paired(base, new, MARGIN) for new in others])
        false += any(one.word in ("faster", "slower") for one in family)
    assert false <= 0.065 * 1000


# Invariants.


@settings(max_examples=100, deadline=None)
@given(epoch_times, epoch_times, st.floats(0.01, 100))
def test_swapping_and_scaling_separate_sides(base: list[float], new: list[float], factor: float) -> None:
    """Of launches, too (Welch): swapped, the interval is mirrored; another unit of time changes nothing."""

    def told(one: Floats, other: Floats) -> Verdict:
        return judge([Question(log_ratio_of_two(one, other), MARGIN, float(one.mean()))])[0]

    here, turned = told(times(*base), times(*new)), told(times(*new), times(*base))
    scaled = told(times(*base) * factor, times(*new) * factor)
    assert here.effect is not None
    assert turned.effect is not None
    assert scaled.effect is not None
    low, high = here.effect.interval()
    assert (1 / high, 1 / low) == pytest.approx(turned.effect.interval(), rel=1e-9)
    assert (low, high) == pytest.approx(scaled.effect.interval(), rel=1e-6)
    assert (here.detectable or 0) == pytest.approx(turned.detectable or 0, rel=1e-6)
    words = {"faster": "slower", "slower": "faster"}
    if abs(here.effect.mean) > 1e-9:
        assert words.get(here.word, here.word) == turned.word == words.get(scaled.word, scaled.word)


@settings(max_examples=100, deadline=None)
@given(epoch_times, st.integers(0, 2**32 - 1))
def test_swapping_the_arms_turns_the_verdict_round(base: list[float], seed: int) -> None:
    new = times(*base) * np.random.default_rng(seed).lognormal(0.02, 0.03, len(base))
    one, other = verdict(times(*base), new, MARGIN), verdict(new, times(*base), MARGIN)
    assert one.effect is not None
    assert other.effect is not None
    assert one.effect.mean == pytest.approx(-other.effect.mean)
    assert one.p_holm == pytest.approx(other.p_holm)
    assert one.effect.interval()[0] == pytest.approx(1 / other.effect.interval()[1])
    turned = {"faster": "slower", "slower": "faster"}
    assert turned.get(one.word, one.word) == other.word
    assert one.beyond_margin == other.beyond_margin


@settings(max_examples=100, deadline=None)
@given(epoch_times, st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_another_unit_of_time_changes_no_ratio(base: list[float], seed: int, factor: float) -> None:
    new = times(*base) * np.random.default_rng(seed).lognormal(0.02, 0.03, len(base))
    one, scaled = verdict(times(*base), new, MARGIN), verdict(times(*base) * factor, new * factor, MARGIN)
    assert one.effect is not None
    assert scaled.effect is not None
    assert one.effect.interval() == pytest.approx(scaled.effect.interval())
    assert one.word == scaled.word


@given(epoch_times, epoch_times)
def test_order_of_epochs_does_not_matter(base: list[float], new: list[float]) -> None:
    n = min(len(base), len(new))
    one, other = (
        verdict(times(*base[:n]), times(*new[:n]), MARGIN),
        verdict(times(*base[:n][::-1]), times(*new[:n][::-1]), MARGIN),
    )
    assert one.word == other.word
    assert one.p_holm == pytest.approx(other.p_holm)


# The words.


def quiet(ratio: float, epochs: int = 8, **fields: Any) -> Verdict:
    """Two arms with hardly any noise and a known ratio."""
    base = 100 * np.linspace(1.0, 1.1, epochs)
    jitter = 1 + 0.001 * (-1.0) ** np.arange(epochs)
    return judge([paired(base, ratio * base * jitter, fields.pop("margin", MARGIN), **fields)])[0]


def test_words_and_the_margin() -> None:
    told = {
        ratio: (quiet(ratio).word, quiet(ratio).beyond_margin)
        for ratio in (0.8, 0.9707, 0.99, 1.0, 1.02, 1.0301, 1.2)
    }
    assert told == {
        0.8: ("faster", True),
        0.9707: ("faster", False),  # faster, and not surely by more than the margin
        0.99: ("same", False),
        1.0: ("same", False),
        1.02: ("same", False),
        1.0301: ("slower", False),
        1.2: ("slower", True),
    }


def test_under_six_epochs_nothing_is_claimed() -> None:
    few = quiet(2.0, epochs=5)
    assert (few.word, few.beyond_margin) == ("unclear", False)
    assert few.note == "5 epochs on both arms, a verdict needs 6"
    assert few.effect is not None
    assert few.effect.estimate == pytest.approx(2.0, rel=0.01)
    assert quiet(2.0, epochs=6).word == "slower"


@pytest.mark.parametrize("epochs", [0, 1])
def test_without_two_epochs_there_is_no_ratio(epochs: int) -> None:
    none = verdict(np.ones(epochs), np.ones(epochs), MARGIN)
    assert (none.word, none.effect, none.p_holm) == ("unclear", None, None)
    assert none.note == f"{epochs} epochs on both arms, a verdict needs 6"


def test_times_of_zero_are_no_times() -> None:
    none = verdict(times(1, 1, 0, 1, 1, 1), np.ones(6), MARGIN)
    assert (none.word, none.effect) == ("unclear", None)
    assert "too coarse" in (none.note or "")


def test_microseconds_of_margin_count_for_short_times() -> None:
    assert quiet(1.2, margin=Margin(0.03, 30.0)).word == "same"  # a fifth of 105 us is less than 30
    assert quiet(1.2, margin=Margin(0.03, 10.0)).word == "slower"


@pytest.mark.parametrize(
    ("p90_ratio", "wobble", "tail"),
    [
        (1.0, 0.01, None),
        (0.8, 0.01, None),
        (1.3, 0.01, "tail worse"),
        (1.1, 0.01, "tail unclear"),
        (1.0, 1.0, "tail unclear"),
    ],
)
def test_the_tail_is_told_beside_same(p90_ratio: float, wobble: float, tail: str | None) -> None:
    base = 300 * np.ones(8)
    new = p90_ratio * base * np.exp(wobble * (-1.0) ** np.arange(8))
    told = quiet(1.0, base_p90_us=base, new_p90_us=new)
    assert (told.word, told.tail) == ("same", tail)
    assert quiet(1.2, base_p90_us=base, new_p90_us=new).tail is None


def test_a_skewed_fence_forbids_same_and_nothing_else() -> None:
    assert quiet(1.0, skew_us=2.0).word == "same"
    bound = quiet(1.0, skew_us=50.0)
    assert (bound.word, bound.note) == ("unclear", FENCE_BOUND)
    assert quiet(1.2, skew_us=50.0).word == "slower"


def test_among_many_a_small_p_is_not_enough() -> None:
    base = np.ones(8)
    new = np.exp(0.05 + 0.045 * times(1, -1, 1, -1, 1, -1, 1, -1))
    alone = judge([paired(base, new, MARGIN)])[0]
    crowd = [paired(base, np.exp(0.1 * (-1.0) ** np.arange(8)), MARGIN)] * 9
    together = judge([*crowd, paired(base, new, MARGIN)])[-1]
    assert (alone.word, together.word) == ("slower", "unclear")
    assert alone.effect == together.effect
    assert together.p_holm == pytest.approx(10 * (alone.p_holm or 0))
    assert alone.simultaneous is not None
    assert together.simultaneous is not None
    assert together.simultaneous[0] < alone.simultaneous[0] < alone.simultaneous[1] < together.simultaneous[1]


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
        told[skew_us] = (row["verdict"], row["note"])
    assert told == {0.5: ("same", None), 5.0: ("unclear", FENCE_BOUND)}


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
