"""Panel: what comes before the first timed operation."""

from __future__ import annotations

import statistics
from typing import Any

from ncclbench.report.model import Report, Source
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import time_text
from ncclbench.tables.topologies import WORLD


def build(report: Report) -> Content | None:
    """Per arm: making the group and its first collective, in the first epoch and in later ones."""
    rows = [row for source in report.sources for row in _rows(source)]
    return {"rows": rows, "several_runs": len(report.sources) > 1} if rows else None


PANEL = Panel(
    name="cold",
    order=70,
    title="Cold costs",
    description=(
        "Making a process group and its first collective, the slowest rank of each epoch. These are never "
        "part of the times above."
    ),
    build=build,
    template="cold.html",
)


def _rows(source: Source) -> list[dict[str, Any]]:
    by_arm: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = {}
    for entry in source.run.cold:
        key = (entry["arm"], entry["topology"])
        by_arm.setdefault(key, {}).setdefault(entry["epoch"], []).append(entry)
    rows = []
    for (arm, topology), by_epoch in by_arm.items():
        epochs = [by_epoch[epoch] for epoch in sorted(by_epoch)]
        cells = []
        for part in (("init_us",), ("first_op_us",), ("init_us", "first_op_us")):
            slowest = [max(sum(entry[key] or 0.0 for key in part) for entry in ranks) for ranks in epochs]
            later = time_text(statistics.median(slowest[1:])) if len(slowest) > 1 else "–"
            cells += [time_text(slowest[0]), later]
        rows.append(
            {
                "run": source.label,
                "arm": arm if topology == WORLD.name else f"{arm}, {topology}",
                "cells": cells,
                "epochs": len(epochs),
            }
        )
    return rows
