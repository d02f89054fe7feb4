"""From runs of known scatter to a calibration: components, false verdicts, resolution."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from calibrating import quiet_environment
from report_fixtures import make_case, make_run

from ncclbench.compare.calibration import Measured, calibration, single_comparisons, starting_s
from ncclbench.compare.components import components
from ncclbench.stats.power import smallest_effect
from ncclbench.store import calibrations
from ncclbench.store.model import Run, Unit

CASE = make_case("all_reduce", 65536, "back-to-back")
ARMS = ("gloo", "gloo#2")


def epoch_unit(
    generator: np.random.Generator, arm: str, epoch: int, level: float, visits: int = 4, each: float = 0.0
) -> Unit:
    """An epoch whose visits have the log level ``level`` plus noise of ``each``.

    Samples of a visit are equal, so that its statistic is exactly its level, whatever the quantile.
    """
    samples = 5
    times_us = 500 * np.exp(np.repeat(level + each * generator.standard_normal(visits), samples))
    total_us = np.stack([times_us, times_us])
    return Unit(
        case=CASE.key,
        arm=arm,
        epoch=epoch,
        attempt=0,
        k=1,
        start_us=np.zeros_like(total_us),
        launch_us=np.zeros_like(total_us),
        device_us=None,
        total_us=total_us,
        visits=(samples,) * visits,
        turns=tuple(range(visits)),
        wrong=(0, 0),
    )


def known_run(
    units: dict[str, list[Unit]], seed: int = 0, environment: dict[str, Any] | None = None, **fields: Any
) -> Run:
    """A run of CASE that holds these units."""
    run = make_run(ops=["all_reduce"], sizes=[65536], modes=["back-to-back"], arms=list(units), seed=seed)
    run.units = {(CASE.key, arm): each for arm, each in units.items()}
    run.meta["environment"] = environment or quiet_environment()
    run.plan = replace(run.plan, epochs=len(next(iter(units.values()))), **fields)
    return run


def equal_arms(
    generator: np.random.Generator, levels: Sequence[float], ratio_spread: float, each: float = 0.0
) -> dict[str, list[Unit]]:
    """Two arms of the same level in each epoch but for independent scatter of the given size."""
    apart = ratio_spread / math.sqrt(2)
    return {
        arm: [
            epoch_unit(generator, arm, epoch, level + apart * generator.standard_normal(), each=each)
            for epoch, level in enumerate(levels)
        ]
        for arm in ARMS
    }


def calibrated(run: Run, **fields: Any) -> dict[str, Any]:
    """The document of a run of equal arms alone."""
    return calibration(Measured(run, [], [], {CASE.key: 0.25}, **fields), budget_s=10.0)


# Where scatter comes from.


def nested(
    generator: np.random.Generator, processes: int, groups: int, process: float, group: float, each: float
) -> list[list[Unit]]:
    """Units of one arm with known standard deviations by process, group and visit."""
    found = []
    for _ in range(processes):
        level = process * generator.standard_normal()
        levels = level + group * generator.standard_normal(groups)
        found.append([epoch_unit(generator, "gloo", n, one, each=each) for n, one in enumerate(levels)])
    return found


def test_components_of_known_size_are_recovered() -> None:
    """On average over measurements; a single one is as uncertain as six processes are."""
    generator = np.random.default_rng(1)
    found = [components(nested(generator, 6, 4, 0.10, 0.05, 0.08), 0.25) for _ in range(400)]
    for name, truth in (("process", 0.10), ("group", 0.05), ("iteration", 0.08 / math.sqrt(4))):
        squares = [(getattr(each, name) or 0.0) ** 2 for each in found]
        # Estimates below zero are left out as zero, which lifts the mean a little.
        assert math.sqrt(np.mean(squares)) == pytest.approx(truth, rel=0.10), name


def test_processes_of_unequal_size_are_weighed() -> None:
    """24 groups in one process and 2 in each of six, as calibrate measures them."""
    generator = np.random.default_rng(2)
    found = []
    for _ in range(400):
        sets = nested(generator, 1, 24, 0.10, 0.05, 0.0) + nested(generator, 6, 2, 0.10, 0.05, 0.0)
        found.append(components(sets, 0.5))
    assert math.sqrt(np.mean([(one.process or 0.0) ** 2 for one in found])) == pytest.approx(0.10, rel=0.1)
    assert math.sqrt(np.mean([(one.group or 0.0) ** 2 for one in found])) == pytest.approx(0.05, rel=0.1)


def test_processes_that_add_nothing_are_told_so_as_often_as_the_test_says() -> None:
    generator = np.random.default_rng(3)
    p_values = [components(nested(generator, 6, 3, 0.0, 0.05, 0.05), 0.25).p_process for _ in range(400)]
    share = np.mean([p is not None and p < 0.05 for p in p_values])
    assert 0.02 <= share <= 0.085  # 5 %, give or take three standard errors


def test_what_cannot_be_separated_is_null() -> None:
    generator = np.random.default_rng(4)
    one_epoch_each = components(nested(generator, 6, 1, 0.1, 0.1, 0.1), 0.25)
    assert (one_epoch_each.process, one_epoch_each.group) == (None, None)
    assert one_epoch_each.iteration is not None
    two_processes = components(nested(generator, 2, 8, 0.1, 0.1, 0.1), 0.25)
    assert (two_processes.process, two_processes.p_process) == (None, None)
    one_visit = [[epoch_unit(generator, "gloo", n, 0.1 * n, visits=1) for n in range(4)] for _ in range(4)]
    assert components(one_visit, 0.25).iteration is None
    nothing = components([], 0.25)
    assert (nothing.process, nothing.group, nothing.iteration) == (None, None, None)


def test_a_clock_too_coarse_gives_no_components() -> None:
    generator = np.random.default_rng(5)
    sets = nested(generator, 4, 4, 0.1, 0.1, 0.1)
    sets[0][0].total_us[:] = 0.0
    assert components(sets, 0.25).process is None


# False verdicts.


def test_every_eight_epochs_are_a_comparison_judged_alone() -> None:
    run = known_run(equal_arms(np.random.default_rng(6), np.zeros(30), 0.05))
    rows = single_comparisons(run)
    assert [row["epochs"] for row in rows] == [8, 8, 8], "what is left over makes none"
    assert all(row["p_holm"] == row["p"] for row in rows)
    for number, row in enumerate(rows):
        ratios = [
            math.log(two.time_us[0] / one.time_us[0])
            for one, two in zip(*run.units.values(), strict=True)
            if one.epoch // 8 == number
        ]
        # Visits of an epoch are equal here, so any quantile is the level.
        assert row["ratio"] == pytest.approx(math.exp(float(np.mean(ratios))))


def test_an_epoch_that_one_arm_lacks_is_no_part_of_a_comparison() -> None:
    units = equal_arms(np.random.default_rng(7), np.zeros(17), 0.05)
    del units["gloo#2"][3]
    assert [row["epochs"] for row in single_comparisons(known_run(units))] == [8, 8]


def test_equal_arms_are_seldom_called_different_and_unequal_ones_always() -> None:
    generator = np.random.default_rng(8)
    run = known_run(equal_arms(generator, 0.2 * generator.standard_normal(1600), 0.05))
    document = calibrated(run)
    assert document["comparisons"] == 200
    assert 2 <= document["false_verdicts"] <= 20  # at a true 5 %, 998 of 1,000 seeds
    assert document["rate_low"] < document["false_verdict_rate"] < document["rate_high"]
    assert document["false_verdict_rate"] == document["false_verdicts"] / 200

    run.units[CASE.key, "gloo#2"] = [
        replace(unit, total_us=unit.total_us * 1.5) for unit in run.units[CASE.key, "gloo#2"]
    ]
    slower = calibrated(run)
    # Of sound epochs one in a hundred looks dependent, and then the verdict is "unclear".
    assert slower["false_verdict_rate"] >= 0.95
    assert slower["same"] == 0
    assert slower["advice"][0].startswith("do not believe verdicts here")


# The document.


def test_resolution_is_the_power_of_the_epochs_that_fit() -> None:
    run = known_run(equal_arms(np.random.default_rng(9), np.zeros(64), 0.04), iters=64 * 6)
    document = calibrated(run, group_s=0.005)
    (entry,) = document["resolution"]
    assert entry["spread"] == pytest.approx(0.04, rel=0.3)
    assert entry["epoch_s"] == 0.25
    # Two groups of 5 ms are made in an epoch besides.
    assert entry["epochs"] == int(10 / 0.26) == 38
    assert entry["smallest"] == smallest_effect(entry["spread"], 38)
    assert entry["iters_in_epoch"] == 6, "as asked for; 20 samples were measured"
    assert entry["time_us"] == pytest.approx(500, rel=0.05)
    # 20 samples of about 500 us on each of two arms.
    assert entry["timed_s"] == pytest.approx(0.02, rel=0.05)
    assert (entry["op"], entry["nbytes"], entry["mode"], entry["statistic"]) == (
        "all_reduce",
        65536,
        "back-to-back",
        "p25",
    )


def test_a_budget_for_less_than_six_epochs_finds_nothing() -> None:
    run = known_run(equal_arms(np.random.default_rng(10), np.zeros(16), 0.04))
    (entry,) = calibration(Measured(run, [], [], {CASE.key: 2.1}, 0.01), 10.0)["resolution"]
    assert (entry["epochs"], entry["smallest"]) == (4, None)


def test_cases_share_the_groups_of_an_epoch() -> None:
    run = make_run(ops=["all_reduce"], sizes=[8, 4096], modes=["isolated"], arms=ARMS, epochs=8, iters=80)
    run.meta["environment"] = quiet_environment()
    keys = [case.key for case in run.plan.planned]

    def epochs() -> list[int]:
        document = calibration(Measured(run, [], [], dict.fromkeys(keys, 0.75), 0.5), budget_s=10.0)
        return [entry["epochs"] for entry in document["resolution"]]

    # Two groups of half a second, for two cases.
    assert epochs() == [8, 8]
    del run.units[keys[1], "gloo#2"]
    assert epochs() == [5], "what is not measured bears no share"


def test_starting_processes_is_what_remains_without_cases_and_groups() -> None:
    beside = make_run(ops=["all_reduce"], sizes=[8], modes=["isolated"], arms=ARMS, epochs=3)
    alone = make_run(ops=["all_reduce"], sizes=[8], modes=["isolated"], arms=ARMS[:1], epochs=3)
    # Six groups and three, beside 0.5 s: the same is found from both.
    assert starting_s([beside, alone], [0.5 + 6 * 0.02, 0.5 + 3 * 0.02], 0.02) == pytest.approx(0.5)
    assert starting_s([beside], [0.0], 0.02) == 0.0


def test_drift_and_dependence_are_told_apart() -> None:
    generator = np.random.default_rng(11)
    drifting = calibrated(known_run(equal_arms(generator, np.linspace(0, 0.5, 32), 0.02)))["resolution"][0]
    assert drifting["time_drift"] == pytest.approx(math.exp(0.5), rel=0.05)
    assert (drifting["time_drifts"], drifting["drifts"], drifting["correlated"]) == (True, False, False)

    units = equal_arms(generator, np.zeros(64), 0.0)
    wander = np.zeros(64)
    for epoch in range(1, 64):
        wander[epoch] = 0.95 * wander[epoch - 1] + 0.05 * generator.standard_normal()
    units["gloo#2"] = [epoch_unit(generator, "gloo#2", epoch, level) for epoch, level in enumerate(wander)]
    correlated = calibrated(known_run(units))
    assert correlated["resolution"][0]["correlated"] is True
    assert any("more -n" in line for line in correlated["advice"])


def test_beside_over_alone_is_paired_by_round() -> None:
    generator = np.random.default_rng(12)
    machine = 0.3 * generator.standard_normal(6)  # what changes from round to round, for both alike

    def runs(arms: Sequence[str], extra: float) -> list[Run]:
        return [
            known_run(
                {
                    arm: [epoch_unit(generator, arm, n, level + extra, each=0.005) for n in range(2)]
                    for arm in arms
                }
            )
            for level in machine
        ]

    equal = known_run(equal_arms(generator, np.zeros(24), 0.01))
    beside = runs(ARMS, math.log(1.2))
    document = calibration(Measured(equal, runs(ARMS[:1], 0.0), beside, {CASE.key: 0.2}), 10.0)
    ratio = document["resolution"][0]["beside_over_alone"]
    assert ratio["ratio"] == pytest.approx(1.2, rel=0.01)
    assert ratio["ci_low"] < 1.2 < ratio["ci_high"]
    assert ratio["ci_high"] - ratio["ci_low"] < 0.05, "the machine's own changes cancel"
    assert document["resolution"][0]["spread_process"] == pytest.approx(0.3, rel=0.7)
    said = "\n".join(document["advice"])
    assert "1.20x the time it takes alone" in said
    assert "--epoch-kind process" in said


def test_a_document_is_what_readers_expect() -> None:
    run = known_run(equal_arms(np.random.default_rng(13), np.zeros(16), 0.04))
    document = calibrated(run, group_s=0.003, process_s=0.4)
    msgspec.convert(document, calibrations.Calibration)
    json.dumps(document, allow_nan=False)
    assert (document["group_s"], document["process_s"]) == (0.003, 0.4)
    assert (document["hosts"], document["nranks"], document["backend"]) == (["node-00"], 2, "gloo")


def test_a_case_that_one_arm_did_not_measure_is_left_out() -> None:
    run = known_run(equal_arms(np.random.default_rng(14), np.zeros(16), 0.04))
    del run.units[CASE.key, "gloo#2"]
    document = calibrated(run)
    assert (document["resolution"], document["comparisons"]) == ([], 0)
    assert document["false_verdict_rate"] is None
