"""Panel: every row, to sort, filter and download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ncclbench.report.marks import marked_rows
from ncclbench.report.model import AXES, Report, Row, tabled, varying_axes
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import three_digits
from ncclbench.units import count_text, format_bytes, format_us


def build(report: Report) -> Content | None:
    """Columns in nccl-tests' order; those on which all rows are alike become one line above."""
    rows = report.rows
    if not rows:
        return None
    varying = varying_axes(rows)
    columns = [column for column in _COLUMNS if column.shown(report, varying)]
    titles = {column.key: column.title for column in _COLUMNS}
    alike = {
        axis: row[axis] for row in rows for axis in AXES if axis not in varying and row[axis] is not None
    }
    shown = {id(row) for row in tabled(rows)}
    marked = [(row, marks) for row, marks in marked_rows(report) if id(row) in shown]
    return {
        "left_out": _left_out(report, len(rows) - len(marked)),
        "columns": columns,
        "noted": any(marks or row["reason"] for row, marks in marked),
        "alike": ", ".join(f"{titles[axis]} {_word(value)}" for axis, value in alike.items()),
        "lines": [
            {
                "status": row["status"],
                "cells": [column.cell(row) for column in columns],
                "marks": marks,
                "reason": row["reason"] or "",
            }
            for row, marks in marked
        ],
        "files": ("summary.csv", "rows.json"),
    }


def _left_out(report: Report, number: int) -> str:
    """How many rows are left out, and where they are; "" for none."""
    if not number:
        return ""
    drawn = f", and figures draw every {report.stride}th point" if report.stride > 3 else ""
    return (
        f"{count_text(number, 'more row')} left out here and in the downloads{drawn}: all rows are in the "
        "summary.csv of the run's folder, and in what ncclbench report --json prints."
    )


PANEL = Panel(
    name="table",
    order=50,
    title="All rows",
    description="Time is the median in µs, bandwidth is in GB/s (1e9 bytes per second).",
    build=build,
    template="table.html",
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table.

    Attributes:
        key: the row's key, which it is sorted by.
        title: its heading, nccl-tests' word where there is one.
        is_text: aligned left.
        always: shown even where all rows are alike.
    """

    key: str
    title: str
    is_text: bool = False
    always: bool = True

    def shown(self, report: Report, varying: set[str]) -> bool:
        """Whether the report needs it."""
        if self.key == "run":
            return len(report.sources) > 1
        if self.key == "arm":
            return len(report.series) > 1
        return self.always or self.key in varying

    def cell(self, row: Row) -> str:
        """What stands in the row's cell."""
        value = row[self.key]
        if self.key == "nbytes":
            return format_bytes(value)
        if self.key == "ci_low_us":
            if value is None:
                return "–"
            return f"{format_us(value)} – {format_us(row['ci_high_us'])}"
        if value is None:
            return "–"
        if self.key.endswith("_us"):
            return format_us(value)
        if self.key.endswith("_GBs"):
            return bandwidth_text(value)
        return _word(value)


_COLUMNS = (
    Column("run", "run", is_text=True),
    Column("op", "collective", is_text=True),
    Column("arm", "arm", is_text=True),
    Column("nbytes", "size"),
    Column("count", "count"),
    Column("dtype", "type", is_text=True, always=False),
    Column("redop", "redop", is_text=True, always=False),
    Column("root", "root", always=False),
    Column("topology", "topology", is_text=True, always=False),
    Column("async", "async", is_text=True, always=False),
    Column("in_place", "in place", is_text=True, always=False),
    Column("nranks", "ranks", always=False),
    Column("mode", "mode", is_text=True),
    Column("median_us", "time"),
    Column("ci_low_us", "95 % interval"),
    Column("p95_us", "p95"),
    Column("algbw_GBs", "algbw"),
    Column("busbw_GBs", "busbw"),
    Column("wrong", "#wrong"),
    Column("n", "n"),
)


def bandwidth_text(rate_GBs: float) -> str:
    """GB/s without its unit, in a column's width."""
    return three_digits(rate_GBs) if rate_GBs >= 0.001 or rate_GBs == 0 else f"{rate_GBs:.1e}"


def _word(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
