"""What is paid before the first timed operation: making the group and its first collective, per epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ncclbench.store.model import Run

INIT, FIRST = "init_us", "first_op_us"
# A lazy backend pays at its first operation what an eager one pays when the group is made.
TOGETHER = (INIT, FIRST)

# Entries of ``Run.cold`` by epoch.
ByEpoch = dict[int, list[dict[str, Any]]]


def cold_epochs(run: Run) -> dict[tuple[str, str], ByEpoch]:
    """The entries of ``run.cold`` by (arm, topology), then by epoch, in order of epoch."""
    found: dict[tuple[str, str], ByEpoch] = {}
    for entry in run.cold:
        found.setdefault((entry["arm"], entry["topology"]), {}).setdefault(entry["epoch"], []).append(entry)
    return {key: {epoch: own[epoch] for epoch in sorted(own)} for key, own in found.items()}


def slowest_us(by_epoch: ByEpoch, parts: Sequence[str] = TOGETHER) -> dict[int, float]:
    """By epoch, the sum of the parts on the rank where it is largest, microseconds; a part not seen is 0."""
    return {
        epoch: float(max(sum(entry[part] or 0.0 for part in parts) for entry in ranks))
        for epoch, ranks in by_epoch.items()
    }
