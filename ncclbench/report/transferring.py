"""Figures of a transport run: how long each way takes and holds whom up, and small messages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ncclbench.report.figures import (
    ALWAYS,
    Figure,
    Plot,
    Trace,
    error_bars,
    line,
    log_axis,
    plain,
    rounded,
    size_axis,
    time_axis,
)
from ncclbench.report.model import numbered_series
from ncclbench.report.text import tick, time_text
from ncclbench.stats.transport import LatencyRow, OverEpochs, WayRow, way_name
from ncclbench.units import count_text

_BAR_PX, _FRAME_PX = 26, 110
_LATENCY_PX = 340
# Bars that differ by more are on a logarithmic axis.
_LOG_FROM = 30.0

# What a bar may be of, with its words.
QUANTITIES = {
    "total_us": "until every generator holds every byte",
    "trainer_us": "the trainer is held up",
    "frozen_us": "the trainer's weights are frozen",
    "generator_us": "a generator is held up",
    "stale_us": "a computing generator sees old weights",
}


def interval_text(found: OverEpochs) -> str:
    """The 95 % interval; a dash where there is none."""
    if found.low is None or found.high is None:
        return "–"
    return f"{time_text(found.low)} – {time_text(found.high)}"


def times_figure(rows: Sequence[WayRow], name: str) -> Figure | None:
    """A bar for each way, and an option for each of its times."""
    plots = {}
    for quantity, words in QUANTITIES.items():
        own = [
            (row, found) for row in rows if (found := getattr(row, quantity)) is not None and found.median > 0
        ]
        if own:
            plots[words] = _times_plot(own)
    if not plots:
        return None
    alt = "How long each way takes until all generators have the weights, and how long it holds whom up"
    height = _FRAME_PX + _BAR_PX * len(rows)
    return Figure(name, "Time of each way", alt, "what", height, {ALWAYS: plots})


def _times_plot(own: Sequence[tuple[WayRow, OverEpochs]]) -> Plot:
    traces: list[Trace] = []
    for index, kind in enumerate(("two-sided", "one-sided")):
        of_kind = [(row, found) for row, found in own if row.kind == kind]
        if not of_kind:
            continue
        series = numbered_series(index, kind)
        medians = [found.median for _, found in of_kind]
        bars = error_bars(series, medians, [(found.low, found.high) for _, found in of_kind])
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": kind,
                "hoverinfo": "text",
                "textposition": "none",
                "marker": {"color": series.colour},
                "x": rounded(medians),
                "y": [plain(row.name) for row, _ in of_kind],
                "error_x": bars | {"color": "var(--ink)"},
                "text": [
                    f"<b>{plain(row.name)}</b>, {kind}<br>{time_text(found.median)}, 95 % interval "
                    f"{interval_text(found)}, {count_text(row.epochs, 'epoch')}"
                    for row, found in of_kind
                ],
            }
        )
    ends = [end for _, found in own for end in (found.median, found.low, found.high) if end]
    if max(ends) > _LOG_FROM * min(ends):
        axis = log_axis(ends, lambda value: tick(time_text(value)), "time")
    else:
        # Bars are compared by their lengths wherever that can be done.
        step = next(size for size in _round_steps(max(ends)) if 6 * size > max(ends))
        ticks = [step * number for number in range(int(max(ends) // step) + 2)]
        axis = {
            "title": {"text": "time"},
            "range": [0, 1.05 * max(ends)],
            "tickvals": ticks,
            "ticktext": ["0", *(tick(time_text(value)) for value in ticks[1:])],
        }
    layout = {
        "xaxis": axis,
        "yaxis": {
            "categoryorder": "array",
            "categoryarray": [plain(row.name) for row, _ in own],
            "autorange": "reversed",
        },
        "showlegend": True,
    }
    return Plot(traces, layout, "Bars: median over epochs; lines: 95 % interval, from 3 epochs on.")


def _round_steps(most: float) -> list[float]:
    """1, 2 and 5 times powers of ten, rising, up to ``most`` and beyond."""
    decade = 10.0 ** math.floor(math.log10(most))
    return [decade * power * size for power in (0.1, 1.0) for size in (1, 2, 5)]


def latency_figure(latency: Sequence[LatencyRow], name: str) -> Figure | None:
    """Small messages to one generator: a curve for each way."""
    ways: dict[str, list[LatencyRow]] = {}
    for row in latency:
        if row.total_us.median > 0 and row.nbytes > 0:
            ways.setdefault(way_name(row.way, row.arm), []).append(row)
    if not ways:
        return None
    traces = []
    for index, (way, own) in enumerate(ways.items()):
        series = numbered_series(index, way)
        times = [row.total_us.median for row in own]
        bars = error_bars(series, times, [(row.total_us.low, row.total_us.high) for row in own])
        texts = [
            f"<b>{plain(way)}</b>, {row.kind}<br>{row.nbytes} B: {time_text(row.total_us.median)}, "
            f"95 % interval {interval_text(row.total_us)}"
            for row in own
        ]
        traces.append(line(series, [row.nbytes for row in own], times, texts, error_y=bars))
    shown = [row for own in ways.values() for row in own]
    layout = {
        "xaxis": size_axis(row.nbytes for row in shown),
        "yaxis": time_axis(
            end
            for row in shown
            for end in (row.total_us.median, row.total_us.low, row.total_us.high)
            if end is not None
        ),
        "showlegend": True,
    }
    note = (
        "Until the generator knows of it; reads by the reader's own clock. Lines: 95 % interval over epochs."
    )
    alt = "Time of a small message to one generator, by way, against its size"
    return Figure(name, "Small messages", alt, "way", _LATENCY_PX, {ALWAYS: {"": Plot(traces, layout, note)}})
