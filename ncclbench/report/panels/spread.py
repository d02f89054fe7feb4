"""Panel: how much a number moves, over epochs and from sample to sample."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from ncclbench.report.figures import Figure, Plot, Trace, band, log_axis, plain, size_axis
from ncclbench.report.model import Report, Row, Series, Source, row_units
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import count_text, percent_text, time_text
from ncclbench.store.model import Unit
from ncclbench.units import format_bytes

# A page stays quick with this many points in all its strips; the run folder keeps every sample.
MOST_POINTS = 10_000
# Fewer points than this do not show the shape of a distribution.
FEWEST_POINTS = 25
# More strips than this in one drawing cannot be told apart.
MOST_STRIPS = 24


def build(report: Report) -> Content | None:
    """Epochs' medians against size, and the samples of one case at a time."""
    cases = _cases(report)
    if not cases:
        return None
    return {"figures": [_epochs(report, cases), _samples(cases)]}


PANEL = Panel(
    name="spread",
    order=40,
    title="Spread",
    description="How far epochs, which are fresh process groups, agree, and how single samples are distributed.",
    build=build,
    template="figures.html",
    follows_selection=True,
)

# By (family, mode, size): the series with the row and its units.
_Cases = dict[tuple[str, str, int], list[tuple[Series, Row, list[Unit]]]]


def _cases(report: Report) -> _Cases:
    sources: dict[str, Source] = {source.label: source for source in report.sources}
    cases: _Cases = defaultdict(list)
    for family in report.families:
        for mode, arms in report.measured(family).items():
            for arm, rows in arms.items():
                for row in rows:
                    units = row_units(sources[arm[0]], row)
                    if units:
                        cases[family, mode, row["nbytes"]].append((report.series[arm], row, units))
    return dict(cases)


def _epochs(report: Report, cases: _Cases) -> Figure:
    """Each epoch's median against the case's median, in percent."""
    plots: dict[str, dict[str, Plot]] = {}
    grouped: dict[tuple[str, str], dict[Series, list[tuple[Row, list[Unit]]]]] = {}
    for (family, mode, nbytes), entries in cases.items():
        if nbytes > 0:
            for series, row, units in entries:
                grouped.setdefault((family, mode), {}).setdefault(series, []).append((row, units))
    for (family, mode), by_series in grouped.items():
        traces = [trace for series, rows in by_series.items() for trace in _epoch_traces(series, rows)]
        sizes = [row["nbytes"] for rows in by_series.values() for row, _ in rows]
        layout = {
            "xaxis": size_axis(sizes),
            "yaxis": {"title": {"text": "against the median"}, "ticksuffix": " %", "zeroline": True},
        }
        plots.setdefault(family, {})[mode] = Plot(traces, layout)
    return Figure(
        "epochs",
        "Epochs' medians",
        "Median of each epoch against the median of the case, by message size",
        "mode",
        320,
        plots,
    )


def _epoch_traces(series: Series, rows: list[tuple[Row, list[Unit]]]) -> list[Trace]:
    x, y, texts = [], [], []
    for row, units in rows:
        for unit in units:
            median = float(np.median(unit.time_us))
            x.append(row["nbytes"])
            y.append(100 * (median / row["median_us"] - 1))
            texts.append(
                f"<b>{plain(series.label)}</b> {format_bytes(row['nbytes'])}, epoch {unit.epoch}<br>"
                f"{time_text(median)}, {percent_text(median / row['median_us'] - 1, signed=True)}"
            )
    traces: list[Trace] = []
    ranged = [row for row, _ in rows if row["ci_low_us"] is not None]
    if ranged:
        low = [100 * (row["ci_low_us"] / row["median_us"] - 1) for row in ranged]
        high = [100 * (row["ci_high_us"] / row["median_us"] - 1) for row in ranged]
        traces.append(band(series, [row["nbytes"] for row in ranged], low, high))
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": plain(series.label),
            "legendgroup": plain(series.label),
            "x": x,
            "y": [round(value, 2) for value in y],
            "text": texts,
            "hoverinfo": "text",
            "marker": {"color": series.colour, "symbol": series.symbol, "size": 7, "opacity": 0.8},
        }
    )
    return traces


