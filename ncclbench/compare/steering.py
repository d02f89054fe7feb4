"""Which cases get another epoch, and how much of it: decided on rank 0 between epochs, never on a sign.

A case ends when it has all its epochs, when another one would overrun its time budget, or, with a precision
asked for, when at one of a few looks its interval is narrow enough. Nothing measured is dropped for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ncclbench.compare.split import (
    FEWEST_OPERATIONS,
    MOST_VISITS,
    Cost,
    epoch_target_s,
    measured_cost,
    operations_of,
    split_variance,
    visits_of,
)
from ncclbench.plan.model import Case, Plan
from ncclbench.plan.orders import Order, Orders
from ncclbench.plan.schedule import usual_visits
from ncclbench.stats.intervals import Floats, LogMean, log_mean
from ncclbench.stats.stopping import half_width, is_look, is_precise
from ncclbench.store.model import Run, Stop, Unit
from ncclbench.tables.statistics import DEFAULT_STATISTIC, STATISTICS

# The second epoch is the first that costs what epochs cost.
_TYPICAL_EPOCHS = 2


@dataclass(frozen=True, slots=True)
class _Level:
    """The compared statistic of an arm in an epoch, microseconds: of all samples, and of each half."""

    attempt: int
    whole_us: float
    halves_us: tuple[float, float]
    visits: int


@dataclass(slots=True)
class _Course:
    """What is known of one case so far."""

    number: int
    case: Case
    levels: dict[int, dict[str, _Level]] = field(default_factory=dict)
    undelayed_us: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    cost: Cost | None = None
    operations: int = FEWEST_OPERATIONS
    visits: int | None = None
    stop: Stop | None = None

    @property
    def next_epoch(self) -> int:
        """The first epoch that it lacks."""
        return next(epoch for epoch in range(len(self.levels) + 1) if epoch not in self.levels)


class Steering:
    """The course of every case of a plan."""

    def __init__(self, plan: Plan, former: Run | None) -> None:
        """``former``: the run as it stands when it is resumed, else None."""
        self._plan = plan
        self._quantile = STATISTICS[plan.statistic or DEFAULT_STATISTIC["total"]].quantile
        self._courses = {case.key: _Course(number, case) for number, case in enumerate(plan.planned)}
        self._closed: dict[str, set[str]] = {key: set() for key in self._courses}
        # A plan that adapts always has a budget.
        self._budget_s = plan.time_budget_s or math.inf
        self._ordered: list[_Course] = []
        self._ordered_s = self._told_s = 0.0
        self._epoch_share_s = 0.0
        for (key, arm), units in (former.units if former is not None else {}).items():
            for unit in units:
                self._add(self._courses[key], unit, arm)
        for key, course in self._courses.items():
            stop = former.stops.get(key) if former is not None else None
            # Samples may have been lost since it stopped.
            complete = [epoch for epoch in course.levels if self._has_all_arms(course, epoch)]
            if stop is not None and stop.epochs <= len(complete):
                course.stop = stop

    def close(self, key: str, arm: str) -> None:
        """The arm does not take the case."""
        self._closed[key].add(arm)

    def next_orders(self) -> Orders | None:
        """What to measure next; None when every case has had its epochs."""
        self._share_overhead()
        open_courses = [course for course in self._courses.values() if self._is_open(course)]
        if not open_courses:
            self._ordered = []
            return None
        epochs = {course.number: self._next_epoch(course) for course in open_courses}
        epoch = min(epochs.values())
        self._ordered = [course for course in open_courses if epochs[course.number] == epoch]
        self._ordered_s, self._told_s = time.monotonic(), 0.0
        return Orders(epoch, tuple(self._order(course, epoch) for course in self._ordered))

    def take(self, key: str, units: Sequence[Unit], seconds: float) -> Stop | None:
        """An epoch of a case is measured on all its arms; returns why it was the last, if it was."""
        course = self._courses[key]
        course.spent_s += seconds + self._epoch_share_s
        self._told_s += seconds
        for unit in units:
            self._add(course, unit, unit.arm)
        if self._plan.adapts:
            self._adapt(course, units, seconds)
        course.stop = self._why_stop(course, seconds)
        return course.stop

    def _is_open(self, course: _Course) -> bool:
        if course.stop is not None or len(self._closed[course.case.key]) == len(self._plan.arms):
            return False
        return self._next_epoch(course) < self._plan.epochs

    def _next_epoch(self, course: _Course) -> int:
        """The first epoch that is not measured on every arm that takes the case."""
        epoch = 0
        while epoch in course.levels and self._has_all_arms(course, epoch):
            epoch += 1
        return epoch

    def _has_all_arms(self, course: _Course, epoch: int) -> bool:
        wanted = {arm.id for arm in self._plan.arms} - self._closed[course.case.key]
        return wanted <= course.levels[epoch].keys()

    def _share_overhead(self) -> None:
        """What the last epoch took beside its cases (groups, above all) is shared among them."""
        if self._ordered:
            outside_s = max(0.0, time.monotonic() - self._ordered_s - self._told_s)
            share_s = outside_s / len(self._ordered)
            for course in self._ordered:
                course.spent_s += share_s - self._epoch_share_s
            self._epoch_share_s = share_s

    def _order(self, course: _Course, epoch: int) -> Order:
        level_us = float(np.median(course.undelayed_us)) if course.undelayed_us else None
        if not self._plan.adapts:
            visits = usual_visits(len(self._plan.arms) - len(self._closed[course.case.key]))
            return Order(course.number, visits, self._plan.iters_in_epoch(epoch), level_us, None)
        # Nothing is known of what the first epoch costs: it ends by its time.
        visits, until_s = (
            (MOST_VISITS, epoch_target_s(self._budget_s)) if course.visits is None else (course.visits, None)
        )
        return Order(course.number, visits, visits * course.operations, level_us, until_s)

    def _add(self, course: _Course, unit: Unit, arm: str) -> None:
        times_us = unit.time_us
        cut = sum(unit.visits[: len(unit.visits) // 2]) or len(times_us)
        parts = (times_us, times_us[:cut], times_us[cut:] if cut < len(times_us) else times_us)
        whole, first, second = (float(np.quantile(part, self._quantile)) for part in parts)
        level = _Level(unit.attempt, whole, (first, second), len(unit.visits))
        course.levels.setdefault(unit.epoch, {})[arm] = level
        injection = self._plan.injection
        if injection is not None and injection.arm == arm:
            course.undelayed_us.append(float(np.quantile(unit.undelayed_us, self._quantile)))

    def _why_stop(self, course: _Course, seconds: float) -> Stop | None:
        epochs = len(course.levels)
        effects = [log_mean(np.exp(values)) for values, _, _ in self._logs(course)]
        known = [effect for effect in effects if effect is not None]
        # Said where every arm has one; the widest.
        width = max(map(half_width, known)) if known and len(known) == len(effects) else None
        width = width if width is not None and np.isfinite(width) else None
        if self._is_precise(epochs, known, width):
            return Stop(epochs, "precision", width)
        if epochs >= self._plan.epochs:
            return Stop(epochs, "epochs", width)
        if course.spent_s + self._next_s(course, seconds) > self._budget_s:
            return Stop(epochs, "budget", width)
        return None

    def _is_precise(self, epochs: int, effects: list[LogMean], width: float | None) -> bool:
        precision = self._plan.precision
        if precision is None or width is None or not is_look(epochs):
            return False
        return all(is_precise(effect, precision) for effect in effects)

    def _next_s(self, course: _Course, seconds: float) -> float:
        """Seconds that another epoch would take."""
        if len(course.levels) == 1:
            # The first epoch paid much that comes only once.
            return epoch_target_s(self._budget_s) if self._plan.adapts else 0.0
        if course.cost is None or course.visits is None:
            return seconds + self._epoch_share_s
        narms = len(self._plan.arms) - len(self._closed[course.case.key])
        return course.cost.epoch_of(narms, course.visits, course.operations)

    def _logs(self, course: _Course) -> list[tuple[Floats, Floats, Floats]]:
        """For each arm against the base, or for the only arm: logs by epoch, of halves, and visits."""
        base = self._plan.base_arm
        others = [arm.id for arm in self._plan.arms if arm.id != base]
        closed = self._closed[course.case.key]
        if base in closed or not [arm for arm in others if arm not in closed]:
            alone = [arm.id for arm in self._plan.arms if arm.id not in closed]
            return [self._alone(course, arm) for arm in alone]
        return [self._against(course, base, arm) for arm in others if arm not in closed]

    def _alone(self, course: _Course, arm: str) -> tuple[Floats, Floats, Floats]:
        levels = [of_arms[arm] for of_arms in course.levels.values() if arm in of_arms]
        return (
            np.log([level.whole_us for level in levels]),
            np.log([level.halves_us for level in levels]),
            np.array([level.visits for level in levels], dtype=np.float64),
        )

    def _against(self, course: _Course, base: str, new: str) -> tuple[Floats, Floats, Floats]:
        pairs = [
            (of_arms[base], of_arms[new])
            for of_arms in course.levels.values()
            if base in of_arms and new in of_arms and of_arms[base].attempt == of_arms[new].attempt
        ]
        return (
            np.log([two.whole_us / one.whole_us for one, two in pairs]),
            np.log([np.divide(two.halves_us, one.halves_us) for one, two in pairs]),
            np.array([one.visits for one, _ in pairs], dtype=np.float64),
        )

    def _adapt(self, course: _Course, units: Sequence[Unit], seconds: float) -> None:
        """Choose the next epochs' visits and operations from what this one cost and how all have varied."""
        epochs = len(course.levels)
        if course.visits is not None and epochs != _TYPICAL_EPOCHS and not is_look(epochs):
            return
        course.cost = measured_cost(units, seconds + self._epoch_share_s)
        if epochs <= _TYPICAL_EPOCHS:
            course.operations = operations_of(course.cost)
        before = course.visits if epochs > _TYPICAL_EPOCHS else None
        variances = [split_variance(*logs) for logs in self._logs(course)]
        course.visits = max(
            visits_of(course.cost, len(units), course.operations, variance, self._budget_s, before)
            for variance in variances
        )
