"""Panel: how far apart the ranks are, at the start and at the end of an operation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncclbench.report.figures import Figure, Plot, line, plain, size_axis, time_axis
from ncclbench.report.model import (
    Report,
    Row,
    Source,
    good_rows,
    host_name,
    in_order,
    row_units,
)
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import time_text
from ncclbench.tables.modes import LATENCY_MODES
from ncclbench.units import format_bytes, format_percent

# More rows in a heat map than this cannot be read: hosts are shown for ranks, and of those the furthest from
# the middle are kept.
MOST_RANKS = 48


def build(report: Report) -> Content | None:
    """Spread over ranks against size, a map of ranks, and who is slowest how often, per arm."""
    figures = [figure for figure in (_spread(report), _map(report)) if figure.plots]
    slowest = [entry for source in report.sources for entry in _slowest(source)]
    fences = [
        {"run": source.label, **{key: time_text(fence[key]) for key in ("median_us", "p95_us")}}
        for source in report.sources
        if (fence := source.run.meta.get("fence")) and fence.get("median_us") is not None
    ]
    if not (figures or slowest or fences):
        return None
    return {
        "figures": figures,
        "slowest": slowest,
        "last": [entry for source in report.sweeps for entry in _last(source)],
        "fences": fences,
        "several_runs": len(report.sources) > 1,
        "several_arms": len(report.series) > 1,
    }


PANEL = Panel(
    name="ranks",
    order=30,
    title="Ranks",
    description=(
        "How far apart ranks start and end. Where every rank waits for every other, a rank's time holds its "
        "wait for the last to arrive: there the shortest time belongs to the latest rank."
    ),
    build=build,
    template="ranks.html",
    follows_selection=True,
)


def _spread(report: Report) -> Figure:
    """Slowest less fastest rank, and the skew of the start, against size."""
    plots: dict[str, dict[str, Plot]] = {}
    for family in report.families:
        for mode, arms in report.measured(family).items():
            traces, values, sizes = [], [], []
            for arm, rows in arms.items():
                series = report.series[arm]
                for word, dash, points in (
                    ("slowest less fastest rank", "solid", [(row, _apart_us(row)) for row in rows]),
                    ("skew of the start", "dot", [(row, row["skew_us"]) for row in rows]),
                ):
                    drawn = [(row, value) for row, value in points if value and row["nbytes"] > 0]
                    if not drawn:
                        continue
                    texts = [
                        f"<b>{plain(series.label)}</b> {format_bytes(row['nbytes'])}<br>"
                        f"{word} {time_text(value)}"
                        for row, value in drawn
                    ]
                    x, y = [row["nbytes"] for row, _ in drawn], [value for _, value in drawn]
                    traces.append(
                        line(
                            series,
                            x,
                            y,
                            texts,
                            line={"color": series.colour, "width": 2, "dash": dash},
                            showlegend=dash == "solid",
                        )
                    )
                    sizes += x
                    values += y
            if traces:
                layout = {
                    "xaxis": size_axis(sizes),
                    "yaxis": time_axis(values),
                    "showlegend": len(arms) > 1,
                }
                note = "Solid: slowest less fastest rank. Dotted: skew of the start."
                plots.setdefault(family, {})[mode] = Plot(traces, layout, note)
    return Figure(
        "spread-over-ranks",
        "Between ranks",
        "Time between the fastest and the slowest rank, and skew of the start, against message size",
        "mode",
        320,
        plots,
    )


def _apart_us(row: Row) -> float | None:
    if row["fastest_us"] is None:
        return None
    return float(row["median_us"] - row["fastest_us"])


def _rank_medians_us(source: Source, row: Row) -> NDArray[np.float64] | None:
    """Shape (nranks,): each rank's median over all epochs, or None where no samples are kept."""
    units = row_units(source, row)
    if not units:
        return None
    medians: NDArray[np.float64] = np.median(np.concatenate([unit.rank_time_us for unit in units], axis=1), 1)
    return medians


