"""What a person sees of an overlap run: a table for each backend and operation, and why it is no figure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ncclbench.stats.overlap import TOGETHER
from ncclbench.stats.overlap_words import number, reasons, with_controls
from ncclbench.terminal.columns import aligned, commented, indented
from ncclbench.terminal.streams import one_line
from ncclbench.terminal.table import NOTHING
from ncclbench.units import count_text, format_bytes, format_us

Row = Mapping[str, Any]

_WIDTH = 80
_LEGEND = (
    "# hidden: (comm + compute - together) / the shorter of the two; +-: its 95% interval over epochs; "
    "serial: the same, one after the other, where nothing can hide; slower: until that was done while both "
    "ran, over its time alone"
)

# Title, what stands below it, and the text of a row and its serial control; as wide as the widest text.
_Column = tuple[str, str, Callable[[Row, Row | None], str]]
_CASE: tuple[_Column, ...] = (
    ("size", "(B)", lambda row, _: format_bytes(row["nbytes"])),
    ("beside", "", lambda row, _: row["compute"]),
)
_FREE: tuple[_Column, ...] = (("free", "SMs", lambda row, _: str(row["free_sms"])),)
_FOUND: tuple[_Column, ...] = (
    ("comm", "(us)", lambda row, _: format_us(row["comm_us"])),
    ("compute", "(us)", lambda row, _: format_us(row["compute_us"])),
    ("together", "(us)", lambda row, _: format_us(row["together_us"])),
    ("hidden", "", lambda row, _: number(row["efficiency"])),
    ("+-", "", lambda row, _: _half_interval(row)),
    ("serial", "", lambda _, control: number(control["efficiency"] if control else None)),
    ("comm", "slower", lambda row, _: _times(row["comm_slowdown"])),
    ("compute", "slower", lambda row, _: _times(row["compute_slowdown"])),
)


def overlap_lines(rows: Sequence[Row]) -> list[str]:
    """What stands above the answer on a terminal; rows as ``stats.overlap`` makes them."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["n"]:
            key = tuple(str(row[name]) for name in ("backend", "implementation", "op", "dtype", "mode"))
            groups.setdefault(key, []).append(row)
    lines: list[str] = []
    for (backend, implementation, op, dtype, mode), own in groups.items():
        captured = ", in a CUDA graph" if mode == "graph" else ""
        ranks = count_text(own[0]["nranks"], "rank")
        title = f"# {op} {dtype} on {backend} ({implementation}), {ranks}{captured}"
        lines += ["#", one_line(title), *_table(own)]
    if groups:
        lines += _wrapped(_LEGEND)
    total = sum(row["arm"] == TOGETHER for row in rows)
    for what, why, count in reasons(rows):
        lines += _wrapped(one_line(f"# {what}, {count} of {total}: {why}"))
    return lines[1:] if groups else lines


def _table(rows: Sequence[Row]) -> list[str]:
    free = _FREE if any(row["free_sms"] is not None for row in rows) else ()
    columns = [*_CASE, *free, *_FOUND]
    pairs = with_controls(rows)
    cells = [[title for title, _, _ in columns], [below for _, below, _ in columns]]
    cells += [[one_line(text(row, control)) for _, _, text in columns] for row, control in pairs]
    lines = indented(aligned(cells, left=(), gap=" "))
    header = [commented(line) for line in lines[:2]]
    marks = ["  WRONG DATA" if row["status"] == "wrong" else "" for row, _ in pairs]
    return [*header, *(line + mark for line, mark in zip(lines[2:], marks, strict=True))]


def _half_interval(row: Row) -> str:
    """Half of the interval, which is symmetric; where it is no figure, that word is what matters."""
    if not row["meaningful"]:
        return "no figure"
    return NOTHING if row["ci_low"] is None else number((row["ci_high"] - row["ci_low"]) / 2)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="#   ", break_long_words=False)


def _times(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{number(ratio)}x"
