"""Panel: operations of each rank over time, and who came to which one."""

from __future__ import annotations

from typing import Any

from ncclbench.report.flight.figures import arrivals_map, timeline
from ncclbench.report.panels.flight import HasFlights
from ncclbench.report.panels.panel import Content, Panel


def build(subject: HasFlights) -> Content | None:
    """Two figures for each set of dumps, as far as there is something to draw."""
    blocks = []
    for number, flight in enumerate(subject.flights):
        drawn = (arrivals_map(flight, f"flight-map-{number}"), timeline(flight, f"flight-time-{number}"))
        figures = [figure for figure in drawn if figure is not None]
        if figures:
            blocks.append({"label": flight.label, "figures": figures})
    if not blocks:
        return None
    return {"blocks": blocks, "figures": [figure for block in blocks for figure in block["figures"]]}


PANEL: Panel[Any] = Panel(
    name="flight-timeline",
    order=-12,
    title="Operations",
    description="By number, which needs no clock, and over time.",
    build=build,
    template="flight-timeline.html",
)
