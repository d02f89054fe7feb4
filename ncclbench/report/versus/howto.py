"""Panel: how to read a comparison."""

from __future__ import annotations

from ncclbench.compare.between import FEWEST_LAUNCHES, FEWEST_NODES
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.versus.model import Versus
from ncclbench.stats.intervals import FEWEST_EPOCHS
from ncclbench.tables.modes import MODES


def build(versus: Versus) -> Content:
    """Only what these rows need."""
    modes = {row["mode"] for row in versus.rows}
    return {
        "units": {row["unit"] for row in versus.rows},
        "fewest_launches": FEWEST_LAUNCHES,
        "fewest_nodes": FEWEST_NODES,
        "fewest_epochs": FEWEST_EPOCHS,
        "modes": [mode for mode in MODES.values() if mode.name in modes],
    }


PANEL: Panel[Versus] = Panel(
    name="howto",
    order=90,
    title="How to read this",
    description="",
    build=build,
    template="versus-howto.html",
)
