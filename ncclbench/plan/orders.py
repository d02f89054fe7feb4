"""What is measured in one epoch: told to the ranks by whoever watches how the cases come on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Order:
    """A case's part in an epoch.

    Attributes:
        case: its place among the planned cases.
        visits: to each arm that takes it.
        operations: timed on each arm, in all visits together.
        level_us: the compared statistic of an arm that is slowed by a fraction of it, without that; None
            where not known yet.
        until_s: no visits are added, to any arm, after so many seconds; None where all are made.
    """

    case: int
    visits: int
    operations: int
    level_us: float | None
    until_s: float | None


@dataclass(frozen=True, slots=True)
class Orders:
    """The next epoch, and the cases in it in the order of the plan."""

    epoch: int
    cases: tuple[Order, ...]
