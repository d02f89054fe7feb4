"""Panel: how to read the numbers."""

from __future__ import annotations

from ncclbench.attribution.links import FALSE_NAMES, MARGIN
from ncclbench.report.model import Report, good_rows
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import three_digits
from ncclbench.stats.imported import CLOCK
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.modes import MODES


def build(report: Report) -> Content | None:
    """Only what this report's rows need."""
    rows = report.rows
    factors = {}
    for row in rows:
        if row["nranks"] and row["op"] in COLLECTIVES and COLLECTIVES[row["op"]].has_data:
            factors[row["op"], row["nranks"]] = COLLECTIVES[row["op"]].busbw_factor(row["nranks"])
    modes = {row["mode"] for row in rows}
    clocks = {row["clock"] for row in good_rows(rows)}
    return {
        "factors": [
            {"op": op, "nranks": nranks, "factor": three_digits(factor)}
            for (op, nranks), factor in factors.items()
        ],
        "modes": [mode for mode in MODES.values() if mode.name in modes],
        "clocks": clocks,
        "measured": clocks - {CLOCK},
        "compared": bool(report.comparisons),
        "sweeps": bool(report.sweeps),
        "searches": bool(report.searches),
        "drills": any(source.run.is_drill for source in report.sources),
        "messages": any(source.run.meta.get("kind") == "p2p" for source in report.sources),
        "margin": f"{1 + MARGIN:g}x",
        "false_names": f"{1 / FALSE_NAMES:.0f}",
    }


PANEL = Panel(
    name="howto",
    order=90,
    title="How to read this",
    description="",
    build=build,
    template="howto.html",
)
