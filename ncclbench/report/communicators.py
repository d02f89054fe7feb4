"""Figure of a run of ``groups``: time, memory and communicators against the number of groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ncclbench.report.figures import ALWAYS, Figure, Plot, line, log_axis, plain
from ncclbench.report.model import Row, Series, numbered_series
from ncclbench.report.text import tick, time_text
from ncclbench.units import count_text, format_memory

_HEIGHT_PX = 330


def costs_figure(rows: Sequence[Row], name: str) -> Figure | None:
    """A curve for each arm and way; what it shows is chosen."""
    shown: dict[str, tuple[str, Callable[[float], str], str]] = {
        "time": ("total_us", time_text, "Until every group has had a first collective and a first message."),
        "communicators": ("communicators", lambda value: f"{value:g}", "Of the rank that has most."),
        "host memory": (
            "rss_bytes",
            format_memory,
            "Resident more than before, on the fullest rank.",
        ),
        "device memory": (
            "device_bytes",
            format_memory,
            "In use more than before, on the fullest GPU.",
        ),
    }
    plots = {}
    for title, (field, text, note) in shown.items():
        curves = _curves([row for row in rows if (row[field] or 0) > 0])
        traces, values = [], []
        for series, own in curves:
            y = [float(row[field]) for row in own]
            texts = [
                f"<b>{plain(series.label)}</b> {count_text(row['groups'], 'group')}<br>{text(value)}"
                for row, value in zip(own, y, strict=True)
            ]
            traces.append(line(series, [row["groups"] for row in own], y, texts))
            values += y
        if traces:
            groups = [row["groups"] for _, own in curves for row in own]
            layout = {
                "xaxis": log_axis(groups, lambda value: tick(f"{value:g}"), "groups that a rank is in"),
                "yaxis": log_axis(values, _ticks(text)),
                "showlegend": True,
            }
            plots[title] = Plot(traces, layout, note)
    if not plots:
        return None
    alt = "What groups cost, by how many there are"
    return Figure(name, "What groups cost", alt, "quantity", _HEIGHT_PX, {ALWAYS: plots})


def _ticks(text: Callable[[float], str]) -> Callable[[float], str]:
    return lambda value: tick(text(value))


def _curves(rows: Sequence[Row]) -> list[tuple[Series, list[Row]]]:
    curves: dict[str, list[Row]] = {}
    for row in rows:
        curves.setdefault(f"{row['arm']}, {row['way']}", []).append(row)
    return [
        (numbered_series(index, words), sorted(own, key=lambda row: int(row["groups"])))
        for index, (words, own) in enumerate(curves.items())
    ]
