"""The lines above bandwidth curves: what the hardware gives, and what others state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ncclbench.hardware.machine import Machine
from ncclbench.hardware.reference import Reference, reference
from ncclbench.report.figures import Trace, plain, rounded
from ncclbench.report.model import Row
from ncclbench.report.text import list_text, rate_text

Shape = dict[str, Any]

# Readable on the light and the dark page, and no colour of a curve.
_COLOUR = "var(--ink)"


@dataclass(slots=True)
class PeakLines:
    """What is drawn for the rows of one figure.

    Attributes:
        traces: marks, joined by a dotted line, per stated bandwidth.
        shapes, annotations: of the layout, a dashed line with its name per peak.
        values: GB/s that the axis must reach.
        note: why there is no line where there is none, "" where all rows have one.
    """

    traces: list[Trace] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    annotations: list[Shape] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    note: str = ""


def peak_lines(rows: Iterable[Row], machines: Mapping[str, Machine]) -> PeakLines:
    """The references of rows of one operation, each drawn once over the sizes it is of.

    Args:
        rows: with a bandwidth.
        machines: by the rows' ``run``.
    """
    lines = PeakLines()
    peaks: dict[tuple[str, float], None] = {}
    stated: dict[str, dict[int, float]] = {}
    reasons: dict[str, None] = {}
    for row in rows:
        found = reference(row, machines[row["run"]])
        if found.peak_GBs is None:
            reasons[found.why_none] = None
        else:
            peaks[_name(found), found.peak_GBs] = None
        if found.expected is not None:
            stated.setdefault(found.expected.text, {})[row["nbytes"]] = found.expected.busbw_GBs
    for name, peak in peaks:
        lines.shapes.append(_line(peak))
        lines.annotations.append(_label(name, peak))
        lines.values.append(peak)
    for text, points in stated.items():
        lines.traces.append(_stated(text, points))
        lines.values += points.values()
    if reasons:
        lines.note = f"No line for the hardware's peak: {list_text(list(reasons), most=2)}."
    return lines


def _name(found: Reference) -> str:
    return found.link if found.kind != "NIC" else f"NICs, {found.link}"


def _line(peak_GBs: float) -> Shape:
    """Across the whole figure, whichever sizes were measured."""
    return {
        "type": "line",
        "layer": "below",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": peak_GBs,
        "y1": peak_GBs,
        "line": {"color": _COLOUR, "width": 1.5, "dash": "dash"},
    }


def _label(name: str, peak_GBs: float) -> Shape:
    """Below the line's left end: there the curves of small sizes are far away."""
    return {
        "xref": "paper",
        "x": 0.01,
        "xanchor": "left",
        "y": math.log10(peak_GBs),
        "yanchor": "top",
        "showarrow": False,
        "text": f"{plain(name)}: {rate_text(peak_GBs)}",
        "font": {"color": _COLOUR, "size": 11},
    }


def _stated(text: str, points: Mapping[int, float]) -> Trace:
    sizes = sorted(points)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(text),
        "showlegend": False,
        "x": sizes,
        "y": rounded([points[size] for size in sizes]),
        "text": [plain(text)] * len(sizes),
        "hoverinfo": "text",
        "line": {"color": _COLOUR, "width": 1, "dash": "dot"},
        "marker": {"color": _COLOUR, "symbol": "line-ew-open", "size": 12},
    }
