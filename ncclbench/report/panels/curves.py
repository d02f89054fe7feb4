"""Panel: bandwidth and latency against message size."""

from __future__ import annotations

from collections.abc import Callable

from ncclbench.hardware.reference import percent, reference
from ncclbench.report.figures import Figure, Plot, Trace, band, line, log_axis, plain, size_axis
from ncclbench.report.model import Report, Row, Series, in_order
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.peaks import PeakLines, peak_lines
from ncclbench.report.text import rate_text, tick, time_text
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.modes import BANDWIDTH_MODES, LATENCY_MODES
from ncclbench.units import format_bytes


def build(report: Report) -> Content | None:
    """Two figures, busbw and latency, for every family with more than a point to draw."""
    bandwidth = _figure(
        report,
        "bandwidth",
        "Bus bandwidth",
        "Bus bandwidth against message size with the 95 % interval of the median",
        BANDWIDTH_MODES,
        _bandwidth_plot,
    )
    latency = _figure(
        report,
        "latency",
        "Time of one operation",
        "Time of one operation against message size with the 95 % interval of the median",
        LATENCY_MODES,
        _latency_plot,
    )
    figures = [figure for figure in (bandwidth, latency) if figure.plots]
    return {"figures": figures} if figures else None


PANEL = Panel(
    name="curves",
    order=10,
    title="Curves",
    description="Medians against message size; the shaded band is the 95 % interval over epochs.",
    build=build,
    template="figures.html",
    follows_selection=True,
)

# Half a unit of the last printed digit over the number: what has more has under three digits.
_MOST_ROUNDED = 0.005

_Points = dict[tuple[str, str], list[Row]]


def _figure(
    report: Report,
    name: str,
    title: str,
    alt: str,
    modes: tuple[str, ...],
    plot: Callable[[Report, _Points], Plot | None],
) -> Figure:
    plots = {}
    for family in report.families:
        measured = report.measured(family)
        drawn = {mode: plot(report, measured[mode]) for mode in in_order(measured, modes)}
        found = {mode: state for mode, state in drawn.items() if state is not None}
        if found:
            plots[family] = found
    return Figure(name, title, alt, "mode", 320, plots)


def _bandwidth_plot(report: Report, points: _Points) -> Plot | None:
    def rate(row: Row, time_us: float) -> float:
        return _busbw_GBs(row) * float(row["median_us"]) / time_us

    with_rate = {arm: [row for row in rows if row["busbw_GBs"]] for arm, rows in points.items()}
    found = [row for rows in with_rate.values() for row in rows]
    return _plot(report, with_rate, rate, rate_text, peak_lines(found, report.machines))


def _busbw_GBs(row: Row) -> float:
    """The row's own; what its time gives where too few digits were printed for a curve: 0.02, then 0.04."""
    printed, half = float(row["busbw_GBs"]), row.get("busbw_half_GBs") or 0.0
    entry = COLLECTIVES.get(row["op"])
    if half <= _MOST_ROUNDED * printed or entry is None or row["nranks"] is None:
        return printed
    return float(row["nbytes"] / row["median_us"] / 1e3 * entry.busbw_factor(row["nranks"]))


def _latency_plot(report: Report, points: _Points) -> Plot | None:
    return _plot(report, points, lambda row, time_us: time_us, time_text)


def _plot(
    report: Report,
    points: _Points,
    value: Callable[[Row, float], float],
    text: Callable[[float], str],
    peaks: PeakLines | None = None,
) -> Plot | None:
    """One curve with its band per arm; ``value`` turns a time into what is drawn."""
    bands: list[Trace] = []
    lines: list[Trace] = []
    sizes: set[int] = set()
    values: list[float] = []
    for arm, all_rows in points.items():
        rows = [row for row in all_rows if row["nbytes"] > 0]
        if not rows:
            continue
        series = report.series[arm]
        middles = [value(row, row["median_us"]) for row in rows]
        lines.append(
            line(
                series,
                [row["nbytes"] for row in rows],
                middles,
                [_hover(report, series, row) for row in rows],
            )
        )
        ranged = [row for row in rows if row["ci_low_us"] is not None and row["ci_low_us"] > 0]
        ends = [sorted((value(row, row["ci_low_us"]), value(row, row["ci_high_us"]))) for row in ranged]
        if ranged:
            lows, highs = [low for low, _ in ends], [high for _, high in ends]
            bands.append(band(series, [row["nbytes"] for row in ranged], lows, highs))
            values += lows + highs
        sizes.update(row["nbytes"] for row in rows)
        values += middles
    if not sizes:
        return None
    if peaks is not None:
        values += peaks.values
    axes = {"xaxis": size_axis(sizes), "yaxis": log_axis(values, lambda value: tick(text(value)))}
    layout = {**axes, "showlegend": len(lines) > 1}
    if peaks is None:
        return Plot(bands + lines, layout)
    layout |= {"shapes": peaks.shapes, "annotations": peaks.annotations}
    return Plot(bands + lines + peaks.traces, layout, peaks.note)


def _hover(report: Report, series: Series, row: Row) -> str:
    parts = [f"<b>{plain(series.label)}</b> {format_bytes(row['nbytes'])}"]
    interval = ""
    if row["ci_low_us"] is not None:
        interval = f" [{time_text(row['ci_low_us'])}, {time_text(row['ci_high_us'])}]"
    parts.append(f"{time_text(row['median_us'])}{interval}")
    if row["busbw_GBs"]:
        parts.append(f"busbw {rate_text(row['busbw_GBs'])}, algbw {rate_text(row['algbw_GBs'])}")
        found = reference(row, report.machines[row["run"]])
        if found.peak_GBs is not None:
            parts.append(f"{percent(row['busbw_GBs'] / found.peak_GBs)} of the {found.kind} peak")
    return "<br>".join(parts)
