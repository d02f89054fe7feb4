"""Panel: arms side by side, as ratios of times with their intervals and verdicts."""

from __future__ import annotations

from typing import Any

from ncclbench.report.calibrations import usable_calibration
from ncclbench.report.claims import GLYPHS
from ncclbench.report.effects import heat_legend, heat_table, ratio_figure, shift_figure
from ncclbench.report.model import Report, Row, Series
from ncclbench.report.panels.panel import Content, Panel


def build(report: Report) -> Content | None:
    """A table of ratios for all cases, the ratios of one family, and one case at several quantiles."""
    rows = report.comparisons
    if not rows:
        return None

    def look(row: Row) -> Series:
        return report.series[row["run"], row["new"]]

    figures = (ratio_figure(rows, look), shift_figure(rows, look))
    return {
        "figures": [figure for figure in figures if figure.plots],
        "tables": _tables(report),
        "glyphs": GLYPHS,
        "legend": heat_legend(rows),
    }


PANEL = Panel(
    name="comparison",
    order=20,
    title="Arms side by side",
    description="Time on the new arm over time on the base arm, paired by epoch: above 1 is slower.",
    build=build,
    template="comparison.html",
    follows_selection=True,
)


def _tables(report: Report) -> list[dict[str, Any]]:
    """One table per pair of arms."""
    pairs: dict[tuple[str, str, str], list[Row]] = {}
    for row in report.comparisons:
        pairs.setdefault((row["run"], row["base"], row["new"]), []).append(row)
    calibrations = {source.label: usable_calibration(source.run.meta) for source in report.sources}
    several_runs = len(report.sources) > 1
    return [
        heat_table(
            (f"{run}: " if several_runs else "") + f"{new} against {base}",
            rows,
            report.families,
            lambda row: calibrations[row["run"]],
        )
        for (run, base, new), rows in pairs.items()
    ]
