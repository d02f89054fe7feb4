"""Panel: both sides' times against message size, their ratio, and the ratio over quantiles."""

from __future__ import annotations

from ncclbench.compare.imported import launch_mean_us
from ncclbench.compare.verdict import geometric_mean
from ncclbench.plan.model import Case
from ncclbench.report.claims import detail_text
from ncclbench.report.effects import ratio_figure, shift_figure, unity_line
from ncclbench.report.figures import (
    Figure,
    Plot,
    Trace,
    line,
    plain,
    ratio_axis,
    rounded,
    side_by_side,
    size_axis,
    time_axis,
)
from ncclbench.report.model import Row, Series, family_key, in_order, thinned
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import ratio_text, time_text
from ncclbench.report.versus.model import Versus, arm_of
from ncclbench.stats.imported import CLOCK
from ncclbench.stats.summary import epoch_quantiles
from ncclbench.store.model import Run
from ncclbench.tables.modes import LATENCY_MODES
from ncclbench.tables.statistics import STATISTICS
from ncclbench.units import format_bytes


def build(versus: Versus) -> Content | None:
    """The figures that follow the chosen collective."""
    figures = [
        _times(versus),
        ratio_figure(versus.rows, versus.look),
        _launches(versus),
        shift_figure(versus.rows, versus.look),
    ]
    drawn = [figure for figure in figures if figure.plots]
    return {"figures": drawn} if drawn else None


PANEL: Panel[Versus] = Panel(
    name="ratios",
    order=10,
    title="Before and after",
    description="Times of both sides, and new over base: above 1 is slower.",
    build=build,
    template="figures.html",
    follows_selection=True,
)


def _grouped(versus: Versus) -> dict[str, dict[str, list[Row]]]:
    """Rows with times on both sides, by family and mode, in order of size."""
    rows = [row for row in thinned(versus.rows) if row["nbytes"] > 0 and row["base_us"] and row["new_us"]]
    grouped: dict[str, dict[str, list[Row]]] = {}
    for row in sorted(rows, key=lambda row: int(row["nbytes"])):
        grouped.setdefault(family_key(row), {}).setdefault(row["mode"], []).append(row)
    return grouped


def _curves(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows by (side, its name): the two of each pair."""
    curves: dict[tuple[str, str], list[Row]] = {}
    for side in ("base", "new"):
        for row in rows:
            curves.setdefault((side, row[side]), []).append(row)
    return curves


def _times(versus: Versus) -> Figure:
    return Figure(
        "times",
        "Time before and after",
        "Time of one operation on both sides against message size",
        "mode",
        320,
        {
            family: {mode: _times_plot(versus, modes[mode]) for mode in in_order(modes, LATENCY_MODES)}
            for family, modes in _grouped(versus).items()
        },
    )


def _times_plot(versus: Versus, rows: list[Row]) -> Plot:
    traces = [_curve(versus.series[curve], curve[0], own) for curve, own in _curves(rows).items()]
    layout = {
        "xaxis": size_axis(row["nbytes"] for row in rows),
        "yaxis": time_axis(value for trace in traces for value in trace["y"]),
        "showlegend": True,
    }
    return Plot(traces, layout, f"The {rows[0]['statistic']} of each side.")


def _curve(series: Series, side: str, rows: list[Row]) -> Trace:
    texts = [
        f"<b>{plain(series.label)}</b> {format_bytes(row['nbytes'])}<br>{time_text(row[f'{side}_us'])}<br>"
        f"{plain(detail_text(row)).replace('; ', '<br>')}"
        for row in rows
    ]
    return line(series, [row["nbytes"] for row in rows], [row[f"{side}_us"] for row in rows], texts)


def _launches(versus: Versus) -> Figure:
    """Every launch of both sides against the base's typical time: what a difference is to be held against."""
    plots: dict[str, dict[str, Plot]] = {}
    if any(len(side.runs) > 1 for _, side in versus.sides):
        plots = {
            family: {mode: _launches_plot(versus, modes[mode]) for mode in in_order(modes, LATENCY_MODES)}
            for family, modes in _grouped(versus).items()
        }
    return Figure(
        "launches",
        "Launches",
        "Each launch's time over the base's typical time, by message size",
        "mode",
        320,
        plots,
    )


def _launches_plot(versus: Versus, rows: list[Row]) -> Plot:
    curves = _curves(rows)
    shifts = side_by_side(len(curves))
    traces = [
        _launch_dots(versus.series[side, name], dict(versus.sides)[side].runs, side, own, shift)
        for ((side, name), own), shift in zip(curves.items(), shifts, strict=True)
    ]
    ratios = [ratio for trace in traces for ratio in trace["y"]]
    layout = {
        "xaxis": size_axis((row["nbytes"] for row in rows), shifts),
        "yaxis": ratio_axis([], "time / base time", points=ratios),
        "shapes": [unity_line()],
        "showlegend": True,
    }
    return Plot(
        traces, layout, "Every launch is shown: the scatter within a side is what a difference has to exceed."
    )


def _launch_dots(series: Series, runs: list[Run], side: str, rows: list[Row], shift: float) -> Trace:
    points = [
        (row, run, time_us)
        for row in rows
        for run in runs
        if (time_us := _launch_us(run, row, arm_of(row, side))) is not None
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(series.label),
        "x": rounded(row["nbytes"] * shift for row, _, _ in points),
        "y": rounded(time_us / row["base_us"] for row, _, time_us in points),
        "text": [
            f"<b>{plain(series.label)}</b> {plain(run.folder.name)}<br>{format_bytes(row['nbytes'])}: "
            f"{time_text(time_us)}, {ratio_text(time_us / row['base_us'])} the base"
            for row, run, time_us in points
        ],
        "hoverinfo": "text",
        "marker": {"color": series.colour, "symbol": series.symbol, "size": 6, "opacity": 0.75},
    }


def _launch_us(run: Run, row: Row, arm: str) -> float | None:
    """What one launch has for a row, as the comparison reads it; None where it has nothing."""
    if row["clock"] == CLOCK:
        return launch_mean_us(run, row, arm)
    units = run.units.get((Case.from_json(row).key, arm), [])
    if not units:
        return None
    quantile = STATISTICS[row["statistic"]].quantile
    time_us = geometric_mean(epoch_quantiles([unit.time_us for unit in units], (quantile,))[:, 0])
    return time_us if time_us > 0 else None
