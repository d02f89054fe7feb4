"""Panel: each side against the peak of its own hardware, at the largest message of every collective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ncclbench.hardware.machine import machine_of
from ncclbench.hardware.reference import share_text
from ncclbench.report.model import Row, family_key, in_order
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import rate_text
from ncclbench.report.versus.model import Versus
from ncclbench.stats.imported import CLOCK
from ncclbench.store.model import Run
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.modes import BANDWIDTH_MODES
from ncclbench.units import format_bytes


def build(versus: Versus) -> Content | None:
    """One line per collective; nothing where no side was measured on a GPU or no row has a bandwidth."""
    machines = {word: side.runs[0] for word, side in versus.sides}
    lines = [
        {
            "family": versus.families[key].title,
            "mode": row["mode"],
            "size": format_bytes(row["nbytes"]),
            "sides": [_side(run, row, word) for word, run in machines.items()],
        }
        for key, row in _largest(versus)
    ]
    shown = [side for line in lines for side in line["sides"]]
    if all(row["clock"] not in ("device", CLOCK) for row in versus.rows) or not any(
        side["rate"] for side in shown
    ):
        return None
    return {"lines": lines, "base": versus.comparison.base.label, "new": versus.comparison.new.label}


PANEL: Panel[Versus] = Panel(
    name="peaks",
    order=14,
    title="Against its own peak",
    description=(
        "Bus bandwidth at the largest message, and its share of what the hardware of that side can carry."
    ),
    build=build,
    template="versus-peaks.html",
)


def _largest(versus: Versus) -> Iterator[tuple[str, Row]]:
    """The largest row of every family and pair, in the mode that shows bandwidth best."""
    for key in versus.families:
        own = [row for row in versus.rows if family_key(row) == key and row["nbytes"] > 0]
        for pair in versus.pairs:
            rows = [
                row for row in own if (row["base"], row["new"]) == pair and row["base_us"] and row["new_us"]
            ]
            modes = in_order({row["mode"] for row in rows}, BANDWIDTH_MODES)
            if modes:
                yield key, max((row for row in rows if row["mode"] == modes[0]), key=_nbytes)


def _nbytes(row: Row) -> int:
    return int(row["nbytes"])


def _side(run: Run, row: Row, word: str) -> dict[str, Any]:
    """One side of a row as the table of peaks knows rows: with the bandwidth that its time gives."""
    entry = COLLECTIVES.get(row["op"])
    factor = entry.busbw_factor(row["nranks"]) if entry and row["nranks"] else None
    rate = None if factor is None else row["nbytes"] / row[f"{word}_us"] / 1e3 * factor
    known = {**row, "busbw_GBs": rate, "shared_gpu": run.plan.share_gpu}
    return {
        "rate": rate_text(rate) if rate else "",
        "share": share_text(known, machine_of(run)) or "",
    }
