"""Panel: every comparison with all its numbers, to sort, filter and download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ncclbench.report.claims import interval_text, rests_on_text
from ncclbench.report.marks import comparison_marks
from ncclbench.report.model import AXES, Row, tabled, varying_axes
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import ratio_text, three_digits
from ncclbench.report.versus.model import Versus
from ncclbench.units import count_text, format_bytes, format_percent, format_us

Text = Callable[[Row], str]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table.

    Attributes:
        key: the row's key, which it is sorted by.
        title: its heading.
        text: what stands in a row's cell.
        is_text: aligned left.
    """

    key: str
    title: str
    text: Text
    is_text: bool = False


def build(versus: Versus) -> Content:
    """One line per comparison; axes on which all are alike become one line above."""
    rows = versus.rows
    varying = varying_axes(rows)
    alike = {
        axis: row[axis] for row in rows for axis in AXES if axis not in varying and row[axis] is not None
    }
    columns = [*_pair_columns(versus), *_case_columns(varying), *_NUMBERS]
    lines = [
        {
            "status": "ok",
            "cells": [column.text(row) for column in columns],
            "marks": comparison_marks(row),
            "reason": _note(row),
        }
        for row in tabled(rows)
    ]
    left_out = len(rows) - len(lines)
    return {
        "columns": columns,
        "noted": any(line["marks"] or line["reason"] for line in lines),
        "alike": ", ".join(f"{_TITLES.get(axis, axis)} {_word(value)}" for axis, value in alike.items()),
        "lines": lines,
        "left_out": (
            f"{count_text(left_out, 'more row')} left out here and in the downloads: "
            "ncclbench compare --csv and --json write all rows."
            if left_out
            else ""
        ),
        "files": ("comparison.csv", "comparison.json"),
    }


PANEL: Panel[Versus] = Panel(
    name="table",
    order=30,
    title="All comparisons",
    description=(
        "Times are in µs, ratios are of times, new over base. p is corrected for all comparisons here. "
        "Found from: the smallest difference that would be found with 90 % power."
    ),
    build=build,
    template="table.html",
)


_TITLES = {"dtype": "type", "in_place": "in place", "nranks": "ranks"}


def _pair_columns(versus: Versus) -> list[Column]:
    """Which sides a line is of, where there are several pairs."""
    if len(versus.pairs) < 2:
        return []
    return [
        Column("base", "base", lambda row: str(row["base"]), is_text=True),
        Column("new", "new", lambda row: str(row["new"]), is_text=True),
    ]


def _case_columns(varying: set[str]) -> list[Column]:
    axes = [
        Column(axis, _TITLES.get(axis, axis), _value(axis), is_text=axis not in ("root", "nranks"))
        for axis in AXES
        if axis in varying
    ]
    return [
        Column("op", "collective", _value("op"), is_text=True),
        Column("nbytes", "size", lambda row: format_bytes(row["nbytes"])),
        *axes,
        Column("mode", "mode", _value("mode"), is_text=True),
    ]


def _value(key: str) -> Text:
    return lambda row: _word(row[key])


def _time(key: str) -> Text:
    return lambda row: "–" if row.get(key) is None else format_us(row[key])


def _fraction(key: str) -> Text:
    return lambda row: "–" if row.get(key) is None else format_percent(row[key])


_NUMBERS = (
    Column("base_us", "base", _time("base_us")),
    Column("new_us", "new", _time("new_us")),
    Column("ratio", "ratio", lambda row: "–" if row["ratio"] is None else ratio_text(row["ratio"])),
    Column("ci_low", "95 % interval", lambda row: interval_text(row["ci_low"], row["ci_high"]) or "–"),
    Column("verdict", "verdict", lambda row: str(row["verdict"]), is_text=True),
    Column("p_holm", "p", lambda row: _p_text(row["p_holm"])),
    Column("margin", "margin", _fraction("margin")),
    Column("detectable", "found from", _fraction("detectable")),
    Column("epochs", "rests on", rests_on_text),
)


def _p_text(p: float | None) -> str:
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else three_digits(p)


def _note(row: Row) -> str:
    parts = [row["tail"], "beyond the margin" if row["beyond_margin"] else None, row["note"]]
    return "; ".join(str(part) for part in parts if part)


def _word(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
