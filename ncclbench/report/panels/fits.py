"""Panel: latency, bandwidth and half-performance size of every curve."""

from __future__ import annotations

from typing import Any

from ncclbench.report.fitted import DESCRIPTION, WORDS, fit_line
from ncclbench.report.imported import worded
from ncclbench.report.model import Report, family_key
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.stats.fits import CurveFit, run_fits


def build(report: Report) -> Content | None:
    """One line per curve that has a figure or comes near to one; nothing where all sweeps are too short."""
    found = [(source.label, fit) for source in report.sources for fit in run_fits(source.run)]
    if all(fit.fit.misfit is None for _, fit in found):
        return None
    return {
        "lines": [_line(report, label, fit) for label, fit in found],
        "named": len(report.series) > 1,
        "words": WORDS,
    }


PANEL = Panel(
    name="fits",
    order=45,
    title="Latency and bandwidth",
    description=DESCRIPTION,
    build=build,
    template="fits.html",
)


def _line(report: Report, label: str, fit: CurveFit) -> dict[str, Any]:
    (row,) = worded([{"run": label, **fit.keys}])
    return {
        "family": report.families[family_key(row)].title,
        "mode": row["mode"],
        "series": report.series[label, row["arm"]].label,
        **fit_line(fit),
    }
