"""Figures and tables of comparisons: ratios against size, over quantiles, and all at a glance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ncclbench.compare.overview import counted, counts
from ncclbench.report.calibrations import Calibration
from ncclbench.report.claims import (
    BETWEEN_MODES,
    GLYPHS,
    detail_text,
    interval_text,
    least_text,
)
from ncclbench.report.figures import (
    Figure,
    Plot,
    Trace,
    error_bars,
    plain,
    ratio_axis,
    rounded,
    side_by_side,
    size_axis,
)
from ncclbench.report.model import Family, Row, Series, family_key, in_order, thinned
from ncclbench.report.text import ratio_text
from ncclbench.tables.modes import LATENCY_MODES
from ncclbench.tables.statistics import STATISTICS
from ncclbench.units import count_text, format_bytes

# How the new side of a comparison looks.
Look = Callable[[Row], Series]
# A point over the quantiles: the ratio and the ends of its interval.
_Point = tuple[float, float | None, float | None]


def heat_table(
    title: str,
    rows: Sequence[Row],
    families: Mapping[str, Family],
    calibration: Callable[[Row], Calibration | None],
) -> dict[str, Any]:
    """Comparisons of a pair at a glance: a line per family and mode, a column per size; of very many some."""
    shown = thinned(rows)
    sizes = sorted({row["nbytes"] for row in shown})
    lines: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for row in shown:
        cells = lines.setdefault((family_key(row), row["mode"]), {})
        least = least_text(row)
        cells[row["nbytes"]] = {
            "verdict": row["verdict"],
            "ratio": "" if row["ratio"] is None else f"{row['ratio']:.2f}",
            "glyph": GLYPHS.get(row["verdict"], ""),
            "detail": f"{format_bytes(row['nbytes'])}: {detail_text(row, calibration(row))}",
            "beyond": bool(row["beyond_margin"]),
            "least": least and f"≥{least}".replace(" ", ""),
            "between_modes": row["between_modes"],
        }
    return {
        "title": title,
        "words": counted(counts(rows)),
        "sizes": [format_bytes(size) for size in sizes],
        "lines": [
            {"family": families[key], "mode": mode, "cells": [cells.get(size) for size in sizes]}
            for (key, mode), cells in lines.items()
        ],
    }


def heat_legend(rows: Iterable[Row]) -> list[str]:
    """What the marks in the cells mean, of those that occur, and whether sizes are left out."""
    rows = list(rows)
    legend = []
    if any(least_text(row) for row in rows):
        legend.append("≥ under an unclear ratio: the smallest difference that could have been found there.")
    if any(row["between_modes"] for row in rows):
        legend.append(
            f"†: the compared statistic of an arm {BETWEEN_MODES}, so it moves far when their shares "
            "move a little; see Spread and the ratio by quantile."
        )
    left_out = len(rows) - len(thinned(rows))
    if left_out:
        legend.append(
            f"{count_text(left_out, 'comparison')} between those shown are left out here and in the figures, "
            "none that is slower or faster: the answer is about all."
        )
    return legend


def ratio_figure(rows: Iterable[Row], look: Look) -> Figure:
    """Ratios with their intervals against message size, with the margin."""
    return Figure(
        "ratios",
        "Ratio of times",
        "Ratio of times, new over base, with its 95 % interval, by message size",
        "mode",
        320,
        {
            family: {mode: _ratio_plot(modes[mode], look) for mode in in_order(modes, LATENCY_MODES)}
            for family, modes in _by_family_and_mode(rows).items()
        },
    )


def shift_figure(rows: Iterable[Row], look: Look) -> Figure:
    """Ratios at several quantiles of one case; of every family the largest difference comes first."""
    plots: dict[str, dict[str, Plot]] = {}
    for family, modes in _by_family_and_mode(row for row in rows if row["shift"]).items():
        cases: dict[tuple[int, str], list[Row]] = {}
        for mode, own in modes.items():
            for row in own:
                cases.setdefault((row["nbytes"], mode), []).append(row)
        for (nbytes, mode), own in sorted(cases.items(), key=lambda case: -max(map(_difference, case[1]))):
            plots.setdefault(family, {})[f"{format_bytes(nbytes)} {mode}"] = _shift_plot(own, look)
    return Figure(
        "shift",
        "Ratio by quantile",
        "Ratio of times, new over base, at quantiles of the samples with its 95 % interval, of one case",
        "case",
        320,
        plots,
    )


def _by_family_and_mode(rows: Iterable[Row]) -> dict[str, dict[str, list[Row]]]:
    grouped: dict[str, dict[str, list[Row]]] = {}
    for row in thinned(list(rows)):
        if row["ratio"] is not None and row["nbytes"] > 0:
            grouped.setdefault(family_key(row), {}).setdefault(row["mode"], []).append(row)
    return grouped


def _difference(row: Row) -> float:
    """How far a ratio lies from 1."""
    return abs(math.log(row["ratio"]))


def _ratio_plot(rows: list[Row], look: Look) -> Plot:
    rows = sorted(rows, key=lambda row: int(row["nbytes"]))
    by_arm: dict[Series, list[Row]] = {}
    margins: dict[int, float] = {}
    for row in rows:
        by_arm.setdefault(look(row), []).append(row)
        margins[row["nbytes"]] = max(row["margin"] or 0.0, margins.get(row["nbytes"], 0.0))
    shifts = side_by_side(len(by_arm))
    points = [_points(*arm, shift) for arm, shift in zip(by_arm.items(), shifts, strict=True)]
    ends = [1 + margin for margin in margins.values()]
    for row in rows:
        ends += [value for value in (row["ci_low"], row["ci_high"]) if value]
    layout = {
        "xaxis": size_axis(margins, shifts),
        "yaxis": ratio_axis(ends, "new time / base time", points=[row["ratio"] for row in rows]),
        "shapes": [unity_line()],
        "showlegend": len(by_arm) > 1,
    }
    note = "Shaded: the margin. Filled points are faster or slower, open ones same or unclear."
    return Plot([_margin_band(margins), *points], layout, note)


def unity_line() -> dict[str, Any]:
    """The line on which both times are equal."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": 1,
        "y1": 1,
        "layer": "below",
        "line": {"color": "var(--muted)", "width": 1},
    }


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
    ratios = [row["ratio"] for row in rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(series.label),
        "x": rounded(row["nbytes"] * shift for row in rows),
        "y": rounded(ratios),
        "error_y": error_bars(series, ratios, [(row["ci_low"], row["ci_high"]) for row in rows]),
        "text": [f"{_heading(row)}<br>{_lines(detail_text(row))}" for row in rows],
        "hoverinfo": "text",
        "marker": {
            "color": [series.colour if sure else "var(--surface)" for sure in certain],
            "symbol": series.symbol,
            "size": 8,
            "line": {"color": series.colour, "width": 1.5},
        },
    }


