"""Panel: arms with settings, and what the libraries said of them."""

from __future__ import annotations

from typing import Any

from ncclbench.report.model import Report, Source
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.stats.settings import asked_words, found_words


def build(report: Report) -> Content | None:
    """Per arm and setting what was found."""
    rows = [row for source in report.sources for row in _rows(source)]
    if not rows:
        return None
    return {
        "rows": rows,
        "several_runs": len(report.sources) > 1,
        "chosen": any(row["chosen"] for row in rows),
        "apart": any(len(source.run.plan.teams) > 1 for source in report.sources),
    }


PANEL = Panel(
    name="settings",
    order=36,
    title="Settings of arms",
    description=(
        "What was set, and what the libraries themselves said of it in a launch before the first timed one. "
        "An arm of which a setting was not in force was not measured."
    ),
    build=build,
    template="settings.html",
)


def _rows(source: Source) -> list[dict[str, Any]]:
    arms = source.run.meta.get("arms") or {}
    return [
        {
            "run": source.label,
            "arm": arm.id,
            "asked": asked_words(reading),
            "found": found_words(reading),
            "chosen": arms[arm.id].get("algorithms"),
            "bad": reading["in_force"] is False,
        }
        for arm in source.run.plan.arms
        for reading in arms.get(arm.id, {}).get("settings") or ()
    ]