def _map(report: Report) -> Figure:
    """Each rank's median against the middle of all ranks, by size; one map per mode and series."""
    sources = {source.label: source for source in report.sources}
    plots: dict[str, dict[str, Plot]] = {}
    for family in report.families:
        for mode, arms in report.measured(family).items():
            for arm, rows in arms.items():
                medians = [(row, _rank_medians_us(sources[arm[0]], row)) for row in rows]
                columns = [(row, times) for row, times in medians if times is not None and len(times) > 1]
                if columns:
                    label = f"{mode}, {report.series[arm].label}" if len(report.series) > 1 else mode
                    plots.setdefault(family, {})[label] = _rank_map(columns, sources[arm[0]])
    return Figure(
        "rank-map",
        "Each rank against the middle of all",
        "Median time of each rank against the median over ranks, by message size",
        "mode",
        320,
        plots,
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a map.

    Attributes:
        ranks: one for each row.
        names: of the rows.
        note: which they are; "" where it is each rank.
    """

    ranks: NDArray[np.intp]
    names: list[str]
    note: str


def _rows_of(deviation: NDArray[np.float64], source: Source) -> _Rows:
    """Every rank; of too many the worst first, and each host as its worst rank where hosts have several.

    Args:
        deviation: shape (nranks, sizes), from the middle of all.
    """
    nranks = len(deviation)
    if nranks <= MOST_RANKS:
        return _Rows(np.arange(nranks), [f"rank {rank}" for rank in range(nranks)], "")
    worst = np.argsort(-np.abs(deviation).mean(axis=1), kind="stable")
    hosts = _hosts_of(source, nranks)
    if not 1 < len(set(hosts)) < nranks:
        shown = worst[:MOST_RANKS]
        note = f"The {MOST_RANKS} of {nranks} ranks that are furthest from the middle, worst first."
        return _Rows(shown, [f"rank {rank}" for rank in shown], note)
    # A dictionary keeps the first of each host, which is its worst.
    firsts: dict[int, int] = {}
    for rank in worst.tolist():
        firsts.setdefault(hosts[rank], rank)
    shown = np.array(list(firsts.values())[:MOST_RANKS], dtype=np.intp)
    described = source.run.meta["environment"]["hosts"]
    names = [f"{host_name(described[hosts[rank]]) or f'host {hosts[rank]}'}, rank {rank}" for rank in shown]
    some = f"The {len(shown)} of {len(firsts)} hosts" if len(firsts) > len(shown) else "Hosts"
    return _Rows(shown, names, f"{some}, furthest from the middle first, each as its rank that is furthest.")


def _hosts_of(source: Source, nranks: int) -> list[int]:
    """Number of each rank's host, all one where the run does not say."""
    environment = source.run.meta.get("environment") or {}
    hosts = [0] * nranks
    for entry in environment.get("ranks") or []:
        if entry["rank"] < nranks:
            hosts[entry["rank"]] = entry["host"]
    return hosts


def _rank_map(columns: list[tuple[Row, NDArray[np.float64]]], source: Source) -> Plot:
    times = np.stack([times for _, times in columns], axis=1)
    deviation = times / np.median(times, axis=0) - 1
    rows = _rows_of(deviation, source)
    shown = rows.ranks
    # One outlier must not wash out the rest of the map.
    bound = max(0.02, float(np.percentile(np.abs(deviation), 98)))
    sizes = [format_bytes(row["nbytes"]) for row, _ in columns]
    texts = [
        [
            f"<b>{plain(name)}</b> {size}<br>{time_text(times[rank, column])}, "
            f"{format_percent(float(deviation[rank, column]), signed=True)}"
            for column, size in enumerate(sizes)
        ]
        for rank, name in zip(shown, rows.names, strict=True)
    ]
    trace = {
        "type": "heatmap",
        "x": sizes,
        "y": [plain(name) for name in rows.names],
        "z": np.round(100 * deviation[shown], 2).tolist(),
        "text": texts,
        "hoverinfo": "text",
        "zmin": -round(100 * bound, 3),
        "zmax": round(100 * bound, 3),
        "colorscale": [[0, "var(--low)"], [0.5, "var(--middle)"], [1, "var(--high)"]],
        "colorbar": {"thickness": 10, "outlinewidth": 0, "ticksuffix": " %", "nticks": 5},
        "xgap": 1,
        "ygap": 1,
    }
    layout = {
        "xaxis": {
            "type": "category",
            "title": {"text": "message size (bytes)"},
            "nticks": 6,
            "tickangle": 0,
            "showgrid": False,
        },
        "yaxis": {"type": "category", "autorange": "reversed", "nticks": 16, "showgrid": False},
    }
    return Plot([trace], layout, rows.note)


def _last(source: Source) -> list[dict[str, str]]:
    """Per arm who begins last, where the run can tell."""
    if source.run.is_imported:
        return []
    # Only here: other pages judge nobody.
    from ncclbench.report.arriving import last_to_begin

    found = [(arm.id, last_to_begin(source, arm.id)) for arm in source.run.plan.arms]
    return [{"run": source.label, "arm": arm, "text": text} for arm, text in found if text is not None]


def _slowest(source: Source) -> list[dict[str, str]]:
    """Per arm: which rank was slowest most often, over all samples of the mode that reads latency."""
    found = []
    for arm in source.run.plan.arms:
        if source.run.is_imported:
            continue
        rows = [row for row in good_rows(source.rows) if row["arm"] == arm.id and row["nranks"] > 1]
        modes = in_order({row["mode"] for row in rows}, LATENCY_MODES)
        units = [unit for row in rows if row["mode"] == modes[0] for unit in row_units(source, row)]
        if not units:
            continue
        counts = np.zeros(max(unit.total_us.shape[0] for unit in units), dtype=np.int64)
        for unit in units:
            slowest = unit.rank_time_us.argmax(axis=0)
            counts += np.bincount(slowest, minlength=len(counts))
        rank = int(counts.argmax())
        found.append(
            {
                "run": source.label,
                "arm": arm.id,
                "rank": str(rank),
                "host": rank_host(source, rank),
                "share": format_percent(float(counts[rank] / counts.sum())),
                "even": format_percent(1 / len(counts)),
                "mode": modes[0],
            }
        )
    return found


def rank_host(source: Source, rank: int) -> str:
    """Name of the host that a rank ran on, "" where the run does not say."""
    environment = source.run.meta.get("environment") or {}
    for entry in environment.get("ranks") or []:
        if entry.get("rank") == rank:
            hosts = environment.get("hosts") or []
            host = entry.get("host")
            if isinstance(host, int) and 0 <= host < len(hosts):
                return host_name(hosts[host])
    return ""
