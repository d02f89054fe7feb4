"""Panel: each rank's last operation, those to blame first."""

from __future__ import annotations

from typing import Any

from ncclbench.flight.overview import (
    MISMATCHED,
    MISSING,
    NO_DUMP,
    RankState,
    by_blame,
    operation_text,
    place_text,
    state_text,
)
from ncclbench.report.flight.model import Flight
from ncclbench.report.panels.flight import HasFlights
from ncclbench.report.panels.panel import Content, Panel

# Lines of the table; ``flight --json`` has them all.
MOST_LINES = 256

# How a line looks, by the part of its rank.
_CLASSES = {MISSING: "failed", MISMATCHED: "failed", NO_DUMP: "skipped"}


def build(subject: HasFlights) -> Content | None:
    """A table for each set of dumps."""
    if not subject.flights:
        return None
    return {"blocks": [_block(flight) for flight in subject.flights]}


PANEL: Panel[Any] = Panel(
    name="flight-ranks",
    order=-11,
    title="Ranks",
    description="The last operation that each rank issued.",
    build=build,
    template="flight-ranks.html",
)


def _block(flight: Flight) -> dict[str, Any]:
    states = by_blame(flight.states)
    return {
        "label": flight.label,
        "lines": [_line(flight, state) for state in states[:MOST_LINES]],
        "more": max(0, len(states) - MOST_LINES),
        "has_hosts": any(state.host is not None for state in states),
    }


def _line(flight: Flight, state: RankState) -> dict[str, str]:
    last = state.operation
    return {
        "class": _CLASSES.get(state.part, ""),
        "rank": str(state.rank),
        "host": state.host or "–",
        "part": state.part,
        "operation": "–" if last is None else operation_text(last.collective, last.sequence),
        "group": "–" if last is None else flight.group(last.group),
        "state": "–" if last is None else state_text(last),
        "where": ("" if last is None else place_text(last)) or "–",
    }
