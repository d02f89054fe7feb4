"""The page of ``ncclbench compare``; PANELS holds its parts, as ``panels`` does those of a sweep."""

from __future__ import annotations

from ncclbench.report.panels.panel import Panel
from ncclbench.report.versus import (
    calibration,
    differences,
    fits,
    howto,
    peaks,
    ratios,
    runs,
    sides,
    table,
    unpaired,
    verdict,
)
from ncclbench.report.versus.model import Gate, Versus

_ENTRIES = (
    verdict.PANEL,
    ratios.PANEL,
    peaks.PANEL,
    fits.PANEL,
    sides.PANEL,
    differences.PANEL,
    table.PANEL,
    unpaired.PANEL,
    calibration.PANEL,
    runs.PANEL,
    howto.PANEL,
)

PANELS: dict[str, Panel[Versus]] = {
    panel.name: panel for panel in sorted(_ENTRIES, key=lambda panel: panel.order)
}

__all__ = ["PANELS", "Gate", "Versus"]
