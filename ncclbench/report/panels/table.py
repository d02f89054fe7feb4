"""Panel: every row, to sort, filter and download."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ncclbench.report.marks import marked_rows
from ncclbench.report.model import AXES, Report, Row, varying_axes
from ncclbench.report.panels.panel import Content, Panel
from ncclbench.report.text import three_digits
from ncclbench.units import format_bytes, format_us


def build(report: Report) -> Content | None:
    """Columns in nccl-tests' order; those on which all rows are alike become one line above."""
    rows = report.rows
    if not rows:
        return None
    varying = varying_axes(rows)
    columns = [column for column in _COLUMNS if column.shown(report, varying)]
    alike = [f"{axis.replace('_', ' ')} {_word(rows[0][axis])}" for axis in AXES if axis not in varying]
    return {
        "columns": columns,
        "alike": ", ".join(text for text in alike if not text.endswith(" –")),
        "lines": [
            {
                "status": row["status"],
                "cells": [column.cell(row) for column in columns],
                "marks": marks,
                "reason": row["reason"] or "",
            }
            for row, marks in marked_rows(report)
        ],
        "data": {"rows": _columnar(rows)},
    }


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
            return three_digits(value)
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


def _word(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _columnar(rows: list[Row]) -> dict[str, list[Any]]:
    """The rows as keys and values, unrounded: a third of the size of one object per row."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return {"keys": keys, "values": [[_finite(row.get(key)) for key in keys] for row in rows]}


def _finite(value: Any) -> Any:
    """JSON knows no infinity and no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


