"""The policy of the straggler drill: which rank is so slow that the others are better off without it.

It knows nothing but how long each rank was in the operations of the newest steps. In a loop that runs free
the last to arrive waits least, so no clock is compared and nobody is asked how it is: the arrival evidence
of ``ncclbench suspects``, by the same test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ncclbench.faults.model import LEAST_RATIO, DrillPlan, Policy, Spared

if TYPE_CHECKING:
    from ncclbench.attribution.supporting import Late

# How many of the newest steps are looked at: the shorter tells sooner, the longer in spite of noise. The two
# halves of each must tell the same: a short disturbance fills one half at most.
WINDOWS = (24, 48)
_HALVES = 2

# The chance of a false name at one look, where all ranks are alike and steps do not depend on each other.
# With a look at every step a job of a million steps so has one chance in a thousand of it.
ALPHA = 1e-9

# After so many steps a rank that is late by less is left alone for good, and where nobody is late nobody is
# looked for any longer.
_SPARED_STEPS = 3 * WINDOWS[-1]
_MOST_STEPS = 10 * WINDOWS[-1]


def make_policy(plan: DrillPlan) -> Policy:
    """For the drill's steps, each of ``plan.compute_s`` and one operation."""
    return StragglerPolicy(plan.compute_s)


class StragglerPolicy:
    """Names a rank that came last to nearly all operations of both halves of a window, by much."""

    def __init__(self, compute_s: float) -> None:
        """``compute_s``: what a healthy rank does between two operations."""
        self._compute_us = compute_s * 1e6

    def look(self, waits_us: Mapping[int, Sequence[float]]) -> int | None:
        """The rank to detach, or None; see ``model.Policy``."""
        ranks = sorted(waits_us)
        if len(ranks) < 3:
            return None
        known = min(len(waits_us[rank]) for rank in ranks)
        for window in WINDOWS:
            if known >= window:
                late = self._late(np.array([waits_us[rank][-window:] for rank in ranks]))
                if late is not None and self._ratio(late) >= LEAST_RATIO:
                    return ranks[late.rank]
        return None

    def why_not(self, waits_us: Mapping[int, Sequence[float]], steps: int) -> Spared | None:
        """Nobody is late, or not by enough; see ``model.Policy``."""
        ranks = sorted(waits_us)
        window = min(WINDOWS[-1], *(len(waits_us[rank]) for rank in ranks))
        if steps < _SPARED_STEPS or window < WINDOWS[-1]:
            return None
        late = self._late(np.array([waits_us[rank][-window:] for rank in ranks]))
        if late is not None:
            if self._ratio(late) >= LEAST_RATIO:
                return None
            rank = ranks[late.rank]
            # Rounded down, as it is less.
            ratio = math.floor(10 * self._ratio(late)) / 10
            words = f"a step takes rank {rank} {ratio} times as long as the others, and a recovery pays from "
            return Spared(rank, f"{words}{LEAST_RATIO:g} times on")
        if steps < _MOST_STEPS:
            return None
        return Spared(None, f"in {_MOST_STEPS} steps no rank came last often enough not to be chance")

    def _ratio(self, late: Late) -> float:
        """How many times as long as the middle rank a step takes it."""
        return 1 + late.lateness_us / self._compute_us

    def _late(self, waits_us: NDArray[np.float64]) -> Late | None:
        """Who is late nearly always, by waits of shape (ranks, steps); its rank is the row."""
        # Imported by whoever judges: ranks load no analysis packages.
        from ncclbench.attribution.evidence import arrivals_of
        from ncclbench.attribution.model import Evidence, Places
        from ncclbench.attribution.supporting import late_ranks

        evidence = Evidence(
            places=Places((0,) * len(waits_us), ("this job",)),
            links=[],
            arrivals=[arrivals_of(half, "all_reduce", 0) for half in np.split(waits_us, _HALVES, axis=1)],
        )
        return next((late for late in late_ranks(evidence, ALPHA) if late.always), None)
