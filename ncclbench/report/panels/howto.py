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
    """Only what this report's runs need; nothing where none needs any."""
    rows = report.rows
    factors = {}
    for row in rows:
        if row["nranks"] and row["op"] in COLLECTIVES and COLLECTIVES[row["op"]].has_data:
            factors[row["op"], row["nranks"]] = COLLECTIVES[row["op"]].busbw_factor(row["nranks"])
    modes = {row["mode"] for row in rows}
    clocks = {row["clock"] for row in good_rows(rows)}
    kinds = {source.run.meta.get("kind") for source in report.sources}
    needed = {
        "sweeps": bool(report.sweeps),
        "searches": bool(report.searches),
        "drills": any(source.run.is_drill for source in report.sources),
        "messages": "p2p" in kinds,
        "overlaps": "overlap" in kinds,
        "transfers": "transport" in kinds,
    }
    if not any(needed.values()):
        return None
    return {
        **needed,
        "factors": [
            {"op": op, "nranks": nranks, "factor": three_digits(factor)}
            for (op, nranks), factor in factors.items()
        ],
        "modes": [mode for mode in MODES.values() if mode.name in modes],
        "clocks": clocks,
        "measured": clocks - {CLOCK},
        "compared": bool(report.comparisons),
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