def _heading(row: Row) -> str:
    return f"<b>{plain(row['new'])} against {plain(row['base'])}</b> {format_bytes(row['nbytes'])}"


def _lines(text: str) -> str:
    """A line of several parts as one under the other."""
    return plain(text).replace("; ", "<br>")


def _shift_plot(rows: list[Row], look: Look) -> Plot:
    """One case: a curve over quantiles per arm."""
    curves = [(look(row), row, _quantile_points(row)) for row in rows]
    names = sorted({name for _, _, points in curves for name in points}, key=_fraction)
    places = {name: place for place, name in enumerate(names)}
    width = 0.12
    traces, ends, middles = [], [], []
    for index, (series, row, points) in enumerate(curves):
        offset = width * (index - (len(curves) - 1) / 2)
        traces.append(_shift_trace(series, row, points, [places[name] + offset for name in points]))
        middles += [ratio for ratio, _, _ in points.values()]
        ends += [end for _, low, high in points.values() for end in (low, high) if end]
    margin = 1 + max(row["margin"] or 0.0 for row in rows)
    band = {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": 1 / margin,
        "y1": margin,
        "layer": "below",
        "fillcolor": "var(--margin)",
        "line": {"width": 0},
    }
    layout = {
        "xaxis": {
            "title": {"text": "quantile of the samples"},
            "tickvals": list(places.values()),
            "ticktext": names,
            "range": [-0.5, len(names) - 0.5],
        },
        "yaxis": ratio_axis([*ends, margin, 1 / margin], "new time / base time", points=middles),
        "shapes": [band, unity_line()],
        "showlegend": len(curves) > 1,
    }
    compared = rows[0]["statistic"]
    note = f"Filled: {compared}, which the verdict compares; the others explain it. Shaded: the margin."
    if any(row["between_modes"] for row in rows):
        note += (
            f" The {compared} of an arm {BETWEEN_MODES} here: a small change in their shares moves it far."
        )
    left_out = {entry["reason"] for row in rows for entry in row["shift"] if entry["reason"]}
    note += "".join(f" Not drawn: {reason}." for reason in sorted(left_out))
    return Plot(traces, layout, note)


def _quantile_points(row: Row) -> dict[str, _Point]:
    """The ratio at every quantile in rising order, that of the verdict's own statistic among them."""
    points = {
        str(entry["quantile"]): (entry["ratio"], entry["ci_low"], entry["ci_high"])
        for entry in row["shift"]
        if entry["ratio"] is not None
    }
    points[row["statistic"]] = (row["ratio"], row["ci_low"], row["ci_high"])
    return dict(sorted(points.items(), key=lambda point: _fraction(point[0])))


def _fraction(name: str) -> float:
    return STATISTICS[name].quantile if name in STATISTICS else 1.0


def _shift_trace(series: Series, row: Row, points: dict[str, _Point], places: list[float]) -> Trace:
    compared = [name == row["statistic"] for name in points]
    ratios = [ratio for ratio, _, _ in points.values()]
    ends = [(low, high) for _, low, high in points.values()]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(series.label),
        "x": places,
        "y": rounded(ratios),
        "error_y": error_bars(series, ratios, ends),
        "text": [
            f"{_heading(row)}, {plain(name)}<br>{ratio_text(ratio)} time {interval_text(*end)}"
            + (f"<br>the verdict: {plain(row['verdict'])}" if own else "")
            for (name, ratio), end, own in zip(zip(points, ratios, strict=True), ends, compared, strict=True)
        ],
        "hoverinfo": "text",
        "line": {"color": series.colour, "width": 1, "dash": "dot"},
        "marker": {
            "color": [series.colour if own else "var(--surface)" for own in compared],
            "symbol": series.symbol,
            "size": [11 if own else 8 for own in compared],
            # Of several sizes plotly makes bubbles that let the ground through.
            "opacity": 1,
            "line": {"color": series.colour, "width": 1.5},
        },
    }
