"""Figures of an overlap run: how much is hidden, and how much the two slow each other down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ncclbench.report.effects import unity_line
from ncclbench.report.figures import (
    ALWAYS,
    Axis,
    Figure,
    Plot,
    Trace,
    error_bars,
    line,
    plain,
    ratio_axis,
    side_by_side,
    size_axis,
)
from ncclbench.report.model import Series, numbered_series
from ncclbench.report.text import ratio_text, time_text
from ncclbench.stats.overlap import SERIAL, TOGETHER
from ncclbench.stats.overlap_words import beside, interval, number
from ncclbench.units import count_text, format_bytes

Row = Mapping[str, Any]

_HEIGHT_PX = 340
# Beyond lies noise: one wild interval must not flatten the rest.
_LOWEST, _HIGHEST = -1.0, 2.0
_HIDDEN_NOTE = (
    "1: the shorter of the two is hidden entirely; 0: nothing is. Lines: 95 % interval over epochs."
)
_SLOWED_NOTE = "1.00x: not slowed. Lines: 95 % interval over epochs."


def case_text(row: Row, several_free: bool = False) -> str:
    """What the rows of one figure's state share: "all_reduce float32 on gloo".

    What differs comes first: a list to choose from is narrow.
    """
    captured = ", CUDA graph" if row["mode"] == "graph" else ""
    free = f"{row['free_sms']} SMs free: " if several_free else ""
    return f"{free}{row['op']} {row['dtype']} on {row['backend']}{captured}"


def hidden_figure(rows: Sequence[Row], name: str) -> Figure | None:
    """Efficiency against message size, a curve for each kernel; the serial control dotted."""
    several = len({row["free_sms"] for row in rows}) > 1
    plots = {
        case: _hidden_plot(own)
        for case, own in _grouped(_known(rows), lambda row: case_text(row, several)).items()
    }
    alt = "Part of the shorter of communication and compute that is hidden, against message size, by kernel"
    return Figure(name, "How much is hidden", alt, "case", _HEIGHT_PX, {ALWAYS: plots}) if plots else None


def free_figure(rows: Sequence[Row], name: str) -> Figure | None:
    """Efficiency against the multiprocessors that the kernel leaves free, a curve for each size."""
    rows = [row for row in _known(rows) if row["free_sms"] is not None and row["arm"] == TOGETHER]
    if len({row["free_sms"] for row in rows}) < 2:
        return None
    plots = {}
    for case, own in _grouped(rows, lambda row: f"beside {row['compute']}: {case_text(row)}").items():
        traces = []
        for index, (size, curve) in enumerate(_grouped(own, lambda row: format_bytes(row["nbytes"])).items()):
            curve = sorted(curve, key=lambda row: int(row["free_sms"]))
            series = numbered_series(index, size)
            traces.append(_curve(series, [row["free_sms"] for row in curve], curve))
        layout = {"xaxis": {"title": {"text": "SMs that the kernel leaves free"}}, **_efficiency_layout(own)}
        plots[case] = Plot(traces, layout, _note(own))
    alt = "Part that is hidden, against the multiprocessors that the kernel leaves free, by message size"
    return Figure(name, "SMs left free", alt, "case", _HEIGHT_PX, {ALWAYS: plots})


def slowdown_figure(rows: Sequence[Row], name: str) -> Figure | None:
    """Time of communication and of compute while both run, over their time alone, against message size."""
    several = len({row["free_sms"] for row in rows}) > 1
    plots = {}
    for case, own in _grouped(_known(rows), lambda row: case_text(row, several)).items():
        traces, ratios = _slowdown_traces([row for row in own if row["arm"] == TOGETHER])
        if traces:
            layout = {
                "xaxis": _sizes(own),
                "yaxis": ratio_axis(ratios, "time together over time alone"),
                "showlegend": True,
            }
            plots[case] = Plot(traces, layout, _with_void(_SLOWED_NOTE, own))
    if not plots:
        return None
    alt = "How much longer communication and compute take while both run, against message size, by kernel"
    return Figure(name, "How much each slows the other", alt, "case", _HEIGHT_PX, {ALWAYS: plots})


def _hidden_plot(rows: Sequence[Row]) -> Plot:
    return Plot(_hidden_traces(rows), {"xaxis": _sizes(rows), **_efficiency_layout(rows)}, _note(rows))


def _hidden_traces(rows: Sequence[Row]) -> list[Trace]:
    traces = []
    kernels = _grouped(rows, lambda row: str(row["compute"]))
    apart = _shifts(rows)
    for index, (compute, own) in enumerate(kernels.items()):
        for arm in (TOGETHER, SERIAL):
            curve = _by_size([row for row in own if row["arm"] == arm])
            if not curve:
                continue
            series = numbered_series(index, compute if arm == TOGETHER else f"{compute}, serial control")
            trace = _curve(series, [apart[index] * row["nbytes"] for row in curve], curve)
            if arm == SERIAL:
                trace["line"] = {**trace["line"], "dash": "dot", "width": 1}
                trace["opacity"] = 0.6
            traces.append(trace)
    return traces


def _curve(series: Series, x: Sequence[float], rows: Sequence[Row]) -> Trace:
    values = [row["efficiency"] for row in rows]
    bars = error_bars(series, values, [(row["ci_low"], row["ci_high"]) for row in rows])
    texts = [_hover(series.label, row) for row in rows]
    return line(series, x, values, texts, error_y=bars, marker=_marker(series, rows))


def _marker(series: Series, rows: Sequence[Row]) -> dict[str, Any]:
    """The series' own where the row is an overlap figure, hollow where it is none."""
    symbols = [series.symbol if row["meaningful"] else f"{series.symbol}-open" for row in rows]
    return {"color": series.colour, "symbol": symbols, "size": 6}


