"""PANELS: the parts of a report; adding one is adding a file here and its template."""

from __future__ import annotations

from ncclbench.report.flight.model import FlightPage
from ncclbench.report.model import Report
from ncclbench.report.panels import (
    calibration,
    calls,
    cold,
    compared,
    comparison,
    curves,
    decision,
    drill,
    environment,
    fits,
    flight,
    flight_ranks,
    flight_timeline,
    group_costs,
    groups,
    howto,
    imported,
    links,
    overlap,
    p2p,
    ranks,
    requirements,
    settings,
    spread,
    suspects,
    table,
    transport,
    unmeasured,
    verdict,
)
from ncclbench.report.panels.panel import Content, Panel

_ENTRIES = (
    decision.PANEL,
    requirements.PANEL,
    flight.PANEL,
    flight_timeline.PANEL,
    flight_ranks.PANEL,
    drill.PANEL,
    transport.PANEL,
    overlap.PANEL,
    p2p.PANEL,
    group_costs.PANEL,
    suspects.PANEL,
    links.PANEL,
    verdict.PANEL,
    curves.PANEL,
    comparison.PANEL,
    compared.PANEL,
    ranks.PANEL,
    spread.PANEL,
    fits.PANEL,
    calls.PANEL,
    table.PANEL,
    unmeasured.PANEL,
    imported.PANEL,
    calibration.PANEL,
    cold.PANEL,
    environment.PANEL,
    groups.PANEL,
    settings.PANEL,
    howto.PANEL,
)

PANELS: dict[str, Panel[Report]] = {
    panel.name: panel for panel in sorted(_ENTRIES, key=lambda panel: panel.order)
}

# The parts that a page of ``flight`` has, which knows of no run.
FLIGHT_PANELS: dict[str, Panel[FlightPage]] = {
    panel.name: panel for panel in (flight.PANEL, flight_timeline.PANEL, flight_ranks.PANEL)
}

__all__ = ["FLIGHT_PANELS", "PANELS", "Content", "Panel"]
