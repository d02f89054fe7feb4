"""Panel: what comes before the first timed operation."""

from __future__ import annotations

import statistics
from typing import Any

from ncclbench.report.model import Report, Source
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import time_text
from ncclbench.stats.cold import FIRST, INIT, TOGETHER, cold_epochs, slowest_us
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
    rows = []
    for (arm, topology), by_epoch in cold_epochs(source.run).items():
        cells = []
        for part in ((INIT,), (FIRST,), TOGETHER):
            slowest = list(slowest_us(by_epoch, part).values())
            later = time_text(statistics.median(slowest[1:])) if len(slowest) > 1 else "–"
            cells += [time_text(slowest[0]), later]
        rows.append(
            {
                "run": source.label,
                "arm": arm if topology == WORLD.name else f"{arm}, {topology}",
                "cells": cells,
                "epochs": len(by_epoch),
            }
        )
    return rows
