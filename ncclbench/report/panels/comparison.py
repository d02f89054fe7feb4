"""Panel: arms side by side, as ratios of times with their intervals and verdicts."""

from __future__ import annotations

from typing import Any

from ncclbench.report.figures import Figure, Plot, Trace, plain, ratio_axis, rounded, side_by_side, size_axis
from ncclbench.report.model import LATENCY_MODES, Report, Row, Series, family_key, in_order
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import count_text, ratio_text
from ncclbench.units import format_bytes

# What a verdict looks like where there is no room for its word.
GLYPHS = {"faster": "▼", "slower": "▲", "same": "=", "unclear": ""}


def build(report: Report) -> Content | None:
    """A table of ratios for all cases, and the ratios of one family with their intervals."""
    if not report.comparisons:
        return None
    return {"figures": [_ratios(report)], "tables": _tables(report), "glyphs": GLYPHS}


PANEL = Panel(
    name="comparison",
    order=20,
    title="Arms side by side",
    description="Time on the new arm over time on the base arm, paired by epoch: above 1 is slower.",
    build=build,
    template="comparison.html",
    follows_selection=True,
)


def verdict_text(row: Row) -> str:
    """A comparison in words: "1.08x time, slower"; the tail's words where there are any."""
    words = row["verdict"] + (f", {row['tail']}" if row.get("tail") else "")
    return f"{ratio_text(row['ratio'])} time, {words}" if row["ratio"] is not None else words


def _detail(row: Row) -> str:
    interval = "" if row["ratio"] is None else f" [{ratio_text(row['ci_low'])}, {ratio_text(row['ci_high'])}]"
    note = f" ({row['note']})" if row.get("note") else ""
    return f"{verdict_text(row)}{interval}, {count_text(row['epochs'], 'epoch')}{note}"


def _tables(report: Report) -> list[dict[str, Any]]:
    """One table per pair of arms: a line per family and mode, a column per size."""
    pairs: dict[tuple[str, str, str], list[Row]] = {}
    for row in report.comparisons:
        pairs.setdefault((row["run"], row["base"], row["new"]), []).append(row)
    tables = []
    for (run, base, new), rows in pairs.items():
        sizes = sorted({row["nbytes"] for row in rows})
        lines: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        for row in rows:
            cells = lines.setdefault((family_key(row), row["mode"]), {})
            cells[row["nbytes"]] = {
                "verdict": row["verdict"],
                "ratio": "" if row["ratio"] is None else f"{row['ratio']:.2f}",
                "detail": f"{format_bytes(row['nbytes'])}: {_detail(row)}",
                "beyond": bool(row["beyond_margin"]),
            }
        tables.append(
            {
                "title": (f"{run}: " if len(report.sources) > 1 else "") + f"{new} against {base}",
                "sizes": [format_bytes(size) for size in sizes],
                "lines": [
                    {
                        "family": report.families[key],
                        "mode": mode,
                        "cells": [cells.get(size) for size in sizes],
                    }
                    for (key, mode), cells in lines.items()
                ],
            }
        )
    return tables


def _ratios(report: Report) -> Figure:
    grouped: dict[str, dict[str, list[Row]]] = {}
    for row in report.comparisons:
        if row["ratio"] is not None and row["nbytes"] > 0:
            grouped.setdefault(family_key(row), {}).setdefault(row["mode"], []).append(row)
    plots = {
        family: {mode: _ratio_plot(report, modes[mode]) for mode in in_order(modes, LATENCY_MODES)}
        for family, modes in grouped.items()
    }
    return Figure(
        "ratios",
        "Ratio of times",
        "Ratio of times of the new arm to the base arm with its 95 % interval, by message size",
        "mode",
        320,
        plots,
    )


def _ratio_plot(report: Report, rows: list[Row]) -> Plot:
    rows = sorted(rows, key=lambda row: int(row["nbytes"]))
    by_arm: dict[Series, list[Row]] = {}
    margins: dict[int, float] = {}
    for row in rows:
        by_arm.setdefault(report.series[row["run"], row["new"]], []).append(row)
        margins[row["nbytes"]] = max(row["margin"], margins.get(row["nbytes"], 0.0))
    shifts = side_by_side(len(by_arm))
    points = [_points(*arm, shift) for arm, shift in zip(by_arm.items(), shifts, strict=True)]
    ends = [1 + margin for margin in margins.values()]
    for row in rows:
        ends += [value for value in (row["ci_low"], row["ci_high"], row["ratio"]) if value]
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "layer": "below"}
    layout = {
        "xaxis": size_axis(margins),
        "yaxis": ratio_axis(ends, "new time / base time"),
        "shapes": [line | {"line": {"color": "var(--muted)", "width": 1}}],
        "showlegend": len(by_arm) > 1,
    }
    note = "Shaded: the margin. Filled points are faster or slower, open ones same or unclear."
    return Plot([_margin_band(margins), *points], layout, note)


def _margin_band(margins: dict[int, float]) -> Trace:
    """Where two arms count as the same, by size: small operations have the margin in microseconds."""
    sizes = list(margins)
    high = [1 + margin for margin in margins.values()]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*sizes, *reversed(sizes)],
        "y": rounded([*high, *(1 / ratio for ratio in reversed(high))]),
        "fill": "toself",
        "fillcolor": "var(--margin)",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _points(series: Series, rows: list[Row], shift: float) -> Trace:
    certain = [row["verdict"] in ("faster", "slower") for row in rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(series.label),
        "x": [row["nbytes"] * shift for row in rows],
        "y": rounded(row["ratio"] for row in rows),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": rounded(row["ci_high"] - row["ratio"] for row in rows),
            "arrayminus": rounded(row["ratio"] - row["ci_low"] for row in rows),
            "color": series.colour,
            "thickness": 1.5,
            "width": 3,
        },
        "text": [
            f"<b>{plain(row['new'])} against {plain(row['base'])}</b> {format_bytes(row['nbytes'])}<br>"
            f"{plain(_detail(row))}"
            for row in rows
        ],
        "hoverinfo": "text",
        "marker": {
            "color": [series.colour if sure else "var(--surface)" for sure in certain],
            "symbol": series.symbol,
            "size": 8,
            "line": {"color": series.colour, "width": 1.5},
        },
    }
