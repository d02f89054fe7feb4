"""Panel: the run against others, as the page of a comparison shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ncclbench.report.figures import Figure
from ncclbench.report.model import Report
from ncclbench.report.panels.panel import Content, Panel

# What a report has itself, once for all its runs.
_LEFT_OUT = ("table", "calibration", "runs")


def build(report: Report) -> Content | None:
    """For every comparison the parts of its page; nothing where none was asked for."""
    if not report.versus:
        return None
    # Imported here: its panels are made as these are, and import them.
    from ncclbench.report.versus import PANELS

    blocks, figures = [], []
    for number, versus in enumerate(report.versus):
        parts: list[dict[str, Any]] = []
        for panel in PANELS.values():
            content = None if panel.name in _LEFT_OUT else panel.build(versus)
            if content is None:
                continue
            own = [_numbered(figure, number) for figure in content.get("figures", ())]
            figures += own
            parts.append(
                {"title": panel.title, "template": panel.template, "content": {**content, "figures": own}}
            )
        blocks.append({"title": versus.title, "parts": parts})
    return {"blocks": blocks, "figures": figures}


PANEL = Panel(
    name="compared",
    order=5,
    title="Run against run",
    description="Ratios of times, new over base: above 1 is slower. Each run is one launch.",
    build=build,
    template="compared.html",
    follows_selection=True,
)


def _numbered(figure: Figure, number: int) -> Figure:
    """The figure under a name of its own: the report has some of the same."""
    return replace(figure, name=f"versus-{number}-{figure.name}")
