"""PANELS: the parts of a report; adding one is adding a file here, with a PANEL in it, and its template."""

from __future__ import annotations

import importlib
import pkgutil

from ncclbench.report.flight.model import FlightPage
from ncclbench.report.model import Report
from ncclbench.report.panels import flight, flight_ranks, flight_timeline
from ncclbench.report.panels.panel import Content, Panel


def _found() -> list[Panel[Report]]:
    """What the modules here call PANEL, in the order in which they stand on the page."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    panels = [module.PANEL for module in modules if hasattr(module, "PANEL")]
    return sorted(panels, key=lambda panel: panel.order)


PANELS: dict[str, Panel[Report]] = {panel.name: panel for panel in _found()}

# The parts that a page of ``flight`` has, which knows of no run.
FLIGHT_PANELS: dict[str, Panel[FlightPage]] = {
    panel.name: panel for panel in (flight.PANEL, flight_timeline.PANEL, flight_ranks.PANEL)
}

__all__ = ["FLIGHT_PANELS", "PANELS", "Content", "Panel"]
