"""The map of links: source by row, destination by column, coloured by how fast each is for its class."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncclbench.attribution.model import Places
from ncclbench.attribution.words import speakers
from ncclbench.report.figures import ALWAYS, Figure, Plot, Trace, plain
from ncclbench.report.placed import Line, host_row, rank_row
from ncclbench.report.searched import Searched
from ncclbench.report.text import ranges_text, rate_text, three_digits, time_text
from ncclbench.stats.intervals import Floats

Link = dict[str, Any]
# Of each measure by class of link.
Medians = dict[str, dict[str, float]]

# Of more ranks no cell could be seen: the map then has one for each pair of hosts.
MOST_RANKS = 128
# Beyond this factor from the median colours are alike: half again as slow is to be seen beside ten times.
FULL_COLOUR = 2.0
# So few that what each reads fits into its cell.
_MOST_LABELLED = 8


@dataclass(frozen=True, slots=True)
class Measure:
    """What a map may show of a link.

    Attributes:
        option: its word in the list beside the figure.
        key: of a row of ``matrix``.
        is_time: more of it is slower.
        text: a value with its unit.
        units: what each unit that ``text`` may choose is, in that of the row.
    """

    option: str
    key: str
    is_time: bool
    text: Callable[[float], str]
    units: Mapping[str, float]


_RATES_GBs = {"KB/s": 1e-6, "MB/s": 1e-3, "GB/s": 1.0}
_TIMES_us = {"ns": 1e-3, "µs": 1.0, "ms": 1e3, "s": 1e6}

MEASURES = (
    Measure("bandwidth", "bandwidth_GBs", False, rate_text, _RATES_GBs),
    Measure("both ways at once", "both_GBs", False, rate_text, _RATES_GBs),
    Measure("latency", "latency_us", True, time_text, _TIMES_us),
)


@dataclass(frozen=True, slots=True)
class LinkMap:
    """The figure, and what it leaves out in words ("" for nothing)."""

    figure: Figure
    note: str


def class_medians(links: Sequence[Link], key: str) -> dict[str, float]:
    """Median of a value by class of link."""
    values: dict[str, list[float]] = {}
    for link in links:
        if link[key] is not None:
            values.setdefault(link["class"], []).append(link[key])
    return {name: float(np.median(own)) for name, own in values.items()}


def link_map(search: Searched, name: str) -> LinkMap | None:
    """The map of a search; None where no pair was measured."""
    links = [link for link in search.links if link["bandwidth_GBs"] is not None]
    if not links:
        return None
    order, places = _measured(search, links), search.places
    medians = {measure.key: class_medians(links, measure.key) for measure in MEASURES}
    if len(order) <= MOST_RANKS:
        cells = list(_by_rank(links, order))
        return LinkMap(
            _figure(name, rank_row(places, order), cells, search, medians), _left_out(order, places)
        )
    hosts = _furthest(links, places)
    cells = list(_by_host(links, hosts, places))
    note = f"Of {len(order):,} ranks each cell is the slowest link that was measured between two hosts"
    in_all = len({places.host_of[rank] for rank in order})
    if in_all > len(hosts):
        note += f"; of {in_all:,} hosts these are the {len(hosts)} furthest from the median"
    note = " ".join(text for text in (f"{note}.", _left_out(order, places)) if text)
    return LinkMap(_figure(name, host_row(places, hosts), cells, search, medians), note)


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a link stands; ``others`` are those between the same hosts that are not shown."""

    row: int
    column: int
    link: Link
    others: int = 0


def _measured(search: Searched, links: Sequence[Link]) -> list[int]:
    """The ranks that were measured: of hosts one each where one speaks for all."""
    measured = {link["src"] for link in links} | {link["dst"] for link in links}
    return [rank for rank in search.order if rank in measured]


def _left_out(shown: Sequence[int], places: Places) -> str:
    """Which ranks have no row because no link of theirs was measured."""
    among = speakers(shown, places)
    missing = sorted(set(among) - set(shown))
    said = "One rank speaks for each host." if len(among) < len(places.host_of) else ""
    if missing:
        ranks = f"rank{'s' * (len(missing) > 1)} {ranges_text(missing)}"
        said = f"{said} Not in the map: {ranks}, of which no link was measured.".strip()
    return said


def _by_rank(links: Sequence[Link], order: Sequence[int]) -> Iterator[Cell]:
    at = {rank: place for place, rank in enumerate(order)}
    for link in links:
        yield Cell(at[link["src"]], at[link["dst"]], link)


def _by_host(links: Sequence[Link], hosts: Sequence[int], places: Places) -> Iterator[Cell]:
    at = {host: place for place, host in enumerate(hosts)}
    between: dict[tuple[int, int], list[Link]] = {}
    for link in links:
        pair = places.host_of[link["src"]], places.host_of[link["dst"]]
        if set(pair) <= at.keys():
            between.setdefault(pair, []).append(link)
    for (src, dst), own in between.items():
        yield Cell(at[src], at[dst], min(own, key=_ratio), len(own) - 1)


def _ratio(link: Link) -> float:
    return float(link["ratio_to_class_median"])


