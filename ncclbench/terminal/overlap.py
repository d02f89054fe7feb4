"""What a person sees of an overlap run: a table for each backend and operation, and why it is no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncclbench.stats.overlap import TOGETHER
from ncclbench.stats.overlap_words import interval, number, reasons, with_controls
from ncclbench.terminal.streams import one_line
from ncclbench.terminal.table import NOTHING
from ncclbench.units import format_us

Row = Mapping[str, Any]

# Title, unit, width.
_COLUMNS = (
    ("size", "(B)", 11),
    ("beside", "", 7),
    ("comm", "(us)", 9),
    ("compute", "(us)", 9),
    ("together", "(us)", 9),
    ("shows", "(us)", 9),
    ("hidden", "", 6),
    ("95% interval", "", 14),
    ("serial", "", 6),
    ("comm", "slower", 7),
    ("compute", "slower", 7),
)
_FREE = ("free SMs", "", 8)


def overlap_lines(rows: Sequence[Row]) -> list[str]:
    """What stands above the answer on a terminal; rows as ``stats.overlap`` makes them."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["status"] in ("ok", "wrong"):
            key = tuple(str(row[name]) for name in ("backend", "implementation", "op", "dtype", "mode"))
            groups.setdefault(key, []).append(row)
    lines: list[str] = []
    for (backend, implementation, op, dtype, mode), own in groups.items():
        captured = ", in a CUDA graph" if mode == "graph" else ""
        title = f"# {op} {dtype} on {backend} ({implementation}), {own[0]['nranks']} ranks{captured}"
        lines += ["#", one_line(title), *_table(own)]
    if groups:
        lines += [
            "# hidden: (comm + compute - together) / the shorter of the two; serial: the same, one after the",
            "# other, where nothing can hide; shows: together - compute; slower: over its time alone",
        ]
    total = sum(row["arm"] == TOGETHER for row in rows)
    told = [one_line(f"# {what}, {count} of {total}: {why}") for what, why, count in reasons(rows)]
    return lines[1:] + told


def _table(rows: Sequence[Row]) -> list[str]:
    on_gpu = any(row["free_sms"] is not None for row in rows)
    columns = [*_COLUMNS[:2], *([_FREE] if on_gpu else []), *_COLUMNS[2:]]
    header = []
    for which in (0, 1):
        texts = [str(column[which]).rjust(int(column[2])) for column in columns]
        header.append(f"#{' '.join(texts)[1:]}".rstrip())
    lines = []
    for row, control in with_controls(rows):
        cells = [str(row["nbytes"]), row["compute"]]
        cells += [str(row["free_sms"])] if on_gpu else []
        cells += [_us(row[name]) for name in ("comm_us", "compute_us", "together_us", "exposed_us")]
        cells += [number(row["efficiency"]), interval(row) or NOTHING]
        cells += [number(control["efficiency"] if control else None)]
        cells += [_times(row["comm_slowdown"]), _times(row["compute_slowdown"])]
        mark = "  WRONG DATA" if row["status"] == "wrong" else "" if row["meaningful"] else "  no figure"
        padded = [text.rjust(int(column[2])) for text, column in zip(cells, columns, strict=True)]
        lines.append(one_line_keeping(" ".join(padded) + mark))
    return [*header, *lines]


def one_line_keeping(text: str) -> str:
    """The text with its columns, what cannot be printed escaped."""
    return "".join(char if char.isprintable() else one_line(char) or " " for char in text)


def _us(time_us: float | None) -> str:
    if time_us is None:
        return NOTHING
    return format_us(time_us) if time_us >= 0 else f"-{format_us(-time_us)}"


def _times(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{number(ratio)}x"
