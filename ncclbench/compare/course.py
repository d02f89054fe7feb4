"""What is known of one case while it is measured: its arms' statistics epoch by epoch, and its costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from ncclbench.compare.split import FEWEST_OPERATIONS, Cost
from ncclbench.plan.model import Case
from ncclbench.stats.intervals import Floats
from ncclbench.store.model import Stop, Unit


@dataclass(frozen=True, slots=True)
class Level:
    """The compared statistic of an arm in an epoch, microseconds: of all samples, and of each half."""

    attempt: int
    whole_us: float
    halves_us: tuple[float, float]
    visits: int


@dataclass(frozen=True, slots=True)
class Logs:
    """Logarithms of what is compared: an arm's statistic, or its ratio to the base's.

    Attributes:
        epochs: shape (n,).
        halves: shape (n, 2): of either half of the visits.
        visits: shape (n,): to each arm.
    """

    epochs: Floats
    halves: Floats
    visits: Floats

    @property
    def are_told(self) -> bool:
        """Whether the clock told every time from zero."""
        return bool(np.isfinite(self.epochs).all() and np.isfinite(self.halves).all())


@dataclass(slots=True)
class Course:
    """One case so far.

    Attributes:
        number: its place among the planned cases.
        levels: by epoch and arm.
        undelayed_us: of an arm that is slowed on purpose, the statistic without that, one per epoch.
        spent_s: what it has taken.
        cost: as last measured; None before.
        operations: timed in a visit.
        samples: what a visit yields: the operations, or batches of them.
        visits: to each arm in the next epoch; None where that is not known yet.
        stop: why it gets no more epochs; None while it does.
    """

    number: int
    case: Case
    levels: dict[int, dict[str, Level]] = field(default_factory=dict)
    undelayed_us: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    cost: Cost | None = None
    operations: int = FEWEST_OPERATIONS
    samples: float = FEWEST_OPERATIONS
    visits: int | None = None
    stop: Stop | None = None

    def add(self, unit: Unit, quantile: float) -> None:
        """Another epoch of an arm; ``quantile`` is the compared statistic's."""
        times_us = unit.time_us
        cut = sum(unit.visits[: len(unit.visits) // 2]) or len(times_us)
        parts = (times_us, times_us[:cut], times_us[cut:] if cut < len(times_us) else times_us)
        whole, first, second = (float(np.quantile(part, quantile)) for part in parts)
        level = Level(unit.attempt, whole, (first, second), len(unit.visits))
        self.levels.setdefault(unit.epoch, {})[unit.arm] = level
        if unit.delay_us is not None:
            self.undelayed_us.append(float(np.quantile(unit.undelayed_us, quantile)))

    def complete(self, arms: Collection[str]) -> list[int]:
        """The epochs that are measured on all of the arms."""
        return [epoch for epoch, of_arms in self.levels.items() if set(arms) <= of_arms.keys()]

    def next_epoch(self, arms: Collection[str]) -> int:
        """The first epoch that is not."""
        epoch = 0
        while epoch in self.levels and set(arms) <= self.levels[epoch].keys():
            epoch += 1
        return epoch

    def logs(self, base: str, arms: Sequence[str]) -> list[Logs]:
        """For each arm but the base its ratio to it; of arms without the base, or of one, itself."""
        others = [arm for arm in arms if arm != base]
        if base not in arms or not others:
            return [self._alone(arm) for arm in arms]
        return [self._against(base, arm) for arm in others]

    def _alone(self, arm: str) -> Logs:
        levels = [of_arms[arm] for of_arms in self.levels.values() if arm in of_arms]
        return _logs(
            np.array([level.whole_us for level in levels]),
            np.array([level.halves_us for level in levels]),
            [level.visits for level in levels],
        )

    def _against(self, base: str, new: str) -> Logs:
        pairs = [
            (of_arms[base], of_arms[new])
            for of_arms in self.levels.values()
            if base in of_arms and new in of_arms and of_arms[base].attempt == of_arms[new].attempt
        ]
        with np.errstate(divide="ignore", invalid="ignore"):
            wholes = np.divide([two.whole_us for _, two in pairs], [one.whole_us for one, _ in pairs])
            halves = np.divide([two.halves_us for _, two in pairs], [one.halves_us for one, _ in pairs])
        return _logs(wholes, halves, [one.visits for one, _ in pairs])


def _logs(wholes: Floats, halves: Floats, visits: Sequence[int]) -> Logs:
    with np.errstate(divide="ignore", invalid="ignore"):
        return Logs(np.log(wholes), np.log(halves), np.array(visits, dtype=np.float64))
