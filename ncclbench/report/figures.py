"""Figures as plotly takes them, in plain data: plotly.js draws them in the page, nothing is drawn here.

Colours are CSS variables (``var(--series-1)``), which the page resolves, so that one figure suits the
light and the dark page. Texts go through ``plain``: plotly reads a little HTML in every text.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncclbench.report.model import Series
from ncclbench.report.text import tick, time_text, visible_text
from ncclbench.units import format_bytes

Trace = dict[str, Any]
Axis = dict[str, Any]

_FEWEST_TICKS, _MOST_TICKS = 4, 8

# In place of a family's key: drawn whatever is chosen in the selection bar.
ALWAYS = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """One state of a figure: what plotly draws when it is chosen.

    Attributes:
        data: traces.
        layout: what differs from the page's own layout.
        note: a sentence under the figure, "" for none.
    """

    data: list[Trace]
    layout: dict[str, Any]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with a state per family and option.

    Attributes:
        name: unique in the page.
        title: heading above it.
        alt: what it shows, for those who cannot see it.
        option: what its options are ("mode", "case").
        height_px: height of the drawing.
        plots: by family key, or ``ALWAYS``, then by option; the first option is shown first.
        shared: what the first trace of every plot has besides, kept once.
    """

    name: str
    title: str
    alt: str
    option: str
    height_px: int
    plots: dict[str, dict[str, Plot]]
    shared: Trace = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data for the page."""
        return {
            "title": self.title,
            "alt": self.alt,
            "shared": self.shared,
            "plots": {
                family: {
                    visible_text(option): {
                        "data": plot.data,
                        "layout": plot.layout,
                        "note": visible_text(plot.note),
                    }
                    for option, plot in options.items()
                }
                for family, options in self.plots.items()
            },
        }


def plain(text: object) -> str:
    """Text that plotly shows as it is, whatever it holds."""
    # Between two dollar signs plotly reads TeX, before it reads entities.
    return html.escape(visible_text(str(text)), quote=False).replace("$", "&#36;")


def rounded(values: Iterable[float]) -> list[float]:
    """Values with the five digits that a figure can show."""
    return [float(f"{value:.5g}") for value in values]


def size_axis(sizes: Iterable[int], shifts: Sequence[float] = (1.0,)) -> Axis:
    """A logarithmic axis of message sizes, ticks at powers of two in nccl-tests' words.

    Args:
        shifts: factors from ``side_by_side`` that points on it are moved by, for which it has room.
    """
    present = sorted(set(sizes))
    low, high = math.floor(math.log2(present[0])), math.ceil(math.log2(present[-1]))
    step = max(1, math.ceil((high - low) / (_MOST_TICKS - 1)))
    ticks = [2**power for power in range(low, high + 1, step)]
    margin = max(0.15, 0.02 * (high - low)) * math.log10(2)
    return {
        "type": "log",
        "title": {"text": "message size (bytes)"},
        "tickvals": ticks,
        "ticktext": [format_bytes(tick) for tick in ticks],
        "range": [
            math.log10(present[0] * min(shifts)) - margin,
            math.log10(present[-1] * max(shifts)) + margin,
        ],
    }


def log_axis(values: Iterable[float], text: Callable[[float], str], title: str = "") -> Axis:
    """A logarithmic axis over positive values; ``text`` says what a tick reads."""
    present = [value for value in values if value > 0]
    low, high = math.log10(min(present)), math.log10(max(present))
    margin = max(0.02, 0.05 * (high - low))
    ticks = log_ticks(10 ** (low - margin), 10 ** (high + margin))
    return {
        "type": "log",
        "title": {"text": title},
        "tickvals": ticks,
        "ticktext": [text(tick) for tick in ticks],
        "range": [low - margin, high + margin],
    }


def time_axis(values_us: Iterable[float]) -> Axis:
    """A logarithmic axis of times."""
    return log_axis(values_us, lambda time_us: tick(time_text(time_us)))


def ratio_axis(ratios: Iterable[float], title: str = "", points: Iterable[float] = ()) -> Axis:
    """A logarithmic axis of ratios around 1.

    Args:
        ratios: what lies beyond a factor of ten is cut off: one wild interval must not flatten the rest.
        title: beside the axis.
        points: shown wherever they lie.
    """
    inside = [min(max(ratio, 0.1), 10.0) for ratio in ratios]
    return log_axis([*inside, *points, 0.99, 1.01], lambda ratio: f"{ratio:.3g}x", title)


def log_ticks(low: float, high: float) -> list[float]:
    """Round values between two others: the coarsest of decades, 1-3, 1-2-5 and even steps that has four."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in ((1,), (1, 3), (1, 2, 5)):
        ticks = [mantissa * 10.0**decade for decade in decades for mantissa in mantissas]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= _FEWEST_TICKS:
            return inside[:: math.ceil(len(inside) / _MOST_TICKS)]
    rough = (high - low) / _FEWEST_TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * mantissa for mantissa in (5, 2, 1) if unit * mantissa <= rough)
    return [step * index for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def error_bars(
    series: Series, middles: Sequence[float], ends: Sequence[tuple[float | None, float | None]]
) -> dict[str, Any]:
    """Intervals around points, (low, high) each; none where it is not known."""
    return {
        "type": "data",
        "symmetric": False,
        "array": rounded(
            0.0 if high is None else high - middle for middle, (_, high) in zip(middles, ends, strict=True)
        ),
        "arrayminus": rounded(
            0.0 if low is None else middle - low for middle, (low, _) in zip(middles, ends, strict=True)
        ),
        "color": series.colour,
        "thickness": 1.5,
        "width": 3,
    }


def side_by_side(number: int) -> list[float]:
    """Factors on sizes that keep points of several series apart on a logarithmic axis."""
    return [2 ** (0.2 * (index - (number - 1) / 2)) for index in range(number)]


def line(
    series: Series, x: Sequence[float], y: Sequence[float], texts: Sequence[str], **more: object
) -> Trace:
    """A curve with a marker at every point; ``texts`` appear under the pointer."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plain(series.label),
        "legendgroup": plain(series.label),
        "x": list(x),
        "y": rounded(y),
        "text": list(texts),
        "hoverinfo": "text",
        "line": {"color": series.colour, "width": 2, "dash": series.dash},
        "marker": {"color": series.colour, "symbol": series.symbol, "size": 6},
        **more,
    }


def band(series: Series, x: Sequence[float], low: Sequence[float], high: Sequence[float]) -> Trace:
    """The area between two curves, in the series' colour."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(series.label),
        "legendgroup": plain(series.label),
        "showlegend": False,
        "hoverinfo": "skip",
        "x": [*x, *reversed(x)],
        "y": rounded([*high, *reversed(low)]),
        "fill": "toself",
        "fillcolor": series.colour,
        "opacity": 0.22,
        "line": {"width": 0, "color": series.colour},
    }