def _samples(cases: _Cases) -> Figure:
    """One strip of samples per arm and epoch; of every family the least steady case comes first."""
    widest = sorted(cases, key=lambda key: -max(_width(row) for _, row, _ in cases[key]))
    # Where there are many cases, those that spread most get the points.
    shown = widest[: MOST_POINTS // FEWEST_POINTS]
    budget = MOST_POINTS // len(shown)
    first = {}
    for family, mode, nbytes in shown:
        first.setdefault(family, (mode, nbytes))
    plots: dict[str, dict[str, Plot]] = {}
    for family, start in first.items():
        own = sorted((mode, nbytes) for name, mode, nbytes in shown if name == family)
        own.sort(key=lambda case: case != start)
        for mode, nbytes in own:
            plot = _strips(cases[family, mode, nbytes], budget)
            plots.setdefault(family, {})[f"{format_bytes(nbytes)} {mode}"] = plot
    return Figure(
        "samples",
        "Samples of one case",
        "Every sample of one case, one strip per arm and epoch",
        "case",
        320,
        plots,
    )


def _width(row: Row) -> float:
    """How far a case's samples reach, as p95 over p25."""
    if not row["p25_us"] or row["p95_us"] is None:
        return 0.0
    return float(row["p95_us"] / row["p25_us"])


def _strips(entries: list[tuple[Series, Row, list[Unit]]], budget: int) -> Plot:
    per_epoch = sum(len(units) for _, _, units in entries) <= MOST_STRIPS
    strips: list[tuple[Series, str, NDArray[np.float64]]] = []
    for series, _, units in entries:
        if per_epoch:
            for unit in units:
                label = f"{series.label}, epoch {unit.epoch}" if len(entries) > 1 else f"epoch {unit.epoch}"
                strips.append((series, label, unit.time_us))
        else:
            strips.append((series, series.label, np.concatenate([unit.time_us for unit in units])))
    most = max(1, budget // len(strips))
    nsamples = sum(len(times) for _, _, times in strips)
    kept = [thinned(times, most) for _, _, times in strips]
    traces: list[Trace] = []
    for (series, label, times), points in zip(strips, kept, strict=True):
        strip = {"type": "scatter", "mode": "markers", "showlegend": False, "hoverinfo": "text"}
        middle = float(np.median(times))
        traces.append(
            {
                **strip,
                "x": [float(f"{value:.5g}") for value in points],
                "y": [plain(label)] * len(points),
                "text": [time_text(value) for value in points],
                "marker": {"color": series.colour, "size": 7, "opacity": 0.45},
            }
        )
        traces.append(
            {
                **strip,
                "x": [float(f"{middle:.5g}")],
                "y": [plain(label)],
                "text": [f"{plain(label)}<br>median {time_text(middle)}"],
                "marker": {"color": "var(--ink)", "symbol": "line-ns-open", "size": 16, "line": {"width": 2}},
            }
        )
    layout = {
        "xaxis": log_axis([value for points in kept for value in points], "time of one operation", time_text),
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True, "showgrid": False},
        "showlegend": False,
    }
    drawn = sum(len(points) for points in kept)
    note = "The bar is the strip's median."
    if drawn < nsamples:
        note += f" {drawn:,} of {count_text(nsamples, 'sample')} drawn, evenly over each strip's quantiles."
    return Plot(traces, layout, note)


def thinned(times: NDArray[np.float64], most: int) -> list[float]:
    """At most ``most`` samples that show the same distribution: evenly spaced order statistics."""
    if len(times) <= most:
        return [float(value) for value in times]
    ordered = np.sort(times)
    picks = np.linspace(0, len(ordered) - 1, most).round().astype(int)
    return [float(value) for value in ordered[picks]]
