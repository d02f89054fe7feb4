"""An epoch that several teams measure in turns, each in worker processes of its own, as one epoch.

Teams are needed where arms cannot stand side by side: variables that a library reads once, or another Python.
What is compared then is epoch against epoch, a few seconds apart, and no longer block against block.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ncclbench.plan.orders import Order, Orders
from ncclbench.store.model import Unit


@dataclass(slots=True)
class _Shared:
    """One case in the epoch, as far as it has come.

    Attributes:
        units: of the teams that were there.
        seconds: that it has taken, of all of them together.
        began_s: when the first team began with it, on the supervisor's clock.
    """

    began_s: float
    units: list[Unit] = field(default_factory=list)
    seconds: float = 0.0


class SharedEpoch:
    """What all teams are told to measure, and what they have measured up to now."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self._cases: dict[str, _Shared] = {}

    def orders_for(self, wanted: Sequence[int]) -> Orders | None:
        """What a team is told.

        Args:
            wanted: cases that one of its arms takes, by their place among the planned ones.
        """
        cases: tuple[Order, ...] = tuple(order for order in self.orders.cases if order.case in set(wanted))
        return replace(self.orders, cases=cases) if cases else None

    def add(self, key: str, units: Sequence[Unit], seconds: float) -> list[Unit]:
        """A team has measured a case: its units, behind those of the teams before it.

        Returns:
            units with ``turns`` counted over all teams, and ``start_us`` since the first team's first sample,
            as well as the supervisor can tell.
        """
        began_s = time.monotonic() - seconds
        shared = self._cases.setdefault(key, _Shared(began_s))
        turns = 1 + max((turn for unit in shared.units for turn in unit.turns), default=-1)
        later_us = 1e6 * (began_s - shared.began_s)
        placed = [
            replace(
                unit,
                start_us=unit.start_us + later_us,
                turns=tuple(turn + turns for turn in unit.turns),
            )
            for unit in units
        ]
        shared.units += placed
        shared.seconds += seconds
        return placed

    def measured(self) -> Iterator[tuple[str, list[Unit], float]]:
        """Every case with its units and seconds, once all teams were there."""
        for key, shared in self._cases.items():
            yield key, shared.units, shared.seconds
