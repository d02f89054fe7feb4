"""Panel: how much a number moves, over epochs and from sample to sample."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ncclbench.report.figures import (
    Figure,
    Plot,
    Trace,
    band,
    plain,
    ratio_axis,
    rounded,
    side_by_side,
    size_axis,
    time_axis,
)
from ncclbench.report.model import Report, Row, Series, Source, row_units
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import list_text, ratio_text, time_text
from ncclbench.store.model import Unit
from ncclbench.units import count_text, format_bytes

# A page stays quick with this many points in all its strips; the run folder keeps every sample.
MOST_POINTS = 8_000
# So many show the shape of a strip where there are too many samples to draw them all.
POINTS_PER_STRIP = 25
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
    description="How far epochs (fresh process groups) agree, and how single samples are distributed.",
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
    """Each epoch's median over the case's median."""
    plots: dict[str, dict[str, Plot]] = {}
    grouped: dict[tuple[str, str], dict[Series, list[tuple[Row, list[Unit]]]]] = {}
    for (family, mode, nbytes), entries in cases.items():
        if nbytes > 0:
            for series, row, units in entries:
                grouped.setdefault((family, mode), {}).setdefault(series, []).append((row, units))
    for (family, mode), by_series in grouped.items():
        shifts = side_by_side(len(by_series))
        # Of the fifth of an octave that an arm has, a little is left free.
        width = 0.35 if len(by_series) == 1 else 0.16
        traces = [
            trace
            for (series, rows), shift in zip(by_series.items(), shifts, strict=True)
            for trace in _epoch_traces(series, rows, shift, width)
        ]
        sizes = [row["nbytes"] for rows in by_series.values() for row, _ in rows]
        ratios = [ratio for trace in traces for ratio in trace["y"]]
        ratios_of_points = [ratio for trace in traces if trace["mode"] == "markers" for ratio in trace["y"]]
        layout = {
            "xaxis": size_axis(sizes, shifts),
            "yaxis": ratio_axis(ratios, points=ratios_of_points),
            "showlegend": len(by_series) > 1,
        }
        note = _epochs_note([row for rows in by_series.values() for row, _ in rows])
        plots.setdefault(family, {})[mode] = Plot(traces, layout, note)
    return Figure(
        "epochs",
        "Epochs' medians",
        "Median of each epoch against the median of the case, by message size",
        "mode",
        320,
        plots,
    )


def _epochs_note(rows: list[Row]) -> str:
    """How to read the drawing, and in which sizes it shows something odd."""
    notes = ["Every epoch, from left to right in its order; the band is the 95 % interval."]
    for key, words in (("drifts", "Drift over epochs"), ("bimodal", "Samples with two modes")):
        sizes = sorted({row["nbytes"] for row in rows if row.get(key)})
        if sizes:
            notes.append(f"{words}: {list_text([format_bytes(size) for size in sizes], most=6)}.")
    return " ".join(notes)


def _in_order(number: int, width: float) -> list[float]:
    """Factors on a size that put ``number`` epochs side by side in so many octaves."""
    if number == 1:
        return [1.0]
    return [2 ** (width * (index / (number - 1) - 0.5)) for index in range(number)]


def _epoch_traces(
    series: Series, rows: list[tuple[Row, list[Unit]]], shift: float, width: float
) -> list[Trace]:
    x, y, texts = [], [], []
    for row, units in rows:
        for unit, place in zip(units, _in_order(len(units), width), strict=True):
            median = float(np.median(unit.time_us))
            x.append(row["nbytes"] * shift * place)
            y.append(median / row["median_us"])
            texts.append(
                f"<b>{plain(series.label)}</b> {format_bytes(row['nbytes'])}, epoch {unit.epoch}<br>"
                f"{time_text(median)}, {ratio_text(median / row['median_us'])} the median of all"
            )
    traces: list[Trace] = []
    ranged = [row for row, _ in rows if row["ci_low_us"] is not None]
    if ranged:
        low = [row["ci_low_us"] / row["median_us"] for row in ranged]
        high = [row["ci_high_us"] / row["median_us"] for row in ranged]
        traces.append(band(series, rounded(row["nbytes"] * shift for row in ranged), low, high))
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": plain(series.label),
            "legendgroup": plain(series.label),
            "x": rounded(x),
            "y": rounded(y),
            "text": texts,
            "hoverinfo": "text",
            "marker": {"color": series.colour, "symbol": series.symbol, "size": 6, "opacity": 0.8},
        }
    )
    return traces


def _samples(cases: _Cases) -> Figure:
    """One strip of samples per arm and epoch; of every family the least steady case comes first."""
    strips = {key: _strips(entries) for key, entries in cases.items()}
    nsamples = sum(len(strip.time_us) for own in strips.values() for strip in own)
    most = None if nsamples <= MOST_POINTS else POINTS_PER_STRIP
    plots: dict[str, dict[str, Plot]] = {}
    points = 0
    for family, mode, nbytes in _least_steady_first(cases):
        entries, own = cases[family, mode, nbytes], strips[family, mode, nbytes]
        kept = [thinned(strip.time_us, most) for strip in own]
        points += sum(len(times) for times in kept)
        if points > MOST_POINTS and family in plots:
            break
        plots.setdefault(family, {})[f"{format_bytes(nbytes)} {mode}"] = _strip_plot(entries, own, kept)
    ndrawn = sum(len(options) for options in plots.values())
    if ndrawn < len(cases):
        for options in plots.values():
            for option, plot in options.items():
                left_out = (
                    f"{plot.note} The {len(cases) - ndrawn} cases that spread least are not in the list."
                )
                options[option] = replace(plot, note=left_out)
    return Figure(
        "samples",
        "Samples of one case",
        "Samples of one case, one strip per arm and epoch",
        "case",
        320,
        plots,
    )


def _least_steady_first(cases: _Cases) -> list[tuple[str, str, int]]:
    """Every family's least steady case, then every family's second, and so on."""
    by_family: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for key in sorted(cases, key=lambda key: -max(_width(row) for _, row, _ in cases[key])):
        by_family[key[0]].append(key)
    return [key for turn in itertools.zip_longest(*by_family.values()) for key in turn if key is not None]


def _width(row: Row) -> float:
    """How far a case's samples reach, as p95 over p25."""
    if not row["p25_us"] or row["p95_us"] is None:
        return 0.0
    return float(row["p95_us"] / row["p25_us"])


