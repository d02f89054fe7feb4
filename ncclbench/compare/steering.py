"""Which cases get another epoch, and how much of it: decided on rank 0 between epochs, never on a sign.

A case ends when it has all its epochs, when another one would overrun its time budget, or, with a precision
asked for, when at one of a few looks its interval is narrow enough. Nothing measured is dropped for it.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from ncclbench.compare.course import Course
from ncclbench.compare.split import (
    MOST_VISITS,
    epoch_target_s,
    measured_cost,
    operations_of,
    split_variance,
    visits_of,
)
from ncclbench.plan.model import Plan
from ncclbench.plan.orders import Order, Orders
from ncclbench.plan.schedule import usual_visits
from ncclbench.stats.intervals import LogMean, log_mean
from ncclbench.stats.stopping import finite_half_width, is_look, is_precise
from ncclbench.store.model import Run, Stop, Unit
from ncclbench.tables.modes import MODES
from ncclbench.tables.statistics import DEFAULT_STATISTIC, STATISTICS

# The second epoch is the first that costs what epochs cost.
_TYPICAL_EPOCHS = 2


class Steering:
    """The course of every case of a plan."""

    def __init__(self, plan: Plan, former: Run | None) -> None:
        """``former``: the run as it stands when it is resumed, else None."""
        self._plan = plan
        self._quantile = STATISTICS[plan.statistic or DEFAULT_STATISTIC["total"]].quantile
        self._courses = {case.key: Course(number, case) for number, case in enumerate(plan.planned)}
        self._closed: dict[str, set[str]] = {key: set() for key in self._courses}
        # A plan that adapts always has a budget.
        self._budget_s = plan.time_budget_s or math.inf
        self._ordered: list[Course] = []
        self._ordered_s = self._told_s = 0.0
        self._epoch_share_s = 0.0
        self._former_stops = former.stops if former is not None else {}
        for (key, _), units in (former.units if former is not None else {}).items():
            for unit in units:
                self._courses[key].add(unit, self._quantile)
        for key, spent_s in _spent_s(former).items() if former is not None else ():
            self._courses[key].spent_s = spent_s

    def close(self, key: str, arm: str) -> None:
        """The arm does not take the case."""
        self._closed[key].add(arm)

    def taken_by(self, arms: Collection[str]) -> list[int]:
        """Cases that one of the arms takes, by their place among the planned ones."""
        return [course.number for key, course in self._courses.items() if set(arms) - self._closed[key]]

    @property
    def is_open(self) -> bool:
        """Whether any case gets another epoch."""
        return any(self._is_open(course) for course in self._courses.values())

    def next_orders(self) -> Orders | None:
        """What to measure next; None when every case has had its epochs."""
        self._share_overhead()
        wanted = [(self._next_epoch(course), course) for course in self._courses.values()]
        wanted = [(epoch, course) for epoch, course in wanted if self._is_open(course)]
        epoch = min((epoch for epoch, _ in wanted), default=0)
        self._ordered = [course for its_epoch, course in wanted if its_epoch == epoch]
        self._ordered_s, self._told_s = time.monotonic(), 0.0
        if not self._ordered:
            return None
        return Orders(epoch, tuple(self._order(course, epoch) for course in self._ordered))

    def take(self, key: str, units: Sequence[Unit], seconds: float) -> Stop | None:
        """An epoch of a case is measured on all its arms; returns why it was the last, if it was."""
        course = self._courses[key]
        course.spent_s += seconds + self._epoch_share_s
        self._told_s += seconds
        for unit in units:
            course.add(unit, self._quantile)
        if self._plan.adapts:
            self._adapt(course, units, seconds)
        course.stop = self._why_stop(course, seconds)
        return course.stop

    def _arms(self, course: Course) -> list[str]:
        """The arms that take the case."""
        closed = self._closed[course.case.key]
        return [arm.id for arm in self._plan.arms if arm.id not in closed]

    def _epochs(self, course: Course) -> int:
        """How many epochs are whole."""
        return len(course.complete(self._arms(course)))

    def _next_epoch(self, course: Course) -> int:
        return course.next_epoch(self._arms(course))

    def _is_open(self, course: Course) -> bool:
        former = self._former_stops.get(course.case.key)
        # Samples may have been lost since it stopped.
        if course.stop is None and former is not None and former.epochs <= self._epochs(course):
            course.stop = former
        if course.stop is not None or not self._arms(course):
            return False
        return self._next_epoch(course) < self._plan.epochs

    def _share_overhead(self) -> None:
        """What the last epoch took beside its cases (groups, above all) is shared among them."""
        if self._ordered:
            outside_s = max(0.0, time.monotonic() - self._ordered_s - self._told_s)
            share_s = outside_s / len(self._ordered)
            for course in self._ordered:
                course.spent_s += share_s - self._epoch_share_s
            self._epoch_share_s = share_s

    def _order(self, course: Course, epoch: int) -> Order:
        level_us = float(np.median(course.undelayed_us)) if course.undelayed_us else None
        if not self._plan.adapts:
            visits = usual_visits(len(self._arms(course)))
            return Order(course.number, visits, self._plan.iters_in_epoch(epoch), level_us, None)
        # Nothing is known of what the first epoch costs: it ends by its time.
        visits, until_s = (
            (MOST_VISITS, epoch_target_s(self._budget_s)) if course.visits is None else (course.visits, None)
        )
        return Order(course.number, visits, visits * course.operations, level_us, until_s)

    def _why_stop(self, course: Course, seconds: float) -> Stop | None:
        epochs = self._epochs(course)
        effects = self._effects(course)
        known = [effect for effect in effects if effect is not None]
        widths = [finite_half_width(effect) for effect in effects]
        # Said where every arm has one; the widest.
        width = None if None in widths else max((each for each in widths if each is not None), default=None)
        if width is not None and self._is_precise(epochs, known):
            return Stop(epochs, "precision", width)
        if epochs >= self._plan.epochs:
            return Stop(epochs, "epochs", width)
        if course.spent_s + self._next_s(course, seconds) > self._budget_s:
            return Stop(epochs, "budget", width)
        return None

    def _effects(self, course: Course) -> list[LogMean | None]:
        """Of each arm against the base, or of the only arm."""
        logs = course.logs(self._plan.base_arm, self._arms(course))
        return [log_mean(np.exp(each.epochs)) if each.are_told else None for each in logs]

    def _is_precise(self, epochs: int, effects: list[LogMean]) -> bool:
        precision = self._plan.precision
        if precision is None or not is_look(epochs):
            return False
        return all(is_precise(effect, precision) for effect in effects)

    def _next_s(self, course: Course, seconds: float) -> float:
        """Seconds that another epoch would take."""
        if len(course.levels) == 1:
            # The first epoch paid much that comes only once.
            return epoch_target_s(self._budget_s) if self._plan.adapts else 0.0
        if course.cost is None or course.visits is None:
            return seconds + self._epoch_share_s
        return course.cost.epoch_of(len(self._arms(course)), course.visits, course.samples)

    def _adapt(self, course: Course, units: Sequence[Unit], seconds: float) -> None:
        """Choose the next epochs' visits and operations from what this one cost and how all have varied."""
        epochs = self._epochs(course)
        first = course.visits is None or epochs <= _TYPICAL_EPOCHS
        if not first and not is_look(epochs):
            return
        course.cost = measured_cost(units, seconds + self._epoch_share_s)
        if first:
            course.operations = operations_of(course.cost)
        # Batches are as many as a visit has time for, whatever the operations asked for.
        batched = not MODES[course.case.mode].fenced
        course.samples = _samples_of_visit(units) if batched else course.operations
        before = None if first else course.visits
        logs = course.logs(self._plan.base_arm, self._arms(course))
        course.visits = max(
            visits_of(
                course.cost,
                len(units),
                course.samples,
                split_variance(each.epochs, each.halves, each.visits) if each.are_told else None,
                self._budget_s,
                before,
            )
            for each in logs
        )


def _samples_of_visit(units: Sequence[Unit]) -> float:
    return float(np.mean([count for unit in units for count in unit.visits]))


def _spent_s(former: Run) -> dict[str, float]:
    """What the epochs of each case took in former attempts: from the first sample to the last."""
    ends: dict[tuple[str, int], float] = {}
    for (case, _), units in former.units.items():
        for unit in units:
            end_us = float((unit.start_us + unit.total_us).max())
            ends[case, unit.epoch] = max(end_us, ends.get((case, unit.epoch), 0.0))
    spent: defaultdict[str, float] = defaultdict(float)
    for (case, _), end_us in ends.items():
        spent[case] += end_us / 1e6
    return spent