def _furthest(links: Sequence[Link], places: Places) -> list[int]:
    """So many hosts as can be shown: those with the links that are furthest from their median."""
    distance: dict[int, float] = {}
    for link in links:
        for rank in (link["src"], link["dst"]):
            host = places.host_of[rank]
            distance[host] = max(distance.get(host, 0.0), abs(math.log(_ratio(link))))
    worst = sorted(distance, key=lambda host: (-distance[host], host))[:MOST_RANKS]
    return sorted(worst)


def _figure(name: str, line: Line, cells: Sequence[Cell], search: Searched, medians: Medians) -> Figure:
    size = sum(count for _, count in line.groups)
    texts = [[""] * size for _ in range(size)]
    for cell in cells:
        texts[cell.row][cell.column] = _hover(cell, search.places, medians)
    layout = {
        "xaxis": {**line.axis(f"to ({line.title})"), "constrain": "domain"},
        "yaxis": {
            **line.axis(f"from ({line.title})"),
            "range": [size - 0.5, -0.5],
            "scaleanchor": "x",
            "constrain": "domain",
        },
        "shapes": line.grid(),
    }
    marks = _marks(search.unexplained([cell.link for cell in cells]), cells, size)
    plots = {}
    for measure in MEASURES:
        if not medians[measure.key]:
            continue
        labelled = size <= _MOST_LABELLED
        unit = _unit([cell.link[measure.key] for cell in cells], measure)
        data = [
            _map(cells, size, measure, medians[measure.key], unit if labelled else None),
            *marks * (measure is MEASURES[0]),
        ]
        plots[f"{measure.option}, {unit}" if labelled else measure.option] = Plot(data, layout)
    return Figure(
        name,
        "Every link against the median of its class",
        "Map of links, source by row, destination by column",
        "value",
        min(640, 300 + 10 * size),
        {ALWAYS: plots},
        {"hovertext": texts, "hoverinfo": "text"},
    )


def _unit(values: Sequence[float | None], measure: Measure) -> str:
    """The unit in which the middle of the values is read: one for all, so that larger numbers are more."""
    return measure.text(float(np.median([value for value in values if value]))).rpartition(" ")[2]


def _number(value: float, unit: float) -> str:
    """A value in a unit, as short as a cell is wide."""
    return three_digits(value / unit) if value >= unit / 1000 else "<0.001"


def _map(
    cells: Sequence[Cell], size: int, measure: Measure, medians: dict[str, float], unit: str | None
) -> Trace:
    """The coloured cells, with numbers in ``unit``; None for no numbers."""
    speed: Floats = np.full((size, size), np.nan)
    labels = [[""] * size for _ in range(size)]
    for cell in cells:
        value = cell.link[measure.key]
        if value:
            speed[cell.row, cell.column] = _speed(measure, value, medians[cell.link["class"]])
            if unit is not None:
                labels[cell.row][cell.column] = _number(value, measure.units[unit])
    logs = np.clip(np.log2(speed), -math.log2(FULL_COLOUR), math.log2(FULL_COLOUR))
    bound = math.log2(FULL_COLOUR)
    map_trace: Trace = {
        "type": "heatmap",
        "z": [[None if math.isnan(value) else round(value, 2) for value in row] for row in logs.tolist()],
        "zmin": -bound,
        "zmax": bound,
        "colorscale": [[0, "var(--high)"], [0.5, "var(--line)"], [1, "var(--low)"]],
        "showscale": False,
        "hoverongaps": False,
        "xgap": 1,
        "ygap": 1,
    }
    if unit is not None:
        map_trace |= {"text": labels, "texttemplate": "%{text}"}
    return map_trace


def _marks(odd: Sequence[Link], cells: Sequence[Cell], size: int) -> list[Trace]:
    """A mark on each of the odd links, for what colour alone does not tell."""
    known = {id(link) for link in odd}
    marked = [cell for cell in cells if id(cell.link) in known]
    if not marked:
        return []
    labelled = size <= _MOST_LABELLED
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [cell.column for cell in marked],
            "y": [cell.row for cell in marked],
            "hoverinfo": "skip",
            "showlegend": False,
            "marker": {
                # Around a number, or in the middle of a cell that holds none.
                "symbol": "circle-open" if labelled else "circle",
                "size": 30 if labelled else max(2, min(8, 240 // size)),
                "color": "var(--ink)",
            },
        }
    ]


def _speed(measure: Measure, value: float, median: float) -> float:
    """How many times faster than the median of its class: below 1 is slow, also of a latency."""
    return median / value if measure.is_time else value / median


def _hover(cell: Cell, places: Places, medians: Medians) -> str:
    link = cell.link
    src, dst = link["src"], link["dst"]
    names = [plain(places.hosts[places.host_of[rank]]) for rank in (src, dst)]
    lines = [f"<b>{src} → {dst}</b> {names[0]} → {names[1]}, {link['class']}"]
    for measure in MEASURES:
        value = link[measure.key]
        if value:
            share = value / medians[measure.key][link["class"]]
            lines.append(f"{measure.option} {measure.text(value)}, {100 * share:.0f} % of median")
    if link["odd"]:
        lines.append("odd")
    if cell.others:
        lines.append(f"the slowest of {cell.others + 1} links")
    return "<br>".join(lines)
