"""Which cases go on, and how long their epochs are: on runs of numbers and in real sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sweeping import sweep

from ncclbench.compare.split import Cost, measured_cost, operations_of, split_variance, visits_of
from ncclbench.compare.steering import Steering
from ncclbench.plan.arms import parse_arms
from ncclbench.plan.build import Method, Selection, build_plan
from ncclbench.plan.model import Case, Injection, Plan
from ncclbench.plan.orders import Orders
from ncclbench.stats.stopping import is_look
from ncclbench.store.model import Run, Stop, Unit
from ncclbench.store.reader import load_run


def plan_of(backends: str = "gloo,gloo", sizes: tuple[int, ...] = (1024,), **method: object) -> Plan:
    return build_plan(
        Selection(sizes=sizes, modes=("isolated",)),
        parse_arms(backends, None, "cpu"),
        nranks=2,
        local_ranks=2,
        device="cpu",
        method=Method(**method),  # type: ignore[arg-type]
    )


def unit(case: Case, arm: str, epoch: int, times_us: Sequence[float], visits: int = 2) -> Unit:
    """Two equal ranks; the visits to two arms take turns."""
    times = np.array([times_us, times_us], dtype=np.float64)
    n = times.shape[1]
    mine = range(0, 2 * visits, 2) if arm.endswith("#2") else range(1, 2 * visits, 2)
    start = np.concatenate([[turn * 1e4 + 1e3 * i for i in range(n // visits)] for turn in mine])
    return Unit(
        case=case.key,
        arm=arm,
        epoch=epoch,
        attempt=0,
        k=1,
        start_us=np.array([start, start]),
        launch_us=times,
        device_us=None,
        total_us=times,
        visits=(n // visits,) * visits,
        turns=tuple(mine),
        wrong=(0, 0),
    )


def walk(steering: Steering, plan: Plan, spread: float, seconds: float = 0.1) -> dict[str, Stop]:
    """Measure what is ordered until nothing is: times with so much noise between epochs."""
    generator = np.random.default_rng(5)
    stops: dict[str, Stop] = {}
    while (orders := steering.next_orders()) is not None:
        for order in orders.cases:
            case = plan.planned[order.case]
            levels = 100 * generator.lognormal(0, spread, len(plan.arms))
            units = [
                unit(case, arm.id, orders.epoch, level * generator.lognormal(0, 0.001, 20))
                for arm, level in zip(plan.arms, levels, strict=True)
            ]
            stop = steering.take(case.key, units, seconds)
            if stop is not None:
                stops[case.key] = stop
    return stops


class TestStopping:
    def test_without_a_precision_every_case_gets_its_epochs(self) -> None:
        plan = plan_of(sizes=(8, 1024), epochs=5)
        stops = walk(Steering(plan, None), plan, 0.05)
        assert {(stop.epochs, stop.why) for stop in stops.values()} == {(5, "epochs")}
        assert len(stops) == 2

    def test_a_quiet_case_ends_at_the_first_look_and_a_noisy_one_later(self) -> None:
        plan = plan_of(precision=0.03, time_budget_s=1000.0)
        (quiet,) = walk(Steering(plan, None), plan, 0.005).values()
        (noisy,) = walk(Steering(plan, None), plan, 0.06).values()
        assert (quiet.epochs, quiet.why) == (8, "precision")
        assert noisy.why == "precision"
        assert noisy.epochs > 16
        assert is_look(noisy.epochs)
        for stop in (quiet, noisy):
            assert stop.half_width is not None
            assert stop.half_width <= 0.03

    def test_one_arm_is_stopped_by_its_own_interval(self) -> None:
        plan = plan_of("gloo", precision=0.05, time_budget_s=1000.0)
        (stop,) = walk(Steering(plan, None), plan, 0.01).values()
        assert (stop.epochs, stop.why) == (8, "precision")

    def test_the_budget_ends_what_cannot_be_precise(self) -> None:
        plan = plan_of(precision=0.001, time_budget_s=3.0)
        (stop,) = walk(Steering(plan, None), plan, 0.2, seconds=0.1).values()
        assert stop.why == "budget"
        assert 8 <= stop.epochs <= 30
        assert stop.half_width is not None
        assert stop.half_width > 0.001

    def test_the_most_epochs_end_it_too(self) -> None:
        plan = plan_of(precision=0.001, time_budget_s=1e6, epochs=9)
        (stop,) = walk(Steering(plan, None), plan, 0.2).values()
        assert (stop.epochs, stop.why) == (9, "epochs")

    def test_cases_stop_each_for_itself(self) -> None:
        plan = plan_of(sizes=(8, 1024), epochs=3)
        steering = Steering(plan, None)
        first, second = plan.planned
        steering.close(first.key, "gloo")
        steering.close(first.key, "gloo#2")
        orders = steering.next_orders()
        assert orders is not None
        assert [order.case for order in orders.cases] == [plan.planned.index(second)]

    def test_a_resumed_run_fills_its_holes_first(self) -> None:
        plan = plan_of(epochs=4)
        (case,) = plan.planned
        former = Run(Path("r"), {}, plan)
        for arm in plan.arms:
            epochs = (0, 1, 3) if arm.id == "gloo" else (0, 1, 2, 3)
            former.units[case.key, arm.id] = [unit(case, arm.id, epoch, [100.0] * 4) for epoch in epochs]
        former.stops[case.key] = Stop(4, "epochs", 0.1)  # written before the samples were lost
        orders = Steering(plan, former).next_orders()
        assert orders == Orders(2, orders.cases if orders else ())
        former.units[case.key, "gloo"].insert(2, unit(case, "gloo", 2, [100.0] * 4))
        assert Steering(plan, former).next_orders() is None

    def test_a_stopped_case_stays_stopped_where_an_arm_does_not_take_it(self) -> None:
        plan = plan_of(precision=0.01, time_budget_s=10.0)
        (case,) = plan.planned
        former = Run(Path("r"), {}, plan)
        former.units[case.key, "gloo"] = [unit(case, "gloo", epoch, [100.0] * 4) for epoch in range(9)]
        former.stops[case.key] = Stop(9, "budget", 0.1)
        steering = Steering(plan, former)
        steering.close(case.key, "gloo#2")
        assert steering.next_orders() is None
        assert not steering.is_open

    def test_a_resumed_case_has_the_rest_of_its_budget(self) -> None:
        plan = plan_of(precision=0.0001, time_budget_s=0.3)
        (case,) = plan.planned
        former = Run(Path("r"), {}, plan)
        for arm in plan.arms:
            # Each epoch lasts until its last visit ends, 30 ms after its first began.
            former.units[case.key, arm.id] = [unit(case, arm.id, epoch, [100.0] * 4) for epoch in range(5)]
        (stop,) = walk(Steering(plan, former), plan, 0.2, seconds=0.05).values()
        assert stop.why == "budget"
        assert stop.epochs <= 8  # with a whole budget again it would be 11

    def test_every_epoch_must_be_whole_before_a_case_is_done(self) -> None:
        plan = plan_of(epochs=4)
        (case,) = plan.planned
        former = Run(Path("r"), {}, plan)
        former.units[case.key, "gloo"] = [unit(case, "gloo", epoch, [100.0] * 4) for epoch in range(4)]
        former.units[case.key, "gloo#2"] = [unit(case, "gloo#2", epoch, [100.0] * 4) for epoch in (0, 2)]
        steering = Steering(plan, former)
        seen = []
        while (orders := steering.next_orders()) is not None:
            seen.append(orders.epoch)
            units = [unit(case, arm.id, orders.epoch, [100.0] * 4) for arm in plan.arms]
            steering.take(case.key, units, 0.1)
        assert seen == [1, 3]

    def test_times_of_zero_stop_nothing_and_break_nothing(self) -> None:
        plan = plan_of(epochs=9, precision=0.5)
        (case,) = plan.planned
        steering = Steering(plan, None)
        stops = []
        while (orders := steering.next_orders()) is not None:
            units = [unit(case, arm.id, orders.epoch, [0.0] * 4) for arm in plan.arms]
            stops.append(steering.take(case.key, units, 0.1))
        assert stops == [None] * 8 + [Stop(9, "epochs", None)]


class TestLengthOfEpochs:
    def test_the_cost_is_read_from_the_samples(self) -> None:
        plan = plan_of()
        (case,) = plan.planned
        # Visits begin 10 ms after each other, operations 1 ms, five in each; 60 ms in all.
        cost = measured_cost([unit(case, arm, 0, [100.0] * 10) for arm in ("gloo", "gloo#2")], 0.060)
        assert cost.sample_s == pytest.approx(0.001)
        assert cost.visit_s == pytest.approx(0.005)
        assert cost.epoch_s == pytest.approx(0.020)
        assert cost.epoch_of(2, 2, 5) == pytest.approx(0.060)

    def test_an_epoch_is_a_share_of_the_budget(self) -> None:
        cost = Cost(epoch_s=0.0, visit_s=0.001, sample_s=0.0001)
        (short, long) = (visits_of(cost, 2, 10, None, budget_s, None) for budget_s in (2.4, 12.0))
        assert short == 24
        assert long == pytest.approx(5 * short, rel=0.05)

    def test_three_arms_come_first_as_often(self) -> None:
        cost = Cost(epoch_s=0.0, visit_s=0.001, sample_s=0.0001)
        assert visits_of(cost, 3, 10, None, 2.4, None) % 3 == 0
        assert visits_of(Cost(0.0, 10.0, 1.0), 3, 10, None, 2.4, None) == 3

    def test_dear_groups_make_long_epochs(self) -> None:
        dear = Cost(epoch_s=0.2, visit_s=0.001, sample_s=0.0001)
        assert visits_of(dear, 2, 10, None, 12.0, None) == 200
        assert visits_of(dear, 2, 10, None, 1.0, None) == 2  # as many epochs as that leaves

    def test_where_epochs_differ_most_they_get_shorter_by_halves(self) -> None:
        cost = Cost(epoch_s=0.001, visit_s=0.001, sample_s=0.0001)
        assert visits_of(cost, 2, 10, (1.0, 0.1), 12.0, 40) == 20
        assert visits_of(cost, 2, 10, (0.0, 0.1), 12.0, 40) == 40
        assert visits_of(cost, 2, 10, (0.001, 0.1), 12.0, 40) == 40

    def test_operations_cover_what_a_visit_costs(self) -> None:
        assert operations_of(Cost(0.0, 0.001, 0.0001)) == 20
        assert operations_of(Cost(0.0, 0.001, 0.01)) == 5
        assert operations_of(Cost(0.0, 1.0, 0.0001)) == 25

    def test_variances_of_epochs_and_visits_are_told_apart(self) -> None:
        generator = np.random.default_rng(3)
        n, visits = 4000, 8
        level = generator.normal(0, 0.05, (n, 1))
        each = level + generator.normal(0, 0.2, (n, visits))
        halves = np.stack([each[:, :4].mean(axis=1), each[:, 4:].mean(axis=1)], axis=1)
        found = split_variance(each.mean(axis=1), halves, np.full(n, float(visits)))
        assert found is not None
        assert np.sqrt(found) == pytest.approx([0.05, 0.2], rel=0.1)
        assert split_variance(np.zeros(7), np.zeros((7, 2)), np.ones(7)) is None


class TestForReal:
    @pytest.mark.full
    def test_a_precision_is_reached_or_the_budget_is_spent(self, tmp_path: Path) -> None:
        done = sweep(
            *("--sizes", "8,64K", "--modes", "isolated", "--backends", "gloo,gloo"),
            *("--precision", "1000%", "--time-budget", "20s", "--json", "--out", tmp_path / "wide"),
        )
        run = load_run(tmp_path / "wide")
        assert {(stop.epochs, stop.why) for stop in run.stops.values()} == {(8, "precision")}
        assert [row["epochs"] for row in done.document["rows"]] == [8] * 4
        narrow = sweep(
            *("--sizes", "8", "--modes", "isolated", "--backends", "gloo,gloo"),
            *("--precision", "0.01%", "--time-budget", "1s", "--json", "--out", tmp_path / "narrow"),
        )
        assert narrow.code == 0
        (stop,) = load_run(tmp_path / "narrow").stops.values()
        assert stop.why == "budget"
        # A run that has stopped has nothing to resume.
        assert sweep("--resume", tmp_path / "narrow").code == 0
        assert len(load_run(tmp_path / "narrow").meta["attempts"]) == 1

    @pytest.mark.parametrize("amount", ["30000us", "1000%"])
    def test_an_injected_delay_is_in_the_samples_and_recorded(self, amount: str, tmp_path: Path) -> None:
        done = sweep(
            *("--sizes", "1K", "--backends", "gloo,gloo", "--modes", "isolated", "-n", "12", "--epochs", "6"),
            *("--inject", f"gloo#2:1:{amount}", "--json", "--out", tmp_path / "run"),
        )
        (comparison,) = done.document["comparisons"]
        assert comparison["ratio"] > 3
        run = load_run(tmp_path / "run")
        (case,) = run.plan.planned
        assert run.plan.injection is not None
        for slowed in run.units[case.key, "gloo#2"]:
            assert slowed.delay_us is not None
            assert slowed.delay_us[0] == 0
            assert slowed.delay_us[1] > 100
            assert (slowed.total_us[1] >= slowed.delay_us[1]).all()
            assert (slowed.undelayed_us <= slowed.time_us).all()
        assert all(plain.delay_us is None for plain in run.units[case.key, "gloo"])


def test_the_slowed_arm_is_told_its_level_without_the_delay() -> None:
    plan = plan_of(epochs=2, injection=Injection("gloo#2", None, None, 0.5))
    steering = Steering(plan, None)
    first = steering.next_orders()
    (case,) = plan.planned
    assert first is not None
    assert first.cases[0].level_us is None
    slowed = unit(case, "gloo#2", 0, [150.0] * 4)
    slowed = Unit(**{name: getattr(slowed, name) for name in Unit.__slots__} | {"delay_us": (50.0, 50.0)})
    steering.take(case.key, [unit(case, "gloo", 0, [90.0] * 4), slowed], 0.1)
    second = steering.next_orders()
    assert second is not None
    assert second.cases[0].level_us == pytest.approx(100.0)
