"""The policy of the straggler drill: which rank is so slow that the others are better off without it.

It knows nothing but how long each rank was in the operations of the newest steps. In a loop that runs free
the last to arrive waits least, so no clock is compared and nobody is asked how it is: the arrival evidence
of ``ncclbench suspects``, by the same test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ncclbench.faults.model import DrillPlan, Policy

# How many of the newest steps are looked at: the shorter tells sooner, the longer in spite of noise. The two
# halves of each must tell the same: a short disturbance fills one half at most.
WINDOWS = (24, 48)
_HALVES = 2

# The chance of a false name at one look, where all ranks are alike and steps do not depend on each other.
# With a look at every step a job of a million steps so has one chance in a thousand of it.
ALPHA = 1e-9

# Detaching and replacing cost about as much as some seconds of slow steps: less than this is left alone, as
# a factor of the time of a step.
LEAST_RATIO = 2.0


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
                if late is not None:
                    return ranks[late]
        return None

    def _late(self, waits_us: NDArray[np.float64]) -> int | None:
        """The row of who is late, of shape (ranks, steps); None where nobody is."""
        # Imported by whoever judges: ranks load no analysis packages.
        from ncclbench.attribution.evidence import arrivals_of
        from ncclbench.attribution.model import Evidence, Places
        from ncclbench.attribution.supporting import late_ranks

        evidence = Evidence(
            places=Places((0,) * len(waits_us), ("this job",)),
            links=[],
            arrivals=[arrivals_of(half, "all_reduce", 0) for half in np.split(waits_us, _HALVES, axis=1)],
        )
        for late in late_ranks(evidence, ALPHA):
            if late.always and 1 + late.lateness_us / self._compute_us >= LEAST_RATIO:
                return late.rank
        return None
