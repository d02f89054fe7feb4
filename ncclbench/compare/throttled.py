"""Which GPUs of a run were held back while it was measured, in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from ncclbench.environment.host import format_ranges
from ncclbench.stats.throttled import held_back
from ncclbench.store.model import Run
from ncclbench.units import noun_text

# Reasons that are named; the rest stands on the rows of the run's own report.
_MOST_REASONS = 2


def throttled_text(run: Run, arms: Sequence[str]) -> str | None:
    """ "rank 3 (software power cap)"; None where no GPU was held back on these arms, or none was read."""
    units = [unit for (_, arm), units in run.units.items() if arm in arms for unit in units]
    words, ranks = held_back(units) or ([], [])
    if not words:
        return None
    told = ", ".join(words[:_MOST_REASONS]) + (" .." if len(words) > _MOST_REASONS else "")
    return f"{noun_text(len(ranks), 'rank')} {format_ranges(ranks)} ({told})"
