"""Figures of a search beside its links: what ranks do alone, who comes last, groups as they grew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ncclbench.attribution.course import HEALTHY_PART
from ncclbench.attribution.model import GroupSamples
from ncclbench.report.figures import ALWAYS, Figure, Plot, Trace, error_bars, log_axis, plain
from ncclbench.report.model import Series, numbered_series
from ncclbench.report.placed import rank_row
from ncclbench.report.searched import Searched
from ncclbench.report.text import ranges_text, rate_text, tick, time_text
from ncclbench.stats.intervals import Floats
from ncclbench.stats.rates import clopper_pearson
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.units import format_percent

# More ranks than these are too many to be seen; those furthest from the middle are kept.
MOST_RANKS = 128
_HEIGHT_PX = 300

Values = dict[int, Floats]


def alone_figure(search: Searched, name: str) -> Figure | None:
    """What each rank does alone, against the median rank: a dot for each pass, from left to right."""
    times: dict[str, tuple[Values, Callable[[float], str]]] = {
        "compute": ({one.rank: one.compute_us for one in search.evidence.ranks}, time_text),
        "copies to the device": (
            {one.rank: one.h2d_GBs for one in search.evidence.ranks if one.h2d_GBs is not None},
            rate_text,
        ),
        "copies from the device": (
            {one.rank: one.d2h_GBs for one in search.evidence.ranks if one.d2h_GBs is not None},
            rate_text,
        ),
    }
    plots = {
        option: _alone_plot(search, values, text)
        for option, (values, text) in times.items()
        if any(np.isfinite(own).any() for own in values.values())
    }
    if not plots:
        return None
    alt = "What each rank does alone, as a factor of time against the median rank, one dot a pass"
    return Figure(name, "Each rank alone", alt, "value", _HEIGHT_PX, {ALWAYS: plots})


def _alone_plot(search: Searched, values: Values, text: Callable[[float], str]) -> Plot:
    medians = {rank: float(np.nanmedian(own)) for rank, own in values.items() if np.isfinite(own).any()}
    middle = float(np.median(list(medians.values())))
    is_time = text is time_text

    def slower(value: float) -> float:
        return value / middle if is_time else middle / value

    shown, note = _shown(search, {rank: abs(np.log(slower(value))) for rank, value in medians.items()})
    points: list[_Point] = []
    for place, rank in enumerate(shown):
        passes = len(values[rank])
        for turn, value in enumerate(values[rank].tolist()):
            if np.isfinite(value) and value > 0:
                across = place + 0.6 * ((turn + 0.5) / passes - 0.5)
                hover = f"<b>{plain(search.rank_text(rank))}</b> pass {turn + 1}<br>{text(value)}, "
                points.append(
                    (rank, across, slower(value), f"{hover}{slower(value):.2f}x the median rank's time")
                )
    line = rank_row(search.places, shown)
    layout = {
        "xaxis": line.axis(line.title),
        "yaxis": log_axis(
            [0.95, 1.05, *(y for _, _, y, _ in points)],
            lambda ratio: f"{ratio:.3g}x",
            "times the median rank's",
        ),
        "shapes": line.separators(),
        "showlegend": bool(search.named_ranks() & set(shown)),
    }
    return Plot(_dots(search, points), layout, note)


# A rank's place across, its value, and what appears under the pointer.
_Point = tuple[int, float, float, str]


def _dots(search: Searched, points: Sequence[_Point]) -> list[Trace]:
    """Dots of ranks, those that are named in another colour and shape."""
    named = search.named_ranks()
    traces: list[Trace] = []
    for series, chosen in (
        (numbered_series(0, "not named"), [point for point in points if point[0] not in named]),
        (numbered_series(1, "named above"), [point for point in points if point[0] in named]),
    ):
        if chosen:
            traces.append(_scatter(series, [x for _, x, _, _ in chosen], [y for _, _, y, _ in chosen]))
            traces[-1]["text"] = [hover for *_, hover in chosen]
    return traces


def _scatter(series: Series, x: Sequence[float], y: Sequence[float]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(series.label),
        "x": [round(value, 3) for value in x],
        "y": [float(f"{value:.5g}") for value in y],
        "hoverinfo": "text",
        "marker": {"color": series.colour, "symbol": series.symbol, "size": 6},
    }


def _shown(search: Searched, distance: dict[int, float]) -> tuple[list[int], str]:
    """The ranks that are drawn, in order, and a note where not all are."""
    kept = set(sorted(distance, key=lambda rank: (-distance[rank], rank))[:MOST_RANKS])
    shown = [rank for rank in search.order if rank in kept]
    if len(distance) <= MOST_RANKS:
        return shown, ""
    return shown, f"The {MOST_RANKS} of {len(distance):,} ranks that are furthest from the middle."


def arrivals_figure(search: Searched, name: str) -> Figure | None:
    """How often each rank came last to an operation, and by how much, in iterations that ran free."""
    records = [one for one in search.evidence.arrivals if one.iterations]
    nranks = len(search.places.host_of)
    if not records or nranks < 2:
        return None
    iterations = sum(one.iterations for one in records)
    last = np.array([one.last for one in records]).sum(axis=0)
    later_us = np.median([one.lateness_us for one in records], axis=0)
    shown, note = _shown(search, {rank: float(last[rank]) for rank in range(nranks)})
    line = rank_row(search.places, shown)
    ends = {rank: clopper_pearson(int(last[rank]), iterations) for rank in shown}
    often: list[_Point] = []
    late: list[_Point] = []
    for place, rank in enumerate(shown):
        who = f"<b>{plain(search.rank_text(rank))}</b><br>"
        low, high = ends[rank]
        share = float(last[rank]) / iterations
        interval = f"{100 * share:.0f} %, {100 * low:.0f} to {100 * high:.0f} %"
        times = f"last in {int(last[rank])} of {iterations} iterations ({interval})"
        often.append((rank, place, 100 * share, f"{who}{times}"))
        word = "later" if later_us[rank] >= 0 else "earlier"
        late.append(
            (
                rank,
                place,
                float(later_us[rank]),
                f"{who}{time_text(abs(later_us[rank]))} {word} than the median",
            )
        )
    traces = _dots(search, often)
    for trace in traces:
        ranks = [shown[int(x)] for x in trace["x"]]
        trace["error_y"] = error_bars(
            Series("", trace["marker"]["color"], "", ""),
            trace["y"],
            [(100 * ends[rank][0], 100 * ends[rank][1]) for rank in ranks],
        )
    common = {"xaxis": line.axis(line.title), "showlegend": len(traces) > 1}
    chance = 100 / nranks
    plots = {
        "how often last": Plot(
            traces,
            {
                **common,
                "yaxis": {"title": {"text": "% of iterations"}, "range": [-3, 103]},
                "shapes": [*line.separators(), _level(chance)],
            },
            f"Dashed: chance, {format_percent(1 / nranks)}. Bars: exact 95 % interval. {note}".strip(),
        ),
        "how much later": Plot(
            _dots(search, late),
            {
                **common,
                "yaxis": {"title": {"text": "µs after the median rank"}},
                "shapes": [*line.separators(), _level(0)],
            },
            note,
        ),
    }
    alt = "How often each rank came last to an operation in which all wait for all, with exact intervals"
    return Figure(name, "Who comes last", alt, "value", _HEIGHT_PX, {ALWAYS: plots})


def _level(at: float) -> Trace:
    line = {"color": "var(--muted)", "width": 1.5, "dash": "dash"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at, "line": line}


def busbw_GBs(group: GroupSamples) -> float | None:
    """Bus bandwidth of a group test by its median time; None where it has none."""
    times_us = group.time_us[np.isfinite(group.time_us) & (group.time_us > 0)]
    if group.op not in COLLECTIVES or not times_us.size or len(group.ranks) < 2:
        return None
    factor = COLLECTIVES[group.op].busbw_factor(len(group.ranks))
    return factor * group.nbytes / float(np.median(times_us)) / 1e3


def groups_figure(search: Searched, name: str) -> Figure | None:
    """Bus bandwidth of all_reduce over the size of the group, as it grew."""
    tests = [
        (group, rate)
        for group in search.evidence.groups
        if group.op == "all_reduce" and (rate := busbw_GBs(group)) is not None
    ]
    if len(tests) < 2:
        return None
    least = HEALTHY_PART * tests[0][1]
    healthy = [(group, rate) for group, rate in tests if rate >= least]
    slow = [(group, rate) for group, rate in tests if rate < least]
    kept: set[int] = set()
    hovers: dict[int, str] = {}
    for group, rate in tests:
        added = sorted(set(group.ranks) - kept)
        hosts = dict.fromkeys(search.places.hosts[search.places.host_of[rank]] for rank in added)
        names = ", ".join(plain(host) for host in list(hosts)[:8])
        hovers[id(group)] = (
            f"<b>{len(group.ranks)} ranks</b> {rate_text(rate)}<br>with {ranges_text(added)} on {names}"
        )
        if rate >= least:
            kept |= set(group.ranks)
    traces = []
    for series, chosen, mode in (
        (numbered_series(0, "kept"), healthy, "lines+markers"),
        (numbered_series(1, "too slow, taken out again"), slow, "markers"),
    ):
        if chosen:
            trace: dict[str, Any] = _scatter(
                series, [len(group.ranks) for group, _ in chosen], [rate for _, rate in chosen]
            )
            trace |= {"mode": mode, "text": [hovers[id(group)] for group, _ in chosen]}
            trace["line"] = {"color": series.colour, "width": 2}
            traces.append(trace)
    sizes = [len(group.ranks) for group, _ in tests]
    layout = {
        "xaxis": {"title": {"text": "ranks in the group"}, "range": [0, 1.06 * max(sizes)], "nticks": 8},
        "yaxis": log_axis([least, *(rate for _, rate in tests)], lambda rate: tick(rate_text(rate))),
        "shapes": [_level(least)],
        "showlegend": len(traces) > 1,
    }
    note = f"Dashed: {100 * HEALTHY_PART:.0f} % of the first group's; a group below it is not kept."
    alt = "Bus bandwidth of all_reduce against the number of ranks in the group, as the group grew"
    return Figure(
        name,
        "Groups that grow",
        alt,
        "value",
        _HEIGHT_PX,
        {ALWAYS: {"all_reduce busbw": Plot(traces, layout, note)}},
    )