def _hover(label: str, row: Row) -> str:
    within = f", 95 % interval {interval(row)}" if interval(row) else ""
    figure = "" if row["meaningful"] else "<br>no overlap figure"
    times = ", ".join(
        f"{word} {time_text(row[name])}"
        for word, name in (("comm", "comm_us"), ("compute", "compute_us"), (row["arm"], "together_us"))
    )
    return (
        f"<b>{plain(label)}</b> {plain(beside(row))}<br>"
        f"{number(row['efficiency'])} hidden{within}<br>{plain(times)}{figure}"
    )


def _slowdown_traces(rows: Sequence[Row]) -> tuple[list[Trace], list[float]]:
    traces, ratios = [], [1.0]
    kernels = _grouped(rows, lambda row: str(row["compute"]))
    apart = _shifts(rows)
    for index, (compute, own) in enumerate(kernels.items()):
        for of, dash in (("comm", "solid"), ("compute", "dash")):
            key = f"{of}_slowdown"
            curve = _by_size([row for row in own if row[key] is not None])
            if not curve:
                continue
            series = numbered_series(index, f"{of} beside {compute}" if of == "comm" else f"{compute} itself")
            ends = [(row[f"{key}_ci_low"], row[f"{key}_ci_high"]) for row in curve]
            values = [row[key] for row in curve]
            texts = [
                f"<b>{plain(series.label)}</b> {plain(beside(row))}<br>{ratio_text(row[key])}"
                for row in curve
            ]
            trace = line(series, [apart[index] * row["nbytes"] for row in curve], values, texts)
            trace["error_y"] = error_bars(series, values, ends)
            trace["line"] = {**trace["line"], "dash": dash}
            trace["marker"] = _marker(series, curve)
            traces.append(trace)
            ratios += values + [end for pair in ends for end in pair if end is not None]
    return traces, ratios


def _efficiency_layout(rows: Sequence[Row]) -> dict[str, Any]:
    ends = [
        end for row in rows for end in (row["efficiency"], row["ci_low"], row["ci_high"]) if end is not None
    ]
    low, high = max(_LOWEST, min(-0.1, *ends)), min(_HIGHEST, max(1.1, *ends))
    # A little wider: a marker on the edge is cut.
    axis: Axis = {"title": {"text": "part of the shorter that is hidden"}, "range": [low - 0.05, high + 0.05]}
    return {
        "yaxis": axis,
        "showlegend": True,
        "shapes": [unity_line(), unity_line() | {"y0": 0, "y1": 0}],
    }


def _note(rows: Sequence[Row]) -> str:
    """What stands below a figure of efficiencies: how to read it, and what it does not show."""
    beyond = sum(not _LOWEST <= row["efficiency"] <= _HIGHEST for row in rows)
    missing = f" Not drawn, as below {_LOWEST:g} or above {_HIGHEST:g}: {count_text(beyond, 'point')}."
    return _with_void(_HIDDEN_NOTE, rows) + (missing if beyond else "")


def _with_void(note: str, rows: Sequence[Row]) -> str:
    return note if all(row["meaningful"] for row in rows) else f"{note} Hollow: no overlap figure."


def _sizes(rows: Sequence[Row]) -> Axis:
    return size_axis((row["nbytes"] for row in rows), _shifts(rows))


def _shifts(rows: Sequence[Row]) -> list[float]:
    """By kernel in order of their first rows: the factor that keeps its points off the others'."""
    return side_by_side(len({row["compute"] for row in rows}))


def _known(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["efficiency"] is not None and row["nbytes"] > 0]


def _by_size(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: int(row["nbytes"]))


def _grouped(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
