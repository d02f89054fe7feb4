"""PANELS: the parts of a report; adding one is adding a file here and its template."""

from __future__ import annotations

from ncclbench.report.model import Report
from ncclbench.report.panels import (
    calibration,
    cold,
    compared,
    comparison,
    curves,
    environment,
    fits,
    howto,
    imported,
    links,
    ranks,
    requirements,
    spread,
    suspects,
    table,
    unmeasured,
    verdict,
)
from ncclbench.report.panels.panel import Content, Panel

_ENTRIES = (
    requirements.PANEL,
    suspects.PANEL,
    links.PANEL,
    verdict.PANEL,
    curves.PANEL,
    comparison.PANEL,
    compared.PANEL,
    ranks.PANEL,
    spread.PANEL,
    fits.PANEL,
    table.PANEL,
    unmeasured.PANEL,
    imported.PANEL,
    calibration.PANEL,
    cold.PANEL,
    environment.PANEL,
    howto.PANEL,
)

PANELS: dict[str, Panel[Report]] = {
    panel.name: panel for panel in sorted(_ENTRIES, key=lambda panel: panel.order)
}

__all__ = ["PANELS", "Content", "Panel"]