@dataclass(frozen=True, slots=True)
class _Strip:
    """The samples of one arm in one epoch, or in all."""

    series: Series
    label: str
    time_us: NDArray[np.float64]


def _strips(entries: list[tuple[Series, Row, list[Unit]]]) -> list[_Strip]:
    if sum(len(units) for _, _, units in entries) > MOST_STRIPS:
        return [
            _Strip(series, series.label, np.concatenate([unit.time_us for unit in units]))
            for series, _, units in entries
        ]
    return [
        _Strip(
            series,
            f"{series.label}, epoch {unit.epoch}" if len(entries) > 1 else f"epoch {unit.epoch}",
            unit.time_us,
        )
        for series, _, units in entries
        for unit in units
    ]


def _strip_plot(
    entries: list[tuple[Series, Row, list[Unit]]], strips: list[_Strip], kept: list[list[float]]
) -> Plot:
    points: dict[Series, Trace] = {}
    for strip, times in zip(strips, kept, strict=True):
        trace = points.setdefault(strip.series, _dots(strip.series.colour))
        trace["x"] += times
        trace["y"] += [plain(strip.label)] * len(times)
        trace["text"] += [time_text(time_us) for time_us in times]
    middles = [float(np.median(strip.time_us)) for strip in strips]
    medians = {
        **_dots("var(--ink)", symbol="line-ns-open", size=16, opacity=1, line={"width": 2}),
        "x": rounded(middles),
        "y": [plain(strip.label) for strip in strips],
        "text": [
            f"{plain(strip.label)}<br>median {time_text(middle)}"
            for strip, middle in zip(strips, middles, strict=True)
        ],
    }
    layout = {
        "xaxis": time_axis(time_us for times in kept for time_us in times),
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True, "showgrid": False},
        "shapes": [
            _mode_line(series, row[mode])
            for series, row, _ in entries
            if row["bimodal"]
            for mode in ("mode_low_us", "mode_high_us")
        ],
        "showlegend": False,
    }
    drawn, nsamples = sum(len(times) for times in kept), sum(len(strip.time_us) for strip in strips)
    note = "The bar is the strip's median."
    if drawn < nsamples:
        note += f" {drawn:,} of {count_text(nsamples, 'sample')} drawn, evenly over each strip's quantiles."
    if len(strips) == len(entries) and any(len(units) > 1 for _, _, units in entries):
        note += " A strip holds all epochs of an arm."
    for series, row, _ in entries:
        if row["bimodal"]:
            modes = f"{time_text(row['mode_low_us'])} and {time_text(row['mode_high_us'])}"
            note += f" Bimodal on {series.label}: dotted lines where samples pile up, {modes}."
    return Plot([*points.values(), medians], layout, note)


def _mode_line(series: Series, time_us: float) -> dict[str, object]:
    """Where samples pile up."""
    line = {"color": series.colour, "width": 1.5, "dash": "dot"}
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": time_us, "x1": time_us, "line": line}


def _dots(colour: str, **marker: object) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "hoverinfo": "text",
        "x": [],
        "y": [],
        "text": [],
        "marker": {"color": colour, "size": 7, "opacity": 0.45, **marker},
    }


def thinned(times: NDArray[np.float64], most: int | None) -> list[float]:
    """At most ``most`` samples that show the same distribution: evenly spaced order statistics."""
    if most is None or len(times) <= most:
        return rounded(times)
    ordered = np.sort(times)
    picks = np.linspace(0, len(ordered) - 1, most).round().astype(int)
    return rounded(ordered[picks])
