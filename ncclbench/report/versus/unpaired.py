"""Panel: cases that found no partner, by side and reason."""

from __future__ import annotations

from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text
from ncclbench.report.versus.model import Versus


def build(versus: Versus) -> Content | None:
    """Grouped by side and reason, with counts and the first cases."""
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in versus.comparison.unpaired:
        groups.setdefault((str(entry["side"]), str(entry["reason"])), []).append(str(entry["case"]))
    if not groups:
        return None
    return {
        "groups": [
            {"side": side, "reason": reason, "count": len(cases), "which": list_text(cases)}
            for (side, reason), cases in sorted(groups.items(), key=lambda group: -len(group[1]))
        ]
    }


PANEL: Panel[Versus] = Panel(
    name="unpaired",
    order=40,
    title="Not compared",
    description="Nothing is dropped silently: every case of both sides is compared or named here.",
    build=build,
    template="versus-unpaired.html",
)
