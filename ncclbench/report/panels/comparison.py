"""Panel: arms side by side, as ratios of times with their intervals and verdicts."""

from __future__ import annotations

from typing import Any

from ncclbench.report.figures import Figure, Plot, Trace, plain, ratio_axis, side_by_side, size_axis
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
    interval = ""
    if row["ci_low"] is not None:
        interval = f" [{ratio_text(row['ci_low'])}, {ratio_text(row['ci_high'])}]"
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
    margin = max(source.run.plan.margin_ratio for source in report.sources)
    grouped: dict[str, dict[str, list[Row]]] = {}
    for row in report.comparisons:
        if row["ratio"] is not None and row["nbytes"] > 0:
            grouped.setdefault(family_key(row), {}).setdefault(row["mode"], []).append(row)
    plots = {
        family: {mode: _ratio_plot(report, modes[mode], margin) for mode in in_order(modes, LATENCY_MODES)}
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


def _ratio_plot(report: Report, rows: list[Row], margin: float) -> Plot:
    by_arm: dict[Series, list[Row]] = {}
    for row in sorted(rows, key=lambda row: int(row["nbytes"])):
        by_arm.setdefault(report.series[row["run"], row["new"]], []).append(row)
    ends = [1 / (1 + margin), 1 + margin]
    for row in rows:
        ends += [value for value in (row["ci_low"], row["ci_high"], row["ratio"]) if value]
    layout = {
        "xaxis": size_axis(row["nbytes"] for row in rows),
        "yaxis": ratio_axis(ends, "new time / base time"),
        "shapes": [
            {
                "type": "rect",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": 1 / (1 + margin),
                "y1": 1 + margin,
                "fillcolor": "var(--margin)",
                "line": {"width": 0},
                "layer": "below",
            },
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": 1,
                "y1": 1,
                "line": {"color": "var(--muted)", "width": 1},
                "layer": "below",
            },
        ],
        "showlegend": len(by_arm) > 1,
    }
    note = (
        f"Shaded: the margin of {100 * margin:g} %. "
        "Filled points are faster or slower, open ones same or unclear."
    )
    shifts = side_by_side(len(by_arm))
    traces = [_points(*arm, shift) for arm, shift in zip(by_arm.items(), shifts, strict=True)]
    return Plot(traces, layout, note)


def _points(series: Series, rows: list[Row], shift: float) -> Trace:
    certain = [row["verdict"] in ("faster", "slower") for row in rows]
    ratios = [row["ratio"] for row in rows]
    above = [(row["ci_high"] if row["ci_high"] is not None else row["ratio"]) - row["ratio"] for row in rows]
    below = [row["ratio"] - (row["ci_low"] if row["ci_low"] is not None else row["ratio"]) for row in rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(series.label),
        "x": [row["nbytes"] * shift for row in rows],
        "y": [float(f"{ratio:.5g}") for ratio in ratios],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [float(f"{value:.5g}") for value in above],
            "arrayminus": [float(f"{value:.5g}") for value in below],
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
