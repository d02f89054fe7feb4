"""The figures of a flight page: operations over time, and who came to which operation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncclbench.flight.join import is_done
from ncclbench.flight.model import Operation
from ncclbench.flight.overview import MISMATCHED, MISSING, operation_text, place_text, state_text
from ncclbench.report.figures import ALWAYS, Figure, Plot, Trace, plain
from ncclbench.report.flight.arrivals import ISSUED, LOST, NO_SHOW, NOT_YET, OTHER, WAITS, WORDS, Arrivals
from ncclbench.report.flight.model import Flight
from ncclbench.report.model import numbered_series
from ncclbench.report.text import three_digits
from ncclbench.units import count_text

# Groups with a colour of their own; the others share one.
_MOST_GROUPS = 4
# Operations of a map of which each has a tick.
_FEW = 6
_OTHERS = "other groups"
_MOST_TICKS = 24
_MOST_SHAPES = 4
_LONGEST_TEXT = 120
# Of the time shown: the least that can be seen, and what stands behind the last moment.
_LEAST_PART, _BEHIND = 0.003, 0.05
_COLOURS = {
    ISSUED: "var(--low)",
    WAITS: "var(--warn)",
    NO_SHOW: "var(--bad)",
    OTHER: "var(--series-4)",
    LOST: "var(--line)",
    NOT_YET: "var(--ground)",
}


@dataclass(frozen=True, slots=True)
class _Bar:
    """An operation in the figure; ``start`` and ``length`` in the figure's unit of time.

    ``legend`` is None for one that is not finished.
    """

    row: int
    start: float
    length: float
    legend: str | None
    text: str


def timeline(flight: Flight, name: str) -> Figure | None:
    """Every operation that the page holds, rank by rank; None where there is none."""
    zero_ns = flight.zero_ns
    rows = flight.drawn
    if zero_ns is None:
        return None
    scale, unit = _unit(flight)
    legend = _legend(flight)
    bars, end = _bars(flight, zero_ns, scale, unit, legend)
    marks = _marks(flight, zero_ns, scale)
    data = [*_bar_traces(bars, legend), *marks]
    first = flight.judgement.findings[0] if flight.judgement.findings else None
    since = "the last operation" if first is None else "the first rank came to it"
    low = min(bar.start for bar in bars)
    layout = {
        "barmode": "overlay",
        "bargap": 0.3,
        "xaxis": {
            "title": {"text": f"{unit} since {since}"},
            "range": [low - _BEHIND * (end - low), end],
        },
        "yaxis": _rank_axis([(state.rank, state.host) for state in rows]),
        "showlegend": len(data) > 1,
    }
    alt = "Operations of each rank over time, coloured by process group"
    option = "operations" if first is None else f"around {operation_text(first.collective, first.sequence)}"
    plots = {option: Plot(data, layout, _timeline_note(flight))}
    return Figure(name, "What each rank did", alt, "value", _height_px(len(rows)), {ALWAYS: plots})


def arrivals_map(flight: Flight, name: str) -> Figure | None:
    """Who came to which operation, with a choice among the findings; None where nothing was found."""
    plots: dict[str, Plot] = {}
    for arrivals in flight.maps:
        finding = arrivals.finding
        option = f"{operation_text(finding.collective, finding.sequence)} of {flight.group(finding.group)}"
        while option in plots:
            option += "'"
        plots[option] = _map(flight, arrivals)
    if not plots:
        return None
    rows = max(len(arrivals.ranks) for arrivals in flight.maps)
    alt = "Ranks by row, sequence numbers of the group by column: who came to which operation"
    return Figure(name, "Who came to which operation", alt, "finding", _height_px(rows), {ALWAYS: plots})


def _height_px(rows: int) -> int:
    return min(680, 150 + 20 * rows)


def _rank_axis(rows: Sequence[tuple[int, str | None]]) -> dict[str, Any]:
    every = math.ceil(len(rows) / _MOST_TICKS)
    names = [f"{rank}" if host is None else f"{rank} {_short(host)}" for rank, host in rows]
    return {
        "title": {"text": "rank"},
        "type": "linear",
        "tickvals": list(range(len(rows)))[::every],
        "ticktext": [plain(text) for text in names[::every]],
        "range": [len(rows) - 0.5, -0.5],
        "showgrid": False,
    }


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:7]}…{name[-6:]}"


# Over time.


def _unit(flight: Flight) -> tuple[float, str]:
    """Nanoseconds to the unit that suits the time shown, and that unit."""
    moments = [op.created_ns for dump in flight.evidence.dumps for op in dump.operations]
    span_ns = max(moments) - min(moments)
    if span_ns >= 2e9:
        return 1e-9, "s"
    return (1e-6, "ms") if span_ns >= 2e6 else (1e-3, "µs")


def _bars(
    flight: Flight, zero_ns: int, scale: float, unit: str, legend: Mapping[str, str]
) -> tuple[list[_Bar], float]:
    """The bars, and where the axis ends: what waits goes on to there."""
    place = {state.rank: row for row, state in enumerate(flight.drawn)}
    found = [
        (dump.rank, operation)
        for dump in flight.evidence.dumps
        if dump.rank is not None
        for operation in dump.operations
    ]
    starts = [(operation.created_ns - zero_ns) * scale for _, operation in found]
    ends = [(operation.completed_ns or operation.created_ns) for _, operation in found]
    last = max((end - zero_ns) * scale for end in ends)
    span = (last - min(starts)) or 1.0
    end = last + _BEHIND * span
    bars = []
    for (rank, operation), start in zip(found, starts, strict=True):
        waits = not is_done(operation)
        length = end - start if waits else ((operation.completed_ns or 0) - operation.created_ns) * scale
        bars.append(
            _Bar(
                place[rank],
                float(f"{start:.7g}"),
                float(f"{max(length, _LEAST_PART * span):.4g}"),
                None if waits else legend[operation.group],
                _hover(flight, rank, operation, f"{three_digits(start)} {unit}"),
            )
        )
    return bars, end


def _legend(flight: Flight) -> dict[str, str]:
    """What stands in the legend for each group: those of findings and those with most operations by name."""
    counts = Counter(one.group for dump in flight.evidence.dumps for one in dump.operations)
    found = dict.fromkeys(finding.group for finding in flight.judgement.findings)
    order = sorted(counts, key=lambda group: (group not in found, -counts[group], group))
    return {
        group: flight.group(group) if place < _MOST_GROUPS else _OTHERS for place, group in enumerate(order)
    }


def _hover(flight: Flight, rank: int, operation: Operation, start: str) -> str:
    shapes = [shape[:_MOST_SHAPES] for shape in operation.input_sizes[:_MOST_SHAPES]]
    size = ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
    dtypes = ", ".join(dict.fromkeys(operation.input_dtypes[:_MOST_SHAPES]))
    what = operation_text(operation.collective, operation.sequence)
    lines = [
        f"<b>{_cut(what)}</b> {_cut(flight.group(operation.group))}",
        f"{_cut(flight.name(rank))}, {start}, {state_text(operation)}",
        *([_cut(f"{dtypes} [{size}]")] if size else []),
        _cut(place_text(operation) or ""),
    ]
    return "<br>".join(line for line in lines if line)


def _cut(text: str) -> str:
    """A text for a label, which may be anything."""
    return plain(text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…")


def _bar_traces(bars: Sequence[_Bar], legend: Mapping[str, str]) -> list[Trace]:
    """One trace for each entry of the legend, what is not finished last, so that it is seen."""
    names = dict.fromkeys(legend.values())
    colours: dict[str | None, str] = {
        name: "var(--muted)" if name == _OTHERS else numbered_series(index, "").colour
        for index, name in enumerate(names)
    }
    traces = []
    for name, colour in (colours | {None: "var(--warn)"}).items():
        own = [bar for bar in bars if bar.legend == name]
        if not own:
            continue
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": "not finished" if name is None else plain(name),
                "base": [bar.start for bar in own],
                "x": [bar.length for bar in own],
                "y": [bar.row for bar in own],
                "width": 0.7,
                "hovertext": [bar.text for bar in own],
                "hoverinfo": "text",
                "marker": {"color": colour, "line": {"width": 0}},
            }
        )
    return traces


def _marks(flight: Flight, zero_ns: int, scale: float) -> list[Trace]:
    """Who did not come, and who issued something else, where the first finding is."""
    first = flight.first
    if first is None:
        return []
    place = {state.rank: row for row, state in enumerate(flight.drawn)}
    at = {
        dump.rank: (operation.created_ns - zero_ns) * scale
        for dump in flight.evidence.dumps
        for operation in dump.operations
        if first.is_of(operation)
    }
    traces = []
    for word, symbol, ranks in (
        (MISSING, "x", first.finding.missing_ranks),
        (MISMATCHED, "diamond", first.finding.mismatched_ranks),
    ):
        own = [rank for rank in ranks if rank in place]
        if own:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": word,
                    "x": [float(f"{at.get(rank, 0.0):.7g}") for rank in own],
                    "y": [place[rank] for rank in own],
                    "hovertext": [plain(f"{flight.name(rank)} {word}") for rank in own],
                    "hoverinfo": "text",
                    "marker": {"color": "var(--bad)", "symbol": symbol, "size": 10},
                }
            )
    return traces


def _timeline_note(flight: Flight) -> str:
    notes = []
    shown, ranks, named = flight.nshown, len(flight.drawn), [s for s in flight.states if s.operation]
    if shown < flight.noperations:
        what = "around the first finding" if flight.judgement.findings else "that came last"
        notes.append(
            f"Shown: {count_text(shown, 'operation')} of {flight.noperations:,}, those {what}"
            + (
                f", of {ranks} of {len(named):,} ranks, those to blame and their neighbours."
                if ranks < len(named)
                else "."
            )
        )
    drawn = [operation for dump in flight.evidence.dumps for operation in dump.operations]
    if any(operation.completed_ns is None and is_done(operation) for operation in drawn):
        notes.append("A thin bar is when an operation was issued: its end was not recorded.")
    notes.append("Times are by each host's own clock.")
    return " ".join(notes)


# By number.


def _map(flight: Flight, arrivals: Arrivals) -> Plot:
    rows, columns = arrivals.ranks, arrivals.sequences
    present = {word for row in arrivals.cells for word in row}
    texts = [
        [
            f"<b>{plain(flight.name(rank))}</b><br>{number}: "
            + plain(f"{collective} {word}" if collective else word)
            for number, word, collective in zip(columns, words, collectives, strict=True)
        ]
        for rank, words, collectives in zip(rows, arrivals.cells, arrivals.collectives, strict=True)
    ]
    heat: Trace = {
        "type": "heatmap",
        "x": list(columns),
        "z": [[WORDS.index(word) for word in words] for words in arrivals.cells],
        "zmin": -0.5,
        "zmax": len(WORDS) - 0.5,
        "colorscale": _steps(),
        "showscale": False,
        "xgap": 1,
        "ygap": 1 if len(rows) <= 64 else 0,
        "hovertext": texts,
        "hoverinfo": "text",
        "showlegend": False,
    }
    # What colour alone does not tell has a mark too; a legend for all the others.
    marks = [
        _legend_trace(word, _cells(arrivals, word) if word in (NO_SHOW, OTHER) else [])
        for word in WORDS
        if word in present
    ]
    hosts = flight.evidence.host_of
    layout = {
        "xaxis": {
            "title": {"text": plain(f"number in {flight.group(arrivals.finding.group)}")},
            "range": [columns[0] - 0.5, columns[-1] + 0.5],
            "showgrid": False,
            "tickformat": "d",
            # Of a few operations there would be two ticks with one number.
            **({"dtick": 1} if len(columns) <= _FEW else {}),
        },
        "yaxis": _rank_axis([(rank, hosts.get(rank)) for rank in rows]),
        "showlegend": True,
    }
    left = f"Not shown: ranks {arrivals.left_out}, further from those to blame." if arrivals.left_out else ""
    return Plot([heat, *marks], layout, left)


def _steps() -> list[list[Any]]:
    """A colour scale with one step for each word."""
    count = len(WORDS)
    return [[edge / count, _COLOURS[word]] for place, word in enumerate(WORDS) for edge in (place, place + 1)]


def _cells(arrivals: Arrivals, word: str) -> list[tuple[int, int]]:
    return [
        (number, row)
        for row, words in enumerate(arrivals.cells)
        for number, own in zip(arrivals.sequences, words, strict=True)
        if own == word
    ]


def _legend_trace(word: str, cells: Sequence[tuple[int, int]]) -> Trace:
    symbol = {NO_SHOW: "x", OTHER: "diamond"}.get(word, "square")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": word,
        # One that is nowhere keeps its place in the legend.
        "x": [number for number, _ in cells] or [None],
        "y": [row for _, row in cells] or [None],
        "hoverinfo": "skip",
        "showlegend": True,
        "marker": {
            "symbol": symbol,
            "size": 8,
            "color": "var(--ink)" if cells else _COLOURS[word],
            "line": {"width": 1, "color": "var(--muted)"},
        },
    }
