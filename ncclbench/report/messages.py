"""Figures of a point-to-point run: latency and bandwidth of every way against the size of a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ncclbench.report.figures import (
    ALWAYS,
    Figure,
    Plot,
    line,
    log_axis,
    plain,
    size_axis,
    time_axis,
)
from ncclbench.report.model import Row, Series, numbered_series
from ncclbench.report.text import rate_text, tick, time_text
from ncclbench.stats.p2p import way_words
from ncclbench.units import format_bytes

_HEIGHT_PX = 330

Text = Callable[[float], str]


def latency_figure(rows: Sequence[Row], name: str) -> Figure | None:
    """Until the message is there, a curve for each way."""

    def plot(own: Sequence[Row]) -> Plot | None:
        traces, ends = [], []
        for series, curve in _curves(own):
            times = [row["latency_us"] for row in curve]
            texts = [_latency_hover(series.label, row) for row in curve]
            traces.append(line(series, [row["nbytes"] for row in curve], times, texts))
            ends += times
        if not traces:
            return None
        layout = {
            "xaxis": size_axis(row["nbytes"] for row in own),
            "yaxis": time_axis(ends) | {"title": {"text": "until it is there"}},
            "showlegend": True,
        }
        return Plot(traces, layout, "Medians; of a ping-pong half the round trip. Intervals: in the numbers.")

    alt = "Time until a message is there, by size and way of sending"
    return _figure(rows, name, "Latency", alt, plot)


def bandwidth_figure(rows: Sequence[Row], name: str) -> Figure | None:
    """What goes one way, a curve for each way."""

    def plot(own: Sequence[Row]) -> Plot | None:
        traces, rates = [], []
        for series, curve in _curves([row for row in own if row["bandwidth_GBs"]]):
            texts = [f"{_name(series.label, row)}<br>{rate_text(row['bandwidth_GBs'])}" for row in curve]
            own_rates = [row["bandwidth_GBs"] for row in curve]
            traces.append(line(series, [row["nbytes"] for row in curve], own_rates, texts))
            rates += own_rates
        if not traces:
            return None
        layout = {
            "xaxis": size_axis(row["nbytes"] for row in own),
            "yaxis": log_axis(rates, lambda rate: tick(rate_text(rate)), "one way"),
            "showlegend": True,
        }
        return Plot(traces, layout, "Bytes that go one way over the time until they are there.")

    return _figure(rows, name, "Bandwidth", "Bandwidth one way, by size and way of sending", plot)


def host_figure(rows: Sequence[Row], name: str) -> Figure | None:
    """How much of the time until it is done the call itself holds the host."""

    def plot(own: Sequence[Row]) -> Plot | None:
        traces = []
        for series, curve in _curves([row for row in own if row["total_us"] > 0]):
            shares = [100 * min(1.0, row["host_us"] / row["total_us"]) for row in curve]
            texts = [
                f"{_name(series.label, row)}<br>call {time_text(row['host_us'])}, done after "
                f"{time_text(row['total_us'])}, host free for {time_text(row['free_us'])}"
                for row in curve
            ]
            traces.append(line(series, [row["nbytes"] for row in curve], shares, texts))
        if not traces:
            return None
        layout = {
            "xaxis": size_axis(row["nbytes"] for row in own),
            "yaxis": {"title": {"text": "% of the time in the call"}, "range": [0, 105]},
            "showlegend": True,
        }
        return Plot(traces, layout, "100 %: the call holds the sender's host until all is done.")

    alt = "Share of the time until completion that the call holds the sender's host, by size and way"
    return _figure(rows, name, "How long the call holds the host", alt, plot)


def _figure(
    rows: Sequence[Row], name: str, title: str, alt: str, plot: Callable[[Sequence[Row]], Plot | None]
) -> Figure | None:
    """A state for each arm."""
    plots = {}
    # A logarithm of nothing is none.
    rows = [row for row in rows if row["nbytes"] > 0]
    for arm in dict.fromkeys(row["arm"] for row in rows):
        found = plot([row for row in rows if row["arm"] == arm])
        if found is not None:
            plots[arm] = found
    return Figure(name, title, alt, "arm", _HEIGHT_PX, {ALWAYS: plots}) if plots else None


def _curves(rows: Sequence[Row]) -> list[tuple[Series, list[Row]]]:
    """The rows of each way in order of size, with how it looks."""
    curves: dict[str, list[Row]] = {}
    for row in rows:
        if row["latency_us"] > 0:
            curves.setdefault(way_words(row), []).append(row)
    return [
        (numbered_series(index, words), sorted(curve, key=lambda row: int(row["nbytes"])))
        for index, (words, curve) in enumerate(curves.items())
    ]


def _name(label: str, row: Row) -> str:
    return f"<b>{plain(label)}</b> {format_bytes(row['nbytes'])}"


def _latency_hover(label: str, row: Row) -> str:
    interval = ""
    if row["ci_low_us"] is not None:
        interval = f", 95 % interval {time_text(row['ci_low_us'])} – {time_text(row['ci_high_us'])}"
    return f"{_name(label, row)}<br>{time_text(row['latency_us'])}{interval}"
