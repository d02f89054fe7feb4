"""The table of a sweep in nccl-tests' words: pure text, one line per case and arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ncclbench.plan.model import Case, Plan
from ncclbench.tables.modes import MODES
from ncclbench.terminal.columns import commented, padded
from ncclbench.units import format_us, rank_ranges

Row = Mapping[str, Any]

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its title and unit, its width, and what it shows of a row."""

    title: str
    unit: str
    width: int
    text: Callable[[Row], str]
    left: bool = False


class Table:
    """The columns that a plan's rows need, of one width from the first line to the last."""

    def __init__(self, plan: Plan) -> None:
        self._columns = _columns(plan)

    def header(self) -> list[str]:
        """Two lines: titles and units."""
        titles = self._padded([column.title for column in self._columns])
        units = self._padded([column.unit for column in self._columns])
        return [commented(titles), commented(units)]

    def line(self, row: Row) -> str:
        """The line of one row, as ``--json`` has it."""
        cells = self._padded([column.text(row) for column in self._columns])
        return cells + ("  WRONG DATA" if row["wrong"] else _slow_group(row))

    def _padded(self, cells: list[str]) -> str:
        left = [number for number, column in enumerate(self._columns) if column.left]
        return padded(cells, [column.width for column in self._columns], left, gap=" ")


def _slow_group(row: Row) -> str:
    """Which of a topology's groups is slower than the others, and how many more are."""
    if not row.get("slow_groups"):
        return ""
    slow = next(group for group in row["groups"] if group["slow"])
    more = f" and {row['slow_groups'] - 1} more" if row["slow_groups"] > 1 else ""
    return f"  SLOW GROUP: {rank_ranges(slow['ranks'])}, {slow['ratio']:.2f}x the others' time{more}"


def group_title(case: Case) -> str:
    """What all rows under one heading share."""
    words = [case.op, case.dtype, case.mode]
    if case.topology != "world":
        words.append(case.topology)
    form = f"{'async, ' if case.async_op else ''}{'in place' if case.in_place else 'out of place'}"
    meaning = MODES[case.mode].description.split("; ")[0]
    return f"# {' '.join(words)} ({form}) - {meaning}"


def _columns(plan: Plan) -> list[Column]:
    cases = [entry.case for entry in plan.cases]
    type_width = max(8, *(len(case.dtype) for case in cases))
    columns = [
        Column("size", "(B)", 11, lambda row: str(row["nbytes"])),
        Column("count", "(elements)", 11, lambda row: str(row["count"])),
        Column("type", "", type_width, lambda row: str(row["dtype"])),
        Column("redop", "", 5, lambda row: row["redop"] or "none"),
        Column("root", "", 4, lambda row: "-1" if row["root"] is None else str(row["root"])),
    ]
    if len(plan.arms) > 1:
        width = max(len(arm.id) for arm in plan.arms)
        columns.append(Column("arm", "", max(3, width), lambda row: str(row["arm"]), left=True))
    return [
        *columns,
        Column("time", "(us)", 8, lambda row: _time(row["median_us"])),
        Column("95% interval", "(us)", 18, _interval),
        Column("algbw", "(GB/s)", 8, lambda row: _bandwidth(row["algbw_GBs"])),
        Column("busbw", "(GB/s)", 8, lambda row: _bandwidth(row["busbw_GBs"])),
        Column("#wrong", "", 6, lambda row: NOTHING if row["wrong"] is None else str(row["wrong"])),
    ]


def _time(time_us: float | None) -> str:
    return NOTHING if time_us is None else format_us(time_us)


def _interval(row: Row) -> str:
    if row["ci_low_us"] is None or row["ci_high_us"] is None:
        return NOTHING
    return f"{_time(row['ci_low_us'])}..{padded([_time(row['ci_high_us'])], [8], left=())}"


def _bandwidth(rate_GBs: float | None) -> str:
    if rate_GBs is None:
        return NOTHING
    return f"{rate_GBs:.{4 if rate_GBs < 1 else 2 if rate_GBs < 100 else 1}f}"
