"""Panel: what differs in the environment and in what was asked for, and what else is to be known."""

from __future__ import annotations

from ncclbench.environment.against import side_text
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.versus.model import Versus


def build(versus: Versus) -> Content:
    """Always there: that nothing differs is worth knowing."""
    comparison = versus.comparison
    return {
        "one_job": comparison.base.runs[0] is comparison.new.runs[0],
        "imported": any(run.is_imported for _, run in versus.runs),
        "base": comparison.base.label,
        "new": comparison.new.label,
        "lines": [
            (str(change["what"]), side_text(change, "base"), side_text(change, "new"))
            for change in comparison.differences
        ],
        "notes": comparison.notes,
    }


PANEL: Panel[Versus] = Panel(
    name="differences",
    order=24,
    title="What differs",
    description="What was recorded and is not alike, the likeliest reasons for a difference in speed first.",
    build=build,
    template="versus-differences.html",
)
