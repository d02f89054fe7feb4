"""How a run ended, in a few words for headlines."""

from __future__ import annotations

from ncclbench.store.model import Run
from ncclbench.store.reader import ENDED_SILENTLY

_ENDINGS = {"interrupted": "interrupted", "running": "still running"}


def ending_of(run: Run, failed: str) -> str | None:
    """None for a run that is complete; ``failed`` for one that failed."""
    if ENDED_SILENTLY in run.problems:
        return "ended without a word (killed, or disk full?)"
    status = str(run.meta.get("status", "complete"))
    return failed if status == "failed" else _ENDINGS.get(status)
